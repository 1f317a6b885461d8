"""Many jobs from a file of lines: all are checked before any is stored, few are in memory."""

from __future__ import annotations

import asyncio
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

from edgeq.cli.values import standard_input
from edgeq.core.json_text import decode
from edgeq.errors import EdgeqError, InvalidInput

if TYPE_CHECKING:
    from edgeq.wiring import Queue

STORED_AT_ONCE = 1_000


async def enqueue_lines(
    queue: Queue, type_name: str, lines: IO[bytes], options: dict[str, Any]
) -> int:
    """Store a job for each line that is not blank; answers how many."""
    count = await _check(queue, type_name, lines, options)
    lines.seek(0)
    # Lines that somebody has added meanwhile were not checked.
    await _store(queue, type_name, islice(_inputs(lines), count), count, options)
    return count


@contextmanager
def rewindable(file: str) -> Iterator[IO[bytes]]:
    """The file, or a copy of what can be read only once.

    For use outside of the event loop, which would keep Ctrl-C from whoever waits for a pipe.
    """
    with ExitStack() as open_files:
        source = standard_input() if file == "-" else open_files.enter_context(_opened(file))
        if file == "-" or not source.seekable():
            copy = open_files.enter_context(tempfile.TemporaryFile())
            shutil.copyfileobj(source, copy)
            copy.seek(0)
            source = copy
        yield source


def _opened(file: str) -> IO[bytes]:
    return Path(file).open("rb")


async def _check(queue: Queue, type_name: str, lines: IO[bytes], options: dict[str, Any]) -> int:
    count = 0
    for number, value in _inputs(lines):
        with _naming_the_line(number):
            queue.prepare(type_name, value, **options)
        count += 1
        if count % STORED_AT_ONCE == 0:
            await asyncio.sleep(0)  # Ctrl-C is heard here
    return count


async def _store(
    queue: Queue,
    type_name: str,
    inputs: Iterator[tuple[int, object]],
    count: int,
    options: dict[str, Any],
) -> None:
    stored = 0
    with click.progressbar(
        length=count, label="Enqueueing", file=sys.stderr, hidden=not sys.stderr.isatty()
    ) as bar:
        while part := [value for _, value in islice(inputs, STORED_AT_ONCE)]:
            try:
                await queue.enqueue_many(type_name, part, **options)
            except EdgeqError as wrong:
                if stored:
                    wrong.args = (f"{wrong} The first {stored:,} lines had been stored before.",)
                raise
            stored += len(part)
            bar.update(len(part))


def _inputs(lines: IO[bytes]) -> Iterator[tuple[int, object]]:
    for number, line in enumerate(lines, start=1):
        if line.strip():
            with _naming_the_line(number):
                value = _object(line)
            yield number, value


def _object(line: bytes) -> object:
    value = decode(line)
    if not isinstance(value, dict):
        raise InvalidInput.at("$", 'is not an object, such as {"a": 1}')
    return value


@contextmanager
def _naming_the_line(number: int) -> Iterator[None]:
    try:
        yield
    except EdgeqError as wrong:
        wrong.args = (f"line {number}: {wrong}",)
        raise
