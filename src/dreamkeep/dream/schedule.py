"""Which sessions a dream reads, and whether it is time. Pure: `now` and who holds the lock are arguments.

    not_completed ─► eligible ─► running ─► already_consolidated ─► (a new part was completed) eligible …
                        ▲           └─► retry_after_failure ─► … ─► poisoned, after so many attempts
                        └───────────────────┘

A time that can't be read, or lies in the future because a clock was set back, is no reason to wait.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from dreamkeep.memory.dreams import FAILED, RUNNING, DreamProgress

ELIGIBLE, RETRY, NOT_COMPLETED = "eligible", "retry_after_failure", "not_completed"
CONSOLIDATED, IS_RUNNING, POISONED = "already_consolidated", "running", "poisoned"
WAITING = (ELIGIBLE, RETRY)

SESSION_COUNT, TIME_ELAPSED, MANUAL = "session_count", "time_elapsed", "manual"

_FIRST_WAIT_S = 60.0
_LONGEST_WAIT_S = 6 * 3600.0
_NO_LIMIT = 1 << 62


class Settings(NamedTuple):
    session_count: int
    time_hours: float
    max_attempts: int
    loss_guard: float
    #: About so many tokens go to a backend at a time.
    chunk_tokens: int = 20_000


class Scope(NamedTuple):
    """What a run would read, and why."""

    sessions: tuple[DreamProgress, ...]
    trigger: str
    why: str
    waiting: int
    #: They are read from their beginning, though they were read before.
    again: bool = False


# -- one session


def eligibility(of: DreamProgress | None, *, max_attempts: int, running: bool = False, backend: str = "") -> str:
    """`running`: somebody holds the lock of dreams now; without that, a session that is `running` was left by a run that died.
    `backend`: who would be asked; "" for whoever failed."""
    if of is None or of.finished == 0:
        return NOT_COMPLETED
    if of.read >= of.finished:
        return CONSOLIDATED
    if of.status == RUNNING and running:
        return IS_RUNNING
    if of.attempts >= max_attempts and (not backend or of.backend in ("", backend)):
        return POISONED
    return RETRY if of.attempts else ELIGIBLE


def may_retry(of: DreamProgress, now: str) -> bool:
    """A failure is tried again, each time after a longer wait. A run that died was no failure of the session."""
    if of.status != FAILED or not of.attempts:
        return True
    passed = _seconds(of.last_attempt_at, now)
    return passed is None or passed >= min(_FIRST_WAIT_S * 2 ** (of.attempts - 1), _LONGEST_WAIT_S)


def waiting(dreamed: Iterable[DreamProgress], *, max_attempts: int, backend: str = "") -> list[DreamProgress]:
    """Oldest completion first; also what failed and is not to be tried again yet."""
    found = [one for one in dreamed if eligibility(one, max_attempts=max_attempts, backend=backend) in WAITING]
    return sorted(found, key=lambda one: (one.completion_at or "", one.session))


def asked_for(of: DreamProgress) -> DreamProgress:
    """As it counts for a user who names it: what an undone run had read is to be read again."""
    return of if of.taken_back is None else of._replace(read=of.taken_back)


def from_start(of: DreamProgress) -> DreamProgress:
    """As it counts for a user who wants all of it read again."""
    return of._replace(read=0, also=(), taken_back=None)


def given_up(dreamed: Iterable[DreamProgress], *, max_attempts: int, backend: str = "") -> list[DreamProgress]:
    """What failed so often that no run tries it by itself any more; what was tried last comes last."""
    found = [one for one in dreamed if eligibility(one, max_attempts=max_attempts, backend=backend) == POISONED]
    return sorted(found, key=lambda one: (one.last_attempt_at or "", one.session))


#: What to do about sessions that are given up.
TRY_AGAIN = "Retry one with `dreamkeep dream --session ID`, or all with another --backend"


def reason(of: DreamProgress) -> str:
    return of.failure or "the dream crashed while reading it"


def describe_given_up(found: Sequence[DreamProgress]) -> str:
    """What is given up, in words; "" for nothing."""
    if not found:
        return ""
    last = found[-1]
    count = "1 session" if len(found) == 1 else f"{len(found)} sessions"
    return f"gave up on {count} after {last.attempts} attempts, the last ({last.session}): {reason(last).rstrip('.')}"


# -- the choice


def select(
    dreamed: Mapping[str, DreamProgress],
    settings: Settings,
    *,
    now: str,
    if_due: bool,
    sessions: Sequence[str] = (),
    limit: int | None = None,
    backend: str = "",
    leased: frozenset[str] = frozenset(),
    again: bool = False,
) -> Scope:
    """What a run reads, if it begins now; `dreamed` says how far each session was read.

    `sessions`: only these, also such as failed too often or were read by a run that was undone. `if_due`: nothing unless it is
    time; a manual run takes everything that waits, also what failed just now. `leased`: somebody else reads these. `again`: from
    their beginning.
    """
    free = {id: one for id, one in dreamed.items() if id not in leased}
    if sessions:
        every = found = _select_named(sessions, free, again)
        if not found:
            return Scope((), "" if if_due else MANUAL, _explain_none(sessions, free, leased, settings), 0, again)
    else:
        every = waiting(free.values(), max_attempts=settings.max_attempts, backend=backend)
        found = [one for one in every if not if_due or may_retry(one, now)]
    later = len(every) - len(found)
    decision = due(found, now=now, last_success_at=last_success(dreamed.values()), settings=settings, later=later)
    if not found:
        others = [one for id, one in dreamed.items() if id in leased]
        decision = _mention_leased(decision, waiting(others, max_attempts=settings.max_attempts, backend=backend))
    if if_due and not decision.due:
        return Scope((), "", decision.why, decision.waiting, again)
    return Scope(tuple(found[:limit]), decision.trigger if if_due else MANUAL, decision.why, decision.waiting, again)


def _mention_leased(decision: Due, leased: Sequence[DreamProgress]) -> Due:
    if not leased:
        return decision
    why = f"{len(leased)} waiting sessions are left to others: exported, or given to an agent that dreams"
    return decision._replace(why=why, waiting=len(leased))


def _select_named(sessions: Sequence[str], dreamed: Mapping[str, DreamProgress], again: bool) -> list[DreamProgress]:
    """Those of the sessions that a user named which can be read, whatever was tried before."""
    wanted = from_start if again else asked_for
    return waiting((wanted(dreamed[one]) for one in dict.fromkeys(sessions) if one in dreamed), max_attempts=_NO_LIMIT)


def _explain_none(
    sessions: Sequence[str], dreamed: Mapping[str, DreamProgress], leased: frozenset[str], settings: Settings
) -> str:
    """Why none of the sessions that a user named can be read."""
    reasons: dict[str, str] = {}
    for one in sessions:
        reasons[one] = eligibility(dreamed.get(one), max_attempts=settings.max_attempts)
        if one in leased:
            reasons[one] = "another process is reading it"
    return f"no sessions are waiting ({', '.join(f'{one}: {why}' for one, why in reasons.items())})"


def last_success(dreamed: Iterable[DreamProgress]) -> str | None:
    """When a dream last read something to the end. Not when it began: one that runs long must not be due at once again."""
    return max((one.completed_at for one in dreamed if one.completed_at), default=None)


class Due(NamedTuple):
    """`trigger`: which rule says so, "" for none; `why`: in words. `waiting`: also what failed and is tried again later."""

    due: bool
    trigger: str
    why: str
    waiting: int


def due(found: Sequence[DreamProgress], *, now: str, last_success_at: str | None, settings: Settings, later: int = 0) -> Due:
    """`found`: what waits, oldest first. `later`: so many failed and are not to be tried again yet."""
    count = len(found)
    total = count + later
    if not count:
        why = f"only {later} failed sessions are waiting, for a later retry" if later else "no sessions are waiting"
        return Due(False, "", why, total)
    if count >= settings.session_count:
        return Due(True, SESSION_COUNT, f"{count} sessions are waiting, {settings.session_count} needed", total)
    passed, hours = _seconds(last_success_at or found[0].completion_at, now), settings.time_hours
    if passed is None or passed >= hours * 3600:
        elapsed = "an unknown time" if passed is None else f"{passed / 3600:.1f} h"
        return Due(True, TIME_ELAPSED, f"{elapsed} have passed with {count} waiting, {hours:g} h needed", total)
    short = f"{count} of {settings.session_count} sessions wait, {passed / 3600:.1f} of {hours:g} h have passed"
    return Due(False, "", short, total)


def _seconds(since: str | None, now: str) -> float | None:
    """None where a time can't be read, or `since` lies in the future."""
    try:
        passed = (_moment(now) - _moment(since or "")).total_seconds()
    except ValueError:
        return None
    return passed if passed >= 0 else None


def _moment(text: str) -> datetime:
    found = datetime.fromisoformat(text)
    return found if found.tzinfo else found.replace(tzinfo=UTC)
