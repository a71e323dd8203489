"""What the index remembers of a journal's files, so that others can tell whether they are still what was indexed.

`looks`: name, size, time and inode of every file that the Mark does not tell of (finished parts, a second form, leftovers).
`sums`:  for each part the crc32 of its uncompressed bytes, up to where it was read: one fast pass over a file proves it unharmed.

    000001.jsonl.zst:70121:1763260000000000000:8123 000002.jsonl:…        1:4194532:9ae0daaf 2:81723:5be1c0aa

`sources`: how far each file was read that it comes from, as the journal carries it (capture/sources/content.py): a line for each.

All are plain text, because most are only ever compared; no looks in the commonest case (one part), no sums where nobody knows.
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
_ROOM = 256 << 10


class Sum(NamedTuple):
    """The crc32 of a part's first `size` bytes."""

    size: int
    crc: int


def mark_of(host: Host, folder: str, known: FolderMark | None) -> FolderMark | None:
    """How the folder looks now; None when no part is there. Taken before reading, so that what comes later is noticed later."""
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


def looks(host: Host, folder: str) -> str:
    """How the files look that the mark says nothing of: all but the lock and a plain last part. Leftovers are among them."""
    names = [name for name in sorted(host.names(folder)) if name != parts.LOCK]
    hot = parts.name(max((parts.number(name) or 0 for name in names), default=0))
    return " ".join(filter(None, (_look(host, folder, name) for name in names if name != hot)))


def _look(host: Host, folder: str, name: str) -> str:
    at = host.stat(f"{folder}/{name}")
    # A name with a blank in it is none of ours; nobody needs to know how it looked.
    return f"{name}:{at.size}:{at.mtime_ns}:{at.inode}" if at and " " not in name and ":" not in name else ""


def unchanged(host: Host, folder: str, place: JournalPlace) -> bool:
    """Whether every file of the journal looks as it did when it was indexed. Opens nothing."""
    if mark_of(host, folder, place.mark) != place.mark:
        return False
    return all(_look(host, folder, one.partition(":")[0]) == one for one in place.looks.split())


def names_in(looked: str) -> list[str]:
    return [one.partition(":")[0] for one in looked.split()]


def frozen_last(place: JournalPlace) -> bool:
    """Whether the last part is there in its compressed form only."""
    name = f"{parts.name(place.mark.part)}.zst:"
    return any(one.startswith(name) and one.endswith(f":{place.mark.part_inode}") for one in place.looks.split())


def changed_parts(host: Host, folder: str, place: JournalPlace) -> list[int]:
    """The finished parts that were read and do not look as they did; one that is gone is among them."""
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


def reach(now: str, then: str) -> bool:
    """Whether all of `then` was read again since: each source at least as far, and none was another file in between."""
    here = parse_sources(now)
    before = parse_sources(then)
    return bool(before) and all(_reaches(here.get(name, ""), word) for name, word in before.items())


def _reaches(now: str, then: str) -> bool:
    here, before = (_GENERATION.match(word) for word in (now, then))
    return here is not None and before is not None and here[1] == before[1] == "1" and int(here[2]) >= int(before[2])


def note_sources(known: dict[str, str], frame: Frame) -> None:
    """What a frame says of how far sources were read; the head of a part repeats it of all."""
    for key, value in carried(frame).items():
        if key.startswith("src:"):
            known[key[4:]] = str(value)


# -- sums


def parse_sums(text: str) -> dict[int, Sum]:
    """None at all where one is not what we write: then nothing is proven."""
    found = {}
    for one in text.split():
        match = _SUM.fullmatch(one)
        if match is None:
            return {}
        found[int(match[1])] = Sum(int(match[2]), int(match[3], 16))
    return found


def _text(sums: dict[int, Sum]) -> str:
    return " ".join(f"{part}:{size}:{crc:08x}" for part, (size, crc) in sorted(sums.items()))


def extended(host: Host, folder: str, sums: str, end: Position) -> str:
    """The sums up to `end`, from those up to some place before it: only what is new is read."""
    known = parse_sums(sums)
    last = max(known, default=0)
    if last > end.part or (last == end.part and known[last].size > end.offset):
        known, last = {}, 0  # not a place before this one
    for part in parts.numbers(host, folder):
        if part > end.part:
            break
        if part >= last or part not in known:
            upto = end.offset if part == end.part else None
            known[part] = add(host, folder, part, known.get(part, Sum(0, 0)), upto)
    return _text(known)


def add(host: Host, folder: str, part: int, before: Sum, upto: int | None) -> Sum:
    """`before` carried on to byte `upto` of the part, or to its end. Less, when there is less."""
    with parts.stream(host, folder, part, before.size) as source:
        return _summed(source, before, upto)


def _summed(source: BinaryIO, before: Sum, upto: int | None) -> Sum:
    size, crc = before
    while block := source.read(_BLOCK if upto is None else min(_BLOCK, upto - size)):
        crc = crc32(block, crc)
        size += len(block)
    return Sum(size, crc)


def room() -> memoryview:
    """To read into, again and again: memory that stays in the processor's cache, and that nobody has to get or return."""
    return memoryview(bytearray(_ROOM))


def same(host: Host, folder: str, part: int, known: Sum, into: memoryview | None = None, *, whole: bool) -> bool:
    """Whether a part's bytes are still those that were summed; `whole`: and nothing was added to them."""
    try:
        handle = host.open_read(f"{folder}/{parts.name(part)}")
    except FileNotFoundError:
        return _same_cold(host, folder, part, known, whole=whole)
    try:
        return crc_of(host, handle, known.size, into or room()) == known.crc and not (whole and host.read(handle, 1, known.size))
    finally:
        host.close(handle)


def _same_cold(host: Host, folder: str, part: int, known: Sum, *, whole: bool) -> bool:
    """Of a compressed one also that nothing lies behind it in its file: of that no sum tells."""
    try:
        with parts.stream(host, folder, part) as source:
            held = _summed(source, Sum(0, 0), None if whole else known.size) == known
            return held and (bool(source.read(1)) or not parts.behind(source))
    except FileNotFoundError:
        return False


def hold(
    host: Host, folder: str, known: str, last: int, into: memoryview | None = None, which: Collection[int] | None = None
) -> bool:
    """Whether the bytes of these parts (or all) are still those that were indexed: their sums (`known`) are the same.

    `last`: the part that was read last, to which more may have been added. `into`: a room of one's own, for who asks
    often.
    """
    sums = parse_sums(known)
    chosen = sums if which is None else which
    return bool(sums) and all(part in sums and same(host, folder, part, sums[part], into, whole=part != last) for part in chosen)


def crc_of(host: Host, handle: int, size: int, into: memoryview) -> int:
    """Of the first `size` bytes; -1 when there are less. As few calls as may be: a deep audit does nothing else for long."""
    at = crc = 0
    while at < size:
        count = host.read_into(handle, into[: size - at], at)
        if not count:
            return -1
        crc = crc32(into[:count], crc)
        at += count
    return crc
