"""Snapshots: a whole keep as one file, out and in."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from dreamkeep.errors import NotDurable, NotFound
from dreamkeep.event import rfc3339
from dreamkeep.verbs.capture import open_ingest
from dreamkeep.verbs.dream.pages import take_in_edits
from dreamkeep.verbs.recovery.forget import forget_journal

if TYPE_CHECKING:
    from dreamkeep.context import KeepContext
    from dreamkeep.index.store import Store
    from dreamkeep.session.messages import Message

#: A page is made in memory, and a snapshot must not need more of it for a longer session.
_LARGEST_PAGE = 32 << 20
_NOT_IN_IT = "It is not in this snapshot; `dreamkeep audit` says what to do"


def export(
    context: KeepContext, file: str | os.PathLike[str], *, view: bool = True, progress: Callable[[int, int], None] | None = None
) -> dict[str, Any]:
    from dreamkeep.recovery.audit.audit import known_to_witness_alone
    from dreamkeep.recovery.snapshot import snapshot
    from dreamkeep.recovery.snapshot.file import BadEntry

    path = os.path.abspath(os.fspath(file))
    if not context.exists():
        raise NotFound("there is no keep to export", where=context.root, next="Record or ingest something first.")

    def out(store: Store | None) -> snapshot.ExportResult | NotDurable:
        try:
            return snapshot.export(
                context.host, context.root, path, _open_pages(context, store) if store else None, progress, unread
            )
        except NotDurable as problem:
            return problem  # of the file, not of the index: there is no sense in asking without one

    # Before anybody asks: then the pages are made by what the index knows as it is.
    lost = known_to_witness_alone(context.host, context.root)
    unread = [BadEntry(one.where.removeprefix(f"{context.root}/"), f"{one.what}. {_NOT_IN_IT}") for one in lost]
    ask = context.glance if any(not one.about["remembered"] for one in lost) else context.ask
    done = ask(out) if view else out(None)
    if isinstance(done, NotDurable):
        raise done
    return {"file": path, **done.counts._asdict(), "problems": [one._asdict() for one in done.problems]}


def import_(
    context: KeepContext, file: str | os.PathLike[str], *, progress: Callable[[int, int], None] | None = None
) -> dict[str, Any]:
    from dreamkeep.capture.sources.merge_source import merge_source
    from dreamkeep.journal.places import KEEP
    from dreamkeep.recovery.snapshot.importing import ImportViews, SnapshotImport

    def merge(session: str, name: str, other: str) -> str:
        return merge_source(open_ingest(context).context, session, name, other)

    path = os.path.abspath(os.fspath(file))
    index = ImportViews(lambda: forget_journal(context, KEEP, ()), _open_placing(context), partial(take_in_edits, context))
    done = SnapshotImport(context.host, context.root, path, context.journals, merge, index).run(progress)
    skipped = [{"where": where, "why": why} for where, why in done.skipped]
    return {"file": path, **done._asdict(), "skipped": skipped, "bad": [one._asdict() for one in done.bad]}


def verify(
    context: KeepContext, file: str | os.PathLike[str], *, progress: Callable[[int, int], None] | None = None
) -> dict[str, Any]:
    from dreamkeep.recovery.snapshot import snapshot

    path = os.path.abspath(os.fspath(file))
    found = snapshot.verify(context.host, path, progress)
    about = {"file": path, "ok": found.ok, "keep": found.about.get("keep", "")}
    return {**about, **found.counts._asdict(), "problems": [one._asdict() for one in found.bad]}


def _open_pages(context: KeepContext, store: Store) -> Callable[[str], tuple[str, str] | None]:
    """For a journal's folder: where a snapshot has its session's page, and that page."""
    from dreamkeep.journal.places import SESSIONS, folder_of
    from dreamkeep.session.reading.markdown import markdown
    from dreamkeep.verbs import views

    sessions = {folder_of(one.id): one for one in store.sessions()}
    now = rfc3339(context.host.now())

    def page(journal: str) -> tuple[str, str] | None:
        one = sessions.get(journal)
        if one is None:
            return None
        name = f"{journal.removeprefix(SESSIONS)[1:]}.md"
        if one.bytes > _LARGEST_PAGE:
            return name, f"# {one.id}\n\nToo long for a page. Import this snapshot, then run `dreamkeep show {one.id}`.\n"
        try:
            return name, markdown(views.show_whole_session(store, one.id, context.is_alive, now))
        except NotFound:
            return None  # deleted meanwhile

    return page


def _open_placing(context: KeepContext) -> Callable[[str, Mapping[str, Any]], Mapping[str, Any] | None]:
    """Of a quote of a session: with the place where its words stand here."""
    from functools import lru_cache

    from dreamkeep.dream.consolidate.statements import locate_quote

    @lru_cache(8)
    def messages(session: str) -> list[Message]:
        return context.ask(lambda store: store.messages(session))

    return lambda session, quote: locate_quote(quote, messages(session))
