"""Sessions that an agent keeps as rows of an SQLite file → journal. Rows that are new or changed are journaled, each exact.

Which rows are known is what the journal holds; a word carried with the rows (`rows MARK`) tells that all of a session's rows were
read as they were when its fingerprint was MARK, and makes sure that two ingests don't write the same rows twice.

Where rows went or were blanked, it is judged whether that was meant (row_loss.py), and a loss is remembered with the
fingerprint (`MARK lost`, seen.py): an audit looks closer at such a session, and need not at the others.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, NamedTuple

from dreamkeep.agents.contract import Source
from dreamkeep.agents.facts import Fact
from dreamkeep.agents.registry import reader_for
from dreamkeep.agents.shared import database
from dreamkeep.capture.quota import Paused
from dreamkeep.capture.sources import row_loss, rows, source_bytes
from dreamkeep.capture.sources.content import FRAME
from dreamkeep.capture.sources.source_cache import FileLook, SourceState
from dreamkeep.errors import Deleted, DreamkeepError, NotFound
from dreamkeep.event import Event, Kind, RawChunk
from dreamkeep.host import Host, Stat
from dreamkeep.journal.places import folder_of, session_id
from dreamkeep.journal.scan import read_bodies
from dreamkeep.session.raw import pack, unpack
from dreamkeep.session.records import loads, row_in

if TYPE_CHECKING:
    from dreamkeep.capture.ingest import Ingest, IngestOutcome

_TRIES = 8
#: Behind a session's fingerprint, where rows of it are lost.
_LOST = " lost"
#: How the line of a row begins that is only ever added, and of which those that are known need not be read again.
_EVENT = b'{"table":"event"'
#: The same for all tables of that kind.
_ADDED_ONLY = (_EVENT, b'{"table":"project"')
#: So far a frame tells what it is, before its lines.
_ABOUT = 200
#: So many rows tell where a session runs.
_HEAD_ROWS = 64


def take_rows(ingest: Ingest, source: Source, at: Stat, beside: FileLook | None) -> Iterator[IngestOutcome]:
    """One outcome for each session in the database."""
    from dreamkeep.capture.ingest import IngestOutcome

    found = rows.sessions(ingest.host, source.agent, source.path)
    seen = ingest.cache.get(source.path)
    before = (seen.rows if seen else None) or {}
    marks: dict[str, str] = {}
    failed = explained = False
    for native, print_ in found.items():
        journal = os.path.basename(folder_of(f"{source.agent}:{native}"))
        here, known = ingest.cache.has_journal(source.agent, journal), before.get(native, "")
        if mark_of(known) == print_.mark and not ingest.again and here:
            marks[native] = known
            yield IngestOutcome(source.agent, source.path, f"{source.agent}:{native}", state="unchanged")
            continue
        if print_.empty and not here:
            # A row and nothing else: a ghost if it became a session here.
            yield IngestOutcome(source.agent, source.path, f"{source.agent}:{native}", state="empty")
            continue
        explained = True
        outcome, lost = _isolated(ingest, source._replace(session=native), print_, is_lost(known) or not known)
        # What is left out, by intent or by a problem, may be wanted later: it is looked at each time.
        failed |= outcome.state in ("failed", "deleted", "excluded", "paused")
        if outcome.state not in ("failed", "deleted", "excluded", "paused"):
            marks[native] = print_.mark + _LOST * lost
        yield outcome
    if seen is not None and not explained:
        # The file changed, and no session did, as far as fingerprints tell: a row may have been blanked at its length.
        for native in rows.silent(ingest.host, source.agent, source.path) & marks.keys():
            _, lost = _isolated(ingest, source._replace(session=native), found[native], True)
            marks[native] = found[native].mark + _LOST * lost
    look = None if failed else FileLook.of(at)
    ingest.cache.put(source.path, SourceState(source.agent, "", look, beside, "", marks))


def mark_of(known: str) -> str:
    """The fingerprint, of what is remembered of a session. Pure."""
    return known.removesuffix(_LOST)


def is_lost(known: str) -> bool:
    """Whether rows of it were lost when it was last read. Pure."""
    return known.endswith(_LOST)


def loss(host: Host, agent: str, path: str, session: str, folder: str, names: Collection[str]) -> row_loss.Loss:
    """What the database has no more of a session, of which `folder` is the journal and `names` the database's in it. First the
    journal is read, then the database: what is captured meanwhile is there by then."""
    events: dict[str, str] = {}

    def captured() -> Iterator[bytes]:
        for about, line in source_bytes.captured(host, folder):
            if about["kind"] == Kind.SOURCE_ROWS and about["source"] in names:
                if line.startswith(_EVENT):
                    events.update([database.key_of(line)])
                yield line

    def now() -> Iterator[bytes]:
        try:
            yield from (row.line for row in rows.rows(host, agent, path, session, events))
        except NotFound:
            return  # all of them

    return row_loss.lost(agent, captured(), now())


class Captured(NamedTuple):
    """Each row of a session as it was captured last, by its table and primary key. `size`: in bytes."""

    rows: dict[tuple[str, object], Mapping[str, Any]]
    size: int


def captured_last(host: Host, agent: str, folder: str, names: Collection[str]) -> Captured | None:
    """None where the journal tells of rows that went, or that came to say less: then `loss` must judge. If all of these rows are
    in the database as they are here, nothing was lost."""
    import orjson

    found, size = Captured({}, 0), 0
    for about, line in source_bytes.captured(host, folder):
        if about["kind"] != Kind.SOURCE_ROWS or about["source"] not in names or line.startswith(_ADDED_ONLY):
            continue
        size += len(line)
        held = orjson.loads(line)
        if (held.get("beside") or {}).get("gone"):
            return None
        table, row = held["table"], held["row"]
        key = table, row[database.pk(table)]
        if key in found.rows and not row_loss.says_no_less(agent, table, found.rows[key], row):
            return None
        found.rows[key] = row
    return found._replace(size=size)


def _isolated(ingest: Ingest, source: Source, print_: database.Fingerprint, doubted: bool) -> tuple[IngestOutcome, bool]:
    """And whether rows of it are lost. `doubted`: they were, or nobody knows."""
    from dreamkeep.capture.ingest import IngestOutcome, Overtaken

    plain = IngestOutcome(source.agent, source.path, f"{source.agent}:{source.session}")
    try:
        for _ in range(_TRIES):
            try:
                session = _RowSession(ingest, source, session_id(source.agent, source.session), doubted)
                return session.take(print_.mark), session.has_lost()
            except Overtaken:
                continue
        return plain._replace(state="failed", problem="another process keeps writing the same; try again"), False
    except Deleted:
        return plain._replace(state="deleted"), False
    except Paused as why:
        ingest.note_limit(why)
        return plain._replace(state="paused", problem=str(why)), False
    except (DreamkeepError, OSError) as problem:
        return plain._replace(state="failed", problem=str(problem)), False
    except Exception as problem:  # rows hold anything: whatever they do to our code is this session's failure, and no other's
        return plain._replace(state="failed", problem=f"{type(problem).__name__}: {problem}"), False


class _RowSession:
    def __init__(self, ingest: Ingest, source: Source, session: str, doubted: bool) -> None:
        self._ingest = ingest
        self._source = source
        self._session = session
        self._name = ingest.name_of(source)
        self._key = f"src:{self._name}"
        self._doubted = doubted

    def has_lost(self) -> bool:
        """Asked when everything was taken. What came just now for the first time has lost nothing."""
        ingest, source = self._ingest, self._source
        if not self._doubted:
            return False
        folder = f"{ingest.root}/{folder_of(self._session)}"
        return bool(loss(ingest.host, source.agent, source.path, source.session, folder, (self._name,)))

    def take(self, mark: str) -> IngestOutcome:
        from dreamkeep.capture.ingest import IngestOutcome

        ingest, source = self._ingest, self._source
        word = ingest.journals.writer(self._session).carried(self._key)
        done = IngestOutcome(source.agent, source.path, self._session)
        if word == f"rows {mark}":
            return done
        known = self._find_versions() if word is not None else {}
        self._doubted = bool(known) and (
            self._doubted or rows.missing(ingest.host, source.agent, source.path, source.session, known)
        )
        found = self._doubting(rows.rows(ingest.host, source.agent, source.path, source.session, known), known)
        first = list(islice(found, _HEAD_ROWS))
        if not first:
            return done
        opening = ingest.openings.of(self._session, lambda: self._facts(first))
        if opening is None:
            return done._replace(state="excluded")
        if word is None:
            opening.append(ingest.event(Kind.SOURCE_OPENED, {**ingest.about(source), "gen": 1}, {self._key: "rows"}))
        ingest.pause_if_full(self._session, source)
        ingest.openings.resume_if(self._session, lambda: self._facts(first))
        state = "new" if word is None else "grew"
        return self._write(done._replace(state=state), word, opening, chain(first, found), mark)

    def _doubting(self, found: Iterable[database.SourceRow], known: Mapping[str, str]) -> Iterator[database.SourceRow]:
        for row in found:
            self._doubted |= row.key in known and row_loss.may_be_less(self._source.agent, row.line)
            yield row

    def _write(
        self, done: IngestOutcome, word: Any, opening: list[Event], found: Iterable[database.SourceRow], mark: str
    ) -> IngestOutcome:
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
                self._ingest.pause_if_full(self._session, self._source)
            except Paused as why:
                self._ingest.note_limit(why)
                return done._replace(state="paused", problem=str(why))
            self._ingest.append_if(self._session, [*opening, event], {self._key: word}, self._source)
            opening = []
            done = done._replace(new_bytes=done.new_bytes + sum(map(len, lines)), new_events=done.new_events + 1)
            word, lines = after, following
        return done

    def _body(self, lines: list[bytes]) -> RawChunk:
        about: dict[str, Any] = {"source": self._name, "role": self._source.role}
        if not self._ingest.masks:
            return pack(about, lines)
        from dreamkeep.secrets.masking import mask_row

        kept = [mask_row(line) for line in lines]
        masked = [line for line, own in zip(lines, kept, strict=True) if line is not own]
        return pack({**about, "versions": dict(map(database.key_of, masked))} if masked else about, kept)

    def _find_versions(self) -> dict[str, str]:
        """What the journal holds: for each row the version it was last seen in. One that was masked does not tell it itself."""
        folder = f"{self._ingest.root}/{folder_of(self._session)}"
        found: dict[str, str] = {}
        for _, raw in read_bodies(self._ingest.host, folder, (Kind.SOURCE_ROWS,)):
            if b'"source":"%b"' % self._name.encode() in raw[:_ABOUT]:
                for line in unpack(raw):
                    found.update([database.key_of(line), *((key, database.GONE) for key in database.gone_in(line))])
                found.update(versions(raw))
        return found

    def _facts(self, found: Iterable[database.SourceRow]) -> Iterator[Fact]:
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


def _batches(found: Iterable[database.SourceRow]) -> Iterator[list[bytes]]:
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
