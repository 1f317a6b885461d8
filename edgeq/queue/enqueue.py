"""Enqueueing: an input is checked, encoded and named, then stored; keys are answered."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from edgeq.codec import plain as to_plain
from edgeq.core import json_text
from edgeq.core.ids import is_job_id, request_hash, unique_key
from edgeq.core.input_rules import check_size, check_value
from edgeq.core.jobs import (
    DEFAULT_PRIORITY,
    HIGHEST_PRIORITY,
    LOWEST_PRIORITY,
    JobStatus,
    NewJob,
    OnFailure,
)
from edgeq.core.times import parse_duration_ms, parse_time_ms
from edgeq.errors import BadSetting, GuardRefused, InvalidInput, TypeDisabled
from edgeq.events import JobMoved
from edgeq.ports.commands import Duplicate, Inserted, InsertJobs
from edgeq.producing import Enqueued
from edgeq.queue.parts import Parts
from edgeq.queue.type_directory import name_of
from edgeq.registry import AnyHandler

INSERTED_AT_ONCE = 1_000
_MOST_IDS = 1_000
_LONGEST_NAME = 200
_log = logging.getLogger("edgeq")

JobTypeName = str | AnyHandler
Moment = datetime | int | str


class Enqueueing(Parts):
    """The methods that add jobs."""

    async def open(self) -> None:
        """Open the database, create or migrate it if needed, and register the handlers."""
        await super().open()
        self._bind_handlers()

    async def close(self) -> None:
        for each in self._registry.handlers.values():
            each.queues.remove(self)
        await super().close()

    def _bind_handlers(self) -> None:
        """From now on they can be enqueued by themselves, into this queue."""
        for each in self._registry.handlers.values():
            each.queues.add(self)

    async def enqueue(
        self,
        /,
        job_type: JobTypeName,
        input: Any = None,
        *,
        connection: object = None,
        **options: Any,
    ) -> Enqueued:
        """Store one job; it is durable when this returns.

        With `connection`, a connection or session of SQLAlchemy whose engine went through
        `edgeq.attach`, the job is part of the caller's transaction, and as durable as that.

        Options: priority (1-20, higher first), scheduled_for or delay, idempotency_key,
        on_duplicate ("return" or "replace"), tenant_id, correlation_id, reference_type,
        reference_id, parent_job_id, max_retries, timeout, result_ttl, expires_at,
        payload_version, created_by, after (ids of jobs that have to complete first), on_failure
        ("fail", "cancel" or "run", if one of those does not). Durations are seconds.
        """
        await self._types.freshen(name_of(job_type))
        new = self.prepare(job_type, input, **options)
        (answer,) = await self._stored_as((new,), connection)
        return answer

    async def enqueue_many(
        self,
        /,
        job_type: JobTypeName,
        inputs: Iterable[Any],
        *,
        connection: object = None,
        **options: Any,
    ) -> list[Enqueued]:
        """Store many jobs of one type. All are checked before any is stored; they are stored
        in commits of 1,000, each of them whole, or all within the transaction of `connection`."""
        await self._types.freshen(name_of(job_type))
        new = self._prepare_all(job_type, inputs, options)
        if connection is not None:
            # One command: what a later part refuses must take the earlier ones with it.
            return await self._stored_as(tuple(new), connection)
        answers: list[Enqueued] = []
        for start in range(0, len(new), INSERTED_AT_ONCE):
            answers += await self._stored_as(tuple(new[start : start + INSERTED_AT_ONCE]), None)
        return answers

    async def _stored_as(self, new: tuple[NewJob, ...], connection: object) -> list[Enqueued]:
        if connection is None:
            answers = await self._store.write(InsertJobs(new))
            self._announce_stored(new, answers)
        else:
            # Nothing is announced: whether and when these jobs exist is the caller's to decide.
            answers = await self._store.write_within(connection, InsertJobs(new))
        return [answered(answer) for answer in answers]

    def _prepare_all(
        self, job_type: JobTypeName, inputs: Iterable[Any], options: dict[str, Any]
    ) -> list[NewJob]:
        prepared = []
        for index, value in enumerate(inputs):
            try:
                prepared.append(self.prepare(job_type, value, **options))
            except InvalidInput as wrong:
                raise InvalidInput(wrong.problems, index=index) from wrong
        return prepared

    def prepare(
        self,
        job_type: JobTypeName,
        input: Any = None,
        *,
        priority: int = DEFAULT_PRIORITY,
        scheduled_for: Moment | None = None,
        delay: float | timedelta | None = None,
        idempotency_key: str | None = None,
        on_duplicate: str = "return",
        tenant_id: str | None = None,
        correlation_id: str | None = None,
        reference_type: str | None = None,
        reference_id: str | None = None,
        parent_job_id: str | None = None,
        max_retries: int | None = None,
        timeout: float | timedelta | None = None,
        result_ttl: float | timedelta | None = None,
        expires_at: Moment | None = None,
        payload_version: int | None = None,
        created_by: str | None = None,
        after: Iterable[str] = (),
        on_failure: str | None = None,
        batch_id: str | None = None,
        input_from: str | None = None,
    ) -> NewJob:
        """A job made ready to be stored, or an error that says what is wrong with it."""
        name = name_of(job_type)
        known = self._types.get(name)
        if not known.job_type.is_enabled:
            raise TypeDisabled(name)
        text, plain = ("{}", {}) if input_from else self._encoded_input(job_type, input)
        check_priority(priority)
        check_texts(
            idempotency_key=idempotency_key,
            tenant_id=tenant_id,
            correlation_id=correlation_id,
            reference_type=reference_type,
            reference_id=reference_id,
            parent_job_id=parent_job_id,
            created_by=created_by,
        )
        for required in known.required_of_job:
            if {"tenant_id": tenant_id, "idempotency_key": idempotency_key}[required] is None:
                raise InvalidInput.at(required, f"is required by job type {name!r}")
        if on_duplicate not in ("return", "replace"):
            raise InvalidInput.at("on_duplicate", "must be 'return' or 'replace'")
        now = self._store.now()
        # The id's own time: lists find a range of times as a range of ids.
        job_id, created_at = self._ids.next(now, self._chance.bits(74))
        has_key = idempotency_key is not None
        return NewJob(
            id=job_id,
            type=name,
            created_at=created_at,
            scheduled_for=_due_at(now, scheduled_for, delay),
            priority=priority,
            input_data=text,
            reference_type=reference_type,
            reference_id=reference_id,
            max_retries=_whole("max_retries", max_retries, 0),
            timeout_ms=_positive_ms("timeout", timeout),
            tenant_id=tenant_id,
            correlation_id=correlation_id,
            parent_job_id=parent_job_id,
            idempotency_key=idempotency_key,
            unique_key=unique_key(tenant_id, name, idempotency_key) if idempotency_key else None,
            request_hash=request_hash(json_text.canonical(plain)) if has_key else None,
            payload_version=_whole("payload_version", payload_version, 1) or known.policy.version,
            created_by=created_by,
            expires_at=None if expires_at is None else moment("expires_at", expires_at),
            result_ttl_ms=_positive_ms("result_ttl", result_ttl),
            replaces_duplicate=on_duplicate == "replace",
            batch_id=batch_id,
            after=() if after == () else _ids("after", after),
            on_failure=None if on_failure is None else _on_failure(on_failure),
            input_from=input_from,
        )

    def _encoded_input(self, job_type: JobTypeName, value: Any) -> tuple[str, Any]:
        """The input as it is stored, checked by every rule that its type has."""
        known = self._types.get(name_of(job_type))
        plain = value if isinstance(value, dict) else {} if value is None else to_plain(value)
        for warning in check_value(plain, known.rules):
            _log.warning("%s: input field %s", known.policy.name, warning)
        known.check(plain)
        guard = known.handler.guard if known.handler is not None else None
        refusal = guard(plain) if guard is not None and isinstance(plain, dict) else None
        if refusal:
            raise GuardRefused(known.policy.name, refusal)
        text = json_text.encode(plain)
        warning_text = check_size(len(text.encode()), known.rules)
        if warning_text is not None:
            _log.warning("%s: %s", known.policy.name, warning_text)
        return text, plain

    def _announce_stored(
        self, new: tuple[NewJob, ...], answers: tuple[Inserted | Duplicate, ...]
    ) -> None:
        if self._has_listeners():
            for job, answer in zip(new, answers, strict=True):
                if isinstance(answer, Inserted):
                    self._announce(JobMoved(job.id, job.type, None, answer.status, 1))


def answered(answer: Inserted | Duplicate) -> Enqueued:
    match answer:
        case Inserted(job_id, status):
            return Enqueued(job_id, status)
        case Duplicate(job):
            result = job.output if job.status is JobStatus.COMPLETED else None
            return Enqueued(job.id, job.status.value, duplicate=True, result=result)


def _ids(name: str, ids: Iterable[str]) -> tuple[str, ...]:
    """The ids of jobs; whether they are there is seen when the job is stored."""
    given = [ids] if isinstance(ids, str) else list(ids)
    if len(given) > _MOST_IDS:
        raise InvalidInput.at(name, f"names at most {_MOST_IDS} jobs: use a batch for more")
    for place, each in enumerate(given):
        if not is_job_id(each):
            raise InvalidInput.at(f"{name}[{place}]", f"is not the id of a job: {each!r}")
    return tuple(given)


def _on_failure(wanted: str) -> OnFailure:
    try:
        return OnFailure(wanted)
    except ValueError:
        raise InvalidInput.at("on_failure", f"must be one of {', '.join(OnFailure)}") from None


def check_priority(priority: Any) -> None:
    is_whole = isinstance(priority, int) and not isinstance(priority, bool)
    if not is_whole or not LOWEST_PRIORITY <= priority <= HIGHEST_PRIORITY:
        raise InvalidInput.at(
            "priority",
            f"must be a whole number from {LOWEST_PRIORITY} to {HIGHEST_PRIORITY}, "
            f"got {priority!r}",
        )


def check_texts(**texts: Any) -> None:
    for name, value in texts.items():
        if value is not None and not (
            isinstance(value, str) and 0 < len(value) <= _LONGEST_NAME and value.isprintable()
        ):
            raise InvalidInput.at(
                name, f"must be a text of 1 to {_LONGEST_NAME} printable characters"
            )


def _due_at(now: int, scheduled_for: Moment | None, delay: float | timedelta | None) -> int:
    """When the job is due; a time in the past is simply due."""
    if scheduled_for is not None and delay is not None:
        raise InvalidInput.at("delay", "and scheduled_for cannot both be given")
    if delay is not None:
        return now + _duration_ms("delay", delay)
    return now if scheduled_for is None else moment("scheduled_for", scheduled_for)


def moment(name: str, value: Moment) -> int:
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise InvalidInput.at(name, "needs a time zone: use datetime.now(UTC) and the like")
        return round(value.timestamp() * 1000)
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**47:
        return value
    if not isinstance(value, str):
        raise InvalidInput.at(name, f"is not a time: {value!r}")
    try:
        return parse_time_ms(value)
    except BadSetting as wrong:
        raise InvalidInput.at(name, f"is not a time: {wrong}") from wrong


def _duration_ms(name: str, value: float | timedelta) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float | str | timedelta):
        raise InvalidInput.at(name, f"must be seconds, got {value!r}")
    try:
        return parse_duration_ms(value)
    except BadSetting as wrong:
        raise InvalidInput.at(name, str(wrong)) from wrong


def _positive_ms(name: str, value: float | timedelta | None) -> int | None:
    if value is None:
        return None
    ms = _duration_ms(name, value)
    if ms <= 0:
        raise InvalidInput.at(name, "must be more than 0 seconds")
    return ms


def _whole(name: str, value: Any, lowest: int) -> int | None:
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not lowest <= value < 2**31:
        raise InvalidInput.at(name, f"must be a whole number of at least {lowest}")
    return value
