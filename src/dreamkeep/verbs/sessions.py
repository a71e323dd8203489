"""Sessions: listed, shown, recorded by Python code, and ended or resumed by hand."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from dreamkeep.errors import BadUsage, NotFound
from dreamkeep.event import rfc3339
from dreamkeep.verbs.arguments import check_positive, find_session, resolve_session

if TYPE_CHECKING:
    from dreamkeep.capture.items import Items
    from dreamkeep.capture.python import Session
    from dreamkeep.context import KeepContext
    from dreamkeep.index.store import Store
    from dreamkeep.session.summary import Summary


def sessions(
    context: KeepContext, *, project: str | None = None, agent: str | None = None, limit: int | None = None
) -> list[Summary]:
    if limit is not None:
        check_positive(limit, "limit")
    return context.ask(lambda store: store.sessions(project=project, agent=agent, limit=limit))


def summary(context: KeepContext, session: str) -> Summary:
    found = context.ask(lambda store: store.session(session))
    if found is None:
        raise NotFound("no such session", where=session, next="`dreamkeep sessions` lists them.")
    return found


def show(context: KeepContext, text: str, *, live: bool = False) -> dict[str, Any]:
    from dreamkeep.verbs import views

    now = rfc3339(context.host.now())

    def whole(store: Store) -> dict[str, Any]:
        return views.show_whole_session(store, find_session(store, text), context.is_alive, now, live=live)

    return context.ask(whole)


def digest(context: KeepContext, text: str) -> dict[str, Any]:
    from dreamkeep.dream.backends.clean import clean_messages
    from dreamkeep.dream.backends.model.budget import estimate
    from dreamkeep.index.heard_before import find_heard
    from dreamkeep.session.reading.digest import digest, find_unheard, render

    session = summary(context, resolve_session(context, text))
    messages = clean_messages(context.ask(lambda store: store.messages(session.id)))
    heard = context.ask(lambda store: find_heard(store, find_unheard(messages)))
    lines = digest(messages, session.cwd, heard.__contains__)
    return {"digest": [line._asdict() for line in lines], "tokens": estimate(render(lines))}


def lineage(context: KeepContext, session: str) -> dict[str, Any]:
    from dreamkeep.verbs import views

    return context.ask(lambda store: views.show_lineage(store, session))


def raw(context: KeepContext, text: str) -> Iterator[tuple[dict[str, Any], bytes]]:
    from dreamkeep.capture.sources.source_bytes import captured
    from dreamkeep.journal.places import folder_of

    return captured(context.host, f"{context.root}/{folder_of(resolve_session(context, text))}")


def session(
    context: KeepContext, native_id: str, *, agent: str = "python", cwd: str | os.PathLike[str] | None = None, title: str = ""
) -> Session:
    from dreamkeep.journal.places import session_id

    handle = open_session(context, session_id(agent, native_id))
    handle.open(_describe_session(context, cwd, title))
    return handle


def items(
    context: KeepContext, native_id: str, *, agent: str = "python", cwd: str | os.PathLike[str] | None = None, title: str = ""
) -> Items:
    from dreamkeep.capture.items import Items
    from dreamkeep.journal.places import session_id

    handle = open_session(context, session_id(agent, native_id))
    return Items(
        context.host,
        context.root,
        context.journals(),
        context.ids,
        context.owners(),
        handle,
        _describe_session(context, cwd, title),
    )


def end(context: KeepContext, session: str) -> Summary:
    from dreamkeep.session.summary import BY_HAND

    return _change(context, session, lambda handle: handle.end(BY_HAND))


def suspend(context: KeepContext, session: str) -> Summary:
    from dreamkeep.session.summary import BY_HAND

    return _change(context, session, lambda handle: handle.suspend(BY_HAND))


def resume(context: KeepContext, session: str) -> Summary:
    return _change(context, session, lambda handle: handle.resume())


def _change(context: KeepContext, text: str, act: Callable[[Session], None]) -> Summary:
    session = resolve_session(context, text)
    act(open_session(context, session))
    return summary(context, session)


def _describe_session(context: KeepContext, cwd: str | os.PathLike[str] | None, title: str) -> dict[str, str]:
    from dreamkeep.capture.projects.project import project_of

    try:
        folder = os.path.abspath(os.fspath(cwd) if cwd is not None else ".")
        about = {"cwd": folder, "project": project_of(context.host, folder, os.uname().nodename)}
    except (OSError, ValueError, TypeError) as problem:
        raise BadUsage(f"the folder can't be read ({problem})", where="cwd", next="Pass an existing folder.") from problem
    return {**about, "title": title} if title else about


def open_session(context: KeepContext, session: str) -> Session:
    """The session of that id, as it is: nothing is recorded by this."""
    from dreamkeep.capture.python import Session

    return Session(session, context.journals(), context.ids, context.owners())
