"""What a store says, as the contract's JSON. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dreamkeep.index.store import Store
from dreamkeep.journal.places import folder_of
from dreamkeep.journal.reader import Fault
from dreamkeep.session.messages import Message
from dreamkeep.session.segments import segments
from dreamkeep.session.summary import ENDED, Summary
from dreamkeep.session.turns import INTERRUPTED, Turn, seen

Alive = Callable[[str], bool]


def session(summary: Summary) -> dict[str, Any]:
    return {**summary._asdict(), "segments": 1, "compactions": 0, "lineage": []}


def session_whole(store: Store, session_id: str, alive: Alive) -> dict[str, Any]:
    summary = store.session(session_id)
    assert summary is not None, "the caller has resolved the id"
    said = store.messages(session_id)
    place = store.place(folder_of(session_id))
    last = place.position.seq if place else 0
    parts = segments(session_id, ended_seq=last if summary.state == ENDED else None)
    return {
        "session": session(summary),
        "turns": [turn(seen(t, alive)) for t in store.turns(session_id)],
        "segments": [s._asdict() for s in parts],
        "compactions": [],
        "messages": [message(m, parts[0].id) for m in said],
        "faults": [fault(f) for owner, f in store.faults() if owner == session_id],
    }


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
    shown = {
        "seq": f"{m.seq}.{m.n}" if m.n else m.seq,
        "role": m.role,
        "text": m.text,
        "at": m.at,
        "turn": m.turn,
        "segment": segment,
    }
    return {**shown, "tool": m.tool} if m.tool is not None else shown


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
