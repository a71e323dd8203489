"""Dreams whose requests are answered elsewhere: by a batch API, on another machine, or by the calling agent.

    dream_export ─► files ─► answers, whenever they come ─► dream_import ─► the next files … until none is left
    dream_next   ─► one request, to the agent that asks ─► dream_submit ─► the next request of that session … until none is left

Both are a folder (dream/backends/model/exchange.py), a lease on its sessions (dream/leases.py), and an ordinary dream.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from dreamkeep.errors import BadUsage, Busy, NotFound, from_os
from dreamkeep.host import remove_tree
from dreamkeep.journal.places import EXCHANGE, KEEP, folder_of
from dreamkeep.verbs.arguments import resolve_session
from dreamkeep.verbs.dream.dreams import find_read_before, open_dreaming, open_known_files, run_dream

if TYPE_CHECKING:
    from dreamkeep.context import KeepContext
    from dreamkeep.dream.backends.model.exchange import Exchange
    from dreamkeep.dream.parts import Parts
    from dreamkeep.dream.run import Dreaming
    from dreamkeep.index.store import Store
    from dreamkeep.journal.tombs import Tombstones
    from dreamkeep.memory.dreams import DreamProgress

#: The backend's name if files are answered, and if an agent answers; and for how long each reserves its sessions.
_FILES, _AGENT = "files", "agent"
_FILES_LEASE_S, _AGENT_LEASE_S = 7 * 86_400, 30 * 60
#: Clients cut long answers of tools, so this much of a session goes into one request for an agent.
_AGENT_TOKENS = 8_000
_LONGEST_ANSWER = 256 << 10
_REQUEST_ID = re.compile(r"[0-9a-f]{32}")
_MERGE = "merge"


# -- files


def dream_export(
    context: KeepContext,
    folder: str,
    *,
    sessions: Sequence[str] = (),
    limit: int | None = None,
    again: bool = False,
    since: str | None = None,
) -> dict[str, Any]:
    from dreamkeep.dream.backends.model.exchange import Exchange
    from dreamkeep.verbs.arguments import check_positive

    if limit is not None:
        check_positive(limit, "limit")
    if since is not None and not again:
        raise BadUsage("`since` works only with --again", where="--since", next="Add --again, or leave it out.")
    folder = os.path.abspath(folder)
    exchange = Exchange(context.host, folder)
    exchange.check_target()
    dreaming = open_dreaming(context)
    with dreaming.lock() as mine:
        if not mine:
            raise Busy("another dream is running", where=context.root, next="Try again when it has finished.")
        dreaming.complete()
        chosen = [resolve_session(context, one) for one in sessions]
        if again:
            chosen = find_read_before(context, _FILES, chosen, since)
            limit = limit if chosen else 0
        made, _, _ = dreaming.preview(
            _prepare_parts(context, exchange), sessions=chosen, limit=limit, name=_FILES, holder=exchange.holder, again=again
        )
        named = [one["id"] for one in made["sessions"]]
        count = exchange.write(named, again=again)
        dreaming.leases.take(named, exchange.holder, _FILES_LEASE_S)
    tokens = sum(len(one.system) + len(one.user) for one in exchange.missing.values()) // 4
    return {"folder": folder, "requests": count, "sessions": named, "tokens": tokens}


def dream_import(context: KeepContext, folder: str) -> dict[str, Any]:
    from dreamkeep.dream.backends.model.exchange import Exchange

    folder = os.path.abspath(folder)
    exchange = Exchange(context.host, folder)
    made = _take_answers(context, exchange, name=_FILES)
    if made["lock"] != "acquired":
        return {**made, "folder": folder, "requests": None, "answers": 0, "problems": []}
    sessions = exchange.sessions()
    left = exchange.write(sessions)
    leases = open_dreaming(context).leases
    if left:
        leases.take(
            [one for one in sessions if one not in leases.held_sessions(but=exchange.holder)], exchange.holder, _FILES_LEASE_S
        )
    else:
        leases.release(exchange.holder)
    return {**made, "folder": folder, "requests": left, "answers": exchange.answered, "problems": exchange.problems}


def _take_answers(context: KeepContext, exchange: Exchange, *, name: str, part_tokens: int | None = None) -> dict[str, Any]:
    """Run a dream over those of the folder's sessions that still exist."""
    sessions = exchange.sessions()
    there = context.ask(lambda store: [one for one in sessions if store.session(one) is not None])
    made = run_dream(
        context,
        _prepare_parts(context, exchange),
        if_due=False,
        sessions=there,
        limit=None if there else 0,
        name=name,
        holder=exchange.holder,
        part_tokens=part_tokens,
        again=exchange.from_beginning,
    )
    partial = exchange.missing and made["status"] == "completed"
    return {**made, **({"status": "partial"} if partial else {})}


def _prepare_parts(context: KeepContext, exchange: Exchange) -> Callable[[], Parts]:
    from dreamkeep.dream.assemble import assemble_for

    return lambda: assemble_for(exchange, open_known_files(context))


# -- the agent at hand


def dream_next(context: KeepContext, session: str = "", *, again: bool = False) -> dict[str, Any]:
    chosen = resolve_session(context, session) if session else ""
    tried: set[str] = set()
    while True:
        found = _find_offer(context, chosen, tried, again or bool(chosen and _open_exchange(context, chosen).from_beginning))
        if "offer" in found:
            return dict(found["offer"])
        if found["settle"] is None:
            return {"request": None, "session": chosen, "requests_left": 0, "sessions_left": 0, "why": found["why"]}
        # There is nothing to ask about it, so it is read without.
        tried.add(found["settle"])
        _settle_session(context, found["settle"], again=found["again"])


def _find_offer(context: KeepContext, chosen: str, tried: set[str], again: bool) -> dict[str, Any]:
    """`offer`: what the agent gets. Or `settle`: a session that needs no more answers; None if nothing is waiting."""
    dreaming = open_dreaming(context, part_tokens=_AGENT_TOKENS)
    with dreaming.lock() as mine:
        if not mine:
            raise Busy("another dream is running", where=context.root, next="Try again when it has finished.")
        dreaming.complete()
        _remove_abandoned(context, dreaming)
        holder = _open_exchange(context, chosen).holder if chosen else ""
        scope = dreaming.scope(if_due=False, sessions=[chosen] if chosen else (), name=_AGENT, holder=holder)
        waiting = [one for one in _select_ended(context, scope.sessions) if one.session not in tried]
        before = [] if waiting else find_read_before(context, _AGENT, [chosen] if chosen else (), None, by="rules")
        before = [one for one in before if one not in tried]
        repeats = bool(again and before)
        if repeats:
            scope = dreaming.scope(if_due=False, sessions=before, name=_AGENT, holder=holder, again=True)
            waiting = _select_ended(context, scope.sessions)
        target = waiting[0].session if waiting else ""
        made = _make_request(context, dreaming, target, again=repeats)
    if made is not None:
        return {"offer": {**made, "sessions_left": max(0, len(waiting) - 1)}}
    if target:
        return {"settle": target, "again": repeats}
    hint = f"; only rules have read {len(before)}: again=true rereads them" if before else ""
    return {"settle": None, "why": scope.why if chosen else f"no sessions are waiting{hint}"}


def _make_request(context: KeepContext, dreaming: Dreaming, session: str, *, again: bool) -> dict[str, Any] | None:
    """The first request about a session ("": about notes that were not compared yet). None if there is nothing to ask."""
    exchange, named, dead = _open_exchange(context, session), [session] if session else [], _read_tombstones(context)
    if not session and "" in dreaming.leases.held_sessions():
        return None
    limit = None if session else 0
    dreaming.preview(
        _prepare_parts(context, exchange), sessions=named, limit=limit, name=_AGENT, holder=exchange.holder, again=again
    )
    if not exchange.missing:
        return None
    exchange.write(named, again=again)
    dreaming.leases.take([session], exchange.holder, _AGENT_LEASE_S)
    dead.follow()
    if dead.buried:  # its words must not stay: the deletion may have looked here before we wrote
        _remove_exchange(context, EXCHANGE)
        raise Busy("the session has been deleted", where="dream_next", next="Call `dream_next` again.")
    return _show_request(exchange, session)


def dream_submit(context: KeepContext, request: str, answer: object) -> dict[str, Any]:
    if not _REQUEST_ID.fullmatch(request):
        raise BadUsage("this is not the id of a request", where="request", next="Give the `id` that `dream_next` returned.")
    if len(json.dumps(answer, ensure_ascii=False)) > _LONGEST_ANSWER:
        raise BadUsage("the answer is too long", where="answer", next=f"Keep it below {_LONGEST_ANSWER >> 10} KiB.")
    session = _find_session(context, request)
    exchange, dead = _open_exchange(context, session), _read_tombstones(context)
    exchange.put_answer(request, answer)
    made = _take_answers(context, exchange, name=_AGENT, part_tokens=_AGENT_TOKENS)
    if made["lock"] != "acquired":
        way = f"The answer is kept. Call `dream_next` with session={session!r} later."
        raise Busy("another dream is running", where="dream_submit", next=way)
    dead.follow()
    _leave_exchange(context, exchange, session, deleted=bool(dead.buried))
    following = None if dead.buried else _show_request(exchange, session)
    return {**made, "session": session, "problems": exchange.problems, "next": following}


def _leave_exchange(context: KeepContext, exchange: Exchange, session: str, *, deleted: bool) -> None:
    """Leave the folder with the open requests, or remove it if there are none."""
    leases = open_dreaming(context).leases
    if exchange.missing and not deleted:
        exchange.write([session] if session else [])
        leases.take([session], exchange.holder, _AGENT_LEASE_S)
    else:
        leases.release(exchange.holder)
        _remove_exchange(context, EXCHANGE if deleted else _find_place(session))


def _settle_session(context: KeepContext, session: str, *, again: bool) -> None:
    """Read a session whose requests are all answered, or that needs none."""
    exchange = _open_exchange(context, session)
    if not exchange.is_there():
        exchange.write([session], again=again)
    made = _take_answers(context, exchange, name=_AGENT, part_tokens=_AGENT_TOKENS)
    if made["lock"] != "acquired":
        raise Busy("another dream is running", where="dream_next", next="Try again when it has finished.")
    _leave_exchange(context, exchange, session, deleted=False)


def _find_session(context: KeepContext, request: str) -> str:
    """The session that a request is about; "" for a request about notes."""
    for exchange in _list_exchanges(context):
        if exchange.asks(request) and exchange.is_there():
            return next(iter(exchange.sessions()), "")
    raise NotFound(
        "this request is no longer open: it was answered, its 30 minutes are over, or its session was deleted",
        where=request,
        next="Call `dream_next` for the next one.",
    )


def _list_exchanges(context: KeepContext) -> list[Exchange]:
    from dreamkeep.dream.backends.model.exchange import Exchange

    root = f"{context.root}/{EXCHANGE}"
    names = sorted(context.host.names(root)) if context.host.stat(root) else []
    return [Exchange(context.host, f"{root}/{name}", batches=False) for name in names]


def _open_exchange(context: KeepContext, session: str) -> Exchange:
    from dreamkeep.dream.backends.model.exchange import Exchange

    return Exchange(context.host, f"{context.root}/{_find_place(session)}", batches=False)


def _select_ended(context: KeepContext, sessions: Sequence[DreamProgress]) -> list[DreamProgress]:
    """The sessions that have ended: one that goes on may be the one that asks."""
    from dreamkeep.session.summary import ENDED

    def ended(store: Store) -> list[DreamProgress]:
        found = ((one, store.session(one.session)) for one in sessions)
        return [one for one, summary in found if summary is not None and summary.state == ENDED]

    return context.ask(ended)


def _remove_abandoned(context: KeepContext, dreaming: Dreaming) -> None:
    """Remove requests whose half hour is over; they will be asked again."""
    holders = dreaming.leases.holders()
    for exchange in _list_exchanges(context):
        try:
            held = exchange.is_there() and exchange.holder in holders
        except BadUsage:
            held = False  # unreadable
        if not held:
            _remove_exchange(context, f"{EXCHANGE}/{exchange.name}")


def _remove_exchange(context: KeepContext, place: str) -> None:
    try:
        remove_tree(context.host, f"{context.root}/{place}")
    except OSError as problem:
        raise from_os(problem, "removing requests", f"{context.root}/{place}") from problem


def _read_tombstones(context: KeepContext) -> Tombstones:
    from dreamkeep.journal.tombs import Tombstones

    at, dead = context.ask(lambda store: (store.place(KEEP), set(store.tombstones())))
    return Tombstones(context.host, context.root, at.position if at else None, dead)


def _find_place(session: str) -> str:
    """Where a session's requests are, relative to the keep; "" for requests about notes."""
    return f"{EXCHANGE}/{os.path.basename(folder_of(session)) if session else _MERGE}"


def _show_request(exchange: Exchange, session: str) -> dict[str, Any] | None:
    """The first open request as an answer, or None."""
    asked = next(iter(exchange.missing.values()), None)
    if asked is None:
        return None
    return {"request": asked.as_json(), "session": session, "requests_left": len(exchange.missing) - 1}
