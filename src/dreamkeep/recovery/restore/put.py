"""One file put back where an agent looks for it: never over anything that holds something else.

    there now                           what is done
    nothing                             published, create-or-fail
    exactly our bytes                   nothing
    the beginning of our bytes          set aside in the keep, then replaced in one step
    nothing but blanks and NULs         the same
    anything else                       refused, and not touched
    a link that leads nowhere           the same; one that leads to a file is followed

What is written is read again. While a file is replaced, a handle on the old one stays open: what somebody wrote to it meanwhile
is set aside, too, and told.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from dreamkeep.capture.sources.content import Content, PlainFile
from dreamkeep.errors import Failed, NoSpace, NotDurable, from_os
from dreamkeep.host import Host, make_folders, publish_blocks, staged
from dreamkeep.recovery.repair.movable import dangling

ABSENT, SAME, PREFIX, BLANK, OTHER = "absent", "same", "prefix", "blank", "other"
CREATED, UNCHANGED, REPLACED = "created", "unchanged", "replaced"
_BLOCK = 1 << 20
_NOTHING = b" \t\r\n\0"

#: The bytes, as often as they are asked for.
Pieces = Callable[[], Iterable[bytes]]


class PlacedFile(NamedTuple):
    """`aside`: where the bytes lie that were there before."""

    path: str
    action: str
    size: int
    aside: str = ""


def resolved(host: Host, path: str) -> str:
    """Where it is written: through links, not over them. What a link is to lead to and is not there, is not ours to make: it may
    lie on a disk that is not mounted, or be anything."""
    if link := dangling(host, path):
        raise Failed(
            "there is a link to nothing; nothing was written through it",
            where=f"{link} -> {host.real_path(link)}",
            next="Bring back its target or remove the link, or restore into another folder with --home DIR.",
        )
    return host.real_path(path)


def compare_target(host: Host, path: str, pieces: Pieces) -> str:
    """What is there now, next to what is to be there."""
    at = host.stat(path)
    if at is None:
        _check_above(host, path)
        return ABSENT
    if not at.is_file:
        return OTHER
    return judge_content(PlainFile(host, path), pieces)


def _check_above(host: Host, path: str) -> None:
    """What is above it is a folder, or can become one."""
    above = os.path.dirname(path)
    while above and (at := host.stat(above)) is None and above != os.path.dirname(above):
        above = os.path.dirname(above)
    if above and at and not at.is_folder:
        raise Failed(
            "a file is where a folder must be", where=above, next="Move it away, or restore into another folder with --home DIR."
        )


def judge_content(content: Content, pieces: Pieces) -> str:
    """The same, of what is open already; it is closed."""
    try:
        return _compared(content, pieces)
    finally:
        content.close()


def _compared(content: Content, pieces: Pieces) -> str:
    offset = 0
    for piece in pieces():
        there = content.read(len(piece), offset) if offset < content.size else b""
        if not piece.startswith(there):
            return BLANK if not any(block.strip(_NOTHING) for block in _blocks(content)) else OTHER
        offset += len(piece)
    if content.size > offset:
        return OTHER  # it holds all of ours, and more
    return SAME if content.size == offset else PREFIX


def _blocks(content: Content) -> Iterator[bytes]:
    at = 0
    while at < content.size and (block := content.read(min(_BLOCK, content.size - at), at)):
        yield block
        at += len(block)


def refusal(path: str) -> Failed:
    return Failed(
        "another file is there, and may hold more than what would be restored; it was not touched",
        where=path,
        next="Check it, then move it away, or restore into another folder with --home DIR.",
    )


def trouble(problem: OSError, path: str) -> NotDurable:
    """What the operating system refused, while a file was looked at or put back."""
    named = str(problem.filename or path)
    found = from_os(problem, "restoring", path if named.startswith(path) else named)
    if isinstance(found, NoSpace):
        return found
    return type(found)(found.what, where=found.where, next="Fix that folder, or restore into another one with --home DIR.")


def put(host: Host, path: str, pieces: Pieces, *, aside: str, over: bytes | None = None) -> PlacedFile:
    """`aside`: a name in the keep for what is there now. `over`: exactly this may be there, too: ours was made from it."""
    path = resolved(host, path)
    verdict = compare_target(host, path, pieces)
    if verdict == OTHER and (over is None or compare_target(host, path, lambda: [over]) != SAME):
        raise refusal(path)
    size = sum(map(len, pieces()))
    if verdict == SAME:
        return PlacedFile(path, UNCHANGED, size)
    make_folders(host, os.path.dirname(path))
    kept, ours = "", True
    if verdict == ABSENT:
        ours = publish_blocks(host, path, _gathered(pieces()))
    else:
        kept = _replace(host, path, pieces, aside, verdict, over)
    if compare_target(host, path, pieces) != SAME:
        if not ours:
            raise refusal(path)  # it appeared meanwhile
        raise Failed(
            "what was written does not read back correctly",
            where=path,
            next="Another process is writing there, or the disk is failing. Run it again, and run `dreamkeep doctor`.",
        )
    return PlacedFile(path, REPLACED if kept else CREATED if ours else UNCHANGED, size, kept)


def _replace(host: Host, path: str, pieces: Pieces, aside: str, verdict: str, over: bytes | None) -> str:
    old = host.open_read(path)
    try:
        seen = host.handle_stat(old)
        set_aside(host, old, seen.size, aside)
        temp = staged(host, path, _gathered(pieces()))
        try:
            # Once more, on the file that was set aside: it must be what was judged, and still be the one that is there.
            again = compare_target(host, aside, pieces if verdict != OTHER or over is None else lambda: [over])
            if host.stat(path) != seen or again != (SAME if verdict == OTHER else verdict):
                raise refusal(path)
            host.copy_mode(temp, path)
            host.replace(temp, path)
        except Exception:
            host.remove(temp)
            raise
        host.sync_folder(os.path.dirname(path))
        if host.end(old) != seen.size:
            later = f"{aside}.late"
            set_aside(host, old, host.end(old), later)
            raise Failed(
                "another process wrote to the file while it was being restored; both versions are kept",
                where=f"{path} and {later}",
                next="Stop the agent that has it open, then check what it wrote.",
            )
    finally:
        host.close(old)
    return aside


def set_aside(host: Host, handle: int, size: int, aside: str) -> None:
    """Durable before anything happens to what it is a copy of."""
    make_folders(host, os.path.dirname(aside))

    def blocks() -> Iterator[bytes]:
        at = 0
        while at < size and (block := host.read(handle, min(_BLOCK, size - at), at)):
            yield block
            at += len(block)

    if not publish_blocks(host, aside, blocks()):
        raise FileExistsError(17, "its name is already taken", aside)


def _gathered(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Few large writes instead of many small ones."""
    held: list[bytes] = []
    size = 0
    for piece in pieces:
        held.append(piece)
        size += len(piece)
        if size >= _BLOCK:
            yield b"".join(held)
            held, size = [], 0
    if held:
        yield b"".join(held)
