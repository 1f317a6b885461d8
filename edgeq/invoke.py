"""Running one handler: whatever it does, an outcome comes back."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

from edgeq.attempt import Attempt, Sleeping, Stopping, StopReason
from edgeq.codec import encode_output
from edgeq.context import Context, SyncContext
from edgeq.core import json_text
from edgeq.core.backoff import ErrorClass
from edgeq.core.jobs import LogLevel
from edgeq.core.outcomes import (
    Completed,
    Fail,
    Failed,
    Interrupted,
    NeedsReview,
    Outcome,
    RateLimited,
    Retry,
    Review,
    Signal,
    Skip,
    Snooze,
    Snoozed,
    Stopped,
)
from edgeq.core.redaction import redact, safe_message
from edgeq.error_hooks import tell_hooks
from edgeq.errors import EdgeqError, GuardRefused, InvalidInput, LockLost, StepRefused
from edgeq.registry import OnError
from edgeq.threads import HandlerThreads

_CENTURY_SECONDS = 100 * 366 * 86_400.0


async def invoke(
    attempt: Attempt, threads: HandlerThreads, hooks: Sequence[OnError] = ()
) -> Outcome:
    """Decode the input, call the handler, and say what it came to; never raises."""
    try:
        value = _input(attempt)
    except BaseException as wrong:
        return await _told(hooks, attempt, threads, _refused_input(attempt, wrong), wrong)
    handler = attempt.handler
    try:
        # Without a coroutine of our own in between: this is called for every job.
        if handler.is_async:
            result = await handler.function(Context(attempt, threads), value)
        else:
            result = await threads.run(
                partial(handler.function, SyncContext(attempt, threads), value)
            )
        outcome = _finished(attempt, result)
    except asyncio.CancelledError:
        # Nobody but the run cancels this task; a handler may raise it by itself, though.
        if attempt.stop is not None:
            return await _told(hooks, attempt, threads, stopped_by(attempt.stop))
        itself = RuntimeError("the handler cancelled itself")
        return await _told(hooks, attempt, threads, _crashed(attempt, itself), itself)
    except BaseException as raised:
        return await _told(hooks, attempt, threads, _raised(attempt, raised), raised)
    return await _told(hooks, attempt, threads, outcome) if hooks else outcome


async def _told(
    hooks: Sequence[OnError],
    attempt: Attempt,
    threads: HandlerThreads,
    outcome: Outcome,
    error: BaseException | None = None,
) -> Outcome:
    """The outcome, once the hooks know of it: if it is a failure that no handler asked for."""
    if attempt.stop is StopReason.TIMEOUT:
        error = TimeoutError(f"timed out after {attempt.job.timeout_ms / 1000:g} s")
    if error is None or isinstance(error, Signal) or not isinstance(outcome, Failed):
        return outcome
    if hooks:
        await tell_hooks(hooks, attempt, error, threads)
    return outcome


def _refused_input(attempt: Attempt, wrong: BaseException) -> Outcome:
    match wrong:
        case InvalidInput():
            # Where, but not what: an input's values belong in no message.
            where = ", ".join(problem.path for problem in wrong.problems)
            reason = f"the stored input no longer fits, at {where}"
            return _failed(ErrorClass.NON_RETRYABLE, reason)
        case EdgeqError():
            return _failed(ErrorClass.NON_RETRYABLE, f"the stored input is refused: {wrong}")
        case _:
            return _crashed(attempt, wrong)


def _input(attempt: Attempt) -> Any:
    job, handler = attempt.job, attempt.handler
    text = job.input_data if job.input_data is not None else "{}"
    if handler.guard is None and job.payload_version >= handler.policy.version:
        return handler.input.read(text)
    plain = json_text.decode(text)
    if job.payload_version < handler.policy.version and handler.upgrade is not None:
        if not isinstance(plain, dict):
            raise InvalidInput.at("$", "only an object can be upgraded to a newer version")
        plain = handler.upgrade(job.payload_version, plain)
    if handler.guard is not None and isinstance(plain, dict):
        refusal = handler.guard(plain)
        if refusal:
            raise GuardRefused(job.type, refusal)
    return handler.input.typed(plain)


def _finished(attempt: Attempt, result: Any) -> Outcome:
    if attempt.stop is StopReason.TIMEOUT:
        # It was told to stop and answered late: what it did counts as too slow all the same.
        return stopped_by(StopReason.TIMEOUT)
    if isinstance(result, Skip):
        attempt.note(f"skipped: {_text(result.reason)}")
        return Completed(json_text.encode({"skipped": safe_message(_text(result.reason))}))
    try:
        return Completed(_encoded_output(attempt, result))
    except InvalidInput as wrong:
        return Failed(ErrorClass.NON_RETRYABLE, safe_message(f"the output is refused: {wrong}"))


def _encoded_output(attempt: Attempt, value: Any) -> str:
    text = encode_output(attempt.handler.output, value)
    limit = attempt.handler.policy.output_max_bytes
    size = len(text.encode())
    if size > limit:
        raise InvalidInput.at(
            "$", f"{size} bytes are more than output_max_bytes ({limit}): store it elsewhere"
        )
    return text


def _raised(attempt: Attempt, raised: BaseException) -> Outcome:
    stopping = _stopping_in(raised)
    if isinstance(stopping, Sleeping):
        return Snoozed(stopping.delay_ms)
    if stopping is not None:
        return stopped_by(stopping.reason)
    if attempt.stop is not None:
        # What a handler raises while it is being stopped is only how it stopped.
        return stopped_by(attempt.stop)
    try:
        return _answered(attempt, raised)
    except Exception as wrong:
        # Such as Retry(after="soon"): what was meant cannot be done, so it is a failure.
        return _crashed(attempt, wrong)


def _stopping_in(raised: BaseException) -> Stopping | None:
    """What stopped the handler at a checkpoint, also out of a task group."""
    if isinstance(raised, BaseExceptionGroup):
        found = (_stopping_in(each) for each in raised.exceptions)
        return next((stopping for stopping in found if stopping is not None), None)
    return raised if isinstance(raised, Stopping) else None


def _answered(attempt: Attempt, raised: BaseException) -> Outcome:
    match raised:
        case Snooze():
            return Snoozed(_ms(raised.seconds))
        case RateLimited():
            return _failed(ErrorClass.RATE_LIMITED, raised.reason, raised.after)
        case Retry():
            return _failed(ErrorClass.TRANSIENT, raised.reason, raised.after)
        case Fail():
            return _failed(ErrorClass.NON_RETRYABLE, raised.reason)
        case Review():
            return _review(attempt, raised)
        case StepRefused():
            return _failed(ErrorClass.NON_RETRYABLE, raised)
        case LockLost() if raised.job_id == attempt.job.id:
            return stopped_by(StopReason.LOST)
        case _:
            return _crashed(attempt, raised)


def _review(attempt: Attempt, review: Review) -> Outcome:
    if review.output is None:
        return NeedsReview(safe_message(_text(review.reason)))
    try:
        return NeedsReview(
            safe_message(_text(review.reason)), _encoded_output(attempt, review.output)
        )
    except InvalidInput as wrong:
        return Failed(ErrorClass.NON_RETRYABLE, safe_message(f"the output is refused: {wrong}"))


def _crashed(attempt: Attempt, raised: BaseException) -> Failed:
    """Any other exception: its text for people, its traceback for the job's log."""
    trace = "".join(traceback.format_exception(raised))
    told = f"{type(raised).__name__}: {_text(raised)}"
    if not attempt.lost:
        attempt.note(
            told,
            level=LogLevel.ERROR,
            details={"traceback": redact(trace)},
        )
    error_class = classify(raised, attempt.handler.errors)
    return _failed(error_class, told)


def _text(value: object) -> str:
    """Its text, or its kind if even that fails."""
    try:
        return str(value)
    except Exception:
        return f"<{type(value).__name__}>"


def classify(raised: BaseException, classes: Mapping[type[Exception], ErrorClass]) -> ErrorClass:
    """The class that the handler's `errors=` gives to the nearest base; else transient."""
    for base in type(raised).__mro__:
        if issubclass(base, Exception) and base in classes:
            return classes[base]
    return ErrorClass.TRANSIENT


def _failed(error_class: ErrorClass, reason: object, after: Any = None) -> Failed:
    return Failed(error_class, safe_message(_text(reason)), None if after is None else _ms(after))


def stopped_by(reason: StopReason) -> Outcome:
    match reason:
        case StopReason.TIMEOUT:
            return Failed(ErrorClass.TIMEOUT, "timed out")
        case StopReason.BUDGET:
            return Interrupted(by_budget=True)
        case StopReason.SIGNAL:
            return Interrupted(by_budget=False)
        case StopReason.CANCEL | StopReason.LOST:
            return Stopped()
        case StopReason.SLEEP:
            return Snoozed(0)


def _ms(seconds: Any) -> int:
    """Seconds or a timedelta; what is in the past is now, and nothing is beyond a century."""
    if isinstance(seconds, timedelta):
        seconds = seconds.total_seconds()
    return round(min(max(0.0, float(seconds)), _CENTURY_SECONDS) * 1000)
