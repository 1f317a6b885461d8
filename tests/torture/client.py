"""A process that enqueues and processes until its time is over, and says what became of it."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

from edgeq import Queue

HANDLERS = Path(__file__).parent / "handlers"
_AT_ONCE = 4


@dataclass
class Deeds:
    """What the process did; errors are counted by their text."""

    accepted: list[str] = field(default_factory=list)
    completed: int = 0
    runs: int = 0
    slowest_ms: int = 0
    errors: dict[str, int] = field(default_factory=dict)


async def work(url: str, seconds: float) -> Deeds:
    deeds = Deeds()
    async with Queue(url, handlers=HANDLERS) as queue:
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            try:
                await _turn(queue, deeds)
            except Exception as seen:  # noqa: BLE001 - every error is a finding
                text = f"{type(seen).__name__}: {seen}"
                deeds.errors[text] = deeds.errors.get(text, 0) + 1
    return deeds


async def _turn(queue: Queue, deeds: Deeds) -> None:
    """A few enqueues, each timed, and a short run."""

    async def enqueue() -> None:
        began = time.monotonic()
        answer = await queue.enqueue("quick", {})
        deeds.accepted.append(answer.job_id)
        deeds.slowest_ms = max(deeds.slowest_ms, round((time.monotonic() - began) * 1000))

    await asyncio.gather(*(enqueue() for _ in range(_AT_ONCE)))
    report = await queue.process_jobs(budget=1, grace=1, max_jobs=_AT_ONCE)
    deeds.runs += 1
    deeds.completed += report.completed


if __name__ == "__main__":
    print(json.dumps(asdict(asyncio.run(work(sys.argv[1], float(sys.argv[2]))))))
