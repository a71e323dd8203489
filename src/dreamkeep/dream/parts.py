"""What a dream is made of, handed in so that tests and models can replace each part, and the report that it gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from dreamkeep.dream.backends.api import Backend, TurnGiven, Usage
from dreamkeep.memory.insight import Insight
from dreamkeep.memory.memory import Memory

if TYPE_CHECKING:
    from dreamkeep.dream.backends.model.session import Asks
    from dreamkeep.dream.consolidate.known_files import Statement
    from dreamkeep.dream.schedule import Scope
    from dreamkeep.index.store import Store

T = TypeVar("T")
#: Ask the index, brought up to date with the journal.
Ask = Callable[[Callable[["Store"], T]], T]
#: What follows for the notes from new insights, given what is remembered: (kind, body) of each event.
Consolidate = Callable[[Memory, Sequence[Insight], str, str], Sequence[tuple[str, Mapping[str, Any]]]]


class Parts(NamedTuple):
    backend: Backend
    consolidate: Consolidate
    #: Turns of a session → pieces that a backend takes at once.
    chunks: Callable[[Sequence[TurnGiven], int], Sequence[Sequence[TurnGiven]]]
    redact: Callable[[str], str]
    #: The share of the active notes that these decisions would remove.
    loss: Callable[[Memory, Sequence[tuple[str, Mapping[str, Any]]]], float]
    #: The active notes that they would remove.
    lost: Callable[[Memory, Sequence[tuple[str, Mapping[str, Any]]]], Sequence[str]] = lambda memory, decisions: ()
    #: About so many tokens go to the backend at a time, if that is not what the settings say.
    chunk_tokens: int | None = None
    #: The backend is our own, so what it says of who said something is believed.
    trusted: bool = False
    #: Whoever answers requests, where sessions are read that way; `backend` is not asked then.
    model: Asks | None = None
    #: What the user's own files say to whoever works in a folder.
    known: Callable[[str], Sequence[Statement]] = lambda folder: ()


def report(scope: Scope, **more: Any) -> dict[str, Any]:
    """The report of the contract, whatever became of the run."""
    found = {
        "run": None,
        "trigger": scope.trigger or None,
        "status": "completed",
        "lock": "acquired",
        "started_at": None,
        "finished_at": None,
        "considered": len(scope.sessions),
        "waiting": scope.waiting,
        "processed": 0,
        "failed": 0,
        "insights_added": 0,
        "notes": {"added": 0, "suggested": 0, "strengthened": 0, "superseded": 0, "retracted": 0, "expired": 0},
        "dropped": [],
        "usage": Usage()._asdict(),
        "phases": ["backfill", "consolidate", "page"],
        "sessions": [],
    }
    return {**found, **more}
