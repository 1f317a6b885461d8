"""What a run and its warm children say to each other: frames of tagged values, never code."""

from __future__ import annotations

from typing import Any

import msgspec

from edgeq.addresses import Address
from edgeq.attempt import StopReason
from edgeq.core.jobs import ClaimedJob, NewJob
from edgeq.core.outcomes import Outcome
from edgeq.core.steps import Step
from edgeq.errors import EdgeqError, InvalidInput, Problem
from edgeq.ports.commands import Note, Progress
from edgeq.ports.flow_commands import NewStep

LENGTH_BYTES = 4
# Far beyond every input and output; what claims to be longer is no frame of ours.
_LONGEST_FRAME = 2**28


class BrokenFrame(Exception):
    """What came is none of these messages."""


class Setup(msgspec.Struct, frozen=True, tag=True):
    """The first message to a child: whose handlers it runs."""

    origin: str | tuple[Address, ...]


class News(msgspec.Struct, frozen=True, tag=True):
    """What an attempt has to know of its run, whenever it changes; time is counted from now."""

    interrupts_in: float
    cancel_requested: bool
    stops_for: StopReason | None


class Begin(msgspec.Struct, frozen=True, tag=True):
    """A job to run now; `budget` and `needed` (seconds by step) say what fits its run."""

    job: ClaimedJob
    run_id: str
    now: int
    budget_ends_in: float
    budget: float
    needed: dict[str, float]
    config: dict[str, Any]
    news: News


class Prepared(msgspec.Struct, frozen=True, tag=True):
    """The answer to Enqueue: the child job that is stored when this one completes."""

    job: NewJob


class Refused(msgspec.Struct, frozen=True, tag=True):
    """The answer to Enqueue: why there is no such job."""

    code: str | None
    message: str
    facts: dict[str, str] = {}
    problems: tuple[tuple[str, str], ...] = ()


class Done(msgspec.Struct, frozen=True, tag=True):
    """The answer to LoadSteps: what is done already."""

    steps: tuple[Step, ...]


class Kept(msgspec.Struct, frozen=True, tag=True):
    """The answer to KeepStep."""


class Close(msgspec.Struct, frozen=True, tag=True):
    """There is nothing more to do: leave the lifespan and end."""


class Ready(msgspec.Struct, frozen=True, tag=True):
    """The handlers are loaded and their lifespan is open."""


class NotReady(msgspec.Struct, frozen=True, tag=True):
    """The handlers could not be loaded, or their lifespan not be opened."""

    reason: str


class Began(msgspec.Struct, frozen=True, tag=True):
    """The handler is being called: from here on its timeout counts."""


class Noted(msgspec.Struct, frozen=True, tag=True):
    note: Note


class Progressed(msgspec.Struct, frozen=True, tag=True):
    progress: Progress


class Enqueue(msgspec.Struct, frozen=True, tag=True):
    """`ctx.enqueue`: the input is JSON text; `seq` and `fence` say which attempt asks."""

    seq: int
    fence: int
    job_type: str
    input: str
    options: dict[str, Any]


class LoadSteps(msgspec.Struct, frozen=True, tag=True):
    pass


class KeepStep(msgspec.Struct, frozen=True, tag=True):
    step: NewStep


class Took(msgspec.Struct, frozen=True, tag=True):
    """How long a part of the job took, done or cut short."""

    step: str
    seconds: float


class Spared(msgspec.Struct, frozen=True, tag=True):
    """The next step does not fit the run."""


class Ended(msgspec.Struct, frozen=True, tag=True):
    outcome: Outcome
    worked_before_ms: int | None = None


Answer = Prepared | Done | Kept | Refused
Question = Enqueue | LoadSteps | KeepStep
ToChild = Setup | Begin | News | Prepared | Done | Kept | Refused | Close
FromChild = (
    Ready
    | NotReady
    | Began
    | Noted
    | Progressed
    | Enqueue
    | LoadSteps
    | KeepStep
    | Took
    | Spared
    | Ended
)

_ENCODER = msgspec.msgpack.Encoder()
_TO_CHILD: msgspec.msgpack.Decoder[ToChild] = msgspec.msgpack.Decoder(ToChild)
_FROM_CHILD: msgspec.msgpack.Decoder[FromChild] = msgspec.msgpack.Decoder(FromChild)


def frame(message: ToChild | FromChild) -> bytes:
    body = _ENCODER.encode(message)
    return len(body).to_bytes(LENGTH_BYTES, "big") + body


def body_length(prefix: bytes) -> int:
    length = int.from_bytes(prefix, "big")
    if length > _LONGEST_FRAME:
        raise BrokenFrame
    return length


def to_child(body: bytes) -> ToChild:
    try:
        return _TO_CHILD.decode(body)
    except msgspec.DecodeError as wrong:
        raise BrokenFrame from wrong


def from_child(body: bytes) -> FromChild:
    try:
        return _FROM_CHILD.decode(body)
    except msgspec.DecodeError as wrong:
        raise BrokenFrame from wrong


def refusal(error: Exception) -> Refused:
    """An error on its way to the handler that caused it."""
    match error:
        case InvalidInput():
            problems = tuple((each.path, each.reason) for each in error.problems)
            return Refused(error.code, str(error), problems=problems)
        case EdgeqError():
            facts = {name: value for name, value in vars(error).items() if isinstance(value, str)}
            return Refused(error.code, str(error), facts)
        case _:
            return Refused(None, f"{type(error).__name__}: {error}")


def error_of(refused: Refused) -> Exception:
    """The error again, of the class that its code names."""
    if refused.problems:
        return InvalidInput([Problem(path, reason) for path, reason in refused.problems])
    kind = _kinds().get(refused.code)
    if kind is None:
        return RuntimeError(refused.message)
    # Past its own __init__, which makes the message that we have already from other things.
    error = kind.__new__(kind, refused.message)
    error.args = (refused.message,)
    vars(error).update(refused.facts)
    return error


def _kinds() -> dict[str | None, type[EdgeqError]]:
    found: dict[str | None, type[EdgeqError]] = {}
    kinds = [EdgeqError]
    while kinds:
        kind = kinds.pop()
        found[kind.code] = kind
        kinds += kind.__subclasses__()
    return found
