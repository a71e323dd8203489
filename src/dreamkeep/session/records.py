"""Raw events → records, one by one, as a reader gets them. Pure.

A line may be in several frames, because it was captured while it was written, or is very long. Its pieces are joined here. Damage
is skipped: NULs that a power cut left, or a torn record with its complete retry behind it on the same line.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from dreamkeep.agents.facts import BESIDE, OddRecord, Record
from dreamkeep.agents.shared.values import items, parse_time, table, text
from dreamkeep.event import HANDED, Event, Kind
from dreamkeep.session.raw import contents

#: A longer line is kept raw and never joined: reading must not need more memory.
LONGEST_LINE = 64 << 20
_SHORT_LINE = 4096
_RETRIES = 16
_SAME_HEAD = 6

Found = Record | OddRecord
State = dict[str, Any]


def records(event: Event, unended: State, lines_to_skip: Collection[int] = ()) -> Iterator[tuple[str, Found]]:
    """(name of its reader, record). `unended` keeps the rest of each source between frames. `lines_to_skip`: numbers of lines."""
    if event.kind == Kind.SOURCE_READ:
        yield from _lines(event, unended, lines_to_skip)
    elif event.kind == Kind.SOURCE_ROWS:
        yield from _rows(event)
    elif event.kind == Kind.HOOK_FIRED:
        yield from _calls(event)
    elif event.kind == Kind.TAP_FRAMES:
        yield from _frames(event)
    elif event.kind in (Kind.TAP_OPENED, Kind.TAP_CLOSED):
        conn = text(event.body.get("conn"))
        name = "opened" if event.kind == Kind.TAP_OPENED else "closed"
        yield f"acp:{conn}", Record("acp", event.body, "", name, conn, event.at)
    elif event.kind in HANDED:
        yield "items", Record("items", event.body, "", event.kind, event.id, event.at)


def _lines(event: Event, unended: State, lines_to_skip: Collection[int]) -> Iterator[tuple[str, Found]]:
    body = event.body
    name = text(body.get("source"))
    role = text(body.get("role")) or "main"
    if body.get("text"):
        yield "text", _stretch(event, name, role, unended)
        return
    channel = "piece" if body.get("pieces") else "file"
    reader = f"{channel}:{name}"
    found = _joined(body, name, unended)
    last = found.pop() if body.get("more") and found else b""
    for n, content in enumerate(found):
        if content is None or n in lines_to_skip:
            continue  # the end of an overlong line, or a line that was read before
        for record in _record(channel, content, "", role, event.at):
            yield reader, record
    if body.get("more"):
        # JSON state holds text; in latin-1 any byte is text.
        unended[name] = last.decode("latin-1") if isinstance(last, bytes) and len(last) <= LONGEST_LINE else None
        if last is not None and unended[name] is None:
            yield reader, OddRecord("overlong", "a line too long to be read is kept raw only")


def _stretch(event: Event, name: str, role: str, unended: State) -> Record:
    """A frame's text as one record, with its unfinished last line, which may never be finished. A short line that continues here
    is repeated from its beginning, so that a search finds all of its words."""
    body = event.body
    found = [line if isinstance(line, bytes) else _text(line).encode() for line in contents(body)]
    begun = unended.pop(name, None)
    if body.get("joins") and found and isinstance(begun, str):
        found[0] = begun.encode("latin-1") + found[0]
    if body.get("more") and found and len(found[-1]) <= _SHORT_LINE:
        unended[name] = found[-1].decode("latin-1")
    # A file's name has no slash, so the name of a stretch can't be one.
    stretch = text(body.get("text")) if (body.get("gen"), body.get("at")) == (1, 0) else ""
    stretch = stretch or f"{text(body.get('text'))}/{body.get('gen')}.{body.get('at')}"
    return Record("text", None, _text(b"\n".join(found)), stretch, role, event.at)


def _joined(body: Mapping[str, Any], name: str, unended: State) -> list[Mapping[str, Any] | bytes | None]:
    """A frame's lines, the first with its beginning from the frame before; None if that was too long to be kept."""
    found: list[Mapping[str, Any] | bytes | None] = list(contents(body))
    if not body.get("joins") or not found:
        unended.pop(name, None)  # the source was rewritten, so the rest of that line will not come
        return found
    beginning, first = unended.pop(name, ""), found[0]
    found[0] = beginning.encode("latin-1") + first if beginning is not None and isinstance(first, bytes) else None
    return found


def _rows(event: Event) -> Iterator[tuple[str, Found]]:
    # Each database has its own reader, because each is read separately.
    reader = f"row:{text(event.body.get('source'))}"
    for content in contents(event.body):
        line = content if isinstance(content, Mapping) else {}
        yield reader, row_in(line, event.at) or OddRecord("row", "a row that can't be read is kept raw only")


def row_in(line: Mapping[str, Any], at: str) -> Record | None:
    """The row, with its neighbouring data as its member `BESIDE`."""
    row, beside = line.get("row"), line.get("beside")
    if not isinstance(row, Mapping):
        return None
    return Record("row", {**row, BESIDE: beside} if isinstance(beside, Mapping) else row, "", text(line.get("table")), "main", at)


def _calls(event: Event) -> Iterator[tuple[str, Found]]:
    calls = items(event.body.get("calls"))
    for n, content in enumerate(contents(event.body)):
        call = table(calls[n]) if n < len(calls) else {}
        for record in _record("hook", content, text(call.get("event")), "main", parse_time(call.get("at")) or event.at):
            yield "hook", record


_DIRECTIONS = {"c": "client", "a": "agent"}


def _frames(event: Event) -> Iterator[tuple[str, Found]]:
    conn = text(event.body.get("conn"))
    frames = items(event.body.get("frames"))
    for n, content in enumerate(contents(event.body)):
        place = items(frames[n]) if n < len(frames) else []
        side = text(place[1]) if len(place) > 1 else ""
        at = _moment(place[2]) if len(place) > 2 else None
        # With its number, so that a frame that was journaled twice counts once.
        source = f"{conn}#{place[0]}" if place else conn
        if side == "e":
            yield f"acp:{conn}", Record("stderr", None, _text(content), "", source, at or event.at)
            continue
        for record in _record("acp", content, _DIRECTIONS.get(side, ""), source, at or event.at):
            yield f"acp:{conn}", record


def _moment(ns: object) -> str | None:
    try:
        return parse_time(ns / 1e9) if isinstance(ns, int) else parse_time(ns)
    except OverflowError:
        return None


def _text(content: Mapping[str, Any] | bytes) -> str:
    return content.decode("utf-8", "replace") if isinstance(content, bytes) else json.dumps(content)


def _record(channel: str, content: Mapping[str, Any] | bytes, name: str, source: str, at: str) -> Iterator[Found]:
    if channel == "piece":
        yield Record("piece", None, _text(content), "", source, at)
        return
    if not isinstance(content, bytes):
        yield Record(channel, content, "", name, source, at)
        return
    line = content.strip(b" \t\r\n")
    if b"\0" in line:
        yield OddRecord("nul", f"{line.count(0)} NUL bytes in a record")
        line = line.replace(b"\0", b"").strip()
    if not line:
        return
    data = loads(line)
    if data is None:
        retry = _retry(line)
        if retry:
            yield OddRecord("torn", "a record that was not finished, with another behind it on the same line")
            yield Record(channel, retry, "", name, source, at)
            return
        if channel == "file":
            yield OddRecord("unreadable", "a line that is no JSON object")
    yield Record(channel, data, "" if data is not None else line.decode("utf-8", "replace"), name, source, at)


def is_record(line: bytes) -> bool:
    """Whether a line belongs in a transcript: a JSON object, or nothing at all."""
    return not line.strip() or (b"\0" not in line and loads(line) is not None)


def loads(line: bytes) -> Mapping[str, Any] | None:
    """More patient than a strict parser: it accepts lone surrogates and NaN."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _retry(line: bytes) -> Mapping[str, Any] | None:
    """The second attempt at a torn record: it begins in the same way, and can be read from there."""
    head = line[:_SAME_HEAD]
    if head[:1] != b"{":
        return None
    at = line.find(head, 1)
    for _ in range(_RETRIES):
        if at < 0:
            return None
        found = loads(line[at:])
        if found is not None:
            return found
        at = line.find(head, at + 1)
    return None
