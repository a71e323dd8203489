"""A journal's frames in order, the defects between them, and how the journal ends.

Reading never writes and never stops at damage: a bad stretch is a `JournalDefect` that says where it is and which seqs it cost,
and the good frames around it are read. Only the end of the last part can be a `Tail`: bytes of an append that did not finish.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import NamedTuple
from zlib import crc32

from dreamkeep.errors import NewerFormat
from dreamkeep.event import Kind
from dreamkeep.host import Host
from dreamkeep.journal import parts
from dreamkeep.journal.frame import CRC_SIZE, FOOT_SIZE, FORMAT, HEAD, MAX_FRAME, NO_CRC, Frame, parse, salvage


class Position(NamedTuple):
    """A place between two frames, and the frame before it."""

    part: int = 1
    offset: int = 0
    seq: int = 0
    crc: str = NO_CRC


class SeqRange(NamedTuple):
    """Seqs from `first` to `last`, both included."""

    first: int
    last: int


class JournalDefect(NamedTuple):
    """`kind` is damage, cold (a compressed part that can't be read from `offset` on: it is unknown how much was lost), gap,
    suspect (lost with a failed sync), duplicate, disorder, reused, link or missing_part. Good frames may have chunks or
    strange: then part is 0 and `offset` is the seq (see journal/scan.py)."""

    kind: str
    part: int
    offset: int
    size: int
    missing: tuple[SeqRange, ...] = ()
    recorded: bool = False
    times: int = 1
    #: A `journal.mended` frame says that this was dealt with; `accepted`: that it stays as it is.
    mended: bool = False
    accepted: bool = False


class Tail(NamedTuple):
    """Bytes after the last good frame. `whole`: only that frame's line feed is missing (it was read, and size is 0)."""

    part: int
    offset: int
    size: int
    whole: bool


_BEFORE_CRC = -CRC_SIZE - 1  # and the line feed
#: Kinds of defect with missing seqs, or with unreadable bytes between good frames.
HOLES = ("damage", "cold", "gap", "suspect", "missing_part")


class Reading:
    """One pass over a journal from `start`. Iterate over its frames; `defects` and `tail` are true afterwards.

    `position` is the place after the last frame so far.
    """

    def __init__(self, host: Host, folder: str, start: Position | None = None, *, raw: bool = False, heads: bool = False) -> None:
        """`raw`: each frame also has its own bytes, under "raw". `heads`: leave out the bodies of captured and recorded events,
        which is faster for callers that only want to know what is carried and where the journal ends."""
        self._raw = raw
        self._loads = _head if heads else None
        self._host = host
        self._folder = folder
        self.defects: list[JournalDefect] = []
        self.tail: Tail | None = None
        #: The highest part (0: there is none), and whether a good frame was read in it.
        self.last_part = 0
        self.last_part_has_frame = start is not None and start.offset > 0
        #: Where to begin in order to read the last part again; None: at the very beginning.
        self.last_part_start = start
        #: A frame was written again for one before `start`: only a reading from the beginning can tell whether it counts.
        self.refers_before_start = False
        #: (seq, crc) of frames written again after a failed sync that are not returned, because the first writing survived.
        self.superseded: set[tuple[int, str]] = set()
        self._start = self._place = start or Position()
        self._behind = -self._start.offset
        self._offset = 0
        self._last: Frame | None = None  # of the fast path; it ends at `_offset`
        # Frames are written again only after a part was sealed as suspect: before that there is no need to look for them.
        self._careful = start is not None
        self._bad: tuple[int, int, int] | None = None  # part, offset, size of a bad stretch that is not yet a defect
        self._cut_short = 0  # the last compressed part that could not be read to its end
        self._opened = 0  # the part that was opened last
        self._missing: list[SeqRange] = []
        self._known: dict[int, str] | None = None
        self._heads: list[tuple[int, int]] | None = None  # (first seq, part), read only when a seq came twice
        self._older: tuple[int, dict[int, str]] = (0, {})

    @property
    def bytes_read(self) -> int:
        """How many bytes are between the start and `position`."""
        return self._behind + self.position.offset

    @property
    def position(self) -> Position:
        if self._last is None:
            return self._place
        return Position(self._place.part, self._offset, self._last["seq"], self._last["crc"])

    def __iter__(self) -> Iterator[Frame]:
        numbers = parts.numbers(self._host, self._folder)
        self.last_part = numbers[-1] if numbers else 0
        for part in numbers:
            if part < self._place.part:
                continue
            if part > self._place.part:
                self._step_to(part)
            yield from self._part(part)
        self._conclude()

    def _step_to(self, part: int) -> None:
        # A part is not missing only because nothing in it could be read.
        began = self._place.seq > 0 or self._place.offset > 0 or self._opened == self._place.part
        if part > self._place.part + began:
            self._add(JournalDefect("missing_part", self._place.part + began, 0, 0))
        self._behind += self._place.offset
        self._place = self._place._replace(part=part, offset=0)
        if part == self.last_part and self._place.seq:
            self.last_part_start = self._place
        self.last_part_has_frame = False
        self._known = None

    def _part(self, part: int) -> Iterator[Frame]:
        """Fast for whole lines that link to the line before. Everything else goes through `_line`."""
        import orjson

        loads = self._loads or orjson.loads
        _, offset, seq, crc = self._place
        smooth = offset > 0
        rest = b""  # the end of an overlong line, where a frame may begin
        self._opened = part
        with parts.stream(self._host, self._folder, part, offset) as source:
            for line in iter(partial(source.readline, parts.LONGEST_LINE), b""):
                if smooth:
                    try:
                        frame = loads(line)
                        if (
                            frame["crc"] == (mine := f"{crc32(line[:_BEFORE_CRC]):08x}")
                            and frame["prev"] == crc
                            and frame["seq"] == seq + 1
                            and (not self._careful or "was" not in frame)
                            and line[-1] == 10
                        ):
                            seq += 1
                            crc = mine
                            self._offset = offset = offset + len(line)
                            self._last = frame
                            if self._raw:
                                frame["raw"] = line[:-1]
                            yield frame
                            continue
                    except (ValueError, KeyError, TypeError):
                        pass  # not a line of ours; `_line` reports it
                self._place, self._last = self.position, None
                line, rest = rest + line, b""
                if len(line) >= parts.LONGEST_LINE and line[-1] != 10:
                    rest = self._overlong(offset, line)
                    offset += len(line) - len(rest)
                    smooth = False
                    continue
                yield from self._line(offset, line)
                _, _, seq, crc = self._place
                smooth = self.last_part_has_frame and not self._bad
                offset += len(line)
            self._place, self._last = self.position, None
            if rest:
                yield from self._line(offset, rest)
            if parts.is_damaged(source):
                self._mark_bad(offset, 0)
                self._cut_short = part
            elif size := parts.behind(source):
                # No append left these bytes: nothing writes to a compressed part.
                self._flush_bad()
                self._add(JournalDefect("damage", part, offset, size))

    def _overlong(self, offset: int, line: bytes) -> bytes:
        """It is garbage, but a frame may be glued to its end: return what could be that frame's beginning."""
        keep = line.find(HEAD, len(line) - MAX_FRAME)
        keep = keep if keep >= 0 else len(line) - len(HEAD)
        self._mark_bad(offset, keep)
        return line[keep:]

    def _line(self, offset: int, line: bytes) -> Iterator[Frame]:
        """A line that is not simply the next one: the head of a part, damaged, repeated, displaced, or the last."""
        text = line.removesuffix(b"\n")
        ended = len(line) > len(text)
        frame = parse(text)
        found = [(0, text, frame)] if frame else [(at, piece, parse(piece)) for at, piece in salvage(text)]
        done = 0
        for at, piece, frame in found:
            if at > done or done:  # also when nothing but the line feed between two frames is missing
                self._mark_bad(offset + done, at - done)
            done = at + len(piece)
            if frame is None:
                self._mark_bad(offset + at, len(piece))
                continue
            if self._raw:
                frame["raw"] = piece
            # The journal's last frame may lack its line feed. Count it: the next writer adds it.
            yield from self._good(frame, offset + at, len(piece) + (done == len(text)))
            if not ended and done == len(text):
                self.tail = Tail(self._place.part, offset + done, 0, whole=True)
        if done < len(text) or not found:
            self._mark_bad(offset + done, len(line) - done)

    def _good(self, frame: Frame, offset: int, size: int) -> Iterator[Frame]:
        part, _, seq, crc = self._place
        here: int = frame["seq"]
        self.last_part_has_frame = True
        suspect = frame["kind"] == Kind.PART_OPENED and _check_head(frame, f"{self._folder}/{parts.name(part)}")
        self._careful = self._careful or suspect
        if here <= seq:
            yield from self._read_earlier_seq(frame, offset, size)
            return
        missing = (SeqRange(seq + 1, here - 1),) if here > seq + 1 else ()
        self._missing.extend(missing)
        last = self.defects[-1] if self.defects else None
        if missing and not self._bad and last and last.kind == "missing_part" and last.part < part and not last.missing:
            self.defects[-1] = last._replace(missing=missing)  # these seqs were in the missing parts
        elif self._bad or missing:
            kind = self._bad_kind() if self._bad else "gap"
            if suspect and missing and kind != "cold":
                kind = "suspect"
            self._add(JournalDefect(kind, *(self._bad or (part, offset, 0)), missing))
            self._bad = None
        elif frame["prev"] != crc:
            self._add(JournalDefect("link", part, offset, size))
        self._place = Position(part, offset + size, here, frame["crc"])
        if "was" not in frame or self._stands_for(frame["was"]):
            yield frame
        else:
            self.superseded.add((here, frame["crc"]))

    def _read_earlier_seq(self, frame: Frame, offset: int, size: int) -> Iterator[Frame]:
        """A seq that is already behind us: displaced (its place was empty), repeated, or used twice."""
        part = self._place.part
        here = frame["seq"]
        self._flush_bad()
        self._place = self._place._replace(offset=offset + size)
        if self._fill(here):
            self._add(JournalDefect("disorder", part, offset, size))
            yield frame
        else:
            crc = frame["crc"]
            repeated = self._crcs(part, offset).get(here) == crc or self._earlier(part, here) == crc
            self._add(JournalDefect("duplicate" if repeated else "reused", part, offset, size))

    def _stands_for(self, was: int) -> bool:
        """A frame that was written again after a failed sync counts only if the first writing did not survive."""
        if was <= self._start.seq:
            self.refers_before_start = True
        return self._fill(was)

    def _fill(self, seq: int) -> bool:
        for n, span in enumerate(self._missing):
            if span.first <= seq <= span.last:
                around = (SeqRange(span.first, seq - 1), SeqRange(seq + 1, span.last))
                self._missing[n : n + 1] = [s for s in around if s.first <= s.last]
                return True
        return False

    def _crcs(self, part: int, offset: int) -> dict[int, str]:
        """Checksums of this part's frames up to here, read only when a seq came twice."""
        if self._known is None:
            self._known = {}
            at = 0
            for line in parts.lines(self._host, self._folder, part):
                if at >= offset:
                    break
                at += len(line)
                if frame := parse(line.removesuffix(b"\n")):
                    self._known.setdefault(frame["seq"], frame["crc"])
        return self._known

    def _earlier(self, part: int, seq: int) -> str | None:
        """The checksum of the frame that has this seq in an earlier part: a part may be copied under another number."""
        if self._heads is None:
            self._heads = [(first, n) for n in parts.numbers(self._host, self._folder) if (first := self._first_seq(n))]
        holder = max((n for first, n in self._heads if first <= seq and n < part), default=0)
        if holder and self._older[0] != holder:
            lines = parts.lines(self._host, self._folder, holder)
            frames = (parse(line.removesuffix(b"\n")) for line in lines)
            self._older = (holder, {frame["seq"]: frame["crc"] for frame in frames if frame})
        return self._older[1].get(seq) if holder else None

    def _first_seq(self, part: int) -> int:
        for line in parts.lines(self._host, self._folder, part):
            frame = parse(line.removesuffix(b"\n"))
            return int(frame["seq"]) if frame else 0
        return 0

    def _mark_bad(self, offset: int, size: int) -> None:
        part = self._place.part
        if self._bad and self._bad[0] == part:
            self._bad = (part, self._bad[1], offset + size - self._bad[1])
        else:
            self._flush_bad()
            self._bad = (part, offset, size)

    def _flush_bad(self) -> None:
        if self._bad:
            self._add(JournalDefect(self._bad_kind(), *self._bad))
            self._bad = None

    def _bad_kind(self) -> str:
        return "cold" if self._bad and self._bad[0] == self._cut_short else "damage"

    def _add(self, defect: JournalDefect) -> None:
        """Adjacent defects of one kind are one: a file of a million repeated lines has one defect, not a million."""
        last = self.defects[-1] if self.defects else None
        if last and not defect.missing and defect[:2] == last[:2] and last.offset + last.size == defect.offset:
            self.defects[-1] = last._replace(size=last.size + defect.size, times=last.times + 1)
        else:
            self.defects.append(defect)

    def _conclude(self) -> None:
        if self.tail and self.tail.part != self.last_part:
            self.tail = None  # a finished part may lack its last line feed: nothing is appended to it
        if self._bad and self._bad[0] == self.last_part != self._cut_short:
            self.tail = Tail(*self._bad, whole=False)
        else:
            self._flush_bad()
        if not self.defects:
            return
        recorded = _recorded_holes(self._host, self._folder)
        remaining = []
        for defect in self.defects:
            missing = _overlap(defect.missing, self._missing)
            if defect.missing and not missing and defect.kind not in ("damage", "cold"):
                continue  # the missing frames came later: displaced ones are a defect of their own, those written again are none
            remaining.append(defect._replace(missing=missing, recorded=(defect.part, defect.offset) in recorded))
        self.defects = remaining


def _head(line: bytes) -> Frame:
    """A line without its body, which may be long. Complete where the body is about the journal itself."""
    import orjson

    at = line.find(b',"body":')
    frame: Frame = orjson.loads(line[:at] + b"}")
    if frame["kind"] in BOOK_KEEPING or b',"was":' in line[-FOOT_SIZE - 32 : -FOOT_SIZE]:
        whole: Frame = orjson.loads(line)
        return whole
    foot = line[-FOOT_SIZE - 1 :]
    if foot[37:45] != b',"crc":"' or foot[53:] != b'"}\n':
        raise ValueError("it is damaged outside of what the checksum covers")
    frame["prev"], frame["seq"], frame["crc"] = foot[9:17].decode(), int(foot[25:37]), foot[45:53].decode()
    return frame


def _recorded_holes(host: Host, folder: str) -> set[tuple[int, int]]:
    """Holes that a frame records. Read only when there are defects, so that a clean journal is read once."""
    found: set[tuple[int, int]] = set()
    mark = f'"kind":"{Kind.JOURNAL_HOLE}"'.encode()
    for part in parts.numbers(host, folder):
        for line in parts.lines(host, folder, part):
            if mark in line[:200] and (frame := parse(line.removesuffix(b"\n"))):
                found.update((hole["part"], hole["at"]) for hole in frame["body"]["holes"])
    return found


def _overlap(spans: Iterable[SeqRange], missing: Iterable[SeqRange]) -> tuple[SeqRange, ...]:
    return tuple(
        SeqRange(max(a.first, b.first), min(a.last, b.last))
        for a in spans
        for b in missing
        if a.first <= b.last and b.first <= a.last
    )


def _check_head(head: Frame, where: str) -> bool:
    """Refuse what a newer program wrote. Return whether the part before was sealed after a failed sync."""
    if head["body"]["format"] > FORMAT:
        raise NewerFormat(
            f"a newer dreamkeep wrote this journal (format {head['body']['format']}; this version reads {FORMAT})",
            where=where,
            next="Upgrade dreamkeep; nothing was changed.",
        )
    return "suspect" in head["body"]


BOOK_KEEPING = frozenset((Kind.PART_OPENED, Kind.JOURNAL_HOLE, Kind.JOURNAL_SETTLED, Kind.JOURNAL_MENDED, Kind.JOURNAL_ERASED))


def covers(defect: JournalDefect, part: int, seq: int) -> bool:
    """Whether a hole already reports the loss of the frame with this seq, which was in that part."""
    if defect.kind not in HOLES:
        return False
    return (defect.kind, defect.part) == ("cold", part) or any(span.first <= seq <= span.last for span in defect.missing)
