"""A new project: a handler, its test and a README, copied from files that come with edgeq."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from edgeq.errors import ProjectNotMade

FILES = (
    Path("README.md"),
    Path("handlers/welcome.py"),
    Path("tests/test_handlers.py"),
    Path(".gitignore"),
)


def write_project(folder: Path) -> tuple[Path, ...]:
    """Write the files of a new project; answers with them, or leaves everything as it was."""
    in_the_way = list(dict.fromkeys(path for name in FILES for path in _in_the_way(folder / name)))
    if in_the_way:
        raise ProjectNotMade(
            f"In the way: {', '.join(map(str, in_the_way))}. Nothing was written. Name another "
            "folder, or move these away."
        )
    made: list[Path] = []
    try:
        for name in FILES:
            _write(folder / name, (source_folder() / name).read_bytes(), made)
    except OSError as failed:
        _take_back(made)
        raise ProjectNotMade(
            f"{failed.filename} cannot be written: {failed.strerror}. Nothing was left behind."
        ) from failed
    return FILES


def source_folder() -> Path:
    """The files: inside the wheel, or beside the package in a checkout."""
    package = Path(__file__).resolve().parent
    bundled = package / "_starter"
    return bundled if bundled.is_dir() else package.parent / "starter"


def _in_the_way(target: Path) -> Iterator[Path]:
    """The file itself if it is there, or what is no folder where it needs one."""
    if os.path.lexists(target):
        yield target
    for parent in target.parents:
        if os.path.lexists(parent) and not parent.is_dir():
            yield parent


def _write(target: Path, content: bytes, made: list[Path]) -> None:
    for folder in reversed([target.parent, *target.parent.parents]):
        if not folder.exists():
            folder.mkdir()
            made.append(folder)
    # Exclusively: whatever has come meanwhile is not ours to overwrite.
    with target.open("xb") as file:
        made.append(target)
        file.write(content)


def _take_back(made: list[Path]) -> None:
    for path in reversed(made):
        with suppress(OSError):
            path.rmdir() if path.is_dir() else path.unlink()
