"""Proves, after a copy of a journal was merged, which losses of the journal are mended by it. Pure except for reading.

- A hole is mended if the copy has the very frame that stands behind the hole here, and every missing frame before it.
- A compressed part that can't be read is mended if the copy's part has the checksum with which the compressed file ends.
- What only the witness knows is mended if the copy has the frame that was seen last, and lacks none before it.
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

#: Frames of a keep's own journal that no import appends: one that was lost stays lost.
_LEFT_OUT = frozenset((Kind.PAGE_PUBLISHED, Kind.PAGE_WRITTEN, Kind.SESSION_UNDELETED))
#: Frames that mean the same at any place. All others build on what came before them and may have no effect when appended later.
_LOOSE = frozenset((Kind.PART_OPENED, Kind.KEEP_CREATED, Kind.FAULT_ACCEPTED, Kind.SESSION_DELETED))


class Proof(NamedTuple):
    """`mended`: for a frame `journal.mended`. `lost`: lost frames whose content is all here."""

    mended: list[dict[str, Any]]
    lost: set[tuple[int, str]]


class _Here(NamedTuple):
    """`holes`: not yet mended. `behind`: the checksums of frames behind holes, and of those that join chunks, by seq. `lost`:
    frames that were seen once and are not there."""

    holes: list[JournalDefect]
    behind: dict[int, str]
    lost: set[tuple[int, str]]


class _There(NamedTuple):
    """`lacks`: seqs that it lacks, or that were not imported. `bound`: seqs of frames that count only at their place. `has`:
    those of the wanted frames that it has, by seq and checksum."""

    lacks: list[SeqRange]
    bound: list[SeqRange]
    has: set[tuple[int, str]]


def prove_mended(host: Host, ours: str, theirs: str, known: Iterable[tuple[int, str]]) -> Proof:
    """`ours`, `theirs`: the folders of both journals, after theirs was merged into ours. `known`: frames once seen in ours."""
    here = _here(host, ours, known)
    if not here.holes and not here.lost:
        return Proof([], set())
    asked = {*here.behind.items(), *here.lost}
    there = _there(host, theirs, asked, own=ours.endswith(f"/{KEEP}"))
    sound = not there.lacks and not there.bound
    mended = [
        {"kind": hole.kind, "part": hole.part, "at": hole.offset, "size": hole.size}
        for hole in here.holes
        if _filled(hole, here, there) or (hole.kind == "cold" and sound and _was_that(host, ours, theirs, hole.part))
    ]
    if not here.lost or not here.lost <= there.has:
        return Proof(mended, set())
    last = max(seq for seq, _ in here.lost)
    is_here = _is_clear(SeqRange(_shared(host, ours, theirs) + 1, last), there.lacks)
    return Proof(mended, here.lost if is_here else set())


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
    """Whether the copy has what is missing. (Where only bytes are unreadable and no frame is missing, no copy can bring any.)"""
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
    """Whether their part is what was compressed here: the compressed file ends with its checksum."""
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
