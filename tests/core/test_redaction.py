from __future__ import annotations

import math
from datetime import UTC, datetime
from time import perf_counter

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from edgeq.core.input_rules import SECRET_NAMES
from edgeq.core.json_text import encode
from edgeq.core.redaction import redact, redact_details, safe_message

JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.s5cR-t_x"
PEM = "-----BEGIN RSA PRIVATE KEY-----\nMIIEhunter2\nhunter2==\n-----END RSA PRIVATE KEY-----"

fragments = st.sampled_from(
    [
        *SECRET_NAMES,
        *("Bearer", "basic ", "://", "u:p@h/", "@", ":", "=", "==>", '"', "'", "\\", " ", "\n"),
        *(",", ";", "&", ")", "]", "[", "[redacted]", "[redac", "b'", "4111111111111111", "4111"),
        *("AKIAABCDEFGHIJKLMNOP", "sk-", "eq_", "hunter2hunter2hunter2", JWT, "eyJ", ".", "-"),
        *("-----BEGIN PRIVATE KEY-----", "-----END PRIVATE KEY-----", "\x1b[0m", "\x1b", "\0"),
    ]
)
fragmented = st.lists(fragments, max_size=12).map("".join)


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("401 for Bearer abc.def-123 again", "401 for Bearer [redacted] again"),
        ("sent basic dXNlcjpodW50ZXIy", "sent basic [redacted]"),
        ("postgresql://bob:hunter2@db:5432/x", "postgresql://[redacted]@db:5432/x"),
        ("redis://:hun@ter2@db/0", "redis://[redacted]@db/0"),
        ("amqp://bob:hun/ter2@db", "amqp://[redacted]@db"),
        ("https://ghtoken@github.com/x", "https://[redacted]@github.com/x"),
        ("host=db password=hunter2 user=bob", "host=db password=[redacted] user=bob"),
        ("password=hun,ter2, then", "password=[redacted], then"),
        ("login(password=hunter2)", "login(password=[redacted])"),
        ("password='hunter 2', x=1", "password='[redacted]', x=1"),
        ("password=b'hunter 2'", "password=b'[redacted]'"),
        ('{"apiKey": "hunter\\"2", "n": 1}', '{"apiKey": "[redacted]", "n": 1}'),
        ('{"cvv":123}', '{"cvv":[redacted]}'),
        ("X-Api-Key: hunter2", "X-Api-Key: [redacted]"),
        ("DB_PASSWORD = hunter2", "DB_PASSWORD = [redacted]"),
        ("aws_secret_access_key=hunter2", "aws_secret_access_key=[redacted]"),
        ("Authorization: Bearer hunter2", "Authorization: [redacted]"),
        ("Authorization: Token hunter2", "Authorization: [redacted]"),
        ("GET /?page=1&token=hunter2&x=1", "GET /?page=1&token=[redacted]&x=1"),
        ("key AKIAABCDEFGHIJKLMNOP leaked", "key [redacted] leaked"),
        ("sk-proj-abcdefghijklmnop", "[redacted]"),
        ("sk_live_abcdefghijklmnop", "[redacted]"),
        ("ghp_abcdefghijklmnopqrstuvwxyz0123456789", "[redacted]"),
        ("github_pat_abcdefghijklmnopqrstuv", "[redacted]"),
        ("eq_abcdefghijklmnopqrstuvwxyz-0123456789", "[redacted]"),
        ("xoxb-12345678-abcdef", "[redacted]"),
        (f"got {JWT}, expired", "got [redacted], expired"),
        (f"read {PEM} from disk", "read [redacted] from disk"),
        ("card 4111111111111111 declined", "card [redacted] declined"),
        ("card 4111-1111-1111-1111 declined", "card [redacted] declined"),
        ("order 1234 4111 1111 1111 1111 123", "order [redacted]"),
        ("amex 3782 822463 10005.", "amex [redacted]."),
    ],
)
def test_a_secret_is_redacted_and_the_rest_stays(text: str, safe: str) -> None:
    assert safe_message(text) == safe


@pytest.mark.parametrize(
    "text",
    [
        "max_tokens=5, token_count: 7, tokens = 9",
        "Basic usage of the bearer",
        "http://example.com:8080/users/a@example.com",
        "mail to bob@example.com failed",
        "took 1753000000008 ms since 1753000000000",
        "order 4111111111111112 not found",
        "id 41111111111111111111111111111111",
        "job 017f22e2-79b0-7cc3-98c4-dc0c0c07398f",
        "the token is missing",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert safe_message(text) == text


@pytest.mark.parametrize("name", SECRET_NAMES)
@pytest.mark.parametrize(
    "pair", ["{}=hunter2", "{}: hunter2", '"{}": "hunter2"', "'{}': 'hunter2'"]
)
def test_every_secret_name_is_redacted_however_it_is_written(name: str, pair: str) -> None:
    for spelling in (name, name.upper(), name.replace("_", "-"), name.replace("_", "")):
        assert "hunter2" not in redact(pair.format(spelling))


def test_a_private_key_without_its_end_is_redacted_to_the_end() -> None:
    assert redact("-----BEGIN PRIVATE KEY-----\nhunter2\nhunter2") == "[redacted]"


def test_a_message_is_one_line_without_anything_that_moves_a_cursor() -> None:
    text = "\x1b[31mred\x1b[0m\r\nnext\tline\0\x07 \x1b]0;title\x07\u202eend\x1b\u2028"

    assert safe_message(text) == "red next line end"


def test_a_secret_that_an_escape_sequence_cuts_in_two_is_still_redacted() -> None:
    assert safe_message("pass\x1b[1mword=hunter2") == "password=[redacted]"


def test_a_traceback_keeps_its_lines() -> None:
    text = 'File "x.py", line 1\r\n\tconnect(password="hunter2")\x1b[0m\n'

    assert redact(text) == 'File "x.py", line 1\n\tconnect(password="[redacted]")\n'


def test_long_text_is_cut_and_says_so() -> None:
    assert safe_message("x" * 501) == "x" * 499 + "…"
    assert safe_message("x" * 500) == "x" * 500
    assert len(redact("x\n" * 10_000)) == 8192
    assert redact("abcdef", limit=4) == "abc…"


def test_what_is_cut_was_redacted_before() -> None:
    assert "hunter" not in safe_message("x" * 480 + " password=hunter2hunter2hunter2")


@given(st.text() | fragmented)
@example('token="\\')
@example("4111111111111111AKIA0000000000000000")
def test_redacting_twice_changes_nothing_more(text: str) -> None:
    for clean in (redact, safe_message):
        once = clean(text, limit=10**6)

        assert clean(once, limit=10**6) == once


@given(st.text(st.characters()) | fragmented)
def test_what_is_kept_can_be_stored_and_is_short(text: str) -> None:
    message = safe_message(text)

    assert encode([message, redact(text)])
    assert len(message) <= 500
    assert message.isprintable() or not message.isascii()


@pytest.mark.parametrize(
    "unit",
    [
        *(
            "token",
            "token:",
            'token="',
            "token=,",
            "token=[redacted]",
            "api key ",
            "authorization: ",
        ),
        *("://", "://a:", "://a:b", "://a:b@", "@", "eyJ-", "eyJa.", "eyJa.eyJ", "sk-", "eq_", "a"),
        *(
            "AKIA0000000000000000",
            "AKIA4111111111111111",
            "4111111111111111AKIA",
            "4111111111111111eyJa.",
        ),
        *("-----BEGIN ", "-----BEGIN PRIVATE KEY-----", "Bearer ", "basic ", "\x1b[", "\x1b]"),
        *("1", "4 ", "222 ", "4111-", '"', "\\", "password=\\", " ", "token \t"),
    ],
)
def test_a_hostile_text_of_100_kb_takes_no_more_than_linear_time(unit: str) -> None:
    begun = perf_counter()

    for start in ("", "token=", "token: '", "://", "eyJ", "Bearer "):
        redact(start + unit * (100_000 // len(unit)))

    # About 0.1 s in all; a quadratic pattern takes minutes.
    assert perf_counter() - begun < 10


def test_details_lose_the_values_of_secret_names_and_the_secrets_in_their_texts() -> None:
    details = {
        "apiKey": {"any": "thing"},
        "headers": [{"Authorization": "x"}, ("Bearer hunter2",)],
        "max_tokens": 5,
        "ratio": 0.5,
        "ok": True,
        "none": None,
    }

    assert redact_details(details) == {
        "apiKey": "[redacted]",
        "headers": [{"Authorization": "[redacted]"}, ["Bearer [redacted]"]],
        "max_tokens": 5,
        "ratio": 0.5,
        "ok": True,
        "none": None,
    }


def test_details_that_json_does_not_have_become_text() -> None:
    details = {
        1: datetime(2030, 1, 31, tzinfo=UTC),
        "error": ValueError("password=hunter2"),
        "nan": math.nan,
        "big": 2**64,
        "huge": 10**5000,
        "set": {1},
    }

    safe = redact_details(details)

    assert isinstance(safe, dict)
    assert safe["1"] == "2030-01-31 00:00:00+00:00"
    assert safe["error"] == "password=[redacted]"
    assert (safe["nan"], safe["big"], safe["set"]) == ("nan", "0x10000000000000000", [1])
    assert encode(safe)


def test_details_that_hold_themselves_end_somewhere() -> None:
    parent: dict[str, object] = {"name": "root"}
    parent["children"] = [{"parent": parent}, {"parent": parent}]

    child = {"parent": "[nested too deep]"}
    assert redact_details(parent) == {"name": "root", "children": [child, child]}


def test_details_are_cut_off_where_they_are_nested_too_deep() -> None:
    deep: object = 1
    for _ in range(1000):
        deep = [deep]

    assert encode(redact_details(deep)) == "[" * 32 + '"[nested too deep]"' + "]" * 32
