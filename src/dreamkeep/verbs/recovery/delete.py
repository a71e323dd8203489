"""Deleting sessions for good. Wiring, no rules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dreamkeep.context import INDEX_WAIT_S
from dreamkeep.errors import NoSpace, NotFound, from_os

if TYPE_CHECKING:
    from dreamkeep.context import KeepContext
    from dreamkeep.index.store import Store
    from dreamkeep.session.summary import Summary
    from dreamkeep.verbs.capture import CaptureVerbs
    from dreamkeep.verbs.dream.pages import PageVerbs
    from dreamkeep.verbs.recovery.forget import Forgetting
    from dreamkeep.verbs.sessions import SessionVerbs


class DeleteVerbs:
    """Sessions that go, with every word of them."""

    def __init__(
        self, context: KeepContext, sessions: SessionVerbs, capture: CaptureVerbs, forgetting: Forgetting, pages: PageVerbs
    ) -> None:
        self._context = context
        self._host = context.host
        self._root = context.root
        self._sessions = sessions
        self._capture = capture
        self._forgetting = forgetting
        self._pages = pages

    def delete(self, session: str) -> Summary:
        return self.delete_all([session])[0]

    def delete_all(self, sessions: Sequence[str]) -> list[Summary]:
        from dreamkeep.capture.hooks.spool import SPOOL
        from dreamkeep.capture.sources.source_cache import Cache
        from dreamkeep.recovery.delete.delete import half_deleted
        from dreamkeep.verbs.arguments import find_session, pick_one

        for text in sessions:
            pick_one([text], text, "session")  # an empty one is refused before anything is done
        if not self._context.exists() and self._host.stat(f"{self._root}/{SPOOL}") is None:
            raise NotFound("there is no keep", where=self._root, next="If it is elsewhere, name it with --keep.")
        # Looked up first: whoever writes, as the drainer does, finishes what a crash left.
        before = {text: half_deleted(self._host, self._root, text) for text in sessions}
        known = {text: self._find_known(again, text) for text, again in before.items()}
        self._capture.drain(also_off=True)  # what hooks said of it would otherwise lie in the spool for a while

        def summary(text: str) -> Summary:
            half = known[text]
            id = self._context.ask(lambda store: find_session(store, text, for_good=True, half=list(half)))
            return (self._context.ask(lambda store: store.session(id)) or half[id]) if id in half else self._sessions.summary(id)

        found = {one.id: one for one in map(summary, sessions)}  # who names one twice means it once
        cache = Cache(self._host, self._root)
        for id in found:
            cache.forget_session(id)
        cache.save()
        try:
            self._delete(list(found))
        except NoSpace:
            if not self._discard_index():
                raise
            self._delete(list(found))
        return list(found.values())

    def undelete(self, session: str) -> str:
        from dreamkeep.verbs.arguments import pick_one

        dead = self._context.ask(lambda store: store.tombstones())
        matches = (
            [d for d in dead if session == d]
            or [d for d in dead if session == d.partition(":")[2]]
            or [d for d in dead if session and (d.startswith(session) or d.partition(":")[2].startswith(session))]
        )
        found = pick_one(matches, session, "deleted session")
        self._forgetting.open_deleting().undelete(found)
        return found

    def _delete(self, sessions: Sequence[str]) -> None:
        try:
            if self._host.stat(f"{self._root}/pages") is not None and self._pages.differ():
                self._pages.publish_before_deletion(sessions)
            self._forgetting.open_deleting().delete(*sessions)
        except OSError as problem:
            raise from_os(problem, "deleting", str(problem.filename or ", ".join(sessions))) from problem

    def _discard_index(self) -> bool:
        """On a full disk, to have room for what a deletion writes before it frees any. Whether there was an index."""
        from dreamkeep.index import open as index

        if self._host.stat(f"{self._root}/{index.FILE}") is None:
            return False
        index.discard(self._host, self._root, wait_s=INDEX_WAIT_S)
        return True

    def _find_known(self, again: Sequence[str], text: str) -> dict[str, Summary]:
        """What a session of that name was, before the index follows the journals: of one whose journal is gone it knows nothing
        any more then. `again`: deleted ones, of which nothing is told."""
        from dreamkeep.index import build
        from dreamkeep.journal.witness import gone_sessions
        from dreamkeep.session.summary import empty
        from dreamkeep.verbs.arguments import find_sessions_named

        gone = gone_sessions(self._host, self._root)

        def find_known(store: Store) -> dict[str, Summary]:
            build.follow_keep(self._host, self._root, store)
            return {one: store.session(one) or empty(one) for one in find_sessions_named(store, text, gone)}

        return {**self._context.glance(find_known), **{one: empty(one) for one in again}}
