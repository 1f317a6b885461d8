from __future__ import annotations

import pytest

from edgeq.errors import BadSetting
from edgeq.settings import Settings, from_environment
from edgeq.wiring import Queue, SystemChance, SystemClock


def test_the_environment_decides_and_empty_counts_as_absent() -> None:
    read = from_environment(
        {
            "EDGEQ_DATABASE_URL": "sqlite:///x.db",
            "EDGEQ_SYNCHRONOUS": "NORMAL",
            "EDGEQ_HANDLERS": "",
            "OTHER": "1",
        }
    )
    assert read == Settings(database_url="sqlite:///x.db", synchronous="normal")
    assert not read.is_durable
    assert Settings().is_durable


def test_the_patience_of_callers_is_a_number_of_seconds() -> None:
    assert from_environment({"EDGEQ_BUSY_TIMEOUT": "2.5"}).busy_timeout == 2.5
    for wrong in ("soon", "0", "-1", "nan"):
        with pytest.raises(BadSetting, match="EDGEQ_BUSY_TIMEOUT"):
            from_environment({"EDGEQ_BUSY_TIMEOUT": wrong})


@pytest.mark.parametrize("name", ["EDGEQ_SYNCHRONOUS", "EDGEQ_SECRETS", "EDGEQ_LOG_LEVEL"])
def test_a_value_that_is_not_a_choice_is_refused_by_name(name: str) -> None:
    with pytest.raises(BadSetting, match=name):
        from_environment({name: "sometimes"})


@pytest.mark.parametrize(
    "url",
    [
        "edgeq.db",
        "sqlite:///",
        "mysql://x",
        "sqlite:///x.db?mode=ro",
        "postgresql://localhost/x",
    ],
)
def test_an_address_that_is_not_one_says_what_one_looks_like(url: str) -> None:
    with pytest.raises(BadSetting, match="sqlite:///"):
        Queue(url)


def test_the_systems_clocks_and_chance_behave() -> None:
    clock, chance = SystemClock(), SystemChance()
    assert clock.now() > 1_700_000_000_000
    assert clock.elapsed() <= clock.elapsed()
    assert 0 <= chance.unit() < 1
    assert chance.bits(74) < 2**74
