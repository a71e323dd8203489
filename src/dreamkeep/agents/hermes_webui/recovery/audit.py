"""Audit of Hermes WebUI's session folder and its rows in `state.db`: what is missing, torn or not listed. Reads only.

A session file that looks as it did when it was captured, and was well then, is opened only if it has a backup beside it, or if
its row has more messages than `_index.json` says that it has, or than can be in it. Every session is checked by itself: an
error becomes a fault of that session. Files named `_*` are no sessions. What the user intended (clear, undo, truncate,
compress, delete: `documents.py`) is no fault.

`Fault.about` of each class here: `place` (the folder) and `sid`; `webui_turn_pending` also has `turn` (its id).

    file           backup           row in state.db        fault
    unreadable     any good copy (backup, our journal, row)    webui_corrupt
    unreadable     no copy                                 store_unreadable
    unreadable     listed as deleted                       none, whatever copies there are
    gone           readable         any                    webui_orphan_backup
    gone           none             with messages          webui_no_sidecar; with a worktree also when it has none
    gone           none             empty                  webui_empty_row
    gone           none             none                   source_vanished, when it was captured
    there          holds more                              webui_richer_backup
    there          has less than was captured              source_shrank
    there          none             holds more             webui_richer_rows
    there                           none                   webui_no_row

A folder that no longer exists counts as empty if sessions were captured from it. Nobody knows then which of them had been
deleted, so they are reported, and no file is made again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from hashlib import sha256
from shlex import quote

from dreamkeep.agents.hermes.discovery import AGENT as HERMES
from dreamkeep.agents.hermes_webui.discovery import AGENT, names_a_file
from dreamkeep.agents.hermes_webui.recovery import documents
from dreamkeep.agents.hermes_webui.recovery.folder import DELETED, INDEX, STRANGE, Folder, copies, places, read_row_messages
from dreamkeep.agents.hermes_webui.recovery.rows import WebuiRow, databases, read_database_session, webui_rows
from dreamkeep.agents.shared.values import table
from dreamkeep.capture import find
from dreamkeep.capture.sources.source_cache import Cache, FileLook, SourceState
from dreamkeep.errors import DreamkeepError
from dreamkeep.event import readable_size
from dreamkeep.host import Host
from dreamkeep.recovery.audit.compare_source import canonical, masked_messages
from dreamkeep.recovery.audit.sources import ELSEWHERE
from dreamkeep.recovery.faults import Fault, counted, fault
from dreamkeep.secrets.masking import is_masked

#: How long a turn may run before its session file has it.
_YOUNG_S = 600.0
#: Any message takes more than that in a session file.
_LEAST_BYTES = 64
_BESIDE_IT = (
    "To add what `state.db` has as a separate session, run `dreamkeep ingest`, then `dreamkeep restore {rows} --to {agent}`. If"
    " this was intended, accept it with `dreamkeep repair --accept {{id}}`."
)
_UNKNOWN_DELETED = f"`{DELETED}` can't be read, so it may have been deleted. Fix that file first."
_NO_FOLDER = (
    "`{place}` is no longer a folder, and the list of deleted sessions is gone with it. To bring everything back, create that"
    " folder again (move away what is in its place), then run `dreamkeep repair --apply`."
)
_GONE_FIRST = "Its session file is missing and has to be restored first; another problem says how."
_MAYBE_DELETED = "`state.db` has no row for it, so it may have been deleted. If it was not, rename the `.bak` by hand."


def audit_webui(host: Host, root: str, home: str, environment: Mapping[str, str]) -> Iterator[Fault]:
    folders: list[Folder] = []
    cache = Cache(host, root)
    captured = _captured(cache, find.places(AGENT, home, environment))
    for place in places(host, home, environment, captured):
        try:
            folder = Folder(host, root, place)
        except STRANGE as problem:
            yield _unreadable(place, problem)
            continue
        folders.append(folder)
        for trouble in folder.troubles:
            yield _unreadable(trouble.path, OSError(0, trouble.problem))
    if folders:
        yield from _WebuiAudit(host, cache, captured, databases(host, home, environment), folders).all()


def _captured(cache: Cache, known: list[str]) -> dict[str, str]:
    """The session files that were captured from these folders: path → session."""
    below = tuple(f"{place}/" for place in known)
    states = ((path, cache.get(path)) for path in cache.paths() if path.startswith(below))
    return {path: state.session for path, state in states if state and _is_captured(state)}


def _is_captured(state: SourceState) -> bool:
    return state.role == "main" and state.agent == AGENT and state.state not in ("deleted", "excluded", "empty")


def _unreadable(path: str, problem: Exception, session: str = "") -> Fault:
    why = getattr(problem, "what", "") or getattr(problem, "strerror", "") or f"{type(problem).__name__}: {problem}"
    return fault("store_unreadable", path, f"it can't be read: {why}", session=session)


def _counts(folder: Folder) -> dict[str, int]:
    try:
        entries = folder.entries() or ()
    except STRANGE:
        return {}  # the index is checked by itself
    counts = ((documents.entry_id(entry), table(entry).get("message_count")) for entry in entries)
    return {sid: count for sid, count in counts if sid and isinstance(count, int)}


class _WebuiAudit:
    def __init__(
        self, host: Host, cache: Cache, captured: Mapping[str, str], databases: list[str], folders: list[Folder]
    ) -> None:
        self._host = host
        self._cache = cache
        self._captured = captured
        self._databases = databases
        self._folders = folders
        self._rows: dict[str, WebuiRow] = {}
        #: By folder and session, the count of messages in the WebUI's list.
        self._counts: dict[str, dict[str, int]] = {}
        #: Whether all databases could be read. If not, a missing row means nothing.
        self._sure = bool(self._databases)

    def all(self) -> Iterator[Fault]:
        for path in self._databases:
            try:
                self._rows.update(webui_rows(self._host, path))
            except (OSError, DreamkeepError) as problem:
                self._sure = False
                if self._cache.get(path) is None:  # otherwise it is reported as a captured source
                    yield _unreadable(path, problem)
        there = {sid for folder in self._folders for sid in (*folder.lives, *folder.backups)}
        for n, folder in enumerate(self._folders):
            # A row belongs to the folder that has its file; a row without a file belongs to the first folder.
            own = {*folder.lives, *folder.backups}
            rows = {sid: row for sid, row in self._rows.items() if sid in own or (sid not in there and n == 0)}
            was = {sid for path, sid in self._captured.items() if os.path.dirname(path) == folder.place}
            # A session that is in another folder now has moved there.
            yield from self._folder(folder, rows, was - (there - own))

    def _folder(self, folder: Folder, rows: Mapping[str, WebuiRow], was: set[str]) -> Iterator[Fault]:
        if folder.deleted is None and folder.is_here:
            what = "the list of deleted sessions can't be read, so what is missing may have been deleted on purpose"
            yield fault("store_unreadable", f"{folder.place}/{DELETED}", what)
        bad: set[str] = set()
        missed: set[str] = set()
        for sid in sorted({*folder.lives, *folder.backups, *folder.journals, *rows, *was}):
            for found in self._isolated(folder, sid, lambda sid=sid: self._session(folder, sid, rows.get(sid))):  # type: ignore[misc]
                bad.update([sid] if found.cls in ("webui_corrupt", "store_unreadable") else ())
                missed.update([sid] if found.cls in ("webui_no_sidecar", "webui_orphan_backup") else ())
                yield found
        yield from self._isolated(folder, "", lambda: self._index(folder, bad, missed))

    def _isolated(self, folder: Folder, sid: str, look: Callable[[], Iterator[Fault]]) -> Iterator[Fault]:
        try:
            yield from look()
        except STRANGE as problem:
            where = folder.live(sid) if sid else f"{folder.place}/{INDEX}"
            yield _unreadable(str(getattr(problem, "filename", "") or where), problem, folder.session(sid) if sid else "")

    # -- one session

    def _session(self, folder: Folder, sid: str, row: WebuiRow | None) -> Iterator[Fault]:
        live: documents.Document | None = None
        first = ""
        is_deleted = sid in (folder.deleted or ())
        if sid in folder.lives:
            if self._must_open(folder, sid, row):
                live = folder.document(folder.live(sid))
                if live is not None:
                    yield from self._whole(folder, sid, live, row)
                elif not is_deleted:
                    yield from self._corrupt(folder, sid)
        elif not is_deleted:
            for found in self._gone(folder, sid, row):
                if not found.repairable and found.cls != "webui_empty_row":
                    # A file with only the prompt would stand where the whole session has to be restored.
                    first = _GONE_FIRST
                yield found
        if sid in folder.journals and not is_deleted:
            yield from self._turns(folder, sid, live, first)

    def _must_open(self, folder: Folder, sid: str, row: WebuiRow | None) -> bool:
        """Whether the file has to be read: something else may hold more than it, or it is not as it was captured."""
        if sid in folder.backups or (self._sure and row is None) or self._has_open_turns(folder, sid):
            return True
        if row is not None and row.live > self._room(folder, sid):
            return True
        return not self._is_unchanged(folder, sid)

    def _is_unchanged(self, folder: Folder, sid: str) -> bool:
        """Whether the file looks as it did when it was captured, and was well then."""
        state = self._cache.get(folder.live(sid))
        return state is not None and state.look == FileLook.of(folder.lives[sid]) and state.rewritten is False and state.odd == 0

    def _room(self, folder: Folder, sid: str) -> int:
        """How many messages a session file can have at most, as far as can be known without opening it."""
        if folder.place not in self._counts:
            self._counts[folder.place] = _counts(folder)
        room = folder.lives[sid].size // _LEAST_BYTES
        return min(room, self._counts[folder.place].get(sid, room))

    def _fault(
        self, cls: str, folder: Folder, sid: str, where: str, what: str, *, key: str = "", unsafe: str = "", step: str = ""
    ) -> Fault:
        about = {"place": folder.place, "sid": sid, "path": where}
        return fault(cls, where, what, session=folder.session(sid), key=key, unsafe=unsafe, step=step, **about)

    def _corrupt(self, folder: Folder, sid: str) -> Iterator[Fault]:
        found = copies(folder, sid, self._databases)
        where = folder.live(sid)
        if found:
            origins = ", ".join(dict.fromkeys(copy.origin for copy in found))
            what = f"it is not a readable session; there is a copy in: {origins}"
            unsafe = "" if folder.deleted is not None else _UNKNOWN_DELETED
            yield self._fault("webui_corrupt", folder, sid, where, what, unsafe=unsafe)
        else:
            what = "it is not a readable session, and there is no copy"
            yield self._fault("store_unreadable", folder, sid, where, what)

    def _gone(self, folder: Folder, sid: str, row: WebuiRow | None) -> Iterator[Fault]:
        unsafe = self._unsafe_to_create(folder, sid)
        backup = folder.document(folder.backup(sid)) if sid in folder.backups else None
        if sid in folder.backups and backup is None:
            yield self._fault("store_unreadable", folder, sid, folder.backup(sid), "it is not a readable session")
        if backup is not None:
            unsafe = unsafe or (_MAYBE_DELETED if self._sure and row is None else "")
            count = counted(len(documents.messages_of(backup)), "message", "messages")
            what = f"the session file is missing; its backup has {count}"
            yield self._fault("webui_orphan_backup", folder, sid, folder.backup(sid), what, unsafe=unsafe)
        elif row and (row.live or row.worktree):
            count = counted(row.live, "message", "messages")
            what = f"`{row.database}` has a row and {count} for it, but there is no session file"
            where = folder.live(sid) if names_a_file(sid) else f"{row.database}#{sid}"
            yield self._fault("webui_no_sidecar", folder, sid, where, what, unsafe=unsafe)
        elif row:
            what = f"`{row.database}` has a row for it without a live message: it never became a session"
            yield self._fault("webui_empty_row", folder, sid, f"{row.database}#{sid}", what)
        elif (known := self._last_captured(folder, sid)) is not None:
            key = sha256(known).hexdigest()[:16]
            what = f"the file was deleted; dreamkeep has a copy ({readable_size(len(known))})"
            yield self._fault("source_vanished", folder, sid, folder.live(sid), what, key=key)

    def _unsafe_to_create(self, folder: Folder, sid: str) -> str:
        """Why no session file may be made where there is none."""
        if folder.deleted is not None or not names_a_file(sid):
            return folder.why_no_file(sid)
        return _UNKNOWN_DELETED if folder.is_here else _NO_FOLDER.format(place=folder.place)

    def _last_captured(self, folder: Folder, sid: str) -> bytes | None:
        if self._cache.get(folder.live(sid)) is None:
            return None
        last = None
        for data in folder.versions(sid):
            last = data
        return last or None

    def _whole(self, folder: Folder, sid: str, live: documents.Document, row: WebuiRow | None) -> Iterator[Fault]:
        richer = False
        if sid in folder.backups:
            backup = folder.document(folder.backup(sid))
            if backup is None:
                yield self._fault("store_unreadable", folder, sid, folder.backup(sid), "it is not a readable session")
            elif documents.lost_messages(live, backup):
                # The rows are read only where something is missing: what the user took back is not.
                rows = read_row_messages(folder, sid, self._databases)
                if more := documents.lost_messages(live, backup, rows=rows):
                    richer = True
                    count = counted(len(more), "message", "messages")
                    what = f"it has {count} that the session file lacks, with no sign that this was intended"
                    key = documents.messages_digest(more)
                    yield self._fault("webui_richer_backup", folder, sid, folder.backup(sid), what, key=key)
        less = () if richer or self._is_unchanged(folder, sid) else tuple(self._less_than_captured(folder, sid, live))
        yield from less
        if row and not richer and not less and sid not in (folder.deleted or ()):
            yield from self._less_than_rows(folder, sid, live, row)
        if self._sure and row is None and _should_have_row(live):
            what = "`state.db` has no row for it"
            yield self._fault("webui_no_row", folder, sid, folder.live(sid), what)

    def _less_than_captured(self, folder: Folder, sid: str, live: documents.Document) -> Iterator[Fault]:
        if self._cache.get(folder.live(sid)) is None:
            return
        lost: dict[str, documents.Message] = {}
        rows: documents.WebuiMessages | None = None
        for data in folder.versions(sid):
            before = documents.parse_document(data)
            if before is not None and documents.lost_messages(live, before, edited=True):
                rows = rows or read_row_messages(folder, sid, self._databases)
                masked = masked_messages(documents.messages_of(live)) if is_masked(data) else frozenset()
                gone = documents.lost_messages(live, before, edited=True, rows=rows)
                lost |= {
                    documents.messages_digest([one]): one
                    for one in gone
                    if not documents.is_partial(one) and canonical(one) not in masked
                }
        if lost:
            count = counted(len(lost), "captured message is", "captured messages are")
            what = f"{count} gone or empty, with no sign that this was intended"
            key = documents.messages_digest(list(lost.values()))
            yield self._fault("source_shrank", folder, sid, folder.live(sid), what, key=key, step=ELSEWHERE)

    def _less_than_rows(self, folder: Folder, sid: str, live: documents.Document, row: WebuiRow) -> Iterator[Fault]:
        """Nothing says whether that was intended (older versions of the WebUI left no mark), so it is only reported."""
        if row.live <= len(documents.messages_of(live)) and not documents.has_blanks(live):
            return
        try:
            rows = read_database_session(self._host, row.database, sid)
        except (OSError, DreamkeepError):
            return  # another fault reports it
        until = self._host.now() / 1e9 - _YOUNG_S
        more = documents.messages_only_in_rows(live, rows.document, rows.messages, until) if rows else []
        if more:
            count = counted(len(more), "message", "messages")
            what = f"`{row.database}` has {count} that the session file lacks, with no sign that this was intended"
            step = _BESIDE_IT.format(rows=quote(f"{HERMES}:{sid}"), agent=AGENT)
            yield self._fault(
                "webui_richer_rows", folder, sid, folder.live(sid), what, key=documents.messages_digest(more), step=step
            )

    # -- turns

    def _has_open_turns(self, folder: Folder, sid: str) -> bool:
        return any(not turn.over and turn.content for turn in folder.turns(sid))

    def _turns(self, folder: Folder, sid: str, live: documents.Document | None, first: str) -> Iterator[Fault]:
        now = self._host.now() / 1e9
        for turn in documents.pending_turns(folder.turns(sid), live or {}):
            if turn.at + _YOUNG_S > now:
                continue
            unsafe = (self._unsafe_to_create(folder, sid) or first) if sid not in folder.lives else ""
            if documents.may_be_intended(live or {}, turn, read_row_messages(folder, sid, self._databases)):
                unsafe = "Messages were cleared or undone in this session, perhaps this one too. If not, send it again."
            what = f"the prompt of turn {turn.id} is in no message, and the turn never ended"
            where = folder.journals[sid][0]
            found = self._fault("webui_turn_pending", folder, sid, where, what, key=turn.id, unsafe=unsafe)
            yield found._replace(about={**found.about, "turn": turn.id})

    # -- the index

    def _index(self, folder: Folder, bad: set[str], missed: set[str]) -> Iterator[Fault]:
        path = f"{folder.place}/{INDEX}"
        if self._host.stat(path) is None:
            return  # the WebUI makes it when it starts
        entries = folder.entries()
        about = {"place": folder.place, "sid": "", "path": path}
        if entries is None:
            what = f"it is not a list, so none of {len(folder.lives)} sessions is listed"
            yield fault("webui_index_missing", path, what, key="*", **about)
            return
        listed = {documents.entry_id(one) for one in entries}
        for sid in sorted(set(folder.lives) - listed - bad - folder.pruned):
            if sid in (folder.deleted or ()) and folder.document(folder.live(sid)) is None:
                continue  # the rest of a deleted session; a readable file is a session that was made since
            what = f"session {sid} has a file, but is not listed"
            yield fault("webui_index_missing", path, what, session=folder.session(sid), key=sid, **{**about, "sid": sid})
        for n, one in enumerate(entries):
            sid = documents.entry_id(one)
            if sid in folder.lives or sid in missed or (sid and documents.is_unsaved(one)):
                continue
            what = f"session {sid} is listed, but has no file" if sid else f"entry {n} names no session"
            yield fault("webui_index_dangling", path, what, key=sid or f"#{n}", **{**about, "sid": sid})


def _should_have_row(live: documents.Document) -> bool:
    """The agent makes a row when it answers. A copy (fork, frozen beginning, import) that was never continued has none."""
    copied = live.get("session_source") == "fork" or live.get("pre_compression_snapshot") or live.get("read_only")
    answered = any(one.get("role") == "assistant" and not documents.is_partial(one) for one in documents.messages_of(live))
    return answered and not copied and not live.get("is_cli_session")
