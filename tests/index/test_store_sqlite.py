"""The SQLite store keeps the common law, in a file and in memory."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw
import pytest

from dreamkeep.errors import Busy
from dreamkeep.index.sqlite import SqliteStore
from dreamkeep.index.store import Store
from tests.helpers.store_suite import StoreSuite, filled, place, recalled


def _never(seconds: float) -> None:
    raise AssertionError("nobody is in the way")


_HOLDS = """
import fcntl, sys, time
shm = open(sys.argv[1], "r+b")
fcntl.lockf(shm, fcntl.LOCK_EX, 1, 121)  # SQLite's WAL_CKPT_LOCK
print("held", flush=True)
time.sleep(600)
"""


@contextmanager
def _checkpointing(shm: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the lock of checkpoints, as for one that takes long."""
    with subprocess.Popen([sys.executable, "-c", _HOLDS, str(shm)], stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout and other.stdout.readline() == "held\n"
        try:
            yield other
        finally:
            other.kill()


class TestInAFile(StoreSuite):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[Store]:
        path = str(tmp_path / "index.sqlite")
        SqliteStore.create(path)
        opened = SqliteStore(path)
        yield opened
        opened.close()

    def test_a_shredded_word_is_nowhere_in_the_files(self, store: Store, tmp_path: Path) -> None:
        """K7: not in free pages, not in the write-ahead log, not in the word index."""
        filled(store, "python:a", "xylophonist plays", *(f"filler {n} " * 50 for n in range(200)))
        filled(store, "python:b", "stays")
        with store.writing():
            store.forget(place("python:a").name)
        store.shred(_never)
        assert not any(b"xylophon" in p.read_bytes() for p in tmp_path.iterdir())
        assert [h.session for h in recalled(store, "stays")] == ["python:b"]

    def test_who_shreds_waits_for_another_program_that_empties_the_log(self, store: Store, tmp_path: Path) -> None:
        """K2 K7: SQLite does not wait for a checkpoint of another process, however long it may wait for all else."""
        filled(store, "python:a", "xylophonist plays")
        with store.writing():
            store.forget(place("python:a").name)
        with _checkpointing(tmp_path / "index.sqlite-shm") as other:
            pauses: list[float] = []

            def sleep(seconds: float) -> None:
                pauses.append(seconds)
                other.kill()
                other.wait()

            store.shred(sleep)
        assert len(pauses) == 1
        assert not any(b"xylophon" in p.read_bytes() for p in tmp_path.iterdir())

    def test_who_shreds_says_so_when_the_log_is_never_free(self, store: Store, tmp_path: Path) -> None:
        filled(store, "python:a", "xylophonist plays")
        with _checkpointing(tmp_path / "index.sqlite-shm"), pytest.raises(Busy, match="another program is reading the index"):
            store.shred(lambda _: None)

    @pytest.mark.parametrize("table", ["places", "sessions", "messages", "words"])
    def test_rows_that_somebody_took_out_are_missed(self, store: Store, tmp_path: Path, table: str) -> None:
        """W4"""
        filled(store, "python:a", "one", "two")
        db = apsw.Connection(str(tmp_path / "index.sqlite"))
        first = {"sessions": "rowid = 1", "places": "1"}.get(table, "rowid = (SELECT min(no) FROM messages)")
        db.execute(f"DELETE FROM {table} WHERE {first}")
        db.close()
        assert store.incomplete(rows=True) == (["python:a"] if table != "words" else [""])
        assert bool(store.incomplete(rows=False)) == (table in ("places", "sessions"))

    def test_rows_are_counted_without_reading_their_texts(self, store: Store, tmp_path: Path) -> None:
        """R1: a deep audit counts them, and texts are nearly all that an index holds."""
        seen: list[str] = []
        db = apsw.Connection(str(tmp_path / "index.sqlite"))
        assert isinstance(store, SqliteStore)
        store._db.trace_v2(apsw.SQLITE_TRACE_STMT, lambda told: seen.append(told["sql"]))
        store.incomplete(rows=True)
        store._db.trace_v2(0, None)
        [counting] = [sql for sql in seen if "FROM messages" in sql]
        plan = [row[3] for row in db.execute(f"EXPLAIN QUERY PLAN {counting}") if "messages" in row[3]]
        db.close()
        assert len(plan) == 2 and all("COVERING INDEX" in step for step in plan), plan

    def test_one_sqlite_and_a_current_one(self) -> None:
        """X2: older ones have a bug by which a WAL reset corrupts the file."""
        assert tuple(map(int, apsw.sqlite_lib_version().split("."))) >= (3, 51, 3)


class TestInMemory(StoreSuite):
    @pytest.fixture
    def store(self) -> Iterator[Store]:
        opened = SqliteStore.in_memory()
        yield opened
        opened.close()
