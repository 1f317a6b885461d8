"""What a handler is given beside its input: its job, its time, its log, its children."""

from __future__ import annotations

import asyncio
import functools
import inspect
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from typing import Any, Concatenate, ParamSpec, TypeVar, overload

from edgeq.attempt import Attempt
from edgeq.baton import Baton
from edgeq.core.jobs import ClaimedJob, LogLevel
from edgeq.errors import InvalidInput
from edgeq.step_book import StepBook
from edgeq.threads import HandlerThreads

P = ParamSpec("P")
T = TypeVar("T")
_CENTURY_SECONDS = 100 * 366 * 86_400.0


class _Base:
    """What both kinds of context know."""

    def __init__(self, attempt: Attempt, threads: HandlerThreads) -> None:
        self._attempt = attempt
        self._threads = threads
        self._made_book: StepBook | None = None

    @property
    def _book(self) -> StepBook:
        """Made when the handler asks for its first step: most never do."""
        if self._made_book is None:
            self._made_book = StepBook(self._attempt)
        return self._made_book

    @property
    def job(self) -> ClaimedJob:
        return self._attempt.job

    @property
    def attempt(self) -> int:
        """1 for the first; grows with every retry."""
        return self._attempt.job.attempt

    @property
    def remaining(self) -> float:
        """Seconds until this attempt times out or its run ends, whichever is first."""
        return self._attempt.remaining()

    @property
    def cancelled(self) -> bool:
        """Whether somebody has asked for this job's cancellation."""
        return self._attempt.cancel_requested

    @property
    def lost(self) -> bool:
        """Whether the job is no longer ours: nothing that still happens here is recorded."""
        return self._attempt.lost or self._attempt.is_over

    @property
    def state(self) -> Any:
        """What the `lifespan` of the handlers folder opened."""
        return self._attempt.workplace.state

    @property
    def config(self) -> Mapping[str, object]:
        """The worker's configuration, read only."""
        return self._attempt.workplace.config

    def _log(self, message: str, level: str, details: Mapping[str, object]) -> None:
        self._attempt.refuse_if_over()
        try:
            known = LogLevel(level)
        except ValueError:
            raise InvalidInput.at("level", f"must be one of {', '.join(LogLevel)}") from None
        self._attempt.note(message, level=known, details=details)

    def _progress(self, percent: float, stage: str | None) -> None:
        self._attempt.refuse_if_over()
        if stage is not None:
            _check_stage(stage)
        if not 0 <= percent <= 100:
            raise InvalidInput.at("percent", f"must be between 0 and 100, got {percent}")
        self._attempt.show_progress(int(percent), stage)

    def _enqueue(self, job_type: Any, input: Any, options: Mapping[str, Any]) -> str:
        self._attempt.refuse_if_over()
        job = self._attempt.job
        child = self._attempt.workplace.prepare_child(
            job_type,
            input,
            **{
                "tenant_id": job.tenant_id,
                "correlation_id": job.correlation_id,
                "parent_job_id": job.id,
                **options,
            },
        )
        self._attempt.children.append(child)
        return child.id

    @contextmanager
    def _stage(self, name: str) -> Iterator[None]:
        attempt = self._attempt
        attempt.refuse_if_over()
        _check_stage(name)
        attempt.show_progress(attempt.percent, name)
        began = attempt.workplace.elapsed()
        try:
            yield
        except BaseException as failure:
            self._end_stage(name, began, f"failed: {type(failure).__name__}", LogLevel.WARNING)
            raise
        self._end_stage(name, began, "done", LogLevel.INFO)

    def _end_stage(self, name: str, began: float, how: str, level: LogLevel) -> None:
        attempt = self._attempt
        if not self.lost:
            took = round((attempt.workplace.elapsed() - began) * 1000)
            attempt.note(f"{name} {how}", stage=name, duration_ms=took, level=level)


def _check_stage(name: object) -> None:
    if not isinstance(name, str) or not name:
        raise InvalidInput.at("stage", f"must be a name, got {name!r}")


class Context(_Base):
    """The context of an `async def` handler."""

    async def log(self, message: str, *, level: str = "info", **details: object) -> None:
        """Add a line to the job's log; written with the next commit, at most 200 ms later."""
        self._log(message, level, details)

    async def progress(self, percent: float, *, stage: str | None = None) -> None:
        self._progress(percent, stage)

    @asynccontextmanager
    async def stage(self, name: str) -> AsyncIterator[None]:
        """A named part of the work: seen as `current_stage`, and logged with its duration."""
        with self._stage(name):
            yield

    async def checkpoint(self) -> None:
        """Stop here if the budget, a signal or a cancellation asks for it."""
        self._attempt.check()

    @overload
    async def step(
        self,
        name: str,
        function: Callable[..., Awaitable[T]],
        *args: Any,
        key: str | int | None = None,
        **kwargs: Any,
    ) -> T: ...

    @overload
    async def step(
        self,
        name: str,
        function: Callable[..., T],
        *args: Any,
        key: str | int | None = None,
        **kwargs: Any,
    ) -> T: ...

    async def step(
        self,
        name: str,
        function: Callable[..., Any],
        *args: Any,
        key: str | int | None = None,
        **kwargs: Any,
    ) -> Any:
        """Do a part of the work once: its result is kept, and a later attempt gets it back.

        The result goes through JSON. A `def` function runs in a thread. In a loop, give each
        turn a key.
        """
        work = functools.partial(function, *args, **kwargs)

        async def do() -> Any:
            if inspect.iscoroutinefunction(inspect.unwrap(function)):
                return await work()
            answer = await self._threads.run(work)
            return await answer if inspect.isawaitable(answer) else answer

        return await self._book.step(name, key, function, do)

    async def transaction(
        self,
        name: str,
        function: Callable[Concatenate[Any, P], T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """A step that writes to the queue's own database: both are committed, or neither is.

        `function` is a plain function that is given a SQLAlchemy connection, runs on the writer's
        thread, and may take five seconds. In a loop, `key=` tells the turns apart.
        """
        key = kwargs.pop("key", None)

        def do(connection: Any) -> T:
            return function(connection, *args, **kwargs)

        return await self._book.transaction(name, key, function, do)  # type: ignore[no-any-return]

    async def sleep(self, seconds: float | timedelta) -> None:
        """Go on later, in any run: until then the job is pending and takes no slot."""
        await self._book.sleep(_seconds(seconds))

    async def enqueue(self, job_type: Any, input: Any = None, **options: Any) -> str:
        """Enqueue a child; it exists once this job has completed. Answers with its id."""
        return self._enqueue(job_type, input, options)


class SyncContext(_Base):
    """The context of a `def` handler: the same methods, blocking."""

    def __init__(self, attempt: Attempt, threads: HandlerThreads) -> None:
        super().__init__(attempt, threads)
        self._loop = asyncio.get_running_loop()

    def log(self, message: str, *, level: str = "info", **details: object) -> None:
        """Add a line to the job's log; written with the next commit, at most 200 ms later."""
        self._log(message, level, details)

    def progress(self, percent: float, *, stage: str | None = None) -> None:
        self._progress(percent, stage)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """A named part of the work: seen as `current_stage`, and logged with its duration."""
        with self._stage(name):
            yield

    def checkpoint(self) -> None:
        """Stop here if the budget, a signal or a cancellation asks for it."""
        self._attempt.check()

    def enqueue(self, job_type: Any, input: Any = None, **options: Any) -> str:
        """Enqueue a child; it exists once this job has completed. Answers with its id."""
        return self._enqueue(job_type, input, options)

    def step(
        self,
        name: str,
        function: Callable[..., T],
        *args: Any,
        key: str | int | None = None,
        **kwargs: Any,
    ) -> T:
        """Do a part of the work once: its result is kept, and a later attempt gets it back.

        The result goes through JSON. In a loop, give each turn a key.
        """
        baton = Baton(self._loop, functools.partial(function, *args, **kwargs))
        return baton.carry(self._book.step(name, key, function, baton.hand_over))  # type: ignore[no-any-return]

    def transaction(
        self,
        name: str,
        function: Callable[Concatenate[Any, P], T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """A step that writes to the queue's own database: both are committed, or neither is.

        `function` is given a SQLAlchemy connection, runs on the writer's thread, and may take
        five seconds. In a loop, `key=` tells the turns apart.
        """
        key = kwargs.pop("key", None)

        def do(connection: Any) -> T:
            return function(connection, *args, **kwargs)

        return self._on_loop(self._book.transaction(name, key, function, do))  # type: ignore[no-any-return]

    def sleep(self, seconds: float | timedelta) -> None:
        """Go on later, in any run: until then the job is pending and takes no slot."""
        self._on_loop(self._book.sleep(_seconds(seconds)))

    def _on_loop(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


def _seconds(duration: float | timedelta) -> float:
    if isinstance(duration, timedelta):
        return duration.total_seconds()
    number: Any = duration
    is_number = isinstance(number, int | float) and not isinstance(number, bool)
    if not is_number or math.isnan(number):
        raise InvalidInput.at("seconds", f"must be seconds, got {duration!r}")
    return min(float(duration), _CENTURY_SECONDS)
