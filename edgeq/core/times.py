"""Times and durations as people write them, and as integers of milliseconds."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta

from edgeq.errors import BadSetting

_MS_PER_UNIT = {"ms": 1, "s": 1000, "min": 60_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_NUMBER = r"[0-9]+(?:\.[0-9]+)?"
_SECONDS = re.compile(_NUMBER)
_PART = re.compile(rf"\s*({_NUMBER})\s*(ms|min|s|m|h|d)")
_PARTS = re.compile(rf"(?:{_PART.pattern})+")
# Beyond a human life a duration is a mistake, and its sum with a time no longer fits a date.
_LONGEST_MS = 100 * 365 * _MS_PER_UNIT["d"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_RFC_3339 = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,9})?"
    r"(?:Z|[+-][0-9]{2}:[0-9]{2})"
)
_LONGEST_QUOTE = 64


def parse_duration_ms(text: str | float | timedelta) -> int:
    """Milliseconds of "5m", "1h30m" or "250ms"; a plain number, also as text, is seconds."""
    ms = _duration_ms(text)
    if 0 <= ms <= _LONGEST_MS:
        return round(ms)
    raise BadSetting(
        f"{_quoted(text)} is not a duration. Write 90 or '90' for seconds, or '250ms', '5m', "
        "'1h30m', '2d': not negative, at most 100 years."
    )


def parse_time_ms(text: str) -> int:
    """Unix milliseconds of a time in RFC 3339, which has to name its zone."""
    written = text.strip().upper()
    if _RFC_3339.fullmatch(written):
        try:
            moment = datetime.fromisoformat(written).astimezone(UTC)
        except (ValueError, OverflowError):
            pass
        else:
            return (moment - _EPOCH) // _MILLISECOND
    raise BadSetting(
        f"{_quoted(text)} is not a time. Write it in RFC 3339 with its zone, such as "
        "'2030-01-31T09:30:00Z' or '2030-01-31T10:30:00+01:00'."
    )


def format_time(ms: int | None) -> str | None:
    """RFC 3339 in UTC, to the millisecond."""
    if ms is None:
        return None
    moment = _EPOCH + timedelta(milliseconds=ms)
    return moment.isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"


def human_duration(ms: float) -> str:
    """A duration for people: "850 ms", "1.2 s", "3 min"."""
    # Rounded first, so that 59.97 s reads "1 min" and never "60 s".
    for unit, unit_ms, limit in (("ms", 1, 1000), ("s", 1000, 60), ("min", 60_000, 60)):
        amount = _rounded(ms / unit_ms)
        if amount < limit:
            return f"{amount:g} {unit}"
    hours = _rounded(ms / _MS_PER_UNIT["h"])
    if hours < 48:
        return f"{hours:g} h"
    return f"{_rounded(ms / _MS_PER_UNIT['d']):.10g} d"


def _duration_ms(text: str | float | timedelta) -> float:
    if isinstance(text, timedelta):
        return text / _MILLISECOND
    if isinstance(text, bool):
        return math.nan
    if not isinstance(text, str):
        # A comparison, not a product: an enormous int would overflow on its way to a float.
        return text * 1000 if text <= _LONGEST_MS else math.inf
    written = text.strip().lower()
    if _SECONDS.fullmatch(written):
        return float(written) * 1000
    if _PARTS.fullmatch(written):
        parts = _PART.findall(written)
        return math.fsum(float(amount) * _MS_PER_UNIT[unit] for amount, unit in parts)
    return math.nan


def _rounded(amount: float) -> float:
    return round(amount, 1) if amount < 9.95 else round(amount)


def _quoted(text: object) -> str:
    try:
        quoted = repr(text)
    except ValueError:
        return "A number of thousands of digits"
    return quoted if len(quoted) <= _LONGEST_QUOTE else f"{quoted[:_LONGEST_QUOTE]}…"
