"""Snapshots: a whole keep as one file, out and in. Wiring, no rules."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from dreamkeep.errors import NotDurable, NotFound
from dreamkeep.event import rfc3339

if TYPE_CHECKING:
    from dreamkeep.context import KeepContext
    from dreamkeep.index.store import Store
    from dreamkeep.session.messages import Message
    from dreamkeep.verbs.capture import CaptureVerbs
    from dreamkeep.verbs.dream.pages import PageVerbs
    from dreamkeep.verbs.recovery.forget import Forgetting

#: A page is made in memory, and a snapshot must not need more of it for a longer session.
_LARGEST_PAGE = 32 << 20
_NOT_IN_IT = "It is not in this snapshot; `dreamkeep audit` says what to do"


class SnapshotVerbs:
    """Snapshots: exported, verified, imported."""

    def __init__(self, context: KeepContext, capture: CaptureVerbs, forgetting: Forgetting, pages: PageVerbs) -> None:
        self._context = context
        self._host = context.host
        self._root = context.root
        self._capture = capture
        self._forgetting = forgetting
        self._pages = pages

    def export(
        self, file: str | os.PathLike[str], *, view: bool = True, progress: Callable[[int, int], None] | None = None
    ) -> dict[str, Any]:
        from dreamkeep.recovery.audit.audit import known_to_witness_alone
        from dreamkeep.recovery.snapshot import snapshot
        from dreamkeep.recovery.snapshot.file import Bad

        path = os.path.abspath(os.fspath(file))
        if not self._context.exists():
            raise NotFound("there is no keep to export", where=self._root, next="Record or ingest something first.")

        def out(store: Store | None) -> snapshot.Exported | NotDurable:
            try:
                return snapshot.export(self._host, self._root, path, self._open_pages(store) if store else None, progress, unread)
            except NotDurable as problem:
                return problem  # of the file, not of the index: there is no sense in asking without one

        # Before anybody asks: then the pages are made by what the index knows as it is.
        lost = known_to_witness_alone(self._host, self._root)
        unread = [Bad(one.where.removeprefix(f"{self._root}/"), f"{one.what}. {_NOT_IN_IT}") for one in lost]
        ask = self._context.glance if any(not one.about["remembered"] for one in lost) else self._context.ask
        done = ask(out) if view else out(None)
        if isinstance(done, NotDurable):
            raise done
        return {"file": path, **done.counts._asdict(), "problems": [one._asdict() for one in done.problems]}

    def import_(self, file: str | os.PathLike[str], *, progress: Callable[[int, int], None] | None = None) -> dict[str, Any]:
        from dreamkeep.capture.sources.merge_source import regain
        from dreamkeep.journal.places import KEEP
        from dreamkeep.recovery.snapshot.importing import Importing, Index

        def take_again(session: str, name: str, other: str) -> str:
            return regain(self._host, self._root, self._capture.open_ingest(), session, name, other)

        path = os.path.abspath(os.fspath(file))
        index = Index(lambda: self._forgetting.forget(KEEP, ()), self._open_placing(), self._pages.take_in_edits)
        done = Importing(self._host, self._root, path, self._context.journals, take_again, index).run(progress)
        skipped = [{"where": where, "why": why} for where, why in done.skipped]
        return {"file": path, **done._asdict(), "skipped": skipped, "bad": [one._asdict() for one in done.bad]}

    def verify(self, file: str | os.PathLike[str], *, progress: Callable[[int, int], None] | None = None) -> dict[str, Any]:
        from dreamkeep.recovery.snapshot import snapshot

        path = os.path.abspath(os.fspath(file))
        found = snapshot.verify(self._host, path, progress)
        about = {"file": path, "ok": found.ok, "keep": found.about.get("keep", "")}
        return {**about, **found.counts._asdict(), "problems": [one._asdict() for one in found.bad]}

    def _open_pages(self, store: Store) -> Callable[[str], tuple[str, str] | None]:
        """For a journal's folder: where a snapshot has its session's page, and that page."""
        from dreamkeep.journal.places import SESSIONS, folder_of
        from dreamkeep.session.reading.markdown import markdown
        from dreamkeep.verbs import views

        sessions = {folder_of(one.id): one for one in store.sessions()}
        now = rfc3339(self._host.now())

        def page(journal: str) -> tuple[str, str] | None:
            one = sessions.get(journal)
            if one is None:
                return None
            name = f"{journal.removeprefix(SESSIONS)[1:]}.md"
            if one.bytes > _LARGEST_PAGE:
                return name, f"# {one.id}\n\nToo long for a page. Import this snapshot, then run `dreamkeep show {one.id}`.\n"
            try:
                return name, markdown(views.show_whole_session(store, one.id, self._context.is_alive, now))
            except NotFound:
                return None  # deleted meanwhile

        return page

    def _open_placing(self) -> Callable[[str, Mapping[str, Any]], Mapping[str, Any] | None]:
        """Of a quote of a session: with the place where its words stand here."""
        from functools import lru_cache

        from dreamkeep.dream.consolidate.statements import standing

        @lru_cache(8)
        def messages(session: str) -> list[Message]:
            return self._context.ask(lambda store: store.messages(session))

        return lambda session, quote: standing(quote, messages(session))
