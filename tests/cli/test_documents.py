from __future__ import annotations

import json

from edgeq.core.runs import RunReport, Stop
from edgeq.documents import report_document


def test_a_report_is_plain_json_with_readable_times() -> None:
    report = RunReport(
        run_id="r",
        unhandled_types=("a",),
        next_due_at=1_893_456_000_000,
        stopped=Stop.BUDGET,
    )

    document = report_document(report)

    assert tuple(document) == RunReport.__struct_fields__
    assert document["next_due_at"] == "2030-01-01T00:00:00.000Z"
    assert document["stopped"] == "budget"
    assert json.loads(json.dumps(document)) == document
