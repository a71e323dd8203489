"""Copies one file's new bytes into its session's journal, as events.

These are bytes that were appended to the file, lines of a rewritten file that the journal lacks, or a document's new version.
Frames and the cursor that says how far they go are one append; at most a few megabytes wait for it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple
from zlib import crc32

from dreamkeep.agents.contract import BESIDE, TEXT, Source
from dreamkeep.capture.context import CaptureContext
from dreamkeep.capture.sources import source_bytes
from dreamkeep.capture.sources.content import BLOCK, Content, Slice, SourceCursor, cursor_at, cuts, iter_blocks
from dreamkeep.capture.sources.repeated_lines import AppendedLines, RewrittenLines, extra_of
from dreamkeep.event import Event, Kind, RawChunk
from dreamkeep.session.raw import pack
from dreamkeep.session.records import is_record, loads

if TYPE_CHECKING:
    from dreamkeep.capture.sources.masked import MaskedLines

#: So many bytes of frames share a sync.
_APPEND = 2 << 20
#: A document is read whole; beyond this it is refused.
_LARGEST_DOCUMENT = 256 << 20
#: A rewritten file larger than this is journaled again whole: finding what stayed would need too much memory.
_LARGEST_DELTA = 256 << 20


class ReadSummary(NamedTuple):
    """What was just read. `odd`: how many lines are no records (None: unknown). `took_away`: something captured is gone from
    it. `whole`: it is all of the source. `cursor`: as it was journaled."""

    odd: int | None = 0
    took_away: bool = False
    whole: bool = False
    cursor: str = ""


class Copying:
    """Copies one file's new bytes into its session's journal."""

    def __init__(
        self,
        context: CaptureContext,
        source: Source,
        session: str,
        name: str,
        content: Content,
        cursor: SourceCursor,
        carried: str | int | None,
        opening: Sequence[Event],
    ) -> None:
        self._context = context
        self.source = source
        self.session = session
        self._key = f"src:{name}"
        self._name = name
        self._folder = context.folder_of(session)
        self.content = content
        self.cursor = cursor
        self._expect: str | int | None = carried
        #: Appended together: one sync.
        self._waiting: list[Event] = list(opening)
        self._waiting_bytes = 0
        self.new_bytes = 0
        self.new_events = 0
        self.summary = ReadSummary()
        #: What is read has something masked, whatever the file says.
        self._is_masked = content.masked
        #: Of `new_bytes`, those that are journaled; and how far that is in the source.
        self.kept_bytes = 0
        self._kept_at = cursor.offset
        self._begun = False
        #: From here on it may pause between two appends; before that only at the beginning, because what a rewritten file
        #: shares with its old version, or a fork with another session, is not found out again behind a pause.
        self._pauses_at: int | None = None
        #: How many lines of this source the journal holds; counted only where some may be repeated.
        self._lines_journaled = 0
        self._fuller = cursor.fuller

    def grown(self, step: Callable[[int], None], copied: int = 0) -> None:
        """What was appended since. The first `copied` bytes are another session's."""
        cursor = self.cursor
        self._pauses_at = copied
        repeats: AppendedLines | None = None
        if cursor.fuller:
            before = source_bytes.before(self._context.host, self._folder, self._name, cursor.fuller)
            repeats, self._lines_journaled = AppendedLines(before.now, cursor.fuller, before.other), before.held
        for cut in _split_at(self._cuts(cursor.offset, bool(cursor.open)), copied):
            at = self.cursor.offset
            self.new_bytes += cut.size
            self._add_lines(cut, {"copied": 1} if at < copied else {}, repeats)
            step(self.cursor.offset)

    def _cuts(self, offset: int, joins: bool) -> Iterable[Slice]:
        found = cuts(self.content, offset, joins)
        if not self._context.masks or self.source.form == TEXT:
            return found
        from dreamkeep.capture.sources.masked import whole

        return whole(self.content, found, offset)

    def rewritten(self, what: str, step: Callable[[int], None]) -> None:
        """A new generation: lines that the journal has are named, the others are journaled. It can't pause on the way, so the
        limits are checked before it begins."""
        self._context.pause_if_full(self.session, self.source, max(0, self.content.size - self.cursor.offset))
        old: list[bytes] = []
        known: list[bytes] = []
        if self.cursor.offset <= _LARGEST_DELTA:
            before = source_bytes.before(self._context.host, self._folder, self._name, self.cursor.fuller)
            old, known, self._lines_journaled = before
        if old and not old[-1].endswith(b"\n"):
            old.pop()  # a line that was not ended is never taken over: whoever reads must see that it goes on
        places = {line: n for n, line in reversed(list(enumerate(old)))}
        cursor = self.cursor
        masked = self._find_masked_lines(old, cursor)
        body = self._change(what, cursor.generation + 1, self.content.size)
        repeats = RewrittenLines(cursor.generation, old, cursor.fuller, known if self.source.form != TEXT else ())
        self._fuller = repeats.fuller if self.source.form != TEXT else 0
        self.cursor = SourceCursor(cursor.generation + 1, 0, 0, self.content.inode, 0, "-", "-", state=what, fuller=self._fuller)
        self.summary = ReadSummary(odd=None, took_away=True)
        self._add(self._context.event(Kind.SOURCE_CHANGED, body, {self._key: str(self.cursor)}), 0)
        for cut in self._cuts(0, False):
            self._delta(cut, old, places, masked, repeats)
            step(self.cursor.offset)

    def _find_masked_lines(self, old: Sequence[bytes], before: SourceCursor) -> MaskedLines | None:
        """Also where nothing is masked any more: what was is still the same line."""
        if not self._context.masks and before.masked_crc is None:
            return None
        from dreamkeep.capture.sources.masked import MaskedLines

        return MaskedLines(old, masks=self._context.masks)

    def _delta(
        self, cut: Slice, old: list[bytes], places: dict[bytes, int], masked: MaskedLines | None, repeats: RewrittenLines
    ) -> None:
        if cut.joins or not (old or repeats.fuller):
            repeats.set_differs()
            self._fuller = 0
            self._add_lines(cut, {})
            self.new_bytes += cut.size
            return
        last = len(cut.lines) - 1
        full = [line if n == last and cut.more else line + b"\n" for n, line in enumerate(cut.lines)]
        kept = masked.kept(full, self._masked_text(cut, full)) if masked else full
        self._is_masked = self._is_masked or (masked is not None and masked.masked)
        ops, new = operations(kept, old, places)
        fresh = [line.removesuffix(b"\n") for line in new]
        more = cut.more and bool(ops) and isinstance(ops[-1], int)
        extra = {"ops": ops, **extra_of(repeats.find_repeated(kept, new), self._lines_journaled)}
        self._fuller = repeats.fuller if self.source.form != TEXT else 0
        self._frame(Slice(fresh, False, more, cut.size), extra, b"".join(full), b"".join(kept), cut.more)
        self.new_bytes += sum(map(len, new))

    def _masked_text(self, cut: Slice, full: Sequence[bytes]) -> list[bytes] | None:
        """Whether a text's lines are secret depends on those around them; a record is masked by itself."""
        if self.source.form != TEXT:
            return None
        from dreamkeep.capture.sources.masked import kept_lines

        lines = kept_lines(self.content, self.cursor.offset, cut, text=True)
        return [line + b"\n" * own.endswith(b"\n") for line, own in zip(lines, full, strict=True)]

    def reread_document(self, what: str) -> None:
        """The whole of it as a new generation: the version in the journal may not be whole."""
        body = self._change(what, self.cursor.generation + 1, self.content.size)
        self.cursor = SourceCursor(self.cursor.generation + 1, 0, 0, self.content.inode, 0, "-", "-", state=what)
        self._add(self._context.event(Kind.SOURCE_CHANGED, body, {self._key: str(self.cursor)}), 0)
        self.document(what)

    def document(self, state: str) -> str:
        """A file that its agent rewrites whole: each version costs what is new in it."""
        from dreamkeep.capture.sources import document

        content = self.content
        if content.size > _LARGEST_DOCUMENT:
            raise OSError(27, f"a document of {content.size} bytes is too large to read at once")
        data = b"".join(iter_blocks(content))
        crc = crc32(data)
        cursor = self.cursor
        if cursor.offset == len(data) and cursor.crc == crc:
            return "unchanged"
        pieces = document.split(data)
        if cursor.offset:
            old = source_bytes.lines(self._context.host, self._folder, self._name)
            state = "rewritten" if len(data) >= cursor.offset else "shrank"
        else:
            old = []
        if masked := self._find_masked_lines(old, cursor):
            if self._context.is_young(content) and not is_record(data):
                return "waiting"  # it is being written, and half a secret looks like none
            pieces = masked.pieces(data, pieces)
            self._is_masked = self._is_masked or masked.masked
        found = document.delta([document.mark(piece) for piece in old], pieces)
        # What lies beside a transcript is of any form, and no loss when it changes.
        self.summary = (
            ReadSummary(whole=True)
            if self.source.role in BESIDE
            else ReadSummary(int(not _is_document(data)), document.takes_away(old, found), whole=True)
        )
        ops, new = document.packed(found)
        generation = cursor.generation + 1 if cursor.offset else cursor.generation
        kept = crc32(b"".join(pieces)) if masked else crc
        masked_crc = kept if kept != crc or self._is_masked else None
        done = SourceCursor(
            generation, len(data), 0, content.inode, 0, "-", "-", crc, state if state == "shrank" else "", masked_crc
        )
        body = {"source": self._name, "role": self.source.role, "gen": generation, "at": 0, "pieces": 1, "ops": ops}
        # One event, however long (the journal chunks it): a version is there whole or not at all.
        event = self._context.event(Kind.SOURCE_READ, pack(body, new), {self._key: str(done)})
        if state == "shrank":
            self._waiting.append(self._context.event(Kind.SOURCE_CHANGED, self._change(state, generation, len(data))))
        self.cursor = done
        self._add(event, len(data))
        self.new_bytes = sum(map(len, new))
        return state

    def _change(self, what: str, generation: int, size: int) -> dict[str, Any]:
        about = self._context.describe(self.source)
        return {**about, "what": what, "gen": generation, "size": self.cursor.offset, "now": size}

    def _add_lines(self, cut: Slice, extra: dict[str, Any], repeats: AppendedLines | None = None) -> None:
        own = kept = _as_bytes(cut)
        if self._context.masks:
            from dreamkeep.capture.sources.masked import kept_lines

            cut = cut._replace(lines=kept_lines(self.content, self.cursor.offset, cut, text=self.source.form == TEXT))
            kept = _as_bytes(cut)
        if repeats is not None:
            extra = {**extra, **extra_of(repeats.find_repeated(cut), self._lines_journaled)}
            self._fuller = repeats.fuller
        self._frame(cut, extra, own, kept, cut.more)

    def _frame(self, cut: Slice, extra: dict[str, Any], own: bytes, kept: bytes, more: bool) -> None:
        """`own`: the source's bytes that it stands for; `kept`: the same as they are journaled; `more`: they end in a line."""
        cursor = self.cursor
        body: dict[str, Any] = {
            "source": self._name,
            "role": self.source.role,
            "gen": cursor.generation,
            "at": cursor.offset,
            **extra,
        }
        as_text: set[int] = set()
        if self.source.form == TEXT:
            body["text"] = os.path.basename(self._context.describe(self.source)["path"])
            as_text.update(range(len(cut.lines)))  # also a line that looks like a record is only text here
        if cut.joins:
            body["joins"] = 1
            as_text.add(0)
        if cut.more:
            body["more"] = 1
            as_text.add(len(cut.lines) - 1)
        crc, masked_crc = crc32(own, cursor.crc), cursor.masked_crc
        if masked_crc is not None or self._is_masked or own != kept:
            masked_crc = crc32(kept, cursor.kept_crc)
        packed: RawChunk = pack(body, cut.lines, as_text)
        self._count_odd(cut, packed.texts)
        self.cursor = cursor_at(self.content, cursor.generation, cursor.offset + len(own), more, crc, masked_crc, self._fuller)
        self._lines_journaled += len(cut.lines)
        self._add(self._context.event(Kind.SOURCE_READ, packed, {self._key: str(self.cursor)}), len(packed.raw))

    def _count_odd(self, cut: Slice, texts: Sequence[int]) -> None:
        """Of the lines that are no strict JSON (`texts`); before `cursor` moves on, so that where a line began can be found."""
        ended = len(cut.lines) - cut.more
        odd = sum(1 for n in texts if n < ended and not (n == 0 and cut.joins) and not is_record(cut.lines[n]))
        unsure = cut.more
        if cut.joins and ended:
            start = max(0, self.cursor.offset - BLOCK)
            _, found, begun = self.content.read(self.cursor.offset - start, start).rpartition(b"\n")
            odd += not is_record(begun + cut.lines[0])
            unsure |= bool(start) and not found
        if unsure or self.summary.odd is None:
            self.summary = self.summary._replace(odd=None)
        elif self.source.form != TEXT:
            self.summary = self.summary._replace(odd=self.summary.odd + odd)

    def _add(self, event: Event, size: int) -> None:
        self._waiting.append(event)
        self._waiting_bytes += size
        if self._waiting_bytes >= _APPEND:
            self.flush()

    def pause_if_full(self) -> None:
        if not self._begun or (self._pauses_at is not None and self._kept_at >= self._pauses_at):
            self._context.pause_if_full(self.session, self.source)

    def flush(self) -> None:
        if not self._waiting:
            return
        self.pause_if_full()
        self._context.append_if(self.session, self._waiting, {self._key: self._expect}, self.source)
        self._begun, self._kept_at, self.kept_bytes = True, self.cursor.offset, self.new_bytes
        self.new_events += len(self._waiting)
        self._expect = str(self.cursor)
        self._waiting, self._waiting_bytes = [], 0


def _as_bytes(cut: Slice) -> bytes:
    return b"\n".join(cut.lines) + (b"" if cut.more or not cut.lines else b"\n")


def _is_document(data: bytes) -> bool:
    found = loads(data)
    return found is not None and isinstance(found.get("messages", []), list)


def operations(new: Sequence[bytes], old: Sequence[bytes], places: dict[bytes, int]) -> tuple[list[Any], list[bytes]]:
    """How `new` is made of `old`: `[first, count]` takes over lines, a number inserts that many; and the lines to insert."""
    ops: list[Any] = []
    inserted = []
    for line in new:
        last = ops[-1] if ops else None
        follows = last[0] + last[1] if isinstance(last, list) else -1
        if isinstance(last, list) and follows < len(old) and old[follows] == line:
            last[1] += 1
        elif line in places:
            ops.append([places[line], 1])
        else:
            inserted.append(line)
            if isinstance(last, int):
                ops[-1] += 1
            else:
                ops.append(1)
    return ops, inserted


def _split_at(found: Iterable[Slice], place: int) -> Iterator[Slice]:
    """The same lines, but no frame on both sides of `place`."""
    at = 0
    for cut in found:
        if not at < place < at + cut.size:
            yield cut
        else:
            size = n = 0
            while size < place - at:
                size += len(cut.lines[n]) + 1
                n += 1
            yield Slice(cut.lines[:n], cut.joins, cut.more and n == len(cut.lines), size)
            if cut.lines[n:]:
                yield Slice(cut.lines[n:], False, cut.more, cut.size - size)
        at += cut.size
