"""One event is one line: encode, check, decode. Pure.

    {"id":…,"kind":…,"at":…[,"carry":{…}][,"arm":1][,"chunked":n],"body":{…}[,"was":n],
     "prev":"5be1c0aa","seq":           7,"crc":"9ae0daaf"}

The checksum is the last member and covers every byte before it; `prev` is the checksum of the line before. `seq` is padded
with blanks (legal JSON), so that the foot of a line has one width and can be found without parsing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple
from zlib import crc32

from dreamkeep.errors import Refused
from dreamkeep.event import Event, Kind, disarm, encode_body

FORMAT = 1
NO_CRC = "00000000"
HEAD = b'{"id":"'
CRC_SIZE = len(b',"crc":"00000000"}')
FOOT_SIZE = len(b',"prev":"00000000","seq":') + 12 + CRC_SIZE
#: A frame never grows past this; what is longer is chunked. A reader may give up on a longer line.
MAX_FRAME = 1 << 20
# A chunk is a JSON string holding a piece of JSON text: escaping at most doubles it.
_CHUNK = MAX_FRAME // 2 - 1024
_MAX_BODY = MAX_FRAME - 4096

#: A frame as read: the parsed line. Plain, because a class around it would cost more than checking the line does.
Frame = dict[str, Any]


class FrameDraft(NamedTuple):
    """A frame that does not know its place yet: everything that can be done before the lock is taken."""

    head: bytes
    crc: int


def draft(event: Event) -> list[FrameDraft]:
    """Usually one; several when the body is too long for one frame: the pieces first, then the event that binds them."""
    if not isinstance(event, Event):
        # A summary or any other partial view that could be saved back would replace the whole by a part of it.
        raise Refused(
            f"only events can be written, not {type(event).__name__}",
            where="journal",
            next="Append an Event; views (summaries, lists, pages) are never written back.",
        )
    body, armoured = encode_body(event.body)
    flags = b',"arm":1' if armoured else b""
    if len(body) <= _MAX_BODY:
        return [_draft(event, flags, body)]
    pieces = _pieces(body)
    bound = b'{"bytes":%d,"crc":"%08x"}' % (len(body), crc32(body))
    flags += b',"chunked":%d' % len(pieces)
    return [*(_chunk(event, n, piece) for n, piece in enumerate(pieces)), _draft(event, flags, bound)]


def _draft(event: Event, flags: bytes, body: bytes) -> FrameDraft:
    carry = b',"carry":' + encode_body(event.carry)[0] if event.carry else b""
    head = b'{"id":"%b","kind":"%b","at":"%b"%b%b,"body":%b' % (
        event.id.encode(),
        event.kind.encode(),
        event.at.encode(),
        carry,
        flags,
        body,
    )
    return FrameDraft(head, crc32(head))


def _pieces(body: bytes) -> list[str]:
    """Cut JSON text at character boundaries."""
    pieces = []
    start = 0
    while start < len(body):
        end = min(start + _CHUNK, len(body))
        while end < len(body) and body[end] & 0xC0 == 0x80:
            end -= 1
        pieces.append(body[start:end].decode())
        start = end
    return pieces


def _chunk(event: Event, n: int, piece: str) -> FrameDraft:
    body, _ = encode_body({"of": event.id, "n": n, "text": piece})
    # A chunk has the event's id with its number: one id, one frame.
    return _draft(Event(f"{event.id}.{n}", Kind.CHUNK, event.at, {}), b"", body)


def place(drafts: Sequence[FrameDraft], seq: int, prev: str, was: Sequence[int] = ()) -> tuple[bytes, str]:
    """Number and link the drafts after (seq, prev): their lines, and the checksum of the last one."""
    if len(drafts) == 1 and not was:
        [(head, crc)] = drafts
        foot = b',"prev":"%b","seq":%12d' % (prev.encode(), seq + 1)
        mine = b"%08x" % crc32(foot, crc)
        return b'%b%b,"crc":"%b"}\n' % (head, foot, mine), mine.decode()
    lines = []
    for n, (head, crc) in enumerate(drafts):
        foot = b',"prev":"%b","seq":%12d' % (prev.encode(), seq + 1 + n)
        if was:
            foot = b',"was":%d%b' % (was[n], foot)
        prev = f"{crc32(foot, crc):08x}"
        lines.append(b'%b%b,"crc":"%b"}\n' % (head, foot, prev.encode()))
    return b"".join(lines), prev


def undraft(line: bytes, frame: Frame) -> FrameDraft:
    """A written line back as a draft, byte for byte, to be given another place."""
    head = line[:-FOOT_SIZE]
    if "was" in frame:
        head = head.removesuffix(b',"was":%d' % frame["was"])
    return FrameDraft(head, crc32(head))


def holds(line: bytes) -> bool:
    """Whether a line (without its line feed) says its own checksum. Compared as bytes: `9AE0DAAF` is another line."""
    return line[-CRC_SIZE:] == b',"crc":"%08x"}' % crc32(line[:-CRC_SIZE])


def parse(line: bytes) -> Frame | None:
    """The line as data; None when it is not a whole, unharmed frame."""
    import orjson

    if not holds(line):
        return None
    try:
        frame: Frame = orjson.loads(line)
        if type(frame["seq"]) is int and type(frame["prev"]) is str and type(frame["kind"]) is str:
            return frame
    except (ValueError, KeyError, TypeError):
        pass  # the checksum is right, but nobody of ours wrote this
    return None


def body_of(line: bytes, frame: Frame) -> bytes:
    """The exact bytes of a frame's body."""
    head = undraft(line, frame).head
    # Nothing that stands before the body can hold these bytes: inside a JSON text a quote has a backslash before it.
    return head[head.index(b',"body":') + len(b',"body":') :]


def event_of(frame: Frame) -> Event:
    """The event a frame holds (for a chunked one: the event that binds the pieces, without them)."""
    body = disarm(frame["body"]) if "arm" in frame else frame["body"]
    return Event(frame["id"], frame["kind"], frame["at"], body, frame.get("carry"))


_CANDIDATES = 64


def salvage(line: bytes) -> list[tuple[int, bytes]]:
    """Whole frames inside a bad line: a damaged line feed glues two good frames together, a hole is glued to the next one.

    A body may quote something that looks like a frame, so only a checksum decides, and the tries are bounded.
    """
    found: list[tuple[int, bytes]] = []
    start = 0
    end = line.find(b',"crc":"')
    for _ in range(_CANDIDATES):
        if end < 0:
            break
        stop = end + CRC_SIZE
        piece = _frame_ending_at(line, start, stop)
        if piece >= 0:
            found.append((piece, line[piece:stop]))
            start = stop
        end = line.find(b',"crc":"', end + 1)
    return found


def _frame_ending_at(line: bytes, start: int, stop: int) -> int:
    at = line.find(HEAD, start, stop)
    for _ in range(_CANDIDATES):
        if at < 0:
            return -1
        if holds(line[at:stop]):
            return at
        at = line.find(HEAD, at + 1, stop)
    return -1
