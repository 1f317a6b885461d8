"""What a scenario found: figures, and what is wrong."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Finding:
    """One line of the torture's output; the seed replays it."""

    name: str
    seed: int
    figures: dict[str, Any]
    violations: list[str]

    def to_json(self) -> str:
        return json.dumps(asdict(self))
