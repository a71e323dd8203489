"""What captured text of one session lies outside its journal: hook calls that wait in the spool, and the keep's own journal.

The keep's journal has what belongs to no session: frames of a tap before (and between) its sessions, those that named a session
before its agent did (`named`), and hook calls that named a session nobody ever saw. Asked only by a deletion, which must leave no
word behind.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any

from dreamkeep.capture.hooks import spool
from dreamkeep.capture.hooks.drain import IDS, LOCK, named_session
from dreamkeep.event import Event, Kind, RawChunk
from dreamkeep.host import Host, exclusive_lock, read_file
from dreamkeep.journal.frame import Frame, body_of
from dreamkeep.journal.places import KEEP
from dreamkeep.journal.reader import Reading
from dreamkeep.journal.scan import read_bodies, read_events
from dreamkeep.journal.writers import JournalWriters
from dreamkeep.session import raw

_WAIT_S = 60.0
_TAP = frozenset((Kind.TAP_OPENED, Kind.TAP_FRAMES, Kind.TAP_CLOSED))
#: A shorter id may be a word of somebody else.
_TELLING = 8
#: Reasons quote what was said, if need be cut: so much of its beginning tells it.
_TELLING_WORDS = 20
#: What became of an insight or a note: nothing of it is left when that one is gone.
_CHANGES = frozenset(
    (
        *(Kind.INSIGHT_CONFIRMED, Kind.INSIGHT_REJECTED, Kind.INSIGHT_EXPIRED, Kind.NOTE_EDITED, Kind.NOTE_PINNED),
        *(Kind.NOTE_UNPINNED, Kind.NOTE_RETRACTED, Kind.NOTE_SUPERSEDED, Kind.NOTE_CLOSED, Kind.NOTE_EXPIRED, Kind.NOTE_DOUBTED),
        Kind.NOTE_PROMOTED,
    )
)
_TASKS = frozenset((Kind.TASK_OPENED, Kind.TASK_JOINED, Kind.TASK_RENAMED, Kind.TASK_CLOSED))


def connections(host: Host, folder: str) -> set[str]:
    """The taps through which a session was seen, by its journal."""
    said = (frame["body"].get("conn") for frame in Reading(host, folder) if frame["kind"] in _TAP and frame["body"])
    return {conn for conn in said if conn and isinstance(conn, str)}


def forget_spooled(host: Host, root: str, session: str) -> None:
    """Calls that wait, and batches that a drainer left. Under its lock: what it has in its hands it journals, and is refused."""
    if host.stat(f"{root}/{spool.SPOOL}") is None:
        return
    with exclusive_lock(host, f"{root}/{LOCK}", wait_s=_WAIT_S):
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


def _forget_call(host: Host, folder: str, name: str, session: str) -> None:
    """A call; also one that a hook which was killed left unfinished."""
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
    if _is_call_of(session, entry.agent, data):
        host.remove(f"{folder}/{name}")


def _is_call_of(session: str, agent: str, payload: bytes) -> bool:
    """Of what nobody can read (an agent that was held up while it spoke) the id alone must do."""
    named = named_session(agent, payload)
    return named == session if named else any(mark in payload for mark in marks_of(session, ()))


def call_of(host: Host, path: str, name: str) -> str:
    """The session that a hook's call names; "" for none. `name`: as it is called in the spool."""
    entry = spool.entry(spool.finished_name(name.rpartition("/")[2]))
    return named_session(entry.agent, read_file(host, path)) or "" if entry else ""


def marks_of(session: str, taps: Collection[str]) -> list[bytes]:
    """Bytes by which something unreadable is known to be of this session. A short id counts where it stands for an id."""
    native = session.partition(":")[2]
    quoted = [json.dumps(session, ensure_ascii=False)]
    if len(native) < _TELLING:
        quoted += [f'"{key}":{space}{json.dumps(native, ensure_ascii=False)}' for key in IDS for space in ("", " ")]
    # As it stands, and as it stands in a text that is itself in JSON.
    inside = [json.dumps(text, ensure_ascii=False)[1:-1] for text in quoted]
    return [text.encode() for text in (*(t for t in (*taps, native) if len(t) >= _TELLING), *quoted, *inside)]


def erase_in_keep(host: Host, root: str, journals: JournalWriters, session: str, taps: Collection[str]) -> int:
    """Out of the keep's own journal, in place. How many frames held something."""
    chunked = _chunked(host, root, session, taps)
    learned = _learned(host, root, session)

    def change(frame: Frame, line: bytes) -> bytes | None:
        if frame["id"].partition(".")[0] in chunked:
            return b""
        if frame["kind"] == Kind.TAP_FRAMES:
            return _unheard(body_of(line, frame), frame["body"], session, taps)
        if frame["kind"] == Kind.HOOK_FIRED:
            return _without(body_of(line, frame), frame, session)
        whole = frame["id"].partition(".")[0]
        if whole in learned and ("chunked" in frame or frame["kind"] == Kind.CHUNK):
            return b""
        return learned.get(frame["id"])

    return journals.writer("").erase(change, marks_of(session, taps))


def _learned(host: Host, root: str, session: str) -> dict[str, bytes]:
    """By the ids of their frames, what was learned in this session, and what is left of it (b"" for nothing)."""

    learned = Learned(session)
    for _, event in read_events(host, f"{root}/{KEEP}"):
        learned.see(event)
    found = ((event.id, learned.left(event)) for _, event in read_events(host, f"{root}/{KEEP}"))
    return {id: left for id, left in found if left is not None}


class Learned:
    """Insights that quote the session go, with notes, tasks and edits that rest on it alone; what others say, too, stays without
    its words. First every event is to be seen: what a note rests on may be said long after a user changed it."""

    def __init__(self, session: str) -> None:
        self._session = session
        #: Insights that quote it, and what those of others say.
        self._quoting: set[str] = set()
        self._others: dict[str, str] = {}
        #: What each note ever rested on; of which sessions each task ever was ("": a user's own).
        self._rests: dict[str, set[str]] = {}
        self._tasks: dict[str, set[str]] = {}
        #: Titles that a user gave each task.
        self._titles: dict[str, set[str]] = {}
        self._dead = {session}
        #: Notes that rested on it up to an event, for they may have had its words.
        self._touched: set[str] = set()
        self._words: list[str] = []

    def see(self, event: Event) -> None:
        try:
            self._see(event.kind, event.body)
        except (KeyError, TypeError, ValueError, AttributeError):
            pass  # anybody may have written it: what names nothing is nobody's ground

    def _see(self, kind: str, body: Mapping[str, Any]) -> None:
        id = str(body.get("id"))
        if kind == Kind.INSIGHT_ADDED:
            evidence = [one for one in body.get("evidence", ()) if isinstance(one, dict)]
            quotes = [one for one in evidence if one.get("session") == self._session]
            told = [str(body.get("text", "")), *(str(one.get("quote", "")) for one in quotes or evidence)]
            if quotes:
                self._quoting.add(id)
                self._words += told
            else:
                self._others[id] = " ".join(told)
        elif kind in (Kind.NOTE_ADDED, Kind.NOTE_STRENGTHENED):
            self._rests.setdefault(id, set()).update(map(str, body["insights"]))
        elif kind in (Kind.TASK_OPENED, Kind.TASK_JOINED):
            self._tasks.setdefault(id, set()).add(str(body.get("session") or ""))
        elif kind == Kind.TASK_RENAMED:
            self._titles.setdefault(id, set()).add(str(body["title"]))
        elif kind == Kind.SESSION_DELETED:
            self._dead.add(str(body["session"]))
        elif kind == Kind.SESSION_UNDELETED and body["session"] != self._session:
            self._dead.discard(str(body["session"]))

    def left(self, event: Event) -> bytes | None:
        """The body that an event keeps; b"" for none, None when nothing is to be changed."""
        try:
            left = self._left(event.kind, event.body)
        except (KeyError, TypeError, ValueError, AttributeError):
            return b"" if self._quotes(json.dumps(event.body, ensure_ascii=False, default=str)) else None
        return None if left is None else _body(left) if left else b""

    def _left(self, kind: str, body: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """{}: nothing."""
        id = str(body.get("id"))
        if kind == Kind.INSIGHT_ADDED:
            return {} if id in self._quoting else None
        if kind == Kind.INSIGHT_LINKED:
            of_it = not self._quoting.isdisjoint((id, str(body.get("other"))))
            return _but(body, "reason") if of_it and body.get("reason") else None
        if kind in (Kind.NOTE_ADDED, Kind.NOTE_STRENGTHENED):
            return self._note(id, set(map(str, body["insights"])), body)
        if kind in _CHANGES:
            return self._changed(kind, id, body)
        if kind in _TASKS and self._session in self._tasks.get(id, ()):
            return self._task(kind, id, body)
        if kind == Kind.PAGE_PUBLISHED:
            # Of a page only where it lies: it is written anew, and its other notes are told elsewhere.
            where = {"project": body.get("project", ""), "path": body.get("path", ""), "region": "", "notes": []}
            where |= {"instead": body["instead"]} if "instead" in body else {}
            return where if self._touched & set(map(str, body.get("notes", ()))) else None
        if kind == Kind.DREAM_FINISHED:
            return self._report(body)
        of_it = kind == Kind.DREAM_READ and body["session"] == self._session
        reason = str(body.get("reason") or "")
        return _but(body, "reason") if reason and (of_it or self._quotes(reason)) else None

    def _note(self, id: str, rests: set[str], body: Mapping[str, Any]) -> Mapping[str, Any] | None:
        if rests & self._quoting:
            self._touched.add(id)
        if self._is_alone(rests):
            return {}
        told = f"{body.get('text', '')} {body.get('reason', '')}"
        return _but(body, "text", "reason") if self._quotes(told) else None

    def _is_alone(self, rests: set[str]) -> bool:
        """Nobody else says it: those who did may have been deleted before."""
        return bool(rests & self._quoting) and not rests & self._others.keys()

    def _changed(self, kind: str, id: str, body: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """What was done to a note that others say, too, stays, and so do a user's words on it, unless they are this session's."""
        if not (body.get("text") or body.get("reason")):
            return None  # no word is in it, and perhaps no room to erase anything
        # What was confirmed may be nobody's any more, its run undone: then the note that was named is what it speaks of.
        rests = self._rests.get(id, set()) | self._rests.get(str(body.get("note") or ""), set())
        if id in self._quoting or self._is_alone(rests):
            # What it did to other notes quotes it.
            self._words += [str(body[name]) for name in ("text", "was") if body.get(name)]
            return {}
        theirs = " ".join(self._others[one] for one in sorted(rests & self._others.keys()))
        text = str(body.get("text") or "") if rests & self._quoting else ""
        named = ["text"] if self._quotes(text, but=theirs) else []
        if named and kind == Kind.NOTE_EDITED:
            return {}  # an edit is its words
        named += ["was"] if self._quotes(str(body.get("was") or ""), but=theirs) else []
        named += ["reason"] if self._quotes(str(body.get("reason") or "")) else []
        return _but(body, *named) if named else None

    def _task(self, kind: str, id: str, body: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """A task that other sessions joined stays, without the title that this one gave it."""
        if kind != Kind.TASK_OPENED and not (body.get("title") or body.get("reason")):
            return None
        if self._tasks[id] <= self._dead:
            return {}
        if kind == Kind.TASK_OPENED:
            return _but(body, "title") if body.get("session") == self._session else None
        title = str(body.get("title") or "")
        theirs = bool(title) and title not in self._titles.get(id, ())
        if self._quotes(f"{'' if theirs else title} {body.get('reason', '')}"):
            return {}
        return _but(body, "title") if theirs else None

    def _report(self, body: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """A run's report stays, without why this session failed."""
        sessions = body["report"].get("sessions", ())
        if not any(one.get("id") == self._session and one.get("reason") for one in sessions):
            return None
        left = [_but(one, "reason") if one.get("id") == self._session else one for one in sessions]
        return {**body, "report": {**body["report"], "sessions": left}}

    def _quotes(self, text: str, but: str = "") -> bool:
        """`but`: who says these words, too, may have them from there."""
        beginnings = (words[:_TELLING_WORDS] for words in self._words if words)
        return any(one in text and one not in but for one in beginnings)


def left_of(event: Event, learned: Learned, session: str, taps: Collection[str]) -> Event | None:
    """What an event of a keep's own journal is without this session; None for nothing. `learned` has seen all that are told."""
    verbatim = isinstance(event.body, RawChunk)
    body = json.loads(event.body.raw) if isinstance(event.body, RawChunk) else event.body
    if event.kind in (Kind.TAP_FRAMES, Kind.HOOK_FIRED):
        packed = event.body.raw if isinstance(event.body, RawChunk) else json.dumps(body).encode()
    if event.kind == Kind.TAP_FRAMES:
        left = _unheard(packed, body, session, taps)
    elif event.kind == Kind.HOOK_FIRED:
        left = _without(packed, {"body": body}, session) if verbatim and "calls" in body else None
    else:
        left = learned.left(event._replace(body=body))
    return event if left is None else event._replace(body=RawChunk(left)) if left else None


def _but(body: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {key: value for key, value in body.items() if key not in names}


def _body(left: Mapping[str, Any]) -> bytes:
    try:
        return json.dumps(left, separators=(",", ":"), ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return json.dumps(left, separators=(",", ":")).encode()


def _without(body: bytes, frame: Frame, session: str) -> bytes | None:
    """A batch of calls of no session: only those that name this one are emptied."""
    try:
        payloads = raw.unpack(body)
        agents = [str(call.get("agent", "")) for call in frame["body"]["calls"]]
        left = [b"{}" if _is_call_of(session, a, one) else one for a, one in zip(agents, payloads, strict=True)]
    except (KeyError, TypeError, ValueError, AttributeError):
        return b"" if _is_marked(body, session) else None  # anybody may have written it
    if left == payloads:
        return None
    about = {key: value for key, value in frame["body"].items() if key not in ("sizes", "lines")}
    return raw.pack(about, left).raw


def _unheard(packed: bytes, body: Mapping[str, Any], session: str, taps: Collection[str]) -> bytes | None:
    """What frames of a tap are without this session; b"" for nothing, None when nothing is to be changed. Of what belongs to no
    session, lines that name this one are emptied: an agent that is asked which sessions it has tells their titles."""
    if _of_tap(body, session, taps):
        return b""
    if body.get("named"):
        return None
    marks = marks_of(session, ())
    try:
        lines = raw.unpack(packed)
    except (KeyError, TypeError, ValueError):
        return b"" if _is_marked(packed, session) else None  # anybody may have written it
    left = [b"{}" if any(mark in line for mark in marks) else line for line in lines]
    if left == lines:
        return None
    if any("part" in place for place in body["frames"]):
        return b""  # a line that lies here in pieces: none of them tells of what the others speak
    about = {key: value for key, value in body.items() if key not in ("sizes", "lines")}
    return raw.pack(about, left).raw


def _is_marked(packed: bytes, session: str) -> bool:
    return any(mark in packed for mark in marks_of(session, ()))


def _of_tap(body: Mapping[str, Any], session: str, taps: Collection[str]) -> bool:
    """Frames that name a session are that one's, whatever else the connection saw. Whose id it is was not always known when they
    were written: one of another agent with the same id goes, too."""
    named, conn = body.get("named"), body.get("conn")
    return bool(named == session.partition(":")[2] if named else isinstance(conn, str) and conn in taps)


def _chunked(host: Host, root: str, session: str, taps: Collection[str]) -> set[str]:
    """Long events of which something is to be erased: then all their pieces go, by the event's id."""
    found = set()
    for frame, body in read_bodies(host, f"{root}/{KEEP}", (Kind.TAP_FRAMES, Kind.HOOK_FIRED)):
        if "chunked" not in frame:
            continue
        whole = {**frame, "body": json.loads(body)}
        of_tap = frame["kind"] == Kind.TAP_FRAMES and _unheard(body, whole["body"], session, taps) is not None
        if of_tap or (frame["kind"] == Kind.HOOK_FIRED and _without(body, whole, session) is not None):
            found.add(frame["id"])
    return found
