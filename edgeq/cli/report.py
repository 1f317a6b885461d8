"""The report of a run, for machines or in a line or two for people."""

from __future__ import annotations

import json
from typing import Any

import click


def show_report(report: dict[str, Any], *, as_json: bool) -> None:
    """A report for machines, or in one or two lines for people."""
    if as_json:
        click.echo(json.dumps(report))
        return
    counts = [
        f"{report[name]} {name.replace('_', ' ')}"
        for name in (
            "completed",
            "failed",
            "retried",
            "review",
            "snoozed",
            "interrupted",
            "cancelled",
            "lost_locks",
            "reclaimed",
            "deferred",
        )
        if report[name]
    ]
    done = ", ".join(counts) or "nothing to do"
    left = f"{report['remaining']:,}{'+' if report['capped'] else ''} due jobs left"
    soon = f", next due {report['next_due_at']}" if report["next_due_at"] else ""
    click.echo(f"{done} ({report['stopped']}, {report['duration_ms']} ms); {left}{soon}")
    if report["unhandled_types"]:
        names = ", ".join(report["unhandled_types"])
        click.echo(f"no handler here for: {names}", err=True)
