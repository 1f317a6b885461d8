"""Every error that a user can meet, each with a stable code and a message that says what to do.

EdgeqError
├── InvalidInput            the input or a field is refused; `problems` says where and why
├── UnknownType             nobody has registered this job type
├── TypeDisabled            the job type takes no jobs
├── TypeExists              a job type of this name is there already
├── QueueFull               the job type has reached its `max_pending`
├── GuardRefused            the type's own guard said no
├── IdempotencyConflict     the key was used with another input
├── JobNotFound             no job has this id
├── BatchNotFound           no batch has this id
├── JobFailed               the job that was waited for failed for good
├── JobCancelled            the job that was waited for was cancelled
├── WaitTimeout             the job that was waited for is still alive
├── ResultNotReady          the job has not ended
├── ResultExpired           the job ended, and its result is past its time to live
├── StepRefused             a step's name, key or result cannot be kept
├── TransactionFailed       what ran inside a step's transaction raised; `cause` is that
├── IllegalMove             the job's state does not allow this
├── LockLost                somebody else has this job now
├── KeyNotSet               the configuration has no such key
├── HandlerProblem          a handler cannot be loaded, is declared twice, or is declared wrongly
├── BadSetting              a setting, an option or a configuration key does not make sense
├── ProjectNotMade          a new project's folder holds its files already, or cannot be written
└── StoreError              the database
    ├── StoreUnavailable    it cannot be opened or read
    │   ├── StoreReadOnly       it cannot be written
    │   ├── NotADatabase        the file is something else
    │   └── StoreCorrupt        the file is damaged
    ├── StoreBusy           somebody held it for too long
    ├── StoreFull           the disk is full
    ├── StoreFrozen         an operator has stopped all writes
    ├── StoreMoved          the queue lives elsewhere now
    ├── StoreClosed         this queue was closed
    ├── WriterHeld          the caller is inside a transaction that it would wait for
    ├── NewerSchema         the database belongs to a newer edgeq
    └── MigrationFailed     the schema could not be brought up to date; nothing was changed
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import NamedTuple


class EdgeqError(Exception):
    """What every error of edgeq is."""

    code = "edgeq_error"


class Problem(NamedTuple):
    """One thing that is wrong with an input: where, and why."""

    path: str
    reason: str

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


class InvalidInput(EdgeqError):
    code = "invalid_input"

    def __init__(self, problems: Sequence[Problem], *, index: int | None = None) -> None:
        self.problems = tuple(problems)
        self.index = index
        where = "" if index is None else f"job {index}: "
        super().__init__(f"{where}{'; '.join(map(str, problems))}")

    @classmethod
    def at(cls, path: str, reason: str) -> InvalidInput:
        return cls([Problem(path, reason)])


class UnknownType(EdgeqError):
    code = "unknown_type"

    def __init__(self, name: str, known: Iterable[str] = ()) -> None:
        near = difflib.get_close_matches(name, list(known), n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        super().__init__(
            f"No job type {name!r} is registered.{hint} Add a handler for it to ./handlers and run "
            "`edgeq process` once, or see `edgeq types list`."
        )
        self.name = name


class TypeDisabled(EdgeqError):
    code = "type_disabled"

    def __init__(self, name: str) -> None:
        super().__init__(
            f"Job type {name!r} is disabled and takes no jobs. `edgeq types enable {name}` lets it."
        )
        self.name = name


class TypeExists(EdgeqError):
    code = "type_exists"

    def __init__(self, name: str) -> None:
        super().__init__(f"Job type {name!r} is there already. Change it with `edgeq types set`.")


class QueueFull(EdgeqError):
    code = "queue_full"

    def __init__(self, name: str, max_pending: int) -> None:
        super().__init__(
            f"Job type {name!r} already has {max_pending} pending jobs, its max_pending. "
            "Try again when some are done, or raise the limit."
        )


class GuardRefused(EdgeqError):
    code = "guard_refused"

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"The guard of job type {name!r} refused the job: {reason}")


class IdempotencyConflict(EdgeqError):
    code = "idempotency_conflict"

    def __init__(self, key: str, job_id: str) -> None:
        super().__init__(
            f"The idempotency key {key!r} belongs to job {job_id}, which has another input. "
            "Send the same input again, or use a new key."
        )
        self.job_id = job_id


class JobNotFound(EdgeqError):
    code = "job_not_found"

    def __init__(self, job_id: str) -> None:
        super().__init__(f"No job has the id {job_id!r}. It may have been deleted or cleaned up.")
        self.job_id = job_id


class BatchNotFound(EdgeqError):
    code = "batch_not_found"

    def __init__(self, batch_id: str) -> None:
        super().__init__(f"No batch has the id {batch_id!r}. It may have been cleaned up.")
        self.batch_id = batch_id


class JobFailed(EdgeqError):
    code = "job_failed"

    def __init__(
        self, job_id: str, error_class: str, message: str, attempts: Sequence[object] = ()
    ) -> None:
        super().__init__(f"Job {job_id} failed ({error_class}): {message}")
        self.job_id = job_id
        self.error_class = error_class
        self.message = message
        self.attempts = tuple(attempts)


class JobCancelled(EdgeqError):
    code = "job_cancelled"

    def __init__(self, job_id: str) -> None:
        super().__init__(f"Job {job_id} was cancelled.")
        self.job_id = job_id


class WaitTimeout(EdgeqError):
    code = "wait_timeout"

    def __init__(self, job_id: str, seconds: float) -> None:
        super().__init__(f"Job {job_id} had not ended after {seconds:g} s. It is still alive.")
        self.job_id = job_id


class ResultNotReady(EdgeqError):
    code = "result_not_ready"

    def __init__(self, job_id: str, status: str) -> None:
        super().__init__(f"Job {job_id} is {status}: it has no result yet.")
        self.job_id = job_id


class ResultExpired(EdgeqError):
    code = "result_expired"

    def __init__(self, job_id: str) -> None:
        super().__init__(f"The result of job {job_id} is past its time to live and is gone.")
        self.job_id = job_id


class StepRefused(EdgeqError):
    code = "step_refused"

    def __init__(self, job_id: str, name: str, why: str) -> None:
        super().__init__(f"Step {name} of job {job_id} is refused: {why}.")
        self.job_id = job_id
        self.name = name


class IllegalMove(EdgeqError):
    code = "illegal_move"

    def __init__(self, job_id: str, status: str, wanted: str, why: str = "") -> None:
        super().__init__(f"Job {job_id} is {status}: it cannot be {wanted}.{why and ' ' + why}")
        self.job_id = job_id
        self.status = status


class LockLost(EdgeqError):
    code = "lock_lost"

    def __init__(self, job_id: str) -> None:
        super().__init__(
            f"Job {job_id} is no longer ours: its lock expired or an operator took it. "
            "Nothing that this attempt still does is recorded; stop as soon as possible."
        )
        self.job_id = job_id


class KeyNotSet(EdgeqError):
    code = "key_not_set"

    def __init__(self, key: str) -> None:
        super().__init__(f"{key} is not set. `edgeq config list` shows what is.")


class HandlerProblem(EdgeqError):
    code = "handler_problem"


class BadSetting(EdgeqError):
    code = "bad_setting"


class ProjectNotMade(EdgeqError):
    code = "project_not_made"


class StoreError(EdgeqError):
    code = "store_error"


class StoreUnavailable(StoreError):
    code = "store_unavailable"


class StoreReadOnly(StoreUnavailable):
    code = "store_read_only"


class NotADatabase(StoreUnavailable):
    code = "not_a_database"


class StoreCorrupt(StoreUnavailable):
    code = "store_corrupt"


class StoreBusy(StoreError):
    code = "store_busy"


class StoreFull(StoreError):
    code = "store_full"


class StoreFrozen(StoreError):
    code = "store_frozen"


class StoreMoved(StoreError):
    code = "store_moved"


class StoreClosed(StoreError):
    code = "store_closed"


class WriterHeld(StoreError):
    code = "writer_held"


class TransactionFailed(EdgeqError):
    code = "transaction_failed"

    def __init__(self, cause: BaseException) -> None:
        super().__init__(f"{type(cause).__name__}: {cause}")
        self.cause = cause


class NewerSchema(StoreError):
    code = "newer_schema"


class MigrationFailed(StoreError):
    code = "migration_failed"
