"""Another program's SQLite file, read row by row and never changed. It is only opened through SQLite, never directly.

    what lies there         how it is opened                        why
    no -wal, no -journal    immutable=1                             a plain read-only open would leave -wal and -shm behind
    -wal and -shm           mode=ro, readonly_shm=1                 a writer lives (or died): its snapshot, its -shm unwritten
    -wal without -shm       mode=ro, no locks, the -wal's index     nobody has it open; a new -shm would stay behind
                            in our own memory
    -journal                mode=ro                                 SQLite must judge whether it is hot

Where no lock protects us (first and third), we look at the folder again before we trust any row; if something changed, we read
again. A busy database, I/O errors while a -wal is being reset, and files that come and go are tried again, too, a bounded
number of times. After that it is an error, never an empty answer.

A row becomes one line of JSON with every column in the table's order, exact: integers, reals, text and null as themselves,
blobs as {"$blob": base64}, text that is no UTF-8 as {"$text": base64}, infinities as {"$real": "inf"}.

    {"table":"messages","row":{"id":1,"role":"user",…}}

Facts about a row that no column holds may stand behind it ("beside"); the row itself stays exact:

    {"table":"session","row":{…},"beside":{"gone":["message/msg_7"]}}    rows that we have and that are no longer there, once each
    {"table":"sessions","row":{…},"beside":{"parent_end_reason":"branched"}}

A row's version is a hash of its *glimpse*: all short values, and the length of long ones. SQLite knows the length of a value
without reading it, so unchanged rows are skipped without reading their content. A long text that is replaced by another of
exactly the same length, with every other column the same, would be missed. The agents never do that: they stamp a time, or
never edit.
"""

from __future__ import annotations

import json
import os
from base64 import b64decode, b64encode
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar
from urllib.parse import quote

from dreamkeep.errors import Busy, DreamkeepError, Failed, NotFound, Unsupported, cannot_read
from dreamkeep.host import Host, Stat

if TYPE_CHECKING:
    import apsw

Answer = TypeVar("Answer")

_SHORT = 64  # bytes of a value that go into a glimpse as they are
_PAUSES_S = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.4)  # between tries: 0.8 s in all
_BUSY_MS = 300  # SQLite's own waiting, inside one try
_CHUNK_ROWS, _CHUNK_BYTES = 256, 4 << 20  # read, then checked, then handed out


_as_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class SourceRow(NamedTuple):
    """`key`: "table/primary key". The same key with another version is the same row, changed."""

    key: str
    version: str
    line: bytes


#: The version of a row that is no longer there.
GONE = "gone"

#: SQL, for a column's name: whether it has more than blanks, and no NUL (at which GLOB would stop).
SAYS = "(coalesce({0}, '') GLOB '*[^ \t\r\n]*' AND NOT instr({0}, char(0)))"

#: (table, primary key), and the facts beside that row, if any.
Place = tuple[str, object] | tuple[str, object, Mapping[str, object]]


class Fingerprint(NamedTuple):
    """`mark` changes when the session's rows do. `empty`: it has no messages and no worktree."""

    mark: str
    empty: bool


class Keeper(Protocol):
    """What `discovery.py` also offers for an agent that keeps its sessions in SQLite."""

    def fingerprints(self, base: Base) -> dict[str, Fingerprint]:
        """Every session (the root of a chain) with its fingerprint."""

    def places(self, base: Base, session: str, known: Mapping[str, str]) -> Iterator[Place]:
        """The rows of a session, in the order in which a reader wants them.

        Rows in `known` that can't have changed may be left out."""

    def silent(self, base: Base) -> Iterable[str]:
        """Sessions with a blank row, or NULs, where words may have been: worth a closer look, no more. A row that was blanked
        need not change the fingerprint."""


def changed_rows(
    host: Host, path: str, places: Callable[[Base], Iterable[Place]], known: Mapping[str, str]
) -> Generator[SourceRow, None, None]:
    """The rows at these places whose (key, version) is not in `known`. It reads few at a time; close it if you stop early."""
    given: dict[str, str] = {}

    def wanted(row: SourceRow) -> bool:
        return given.get(row.key) != row.version

    for pause_s in (*_PAUSES_S, None):
        try:
            with _opened(host, path) as (base, check):
                found = (row for row in _changed(base, places(base), known) if wanted(row))
                for chunk in _chunks(found):
                    check()
                    for row in chunk:
                        given[row.key] = row.version
                        yield row
            return
        except _Again as problem:
            _wait(host, pause_s, problem)


def unchanged(host: Host, path: str, captured: Mapping[str, Mapping[tuple[str, object], Mapping[str, Any]]]) -> set[str]:
    """Of these sessions (each with its rows by table and primary key), those whose rows are all unchanged. Others may be, too:
    what is hard to compare is left to a closer look."""
    return _steady(host, path, lambda base: {session for session, held in captured.items() if _all_there(base, held)})


def _all_there(base: Base, held: Mapping[tuple[str, object], Mapping[str, Any]]) -> bool:
    forms: dict[tuple[str, tuple[str, ...]], list[Mapping[str, Any]]] = {}
    for (table, _), row in held.items():
        forms.setdefault((table, tuple(row)), []).append(row)
    return all(
        base.has_exactly(table, columns, found[n : n + _CHUNK_ROWS])
        for (table, columns), found in forms.items()
        for n in range(0, len(found), _CHUNK_ROWS)
    )


def ask(host: Host, path: str, question: Callable[[Base], Answer]) -> Answer:
    """Any other question, answered in one read transaction. It may be called more than once."""
    return _steady(host, path, question)


def key_of(line: bytes) -> tuple[str, str]:
    """(key, version) of a line that `rows` made. Pure."""
    held = json.loads(line)
    table, row = str(held["table"]), held["row"]
    return f"{table}/{row.get(pk(table))}", _version([_glimpsed(value) for value in row.values()])


def gone_in(line: bytes) -> list[str]:
    """The keys of rows that were missing when this line was made. Pure."""
    beside = json.loads(line).get("beside") if b'"beside"' in line else None
    return [str(key) for key in beside.get("gone", ())] if beside else []


def gone_from(table: str, rows: Iterable[object], known: Mapping[str, str]) -> list[str]:
    """The known keys of a table's rows that are not among these, the existing ones. Pure.

    A session that is written anew (a retry in a chat, a compaction, rows restored under other numbers) has its messages in new
    rows. The keys are noted beside the first row that is new or changed, which shows which rows existed together."""
    there = {f"{table}/{row}" for row in rows}
    return [key for key, version in known.items() if key.startswith(f"{table}/") and version != GONE and key not in there]


def placed(table: str, rows: Iterable[object], gone: list[str], known: Mapping[str, str]) -> Iterator[Place]:
    """These rows, with the missing ones (`gone`) beside the first new row. Pure."""
    for row in rows:
        if gone and known.get(f"{table}/{row}", GONE) == GONE:
            yield table, row, {"gone": gone}
            gone = []
        else:
            yield table, row


def pk(table: str) -> str:
    """The column with the primary key: the same in all the databases we read."""
    return "id"


# -- opening


class _Again(Exception):
    """The files changed while we read: try again. `last` is the error if that never helps."""

    def __init__(self, last: DreamkeepError) -> None:
        super().__init__(str(last))
        self.last = last


class _Look(NamedTuple):
    """How the folder looked: enough to choose how to open the file, and to check afterwards that the choice was right."""

    file: Stat
    wal: tuple[int, int, int] | None
    shm: bool
    journal: bool

    @property
    def locked(self) -> bool:
        """Whether SQLite's own locks protect a reader."""
        return (self.wal is not None and self.shm) or (self.wal is None and self.journal)


def _look(host: Host, path: str) -> _Look:
    try:
        file, wal = host.stat(path), host.stat(f"{path}-wal")
        shm, journal = host.stat(f"{path}-shm"), host.stat(f"{path}-journal")
    except OSError as problem:
        raise cannot_read(problem, path) from problem
    if file is None:
        raise NotFound(
            "the database is missing", where=path, next="It may have been moved or deleted. What was captured is safe."
        )
    if not file.is_file:
        # On a pipe, SQLite would wait for a writer.
        raise Failed("it is not a file", where=path, next="Check what it is. What was captured is safe.")
    return _Look(
        file,
        (wal.size, wal.mtime_ns, wal.inode) if wal else None,
        shm is not None,
        journal is not None and journal.size > 0,  # an empty one is a finished one
    )


def _steady(host: Host, path: str, ask: Callable[[Base], Answer]) -> Answer:
    for pause_s in (*_PAUSES_S, None):
        try:
            with _opened(host, path) as (base, check):
                answer = ask(base)
                check()
                return answer
        except _Again as problem:
            _wait(host, pause_s, problem)
    raise AssertionError("the last pause is None, and that raises")


def _wait(host: Host, pause_s: float | None, problem: _Again) -> None:
    if pause_s is None:
        raise problem.last from problem
    host.sleep(pause_s)


@contextmanager
def _opened(host: Host, path: str) -> Iterator[tuple[Base, Callable[[], None]]]:
    """A connection inside one read transaction, and a check that what was read so far is sound."""
    path = os.path.realpath(path)  # SQLite puts -wal beside the real file, not beside a link to it
    before = _look(host, path)

    def check() -> None:
        if not before.locked and _look(host, path) != before:
            raise _Again(_changing(path))

    with _translated(path, check):
        base = Base(_connect(path, before), path)
        try:
            if before.locked and _look(host, path).wal is None and before.wal is not None:
                raise _Again(_changing(path))  # the writer has just left; a read would make a new -wal
            base.begin()
            yield base, check
        finally:
            base.close()


def _changing(path: str) -> Busy:
    return Busy("the database keeps changing while it is read", where=path, next="Try again when its agent is less busy.")


@contextmanager
def _translated(path: str, check: Callable[[], None]) -> Iterator[None]:
    import apsw

    try:
        yield
    except (apsw.BusyError, apsw.LockedError, apsw.ProtocolError) as problem:
        raise _Again(
            Busy(f"its agent keeps the database locked ({problem})", where=path, next="Try again; nothing is lost.")
        ) from problem
    except (apsw.IOError, apsw.CantOpenError, apsw.ReadOnlyError, apsw.SchemaChangeError) as problem:
        # Files that come and go, and a -wal in the middle of its reset, cause these errors.
        raise _Again(
            Failed(
                f"SQLite can't read the database ({problem})",
                where=path,
                next="Check that this user can read it. If its agent crashed, start the agent once: it repairs its file.",
            )
        ) from problem
    except apsw.Error as problem:
        check()  # without a lock, apparent damage may be a write in progress
        raise Failed(
            f"SQLite can't read the database ({problem})", where=path, next="Check it with the agent that owns it."
        ) from problem


def _connect(path: str, look: _Look) -> apsw.Connection:
    import apsw

    where, vfs = f"file:{quote(path)}?mode=ro", None
    if look.wal is None and not look.journal:
        where += "&immutable=1"
    elif look.shm:
        where += "&readonly_shm=1"
    elif look.wal is not None:
        vfs = "unix-none"
    db = apsw.Connection(where, flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI, vfs=vfs)
    try:
        db.set_busy_timeout(_BUSY_MS)
        # Closing must not move the -wal's frames into the file, nor may a foreign schema run functions in us.
        db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        db.config(apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0)
        db.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
        db.execute("PRAGMA query_only=1")
        if vfs:
            db.execute("PRAGMA locking_mode=EXCLUSIVE")  # keeps the index of the -wal in our memory
    except BaseException:
        db.close(True)
        raise
    return db


class Base:
    """An open database, for the agents' modules."""

    def __init__(self, db: apsw.Connection, path: str) -> None:
        self.path = path
        self._db = db
        self._columns: dict[str, list[str]] = {}
        self._sql: dict[tuple[str, bool], str] = {}

    def begin(self) -> None:
        self._db.execute("BEGIN")
        if self._db.pragma("encoding") != "UTF-8":
            raise Unsupported("the database stores its text in UTF-16", where=self.path, next="No known agent does; report it.")

    def close(self) -> None:
        self._db.close(True)

    def ask(self, sql: str, *values: Any) -> Iterable[tuple[Any, ...]]:
        return self._db.execute(sql, values)

    def columns(self, table: str) -> list[str]:
        """The columns in the table's order; none if there is no such table."""
        if table not in self._columns:
            self._columns[table] = [str(name) for (name,) in self.ask("SELECT name FROM pragma_table_info(?)", table)]
        return self._columns[table]

    def need(self, agent: str, *tables: str) -> None:
        missing = [table for table in tables if not self.columns(table)]
        if missing:
            raise Failed(
                f"this is not a database of {agent}: it has no table {' and no table '.join(missing)}",
                where=self.path,
                next="If that agent wrote it, its format is new to dreamkeep; otherwise leave the file out.",
            )

    def no_session(self, session: str) -> NotFound:
        return NotFound(f"session {session} is no longer in the database", where=self.path, next="What was captured is safe.")

    def glimpses(self, table: str) -> Iterator[tuple[str, str]]:
        """(primary key, version) of every row of a table, without reading long values; keys are read whole."""
        key = quoted(pk(table))
        asked = self._select(table, full=False).removeprefix("SELECT ")
        for kind, raw, *values in self.ask(f"SELECT typeof({key}), {_exactly(key)}, {asked}"):
            yield str(_value(kind, raw)), _version(_triples(tuple(values)))

    def version(self, table: str, key: object) -> str | None:
        """The version of one row; None if it does not exist."""
        for values in self.ask(f"{self._select(table, full=False)} WHERE {quoted(pk(table))} = ?", key):
            return _version(_triples(values))
        return None

    def line(self, table: str, key: object, beside: Mapping[str, object] | None = None) -> bytes:
        for values in self.ask(f"{self._select(table, full=True)} WHERE {quoted(pk(table))} = ?", key):
            pairs = zip(values[::2], values[1::2], strict=True)
            held = {name: _shown(_value(*pair)) for name, pair in zip(self.columns(table), pairs, strict=True)}
            return _as_json({"table": table, "row": held} | ({"beside": beside} if beside else {})).encode()
        raise AssertionError("it was there a moment ago, in the same transaction")

    def has_exactly(self, table: str, columns: Sequence[str], wanted: Sequence[Mapping[str, Any]]) -> bool:
        """Whether all these rows exist, with the same values and types in these columns. (The agent may have added columns
        since.) Also False for what is not compared here: blobs, and text that is no UTF-8."""
        if not {pk(table), *columns} <= set(self.columns(table)):
            return False
        at, marks = columns.index(pk(table)), ", ".join("?" * len(wanted))
        asked = f"SELECT {', '.join(map(quoted, columns))} FROM {quoted(table)} WHERE {quoted(pk(table))} IN ({marks})"
        try:
            there = {values[at]: values for values in self.ask(asked, *(row[pk(table)] for row in wanted))}
        except UnicodeDecodeError:
            return False
        return all(_is_row(row, there.get(row[pk(table)])) for row in wanted)

    def _select(self, table: str, *, full: bool) -> str:
        if (table, full) not in self._sql:
            parts = []
            for name in map(quoted, self.columns(table)):
                value = _exactly(name)
                short = f"octet_length({name}), CASE WHEN octet_length({name}) <= {_SHORT} THEN {value} END"
                parts.append(f"typeof({name}), {value if full else short}")
            self._sql[table, full] = f"SELECT {', '.join(parts)} FROM {quoted(table)}"
        return self._sql[table, full]


def _is_row(row: Mapping[str, Any], values: tuple[Any, ...] | None) -> bool:
    held = tuple(row.values())
    return held == values and list(map(type, held)) == list(map(type, values))


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _exactly(name: str) -> str:
    """A column's value, with text as bytes, because it need not be UTF-8."""
    return f"CASE typeof({name}) WHEN 'text' THEN CAST({name} AS BLOB) ELSE {name} END"


# -- rows


def _changed(base: Base, places: Iterable[Place], known: Mapping[str, str]) -> Iterator[SourceRow]:
    for place in places:
        table, key = place[:2]
        name = f"{table}/{key}"
        version = base.version(table, key)
        if version is not None and known.get(name) != version:
            yield SourceRow(name, version, base.line(table, key, place[2] if len(place) > 2 else None))


def _chunks(found: Iterable[SourceRow]) -> Iterator[list[SourceRow]]:
    chunk: list[SourceRow] = []
    size = 0
    for row in found:
        chunk.append(row)
        size += len(row.line)
        if len(chunk) >= _CHUNK_ROWS or size >= _CHUNK_BYTES:
            yield chunk
            chunk, size = [], 0
    yield chunk  # also an empty one: that nothing is new must be checked, too


class _Text(bytes):
    """Text that is no UTF-8."""


Value = None | int | float | str | bytes
_Glimpse = tuple[str, int | None, Value]


def _value(kind: str, raw: Any) -> Value:
    if kind == "text":
        try:
            return str(bytes(raw), "utf-8")
        except UnicodeDecodeError:
            return _Text(raw)
    plain: Value = raw
    return plain


def _shown(value: Value) -> object:
    if isinstance(value, bytes):
        return {"$text" if isinstance(value, _Text) else "$blob": b64encode(value).decode()}
    if isinstance(value, float) and value in (float("inf"), float("-inf")):
        return {"$real": repr(value)}
    return value


def _triples(values: tuple[Any, ...]) -> list[_Glimpse]:
    return [(kind, size, raw) for kind, size, raw in zip(values[::3], values[1::3], values[2::3], strict=True)]


def _glimpsed(shown: Any) -> _Glimpse:
    """The glimpse of a value in a line: the same as SQLite's."""
    if isinstance(shown, str):
        return _short("text", shown.encode())
    if isinstance(shown, dict):
        (kind, held), *_ = shown.items()
        return ("real", None, float(held)) if kind == "$real" else _short(kind[1:], b64decode(held))
    if shown is None:
        return "null", None, None
    return ("integer" if isinstance(shown, int) else "real"), None, shown


def _short(kind: str, raw: bytes) -> _Glimpse:
    return kind, len(raw), raw if len(raw) <= _SHORT else None


def _version(glimpses: list[_Glimpse]) -> str:
    seen = [(size, raw) if kind in ("text", "blob") else raw for kind, size, raw in glimpses]
    return sha256(repr([kind[0] for kind, *_ in glimpses]).encode() + repr(seen).encode()).hexdigest()[:16]


def mark(*parts: object) -> str:
    """A fingerprint's text."""
    return sha256(repr(parts).encode()).hexdigest()[:24]
