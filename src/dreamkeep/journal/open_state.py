"""What a writer must know before it may append: where the journal ends, and which bytes there are no frame.

Only the last part is read (bounded by the size of a part), because its head repeats what earlier parts carried. A head that
reports a failed sync vouches for nothing before it; then one more part is read.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, NamedTuple
from zlib import crc32

from dreamkeep.event import Kind
from dreamkeep.host import Host, make_folders, publish_file
from dreamkeep.journal import parts
from dreamkeep.journal.frame import MAX_FRAME, Frame, parse
from dreamkeep.journal.places import folder_of
from dreamkeep.journal.reader import HOLES, Position, Reading, Tail

Carried = dict[str, "int | str"]


class Survey(NamedTuple):
    """`part`: the last one (0: there is none). `headed`: it has a good frame. `holes`: those that no frame records yet."""

    position: Position
    part: int
    headed: bool
    cold: bool
    tail: Tail | None
    holes: list[dict[str, Any]]
    carry: Carried


def survey(host: Host, folder: str) -> Survey:
    numbers = parts.numbers(host, folder)
    if not numbers:
        return Survey(Position(), 0, False, False, None, [], {})
    start, carry = _start(host, folder, numbers)
    reading = Reading(host, folder, start, heads=True)
    for frame in reading:
        merge(carry, frame)
    holes = [
        {"kind": f.kind, "part": f.part, "at": f.offset, "size": f.size, "missing": [list(span) for span in f.missing]}
        for f in reading.defects
        if f.kind in HOLES and not f.recorded
    ]
    last = numbers[-1]
    return Survey(
        reading.position, last, reading.last_part_has_frame, parts.is_cold(host, folder, last), reading.tail, holes, carry
    )


def _start(host: Host, folder: str, numbers: list[int]) -> tuple[Position | None, Carried]:
    """The head to begin at: the last one that is readable and does not follow a failed sync; else the very beginning."""
    for part in reversed(numbers):
        head = read_head(host, folder, part)
        if head is None or head["body"].get("part") != part:
            break  # a part that was copied under another number does not say where the journal ends
        if "suspect" not in head["body"]:
            return Position(part, 0, head["seq"] - 1, head["prev"]), {}
    return None, {}


def read_head(host: Host, folder: str, part: int) -> Frame | None:
    """A part's first frame, if it is a head."""
    with parts.stream(host, folder, part) as source:
        line = source.readline(MAX_FRAME)
    frame = parse(line[:-1]) if line.endswith(b"\n") else None
    return frame if frame and frame["kind"] == Kind.PART_OPENED else None


def session_of(host: Host, folder: str, name: str) -> str:
    """Whose journal it is, by its heads, else by any frame; "" when that session's journal would not be in `name` (a copy made by
    hand)."""
    for part in parts.numbers(host, folder):
        head = read_head(host, folder, part)
        if head:
            return _claimed(head["body"], name)
    return next((session for frame in Reading(host, folder) if (session := _claimed(frame["body"], name))), "")


def _claimed(body: Any, name: str) -> str:
    session = (body.get("journal") or body.get("session")) if isinstance(body, dict) else None
    return session if isinstance(session, str) and folder_of(session) == name else ""


def carried(frame: Frame) -> Mapping[str, int | str]:
    """What a frame carries; the head of a part repeats what all frames before it carried. The checksum does not say who wrote the
    frame, so another shape counts as nothing."""
    said = frame.get("carry")
    if frame["kind"] == Kind.PART_OPENED and "suspect" not in frame["body"]:
        said = frame["body"].get("carry")
    return said if isinstance(said, dict) else {}


def merge(carry: Carried, frame: Frame) -> None:
    """Cursors only grow; of texts the last one counts."""
    for key, value in carried(frame).items():
        before = carry.get(key)
        if not (isinstance(value, int) and isinstance(before, int) and before > value):
            carry[key] = value


def set_aside(host: Host, aside: str, folder: str, handle: int, tail: Tail) -> str:
    """Save the tail's bytes durably, under a name made from them: the same bytes give the same file, others another one."""
    data = b""
    while len(data) < tail.size:
        piece = host.read(handle, tail.size - len(data), tail.offset + len(data))
        if not piece:
            break
        data += piece
    make_folders(host, aside)
    name = f"{os.path.basename(folder)}.{tail.part:06d}.{tail.offset}.{crc32(data):08x}-{len(data)}.tail"
    publish_file(host, f"{aside}/{name}", data)
    return name
