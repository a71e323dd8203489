"""What is captured, without secrets (`capture.redact_raw`): events as they are journaled, and a source's lines as they are kept.

Half a secret looks like none. So of a file's lines only whole ones are taken: the last one waits until it is ended, or is a
record; and a stretch that begins or ends inside of a line, or of a key's lines, is masked together with what is around it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from dreamkeep.capture.content import BLOCK, Content, Cut
from dreamkeep.event import Event, Kind, Verbatim
from dreamkeep.memory.masking import Hidden, mask_data, mask_lines, mask_text
from dreamkeep.session.records import LONGEST_LINE, is_record

#: What people and agents say, as they hand it over. (Lines and rows of sources are masked where they are read.)
_SAID = frozenset(
    (
        *(Kind.SESSION_OPENED, Kind.SESSION_TITLED, Kind.SESSION_ENDED, Kind.SESSION_SUSPENDED, Kind.SESSION_RESUMED),
        *(Kind.TURN_SUBMITTED, Kind.TURN_SETTLED, Kind.TURN_RECORDED, Kind.MESSAGE_ADDED, Kind.ITEMS_ADDED, Kind.RUN_OVER),
    )
)
_HEARD = frozenset((Kind.HOOK_FIRED, Kind.TAP_OPENED, Kind.TAP_FRAMES, Kind.TAP_CLOSED))
#: A key's lines, at most; and what may still belong to a secret that a piece of a line ends with.
_BEFORE, _AFTER = 40_000, 4096


def mask_event(event: Event) -> Event:
    if event.kind not in _SAID and event.kind not in _HEARD:
        return event
    if isinstance(event.body, Verbatim):
        return event._replace(body=Verbatim(_in_base64(mask_lines([event.body.raw])[0]), event.body.texts))
    carry = event.carry
    if carry and "title" in carry:
        carry = {**carry, "title": mask_data(carry["title"])}
    return event._replace(body=mask_data(event.body), carry=carry)


def _in_base64(raw: bytes) -> bytes:
    """A line that is no UTF-8 stands as base64 in a list (session/raw.py)."""
    if b'["' not in raw:
        return raw
    import json
    from base64 import b64decode, b64encode

    for one in json.loads(raw).get("lines", ()):
        if isinstance(one, list):
            held = b64decode(one[0])
            raw = raw.replace(b64encode(held), b64encode(mask_lines([held])[0]))
    return raw


# -- a source's lines


def whole(found: Iterable[Cut], at: int, end: int) -> Iterator[Cut]:
    """Without a last line that is still being written. `at`: where they begin; `end`: where the file does."""
    for cut in found:
        at += cut.size
        last = cut.lines[-1] if cut.more and at == end else b""
        begun = last and not (cut.joins and len(cut.lines) == 1) and len(last) <= LONGEST_LINE and not is_record(last)
        if not begun:
            yield cut
        elif cut.lines[:-1]:
            yield Cut(cut.lines[:-1], cut.joins, False, cut.size - len(last))


def kept_lines(content: Content, at: int, cut: Cut, *, text: bool) -> list[bytes]:
    """The lines of a cut that begins at `at`, as they are journaled. `text`: of a file that holds no records."""
    if text:
        held = b"\n".join(cut.lines)
        before = content.read(min(_BEFORE, at), at - min(_BEFORE, at))
        return mask_text(before + held)[len(before) :].split(b"\n")
    lines = list(cut.lines)
    before = _line_before(content, at) if cut.joins else b""
    after = content.read(_AFTER, at + cut.size) if cut.more else b""
    lines[0] = before + lines[0]
    lines[-1] += after
    masked = mask_lines(lines)
    masked[-1] = masked[-1][: len(masked[-1]) - len(after)]
    masked[0] = masked[0][len(before) :]
    return masked


def _line_before(content: Content, at: int) -> bytes:
    """The beginning of the line that goes on at `at`."""
    start = max(0, at - BLOCK)
    return content.read(at - start, start).rpartition(b"\n")[2]


class Again:
    """A file's new version: lines that we have keep the form in which we have them, the others are masked."""

    def __init__(self, old: Sequence[bytes]) -> None:
        self._old = frozenset(old)
        self._hidden = Hidden(old)

    def kept(self, lines: Sequence[bytes]) -> list[bytes]:
        known = [line if line in self._old else self._hidden.find(line) for line in lines]
        new = iter(mask_lines([line for line, own in zip(lines, known, strict=True) if own is None]))
        return [own if own is not None else next(new) for own in known]

    def pieces(self, data: bytes, pieces: Sequence[bytes]) -> list[bytes]:
        """The same of a document (`data`) and its pieces, which are no JSON by themselves."""
        masked = mask_lines([data])[0]
        found, at = [], 0
        for piece in pieces:
            own = piece if piece in self._old else self._hidden.find(piece)
            found.append(masked[at : at + len(piece)] if own is None else own)
            at += len(piece)
        return found
