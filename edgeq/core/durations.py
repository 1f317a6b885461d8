"""Histograms of how long things took: 32 counts, whatever the number of samples."""

from __future__ import annotations

import math
from bisect import bisect_right
from typing import Annotated, ClassVar, Final

import msgspec

from edgeq.errors import BadSetting, InvalidInput

BUCKETS: Final = 32

# Doubling bounds through 5 ms, the border below which jobs are claimed ahead: from 0.08 ms to 23 h,
# and one bucket more. A bucket holds lower <= ms < upper, so a quantile of 5 means "below 5 ms".
# The last bucket also holds all that is longer.
BOUNDS_MS: Final = tuple(5 * 2.0**exponent for exponent in range(-6, BUCKETS - 6))

_Count = Annotated[int, msgspec.Meta(ge=0)]
_Counts = Annotated[tuple[_Count, ...], msgspec.Meta(min_length=BUCKETS, max_length=BUCKETS)]
_DECODER = msgspec.json.Decoder(_Counts)


class Histogram(msgspec.Struct, frozen=True):
    """How many samples fell into each bucket."""

    counts: tuple[int, ...] = (0,) * BUCKETS

    EMPTY: ClassVar[Histogram]

    @classmethod
    def from_json(cls, text: str | bytes) -> Histogram:
        try:
            return cls(_DECODER.decode(text))
        except (msgspec.DecodeError, UnicodeError) as error:
            reason = f"is not a histogram, a list of {BUCKETS} counts: {error}"
            raise InvalidInput.at("$", reason) from None

    def to_json(self) -> str:
        return msgspec.json.encode(self.counts).decode()

    @property
    def samples(self) -> int:
        return sum(self.counts)

    def plus(self, ms: float) -> Histogram:
        counts = list(self.counts)
        counts[bucket_of(ms)] += 1
        return Histogram(tuple(counts))

    def merge(self, other: Histogram) -> Histogram:
        return Histogram(tuple(map(int.__add__, self.counts, other.counts)))

    def quantile(self, q: float) -> int | None:
        """The upper bound, in whole ms, of the bucket that holds the quantile; None when empty."""
        if not 0 <= q <= 1:
            raise BadSetting(f"A quantile is between 0 and 1, such as 0.95, and not {q}.")
        rank = max(1, math.ceil(q * self.samples))
        seen = 0
        for count, bound_ms in zip(self.counts, BOUNDS_MS, strict=True):
            seen += count
            if seen >= rank:
                return math.ceil(bound_ms)
        return None


Histogram.EMPTY = Histogram()


class Tally:
    """A histogram while it is being counted; belongs to one thread."""

    __slots__ = ("_counts",)

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}

    def add(self, ms: float) -> None:
        bucket = bucket_of(ms)
        self._counts[bucket] = self._counts.get(bucket, 0) + 1

    def __len__(self) -> int:
        return sum(self._counts.values())

    def freeze(self) -> Histogram:
        return Histogram(tuple(self._counts.get(bucket, 0) for bucket in range(BUCKETS)))


def bucket_of(ms: float) -> int:
    return bisect_right(BOUNDS_MS, ms, 0, BUCKETS - 1)
