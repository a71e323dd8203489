"""A captured source beside its file: what the journal holds of it that the file has not. Reads both; decides nothing.

Captured is every line of every generation, except those with NULs (a power cut wrote them, nobody said them) and beginnings of
lines that were read while they were being written. Lines are compared as a set of digests: order and repetition lose no word.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from typing import Any, NamedTuple
from zlib import crc32

from dreamkeep.capture.sources import source_bytes
from dreamkeep.capture.sources.content import BLOCK, Content, PlainFile, SourceCursor, Unpacked
from dreamkeep.host import Host
from dreamkeep.journal.open_state import survey
from dreamkeep.journal.places import folder_of
from dreamkeep.session.records import is_record, loads

#: Above this the lines of a source are not compared one by one: it would need too much memory.
LARGEST = 256 << 20
#: A line that is longer is compared piece by piece.
_LONGEST = 64 << 20
NOTHING = b" \t\r\n\0"
_SOMETHING = re.compile(rb"[^\0]")
#: How something that was masked looks at least (secrets/masking.py).
_MARK = "*"


class Compared(NamedTuple):
    """`gone`: digests of what was captured and is not in the file; `captured`: bytes of the longest generation."""

    gone: frozenset[bytes]
    lines: int
    captured: int
    nuls: int

    @property
    def key(self) -> str:
        """The same as long as the same is missing, however the file goes on."""
        return blake2b(b"".join(sorted(self.gone)), digest_size=8).hexdigest()


def word_of(host: Host, root: str, session: str, names: Iterable[str]) -> tuple[str, SourceCursor | None]:
    """Which of these names a source was captured by, and how far; only the last part of the journal is read."""
    carry = survey(host, f"{root}/{folder_of(session)}").carry
    words = ((name, SourceCursor.parse(carry.get(f"src:{name}"))) for name in names)
    return next(((name, word) for name, word in words if word is not None), ("", None))


def lacks(host: Host, carried: Mapping[str, object], role: str, path: str, said: str) -> SourceCursor | None:
    """What was captured of a file, as capture remembers (`said`), if its journal carries less: then frames are lost. Not if it
    was only moved, nor if the journal has just these bytes as the version before. `carried`: by the source's name."""
    known = SourceCursor.parse(said)
    if known is None or not known.offset:
        return None
    for name in source_bytes.names_of(host, role, path):
        here = SourceCursor.parse(carried.get(name))
        if here is not None:
            return known if _is_less(here, known) else None
    # It was moved, or a link on the way to it leads elsewhere now: then it is carried by another name.
    others = (SourceCursor.parse(word) for name, word in carried.items() if name.startswith(f"{role}-"))
    return None if any(here and _may_be(here, known) and not _is_less(here, known) for here in others) else known


def _may_be(here: SourceCursor, known: SourceCursor) -> bool:
    """Whether both may be of one file: as far as that can be told by how it begins."""
    return here.head_size != known.head_size or here.head == known.head


def _is_less(here: SourceCursor, known: SourceCursor) -> bool:
    """A repair tells the same bytes once more, as a new generation; two more are an agent's, and what stood between is lost."""
    if here[:2] >= known[:2]:
        return False
    return (here.offset, here.crc) != (known.offset, known.crc) or known.generation > here.generation + 1


def carried_in(host: Host, folder: str) -> dict[str, object]:
    """What a journal carries of each of its sources; only the last part is read."""
    return {key[4:]: value for key, value in survey(host, folder).carry.items() if key.startswith("src:")}


def opened(host: Host, path: str) -> Content:
    return Unpacked(host, path) if path.endswith(".zst") else PlainFile(host, path)


def lines_of(content: Content, start: int = 0) -> Iterator[bytes]:
    """Without their line feeds; the last one also when it is not ended, then as `Unended`."""
    rest = b""
    at = start
    while at < content.size and (block := content.read(min(BLOCK, content.size - at), at)):
        at += len(block)
        *found, rest = (rest + block).split(b"\n")
        yield from found
        if len(rest) > _LONGEST:
            yield rest
            rest = b""
    if rest:
        yield Unended(rest)


class Unended(bytes):
    """A line without its line feed."""


class CapturedLines(NamedTuple):
    """What the journal has of a source: digests of its lines; `loose`: the newest generation ends so, in the middle of a line;
    `longest`: bytes of the longest generation; `masked`: secrets were masked in some; `nuls`: of generations with NULs
    in lines, digests of those lines and of all others."""

    lines: frozenset[bytes]
    loose: bytes
    longest: int
    masked: bool
    nuls: list[tuple[frozenset[bytes], frozenset[bytes]]]


def read_captured_lines(host: Host, folder: str, name: str) -> CapturedLines:
    """To be asked before the file is opened: beside a writer the journal is then never ahead of the file."""
    wanted: set[bytes] = set()
    longest = 0
    last: list[bytes] = []
    masked = False
    nuls = []
    words = source_bytes.words(host, folder, (name,))[name]
    for number, lines in source_bytes.generations(host, folder, name):
        longest = max(longest, sum(map(len, lines)))
        own = frozenset(_digest(line.removesuffix(b"\n")) for line in lines if _counts(line))
        wanted |= own
        if blanked := frozenset(_digest(line.removesuffix(b"\n")) for line in lines if b"\0" in line):
            nuls.append((blanked, own))
        masked = masked or (number in words and words[number].masked_crc is not None)
        last = lines
    loose = last[-1] if last and last[-1].strip() and not last[-1].endswith(b"\n") and b"\0" not in last[-1] else b""
    return CapturedLines(frozenset(wanted), loose, longest, masked, nuls)


def compare(before: CapturedLines, content: Content, *, text: bool) -> Compared:
    """`text`: its lines are no records, and are masked together."""
    wanted = set(before.lines)
    # The newest generation may end in the middle of a line: that line is there if one begins so.
    loose = before.loose
    count = len(wanted) + bool(loose)
    nuls: dict[bytes, int] = {}
    for line in lines_of(content):
        if many := line.count(b"\0"):
            nuls[_digest(line)] = many
        wanted.discard(_digest(line))
        if loose and line.startswith(loose):
            loose = b""
    if before.masked and wanted:
        wanted.difference_update(map(_digest, _masked(content, text=text)))
    gone = frozenset(wanted) | ({_digest(loose)} if loose else set())
    # NULs that stood beside what is gone when that was captured are not what became of it.
    older = {line for blanked, own in before.nuls if not own.isdisjoint(gone) for line in blanked}
    fresh = sum(many for line, many in nuls.items() if line not in older)
    return Compared(frozenset(gone), count, before.longest, fresh)


def _masked(content: Content, *, text: bool) -> Iterable[bytes]:
    """Its lines as they would be captured now."""
    from dreamkeep.secrets.masking import mask_line, mask_text

    return mask_text(b"\n".join(lines_of(content))).split(b"\n") if text else map(mask_line, lines_of(content))


def _counts(line: bytes) -> bool:
    return line.endswith(b"\n") and b"\0" not in line and bool(line.strip())


def _digest(line: bytes) -> bytes:
    return blake2b(line, digest_size=12).digest()


def malformed(content: Content, start: int = 0, *, settled: bool = True) -> tuple[int, str]:
    """How many lines are no records, and what tells these from others. `settled`: nobody is writing the last line any more."""
    count = 0
    seen = blake2b(digest_size=8)
    for line in lines_of(content, start):
        if is_record(line) or (isinstance(line, Unended) and not settled and not line.count(0)):
            continue
        count += 1
        seen.update(_digest(line))
    return count, seen.hexdigest()


def without_blanks(now: bytes, before: bytes) -> bytes | None:
    """What was blanked, filled in again from what was captured; None when more than blanking happened to it. Pure.

    What follows behind the captured bytes stays as it is.
    """
    if b"\0" not in now or b"\0" in before:
        return None
    common = min(len(now), len(before))
    for start, end in _runs(now, common):
        if not now[start:end].strip(b"\0") or now[start:end] == before[start:end]:
            continue
        return None
    return before + now[common:]


def _runs(now: bytes, end: int) -> Iterator[tuple[int, int]]:
    """Stretches of NULs and of everything else, in turn."""
    at = 0
    while at < end:
        if now[at] == 0:
            something = _SOMETHING.search(now, at, end)
            stop = something.start() if something else end
        else:
            found = now.find(b"\0", at, end)
            stop = end if found < 0 else found
        yield at, stop
        at = stop


def unblanked(host: Host, folder: str, name: str, now: bytes) -> bytes | None:
    """By the newest generation that fits and is whole: joined from what is left of another, it would be a file that never was.
    Not by one in which secrets were masked: those would be in the agent's file, then."""
    best: bytes | None = None
    words = source_bytes.words(host, folder, (name,))[name]
    for number, held in source_bytes.generations(host, folder, name):
        word, before = words.get(number), b"".join(held)
        if word and word.masked_crc is None and (len(before), crc32(before)) == (word.offset, word.crc):
            best = without_blanks(now, before) or best
    return best


def is_beginning(host: Host, folder: str, name: str, now: bytes) -> bool:
    """Whether what was captured may be put over these bytes: they are the beginning of its richest version, which is the one that
    is given back, or nothing at all."""
    if not now.strip(NOTHING):
        return True
    best, most = b"", 0
    for _, lines in source_bytes.generations(host, folder, name):
        if (size := richness(lines)) >= most:
            best, most = b"".join(lines), size
    return best.startswith(now)


def before_it_changed(host: Host, folder: str, name: str, gone: frozenset[bytes]) -> int | None:
    """The newest generation that has most of these lines, if it is not the one that is given back unasked: the richest."""
    given = found = None
    most = many = 0
    for number, lines in source_bytes.generations(host, folder, name):
        given, most = (number, size) if (size := richness(lines)) >= most else (given, most)
        has = len(gone & {_digest(line.removesuffix(b"\n")) for line in lines})
        found, many = (number, has) if has and has >= many else (found, many)
    return found if found != given else None


def richness(lines: Iterable[bytes]) -> int:
    """Bytes that are no NULs, nor blanks at the ends of lines. Pure."""
    return sum(len(line.strip(NOTHING)) - line.strip(NOTHING).count(0) for line in lines)


# -- documents


def messages_in(data: bytes) -> list[Mapping[str, Any]] | None:
    """Of a document that is one JSON object; None when it is none."""
    found = loads(data)
    held = found.get("messages") if found is not None else None
    if not isinstance(held, list):
        return None if found is None or held is not None else []
    return [one for one in held if isinstance(one, dict)]


def said_in(host: Host, folder: str, name: str) -> list[Mapping[str, Any]] | None:
    """What messages said in any version of a document, each as it was said last; None when it never had any to speak of."""
    found: dict[str, Mapping[str, Any]] = {}
    known = False
    for _, lines in source_bytes.generations(host, folder, name):
        messages = messages_in(b"".join(lines))
        known |= messages is not None
        found.update((_key(one), one) for one in messages or () if _has_words(one))
    return list(found.values()) if known else None


def lost_messages(now: list[Mapping[str, Any]], before: list[Mapping[str, Any]]) -> list[str]:
    """Keys of messages that are there no more, or empty now. A message with an id may be written again in a newer form. Pure."""
    there = {_key(one): one for one in now}
    lost = {
        key: one for key, one in ((_key(one), one) for one in before) if _has_words(one) and not _has_words(there.get(key, {}))
    }
    if not any(_MARK in str(one) for one in lost.values()):
        return list(lost)
    # Without an id it is known by what it says, and that was masked.
    masked = masked_messages(now)
    return [key for key, one in lost.items() if canonical(one) not in masked]


def masked_messages(now: Iterable[Mapping[str, Any]]) -> frozenset[str]:
    """Messages as they would be captured now: what one of them betrays is masked in all."""
    from dreamkeep.secrets.masking import mask_data

    return frozenset(map(canonical, mask_data(list(now))))


def canonical(message: Mapping[str, Any]) -> str:
    return json.dumps(message, sort_keys=True)


def _key(message: Mapping[str, Any]) -> str:
    native = message.get("id")
    if isinstance(native, str) and native:
        return native
    return blake2b(canonical(message).encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()


def _has_words(message: Mapping[str, Any]) -> bool:
    return any(message.get(name) for name in ("content", "toolCalls", "tool_calls", "parts", "thoughts"))
