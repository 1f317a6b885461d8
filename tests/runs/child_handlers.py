"""Handlers for processes of their own, as a module that a child can import."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

from edgeq import Context, SyncContext, handler
from edgeq.errors import EdgeqError, InvalidInput, LockLost


@contextlib.asynccontextmanager
async def lifespan() -> AsyncIterator[str]:
    diary = Path("lifespans")
    _append(diary, f"opened {os.getpid()}")
    yield f"opened in {os.getpid()}"
    _append(diary, f"closed {os.getpid()}")


def _append(path: Path, line: str) -> None:
    with path.open("a") as file:
        file.write(f"{line}\n")


def told(name: str) -> None:
    """Let the test know the process of this handler, whole or not at all."""
    Path(f"{name}.new").write_text(str(os.getpid()))
    Path(f"{name}.new").rename(name)


@handler("where", executor="process")
def where(ctx: SyncContext, input: dict[str, Any]) -> dict[str, Any]:
    main = sys.modules["__main__"]
    return {
        "pid": os.getpid(),
        "cwd": str(Path.cwd()),
        "path": sys.path,
        "main": getattr(main, "__file__", None),
        "oom": Path("/proc/self/oom_score_adj").read_text().strip(),
    }


@handler("where_async", executor="process")
async def where_async(ctx: Context, input: dict[str, Any]) -> dict[str, Any]:
    await asyncio.sleep(0)
    return {"pid": os.getpid()}


@handler("talkative", executor="process")
def talkative(ctx: SyncContext, input: dict[str, Any]) -> dict[str, Any]:
    ctx.log("hello", level="warning", size=3)
    ctx.progress(40)
    with ctx.stage("second half"):
        ctx.progress(70)
    return _seen(ctx)


@handler("talkative_async", executor="process")
async def talkative_async(ctx: Context, input: dict[str, Any]) -> dict[str, Any]:
    await ctx.log("hello", level="warning", size=3)
    await ctx.progress(40)
    async with ctx.stage("second half"):
        await ctx.progress(70)
    return _seen(ctx)


def _seen(ctx: Context | SyncContext) -> dict[str, Any]:
    return {
        "state": ctx.state == f"opened in {os.getpid()}",
        "config": dict(ctx.config),
        "attempt": ctx.attempt,
        "remaining": ctx.remaining,
        "flags": [ctx.cancelled, ctx.lost],
    }


@handler("parent", executor="process")
def parent(ctx: SyncContext, input: dict[str, Any]) -> dict[str, Any]:
    errors = [
        _refusal(ctx, "nowhere", {}),
        _refusal(ctx, "where", {"x": object()}),
        _refusal(ctx, "where", {}, delay=[]),
        _refusal(ctx, "where", {}, priority=99),
        _refusal(ctx, "where", {}, prioritty=3),
        _refusal(ctx, 5, {}),
    ]
    child = ctx.enqueue(where, {"n": 1}, delay=timedelta(hours=1), priority=3)
    return {"child": child, "errors": errors}


def _refusal(ctx: SyncContext, job_type: Any, input: Any, **options: Any) -> list[str]:
    try:
        return [ctx.enqueue(job_type, input, **options)]
    except InvalidInput as refused:
        return [refused.code, refused.problems[0].path]
    except EdgeqError as refused:
        return [refused.code, f"{type(refused).__name__} {vars(refused)}"]
    except RuntimeError as refused:
        return ["RuntimeError", str(refused).split(":")[0]]


@handler("polite", executor="process")
def polite(ctx: SyncContext, input: dict[str, Any]) -> None:
    told("polite")
    while True:
        time.sleep(0.01)
        ctx.checkpoint()


@handler("until_cancelled", executor="process")
def until_cancelled(ctx: SyncContext, input: dict[str, Any]) -> str:
    told("until_cancelled")
    while not ctx.cancelled:
        time.sleep(0.01)
    return "finished anyway"


@handler("stubborn", executor="process")
def stubborn(ctx: SyncContext, input: dict[str, Any]) -> None:
    """Holds the GIL, so that no other thread of the process ever runs."""
    told("stubborn")
    while True:
        ctypes.PyDLL(None).sleep(60)


@handler("forever", executor="process", timeout=1, max_retries=0)
def forever(ctx: SyncContext, input: dict[str, Any]) -> None:
    told("forever")
    with Path("grandchild").open("w") as file:
        started = subprocess.Popen(["sleep", "600"])
        file.write(str(started.pid))
    while True:
        pass


@handler("crash", executor="process", max_retries=0)
def crash(ctx: SyncContext, input: dict[str, Any]) -> None:
    told(f"crash-{input['how']}")
    CRASHES[input["how"]]()


def _segfault() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    ctypes.string_at(0)


def _exit() -> None:
    os._exit(3)


def _be_killed() -> None:
    """As the kernel's OOM killer does it."""
    os.kill(os.getpid(), signal.SIGKILL)


def _eat_memory() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (2**30, 2**30))
    bytearray(2**34)


def _write_into_every_socket() -> None:
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            if str(link.readlink()).startswith("socket:"):
                os.write(int(link.name), b"hello, this is no message")
    time.sleep(60)


def _leave_a_fork_behind() -> None:
    """A fork holds every socket of the process open."""
    if os.fork() == 0:
        told("forked")
        signal.pause()
    while not Path("forked").exists():
        time.sleep(0.01)
    os._exit(4)


CRASHES = {
    "segfault": _segfault,
    "exit": _exit,
    "killed": _be_killed,
    "memory": _eat_memory,
    "garbage": _write_into_every_socket,
    "fork": _leave_a_fork_behind,
}


@handler("bomb", executor="process")
def bomb(ctx: SyncContext, input: dict[str, Any]) -> int:
    """Ends well, and its process ends later, when it is idle."""

    def explode() -> None:
        while not Path("explode").exists():
            time.sleep(0.01)
        os._exit(9)

    threading.Thread(target=explode, daemon=True).start()
    return os.getpid()


@handler("leaves_a_thread", executor="process")
def leaves_a_thread(ctx: SyncContext, input: dict[str, Any]) -> None:
    """Ends well, and a thread of it goes on talking."""

    def talk() -> None:
        while not Path("talk").exists():
            time.sleep(0.01)
        try:
            ctx.log("from beyond")
        except LockLost:
            told("learned")

    threading.Thread(target=talk, daemon=True).start()


@handler("waits_for_it", executor="process")
def waits_for_it(ctx: SyncContext, input: dict[str, Any]) -> None:
    Path("talk").touch()
    while not Path("learned").exists():
        time.sleep(0.01)


@handler("hears_sigterm", executor="process")
def hears_sigterm(ctx: SyncContext, input: dict[str, Any]) -> str:
    os.kill(os.getpid(), signal.SIGTERM)
    return "still here"


@handler("quick")
async def quick(ctx: Context, input: dict[str, Any]) -> None:
    return None


@handler("stepwise", executor="process", retry_delay=0)
def stepwise(ctx: SyncContext, input: dict[str, Any]) -> list[int]:
    """Two steps, with what is asked for in between."""
    first = ctx.step("first", _counted, "first")
    match input.get("then"):
        case "fail" if ctx.attempt == 1:
            raise RuntimeError("between the steps")
        case "sleep":
            ctx.sleep(timedelta(minutes=5))
        case "transaction":
            ctx.transaction("pay", print)
        case "unserializable":
            ctx.step("bad", object)
        case "wait":
            told("waiting")
            while not Path("go on").exists():
                time.sleep(0.01)
        case _:
            pass
    return [first, *(ctx.step("more", _counted, f"more {n}", key=n) for n in range(2))]


@handler("stepwise_async", executor="process", retry_delay=0)
async def stepwise_async(ctx: Context, input: dict[str, Any]) -> list[int]:
    first = await ctx.step("first", _counted, "first")
    if ctx.attempt == 1:
        raise RuntimeError("between the steps")
    children = [await ctx.enqueue("stepwise", {})]
    children.append(await ctx.enqueue("stepwise", {}, after=children))
    return [first, await ctx.step("async", _counted_async)]


def _counted(name: str) -> int:
    """How often it was called, and leaves a trace of each."""
    _append(Path("calls"), name)
    return len(Path("calls").read_text().splitlines())


async def _counted_async() -> int:
    return _counted("async")
