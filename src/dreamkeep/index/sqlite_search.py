"""How the SQLite index is searched: FTS5 for words, codes and vectors beside it. Part of sqlite.py; searching.py is the contract.

A message's number is the rowid of its words, and its upper half is the session's: so filters by session, project or agent need no
look at the messages, and neighbours lie beside each other in the file.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from dreamkeep.index.searching import EMBEDDED, NOT_SEARCHED, Head, Remembered, Row, Within, first_of, last_of
from dreamkeep.index.sqlite_errors import understood
from dreamkeep.memory.insight import INBOX, SUGGESTION
from dreamkeep.session.reading.packs import without_packs

if TYPE_CHECKING:
    from dreamkeep.index.words import Term

#: Tables that a rebuilt index makes, too.
SCHEMA = """
CREATE VIRTUAL TABLE words USING fts5(text, content='', contentless_delete=1, tokenize='porter unicode61 remove_diacritics 2');
CREATE VIRTUAL TABLE recalled_words USING fts5(text, content='', contentless_delete=1,
    tokenize='porter unicode61 remove_diacritics 2');
CREATE TABLE recalled(no INTEGER PRIMARY KEY, kind TEXT NOT NULL, id TEXT NOT NULL, project TEXT, at TEXT, first_at TEXT,
    session TEXT, place TEXT, turn TEXT, text, state TEXT, superseder TEXT, UNIQUE(kind, id));
CREATE TABLE grounds(session TEXT NOT NULL, place TEXT NOT NULL, note TEXT NOT NULL, PRIMARY KEY(session, place, note))
    WITHOUT ROWID;
CREATE INDEX grounds_by_note ON grounds(note);
CREATE TABLE unembedded(no INTEGER PRIMARY KEY);
CREATE TABLE codes(no INTEGER PRIMARY KEY, code BLOB NOT NULL);
CREATE TABLE vectors(no INTEGER PRIMARY KEY, body BLOB NOT NULL);
CREATE TABLE embedder(name TEXT NOT NULL, changes INT NOT NULL);
INSERT INTO embedder VALUES ('', 0);
"""
_SEARCHED = f"mark NOT IN ({','.join(map(repr, NOT_SEARCHED))})"
_HEAD, _TAIL = 240, 24
_HOLES = 3
#: States in which a note or an insight may be found. A suggested note is none yet: what the agent said is found as an insight.
_FOUND = frozenset(("active", "suggested", "confirmed", "superseded"))
_REMEMBERED = "no, kind, id, project, at, first_at, session, place, turn, text, state, superseder"


class Searching:
    """Needs what `SqliteStore` has."""

    path: str
    _db: Any

    if TYPE_CHECKING:

        def _rows(self, sql: str, *values: Any) -> list[Any]: ...

        def _safely(self) -> AbstractContextManager[None]: ...

    # -- what changes

    def _put_words(self, no: int, role: str, mark: str, text: str) -> None:
        if mark in NOT_SEARCHED:
            return
        # A pack that stands in a prompt is nobody's word (D33); what is around it is.
        self._db.execute("INSERT INTO words(rowid, text) VALUES (?, ?)", (no, _indexed(without_packs(text))))
        if role in EMBEDDED and text.strip():
            self._db.execute("INSERT OR REPLACE INTO unembedded VALUES (?)", (no,))

    def _drop_words(self, first: int, last: int | None = None) -> None:
        """Of one message, or of all with numbers up to `last`."""
        between = (first, first if last is None else last)
        if last is None:
            self._db.execute("DELETE FROM words WHERE rowid = ?", (first,))
        else:
            searched = "SELECT no FROM messages WHERE no BETWEEN ? AND ?"
            self._db.execute(f"DELETE FROM words WHERE rowid IN ({searched})", between)
        for table in ("unembedded", "codes", "vectors"):
            self._db.execute(f"DELETE FROM {table} WHERE no BETWEEN ? AND ?", between)
        if self._db.changes() or last is not None:
            self._db.execute("UPDATE embedder SET changes = changes + 1")

    def _forget_recalled(self) -> None:
        for table in ("recalled", "recalled_words", "grounds"):
            self._db.execute(f"DELETE FROM {table}")
        for table in ("unembedded", "codes", "vectors"):
            self._db.execute(f"DELETE FROM {table} WHERE no < 0")
        self._db.execute("UPDATE embedder SET changes = changes + 1")

    def _recall(self, kind: str, id: Any, body: Mapping[str, Any] | None, stored: Any) -> None:
        gone = self._db.execute("DELETE FROM recalled WHERE kind = ? AND id = ? RETURNING no", (kind, stored(id))).fetchone()
        if gone:
            self._db.execute("DELETE FROM recalled_words WHERE rowid = ?", gone)
            for table in ("unembedded", "codes", "vectors"):
                self._db.execute(f"DELETE FROM {table} WHERE no = ?", (-gone[0],))
            self._db.execute("UPDATE embedder SET changes = changes + 1")
        if kind == "note":
            self._db.execute("DELETE FROM grounds WHERE note = ?", (stored(id),))
        if body is None or body["state"] not in _FOUND or (kind == "note" and body["state"] == "suggested"):
            return
        at = body.get("last_at") or body.get("said_at")
        first_at = body.get("first_at") or at
        first = body["evidence"][0] if body["evidence"] else {"session": "", "seq": "", "turn": None}
        aside = body.get("source") == SUGGESTION or body.get("shelf") == INBOX
        waits = kind == "insight" and aside and body["state"] == "suggested"
        state = SUGGESTION if waits else body["state"]
        row = (kind, id, body["project"], at, first_at, first["session"], first["seq"], first["turn"], body["text"])
        added = self._db.execute(
            "INSERT INTO recalled(kind, id, project, at, first_at, session, place, turn, text, state, superseder)"
            " VALUES (?,?,?,?,?,?,?,?,?,?,?) RETURNING no",
            tuple(map(stored, (*row, state, body.get("by") or ""))),
        ).fetchone()
        self._db.execute("INSERT INTO recalled_words(rowid, text) VALUES (?, ?)", (added[0], _indexed(body["text"])))
        self._db.execute("INSERT OR REPLACE INTO unembedded VALUES (?)", (-added[0],))
        if kind == "note":
            self._db.executemany(
                "INSERT OR IGNORE INTO grounds VALUES (?,?,?)",
                (tuple(map(stored, (one["session"], str(one["seq"]), id))) for one in body["evidence"]),
            )

    # -- messages by their words

    @understood
    def indexed_messages(self) -> int:
        return int(self._rows("SELECT coalesce(sum(held), 0) FROM sessions")[0][0])

    def holding(self, terms: Sequence[Term]) -> list[int]:
        return [int(self._rows("SELECT count(*) FROM words WHERE words MATCH ?", match([term]))[0][0]) for term in terms]

    def best(self, terms: Sequence[Term], within: Within, limit: int) -> list[tuple[int, float]]:
        if not terms:
            return []
        condition, values = self._condition(within, "words.rowid")
        rows = self._rows(
            f"SELECT rowid, -rank FROM words WHERE words MATCH ? {condition} ORDER BY rank LIMIT ?",
            match(terms),
            *values,
            limit,
        )
        return [(no, score) for no, score in rows]

    def holders(self, term: Term, most: int) -> list[int]:
        return [no for (no,) in self._rows("SELECT rowid FROM words WHERE words MATCH ? LIMIT ?", match([term]), most)]

    def _condition(self, within: Within, no: str) -> tuple[str, list[Any]]:
        """SQL that holds for numbers of messages within, and what it asks for."""
        parts: list[str] = []
        values: list[Any] = []
        if within.session is not None:
            found = self._rows("SELECT no FROM sessions WHERE id = ?", within.session)
            session = int(found[0][0]) if found else -1
            parts.append(f"{no} BETWEEN ? AND ?")
            values += [first_of(session), last_of(session)]
        about = [(column, value) for column, value in (("project", within.project), ("agent", within.agent)) if value is not None]
        if about:
            wanted = " AND ".join(f"{column} = ?" for column, _ in about)
            parts.append(f"{no} >> 32 IN (SELECT no FROM sessions WHERE {wanted})")
            values += [value for _, value in about]
        times = [(sign, value) for sign, value in ((">=", within.since), ("<=", within.until)) if value is not None]
        if times:
            wanted = " AND ".join(f"timed.at {sign} ?" for sign, _ in times)
            parts.append(f"EXISTS (SELECT 1 FROM messages timed WHERE timed.no = {no} AND {wanted})")
            values += [value for _, value in times]
        return "".join(f" AND {part}" for part in parts), values

    # -- messages by their numbers

    @understood
    def around(self, nos: Collection[int], reach: int) -> dict[int, list[int]]:
        # By the words' own small table: a message's row may be long. Numbers of what was taken out again leave holes.
        wide = reach + _HOLES
        near = f"SELECT n.value, group_concat(d.id) FROM json_each(?) n JOIN words_docsize d ON d.id BETWEEN n.value - {wide}"
        rows = self._rows(f"{near} AND n.value + {wide} GROUP BY n.value", json.dumps(sorted(nos)))
        return {no: _middle(sorted(map(int, others.split(","))), no, reach) for no, others in rows}

    def inside(self, nos: Collection[int], within: Within) -> set[int]:
        condition, values = self._condition(within, "m.no")
        wanted = "m.no IN (SELECT value FROM json_each(?))"
        rows = self._rows(
            f"SELECT m.no FROM messages m WHERE {wanted} AND m.{_SEARCHED} {condition}", json.dumps(sorted(nos)), *values
        )
        return {no for (no,) in rows}

    def sessions_within(self, within: Within) -> set[int] | None:
        about = (("id", within.session), ("project", within.project), ("agent", within.agent))
        wanted = [(column, value) for column, value in about if value is not None]
        if not wanted:
            return None
        sql = f"SELECT no FROM sessions WHERE {' AND '.join(f'{column} = ?' for column, _ in wanted)}"
        return {int(no) for (no,) in self._rows(sql, *(value for _, value in wanted))}

    @understood
    def heads(self, nos: Collection[int]) -> list[Head]:
        sql = (
            "SELECT m.no, s.id, m.seq, m.n, m.role, m.mark, m.at, m.turn, s.project,"
            f" substr(m.text, 1, {_HEAD}), substr(m.text, -{_TAIL}), length(m.text)"
            " FROM messages m JOIN sessions s ON s.no = m.session WHERE m.no IN"
        )
        return [_head(row) for row in self._many(sql, nos)]

    @understood
    def texts(self, nos: Collection[int]) -> dict[int, str]:
        return {no: _restored(text) for no, text in self._many("SELECT no, text FROM messages WHERE no IN", nos)}

    @understood
    def numbers(self, places: Collection[tuple[str, int, int]]) -> dict[tuple[str, int, int], int]:
        sql = (
            "SELECT m.no FROM messages m JOIN sessions s ON s.no = m.session"
            f" WHERE s.id = ? AND m.seq = ? AND m.n = ? AND m.{_SEARCHED}"
        )
        found = {place: self._rows(sql, *place) for place in places}
        return {place: int(rows[0][0]) for place, rows in found.items() if rows}

    def session_sizes(self, sessions: Collection[int]) -> dict[int, int]:
        return dict(self._many("SELECT no, held FROM sessions WHERE no IN", sessions))

    def session_ends(self, sessions: Collection[int]) -> dict[int, str | None]:
        return dict(self._many("SELECT no, last_at FROM sessions WHERE no IN", sessions))

    def _many(self, sql: str, nos: Collection[int]) -> list[Row]:
        """One statement however many: it is prepared once. In order, for neighbours in the file are read together."""
        return self._rows(f"{sql} (SELECT value FROM json_each(?))", json.dumps(sorted(nos))) if nos else []

    # -- notes and insights

    @understood
    def remembered_holding(self, term: Term) -> list[int]:
        rows = self._rows("SELECT rowid FROM recalled_words WHERE recalled_words MATCH ?", match([term]))
        return [int(no) for (no,) in rows]

    @understood
    def remembered_rows(self, nos: Collection[int]) -> list[Remembered]:
        rows = self._many(f"SELECT {_REMEMBERED} FROM recalled WHERE no IN", nos)
        return [Remembered(*map(_restored, row)) for row in rows]

    @understood
    def remembered_ids(self, ids: Collection[str]) -> list[Remembered]:
        sql = f"SELECT {_REMEMBERED} FROM recalled WHERE kind = 'note' AND id = ?"
        return [Remembered(*map(_restored, row)) for id in ids for row in self._rows(sql, id)]

    @understood
    def grounds(self, places: Collection[tuple[str, str]]) -> dict[tuple[str, str], list[str]]:
        if not places or not self._rows("SELECT 1 FROM grounds LIMIT 1"):
            return {}
        sql = "SELECT note FROM grounds WHERE session = ? AND place = ? ORDER BY note"
        found = {place: [_restored(note) for (note,) in self._rows(sql, *place)] for place in places}
        return {place: notes for place, notes in found.items() if notes}

    def rests_on(self, note: str, session: str) -> bool:
        return bool(self._rows("SELECT 1 FROM grounds WHERE note = ? AND session = ? LIMIT 1", note, session))

    # -- vectors

    def unembedded(self, limit: int) -> list[tuple[int, str]]:
        nos = [int(no) for (no,) in self._rows("SELECT no FROM unembedded ORDER BY no DESC LIMIT ?", limit)]
        found = self.texts([no for no in nos if no > 0])
        learned = {-row.no: row.text for row in self.remembered_rows([-no for no in nos if no < 0])}
        return [(no, found.get(no) or learned.get(no) or "") for no in nos]

    def unembedded_count(self) -> int:
        return int(self._rows("SELECT count(*) FROM unembedded")[0][0])

    def put_vectors(self, embedder: str, made: Iterable[tuple[int, bytes, bytes]]) -> None:
        with self._safely():
            if self.embedder()[0] != embedder:
                self._start_vectors(embedder)
            for no, code, vector in made:
                self._db.execute("DELETE FROM unembedded WHERE no = ?", (no,))
                if not self._db.changes():
                    continue  # done by somebody else, or gone meanwhile
                self._db.execute("INSERT OR REPLACE INTO codes VALUES (?, ?)", (no, code))
                self._db.execute("INSERT OR REPLACE INTO vectors VALUES (?, ?)", (no, vector))
            self._db.execute("UPDATE embedder SET changes = changes + 1")

    def _start_vectors(self, embedder: str) -> None:
        """Those of another can't be compared with ours: all begin again."""
        self._db.execute("INSERT OR IGNORE INTO unembedded SELECT no FROM codes")
        self._db.execute("DELETE FROM codes")
        self._db.execute("DELETE FROM vectors")
        self._db.execute("UPDATE embedder SET name = ?, changes = changes + 1", (embedder,))

    @understood
    def embedder(self) -> tuple[str, int]:
        [(name, changes)] = self._rows("SELECT name, changes FROM embedder")
        return str(name), int(changes)

    def codes(self) -> list[tuple[int, bytes]]:
        return self._rows("SELECT no, code FROM codes ORDER BY no")

    def vectors(self, nos: Collection[int]) -> Mapping[int, bytes]:
        return dict(self._many("SELECT no, body FROM vectors WHERE no IN", nos))

    def learned_vectors(self) -> Mapping[int, bytes]:
        return dict(self._rows("SELECT no, body FROM vectors WHERE no < 0 ORDER BY no"))


def _middle(numbers: list[int], no: int, reach: int) -> list[int]:
    at = bisect_left(numbers, no)
    return numbers[max(0, at - reach) : at + reach + 1]


def _indexed(text: str) -> str:
    """words.py's, loaded when first needed, and from then on without this detour: most commands search for nothing."""
    global _indexed
    from dreamkeep.index.words import indexed as _indexed

    return _indexed(text)


def match(terms: Sequence[Term]) -> str:
    """Each form is quoted: nothing a person types can be taken for FTS5 syntax."""
    return " OR ".join(f'"{form}"{"*" if term.prefix else ""}' for term in terms for form in term.forms)


def _restored(value: Any) -> Any:
    return value.decode("utf-8", "surrogatepass") if isinstance(value, bytes) else value


def _whole(cut: Any) -> str:
    """Of a text that is kept as bytes, a cut may have gone through a sign."""
    return cut.decode("utf-8", "replace") if isinstance(cut, bytes) else str(cut or "")


def _head(row: Row) -> Head:
    if bytes in map(type, row):
        row = (*map(_restored, row[:9]), _whole(row[9]), _whole(row[10]), row[11])
    return Head._make(row)
