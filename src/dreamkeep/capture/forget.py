"""Erases what was captured of a deleted session outside its own journal: in the spool, and in the keep's own journal.

The keep's own journal has records that belong to no session: frames of a tap before and between its sessions, frames that named a
session before its agent did (`named`), and hook calls that named an unknown session. It also has what dreams learned: insights,
notes and tasks. Only deletions and undone dreams load this module.
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
#: A shorter id may also be an ordinary word.
_DISTINCTIVE = 8
#: Reasons may quote a text cut short; so many characters of its beginning identify it.
_DISTINCTIVE_WORDS = 20
#: Changes of an insight or a note: they go with it.
_CHANGES = frozenset(
    (
        *(Kind.INSIGHT_CONFIRMED, Kind.INSIGHT_REJECTED, Kind.INSIGHT_EXPIRED, Kind.NOTE_EDITED, Kind.NOTE_PINNED),
        *(Kind.NOTE_UNPINNED, Kind.NOTE_RETRACTED, Kind.NOTE_SUPERSEDED, Kind.NOTE_CLOSED, Kind.NOTE_EXPIRED, Kind.NOTE_DOUBTED),
        Kind.NOTE_PROMOTED,
    )
)
_TASKS = frozenset((Kind.TASK_OPENED, Kind.TASK_JOINED, Kind.TASK_RENAMED, Kind.TASK_CLOSED))


def connections(host: Host, folder: str) -> set[str]:
    """The connections of taps through which a session was seen, according to its journal."""
    ids = (frame["body"].get("conn") for frame in Reading(host, folder) if frame["kind"] in _TAP and frame["body"])
    return {conn for conn in ids if conn and isinstance(conn, str)}


def forget_spooled(host: Host, root: str, session: str) -> None:
    """Removes calls that wait, and batches that a drainer left. Takes the drainer's lock: a drainer at work finishes first, and
    is refused to journal calls of this session."""
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
    """Also an unfinished call, left by a hook that was killed."""
    finished = spool.finished_name(name)
    entry = spool.entry(finished)
    if entry is None:
        return
    try:
        data = read_file(host, f"{folder}/{name}")
    except FileNotFoundError:
        if finished != name:  # its hook has just renamed it
            _forget_call(host, folder, finished, session)
        return
    if _is_call_of(session, entry.agent, data):
        host.remove(f"{folder}/{name}")


def _is_call_of(session: str, agent: str, payload: bytes) -> bool:
    """A payload that can't be parsed (its agent stopped in the middle) counts if it holds the id."""
    named = named_session(agent, payload)
    return named == session if named else any(mark in payload for mark in marks_of(session, ()))


def call_of(host: Host, path: str, name: str) -> str:
    """The session that a hook call names; "" for none. `name`: of its file in the spool."""
    entry = spool.entry(spool.finished_name(name.rpartition("/")[2]))
    return named_session(entry.agent, read_file(host, path)) or "" if entry else ""


def marks_of(session: str, taps: Collection[str]) -> list[bytes]:
    """Bytes that show that unreadable data belongs to this session. A short id counts only as the value of an id field."""
    native = session.partition(":")[2]
    quoted = [json.dumps(session, ensure_ascii=False)]
    if len(native) < _DISTINCTIVE:
        quoted += [f'"{key}":{space}{json.dumps(native, ensure_ascii=False)}' for key in IDS for space in ("", " ")]
    # As they are, and as they are written inside a JSON string.
    inside = [json.dumps(text, ensure_ascii=False)[1:-1] for text in quoted]
    return [text.encode() for text in (*(t for t in (*taps, native) if len(t) >= _DISTINCTIVE), *quoted, *inside)]


def erase_in_keep(host: Host, root: str, journals: JournalWriters, session: str, taps: Collection[str]) -> int:
    """Erases the session in the keep's own journal, in place. Returns how many frames held something of it."""
    chunked = _chunked(host, root, session, taps)
    learned = _learned(host, root, session)

    def change(frame: Frame, line: bytes) -> bytes | None:
        if frame["id"].partition(".")[0] in chunked:
            return b""
        if frame["kind"] == Kind.TAP_FRAMES:
            return _frames_without(body_of(line, frame), frame["body"], session, taps)
        if frame["kind"] == Kind.HOOK_FIRED:
            return _calls_without(body_of(line, frame), frame, session)
        whole = frame["id"].partition(".")[0]
        if whole in learned and ("chunked" in frame or frame["kind"] == Kind.CHUNK):
            return b""
        return learned.get(frame["id"])

    return journals.writer("").erase(change, marks_of(session, taps))


def _learned(host: Host, root: str, session: str) -> dict[str, bytes]:
    """Frame id → what is left of an event that holds something learned in this session (b"" for nothing)."""

    learned = Learned(session)
    for _, event in read_events(host, f"{root}/{KEEP}"):
        learned.see(event)
    found = ((event.id, learned.left(event)) for _, event in read_events(host, f"{root}/{KEEP}"))
    return {id: left for id, left in found if left is not None}


class Learned:
    """Decides what is left of insights, notes, tasks and reports without a deleted session.

    Insights that quote the session are erased, and so are notes, tasks and edits that rest on it alone. If other sessions support
    them, too, they stay without the session's words. All events must be read (`see`) before the first decision (`left`): a note
    may get further insights long after the user changed it."""

    def __init__(self, session: str) -> None:
        self._session = session
        #: Ids of insights that quote it; and id → text of those that don't.
        self._quoting: set[str] = set()
        self._others: dict[str, str] = {}
        #: Note id → all insights it ever rested on. Task id → all sessions it ever had ("": made by the user).
        self._insights_of: dict[str, set[str]] = {}
        self._tasks: dict[str, set[str]] = {}
        #: Task id → titles that the user gave it.
        self._titles: dict[str, set[str]] = {}
        self._dead = {session}
        #: Notes that have rested on it so far: pages may have shown its words.
        self._touched: set[str] = set()
        self._words: list[str] = []

    def see(self, event: Event) -> None:
        try:
            self._see(event.kind, event.body)
        except (KeyError, TypeError, ValueError, AttributeError):
            pass  # an invalid event names nothing

    def _see(self, kind: str, body: Mapping[str, Any]) -> None:
        id = str(body.get("id"))
        if kind == Kind.INSIGHT_ADDED:
            evidence = [quote for quote in body.get("evidence", ()) if isinstance(quote, dict)]
            quotes = [quote for quote in evidence if quote.get("session") == self._session]
            texts = [str(body.get("text", "")), *(str(quote.get("quote", "")) for quote in quotes or evidence)]
            if quotes:
                self._quoting.add(id)
                self._words += texts
            else:
                self._others[id] = " ".join(texts)
        elif kind in (Kind.NOTE_ADDED, Kind.NOTE_STRENGTHENED):
            self._insights_of.setdefault(id, set()).update(map(str, body["insights"]))
        elif kind in (Kind.TASK_OPENED, Kind.TASK_JOINED):
            self._tasks.setdefault(id, set()).add(str(body.get("session") or ""))
        elif kind == Kind.TASK_RENAMED:
            self._titles.setdefault(id, set()).add(str(body["title"]))
        elif kind == Kind.SESSION_DELETED:
            self._dead.add(str(body["session"]))
        elif kind == Kind.SESSION_UNDELETED and body["session"] != self._session:
            self._dead.discard(str(body["session"]))

    def left(self, event: Event) -> bytes | None:
        """The body that an event keeps; b"" for none; None when nothing must be changed."""
        try:
            left = self._left(event.kind, event.body)
        except (KeyError, TypeError, ValueError, AttributeError):
            return b"" if self._quotes(json.dumps(event.body, ensure_ascii=False, default=str)) else None
        return None if left is None else _body(left) if left else b""

    def _left(self, kind: str, body: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """The same as a mapping; {} for nothing."""
        id = str(body.get("id"))
        if kind == Kind.INSIGHT_ADDED:
            return {} if id in self._quoting else None
        if kind == Kind.INSIGHT_LINKED:
            return self._link(id, body)
        if kind in (Kind.NOTE_ADDED, Kind.NOTE_STRENGTHENED):
            return self._note(id, set(map(str, body["insights"])), body)
        if kind in _CHANGES:
            return self._changed(kind, id, body)
        if kind in _TASKS and self._session in self._tasks.get(id, ()):
            return self._task(kind, id, body)
        if kind == Kind.PAGE_PUBLISHED:
            return self._page(body)
        if kind == Kind.DREAM_FINISHED:
            return self._report(body)
        is_about_session = kind == Kind.DREAM_READ and body["session"] == self._session
        reason = str(body.get("reason") or "")
        return _without_fields(body, "reason") if reason and (is_about_session or self._quotes(reason)) else None

    def _link(self, id: str, body: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """A link stays, without its reason if it is of an insight that quotes the session."""
        quotes = not self._quoting.isdisjoint((id, str(body.get("other"))))
        return _without_fields(body, "reason") if quotes and body.get("reason") else None

    def _page(self, body: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Only the page's path stays: the page is rendered again, and its other notes have events of their own."""
        if self._touched.isdisjoint(map(str, body.get("notes", ()))):
            return None
        path = {"project": body.get("project", ""), "path": body.get("path", ""), "region": "", "notes": []}
        return {**path, "instead": body["instead"]} if "instead" in body else path

    def _note(self, id: str, insights: set[str], body: Mapping[str, Any]) -> Mapping[str, Any] | None:
        if insights & self._quoting:
            self._touched.add(id)
        if self._is_alone(insights):
            return {}
        text = f"{body.get('text', '')} {body.get('reason', '')}"
        return _without_fields(body, "text", "reason") if self._quotes(text) else None

    def _is_alone(self, insights: set[str]) -> bool:
        """Whether no insight of another session supports it."""
        return bool(insights & self._quoting) and not insights & self._others.keys()

    def _changed(self, kind: str, id: str, body: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Changes of a note that other sessions support, too, stay, and so do the user's words on it, unless they quote this
        session."""
        if not (body.get("text") or body.get("reason")):
            return None  # it has no text, and perhaps no room to erase anything
        # If a run was undone, a confirmed insight has no note any more; then the note that the event names counts.
        insights = self._insights_of.get(id, set()) | self._insights_of.get(str(body.get("note") or ""), set())
        if id in self._quoting or self._is_alone(insights):
            # Events about other notes may quote these texts.
            self._words += [str(body[name]) for name in ("text", "was") if body.get(name)]
            return {}
        other_texts = " ".join(self._others[insight] for insight in sorted(insights & self._others.keys()))
        text = str(body.get("text") or "") if insights & self._quoting else ""
        named = ["text"] if self._quotes(text, but=other_texts) else []
        if named and kind == Kind.NOTE_EDITED:
            return {}  # without its text nothing is left of an edit
        named += ["was"] if self._quotes(str(body.get("was") or ""), but=other_texts) else []
        named += ["reason"] if self._quotes(str(body.get("reason") or "")) else []
        return _without_fields(body, *named) if named else None

    def _task(self, kind: str, id: str, body: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """A task that other sessions joined stays, without the title from this session."""
        if kind != Kind.TASK_OPENED and not (body.get("title") or body.get("reason")):
            return None
        if self._tasks[id] <= self._dead:
            return {}
        if kind == Kind.TASK_OPENED:
            return _without_fields(body, "title") if body.get("session") == self._session else None
        title = str(body.get("title") or "")
        is_by_user = bool(title) and title not in self._titles.get(id, ())
        if self._quotes(f"{'' if is_by_user else title} {body.get('reason', '')}"):
            return {}
        return _without_fields(body, "title") if is_by_user else None

    def _report(self, body: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """A run's report stays, without the reason why this session failed."""
        sessions = body["report"].get("sessions", ())
        if not any(entry.get("id") == self._session and entry.get("reason") for entry in sessions):
            return None
        left = [_without_fields(entry, "reason") if entry.get("id") == self._session else entry for entry in sessions]
        return {**body, "report": {**body["report"], "sessions": left}}

    def _quotes(self, text: str, but: str = "") -> bool:
        """Whether a text quotes the session. `but`: texts of others, which may be the true source of the same words."""
        beginnings = (words[:_DISTINCTIVE_WORDS] for words in self._words if words)
        return any(words in text and words not in but for words in beginnings)


def left_of(event: Event, learned: Learned, session: str, taps: Collection[str]) -> Event | None:
    """An event of a keep's own journal without this session; None for nothing. `learned` must have seen all events."""
    verbatim = isinstance(event.body, RawChunk)
    body = json.loads(event.body.raw) if isinstance(event.body, RawChunk) else event.body
    if event.kind in (Kind.TAP_FRAMES, Kind.HOOK_FIRED):
        packed = event.body.raw if isinstance(event.body, RawChunk) else json.dumps(body).encode()
    if event.kind == Kind.TAP_FRAMES:
        left = _frames_without(packed, body, session, taps)
    elif event.kind == Kind.HOOK_FIRED:
        left = _calls_without(packed, {"body": body}, session) if verbatim and "calls" in body else None
    else:
        left = learned.left(event._replace(body=body))
    return event if left is None else event._replace(body=RawChunk(left)) if left else None


def _without_fields(body: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {key: value for key, value in body.items() if key not in names}


def _body(left: Mapping[str, Any]) -> bytes:
    try:
        return json.dumps(left, separators=(",", ":"), ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return json.dumps(left, separators=(",", ":")).encode()


def _calls_without(body: bytes, frame: Frame, session: str) -> bytes | None:
    """A batch of calls without a session: only those that name this session are emptied."""
    try:
        payloads = raw.unpack(body)
        agents = [str(call.get("agent", "")) for call in frame["body"]["calls"]]
        left = [b"{}" if _is_call_of(session, agent, data) else data for agent, data in zip(agents, payloads, strict=True)]
    except (KeyError, TypeError, ValueError, AttributeError):
        return b"" if _is_marked(body, session) else None  # an invalid frame
    if left == payloads:
        return None
    header = {key: value for key, value in frame["body"].items() if key not in ("sizes", "lines")}
    return raw.pack(header, left).raw


def _frames_without(packed: bytes, body: Mapping[str, Any], session: str, taps: Collection[str]) -> bytes | None:
    """Frames of a tap without this session; b"" for nothing; None when nothing must be changed. In frames that belong to no
    session, lines that name this session are emptied: an agent that lists its sessions shows their titles."""
    if _of_tap(body, session, taps):
        return b""
    if body.get("named"):
        return None
    marks = marks_of(session, ())
    try:
        lines = raw.unpack(packed)
    except (KeyError, TypeError, ValueError):
        return b"" if _is_marked(packed, session) else None  # an invalid frame
    left = [b"{}" if any(mark in line for mark in marks) else line for line in lines]
    if left == lines:
        return None
    if any("part" in place for place in body["frames"]):
        return b""  # a line in pieces, of which only one may have the session's id
    header = {key: value for key, value in body.items() if key not in ("sizes", "lines")}
    return raw.pack(header, left).raw


def _is_marked(packed: bytes, session: str) -> bool:
    return any(mark in packed for mark in marks_of(session, ()))


def _of_tap(body: Mapping[str, Any], session: str, taps: Collection[str]) -> bool:
    """Frames that name a session belong to it, whatever else the connection saw. When they were written, its agent was not always
    known: so frames of another agent with the same id go, too."""
    named, conn = body.get("named"), body.get("conn")
    return bool(named == session.partition(":")[2] if named else isinstance(conn, str) and conn in taps)


def _chunked(host: Host, root: str, session: str, taps: Collection[str]) -> set[str]:
    """Ids of long events from which something must be erased: all their pieces go."""
    found = set()
    for frame, body in read_bodies(host, f"{root}/{KEEP}", (Kind.TAP_FRAMES, Kind.HOOK_FIRED)):
        if "chunked" not in frame:
            continue
        whole = {**frame, "body": json.loads(body)}
        of_tap = frame["kind"] == Kind.TAP_FRAMES and _frames_without(body, whole["body"], session, taps) is not None
        if of_tap or (frame["kind"] == Kind.HOOK_FIRED and _calls_without(body, whole, session) is not None):
            found.add(frame["id"])
    return found
