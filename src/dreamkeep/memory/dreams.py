"""What dreams did: for each session how far it was read, and each run with its report. Pure.

    pending ─► running ─► completed | failed (─► retried later, until it is poisoned)

A session is dreamed in ranges of its journal: what was completed after the last range is the next one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

PENDING, RUNNING, COMPLETED, FAILED = "pending", "running", "completed", "failed"
#: A run that reads a session from its beginning, though it was read before, says so with this word.
START = "start"


class DreamProgress(NamedTuple):
    """One session. `finished`: its journal is finished up to this seq; `read`: up to this one a dream has read it.

    `attempts`: since the last success. `artifacts`: ids of the insights and notes that its dreams gave.
    """

    session: str
    finished: int = 0
    read: int = 0
    status: str = PENDING
    trigger: str = ""
    completion_at: str | None = None
    last_attempt_at: str | None = None
    completed_at: str | None = None
    attempts: int = 0
    artifacts: tuple[str, ...] = ()
    failure: str = ""
    #: The run that reads it, or read it when it died.
    run: str = ""
    #: The backend of that run: what one fails at, another may read.
    backend: str = ""
    #: `dream undo` took back what was read after this seq; None where nothing was taken back. It counts as read until somebody
    #: asks for the session by name.
    taken_back: int | None = None
    #: Stretches after `read` (first and last seq) that were read too: what failed lies before them.
    also: tuple[tuple[int, int], ...] = ()

    def as_json(self) -> dict[str, Any]:
        return {**self._asdict(), "artifacts": list(self.artifacts), "also": [list(stretch) for stretch in self.also]}

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> DreamProgress:
        also = tuple((first, last) for first, last in body.get("also", ()))
        return cls(**{**body, "artifacts": tuple(body["artifacts"]), "also": also})


class DreamRun(NamedTuple):
    """One dream, the `number`-th: a clock may be set back. `report` is the contract's; empty while it runs, or when it died."""

    id: str
    trigger: str = ""
    started_at: str | None = None
    finished_at: str | None = None
    report: Mapping[str, Any] = {}
    undone: bool = False
    number: int = 0
    #: A run of a version that has two shelves: active notes, and suggestions. Older versions had one.
    shelves: bool = False

    @property
    def is_over(self) -> bool:
        """Also when it was undone, for then nobody has to end it any more."""
        return bool(self.report or self.finished_at or self.undone)

    def as_json(self) -> dict[str, Any]:
        return {**self._asdict(), "report": dict(self.report)}

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> DreamRun:
        return cls(**body)
