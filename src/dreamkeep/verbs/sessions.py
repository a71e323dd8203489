"""Sessions: listed, and shown whole. Wiring, no rules."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from dreamkeep.errors import NotFound
from dreamkeep.event import rfc3339
from dreamkeep.verbs.arguments import check_positive, find_session, resolve_session

if TYPE_CHECKING:
    from dreamkeep.context import KeepContext
    from dreamkeep.index.store import Store
    from dreamkeep.session.summary import Summary


class SessionVerbs:
    """What was captured of sessions."""

    def __init__(self, context: KeepContext) -> None:
        self._context = context
        self._host = context.host
        self._root = context.root

    def sessions(self, *, project: str | None = None, agent: str | None = None, limit: int | None = None) -> list[Summary]:
        if limit is not None:
            check_positive(limit, "limit")
        return self._context.ask(lambda store: store.sessions(project=project, agent=agent, limit=limit))

    def summary(self, session: str) -> Summary:
        found = self._context.ask(lambda store: store.session(session))
        if found is None:
            raise NotFound("no such session", where=session, next="`dreamkeep sessions` lists them.")
        return found

    def show(self, text: str, *, live: bool = False) -> dict[str, Any]:
        from dreamkeep.verbs import views

        now = rfc3339(self._host.now())

        def whole(store: Store) -> dict[str, Any]:
            return views.show_whole_session(store, find_session(store, text), self._context.is_alive, now, live=live)

        return self._context.ask(whole)

    def digest(self, text: str) -> dict[str, Any]:
        from dreamkeep.dream.backends.clean import clean_messages
        from dreamkeep.dream.backends.model.budget import estimate
        from dreamkeep.index.heard_before import find_heard
        from dreamkeep.session.reading.digest import digest, find_unheard, render

        session = self.summary(resolve_session(self._context, text))
        messages = clean_messages(self._context.ask(lambda store: store.messages(session.id)))
        heard = self._context.ask(lambda store: find_heard(store, find_unheard(messages)))
        lines = digest(messages, session.cwd, heard.__contains__)
        return {"digest": [line._asdict() for line in lines], "tokens": estimate(render(lines))}

    def lineage(self, session: str) -> dict[str, Any]:
        from dreamkeep.verbs import views

        return self._context.ask(lambda store: views.show_lineage(store, session))

    def raw(self, text: str) -> Iterator[tuple[dict[str, Any], bytes]]:
        from dreamkeep.capture.sources.source_bytes import captured
        from dreamkeep.journal.places import folder_of

        return captured(self._host, f"{self._root}/{folder_of(resolve_session(self._context, text))}")
