"""Moves hook calls from the spool into the journals: each exactly once, whatever dies in between.

Calls of one session go together. They are linked into a folder `spool/batch-…/`, and only when that is durable are they taken out
of the spool. Then ONE frame with all their payloads is appended, carrying `{"drain": <batch>}`. Then the folder is removed, which
is durable before the next append. So a batch that is found later was either the last one or was not appended at all, and the
journal tells which: the writer treats a frame as a replay if the journal already carries what the frame carries.

    spool/*.hook ─► group by session ─► link, sync, unlink, sync ─► append, sync ─► remove

A lock that dies with its process allows one drainer at a time. A hook that finds it held starts no other drainer, so the drainer
looks into the spool again after it released the lock. A session whose journal fails keeps its calls in the spool; the others go
on.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any, NamedTuple

from dreamkeep.agents.contract import Source
from dreamkeep.agents.registry import find
from dreamkeep.agents.shared import hooks
from dreamkeep.agents.shared.values import table, text
from dreamkeep.capture.exclude import Excluded
from dreamkeep.capture.hooks import spool
from dreamkeep.capture.hooks.spool import SPOOL, SpooledCall
from dreamkeep.capture.projects.project import project_of
from dreamkeep.capture.session_start import cwd_in, facts_in
from dreamkeep.capture.sources.content import PlainFile
from dreamkeep.errors import Busy, Deleted, DreamkeepError, Refused
from dreamkeep.event import Event, Ids, Kind
from dreamkeep.host import Host, lock, make_folders, read_file, replace_file
from dreamkeep.journal.places import session_id
from dreamkeep.journal.tombs import Tombstones
from dreamkeep.journal.writers import JournalWriters
from dreamkeep.session import raw
from dreamkeep.session.summary import ACTIVE, ENDED

LOCK = "state/drain.lock"
#: Excluded sessions: a file for each, so that they stay excluded when they move to another folder.
EXCLUDED = "state/excluded"
#: At most this much is read in one round and put into one frame, so memory stays bounded however much waits.
_ROUND = 2000
_BATCH_CALLS = 500
_BATCH_BYTES = 8 << 20

#: (agent, path of a transcript): ingest what is new there. An empty path: all of that agent's sessions.
ReadSource = Callable[[str, str], object]


class Drained(NamedTuple):
    """`events`: how many calls were journaled. `busy`: another process is draining, and will see the same calls. `compacting`:
    the sessions whose agent is about to compact its context."""

    events: int
    sessions: tuple[str, ...]
    problems: tuple[str, ...]
    busy: bool = False
    compacting: tuple[str, ...] = ()


class HookCall(NamedTuple):
    """One hook call, and what its payload says. `session` is "" if the payload names no valid session."""

    entry: SpooledCall
    session: str
    size: int
    meaning: str
    cwd: str = ""
    transcripts: tuple[str, ...] = ()
    reason: str = ""


def drain(
    host: Host,
    root: str,
    journals: JournalWriters,
    ids: Ids,
    *,
    exclude: Sequence[str] = (),
    read_source: ReadSource | None = None,
    wait_s: float = 0.2,
) -> Drained:
    """Never raises because of a payload, a session or the disk: `problems` reports them, and calls that are not journaled stay in
    the spool."""
    if not spool.waiting(host, root):
        return Drained(0, (), ())
    run = _DrainRun(host, root, journals, ids, exclude)
    try:
        while run.drain_locked(wait_s) and run.has_new_calls():
            pass
    except (DreamkeepError, OSError) as problem:
        run.problem(f"{root}/{SPOOL}", problem)
    if read_source:
        # Without the lock: it may take long, and several processes may do it at the same time.
        run.read_sources(read_source)
    return Drained(run.events, tuple(run.sessions), tuple(run.problems), run.busy, tuple(run.compacting))


class _DrainRun:
    def __init__(self, host: Host, root: str, journals: JournalWriters, ids: Ids, exclude: Sequence[str]) -> None:
        self._host = host
        self._root = root
        self._spool = f"{root}/{SPOOL}"
        self._journals = journals
        self._ids = ids
        self._exclude = Excluded(exclude)
        self._projects: dict[str, str] = {}
        #: Sessions that failed, and calls that can't be journaled now: skipped for the rest of the run.
        self._stuck: set[str] = set()
        self._skipped: set[str] = set()
        self._sources: dict[tuple[str, str], None] = {}
        self._tombstones = Tombstones(host, root)
        self.events = 0
        self.sessions: dict[str, None] = {}
        self.compacting: dict[str, None] = {}
        self.problems: list[str] = []
        self.busy = False

    def problem(self, where: str, problem: object) -> None:
        self.problems.append(f"{where}: {problem}" if str(problem) else f"{where}: {type(problem).__name__}")

    # -- the lock, and calls that come while it is taken

    def drain_locked(self, wait_s: float) -> bool:
        """Under the lock, until nothing is left to do. False when another process holds it."""
        host, path = self._host, f"{self._root}/{LOCK}"
        make_folders(host, os.path.dirname(path))
        handle = host.open_lock(path)
        try:
            try:
                # Wait a moment: a hook that only asks whether somebody drains holds it briefly, too.
                lock(host, handle, where=path, wait_s=wait_s)
            except Busy:
                self.busy = True
                return False
            self._finish_batches()
            self._adopt_left_over()
            while self._drain_round():
                pass
            return True
        finally:
            host.close(handle)

    def has_new_calls(self) -> bool:
        """Whether a call came in that no other drainer will take, because its hook saw the lock held."""
        return any(found.name not in self._skipped for found in spool.entries(spool.names(self._host, self._root)))

    # -- what a drainer or a hook that died left behind

    def _finish_batches(self) -> None:
        for name in sorted(filter(spool.is_batch, spool.names(self._host, self._root))):
            try:
                self._finish_batch(name)
            except Exception as problem:  # as for new calls: one session's failure must not stop the others
                # No newer call of that session may be journaled before it.
                self._stuck.add(spool.whose(name))
                self.problem(f"{self._spool}/{name}", problem)

    def _finish_batch(self, batch: str) -> None:
        calls = [
            self._read_call(found, f"{self._spool}/{batch}")
            for found in spool.entries(self._host.names(f"{self._spool}/{batch}"))
        ]
        if not calls:
            self._remove(batch, [])
        elif spool.whose(batch) not in self._stuck:
            self._journal("" if spool.whose(batch) == spool.whose_is("") else calls[0].session, batch, calls)

    def _adopt_left_over(self) -> None:
        """Files of hooks that were killed before they could rename them: a whole payload is kept, a torn one is removed."""
        host = self._host
        for name in spool.left_over(spool.names(host, self._root), host.now()):
            path = f"{self._spool}/{name}"
            try:
                if _parsed(read_file(host, path)) is None:
                    host.remove(path)
                    continue
                handle = host.open_append(path)
                try:
                    host.sync(handle)
                finally:
                    host.close(handle)
                host.replace(path, f"{self._spool}/{spool.finished_name(name)}")
            except OSError as problem:
                self.problem(path, problem)

    # -- calls

    def _drain_round(self) -> bool:
        """Some of what waits. Each call is journaled, dropped or skipped, so the rounds come to an end."""
        waiting = spool.entries(spool.names(self._host, self._root))
        found = [entry for entry in waiting if entry.name not in self._skipped][:_ROUND]
        for session, calls in self._group_by_session(found).items():
            self._take_calls(session, calls)
        return bool(found)

    def _group_by_session(self, found: Iterable[SpooledCall]) -> dict[str, list[HookCall]]:
        groups: dict[str, list[HookCall]] = {}
        for entry in found:
            try:
                call = self._read_call(entry, self._spool)
            except Exception as problem:  # a payload may hold any bytes: only this call waits
                self._skipped.add(entry.name)
                if not isinstance(problem, FileNotFoundError):
                    self.problem(f"{self._spool}/{entry.name}", problem)
                continue
            groups.setdefault(call.session, []).append(call)
        return groups

    def _read_call(self, entry: SpooledCall, folder: str) -> HookCall:
        payload = read_file(self._host, f"{folder}/{entry.name}")
        fields = _parsed(payload)
        meaning = hooks.meaning(entry.event)
        if fields is None:
            # A payload that can't be parsed belongs to no session; but if it names a deleted one, it must go, too.
            deleted = next((session for session in torn_ids(entry.agent, payload) if self._tombstones.has(session)), "")
            return HookCall(entry, deleted, len(payload), meaning)
        session = named_session(entry.agent, payload)
        return HookCall(entry, session, len(payload), meaning, cwd_of(fields), transcripts(fields), _reason(fields))

    def _take_calls(self, session: str, calls: list[HookCall]) -> None:
        try:
            calls = self._drop_excluded(session, calls)
            if session and calls and self._is_ghost(session, calls) and not self._tombstones.has(session):
                # Its calls go to the keep's own journal. This is an everyday thing, so it is not reported: `doctor` would ask
                # people to look.
                session = ""
            for batch in _batches(calls):
                if spool.whose_is(session) not in self._stuck:
                    self._batch(session, batch)
                self._skipped.update(call.entry.name for call in batch)
        except Exception as problem:  # one session's calls must not stop the others
            self._note_failure(session, calls, problem)

    def _drop_excluded(self, session: str, calls: list[HookCall]) -> list[HookCall]:
        """Drops all calls of an excluded session; of calls without a session, those that are excluded themselves. Returns the
        others."""
        excluded = [call for call in calls if self._is_excluded(call)]
        if session and self._exclude.patterns and self._stays_excluded(session, bool(excluded), calls):
            excluded = calls
        if not excluded:
            return calls
        self._drop(calls if session else excluded)
        return [] if session else [call for call in calls if not self._is_excluded(call)]

    def _note_failure(self, session: str, calls: Iterable[HookCall], problem: Exception) -> None:
        self._stuck.add(spool.whose_is(session))
        self._skipped.update(call.entry.name for call in calls)
        self.problem(session or f"{self._root}/journal/keep", problem)

    def _drop(self, calls: Iterable[HookCall]) -> None:
        for call in calls:
            self._host.remove(f"{self._spool}/{call.entry.name}")
        self._host.sync_folder(self._spool)

    def _is_excluded(self, call: HookCall) -> bool:
        return self._exclude.session(call.cwd, self._project(call.cwd)) or any(map(self._exclude.path, call.transcripts))

    def _stays_excluded(self, session: str, excluded: bool, calls: Iterable[HookCall]) -> bool:
        """A session that was excluded once stays so, wherever it moves, as long as the patterns stay the same. The folder that
        its transcript names counts, too."""
        mark = f"{self._root}/{EXCLUDED}/{sha256(session.encode()).hexdigest()[:24]}"
        why = sha256("\n".join(self._exclude.patterns).encode()).hexdigest().encode()
        if not excluded and self._host.stat(mark) is not None and read_file(self._host, mark) == why:
            return True
        if not excluded and not self._journals.writer(session).exists():
            excluded = any(self._has_excluded_folder(call.entry.agent, path) for call in calls for path in call.transcripts)
        if excluded:
            make_folders(self._host, os.path.dirname(mark))
            replace_file(self._host, mark, why)
        return excluded

    def _has_excluded_folder(self, agent: str, path: str) -> bool:
        """Whether a transcript says that its session runs in an excluded folder."""
        if find(agent) is None or not self._exists(path):
            return False
        content = PlainFile(self._host, path)
        try:
            cwd = cwd_in(facts_in(Source(agent, path), content))
        finally:
            content.close()
        return self._exclude.session(cwd, self._project(cwd))

    def _project(self, cwd: str) -> str:
        if cwd not in self._projects:
            try:
                self._projects[cwd] = project_of(self._host, cwd, os.uname().nodename) if cwd else ""
            except (OSError, ValueError):
                self._projects[cwd] = ""
        return self._projects[cwd]

    def _is_ghost(self, session: str, calls: Iterable[HookCall]) -> bool:
        """Nothing but the end of a session that has no journal and no transcript: `claude mcp list` causes that."""
        return (
            all(call.meaning == hooks.END for call in calls)
            and not self._journals.writer(session).exists()
            and not any(self._exists(path) for call in calls for path in call.transcripts)
        )

    def _exists(self, path: str) -> bool:
        try:
            return self._host.stat(path) is not None
        except (OSError, ValueError):
            return False

    # -- one batch

    def _batch(self, session: str, calls: Sequence[HookCall]) -> None:
        host = self._host
        batch = spool.batch_name(self._ids.new(), session)
        host.make_folder(f"{self._spool}/{batch}")
        for call in calls:
            # Linked, not renamed: the new name must be durable before the old one goes.
            host.link(f"{self._spool}/{call.entry.name}", f"{self._spool}/{batch}/{call.entry.name}")
        self._journal(session, batch, calls)

    def _journal(self, session: str, batch: str, calls: Sequence[HookCall]) -> None:
        names = [call.entry.name for call in calls]
        self._move(batch, names)
        try:
            self._append(session, batch, calls)
        except Deleted:
            self._remove(batch, names)  # a deleted session stays deleted
            return
        except Exception as problem:
            self._note_failure(session, calls, problem)
            return
        self._remove(batch, names)
        self.events += len(calls)
        if session:
            self.sessions[session] = None
            if any(call.meaning == hooks.COMPACTING for call in calls):
                self.compacting[session] = None
        self._remember_sources(session, calls)

    def _move(self, batch: str, names: Iterable[str]) -> None:
        """From now on these calls are in the batch and nowhere else, also after a crash."""
        host = self._host
        host.sync_folder(f"{self._spool}/{batch}")
        host.sync_folder(self._spool)
        for name in names:
            if host.stat(f"{self._spool}/{name}") is not None:
                host.remove(f"{self._spool}/{name}")
        host.sync_folder(self._spool)

    def _append(self, session: str, batch: str, calls: Sequence[HookCall]) -> None:
        payloads = [read_file(self._host, f"{self._spool}/{batch}/{call.entry.name}") for call in calls]
        described = [{"event": call.entry.event, "at": call.entry.at, "spool": call.entry.name} for call in calls]
        agent = calls[0].entry.agent
        if not session:
            described = [{"agent": call.entry.agent, **fields} for call, fields in zip(calls, described, strict=True)]
        body = raw.pack({"agent": agent if session else "", "calls": described}, payloads)
        fired = Event(self._ids.new(), Kind.HOOK_FIRED, calls[0].entry.at, body, {"drain": batch})
        if not session:
            self._journals.append("", [fired])
            return
        writer = self._journals.writer(session)
        known = writer.exists()
        state = writer.carried("state") if known else None
        appended = known and writer.carried("drain") == batch
        before = [] if appended else self._opening(session, state, calls)
        # The frame itself is always appended: the writer recognises a replay, and makes sure that the earlier frame is durable.
        self._journals.append(session, [*before, fired, *self._ending(calls)])

    def _opening(self, session: str, state: int | str | None, calls: Sequence[HookCall]) -> list[Event]:
        at = calls[0].entry.at
        if state is None:
            cwd = next((call.cwd for call in calls if call.cwd), "")
            body = {"session": session, "cwd": cwd, "project": self._project(cwd), "captured": 1}
            return [Event(self._ids.new(), Kind.SESSION_OPENED, at, body, {"state": ACTIVE, "opened": 1})]
        if state != ACTIVE and any(call.meaning in (hooks.START, hooks.PROMPT) for call in calls):
            return [Event(self._ids.new(), Kind.SESSION_RESUMED, at, {"captured": 1}, {"state": ACTIVE})]
        return []

    def _ending(self, calls: Sequence[HookCall]) -> list[Event]:
        """If the last of its starts, prompts and ends is an end. (Other calls after an end were only late.)"""
        last = next((call for call in reversed(calls) if call.meaning in (hooks.END, hooks.START, hooks.PROMPT)), None)
        if last is None or last.meaning != hooks.END:
            return []
        reason = {"reason": last.reason} if last.reason else {}
        return [Event(self._ids.new(), Kind.SESSION_ENDED, last.entry.at, reason, {"state": ENDED})]

    def _remove(self, batch: str, names: Iterable[str]) -> None:
        for name in names:
            self._host.remove(f"{self._spool}/{batch}/{name}")
        # If the folder came back after something newer was appended, the journal would not recognise the batch. It can't: `_move`
        # makes this removal durable before the next append.
        self._host.remove_folder(f"{self._spool}/{batch}")

    # -- transcripts

    def _remember_sources(self, session: str, calls: Sequence[HookCall]) -> None:
        paths = [path for call in calls for path in call.transcripts if self._exists(path)]
        for path in paths or ([""] if session else []):
            self._sources[calls[0].entry.agent, path] = None

    def read_sources(self, read_source: ReadSource) -> None:
        for agent, path in self._sources:
            try:
                read_source(agent, path)
            except Exception as problem:  # the calls are journaled; a transcript that can't be read now is read later
                self.problem(path or agent, problem)


# -- what payloads say; pure


def _parsed(payload: bytes) -> Mapping[str, Any] | None:
    """The payload, if it is a JSON object."""
    import orjson

    try:
        found = orjson.loads(payload)
    except orjson.JSONDecodeError:
        try:
            found = json.loads(payload)  # also takes lone surrogates and huge numbers, which must not hide the session's id
        except (ValueError, RecursionError):
            return None
    return found if isinstance(found, dict) else None


IDS = ("session_id", "sessionId", "sessionID")
#: Not inside a text: there a backslash stands before each quote.
_ID_IN = re.compile(rb'(?<!\\)"(?:%b)"\s*:\s*("(?:[^"\\]|\\.){1,500}")' % "|".join(IDS).encode())
#: Where agents put what belongs to the whole call.
_INSIDE = ("input", "info", "properties", "extra")


def native_id(payload: Mapping[str, Any]) -> str:
    """The session's own id, or "". A subagent's payload names its parent here, and belongs to it."""
    for place in (payload, *(table(payload.get(key)) for key in _INSIDE)):
        for key in IDS:
            if found := text(place.get(key)):
                return found
    return ""


def named_session(agent: str, payload: bytes) -> str:
    """The full id of the session that a call's payload names; "" for none."""
    fields = _parsed(payload)
    try:
        return session_id(agent, native_id(fields)) if fields is not None else ""
    except Refused:
        return ""


def torn_ids(agent: str, payload: bytes) -> Iterator[str]:
    """Full ids of sessions in a payload that can't be parsed because its end is missing."""
    for found in _ID_IN.finditer(payload):
        try:
            yield session_id(agent, json.loads(found[1], strict=False))
        except (Refused, ValueError):
            pass


def cwd_of(payload: Mapping[str, Any]) -> str:
    """Where the agent works. Not where its hooks run: that may be a plugin's folder."""
    info = table(payload.get("info"))
    for found in (text(payload.get("cwd")), text(payload.get("directory")), text(info.get("directory"))):
        if _is_path(found):
            return found
    return ""


def transcripts(payload: Mapping[str, Any]) -> tuple[str, ...]:
    named = (text(payload.get(key)) for key in ("transcript_path", "transcriptPath", "agent_transcript_path"))
    return tuple(path for path in named if _is_path(path))


def _reason(payload: Mapping[str, Any]) -> str:
    found = text(payload.get("reason")) or text(table(payload.get("extra")).get("reason"))
    return found if found.isprintable() else ""


def _is_path(found: str) -> bool:
    """Absolute paths only: only the agent knows to which folder another path is relative."""
    return found.startswith("/") and found.isprintable()


def _batches(calls: Iterable[HookCall]) -> Iterator[list[HookCall]]:
    batch: list[HookCall] = []
    size = 0
    for call in calls:
        if batch and (len(batch) >= _BATCH_CALLS or size + call.size > _BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(call)
        size += call.size
    if batch:
        yield batch
