"""Read again from the agent's own file what a journal lost: only where the file is proven to have it.

The proof: with every stretch of a source the journal carries a checksum of everything captured up to there. If the file's
beginning still has that checksum, and only lines of that file can have been lost, then the file has everything that is missing.

- A hole lost lines if the stretches before and behind it do not meet.
- If the journal's cursor was lost with its end, capture's memory (`state/sources.json`) says how much there was, with its
  checksum. Whatever the file has beyond that is new.
- What your own agent, hooks or the tap recorded is in no file: such a fault stays.
- How a session began is in no file, either. But the head of every later part repeats it, and it is restored from there if nothing
  but files can have written to the journal.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from hashlib import sha256
from typing import Any, NamedTuple
from zlib import crc32

from dreamkeep.agents.contract import BESIDE, DOCUMENT, LINES, LINES_ZST, TEXT, Source
from dreamkeep.agents.facts import Fact
from dreamkeep.capture.context import Overtaken
from dreamkeep.capture.find import named
from dreamkeep.capture.ingest import Ingest
from dreamkeep.capture.session_start import facts_in
from dreamkeep.capture.sources import source_bytes
from dreamkeep.capture.sources.content import Content, PlainFile, SourceCursor, Unpacked, untouched
from dreamkeep.capture.sources.source_cache import Cache, FileLook, SourceState
from dreamkeep.errors import DreamkeepError
from dreamkeep.event import Carry, Event, Kind
from dreamkeep.host import Host
from dreamkeep.journal import parts
from dreamkeep.journal.frame import Frame
from dreamkeep.journal.open_state import carried, survey
from dreamkeep.journal.places import KEEP, folder_of
from dreamkeep.journal.reader import HOLES, Reading, SeqRange
from dreamkeep.journal.scan import Scan
from dreamkeep.recovery.faults import CLASSES, MENDED, Fault, MendResult, not_mended
from dreamkeep.recovery.repair.context import PlanContext, RepairContext
from dreamkeep.recovery.repair.ledger import mark_of, repair_ids
from dreamkeep.session.summary import ACTIVE, STATE_AFTER

#: The journal's own book-keeping.
_BOOK = frozenset((Kind.PART_OPENED, Kind.JOURNAL_HOLE, Kind.JOURNAL_SETTLED, Kind.JOURNAL_MENDED, Kind.JOURNAL_ERASED))
_SOURCE = frozenset((Kind.SOURCE_OPENED, Kind.SOURCE_READ, Kind.SOURCE_CHANGED, Kind.CHUNK))
_LIFE = frozenset((*STATE_AFTER, Kind.SESSION_PLACED, Kind.LINEAGE_FOUND))
_TAP = frozenset((Kind.TAP_OPENED, Kind.TAP_FRAMES, Kind.TAP_CLOSED))
#: What a part's head carries for a session that comes from files alone. (Hook calls, framework items and titles add more.)
_CARRIED = frozenset(("state", "opened", "cwd", "project", "lineage:subagent"))
_BEGAN = "Part of the loss is how the session began or ended, which no transcript records."
_FORMS = (LINES, LINES_ZST, TEXT, DOCUMENT)
_KIND = re.compile(rb'\{"id":"[^"\\]{1,80}","kind":"([a-z.]{1,40})"')
_CURSOR = re.compile(rb'"src:([a-z]+-[0-9a-f]{10})":"([0-9a-z -]+)"')
#: Comparing needs the old lines in memory, as in capture.
_LARGEST = 256 << 20
_LONGEST_BAD = 64 << 20
_INDEX_WAIT_S = 10.0


class Unsafe(Exception):
    """Why nothing is read again."""


class SourceToReread(NamedTuple):
    """A source to read again. `behind`: only its end is missing, so reading continues. `torn`: something before its end is
    missing, so all of it is read. `described`: the journal still has the frame that describes it. `has_more`: more of it was
    captured than the journal has, and the file has that."""

    source: Source
    behind: bool = False
    torn: bool = False
    described: bool = True
    name: str = ""
    has_more: bool = False


class SourceStretch(NamedTuple):
    """The stretch of a source that a frame holds: where it begins and ends, as (generation, offset). `by_repair`: a repair
    captured it."""

    seq: int
    begins: tuple[int, int]
    ends: tuple[int, int]
    by_repair: bool = False


class ReadableJournal(NamedTuple):
    """What can still be read of a journal. `state`: the session's last. `generations`: each source's, by seq. `mended_at`: the
    last seq at which a source was mended. `ends`: the last seq in each part. `pieces`: where chunks of source frames don't add
    up."""

    kinds: frozenset[str]
    state: str
    generations: dict[str, list[tuple[int, int]]]
    mended_at: int
    holes: list[tuple[str, int, int, int, tuple[SeqRange, ...]]]
    broken: list[int]
    broken_kinds: frozenset[str]
    ends: dict[int, int]
    stretches: dict[str, list[SourceStretch]]
    pieces: list[SeqRange]


# -- for the plan


def check_promises(context: PlanContext, faults: Iterable[Fault]) -> Iterator[Fault]:
    """The faults as an audit may report them: repairable only if that is proven. Pass the faults of one journal in a row."""
    journal: Journal | None = None
    for fault in faults:
        fault_class = CLASSES[fault.cls]
        if fault_class.repair != "recapture" or not fault.repairable:
            yield fault
            continue
        if journal is None or journal.session != fault.session:
            journal = Journal(context.host, context.root, fault.session)
        reason = _why_not(journal, fault)
        yield fault._replace(repairable=False, next=f"{reason} {fault_class.next.replace('{id}', fault.id)}") if reason else fault


def _why_not(journal: Journal, fault: Fault) -> str:
    """Why a fault can't be mended from a file; "" when it can."""
    try:
        find_lost_sources(journal, fault)
    except Unsafe as reason:
        return str(reason)
    except (DreamkeepError, OSError, ValueError, KeyError, TypeError) as problem:
        return f"Its files can't be checked ({problem})."  # the journal is damaged, so anything may be in it
    return ""


class Journal:
    """One journal and the files it came from, each read once, however many faults are asked about."""

    def __init__(self, host: Host, root: str, session: str) -> None:
        self.host = host
        self.root = root
        self.session = session
        self.folder = f"{root}/{folder_of(session)}" if session else ""
        self._whole: dict[str, bool] = {}
        self._beginnings: dict[tuple[str, SourceCursor], tuple[int, bool]] = {}

    @cached_property
    def readable(self) -> ReadableJournal:
        return _read_journal(self.host, self.folder, tuple(map(mark_of, repair_ids(self.host, self.root))))

    @cached_property
    def carried_sources(self) -> Mapping[str, Mapping[str, Any]]:
        return source_bytes.sources(self.host, self.folder)

    @cached_property
    def cache(self) -> Cache:
        return Cache(self.host, self.root)

    @cached_property
    def carried(self) -> Carry:
        return survey(self.host, self.folder).carry

    @cached_property
    def may_be_tapped(self) -> bool:
        """Whether a tap was ever used here. What it records outside of sessions is in the keep's own journal."""
        reading = Reading(self.host, f"{self.root}/{KEEP}", heads=True)
        kinds = {frame["kind"] for frame in reading}
        return not kinds.isdisjoint(_TAP) or any(fault.kind in HOLES for fault in reading.defects)

    def is_whole(self, name: str, cursor: SourceCursor) -> bool:
        """Whether the journal still has all that was captured of a source."""
        if name not in self._whole:
            self._whole[name] = _crc(source_bytes.lines(self.host, self.folder, name)) == (cursor.offset, cursor.kept_crc)
        return self._whole[name]

    def compare_beginning(self, source: Source, cursor: SourceCursor) -> tuple[int, bool]:
        """(size of the file, whether it still begins with what was captured)."""
        key = (source.path, cursor)
        if key not in self._beginnings:
            content = _open_content(self.host, source)
            try:
                self._beginnings[key] = content.size, untouched(content, cursor)
            finally:
                content.close()
        return self._beginnings[key]


def find_lost_sources(journal: Journal, fault: Fault) -> list[SourceToReread]:
    """Which sources must be read again; none when nothing was lost, or everything is back. Raises `Unsafe` without a proof."""
    if fault.about.get("kind") in HOLES and not fault.about.get("missing") and not _is_open(fault):
        return []  # unreadable bytes, but no frame is missing
    if not journal.session:
        raise Unsafe("The loss is the keep's own data, which no agent's file holds.")
    readable = journal.readable
    bad = _damaged_bytes(journal.host, journal.folder, fault)
    kinds = _lost_kinds(fault, readable, bad)
    if kinds is not None and kinds <= _BOOK:
        return []
    _check_only_files_lost(journal, fault, kinds)
    after = _last_lost(fault, readable)
    # Damaged bytes that don't show the kind of every lost frame are not used: not all of them can be read.
    found = _Files(journal, b"" if kinds is None else bad).find_lost(after)
    _check_files_explain_loss(fault, readable, kinds, found, after)
    return found


def _check_only_files_lost(journal: Journal, fault: Fault, kinds: frozenset[str] | None) -> None:
    """Check that what was lost can only have come from files. `kinds`: of the lost frames, None if that is unknown."""
    if fault.about.get("known_by") != "capture":
        _check_kinds(journal, kinds)
    elif Kind.SESSION_OPENED not in journal.readable.kinds:  # capture knows only of lines
        _check_beginning(journal)
    if kinds is None:
        _check_witness(journal, fault)


def _check_files_explain_loss(
    fault: Fault, readable: ReadableJournal, kinds: frozenset[str] | None, found: list[SourceToReread], after: int
) -> None:
    """Check that something of a file is missing where frames were lost. `after`: the last seq that was lost."""
    if _is_open(fault):
        read_since = any(seq > after for cursors in readable.generations.values() for seq, _ in cursors)
        if not read_since and not any(source.has_more for source in found):
            raise Unsafe("It is unknown what was lost: the journal has all that was captured from its transcripts.")
    elif kinds is None and not all(_is_in_lines(readable, SeqRange(*span), found) for span in fault.about["missing"]):
        raise Unsafe("The loss is not a line of a transcript: none of those is missing.")


def _is_in_lines(readable: ReadableJournal, span: SeqRange, found: Iterable[SourceToReread]) -> bool:
    """Whether lines of a file were in this hole: the stretches before and behind it do not meet, or a repair has joined them."""
    for stretches in readable.stretches.values():
        before = next((stretch for stretch in reversed(stretches) if stretch.seq < span.first), None)
        behind = next((stretch for stretch in stretches if stretch.seq > span.last), None)
        if behind and behind.begins != (before.ends if before else (1, 0)):
            return True
        if behind and behind.by_repair and behind.begins != behind.ends:
            return True
        if before is None and any(stretch.by_repair for stretch in stretches):
            return True  # a repair wrote again how it was opened
    if any(chunks.first <= span.first and span.last <= chunks.last for chunks in readable.pieces):
        return True
    return any(_may_lie_in(readable, span, source) for source in found)


def _may_lie_in(readable: ReadableJournal, span: SeqRange, source: SourceToReread) -> bool:
    """Whether the part of a source that the journal lost may have been in this hole."""
    stretches = readable.stretches.get(source.name, ())
    if source.has_more:
        return not any(stretch.seq > span.last for stretch in stretches)
    return not source.described and not any(stretch.seq < span.first for stretch in stretches)


def _is_open(fault: Fault) -> bool:
    """Whether no frame shows how much was lost: the end is gone, or a compressed part can't be read."""
    return _end_is_gone(fault) or (fault.about.get("kind") == "cold" and not fault.about.get("missing"))


def _end_is_gone(fault: Fault) -> bool:
    """Only the witness or capture knows of it."""
    return fault.about.get("known_by") in ("witness", "capture")


def _read_journal(host: Host, folder: str, marks: tuple[str, ...]) -> ReadableJournal:
    """`marks`: the ends of ids of frames that repairs wrote."""
    frames = _FrameFold()
    scan = Scan(host, folder, fold=lambda frame: frames.add(frame, scan.reading.position.part))
    broken = scan.broken_chunks
    for seq, event in scan.events():
        if event.kind in _SOURCE:
            frames.stretches.add(seq, event, by_repair=event.id.replace("-", "").endswith(marks) if marks else False)
    return ReadableJournal(
        frozenset(frames.kinds),
        frames.state,
        frames.generations,
        frames.mended_at,
        [(f.kind, f.part, f.offset, f.size, f.missing) for f in scan.reading.defects if f.kind in HOLES],
        broken,
        frozenset(frames.chunked.get(seq, "") for seq in broken),
        frames.ends,
        frames.stretches.found,
        [SeqRange(frames.begins[seq], seq) for seq in broken if frames.chunked.get(seq) in _SOURCE],
    )


class _FrameFold:
    """What the single frames of a journal say: see `ReadableJournal`."""

    def __init__(self) -> None:
        self.kinds: set[str] = set()
        self.state = ""
        self.mended_at = 0
        self.generations: dict[str, list[tuple[int, int]]] = {}
        #: The kinds of the events that were written in chunks, by seq.
        self.chunked: dict[int, str] = {}
        #: The first seq of each event, chunks included, by its last.
        self.begins: dict[int, int] = {}
        self.ends: dict[int, int] = {}
        self.stretches = _Stretches()
        self._last_event = 0

    def add(self, frame: Frame, part: int) -> None:
        kind, seq = frame["kind"], frame["seq"]
        if kind != Kind.CHUNK:
            self.begins[seq], self._last_event = self._last_event + 1, seq
        self.kinds.add(kind)
        self.ends[part] = seq
        self.state = STATE_AFTER.get(kind, self.state)
        if "chunked" in frame:
            self.chunked[seq] = kind
        elif kind == Kind.SOURCE_CHANGED and frame["body"].get("what") == "mended":
            self.mended_at = seq
        if kind in _SOURCE:
            for name, cursor in _cursors(frame.get("carry")):
                self.generations.setdefault(name, []).append((seq, cursor.generation))
        elif kind == Kind.PART_OPENED and "suspect" not in frame["body"]:
            self.stretches.repeat(seq, carried(frame))


class _Stretches:
    """Each source's stretches, by its present name. For documents only generations count, because each is read whole."""

    def __init__(self) -> None:
        self.found: dict[str, list[SourceStretch]] = {}
        self._documents: set[str] = set()

    def add(self, seq: int, event: Event, *, by_repair: bool) -> None:
        body = event.body
        name, what = str(body["source"]), body.get("what")
        if what == "moved":
            self.found[name] = self.found.pop(str(body["was"]), [])
        cursor = next((cursor for key, cursor in _cursors(event.carry) if key == name), None)
        if body.get("pieces") or body.get("form") == DOCUMENT:
            self._documents.add(name)
        if cursor is None:
            if event.kind == Kind.SOURCE_OPENED and self.found.get(name):  # the source was described once more
                ends = self.found[name][-1].ends
                self.found[name].append(SourceStretch(seq, ends, ends, by_repair))
            return  # it doesn't say how far the source was read
        ends = self._position(name, cursor)
        if event.kind == Kind.SOURCE_READ:
            document = name in self._documents
            begins = (max(cursor.generation - 1, 1), 0) if document else (cursor.generation, int(body["at"]))
        elif what in source_bytes.REWRITTEN:
            begins, by_repair = (cursor.generation - 1, 0 if name in self._documents else int(body["size"])), False
        else:
            begins = ends
        self.found.setdefault(name, []).append(SourceStretch(seq, begins, ends, by_repair))

    def repeat(self, seq: int, carried: Carry) -> None:
        """A part's head carries how far every source was read."""
        for name, cursor in _cursors(carried):
            position = self._position(name, cursor)
            self.found.setdefault(name, []).append(SourceStretch(seq, position, position))

    def _position(self, name: str, cursor: SourceCursor) -> tuple[int, int]:
        return cursor.generation, 0 if name in self._documents else cursor.offset


def _cursors(carried: Mapping[str, int | str] | None) -> Iterator[tuple[str, SourceCursor]]:
    """(name, how far it was read) of each source in a frame's carry."""
    for key, value in (carried or {}).items():
        if key.startswith("src:") and (cursor := SourceCursor.parse(value)):
            yield key[4:], cursor


def _damaged_bytes(host: Host, folder: str, fault: Fault) -> bytes:
    about = fault.about
    if about["kind"] != "damage" or about["size"] > _LONGEST_BAD:
        return b""
    with parts.stream(host, folder, about["part"], about["at"]) as source:
        return source.read(about["size"])


def _lost_kinds(fault: Fault, readable: ReadableJournal, bad: bytes) -> frozenset[str] | None:
    """The kinds of the lost frames, if their damaged bytes still show them; None if not."""
    if fault.about["kind"] == "chunks":
        return readable.broken_kinds
    lost = sum(last - first + 1 for first, last in fault.about["missing"])
    found = [match[1].decode() for line in bad.split(b"\n") if (match := _KIND.match(line))]
    return frozenset(found) if found and len(found) == lost else None


def _check_kinds(journal: Journal, kinds: frozenset[str] | None) -> None:
    readable = journal.readable
    if kinds is not None:
        others = kinds - _SOURCE - _BOOK
        if others:
            raise Unsafe(f"The loss is not a line of a transcript ({', '.join(sorted(others))}).")
        if Kind.CHUNK in kinds and not readable.broken_kinds <= _SOURCE:
            raise Unsafe(f"The loss is not a line of a transcript ({', '.join(sorted(readable.broken_kinds))}).")
        return
    others = readable.kinds - _SOURCE - _BOOK - _LIFE
    if others:
        raise Unsafe(f"It is unknown what was lost: this journal doesn't come from files alone ({sorted(others)[0]}, …).")
    if Kind.SESSION_OPENED not in readable.kinds:
        _check_beginning(journal)
    elif journal.carried.get("state", readable.state) != readable.state:
        raise Unsafe(_BEGAN)


def _check_witness(journal: Journal, fault: Fault) -> None:
    """The witness knows something about the loss: it must be nothing that only a hook, a tap or the user recorded."""
    witnessed = fault.about.get("witnessed")
    if not witnessed:
        return
    if witnessed["state"] not in (ACTIVE, journal.readable.state):
        raise Unsafe(_BEGAN)
    if witnessed["others"] and not any(about.get("role") == "turns" for about in journal.carried_sources.values()):
        raise Unsafe("It is unknown what was lost: some messages didn't come from files alone.")


def _check_beginning(journal: Journal) -> None:
    """If the session's beginning is lost, little may be left that shows who wrote to the journal. Then the last head must show
    it, by what it carries. (A tap and your own program leave nothing there.)"""
    carried = journal.carried
    if "opened" not in carried:
        raise Unsafe(f"{_BEGAN} `dreamkeep ingest --again` brings back what they do record.")
    if carried.get("state") != (journal.readable.state or ACTIVE):
        raise Unsafe(_BEGAN)
    for key, value in carried.items():
        if key == "lineage:fork":
            raise Unsafe("Part of the loss is how much of the session is a copy of another, which no transcript records.")
        if key not in _CARRIED and not (key.startswith("src:") and (value == "moved" or SourceCursor.parse(value))):
            raise Unsafe(f"It is unknown what was lost: this journal doesn't come from files alone ({key}).")
    if journal.may_be_tapped:
        raise Unsafe("It is unknown what was lost: a tap was used with this keep, and what it records is in no file.")


def _last_lost(fault: Fault, readable: ReadableJournal) -> int:
    if fault.about["kind"] == "chunks":
        return int(fault.about["at"])
    if _end_is_gone(fault):
        return int(fault.about["after"])
    if _is_open(fault):  # what was written since goes on from the last one that can be read
        return max((seq for part, seq in readable.ends.items() if part <= fault.about["part"]), default=0)
    return max((last for _, last in fault.about["missing"]), default=0)


class _Files:
    """Compares the files a session came from with what its journal has of them."""

    def __init__(self, journal: Journal, bad: bytes) -> None:
        self._journal = journal
        self._host = journal.host
        self._readable = journal.readable
        #: The sources that the damaged bytes still name. Not a proof by itself.
        found = [(name.decode(), SourceCursor.parse(text.decode("utf-8", "replace"))) for name, text in _CURSOR.findall(bad)]
        self._lost = {name: cursor for name, cursor in found if cursor}
        self._agent, _, self._native = journal.session.partition(":")
        self._cache = journal.cache
        self._sources = journal.carried_sources

    def find_lost(self, after: int) -> list[SourceToReread]:
        """`after`: the last seq that was lost."""
        cursors = dict(_cursors(self._journal.carried))
        found = [lost for name, cursor in cursors.items() if (lost := self._check_source(name, cursor, after))]
        return found + list(self._find_forgotten(cursors))

    def _check_source(self, name: str, cursor: SourceCursor, after: int) -> SourceToReread | None:
        """Whether and how a source that the journal still names must be read again. `cursor`: how far the journal has it."""
        if cursor.offset > _LARGEST:
            raise Unsafe("The transcript is too large to compare.")
        is_whole = self._journal.is_whole(name, cursor)
        if is_whole and (self._readable.mended_at > after or (self._lost and name not in self._lost)):
            return None  # it was read again since, or the damaged bytes name another source
        source = self._source(name)
        self._check_generations(name, cursor, source.form)
        try:
            size, is_same = self._journal.compare_beginning(source, cursor)
        except OSError as problem:
            raise Unsafe(f"The transcript can't be read ({problem.strerror or problem}).") from problem
        is_document = source.form == DOCUMENT
        if not is_same and not (is_document and is_whole):
            raise Unsafe("The transcript has changed since it was captured.")
        described = name in self._sources
        has_more = size != cursor.offset or not is_same if is_document else self._has_more(name, source, cursor)
        if not is_whole:
            return SourceToReread(source, torn=True, described=described, name=name, has_more=has_more)
        if not has_more:
            return None if described else SourceToReread(source, described=False, name=name)
        if is_document:
            self._check_document(name, source, cursor)
        return SourceToReread(source, behind=True, described=described, name=name, has_more=True)

    def _has_more(self, name: str, source: Source, cursor: SourceCursor) -> bool:
        """Whether more was captured than the journal has, according to capture's memory or the damaged bytes. Then the file
        must have that; whatever it has beyond is new and proves nothing."""
        lost = self._lost.get(name)
        if lost and lost[:2] > cursor[:2] and self._journal.compare_beginning(source, lost)[1]:
            return True
        captured = self._captured_cursor(name, source.path)
        if captured is None or captured[:2] <= cursor[:2]:
            return False
        if captured.generation != cursor.generation:
            raise Unsafe("The loss may be from a version of the file that no longer exists.")
        if not self._journal.compare_beginning(source, captured)[1]:
            raise Unsafe("The transcript no longer holds what was last captured from it.")
        return True

    def _captured_cursor(self, name: str, path: str) -> SourceCursor | None:
        """How far a source was captured, according to capture's memory."""
        state = self._cache.get(path)
        if state is None:
            same = (self._cache.get(other) for other, role in self._remembered() if self._name(other, role) == name)
            state = next(same, None)
        return SourceCursor.parse(state.word) if state else None

    def _source(self, name: str) -> Source:
        """The file of a source, according to the journal or else to capture's memory."""
        about = self._sources.get(name, {})
        if path := about.get("path", ""):
            source = Source(self._agent, path, about.get("form", LINES), self._native, about.get("role", "main"))
        else:
            # Even if it has changed: whether it still begins with what was captured is checked next.
            same = (file for file in self._remembered() if self._name(*file) == name)
            source = next((found for path, role in same if (found := self._find_source(path, role))), Source(self._agent, ""))
        if not source.path or "\ufffd" in source.path:
            way = "" if any(self._remembered()) else " `dreamkeep ingest --again` finds it, if it is still there."
            raise Unsafe(f"It is also lost which file it came from.{way}")
        if source.form not in _FORMS:
            raise Unsafe("It came from a file of several sessions. `dreamkeep ingest --again` brings back what is still there.")
        return source

    def _remembered(self) -> Iterator[tuple[str, str]]:
        """(path, role) of this session's files in capture's memory."""
        for path in self._cache.paths():
            state = self._cache.get(path)
            if state and (state.agent, state.session) == (self._agent, self._native):
                yield path, state.role

    def _find_source(self, path: str, role: str) -> Source | None:
        """The source at a path, according to its agent's module, which knows how to read it."""
        for source in named(self._host, path, [self._agent]):
            if isinstance(source, Source) and source.path == path:
                return source._replace(session=self._native, role=role)
        return None

    def _looks_same(self, path: str, state: SourceState | None) -> bool:
        """Whether a file looks as it did when it was captured."""
        stat = self._host.stat(path)
        return state is not None and stat is not None and state.look == FileLook.of(stat)

    def _name(self, path: str, role: str) -> str:
        real = self._host.real_path(os.path.abspath(path)).encode("utf-8", "surrogateescape")
        return f"{role}-{sha256(real).hexdigest()[:10]}"

    def _find_forgotten(self, cursors: dict[str, SourceCursor]) -> Iterator[SourceToReread]:
        """Files that still have what was captured, but of which the journal has nothing any more, not even their opening."""
        for path, role in self._remembered():
            state = self._cache.get(path)
            name = self._name(path, role)
            if not state or state.state in ("empty", "excluded", "deleted") or name in cursors:
                continue
            if self._journal.carried.get(f"src:{name}") == "moved":
                continue
            source = self._find_source(path, role)
            if source is not None and (self._looks_same(path, state) or self._still_begins(source, state)):
                yield SourceToReread(source, behind=True, name=name, has_more=True)

    def _still_begins(self, source: Source, state: SourceState) -> bool:
        """True also if it was copied, touched or continued since. (A document has no beginning in this sense.)"""
        cursor = SourceCursor.parse(state.word)
        if source.form == DOCUMENT or cursor is None or self._host.stat(source.path) is None:
            return False
        return self._journal.compare_beginning(source, cursor)[1]

    def _check_generations(self, name: str, cursor: SourceCursor, form: str) -> None:
        """Check that the loss is in the newest generation; earlier ones are no longer in the file."""
        readable = self._readable
        generations = readable.generations.get(name, [])
        if form == DOCUMENT:
            if not {generation for _, generation in generations}.issuperset(range(1, cursor.generation)):
                raise Unsafe("The loss is an earlier version of the file, which no longer exists.")
            return
        lost = [*(span.first for *_, missing in readable.holes for span in missing), *readable.broken]
        first = min(lost, default=0)
        before = max((generation for seq, generation in generations if seq < first), default=1)
        if first and before < cursor.generation and readable.mended_at < first:
            raise Unsafe("The loss may be from a version of the file that no longer exists.")

    def _check_document(self, name: str, source: Source, cursor: SourceCursor) -> None:
        """Check a document that differs from the journal's last one: it must be what was captured, not something newer."""
        lost = self._lost.get(name)
        if lost and lost.generation == cursor.generation + 1 and self._journal.compare_beginning(source, lost)[1]:
            return  # the damaged bytes still have its checksum
        if not self._looks_same(source.path, self._cache.get(source.path)):
            raise Unsafe("The transcript has changed since it was captured, so it may not hold what was lost.")


def _crc(lines: list[bytes]) -> tuple[int, int]:
    crc = size = 0
    for line in lines:
        crc = crc32(line, crc)
        size += len(line)
    return size, crc


def _open_content(host: Host, source: Source) -> Content:
    return (Unpacked if source.form == LINES_ZST else PlainFile)(host, source.path)


# -- doing it


def recapture(context: RepairContext, fault: Fault) -> MendResult:
    """Read the lost sources again, then record that the fault is mended."""
    host, root = context.host, context.root
    try:
        journal = Journal(host, root, fault.session)
        lost = find_lost_sources(journal, fault)
        _reread_sources(context, journal, lost)
        if lost and find_lost_sources(Journal(host, root, fault.session), fault):
            return not_mended("the file changed while it was read; run the repair again")
    except Unsafe as reason:
        return not_mended(str(reason))
    except Overtaken:
        return not_mended("another process is capturing the same file; run the repair again")
    if fault.about.get("mend"):
        journal_mended(context, fault, "recaptured" if _has_lost_frames(fault) else "noted")
    elif fault.about["known_by"] == "witness":
        context.ledger.drop_sightings(str(fault.about["journal"]))
    return MENDED


def _has_lost_frames(fault: Fault) -> bool:
    return fault.about["kind"] in ("chunks", "cold") or bool(fault.about.get("missing"))


def _reread_sources(context: RepairContext, journal: Journal, lost: list[SourceToReread]) -> None:
    """A torn source gets a new, whole generation. One that is behind is read on from where the journal has it."""
    host = context.host
    ingest = Ingest(host, context.root, context.journals, context.ids, exclude=context.exclude)
    if lost and journal.readable.kinds.isdisjoint((Kind.SESSION_OPENED, Kind.SESSION_PLACED)):
        ingest.files.repeat_opening(journal.session, _facts(host, [found.source for found in lost]))
    for found in lost:
        if not found.described and not found.torn:  # a torn one is described together with its new generation
            ingest.files.repeat_source_opened(found.source)
        if found.behind:
            _read_on(host, ingest, found.source)
        if found.torn:
            _reread_whole(host, ingest, found.source)


def _read_on(host: Host, ingest: Ingest, source: Source) -> None:
    for outcome in ingest.take(source, host.stat(source.path)):
        if outcome.problem or outcome.state == "excluded":
            raise Unsafe(outcome.problem or "The transcript is excluded from capture.")


def _reread_whole(host: Host, ingest: Ingest, source: Source) -> None:
    content = _open_content(host, source)
    try:
        ingest.files.reread(source, content)
    finally:
        content.close()


def _facts(host: Host, sources: list[Source]) -> Iterator[Fact]:
    """The facts in the session's transcript."""
    for source in sources:
        if source.role not in BESIDE:
            content = _open_content(host, source)
            try:
                yield from facts_in(source, content)
            finally:
                content.close()
            return


def journal_mended(context: RepairContext, fault: Fault, how: str) -> None:
    body = {"faults": [dict(fault.about["mend"])], "how": how}
    context.journals.say(str(fault.about["session"]), Kind.JOURNAL_MENDED, body)
