"""What a journal lost, and another copy of it is proven to have had, after that copy's events were merged. Pure but for reading.

Proven is a hole if the copy has the very frame that stands behind it here, and all that are missing before that one; a compressed
part that can't be read, if the copy's part has the checksum with which the compressed one ends; what only the witness knows, if
the copy has the frame that was seen last and lacks none before it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from dreamkeep.event import Kind
from dreamkeep.host import Host
from dreamkeep.journal import parts
from dreamkeep.journal.frame import Frame
from dreamkeep.journal.places import KEEP
from dreamkeep.journal.reader import HOLES, JournalDefect, Reading, SeqRange
from dreamkeep.journal.scan import Scan

#: Frames of a keep's own journal that no import appends: where one of them was lost, it still is.
_LEFT_OUT = frozenset((Kind.PAGE_PUBLISHED, Kind.PAGE_WRITTEN, Kind.SESSION_UNDELETED))
#: Those that mean the same wherever they stand. What is remembered builds on what was said before it: told again behind that, it
#: may count for nothing.
_LOOSE = frozenset((Kind.PART_OPENED, Kind.KEEP_CREATED, Kind.FAULT_ACCEPTED, Kind.SESSION_DELETED))


class Proven(NamedTuple):
    """`mended`: to be put into a frame `journal.mended`. `lost`: frames that the journal lost, and all that they said is here."""

    mended: list[dict[str, Any]]
    lost: set[tuple[int, str]]


class _Here(NamedTuple):
    """`holes`: nobody has seen to them yet. `behind`: checksums of the frames behind holes, and of those that bind pieces, by
    seq. `lost`: the frames that were seen once, and are not there."""

    holes: list[JournalDefect]
    behind: dict[int, str]
    lost: set[tuple[int, str]]


class _There(NamedTuple):
    """`lacks`: seqs that it has not, or that were not taken over. `bound`: seqs of frames that count only at their place. `has`:
    of the frames that were asked for, by seq and checksum."""

    lacks: list[SeqRange]
    bound: list[SeqRange]
    has: set[tuple[int, str]]


def proven(host: Host, ours: str, theirs: str, known: Iterable[tuple[int, str]]) -> Proven:
    """`ours`, `theirs`: the folders of both, all of theirs merged into ours. `known`: frames that were seen there once."""
    here = _here(host, ours, known)
    if not here.holes and not here.lost:
        return Proven([], set())
    asked = {*here.behind.items(), *here.lost}
    there = _there(host, theirs, asked, own=ours.endswith(f"/{KEEP}"))
    sound = not there.lacks and not there.bound
    mended = [
        {"kind": hole.kind, "part": hole.part, "at": hole.offset, "size": hole.size}
        for hole in here.holes
        if _filled(hole, here, there) or (hole.kind == "cold" and sound and _was_that(host, ours, theirs, hole.part))
    ]
    if not here.lost or not here.lost <= there.has:
        return Proven(mended, set())
    last = max(seq for seq, _ in here.lost)
    is_here = _is_clear(SeqRange(_shared(host, ours, theirs) + 1, last), there.lacks)
    return Proven(mended, here.lost if is_here else set())


def _here(host: Host, folder: str, known: Iterable[tuple[int, str]]) -> _Here:
    behind: dict[int, str] = {}
    before = 0
    wanted = {one for one in known if one[0]}

    def fold(frame: Frame) -> None:
        nonlocal before
        seq = frame["seq"]
        if seq != before + 1 or "chunked" in frame:
            behind[seq] = frame["crc"]
        before = seq

    scan = Scan(host, folder, fold=fold, wanted=wanted).run()
    holes = [one for one in scan.defects() if one.kind in (*HOLES, "chunks") and not one.mended]
    return _Here(holes, behind, wanted - scan.found_frames)


def _there(host: Host, folder: str, asked: set[tuple[int, str]], *, own: bool) -> _There:
    """`own`: it is a keep's own journal."""
    has: set[tuple[int, str]] = set()
    left_out: list[SeqRange] = []
    bound: list[SeqRange] = []

    def fold(frame: Frame) -> None:
        seq = frame["seq"]
        if (seq, frame["crc"]) in asked:
            has.add((seq, frame["crc"]))
        if own and frame["kind"] in _LEFT_OUT:
            left_out.append(SeqRange(seq, seq))
        if own and frame["kind"] not in _LOOSE:
            bound.append(SeqRange(seq, seq))

    scan = Scan(host, folder, fold=fold).run()
    lacks = [span for defect in scan.defects() for span in defect.missing]
    return _There([*lacks, *left_out], bound, has)


def _filled(hole: JournalDefect, here: _Here, there: _There) -> bool:
    """Bytes that nobody can read, where no frame is missing, are none that another could bring."""
    spans = hole.missing
    behind = (hole.offset,) if hole.kind == "chunks" else tuple(span.last + 1 for span in spans)
    if not spans or any((seq, here.behind.get(seq, "")) not in there.has for seq in behind):
        return False
    return all(_is_clear(span, (*there.lacks, *there.bound)) for span in spans)


def _is_clear(span: SeqRange, of: Iterable[SeqRange]) -> bool:
    return not any(one.first <= span.last and span.first <= one.last for one in of)


def _shared(host: Host, ours: str, theirs: str) -> int:
    """The last seq up to which both are the same."""
    last = 0
    for mine, other in zip(Reading(host, ours, heads=True), Reading(host, theirs, heads=True), strict=False):
        if (mine["seq"], mine["crc"]) != (other["seq"], other["crc"]):
            break
        last = mine["seq"]
    return last


def _was_that(host: Host, ours: str, theirs: str, part: int) -> bool:
    """Whether their part is what was compressed here, by the checksum at the end of the compressed file."""
    at = host.stat(f"{ours}/{parts.name(part)}.zst")
    if at is None or part not in parts.numbers(host, theirs):
        return False
    source = host.open_stream(f"{ours}/{parts.name(part)}.zst")
    try:
        source.seek(max(at.size - parts.CHECKSUM, 0))
        end = source.read()
    finally:
        source.close()
    with parts.stream(host, theirs, part) as plain:
        return len(end) == parts.CHECKSUM and parts.frozen_sum(plain) == end
