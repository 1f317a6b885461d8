"""Checksum a file of any size: a sample of a plain `def` handler, which edgeq runs in a thread."""

import hashlib
from pathlib import Path
from typing import BinaryIO, Literal

import msgspec

from edgeq import Fail, SyncContext, handler

CHUNK_BYTES = 1024 * 1024


class FileChecksumInput(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    path: str
    algorithm: Literal["sha256", "sha512", "blake2b"] = "sha256"


class FileChecksum(msgspec.Struct, frozen=True):
    algorithm: str
    checksum: str
    size_bytes: int


@handler(
    "file_checksum",
    description="Compute the checksum of a file",
    category="sample",
    timeout=300,
    max_retries=2,
    stages=["hash"],
)
def file_checksum(ctx: SyncContext, input: FileChecksumInput) -> FileChecksum:
    path = Path(input.path)
    # A device or a pipe could block for ever, and a thread cannot be interrupted.
    if not path.is_file():
        raise Fail(
            f"There is no file at {path}; paths are relative to where the worker was started."
        )
    try:
        with ctx.stage("hash"), path.open("rb") as file:
            checksum = hash_in_chunks(ctx, file, path.stat().st_size, input.algorithm)
    except PermissionError as error:
        raise Fail(f"{path} may not be read by the user who runs the worker.") from error
    ctx.log("Hashed the file", algorithm=input.algorithm, size_bytes=checksum.size_bytes)
    return checksum


def hash_in_chunks(
    ctx: SyncContext, file: BinaryIO, expected_bytes: int, algorithm: str
) -> FileChecksum:
    digest = hashlib.new(algorithm)
    hashed_bytes = 0
    while chunk := file.read(CHUNK_BYTES):
        # Between two chunks nothing is half done: the place to stop when the run has to end.
        ctx.checkpoint()
        digest.update(chunk)
        hashed_bytes += len(chunk)
        # A file may grow while it is read, so the share is capped.
        ctx.progress(min(100, hashed_bytes * 100 // max(expected_bytes, 1)), stage="hash")
    return FileChecksum(algorithm, digest.hexdigest(), hashed_bytes)
