"""Who is inside a transaction of an attached engine, so that nobody waits for themselves."""

from __future__ import annotations

from contextvars import ContextVar
from pathlib import Path

from edgeq.errors import WriterHeld

_stays: ContextVar[tuple[Stay, ...]] = ContextVar("edgeq_stays", default=())


class Stay:
    """One passage through a gate, from the beginning of a transaction to its end.

    It is known to the context that began it: to its thread, to its task and to the tasks that
    this one starts. The number of a thread would not do, because pools hand threads on.
    """

    __slots__ = ("_gate", "is_over")

    def __init__(self, gate: Path) -> None:
        self._gate = gate
        self.is_over = False

    def is_at(self, gate: Path) -> bool:
        return not self.is_over and self._gate == gate


def remember(stay: Stay) -> None:
    _stays.set((*(each for each in _stays.get() if not each.is_over), stay))


def refuse_inside(gate: Path, what_to_do: str) -> None:
    """Raises WriterHeld for a caller who holds this gate and would wait for it."""
    stays = _stays.get()
    if stays and any(stay.is_at(gate) for stay in stays):
        raise WriterHeld(
            "This was called from inside an open transaction on the queue's own file, and would "
            f"wait for that transaction to end. {what_to_do}"
        )
