"""Closes sessions that have been quiet for long, so that a dream may read them.

A suspended session is never closed, nor one that somebody works on. One that can't be closed is reported and stops nothing.
Completion is journaled for every session that ended, also where an earlier record of it was lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import NamedTuple

from dreamkeep.errors import DreamkeepError
from dreamkeep.session.summary import ACTIVE, Summary
from dreamkeep.session.turns import TurnView


class ClosedSessions(NamedTuple):
    closed: tuple[str, ...]
    failed: tuple[tuple[str, str], ...]


def stale(sessions: Iterable[Summary], busy: Iterable[str], *, now: str, hours: float) -> list[str]:
    """Sessions that were quiet for `hours`. `busy`: somebody works in these. A time that can't be read proves nothing."""
    working = set(busy)
    return sorted(
        (one.id for one in sessions if one.state == ACTIVE and one.id not in working and _is_quiet(one.last_at, now, hours)),
    )


def _is_quiet(last: str | None, now: str, hours: float) -> bool:
    try:
        return datetime.fromisoformat(now) - datetime.fromisoformat(last or "") >= timedelta(hours=hours)
    except (ValueError, TypeError, OverflowError):
        return False


def working(unsettled: Iterable[tuple[str, TurnView]], alive: Callable[[str], bool]) -> list[str]:
    """Sessions with a turn whose owner is alive."""
    return [session for session, turn in unsettled if turn.owner and alive(turn.owner)]


def close(sessions: Iterable[str], end: Callable[[str], object]) -> ClosedSessions:
    closed: list[str] = []
    failed: list[tuple[str, str]] = []
    for session in sessions:
        try:
            end(session)
            closed.append(session)
        except (DreamkeepError, OSError) as problem:
            failed.append((session, str(problem)))
    return ClosedSessions(tuple(closed), tuple(failed))
