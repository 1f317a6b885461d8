from __future__ import annotations

import math

import pytest

from edgeq.core.config_keys import check_changes
from edgeq.errors import InvalidInput


def test_known_keys_and_groups_are_accepted() -> None:
    check_changes(
        {
            "worker_enabled": False,
            "process.budget": 12.5,
            "process.concurrency": 4,
            "process.lane_slots": {"mail": 2},
            "llm.model": "small",
            "app.anything": {"nested": [1, 2]},
            "retention.completed": None,
            "llm.token": None,
        }
    )


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("worker_enabled", "yes", "true or false"),
        ("process.budget", "25", "must be a number"),
        ("process.budget", True, "must be a number"),
        ("process.budget", -1, "at least 0"),
        ("process.concurrency", 0, "at least 1"),
        ("process.concurrency", 2.5, "must be a number"),
        ("unknown", 1, "is unknown"),
        ("process.nonsense", 1, "is unknown"),
        ("process.lane_slots", 3, "must be an object"),
        ("process.lane_slots", {"mail": -1}, "mail"),
        ("app." + "x" * 200, 1, "is unknown"),
        ("app.large", "x" * 20_000, "app.large"),
        ("app.", 1, "is unknown"),
        ("llm.api_key", "x", "looks like a secret"),
        ("app.rate", math.nan, "app.rate"),
    ],
)
def test_what_nobody_reads_or_should_store_is_refused(key: str, value: object, reason: str) -> None:
    with pytest.raises(InvalidInput, match=reason):
        check_changes({key: value})
