"""Repairs of what interrupted dreams left: a page that was not written, a run that never ended. The rules are in `context.py`.

A page gets the region that was published last; everything outside of the region stays. A run is ended with what it had done. The
session that it was reading counts as tried once more, so that a session at which every dream dies is not tried for ever. The next
dream does the same before anything else, so nobody has to run this repair.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Any

from dreamkeep.event import Event, Ids, Kind, rfc3339
from dreamkeep.host import Host, exclusive_lock, read_file
from dreamkeep.journal.places import KEEP
from dreamkeep.journal.scan import read_events
from dreamkeep.journal.writers import JournalWriters
from dreamkeep.memory import page
from dreamkeep.memory.dreams import COMPLETED, FAILED, PENDING, RUNNING, DreamProgress, DreamRun
from dreamkeep.memory.memory import fold
from dreamkeep.recovery.audit.dreams import DREAM_LOCK, PAGE_LOCK
from dreamkeep.recovery.faults import MENDED, Fault, MendResult, not_mended
from dreamkeep.recovery.repair.context import PlanContext, RepairContext

_WAIT_S = 5.0
_DIED = "the process that dreamed is gone"
_NOT_READ = "the process that dreamed was gone before its turn came"
#: As a run's report counts them.
_COUNTED = {
    "added": (Kind.NOTE_ADDED,),
    "strengthened": (Kind.NOTE_STRENGTHENED,),
    "superseded": (Kind.NOTE_SUPERSEDED,),
    "retracted": (Kind.NOTE_RETRACTED, Kind.NOTE_EXPIRED),
}


def _lock(context: RepairContext, name: str) -> AbstractContextManager[None]:
    return exclusive_lock(context.host, f"{context.root}/{name}", wait_s=_WAIT_S)


def _read_events(host: Host, root: str) -> list[Event]:
    return [event for _, event in read_events(host, f"{root}/{KEEP}")]


# -- pages


def write_page(context: RepairContext, fault: Fault) -> MendResult:
    """Write the region that was published last into the file, or into a new one; everything outside of it stays."""
    project, name = str(fault.about["project"]), str(fault.about["page"])
    with _lock(context, PAGE_LOCK):
        last = fold(_read_events(context.host, context.root)).pages.get(f"{project}\0{name}")
        if last is None or "erased" in last or not last.get("region"):
            return not_mended("what was published there is unknown; `dreamkeep dream` writes the page again")
        done = _put(context, str(fault.about["path"]), last)
        if done.mended and not last.get("written"):
            context.journals.say("", Kind.PAGE_WRITTEN, {"project": project, "path": name})
        return done


def _put(context: RepairContext, path: str, last: Mapping[str, Any]) -> MendResult:
    region, seen = str(last["region"]), context.host.stat(path)
    if seen is None:
        context.ledger.make_folders(os.path.dirname(path))
        return context.ledger.publish(path, _bytes(page.replace_region("", region)))
    text = read_file(context.host, path).decode("utf-8", "surrogateescape")
    found = page.parse(text)
    now = (found.region or "").replace("\r\n", "\n")
    if found.problem or found.region is None or now not in (region, last.get("before")):
        return not_mended("it has changed since")
    return MENDED if now == region else context.ledger.replace(path, _bytes(page.replace_region(text, region)), seen=seen)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


# -- runs


def end_dream(context: RepairContext, fault: Fault) -> MendResult:
    """Record that the run ended, and what it had done. The next dream reads what it was reading."""
    with _lock(context, DREAM_LOCK):
        mark_over(context.host, context.root, context.journals, context.ids, str(fault.about["run"]))
    return MENDED


def mark_over(host: Host, root: str, journals: JournalWriters, ids: Ids, id: str) -> None:
    """Call this under the dream's lock: then a run that has not ended is dead."""
    events = _read_events(host, root)
    memory = fold(events)
    run = memory.runs.get(id)
    if run is None or run.is_over:
        return
    in_hand = _in_hand(events, id)
    was = [one for one in memory.dreamed.values() if one.run == id]
    of_it = [_put_down(one, in_hand) if one.status == RUNNING else one for one in was]
    bodies = [
        {"run": id, "session": one.session, "upto": one.read, "status": one.status, "reason": one.failure}
        for one, before in zip(of_it, was, strict=True)
        if before.status == RUNNING
    ]
    now = rfc3339(host.now())
    ended = Event(ids.new(), Kind.DREAM_FINISHED, now, {"run": id, "report": _report(run, of_it, events, now)})
    journals.append("", [*(Event(ids.new(), Kind.DREAM_READ, now, body) for body in bodies), ended])


def _in_hand(events: Iterable[Event], run: str) -> str:
    """The session that the run was reading last: its first one, until an event says which comes next."""
    last = ""
    for event in events:
        if event.kind == Kind.DREAM_STARTED and event.body.get("run") == run:
            listed = event.body.get("sessions")
            first = listed[0] if isinstance(listed, list) and listed else None
            last = str(first.get("session", "")) if isinstance(first, dict) else ""
        elif event.kind == Kind.DREAM_READ and event.body.get("run") == run:
            last = str(event.body.get("next", ""))
    return last


def _put_down(one: DreamProgress, in_hand: str) -> DreamProgress:
    """The session in hand has been tried: one at which every dream dies must not be tried for ever. The others are as before."""
    if one.session == in_hand:
        return one._replace(status=FAILED, failure=_DIED)
    return one._replace(status=FAILED) if one.attempts else one._replace(status=PENDING, failure="")


def _report(run: DreamRun, of_it: list[DreamProgress], events: list[Event], now: str) -> dict[str, Any]:
    """The report as the run itself would have written it. What it used of a model is unknown."""
    did = Counter(event.kind for event in events if event.body.get("run") == run.id)
    good, failed = (sum(one.status == status for one in of_it) for status in (COMPLETED, FAILED))
    sessions = [_describe_failure(one) for one in of_it]
    return {
        "run": run.id,
        "trigger": run.trigger or None,
        "status": "partial" if good else "failed",
        "lock": "acquired",
        "started_at": run.started_at,
        "finished_at": now,
        "considered": len(of_it),
        "waiting": len(of_it) - good,
        "processed": good,
        "failed": failed,
        "insights_added": did[Kind.INSIGHT_ADDED],
        "notes": {name: sum(did[kind] for kind in kinds) for name, kinds in _COUNTED.items()},
        "dropped": [],
        "usage": {},
        "phases": ["backfill", "consolidate", "page"],
        "sessions": sessions,
        "why": _DIED,
    }


def _describe_failure(one: DreamProgress) -> dict[str, str]:
    reason = _NOT_READ if one.status == PENDING else one.failure if one.status == FAILED else ""
    return {"id": one.session, "status": one.status, **({"reason": reason} if reason else {})}


ACTIONS: Mapping[str, Callable[[RepairContext, Fault], MendResult]] = {"write_page": write_page, "end_dream": end_dream}
CHECKS: Mapping[str, Callable[[PlanContext, Fault], str]] = {}
