"""Where a fresh interpreter finds a handler that this one was given as an object."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable
from operator import attrgetter
from types import ModuleType
from typing import Any

import msgspec

from edgeq.declaration import Handler
from edgeq.errors import HandlerProblem

_INSTEAD = "Move it to the top level of a module that can be imported, or of a handlers folder."


class Address(msgspec.Struct, frozen=True):
    """A module, and the name of a handler in it."""

    module: str
    name: str


def address_of(handler: Handler[Any, Any, Any]) -> Address:
    """Its address, or HandlerProblem if a child process could not find it there."""
    function = handler.function
    address = Address(function.__module__, function.__qualname__)
    cannot = f"{handler.where}, with executor='process', cannot be found by a child process: "
    if "<locals>" in address.name:
        raise HandlerProblem(f"{cannot}it is defined inside a function. {_INSTEAD}")
    if address.module == "__main__":
        raise HandlerProblem(f"{cannot}it is defined in the program's main file. {_INSTEAD}")
    try:
        found = attrgetter(address.name)(sys.modules[address.module])
    except (AttributeError, KeyError):
        found = None
    if found is not handler:
        raise HandlerProblem(f"{cannot}{handler.where} is something else. {_INSTEAD}")
    return address


def name_of_module(module: ModuleType, handlers: Iterable[Handler[Any, Any, Any]]) -> str:
    """Its name, or HandlerProblem if a child process needs it and could not import it."""
    name = module.__name__
    needy = next((each for each in handlers if each.executor == "process"), None)
    if needy is not None and (name == "__main__" or sys.modules.get(name) is not module):
        raise HandlerProblem(
            f"{needy.where}, with executor='process', cannot be found by a child process: "
            f"{name} is not a module that it could import. {_INSTEAD}"
        )
    return name


def handlers_at(addresses: Iterable[Address]) -> list[Handler[Any, Any, Any]]:
    """In the child: the handlers that the parent meant."""
    return [attrgetter(each.name)(importlib.import_module(each.module)) for each in addresses]
