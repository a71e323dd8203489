"""What was deleted or lost is taken out of the views: the index, the pages, the packs. Wiring, no rules."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from dreamkeep.errors import DreamkeepError, Failed

if TYPE_CHECKING:
    from dreamkeep.context import KeepContext
    from dreamkeep.index.store import Store
    from dreamkeep.recovery.delete import Deleting
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
        from dreamkeep.recovery.delete import Deleting

        return Deleting(self._host, self._root, self._context.journals(), self.forget_all)

    def finish_deletions(self) -> None:
        self.open_deleting().finish_all()

    def forget_journal(self, name: str) -> None:
        """The index reads it anew when it is asked next, and misses nothing in it: what was lost is here again."""

        def forget(store: Store) -> None:
            with store.writing():
                store.forget(name)

        self._context.with_index(forget, follow=False)

    def forget_frames(self, name: str, frames: Collection[tuple[int, str]]) -> None:
        """An undo took these frames off a journal: an index that has read them reads it anew, and misses none of them."""
        from dreamkeep.index import open as index

        def has_read(store: Store) -> bool:
            place = store.place(name)
            return (place is not None and place.position[2:] in frames) or any(one.frame in frames for one in store.missed(name))

        def forget(store: Store) -> None:
            with store.writing():
                store.forget(name, missing=True)
                store.put_missed(name, [one for one in store.missed(name) if one.frame not in frames])

        try:
            knows = index.peek(self._host, self._root, has_read)
        except (DreamkeepError, OSError):
            knows = None  # what is wrong with it an audit tells
        if knows:
            self._context.with_index(forget, follow=False)

    def find_indexed(self, name: str) -> list[tuple[int, str]]:
        """The frame of a journal that was indexed last, and those that are missed in it, by the index as it lies there."""
        from dreamkeep.index import open as index
        from dreamkeep.index.sqlite_errors import Unusable

        def known(store: Store) -> list[tuple[int, str]]:
            place = store.place(name)
            return [*([place.position[2:]] if place else ()), *(one.frame for one in store.missed(name))]

        try:
            return index.peek(self._host, self._root, known) or []
        except Unusable:
            return []  # what it knew nobody can tell any more

    def forget(self, name: str, pages: Collection[str] | None = None) -> None:
        self.forget_all((name,), pages)

    def forget_all(self, names: Collection[str], pages: Collection[str] | None = None) -> None:
        """`pages`: relative to the keep, those that may have lines of them; None: nobody knows, so any may."""
        from dreamkeep.index.open import FILE
        from dreamkeep.journal.places import KEEP

        def forget(store: Store) -> None:
            with store.writing():
                for name in names:
                    store.forget(name, missing=name == KEEP)
                # What was erased in the keep's own journal left every length and checksum as it was: it is read anew.
                store.forget(KEEP, missing=True)

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
