"""One file's new bytes → events in its session's journal: what was appended, what a rewritten file has that we do not, a version.

Frames and the word that says how far they go are one append; what waits for it is a few megabytes at most.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol
from zlib import crc32

from dreamkeep.agents.contract import BESIDE, TEXT, Source
from dreamkeep.capture.sources import repeated_lines as told_again
from dreamkeep.capture.sources.content import BLOCK, Content, Slice, SourceCursor, cuts, iter_blocks, word_at
from dreamkeep.event import Event, Kind, RawChunk
from dreamkeep.session.raw import pack
from dreamkeep.session.records import is_record, loads

if TYPE_CHECKING:
    from dreamkeep.capture.sources.masked import MaskedLines
    from dreamkeep.capture.sources.source_bytes import Before

#: So many bytes of frames share a sync.
_APPEND = 2 << 20
#: A document is read whole; beyond this it is refused.
_LARGEST_DOCUMENT = 256 << 20
#: A rewritten file larger than this is journaled again whole: finding what stayed would need too much memory.
_LARGEST_DELTA = 256 << 20


class Ingesting(Protocol):
    """What is asked of the ingest that this is a part of. `masks`: secrets are masked in what is journaled."""

    @property
    def masks(self) -> bool: ...

    def is_young(self, content: Content) -> bool: ...

    def event(self, kind: str, body: Any, carry: dict[str, int | str] | None = None) -> Event: ...

    def append_if(
        self, session: str, events: Sequence[Event], expect: dict[str, int | str | None], source: Source | None = None
    ) -> None: ...

    def pause_if_full(self, session: str, source: Source, more: int = 0) -> None: ...

    def old_lines(self, session: str, name: str) -> list[bytes]: ...

    def before(self, session: str, name: str, generation: int) -> Before: ...

    def about(self, source: Source) -> dict[str, Any]: ...


class ReadSummary(NamedTuple):
    """Of what was just read: how many lines are no records (None: can't be told), whether something captured is no longer there,
    whether it is all of the source, and the word that was journaled with it."""

    odd: int | None = 0
    took_away: bool = False
    whole: bool = False
    word: str = ""


class Copying:
    """The reading of one file's new bytes into its session's journal."""

    def __init__(
        self,
        ingest: Ingesting,
        source: Source,
        session: str,
        name: str,
        content: Content,
        word: SourceCursor,
        text: str | int | None,
        opening: Sequence[Event],
    ) -> None:
        self._ingest = ingest
        self.source = source
        self.session = session
        self._key = f"src:{name}"
        self._name = name
        self.content = content
        self.word = word
        self._expect: str | int | None = text
        #: Appended together: one sync.
        self._waiting: list[Event] = list(opening)
        self._waiting_bytes = 0
        self.new_bytes = 0
        self.new_events = 0
        self.well = ReadSummary()
        #: What is read has something masked, whatever the file says.
        self._is_masked = content.masked
        #: Of `new_bytes`, those that are journaled; and how far that is in the source.
        self.kept_bytes = 0
        self._kept_at = word.offset
        self._begun = False
        #: From here on it may pause between two appends; before that only at the beginning, because what a rewritten file
        #: shares with its old version, or a fork with another session, is not found out again behind a pause.
        self._pauses_at: int | None = None
        #: How many lines of this source the journal holds; counted only where some may be told again.
        self._held = 0
        self._fuller = word.fuller

    def grown(self, step: Callable[[int], None], copied: int = 0) -> None:
        """What was appended since. The first `copied` bytes are another session's."""
        word = self.word
        self._pauses_at = copied
        back: told_again.Grown | None = None
        if word.fuller:
            before = self._ingest.before(self.session, self._name, word.fuller)
            back, self._held = told_again.Grown(before.now, word.fuller, before.other), before.held
        for cut in _split_at(self._cuts(word.offset, bool(word.open)), copied):
            at = self.word.offset
            self.new_bytes += cut.size
            self._add_lines(cut, {"copied": 1} if at < copied else {}, back)
            step(self.word.offset)

    def _cuts(self, offset: int, joins: bool) -> Iterable[Slice]:
        found = cuts(self.content, offset, joins)
        if not self._ingest.masks or self.source.form == TEXT:
            return found
        from dreamkeep.capture.sources.masked import whole

        return whole(self.content, found, offset)

    def rewritten(self, what: str, step: Callable[[int], None]) -> None:
        """A new generation: lines that we have are named, the others are journaled. It can't pause on the way, so it is looked
        at before how much it is."""
        self._ingest.pause_if_full(self.session, self.source, max(0, self.content.size - self.word.offset))
        old: list[bytes] = []
        known: list[bytes] = []
        if self.word.offset <= _LARGEST_DELTA:
            old, known, self._held = self._ingest.before(self.session, self._name, self.word.fuller)
        if old and not old[-1].endswith(b"\n"):
            old.pop()  # a line that was not ended is never taken over: whoever reads must see that it goes on
        places = {line: n for n, line in reversed(list(enumerate(old)))}
        word = self.word
        again = self._find_masked_lines(old, word)
        body = self._change(what, word.generation + 1, self.content.size)
        told = told_again.Rewritten(word.generation, old, word.fuller, known if self.source.form != TEXT else ())
        self._fuller = told.fuller if self.source.form != TEXT else 0
        self.word = SourceCursor(word.generation + 1, 0, 0, self.content.inode, 0, "-", "-", state=what, fuller=self._fuller)
        self.well = ReadSummary(odd=None, took_away=True)
        self._add(self._ingest.event(Kind.SOURCE_CHANGED, body, {self._key: str(self.word)}), 0)
        for cut in self._cuts(0, False):
            self._delta(cut, old, places, again, told)
            step(self.word.offset)

    def _find_masked_lines(self, old: Sequence[bytes], before: SourceCursor) -> MaskedLines | None:
        """Also where nothing is masked any more: what was is still the same line."""
        if not self._ingest.masks and before.masked_crc is None:
            return None
        from dreamkeep.capture.sources.masked import MaskedLines

        return MaskedLines(old, masks=self._ingest.masks)

    def _delta(
        self, cut: Slice, old: list[bytes], places: dict[bytes, int], again: MaskedLines | None, told: told_again.Rewritten
    ) -> None:
        if cut.joins or not (old or told.fuller):
            told.tells_otherwise()
            self._fuller = 0
            self._add_lines(cut, {})
            self.new_bytes += cut.size
            return
        last = len(cut.lines) - 1
        full = [line if n == last and cut.more else line + b"\n" for n, line in enumerate(cut.lines)]
        kept = again.kept(full, self._masked_text(cut, full)) if again else full
        self._is_masked = self._is_masked or (again is not None and again.masked)
        ops, new = operations(kept, old, places)
        fresh = [line.removesuffix(b"\n") for line in new]
        more = cut.more and bool(ops) and isinstance(ops[-1], int)
        extra = {"ops": ops, **told_again.extra(told.find_repeated(kept, new), self._held)}
        self._fuller = told.fuller if self.source.form != TEXT else 0
        self._frame(Slice(fresh, False, more, cut.size), extra, b"".join(full), b"".join(kept), cut.more)
        self.new_bytes += sum(map(len, new))

    def _masked_text(self, cut: Slice, full: Sequence[bytes]) -> list[bytes] | None:
        """A text's lines are told by those around them; a record's by themselves."""
        if self.source.form != TEXT:
            return None
        from dreamkeep.capture.sources.masked import kept_lines

        lines = kept_lines(self.content, self.word.offset, cut, text=True)
        return [line + b"\n" * own.endswith(b"\n") for line, own in zip(lines, full, strict=True)]

    def document_again(self, what: str) -> None:
        """The whole of it as a new generation: what the journal has of it can't be told to be whole."""
        body = self._change(what, self.word.generation + 1, self.content.size)
        self.word = SourceCursor(self.word.generation + 1, 0, 0, self.content.inode, 0, "-", "-", state=what)
        self._add(self._ingest.event(Kind.SOURCE_CHANGED, body, {self._key: str(self.word)}), 0)
        self.document(what)

    def document(self, state: str) -> str:
        """A file that its agent rewrites whole: each version costs what is new in it."""
        from dreamkeep.capture.sources import document

        content = self.content
        if content.size > _LARGEST_DOCUMENT:
            raise OSError(27, f"a document of {content.size} bytes is too large to read at once")
        data = b"".join(iter_blocks(content))
        crc = crc32(data)
        word = self.word
        if word.offset == len(data) and word.crc == crc:
            return "unchanged"
        pieces = document.split(data)
        if word.offset:
            old = self._ingest.old_lines(self.session, self._name)
            state = "rewritten" if len(data) >= word.offset else "shrank"
        else:
            old = []
        if again := self._find_masked_lines(old, word):
            if self._ingest.is_young(content) and not is_record(data):
                return "waiting"  # it is being written, and half a secret looks like none
            pieces = again.pieces(data, pieces)
            self._is_masked = self._is_masked or again.masked
        found = document.delta([document.mark(piece) for piece in old], pieces)
        # What lies beside a transcript is of any form, and no loss when it changes.
        self.well = (
            ReadSummary(whole=True)
            if self.source.role in BESIDE
            else ReadSummary(int(not _is_document(data)), document.takes_away(old, found), whole=True)
        )
        ops, new = document.packed(found)
        generation = word.generation + 1 if word.offset else word.generation
        kept = crc32(b"".join(pieces)) if again else crc
        masked_crc = kept if kept != crc or self._is_masked else None
        done = SourceCursor(
            generation, len(data), 0, content.inode, 0, "-", "-", crc, state if state == "shrank" else "", masked_crc
        )
        body = {"source": self._name, "role": self.source.role, "gen": generation, "at": 0, "pieces": 1, "ops": ops}
        # One event, however long (the journal chunks it): a version is there whole or not at all.
        event = self._ingest.event(Kind.SOURCE_READ, pack(body, new), {self._key: str(done)})
        if state == "shrank":
            self._waiting.append(self._ingest.event(Kind.SOURCE_CHANGED, self._change(state, generation, len(data))))
        self.word = done
        self._add(event, len(data))
        self.new_bytes = sum(map(len, new))
        return state

    def _change(self, what: str, generation: int, size: int) -> dict[str, Any]:
        about = self._ingest.about(self.source)
        return {**about, "what": what, "gen": generation, "size": self.word.offset, "now": size}

    def _add_lines(self, cut: Slice, extra: dict[str, Any], back: told_again.Grown | None = None) -> None:
        own = kept = _as_bytes(cut)
        if self._ingest.masks:
            from dreamkeep.capture.sources.masked import kept_lines

            cut = cut._replace(lines=kept_lines(self.content, self.word.offset, cut, text=self.source.form == TEXT))
            kept = _as_bytes(cut)
        if back is not None:
            extra = {**extra, **told_again.extra(back.find_repeated(cut), self._held)}
            self._fuller = back.fuller
        self._frame(cut, extra, own, kept, cut.more)

    def _frame(self, cut: Slice, extra: dict[str, Any], own: bytes, kept: bytes, more: bool) -> None:
        """`own`: the source's bytes that it stands for; `kept`: the same as they are journaled; `more`: they end in a line."""
        word = self.word
        body: dict[str, Any] = {
            "source": self._name,
            "role": self.source.role,
            "gen": word.generation,
            "at": word.offset,
            **extra,
        }
        as_text: set[int] = set()
        if self.source.form == TEXT:
            body["text"] = os.path.basename(self._ingest.about(self.source)["path"])
            as_text.update(range(len(cut.lines)))  # also a line that looks like a record is only text here
        if cut.joins:
            body["joins"] = 1
            as_text.add(0)
        if cut.more:
            body["more"] = 1
            as_text.add(len(cut.lines) - 1)
        crc, masked_crc = crc32(own, word.crc), word.masked_crc
        if masked_crc is not None or self._is_masked or own != kept:
            masked_crc = crc32(kept, word.kept_crc)
        packed: RawChunk = pack(body, cut.lines, as_text)
        self._count_odd(cut, packed.texts)
        self.word = word_at(self.content, word.generation, word.offset + len(own), more, crc, masked_crc, self._fuller)
        self._held += len(cut.lines)
        self._add(self._ingest.event(Kind.SOURCE_READ, packed, {self._key: str(self.word)}), len(packed.raw))

    def _count_odd(self, cut: Slice, texts: Sequence[int]) -> None:
        """Of the lines that are no strict JSON (`texts`); before `word` moves on, so that where a line began can be found."""
        ended = len(cut.lines) - cut.more
        odd = sum(1 for n in texts if n < ended and not (n == 0 and cut.joins) and not is_record(cut.lines[n]))
        unsure = cut.more
        if cut.joins and ended:
            start = max(0, self.word.offset - BLOCK)
            _, found, begun = self.content.read(self.word.offset - start, start).rpartition(b"\n")
            odd += not is_record(begun + cut.lines[0])
            unsure |= bool(start) and not found
        if unsure or self.well.odd is None:
            self.well = self.well._replace(odd=None)
        elif self.source.form != TEXT:
            self.well = self.well._replace(odd=self.well.odd + odd)

    def _add(self, event: Event, size: int) -> None:
        self._waiting.append(event)
        self._waiting_bytes += size
        if self._waiting_bytes >= _APPEND:
            self.flush()

    def pause_if_full(self) -> None:
        if not self._begun or (self._pauses_at is not None and self._kept_at >= self._pauses_at):
            self._ingest.pause_if_full(self.session, self.source)

    def flush(self) -> None:
        if not self._waiting:
            return
        self.pause_if_full()
        self._ingest.append_if(self.session, self._waiting, {self._key: self._expect}, self.source)
        self._begun, self._kept_at, self.kept_bytes = True, self.word.offset, self.new_bytes
        self.new_events += len(self._waiting)
        self._expect = str(self.word)
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
