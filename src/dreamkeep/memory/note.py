"""A note: one long-term memory, with its sources, its state and its history. Pure.

    suggested ─► active (the user accepts it) | rejected (the user does not) | expired (nobody decided for 60 days)
    active ─► superseded (by another) | retracted (by a user) | closed (an open loop that was done) | expired (never confirmed)

A suggested note waits in the inbox (dream/consolidate/inbox.py): on no page, in no pack, unknown to other notes.

A note is never rewritten. Its history has a step for all that happened to it, and every step says why (`NoteStep.why`). Who
decides that a note is superseded is said in memory.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from dreamkeep.memory.insight import AGENT, Quote

ACTIVE, SUPERSEDED, RETRACTED, CLOSED, EXPIRED = "active", "superseded", "retracted", "closed", "expired"
SUGGESTED, REJECTED = "suggested", "rejected"
STATES = (SUGGESTED, ACTIVE, SUPERSEDED, RETRACTED, REJECTED, CLOSED, EXPIRED)
#: In the history: an agent says that the note does not hold any more. It holds until the user retracts it.
DOUBTED = "doubted"


class NoteStep(NamedTuple):
    """Something that happened to a note. `at`: when that was concluded; `run`: by which dream ("" for none). `was`: the words
    that a user replaced."""

    at: str
    what: str
    why: str
    run: str = ""
    was: str = ""


class Note(NamedTuple):
    """`insights`: those it rests on. `first_at`, `last_at`: when they were said, by the records. `by`: the note that superseded
    it."""

    id: str
    kind: str
    text: str
    project: str = ""
    state: str = ACTIVE
    pinned: bool = False
    #: A user if a user said it or changed it: an agent's word does not overrule that.
    author: str = AGENT
    insights: tuple[str, ...] = ()
    evidence: tuple[Quote, ...] = ()
    #: How many sessions say it.
    sessions: int = 0
    confidence: float = 0.5
    first_at: str | None = None
    last_at: str | None = None
    by: str = ""
    #: The user's own file that says it too (`note promote`).
    promoted: str = ""
    history: tuple[NoteStep, ...] = ()

    @property
    def is_aside(self) -> bool:
        """It does not count for other notes: it waits for the user, or the user did not want it."""
        return self.state in (SUGGESTED, REJECTED)

    @property
    def is_on_page(self) -> bool:
        """Active, and pinned or not said by a file of the user's anyway."""
        return self.state == ACTIVE and (self.pinned or not self.promoted)

    def as_json(self) -> dict[str, Any]:
        return {
            **self._asdict(),
            "insights": list(self.insights),
            "evidence": [one.as_json() for one in self.evidence],
            "history": [step._asdict() for step in self.history],
        }

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> Note:
        return cls(
            **{
                **body,
                "insights": tuple(body["insights"]),
                "evidence": tuple(Quote.of(one) for one in body["evidence"]),
                "history": tuple(NoteStep(**step) for step in body["history"]),
            }
        )

    def with_step(self, at: str, what: str, why: str, run: str = "", was: str = "", **changes: Any) -> Note:
        """The note after something happened to it."""
        return self._replace(**changes, history=(*self.history, NoteStep(at, what, why, run, was)))
