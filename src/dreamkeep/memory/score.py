"""How much a note is worth: by its kind, its author, how often it was said, how lately. Pure.

"Lately" is measured against the newest record and not against the clock: a keep that rests for a year forgets nothing by resting.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from functools import lru_cache
from math import log2

from dreamkeep.memory import insight as i
from dreamkeep.memory.note import Note

#: What holds for all work comes before what was found once.
KINDS = {
    i.CONSTRAINT: 1.0,
    i.PREFERENCE: 0.9,
    i.CORRECTION: 0.9,
    i.DECISION: 0.8,
    i.PROCEDURE: 0.75,
    i.FAILURE_FIX: 0.7,
    i.OPEN_LOOP: 0.7,
    i.REJECTION: 0.6,
    i.FACT: 0.65,
    i.FINDING: 0.5,
    i.EVIDENCE: 0.2,
    i.HYPOTHESIS: 0.2,
}
_PIN = 100.0
_HALF_DAYS = 120.0
#: More sessions add nothing.
_MOST_SESSIONS = 31


def score(note: Note, newest: str | None, *, uses: int = 0) -> float:
    """`newest`: when the newest record was said. Pinned notes come before all others."""
    kind = 4.0 * KINDS.get(note.kind, 0.5)
    author = 2.0 if note.author == i.USER else 0.0
    often = 1.5 * log2(1 + min(max(note.sessions, 1), _MOST_SESSIONS))
    lately = 2.0 * 0.5 ** (max(days_between(note.last_at, newest), 0.0) / _HALF_DAYS) if note.last_at else 0.0
    confidence = min(max(note.confidence, 0.0), 1.0)
    used = 0.5 * log2(1 + max(uses, 0))
    return round((_PIN if note.pinned else 0.0) + kind + author + often + lately + confidence + used, 6)


def newest_of(times: Iterable[str | None], now: str | None = None) -> str | None:
    """The newest of these that is not in the future, so that one record with a wrong clock does not make all others old."""
    limit = epoch_seconds(now) if now else None
    known = [(at, text) for text in times if text and (at := epoch_seconds(text)) is not None and (limit is None or at <= limit)]
    return max(known, default=(0.0, None))[1]


def earliest_time(said_at: str | None, *limits: str | None) -> str | None:
    """The earliest of these times, if `said_at` is one: nothing was said after it was captured, whatever its clock says."""
    known = [(at, text) for text in (said_at, *limits) if text and (at := epoch_seconds(text)) is not None]
    return min(known, key=lambda one: one[0])[1] if epoch_seconds(said_at) is not None else said_at


def days_between(then: str | None, newest: str | None) -> float:
    """0 where one of them is unknown."""
    first, last = epoch_seconds(then), epoch_seconds(newest)
    return (last - first) / 86_400 if first is not None and last is not None else 0.0


@lru_cache(maxsize=1 << 15)
def epoch_seconds(text: str | None) -> float | None:
    """Makes times comparable that are written differently. None for what is no time."""
    if not text:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    # Agents that leave out the zone mean UTC.
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
