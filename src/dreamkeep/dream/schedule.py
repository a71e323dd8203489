"""Which sessions are to be dreamed, and whether it is time. Pure: `now` and who lives are told.

    not_completed ─► eligible ─► running ─► already_consolidated ─► (a new part was completed) eligible …
                        ▲           └─► retry_after_failure ─► … ─► poisoned, after so many attempts
                        └───────────────────┘

Times are data: one that can't be read, or lies in the future (a clock that was set back), is no reason to wait.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from dreamkeep.memory.dreams import FAILED, RUNNING, DreamProgress

ELIGIBLE, RETRY, NOT_COMPLETED = "eligible", "retry_after_failure", "not_completed"
CONSOLIDATED, IS_RUNNING, POISONED = "already_consolidated", "running", "poisoned"
WAITING = (ELIGIBLE, RETRY)

SESSION_COUNT, TIME_ELAPSED, MANUAL = "session_count", "time_elapsed", "manual"

_FIRST_WAIT_S = 60.0
_LONGEST_WAIT_S = 6 * 3600.0


def eligibility(of: DreamProgress | None, *, max_attempts: int, running: bool = False, backend: str = "") -> str:
    """`running`: somebody holds the lock of dreams now; a session that is `running` without that was left by one who died.
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
    """A failure is tried again, each time after a longer while; one who died was no failure of the session."""
    if of.status != FAILED or not of.attempts:
        return True
    passed = _seconds(of.last_attempt_at, now)
    return passed is None or passed >= min(_FIRST_WAIT_S * 2 ** (of.attempts - 1), _LONGEST_WAIT_S)


def waiting(
    dreamed: Iterable[DreamProgress], *, max_attempts: int, now: str | None = None, backend: str = ""
) -> list[DreamProgress]:
    """Oldest completion first. `now`: leave out what failed and is not to be tried again yet."""
    found = [one for one in dreamed if eligibility(one, max_attempts=max_attempts, backend=backend) in WAITING]
    if now is not None:
        found = [one for one in found if may_retry(one, now)]
    return sorted(found, key=lambda one: (one.completion_at or "", one.session))


def asked_for(of: DreamProgress) -> DreamProgress:
    """As it is for who names it: what was read and taken back is to be read again."""
    return of if of.taken_back is None else of._replace(read=of.taken_back)


def from_start(of: DreamProgress) -> DreamProgress:
    """As it is for who wants all of it read again."""
    return of._replace(read=0, also=(), taken_back=None)


def given_up(dreamed: Iterable[DreamProgress], *, max_attempts: int, backend: str = "") -> list[DreamProgress]:
    """What failed so often that nobody tries it by himself any more; what was tried last comes last."""
    found = [one for one in dreamed if eligibility(one, max_attempts=max_attempts, backend=backend) == POISONED]
    return sorted(found, key=lambda one: (one.last_attempt_at or "", one.session))


#: The way out for what is given up.
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


class Due(NamedTuple):
    """`trigger`: which rule says so, "" for none; `why`: in words. `waiting`: also what failed and is tried again later."""

    due: bool
    trigger: str
    why: str
    waiting: int


def due(
    found: Sequence[DreamProgress],
    *,
    now: str,
    last_success_at: str | None,
    session_count: int,
    time_hours: float,
    later: int = 0,
) -> Due:
    """`found`: what waits, oldest first. `later`: so many failed and are not to be tried again yet."""
    count = len(found)
    total = count + later
    if not count:
        why = f"only {later} failed sessions are waiting, for a later retry" if later else "no sessions are waiting"
        return Due(False, "", why, total)
    if count >= session_count:
        return Due(True, SESSION_COUNT, f"{count} sessions are waiting, {session_count} needed", total)
    since = last_success_at or found[0].completion_at
    passed = _seconds(since, now)
    if passed is None or passed >= time_hours * 3600:
        said = "an unknown time" if passed is None else f"{passed / 3600:.1f} h"
        return Due(True, TIME_ELAPSED, f"{said} have passed with {count} waiting, {time_hours:g} h needed", total)
    return Due(False, "", f"{count} of {session_count} sessions wait, {passed / 3600:.1f} of {time_hours:g} h have passed", total)


def _seconds(since: str | None, now: str) -> float | None:
    """None where that can't be told, and where `since` lies in the future."""
    try:
        passed = (_moment(now) - _moment(since or "")).total_seconds()
    except ValueError:
        return None
    return passed if passed >= 0 else None


def _moment(text: str) -> datetime:
    found = datetime.fromisoformat(text)
    return found if found.tzinfo else found.replace(tzinfo=UTC)
