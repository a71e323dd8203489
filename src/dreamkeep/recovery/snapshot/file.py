"""One file that holds a keep: a tar that `zstd -d | tar -t` reads, cut into blocks so that damage costs only what it hits.

    block:  8 bytes  a skippable zstd frame, which other programs pass over: magic 0x184D2A5D, length 20
           20 bytes  entry, piece (from 0), compressed size, crc32 of these and of the frame, 1 when it is the entry's last
           …         one zstd frame: at most 1 MiB of the tar

Every entry (a header of the tar, the bytes, the padding) begins a block of its own, so what follows a bad block is found again by
the next magic. Entries have no times and no owners: the same keep gives the same bytes. Each has its sha256 in its header.
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
#: How much is read at once while a block is looked for.
_AHEAD = 1 << 16
_LEVEL = 6
_TAR = 512
_DIGEST = "comment"  # the one keyword that no tar complains of
_END = b"\0" * 2 * _TAR


class Header(NamedTuple):
    """What an entry says of itself: its name, how long it is, and the sha256 of its bytes."""

    name: str
    size: int
    digest: str


class Bad(NamedTuple):
    """A stretch of the file, or an entry, that can't be used."""

    where: str
    what: str


# -- writing


class Packer:
    """`write` takes the bytes of the file, in order."""

    def __init__(self, write: Callable[[bytes], None]) -> None:
        self._write = write
        self._entry = 0
        #: Whether some of an entry was written, and not all of it: then there is no way back.
        self.writing = False

    def add(self, header: Header, blocks: Iterable[bytes]) -> None:
        """`blocks` must be exactly what the header says: nobody can take back what was written."""
        import hashlib

        left = header.size
        digest = hashlib.sha256()
        held = _tar_header(header)
        piece = 0
        for block in blocks:
            digest.update(block)
            left -= len(block)
            held += block
            while len(held) > _PIECE:
                self.writing = True
                self._block(piece, held[:_PIECE], last=False)
                held, piece = held[_PIECE:], piece + 1
        if left or digest.hexdigest() != header.digest:
            raise Failed("it changed while it was read", where=header.name, next="Export again.")
        self.writing = True
        self._block(piece, held + b"\0" * (-header.size % _TAR), last=True)
        self.writing = False
        self._entry += 1

    def end(self) -> None:
        """What closes a tar; a snapshot without it was cut."""
        self._block(0, _END, last=True)

    def _block(self, piece: int, data: bytes, *, last: bool) -> None:
        import zstandard

        packed = zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True).compress(data)
        crc = _check(self._entry, piece, last, packed)
        self._write(_MAGIC + _FOOT.pack(self._entry, piece, len(packed), crc, last) + packed)


def _check(entry: int, piece: int, last: int, packed: bytes) -> int:
    """Over what a block says of itself, too."""
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
    """Entries of a snapshot, in order, in bounded memory; what is damaged is told in `bad`, and the rest comes through."""

    def __init__(self, source: BinaryIO) -> None:
        self._source = source
        self._at = 0
        self.bad: list[Bad] = []
        #: Whether the end was there: else the file was cut.
        self.ended = False
        self._blocks = self._read_blocks()
        self._next: _SnapshotBlock | None = None

    def entries(self) -> Iterator[tuple[Header, Iterator[bytes]]]:
        """(header, blocks): the blocks are to be taken before the next entry; they raise `Damaged` when they are not whole."""
        expected = 0
        while block := self._take():
            self._tell_missing(expected, block)
            expected = block.entry + 1
            if block.data == _END:
                self.ended = True
                continue
            header, rest = _untar(block.data) if block.piece == 0 else (None, b"")
            if header is None:
                self.bad.append(Bad(f"entry {block.entry}", "its beginning is damaged"))
                self._skip(block)
                continue
            contents = self._contents(header, block, rest)
            yield header, contents
            for _ in contents:  # whoever did not want it
                pass

    def _tell_missing(self, expected: int, block: _SnapshotBlock) -> None:
        if block.entry > expected:
            self.bad.append(Bad(f"entries {expected} to {block.entry - 1}", "they are missing"))

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
                    raise Damaged(header.name)
                block, rest = following, following.data
            if left or digest.hexdigest() != header.digest:
                raise Damaged(header.name)
        except Damaged:
            self.bad.append(Bad(header.name, "its bytes are damaged or missing"))
            self._skip(block)
            raise

    def _skip(self, block: _SnapshotBlock) -> None:
        """The rest of an entry of which something is lost."""
        while (following := self._take()) and following.entry == block.entry:
            pass
        self._next = following

    def _take(self) -> _SnapshotBlock | None:
        block, self._next = self._next, None
        return block or next(self._blocks, None)

    def _read_blocks(self) -> Iterator[_SnapshotBlock]:
        held = b""
        size = len(_MAGIC) + _FOOT.size
        while True:
            held = self._fill(held, size)
            if len(held) < size:
                if held:
                    self.bad.append(Bad(f"byte {self._at}", "the file is truncated"))
                return
            if not held.startswith(_MAGIC):
                held = self._search(held)
                continue
            entry, piece, length, crc, last = _FOOT.unpack_from(held, len(_MAGIC))
            held = self._fill(held, size + length) if length <= _LARGEST else held
            packed = held[size : size + length]
            data = _unpacked(packed) if len(packed) == length and _check(entry, piece, last, packed) == crc else None
            if data is None:
                self.bad.append(
                    Bad(f"byte {self._at}", "a block is damaged" if len(held) >= size + length else "the file is truncated")
                )
                held = self._search(held[1:], passed=1)
                continue
            self._at += size + length
            held = held[size + length :]
            yield _SnapshotBlock(entry, piece, data, bool(last))

    def _search(self, held: bytes, passed: int = 0) -> bytes:
        """From the next magic on."""
        if not passed:
            self.bad.append(Bad(f"byte {self._at}", "not the beginning of a block"))
        self._at += passed
        while (found := held.find(_MAGIC)) < 0:
            keep = held[-len(_MAGIC) + 1 :]
            more = self._source.read(_AHEAD)
            self._at += len(held) - (len(keep) if more else 0)
            if not more:
                return b""
            held = keep + more
        self._at += found
        return held[found:]

    def _fill(self, held: bytes, size: int) -> bytes:
        """Not more than is asked for: what lies in `held` is copied with every block that is taken from it."""
        while len(held) < size and (more := self._source.read(size - len(held))):
            held += more
        return held


class Damaged(Exception):
    """The entry that is being read is not whole; told in `Unpacker.bad`."""


def _unpacked(packed: bytes) -> bytes | None:
    import zstandard

    try:
        data = zstandard.ZstdDecompressor().decompress(packed, max_output_size=_PIECE + 4 * _TAR)
    except zstandard.ZstdError:
        return None
    return data if len(data) <= _PIECE + 4 * _TAR else None


def _untar(data: bytes) -> tuple[Header | None, bytes]:
    """The header at the beginning of an entry, and what follows it."""
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
