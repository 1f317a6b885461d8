"""The queue as one service: a method for each thing that can be done with it."""

from edgeq.queue.service import JobQueue

__all__ = ["JobQueue"]
