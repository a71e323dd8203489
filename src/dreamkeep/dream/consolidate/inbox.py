"""The inbox: suggested notes that wait for the user. Decides which of them end, and which old notes go there. Pure.

    suggested ─► accepted or rejected by the user | expired after 60 days | superseded: an active note says the same now

A suggestion is on no page and in no pack. Earlier versions had no inbox: their rules made notes of mere guesses. Those notes are
shelved once, by a run of its own that can be undone (`old_insights`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from dreamkeep.dream.consolidate import fact_index
from dreamkeep.dream.consolidate.consolidate import Decision
from dreamkeep.event import Kind
from dreamkeep.memory import alike, note
from dreamkeep.memory.dreams import DreamRun
from dreamkeep.memory.insight import REJECTED, Insight
from dreamkeep.memory.memory import Memory
from dreamkeep.memory.note import Note

#: A suggestion waits for so many days after it was last made.
EXPIRE_DAYS = 60
#: The reason why a note of an earlier version waits.
OLD = "an earlier version kept it without asking; accept it if it is true"
_EXPIRED = f"nobody accepted it in {EXPIRE_DAYS} days"
_SAID = "an active note says it"


def end_suggestions(memory: Memory, now: str, run: str) -> list[Decision]:
    """Ends suggestions that waited too long, and those for which an active note says the same now."""
    active = {_meaning(one): one.id for one in memory.notes.values() if one.state == note.ACTIVE}
    found: list[Decision] = []
    for one in suggestions(memory.notes.values()):
        by = active.get(_meaning(one))
        if by:
            found.append(Decision(Kind.NOTE_SUPERSEDED, {"id": one.id, "by": by, "reason": _SAID, "run": run}))
        elif _is_over(one, now):
            found.append(Decision(Kind.NOTE_EXPIRED, {"id": one.id, "reason": _EXPIRED, "run": run}))
    return found


def suggestions(notes: Iterable[Note]) -> list[Note]:
    return [one for one in notes if one.state == note.SUGGESTED]


def suggested_at(one: Note) -> str:
    """When it was last suggested."""
    made = ("added", "strengthened", note.SUGGESTED)
    return max((step.at for step in one.history if step.what in made), default="")


def expires_at(one: Note) -> str | None:
    """None where its time can't be read."""
    at = _moment(suggested_at(one))
    return (at + timedelta(days=EXPIRE_DAYS)).strftime("%Y-%m-%dT%H:%M:%SZ") if at else None


def why_waiting(one: Note, insights: Mapping[str, Insight]) -> str:
    """The reason of its last insight that has one, else of the last step of its history."""
    told = [insights[id].why for id in one.insights if id in insights and insights[id].why]
    steps = [step.why for step in one.history if step.why]
    return (told or steps or [""])[-1]


def as_item(one: Note, insights: Mapping[str, Insight]) -> dict[str, Any]:
    """As the inbox shows it."""
    return {
        "id": one.id,
        "type": "note",
        "kind": one.kind,
        "text": one.text,
        "project": one.project,
        "why": why_waiting(one, insights),
        "evidence": [quote.as_json() for quote in one.evidence],
        "suggested_at": suggested_at(one),
        "expires_at": expires_at(one),
    }


def _meaning(one: Note) -> tuple[str, str, object]:
    return one.project, fact_index.category_of(one.kind), alike.key(one.text)


def _is_over(one: Note, now: str) -> bool:
    """False for a time that can't be read."""
    at, today = _moment(suggested_at(one)), _moment(now)
    return at is not None and today is not None and today - at > timedelta(days=EXPIRE_DAYS)


def _moment(at: str) -> datetime | None:
    try:
        return datetime.fromisoformat(at)
    except ValueError:
        return None


# -- notes of earlier versions


def is_due(runs: Iterable[DreamRun]) -> bool:
    """Whether earlier versions dreamed here, and no version with an inbox did."""
    # A run whose beginning was lost with a power cut says nothing of its version.
    begun = [one for one in runs if one.trigger]
    return bool(begun) and not any(one.shelves for one in begun)


def old_insights(memory: Memory) -> list[str]:
    """What the rules of earlier versions found, except what active notes rest on that the user pinned, edited, confirmed or
    stated."""
    kept = {id for one in memory.notes.values() if one.state == note.ACTIVE and not _is_old(one, memory) for id in one.insights}
    return sorted(one.id for one in memory.insights.values() if _by_rules(one) and one.id not in kept)


def _is_old(one: Note, memory: Memory) -> bool:
    rests = [memory.insights[id] for id in one.insights if id in memory.insights]
    touched = one.pinned or any(not step.run for step in one.history)
    return not touched and all(map(_by_rules, rests))


def _by_rules(one: Insight) -> bool:
    return one.source == "dream" and not one.shelf and one.state != REJECTED
