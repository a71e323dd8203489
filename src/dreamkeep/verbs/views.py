"""Sessions as JSON data (docs/SPEC.md), made from what a store answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from dreamkeep.errors import NotFound
from dreamkeep.index.store import Store
from dreamkeep.journal.places import folder_of
from dreamkeep.journal.reader import JournalDefect
from dreamkeep.session.messages import Message
from dreamkeep.session.summary import ENDED, Summary
from dreamkeep.session.turns import STARTED, SUBMITTED, TurnView, view_turn

if TYPE_CHECKING:
    from dreamkeep.session.compactions.segments import View

Alive = Callable[[str], bool]
#: What a captured session says about itself besides.
_ABOUT = ("branch", "model", "version")


def show_session(summary: Summary) -> dict[str, Any]:
    return {**summary._asdict(), "lineage": [{"kind": kind, "session": other} for kind, other in summary.lineage]}


def show_whole_session(store: Store, session_id: str, alive: Alive, now: str, *, live: bool = False) -> dict[str, Any]:
    with store.reading():  # all of it is of one moment
        return _show_whole(store, session_id, alive, now, live)


def _show_whole(store: Store, session_id: str, alive: Alive, now: str, live: bool) -> dict[str, Any]:
    summary = store.session(session_id)
    if summary is None:  # the caller has resolved the id; but it may have been deleted since
        raise NotFound("no such session", where=session_id, next="`dreamkeep sessions` lists them.")
    import json

    state = json.loads(store.state(session_id))
    turns = [view_turn(t, alive) for t in store.turns(session_id)]
    view = _fold_view(store, summary, state, alive, now)
    said = store.messages(session_id)
    # A result names only the call it answers; people want to see which tool that was.
    named = [m.tool for m in said if m.tool and isinstance(m.tool.get("id"), str) and m.tool.get("name")]
    names = {tool["id"]: tool["name"] for tool in named}
    shown = {
        "session": {**show_session(summary), **{key: state[key] for key in _ABOUT if key in state}},
        "turns": [show_turn(t) for t in turns],
        "segments": [s._asdict() for s in view.segments],
        "compactions": [c._asdict() for c in view.compactions],
        "messages": [show_message(_add_tool_name(m, names), view.segment_at(m.place).id) for m in said],
        "faults": [show_fault(f) for owner, f in store.faults() if owner == session_id],
    }
    for key in ("unknown", "odd"):
        if state.get(key):
            shown[key] = state[key]
    if live:
        shown["live"] = _show_live(view, turns, alive)
    return shown


def _add_tool_name(m: Message, names: Mapping[Any, str]) -> Message:
    if not m.tool or m.tool.get("name") or not isinstance(m.tool.get("id"), str) or m.tool["id"] not in names:
        return m
    return m._replace(tool={**m.tool, "name": names[m.tool["id"]]})


def _show_live(view: View, turns: list[TurnView], alive: Alive) -> dict[str, Any]:
    from dreamkeep.session.compactions.segments import live

    running = [t for t in turns if t.state in (SUBMITTED, STARTED)]
    owners = [view.owner, *(t.owner for t in running)]
    return live(
        view, owner_alive=any(owner and alive(owner) for owner in owners), active_turn=running[-1].id if running else None
    )


def _fold_view(store: Store, summary: Summary, state: dict[str, Any], alive: Alive, now: str) -> View:
    from dreamkeep.session.compactions.segments import Folding

    place = store.place(folder_of(summary.id))
    last = place.position.seq if place else 0
    folding = Folding(summary.native_id, state.get("segments"))
    return folding.view(now, alive, (last, 0) if summary.state == ENDED else None, session=summary.id)


def show_lineage(store: Store, session_id: str) -> dict[str, Any]:
    """Edges lead from a child to its parent. A loop, which a damaged file may claim, is followed once."""
    parents = {one.id: one.lineage for one in store.sessions()}
    children: dict[str, list[tuple[str, str]]] = {}
    for child, edges in parents.items():
        for kind, parent in edges:
            children.setdefault(parent, []).append((kind, child))
    known = {session_id}

    def walk(start: str, edges: Callable[[str], Iterable[tuple[str, str]]]) -> list[dict[str, str]]:
        found, todo = [], [start]
        for at in todo:
            for kind, other in edges(at):
                if other not in known:
                    known.add(other)
                    todo.append(other)
                    found.append({"kind": kind, "session": other, "of" if edges is up else "from": at})
        return found

    def up(at: str) -> Iterable[tuple[str, str]]:
        return parents.get(at, ())

    return {"ancestors": walk(session_id, up), "descendants": walk(session_id, lambda at: children.get(at, []))}


def show_turn(t: TurnView) -> dict[str, Any]:
    shown = {
        "id": t.id,
        "state": t.state,
        "prompt": t.prompt,
        "submitted_at": t.submitted_at,
        "started_at": t.started_at,
        "settled_at": t.settled_at,
    }
    return {**shown, "reason": t.reason} if t.reason else shown


def show_message(m: Message, segment: str) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "seq": f"{m.seq}.{m.n}" if m.n else m.seq,
        "role": m.role,
        "text": m.text,
        "at": m.at,
        "turn": m.turn,
        "segment": segment,
    }
    if m.tool is not None:
        shown["tool"] = m.tool
    if m.mark:
        shown["mark"] = m.mark
    return shown


def show_fault(f: JournalDefect) -> dict[str, Any]:
    return {**f._asdict(), "missing": [list(span) for span in f.missing]}


def show_running(store: Store, session_id: str, alive: Alive, now: str) -> dict[str, Any]:
    import json

    summary = store.session(session_id)
    assert summary is not None, "it has turns"
    turns = [view_turn(t, alive) for t in store.turns(session_id)]
    view = _fold_view(store, summary, json.loads(store.state(session_id)), alive, now)
    return {"session": session_id, "title": summary.title, **_show_live(view, turns, alive)}
