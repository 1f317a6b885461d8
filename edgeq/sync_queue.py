"""The queue for programs without an event loop: the same methods, blocking."""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from edgeq.errors import EdgeqError, StoreClosed
from edgeq.events import Observer
from edgeq.ports.clock import Chance, Clock
from edgeq.ports.store import Store
from edgeq.private_loop import PrivateLoop
from edgeq.registry import HandlerSource, Registry
from edgeq.settings import Settings, from_environment
from edgeq.thread_store import ThreadStore
from edgeq.wiring import Queue, SystemClock, open_store

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


def _twin(
    method: Callable[Concatenate[Queue, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[SyncQueue, P], R]:
    """A method that only reads and writes: it runs on the calling thread, in one step."""

    @functools.wraps(method)
    def blocking(self: SyncQueue, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return _in_one_step(method(self._opened(), *args, **kwargs))

    return blocking


def _twin_on_loop(
    method: Callable[Concatenate[Queue, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[SyncQueue, P], R]:
    """A method that needs an event loop: it waits for time, for changes or for handlers."""

    @functools.wraps(method)
    def blocking(self: SyncQueue, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._loop.run(method(self._opened(), *args, **kwargs))

    return blocking


def _twin_iterator(
    method: Callable[Concatenate[Queue, P], AsyncIterator[T]],
) -> Callable[Concatenate[SyncQueue, P], Iterator[T]]:
    """A method whose answers come one by one: the thread waits for each."""

    @functools.wraps(method)
    def blocking(self: SyncQueue, /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        source = method(self._opened(), *args, **kwargs)
        try:
            while True:
                try:
                    yield self._loop.run(_next(source))
                except StopAsyncIteration:
                    return
        finally:
            # A loop that has been stopped, or that collects this itself, has ended it already.
            with contextlib.suppress(EdgeqError):
                self._loop.run(_end(source))

    return blocking


def _twin_block(
    method: Callable[Concatenate[Queue, P], AbstractAsyncContextManager[T]],
) -> Callable[Concatenate[SyncQueue, P], AbstractContextManager[T]]:
    """A method for `async with`: its block runs on the calling thread."""

    @contextlib.contextmanager
    @functools.wraps(method)
    def blocking(self: SyncQueue, /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        block = method(self._opened(), *args, **kwargs)
        value = _in_one_step(_enter(block))
        try:
            yield value
        except BaseException as raised:
            if not _in_one_step(_exit(block, raised)):
                raise
        else:
            _in_one_step(_exit(block, None))

    return blocking


async def _enter(block: AbstractAsyncContextManager[T]) -> T:
    return await block.__aenter__()


async def _exit(block: AbstractAsyncContextManager[Any], raised: BaseException | None) -> bool:
    kind = None if raised is None else type(raised)
    return bool(await block.__aexit__(kind, raised, None))


class SyncQueue:
    """A job queue in one file, for Flask, Django, scripts and notebooks.

    It takes what `Queue` takes. It opens on first use, or by `with`, and closes with the process
    if nobody closes it before. All threads of a process may share it.
    """

    def __init__(
        self,
        database: str | None = None,
        *,
        handlers: HandlerSource = None,
        store: Store | None = None,
        clock: Clock | None = None,
        chance: Chance | None = None,
        observers: Sequence[Observer] = (),
        settings: Settings | None = None,
    ) -> None:
        settings = from_environment(os.environ) if settings is None else settings
        clock = SystemClock() if clock is None else clock
        if store is None:
            store = open_store(database or settings.database_url, clock, settings)
        self._loop = PrivateLoop()
        self._queue = _Inner(
            handlers=handlers,
            store=ThreadStore(store, self._loop),
            clock=clock,
            chance=chance,
            observers=observers,
            settings=settings,
        )
        self._turn = threading.Lock()
        # The process that opens it or has it open, and whether that is done.
        self._owner: int | None = None
        self._is_open = False
        self._is_closed = False

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def store(self) -> Store:
        return self._queue.store

    @property
    def registry(self) -> Registry:
        return self._queue.registry

    def open(self) -> None:
        """Open the database, create or migrate it if needed, and register the handlers."""
        self._refuse_after_fork()
        with self._turn:
            if self._is_open:
                return
            self._owner = os.getpid()
            self._loop.start()
            try:
                self._loop.run(self._queue.open())
            except BaseException:
                self._loop.stop()
                self._owner = None
                raise
            for each in self.registry.handlers.values():
                each.sync_queues.add(self)
            self._is_open, self._is_closed = True, False
            atexit.register(self.close)

    def close(self) -> None:
        """Finish what was handed in and close; nothing if it is closed already."""
        if self._owner not in (None, os.getpid()):
            return  # a child of the process that has it open, and will close it
        with self._turn:
            self._is_closed = True
            if not self._is_open:
                return
            self._is_open = False
            for each in self.registry.handlers.values():
                each.sync_queues.remove(self)
            atexit.unregister(self.close)
            try:
                self._loop.run(self._queue.close())
            finally:
                self._loop.stop()
                self._owner = None

    def _opened(self) -> Queue:
        self._loop.refuse_here()
        if not self._is_open or self._owner != os.getpid():
            if self._is_closed:
                raise StoreClosed("This queue is closed. Open it again with `with queue:`.")
            self.open()
        return self._queue

    def _refuse_after_fork(self) -> None:
        if self._owner not in (None, os.getpid()):
            raise StoreClosed(
                f"This SyncQueue was opened by process {self._owner}, and this one was forked "
                "from it. A connection must not be used across a fork: make a SyncQueue in each "
                "process, or use it first after the fork."
            )

    enqueue = _twin(Queue.enqueue)
    enqueue_many = _twin(Queue.enqueue_many)

    get = _twin(Queue.get)
    get_many = _twin(Queue.get_many)
    find = _twin(Queue.find)
    list = _twin(Queue.list)
    logs = _twin(Queue.logs)
    attempts = _twin(Queue.attempts)

    wait = _twin_on_loop(Queue.wait)
    result = _twin_on_loop(Queue.result)
    enqueue_and_wait = _twin_on_loop(Queue.enqueue_and_wait)
    events = _twin_iterator(Queue.events)
    position = _twin(Queue.position)
    drain = _twin_on_loop(Queue.drain)

    steps = _twin(Queue.steps)
    waiting_for = _twin(Queue.waiting_for)
    runs_left = _twin(Queue.runs_left)
    chain = _twin(Queue.chain)
    batch = _twin_block(Queue.batch)
    get_batch = _twin(Queue.get_batch)

    cancel = _twin(Queue.cancel)
    retry = _twin(Queue.retry)
    approve = _twin(Queue.approve)
    reject = _twin(Queue.reject)
    fail = _twin(Queue.fail)
    release = _twin(Queue.release)
    delete = _twin(Queue.delete)
    update = _twin(Queue.update)

    types = _twin(Queue.types)
    type = _twin(Queue.type)
    create_type = _twin(Queue.create_type)
    change_type = _twin(Queue.change_type)
    pause_type = _twin(Queue.pause_type)
    resume_type = _twin(Queue.resume_type)
    disable_type = _twin(Queue.disable_type)
    enable_type = _twin(Queue.enable_type)
    config = _twin(Queue.config)
    set_config = _twin(Queue.set_config)
    runs = _twin(Queue.runs)
    stats = _twin(Queue.stats)

    process_jobs = _twin_on_loop(Queue.process_jobs)
    work = _twin_on_loop(Queue.work)


class _Inner(Queue):
    """Handlers are bound to the SyncQueue around it: this one must not be awaited elsewhere."""

    def _bind_handlers(self) -> None:
        pass


def _in_one_step(coroutine: Coroutine[Any, Any, R]) -> R:
    """On a ThreadStore nothing is awaited, so the first step is the whole way."""
    try:
        coroutine.send(None)
    except StopIteration as ended:
        return ended.value  # type: ignore[no-any-return]
    coroutine.close()
    raise AssertionError("a method that needs an event loop has to be a twin on the loop")


async def _next(source: AsyncIterator[T]) -> T:
    return await anext(source)


async def _end(source: AsyncIterator[Any]) -> None:
    close = getattr(source, "aclose", None)
    if close is not None:
        await close()
