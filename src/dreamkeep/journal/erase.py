"""Erase words in frames that must stay. Nothing else rewrites a journal, and only the deletion of a session uses it.

A journal's lines are linked by their checksums, so an erased line keeps its length, its place and its *checksum*: the body is
replaced by filling whose last characters are chosen so that the crc32 stays the same. (A crc is linear: flipping a bit always
flips the same bits of the result, so the right bits are found by solving 32 equations.) No other line changes, every reader finds
the journal whole, and the words are gone.

The part's file is replaced, so nobody may write to it any more: `Writer.erase` makes sure of that, under the lock.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from zlib import crc32

from dreamkeep.errors import Failed
from dreamkeep.event import Kind
from dreamkeep.host import Host, replace_file
from dreamkeep.journal import parts
from dreamkeep.journal.frame import CRC_SIZE, FOOT_SIZE, Frame, parse, salvage

#: The new body of a frame: None leaves it as it is, b"" removes all of it.
Change = Callable[[Frame, bytes], "bytes | None"]

_FREE = 12  # characters of four free bits each, "@" to "O": 48 unknowns for 32 equations


def rewrite(host: Host, folder: str, part: int, change: Change, marks: Collection[bytes] = ()) -> int:
    """Erase in a finished part what `change` says; a crash leaves the old part or the new one. Returns how many lines were
    changed.

    A damaged stretch with one of `marks` is overwritten, and stays damage of the same length.
    """
    done, data = changed(host, folder, part, change, marks)
    if done:
        path = f"{folder}/{parts.name(part)}"
        if host.stat(path + ".zst") is not None:
            replace_file(host, path + ".zst", parts.frozen(data))
        if host.stat(path) is not None:
            replace_file(host, path, data)
    return done


def changed(host: Host, folder: str, part: int, change: Change, marks: Collection[bytes] = ()) -> tuple[int, bytes]:
    """How many lines must change, and the bytes of the changed part."""
    lines: list[bytes] = []
    done = 0
    for line in parts.lines(host, folder, part):
        new = _changed(line, change, marks)
        done += new != line
        lines.append(new)
    return done, b"".join(lines)


def sweep(host: Host, folder: str) -> None:
    """Remove temporary files that crashes left. They are made under the journal's lock (by compression), which the caller
    holds."""
    for name in host.names(folder):
        if name.endswith(".tmp"):
            host.remove(f"{folder}/{name}")


def _changed(line: bytes, change: Change, marks: Collection[bytes]) -> bytes:
    text = line.removesuffix(b"\n")
    end = line[len(text) :]
    frame = parse(text)
    if frame is not None:
        return _changed_frame(text, frame, change) + end
    pieces: list[bytes] = []
    done = 0
    for at, piece in salvage(text):  # good frames glued to garbage are erased like others
        found = parse(piece)
        if found is not None:
            pieces += [_blotted(text[done:at], marks), _changed_frame(piece, found, change)]
            done = at + len(piece)
    return b"".join([*pieces, _blotted(text[done:], marks), end])


def _changed_frame(text: bytes, frame: Frame, change: Change) -> bytes:
    body = change(frame, text)
    return text if body is None else erased(text, frame, body)


def _blotted(text: bytes, marks: Collection[bytes]) -> bytes:
    return b"-" * len(text) if any(mark in text for mark in marks) else text


def erased(line: bytes, frame: Frame, body: bytes) -> bytes:
    """The line with a shorter body, at the same length and checksum. b"": no body, and the kind becomes `journal.erased`.

    If the new body leaves no room for the filling, the whole body goes.
    """
    kind = frame["kind"].encode() if body else Kind.JOURNAL_ERASED.encode()
    head = b'{"id":"%b","kind":"%b","at":"%b"' % (frame["id"].encode(), kind, frame["at"].encode())
    head += _carry(line) + (b',"body":%b,"erased":"' % body[:-1] if body else b',"body":{"erased":"')
    foot = b'"}' + line[-FOOT_SIZE:-CRC_SIZE]
    was = f',"was":{frame["was"]}'.encode() if "was" in frame else b""
    foot = foot[:2] + was + foot[2:]
    room = len(line) - CRC_SIZE - len(head) - len(foot) - _FREE
    if room < 0 and body:
        return erased(line, frame, b"")
    if room < 0:
        raise Failed(
            "a frame is too short to be erased in place", where=frame["id"], next="Please report this. Nothing was changed."
        )
    head += b"-" * room
    return head + _fitting(crc32(head), foot, int(frame["crc"], 16)) + foot + line[-CRC_SIZE:]


def _carry(line: bytes) -> bytes:
    """Cursors stay: what was captured up to them must not be captured again."""
    start = line.find(b',"carry":{', 0, line.index(b',"body":'))
    if start < 0:
        return b""
    import json

    text = line[start + len(b',"carry":') :].decode()
    _, size = json.JSONDecoder().raw_decode(text)
    return b',"carry":' + text[:size].encode()


def _fitting(before: int, foot: bytes, wanted: int) -> bytes:
    """The characters that give the checksum `wanted`, when they stand between text with the checksum `before` and `foot`."""
    plain = b"@" * _FREE

    def of(middle: bytes) -> int:
        return crc32(middle + foot, before)

    base = of(plain)
    #: highest bit → (what it does to the checksum, which free bits do that)
    basis: dict[int, tuple[int, int]] = {}
    for n in range(_FREE * 4):
        effect, mask = of(_flipped(plain, 1 << n)) ^ base, 1 << n
        while effect and effect.bit_length() in basis:
            other = basis[effect.bit_length()]
            effect, mask = effect ^ other[0], mask ^ other[1]
        if effect:
            basis[effect.bit_length()] = (effect, mask)
    left, flips = base ^ wanted, 0
    while left:
        effect, mask = basis[left.bit_length()]
        left, flips = left ^ effect, flips ^ mask
    return _flipped(plain, flips)


def _flipped(plain: bytes, mask: int) -> bytes:
    return bytes(char ^ (mask >> 4 * n & 15) for n, char in enumerate(plain))
