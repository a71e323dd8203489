"""Sessions that an agent keeps as rows of an SQLite file → journal. Rows that are new or changed are journaled, each exact.

Which rows are known is what the journal holds; a word carried with the rows (`rows MARK`) tells that all of a session's rows were
read as they were when its fingerprint was MARK, and makes sure that two ingests don't write the same rows twice.

Where rows went or were blanked, it is judged whether that was meant (row_loss.py), and a loss is remembered with the
fingerprint (`MARK lost`, source_cache.py): an audit looks closer at such a session, and need not at the others.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import chain, islice
from typing import Any, NamedTuple

from dreamkeep.agents.contract import Source
from dreamkeep.agents.facts import Fact
from dreamkeep.agents.registry import reader_for
from dreamkeep.agents.shared import database
from dreamkeep.capture.context import OVERTAKEN, CaptureContext, IngestOutcome, isolate, journal_name, outcome_of, retry
from dreamkeep.capture.quota import Paused
from dreamkeep.capture.sources import row_loss, rows, source_bytes
from dreamkeep.capture.sources.content import frame_batches
from dreamkeep.capture.sources.source_cache import FileLook, SourceState
from dreamkeep.errors import NotFound
from dreamkeep.event import Event, Kind, RawChunk
from dreamkeep.host import Host, Stat
from dreamkeep.journal.places import session_id
from dreamkeep.journal.scan import read_bodies
from dreamkeep.session.raw import pack, unpack
from dreamkeep.session.records import loads, row_in

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


def take_rows(context: CaptureContext, source: Source, at: Stat, beside: FileLook | None) -> Iterator[IngestOutcome]:
    """One outcome for each session in the database."""
    fingerprints = rows.sessions(context.host, source.agent, source.path)
    seen = context.cache.get(source.path)
    before = (seen.rows if seen else None) or {}
    marks: dict[str, str] = {}
    left_out = any_read = False
    for native, fingerprint in fingerprints.items():
        own = source._replace(session=native)
        here = context.cache.has_journal(source.agent, journal_name(source.agent, native))
        known = before.get(native, "")
        if mark_of(known) == fingerprint.mark and not context.force and here:
            marks[native] = known
            yield outcome_of(own, state="unchanged")
            continue
        if fingerprint.empty and not here:
            # A row and nothing else: a ghost if it became a session here.
            yield outcome_of(own, state="empty")
            continue
        any_read = True
        outcome, lost = _take_session(context, own, fingerprint.mark, is_lost(known) or not known)
        if outcome.state in ("failed", "deleted", "excluded", "paused"):
            left_out = True  # by intent or by a problem; it may be wanted later, so it is looked at each time
        else:
            marks[native] = fingerprint.mark + _LOST * lost
        yield outcome
    if seen is not None and not any_read:
        # The file changed, and no session did, as far as fingerprints tell: a row may have been blanked at its length.
        for native in rows.silent(context.host, source.agent, source.path) & marks.keys():
            mark = fingerprints[native].mark
            _, lost = _take_session(context, source._replace(session=native), mark, True)
            marks[native] = mark + _LOST * lost
    look = None if left_out else FileLook.of(at)
    context.cache.put(source.path, SourceState(source.agent, "", look, beside, "", marks))


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


def _take_session(context: CaptureContext, source: Source, mark: str, doubted: bool) -> tuple[IngestOutcome, bool]:
    """And whether rows of it are lost. `doubted`: they were, or nobody knows."""
    lost = False

    def attempt() -> IngestOutcome:
        nonlocal lost
        session = _RowSession(context, source, doubted)
        outcome = session.take(mark)
        lost = session.has_lost()
        return outcome

    overtaken = outcome_of(source, state="failed", problem=OVERTAKEN)
    outcome = isolate(source, lambda: retry(attempt, overtaken))
    return outcome, lost


class _RowSession:
    def __init__(self, context: CaptureContext, source: Source, doubted: bool) -> None:
        self._context = context
        self._host = context.host
        self._source = source
        self._session = session_id(source.agent, source.session)
        self._folder = context.folder_of(self._session)
        self._name = context.name_of(source)
        self._key = f"src:{self._name}"
        self._doubted = doubted

    def has_lost(self) -> bool:
        """Asked when everything was taken. What came just now for the first time has lost nothing."""
        source = self._source
        if not self._doubted:
            return False
        return bool(loss(self._host, source.agent, source.path, source.session, self._folder, (self._name,)))

    def take(self, mark: str) -> IngestOutcome:
        context, source = self._context, self._source
        carried = context.journals.writer(self._session).carried(self._key)
        outcome = outcome_of(source)
        if carried == f"rows {mark}":
            return outcome
        known = self._find_versions() if carried is not None else {}
        self._doubted = bool(known) and (
            self._doubted or rows.missing(self._host, source.agent, source.path, source.session, known)
        )
        found = self._doubting(rows.rows(self._host, source.agent, source.path, source.session, known), known)
        first = list(islice(found, _HEAD_ROWS))
        if not first:
            return outcome
        opening = context.openings.of(self._session, lambda: self._facts(first))
        if opening is None:
            return outcome._replace(state="excluded")
        if carried is None:
            opening.append(context.event(Kind.SOURCE_OPENED, {**context.describe(source), "gen": 1}, {self._key: "rows"}))
        try:
            context.pause_if_full(self._session, source)
        except Paused as why:
            return context.pause(outcome, why)
        context.openings.resume_if(self._session, lambda: self._facts(first))
        outcome = outcome._replace(state="new" if carried is None else "grew")
        return self._write(outcome, carried, opening, chain(first, found), mark)

    def _doubting(self, found: Iterable[database.SourceRow], known: Mapping[str, str]) -> Iterator[database.SourceRow]:
        for row in found:
            self._doubted |= row.key in known and row_loss.may_be_less(self._source.agent, row.line)
            yield row

    def _write(
        self, outcome: IngestOutcome, carried: Any, opening: list[Event], found: Iterable[database.SourceRow], mark: str
    ) -> IngestOutcome:
        batches = frame_batches((row.line for row in found), len)
        lines = next(batches, [])
        n = 0
        while lines:
            following = next(batches, [])
            n += 1
            after = f"rows {mark}" if not following else f"rows {mark} {n}"
            body = self._body(lines)
            event = self._context.event(Kind.SOURCE_ROWS, body, {self._key: after})
            try:
                self._context.pause_if_full(self._session, self._source)
            except Paused as why:
                return self._context.pause(outcome, why)
            self._context.append_if(self._session, [*opening, event], {self._key: carried}, self._source)
            opening = []
            outcome = outcome._replace(new_bytes=outcome.new_bytes + sum(map(len, lines)), new_events=outcome.new_events + 1)
            carried, lines = after, following
        return outcome

    def _body(self, lines: list[bytes]) -> RawChunk:
        about: dict[str, Any] = {"source": self._name, "role": self._source.role}
        if not self._context.masks:
            return pack(about, lines)
        from dreamkeep.secrets.masking import mask_row

        kept = [mask_row(line) for line in lines]
        masked = [line for line, own in zip(lines, kept, strict=True) if line is not own]
        return pack({**about, "versions": dict(map(database.key_of, masked))} if masked else about, kept)

    def _find_versions(self) -> dict[str, str]:
        """What the journal holds: for each row the version it was last seen in. One that was masked does not tell it itself."""
        found: dict[str, str] = {}
        for _, raw in read_bodies(self._host, self._folder, (Kind.SOURCE_ROWS,)):
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
