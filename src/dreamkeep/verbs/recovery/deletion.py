"""Deleting sessions for good."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dreamkeep.context import INDEX_WAIT_S
from dreamkeep.errors import NoSpace, NotFound, from_os
from dreamkeep.verbs.capture import drain
from dreamkeep.verbs.dream.pages import pages_differ, publish_before_deletion
from dreamkeep.verbs.recovery.forget import open_deleting
from dreamkeep.verbs.sessions import summary

if TYPE_CHECKING:
    from dreamkeep.context import KeepContext
    from dreamkeep.index.store import Store
    from dreamkeep.session.summary import Summary


def delete(context: KeepContext, session: str) -> Summary:
    return delete_all(context, [session])[0]


def delete_all(context: KeepContext, sessions: Sequence[str]) -> list[Summary]:
    from dreamkeep.capture.hooks.spool import SPOOL
    from dreamkeep.capture.sources.source_cache import Cache
    from dreamkeep.recovery.delete.delete import half_deleted
    from dreamkeep.verbs.arguments import find_session, pick_one

    for text in sessions:
        pick_one([text], text, "session")  # refuse an empty id before anything is done
    if not context.exists() and context.host.stat(f"{context.root}/{SPOOL}") is None:
        raise NotFound("there is no keep", where=context.root, next="If it is elsewhere, name it with --keep.")
    # Look up before draining: any writer, such as the drainer, finishes what a crash left.
    before = {text: half_deleted(context.host, context.root, text) for text in sessions}
    known = {text: _find_known(context, again, text) for text, again in before.items()}
    drain(context, also_off=True)  # otherwise its hook calls would stay in the spool for a while

    def find(text: str) -> Summary:
        half = known[text]
        id = context.ask(lambda store: find_session(store, text, for_good=True, half=list(half)))
        return (context.ask(lambda store: store.session(id)) or half[id]) if id in half else summary(context, id)

    found = {one.id: one for one in map(find, sessions)}  # naming one twice means it once
    cache = Cache(context.host, context.root)
    for id in found:
        cache.forget_session(id)
    cache.save()
    try:
        _delete(context, list(found))
    except NoSpace:
        if not _discard_index(context):
            raise
        _delete(context, list(found))
    return list(found.values())


def undelete(context: KeepContext, session: str) -> str:
    from dreamkeep.verbs.arguments import pick_one

    dead = context.ask(lambda store: store.tombstones())
    matches = (
        [d for d in dead if session == d]
        or [d for d in dead if session == d.partition(":")[2]]
        or [d for d in dead if session and (d.startswith(session) or d.partition(":")[2].startswith(session))]
    )
    found = pick_one(matches, session, "deleted session")
    open_deleting(context).undelete(found)
    return found


def _delete(context: KeepContext, sessions: Sequence[str]) -> None:
    try:
        if context.host.stat(f"{context.root}/pages") is not None and pages_differ(context):
            publish_before_deletion(context, sessions)
        open_deleting(context).delete(*sessions)
    except OSError as problem:
        raise from_os(problem, "deleting", str(problem.filename or ", ".join(sessions))) from problem


def _discard_index(context: KeepContext) -> bool:
    """Make room on a full disk for what a deletion writes before it frees space. Whether there was an index."""
    from dreamkeep.index import open as index

    if context.host.stat(f"{context.root}/{index.FILE}") is None:
        return False
    index.discard(context.host, context.root, wait_s=INDEX_WAIT_S)
    return True


def _find_known(context: KeepContext, again: Sequence[str], text: str) -> dict[str, Summary]:
    """Summaries of the sessions of that name, before the index follows the journals: afterwards it no longer knows a session
    whose journal is gone. `again`: unfinished deletions, whose summaries are empty."""
    from dreamkeep.index import build
    from dreamkeep.journal.witness import gone_sessions
    from dreamkeep.session.summary import empty
    from dreamkeep.verbs.arguments import find_sessions_named

    gone = gone_sessions(context.host, context.root)

    def find_known(store: Store) -> dict[str, Summary]:
        build.follow_keep(context.host, context.root, store)
        return {one: store.session(one) or empty(one) for one in find_sessions_named(store, text, gone)}

    return {**context.glance(find_known), **{one: empty(one) for one in again}}
