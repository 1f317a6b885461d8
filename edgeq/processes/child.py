"""A warm child: loads the handlers, opens their lifespan, and runs one attempt after the other."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import queue
import signal
import socket
import sys
import threading
from contextlib import AsyncExitStack
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NoReturn

from edgeq.attempt import Attempt, Journal, Workplace
from edgeq.codec import encode_input
from edgeq.core.jobs import ClaimedJob, NewJob
from edgeq.core.redaction import safe_message
from edgeq.declaration import Handler
from edgeq.errors import InvalidInput
from edgeq.invoke import invoke
from edgeq.ports.commands import Note, Progress
from edgeq.processes.child_ledger import ChildLedger
from edgeq.processes.messages import (
    LENGTH_BYTES,
    Answer,
    Began,
    Begin,
    BrokenFrame,
    Close,
    Done,
    Ended,
    Enqueue,
    FromChild,
    Kept,
    News,
    Noted,
    NotReady,
    Prepared,
    Progressed,
    Question,
    Ready,
    Refused,
    Setup,
    Spared,
    ToChild,
    body_length,
    error_of,
    frame,
    to_child,
)
from edgeq.registry import AnyHandler, Registry, load_again
from edgeq.threads import HandlerThreads

_PR_SET_PDEATHSIG = 1
_FIRST_FOR_THE_OOM_KILLER = "1000"


def main() -> None:
    number, parent = int(sys.argv[1]), int(sys.argv[2])
    del sys.argv[1:]
    _end_with(parent)
    with contextlib.suppress(OSError):
        # If memory runs out, this process is to go and not the one that holds the locks.
        Path("/proc/self/oom_score_adj").write_text(_FIRST_FOR_THE_OOM_KILLER)
    for name in (signal.SIGTERM, signal.SIGINT):
        # Who stops the parent's whole group means the parent, which then stops this one in good
        # order. Not SIG_IGN: programs that a handler starts would inherit that.
        signal.signal(name, lambda *_: None)
    os.set_inheritable(number, False)  # noqa: FBT003 - the name of the function says what
    link = _Link(socket.socket(fileno=number))
    setup = link.receive()
    if isinstance(setup, Setup):
        asyncio.run(_Child(link, setup).serve())


def _end_with(parent: int) -> None:
    """Die when the parent does, also while C code keeps every thread of ours from running.

    More exactly when the thread does that started us, which is that of the parent's event loop.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            _leave()


def _leave() -> NoReturn:
    """The parent is gone: so is this process, and what it has started."""
    if os.getpgid(0) == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


class _Link:
    """The socket to the parent; any thread may send."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._incoming = connection.makefile("rb")
        self._sending = threading.Lock()

    def send(self, message: FromChild) -> None:
        data = frame(message)
        with self._sending:
            self._connection.sendall(data)

    def receive(self) -> ToChild | None:
        """The parent's next message; None when it is gone or no longer makes sense."""
        try:
            prefix = self._incoming.read(LENGTH_BYTES)
            if len(prefix) < LENGTH_BYTES:
                return None
            return to_child(self._incoming.read(body_length(prefix)))
        except (OSError, BrokenFrame):
            return None


class _TellingJournal(Journal):
    """Sends what an attempt wants written to the parent, which has the real one."""

    def __init__(self, link: _Link) -> None:
        # The parent dates what it is sent.
        super().__init__(wake=lambda: None, now=lambda: 0)
        self._link = link

    def add(self, note: Note) -> None:
        self._link.send(Noted(note))

    def set_progress(self, progress: Progress) -> None:
        self._link.send(Progressed(progress))


class _Child:
    """One attempt at a time on the event loop, and a thread that hears the parent meanwhile."""

    def __init__(self, link: _Link, setup: Setup) -> None:
        self._link = link
        self._setup = setup
        self._journal = _TellingJournal(link)
        self._registry = Registry({})
        self._state: Any = None
        self._attempt: Attempt | None = None
        self._offers: asyncio.Queue[Attempt | None] = asyncio.Queue()
        self._answers: queue.SimpleQueue[Answer] = queue.SimpleQueue()
        self._threads = HandlerThreads()
        self._asking = threading.Lock()

    async def serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        threading.Thread(target=self._hear, name="edgeq-parent", daemon=True).start()
        async with AsyncExitStack() as stack:
            try:
                await self._get_ready(stack)
            except BaseException as failure:
                self._link.send(NotReady(safe_message(f"{type(failure).__name__}: {failure}")))
                raise
            self._link.send(Ready())
            await self._work()

    async def _get_ready(self, stack: AsyncExitStack) -> None:
        self._registry = load_again(self._setup.origin)
        lifespan = self._registry.lifespan
        if lifespan is not None:
            self._state = await stack.enter_async_context(lifespan())

    async def _work(self) -> None:
        while (attempt := await self._offers.get()) is not None:
            self._link.send(Began())
            outcome = await invoke(attempt, self._threads, self._registry.on_error)
            attempt.is_over = True
            if attempt.workplace.spared:
                self._link.send(Spared())
            self._link.send(Ended(outcome, attempt.worked_before_ms))

    def _hear(self) -> None:
        """In a thread of its own: heard also while a handler keeps the event loop."""
        while True:
            match self._link.receive():
                case Begin() as begin:
                    self._accept(begin)
                case News() as news:
                    self._heed(news)
                case Prepared() | Done() | Kept() | Refused() as answer:
                    self._answers.put(answer)
                case Close():
                    self._loop.call_soon_threadsafe(self._offers.put_nowait, None)
                case Setup() | None:
                    _leave()

    def _accept(self, begin: Begin) -> None:
        """Make the attempt here and not on the loop, so that news that follow find it."""
        name = begin.job.handler_name
        handler = self._registry.handlers.get(name)
        if handler is None:
            self._link.send(NotReady(f"it found no handler {name!r}. Were the files changed?"))
            return
        self._attempt = self._attempt_at(begin, handler)
        self._loop.call_soon_threadsafe(self._offers.put_nowait, self._attempt)

    def _attempt_at(self, begin: Begin, handler: AnyHandler) -> Attempt:
        now = self._loop.time()
        workplace = Workplace(
            journal=self._journal,
            elapsed=self._loop.time,
            budget_ends=now + begin.budget_ends_in,
            interrupts_at=now + begin.news.interrupts_in,
            state=self._state,
            config=begin.config,
            prepare_child=_Enqueueing(self, begin.job),
            ledger=ChildLedger(begin, self.ask, self._link.send, self._threads, self._loop.time),
            stops_for=begin.news.stops_for,
        )
        attempt = Attempt(
            begin.job,
            handler,
            workplace,
            started=now,
            deadline=now + begin.job.timeout_ms / 1000,
            is_long=False,
        )
        attempt.cancel_requested = begin.news.cancel_requested
        return attempt

    def _heed(self, news: News) -> None:
        attempt = self._attempt
        if attempt is not None:
            attempt.cancel_requested = news.cancel_requested
            attempt.workplace.interrupts_at = self._loop.time() + news.interrupts_in
            attempt.workplace.stops_for = news.stops_for

    def ask(self, question: Question) -> Prepared | Done | Kept:
        """Ask the parent, one at a time, and wait for its answer."""
        with self._asking:
            self._link.send(question)
            answer = self._answers.get()
        if isinstance(answer, Refused):
            raise error_of(answer)
        return answer


class _Enqueueing:
    """`ctx.enqueue` of one attempt: the parent knows the types and makes the job."""

    def __init__(self, child: _Child, job: ClaimedJob) -> None:
        self._child = child
        self._job = job

    def __call__(self, job_type: Any, input: Any = None, **options: Any) -> NewJob:
        name = job_type.name if isinstance(job_type, Handler) else job_type
        if not isinstance(name, str):
            raise InvalidInput.at("type", f"must be the name of a job type, got {job_type!r}")
        plain = {key: _sendable(key, value) for key, value in options.items()}
        answer = self._child.ask(
            Enqueue(self._job.seq, self._job.fence, name, encode_input(input), plain)
        )
        assert isinstance(answer, Prepared)  # noqa: S101 - what an Enqueue is answered with
        return answer.job


def _sendable(name: str, value: Any) -> Any:
    match value:
        case timedelta():
            return value.total_seconds()
        case None | bool() | str() | float():
            return value
        case int() if -(2**63) <= value < 2**63:
            return value
        case datetime():
            return value.isoformat()
        case list() | tuple():
            return [_sendable(name, each) for each in value]
        case _:
            raise InvalidInput.at(name, f"cannot be {value!r}")
