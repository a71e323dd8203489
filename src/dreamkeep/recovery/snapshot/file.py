"""The file format of a snapshot: a tar that `zstd -d | tar -t` can read, cut into blocks so that damage costs only what it hits.

    block:  8 bytes  a skippable zstd frame, which other programs ignore: magic 0x184D2A5D, length 20
           20 bytes  entry, piece (from 0), compressed size, crc32 of these and of the frame, 1 for the entry's last piece
           …         one zstd frame: at most 1 MiB of the tar

Every entry (tar header, bytes, padding) begins a block of its own, so a reader finds its way again after a bad block by the next
magic. Entries have no times and no owners: the same keep gives the same bytes. Each has its sha256 in its header.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from typing import BinaryIO, NamedTuple
from zlib import crc32

from dreamkeep.errors import Failed

_MAGIC = struct.pack("<II", 0x184D2A5D, 20)
_FOOT = struct.Struct("<IIIII")
_PIECE = 1 << 20
#: zstd may make incompressible bytes a little longer, never more than this.
_LARGEST = _PIECE + (_PIECE >> 7) + 1024
#: How much is read at once while searching for a block.
_AHEAD = 1 << 16
_LEVEL = 6
_TAR = 512
_DIGEST = "comment"  # the one keyword that every tar accepts
_END = b"\0" * 2 * _TAR


class Header(NamedTuple):
    """An entry's name, size, and the sha256 of its bytes."""

    name: str
    size: int
    digest: str


class BadEntry(NamedTuple):
    """An entry, or a stretch of the file, that can't be used, and why."""

    where: str
    what: str


# -- writing


class Packer:
    """`write` takes the bytes of the file, in order."""

    def __init__(self, write: Callable[[bytes], None]) -> None:
        self._write = write
        self._entry = 0
        #: An entry was written in part, so there is no way back.
        self.writing = False

    def add(self, header: Header, blocks: Iterable[bytes]) -> None:
        """`blocks` must be exactly what the header says, because what was written stays."""
        import hashlib

        left = header.size
        digest = hashlib.sha256()
        data = _tar_header(header)
        piece = 0
        for block in blocks:
            digest.update(block)
            left -= len(block)
            data += block
            while len(data) > _PIECE:
                self.writing = True
                self._block(piece, data[:_PIECE], last=False)
                data, piece = data[_PIECE:], piece + 1
        if left or digest.hexdigest() != header.digest:
            raise Failed("it changed while it was read", where=header.name, next="Export again.")
        self.writing = True
        self._block(piece, data + b"\0" * (-header.size % _TAR), last=True)
        self.writing = False
        self._entry += 1

    def end(self) -> None:
        """The end of the tar; a snapshot without it was truncated."""
        self._block(0, _END, last=True)

    def _block(self, piece: int, data: bytes, *, last: bool) -> None:
        import zstandard

        packed = zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True).compress(data)
        crc = _checksum(self._entry, piece, last, packed)
        self._write(_MAGIC + _FOOT.pack(self._entry, piece, len(packed), crc, last) + packed)


def _checksum(entry: int, piece: int, last: int, packed: bytes) -> int:
    """Also covers the block's own numbers."""
    return crc32(packed, crc32(_FOOT.pack(entry, piece, len(packed), 0, last)))


def _tar_header(header: Header) -> bytes:
    """A pax header with the digest, then the entry's own: readable by every tar, the same on every machine."""
    import tarfile

    info = tarfile.TarInfo(header.name)
    info.size = header.size
    info.mode = 0o600
    info.pax_headers = {_DIGEST: header.digest}
    return info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")


# -- reading


class _SnapshotBlock(NamedTuple):
    entry: int
    piece: int
    data: bytes
    last: bool


class Unpacker:
    """Gives a snapshot's entries in order, in bounded memory. Damage is listed in `bad`; everything else comes through."""

    def __init__(self, source: BinaryIO) -> None:
        self._source = source
        self._at = 0
        self.bad: list[BadEntry] = []
        #: Whether the end was there; if not, the file was truncated.
        self.ended = False
        self._blocks = self._read_blocks()
        self._next: _SnapshotBlock | None = None

    def entries(self) -> Iterator[tuple[Header, Iterator[bytes]]]:
        """(header, blocks). Read the blocks before the next entry; they raise `DamagedEntry` when they are not whole."""
        expected = 0
        while block := self._take():
            if block.entry > expected:
                self.bad.append(BadEntry(f"entries {expected} to {block.entry - 1}", "they are missing"))
            expected = block.entry + 1
            if block.data == _END:
                self.ended = True
                continue
            header, rest = _untar(block.data) if block.piece == 0 else (None, b"")
            if header is None:
                self.bad.append(BadEntry(f"entry {block.entry}", "its beginning is damaged"))
                self._skip(block)
                continue
            contents = self._contents(header, block, rest)
            yield header, contents
            for _ in contents:  # in case the caller did not want it
                pass

    def _contents(self, header: Header, block: _SnapshotBlock, rest: bytes) -> Iterator[bytes]:
        import hashlib

        left = header.size
        digest = hashlib.sha256()
        piece = 0
        try:
            while True:
                data = rest[:left]
                left -= len(data)
                digest.update(data)
                yield data
                if block.last:
                    break
                following = self._take()
                piece += 1
                if following is None or following[:2] != (block.entry, piece):
                    self._next = following
                    raise DamagedEntry(header.name)
                block, rest = following, following.data
            if left or digest.hexdigest() != header.digest:
                raise DamagedEntry(header.name)
        except DamagedEntry:
            self.bad.append(BadEntry(header.name, "its bytes are damaged or missing"))
            self._skip(block)
            raise

    def _skip(self, block: _SnapshotBlock) -> None:
        """Skip the rest of an entry that lost something."""
        while (following := self._take()) and following.entry == block.entry:
            pass
        self._next = following

    def _take(self) -> _SnapshotBlock | None:
        block, self._next = self._next, None
        return block or next(self._blocks, None)

    def _read_blocks(self) -> Iterator[_SnapshotBlock]:
        buffer = b""
        size = len(_MAGIC) + _FOOT.size
        while True:
            buffer = self._fill(buffer, size)
            if len(buffer) < size:
                if buffer:
                    self.bad.append(BadEntry(f"byte {self._at}", "the file is truncated"))
                return
            if not buffer.startswith(_MAGIC):
                self.bad.append(BadEntry(f"byte {self._at}", "not the beginning of a block"))
                buffer = self._search(buffer)
                continue
            entry, piece, length, crc, last = _FOOT.unpack_from(buffer, len(_MAGIC))
            buffer = self._fill(buffer, size + length) if length <= _LARGEST else buffer
            packed = buffer[size : size + length]
            data = _decompress(packed) if len(packed) == length and _checksum(entry, piece, last, packed) == crc else None
            if data is None:
                what = "a block is damaged" if len(buffer) >= size + length else "the file is truncated"
                self.bad.append(BadEntry(f"byte {self._at}", what))
                self._at += 1
                buffer = self._search(buffer[1:])
                continue
            self._at += size + length
            buffer = buffer[size + length :]
            yield _SnapshotBlock(entry, piece, data, bool(last))

    def _search(self, buffer: bytes) -> bytes:
        """Skip to the next magic."""
        while (found := buffer.find(_MAGIC)) < 0:
            keep = buffer[-len(_MAGIC) + 1 :]
            more = self._source.read(_AHEAD)
            self._at += len(buffer) - (len(keep) if more else 0)
            if not more:
                return b""
            buffer = keep + more
        self._at += found
        return buffer[found:]

    def _fill(self, buffer: bytes, size: int) -> bytes:
        """No more than `size`, because the rest of `buffer` is copied with every block that is taken from it."""
        while len(buffer) < size and (more := self._source.read(size - len(buffer))):
            buffer += more
        return buffer


class DamagedEntry(Exception):
    """The entry that is being read is not whole; `Unpacker.bad` lists it."""


def _decompress(packed: bytes) -> bytes | None:
    import zstandard

    try:
        data = zstandard.ZstdDecompressor().decompress(packed, max_output_size=_PIECE + 4 * _TAR)
    except zstandard.ZstdError:
        return None
    return data if len(data) <= _PIECE + 4 * _TAR else None


def _untar(data: bytes) -> tuple[Header | None, bytes]:
    """An entry's header, and the bytes that follow it."""
    import io
    import tarfile

    try:
        stream = io.BytesIO(data)
        with tarfile.open(fileobj=stream, mode="r:") as found:
            info = found.next()
    except (tarfile.TarError, ValueError, EOFError):
        return None, b""
    if info is None or not info.isreg() or _DIGEST not in info.pax_headers:
        return None, b""
    return Header(info.name, info.size, info.pax_headers[_DIGEST]), data[info.offset_data :]
