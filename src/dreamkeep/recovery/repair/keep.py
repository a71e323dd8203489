"""Repairs of the keep itself: its journals, views and book-keeping, by the names in `faults.py`. The rules are in
`context.py`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping

from dreamkeep.capture.find import Trouble, named
from dreamkeep.capture.hooks import spool
from dreamkeep.capture.hooks.drain import drain, named_session
from dreamkeep.capture.ingest import Ingest
from dreamkeep.capture.sources import source_bytes
from dreamkeep.capture.sources.source_cache import NAME as SOURCES
from dreamkeep.capture.sources.source_cache import Cache
from dreamkeep.errors import DreamkeepError
from dreamkeep.event import Carry, Event, Kind, rfc3339
from dreamkeep.host import Host, exclusive_lock, read_file
from dreamkeep.host.liveness import is_held
from dreamkeep.index import open as index
from dreamkeep.journal import parts, witness
from dreamkeep.journal.frame import Frame, body_of, parse
from dreamkeep.journal.open_state import survey
from dreamkeep.journal.places import KEEP, folder_of
from dreamkeep.journal.reader import Reading
from dreamkeep.journal.scan import events, read_events
from dreamkeep.recovery.audit.compare_source import carried_in, lacks
from dreamkeep.recovery.faults import MENDED, Fault, MendResult, not_mended
from dreamkeep.recovery.repair.context import PlanContext, RepairContext
from dreamkeep.recovery.repair.movable import why_not as why_not_kept
from dreamkeep.recovery.repair.reread import journal_mended, recapture
from dreamkeep.session.raw import unpack
from dreamkeep.session.summary import STATE_AFTER
from dreamkeep.session.turns import INTERRUPTED, SETTLED

_INDEX_WAIT_S = 10.0
_CAPTURED = frozenset((Kind.SOURCE_READ, Kind.SOURCE_ROWS))
#: Events with capture's cursors: appended again later, they would be about what came since.
_ABOUT_SOURCES = _CAPTURED | {Kind.SOURCE_OPENED, Kind.SOURCE_CHANGED}
_NAMELESS = "it is unknown which session this journal holds"

# -- journals


def session_of(fault: Fault) -> str | None:
    """The session whose journal it is ("": the keep's own); None when that is unknown."""
    session = str(fault.about.get("session", ""))
    name = folder_of(session) if session else KEEP
    return session if fault.about.get("journal", name) == name else None


def settle(context: RepairContext, fault: Fault) -> MendResult:
    """Do what the next append would: set the tail aside and cut it, or add a missing line feed."""
    session = session_of(fault)
    if session is None:
        return not_mended(_NAMELESS)
    writer = context.journals.writer(session)
    writer.append([])
    if survey(context.host, writer.folder).tail is not None:
        place = {"kind": "tail", "part": fault.about["part"], "at": fault.about["at"], "size": 0}
        context.journals.say(session, Kind.JOURNAL_MENDED, {"faults": [place], "how": "noted"})
    _look_where_behind(context, session)
    return MENDED


def note(context: RepairContext, fault: Fault) -> MendResult:
    """Nothing is lost, so only a frame is appended that says the fault was seen."""
    if session_of(fault) is None:
        return not_mended(_NAMELESS)
    journal_mended(context, fault, "noted")
    return MENDED


def _take_again(context: RepairContext, fault: Fault) -> MendResult:
    return recapture(context, fault) if session_of(fault) is not None else not_mended(_NAMELESS)


def readd(context: RepairContext, fault: Fault) -> MendResult:
    """Append again what was written under a used seq, with its own id, together with a frame that says so."""
    session = session_of(fault)
    if session is None:
        return not_mended(_NAMELESS)
    folder = context.journals.writer(session).folder
    broken: list[int] = []
    frames = list(_frames_at(context.host, folder, fault))
    hidden = [event for _, event in events(frames, broken)]
    if broken:
        return not_mended("it is one piece of several, and the others are missing")
    if not all(_is_here(context.host, folder, frame) for frame in frames if frame["kind"] in _CAPTURED):
        return not_mended("these lines come from a transcript elsewhere; `dreamkeep ingest --again` reads it again")
    known = {frame["id"] for frame in Reading(context.host, folder)}
    carried = context.journals.writer(session).all_carried()
    lost = [event for event in hidden if event.id not in known and event.kind not in _ABOUT_SOURCES]
    to_append = [_without_old_carry(event, carried) for event in lost if not _is_overtaken(event, carried)]
    body = {"faults": [dict(fault.about["mend"])], "how": "readded"}
    mended = Event(context.ids.new(), Kind.JOURNAL_MENDED, rfc3339(context.host.now()), body)
    context.ledger.will_append([event.id for event in to_append])
    context.journals.append(session, [*to_append, mended])
    return MENDED


def _frames_at(host: Host, folder: str, fault: Fault) -> Iterator[Frame]:
    about = fault.about
    with parts.stream(host, folder, about["part"], about["at"]) as source:
        for line in source.read(about["size"]).split(b"\n"):
            if frame := parse(line):
                yield {**frame, "raw": line}


def _is_here(host: Host, folder: str, frame: Frame) -> bool:
    """Whether the lines of a captured stretch can be read elsewhere in the journal."""
    if "chunked" in frame or frame["kind"] == Kind.SOURCE_ROWS:
        return False
    own = unpack(body_of(frame["raw"], frame))
    here = {line.rstrip(b"\n") for line in source_bytes.lines(host, folder, str(frame["body"]["source"]))}
    return here.issuperset(own)


def _is_overtaken(event: Event, carried: Carry) -> bool:
    """A title or a state that was set again since. Appended now, it would count as the last one."""
    return (event.kind in STATE_AFTER or event.kind == Kind.SESSION_TITLED) and any(key in carried for key in event.carry or {})


def _without_old_carry(event: Event, carried: Carry) -> Event:
    """Without values that the journal carries already: a newer value or cursor must not go back."""
    fresh = {key: value for key, value in (event.carry or {}).items() if key not in carried}
    return event._replace(carry=fresh or None)


def finish_compress(context: RepairContext, fault: Fault) -> MendResult:
    """Remove the plain form, once the compressed one is proven equal."""
    session = session_of(fault)
    if session is None:
        return not_mended(_NAMELESS)
    folder = f"{context.root}/{fault.about['journal']}"
    part = int(fault.about["part"])
    path = f"{folder}/{parts.name(part)}"
    context.ledger.journal(session)
    context.ledger.keep_copy(path, session=session)
    last = part >= parts.numbers(context.host, folder)[-1]
    parts.compress(context.host, folder, part, last=last)
    context.ledger.note_removed([path])
    if context.host.stat(path) is None:
        return MENDED
    return not_mended("its two forms are not proven equal, or something is writing to it")


# -- views and caches


def rebuild(context: RepairContext, fault: Fault) -> MendResult:
    """Build the index again from the journals; it is a view."""
    if index.FILE not in context.ledger.made:
        done = _make_index(context)
        if not done.mended:
            return done
        _look_where_behind(context)
        context.ledger.made.add(index.FILE)
    if fault.session:
        look_again(context, fault.session)
    return MENDED


def _make_index(context: RepairContext) -> MendResult:
    paths = [f"{context.root}/{index.FILE}{suffix}" for suffix in ("", "-wal", "-shm")]
    with exclusive_lock(context.host, f"{context.root}/{index.LOCK}", wait_s=_INDEX_WAIT_S):
        for path in filter(lambda path: _is_folder(context.host, path), paths):
            moved = _set_aside(context, path, "")
            if not moved.mended:
                return moved
        settled = context.ledger.about_to_change(paths)
        if not index.is_of_other_version(context.host, context.root):  # an old version's knowledge goes to the witness first
            index.take_away(context.host, context.root)
    context.rebuild()
    settled()
    return MENDED


def renew_witness(context: RepairContext, fault: Fault) -> MendResult:
    """Keep what can be read of the witness; the indexer adds what the journals have now."""
    path = f"{context.root}/{witness.FILE}"
    with witness.lock_witness(context.host, context.root):
        data = witness.mended(context.host, context.root)
        if context.host.stat(path) is None:
            return context.ledger.publish(path, data)
        return context.ledger.replace(path, data)


def _is_folder(host: Host, path: str) -> bool:
    found = host.stat(path)
    return found is not None and found.is_folder


def look_again(context: RepairContext, session: str) -> None:
    """The journal is not as capture saw it, so capture must forget what it remembers about the session's files."""
    cache = Cache(context.host, context.root)
    cache.forget_session(session)
    _save(context, cache)


def _look_where_behind(context: RepairContext, session: str = "") -> None:
    """Where a journal carries less than capture remembers, make the next ingest read the file even if it looks unchanged.
    Capture's memory stays, because an audit finds the loss by it. `session`: only this one's journal."""
    cache = Cache(context.host, context.root)
    for path, agent, native, role, _, word in list(cache.captured()):
        if session in ("", f"{agent}:{native}"):
            folder = f"{context.root}/{folder_of(f'{agent}:{native}')}"
            try:
                behind = lacks(context.host, carried_in(context.host, folder), role, path, word)
            except (OSError, DreamkeepError):
                continue  # what is wrong with that journal is reported as a fault of its own
            if behind:
                cache.look_again(path)
    _save(context, cache)


def _save(context: RepairContext, cache: Cache) -> None:
    if cache.changed:
        done = context.ledger.about_to_change([f"{context.root}/{SOURCES}"])
        cache.save()
        done()


def drain_spool(context: RepairContext, fault: Fault) -> MendResult:
    """Drain the spool, and read the transcripts that hooks named."""
    host, root = context.host, context.root
    if context.off:
        return not_mended("capture is off; the calls are kept until it is on again")
    calls = _spooled(host, root)
    for path, session in calls:
        context.ledger.keep_copy(path, session=session)
    done = context.ledger.about_to_change([f"{root}/{SOURCES}"])
    ingest = Ingest(host, root, context.journals, context.ids, exclude=context.exclude)

    def read_source(agent: str, path: str) -> None:
        found = [one for one in named(host, path, [agent]) if not isinstance(one, Trouble)] if path else []
        for _ in ingest.run(found):
            pass  # the next ingest reads what can't be read now

    drained = drain(host, root, context.journals, context.ids, exclude=context.exclude, read_source=read_source)
    done()
    left_over = {os.path.basename(path) for path, _ in _spooled(host, root)}
    context.ledger.note_removed([path for path, _ in calls if os.path.basename(path) not in left_over])
    if drained.busy:
        return not_mended("another process is draining the spool")
    return not_mended("; ".join(drained.problems)) if left_over else MENDED


def _spooled(host: Host, root: str) -> list[tuple[str, str]]:
    """(path, session) of every waiting call, in a batch or not."""
    folder = f"{root}/{spool.SPOOL}"
    found = [f"{folder}/{entry.name}" for entry in spool.entries(spool.names(host, root))]
    for batch in filter(spool.is_batch, spool.names(host, root)):
        found += [f"{folder}/{batch}/{entry.name}" for entry in spool.entries(host.names(f"{folder}/{batch}"))]
    return [(path, _session_of_call(host, path)) for path in found]


def _session_of_call(host: Host, path: str) -> str:
    entry = spool.entry(os.path.basename(path))
    return named_session(entry.agent, read_file(host, path)) if entry else ""


def set_aside(context: RepairContext, fault: Fault) -> MendResult:
    """Remove it; the ledger keeps its bytes, and the modes of folders."""
    return _set_aside(context, str(fault.about["path"]), fault.session)


def _set_aside(context: RepairContext, path: str, session: str) -> MendResult:
    if unsafe := why_not_kept(context.host, path):
        return not_mended(unsafe)
    found = context.host.stat(path)
    if found is None:
        return MENDED
    if not path.startswith(f"{context.root}/"):
        return not_mended("it is not in the keep")
    if not found.is_folder:
        return context.ledger.remove(path, session=session)
    for name in context.host.names(path):
        done = _set_aside(context, f"{path}/{name}", session)
        if not done.mended:
            return done
    return context.ledger.remove_folder(path)


def sweep(context: RepairContext, fault: Fault) -> MendResult:
    """Remove a lock file that nobody holds."""
    path = str(fault.about["path"])
    if is_held(context.host, path):
        return not_mended("another process holds it")
    return context.ledger.remove(path)


def close_mode(context: RepairContext, fault: Fault) -> MendResult:
    return context.ledger.set_mode(str(fault.about["path"]), int(fault.about["wanted"]))


# -- sessions


def settle_turn(context: RepairContext, fault: Fault) -> MendResult:
    """Record that the turn was interrupted. Its prompt stays, and a completion that comes later still wins."""
    session, turn = str(fault.about["session"]), str(fault.about["turn"])
    if context.alive(str(fault.about["owner"])):
        return not_mended("its owner is running")
    if not _is_settled(context.host, f"{context.root}/{folder_of(session)}", turn):
        body = {"turn": turn, "state": INTERRUPTED, "reason": "its owner has ended", "recovered": True}
        context.journals.say(session, Kind.TURN_SETTLED, body)
    return MENDED


def _is_settled(host: Host, folder: str, turn: str) -> bool:
    return any(
        event.kind == Kind.TURN_SETTLED and event.body.get("turn") == turn and event.body.get("state") in SETTLED
        for _, event in read_events(host, folder)
    )


def close_compaction(context: RepairContext, fault: Fault) -> MendResult:
    session, about = str(fault.about["session"]), fault.about
    body = {"compaction": about["compaction"], "opened_at": about.get("opened_at"), "closing": about["closing"]}
    folder = f"{context.root}/{folder_of(session)}"
    if not any(event.kind == Kind.COMPACTION_CLOSED and event.body == body for _, event in read_events(context.host, folder)):
        context.journals.say(session, Kind.COMPACTION_CLOSED, body)
    return MENDED


ACTIONS: Mapping[str, Callable[[RepairContext, Fault], MendResult]] = {
    "settle": settle,
    "recapture": _take_again,
    "note": note,
    "readd": readd,
    "finish_compress": finish_compress,
    "rebuild": rebuild,
    "renew_witness": renew_witness,
    "drain": drain_spool,
    "set_aside": set_aside,
    "sweep": sweep,
    "settle_turn": settle_turn,
    "close_compaction": close_compaction,
    "close_mode": close_mode,
}

#: The audit finds out whether these can be done.
CHECKS: Mapping[str, Callable[[PlanContext, Fault], str]] = {}
