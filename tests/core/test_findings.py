from __future__ import annotations

import pytest

from edgeq.core.findings import Broken, Doubtful, Finding, Fine, Level, Verdict, finding


@pytest.mark.parametrize(
    ("verdict", "expected"),
    [
        (Fine("good"), Finding("x", Level.OK, "good", None)),
        (Doubtful("hm", "look"), Finding("x", Level.WARNING, "hm", "look")),
        (Broken("no", "repair"), Finding("x", Level.ERROR, "no", "repair")),
    ],
)
def test_a_verdict_becomes_a_finding_of_its_level_and_only_trouble_has_a_fix(
    verdict: Verdict, expected: Finding
) -> None:
    assert finding("x", verdict) == expected
