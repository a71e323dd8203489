"""Remove deleted or lost sessions from the views: index, pages and packs."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from typing import TYPE_CHECKING

from dreamkeep.errors import Failed
from dreamkeep.verbs.dream.pages import publish_without_deleted
from dreamkeep.verbs.recall.packs import forget_packs

if TYPE_CHECKING:
    from dreamkeep.context import KeepContext
    from dreamkeep.index.store import Store
    from dreamkeep.recovery.delete.delete import Deleting


def open_deleting(context: KeepContext) -> Deleting:
    """Deletes sessions, and finishes what a crash left of a deletion."""
    from dreamkeep.recovery.delete.delete import Deleting

    return Deleting(context.host, context.root, context.journals(), partial(forget_journals, context))


def finish_deletions(context: KeepContext) -> None:
    open_deleting(context).finish_all()


def forget_journal(context: KeepContext, name: str, pages: Collection[str] | None = None) -> None:
    forget_journals(context, (name,), pages)


def forget_journals(context: KeepContext, names: Collection[str], pages: Collection[str] | None = None) -> None:
    """`pages`: the pages that may have lines of them, relative to the keep; None: unknown, so any page may."""
    from dreamkeep.index.open import FILE
    from dreamkeep.journal.places import KEEP

    def forget(store: Store) -> None:
        with store.writing():
            for name in names:
                store.forget(name)
            # Erasing in the keep's own journal keeps lengths and checksums, so following would not notice it.
            store.forget(KEEP)

    if context.host.stat(f"{context.root}/{FILE}") is not None:
        context.with_index(forget)
        context.with_index(lambda store: store.shred(context.host.sleep))
    held = publish_without_deleted(context) if context.host.stat(f"{context.root}/pages") is not None else []
    forget_packs(context)
    for path, why in held:
        if pages is not None and path.removeprefix(f"{context.root}/") not in pages:
            continue  # another session's lines: its own deletion waits for that page
        raise Failed(
            f"a page still has lines of a deleted session, so the deletion is unfinished: {why}",
            where=path,
            next="Make the page and its folder writable, or fix its fence; then run the same `dreamkeep delete` again.",
        )
