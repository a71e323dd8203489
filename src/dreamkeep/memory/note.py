"""A note: one long-term memory, with its sources, its state and its history. Pure.

    suggested ─► active (the user accepts it) | rejected (the user does not) | expired (nobody decided for 60 days)
    active ─► superseded (by another) | retracted (by a user) | closed (an open loop that was done) | expired (never confirmed)

A suggested note waits in the inbox (dream/consolidate/inbox.py): on no page, in no pack, unknown to other notes.

Nothing of it is ever rewritten: what happened to a note is its history, and every step of it says why.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from dreamkeep.memory.insight import AGENT, Quote

ACTIVE, SUPERSEDED, RETRACTED, CLOSED, EXPIRED = "active", "superseded", "retracted", "closed", "expired"
SUGGESTED, REJECTED = "suggested", "rejected"
STATES = (SUGGESTED, ACTIVE, SUPERSEDED, RETRACTED, REJECTED, CLOSED, EXPIRED)
#: In the history: an agent says that a note does not hold any more. The note holds until the user retracts it.
DOUBTED = "doubted"


class NoteStep(NamedTuple):
    """Something that happened to a note: `at` when that was concluded, `run` by which dream ("" for none). `was`: the words
    that a hand replaced."""

    at: str
    what: str
    why: str
    run: str = ""
    was: str = ""


class Note(NamedTuple):
    """`insights`: what it rests on. `first_at`, `last_at`: when that was said, by the records. `by`: what superseded it."""

    id: str
    kind: str
    text: str
    project: str = ""
    state: str = ACTIVE
    pinned: bool = False
    #: A user said it, or put a hand to it: an agent's word does not overrule that.
    author: str = AGENT
    insights: tuple[str, ...] = ()
    evidence: tuple[Quote, ...] = ()
    #: How many sessions say it.
    sessions: int = 0
    confidence: float = 0.5
    first_at: str | None = None
    last_at: str | None = None
    by: str = ""
    #: The user's own file that says it, too (`note promote`).
    promoted: str = ""
    history: tuple[NoteStep, ...] = ()

    @property
    def is_aside(self) -> bool:
        """No note counts it: it waits for the user, or the user did not want it."""
        return self.state in (SUGGESTED, REJECTED)

    @property
    def is_on_page(self) -> bool:
        """Active, and not said by a file of the user's anyway. What is pinned always is."""
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
