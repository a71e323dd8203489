"""What the index remembers of a journal's files, so that a later look can tell whether they are still what was indexed.

`looks`: name, size, time and inode of every file that the FolderMark does not cover (finished parts, a second form, leftovers).
`sums`: for each part the crc32 of its uncompressed bytes, up to where it was read. One fast pass over a file proves it unharmed.

    000001.jsonl.zst:70121:1763260000000000000:8123 000002.jsonl:…        1:4194532:9ae0daaf 2:81723:5be1c0aa

`sources`: how far each source file was read, as the journal carries it (capture/sources/content.py), one line for each.

All are plain text, because most are only ever compared. The commonest journal (one part) has no looks.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import BinaryIO, NamedTuple
from zlib import crc32

from dreamkeep.host import Host
from dreamkeep.index.store import FolderMark, JournalPlace
from dreamkeep.journal import parts
from dreamkeep.journal.frame import Frame
from dreamkeep.journal.open_state import carried
from dreamkeep.journal.reader import Position

_SUM = re.compile("([0-9]+):([0-9]+):([0-9a-f]{8})")
#: The beginning of a source's word: which version of the file, and how much of it.
_GENERATION = re.compile("([0-9]+) ([0-9]+) ")
_BLOCK = 96 << 10  # more is slower: the allocator would get and return it page by page
_BUFFER = 256 << 10


class Sum(NamedTuple):
    """The crc32 of a part's first `size` bytes."""

    size: int
    crc: int


def read_folder_mark(host: Host, folder: str, known: FolderMark | None) -> FolderMark | None:
    """How the folder looks now; None when it has no part. Take it before reading: then what comes later is noticed later."""
    at = host.stat(folder)
    if at is None or not at.is_folder:
        return None
    if known and known.folder_mtime_ns == at.mtime_ns:
        part = known.part
    else:
        numbers = parts.numbers(host, folder)
        part = numbers[-1] if numbers else 0
    if not part:
        return None  # an empty folder is no journal
    hot = host.stat(f"{folder}/{parts.name(part)}") or host.stat(f"{folder}/{parts.name(part)}.zst")
    return FolderMark(part, hot.size, hot.mtime_ns, hot.inode, at.mtime_ns) if hot else None


def read_looks(host: Host, folder: str) -> str:
    """How the files look that the mark does not cover: all but the lock and a plain last part. Leftovers are among them."""
    names = [name for name in sorted(host.names(folder)) if name != parts.LOCK]
    hot = parts.name(max((parts.number(name) or 0 for name in names), default=0))
    return " ".join(filter(None, (_look(host, folder, name) for name in names if name != hot)))


def _look(host: Host, folder: str, name: str) -> str:
    at = host.stat(f"{folder}/{name}")
    # A name with a blank is not ours, and it does not matter how that looks.
    return f"{name}:{at.size}:{at.mtime_ns}:{at.inode}" if at and " " not in name and ":" not in name else ""


def is_unchanged(host: Host, folder: str, place: JournalPlace) -> bool:
    """Whether every file of the journal looks as it did when it was indexed. Opens nothing."""
    if read_folder_mark(host, folder, place.mark) != place.mark:
        return False
    return all(_look(host, folder, one.partition(":")[0]) == one for one in place.looks.split())


def names_in(looked: str) -> list[str]:
    return [one.partition(":")[0] for one in looked.split()]


def is_last_part_cold(place: JournalPlace) -> bool:
    """Whether the last part exists only in its compressed form."""
    name = f"{parts.name(place.mark.part)}.zst:"
    return any(one.startswith(name) and one.endswith(f":{place.mark.part_inode}") for one in place.looks.split())


def changed_parts(host: Host, folder: str, place: JournalPlace) -> list[int]:
    """The finished parts that were indexed and no longer look as they did, or are gone."""
    found: dict[int, None] = {}
    for one in place.looks.split():
        name = one.partition(":")[0]
        part = parts.number(name)
        if part is not None and part < place.position.part and _look(host, folder, name) != one:
            found[part] = None
    return list(found)


# -- sources


def parse_sources(text: str) -> dict[str, str]:
    return dict(line.split(" ", 1) for line in text.splitlines() if " " in line)


def sources_text(known: Mapping[str, str]) -> str:
    return "".join(f"{name} {word}\n" for name, word in sorted(known.items()))


def covers_sources(now: str, then: str) -> bool:
    """Whether everything up to `then` was read again: each source at least as far, and none was replaced in between."""
    here = parse_sources(now)
    before = parse_sources(then)
    return bool(before) and all(_reaches(here.get(name, ""), word) for name, word in before.items())


def _reaches(now: str, then: str) -> bool:
    here, before = (_GENERATION.match(word) for word in (now, then))
    return here is not None and before is not None and here[1] == before[1] == "1" and int(here[2]) >= int(before[2])


def note_sources(known: dict[str, str], frame: Frame) -> None:
    """Note how far a frame says that sources were read. The head of a part repeats that for all sources."""
    for key, value in carried(frame).items():
        if key.startswith("src:"):
            known[key[4:]] = str(value)


# -- sums


def parse_sums(text: str) -> dict[int, Sum]:
    """Empty if any entry is malformed: then nothing is proven."""
    found = {}
    for one in text.split():
        match = _SUM.fullmatch(one)
        if match is None:
            return {}
        found[int(match[1])] = Sum(int(match[2]), int(match[3], 16))
    return found


def _text(sums: dict[int, Sum]) -> str:
    return " ".join(f"{part}:{size}:{crc:08x}" for part, (size, crc) in sorted(sums.items()))


def extend_sums(host: Host, folder: str, sums: str, end: Position) -> str:
    """The sums up to `end`, from those up to an earlier place. Reads only what is new."""
    known = parse_sums(sums)
    last = max(known, default=0)
    if last > end.part or (last == end.part and known[last].size > end.offset):
        known, last = {}, 0  # that place is not before this one
    for part in parts.numbers(host, folder):
        if part > end.part:
            break
        if part >= last or part not in known:
            upto = end.offset if part == end.part else None
            known[part] = extend_sum(host, folder, part, known.get(part, Sum(0, 0)), upto)
    return _text(known)


def extend_sum(host: Host, folder: str, part: int, before: Sum, upto: int | None) -> Sum:
    """`before` continued to byte `upto` of the part, or to its end if that comes first."""
    with parts.stream(host, folder, part, before.size) as source:
        return _summed(source, before, upto)


def _summed(source: BinaryIO, before: Sum, upto: int | None) -> Sum:
    size, crc = before
    while block := source.read(_BLOCK if upto is None else min(_BLOCK, upto - size)):
        crc = crc32(block, crc)
        size += len(block)
    return Sum(size, crc)


def make_buffer() -> memoryview:
    """A buffer to reuse for many reads: it stays in the processor's cache."""
    return memoryview(bytearray(_BUFFER))


def part_holds(host: Host, folder: str, part: int, known: Sum, buffer: memoryview | None = None, *, whole: bool) -> bool:
    """Whether a part still has the bytes that were summed; `whole`: and nothing was added to them."""
    try:
        handle = host.open_read(f"{folder}/{parts.name(part)}")
    except FileNotFoundError:
        return _cold_part_holds(host, folder, part, known, whole=whole)
    try:
        matches = crc32_of(host, handle, known.size, buffer or make_buffer()) == known.crc
        return matches and not (whole and host.read(handle, 1, known.size))
    finally:
        host.close(handle)


def _cold_part_holds(host: Host, folder: str, part: int, known: Sum, *, whole: bool) -> bool:
    """Also, nothing may lie behind the compressed data in its file: no sum covers that."""
    try:
        with parts.stream(host, folder, part) as source:
            matches = _summed(source, Sum(0, 0), None if whole else known.size) == known
            return matches and (bool(source.read(1)) or not parts.behind(source))
    except FileNotFoundError:
        return False


def parts_hold(
    host: Host, folder: str, known: str, last: int, buffer: memoryview | None = None, which: Collection[int] | None = None
) -> bool:
    """Whether all parts (or only `which`) still have the bytes that were indexed, by their sums (`known`).

    `last`: the part that was read last; more may have been added to it. `buffer`: for callers that ask often.
    """
    sums = parse_sums(known)
    chosen = sums if which is None else which
    return bool(sums) and all(
        part in sums and part_holds(host, folder, part, sums[part], buffer, whole=part != last) for part in chosen
    )


def crc32_of(host: Host, handle: int, size: int, buffer: memoryview) -> int:
    """Of the first `size` bytes; -1 when there are fewer. It makes few calls, because a deep audit spends its time here."""
    at = crc = 0
    while at < size:
        count = host.read_into(handle, buffer[: size - at], at)
        if not count:
            return -1
        crc = crc32(buffer[:count], crc)
        at += count
    return crc
