"""The index in one SQLite file, by apsw: the same current SQLite everywhere, and only one copy of it in the process."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

import apsw

from dreamkeep.errors import Busy, DreamkeepError
from dreamkeep.index import sqlite_rows as columns
from dreamkeep.index.searching import NOT_SEARCHED, first_of, last_of
from dreamkeep.index.sqlite_errors import OtherVersion, Unusable, translated, understood
from dreamkeep.index.sqlite_search import SCHEMA, Searching
from dreamkeep.index.store import IndexBatch, IndexCounts, JournalPlace, Standing
from dreamkeep.journal.reader import JournalDefect
from dreamkeep.journal.witness import Sighting
from dreamkeep.session.compactions.compaction import IN_PROGRESS
from dreamkeep.session.messages import Message
from dreamkeep.session.summary import Summary
from dreamkeep.session.turns import TurnView

if TYPE_CHECKING:
    from dreamkeep.session import folders

#: Anything else in the file's header means: rebuild. Raise it whenever the tables or what is put into them change.
VERSION = 26

#: Messages that are not searched. Said in the same words where they are counted, or SQLite would read all texts for that.
_UNSEARCHED = f"mark IN ({','.join(map(repr, NOT_SEARCHED))})"
_SCHEMA = f"""
CREATE TABLE places(name TEXT PRIMARY KEY, session TEXT NOT NULL, part INT, offset INT, seq INT, crc TEXT,
    mark_part INT, mark_size INT, mark_part_mtime INT, mark_part_inode INT, mark_folder_mtime INT, looks TEXT,
    sums TEXT, sources TEXT) WITHOUT ROWID;
CREATE TABLE sessions(no INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, agent TEXT, native_id TEXT, project TEXT, cwd TEXT,
    title TEXT, started_at TEXT, last_at TEXT, ended_at TEXT, state TEXT, turns INT, messages INT, bytes INT,
    segments INT, compactions INT, lineage TEXT, fold TEXT NOT NULL DEFAULT '{{}}', busy INT NOT NULL DEFAULT 0,
    held INT NOT NULL DEFAULT 0);
CREATE INDEX sessions_busy ON sessions(id) WHERE busy;
CREATE INDEX sessions_by_native_id ON sessions(native_id);
CREATE INDEX sessions_by_time ON sessions(last_at, id);
CREATE TABLE turns(session INT NOT NULL, id TEXT NOT NULL, seq INT, state TEXT, prompt TEXT, submitted_at TEXT, started_at TEXT,
    settled_at TEXT, reason TEXT, owner TEXT, n INT, PRIMARY KEY(session, id)) WITHOUT ROWID;
CREATE INDEX turns_unsettled ON turns(session) WHERE state IN ('submitted', 'started');
CREATE INDEX turns_owned ON turns(session) WHERE state IN ('submitted', 'started') AND owner != '';
CREATE TABLE messages(no INTEGER PRIMARY KEY, session INT NOT NULL, seq INT NOT NULL, n INT NOT NULL, role TEXT, text,
    at TEXT, turn TEXT, tool TEXT, mark TEXT, heard INT, twin TEXT, base_seq INT, base_n INT,
    UNIQUE(session, seq, n));
CREATE INDEX messages_by_twin ON messages(session, twin) WHERE twin IS NOT NULL;
CREATE INDEX messages_unsearched ON messages(mark) WHERE {_UNSEARCHED};
CREATE TABLE keys(session INT NOT NULL, key TEXT NOT NULL, seq INT, n INT, PRIMARY KEY(session, key)) WITHOUT ROWID;
CREATE TABLE faults(session INT NOT NULL, kind TEXT, part INT, offset INT, size INT, missing TEXT, recorded INT, times INT,
    mended INT);
CREATE INDEX faults_by_session ON faults(session);
CREATE TABLE tombstones(session TEXT PRIMARY KEY, at TEXT) WITHOUT ROWID;
CREATE TABLE accepted(fault TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE memory(tab TEXT NOT NULL, id TEXT NOT NULL, body, PRIMARY KEY(tab, id)) WITHOUT ROWID;
"""

#: SQLite keeps each statement as it was written, so that tables of another make are known by it.
_STATEMENTS = {text.strip() for text in f"{_SCHEMA}{SCHEMA}".split(";") if text.strip().startswith("CREATE")}
_PLACES = next(s for s in _STATEMENTS if s.startswith("CREATE TABLE places("))
#: Until version 25 an index also had what journals lost.
_MISSED = (
    "CREATE TABLE missed(name TEXT NOT NULL, session TEXT NOT NULL, part INT, seq INT, crc TEXT, after INT, sources TEXT,"
    " state TEXT,\n    others INT, PRIMARY KEY(name, seq, crc)) WITHOUT ROWID"
)
#: Tables that SQLite makes for its full-text search.
_OF_SEARCH = {f"{table}_{of}" for table in ("words", "recalled_words") for of in ("data", "idx", "docsize", "config")}

_SUMMARY = (
    "id, agent, native_id, project, cwd, title, started_at, last_at, ended_at, state, turns, messages, bytes,"
    " segments, compactions, lineage"
)
_MESSAGE = "m.seq, m.n, m.role, m.text, m.at, m.turn, m.tool, m.mark, m.heard, m.base_seq, m.base_n"
#: Tables of memory that are searched, and what their rows are called there.
_RECALLED = {"notes": "note", "insights": "insight"}
#: And the one that says what projects are called now.
_PROJECTS = "projects"
#: How long who shreds waits between his tries to empty the log; and, after the first, for readers.
_PAUSES_S = (0.01, 0.05, 0.2, 0.5, 1.0)
_BRIEFLY_MS = 500
_OWNED = " AND t.owner != ''"
_TURN = "t.id, t.seq, t.state, t.prompt, t.submitted_at, t.started_at, t.settled_at, t.reason, t.owner, t.n"


class SqliteStore(Searching):
    """One connection. Hold it for one verb, then close it: rebuilding waits until nobody has the file open."""

    def __init__(self, path: str, *, wait_ms: int = 10_000) -> None:
        self.path = path
        with translated(path):
            self._db = apsw.Connection(path)
        try:
            with translated(path):
                self._db.set_busy_timeout(wait_ms)
                self._check_version()
        except BaseException:
            self._db.close()
            raise

    @classmethod
    def peek(cls, path: str, *, wal: bool, shm: bool) -> SqliteStore:
        """To look at only: nothing is written, also no -wal and -shm beside the file. `wal`, `shm`: which of them are there now.

        Without a -wal no lock protects us (`immutable`): the caller looks afterwards whether something moved. A -wal without
        its -shm was left by somebody who died: its index is made in our own memory, for making a -shm would leave that behind.
        """
        from urllib.parse import quote

        where = f"file:{quote(os.path.realpath(path))}?mode=ro" + ("&readonly_shm=1" if shm else "" if wal else "&immutable=1")
        store = cls.__new__(cls)
        store.path = path
        with translated(path):
            flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
            store._db = apsw.Connection(where, flags=flags, vfs="unix-none" if wal and not shm else None)
        try:
            with translated(path):
                store._db.set_busy_timeout(300)
                store._db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
                store._db.execute("PRAGMA query_only=1")
                if wal and not shm:
                    store._db.execute("PRAGMA locking_mode=EXCLUSIVE")
                store._check_version()
        except BaseException:
            store._db.close()
            raise
        return store

    @staticmethod
    def create(path: str) -> None:
        """Make a new index in an empty file (or `:memory:`). The caller sees to it that nobody else does the same."""
        with translated(path):
            db = apsw.Connection(path)
            try:
                _make(db)
            finally:
                db.close()

    @classmethod
    def known_to(cls, path: str) -> list[Sighting]:
        """What an index of a version before the witness has read of journals, and what they lost; nothing where this program does
        not understand it."""
        store = cls.__new__(cls)
        store.path = path
        try:
            store._db = apsw.Connection(path)
            try:
                tables = store._tables()
                rows = store._rows("SELECT * FROM missed") if _MISSED in tables else []
                lost = [Sighting._make((*row[:3], 0, *row[3:8], bool(row[8]))) for row in rows]
                places = store.places().values() if _PLACES in tables else ()
                return [*lost, *(store._last_of(place) for place in places if place.position.seq)]
            finally:
                store._db.close()
        except (apsw.Error, DreamkeepError):
            return []

    def _last_of(self, place: JournalPlace) -> Sighting:
        from dreamkeep.index.witnessing import make_sighting

        try:
            return make_sighting(self, place)
        except (apsw.Error, DreamkeepError, ValueError, TypeError, AttributeError):
            return Sighting(place.name, place.session, *place.position)  # its tables of sessions are others

    @classmethod
    def in_memory(cls) -> SqliteStore:
        """For a keep that we may only read."""
        store = cls.__new__(cls)
        store.path = ":memory:"
        store._db = apsw.Connection(":memory:")
        _make(store._db)
        return store

    def _check_version(self) -> None:
        found = self._db.pragma("user_version")
        if found != VERSION:
            raise OtherVersion(f"the index has version {found}; this version of dreamkeep writes {VERSION}", where=self.path)
        if self._tables() != _STATEMENTS | _OF_SEARCH:
            raise Unusable("the index lacks tables of its version", where=self.path, next="It will be rebuilt.")
        self._db.execute("PRAGMA synchronous=NORMAL")

    def _tables(self) -> set[str]:
        """The statements that made them; for those of the search their names, for their make is up to SQLite."""
        rows = self._rows("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL")
        return {name if name in _OF_SEARCH else sql for name, sql in rows}

    def check(self) -> str:
        """SQLite's own word on the file; "" when it is sound."""
        said = self._rows("PRAGMA quick_check(1)")[0][0]
        return "" if said == "ok" else f"the index is damaged ({said})"

    def close(self) -> None:
        self._db.close()

    @contextmanager
    def writing(self) -> Iterator[None]:
        with translated(self.path):
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                if self._db.in_transaction:  # on a full disk SQLite rolls back by itself
                    self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")

    @contextmanager
    def reading(self) -> Iterator[None]:
        with translated(self.path):
            self._db.execute("BEGIN")
            try:
                yield
            finally:
                if self._db.in_transaction:
                    self._db.execute("COMMIT")

    def _safely(self) -> AbstractContextManager[None]:
        return translated(self.path)

    def _rows(self, sql: str, *values: Any) -> list[Any]:
        try:
            with translated(self.path):
                return list(self._db.execute(sql, tuple(map(columns.stored, values))))
        except UnicodeDecodeError as problem:
            raise Unusable("the index holds text that is not UTF-8", where=self.path, next="It will be rebuilt.") from problem

    # -- following the journal

    @understood
    def places(self) -> dict[str, JournalPlace]:
        return {row[0]: columns.place(row) for row in self._rows("SELECT * FROM places")}

    @understood
    def place(self, name: str) -> JournalPlace | None:
        rows = self._rows("SELECT * FROM places WHERE name = ?", name)
        return columns.place(rows[0]) if rows else None

    @understood
    def standings(self) -> list[Standing]:
        return self._rows(
            "SELECT name, part, sums, looks = '' AND mark_part = part AND mark_size = offset,"
            " mark_part, mark_size, mark_part_mtime, mark_part_inode, mark_folder_mtime, seq, crc FROM places"
        )

    @understood
    def sources(self) -> dict[str, str]:
        return dict(self._rows("SELECT name, sources FROM places WHERE sources != ''"))

    def put_place(self, place: JournalPlace, faults: Iterable[JournalDefect] | None) -> None:
        if faults is not None:
            with translated(self.path):
                self._put_faults(0, faults)
        self._put_place(place)

    def _put_place(self, place: JournalPlace) -> None:
        with translated(self.path):
            self._db.execute(
                "INSERT OR REPLACE INTO places VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
                (place.name, place.session, *place.position, *place.mark, place.looks, place.sums, place.sources),
            )

    def put(self, batch: IndexBatch) -> None:
        with translated(self.path):
            no = self._put_summary(batch.summary)
            self._db.executemany(
                "INSERT OR REPLACE INTO turns VALUES (?,?,?,?,?,?,?,?,?,?,?)",
                ((no, *map(columns.stored, t)) for t in batch.turns),
            )
            busy = IN_PROGRESS in batch.state  # or some words in it; who asks looks into the state anyway
            self._db.execute("UPDATE sessions SET fold = ?, busy = ? WHERE no = ?", (batch.state, busy, no))
            gone = self._take_back(no, batch)
            [(last,)] = self._db.execute("SELECT max(no) FROM messages WHERE no BETWEEN ? AND ?", (first_of(no), last_of(no)))
            start = after = first_of(no) if last is None else last
            for m in batch.messages:
                after += self._put_message(no, after + 1, m, batch.twins.get(m[:2]))
            self._db.execute("UPDATE sessions SET held = held + ? WHERE no = ?", (after - start - gone, no))
            self._db.executemany(
                "INSERT OR REPLACE INTO keys VALUES (?,?,?,?)", ((no, columns.stored(key), *at) for key, at in batch.keys.items())
            )
            if batch.faults is not None:
                self._put_faults(no, batch.faults)
        self._put_place(batch.place)

    def _put_summary(self, summary: Summary) -> int:
        called = self.memory_row(_PROJECTS, summary.project) if summary.project else None
        summary = summary._replace(project=called["now"]) if called else summary
        marks = ",".join("?" * len(summary))
        sets = ",".join(f"{c}=excluded.{c}" for c in _SUMMARY.split(", ")[1:])
        values = tuple(map(columns.stored, summary._replace(lineage=columns.lineage_text(summary.lineage))))  # type: ignore[arg-type]
        sql = f"INSERT INTO sessions({_SUMMARY}) VALUES ({marks}) ON CONFLICT(id) DO UPDATE SET {sets} RETURNING no"
        return int(next(self._db.execute(sql, values))[0])

    def _take_back(self, session: int, batch: IndexBatch) -> int:
        """How many rows are gone."""
        removed = 0
        for taken in batch.taken:
            self._db.execute(
                "UPDATE messages SET mark = ? WHERE session = ? AND mark = ? AND (base_seq, base_n, seq, n) >= (?, ?, ?, ?)"
                + (" AND (base_seq, base_n, seq, n) < (?, ?, ?, ?)" if taken.end else ""),
                (taken.after, session, taken.before, *taken.start, *(taken.end or ())),
            )
        for place in batch.removed:
            gone = self._db.execute(
                "DELETE FROM messages WHERE session = ? AND seq = ? AND n = ? RETURNING no", (session, *place)
            ).fetchone()
            if gone:
                removed += 1
                self._drop_words(gone[0])
        return removed

    def _put_message(self, session: int, no: int, m: Message, twin: str | None) -> bool:
        """Whether it is one more; `no` is its number then."""
        values = (*map(columns.stored, m[2:6]), columns.stored_data(m.tool), m.mark, m.heard, twin, *m.place)
        added = self._db.execute(
            "INSERT OR IGNORE INTO messages(no, session, seq, n, role, text, at, turn, tool, mark, heard, twin, base_seq, base_n)"
            " VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?) RETURNING no",
            (no, session, m.seq, m.n, *values),
        ).fetchone()
        new = bool(added)
        if not added:
            added = self._db.execute(
                "UPDATE messages SET role=?, text=?, at=?, turn=?, tool=?, mark=?, heard=?, twin=coalesce(?, twin),"
                " base_seq=?, base_n=? WHERE session=? AND seq=? AND n=? RETURNING no",
                (*values, session, m.seq, m.n),
            ).fetchone()
            assert added is not None, "it was there a moment ago"
            self._drop_words(added[0])
        self._put_words(added[0], m.role, m.mark, m.text)
        return new

    def _put_faults(self, session: int, faults: Iterable[JournalDefect]) -> None:
        self._db.execute("DELETE FROM faults WHERE session = ?", (session,))
        self._db.executemany(
            "INSERT INTO faults VALUES (?,?,?,?,?,?,?,?,?)",
            ((session, *f[:4], columns.spans_text(f.missing), f.recorded, f.times, f.mended + f.accepted) for f in faults),
        )

    def forget(self, name: str) -> None:
        place = self.place(name)
        if place is None:
            return
        with translated(self.path):
            for (no,) in list(self._db.execute("SELECT no FROM sessions WHERE id = ?", (place.session,))):
                self._drop_words(first_of(no), last_of(no))
                for table in ("messages", "keys", "turns", "faults"):
                    self._db.execute(f"DELETE FROM {table} WHERE session = ?", (no,))
                self._db.execute("DELETE FROM sessions WHERE no = ?", (no,))
            self._db.execute("DELETE FROM places WHERE name = ?", (name,))

    def clear(self) -> None:
        with translated(self.path):
            tables = self._db.execute("SELECT name FROM sqlite_master WHERE type='table' AND sql IS NOT NULL").fetchall()
            for name in (str(row[0]) for row in tables):
                if name not in _OF_SEARCH and not name.startswith("sqlite_"):
                    self._db.execute(f"DROP TABLE {name}")
            self._db.execute(_SCHEMA + SCHEMA)

    def shred(self, sleep: Callable[[float], None]) -> None:
        with translated(self.path):
            # Merging all of FTS5's segments drops the words of deleted rows; VACUUM rewrites the file without its free pages.
            self._db.execute("INSERT INTO words(words) VALUES ('optimize')")
            self._db.execute("INSERT INTO recalled_words(recalled_words) VALUES ('optimize')")
            self._db.execute("VACUUM")
            self._empty_log(sleep)

    def _empty_log(self, sleep: Callable[[float], None]) -> None:
        """For readers SQLite waits; for another process' checkpoint it never does, and those are short."""
        for pause_s in (None, *_PAUSES_S):
            if pause_s is not None:
                sleep(pause_s)
            [(busy, _, _)] = self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            if not busy:
                return
            self._db.set_busy_timeout(_BRIEFLY_MS)
        raise Busy("another program is reading the index", where=self.path, next="Close it; the next writer finishes this.")

    def mark_deleted(self, session: str, at: str) -> None:
        with translated(self.path):
            self._db.execute("INSERT OR IGNORE INTO tombstones VALUES (?, ?)", (session, at))

    def lift(self, session: str) -> None:
        with translated(self.path):
            self._db.execute("DELETE FROM tombstones WHERE session = ?", (session,))

    def accept(self, faults: Iterable[str], *, anew: bool) -> None:
        with translated(self.path):
            if anew:
                self._db.execute("DELETE FROM accepted")
            self._db.executemany("INSERT OR IGNORE INTO accepted VALUES (?)", ((columns.stored(fault),) for fault in faults))

    def remember(self, changed: Mapping[tuple[str, str], Mapping[str, Any] | None], *, anew: bool) -> None:
        before = dict(self.memory_table(_PROJECTS))
        with translated(self.path):
            if anew:
                self._db.execute("DELETE FROM memory")
                self._forget_recalled()
            for (table, id), body in changed.items():
                self._db.execute("DELETE FROM memory WHERE tab = ? AND id = ?", (table, columns.stored(id)))
                if body is not None:
                    self._db.execute("INSERT INTO memory VALUES (?,?,?)", (table, columns.stored(id), columns.stored_data(body)))
                if table in _RECALLED:
                    self._recall(_RECALLED[table], id, body, columns.stored)
        if before or any(table == _PROJECTS for table, _ in changed):
            self._call_projects(before, dict(self.memory_table(_PROJECTS)))

    def _call_projects(self, before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
        """Sessions under the names that their projects have now."""

        def called(name: str) -> str:
            return str(after[name]["now"]) if name in after else name

        for old, found in before.items():
            if called(old) != called(found["now"]):
                # That it was renamed is not in the journal any more: only the sessions' own journals know what they were.
                for (name,) in self._rows(
                    "SELECT p.name FROM places p JOIN sessions s ON s.id = p.session WHERE s.project = ?", found["now"]
                ):
                    self.forget(name)
        for old, found in after.items():
            self._rows("UPDATE sessions SET project = ? WHERE project = ?", found["now"], old)

    # -- answers

    @understood
    def memory(self) -> list[tuple[str, str, dict[str, Any]]]:
        rows = self._rows("SELECT tab, id, body FROM memory ORDER BY tab, id")
        return [(tab, columns.restored(id), columns.restored_data(body)) for tab, id, body in rows]

    @understood
    def memory_row(self, table: str, id: str) -> dict[str, Any] | None:
        rows = self._rows("SELECT body FROM memory WHERE tab = ? AND id = ?", table, id)
        return columns.restored_data(rows[0][0]) if rows else None

    @understood
    def memory_table(self, table: str) -> list[tuple[str, dict[str, Any]]]:
        rows = self._rows("SELECT id, body FROM memory WHERE tab = ? ORDER BY id", table)
        return [(columns.restored(id), columns.restored_data(body)) for id, body in rows]

    @understood
    def accepted(self) -> set[str]:
        return {columns.restored(fault) for (fault,) in self._rows("SELECT fault FROM accepted")}

    @understood
    def tombstones(self) -> dict[str, str]:
        return dict(self._rows("SELECT session, at FROM tombstones ORDER BY session"))

    @understood
    def sessions(self, *, project: str | None = None, agent: str | None = None, limit: int | None = None) -> list[Summary]:
        return [
            columns.summary(row)
            for row in self._rows(
                f"SELECT {_SUMMARY} FROM sessions WHERE (?1 IS NULL OR project = ?1) AND (?2 IS NULL OR agent = ?2)"
                " ORDER BY last_at DESC, id DESC LIMIT ?3",
                project,
                agent,
                -1 if limit is None else limit,
            )
        ]

    @understood
    def session(self, session: str) -> Summary | None:
        rows = self._rows(f"SELECT {_SUMMARY} FROM sessions WHERE id = ?", session)
        return columns.summary(rows[0]) if rows else None

    @understood
    def session_places(self) -> list[folders.SessionPlace]:
        import json

        from dreamkeep.session.folders import place_of

        rows = self._rows(
            "SELECT id, project, cwd, last_at, json_extract(fold, '$.folders'), json_extract(fold, '$.remotes')"
            " FROM sessions ORDER BY id"
        )
        texts = (((columns.restored(one) or "" for one in row[:4]), row[4:]) for row in rows)
        return [place_of(*text, *(json.loads(one or "[]") for one in seen)) for text, seen in texts]

    def matching(self, text: str) -> list[str]:
        rows = self._rows("SELECT id FROM sessions WHERE id = ?", text)
        rows = rows or self._rows("SELECT id FROM sessions WHERE native_id = ? ORDER BY id", text)
        rows = rows or self._rows(
            "SELECT id FROM sessions WHERE substr(id, 1, length(?1)) = ?1 OR substr(native_id, 1, length(?1)) = ?1 ORDER BY id",
            text,
        )
        return [row[0] for row in rows]

    @understood
    def turns(self, session: str, ids: Iterable[str] | None = None) -> list[TurnView]:
        sql = f"SELECT {_TURN} FROM turns t JOIN sessions s ON s.no = t.session WHERE s.id = ?1"
        if ids is None:
            return [columns.turn(row) for row in self._rows(sql + " ORDER BY t.seq, t.n, t.id", session)]
        return [columns.turn(row) for i in ids for row in self._rows(sql + " AND t.id = ?2", session, i)]

    @understood
    def last_turns(self, session: str, count: int) -> list[TurnView]:
        rows = self._rows(
            f"SELECT {_TURN} FROM turns t JOIN sessions s ON s.no = t.session WHERE s.id = ?"
            " ORDER BY t.seq DESC, t.n DESC, t.id DESC LIMIT ?",
            session,
            count,
        )
        return [columns.turn(row) for row in reversed(rows)]

    @understood
    def state(self, session: str) -> str:
        rows = self._rows("SELECT fold FROM sessions WHERE id = ?", session)
        state = str(rows[0][0]) if rows else "{}"
        if not (state.startswith("{") and state.endswith("}")):
            raise ValueError(f"how far {session} was read")
        return state

    @understood
    def message(self, session: str, key: str) -> Message | None:
        rows = self._rows(
            f"SELECT {_MESSAGE} FROM sessions s JOIN keys k ON k.session = s.no"
            " JOIN messages m ON m.session = s.no AND m.seq = k.seq AND m.n = k.n WHERE s.id = ? AND k.key = ?",
            session,
            columns.stored(key),
        )
        return columns.message(rows[0]) if rows else None

    @understood
    def twin(self, session: str, twin: str, not_heard: int, after: tuple[int, int]) -> Message | None:
        rows = self._rows(
            f"SELECT {_MESSAGE} FROM sessions s JOIN messages m ON m.session = s.no"
            " WHERE s.id = ? AND m.twin = ? AND m.heard & ? = 0 AND (m.seq, m.n) > (?, ?) ORDER BY m.seq, m.n LIMIT 1",
            session,
            twin,
            not_heard,
            *after,
        )
        return columns.message(rows[0]) if rows else None

    @understood
    def unsettled(self, *, owned: bool = False) -> list[tuple[str, TurnView]]:
        rows = self._rows(
            f"SELECT s.id, {_TURN} FROM turns t JOIN sessions s ON s.no = t.session"
            f" WHERE t.state IN ('submitted', 'started'){_OWNED if owned else ''} ORDER BY s.id, t.seq, t.n"
        )
        return [(row[0], columns.turn(row[1:])) for row in rows]

    @understood
    def ended(self) -> list[tuple[str, int]]:
        rows = self._rows(
            "SELECT s.id, (SELECT max(m.seq) FROM messages m WHERE m.session = s.no) FROM sessions s"
            " WHERE s.state = 'ended' ORDER BY s.ended_at, s.id"
        )
        return [(id, seq) for id, seq in rows if seq is not None]

    @understood
    def compacting(self) -> list[str]:
        return [row[0] for row in self._rows("SELECT id FROM sessions WHERE busy ORDER BY id")]

    @understood
    def incomplete(self, *, rows: bool) -> list[str]:
        found = self._rows(
            "SELECT id FROM sessions WHERE id NOT IN (SELECT session FROM places)"
            " UNION SELECT session FROM places WHERE session != '' AND session NOT IN (SELECT id FROM sessions)"
        )
        if rows:
            [(messages, held, words)] = self._rows(
                "SELECT (SELECT count(*) FROM messages), (SELECT coalesce(sum(held), 0) FROM sessions),"
                f" (SELECT count(*) FROM messages WHERE {_UNSEARCHED}) + (SELECT count(*) FROM words_docsize)"
            )
            if messages != held:
                found += self._rows(
                    "SELECT s.id FROM sessions s LEFT JOIN (SELECT session, count(*) AS held FROM messages GROUP BY session) m"
                    " ON m.session = s.no WHERE s.held != coalesce(m.held, 0)"
                )
            found += [("",)] if messages != words and not found else []
        return sorted({str(row[0]) for row in found})

    @understood
    def messages(self, session: str) -> list[Message]:
        rows = self._rows(
            f"SELECT {_MESSAGE} FROM messages m JOIN sessions s ON s.no = m.session WHERE s.id = ?"
            " ORDER BY m.base_seq, m.base_n, m.seq, m.n",
            session,
        )
        return [columns.message(r) for r in rows]

    @understood
    def last_messages(self, session: str, count: int) -> list[Message]:
        rows = self._rows(
            f"SELECT {_MESSAGE} FROM messages m WHERE m.session = (SELECT no FROM sessions WHERE id = ?)"
            " ORDER BY m.seq DESC, m.n DESC LIMIT ?",
            session,
            count,
        )
        return sorted((columns.message(r) for r in rows), key=lambda message: message.order)

    @understood
    def faults(self) -> list[tuple[str, JournalDefect]]:
        rows = self._rows(
            "SELECT coalesce(s.id, ''), f.kind, f.part, f.offset, f.size, f.missing, f.recorded, f.times, f.mended"
            " FROM faults f"
            " LEFT JOIN sessions s ON s.no = f.session ORDER BY s.id, f.part, f.offset"
        )
        return [
            (s, JournalDefect(kind, part, at, size, columns.spans(lost), bool(told), n, mended > 0, mended > 1))
            for s, kind, part, at, size, lost, told, n, mended in rows
        ]

    @understood
    def counts(self) -> IndexCounts:
        sessions, turns, messages, size = self._rows(
            "SELECT count(*), coalesce(sum(turns), 0), coalesce(sum(messages), 0), coalesce(sum(bytes), 0) FROM sessions"
        )[0]
        return IndexCounts(sessions, turns, messages, size, self._rows("SELECT count(*) FROM faults WHERE NOT mended")[0][0])


def _make(db: apsw.Connection) -> None:
    db.execute("PRAGMA journal_mode=WAL").fetchall()
    # Not `with db`: where SQLite rolled back by itself (a full disk), its ROLLBACK fails and hides why.
    db.execute(f"BEGIN; {_SCHEMA}{SCHEMA} PRAGMA user_version={VERSION}; COMMIT")
