"""Makes messages, tracebacks and details safe to keep: no secrets, nothing that moves a cursor."""

from __future__ import annotations

import math
import re
from collections.abc import Collection

from edgeq.core.input_rules import SECRET_NAMES, is_secret_name
from edgeq.core.json_text import INT_MAX, INT_MIN, MAX_DEPTH

REDACTED = "[redacted]"

_CUT = "…"
_TOO_DEEP = "[nested too deep]"


def safe_message(text: str, limit: int = 500) -> str:
    """One short line for people."""
    line = " ".join(_without_controls(text).split())
    return _capped(_without_secrets(line), limit)


def redact(text: str, limit: int = 8192) -> str:
    """Text of many lines, such as a traceback."""
    return _capped(_without_secrets(_without_controls(text)), limit)


def redact_details(value: object) -> object:
    """Details of any shape as data that can be stored; what JSON does not have becomes text."""
    return _details(value, ())


def _details(value: object, within: tuple[int, ...]) -> object:
    match value:
        case None | bool():
            return value
        case int() if INT_MIN <= value <= INT_MAX:
            return value
        case float() if math.isfinite(value):
            return value
        case dict() | list() | tuple() | set() | frozenset():
            # A tree whose nodes know their parents would otherwise unfold for ever.
            if id(value) in within or len(within) >= MAX_DEPTH:
                return _TOO_DEEP
            return _unfolded(value, (*within, id(value)))
        case _:
            return redact(_as_text(value))


def _unfolded(value: Collection[object], within: tuple[int, ...]) -> object:
    if not isinstance(value, dict):
        return [_details(item, within) for item in value]
    return {
        redact(str(name)): REDACTED if is_secret_name(str(name)) else _details(item, within)
        for name, item in value.items()
    }


def _as_text(value: object) -> str:
    # str() of an int of more than 4300 digits fail; a detail must not.
    return hex(value) if isinstance(value, int) else str(value)


_ESCAPE_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\))")
_CONTROLS = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]"
)


def _without_controls(text: str) -> str:
    encodable = text.encode("utf-8", "replace").decode()
    return _CONTROLS.sub(" ", _ESCAPE_SEQUENCE.sub("", encodable.replace("\r\n", "\n")))


def _capped(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - len(_CUT)] + _CUT


def _without_secrets(text: str) -> str:
    # What is taken out can lay bare the start of another secret. The patterns take whole words,
    # so this ends after two or three rounds.
    while (cleaner := _with_fewer_secrets(text)) != text:
        text = cleaner
    return text


def _with_fewer_secrets(text: str) -> str:
    text = _PRIVATE_KEY_BLOCK.sub(REDACTED, text)
    text = _URL_CREDENTIALS.sub(f"://{REDACTED}@", text)
    text = _KNOWN_KEY.sub(REDACTED, text)
    text = _AUTHORIZATION.sub(rf"\1{REDACTED}", text)
    folded = text.casefold()
    if any(stem in folded for stem in _STEMS):
        text = _NAMED_SECRET.sub(_hide_value, text)
    return _NUMBER.sub(_hide_card, text)


# None of these may backtrack far: either every start leads to a match, or what a failing start
# has read is bounded, or no other start can lie within it. The tests time 100 kB of each.
# Nor may any be possessive (`*+`, `(?>`): before Python 3.11.5 those match at random.

_PRIVATE_KEY_BLOCK = re.compile(
    r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
    r".*?(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----|\Z)",
    re.DOTALL,
)

# The second form is for a password with a slash in it; a port is not a password.
_URL_CREDENTIALS = re.compile(
    r"""://(?:[^\s/"'<>]*@"""
    r"""|[^\s/:@"'<>]{0,128}:(?!\d{1,5}[/?#])[^\s@"'<>]{1,128}@(?:[^\s/"'<>]*@)?)"""
)

_KNOWN_KEY = re.compile(
    r"\b(?:(?:AKIA|ASIA)[0-9A-Z]{16}\w*"
    r"|[rs]k[-_][\w-]{10,}"
    r"|gh[oprsu]_\w{16,}"
    r"|github_pat_\w{16,}"
    r"|eq_[\w-]{16,}"
    r"|xox[a-z]-[\w-]{8,}"
    r"|(?<!-)eyJ[\w-]+\.eyJ[\w-]+\.[\w-]*)",
    re.ASCII,
)

# After "Basic" a word in small letters is prose: credentials in base64 do not look like one.
_AUTHORIZATION = re.compile(
    r"\b((?i:bearer)\s+|(?i:basic)\s+(?![a-z]+(?![\w+/=])))[\w.~+/=-]+", re.ASCII
)

_TEXT_NAMES = (*SECRET_NAMES, "access_key", "secret_key", "passphrase")
# The search for names takes most of the time, and few texts have any of these.
_STEMS = ("pass", "secret", "token", "key", "authorization", "card", "cvv", "ssn")
_NAME = "|".join(name.replace("_", "[-_ ]?") for name in _TEXT_NAMES)
# A bracket, comma or quote belongs to an unquoted value only if the value goes on behind it.
_UNQUOTED = r"""(?:[^\s&,;)}\]"']|[,;)}\]"']+(?![\s&,;)}\]"']|\Z))"""
_NAMED_SECRET = re.compile(
    rf"""((?:{_NAME})[\\"']*[ \t]*(?::|==?>?)[ \t]*)"""
    r"""(?:(?:bearer|basic|digest|token)[ \t]+)?"""
    r"""(?:([\[({]{0,4}[bfru]{0,2}\\{0,8}(["']))(?:\\.|(?!\3)[^\\\n])*"""
    rf"""|(?:{re.escape(REDACTED)})+{_UNQUOTED}*|{_UNQUOTED}+)""",
    re.IGNORECASE,
)


def _hide_value(match: re.Match[str]) -> str:
    return f"{match[1]}{match[2] or ''}{REDACTED}"


_NUMBER = re.compile(r"\d{3,}(?:[ -]\d{3,})*", re.ASCII)
_SHORTEST_CARD, _LONGEST_CARD = 13, 19


def _hide_card(match: re.Match[str]) -> str:
    if len(match[0]) < _SHORTEST_CARD:
        return match[0]
    groups = re.split("[ -]", match[0])
    starts = range(len(groups))
    return REDACTED if any(_starts_card(groups[i : i + 7]) for i in starts) else match[0]


def _starts_card(groups: list[str]) -> bool:
    # No card starts with 0 or 1, but every time in Unix milliseconds starts with 1.
    digits = ""
    for group in groups:
        digits += group
        if len(digits) > _LONGEST_CARD or digits[0] in "01":
            return False
        if len(digits) >= _SHORTEST_CARD and _passes_luhn(digits):
            return True
    return False


def _passes_luhn(digits: str) -> bool:
    doubled = (sum(divmod(2 * int(digit), 10)) for digit in digits[-2::-2])
    return (sum(map(int, digits[-1::-2])) + sum(doubled)) % 10 == 0
