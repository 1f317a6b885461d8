"""An examination: every check that can be made, and what came of it."""

from __future__ import annotations

import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from edgeq.core.file_health import format_bytes
from edgeq.core.findings import Broken, Finding, Fine, Level, Verdict, finding
from edgeq.doctor.checks import (
    SQLITE_CHECKS,
    Check,
    ContentCheck,
    Reach,
    Subject,
    SurroundingsCheck,
)
from edgeq.errors import NotADatabase, StoreBusy, StoreCorrupt, StoreError
from edgeq.store.inspection import KNOWN_REVISIONS, Inspection

DATABASE = "database"
# A file that nobody has open is read without locks; it is read again when somebody came by.
_MORE_LOOKS = 2


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """All findings, in the order of the checks; what could not be looked at has none."""

    findings: tuple[Finding, ...]
    is_reachable: bool

    @property
    def errors(self) -> int:
        return self._count(Level.ERROR)

    @property
    def warnings(self) -> int:
        return self._count(Level.WARNING)

    def _count(self, level: Level) -> int:
        return sum(each.level is level for each in self.findings)


def examine(subject: Subject, checks: Sequence[Check] = SQLITE_CHECKS) -> Diagnosis:
    """Look at everything, change nothing, and never raise because of what was found."""
    diagnosis, is_certain = _look(subject, checks)
    for _ in range(_MORE_LOOKS):
        if is_certain:
            break
        diagnosis, is_certain = _look(subject, checks)
    return diagnosis


def _look(subject: Subject, checks: Sequence[Check]) -> tuple[Diagnosis, bool]:
    reach, verdict, inside = _reach(subject)
    try:
        findings = [finding(DATABASE, verdict)]
        for check in checks:
            if check.needs <= reach:
                findings += (finding(check.name, each) for each in _made(check, subject, inside))
        is_certain = inside is None or inside.is_undisturbed()
    finally:
        if inside is not None:
            inside.close()
    return Diagnosis(tuple(findings), is_reachable=inside is not None), is_certain


def _reach(subject: Subject) -> tuple[Reach, Verdict, Inspection | None]:
    """How far the database can be reached, and the connection to it if there is one."""
    path = subject.path
    try:
        if not path.parent.is_dir():
            told = Broken(f"The folder {path.parent} does not exist.", "Make it, or check --db.")
            return Reach.NOTHING, told, None
        seen = path.stat()
        if not stat.S_ISREG(seen.st_mode):
            return Reach.FOLDER, Broken(f"{path} is not a file.", "Check --db."), None
        inside = Inspection(path, subject.now)
    except FileNotFoundError:
        missing = f"There is no database at {path}. It was not made now."
        told = Broken(missing, "Check --db; `edgeq migrate` makes a new one.")
        return Reach.FOLDER, told, None
    except OSError as failed:
        return Reach.NOTHING, Broken(f"{path}: {failed.strerror}.", _fix_of(failed)), None
    except StoreError as failed:
        return Reach.FILE, Broken(str(failed), _fix_of(failed)), None
    reach = Reach.SCHEMA if _is_current(inside) else Reach.OPENED
    return reach, Fine(f"{path}, {format_bytes(seen.st_size)}."), inside


def _is_current(inside: Inspection) -> bool:
    try:
        return inside.schema_version() == KNOWN_REVISIONS[-1]
    except StoreError:
        return False


def _made(check: Check, subject: Subject, inside: Inspection | None) -> Iterator[Verdict]:
    """A check's verdicts; one that fails is a finding itself, whatever it fails of."""
    try:
        match check:
            case SurroundingsCheck():
                yield from check.look(subject)
            case ContentCheck() if inside is not None:
                yield from check.look(subject, inside)
            case ContentCheck():
                return
    except Exception as failure:
        yield Broken(f"This could not be looked at: {failure}", _fix_of(failure))


def _fix_of(failure: Exception) -> str:
    match failure:
        case NotADatabase():
            return "Name the right file by --db."
        case StoreCorrupt():
            return "Restore the last backup."
        case StoreBusy():
            return "Close the program that holds it, and look again."
        case StoreError() | OSError():
            return "Run this as the owner of the file and its folder, or give yourself access."
        case _:
            return "This is a fault of edgeq: please report it with this message."
