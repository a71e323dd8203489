"""Vectors of texts, if an embedder is installed. Search and packs use them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from dreamkeep.errors import Busy, NotDurable

if TYPE_CHECKING:
    from dreamkeep.context import KeepContext
    from dreamkeep.index.store import Store
    from dreamkeep.recall.search import Meaning

#: A search embeds so many new texts, which takes a third of a second. The rest is for `ingest` and `reindex`.
_ON_THE_WAY = 1_000


def embed(context: KeepContext, *, most: int = 1 << 60, progress: Callable[[int, int], None] | None = None) -> int:
    from dreamkeep.recall.vectors import fill

    def fill_up(store: Store) -> int:
        # Loading a model takes longer than finding out that there is nothing to do.
        embedder = context.find_embedder() if store.unembedded_count() else None
        return fill(store, embedder, most, progress) if embedder else 0

    return context.ask(fill_up) if context.exists() else 0


def open_meaning(context: KeepContext, store: Store) -> Meaning | None:
    """What search by meaning needs; None if no embedder is installed."""
    embedder = context.find_embedder()
    if embedder is None:
        return None
    from dreamkeep.recall.search import Meaning
    from dreamkeep.recall.vectors import Nearest, fill

    try:
        if store.unembedded_count():
            fill(store, embedder, _ON_THE_WAY)
    except (Busy, NotDurable):
        pass  # another process does it, or there is no room: texts without a vector are found by their words
    return Meaning(embedder, context.once(Nearest, Nearest))
