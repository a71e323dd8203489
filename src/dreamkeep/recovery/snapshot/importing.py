"""Import a snapshot: all of it where there is no keep, what is missing where there is one. Nothing in the keep is ever replaced.

Each journal is first staged below `state/` and checked against its digest, then adopted whole or merged event by event. After a
crash, what was done stays, and importing again does the rest. A name that could lead out of the keep is refused.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from functools import cached_property, partial
from typing import NamedTuple

from dreamkeep.capture import forget
from dreamkeep.capture.hooks.spool import SPOOL
from dreamkeep.errors import Busy, Deleted, DreamkeepError, NotDurable, Refused, from_os
from dreamkeep.event import Event, Kind
from dreamkeep.host import Host, make_folders, read_file, write_new
from dreamkeep.journal import parts, witness
from dreamkeep.journal.adopt import adopt
from dreamkeep.journal.places import KEEP, folder_of
from dreamkeep.journal.reader import Reading
from dreamkeep.journal.scan import read_events
from dreamkeep.journal.tombs import Tombstones
from dreamkeep.journal.writers import JournalWriters
from dreamkeep.memory import page
from dreamkeep.recovery.delete.delete import forget_outside
from dreamkeep.recovery.snapshot.file import BadEntry, DamagedEntry, Header
from dreamkeep.recovery.snapshot.merge import (
    JournaledCalls,
    MissingEvent,
    OurJournal,
    batches,
    event_to_append,
    find_missing,
    has_all_calls,
    is_older,
)
from dreamkeep.recovery.snapshot.proof import prove_mended
from dreamkeep.recovery.snapshot.snapshot import FOLDERS, PAGES, TOML, VIEW, Progress, SnapshotReader, keep_id
from dreamkeep.recovery.snapshot.staging import clear, lock_staging, new_staging, sweep
from dreamkeep.recovery.snapshot.their_keep import FindQuote, TheirKeep, published_regions, read_tombs

#: Seven digits are 40 TB of one session: no keep has a higher number.
_PART = re.compile(r"(journal/keep|journal/sessions/[a-z0-9-]{1,32}/[^/]{1,120})/([0-9]{6}|[1-9][0-9]{6})\.jsonl")
#: It names the paths that an undo restores.
_LEDGER = re.compile(r"aside/repair-[^/]*/undo\.json")
_BATCH = 500
_BATCH_BYTES = 4 << 20
_TRIES = 8
_WAIT_S = 10.0
#: What foreign frames raise in code that trusts them.
STRANGE = (KeyError, TypeError, ValueError, AttributeError, IndexError, RecursionError)
_NO_NAME = (errno.ENAMETOOLONG, errno.ENOTDIR, errno.EISDIR, errno.EINVAL, errno.EILSEQ)

#: (session, name of a source, folder of the staged journal): captures what that source has there and not here; answers why not.
MergeSource = Callable[[str, str, str], str]


class ImportViews(NamedTuple):
    """What an import asks of the index and the pages."""

    #: Rebuild them: something was erased in the keep's own journal, pages were imported, or a project has another name now.
    renew: Callable[[], None]
    find_quote: FindQuote
    #: Journal the hand edits on pages first, because imported events may remove a page.
    take_in_edits: Callable[[], object]


class ImportResult(NamedTuple):
    """`skipped`: what was left alone, and why. `bad`: what could not be used, or what the export could not read."""

    added: int = 0
    merged: int = 0
    unchanged: int = 0
    events: int = 0
    files: int = 0
    skipped: tuple[tuple[str, str], ...] = ()
    bad: tuple[BadEntry, ...] = ()
    digest: str = ""


class SnapshotImport:
    """`journals` creates the keep if there is none, so it is called only after the snapshot's own keep could be adopted."""

    def __init__(
        self,
        host: Host,
        root: str,
        path: str,
        journals: Callable[[], JournalWriters],
        merge_source: MergeSource,
        views: ImportViews,
    ) -> None:
        self._host = host
        self._root = root
        self._path = path
        self._journals = journals
        self._merge_source = merge_source
        self._views = views
        self._staging = f"{root}/{new_staging(host)}"
        #: Their keep's own journal waits there until their sessions are here, because it refers to places in them.
        self._waiting = f"{root}/{new_staging(host)}"
        self._waits = False
        #: By session: up to which seq its journal is the same here; None for all of it.
        self._same: dict[str, int | None] = {}
        self._tombs = Tombstones(host, root)
        #: Whether the snapshot is of this keep, or there is no keep yet.
        self._is_same = True
        self._is_live = False
        self._has_pages = False
        #: Whether an imported event renames a project.
        self._renamed = False
        self._skipped: list[tuple[str, str]] = []
        self._bad: list[BadEntry] = []
        self._counts = {"added": 0, "merged": 0, "unchanged": 0, "events": 0, "files": 0}
        #: By journal, the hook calls that are in it.
        self._journaled: dict[str, JournaledCalls] = {}
        #: Sessions that were refused because they are deleted here, and the taps that saw them there.
        self._refused: dict[str, set[str]] = {}

    def run(self, progress: Progress | None = None) -> ImportResult:
        reader = SnapshotReader(self._host, self._path)
        try:
            at = self._host.stat(self._path)
            with ExitStack() as stack:
                for n, (journal, entries) in enumerate(_grouped(reader.entries())):
                    if n == 0:  # not earlier: a file that is no snapshot must leave no trace
                        stack.enter_context(lock_staging(self._host, self._root, wait_s=_WAIT_S))
                        sweep(self._host, self._root)
                        stack.callback(sweep, self._host, self._root)
                        ours, theirs = keep_id(self._host, self._root), str(reader.about.get("keep", ""))
                        self._is_live = bool(parts.numbers(self._host, f"{self._root}/{KEEP}"))
                        self._is_same = not self._is_live or bool(ours and ours == theirs)
                    self._take(journal, entries)
                    if progress:
                        progress(reader.passed, at.size if at else 0)
                self._finish()
        except OSError as problem:
            raise from_os(problem, "importing", str(problem.filename or self._root)) from problem
        finally:
            reader.close()
        bad = (*reader.bad, *reader.noted, *self._bad)
        return ImportResult(**self._counts, skipped=tuple(self._skipped), bad=bad, digest=reader.digest)

    def _finish(self) -> None:
        if self._waits:
            self._guarded(KEEP, partial(self._merge_keep, self._waiting), self._waiting)
        for session, taps in sorted(self._refused.items()):
            forget_outside(self._host, self._root, self._journals(), session, taps)
        if self._refused or self._renamed or (self._has_pages and self._is_live):
            try:
                self._views.renew()
            except NotDurable:
                raise
            except DreamkeepError as problem:
                self._bad.append(BadEntry("pages", str(problem)))

    def _take(self, journal: str, found: Iterable[tuple[Header, Iterator[bytes]]]) -> None:
        """One journal's parts, or one other entry. A bad entry stops no other; a failing disk stops the import."""
        if not journal:
            for header, blocks in found:
                self._file(header, blocks)
        elif journal == KEEP and self._is_live:
            self._waits = bool(self._stage(found, self._waiting))
        elif staged := self._stage(found, self._staging):
            act = partial(self._adopt_keep, staged) if journal == KEEP else partial(self._session, journal, staged)
            self._guarded(journal, act, self._staging)

    def _guarded(self, journal: str, act: Callable[[], None], staging: str) -> None:
        try:
            act()
        except Deleted as problem:
            self._refused[problem.where] = forget.connections(self._host, self._staging)
            self._skipped.append((problem.where, "it was deleted here; lift that with `dreamkeep undelete`"))
        except Busy as problem:
            self._skipped.append((journal, f"{problem.what}; import again"))
        except NotDurable:
            raise
        except DreamkeepError as problem:
            self._bad.append(BadEntry(journal, str(problem)))
        except STRANGE as problem:
            self._bad.append(
                BadEntry(journal, f"it holds a frame that dreamkeep didn't write ({type(problem).__name__}: {problem})")
            )
        finally:
            clear(self._host, staging)

    # -- staging

    def _stage(self, found: Iterable[tuple[Header, Iterator[bytes]]], folder: str) -> list[tuple[int, str]]:
        """Write the whole parts to synced files: (number, path)."""
        staged = []
        for header, blocks in found:
            number = int(header.name.rpartition("/")[2].removesuffix(".jsonl"))
            path = f"{folder}/{parts.name(number)}"
            if self._write(path, blocks):
                staged.append((number, path))
        return sorted(staged)

    def _write(self, path: str, blocks: Iterator[bytes]) -> bool:
        make_folders(self._host, path.rpartition("/")[0])
        try:
            write_new(self._host, path, blocks)
        except DamagedEntry:
            return False  # the reader lists it in `bad`
        return True

    # -- journals

    def _session(self, journal: str, staged: Sequence[tuple[int, str]]) -> None:
        session = self._session_named_in(journal)
        if not session:
            self._bad.append(BadEntry(journal, "it doesn't name its session, or is in the wrong place"))
            return

        def may_begin() -> None:
            if self._tombs.has(session):
                raise Deleted("this session was deleted", where=session, next="Lift that first with `dreamkeep undelete`.")

        may_begin()  # already before a folder is made for it
        self._journals()  # the folders above a journal must exist and be durable
        if adopt(self._host, f"{self._root}/{journal}", staged, may_begin):
            self._counts["added"] += 1
            self._same[session] = None
            self._counts["events"] += sum(1 for _ in read_events(self._host, self._staging))
            return
        may_begin()
        done = self._merge(session, f"{self._root}/{journal}")
        self._counts["merged" if done else "unchanged"] += 1

    def _session_named_in(self, journal: str) -> str:
        """The session that the frames name, if its journal belongs in this folder; otherwise ""."""
        for frame in Reading(self._host, self._staging):
            body = frame["body"]
            session = body.get("journal") if frame["kind"] == Kind.PART_OPENED else body.get("session")
            if isinstance(session, str) and session and folder_of(session) == journal:
                return session
        return ""

    def _merge(self, session: str, folder: str) -> int:
        for _ in range(_TRIES):
            ours = OurJournal(self._host, folder)
            more = (event for found in find_missing(ours, self._host, self._staging) if (event := event_to_append(found, ours)))
            done = self._append_all(session, more, ours)
            if done is not None:
                sources = ours.differing()
                before = len(self._skipped)
                done += self._merge_sources(session, sources) if sources else 0
                if (done or ours.apart) and len(self._skipped) == before:
                    self._mark_mended(session, self._staging)
                self._same[session] = ours.same if ours.apart else None
                return done
        raise Busy("other processes keep writing to it", where=session, next="Import again.")

    def _mark_mended(self, session: str, staging: str) -> None:
        """All their events are here now. What was lost here, and is proven to be among them, is mended."""
        name = folder_of(session) if session else KEEP
        known = [sighting.frame for sighting in witness.load(self._host, self._root).seen.get(name, ())]
        found = prove_mended(self._host, f"{self._root}/{name}", staging, known)
        if found.mended:
            self._journals().say(session, Kind.JOURNAL_MENDED, {"faults": found.mended, "how": "imported"})
        if found.lost:
            witness.drop(self._host, self._root, name, found.lost)

    def _append_all(self, session: str, more: Iterable[Event], ours: OurJournal) -> int | None:
        """How many were new here. None when another process has written meanwhile what these events would turn back."""
        done = 0
        for batch in batches(more, most=_BATCH, size=_BATCH_BYTES):
            carry = {key: value for event in batch for key, value in (event.carry or {}).items()}
            # Where theirs simply follow ours, their cursors come along, but only if ours are still as they were read.
            expect = {} if ours.apart else {key: ours.carry.get(key) for key in carry}
            seqs = self._journals().append_if(session, batch, expect)
            if seqs is None:
                return None
            ours.carry.update(carry)
            done += sum(seq is not None for seq in seqs)
            self._counts["events"] += sum(seq is not None for seq in seqs)
        return done

    def _merge_sources(self, session: str, sources: Iterable[str]) -> bool:
        """Merge the sources of which they have frames that we lack. Answers whether something changed here."""
        folder = f"{self._root}/{folder_of(session)}"
        before = sum(1 for _ in Reading(self._host, folder, heads=True))
        for source in sorted(sources):
            if why := self._merge_source(session, source, self._staging):
                self._skipped.append((session, why))
        return sum(1 for _ in Reading(self._host, folder, heads=True)) != before

    def _adopt_keep(self, staged: Sequence[tuple[int, str]]) -> None:
        """There is no keep yet, so theirs becomes its own journal."""
        read_tombs(self._host, self._staging, _is_session)  # reads all of it, so that one with strange frames is not adopted
        if not adopt(self._host, f"{self._root}/{KEEP}", staged, lambda: None):
            self._merge_keep(self._staging)  # another process has just made one

    def _merge_keep(self, staging: str) -> None:
        """Append what theirs has and ours lacks. A tombstone of theirs deletes nothing here."""
        if self._host.stat(f"{self._root}/{PAGES}") is not None:
            self._views.take_in_edits()
        folder = f"{self._root}/{KEEP}"
        there, here = read_tombs(self._host, staging, _is_session), read_tombs(self._host, folder, _is_session)
        self._journals()
        ours = OurJournal(self._host, folder)
        dead = {session: self._refused.get(session, ()) for session in here.dead}
        theirs = TheirKeep(self._host, staging, dead, self._same_until, self._views.find_quote)
        found = find_missing(ours, self._host, staging)
        more = (event for missing in found if (event := self._translate_event(missing, theirs, ours)))
        done = self._append_all("", more, ours)
        before = len(self._skipped)
        self._delete_sessions(id for id, at in there.dead.items() if id not in here.dead and here.lifted.get(id, "") < at)
        if done is not None and (done or ours.apart) and len(self._skipped) == before:
            self._mark_mended("", staging)

    def _same_until(self, session: str) -> int | None:
        """If a session could not be read in the snapshot and is here, nothing of it is known to be the same."""
        if session not in self._same:
            self._same[session] = 0 if self._is_here(session) else None
        return self._same[session]

    def _is_here(self, session: str) -> bool:
        return _is_session(session) and bool(parts.numbers(self._host, f"{self._root}/{folder_of(session)}"))

    def _translate_event(self, found: MissingEvent, theirs: TheirKeep, ours: OurJournal) -> Event | None:
        """An event of their keep's own journal as it is to be appended here."""
        if found.event.kind in _OWN or (found.event.kind == Kind.FAULT_ACCEPTED and not self._is_same):
            return None
        event = theirs.translate(found.event)
        if event is None or (found.erased and event is not found.event):
            return None  # what may be kept of an erased event is here
        if not found.follows and has_all_calls(event, ours):
            return None
        if not found.follows and is_older(event, ours):
            return None
        self._renamed = self._renamed or event.kind in (Kind.PROJECT_RENAMED, Kind.PROJECT_UNDONE)
        return event._replace(carry=None)

    def _delete_sessions(self, sessions: Iterable[str]) -> None:
        for session in sorted(sessions):
            if self._host.stat(f"{self._root}/{folder_of(session)}") is not None:
                self._skipped.append((session, "it was deleted there, but is kept here"))
            else:
                self._journals().say("", Kind.SESSION_DELETED, {"session": session})

    # -- other files

    def _file(self, header: Header, blocks: Iterator[bytes]) -> None:
        name = header.name
        if name.partition("/")[0] == VIEW:
            return
        if not _is_safe(name) or (name != TOML and name.partition("/")[0] not in FOLDERS):
            self._bad.append(BadEntry(name[:200], "no keep has a file of this name"))
            return
        if self._is_of_dead(name):
            return  # reported with its journal, if there is one
        if name == TOML and not self._is_same and self._host.stat(f"{self._root}/{TOML}") is None:
            self._skipped.append((name, "these are another keep's settings; this keep uses the defaults until you set others"))
            return
        staged = f"{self._staging}/file"
        try:
            if self._write(staged, blocks) and (name.partition("/")[0] != PAGES or self._is_page_to_place(staged, name)):
                self._place(staged, name)
        except OSError as problem:
            if problem.errno not in _NO_NAME:
                raise
            self._bad.append(BadEntry(name[:200], f"a file can't have that name here ({problem.strerror})"))
        finally:
            clear(self._host, self._staging)

    def _is_page_to_place(self, staged: str, name: str) -> bool:
        """A page is placed as it is where there is no keep yet. Otherwise only what people wrote around its notes: the notes
        are in journals, which know what has changed since, and a region that was not published_regions here would look like a
        hand edit."""
        if not self._is_live:
            return True
        text = read_file(self._host, staged).decode("utf-8", "surrogateescape")
        found = page.parse(text)
        if found.problem:
            self._skipped.append((name, f"this page no longer exists here: {found.problem}"))
            return False
        if found.region is None:
            return True
        self._has_pages = True  # its notes come back with the next publication
        region = found.region.replace("\r\n", "\n")
        if self._theirs.get(name, region) not in (region, ""):
            self._skipped.append((name, "hand edits that no dream had applied there are not imported"))
        self._host.remove(staged)
        ours = page.replace_region(text, self._regions.get(name) or page.empty_region())
        write_new(self._host, staged, [ours.encode("utf-8", "surrogateescape")])
        return bool(f"{found.before}{found.after}".strip())

    @cached_property
    def _theirs(self) -> dict[str, str]:
        return published_regions(self._host, self._waiting) if self._waits else {}

    @cached_property
    def _regions(self) -> dict[str, str]:
        return published_regions(self._host, f"{self._root}/{KEEP}")

    def _is_of_dead(self, name: str) -> bool:
        """Whether it was set aside for a session that is deleted here, by its name."""
        folder, _, file = name.rpartition("/")
        if folder.partition("/")[0] != "aside":
            return False
        return file.partition(".")[0] in {folder_of(one).rpartition("/")[2] for one in self._tombs.all()}

    def _is_call_to_place(self, staged: str, name: str) -> bool:
        """Whether a hook's call is placed: not if its session is deleted here, nor if it is already journaled here."""
        session = forget.call_of(self._host, staged, name)
        if session in self._tombs.all():
            return False
        call = name.rpartition("/")[2]
        journals = (folder_of(session), KEEP) if session else (KEEP,)
        return not any(self._calls_in(one).has(call) for one in journals)

    def _calls_in(self, journal: str) -> JournaledCalls:
        return self._journaled.setdefault(journal, JournaledCalls(self._host, f"{self._root}/{journal}"))

    def _place(self, staged: str, name: str) -> None:
        """Create it or fail; a different file that is there already stays."""
        path = f"{self._root}/{name}"
        if name.startswith(f"{SPOOL}/") and not self._is_call_to_place(staged, name):
            return
        if self._host.stat(path) is None and _LEDGER.fullmatch(name):
            # A repair would sweep and restore the paths in it, which may be another machine's, or anybody's.
            self._skipped.append((name, "a repair made elsewhere can't be undone here; the bytes that it kept are here"))
            return
        make_folders(self._host, path.rpartition("/")[0])
        try:
            self._host.link(staged, path)
            self._host.sync_folder(path.rpartition("/")[0])
            self._counts["files"] += 1
            self._has_pages = self._has_pages or name.startswith(f"{PAGES}/")
        except FileExistsError:
            if not _equal(self._host, staged, path):
                self._skipped.append((name, "another file of that name exists here"))


#: Frames that are about that keep alone. Also about its pages: with them ours would look as if edited by hand.
_OWN = frozenset((Kind.KEEP_CREATED, Kind.SESSION_DELETED, Kind.SESSION_UNDELETED, Kind.PAGE_PUBLISHED, Kind.PAGE_WRITTEN))


def _grouped(
    entries: Iterator[tuple[Header, Iterator[bytes]]],
) -> Iterator[tuple[str, Iterator[tuple[Header, Iterator[bytes]]]]]:
    """Entries of one journal together: (its folder, its parts); others alone, with ""."""
    from itertools import groupby

    for key, found in groupby(enumerate(entries), lambda one: _journal_of(one[1][0].name) or one[0]):
        yield key if isinstance(key, str) else "", (entry for _, entry in found)


def _journal_of(name: str) -> str:
    found = _PART.fullmatch(name)
    return found[1] if found and _is_safe(name) else ""


def _is_safe(name: str) -> bool:
    """Odd names are safe, even if they are no text; unsafe is what could lead out of the keep, or break a line."""
    pieces = name.split("/")
    return not _CONTROL.search(name) and len(name) < 1000 and all(piece not in ("", ".", "..") for piece in pieces)


_CONTROL = re.compile("[\0-\x1f\x7f-\x9f]")


def _is_session(text: str) -> bool:
    from dreamkeep.journal.places import session_id

    agent, _, native = text.partition(":")
    try:
        return session_id(agent, native) == text
    except Refused:
        return False


def _equal(host: Host, one: str, other: str) -> bool:
    first, second = host.open_stream(one), host.open_stream(other)
    try:
        while block := first.read(1 << 20):
            if second.read(len(block)) != block:
                return False
        return not second.read(1)
    except IsADirectoryError:
        return False
    finally:
        first.close()
        second.close()
