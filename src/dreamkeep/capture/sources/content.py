"""Reads a source's bytes as lines, in bounded memory. Its cursor says how far it was read, and recognises the file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from hashlib import blake2b
from typing import NamedTuple, Protocol, TypeVar
from zlib import crc32

from dreamkeep.host import Host
from dreamkeep.session.records import LONGEST_LINE

Item = TypeVar("Item")

BLOCK = 1 << 20
#: About so many bytes of lines make one frame.
FRAME = 1 << 18
#: A line that is longer than any reader would take is cut into pieces of this size.
PIECE = 4 << 20
_HEAD = 4096
_TAIL = 1024


class Content(Protocol):
    """The bytes of a source. `masked`: they come from a journal that masked secrets in them, not from the agent's file."""

    size: int
    inode: int
    mtime_ns: int
    masked: bool

    def read(self, size: int, offset: int) -> bytes: ...

    def close(self) -> None: ...


class PlainFile:
    masked = False

    def __init__(self, host: Host, path: str) -> None:
        self._host = host
        self._handle = host.open_read(path)
        try:
            at = host.handle_stat(self._handle)
            if not at.is_file:
                raise OSError(22, "it is a pipe, a device or a folder, not a file", path)
        except OSError:
            host.close(self._handle)
            raise
        self.size, self.inode, self.mtime_ns = at.size, at.inode, at.mtime_ns

    def read(self, size: int, offset: int) -> bytes:
        return self._host.read(self._handle, size, offset)

    def close(self) -> None:
        self._host.close(self._handle)


class Bytes:
    """Bytes in memory that stand for a source."""

    def __init__(self, data: bytes, inode: int = 0, mtime_ns: int = 0, *, masked: bool = False) -> None:
        self._data = data
        self.masked = masked
        self.size, self.inode, self.mtime_ns = len(data), inode, mtime_ns

    def read(self, size: int, offset: int) -> bytes:
        return self._data[offset : offset + size]

    def close(self) -> None:
        pass


class Unpacked:
    """The content of a zstd file. It is unpacked forwards, and its head and last blocks stay in memory. To read further back,
    unpacking begins again.

    `most`: given the packed size, how many bytes are read at most, as if the file ended there (`is_cut`)."""

    masked = False
    is_cut = False

    def __init__(self, host: Host, path: str, most: Callable[[int], int | None] = lambda packed: None) -> None:
        self._host = host
        self._path = path
        at = host.stat(path)
        if at is None:
            raise FileNotFoundError(2, "no such file", path)
        self.inode, self.mtime_ns, self.packed = at.inode, at.mtime_ns, at.size
        self.size = 0
        ceiling = most(at.size)
        self._begin()
        try:
            while (ceiling is None or self.size <= ceiling) and (block := self._more()):
                self.size += len(block)
            if ceiling is not None and self.size > ceiling:
                self.size, self.is_cut = ceiling, True
            self._head = b""
            self.close()
            self._begin()
            self._head = self.read(_HEAD, 0)
        except BaseException:
            self.close()
            raise

    def _begin(self) -> None:
        import zstandard

        self._file = self._host.open_stream(self._path)
        self._source = zstandard.ZstdDecompressor().stream_reader(self._file, read_across_frames=True)
        self._damage = zstandard.ZstdError
        self._at = 0
        self._recent = b""

    def _more(self) -> bytes:
        """The next block. The one before it stays in memory, too."""
        try:
            block: bytes = self._source.read(BLOCK)
        except self._damage as problem:
            raise OSError(5, f"it can't be unpacked ({problem})", self._path) from problem
        self._recent = self._recent[-BLOCK:] + block
        self._at += len(block)
        return block

    def read(self, size: int, offset: int) -> bytes:
        if offset + size <= len(self._head):
            return self._head[offset : offset + size]
        if offset < self._at - len(self._recent):
            self.close()
            self._begin()
        while self._at < offset + size and self._more():
            pass
        start = self._at - len(self._recent)
        if offset < start:
            return b"".join([self._recent[:0], self._read_pieces(size, offset)])
        return self._recent[offset - start : offset - start + size]

    def _read_pieces(self, size: int, offset: int) -> bytes:
        """A stretch longer than what is kept in memory."""
        found = []
        while size > 0 and (piece := self.read(min(size, BLOCK // 2), offset)):
            found.append(piece)
            offset += len(piece)
            size -= len(piece)
        return b"".join(found)

    def close(self) -> None:
        self._file.close()


class Slice(NamedTuple):
    """Lines for one frame. `joins`: the first continues the line before. `more`: the last has no line feed yet. `size`: how many
    bytes of the source they cover."""

    lines: list[bytes]
    joins: bool
    more: bool
    size: int


def frame_batches(items: Iterable[Item], size_of: Callable[[Item], int]) -> Iterator[list[Item]]:
    """Batches of about one frame's size."""
    batch: list[Item] = []
    size = 0
    for item in items:
        batch.append(item)
        size += size_of(item)
        if size >= FRAME:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def iter_blocks(content: Content, offset: int = 0) -> Iterator[bytes]:
    """To the end as it was when the content was opened, or to where it ends now if it shrank since."""
    at = offset
    while at < content.size and (block := content.read(min(BLOCK, content.size - at), at)):
        yield block
        at += len(block)


class _Slicer:
    """Gathers lines into slices."""

    def __init__(self, joins: bool) -> None:
        self._lines: list[bytes] = []
        self._joins = joins
        self._size = 0

    def add_lines(self, lines: Iterable[bytes]) -> Iterator[Slice]:
        for line in lines:
            self._lines.append(line)
            self._size += len(line) + 1
            if self._size >= FRAME:
                yield from self.finish()

    def add_overlong(self, beginning: bytearray) -> Iterator[Slice]:
        """A line that is too long already, and has not ended: one slice for each piece."""
        yield from self.finish()
        for at in range(0, len(beginning), PIECE):
            piece = bytes(beginning[at : at + PIECE])
            yield Slice([piece], self._joins, True, len(piece))
            self._joins = True

    def finish(self, rest: bytes = b"") -> Iterator[Slice]:
        """`rest`: a last line without a line feed."""
        lines = [*self._lines, rest] if rest else self._lines
        if lines:
            yield Slice(lines, self._joins, bool(rest), self._size + len(rest))
            self._lines, self._joins, self._size = [], False, 0


def cuts(content: Content, offset: int, joins: bool) -> Iterator[Slice]:
    """From `offset` to the end as it was when the content was opened. What is written later comes next time."""
    slicer = _Slicer(joins)
    rest = bytearray()
    for block in iter_blocks(content, offset):
        first, ended, others = block.partition(b"\n")
        rest += first
        if ended:
            *lines, begun = [bytes(rest), *others.split(b"\n")]
            rest = bytearray(begun)
            yield from slicer.add_lines(lines)
        if len(rest) > LONGEST_LINE:
            yield from slicer.add_overlong(rest)
            rest.clear()
    yield from slicer.finish(bytes(rest))


class SourceCursor(NamedTuple):
    """How far a source was read, and how to recognise it; journaled with what was read (carry, key `src:NAME`)."""

    generation: int
    offset: int
    #: The last line has no line feed yet.
    open: int
    inode: int
    head_size: int
    head: str
    tail: str
    #: The checksum of everything up to `offset`.
    crc: int = 0
    state: str = ""
    #: The same of what is journaled, if that differs because secrets were masked (capture.redact_raw).
    masked_crc: int | None = None
    #: The generation that has lines which this one lacks and may get back (repeated_lines.py); else 0.
    fuller: int = 0

    @classmethod
    def parse(cls, text: object) -> SourceCursor | None:
        if not isinstance(text, str):
            return None
        try:
            generation, offset, more, inode, head_size, head, tail, crc, state, *others = text.split(" ")
            [last] = others or [""]
            masked, _, fuller = last.partition(":")
            return cls(
                int(generation),
                int(offset),
                int(more),
                int(inode),
                int(head_size),
                head,
                tail,
                int(crc),
                state,
                int(masked) if masked else None,
                int(fuller or 0),
            )
        except (ValueError, TypeError):
            return None  # written by another program; then the source is read again

    def __str__(self) -> str:
        *words, masked, fuller = self
        last = f"{'' if masked is None else masked}{f':{fuller}' if fuller else ''}"
        return " ".join(map(str, [*words, last] if last else words))

    @property
    def kept_crc(self) -> int:
        """The checksum of everything up to `offset` as it is in the journal."""
        return self.crc if self.masked_crc is None else self.masked_crc


def cursor_at(
    content: Content, generation: int, offset: int, more: bool, crc: int, masked_crc: int | None = None, fuller: int = 0
) -> SourceCursor:
    """The cursor to journal once everything up to `offset` is journaled."""
    head_size = min(_HEAD, offset)
    return SourceCursor(
        generation,
        offset,
        int(more),
        content.inode,
        head_size,
        _hash(content.read(head_size, 0)),
        _hash(content.read(min(_TAIL, offset), max(0, offset - _TAIL))),
        crc,
        masked_crc=masked_crc,
        fuller=fuller,
    )


def goes_on(content: Content, cursor: SourceCursor) -> bool:
    """Whether it is the file that was read, unchanged or longer."""
    return (
        content.size >= cursor.offset
        and _hash(content.read(cursor.head_size, 0)) == cursor.head
        and _hash(content.read(min(_TAIL, cursor.offset), max(0, cursor.offset - _TAIL))) == cursor.tail
    )


def untouched(content: Content, cursor: SourceCursor) -> bool:
    """Whether every byte that was read is still the same: for a file that did not grow but was written to."""
    crc = at = 0
    while at < cursor.offset:
        block = content.read(min(BLOCK, cursor.offset - at), at)
        if not block:
            return False
        crc = crc32(block, crc)
        at += len(block)
    return crc == cursor.crc


def what_happened(content: Content, cursor: SourceCursor) -> str:
    if content.size < cursor.offset:
        return "shrank"
    return "replaced" if content.inode != cursor.inode else "rewritten"


def _hash(data: bytes) -> str:
    return blake2b(data, digest_size=9).hexdigest()
