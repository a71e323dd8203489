"""Compare every captured source with its file: what shrank, was blanked, changed or vanished, is unreadable, or has no records.

`state/sources.json` says how a source looked when it was captured. A file that still looks so, was never rewritten and has only
records costs one stat. A file that looks different is compared with the checksum in its journal (one pass over the file). Only if
that differs or is unknown, its lines are compared with the journal's. `deep` compares all files by that checksum. So it does not
matter whether an ingest has already seen a loss. A source that only grew or moved is no fault.

Documents that agents rewrite as a habit are compared by their messages. Sources that an agent's own `recovery.py` audits are left
to it. Sources that `state/sources.json` does not name (it was lost, or an ingest failed) are looked up in the journals.

`Fault.about` of each class here: `path`, `name` (its key in the journal, "" for a database), and for `source_shrank` and
`source_changed` `gone` (how many lines or messages). The id stays the same as long as the same is missing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import Any

from dreamkeep.agents import registry
from dreamkeep.agents.contract import DOCUMENT, LINES, ROWS, TEXT, Source
from dreamkeep.agents.registry import discovery
from dreamkeep.capture import find
from dreamkeep.capture.sources import rows, source_bytes
from dreamkeep.capture.sources.content import Content, SourceCursor, goes_on, iter_blocks, untouched
from dreamkeep.capture.sources.source_cache import NAME, Cache, FileLook, SourceState
from dreamkeep.event import readable_size
from dreamkeep.host import Host, Stat
from dreamkeep.index import part_fingerprints
from dreamkeep.journal import parts
from dreamkeep.journal.open_state import read_head, survey
from dreamkeep.journal.places import SESSIONS, folder_of
from dreamkeep.recovery.audit import compare_source
from dreamkeep.recovery.audit.journals import OWNER_READS
from dreamkeep.recovery.audit.proof import check_in_threads
from dreamkeep.recovery.audit.rows import audit_rows, to_look_at
from dreamkeep.recovery.faults import CLASSES, Fault, counted, fault
from dreamkeep.recovery.isolate import TROUBLE
from dreamkeep.recovery.repair.movable import dangling
from dreamkeep.recovery.stores import own_store, restores_rows

#: Sources whose loss is the loss of a session. Agents remove the others as a habit.
_MAIN = frozenset(("main", "subagent"))
#: For so long an unfinished line may still be being written.
_WRITING_NS = 60_000_000_000
_HEAD = 1 << 16
_NOT_FILLED = (
    "The file was changed beyond the blanked bytes, the journal lost lines of it, or secrets in it were masked at capture."
)
_MASKED_STEP = (
    "Secrets are masked in the captured version, so it won't replace this file. Write it to another folder with"
    " `dreamkeep restore SESSION --to AGENT --home DIR`, or accept it with `dreamkeep repair --accept {id}`."
)
ELSEWHERE = (
    "The file is not the beginning of the captured version, so it won't be replaced. Write that version to another folder with"
    " `dreamkeep restore SESSION --to AGENT --home DIR`, or accept it with `dreamkeep repair --accept {id}`."
)
_LEFT_OUT = frozenset(("deleted", "excluded", "empty", "waiting"))


def audit_sources(
    host: Host,
    root: str,
    home: str,
    environment: Mapping[str, str],
    deep: bool,
    checked: dict[str, int] | None = None,
    cache: Cache | None = None,
) -> Iterator[Fault]:
    """`checked` gets the number of `sources`. `cache`: what capture remembers, if it was read already."""
    looking = _SourceAudit(host, root, home, environment, deep, cache or Cache(host, root))
    yield from looking.all()
    if checked is not None:
        checked["sources"] = looking.count


class _SourceAudit:
    def __init__(self, host: Host, root: str, home: str, environment: Mapping[str, str], deep: bool, cache: Cache) -> None:
        self._host = host
        self._root = root
        self._home = home
        self._environment = environment
        self._deep = deep
        self._cache = cache
        self.count = 0
        self._tombs: dict[str, frozenset[str]] = {}
        #: For agents whose recovery audits sources itself: where those are, and their roles.
        self._own = _own_audits(home, environment)
        #: For each agent, where files are now, by their name without endings and by session.
        self._elsewhere: dict[str, dict[str, list[str]]] = {}
        #: Databases that only journals name. Each is checked once, for all sessions that came from it.
        self._unremembered: dict[str, SourceState] = {}

    def all(self) -> Iterator[Fault]:
        well = self._find_unchanged()
        named = {(agent, journal) for agent, journal in well.values()}
        self.count += len(well)
        for path in sorted(path for path in self._cache.paths() if path not in well):
            seen = self._cache.get(path)
            if seen is None:
                continue
            named.update((seen.agent, name) for name in _journals(seen))
            if seen.state not in _LEFT_OUT:
                self.count += 1
                yield from self._audit_isolated(path, seen)
        yield from self._unnamed(named)

    def _find_unchanged(self) -> dict[str, tuple[str, str]]:
        """The common case, in one piece because there are thousands: by path, (agent, journal) of sources that look as they did
        when they were read, and had no problem then. A deep audit checks their bytes, too."""
        plain = {one[0]: one for one in self._cache.append_only_files() if one[6] not in _LEFT_OUT}
        try:
            changed = set(self._host.changed("/", (one[:4] for one in plain.values())))
        except OSError:
            return {}  # the closer look reports why
        same = [one for path, one in plain.items() if path not in changed]
        if self._deep:
            same = check_in_threads(same, lambda one, buffer: self._has_its_bytes(one[0], one[7], buffer))
        return {one[0]: (one[4], one[5]) for one in same}

    def _has_its_bytes(self, path: str, said: str, room: memoryview) -> bool:
        word = SourceCursor.parse(said)
        if word is None:
            return False
        try:
            if path.endswith(".zst"):
                return self._unpacks_to(path, word)
            handle = self._host.open_read(path)
            try:
                at = self._host.handle_stat(handle)
                return at.size == word.offset and part_fingerprints.crc32_of(self._host, handle, word.offset, room) == word.crc
            finally:
                self._host.close(handle)
        except TROUBLE:
            return False  # the closer look reports why

    def _unpacks_to(self, path: str, word: SourceCursor) -> bool:
        content = compare_source.opened(self._host, path)
        try:
            return content.size == word.offset and untouched(content, word)
        finally:
            content.close()

    def _audit_isolated(self, path: str, seen: SourceState) -> Iterator[Fault]:
        """An error with one source is a fault of that source."""
        places, roles = self._own.get(seen.agent, ((), frozenset()))
        if registry.find(seen.agent) is None or (seen.role in roles and path.startswith(places)):
            return
        session = f"{seen.agent}:{seen.session}" if seen.session else ""
        try:
            yield from self._audit_source(path, seen, session)
        except TROUBLE as problem:
            cls = "store_unreadable" if seen.rows is not None else "source_unreadable"
            why = getattr(problem, "what", "") or getattr(problem, "strerror", "") or f"{type(problem).__name__}: {problem}"
            yield fault(cls, path, f"it can't be read: {why}", session=session, path=path, name="")

    def _audit_source(self, path: str, seen: SourceState, session: str) -> Iterator[Fault]:
        at = self._host.stat(path)
        if seen.rows is not None:
            yield from self._database(path, seen, at)
        elif self._host.stat(f"{self._root}/{folder_of(session)}") is None:
            return  # deleted or lost: the audit of journals reports that
        elif at is None:
            yield from self._vanished(path, seen, session)
        elif at.is_folder:
            yield fault("source_unreadable", path, "a folder is where the transcript was", session=session, path=path, name="")
        elif (
            self._deep
            or not at.mode & OWNER_READS
            or seen.look != FileLook.of(at)
            or seen.rewritten is not False
            or seen.odd != 0
        ):
            yield from self._look_closer(path, seen, session, at)

    # -- files

    def _look_closer(self, path: str, seen: SourceState, session: str, at: Stat) -> Iterator[Fault]:
        name, word = compare_source.word_of(self._host, self._root, session, source_bytes.names_of(self._host, seen.role, path))
        if word is None:
            return  # nothing was captured from here, or it has moved
        form = _form(seen.agent, path)
        with ExitStack() as opened:
            content = self._open_now(opened, path)
            same = content.size >= word.offset and untouched(content, word)
            about = {"session": session, "path": path, "name": name}
            if form == DOCUMENT:
                if self._deep or seen.rewritten is not False or not same or content.size != word.offset:
                    yield from self._document(opened, about)
                return
            looks_closer = self._deep or seen.rewritten is not False or not same
            lost = list(self._lost(opened, content, word, about, text=form == TEXT)) if looks_closer else []
            yield from lost
            if not lost and form == LINES and (seen.role in _MAIN or seen.role == "turns"):
                known = same and seen.odd == 0 and not self._deep
                settled = self._host.now() - at.mtime_ns > _WRITING_NS
                yield from self._malformed(content, word.offset if known and not word.open else 0, settled, about)

    def _open_now(self, opened: ExitStack, path: str) -> Content:
        """Open it after the journal was read: then the file has everything that was captured meanwhile, and it is no longer than
        when it was opened. It is closed with the others."""
        content = compare_source.opened(self._host, path)
        opened.callback(content.close)
        return content

    def _lost(
        self, opened: ExitStack, content: Content, word: SourceCursor, about: Mapping[str, Any], *, text: bool
    ) -> Iterator[Fault]:
        path, session = about["path"], about["session"]
        if word.offset > compare_source.LARGEST:
            if content.size < word.offset or not untouched(content, word):
                cls = "source_shrank" if content.size < word.offset else "source_changed"
                what = f"{word.offset} captured bytes have changed or are gone"
                yield fault(cls, path, what, key=f"{word.crc:08x}", gone=-1, **about)
            return
        folder = f"{self._root}/{folder_of(session)}"
        held = compare_source.read_captured_lines(self._host, folder, about["name"])
        content = self._open_now(opened, path)
        found = compare_source.compare(held, content, text=text)
        if not found.gone:
            return
        many = f"{len(found.gone)} of {found.lines} captured lines"
        step = _MASKED_STEP if held.masked else ""
        if found.nuls:
            now = b"".join(iter_blocks(content))
            fits = compare_source.unblanked(self._host, folder, about["name"], now) is not None
            begins = compare_source.is_beginning(self._host, folder, about["name"], now)
            step = step or (CLASSES["source_shrank"].next if begins else ELSEWHERE)
            unsafe = "" if fits else _NOT_FILLED
            yield fault("source_blanked", path, f"{many} are now NUL bytes", key=found.key, unsafe=unsafe, step=step, **about)
        elif content.size < found.captured:
            what = f"{many} are gone; it had {found.captured} bytes and now has {content.size}"
            begins = compare_source.is_beginning(self._host, folder, about["name"], b"".join(iter_blocks(content)))
            step = step or ("" if begins else ELSEWHERE)
            yield fault("source_shrank", path, what, key=found.key, step=step, gone=len(found.gone), **about)
        else:
            what = f"{many} were replaced by others"
            number = compare_source.before_it_changed(self._host, folder, about["name"], found.gone)
            if number is not None and about["name"].startswith("main-"):
                step = step or CLASSES["source_changed"].next.replace("--home DIR", f"--home DIR --generation {number}")
            yield fault("source_changed", path, what, key=found.key, step=step, gone=len(found.gone), **about)

    def _malformed(self, content: Content, start: int, settled: bool, about: Mapping[str, Any]) -> Iterator[Fault]:
        count, key = compare_source.malformed(content, start, settled=settled)
        if count:
            what = f"{counted(count, 'line is not a record', 'lines are not records')} (torn, or NULs)"
            yield fault("source_malformed", about["path"], what, key=key, **about)

    def _document(self, opened: ExitStack, about: Mapping[str, Any]) -> Iterator[Fault]:
        folder = f"{self._root}/{folder_of(about['session'])}"
        before = compare_source.said_in(self._host, folder, about["name"])
        if before is None:
            return  # it never was an object with messages, but a list or settings
        now = compare_source.messages_in(b"".join(iter_blocks(self._open_now(opened, about["path"]))))
        if now is None:
            what = "it is no longer a JSON object with messages; what was captured is safe"
            yield fault("source_unreadable", about["path"], what, **about)
            return
        lost = compare_source.lost_messages(now, before)
        if lost and not any("<state_snapshot>" in str(one.get("content")) for one in now):
            what = counted(len(lost), "captured message is gone or empty", "captured messages are gone or empty")
            yield fault("source_shrank", about["path"], what, key="|".join(sorted(lost)), step=ELSEWHERE, gone=len(lost), **about)

    def _vanished(self, path: str, seen: SourceState, session: str) -> Iterator[Fault]:
        name, word = compare_source.word_of(self._host, self._root, session, source_bytes.names_of(self._host, seen.role, path))
        if word is None or not word.offset or seen.role not in _MAIN or self._has_moved(path, seen, word):
            return
        key = f"{word.generation} {word.offset} {word.crc}"
        gone, step = self._gone(path, "the file was deleted")
        whole = "full copy" if seen.look and word.offset >= seen.look.size else "copy"
        what = f"{gone}; dreamkeep has a {whole} ({readable_size(word.offset)})"
        yield fault("source_vanished", path, what, session=session, key=key, step=step, path=path, name=name)

    def _gone(self, path: str, plainly: str, then: str = CLASSES["source_vanished"].next) -> tuple[str, str]:
        """What is told of a file that is not there, and what to do: nothing is given back through a link that leads nowhere."""
        link = dangling(self._host, path)
        if not link:
            return plainly, then
        what = "it" if link == path else f"`{link}`, where it was,"
        return f"{what} is a link to nothing", f"Bring back the link's target, or remove the link. Then: {then}"

    def _has_moved(self, path: str, seen: SourceState, word: SourceCursor) -> bool:
        """Archived, compressed: the next ingest will see that it is the same."""
        there = self._elsewhere.get(seen.agent)
        if there is None:
            there = self._elsewhere[seen.agent] = {}
            for found in find.everywhere(self._host, self._home, self._environment, [seen.agent]):
                if isinstance(found, Source) and found.form != ROWS:
                    for key in {_stem(found.path), found.session}:
                        there.setdefault(key, []).append(found.path)
        others = {*there.get(_stem(path), ()), *there.get(seen.session, ())} - {path}
        return any(self._goes_on(other, word) for other in sorted(others))

    def _goes_on(self, path: str, word: SourceCursor) -> bool:
        try:
            content = compare_source.opened(self._host, path)
            try:
                return goes_on(content, word)
            finally:
                content.close()
        except OSError:
            return False  # what is wrong with that one is its own fault

    # -- databases

    def _deleted(self, agent: str) -> frozenset[str]:
        """Sessions that the user deleted in another program, which took their rows away, too."""
        known = registry.find(agent)
        if known is None or not known.deleted_by:
            return frozenset()
        if agent not in self._tombs:
            store = own_store(known.deleted_by)
            places = find.places(known.deleted_by, self._home, self._environment)
            self._tombs[agent] = store.deleted_sessions(self._host, places) if store else frozenset()
        return self._tombs[agent]

    def _database(self, path: str, seen: SourceState, at: Stat | None) -> Iterator[Fault]:
        if _form(seen.agent, path) != ROWS:
            return  # lines of many sessions: names and the like
        if at is None:
            kept = list(self._captured_from(path, seen, set()))
            if kept:
                back = f"List them with `dreamkeep sessions --agent {seen.agent}`. {_given_back(seen.agent)}"
                gone, step = self._gone(path, "the database was deleted", back)
                what = f"{gone}; dreamkeep has a copy of {counted(len(kept), 'session', 'sessions')}"
                yield fault("source_vanished", path, what, key=" ".join(kept), step=step, path=path, name="")
            return
        beside = self._host.stat(f"{path}-wal")
        now = (FileLook.of(at), FileLook.of(beside) if beside else None)
        before = seen.rows or {}
        as_it_was = not self._deep and at.mode & OWNER_READS and now == (seen.look, seen.beside)
        found = None if as_it_was else rows.sessions(self._host, seen.agent, path)
        rest = set(before if found is None else found)
        given_up = self._deleted(seen.agent)
        missed = [one for one in self._captured_from(path, seen, rest) if one.partition(":")[2] not in given_up]
        # Of what is not remembered the database is asked: a version before forgot sessions that had no messages any more.
        unknown = set(rows.sessions(self._host, seen.agent, path)) if missed and found is None else set()
        for session in missed:
            if session.partition(":")[2] in unknown:
                continue
            what = "its rows were deleted from the database; dreamkeep has a copy"
            where, step = f"{path}#{session.partition(':')[2]}", _given_back(seen.agent)
            yield fault("source_vanished", where, what, session=session, step=step, path=path, name="")
        names = source_bytes.names_of(self._host, seen.role, path)
        doubted = [*to_look_at(self._host, seen.agent, path, before, found, self._deep), *sorted(unknown - before.keys())]
        looked_at = (one for one in doubted if one not in given_up)
        yield from audit_rows(self._host, self._root, seen.agent, path, names, looked_at)

    def _captured_from(self, path: str, seen: SourceState, rest: set[str]) -> Iterator[str]:
        """Sessions whose journal says that they came from this database, and that are not in it."""
        there = {os.path.basename(folder_of(f"{seen.agent}:{native}")) for native in rest}
        keys = {f"src:{name}" for name in source_bytes.names_of(self._host, seen.role, path)}
        for name in self._journal_names(seen.agent):
            folder = f"{self._root}/{SESSIONS}/{seen.agent}/{name}"
            try:
                came_from_it = name not in there and not keys.isdisjoint(survey(self._host, folder).carry)
                session = self._session_of(folder) if came_from_it else ""
            except TROUBLE:
                continue  # a journal that can't be read is the journals' audit's to tell
            if session:
                yield session

    # -- journals that nothing is remembered of

    def _unnamed(self, named: set[tuple[str, str]]) -> Iterator[Fault]:
        lost = self._host.stat(f"{self._root}/{NAME}") is None
        for agent in registry.names():
            for name in self._journal_names(agent):
                if (agent, name) in named:
                    continue
                folder = f"{self._root}/{SESSIONS}/{agent}/{name}"
                try:
                    if lost or self._deep or self._tells_of_sources(folder):
                        yield from self._by_journal(agent, folder)
                except TROUBLE:
                    continue  # a journal that can't be read is the journals' audit's to tell
        for path, seen in sorted(self._unremembered.items()):
            self.count += 1
            yield from self._audit_isolated(path, seen)

    def _by_journal(self, agent: str, folder: str) -> Iterator[Fault]:
        session = self._session_of(folder)
        for about in source_bytes.sources(self._host, folder).values():
            path, role = str(about.get("path", "")), str(about.get("role", "main"))
            known = self._cache.get(path)
            # A path that was no UTF-8 can't be asked for by what the journal has of it.
            if not path or "\ufffd" in path or not session or (known and (known.session or known.rows is not None)):
                continue
            if self._is_elsewhere(path):
                continue
            if about.get("form") == ROWS:
                self._unremembered[path] = SourceState(agent, "", None, role=role, rows={})
                continue
            self.count += 1
            yield from self._audit_isolated(path, SourceState(agent, session.partition(":")[2], None, role=role))

    def _is_elsewhere(self, path: str) -> bool:
        """Not even its folder is here: it was captured on another machine, and brought by a snapshot."""
        try:
            return self._host.stat(os.path.dirname(path)) is None
        except OSError:
            return False  # can't be looked at: told as that source's fault

    def _tells_of_sources(self, folder: str) -> bool:
        numbers = parts.numbers(self._host, folder)
        if not numbers:
            return False
        with parts.stream(self._host, folder, numbers[0]) as source:
            return b'"kind":"source.opened"' in source.read(_HEAD)

    def _session_of(self, folder: str) -> str:
        for part in parts.numbers(self._host, folder):
            head = read_head(self._host, folder, part)
            if head is not None:
                return str(head["body"].get("journal", ""))
        return ""

    def _journal_names(self, agent: str) -> list[str]:
        folder = f"{self._root}/{SESSIONS}/{agent}"
        try:
            return sorted(self._host.names(folder))
        except OSError:
            return []  # there is none of that agent; or it can't be read, which the journals' audit tells


def _own_audits(home: str, environment: Mapping[str, str]) -> dict[str, tuple[tuple[str, ...], frozenset[str]]]:
    return {
        agent.name: (tuple(f"{place}/" for place in find.places(agent.name, home, environment)), agent.own_audit)
        for agent in registry.agents()
        if agent.own_audit
    }


def _stem(path: str) -> str:
    return os.path.basename(path).partition(".")[0]


def _given_back(agent: str) -> str:
    """Rows can be put back into the database of some agents; of others we only know how to read them."""
    accept = "or accept it with `dreamkeep repair --accept {id}`."
    if restores_rows(agent):
        return f"Restore what was captured with `dreamkeep restore SESSION --to {agent}`, {accept}"
    return f"Convert what was captured for another agent with `dreamkeep restore SESSION --to claude`, {accept}"


def _journals(seen: SourceState) -> list[str]:
    if seen.rows is None and seen.journal:
        return [seen.journal]
    natives = [*(seen.rows or ()), *([seen.session] if seen.session else [])]
    return [os.path.basename(folder_of(f"{seen.agent}:{native}")) for native in natives]


def _form(agent: str, path: str) -> str:
    claimed = discovery(agent).claims(path)
    return claimed.form if claimed else LINES
