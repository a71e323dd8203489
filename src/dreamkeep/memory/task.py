"""A task: a piece of work that insights belong to. May span sessions. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

OPEN, DONE, ABANDONED, SUPERSEDED = "open", "done", "abandoned", "superseded"
STATES = (OPEN, DONE, ABANDONED, SUPERSEDED)


class Task(NamedTuple):
    id: str
    title: str
    project: str = ""
    state: str = OPEN
    sessions: tuple[str, ...] = ()
    opened_at: str | None = None
    closed_at: str | None = None

    def as_json(self) -> dict[str, Any]:
        return {**self._asdict(), "sessions": list(self.sessions)}

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> Task:
        return cls(**{**body, "sessions": tuple(body["sessions"])})
