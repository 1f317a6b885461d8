"""The cycle of a worker: the same as a run's, but woken by the database, and without an end."""

from __future__ import annotations

from contextlib import AsyncExitStack, suppress

from edgeq.errors import StoreError, StoreMoved
from edgeq.ports.commands import RefreshRun
from edgeq.ports.queries import Changes
from edgeq.processing import Shift

_REFRESH_SECONDS = 60.0


class ResidentShift(Shift):
    """A shift that only a signal ends."""

    # It must not fall quiet for one suspect: all of them get processes of their own.
    _isolates_from = 1
    _children_at_most = 4
    _refresh_due: float | None = None

    async def _listen(self, until_done: AsyncExitStack) -> None:
        until_done.callback(await self._store.watch(self._hear_of_changes))

    def _hear_of_changes(self, news: Changes | StoreError) -> None:
        """On the watcher's thread. What somebody else's end makes possible is heard once a second
        by the watch over the locks; what comes new is worth being quick."""
        is_worth_a_claim = (
            news.reset or any(change.status == "pending" for _, _, change in news.changes)
            if isinstance(news, Changes)
            # The next claim says so to whoever waits for this worker.
            else isinstance(news, StoreMoved)
        )
        if is_worth_a_claim:
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._work_may_have_come)

    def _has_nothing_to_do(self) -> bool:
        """There may be something any time."""
        return False

    def _heed_the_switch(self, *, is_enabled: bool) -> None:
        """Switched off, it claims nothing: the store sees to that. It stays, and claims again
        when it is switched on, because nobody would start it again."""

    async def _rest(self) -> None:
        now = self._elapsed()
        if self._refresh_due is None:
            self._refresh_due = now + _REFRESH_SECONDS
        elif now >= self._refresh_due:
            self._refresh_due = now + _REFRESH_SECONDS
            await self._refresh()
        await super()._rest()

    async def _refresh(self) -> None:
        """It may live for months: it keeps what it learned, and learns what has changed."""
        # Samples that cannot be stored now are not worth another try.
        with suppress(StoreError), self._keeping_time():
            known = await self._store.write(RefreshRun(self.id, self._tally.take_durations()))
            self.planner.learn(known)
            self._ledger.learn(known.step_durations)
            self._workplace.config = known.config
        self._crew.forget_the_gone()
