"""Count the words of a text file: a sample of an async handler, with stages, progress and a log."""

import asyncio
import re
from collections import Counter
from pathlib import Path
from typing import Annotated

import msgspec

from edgeq import Context, Fail, handler

MAX_BYTES = 16 * 1024 * 1024
WORD = re.compile(r"\w+(?:['\u2019-]\w+)*")


class WordCountInput(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    path: str
    most_common: Annotated[int, msgspec.Meta(ge=0, le=100)] = 5


class WordFrequency(msgspec.Struct, frozen=True):
    word: str
    times: int


class WordCount(msgspec.Struct, frozen=True):
    lines: int
    words: int
    distinct_words: int
    most_common: list[WordFrequency]


@handler(
    "word_count",
    description="Count the lines, the words and the most common words of a text file",
    category="sample",
    timeout=30,
    max_retries=2,
    lane="fast",
    stages=["read", "count"],
)
async def word_count(ctx: Context, input: WordCountInput) -> WordCount:
    async with ctx.stage("read"):
        text = await asyncio.to_thread(read_text, Path(input.path))
    await ctx.progress(50, stage="count")
    async with ctx.stage("count"):
        counted = await asyncio.to_thread(count_words, text, input.most_common)
    await ctx.progress(100, stage="count")
    # Numbers only: what a file says belongs in no log.
    await ctx.log("Counted the words", lines=counted.lines, words=counted.words)
    return counted


def read_text(path: Path) -> str:
    """The file's text, or Fail for what another attempt would not change."""
    # A device or a pipe could block for ever, and a thread cannot be interrupted.
    if not path.is_file():
        raise Fail(
            f"There is no file at {path}; paths are relative to where the worker was started."
        )
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except PermissionError as error:
        raise Fail(f"{path} may not be read by the user who runs the worker.") from error
    if len(content) > MAX_BYTES:
        raise Fail(f"{path} is larger than {MAX_BYTES} bytes; split it.")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        # Without its cause: a UnicodeDecodeError carries the file's content.
        raise Fail(f"{path} is not UTF-8 text.") from None


def count_words(text: str, most_common: int) -> WordCount:
    frequencies = Counter(match[0].casefold() for match in WORD.finditer(text))
    return WordCount(
        lines=len(text.splitlines()),
        words=frequencies.total(),
        distinct_words=len(frequencies),
        most_common=[WordFrequency(*entry) for entry in frequencies.most_common(most_common)],
    )
