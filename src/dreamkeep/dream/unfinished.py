"""The notes that a session in progress would give, as a dream would find them now; nothing is written.

An agent that compacts its context needs them before the session ends: else it loses constraints, decisions and open ends that no
dream has read yet. Only the rules are asked: the answer is needed within a second, and nothing may leave this machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dreamkeep.dream.backends.api import Given
from dreamkeep.dream.backends.checks import KnownInsights, checked, turns_given
from dreamkeep.event import Event, Kind
from dreamkeep.memory.insight import Insight
from dreamkeep.memory.note import ACTIVE, Note

if TYPE_CHECKING:
    from dreamkeep.dream.parts import Parts
    from dreamkeep.memory.memory import Memory
    from dreamkeep.session.messages import Message
    from dreamkeep.session.summary import Summary
    from dreamkeep.session.turns import TurnView

_NO_END = 1 << 62


def notes_of(
    summary: Summary, turns: Sequence[TurnView], messages: Sequence[Message], memory: Memory, parts: Parts, now: str
) -> list[Note]:
    """The active notes that rest on this session, with those that its new words would make. What a user took back stays that
    way."""
    found = _insights(summary, turns, messages, parts)
    new = [one for one in found if one.id not in memory.insights]
    after = memory.copy()
    for one in new:
        after.apply(Event(one.id, Kind.INSIGHT_ADDED, now, one.as_json()))
    for n, (kind, body) in enumerate(parts.consolidate(after, new, now, "")):
        after.apply(Event(f"so-far-{n}", kind, now, body))
    ids = {one.id for one in found}
    return [one for one in after.notes.values() if one.state == ACTIVE and _is_of(one, summary.id, ids)]


def _is_of(note: Note, session: str, insights: set[str]) -> bool:
    return any(one.session == session for one in note.evidence) or not insights.isdisjoint(note.insights)


def _insights(summary: Summary, turns: Sequence[TurnView], messages: Sequence[Message], parts: Parts) -> list[Insight]:
    given = turns_given(turns, messages, 0, _NO_END)
    pieces = parts.chunks(given, parts.chunk_tokens or 12_000) if given else []
    found: list[Insight] = []
    known = KnownInsights()
    for n, piece in enumerate(pieces, 1):
        asked = Given(summary.id, summary.agent, summary.project, summary.cwd, "", (), tuple(piece), chunk=(n, len(pieces)))
        answer = parts.backend.backfill(asked)
        found += checked(answer, asked, known, run="", redact=parts.redact, trusted=parts.trusted).insights
    return found
