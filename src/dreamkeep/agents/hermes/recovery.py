"""Put a session's rows back into Hermes' `state.db`: through SQLite only, in one transaction, all or nothing.

    no such file                        a new database is made in memory, then published: created, or it fails. It is refused
                                        beside the log of a missing database, because SQLite would replay that log into ours
    the session is not in it            its rows are added; under new ids if another session has theirs
    some of its rows are in it, equal   the missing ones are added; at the end, if they have new ids
    it has rows that we lack, or        refused: the session has gone on, or it is another one
    different rows under our ids

Existing rows are never changed or removed. A session's own row that differs stays as it is, and the answer says so.
"""

from __future__ import annotations

import json
from base64 import b64decode
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from dreamkeep.agents.hermes.writer import schema
from dreamkeep.agents.shared import database as reading
from dreamkeep.agents.shared.database import Base, quoted
from dreamkeep.errors import Busy, Failed, NoSpace, NotDurable, ReadOnly
from dreamkeep.host import Host
from dreamkeep.recovery.restore import put
from dreamkeep.recovery.stores import PutRows, Row, Tables

if TYPE_CHECKING:
    import apsw

SESSIONS, MESSAGES = "sessions", "messages"
_BUSY_MS = 5000
_LOGS = ("-wal", "-journal")
ADDED = "added"

#: What could not be restored as it was.
NUMBERS = "rows with new ids, because another session uses the old ones"
COLUMNS = "values of columns that this database lacks"
TITLES = "titles that another session already has"
OWN_ROW = "sessions whose row already exists and differs: left unchanged"


class _RowPlan(NamedTuple):
    sessions: tuple[Row, ...]
    messages: tuple[Row, ...]
    lost: Counter[str]


def join_rows(before: Tables, more: Tables) -> Tables:
    """A subagent's session comes before the one that started it; messages are in the order of their ids."""
    messages = [*before.get(MESSAGES, ()), *more.get(MESSAGES, ())]
    return {
        SESSIONS: [*more.get(SESSIONS, ()), *before.get(SESSIONS, ())],
        MESSAGES: sorted(messages, key=lambda row: row["id"]),
    }


def check_rows(host: Host, path: str, rows: Tables) -> None:
    """Refuse what `put_rows` would refuse, and do nothing."""
    sessions, messages = rows.get(SESSIONS, ()), rows.get(MESSAGES, ())
    path = put.resolve_target(host, path)
    if host.stat(path) is None:
        _check_place(host, path)
    else:
        reading.ask(host, path, lambda base: _plan(base, sessions, messages))


def put_rows(host: Host, path: str, rows: Tables, *, dry_run: bool) -> PutRows:
    """Rows without an `id` get one from the database."""
    sessions, messages = rows.get(SESSIONS, ()), rows.get(MESSAGES, ())
    path = put.resolve_target(host, path)
    if host.stat(path) is None:
        return _make(host, path, sessions, messages, dry_run)
    plan = reading.ask(host, path, lambda base: _plan(base, sessions, messages))
    added = len(plan.sessions) + len(plan.messages)
    if added and not dry_run:
        plan = _add(path, sessions, messages)
    at = host.stat(path)
    return PutRows(ADDED if added else put.UNCHANGED, added, at.size if at else 0, plan.lost)


# -- a new file


def _check_place(host: Host, path: str) -> None:
    put.compare_target(host, path, tuple)
    for ending in _LOGS:
        left = host.stat(f"{path}{ending}")
        if left is not None and left.size:
            raise Failed(
                "there is a log of a missing database; it may hold the last messages, and would corrupt a new database",
                where=f"{path}{ending}",
                next="Put its database back or move the log away, or restore into another folder with --home DIR.",
            )


def _make(host: Host, path: str, sessions: Sequence[Row], messages: Sequence[Row], dry_run: bool) -> PutRows:
    _check_place(host, path)
    lost: Counter[str] = Counter()
    data = _make_bytes(path, sessions, messages, lost)
    if not dry_run:
        put.put_file(host, path, lambda: [data], aside="")
    return PutRows(put.CREATED, len(sessions) + len(messages), len(data), lost)


def _make_bytes(path: str, sessions: Sequence[Row], messages: Sequence[Row], lost: Counter[str]) -> bytes:
    import apsw

    db = apsw.Connection(":memory:")
    try:
        with _translated(path):
            for _ in db.execute(schema()):
                pass
            base = Base(db, path)
            for table, rows in ((SESSIONS, sessions), (MESSAGES, messages)):
                for name in dict.fromkeys(name for row in rows for name in row if name not in base.columns(table)):
                    db.execute(f"ALTER TABLE {table} ADD COLUMN {quoted(name)}")
            base = Base(db, path)
            with db:
                _insert(db, base, SESSIONS, sessions, lost)
                _insert(db, base, MESSAGES, messages, lost)
            return db.serialize("main")
    finally:
        db.close()


# -- one that is there


def _add(path: str, sessions: Sequence[Row], messages: Sequence[Row]) -> _RowPlan:
    import apsw

    with _translated(path):
        db = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READWRITE)
        try:
            db.set_busy_timeout(_BUSY_MS)
            db.execute("PRAGMA synchronous=FULL")
            db.execute("BEGIN IMMEDIATE")
            base = Base(db, path)
            plan = _plan(base, sessions, messages)  # again, now that nobody else can write
            _insert(db, base, SESSIONS, plan.sessions, plan.lost)
            _insert(db, base, MESSAGES, plan.messages, plan.lost)
            db.execute("COMMIT")
            return plan
        finally:
            db.close()  # rolls back what was not committed


def _plan(base: Base, sessions: Sequence[Row], messages: Sequence[Row]) -> _RowPlan:
    base.need("Hermes", SESSIONS, MESSAGES)
    lost: Counter[str] = Counter()
    new_sessions = []
    for row in sessions:
        there = _read_row(base, SESSIONS, row["id"])
        if there is None:
            new_sessions.append(_with_free_title(base, row, lost))
        elif not _equal(row, there):
            lost[OWN_ROW] += 1
    chain = [row["id"] for row in sessions]
    numbered = all("id" in row for row in messages)
    new = _missing_messages(base, chain, messages, lost) if numbered else _missing_without_ids(base, chain, messages)
    return _RowPlan(tuple(new_sessions), tuple(new), lost)


def _missing_messages(base: Base, chain: list[Any], messages: Sequence[Row], lost: Counter[str]) -> list[Row]:
    marks = ", ".join("?" * len(chain))
    held = {key for (key,) in base.ask(f"SELECT id FROM {MESSAGES} WHERE session_id IN ({marks})", *chain)}
    there = [_read_row(base, MESSAGES, row["id"]) for row in messages]
    if not held - {row["id"] for row in messages} and all(
        one is None or (one["session_id"] in chain and _equal(row, one)) for row, one in zip(messages, there, strict=True)
    ):
        return [row for row, one in zip(messages, there, strict=True) if one is None]
    # Another session has their ids, or they already have new ones.
    without_ids = [{name: value for name, value in row.items() if name != "id"} for row in messages]
    new = _missing_without_ids(base, chain, without_ids)
    lost[NUMBERS] += len(without_ids)
    return new


def _missing_without_ids(base: Base, chain: list[Any], messages: Sequence[Row]) -> list[Row]:
    marks = ", ".join("?" * len(chain))
    keys = [key for (key,) in base.ask(f"SELECT id FROM {MESSAGES} WHERE session_id IN ({marks}) ORDER BY id", *chain)]
    for key, row in zip(keys, messages, strict=False):
        there = _read_row(base, MESSAGES, key)
        if there is None or not _equal(row, there):
            raise put.refusal(base.path)
    if len(keys) > len(messages):
        raise put.refusal(base.path)
    return list(messages[len(keys) :])


def _read_row(base: Base, table: str, key: object) -> Row | None:
    if base.version(table, key) is None:
        return None
    row: Row = json.loads(base.line(table, key))["row"]
    return row


def _equal(ours: Row, there: Row) -> bool:
    return all(value == there[name] for name, value in ours.items() if name in there)


def _with_free_title(base: Base, row: Row, lost: Counter[str]) -> Row:
    title = row.get("title")
    if not isinstance(title, str) or "title" not in base.columns(SESSIONS):
        return row
    taken = any(True for _ in base.ask(f"SELECT 1 FROM {SESSIONS} WHERE title = ? AND id <> ?", title, row["id"]))
    lost[TITLES] += taken
    return {**row, "title": None} if taken else row


# -- values


def _insert(db: apsw.Connection, base: Base, table: str, rows: Sequence[Row], lost: Counter[str]) -> None:
    known = set(base.columns(table))
    for row in rows:
        row = _with_free_title(base, row, lost) if table == SESSIONS else row  # a row just inserted may have it, too
        values = {name: value for name, value in row.items() if name in known}
        lost[COLUMNS] += sum(value is not None for name, value in row.items() if name not in known)
        pairs = [_bound(value) for value in values.values()]
        names = ", ".join(map(quoted, values))
        db.execute(f"INSERT INTO {table}({names}) VALUES ({', '.join(mark for mark, _ in pairs)})", [v for _, v in pairs])


def _bound(value: object) -> tuple[str, Any]:
    """The placeholder and the parameter for a value as `agents/shared/database.py` shows it."""
    if isinstance(value, Mapping):
        (kind, encoded), *_ = value.items()
        if kind == "$real":
            return "?", float(encoded)
        return ("CAST(? AS TEXT)" if kind == "$text" else "?"), b64decode(encoded)
    return "?", value


@contextmanager
def _translated(path: str) -> Iterator[None]:
    import apsw

    try:
        yield
    except (apsw.BusyError, apsw.LockedError) as problem:
        raise Busy("its agent keeps the database locked", where=path, next="Stop that agent, then try again.") from problem
    except apsw.FullError as problem:
        raise NoSpace("the disk is full; nothing was added", where=path, next="Free space, then try again.") from problem
    except (apsw.ReadOnlyError, apsw.PermissionsError, apsw.CantOpenError) as problem:
        raise ReadOnly(f"can't write to it ({problem})", where=path, next="Check its permissions, or use --home.") from problem
    except apsw.IOError as problem:
        raise NotDurable(f"SQLite can't write it ({problem})", where=path, next="Check space and disk.") from problem
    except apsw.Error as problem:
        raise Failed(f"SQLite refused ({problem}); nothing was added", where=path, next="Restore with --home.") from problem
