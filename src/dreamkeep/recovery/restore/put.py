"""Write one file back where its agent looks for it, and never over anything that holds something else.

    there now                           what happens
    nothing                             the file is published: created, or it fails
    exactly our bytes                   nothing
    the beginning of our bytes          the old file is set aside in the keep, then replaced atomically
    nothing but blanks and NULs         the same
    anything else                       refused, and not touched
    a link to nothing                   refused; a link to a file is followed

What was written is read back. While a file is replaced, a handle on the old one stays open: whatever another process wrote to it
meanwhile is set aside, too, and reported.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from dreamkeep.capture.sources.content import Content, PlainFile, iter_blocks
from dreamkeep.errors import Failed, NoSpace, NotDurable, from_os
from dreamkeep.host import Host, make_folders, publish_blocks, staged
from dreamkeep.recovery.repair.movable import dangling

ABSENT, SAME, PREFIX, BLANK, OTHER = "absent", "same", "prefix", "blank", "other"
CREATED, UNCHANGED, REPLACED = "created", "unchanged", "replaced"
_BLOCK = 1 << 20
_NOTHING = b" \t\r\n\0"

#: Returns the bytes of a file, piece by piece, each time that it is called.
Pieces = Callable[[], Iterable[bytes]]


class PlacedFile(NamedTuple):
    """`aside`: where the bytes are that were there before."""

    path: str
    action: str
    size: int
    aside: str = ""


def resolve_target(host: Host, path: str) -> str:
    """Where to write: through links, not over them. The missing target of a link is not ours to create; its disk may not be
    mounted."""
    if link := dangling(host, path):
        raise Failed(
            "there is a link to nothing; nothing was written through it",
            where=f"{link} -> {host.real_path(link)}",
            next="Bring back its target or remove the link, or restore into another folder with --home DIR.",
        )
    return host.real_path(path)


def compare_target(host: Host, path: str, pieces: Pieces) -> str:
    """How what is there now compares with what has to be there: one of the verdicts above."""
    at = host.stat(path)
    if at is not None:
        return compare_content(PlainFile(host, path), pieces) if at.is_file else OTHER
    above = os.path.dirname(path)
    while above and (at := host.stat(above)) is None and above != os.path.dirname(above):
        above = os.path.dirname(above)
    if above and at and not at.is_folder:
        raise Failed(
            "a file is where a folder must be", where=above, next="Move it away, or restore into another folder with --home DIR."
        )
    return ABSENT


def compare_content(content: Content, pieces: Pieces) -> str:
    """Does the same for an open file, and closes it."""
    try:
        offset = 0
        for piece in pieces():
            there = content.read(len(piece), offset) if offset < content.size else b""
            if not piece.startswith(there):
                return OTHER if any(block.strip(_NOTHING) for block in iter_blocks(content)) else BLANK
            offset += len(piece)
        if content.size > offset:
            return OTHER  # it holds all our bytes, and more
        return SAME if content.size == offset else PREFIX
    finally:
        content.close()


def refusal(path: str) -> Failed:
    return Failed(
        "another file is there, and may hold more than what would be restored; it was not touched",
        where=path,
        next="Check it, then move it away, or restore into another folder with --home DIR.",
    )


def restore_error(problem: OSError, path: str) -> NotDurable:
    """The error for what the operating system refused while a file was compared or written."""
    where = str(problem.filename or path)
    error = from_os(problem, "restoring", path if where.startswith(path) else where)
    if isinstance(error, NoSpace):
        return error
    return type(error)(error.what, where=error.where, next="Fix that folder, or restore into another one with --home DIR.")


def put_file(host: Host, path: str, pieces: Pieces, *, aside: str, over: bytes | None = None) -> PlacedFile:
    """`aside`: a name in the keep for what is there now. `over`: these bytes may be replaced, too, because ours were made from
    them."""
    path = resolve_target(host, path)
    verdict = compare_target(host, path, pieces)
    if verdict == OTHER and (over is None or compare_target(host, path, lambda: [over]) != SAME):
        raise refusal(path)
    size = sum(map(len, pieces()))
    if verdict == SAME:
        return PlacedFile(path, UNCHANGED, size)
    make_folders(host, os.path.dirname(path))
    kept_at, is_ours = "", True
    if verdict == ABSENT:
        is_ours = publish_blocks(host, path, _join_pieces(pieces()))
    else:
        kept_at = _replace(host, path, pieces, aside, verdict, over)
    if compare_target(host, path, pieces) != SAME:
        if not is_ours:
            raise refusal(path)  # another file appeared meanwhile
        raise Failed(
            "what was written does not read back correctly",
            where=path,
            next="Another process is writing there, or the disk is failing. Run it again, and run `dreamkeep doctor`.",
        )
    return PlacedFile(path, REPLACED if kept_at else CREATED if is_ours else UNCHANGED, size, kept_at)


def _replace(host: Host, path: str, pieces: Pieces, aside: str, verdict: str, over: bytes | None) -> str:
    old = host.open_read(path)
    try:
        seen = host.handle_stat(old)
        _set_aside(host, old, seen.size, aside)
        temp = staged(host, path, _join_pieces(pieces()))
        try:
            # Compare once more, using the copy: it must hold what was compared before, and the file must still be the same.
            copy = compare_target(host, aside, pieces if verdict != OTHER or over is None else lambda: [over])
            if host.stat(path) != seen or copy != (SAME if verdict == OTHER else verdict):
                raise refusal(path)
            host.copy_mode(temp, path)
            host.replace(temp, path)
        except Exception:
            host.remove(temp)
            raise
        host.sync_folder(os.path.dirname(path))
        if host.end(old) != seen.size:
            later = f"{aside}.late"
            _set_aside(host, old, host.end(old), later)
            raise Failed(
                "another process wrote to the file while it was being restored; both versions are kept",
                where=f"{path} and {later}",
                next="Stop the agent that has it open, then check what it wrote.",
            )
    finally:
        host.close(old)
    return aside


def _set_aside(host: Host, handle: int, size: int, aside: str) -> None:
    """Make a durable copy, before anything happens to the original."""
    make_folders(host, os.path.dirname(aside))

    def blocks() -> Iterator[bytes]:
        at = 0
        while at < size and (block := host.read(handle, min(_BLOCK, size - at), at)):
            yield block
            at += len(block)

    if not publish_blocks(host, aside, blocks()):
        raise FileExistsError(17, "its name is already taken", aside)


def _join_pieces(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Few large writes instead of many small ones."""
    joined: list[bytes] = []
    size = 0
    for piece in pieces:
        joined.append(piece)
        size += len(piece)
        if size >= _BLOCK:
            yield b"".join(joined)
            joined, size = [], 0
    if joined:
        yield b"".join(joined)
