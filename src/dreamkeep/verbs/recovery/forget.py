"""What was deleted or lost is taken out of the views: the index, the pages, the packs. Wiring, no rules."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from dreamkeep.errors import Failed

if TYPE_CHECKING:
    from dreamkeep.context import KeepContext
    from dreamkeep.index.store import Store
    from dreamkeep.recovery.delete.delete import Deleting
    from dreamkeep.verbs.dream.pages import PageVerbs
    from dreamkeep.verbs.recall.pack import PackVerbs


class Forgetting:
    """Makes the views of a keep forget journals, or frames of them."""

    def __init__(self, context: KeepContext, pages: PageVerbs, packs: PackVerbs) -> None:
        self._context = context
        self._host = context.host
        self._root = context.root
        self._pages = pages
        self._packs = packs

    def open_deleting(self) -> Deleting:
        """Deletes sessions, and finishes what a crash left of a deletion."""
        from dreamkeep.recovery.delete.delete import Deleting

        return Deleting(self._host, self._root, self._context.journals(), self.forget_all)

    def finish_deletions(self) -> None:
        self.open_deleting().finish_all()

    def forget(self, name: str, pages: Collection[str] | None = None) -> None:
        self.forget_all((name,), pages)

    def forget_all(self, names: Collection[str], pages: Collection[str] | None = None) -> None:
        """`pages`: relative to the keep, those that may have lines of them; None: nobody knows, so any may."""
        from dreamkeep.index.open import FILE
        from dreamkeep.journal.places import KEEP

        def forget(store: Store) -> None:
            with store.writing():
                for name in names:
                    store.forget(name)
                # What was erased in the keep's own journal left every length and checksum as it was: it is read anew.
                store.forget(KEEP)

        if self._host.stat(f"{self._root}/{FILE}") is not None:
            self._context.with_index(forget)
            self._context.with_index(lambda store: store.shred(self._host.sleep))
        held = self._pages.publish_without_deleted() if self._host.stat(f"{self._root}/pages") is not None else []
        self._packs.forget_packs()
        for path, why in held:
            if pages is not None and path.removeprefix(f"{self._root}/") not in pages:
                continue  # another session's lines: its own deletion waits for that page
            raise Failed(
                f"a page still has lines of a deleted session, so the deletion is unfinished: {why}",
                where=path,
                next="Make the page and its folder writable, or fix its fence; then run the same `dreamkeep delete` again.",
            )
