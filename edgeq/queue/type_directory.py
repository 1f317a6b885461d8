"""What a queue knows of job types, so that an input can be checked before it is stored."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

from edgeq.core.input_rules import InputRules
from edgeq.core.job_types import JobType
from edgeq.declaration import Handler
from edgeq.errors import InvalidInput, Problem, UnknownType
from edgeq.ports.queries import ListTypes
from edgeq.ports.store import Store
from edgeq.registry import AnyHandler, Registry

FRESH_SECONDS = 5.0
_MOST_PROBLEMS = 20
# What `requires` may name beside fields of the input: these belong to the job around it.
ENVELOPE = ("tenant_id", "idempotency_key")
Check = Callable[[Any], None]


class TypeDirectory:
    """The stored types, a few seconds old at most, each with the check of its input."""

    def __init__(
        self, store: Store, registry: Registry, elapsed: Callable[[], float], secrets: str
    ) -> None:
        self._store = store
        self._handlers = registry.handlers
        self._elapsed = elapsed
        self._secrets = secrets
        self._known: dict[str, _Known] = {}
        self._seen_at = float("-inf")

    def learn(self, types: Iterable[JobType]) -> None:
        self._known = {
            each.name: self._keep(each, self._handlers.get(each.policy.handler_name))
            for each in types
        }
        self._seen_at = self._elapsed()

    def _keep(self, job_type: JobType, handler: AnyHandler | None) -> _Known:
        before = self._known.get(job_type.name)
        if before is not None and before.job_type == job_type:
            return before
        return _Known(job_type, handler, self._secrets)

    async def freshen(self, name: str) -> None:
        """Ask again if what is known is old, or does not hold this name."""
        if name not in self._known or self._elapsed() - self._seen_at > FRESH_SECONDS:
            self.learn(await self._store.read(ListTypes()))

    def forget(self) -> None:
        self._seen_at = float("-inf")

    def names(self) -> tuple[str, ...]:
        return tuple(self._known)

    def get(self, name: str) -> _Known:
        known = self._known.get(name)
        if known is None:
            raise UnknownType(name, self._known)
        return known


def name_of(job_type: str | AnyHandler) -> str:
    if isinstance(job_type, Handler):
        return job_type.name
    if not isinstance(job_type, str):
        raise InvalidInput.at("type", f"must be the name of a job type, got {job_type!r}")
    return job_type


class _Known:
    """One type: its rules, and its input's check by the handler or by the stored schema."""

    def __init__(self, job_type: JobType, handler: AnyHandler | None, secrets: str) -> None:
        policy = job_type.policy
        self.job_type = job_type
        self.handler = handler
        self.policy = policy
        self.rules = InputRules(
            max_bytes=policy.input_max_bytes,
            required_fields=tuple(f for f in policy.required_fields if f not in ENVELOPE),
            allowed_secret_fields=frozenset(policy.allowed_fields),
            secrets="warn" if secrets == "warn" else "refuse",
        )
        self.required_of_job = tuple(f for f in policy.required_fields if f in ENVELOPE)
        self._check: Check | None = None

    def check(self, plain: Any) -> None:
        """Raises InvalidInput when the input does not fit the handler's annotation."""
        if self._check is None:
            self._check = self._make_check()
        self._check(plain)

    def _make_check(self) -> Check:
        if self.handler is not None:
            typed = self.handler.input.typed

            def by_handler(plain: Any) -> None:
                typed(plain)

            return by_handler
        if self.policy.input_schema is not None:
            return _by_schema(self.policy.input_schema)
        return _accept


def _accept(_plain: Any) -> None:
    """A type that says nothing of its input takes any."""


def _by_schema(schema: str) -> Check:
    # Only a producer without the handler needs it, and it is slow to import.
    from jsonschema import Draft202012Validator

    validator = Draft202012Validator(json.loads(schema))

    def check(plain: Any) -> None:
        problems = [
            Problem(error.json_path, error.message)
            for _, error in zip(range(_MOST_PROBLEMS), validator.iter_errors(plain), strict=False)
        ]
        if problems:
            raise InvalidInput(problems)

    return check
