"""Masks secrets in what is captured (`capture.redact_raw`): in events, and in a source's lines.

Half a secret can't be recognised. So only whole lines of a file are taken: the last one waits until it has its line feed or is a
record. A stretch that begins or ends inside a line, or inside the lines of a key, is masked together with what is around it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from dreamkeep.capture.sources.content import BLOCK, Content, Slice
from dreamkeep.event import Event, Kind, RawChunk
from dreamkeep.secrets.masking import is_masked, mask_data, mask_line, mask_text
from dreamkeep.session.raw import changed
from dreamkeep.session.records import LONGEST_LINE, is_record

#: Events with texts of people and agents. (Lines and rows of sources are masked where they are read.)
_SAID = frozenset(
    (
        *(Kind.SESSION_OPENED, Kind.SESSION_TITLED, Kind.SESSION_ENDED, Kind.SESSION_SUSPENDED, Kind.SESSION_RESUMED),
        *(Kind.TURN_SUBMITTED, Kind.TURN_SETTLED, Kind.TURN_RECORDED, Kind.MESSAGE_ADDED, Kind.ITEMS_ADDED, Kind.RUN_OVER),
    )
)
_HEARD = frozenset((Kind.HOOK_FIRED, Kind.TAP_OPENED, Kind.TAP_FRAMES, Kind.TAP_CLOSED))
#: How many bytes before a stretch may hold the beginning of a key; and how many after it may still belong to a secret.
_BEFORE, _AFTER = 40_000, 4096


def mask_event(event: Event) -> Event:
    if event.kind not in _SAID and event.kind not in _HEARD:
        return event
    carry = event.carry and {key: _carried(key, value) for key, value in event.carry.items()}
    if isinstance(event.body, RawChunk):
        raw = event.body.raw
        kept = changed(raw, mask_line) if event.kind in _HEARD else mask_line(raw)
        return event._replace(body=RawChunk(kept, event.body.texts), carry=carry)
    return event._replace(body=mask_data(event.body), carry=carry)


def _carried(key: str, value: int | str) -> int | str:
    """Masks what the head of each part repeats: a title, a folder, a project. A source's cursor is no text."""
    return str(mask_data(value)) if isinstance(value, str) and not key.startswith("src:") else value


# -- a source's lines


def whole(content: Content, found: Iterable[Slice], at: int) -> Iterator[Slice]:
    """The slices without an unfinished last line. `at`: where they begin."""
    for cut in found:
        start, at = at, at + cut.size
        last = cut.lines[-1] if cut.more and at == content.size else b""
        before = _line_before(content, start) if cut.joins and len(cut.lines) == 1 else b""
        if not last or before is None or len(before + last) > LONGEST_LINE or is_record(before + last):
            yield cut
        elif cut.lines[:-1]:
            yield Slice(cut.lines[:-1], cut.joins, False, cut.size - len(last))


def kept_lines(content: Content, at: int, cut: Slice, *, text: bool) -> list[bytes]:
    """The lines of a slice at `at`, as they are journaled. `text`: the file holds no records."""
    after = content.read(_AFTER, at + cut.size) if cut.more else b""
    if text:
        held = b"\n".join(cut.lines)
        before = content.read(min(_BEFORE, at), at - min(_BEFORE, at))
        return mask_text(before + held + after)[len(before) : len(before) + len(held)].split(b"\n")
    lines = list(cut.lines)
    before = _begun(content, at) if cut.joins else b""
    lines[0] = before + lines[0]
    lines[-1] += after
    masked = [mask_line(line) for line in lines]
    masked[-1] = masked[-1][: len(masked[-1]) - len(after)]
    masked[0] = masked[0][len(before) :]
    return masked


def _line_before(content: Content, at: int) -> bytes | None:
    """The beginning of the line that continues at `at`; None if it is far away."""
    start = max(0, at - BLOCK)
    _, found, begun = content.read(at - start, start).rpartition(b"\n")
    return begun if found or not start else None


def _begun(content: Content, at: int) -> bytes:
    """The same for masking. If the beginning is far away: as much before `at` as may belong to a secret that continues there."""
    begun = _line_before(content, at)
    return content.read(min(_BEFORE, at), at - min(_BEFORE, at)) if begun is None else begun


class MaskedLines:
    """For a file's new version: a line that the journal has already, as it is or masked, stays so; others are masked if
    `masks`."""

    def __init__(self, old: Sequence[bytes], *, masks: bool) -> None:
        self._old = frozenset(old)
        self._masks = masks
        #: Whether a line is kept that was masked before, also if the file itself holds the masked form by now.
        self.masked = False

    def kept(self, lines: Sequence[bytes], now: Sequence[bytes] | None = None) -> list[bytes]:
        """`now`: the lines masked together with what is around them; without it each is masked by itself."""
        return [self._mask_line(line, masked) for line, masked in zip(lines, now or map(mask_line, lines), strict=True)]

    def pieces(self, data: bytes, pieces: Sequence[bytes]) -> list[bytes]:
        """The same for the pieces of a document (`data`), which are no JSON by themselves."""
        masked = mask_line(data)
        found, at = [], 0
        for piece in pieces:
            found.append(self._mask_line(piece, masked[at : at + len(piece)]))
            at += len(piece)
        return found

    def _mask_line(self, line: bytes, masked: bytes) -> bytes:
        own = next((one for one in (line, masked) if one in self._old), None)
        if own is None:
            return masked if self._masks else line
        self.masked = self.masked or is_masked(own)
        return own
