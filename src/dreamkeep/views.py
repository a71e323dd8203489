"""What a store says, as the contract's JSON. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from dreamkeep.index.store import Store
from dreamkeep.journal.places import folder_of
from dreamkeep.journal.reader import Fault
from dreamkeep.session.messages import Message
from dreamkeep.session.segments import Folding
from dreamkeep.session.segments import live as live_view
from dreamkeep.session.summary import ENDED, Summary
from dreamkeep.session.turns import INTERRUPTED, STARTED, SUBMITTED, Turn, seen

Alive = Callable[[str], bool]
#: What else a captured session says of itself.
_ABOUT = ("branch", "model", "version")


def session(summary: Summary) -> dict[str, Any]:
    return {**summary._asdict(), "lineage": [{"kind": kind, "session": other} for kind, other in summary.lineage]}


def session_whole(store: Store, session_id: str, alive: Alive, now: str, *, live: bool = False) -> dict[str, Any]:
    summary = store.session(session_id)
    assert summary is not None, "the caller has resolved the id"
    state = json.loads(store.state(session_id))
    turns = [seen(t, alive) for t in store.turns(session_id)]
    place = store.place(folder_of(session_id))
    last = place.position.seq if place else 0
    folding = Folding(summary.native_id, state.get("segments"))
    view = folding.view(now, alive, (last, 0) if summary.state == ENDED else None, session=session_id)
    shown = {
        "session": {**session(summary), **{key: state[key] for key in _ABOUT if key in state}},
        "turns": [turn(t) for t in turns],
        "segments": [s._asdict() for s in view.segments],
        "compactions": [c._asdict() for c in view.compactions],
        "messages": [message(m, view.segment_at((m.seq, m.n)).id) for m in store.messages(session_id)],
        "faults": [fault(f) for owner, f in store.faults() if owner == session_id],
    }
    for key in ("unknown", "odd"):
        if state.get(key):
            shown[key] = state[key]
    if live:
        running = [t for t in turns if t.state in (SUBMITTED, STARTED)]
        owners = [view.owner, *(t.owner for t in running)]
        shown["live"] = live_view(
            view,
            owner_alive=any(owner and alive(owner) for owner in owners),
            active_turn=running[-1].id if running else None,
        )
    return shown


def turn(t: Turn) -> dict[str, Any]:
    shown = {
        "id": t.id,
        "state": t.state,
        "prompt": t.prompt,
        "submitted_at": t.submitted_at,
        "started_at": t.started_at,
        "settled_at": t.settled_at,
    }
    return {**shown, "reason": t.reason} if t.reason else shown


def message(m: Message, segment: str) -> dict[str, Any]:
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


def fault(f: Fault) -> dict[str, Any]:
    return {**f._asdict(), "missing": [list(span) for span in f.missing]}


def status(root: str, exists: bool, off: bool, store: Store, alive: Alive) -> dict[str, Any]:
    counts = store.counts()
    waiting = [seen(t, alive) for _, t in store.unsettled()]
    interrupted = sum(t.state == INTERRUPTED for t in waiting)
    return {
        "keep": root,
        "exists": exists,
        "off": off,
        "sessions": counts.sessions,
        "turns": counts.turns,
        "messages": counts.messages,
        "bytes": counts.bytes,
        "turns_running": len(waiting) - interrupted,
        "turns_interrupted": interrupted,
        "faults": counts.faults,
        "deleted": len(store.tombstones()),
    }
