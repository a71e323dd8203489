"""Other programs' SQLite files are read only through SQLite, exactly, and stay unchanged (B6, B7, B8)."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw
import pytest

from dreamkeep.agents.shared import database
from dreamkeep.capture.sources import rows
from dreamkeep.errors import Busy, Failed, NotFound
from dreamkeep.host import RealHost, Stat
from tests.agents import goose, hermes, opencode
from tests.agents.hermes import SHOP, Hermes

HOST = RealHost()
Folder = dict[str, tuple[bytes, int]]


def folder(path: Path) -> Folder:
    """Names, bytes and times of everything beside a database."""
    return {one.name: (one.read_bytes(), one.stat().st_mtime_ns) for one in sorted(path.parent.iterdir())}


def read(path: Path, agent: str = "hermes") -> dict[str, list[database.SourceRow]]:
    return {key: list(rows.rows(HOST, agent, str(path), key, {})) for key in rows.sessions(HOST, agent, str(path))}


def said(found: dict[str, list[database.SourceRow]]) -> list[str]:
    held = [json.loads(row.line) for one in found.values() for row in one]
    return [one["row"]["content"] for one in held if one["table"] == "messages"]


WRITER = """
import sys, apsw
db = apsw.Connection(sys.argv[1])
db.execute("PRAGMA journal_mode=" + sys.argv[2])
db.execute("PRAGMA wal_autocheckpoint=0; PRAGMA cache_size=-20")
print("ready", flush=True)
for line in sys.stdin:
    try:
        db.execute(line)
        print("done", flush=True)
    except apsw.BusyError:
        print("busy", flush=True)
"""


class Writer:
    """An agent: another process that has the database open."""

    def __init__(self, path: Path, mode: str = "WAL") -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path), mode], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout
        assert self._process.stdout.readline() == "ready\n"

    def do(self, sql: str) -> str:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(sql + "\n")
        self._process.stdin.flush()
        return self._process.stdout.readline().strip()

    def insert(self, content: str) -> str:
        return self.do(f"INSERT INTO messages(session_id, role, content, timestamp) VALUES ('s', 'user', '{content}', 1.5)")

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream:
                stream.close()


@contextmanager
def writing(path: Path, mode: str = "WAL") -> Iterator[Writer]:
    writer = Writer(path, mode)
    try:
        yield writer
    finally:
        writer.kill()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A WAL database at rest: its agent has closed it."""
    found = tmp_path / "agent" / "state.db"
    h = Hermes(found)
    h.session("s")
    h.say("s", "user", "one")
    h.close()
    assert [one.name for one in found.parent.iterdir()] == ["state.db"]
    return found


@pytest.mark.parametrize("agent", [hermes, opencode, goose], ids=lambda one: str(one.__name__))
def test_a_database_at_rest_is_left_as_it_was(tmp_path: Path, agent: Any) -> None:
    """B8: no -wal, no -shm, no new time, no changed byte."""
    agent.write(tmp_path)
    name = agent.__name__.rpartition(".")[2]
    [path] = tmp_path.rglob("*.db")
    before = folder(path)
    found = read(path, name)
    assert found
    assert all(found.values())
    assert folder(path) == before


@pytest.mark.parametrize("with_shm", [True, False])
def test_what_a_killed_agent_left_in_its_wal_is_read_and_left_there(path: Path, with_shm: bool) -> None:
    """B8."""
    with writing(path) as writer:
        assert writer.insert("two") == "done"
    shm = path.with_name("state.db-shm")
    assert path.with_name("state.db-wal").stat().st_size > 0
    if not with_shm:
        shm.unlink()
    before = folder(path)
    assert said(read(path)) == ["one", "two"]
    assert folder(path) == before


def test_a_live_agent_is_read_and_keeps_its_locks(path: Path) -> None:
    """B8: only committed rows are read; no other process can write meanwhile; the agent commits undisturbed."""
    with writing(path) as writer, writing(path) as other:
        writer.insert("two")
        assert writer.do("BEGIN IMMEDIATE") == "done"
        assert writer.insert("three") == "done"
        assert other.insert("four") == "busy"
        before = folder(path)
        assert said(read(path)) == ["one", "two"]
        assert folder(path) == before
        assert other.insert("four") == "busy"
        assert writer.do("COMMIT") == "done"
        assert other.insert("four") == "done"
        assert said(read(path)) == ["one", "two", "three", "four"]


def test_an_agent_with_a_rollback_journal_keeps_its_locks_too(path: Path) -> None:
    """B8."""
    with writing(path, "DELETE") as writer, writing(path, "DELETE") as other:
        assert writer.do("BEGIN IMMEDIATE") == "done"
        assert writer.insert("two") == "done"
        assert path.with_name("state.db-journal").exists()
        before = folder(path)
        assert said(read(path)) == ["one"]
        assert folder(path) == before
        assert other.insert("three") == "busy"
        assert writer.do("COMMIT") == "done"
        assert said(read(path)) == ["one", "two"]


def test_a_hot_journal_is_an_error_and_left_to_its_agent(path: Path) -> None:
    """B7, B8: the file has half a transaction, which only its agent may roll back."""
    with writing(path, "DELETE") as writer:
        writer.do("CREATE TABLE big(a)")
        writer.do("BEGIN IMMEDIATE")
        writer.do("UPDATE messages SET content = 'half'")
        size = path.stat().st_size
        while path.stat().st_size == size:  # until it is more than its cache holds, and spills into the file
            assert writer.do("INSERT INTO big VALUES (zeroblob(30000))") == "done"
    before = folder(path)
    with pytest.raises(Failed, match="start the agent once"):
        rows.sessions(HOST, "hermes", str(path))
    assert folder(path) == before
    Hermes(path).close()
    assert said(read(path)) == ["one"]


def test_a_reader_never_stops_an_agent_that_keeps_writing(path: Path) -> None:
    with writing(path) as writer:
        for n in range(30):
            assert writer.insert(f"m{n}") == "done"
            if n % 10 == 5:
                writer.do("PRAGMA wal_checkpoint(TRUNCATE)")
            found = rows.rows(HOST, "hermes", str(path), "s", {})
            next(found)  # in the middle of a read
            assert writer.insert(f"n{n}") == "done"
            found.close()
        assert len(said(read(path))) == 61
    assert {one.name for one in path.parent.iterdir()} == {"state.db", "state.db-wal", "state.db-shm"}


def test_a_database_that_an_agent_opens_while_we_read_is_read_again(path: Path) -> None:
    """B8: an immutable read counts only if the file did not change."""
    started: list[Writer] = []

    class Meanwhile(RealHost):
        looks = 0

        def stat(self, name: str) -> Stat | None:
            if name == str(path):
                self.looks += 1
                if self.looks == 2:
                    started.append(Writer(path))
                    started[0].insert("two")
            return super().stat(name)

    try:
        found = [json.loads(row.line)["row"].get("content") for row in rows.rows(Meanwhile(), "hermes", str(path), "s", {})]
        assert [one for one in found if one] == ["one", "two"]
    finally:
        for writer in started:
            writer.kill()


class Restless(RealHost):
    """A file whose time changes all the time."""

    def __init__(self) -> None:
        self.looks = 0
        self.slept_s = 0.0

    def stat(self, path: str) -> Stat | None:
        self.looks += 1
        found = super().stat(path)
        return found._replace(mtime_ns=self.looks) if found else None

    def sleep(self, seconds: float) -> None:
        self.slept_s += seconds


def test_a_file_that_never_rests_is_reported_as_busy_never_as_empty(path: Path) -> None:
    """B7."""
    host = Restless()
    with pytest.raises(Busy, match="keeps changing"):
        rows.sessions(host, "hermes", str(path))
    assert 0.1 < host.slept_s < 5
    with pytest.raises(Busy, match="keeps changing"):
        list(rows.rows(host, "hermes", str(path), "s", {}))


def test_an_agent_that_holds_everything_locked_is_busy(path: Path) -> None:
    with writing(path, "DELETE") as writer:
        writer.do("BEGIN EXCLUSIVE")
        writer.insert("two")
        with pytest.raises(Busy, match="locked"):
            rows.sessions(HOST, "hermes", str(path))


def test_an_error_is_never_an_empty_answer(tmp_path: Path, path: Path) -> None:
    """B7: missing, not a database, another program's, damaged, or without the session."""
    with pytest.raises(NotFound, match="is missing"):
        rows.sessions(HOST, "hermes", str(tmp_path / "gone.db"))
    (tmp_path / "text.db").write_text("not a database " * 1000)
    with pytest.raises(Failed, match="not a database"):
        rows.sessions(HOST, "hermes", str(tmp_path / "text.db"))
    apsw.Connection(str(tmp_path / "other.db")).execute("CREATE TABLE sessions(id)")
    with pytest.raises(Failed, match="not a database of Hermes: it has no table messages"):
        rows.sessions(HOST, "hermes", str(tmp_path / "other.db"))
    with pytest.raises(Failed, match="no table session and no table message and no table part"):
        rows.sessions(HOST, "opencode", str(path))
    (tmp_path / "empty.db").touch()
    with pytest.raises(Failed, match="no table"):
        rows.sessions(HOST, "goose", str(tmp_path / "empty.db"))
    with pytest.raises(NotFound, match="no longer in the database"):
        list(rows.rows(HOST, "hermes", str(path), "another", {}))
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * (path.stat().st_size - 4096))
    with pytest.raises(Failed, match="SQLite can't read"):
        read(path)


def test_every_value_is_kept_exactly(tmp_path: Path) -> None:
    """Every kind of value that SQLite can store."""
    path = tmp_path / "state.db"
    h = Hermes(path)
    h.session("s")
    values: list[Any] = [
        None,
        0,
        -(2**63),
        2**63 - 1,
        0.1,
        -0.0,
        1e300,
        float("inf"),
        "",
        "a\x00b",
        "\u2028\u0085\n",
        "é" * 40,
        b"",
        b"\xff\x00",
    ]
    for value in values:
        h.db.execute("INSERT INTO messages(session_id, role, content, timestamp) VALUES ('s', 'x', ?, 1)", (value,))
    h.db.execute("INSERT INTO messages(session_id, role, content, timestamp) VALUES ('s', 'x', CAST(x'ff6869' AS TEXT), 1)")
    h.close()
    found = [row for row in read(path)["s"] if row.key.startswith("messages/")]
    assert b"\n" not in b"".join(row.line for row in found)
    shown = [json.loads(row.line)["row"]["content"] for row in found]
    back = [base64.b64decode(one["$blob"]) if isinstance(one, dict) and "$blob" in one else one for one in shown]
    # A column of affinity TEXT turns numbers into text when they are stored.
    assert back[:2] == [None, "0"]
    assert back[8:14] == values[8:14]
    assert back[-1] == {"$text": base64.b64encode(b"\xffhi").decode()}
    assert all(database.key_of(row.line) == (row.key, row.version) for row in found)
    for table, column in (("sessions", "estimated_cost_usd"),):
        for value in (None, 0, -(2**63), 2**63 - 1, 0.1, -1e-300, 1e300, float("inf"), b"\x00"):
            h = Hermes(path)
            h.update("s", **{column: value})
            h.close()
            [row] = [one for one in read(path)["s"] if one.key == f"{table}/s"]
            held = json.loads(row.line)["row"][column]
            assert database.key_of(row.line) == (row.key, row.version)
            if isinstance(held, dict):
                assert held in ({"$real": "inf"}, {"$blob": "AA=="})
            else:
                assert repr(held) == repr(float(value) if isinstance(value, int) else value)


def test_a_line_has_every_column_in_the_order_of_the_table(path: Path) -> None:
    first, second = read(path)["s"]
    columns = [line.split()[0] for line in hermes.SCHEMA.split("CREATE TABLE messages (")[1].split(");")[0].strip().splitlines()]
    assert list(json.loads(second.line)["row"]) == columns
    assert (first.key, second.key) == ("sessions/s", "messages/1")


def test_a_session_with_a_long_id_is_read_like_any_other(path: Path) -> None:
    long = "x" * 65 + "é" * 300
    db = Hermes(path)
    db.session(long, source="cli")
    db.say(long, "user", "who has such a name?")
    db.close()
    found = read(path)
    assert said({"s": found["s"]}) == ["one"]
    assert "who has such a name?" in said({long: found[long]})
    known = {row.key: row.version for row in found[long]}
    assert list(rows.rows(HOST, "hermes", str(path), long, known)) == []


def test_only_changed_rows_are_returned_again(path: Path) -> None:
    known = {row.key: row.version for row in read(path)["s"]}
    assert list(rows.rows(HOST, "hermes", str(path), "s", known)) == []
    h = Hermes(path)
    h.context["s"] = [{}]
    h.say("s", "assistant", "hello")
    h.rewind("s", 1)
    h.close()
    again = list(rows.rows(HOST, "hermes", str(path), "s", known))
    assert [row.key for row in again] == ["sessions/s", "messages/2"]
    h = Hermes(path)
    h.db.execute("UPDATE messages SET active = 0 WHERE id = 1")
    h.close()
    assert [row.key for row in rows.rows(HOST, "hermes", str(path), "s", known | {row.key: row.version for row in again})] == [
        "messages/1"
    ]


@pytest.mark.parametrize(
    "change",
    [
        "INSERT INTO messages(session_id, role, content, timestamp) VALUES ('s', 'user', 'two', 2)",
        "UPDATE messages SET active = 0",
        "UPDATE sessions SET title = 'x'",
        "UPDATE sessions SET ended_at = 5",
        "DELETE FROM messages",
    ],
)
def test_a_fingerprint_changes_with_its_session_alone(path: Path, change: str) -> None:
    h = Hermes(path)
    h.session("other")
    h.close()
    before = rows.sessions(HOST, "hermes", str(path))
    assert rows.sessions(HOST, "hermes", str(path)) == before
    h = Hermes(path)
    h.db.execute(change + (" WHERE id = 's'" if "UPDATE sessions" in change else ""))
    h.close()
    after = rows.sessions(HOST, "hermes", str(path))
    assert after["s"].mark != before["s"].mark
    assert after["other"] == before["other"]


def test_a_link_to_a_database_is_read_as_the_database(tmp_path: Path, path: Path) -> None:
    """SQLite keeps the -wal beside the real file."""
    (tmp_path / "elsewhere").mkdir()
    link = tmp_path / "elsewhere" / "state.db"
    link.symlink_to(path)
    with writing(path) as writer:
        writer.insert("two")
        before = folder(path)
        assert said(read(link)) == ["one", "two"]
        assert folder(path) == before
    assert [one.name for one in link.parent.iterdir()] == ["state.db"]


def test_unusual_file_names_are_not_read_as_options(tmp_path: Path, path: Path) -> None:
    odd = tmp_path / "a?mode=rwc&b#c %41"
    odd.mkdir()
    shutil.copy(path, odd / "state.db")
    assert said(read(odd / "state.db")) == ["one"]
    assert [one.name for one in odd.iterdir()] == ["state.db"]


def test_no_file_stays_open(path: Path) -> None:
    """B6: also after errors, and when reading stops in the middle."""

    def handles() -> int:
        return len(os.listdir("/dev/fd"))

    read(path)
    before = handles()
    for _ in range(100):
        read(path)
        found = rows.rows(HOST, "hermes", str(path), "s", {})
        next(found)
        found.close()
        with pytest.raises(NotFound):
            list(rows.rows(HOST, "hermes", str(path), "x", {}))
    assert handles() == before


def test_a_big_session_needs_little_memory(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    h = Hermes(path)
    h.session("s")
    h.db.execute("PRAGMA synchronous=OFF")
    with h.db:
        for n in range(120):
            h.db.execute(
                "INSERT INTO messages(session_id, role, content, timestamp) VALUES ('s', 'user', ?, 1)", (str(n % 10) * 500_000,)
            )
    h.close()
    known: dict[str, str] = {}
    tracemalloc.start()
    for row in rows.rows(HOST, "hermes", str(path), "s", {}):
        known[row.key] = row.version
    peak = tracemalloc.get_traced_memory()[1]
    assert peak < 20 << 20  # of 60 MB
    tracemalloc.reset_peak()
    before = tracemalloc.get_traced_memory()[0]
    assert list(rows.rows(HOST, "hermes", str(path), "s", known)) == []
    assert tracemalloc.get_traced_memory()[1] - before < 1 << 20  # unchanged rows are not even read
    tracemalloc.stop()


def test_a_database_without_its_index_or_with_unknown_tables_is_read(tmp_path: Path) -> None:
    hermes.write(tmp_path)
    path = tmp_path / ".hermes" / "state.db"
    first = read(path)
    db = apsw.Connection(str(path))
    db.execute("DROP INDEX idx_messages_session; DROP INDEX idx_messages_session_active; CREATE TABLE comets(tail)")
    db.close()
    assert read(path) == first
    assert first[SHOP]
