"""Hygiene: end idle sessions, expire old suggestions, and compress cold journals."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from dreamkeep.event import rfc3339
from dreamkeep.verbs.dream.dreams import open_dreaming
from dreamkeep.verbs.upkeep import compress_cold

if TYPE_CHECKING:
    from dreamkeep.context import KeepContext
    from dreamkeep.index.store import Store

_BY_HYGIENE = "hygiene"


def hygiene(context: KeepContext) -> dict[str, Any]:
    from dreamkeep.dream import hygiene

    if not context.exists():
        return {"closed": [], "failed": [], "reconverged": 0, "expired": 0, "compressed": 0}
    context.settle_deletions()
    now = rfc3339(context.host.now())
    hours = context.config["hygiene.stale_hours"]

    def quiet(store: Store) -> list[str]:
        busy = hygiene.working(store.unsettled(owned=True), context.is_alive)
        return hygiene.stale(store.sessions(), busy, now=now, hours=hours)

    done = hygiene.close(context.ask(quiet), partial(_end_stale, context))
    reconverged = len(set(open_dreaming(context).complete().sessions) - set(done.closed))
    failed = [{"session": session, "reason": why} for session, why in done.failed]
    report = {"closed": list(done.closed), "failed": failed, "reconverged": reconverged}
    return {**report, "expired": _end_suggestions(context), "compressed": compress_cold(context)}


def _end_suggestions(context: KeepContext) -> int:
    """Expire suggestions that waited too long in the inbox. Returns how many. A running dream does it itself."""
    from dreamkeep.dream.consolidate.inbox import end_suggestions
    from dreamkeep.event import Event, Kind

    with open_dreaming(context).lock() as ours:
        if not ours:
            return 0
        now = rfc3339(context.host.now())
        # The event names a run, so that it doesn't count as the user's decision.
        ended = end_suggestions(context.load_memory("notes"), now, _BY_HYGIENE)
        if ended:
            context.journals().append("", [Event(context.ids.new(), one.kind, now, one.body) for one in ended])
    return sum(one.kind == Kind.NOTE_EXPIRED for one in ended)


def _end_stale(context: KeepContext, session: str) -> None:
    from dreamkeep.event import Kind
    from dreamkeep.session.summary import ENDED

    context.journals().say(session, Kind.SESSION_ENDED, {"reason": "stale"}, {"state": ENDED})
