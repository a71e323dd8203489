"""Hygiene: end what has been quiet for long, and keep the inbox and the disk tidy. Wiring, no rules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dreamkeep.event import rfc3339
from dreamkeep.verbs.compress import compress_cold

if TYPE_CHECKING:
    from dreamkeep.context import KeepContext
    from dreamkeep.index.store import Store
    from dreamkeep.verbs.dream.run import DreamVerbs

_BY_HYGIENE = "hygiene"


class HygieneVerbs:
    """Sessions that nobody closed, and suggestions that nobody decided on."""

    def __init__(self, context: KeepContext, dreams: DreamVerbs) -> None:
        self._context = context
        self._host = context.host
        self._dreams = dreams

    def hygiene(self) -> dict[str, Any]:
        from dreamkeep.dream import hygiene

        if not self._context.exists():
            return {"closed": [], "failed": [], "reconverged": 0, "expired": 0, "compressed": 0}
        self._context.settle_deletions()
        now = rfc3339(self._host.now())
        hours = self._context.config["hygiene.stale_hours"]

        def quiet(store: Store) -> list[str]:
            busy = hygiene.working(store.unsettled(owned=True), self._context.is_alive)
            return hygiene.stale(store.sessions(), busy, now=now, hours=hours)

        done = hygiene.close(self._context.ask(quiet), self._end_stale)
        reconverged = len(set(self._dreams.open_dreaming().complete().sessions) - set(done.closed))
        failed = [{"session": session, "reason": why} for session, why in done.failed]
        told = {"closed": list(done.closed), "failed": failed, "reconverged": reconverged}
        return {**told, "expired": self._end_suggestions(), "compressed": compress_cold(self._context)}

    def _end_suggestions(self) -> int:
        """Those that waited too long in the inbox; how many. While a dream runs, that dream does it."""
        from dreamkeep.dream.consolidate.inbox import end_suggestions
        from dreamkeep.event import Event, Kind

        with self._dreams.open_dreaming().lock() as ours:
            if not ours:
                return 0
            now = rfc3339(self._host.now())
            # It names a run, so that it is no hand on the note.
            ended = end_suggestions(self._context.load_memory("notes"), now, _BY_HYGIENE)
            if ended:
                self._context.journals().append("", [Event(self._context.ids.new(), one.kind, now, one.body) for one in ended])
        return sum(one.kind == Kind.NOTE_EXPIRED for one in ended)

    def _end_stale(self, session: str) -> None:
        from dreamkeep.event import Kind
        from dreamkeep.session.summary import ENDED

        self._context.journals().say(session, Kind.SESSION_ENDED, {"reason": "stale"}, {"state": ENDED})
