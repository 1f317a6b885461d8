"""Fixtures for tests of handlers: `edgeq_clock`, and `edgeq_queue` to open queues with."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from edgeq.testing import FakeClock
    from edgeq.wiring import Queue


@pytest.fixture
def edgeq_clock() -> FakeClock:
    """Time that stands still until the test moves it."""
    # Imported when used: this module is loaded by every pytest of a project that has edgeq.
    from edgeq.testing import FakeClock

    return FakeClock()


@pytest.fixture
def edgeq_queue(edgeq_clock: FakeClock) -> Callable[..., AbstractAsyncContextManager[Queue]]:
    """Opens a queue on a temporary file: `async with edgeq_queue([my_handler]) as queue:`."""
    from edgeq.testing import queue_for_test

    def opened(handlers: Any = None, **options: Any) -> AbstractAsyncContextManager[Queue]:
        return queue_for_test(handlers, **{"clock": edgeq_clock, **options})

    return opened
