"""One pass over a journal: its frames in order, and afterwards everything that is wrong with it.

A `Reading` checks how frames follow each other. A `Scan` also looks into them: it joins chunks, finds those that don't add up,
and knows which defects a `journal.mended` frame covers. It keeps no frame, so its memory is bounded. The caller decides what
counts as a fault.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Self
from zlib import crc32

from dreamkeep.event import Event, Kind
from dreamkeep.host import Host
from dreamkeep.journal.frame import Frame, body_of, event_of
from dreamkeep.journal.reader import BOOK_KEEPING, JournalDefect, Position, Reading, SeqRange

#: How a `journal.mended` frame names a defect: kind, part, offset, size.
DefectKey = tuple[str, int, int, int]
#: A frame by its seq and checksum.
FrameKey = tuple[int, str]

_REPORTS = frozenset((Kind.JOURNAL_HOLE, Kind.JOURNAL_MENDED))


class Scan:
    """A pass over the journal in `folder`. Exhaust `frames()` or `events()`, or call `run()`; then ask for the rest."""

    def __init__(
        self,
        host: Host,
        folder: str,
        start: Position | None = None,
        *,
        heads: bool = False,
        fold: Callable[[Frame], object] | None = None,
        wanted: Iterable[FrameKey] = (),
    ) -> None:
        """`heads`: don't parse bodies; then there are no events. `fold` gets each frame. `wanted`: frames to look for."""
        #: It knows the position, the defects between frames and how the journal ends.
        self.reading = Reading(host, folder, start, heads=heads)
        #: Seqs of events whose chunks don't add up, and of chunks that belong to no event.
        self.broken_chunks: list[int] = []
        #: Seqs of events whose body doesn't match their kind. The caller finds them and adds them here.
        self.strange: list[int] = []
        #: What `journal.mended` frames say was done about a defect, first to last.
        self.mended: dict[DefectKey, list[object]] = {}
        self._start = start
        self._heads = heads
        self._fold = fold
        self._wanted = set(wanted)
        self._found: set[FrameKey] = set()
        self._reports_defects = False

    def frames(self) -> Iterator[Frame]:
        fold = self._fold
        seqs = {seq for seq, _ in self._wanted}
        for frame in self.reading:
            if frame["kind"] in _REPORTS:
                self._reports_defects = True
                self._note_mended(frame)
            if seqs and (frame["seq"] in seqs or "was" in frame):
                self._found.update(key for key in self._wanted if is_frame(frame, key))
            if fold:
                fold(frame)
            yield frame

    def events(self) -> Iterator[tuple[int, Event]]:
        return events(self.frames(), self.broken_chunks)

    def run(self) -> Self:
        """Go through all of it, for callers that need only what is known afterwards."""
        for _ in self.frames() if self._heads else self.events():
            pass
        return self

    @property
    def found_frames(self) -> set[FrameKey]:
        """The wanted frames that are there, at whatever place and under whatever seq."""
        return self._found | (self._wanted & self.reading.superseded)

    def defects(self) -> list[JournalDefect]:
        in_bodies = [("chunks", seq) for seq in self.broken_chunks] + [("strange", seq) for seq in self.strange]
        found = [*self.reading.defects, *(JournalDefect(kind, 0, seq, 0, (SeqRange(seq, seq),)) for kind, seq in in_bodies)]
        return [self._mark_mended(defect) for defect in found]

    def needs_full_scan(self) -> bool:
        """Whether only a scan from the first frame sees everything: there is a defect here, or a frame about what lies before."""
        before_start = self.reading.refers_before_start or (self._reports_defects and self._start is not None)
        return before_start or bool(self.reading.defects or self.broken_chunks or self.strange)

    def _mark_mended(self, defect: JournalDefect) -> JournalDefect:
        how = self.mended.get(defect[:4])
        return defect._replace(mended=True, accepted=how[-1] == "accepted") if how else defect

    def _note_mended(self, frame: Frame) -> None:
        # The checksum does not say who wrote the frame: entries of another shape are skipped.
        body = frame["body"] if frame["kind"] == Kind.JOURNAL_MENDED else None
        if not isinstance(body, dict):
            return
        entries = body.get("faults")
        for entry in entries if isinstance(entries, list) else ():
            if isinstance(entry, dict) and isinstance(kind := entry.get("kind"), str):
                part, at, size = entry.get("part"), entry.get("at"), entry.get("size", 0)
                if isinstance(part, int) and isinstance(at, int) and isinstance(size, int):
                    self.mended.setdefault((kind, part, at, size), []).append(body.get("how"))


def is_frame(frame: Frame, key: FrameKey) -> bool:
    """Whether this is the frame with that seq and checksum, be it written again after a failed sync."""
    return (frame["seq"], frame["crc"]) == key or frame.get("was") == key[0]


def read_events(host: Host, folder: str) -> Iterator[tuple[int, Event]]:
    """(seq, event) of everything in a journal that can be read."""
    return events(Reading(host, folder))


def read_bodies(host: Host, folder: str, kinds: Collection[str]) -> Iterator[tuple[Frame, bytes]]:
    """Frames of some kinds, each with the exact bytes of its body."""
    for frame, joined in join_chunks(Reading(host, folder, raw=True)):
        if frame["kind"] in kinds:
            yield frame, body_of(frame["raw"], frame) if joined is None else joined


def events(frames: Iterable[Frame], broken: list[int] | None = None) -> Iterator[tuple[int, Event]]:
    """(seq, event): chunks are joined, and the journal's own book-keeping is left out. `broken`: see `join_chunks`."""
    import orjson

    for frame, joined in join_chunks(frames, broken):
        yield frame["seq"], event_of(frame if joined is None else {**frame, "body": orjson.loads(joined)})


def join_chunks(frames: Iterable[Frame], broken: list[int] | None = None) -> Iterator[tuple[Frame, bytes | None]]:
    """Each event's frame, with the joined bytes of its body if that was chunked.

    `broken` gets the seqs of events whose chunks don't add up, and of chunks that belong to no event.
    """
    pieces: list[str] = []
    owner = ""
    for frame in frames:
        kind = frame["kind"]
        if kind == Kind.CHUNK:
            event, text, number = _read_chunk(frame["body"])
            if not event and broken is not None:
                broken.append(frame["seq"])
            if event != owner or number == 0:
                # An event's chunks lie together, so only one event's are held. If some were lost, all are written again.
                owner, pieces = event, []
            pieces.append(text)
        elif kind in BOOK_KEEPING:
            continue
        elif "chunked" in frame:
            joined = "".join(pieces).encode() if owner == frame["id"] else b""
            owner, pieces = "", []
            if f"{crc32(joined):08x}" == frame["body"]["crc"]:
                yield frame, joined
            elif broken is not None:
                broken.append(frame["seq"])
        else:
            yield frame, None


def _read_chunk(body: object) -> tuple[str, str, object]:
    """The event's id, the text, the number. A body of another shape belongs to no event and adds no text."""
    event, text, number = (body.get(key) for key in ("of", "text", "n")) if isinstance(body, dict) else (None, None, None)
    return (event, text, number) if isinstance(event, str) and isinstance(text, str) else ("", "", None)
