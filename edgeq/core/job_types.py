"""A job type: a named kind of work with its policy."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping

import msgspec

from edgeq.core.backoff import Backoff
from edgeq.core.json_text import located
from edgeq.errors import InvalidInput, Problem

FAST_LANE = "fast"
GENERAL_LANE = "general"
NAME_PATTERN = re.compile(r"[A-Za-z][A-Za-z0-9_.:-]{0,99}")

# What a type has that code declares or an operator sets; the order is that of the documentation.
POLICY_FIELDS = (
    "description",
    "category",
    "handler_name",
    "lane",
    "max_retries",
    "retry_delay_ms",
    "retry_max_delay_ms",
    "timeout_ms",
    "max_concurrent",
    "max_pending",
    "result_ttl_ms",
    "max_interruptions",
    "input_max_bytes",
    "output_max_bytes",
    "required_fields",
    "allowed_fields",
    "stages",
    "executor",
    "version",
    "input_schema",
)
# What an operator may change; the rest is a fact of the handler's code.
OPERATOR_FIELDS = frozenset(POLICY_FIELDS) - {
    "handler_name",
    "stages",
    "executor",
    "version",
    "input_schema",
}


class TypePolicy(msgspec.Struct, frozen=True, kw_only=True):
    """What is decided about a kind of work: by its handler's declaration or by an operator."""

    name: str
    description: str | None = None
    category: str | None = None
    handler_name: str = ""
    lane: str = GENERAL_LANE
    max_retries: int = 3
    retry_delay_ms: int = 5_000
    retry_max_delay_ms: int = 300_000
    timeout_ms: int = 300_000
    max_concurrent: int | None = None
    max_pending: int | None = None
    result_ttl_ms: int = 3_600_000
    max_interruptions: int = 20
    input_max_bytes: int = 65_536
    output_max_bytes: int = 262_144
    required_fields: tuple[str, ...] = ()
    allowed_fields: tuple[str, ...] = ()
    stages: tuple[str, ...] = ()
    executor: str = "async"
    version: int = 1
    input_schema: str | None = None

    def __post_init__(self) -> None:
        problems = list(_problems(self))
        if problems:
            raise InvalidInput(problems)

    @property
    def backoff(self) -> Backoff:
        return Backoff(base_ms=self.retry_delay_ms, cap_ms=self.retry_max_delay_ms)


class JobType(msgspec.Struct, frozen=True, kw_only=True):
    """A stored job type: its policy, its switches, and which fields an operator holds."""

    id: str
    policy: TypePolicy
    is_enabled: bool
    is_paused: bool
    overrides: frozenset[str]
    created_at: int
    updated_at: int

    @property
    def name(self) -> str:
        return self.policy.name

    @property
    def is_claimable(self) -> bool:
        return self.is_enabled and not self.is_paused


def declared_again(stored: JobType, declared: TypePolicy) -> TypePolicy:
    """The policy after a registration: code decides all that no operator has set."""
    kept = {name: getattr(stored.policy, name) for name in stored.overrides}
    return msgspec.structs.replace(declared, **kept)


def changed_by_operator(policy: TypePolicy, changes: Mapping[str, object]) -> TypePolicy:
    """The policy after an operator's change, or InvalidInput naming what cannot be set."""
    refused = [
        Problem(f"$.{name}", f"cannot be set; these can: {', '.join(sorted(OPERATOR_FIELDS))}")
        for name in changes
        if name not in OPERATOR_FIELDS
    ]
    if refused:
        raise InvalidInput(refused)
    merged = {**msgspec.structs.asdict(policy), **changes}
    try:
        return msgspec.convert(merged, TypePolicy)
    except msgspec.ValidationError as wrong:
        raise InvalidInput.at(*located(str(wrong))) from wrong


def differing_fields(policy: TypePolicy) -> frozenset[str]:
    """What a policy says beyond the defaults, of the things that an operator may say."""
    plain = TypePolicy(name=policy.name)
    return frozenset(f for f in OPERATOR_FIELDS if getattr(policy, f) != getattr(plain, f))


def type_id(name: str) -> str:
    """A short id, the same in every database: it is part of the key of the busiest indexes."""
    return f"jt_{hashlib.sha256(name.encode()).hexdigest()[:12]}"


_AT_LEAST = {
    "max_retries": 0,
    "retry_delay_ms": 0,
    "retry_max_delay_ms": 0,
    "timeout_ms": 1,
    "max_concurrent": 1,
    "max_pending": 1,
    "result_ttl_ms": 1,
    "max_interruptions": 0,
    "input_max_bytes": 2,
    "output_max_bytes": 2,
    "version": 1,
}
_LARGEST = 2**53


def _problems(policy: TypePolicy) -> list[Problem]:
    found = []
    if not NAME_PATTERN.fullmatch(policy.name):
        found.append(
            Problem("$.name", "must be a letter, then at most 99 letters, digits or any of _.:-")
        )
    if not NAME_PATTERN.fullmatch(policy.lane):
        found.append(Problem("$.lane", "must be a short name such as 'fast' or 'general'"))
    for field, lowest in _AT_LEAST.items():
        value = getattr(policy, field)
        if value is not None and not lowest <= value <= _LARGEST:
            found.append(Problem(f"$.{field}", f"must be from {lowest} to {_LARGEST}, got {value}"))
    return found
