"""A snapshot into a keep: all of it where there is none, what is lacking where there is one. Nothing here is ever replaced.

Each journal is staged below `state/` first, checked against its digest, then taken over whole (adopt) or merged event by event; a
crash leaves what was done, and importing again does the rest. A name that could leave the keep is refused.
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
from dreamkeep.recovery.snapshot.file import Bad, Damaged, Header
from dreamkeep.recovery.snapshot.keep import Placed, Theirs, published, tombs
from dreamkeep.recovery.snapshot.mended import proven
from dreamkeep.recovery.snapshot.merge import Journaled, Lacking, Ours, batches, is_journaled, is_older, lacking, wanted
from dreamkeep.recovery.snapshot.snapshot import FOLDERS, PAGES, TOML, VIEW, Opened, Progress, keep_id
from dreamkeep.recovery.snapshot.staging import clear, lock_staging, new_staging, sweep

#: Seven digits are 40 TB of one session: a higher number is none of ours.
_PART = re.compile(r"(journal/keep|journal/sessions/[a-z0-9-]{1,32}/[^/]{1,120})/([0-9]{6}|[1-9][0-9]{6})\.jsonl")
#: What names the paths that an undo restores.
_LEDGER = re.compile(r"aside/repair-[^/]*/undo\.json")
_BATCH = 500
_BATCH_BYTES = 4 << 20
_TRIES = 8
_WAIT_S = 10.0
#: What frames that others made do to code that believes in them.
STRANGE = (KeyError, TypeError, ValueError, AttributeError, IndexError, RecursionError)
_NO_NAME = (errno.ENAMETOOLONG, errno.ENOTDIR, errno.EISDIR, errno.EINVAL, errno.EILSEQ)

#: (session, name of a source, folder of the staged journal): take over what that source has there and not here; or why not.
Regain = Callable[[str, str, str], str]


class Index(NamedTuple):
    """What an import must know and change of it, and of the pages, by the name of a journal's folder."""

    #: Something was erased in the keep's own journal, pages came from elsewhere, or a project has another name now: no view may
    #: show what is not there.
    renew: Callable[[], None]
    placed: Placed
    #: What was edited on pages by hand is journaled: what others told may take the page away.
    take_in: Callable[[], object]


class Imported(NamedTuple):
    """`skipped`: what was left alone, and why; `bad`: what in the file could not be used, or is not in it as the
    export said."""

    added: int = 0
    merged: int = 0
    unchanged: int = 0
    events: int = 0
    files: int = 0
    skipped: tuple[tuple[str, str], ...] = ()
    bad: tuple[Bad, ...] = ()
    digest: str = ""


class Importing:
    """`journals` makes the keep when there is none: asked for only when the snapshot's own keep could not be taken over."""

    def __init__(
        self, host: Host, root: str, path: str, journals: Callable[[], JournalWriters], regain: Regain, index: Index
    ) -> None:
        self._host = host
        self._root = root
        self._path = path
        self._journals = journals
        self._regain = regain
        self._index = index
        self._staging = f"{root}/{new_staging(host)}"
        #: Their keep's own journal waits there until their sessions are here: it speaks of places in these.
        self._waiting = f"{root}/{new_staging(host)}"
        self._waits = False
        #: Sessions whose journal was looked at: up to which seq it is the same here; None for all of it.
        self._same: dict[str, int | None] = {}
        self._tombs = Tombstones(host, root)
        #: Whether this is the keep that the snapshot was made of, or none yet.
        self._is_same = True
        self._is_live = False
        self._has_pages = False
        #: Whether it is told that a project was given another name.
        self._renamed = False
        self._skipped: list[tuple[str, str]] = []
        self._bad: list[Bad] = []
        self._counts = {"added": 0, "merged": 0, "unchanged": 0, "events": 0, "files": 0}
        #: By journal, hook calls that are in it.
        self._journaled: dict[str, Journaled] = {}
        #: Sessions that were refused because they are deleted here, and the taps through which they were seen there.
        self._refused: dict[str, set[str]] = {}

    def run(self, progress: Progress | None = None) -> Imported:
        opened = Opened(self._host, self._path)
        try:
            at = self._host.stat(self._path)
            with ExitStack() as held:
                for n, (journal, found) in enumerate(_grouped(opened.entries())):
                    if n == 0:  # not before: of a file that is no snapshot nothing is to be seen here
                        held.enter_context(lock_staging(self._host, self._root, wait_s=_WAIT_S))
                        sweep(self._host, self._root)
                        held.callback(sweep, self._host, self._root)
                        self._look_at(str(opened.about.get("keep", "")))
                    self._take(journal, found)
                    if progress:
                        progress(opened.passed, at.size if at else 0)
                self._finish()
        except OSError as problem:
            raise from_os(problem, "importing", str(problem.filename or self._root)) from problem
        finally:
            opened.close()
        bad = (*opened.bad, *opened.noted, *self._bad)
        return Imported(**self._counts, skipped=tuple(self._skipped), bad=bad, digest=opened.digest)

    def _look_at(self, theirs: str) -> None:
        ours = keep_id(self._host, self._root)
        self._is_live = bool(parts.numbers(self._host, f"{self._root}/{KEEP}"))
        self._is_same = not self._is_live or bool(ours and ours == theirs)

    def _finish(self) -> None:
        if self._waits:
            self._guarded(KEEP, partial(self._merge_keep, self._waiting), self._waiting)
        for session, taps in sorted(self._refused.items()):
            forget_outside(self._host, self._root, self._journals(), session, taps)
        if self._refused or self._renamed or (self._has_pages and self._is_live):
            try:
                self._index.renew()
            except NotDurable:
                raise
            except DreamkeepError as problem:
                self._bad.append(Bad("pages", str(problem)))

    def _take(self, journal: str, found: Iterable[tuple[Header, Iterator[bytes]]]) -> None:
        """One journal's parts, or one other entry. What is wrong with it is its own trouble; a disk that fails is not."""
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
            self._bad.append(Bad(journal, str(problem)))
        except STRANGE as problem:
            self._bad.append(Bad(journal, f"it holds a frame that dreamkeep didn't write ({type(problem).__name__}: {problem})"))
        finally:
            clear(self._host, staging)

    # -- staging

    def _stage(self, found: Iterable[tuple[Header, Iterator[bytes]]], folder: str) -> list[tuple[int, str]]:
        """Synced files of the parts that are whole."""
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
        except Damaged:
            return False  # told by whoever reads the file
        return True

    # -- journals

    def _session(self, journal: str, staged: Sequence[tuple[int, str]]) -> None:
        session = self._named(journal)
        if not session:
            self._bad.append(Bad(journal, "it doesn't name its session, or is in the wrong place"))
            return

        def may_begin() -> None:
            if self._tombs.has(session):
                raise Deleted("this session was deleted", where=session, next="Lift that first with `dreamkeep undelete`.")

        may_begin()  # also before a folder is made for it
        self._journals()  # what stands above a journal must be there and durable
        if adopt(self._host, f"{self._root}/{journal}", staged, may_begin):
            self._counts["added"] += 1
            self._same[session] = None
            self._counts["events"] += sum(1 for _ in read_events(self._host, self._staging))
            return
        may_begin()
        done = self._merge(session, f"{self._root}/{journal}")
        self._counts["merged" if done else "unchanged"] += 1

    def _named(self, journal: str) -> str:
        """The session that the frames name, if its journal belongs where it lies."""
        for frame in Reading(self._host, self._staging):
            body = frame["body"]
            said = body.get("journal") if frame["kind"] == Kind.PART_OPENED else body.get("session")
            if isinstance(said, str) and said and folder_of(said) == journal:
                return said
        return ""

    def _merge(self, session: str, folder: str) -> int:
        for _ in range(_TRIES):
            ours = Ours(self._host, folder)
            more = (event for found in lacking(ours, self._host, self._staging) if (event := wanted(found, ours)))
            done = self._append_all(session, more, ours)
            if done is not None:
                sources = ours.differing()
                before = len(self._skipped)
                done += self._regain_all(session, sources) if sources else 0
                if (done or ours.apart) and len(self._skipped) == before:
                    self._see_to_losses(session, self._staging)
                self._same[session] = ours.same if ours.apart else None
                return done
        raise Busy("other processes keep writing to it", where=session, next="Import again.")

    def _see_to_losses(self, session: str, staging: str) -> None:
        """All that they have is here now: what was lost here, and is proven to be among that, is lost no more."""
        name = folder_of(session) if session else KEEP
        known = [one.frame for one in witness.load(self._host, self._root).seen.get(name, ())]
        found = proven(self._host, f"{self._root}/{name}", staging, known)
        if found.mended:
            self._journals().say(session, Kind.JOURNAL_MENDED, {"faults": found.mended, "how": "imported"})
        if found.lost:
            witness.drop(self._host, self._root, name, found.lost)

    def _append_all(self, session: str, more: Iterable[Event], ours: Ours) -> int | None:
        """How many were new here. None when somebody wrote meanwhile what these events would turn back: then look again."""
        done = 0
        for batch in batches(more, most=_BATCH, size=_BATCH_BYTES):
            said = {key: value for event in batch for key, value in (event.carry or {}).items()}
            # Where theirs simply follow, their cursors come along: only if ours are still where they were read.
            expect = {} if ours.apart else {key: ours.carry.get(key) for key in said}
            seqs = self._journals().append_if(session, batch, expect)
            if seqs is None:
                return None
            ours.carry.update(said)
            done += sum(seq is not None for seq in seqs)
            self._counts["events"] += sum(seq is not None for seq in seqs)
        return done

    def _regain_all(self, session: str, sources: Iterable[str]) -> bool:
        """Sources of which they have frames that we lack. Whether something changed here."""
        reading = Reading(self._host, f"{self._root}/{folder_of(session)}", heads=True)
        before = sum(1 for _ in reading)
        for source in sorted(sources):
            if why := self._regain(session, source, self._staging):
                self._skipped.append((session, why))
        return sum(1 for _ in Reading(self._host, f"{self._root}/{folder_of(session)}", heads=True)) != before

    def _adopt_keep(self, staged: Sequence[tuple[int, str]]) -> None:
        """The first keep's own journal that there is here."""
        tombs(self._host, self._staging, _is_session)  # reads all of it: one with strange frames is not taken over
        if not adopt(self._host, f"{self._root}/{KEEP}", staged, lambda: None):
            self._merge_keep(self._staging)  # somebody made one just now

    def _merge_keep(self, staging: str) -> None:
        """What theirs has and ours lacks. Nothing here is deleted for a tombstone of theirs."""
        if self._host.stat(f"{self._root}/{PAGES}") is not None:
            self._index.take_in()
        folder = f"{self._root}/{KEEP}"
        there, here = tombs(self._host, staging, _is_session), tombs(self._host, folder, _is_session)
        self._journals()
        ours = Ours(self._host, folder)
        dead = {one: self._refused.get(one, ()) for one in here.dead}
        theirs = Theirs(self._host, staging, dead, self._same_of, self._index.placed)
        more = (event for one in lacking(ours, self._host, staging) if (event := self._translate_event(one, theirs, ours)))
        done = self._append_all("", more, ours)
        before = len(self._skipped)
        self._delete_sessions(one for one, at in there.dead.items() if one not in here.dead and here.lifted.get(one, "") < at)
        if done is not None and (done or ours.apart) and len(self._skipped) == before:
            self._see_to_losses("", staging)

    def _same_of(self, session: str) -> int | None:
        """Of one that could not be read in the snapshot, and is here, nothing is known to be the same."""
        if session not in self._same:
            self._same[session] = 0 if self._is_here(session) else None
        return self._same[session]

    def _is_here(self, session: str) -> bool:
        return _is_session(session) and bool(parts.numbers(self._host, f"{self._root}/{folder_of(session)}"))

    def _translate_event(self, found: Lacking, theirs: Theirs, ours: Ours) -> Event | None:
        """An event of their keep's own journal as it is to be appended here."""
        if found.event.kind in _OWN or (found.event.kind == Kind.FAULT_ACCEPTED and not self._is_same):
            return None
        event = theirs.translate(found.event)
        if event is None or (found.erased and event is not found.event):
            return None  # of what was erased here, what may be told is here
        if not found.follows and is_journaled(event, ours):
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
            self._bad.append(Bad(name[:200], "no keep has a file of this name"))
            return
        if self._is_of_dead(name):
            return  # told of with its journal, and it may be that there is none
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
            self._bad.append(Bad(name[:200], f"a file can't have that name here ({problem.strerror})"))
        finally:
            clear(self._host, self._staging)

    def _is_page_to_place(self, staged: str, name: str) -> bool:
        """As it is, where there is no keep yet. Else what people wrote around its notes: those are in journals, which know what
        was said and deleted since, and any other region than the one that was published here would look like a hand's work."""
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
        return published(self._host, self._waiting) if self._waits else {}

    @cached_property
    def _regions(self) -> dict[str, str]:
        return published(self._host, f"{self._root}/{KEEP}")

    def _is_of_dead(self, name: str) -> bool:
        """What was set aside of a session that is deleted here, by its name."""
        folder, _, file = name.rpartition("/")
        if folder.partition("/")[0] != "aside":
            return False
        return file.partition(".")[0] in {folder_of(one).rpartition("/")[2] for one in self._tombs.all()}

    def _is_call_to_place(self, staged: str, name: str) -> bool:
        """A hook's call; not of a session that is deleted here, nor one that was journaled here already."""
        session = forget.call_of(self._host, staged, name)
        if session in self._tombs.all():
            return False
        call = name.rpartition("/")[2]
        journals = (folder_of(session), KEEP) if session else (KEEP,)
        return not any(self._calls_in(one).has(call) for one in journals)

    def _calls_in(self, journal: str) -> Journaled:
        return self._journaled.setdefault(journal, Journaled(self._host, f"{self._root}/{journal}"))

    def _place(self, staged: str, name: str) -> None:
        """Create-or-fail; what is there already and differs stays."""
        path = f"{self._root}/{name}"
        if name.startswith(f"{SPOOL}/") and not self._is_call_to_place(staged, name):
            return
        if self._host.stat(path) is None and _LEDGER.fullmatch(name):
            # A repair sweeps and restores the paths that stand in it: they are another machine's, or anybody's.
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


#: Frames of a keep's own journal that speak of that keep alone. Of its pages, too: ours would look as if a hand had changed them.
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
    """Odd is not unsafe (also names that are no text, as the system has them); what could leave the keep or a line is."""
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
