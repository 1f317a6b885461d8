"""The `@handler` decorator: a function, its job type's policy, and how its data is read."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from types import UnionType
from typing import (
    Any,
    Concatenate,
    Generic,
    ParamSpec,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec

from edgeq.codec import Codec
from edgeq.core.backoff import ErrorClass, named
from edgeq.core.job_types import GENERAL_LANE, TypePolicy
from edgeq.core.outcomes import Skip
from edgeq.core.times import parse_duration_ms
from edgeq.errors import EdgeqError, HandlerProblem
from edgeq.producing import Producing

C = TypeVar("C")
P = ParamSpec("P")
R = TypeVar("R")
Seconds = float | timedelta
Upgrade = Callable[[int, dict[str, Any]], dict[str, Any]]
Guard = Callable[[dict[str, Any]], str | None]


class Handler(Producing[P], Generic[C, P, R]):
    """A decorated function. It stays callable as it was; edgeq calls it for its job type."""

    def __init__(
        self,
        function: Callable[Concatenate[C, P], R],
        policy: TypePolicy,
        *,
        errors: Mapping[type[Exception], ErrorClass],
        upgrade: Upgrade | None,
        guard: Guard | None,
    ) -> None:
        super().__init__()
        functools.update_wrapper(self, function)
        self.function = function
        self.is_async = inspect.iscoroutinefunction(function)
        self.executor = policy.executor
        self._declared = policy
        self.errors = errors
        self.upgrade = upgrade
        self.guard = guard
        self.where = f"{function.__module__}.{function.__qualname__}"

    def __call__(self, context: C, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(context, *args, **kwargs)

    def __repr__(self) -> str:
        return f"<handler {self.name!r}: {self.where}>"

    @property
    def name(self) -> str:
        return self._declared.name

    @functools.cached_property
    def _hints(self) -> dict[str, Any]:
        try:
            return get_type_hints(self.function)
        except Exception as unresolved:
            raise HandlerProblem(
                f"{self.where}: its annotations cannot be resolved ({unresolved}). Types that it "
                "names must be importable where the handler is defined."
            ) from unresolved

    @functools.cached_property
    def input(self) -> Codec:
        parameters = list(inspect.signature(self.function).parameters)
        if len(parameters) != 2:
            raise HandlerProblem(
                f"{self.where} must take exactly two arguments, the context and the input; "
                f"it takes ({', '.join(parameters)})."
            )
        return Codec(self._hints.get(parameters[1], Any), f"{self.where}({parameters[1]})")

    @functools.cached_property
    def output(self) -> Codec:
        return Codec(_without_skip(self._hints.get("return", Any)), f"{self.where} -> result")

    @functools.cached_property
    def policy(self) -> TypePolicy:
        """What this handler declares of its type, its input's schema included."""
        _ = self.output  # so that an annotation that cannot be kept is found at loading
        return msgspec.structs.replace(self._declared, input_schema=self.input.schema)


def handler(
    name: str,
    *,
    description: str | None = None,
    category: str | None = None,
    timeout: Seconds | None = None,
    max_retries: int | None = None,
    retry_delay: Seconds | None = None,
    retry_max_delay: Seconds | None = None,
    max_concurrent: int | None = None,
    max_pending: int | None = None,
    lane: str = GENERAL_LANE,
    executor: str | None = None,
    stages: Sequence[str] = (),
    result_ttl: Seconds | None = None,
    max_interruptions: int | None = None,
    input_max_bytes: int | None = None,
    output_max_bytes: int | None = None,
    requires: Sequence[str] = (),
    allow_fields: Sequence[str] = (),
    errors: Mapping[type[Exception], str] | None = None,
    version: int = 1,
    upgrade: Upgrade | None = None,
    guard: Guard | None = None,
) -> Callable[[Callable[Concatenate[C, P], R]], Handler[C, P, R]]:
    """Declare a function as the handler of a job type; durations in seconds.

    What is not given follows the defaults of the type. An operator's changes win over both.
    """

    def declare(function: Callable[Concatenate[C, P], R]) -> Handler[C, P, R]:
        where = f"{function.__module__}.{function.__qualname__}"
        given: dict[str, Any] = {
            "timeout_ms": _milliseconds(timeout),
            "max_retries": max_retries,
            "retry_delay_ms": _milliseconds(retry_delay),
            "retry_max_delay_ms": _milliseconds(retry_max_delay),
            "max_concurrent": max_concurrent,
            "max_pending": max_pending,
            "result_ttl_ms": _milliseconds(result_ttl),
            "max_interruptions": max_interruptions,
            "input_max_bytes": input_max_bytes,
            "output_max_bytes": output_max_bytes,
        }
        try:
            policy = TypePolicy(
                name=name,
                description=description or _first_line(function),
                category=category,
                handler_name=name,
                lane=lane,
                required_fields=tuple(requires),
                allowed_fields=tuple(allow_fields),
                stages=tuple(stages),
                executor=_executor(function, executor),
                version=version,
                **{field: value for field, value in given.items() if value is not None},
            )
            classes = {kind: named(text) for kind, text in (errors or {}).items()}
        except EdgeqError as wrong:
            raise HandlerProblem(f"{where}, handler of {name!r}: {wrong}") from wrong
        return Handler(function, policy, errors=classes, upgrade=upgrade, guard=guard)

    return declare


def _without_skip(annotation: Any) -> Any:
    """`Skip` is an answer, not an output: a handler may be annotated to return either."""
    if annotation is Skip:
        return Any
    rest = tuple(each for each in get_args(annotation) if each is not Skip)
    is_union = get_origin(annotation) in (Union, UnionType)
    return Union[rest] if is_union and rest != get_args(annotation) else annotation  # noqa: UP007


def _executor(function: Callable[..., Any], wanted: str | None) -> str:
    natural = "async" if inspect.iscoroutinefunction(function) else "thread"
    if wanted not in (None, natural, "process"):
        raise HandlerProblem(
            f"executor={wanted!r} does not fit: an `async def` runs as 'async', a `def` as "
            "'thread', and both can run in a 'process'."
        )
    return wanted or natural


def _milliseconds(duration: Seconds | None) -> int | None:
    return None if duration is None else parse_duration_ms(duration)


def _first_line(function: Callable[..., Any]) -> str | None:
    documented = inspect.getdoc(function)
    return documented.splitlines()[0] if documented else None
