"""Finding handlers: in a folder, a module or a list; two of one name are an error."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

from edgeq.addresses import Address, address_of, handlers_at, name_of_module
from edgeq.core.job_types import TypePolicy
from edgeq.declaration import Handler
from edgeq.errors import HandlerProblem
from edgeq.handler_files import fingerprint_of

AnyHandler = Handler[Any, ..., Any]
HandlerSource = str | Path | ModuleType | Iterable[AnyHandler] | None
# Called with the context and the error of an attempt that failed; may be a coroutine function.
OnError = Callable[[Any, BaseException], Any]


class Lifespan(Protocol):
    """What a handlers folder may define as `lifespan`: opens what its handlers share."""

    def __call__(self) -> AbstractAsyncContextManager[Any]: ...


@dataclass(frozen=True)
class Registry:
    """The handlers of this process, by the name of their job type."""

    handlers: Mapping[str, AnyHandler]
    lifespan: Lifespan | None = None
    source: str | None = None
    fingerprint: str | None = None
    on_error: tuple[OnError, ...] = ()
    # How a child process finds the same handlers: a folder, a module, or one by one.
    origin: str | tuple[Address, ...] = ()

    def policies(self) -> tuple[TypePolicy, ...]:
        return tuple(handler.policy for handler in self.handlers.values())


def load(source: HandlerSource) -> Registry:
    """Import the handlers that a source names."""
    match source:
        case None:
            return Registry({})
        case ModuleType():
            return _from_module(source)
        case str() | Path() if Path(source).is_dir():
            return _from_folder(Path(source))
        case Path():
            raise HandlerProblem(f"There is no folder {source}. Make it, or name another.")
        case str() if "/" in source or source in (".", ".."):
            raise HandlerProblem(f"There is no folder {source}. Make it, or name another.")
        case str():
            return _from_module(_import(source))
        case _:
            handlers = _by_name(source)
            in_processes = (each for each in handlers.values() if each.executor == "process")
            return Registry(handlers, origin=tuple(map(address_of, in_processes)))


def load_again(origin: str | tuple[Address, ...]) -> Registry:
    """In a child process: what its parent has loaded."""
    return load(origin if isinstance(origin, str) else handlers_at(origin))


def _from_module(module: ModuleType) -> Registry:
    found = _from_modules([module])
    return replace(found, origin=name_of_module(module, found.handlers.values()))


def _from_folder(folder: Path) -> Registry:
    folder = folder.resolve()
    fingerprint = fingerprint_of(folder)
    # A package of its own, so that files of the folder can import each other relatively and two
    # folders in one process do not meet.
    package = f"edgeq_handlers_{sha256(str(folder).encode()).hexdigest()[:12]}"
    for name in [name for name in sys.modules if name.split(".")[0] == package]:
        del sys.modules[name]
    modules = [_execute(package, folder / "__init__.py", folder)]
    modules += [_execute(f"{package}.{file.stem}", file) for file in _files(folder)]
    found = _from_modules(modules)
    return replace(found, source=str(folder), fingerprint=fingerprint, origin=str(folder))


def _files(folder: Path) -> list[Path]:
    return sorted(file for file in folder.glob("*.py") if not file.name.startswith("_"))


def _execute(name: str, file: Path, package_folder: Path | None = None) -> ModuleType:
    """Run one file as a module; a file that is not there makes an empty package."""
    if not file.exists():
        module = ModuleType(name)
        module.__path__ = [str(package_folder)]
        sys.modules[name] = module
        return module
    search = [str(package_folder)] if package_folder is not None else None
    spec = importlib.util.spec_from_file_location(name, file, submodule_search_locations=search)
    if spec is None or spec.loader is None:
        raise HandlerProblem(f"{file} cannot be imported.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except SyntaxError as wrong:
        raise HandlerProblem(
            f"{wrong.filename}, line {wrong.lineno}: {wrong.msg}. No handler was loaded."
        ) from wrong
    except HandlerProblem:
        raise
    except Exception as failure:
        raise HandlerProblem(
            f"{file} cannot be imported: {type(failure).__name__}: {failure}. "
            "No handler was loaded."
        ) from failure
    return module


def _import(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as missing:
        if missing.name and name.startswith(missing.name):
            raise HandlerProblem(
                f"{name!r} is neither a folder here nor a module that Python can import."
            ) from missing
        raise HandlerProblem(f"{name} cannot be imported: {missing}.") from missing
    except (SyntaxError, ImportError) as failure:
        raise HandlerProblem(f"{name} cannot be imported: {failure}.") from failure


def _from_modules(modules: list[ModuleType]) -> Registry:
    defined: list[AnyHandler] = []
    lifespans: list[tuple[str, Lifespan]] = []
    hooks: dict[int, OnError] = {}
    for module in modules:
        for name, value in vars(module).items():
            if isinstance(value, Handler) and value not in defined:
                defined.append(value)
            if name == "lifespan" and callable(value):
                lifespans.append((module.__name__, value))
            if name == "on_error" and callable(value):
                hooks[id(value)] = value
    distinct = {id(value): (where, value) for where, value in lifespans}
    if len(distinct) > 1:
        places = " and ".join(where for where, _ in distinct.values())
        raise HandlerProblem(f"`lifespan` is defined twice, in {places}. Keep one.")
    lifespan = next((value for _, value in distinct.values()), None)
    return Registry(_by_name(defined), lifespan, on_error=tuple(hooks.values()))


def _by_name(handlers: Iterable[AnyHandler]) -> dict[str, AnyHandler]:
    named: dict[str, AnyHandler] = {}
    for each in handlers:
        if not isinstance(each, Handler):
            raise HandlerProblem(f"{each!r} is not a handler: decorate it with @handler(name).")
        if each.name in named:
            raise HandlerProblem(
                f"Two handlers are named {each.name!r}: {named[each.name].where} and "
                f"{each.where}. Rename one."
            )
        named[each.name] = each
    return named
