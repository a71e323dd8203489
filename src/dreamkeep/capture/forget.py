"""What captured text of one session lies outside its journal: hook calls that wait in the spool, and the keep's own journal.

The keep's journal has what belongs to no session: frames of a tap before (and between) its sessions, and hook calls that named a
session nobody ever saw. Asked only by a deletion, which must leave no word behind.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

from dreamkeep.capture import spool
from dreamkeep.capture.drain import IDS, LOCK, named_session
from dreamkeep.event import Kind
from dreamkeep.host import Host, lock, read_file
from dreamkeep.journal.frame import Frame, body_of
from dreamkeep.journal.places import KEEP
from dreamkeep.journal.pool import Journals
from dreamkeep.journal.reader import Reading, bodies
from dreamkeep.session import raw

_WAIT_S = 60.0
_TAP = frozenset((Kind.TAP_OPENED, Kind.TAP_FRAMES, Kind.TAP_CLOSED))
#: A shorter id may be a word of somebody else.
_TELLING = 8


def connections(host: Host, folder: str) -> set[str]:
    """The taps through which a session was seen, by its journal."""
    return {frame["body"].get("conn", "") for frame in Reading(host, folder) if frame["kind"] in _TAP and frame["body"]} - {""}


def forget_spooled(host: Host, root: str, session: str) -> None:
    """Calls that wait, and batches that a drainer left. Under its lock: what it has in its hands it journals, and is refused."""
    if host.stat(f"{root}/{spool.SPOOL}") is None:
        return
    handle = host.open_lock(f"{root}/{LOCK}")
    try:
        lock(host, handle, where=f"{root}/{LOCK}", wait_s=_WAIT_S)
        folder = f"{root}/{spool.SPOOL}"
        for name in spool.names(host, root):
            if not spool.is_batch(name):
                _forget_call(host, folder, name, session)
                continue
            whole = spool.whose(name) == spool.whose_is(session)
            for inner in host.names(f"{folder}/{name}"):
                if whole:
                    host.remove(f"{folder}/{name}/{inner}")
                else:
                    _forget_call(host, f"{folder}/{name}", inner, session)
            if whole:
                host.remove_folder(f"{folder}/{name}")
        host.sync_folder(folder)
    finally:
        host.close(handle)


def _forget_call(host: Host, folder: str, name: str, session: str) -> None:
    """A call; also one that a hook which was killed left unfinished: then the id alone must do."""
    finished = spool.finished_name(name)
    entry = spool.entry(finished)
    if entry is None:
        return
    try:
        data = read_file(host, f"{folder}/{name}")
    except FileNotFoundError:
        if finished != name:  # its hook has just finished it
            _forget_call(host, folder, finished, session)
        return
    torn = finished != name and any(mark in data for mark in marks_of(session, ()))
    if torn or named_session(entry.agent, data) == session:
        host.remove(f"{folder}/{name}")


def marks_of(session: str, taps: Collection[str]) -> list[bytes]:
    """Bytes by which something unreadable is known to be of this session. A short id counts where it stands for an id."""
    native = session.partition(":")[2]
    quoted = [json.dumps(session, ensure_ascii=False)]
    if len(native) < _TELLING:
        quoted += [f'"{key}":{space}{json.dumps(native, ensure_ascii=False)}' for key in IDS for space in ("", " ")]
    # As it stands, and as it stands in a text that is itself in JSON.
    inside = [json.dumps(text, ensure_ascii=False)[1:-1] for text in quoted]
    return [text.encode() for text in (*(t for t in (*taps, native) if len(t) >= _TELLING), *quoted, *inside)]


def erase_in_keep(host: Host, root: str, journals: Journals, session: str, taps: Collection[str]) -> int:
    """Out of the keep's own journal, in place. How many frames held something."""
    chunked = _chunked(host, root, session, taps)
    learned = _learned(host, root, session)

    def change(frame: Frame, line: bytes) -> bytes | None:
        if frame["id"].partition(".")[0] in chunked:
            return b""
        if frame["kind"] == Kind.TAP_FRAMES and frame["body"].get("conn") in taps:
            return b""
        if frame["kind"] == Kind.HOOK_FIRED and "calls" in frame["body"]:
            return _without(body_of(line, frame), frame, session)
        if frame["id"] in learned and frame["kind"] == Kind.PAGE_PUBLISHED:
            return _where(frame["body"])
        return b"" if frame["id"] in learned else None

    return journals.writer("").erase(change, marks_of(session, taps))


def _where(body: dict[str, Any]) -> bytes:
    """Of a page only where it lies: it is written anew, and its other notes are told elsewhere."""
    left = {"project": body.get("project", ""), "path": body.get("path", ""), "region": "", "notes": []}
    return json.dumps(left, separators=(",", ":")).encode()


def _learned(host: Host, root: str, session: str) -> set[str]:
    """Frames of what was learned in this session: insights that quote it, and notes, tasks and edits that rest on it alone."""
    from dreamkeep.journal.reader import events

    frames: set[str] = set()
    alone: set[str] = set()  # ids of insights and notes that have nothing else
    for _, event in events(Reading(host, f"{root}/{KEEP}")):
        body = event.body
        if event.kind == Kind.INSIGHT_ADDED:
            quoted = {quote.get("session") for quote in body.get("evidence", ()) if isinstance(quote, dict)}
            if session in quoted:
                frames.add(event.id)
                alone.add(str(body.get("id")))
        elif event.kind == Kind.NOTE_ADDED:
            rests = set(map(str, body.get("insights", ())))
            if rests and rests <= alone:
                frames.add(event.id)
                alone.add(str(body.get("id")))
        elif event.kind in (Kind.NOTE_EDITED, Kind.NOTE_RETRACTED, Kind.NOTE_SUPERSEDED, Kind.NOTE_CLOSED):
            if str(body.get("id")) in alone:
                frames.add(event.id)
        elif event.kind == Kind.TASK_OPENED:
            frames.update([event.id] if body.get("session") == session else ())
        elif event.kind == Kind.PAGE_PUBLISHED and alone & set(map(str, body.get("notes", ()))):
            frames.add(event.id)
    return frames


def _without(body: bytes, frame: Frame, session: str) -> bytes | None:
    """A batch of calls of no session: only those that name this one are emptied."""
    payloads = raw.unpack(body)
    agents = [call.get("agent", "") for call in frame["body"]["calls"]]
    left = [b"{}" if named_session(a, one) == session else one for a, one in zip(agents, payloads, strict=True)]
    if left == payloads:
        return None
    about = {key: value for key, value in frame["body"].items() if key not in ("sizes", "lines")}
    return raw.pack(about, left).raw


def _chunked(host: Host, root: str, session: str, taps: Collection[str]) -> set[str]:
    """Long events of which something is to be erased: then all their pieces go, by the event's id."""
    found = set()
    for frame, body in bodies(Reading(host, f"{root}/{KEEP}", raw=True), (Kind.TAP_FRAMES, Kind.HOOK_FIRED)):
        if "chunked" not in frame:
            continue
        whole = {**frame, "body": json.loads(body)}
        of_tap = whole["body"].get("conn") in taps
        if of_tap or (frame["kind"] == Kind.HOOK_FIRED and _without(body, whole, session) is not None):
            found.add(frame["id"])
    return found
