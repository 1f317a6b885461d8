"""Enqueueing by the handler itself, into the open queue that knows it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, ParamSpec, Protocol, TypeVar

import msgspec

from edgeq.errors import HandlerProblem, StoreClosed

P = ParamSpec("P")
Q = TypeVar("Q")


class Enqueued(msgspec.Struct, frozen=True):
    """The answer to an enqueue; `result` is there when a duplicate had completed."""

    job_id: str
    status: str
    duplicate: bool = False
    result: Any = None


class Producer(Protocol):
    """What a handler needs of a queue."""

    async def enqueue(self, job_type: Any, input: Any = None, **options: Any) -> Enqueued: ...


class BlockingProducer(Protocol):
    def enqueue(self, job_type: Any, input: Any = None, **options: Any) -> Enqueued: ...


class OpenQueues(Generic[Q]):
    """The queues of one kind that are open with a handler: usually one."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._open: dict[int, Q] = {}

    def add(self, queue: Q) -> None:
        self._open[id(queue)] = queue

    def remove(self, queue: Q) -> None:
        self._open.pop(id(queue), None)

    def the_one(self, handler: str) -> Q:
        # With several, a guess would put jobs into the wrong file, where nobody looks for them.
        match list(self._open.values()):
            case [queue]:
                return queue
            case []:
                raise StoreClosed(
                    f"No {self._kind} is open with {handler}. Open one with this very handler, by "
                    "handlers=[...] or its module; a folder's handlers are loaded apart from what "
                    "is imported."
                )
            case several:
                raise HandlerProblem(
                    f"{len(several)} open queues have {handler}. Say which one is meant: "
                    "queue.enqueue(handler, input)."
                )


class Producing(Generic[P]):
    """A handler, perhaps with options, that is enqueued with its own input."""

    def __init__(self, producer: Producing[P] | None = None, **options: Any) -> None:
        self._handler: Producing[P] = self if producer is None else producer
        self._options: Mapping[str, Any] = options
        if producer is None:
            self.queues: OpenQueues[Producer] = OpenQueues("Queue")
            self.sync_queues: OpenQueues[BlockingProducer] = OpenQueues("SyncQueue")
        else:
            self.queues, self.sync_queues = producer.queues, producer.sync_queues

    async def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Enqueued:
        """Enqueue a job of this handler, with its own input, into the Queue that is open."""
        queue = self.queues.the_one(repr(self._handler))
        return await queue.enqueue(self._handler, _input(args, kwargs), **self._options)

    def enqueue_blocking(self, *args: P.args, **kwargs: P.kwargs) -> Enqueued:
        """The same by the SyncQueue that is open."""
        queue = self.sync_queues.the_one(repr(self._handler))
        return queue.enqueue(self._handler, _input(args, kwargs), **self._options)

    def with_options(self, **options: Any) -> Producing[P]:
        """The same handler, to be enqueued with options of `Queue.enqueue`."""
        return Producing(self._handler, **{**self._options, **options})


def _input(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """A handler has one parameter beside its context, whatever it is called."""
    given = (*args, *kwargs.values())
    if len(given) > 1:
        raise TypeError(f"enqueue() takes one input, got {len(given)}; options: with_options()")
    return given[0] if given else None
