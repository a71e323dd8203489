"""Sessions that an agent keeps as rows of an SQLite file → journal. Rows that are new or changed are journaled, each exact.

Which rows are known is what the journal holds; a word carried with the rows (`rows MARK`) tells that all of a session's rows were
read as they were when its fingerprint was MARK, and makes sure that two ingests don't write the same rows twice.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from dreamkeep.capture import rows
from dreamkeep.capture.content import FRAME
from dreamkeep.capture.quota import Paused
from dreamkeep.capture.seen import Look, Seen
from dreamkeep.capture.sources import Source
from dreamkeep.errors import Deleted, DreamkeepError
from dreamkeep.event import Event, Kind, Verbatim
from dreamkeep.host import Stat
from dreamkeep.journal.places import folder_of, session_id
from dreamkeep.journal.reader import Reading, bodies
from dreamkeep.session.facts import Fact
from dreamkeep.session.formats import reader_for
from dreamkeep.session.raw import pack, unpack
from dreamkeep.session.records import loads, row_in

if TYPE_CHECKING:
    from dreamkeep.capture.ingest import Ingest, Outcome

_TRIES = 8
#: So far a frame tells what it is, before its lines.
_ABOUT = 200
#: So many rows tell where a session runs.
_HEAD_ROWS = 64


def take_rows(ingest: Ingest, source: Source, at: Stat, beside: Look | None) -> Iterator[Outcome]:
    """One outcome for each session in the database."""
    from dreamkeep.capture.ingest import Outcome

    found = rows.sessions(ingest.host, source.agent, source.path)
    seen = ingest.cache.get(source.path)
    before = (seen.rows if seen else None) or {}
    marks: dict[str, str] = {}
    failed = False
    for native, print_ in found.items():
        journal = os.path.basename(folder_of(f"{source.agent}:{native}"))
        if before.get(native) == print_.mark and not ingest.again and ingest.cache.has_journal(source.agent, journal):
            marks[native] = print_.mark
            yield Outcome(source.agent, source.path, f"{source.agent}:{native}", state="unchanged")
            continue
        outcome = _isolated(ingest, source._replace(session=native), print_)
        # What is left out, by intent or by a problem, may be wanted later: it is looked at each time.
        failed |= outcome.state in ("failed", "deleted", "excluded", "paused")
        if outcome.state not in ("failed", "deleted", "excluded", "paused", "empty"):
            marks[native] = print_.mark
        yield outcome
    look = None if failed else Look.of(at)
    ingest.cache.put(source.path, Seen(source.agent, "", look, beside, "", marks))


def _isolated(ingest: Ingest, source: Source, print_: rows.Fingerprint) -> Outcome:
    from dreamkeep.capture.ingest import Outcome, Overtaken

    named = f"{source.agent}:{source.session}"
    if print_.empty:
        # A row and nothing else: a ghost if it became a session here.
        return Outcome(source.agent, source.path, named, state="empty")
    try:
        for _ in range(_TRIES):
            try:
                return _Session(ingest, source, session_id(source.agent, source.session)).take(print_.mark)
            except Overtaken:
                continue
        return Outcome(source.agent, source.path, named, state="failed", problem="others keep writing the same; try again")
    except Deleted:
        return Outcome(source.agent, source.path, named, state="deleted")
    except Paused as why:
        return Outcome(source.agent, source.path, named, state="paused", problem=str(why))
    except (DreamkeepError, OSError) as problem:
        return Outcome(source.agent, source.path, named, state="failed", problem=str(problem))
    except Exception as problem:  # rows hold anything: whatever they do to our code is this session's failure, and no other's
        return Outcome(source.agent, source.path, named, state="failed", problem=f"{type(problem).__name__}: {problem}")


class _Session:
    def __init__(self, ingest: Ingest, source: Source, session: str) -> None:
        self._ingest = ingest
        self._source = source
        self._session = session
        self._name = ingest.name_of(source)
        self._key = f"src:{self._name}"

    def take(self, mark: str) -> Outcome:
        from dreamkeep.capture.ingest import Outcome

        ingest, source = self._ingest, self._source
        word = ingest.journals.writer(self._session).carried(self._key)
        done = Outcome(source.agent, source.path, self._session)
        if word == f"rows {mark}":
            return done
        known = self._known() if word is not None else {}
        found = rows.rows(ingest.host, source.agent, source.path, source.session, known)
        first = list(islice(found, _HEAD_ROWS))
        if not first:
            return done
        opening = ingest.openings.of(self._session, lambda: self._facts(first))
        if opening is None:
            return done._replace(state="excluded")
        if word is None:
            opening.append(ingest.event(Kind.SOURCE_OPENED, {**ingest.about(source), "gen": 1}, {self._key: "rows"}))
        ingest.pause_if_full(self._session)
        ingest.openings.resume_if(self._session, lambda: self._facts(first))
        state = "new" if word is None else "grew"
        return self._write(done._replace(state=state), word, opening, chain(first, found), mark)

    def _write(self, done: Outcome, word: Any, opening: list[Event], found: Iterable[rows.Row], mark: str) -> Outcome:
        batches = _batches(found)
        lines = next(batches, [])
        n = 0
        while lines:
            following = next(batches, [])
            n += 1
            after = f"rows {mark}" if not following else f"rows {mark} {n}"
            body = self._body(lines)
            event = self._ingest.event(Kind.SOURCE_ROWS, body, {self._key: after})
            try:
                self._ingest.pause_if_full(self._session)
            except Paused as why:
                return done._replace(state="paused", problem=str(why))
            self._ingest.append_if(self._session, [*opening, event], {self._key: word})
            opening = []
            done = done._replace(new_bytes=done.new_bytes + sum(map(len, lines)), new_events=done.new_events + 1)
            word, lines = after, following
        return done

    def _body(self, lines: list[bytes]) -> Verbatim:
        about: dict[str, Any] = {"source": self._name, "role": self._source.role}
        if not self._ingest.masks:
            return pack(about, lines)
        from dreamkeep.memory.masking import mask_row

        kept = [mask_row(line) for line in lines]
        masked = [line for line, own in zip(lines, kept, strict=True) if line is not own]
        return pack({**about, "versions": dict(map(rows.key_of, masked))} if masked else about, kept)

    def _known(self) -> dict[str, str]:
        """What the journal holds: for each row the version it was last seen in. One that was masked does not tell it itself."""
        folder = f"{self._ingest.root}/{folder_of(self._session)}"
        found: dict[str, str] = {}
        for _, raw in bodies(Reading(self._ingest.host, folder, raw=True), (Kind.SOURCE_ROWS,)):
            if b'"source":"%b"' % self._name.encode() in raw[:_ABOUT]:
                for line in unpack(raw):
                    found.update([rows.key_of(line), *((key, rows.GONE) for key in rows.gone_in(line))])
                found.update(versions(raw))
        return found

    def _facts(self, found: Iterable[rows.Row]) -> Iterator[Fact]:
        reader = reader_for(self._source.agent, "row", {})
        for row in found:
            data = loads(row.line)
            record = row_in(data, "") if data is not None else None
            if record is not None:
                yield from reader.read(record)


def versions(raw: bytes) -> dict[str, str]:
    """Of the rows of a frame that were masked: key → the version that was in the database. Pure."""
    if b'"versions":' not in raw[:_ABOUT]:
        return {}
    about = loads(raw)
    return dict(about.get("versions") or {}) if about else {}


def _batches(found: Iterable[rows.Row]) -> Iterator[list[bytes]]:
    lines: list[bytes] = []
    size = 0
    for row in found:
        lines.append(row.line)
        size += len(row.line)
        if size >= FRAME:
            yield lines
            lines, size = [], 0
    if lines:
        yield lines
