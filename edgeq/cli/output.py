"""What commands print: JSON for programs, plain tables and ages for people."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence

import click

from edgeq.core.times import format_time, human_duration
from edgeq.ports.queries import COUNTED_AT_MOST

_COLOURS = {
    "completed": "green",
    "processing": "cyan",
    "failed": "red",
    "review_needed": "yellow",
    "blocked": "magenta",
    "cancelled": "bright_black",
}


def print_json(document: object) -> None:
    click.echo(json.dumps(document))


def say(text: str) -> None:
    """Data for people, on stdout; colours are dropped where nobody would see them."""
    click.echo(text, color=False if os.environ.get("NO_COLOR") else None)


def note(text: str) -> None:
    """A message beside the data, on stderr."""
    click.echo(text, err=True)


def table(headers: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Columns as wide as their widest cell; states have their colour."""
    cells = [[_cell(value) for value in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(headers, *cells, strict=True)]
    painted = headers.index("status") if "status" in headers else None
    title = _line([header.upper() for header in headers], widths)
    return "\n".join([title, *(_line(row, widths, painted) for row in cells)])


def fields(pairs: Iterable[tuple[str, object]]) -> str:
    """A name and a value on each line; what is None is left out."""
    shown = [(name, _cell(value)) for name, value in pairs if value is not None]
    width = max((len(name) for name, _ in shown), default=0)
    return "\n".join(
        f"{name:<{width}}  {paint(value) if name == 'status' else value}" for name, value in shown
    )


def pretty_json(value: object) -> str:
    text = json.dumps(value, indent=2, ensure_ascii=False)
    return "\n".join(map(visible, text.split("\n")))


def paint(status: str) -> str:
    colour = _COLOURS.get(status.strip())
    return status if colour is None else click.style(status, fg=colour)


def age(ms: int | None, now: int) -> str:
    """How long ago, or in how long: "3 min ago", "in 2 h"."""
    if ms is None:
        return "-"
    if ms > now:
        return f"in {human_duration(ms - now)}"
    return f"{human_duration(now - ms)} ago"


def moment(ms: int | None, now: int) -> str | None:
    """A time for people who need it exactly."""
    return None if ms is None else f"{format_time(ms)} ({age(ms, now)})"


def count(number: int) -> str:
    """A count as far as it was counted: "10,000+" says that there are more."""
    return f"{number:,}{'+' if number >= COUNTED_AT_MOST else ''}"


def duration(ms: int | None) -> str:
    return "-" if ms is None else human_duration(ms)


def visible(text: str) -> str:
    """Whatever a job has written, it must not move the reader's cursor or paint the screen."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _cell(value: object) -> str:
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case list() | tuple():
            return ", ".join(map(_cell, value)) or "-"
        case _:
            return visible(str(value))


def _line(cells: Sequence[str], widths: Sequence[int], painted: int | None = None) -> str:
    padded = [f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=True)]
    padded[-1] = padded[-1].rstrip()
    if painted is not None:
        padded[painted] = paint(padded[painted])
    return "  ".join(padded)
