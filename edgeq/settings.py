"""Settings: the environment, read once into one checked value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from edgeq.errors import BadSetting

DEFAULT_DATABASE = "sqlite:///edgeq.db"
DEFAULT_HANDLERS = "handlers"


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that can be set by `EDGEQ_<NAME>`."""

    database_url: str = DEFAULT_DATABASE
    handlers: str | None = None
    synchronous: str = "full"
    secrets: str = "refuse"
    worker_name: str = ""
    log_level: str = "warning"
    # Seconds that a caller waits for a database that somebody else holds.
    busy_timeout: float = 30.0

    @property
    def is_durable(self) -> bool:
        return self.synchronous == "full"


_CHOICES = {
    "synchronous": ("full", "normal"),
    "secrets": ("refuse", "warn"),
    "log_level": ("debug", "info", "warning", "error"),
}


def from_environment(environment: Mapping[str, str]) -> Settings:
    """What `EDGEQ_...` says; an empty variable counts as absent."""
    given: dict[str, Any] = {
        name: environment[f"EDGEQ_{name.upper()}"]
        for name in Settings.__slots__
        if environment.get(f"EDGEQ_{name.upper()}")
    }
    for name, choices in _CHOICES.items():
        if name in given:
            given[name] = given[name].lower()
            if given[name] not in choices:
                raise BadSetting(
                    f"EDGEQ_{name.upper()} is {given[name]!r}; it must be one of "
                    f"{', '.join(choices)}."
                )
    if "busy_timeout" in given:
        given["busy_timeout"] = _seconds("EDGEQ_BUSY_TIMEOUT", given["busy_timeout"])
    return Settings(**given)


def _seconds(name: str, text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 < seconds < 86_400:
        raise BadSetting(f"{name} is {text!r}; it must be a number of seconds above 0.")
    return seconds
