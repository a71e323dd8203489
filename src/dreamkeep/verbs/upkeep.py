"""What keeps a keep in order: its state, its index, its cold parts. Wiring, no rules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dreamkeep.errors import DreamkeepError
from dreamkeep.event import rfc3339

if TYPE_CHECKING:
    from dreamkeep.context import KeepContext
    from dreamkeep.index.build import Built, Progress
    from dreamkeep.index.store import Store
    from dreamkeep.verbs.limits import Limits
    from dreamkeep.verbs.recall.similarity import Similarity

#: Some seconds of work, where a model is installed; the rest follows with the next import, search or `reindex`.
_EMBEDDED_AT_ONCE = 20_000


class UpkeepVerbs:
    """What is here, and an index that is up to date."""

    def __init__(self, context: KeepContext, limits: Limits, similarity: Similarity) -> None:
        self._context = context
        self._host = context.host
        self._root = context.root
        self._limits = limits
        self._similarity = similarity

    def status(self) -> dict[str, Any]:
        from dreamkeep.verbs import views
        from dreamkeep.verbs.memory.notes import count_notes

        off = self._context.is_off()
        now = rfc3339(self._host.now())
        answer = self._context.ask(
            lambda store: views.show_status(self._root, self._context.exists(), off, store, self._context.is_alive, now)
        )
        disk = self._limits.measure_room()
        limits = {
            "quota": self._limits.measure_use(),
            "disk": disk if disk["short"] else None,
            "paused": self._limits.list_paused_sources(),
        }
        more = {
            "notes": count_notes(self._context),
            "backend": self._context.config["dream.backend"],
            "strays": len(self._context.strays),
        }
        return {**answer, **more, **limits}

    def reindex(self, *, from_zero: bool = False, progress: Progress | None = None) -> Built:
        from dreamkeep.index import build

        if not self._context.exists():
            return build.Built(0, 0, 0)
        if from_zero:
            self._context.with_index(_clear, follow=False)
        return self._context.with_index(lambda store: build.follow(self._host, self._root, store, progress), follow=False)

    def catch_up(self) -> None:
        if not self._context.exists():
            return
        try:
            self._context.with_index(lambda store: None)
            self._similarity.embed(most=_EMBEDDED_AT_ONCE, progress=self._context.progress)
        except (DreamkeepError, OSError) as problem:
            self._context.warn(f"Everything is safe, but the index can't be updated: {problem}")


def _clear(store: Store) -> None:
    with store.writing():
        store.clear()
