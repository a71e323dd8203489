"""Parts: their names, their order, their blocks of lines, and the compression of cold ones.

A journal is a folder of `000001.jsonl`, `000002.jsonl`, … and a file `lock`. All parts but the last are finished and never
written again, so they may be compressed (`000001.jsonl.zst`); both forms of one part may be there after a crash, and are equal.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, BinaryIO

from dreamkeep.host import Host, publish_file
from dreamkeep.journal.frame import MAX_FRAME

LOCK = "lock"
_PLAIN = ".jsonl"
_COLD = ".jsonl.zst"
_BLOCK = 1 << 18
#: A compressed part ends with a checksum of this many bytes over its content.
CHECKSUM = 4
_FROZEN_BLOCK = 1 << 15  # of compressed bytes: what comes out is held in memory
#: A longer line can't be a frame. It is read in pieces of this size, so that memory stays bounded.
LONGEST_LINE = 2 * MAX_FRAME


@lru_cache(1024)
def name(part: int) -> str:
    return f"{part:06d}{_PLAIN}"


def number(file_name: str) -> int | None:
    """The number of the part in a file; None for every other file."""
    stem = file_name.removesuffix(".zst").removesuffix(_PLAIN)
    if stem.isascii() and stem.isdigit() and file_name in (stem + _PLAIN, stem + _COLD):
        return int(stem)
    return None


def numbers(host: Host, folder: str) -> list[int]:
    """The parts in a folder, in order. A missing folder has none."""
    try:
        names = host.names(folder)
    except FileNotFoundError:
        return []
    return sorted({n for n in map(number, names) if n is not None})


def is_cold(host: Host, folder: str, part: int) -> bool:
    return host.stat(f"{folder}/{name(part)}") is None


@contextmanager
def stream(host: Host, folder: str, part: int, offset: int = 0) -> Iterator[BinaryIO]:
    """Open a part at `offset` (of its uncompressed bytes). Compression may replace the plain file at any moment."""
    path = f"{folder}/{name(part)}"
    try:
        source = host.open_stream(path)
        source.seek(offset)
    except FileNotFoundError:
        source = io.BufferedReader(_Thawed(host.open_stream(path + ".zst")), _BLOCK)
        while offset and (skipped := source.read(min(offset, _BLOCK))):
            offset -= len(skipped)
    try:
        yield source
    finally:
        source.close()


class _Thawed(io.RawIOBase):
    """A compressed file as a plain one. Where it is `damaged` (also: cut short) it ends."""

    def __init__(self, frozen: BinaryIO) -> None:
        import zstandard

        self.damaged = False
        self._frozen = frozen
        # Not stream_reader: it does not notice that a file was cut short.
        self._thaw = zstandard.ZstdDecompressor().decompressobj()
        self._damage = zstandard.ZstdError
        self._ready = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._ready and not self._thaw.eof and not self.damaged:
            try:
                block = self._frozen.read(_FROZEN_BLOCK)
                self._ready = memoryview(self._thaw.decompress(block))
                self.damaged = not block
            except self._damage:
                self.damaged = True
        taken = min(len(buffer), len(self._ready))
        buffer[:taken] = self._ready[:taken]
        self._ready = self._ready[taken:]
        return taken

    def behind(self) -> int:
        """How many bytes lie behind the compressed data. Call it once, when all of that was read."""
        return len(self._thaw.unused_data) + sum(map(len, _blocks(self._frozen))) if self._thaw.eof else 0

    def close(self) -> None:
        self._frozen.close()
        super().close()


def is_damaged(source: BinaryIO) -> bool:
    """Whether a compressed part, read as far as possible, ends too early."""
    return bool(getattr(getattr(source, "raw", None), "damaged", False))


def behind(source: BinaryIO) -> int:
    """How many bytes lie behind a compressed part, read to its end, in its file."""
    thawed = getattr(source, "raw", None)
    return thawed.behind() if isinstance(thawed, _Thawed) else 0


def lines(host: Host, folder: str, part: int) -> Iterator[bytes]:
    """Lines with their line feeds. Split at the byte 0x0A and nowhere else: U+2028 and U+0085 are text."""
    with stream(host, folder, part) as source:
        while line := source.readline(LONGEST_LINE):
            yield line


def compress(host: Host, folder: str, part: int, *, last: bool = False) -> bool:
    """Replace a finished part by its compressed form. The plain one is removed only when the other is durable and proven equal.

    `last`: compress the last part, too, of a journal that was not written for long. The next writer begins another.
    """
    path = f"{folder}/{name(part)}"
    if host.stat(path) is None:
        return False
    guard = host.open_lock(f"{folder}/{LOCK}")
    try:
        # Under the journal's lock: a rotation that fails makes a part and removes it again, and then this one is the last.
        if not host.try_lock(guard):
            return False
        if part >= numbers(host, folder)[-1]:
            if not last or not _ends_well(host, folder, part):
                return False
            # Announce it first: a writer that has this part open looks again, and finds that it must not write to it.
            host.cut(guard, part + 1)
        return _compress(host, folder, part, path)
    finally:
        host.close(guard)


def _ends_well(host: Host, folder: str, part: int) -> bool:
    """Whether there are only whole frames: a writer must settle a tail, and needs the plain file for that."""
    from dreamkeep.journal.frame import parse

    found = False
    with stream(host, folder, part) as source:
        while line := source.readline(LONGEST_LINE):
            found = line.endswith(b"\n") and parse(line[:-1]) is not None
    return found


def frozen(data: bytes) -> bytes:
    """A part's bytes as a cold part has them."""
    return _frozen(io.BytesIO(data))


def _frozen(plain: BinaryIO) -> bytes:
    import zstandard

    press = zstandard.ZstdCompressor(level=3, write_checksum=True).compressobj()
    return b"".join([*(press.compress(block) for block in _blocks(plain)), press.flush()])


def frozen_sum(plain: BinaryIO) -> bytes:
    """The checksum with which a part's compressed form ends."""
    return _frozen(plain)[-CHECKSUM:]


def _compress(host: Host, folder: str, part: int, path: str) -> bool:
    with stream(host, folder, part) as plain:
        publish_file(host, path + ".zst", _frozen(plain))
    if not forms_agree(host, folder, part):
        # The compressed file is a leftover of something else. Keep the plain part.
        return False
    host.remove(path)
    host.sync_folder(folder)
    return True


def forms_agree(host: Host, folder: str, part: int) -> bool:
    """Whether a part's plain and compressed file hold the same bytes."""
    path = f"{folder}/{name(part)}"
    with host.open_stream(path) as plain, io.BufferedReader(_Thawed(host.open_stream(path + ".zst")), _BLOCK) as cold:
        return (
            all(block == plain.read(len(block)) for block in _blocks(cold))
            and not plain.read(1)
            and not is_damaged(cold)
            and not behind(cold)
        )


_FROZEN = b"\x28\xb5\x2f\xfd"


def thawed_blocks(source: BinaryIO) -> Iterator[bytes]:
    """A file's bytes; those of a compressed file decompressed, as far as they can be read."""
    cold = source.read(len(_FROZEN)) == _FROZEN
    source.seek(0)
    return _blocks(io.BufferedReader(_Thawed(source), _BLOCK) if cold else source)


def _blocks(source: BinaryIO) -> Iterator[bytes]:
    while block := source.read(_BLOCK):
        yield block
