"""Read again from the agent's own file what a journal lost: only where the file is proven to have it.

The proof: with every stretch of a source the journal carries a checksum of everything captured up to there. If the file's
beginning still has that checksum, and only lines of that file can have been lost, then the file has everything that is missing.

- A hole lost lines if the stretches before and behind it do not meet. - If the journal's cursor was lost with its end,
capture's memory (`state/sources.json`) says how much there was, with its checksum.
  Whatever the file has beyond that is new.
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
_WORD = re.compile(rb'"src:([a-z]+-[0-9a-f]{10})":"([0-9a-z -]+)"')
#: Comparing needs the old lines in memory, as in capture.
_LARGEST = 256 << 20
_LONGEST_BAD = 64 << 20
_INDEX_WAIT_S = 10.0


class Unsafe(Exception):
    """Why nothing is read again."""


class SourceToReread(NamedTuple):
    """A source to read again. `behind`: only its end is missing, so reading continues. `torn`: something before its end is
    missing, so all of it is read. `told`: the journal still says what it is. `further`: more of it was captured than the
    journal has, and the file has that."""

    source: Source
    behind: bool = False
    torn: bool = False
    told: bool = True
    name: str = ""
    further: bool = False


class SourceStretch(NamedTuple):
    """The stretch of a source that a frame has: where it begins and ends, as (generation, offset). `again`: read by a repair."""

    seq: int
    begins: tuple[int, int]
    ends: tuple[int, int]
    again: bool = False


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


def promised(context: PlanContext, faults: Iterable[Fault]) -> Iterator[Fault]:
    """The faults as an audit may report them: repairable only if that is proven. Give the faults of one journal in a row."""
    journal: Journal | None = None
    for fault in faults:
        known = CLASSES[fault.cls]
        if known.repair != "recapture" or not fault.repairable:
            yield fault
            continue
        if journal is None or journal.session != fault.session:
            journal = Journal(context.host, context.root, fault.session)
        reason = _why_not(journal, fault)
        yield fault._replace(repairable=False, next=f"{reason} {known.next.replace('{id}', fault.id)}") if reason else fault


def _why_not(journal: Journal, fault: Fault) -> str:
    """Why a fault can't be mended from a file; "" when it can."""
    try:
        to_read(journal, fault)
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
        self._begins: dict[tuple[str, SourceCursor], tuple[int, bool]] = {}

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

    def is_whole(self, name: str, word: SourceCursor) -> bool:
        """Whether the journal still has all that was captured of a source."""
        if name not in self._whole:
            self._whole[name] = _crc(source_bytes.lines(self.host, self.folder, name)) == (word.offset, word.kept_crc)
        return self._whole[name]

    def begins(self, source: Source, word: SourceCursor) -> tuple[int, bool]:
        """(size of the file, whether it still begins with what was captured)."""
        key = (source.path, word)
        if key not in self._begins:
            content = opened(self.host, source)
            try:
                self._begins[key] = content.size, untouched(content, word)
            finally:
                content.close()
        return self._begins[key]


def to_read(journal: Journal, fault: Fault) -> list[SourceToReread]:
    """Which sources must be read again; none when nothing was lost, or everything is back. Raises `Unsafe` without a proof."""
    if fault.about.get("kind") in HOLES and not fault.about.get("missing") and not _is_open(fault):
        return []  # unreadable bytes, but no frame is missing
    if not journal.session:
        raise Unsafe("The loss is the keep's own data, which no agent's file holds.")
    readable = journal.readable
    bad = _damaged_bytes(journal.host, journal.folder, fault)
    kinds = _lost_kinds(fault, readable, bad)
    if kinds is None:
        bad = b""  # not all of it can be read
    if kinds is not None and kinds <= _BOOK:
        return []
    if fault.about.get("known_by") == "capture":  # which knows only of lines
        if Kind.SESSION_OPENED not in readable.kinds:
            _check_beginning(journal)
    else:
        _check_kinds(journal, kinds)
    if kinds is None:
        _check_witness(journal, fault)
    after = _last_lost(fault, readable)
    found = _Files(journal, bad).to_read(after)
    if _is_open(fault):
        since = any(seq > after for words in readable.generations.values() for seq, _ in words)
        if not since and not any(one.further for one in found):
            raise Unsafe("It is unknown what was lost: the journal has all that was captured from its transcripts.")
    elif kinds is None and not all(_is_in_lines(readable, SeqRange(*span), found) for span in fault.about["missing"]):
        raise Unsafe("The loss is not a line of a transcript: none of those is missing.")
    return found


def _is_in_lines(readable: ReadableJournal, span: SeqRange, found: Iterable[SourceToReread]) -> bool:
    """Whether lines of a file were in this hole: the stretches before and behind it do not meet, or a repair has joined them."""
    for stretches in readable.stretches.values():
        before = next((one for one in reversed(stretches) if one.seq < span.first), None)
        behind = next((one for one in stretches if one.seq > span.last), None)
        if behind and behind.begins != (before.ends if before else (1, 0)):
            return True
        if behind and behind.again and behind.begins != behind.ends:
            return True
        if before is None and any(one.again for one in stretches):
            return True  # a repair wrote again how it was opened
    if any(of.first <= span.first and span.last <= of.last for of in readable.pieces):
        return True
    return any(_may_lie_in(readable, span, one) for one in found)


def _may_lie_in(readable: ReadableJournal, span: SeqRange, again: SourceToReread) -> bool:
    stretches = readable.stretches.get(again.name, ())
    if again.further:
        return not any(one.seq > span.last for one in stretches)
    return not again.told and not any(one.seq < span.first for one in stretches)


def _is_open(fault: Fault) -> bool:
    """Whether no frame shows how much was lost: the end is gone, or a compressed part can't be read."""
    return _end_is_gone(fault) or (fault.about.get("kind") == "cold" and not fault.about.get("missing"))


def _end_is_gone(fault: Fault) -> bool:
    """Only the witness or capture knows of it."""
    return fault.about.get("known_by") in ("witness", "capture")


def _read_journal(host: Host, folder: str, marks: tuple[str, ...]) -> ReadableJournal:
    """`marks`: the ends of ids of frames that repairs wrote."""
    kinds: set[str] = set()
    state, mended_at = "", 0
    generations: dict[str, list[tuple[int, int]]] = {}
    by_seq: dict[int, str] = {}
    begun: dict[int, int] = {}
    ends: dict[int, int] = {}
    stretches = _Stretches()

    before = 0  # the last seq that is not a chunk's

    def fold(frame: Frame) -> None:
        nonlocal state, mended_at, before
        kind, seq = frame["kind"], frame["seq"]
        if kind != Kind.CHUNK:
            begun[seq], before = before + 1, seq
        kinds.add(kind)
        ends[scan.reading.position.part] = seq
        state = STATE_AFTER.get(kind, state)
        if "chunked" in frame:
            by_seq[seq] = kind
        elif kind == Kind.SOURCE_CHANGED and frame["body"].get("what") == "mended":
            mended_at = seq
        if kind in _SOURCE:
            for name, word in _words(frame.get("carry")):
                generations.setdefault(name, []).append((seq, word.generation))
        elif kind == Kind.PART_OPENED and "suspect" not in frame["body"]:
            stretches.repeat(seq, carried(frame))

    scan = Scan(host, folder, fold=fold)
    broken = scan.broken_chunks
    for seq, event in scan.events():
        if event.kind in _SOURCE:
            stretches.add(seq, event, again=event.id.replace("-", "").endswith(marks) if marks else False)
    holes = [(f.kind, f.part, f.offset, f.size, f.missing) for f in scan.reading.defects if f.kind in HOLES]
    broken_kinds = frozenset(by_seq.get(seq, "") for seq in broken)
    pieces = [SeqRange(begun[seq], seq) for seq in broken if by_seq.get(seq) in _SOURCE]
    return ReadableJournal(
        frozenset(kinds), state, generations, mended_at, holes, broken, broken_kinds, ends, stretches.found, pieces
    )


class _Stretches:
    """Each source's stretches, by its present name. For documents only generations count, because each is read whole."""

    def __init__(self) -> None:
        self.found: dict[str, list[SourceStretch]] = {}
        self._documents: set[str] = set()

    def add(self, seq: int, event: Event, *, again: bool) -> None:
        body = event.body
        name, what = str(body["source"]), body.get("what")
        if what == "moved":
            self.found[name] = self.found.pop(str(body["was"]), [])
        word = next((word for key, word in _words(event.carry) if key == name), None)
        if body.get("pieces") or body.get("form") == DOCUMENT:
            self._documents.add(name)
        if word is None:
            if event.kind == Kind.SOURCE_OPENED and self.found.get(name):  # what it is was told again
                ends = self.found[name][-1].ends
                self.found[name].append(SourceStretch(seq, ends, ends, again))
            return  # it doesn't say how far the source was read
        ends = self._at(name, word)
        if event.kind == Kind.SOURCE_READ:
            document = name in self._documents
            begins = (max(word.generation - 1, 1), 0) if document else (word.generation, int(body["at"]))
        elif what in source_bytes.REWRITTEN:
            begins, again = (word.generation - 1, 0 if name in self._documents else int(body["size"])), False
        else:
            begins = ends
        self.found.setdefault(name, []).append(SourceStretch(seq, begins, ends, again))

    def repeat(self, seq: int, carried: Carry) -> None:
        """A part's head carries how far every source was read."""
        for name, word in _words(carried):
            at = self._at(name, word)
            self.found.setdefault(name, []).append(SourceStretch(seq, at, at))

    def _at(self, name: str, word: SourceCursor) -> tuple[int, int]:
        return word.generation, 0 if name in self._documents else word.offset


def _words(carried: Mapping[str, int | str] | None) -> Iterator[tuple[str, SourceCursor]]:
    for key, value in (carried or {}).items():
        if key.startswith("src:") and (word := SourceCursor.parse(value)):
            yield key[4:], word


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
    known = fault.about.get("witnessed")
    if not known:
        return
    if known["state"] not in (ACTIVE, journal.readable.state):
        raise Unsafe(_BEGAN)
    if known["others"] and not any(one.get("role") == "turns" for one in journal.carried_sources.values()):
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
        found = [(name.decode(), SourceCursor.parse(text.decode("utf-8", "replace"))) for name, text in _WORD.findall(bad)]
        self._lost = {name: word for name, word in found if word}
        self._agent, _, self._native = journal.session.partition(":")
        self._cache = journal.cache
        self._sources = journal.carried_sources

    def to_read(self, after: int) -> list[SourceToReread]:
        """`after`: the last seq that was lost."""
        carried = self._journal.carried
        words = dict(_words(carried))
        found = [again for name, word in words.items() if (again := self._find_source_to_reread(name, word, after))]
        return found + list(self._forgotten(words))

    def _find_source_to_reread(self, name: str, word: SourceCursor, after: int) -> SourceToReread | None:
        if word.offset > _LARGEST:
            raise Unsafe("The transcript is too large to compare.")
        whole = self._journal.is_whole(name, word)
        if whole and (self._readable.mended_at > after or (self._lost and name not in self._lost)):
            return None  # it was read again since, or the damaged bytes name another source
        source = self._source(name)
        self._check_generations(name, word, source.form)
        try:
            size, same = self._journal.begins(source, word)
        except OSError as problem:
            raise Unsafe(f"The transcript can't be read ({problem.strerror or problem}).") from problem
        if not same and not (source.form == DOCUMENT and whole):
            raise Unsafe("The transcript has changed since it was captured.")
        told = name in self._sources
        further = self._goes_further(name, source, word) if source.form != DOCUMENT else size != word.offset or not same
        if not whole:
            return SourceToReread(source, torn=True, told=told, name=name, further=further)
        if not further:
            return None if told else SourceToReread(source, told=False, name=name)
        if source.form == DOCUMENT:
            self._check_document(name, source, word)
        return SourceToReread(source, behind=True, told=told, name=name, further=True)

    def _goes_further(self, name: str, source: Source, word: SourceCursor) -> bool:
        """Whether more was captured than the journal has, according to capture's memory or the damaged bytes. Then the file
        must have that; whatever it has beyond is new and proves nothing."""
        lost = self._lost.get(name)
        if lost and lost[:2] > word[:2] and self._journal.begins(source, lost)[1]:
            return True
        known = self._captured(name, source.path)
        if known is None or known[:2] <= word[:2]:
            return False
        if known.generation != word.generation:
            raise Unsafe("The loss may be from a version of the file that no longer exists.")
        if not self._journal.begins(source, known)[1]:
            raise Unsafe("The transcript no longer holds what was last captured from it.")
        return True

    def _captured(self, name: str, path: str) -> SourceCursor | None:
        """How far a source was captured, according to capture's memory."""
        seen = self._cache.get(path)
        if seen is None:
            known = (self._cache.get(one) for one, role in self._remembered() if self._name(one, role) == name)
            seen = next(known, None)
        return SourceCursor.parse(seen.word) if seen else None

    def _source(self, name: str) -> Source:
        """The file of a source, according to the journal or else to capture's memory."""
        known = self._sources.get(name, {})
        if path := known.get("path", ""):
            source = Source(self._agent, path, known.get("form", LINES), self._native, known.get("role", "main"))
        else:
            # Even if it has changed: whether it still begins with what was captured is checked next.
            same = (seen for seen in self._remembered() if self._name(*seen) == name)
            source = next((one for path, role in same if (one := self._find_source(path, role))), Source(self._agent, ""))
        if not source.path or "\ufffd" in source.path:
            way = "" if any(self._remembered()) else " `dreamkeep ingest --again` finds it, if it is still there."
            raise Unsafe(f"It is also lost which file it came from.{way}")
        if source.form not in _FORMS:
            raise Unsafe("It came from a file of several sessions. `dreamkeep ingest --again` brings back what is still there.")
        return source

    def _remembered(self) -> Iterator[tuple[str, str]]:
        """(path, role) of this session's files in capture's memory."""
        for path in self._cache.paths():
            seen = self._cache.get(path)
            if seen and (seen.agent, seen.session) == (self._agent, self._native):
                yield path, seen.role

    def _find_source(self, path: str, role: str) -> Source | None:
        """The source at a path, according to its agent's module, which knows how to read it."""
        for one in named(self._host, path, [self._agent]):
            if isinstance(one, Source) and one.path == path:
                return one._replace(session=self._native, role=role)
        return None

    def _looks_same(self, path: str, seen: SourceState | None) -> bool:
        at = self._host.stat(path)
        return seen is not None and at is not None and seen.look == FileLook.of(at)

    def _name(self, path: str, role: str) -> str:
        real = self._host.real_path(os.path.abspath(path)).encode("utf-8", "surrogateescape")
        return f"{role}-{sha256(real).hexdigest()[:10]}"

    def _forgotten(self, words: dict[str, SourceCursor]) -> Iterator[SourceToReread]:
        """Files that still have what was captured, but of which the journal has nothing any more, not even their opening."""
        for path, role in self._remembered():
            seen = self._cache.get(path)
            name = self._name(path, role)
            if not seen or seen.state in ("empty", "excluded", "deleted") or name in words:
                continue
            if self._journal.carried.get(f"src:{name}") == "moved":
                continue
            one = self._find_source(path, role)
            if one is not None and (self._looks_same(path, seen) or self._still_begins(one, seen)):
                yield SourceToReread(one, behind=True, name=name, further=True)

    def _still_begins(self, source: Source, seen: SourceState) -> bool:
        """True also if it was copied, touched or continued since. (A document has no beginning in this sense.)"""
        word = SourceCursor.parse(seen.word)
        if source.form == DOCUMENT or word is None or self._host.stat(source.path) is None:
            return False
        return self._journal.begins(source, word)[1]

    def _check_generations(self, name: str, word: SourceCursor, form: str) -> None:
        """Check that the loss is in the newest generation; earlier ones are no longer in the file."""
        told = self._readable.generations.get(name, [])
        if form == DOCUMENT:
            if not {generation for _, generation in told}.issuperset(range(1, word.generation)):
                raise Unsafe("The loss is an earlier version of the file, which no longer exists.")
            return
        spans = [span for *_, missing in self._readable.holes for span in missing] + [
            SeqRange(s, s) for s in self._readable.broken
        ]
        first = min((span.first for span in spans), default=0)
        before = max((generation for seq, generation in told if seq < first), default=1)
        if first and before < word.generation and self._readable.mended_at < first:
            raise Unsafe("The loss may be from a version of the file that no longer exists.")

    def _check_document(self, name: str, source: Source, word: SourceCursor) -> None:
        """Check a document that differs from the journal's last one: it must be what was captured, not something newer."""
        lost = self._lost.get(name)
        if lost and lost.generation == word.generation + 1 and self._journal.begins(source, lost)[1]:
            return  # the damaged bytes still have its checksum
        if not self._looks_same(source.path, self._cache.get(source.path)):
            raise Unsafe("The transcript has changed since it was captured, so it may not hold what was lost.")


def _crc(lines: list[bytes]) -> tuple[int, int]:
    crc = size = 0
    for line in lines:
        crc = crc32(line, crc)
        size += len(line)
    return size, crc


def opened(host: Host, source: Source) -> Content:
    return (Unpacked if source.form == LINES_ZST else PlainFile)(host, source.path)


# -- doing it


def recapture(context: RepairContext, fault: Fault) -> MendResult:
    """A torn source gets a new, whole generation; one that is behind is read on. Then a frame says that the fault is mended."""
    host, root = context.host, context.root
    try:
        journal = Journal(host, root, fault.session)
        again = to_read(journal, fault)
        _read(context, journal, again)
        if again and to_read(Journal(host, root, fault.session), fault):
            return not_mended("the file changed while it was read; run the repair again")
    except Unsafe as reason:
        return not_mended(str(reason))
    except Overtaken:
        return not_mended("another process is capturing the same file; run the repair again")
    if fault.about.get("mend"):
        journal_mended(context, fault, "recaptured" if _was_lost(fault) else "noted")
    elif fault.about["known_by"] == "witness":
        context.ledger.drop_sightings(str(fault.about["journal"]))
    return MENDED


def _was_lost(fault: Fault) -> bool:
    return fault.about["kind"] in ("chunks", "cold") or bool(fault.about.get("missing"))


def _read(context: RepairContext, journal: Journal, again: list[SourceToReread]) -> None:
    host = context.host
    ingest = Ingest(host, context.root, context.journals, context.ids, exclude=context.exclude)
    if again and journal.readable.kinds.isdisjoint((Kind.SESSION_OPENED, Kind.SESSION_PLACED)):
        ingest.files.repeat_opening(journal.session, _facts(host, [one.source for one in again]))
    for source, behind, torn, told, *_ in again:
        if not told and not torn:  # a torn one is described together with its new generation
            ingest.files.repeat_source_opened(source)
        if behind:
            for outcome in ingest.take(source, host.stat(source.path)):
                if outcome.problem or outcome.state == "excluded":
                    raise Unsafe(outcome.problem or "The transcript is excluded from capture.")
        if not torn:
            continue
        content = opened(host, source)
        try:
            ingest.files.reread(source, content)
        finally:
            content.close()


def _facts(host: Host, sources: list[Source]) -> Iterator[Fact]:
    """The facts in the session's transcript."""
    for source in sources:
        if source.role not in BESIDE:
            content = opened(host, source)
            try:
                yield from facts_in(source, content)
            finally:
                content.close()
            return


def journal_mended(context: RepairContext, fault: Fault, how: str) -> None:
    body = {"faults": [dict(fault.about["mend"])], "how": how}
    context.journals.say(str(fault.about["session"]), Kind.JOURNAL_MENDED, body)
