"""What an audit costs: of everything (`--deep`), and again when nothing changed, against reading the same bytes once.

2,000 sessions of 100 messages of 2 KB, indexed as every question leaves them. Compared with the plainest loop there is: open,
read, close each part. Fair, because they take turns on the same files in one process. A deep audit is there to look at the disk,
so before each turn the pages of those files are dropped from the cache, for all sides (`posix_fadvise`; where there is none, only
the other table is printed). The second table is the same with everything in memory: there reading is nothing but a copy, and all
else that is done (a checksum of every byte, two stats for every session) shows. Then both again for captured transcripts, where
the sources are read and compared, too. Handles are counted by the system. Last the sessions of an agent's database, each row of
which is compared with what was captured, against reading every row and every journal once.
"""

from __future__ import annotations

import os
import sqlite3

from bench.sessions import fill, texts_of
from bench.side_by_side import Act, Goal, Table, arguments, milliseconds, say, take_turns, workplace
from bench.transcripts import claude_many

from dreamkeep import Keep

_FULL = Goal(2)
_AGAIN = Goal(0.1)
_FLAT = Goal(0, "=")
_MESSAGES = 100
_SIZE = 2_000


def main() -> None:
    given = arguments(__doc__ or "").parse_args()
    sessions, rounds, audits = (200, 3, 50) if given.quick else (2_000, 11, 1_000)
    with workplace(given.dir) as place:
        root, home = f"{place}/keep", f"{place}/home"
        os.mkdir(home)
        say(f"audit: {sessions:,} sessions of {_MESSAGES} messages")
        _built(root, sessions)
        _measure(f"{sessions:,} sessions × {_MESSAGES} messages", root, home, [f"{root}/journal"], rounds)
        _handles(root, home, audits)
        say(f"audit: {sessions:,} captured transcripts")
        claude_many(f"{place}/home2", sessions, 50, 200_000)
        with Keep.open(f"{place}/keep2", environment={}) as keep:
            for _ in keep.ingest(home=f"{place}/home2"):
                pass
            keep.catch_up()
        files = [f"{place}/keep2/journal", f"{place}/home2"]
        _measure(f"{sessions:,} captured transcripts", f"{place}/keep2", f"{place}/home2", files, rounds)
        say(f"audit: {sessions:,} sessions in a database")
        _measure_rows(f"{place}/keep3", f"{place}/home3", sessions, 3)


def _built(root: str, sessions: int) -> None:
    text = texts_of(_SIZE)
    with Keep.open(root, environment={}) as keep:
        keep.session("first").record("hello")
        for n in range(sessions):
            fill(root, f"s{n}", _MESSAGES, text)
        keep.catch_up()


def _measure_rows(root: str, home: str, sessions: int, rounds: int) -> None:
    database = _hermes(home, sessions)
    with Keep.open(root, environment={}) as keep:
        for _ in keep.ingest(home=home):
            pass
        keep.catch_up()
    files = [f"{at}/{name}" for at, _, names in os.walk(f"{root}/journal") for name in names if ".jsonl" in name]

    def read() -> None:
        _read(files)
        db = sqlite3.connect(database)
        for table in ("sessions", "messages"):
            for _ in db.execute(f"SELECT * FROM {table}"):
                pass
        db.close()

    times = take_turns({"read": read, "deep": lambda: _audit(root, home, deep=True)}, rounds, warm_up=1)
    table = Table(f"Audit of {sessions:,} sessions × {_MESSAGES} rows of Hermes' database, all of it in memory")
    table.compare("everything (--deep), against reading rows and journals once", times["deep"], times["read"], show=milliseconds)
    table.print()


def _hermes(home: str, sessions: int) -> str:
    """A database as Hermes makes it, with the columns that matter."""
    path = f"{home}/.hermes/state.db"
    os.makedirs(os.path.dirname(path))
    db = sqlite3.connect(path)
    db.execute(
        "CREATE TABLE sessions (id TEXT PRIMARY KEY, source TEXT, parent_session_id TEXT, end_reason TEXT,"
        " model_config TEXT, started_at REAL, message_count INTEGER, cwd TEXT, title TEXT)"
    )
    db.execute(
        "CREATE TABLE messages (id INTEGER PRIMARY KEY AUTOINCREMENT, session_id TEXT, role TEXT, content TEXT,"
        " tool_call_id TEXT, tool_calls TEXT, tool_name TEXT, timestamp REAL, reasoning TEXT, active INTEGER DEFAULT 1)"
    )
    db.execute("CREATE INDEX messages_of ON messages(session_id, timestamp)")
    for n in range(sessions):
        row = (f"s{n:06}", "cli", 1.79e9 + n, _MESSAGES, "/home/dev/shop")
        db.execute("INSERT INTO sessions(id, source, started_at, message_count, cwd) VALUES (?, ?, ?, ?, ?)", row)
        said = [
            (row[0], "assistant" if m % 2 else "user", f"{m} of {n}: " + "why does the build fail? " * 8, 1.79e9 + n + m)
            for m in range(_MESSAGES)
        ]
        db.executemany("INSERT INTO messages(session_id, role, content, timestamp) VALUES (?, ?, ?, ?)", said)
    db.commit()
    db.close()
    return path


def _measure(what: str, root: str, home: str, folders: list[str], rounds: int) -> None:
    files = [f"{at}/{name}" for folder in folders for at, _, names in os.walk(folder) for name in names if ".jsonl" in name]
    os.sync()  # only pages that are on the disk can be dropped
    size = sum(map(os.path.getsize, files))
    sides: dict[str, Act] = {
        "read": lambda: _read(files),
        "deep": lambda: _audit(root, home, deep=True),
        "again": lambda: _audit(root, home, deep=False),
    }
    for where, before in (("from the disk", lambda: _drop(files)), ("all of it in memory", None)):
        if before and not hasattr(os, "posix_fadvise"):
            continue
        times = take_turns(sides, rounds, warm_up=1, before=before)
        table = Table(f"Audit of {what}, {size >> 20:,} MB, {where}")
        table.compare(
            "everything (--deep), against reading the bytes once", times["deep"], times["read"], _FULL, show=milliseconds
        )
        table.compare("again, nothing changed, against that audit", times["again"], times["deep"], _AGAIN, show=milliseconds)
        table.compare("again, nothing changed, against reading it once", times["again"], times["read"], _AGAIN, show=milliseconds)
        table.print()


def _read(files: list[str]) -> None:
    for path in files:
        with open(path, "rb") as file:
            file.read()


def _drop(files: list[str]) -> None:
    for path in files:
        handle = os.open(path, os.O_RDONLY)
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(handle)


def _audit(root: str, home: str, *, deep: bool) -> None:
    """As a command does it: open the keep, look, close it. The machine's own settings must not matter."""
    with Keep.open(root, environment={}) as keep:
        found = keep.audit(deep=deep, home=home)
    if not found["clean"]:
        raise SystemExit(f"{len(found['faults'])} faults, the first: {found['faults'][0]}")


def _handles(root: str, home: str, audits: int) -> None:
    if not os.path.isdir("/proc/self/fd"):
        return
    say(f"audit: {audits:,} of them")
    _audit(root, home, deep=True)
    before = len(os.listdir("/proc/self/fd"))
    for n in range(audits):
        _audit(root, home, deep=n % 100 == 0)
    more = len(os.listdir("/proc/self/fd")) - before
    table = Table(f"Handles after {audits:,} audits in one process")
    table.fact("open files more than before", str(more), _FLAT, more)
    table.print()


if __name__ == "__main__":
    main()
