"""Connections that are left to the end of the process, because nobody may close them now."""

from __future__ import annotations

import ctypes
import sqlite3


def leave_open(connection: sqlite3.Connection) -> None:
    """The end of the process closes it without a checkpoint.

    Python would close it as soon as nothing refers to it, and at the latest when the interpreter
    clears its modules, so something has to refer to it that is never cleared.
    """
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))
