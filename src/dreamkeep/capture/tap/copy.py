"""Journals a copy of the bytes that pass through the tap. A thread takes them from a bounded queue, splits them into lines and
journals these. That never delays the bytes.

    pumps ──put──► queue (64 MiB) ──► lines, numbered in the order of receipt ──► sessions ──► journal (TAP_FRAMES)

    {"conn":"…","frames":[[17,"a",1794768499989000000],[18,"e",…,"part"]],"sizes":[…],"lines":[{"jsonrpc":…},"…"]}

A frame is [n, side, time of receipt (ns)], and perhaps a flag: "part" (its line goes on in the next frame of that side), "open"
(the stream ended without a line feed), or "lost" with the number of bytes for which there was no room; its line is empty. All
other lines ended in a line feed; a carriage return before it is part of the line. So the bytes of each side can be rebuilt
exactly.

A session that the agent does not have must get no journal. So frames of a session that only the client has named are journaled in
the keep's own journal first, and again in the session's journal once the agent has confirmed the session:

    session/load x ──► keep {"conn":C,"named":"x","frames":[[7,…]],…}      stays there if it is refused, or the tap is killed now
    its result     ──► x    {"conn":C,"frames":[[7,…],[8,…]],…}            frame 7 of connection C is the same in both journals

While a journal can't be written, the bytes wait in the queue, bytes that don't fit are counted, and writing is tried again.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from dreamkeep.capture.projects.project import project_of
from dreamkeep.capture.python import Owners
from dreamkeep.capture.tap.route import AGENT, CLIENT, STDERR, Router, ids_in
from dreamkeep.errors import Deleted, DreamkeepError, Refused
from dreamkeep.event import Event, Ids, Kind, rfc3339
from dreamkeep.host import Host
from dreamkeep.journal.places import session_id
from dreamkeep.journal.tombs import Tombstones
from dreamkeep.journal.writers import JournalWriters
from dreamkeep.session.raw import pack
from dreamkeep.session.summary import ACTIVE, ENDED

#: How many bytes may wait to be journaled. Beyond that, copies are dropped and counted.
ROOM = 64 << 20
#: A longer line is kept in pieces.
LONGEST_LINE = 8 << 20
_BATCH = 4 << 20
#: How many bytes are held for sessions that the agent has not confirmed. More than that stays in the keep's own journal only.
_HELD = 32 << 20
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 5.0
#: How often writing is tried when the agent has ended and somebody waits for us.
_LAST_TRIES = 3

PART, OPEN, LOST = "part", "open", "lost"


class Chunk(NamedTuple):
    """Received bytes. `lost`: how many bytes before them were dropped. `end`: nothing more comes from this side."""

    side: str
    at: int
    data: bytes
    lost: int = 0
    end: bool = False


class Queue:
    """Bytes that were received and are not journaled yet. `put` never waits; bytes that don't fit are dropped and counted."""

    def __init__(self, now: Callable[[], int], room: int = ROOM) -> None:
        self._now = now
        self._room = room
        self._ready = threading.Condition()
        self._chunks: deque[Chunk] = deque()
        self._waiting = 0
        self._lost = {CLIENT: 0, AGENT: 0, STDERR: 0}
        self.lost = {CLIENT: 0, AGENT: 0, STDERR: 0}
        self._closed = False

    def put(self, side: str, data: bytes) -> None:
        with self._ready:
            if self._waiting + len(data) > self._room:
                self._lost[side] += len(data)
                self.lost[side] += len(data)
                return
            lost, self._lost[side] = self._lost[side], 0
            self._waiting += len(data)
            self._chunks.append(Chunk(side, self._now(), data, lost))
            self._ready.notify()

    def miss(self, side: str, count: int) -> None:
        """Counts bytes that will not be read."""
        with self._ready:
            self._lost[side] += count
            self.lost[side] += count

    def close(self) -> None:
        """All sides have ended. Later bytes don't belong to the connection."""
        with self._ready:
            if not self._closed:
                self._closed = True
                self._room = 0
                for side, lost in self._lost.items():
                    self._chunks.append(Chunk(side, self._now(), b"", lost, end=True))
            self._ready.notify()

    def take(self, most: int = _BATCH) -> list[Chunk]:
        """Some chunks, in the order of receipt. Waits for the first; returns an empty list only after the end."""
        with self._ready:
            while not self._chunks and not self._closed:
                self._ready.wait()
            taken: list[Chunk] = []
            while self._chunks and most > 0:
                taken.append(self._chunks.popleft())
                most -= len(taken[-1].data)
            return taken

    def done(self, chunks: Sequence[Chunk]) -> None:
        """Frees the room of chunks that are journaled."""
        with self._ready:
            self._waiting -= sum(len(chunk.data) for chunk in chunks)


class TapFrame(NamedTuple):
    n: int
    side: str
    at: int
    line: bytes
    flag: str = ""
    lost: int = 0

    def place(self) -> list[Any]:
        if not self.flag:
            return [self.n, self.side, self.at]
        return [self.n, self.side, self.at, self.flag, *((self.lost,) if self.flag == LOST else ())]


class Splitter:
    """Bytes of all sides → lines with one sequence of numbers."""

    def __init__(self, longest: int = LONGEST_LINE) -> None:
        self._longest = longest
        self._n = 0
        self._begun: dict[str, list[bytes]] = {CLIENT: [], AGENT: [], STDERR: []}
        self._sizes = {CLIENT: 0, AGENT: 0, STDERR: 0}

    def split(self, chunk: Chunk) -> list[TapFrame]:
        found: list[TapFrame] = []
        side = chunk.side
        if chunk.lost:
            self._flush(found, chunk, PART)
            found.append(self._frame(chunk, b"", LOST, chunk.lost))
        *whole, rest = chunk.data.split(b"\n")
        for line in whole:
            self._add(found, chunk, line)
            found.append(self._frame(chunk, self._take_line(side), ""))
        self._add(found, chunk, rest)
        if chunk.end and self._sizes[side]:
            self._flush(found, chunk, OPEN)
        return found

    def _add(self, found: list[TapFrame], chunk: Chunk, data: bytes) -> None:
        side = chunk.side
        while data:
            # A line of exactly the greatest length is a piece only if more bytes of it come.
            if self._sizes[side] == self._longest:
                self._flush(found, chunk, PART)
            fits = data[: self._longest - self._sizes[side]]
            self._begun[side].append(fits)
            self._sizes[side] += len(fits)
            data = data[len(fits) :]

    def _flush(self, found: list[TapFrame], chunk: Chunk, flag: str) -> None:
        if self._sizes[chunk.side]:
            found.append(self._frame(chunk, self._take_line(chunk.side), flag))

    def _take_line(self, side: str) -> bytes:
        pieces, self._begun[side], self._sizes[side] = self._begun[side], [], 0
        return b"".join(pieces)

    def _frame(self, chunk: Chunk, line: bytes, flag: str, lost: int = 0) -> TapFrame:
        self._n += 1
        return TapFrame(self._n, chunk.side, chunk.at, line, flag, lost)


class AgentExit(NamedTuple):
    """How the agent ended: an exit code or a signal."""

    exit: int | None
    signal: int | None
    reason: str


_UNKNOWN_END = AgentExit(None, None, "unknown")


class Job(NamedTuple):
    """Frames for one journal; the keep's own if `session` is "". `named`: the unconfirmed session that they name. `noted`: how
    many of the first frames are in the keep's own journal already."""

    session: str
    frames: list[TapFrame]
    named: str = ""
    noted: int = 0


class HeldFrames:
    """Frames of sessions that the agent has not confirmed yet. Once it has, the session's journal begins with them."""

    def __init__(self, router: Router, most: int = _HELD) -> None:
        self._router = router
        self._most = most
        self._size = 0
        self._frames: dict[str, list[TapFrame]] = {}

    def jobs(self, frames: Sequence[TapFrame]) -> list[Job]:
        """Every frame is journaled at once; the frames of each journal stay in the order of receipt."""
        confirmed: dict[str, Job] = {}
        notes: dict[str, Job] = {}
        fresh: dict[str, list[TapFrame]] = {}
        for frame in frames:
            named = self._router.route(frame.side, frame.line, unended=frame.flag == PART)
            fresh.setdefault(named, []).append(frame)
            if self._router.knows_session(named):
                before = self._pop(named)
                confirmed.setdefault(named, Job(named, [], noted=len(before))).frames.extend([*before, *fresh.pop(named)])
            elif self._router.refused(named):
                self._pop(named)
                notes.setdefault(named, Job("", [], named)).frames.extend(fresh.pop(named))
        for named, new in fresh.items():
            notes.setdefault(named, Job("", [], named)).frames.extend(new)
            self._hold(named, new)
        return [*confirmed.values(), *notes.values()]

    def _hold(self, named: str, frames: Sequence[TapFrame]) -> None:
        self._frames.setdefault(named, []).extend(frames)
        self._size += sum(len(frame.line) for frame in frames)
        if self._size > self._most:
            self._pop(named)

    def _pop(self, named: str) -> list[TapFrame]:
        frames = self._frames.pop(named, [])
        self._size -= sum(len(frame.line) for frame in frames)
        return frames


class Copier:
    """The thread that journals. It also opens `journals` and `owners`, because even that must not delay the agent."""

    def __init__(
        self,
        host: Host,
        root: str,
        journals: Callable[[], JournalWriters],
        ids: Ids,
        owners: Callable[[], Owners],
        router: Router,
        *,
        command: str,
        scrape: bool,
        excluded: Callable[[str, str], bool],
        say: Callable[[str], None],
        room: int = ROOM,
    ) -> None:
        self._host = host
        self._root = root
        self._journals = journals
        self._ids = ids
        self._owners = owners
        self._router = router
        self._command = command
        self._scrape = scrape
        self._excluded = excluded
        self._say = say
        self.conn = ids.new()
        self.queue = Queue(host.now, room)
        self._splitter = Splitter()
        self._held = HeldFrames(router)
        self._tombstones = Tombstones(host, root)
        #: Sessions whose journals have this connection: native id → full id; None if the session must not be journaled.
        self._opened: dict[str, str | None] = {}
        self._complained = False
        self._trouble: dict[str, str] = {}
        self._dropped = 0
        self._ending: AgentExit | None = None
        self._over = threading.Event()
        self._gave_up = False
        self._thread = threading.Thread(target=self._work, name="tap copy", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def finish(self, ending: AgentExit, *, wait_s: float) -> bool:
        """Journals what is left, and how the agent ended. Returns whether that was done in time."""
        self._ending = ending
        self.queue.close()
        self._over.set()
        self._thread.join(wait_s)
        return not self._thread.is_alive()

    def _work(self) -> None:
        while chunks := self.queue.take():
            frames = [frame for chunk in chunks for frame in self._splitter.split(chunk)]
            self._try_until_done(partial(self.keep, frames), len(frames))
            self.queue.done(chunks)
        for session in {session for session in self._opened.values() if session is not None}:
            self._try_until_done(partial(self._save_end, session), 0)

    def keep(self, frames: Sequence[TapFrame]) -> None:
        """Journals frames. They are durable when this returns, unless they must not be kept or we gave up."""
        jobs = self._held.jobs(frames)
        if not jobs or self._is_off():
            return
        # The keep's own journal first: it must not wait for a session's journal that can't be written.
        if notes := [job for job in jobs if not job.session]:
            self._try_until_done(partial(self._note, notes), sum(len(job.frames) for job in notes))
        for job in jobs:
            if job.session:
                self._try_until_done(partial(self._save, job), len(job.frames))

    def _is_off(self) -> bool:
        try:
            return self._host.stat(f"{self._root}/OFF") is not None
        except OSError:
            return False  # the first write will report it

    # -- trouble

    def _try_until_done(self, act: Callable[[], None], frames: int) -> None:
        """Tries until it works. Meanwhile, received bytes wait in the queue, as far as there is room."""
        pause, tries = _FIRST_PAUSE_S, 0
        while True:
            try:
                act()
                return
            except (DreamkeepError, OSError) as problem:
                self._complain(problem)
            except Exception as problem:  # a bug of ours must not end the copying
                self._complain(problem)
                break
            if self._over.wait(pause):
                tries += 1
                if self._gave_up or tries >= _LAST_TRIES:
                    self._gave_up = True
                    break
                self._host.sleep(_FIRST_PAUSE_S)
            pause = min(pause * 2, _LONGEST_PAUSE_S)
        self._dropped += frames

    def _complain(self, problem: Exception) -> None:
        self._trouble.setdefault("since", rfc3339(self._host.now()))
        self._trouble["problem"] = str(problem)[:500]
        self._say_once(problem)

    def _say_once(self, problem: Exception) -> None:
        if not self._complained:
            # Only once, because clients may show an agent's stderr to people.
            self._complained = True
            self._say(f"dreamkeep tap: the session continues, but can't be recorded: {problem}")

    # -- writing

    def _note(self, jobs: Sequence[Job]) -> None:
        """Journals in the keep's own journal, with one sync. A deletion that came between our check and our write could not erase
        these frames: then they are checked again."""
        dead = frozenset(self._tombstones.all())
        events = self._note_events(jobs)
        if not events:
            return
        if self._journals().append_if("", events, {}, still=lambda: self._tombstones.all() == dead) is None:
            self._note(jobs)
            return
        self._opened[""] = ""
        self._trouble.clear()

    def _note_events(self, jobs: Sequence[Job]) -> list[Event]:
        kept = [job for job in jobs if not job.named or self._may_be_noted(job.named)]
        return [self._event(Kind.TAP_FRAMES, self._pack(job if job.named else self._without_deleted(job))) for job in kept]

    def _save(self, job: Job) -> None:
        session = self._id_of(job.session)
        if session is None:
            return
        if not session:
            job = job._replace(frames=job.frames[job.noted :])  # no valid id: the keep's own journal has its held frames already
        try:
            events = [self._open_session(session, job)] if session and job.session not in self._opened else []
            events += self._resume_events(session, job) if session else []
            events.append(self._event(Kind.TAP_FRAMES, self._pack(job)))
            self._journals().append(session, events)
            self._router.prompted.discard(job.session)
        except Deleted as problem:
            self._say_once(problem)
            session = None  # a deleted session stays deleted
        self._opened[job.session] = session
        self._trouble.clear()

    def _may_be_noted(self, native: str) -> bool:
        """Whether frames of an unconfirmed session may be journaled: not if it is excluded or deleted. Its agent may not be known
        yet, because an agent says its name only when asked. So the id is checked for every agent that it could be."""
        session = self._id_of(native)
        return session == "" or (
            session is not None and not any(self._tombstones.has(session_id(agent, native)) for agent in self._router.agents())
        )

    def _without_deleted(self, job: Job) -> Job:
        """Empties lines that name a deleted session: an agent that lists its sessions shows their titles."""
        deleted = self._tombstones.all()
        if not deleted:
            return job

        def names_deleted(line: bytes) -> bool:
            return any(f"{agent}:{id}" in deleted for id in ids_in(line) for agent in self._router.agents())

        return job._replace(frames=[frame._replace(line=b"{}") if names_deleted(frame.line) else frame for frame in job.frames])

    def _pack(self, job: Job) -> Mapping[str, Any]:
        body: dict[str, Any] = {"conn": self.conn, "frames": [frame.place() for frame in job.frames]}
        if job.named and self._id_of(job.named):
            body["named"] = job.named
        if self._trouble:
            body["late"] = dict(self._trouble)
        pieces = {n for n, frame in enumerate(job.frames) if frame.flag == PART}
        return pack(body, [frame.line for frame in job.frames], pieces)

    def _id_of(self, native: str) -> str | None:
        """The full id of a session; "" if the id is invalid; None if the session must not be kept."""
        if native in self._opened:
            return self._opened[native]
        try:
            session = session_id(self._router.agent, native)
        except Refused:
            return ""  # kept all the same, in the keep's own journal
        return None if self._excluded(*self._folder_of(native)) else session

    def _open_session(self, session: str, job: Job) -> Event:
        """Opens the session if need be; returns the event that adds this connection to it."""
        journals = self._journals()
        if journals.writer(session).carried("opened") is None:
            cwd, project = self._folder_of(job.session)
            body = {"session": session, "cwd": cwd, "project": project, "captured": 1}
            # `opened` is carried, so this is journaled only once, even if another process captures the session at the same time.
            journals.say(session, Kind.SESSION_OPENED, body, {"state": ACTIVE, "opened": 1})
        return self._event(Kind.TAP_OPENED, self._describe(job))

    def _resume_events(self, session: str, job: Job) -> list[Event]:
        """An ended session is resumed by a prompt, not by being loaded."""
        if job.session not in self._router.prompted:
            return []
        if self._journals().writer(session).carried("state") != ENDED:
            return []
        return [Event(self._ids.new(), Kind.SESSION_RESUMED, rfc3339(self._host.now()), {"captured": 1}, {"state": ACTIVE})]

    def _folder_of(self, native: str) -> tuple[str, str]:
        known = self._router.about(native)
        cwd = known.cwd if known and known.cwd.isprintable() else ""
        return cwd, self._project(cwd) if os.path.isabs(cwd) else ""

    def _project(self, cwd: str) -> str:
        try:
            return project_of(self._host, cwd, os.uname().nodename)
        except (OSError, ValueError):
            return ""  # a folder of another machine, or an unreadable one

    def _describe(self, job: Job) -> dict[str, Any]:
        router = self._router
        known = router.sessions.get(job.session)
        body: dict[str, Any] = {
            "conn": self.conn,
            "owner": self._owners().mine(),
            "agent": router.agent,
            "command": self._command,
            "session": job.session,
            "since": job.frames[0].n,
            "loaded": bool(known and known.loaded),
            "scrape": self._scrape,
        }
        more = {"version": router.version, "parent": known.parent if known else ""}
        return {**body, **{key: value for key, value in more.items() if value}}

    def _save_end(self, session: str) -> None:
        body: dict[str, Any] = {"conn": self.conn, **(self._ending or _UNKNOWN_END)._asdict()}
        lost = {side: count for side, count in self.queue.lost.items() if count}
        if lost:
            body["lost_bytes"] = lost
        if self._dropped:
            body["dropped_frames"] = self._dropped
        self._journals().append(session, [self._event(Kind.TAP_CLOSED, body)])

    def _event(self, kind: str, body: Mapping[str, Any]) -> Event:
        return Event(self._ids.new(), kind, rfc3339(self._host.now()), body)
