"""Parts: their names, their order, their blocks of lines, and the compression of cold ones.

A journal is a folder of `000001.jsonl`, `000002.jsonl`, … and a file `lock`. All parts but the last are finished and never
written again, so they may be compressed (`000001.jsonl.zst`); both forms of one part may be there after a crash, and are equal.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from dreamkeep.host import Host, publish_file
from dreamkeep.journal.frame import HEAD, MAX_FRAME

if TYPE_CHECKING:
    import zstandard

LOCK = "lock"
_PLAIN = ".jsonl"
_COLD = ".jsonl.zst"
BLOCK = 1 << 18
#: A line without an end that is longer than this can't be a frame; it is passed over in bounded memory.
_LONGEST_LINE = 2 * MAX_FRAME


def name(part: int) -> str:
    return f"{part:06d}{_PLAIN}"


def number(file_name: str) -> int | None:
    """The part a file holds; None for every other file."""
    stem = file_name.removesuffix(".zst").removesuffix(_PLAIN)
    if stem.isascii() and stem.isdigit() and file_name in (stem + _PLAIN, stem + _COLD):
        return int(stem)
    return None


def numbers(host: Host, folder: str) -> list[int]:
    """The parts that are there, in order. A folder that is not there has none."""
    try:
        names = host.names(folder)
    except FileNotFoundError:
        return []
    return sorted({n for n in map(number, names) if n is not None})


def is_cold(host: Host, folder: str, part: int) -> bool:
    return host.stat(f"{folder}/{name(part)}") is None


def open_part(host: Host, folder: str, part: int) -> tuple[int, bool]:
    """A handle to read from, and whether it is compressed. Compression may replace the plain file at any moment."""
    path = f"{folder}/{name(part)}"
    try:
        return host.open_read(path), False
    except FileNotFoundError:
        return host.open_read(path + ".zst"), True


def blocks(host: Host, folder: str, part: int, offset: int = 0) -> Iterator[tuple[int, bytes]]:
    """(offset, bytes) pieces of a part from `offset` on; offsets count uncompressed bytes."""
    handle, cold = open_part(host, folder, part)
    try:
        source = _thawed(host, handle) if cold else _plain(host, handle, offset)
        at = 0 if cold else offset
        for block in source:
            end = at + len(block)
            if end > offset:
                yield max(at, offset), block[max(0, offset - at) :]
            at = end
    finally:
        host.close(handle)


def _plain(host: Host, handle: int, offset: int) -> Iterator[bytes]:
    while block := host.read(handle, BLOCK, offset):
        yield block
        offset += len(block)


def _thawed(host: Host, handle: int) -> Iterator[bytes]:
    import zstandard

    thaw = zstandard.ZstdDecompressor().decompressobj()
    for block in _plain(host, handle, 0):
        try:
            if melted := thaw.decompress(block):
                yield melted
        except zstandard.ZstdError:
            return  # what was lost shows as missing seqs


def lines(host: Host, folder: str, part: int, offset: int = 0) -> Iterator[tuple[int, list[bytes], bool]]:
    """(offset, lines without their line feeds, whether they had one), many at a time.

    Split at the byte 0x0A and nowhere else: U+2028 and U+0085 are text.
    """
    rest = b""
    for at, block in blocks(host, folder, part, offset):
        start = at - len(rest)
        found = block.split(b"\n")
        found[0] = rest + found[0]
        rest = found.pop()
        if found:
            yield start, found, True
        offset = at + len(block)
        if len(rest) > _LONGEST_LINE:
            # Garbage; but a frame may be glued to its end, so what could be its beginning stays.
            keep = rest.find(HEAD, len(rest) - MAX_FRAME)
            keep = keep if keep >= 0 else len(rest) - len(HEAD)
            yield offset - len(rest), [rest[: keep - 1]], True
            rest = rest[keep:]
    if rest:
        yield offset - len(rest), [rest], False


def logical_size(host: Host, folder: str, part: int) -> int:
    """How many bytes the part holds uncompressed."""
    plain = host.stat(f"{folder}/{name(part)}")
    if plain is not None:
        return plain.size
    return sum(len(block) for _, block in blocks(host, folder, part))


def compress(host: Host, folder: str, part: int) -> bool:
    """Replace a finished part by its compressed form. The plain one goes only when the other is durable and proven equal."""
    import zstandard

    path = f"{folder}/{name(part)}"
    if host.stat(path) is None:
        return False
    cold = zstandard.ZstdCompressor(level=3, write_checksum=True)
    handle = host.open_read(path)
    try:
        frozen = b"".join(_frozen(cold, host, handle))
        publish_file(host, path + ".zst", frozen)
        if not _equal(host, handle, path + ".zst"):
            # A leftover of something else: keep the plain part, which is the one we can vouch for.
            return False
    finally:
        host.close(handle)
    host.remove(path)
    host.sync_folder(folder)
    return True


def _frozen(cold: zstandard.ZstdCompressor, host: Host, handle: int) -> Iterator[bytes]:
    press = cold.compressobj()
    for block in _plain(host, handle, 0):
        yield press.compress(block)
    yield press.flush()


def _equal(host: Host, plain: int, cold_path: str) -> bool:
    at = 0
    cold = host.open_read(cold_path)
    try:
        for block in _thawed(host, cold):
            if host.read(plain, len(block), at) != block:
                return False
            at += len(block)
    finally:
        host.close(cold)
    return at == host.end(plain)
