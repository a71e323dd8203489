"""The index is a view: delete it, break it, lock it, age it; nothing is lost, nothing is blocked, the answers are the same."""

from __future__ import annotations

import io
import os
import stat
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import apsw
import pytest

from dreamkeep import Keep
from dreamkeep.errors import Busy, DreamkeepError
from dreamkeep.event import Event, Ids, Kind, rfc3339
from dreamkeep.host import RealHost
from dreamkeep.index import build, part_fingerprints
from dreamkeep.index.sqlite import SqliteStore
from dreamkeep.journal.places import folder_of
from dreamkeep.journal.writers import JournalWriters
from tests.helpers.cli import Ran
from tests.helpers.journals import part
from tests.helpers.keep_answers import answers


def week(keep: Keep) -> None:
    """A few sessions with everything in them."""
    a = keep.session("a", cwd=".")
    with a.submit("why does the build fail?") as turn:
        turn.add("assistant", "because of the lock file", tool={"name": "sh", "exit_code": 1})
    a.record("and now?", ("assistant", "it passes"))
    a.submit("never settled")
    a.end()
    b = keep.session("b", agent="codex")
    b.record("\ud800 odd \u2028 text", ("assistant", "x" * 1_500_000))
    b.suspend("lunch")
    keep.session("gone").record("to be deleted")
    keep.delete("gone")


@pytest.fixture
def full(keep: Keep) -> Keep:
    week(keep)
    return keep


def test_rebuilt_from_zero_every_answer_is_equal_to_the_byte(full: Keep) -> None:
    """D34: also when the index was built bit by bit, after every event."""
    before = answers(full)
    full.reindex(from_zero=True)
    assert answers(full) == before


def test_following_after_every_event_gives_the_same_as_once_at_the_end(root: str, tmp_path: Path) -> None:
    """D34"""
    with Keep.open(root) as keep:
        session = keep.session("s", cwd=".")
        turn = session.submit("p")
        for n in range(30):
            keep.sessions()
            turn.add("assistant", f"part {n}")
        turn.settle("failed", "why")
        session.end()
        stepwise = answers(keep)
        os.remove(f"{root}/index.sqlite")
        assert answers(keep) == stepwise


@pytest.mark.parametrize("damage", ["deleted", "garbage", "empty", "truncated", "older", "zeroed middle", "a folder's worth"])
def test_an_index_that_is_gone_broken_or_old_is_rebuilt(full: Keep, root: str, damage: str) -> None:
    """B4: and the same handle goes on."""
    before = answers(full)
    file = Path(root) / "index.sqlite"
    for extra in Path(root).glob("index.sqlite-*"):
        extra.unlink()
    data = file.read_bytes()
    if damage == "deleted":
        file.unlink()
    elif damage == "garbage":
        file.write_bytes(os.urandom(8192))
    elif damage == "empty":
        file.write_bytes(b"")
    elif damage == "truncated":
        file.write_bytes(data[: len(data) // 2])
    elif damage == "zeroed middle":
        file.write_bytes(data[:4096] + b"\0" * (len(data) - 4096))
    elif damage == "older":
        db = apsw.Connection(str(file))
        db.execute("DROP TABLE turns; PRAGMA user_version=0")
        db.close()
    else:
        file.write_bytes(data + os.urandom(100_000))
    assert answers(full) == before
    full.session("a").record("goes on")
    assert full.search("goes on")


def test_a_locked_index_blocks_no_append_and_is_an_error_not_an_empty_answer(
    full: Keep, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B7: error is not empty; exit code 4 says busy."""
    monkeypatch.setattr("dreamkeep.context.INDEX_WAIT_S", 0.2)
    full.sessions()
    db = apsw.Connection(f"{root}/index.sqlite")
    db.execute("PRAGMA locking_mode=EXCLUSIVE; BEGIN EXCLUSIVE").fetchall()
    full.session("a").record("appended while locked")
    with pytest.raises(Busy, match="locked"):
        full.sessions()
    db.execute("ROLLBACK")
    db.close()
    assert full.search("appended while locked")


@pytest.mark.parametrize("error", [apsw.IOError, apsw.SQLError, apsw.NoMemError, apsw.ProtocolError])
def test_a_database_error_is_never_taken_for_an_empty_keep(
    full: Keep, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    """B7: whatever SQLite says, `sessions` raises or answers; it does not say there are none."""

    def broken(*_: object) -> Any:
        raise error("trouble")

    monkeypatch.setattr(SqliteStore, "_rows", lambda self, sql, *v: _translated_failure(self.path, broken))
    with pytest.raises(DreamkeepError, match=r"can't be (read|used)"):
        full.sessions()


def _translated_failure(path: str, act: Callable[[], Any]) -> Any:
    from dreamkeep.index.sqlite_errors import translated

    with translated(path):
        return act()


def test_many_processes_open_the_index_for_the_first_time_at_once(full: Keep, root: str) -> None:
    """D30: sixteen; all succeed, all see the same."""
    os.remove(f"{root}/index.sqlite")
    command = [sys.executable, "-m", "dreamkeep", "--keep", root, "sessions", "--json"]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(16)]
    outcomes = [(*p.communicate(), p.returncode) for p in running]
    assert {code for _, _, code in outcomes} == {0}, [err for _, err, _ in outcomes if err]
    assert len({out for out, _, _ in outcomes}) == 1


def test_many_processes_make_one_keep_at_once(root: str) -> None:
    """D30: the keep itself, first opened by sixteen writers at the same moment, and one session by all of them."""
    program = (
        "import sys; from dreamkeep import Keep\n"
        "with Keep.open(sys.argv[1]) as k: k.session('shared').record(sys.argv[2]); k.session(sys.argv[2]).record('own')"
    )
    running = [subprocess.Popen([sys.executable, "-c", program, root, f"p{n}"]) for n in range(16)]
    assert [p.wait() for p in running] == [0] * 16
    with Keep.open(root) as keep:
        assert len(keep.sessions()) == 17
        shared = keep.show("shared")
        assert sorted(m["text"] for m in shared["messages"]) == sorted(f"p{n}" for n in range(16))
        assert shared["faults"] == []
        opened = [e for e in part(f"{root}/{folder_of('python:shared')}").read_bytes().split(b"\n") if b"session.opened" in e]
        assert len(opened) == 1


class Counting(RealHost):
    """Counts bytes read and files opened."""

    def __init__(self) -> None:
        self.opened: list[str] = []
        self.bytes = 0

    def open_read(self, path: str) -> int:
        self.opened.append(path)
        return super().open_read(path)

    def read(self, handle: int, size: int, offset: int) -> bytes:
        data = os.pread(handle, size, offset)
        self.bytes += len(data)
        return data

    def open_stream(self, path: str) -> BinaryIO:
        self.opened.append(path)
        return io.BufferedReader(CountedFile(self, path), 1 << 12)


class CountedFile(io.FileIO):
    def __init__(self, host: Counting, path: str) -> None:
        super().__init__(path)
        self._host = host

    def readinto(self, buffer: Any) -> int | None:
        count = super().readinto(buffer)
        self._host.bytes += count or 0
        return count


def test_a_look_costs_what_changed_not_what_is_there(root: str) -> None:
    """B5: nothing new: no journal is opened; one new event: one journal is, and only its end is read."""
    with Keep.open(root) as keep:
        for n in range(20):
            keep.session(f"s{n}").record("x" * 50_000)
        keep.sessions()
        host = Counting()
        look = Keep.open(root, host=host)
        look.sessions()
        assert [p for p in host.opened if "journal/sessions" in p] == []
        keep.session("s7").record("new")
        host.bytes = 0
        assert look.search("new")
        assert {os.path.dirname(p) for p in host.opened if "journal/sessions" in p} == {f"{root}/{folder_of('python:s7')}"}
        assert host.bytes < 5_000 + os.path.getsize(f"{root}/journal/witness")


def _bulk(root: str, count: int) -> Keep:
    host = RealHost()
    ids = Ids(host.now, host.random)
    keep = Keep.open(root)
    keep.session("bulk").record("first")
    journals = JournalWriters(host, root, ids)
    made = [
        Event(ids.new(), Kind.MESSAGE_ADDED, rfc3339(host.now()), {"role": "user", "text": f"word{n} " * 8}) for n in range(count)
    ]
    for start in range(0, count, 500):
        journals.append("python:bulk", made[start : start + 500])
    journals.close()
    return keep


def test_rebuilding_is_linear_in_the_number_of_events(tmp_path: Path) -> None:
    """D29: counted, not timed: bytes read from disk and statements run per event are the same for 1,000 and 10,000."""
    costs = []
    for count in (1_000, 10_000):
        root = str(tmp_path / str(count))
        _bulk(root, count).close()
        host = Counting()
        store = SqliteStore.in_memory()
        statements: list[object] = []
        store._db.trace_v2(apsw.SQLITE_TRACE_STMT, statements.append)
        build.follow(host, root, store)
        size = sum(f.stat().st_size for f in Path(root).rglob("*.jsonl"))
        costs.append((host.bytes / size, len(statements) / count))
        store.close()
    (read_small, run_small), (read_large, run_large) = costs
    assert read_large <= read_small * 1.2 and run_large <= run_small * 1.2


def test_rows_of_an_append_that_was_lost_are_forgotten(root: str) -> None:
    """An index may have seen frames that no sync had saved; when they are gone after a power cut, it forgets them, too."""
    with Keep.open(root) as keep:
        session = keep.session("s")
        session.record("stays")
        file = part(f"{root}/{folder_of('python:s')}")
        size = file.stat().st_size
        session.record("lost in the cut")
        assert keep.search("lost")
    os.truncate(file, size)
    with Keep.open(root) as keep:
        assert not keep.search("lost")
        keep.session("s").record("another one of the same kind.")
        assert [m["text"] for m in keep.show("s")["messages"]] == ["stays", "another one of the same kind."]
        before = answers(keep)
        keep.reindex(from_zero=True)
        assert answers(keep) == before


def test_damage_is_shown_and_everything_around_it(keep: Keep, root: str, cli: Callable[..., Ran]) -> None:
    """B3: unreadable is a fault."""
    session = keep.session("s")
    for word in ("alpha", "beta", "gamma"):
        session.record(word)
    file = part(f"{root}/{folder_of('python:s')}")
    file.write_bytes(file.read_bytes().replace(b'"beta"', b'"bet4"'))
    shown = keep.show("s")
    assert [m["text"] for m in shown["messages"]] == ["alpha", "gamma"]
    assert [f["kind"] for f in shown["faults"]] == ["damage"]
    assert cli("doctor").code == 1 and "damage" in cli("doctor").out
    assert "damage" in cli("show", "s").out


def damaged_at_its_beginning(root: str) -> str:
    """A journal that is read in several batches, with a fault in the first. Its folder, relative to the keep."""
    with Keep.open(root) as keep:
        session = keep.session("s")
        session.record("first")
        for _ in range(3):
            session.record("more", ("assistant", "x" * 5_000_000))
    file = part(f"{root}/{folder_of('python:s')}")
    file.write_bytes(file.read_bytes().replace(b'"first"', b'"worst"'))
    return folder_of("python:s")


def test_a_fault_is_not_forgotten_when_who_indexes_dies_behind_it(root: str) -> None:
    """Once the next one went on from there, and neither it nor an audit, however deep, knew of what had been read before."""
    damaged_at_its_beginning(root)

    def killed(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with Keep.open(root) as keep:
        keep.progress = killed
        with pytest.raises(KeyboardInterrupt):
            keep.sessions()
    with Keep.open(root) as keep:
        assert [fault["kind"] for fault in keep.show("s")["faults"]] == ["damage"]
        assert [fault["class"] for fault in keep.audit(home=root)["faults"]] == ["journal_damage"]
        assert not keep.audit(deep=True, home=root)["clean"]


def test_a_fault_is_not_forgotten_when_two_index_at_once(root: str) -> None:
    name = damaged_at_its_beginning(root)
    host = RealHost()
    with Keep.open(root) as keep:
        keep.context.with_index(lambda store: None, follow=False)
    one, other = (SqliteStore(f"{root}/index.sqlite") for _ in range(2))
    first = build._follow_session(host, root, one, name, "python:s")
    second = build._follow_session(host, root, other, name, "python:s")
    for turn in range(1, 40):
        for reading, batches in ((first, 1 + turn % 2), (second, 1 + turn % 3)):
            for _ in range(batches):
                next(reading, None)
    assert next(first, None) is next(second, None) is None, "both came to an end"
    assert [fault.kind for _, fault in one.faults()] == ["damage"]
    one.close()
    other.close()


def test_an_event_whose_body_is_not_what_its_kind_promises_stops_nobody(root: str) -> None:
    """B2: reported, the rest is indexed."""
    host = RealHost()
    ids = Ids(host.now, host.random)
    with Keep.open(root) as keep:
        keep.session("s").record("before")
        journals = JournalWriters(host, root, ids)
        for body in ({"no": "turn"}, {"turn": None}, {"role": 5}):
            for kind in (Kind.TURN_SETTLED, Kind.MESSAGE_ADDED, Kind.TURN_RECORDED, "kind.of.tomorrow"):
                journals.append("python:s", [Event(ids.new(), kind, "t", body)])
        journals.close()
        keep.session("s").record("after")
        shown = keep.show("s")
        assert [m["text"] for m in shown["messages"]] == ["before", "after"]
        assert {f["kind"] for f in shown["faults"]} == {"strange"}


def test_a_keep_we_may_only_read_is_answered_without_writing(full: Keep, root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """B9 R6: a read-only keep gives the same answers, with a warning, and not a byte changes."""
    full.close()
    before = answers(full)

    class ReadOnly(RealHost):
        def open_lock(self, path: str) -> int:
            raise OSError(30, "Read-only file system", path)

        def create(self, path: str) -> int:
            raise OSError(30, "Read-only file system", path)

    warned: list[str] = []
    tree = _tree(root)
    keep = Keep.open(root, host=ReadOnly())
    keep.warn = warned.append
    assert answers(keep) == before
    assert warned and _tree(root) == tree


def _tree(root: str) -> dict[str, tuple[int, int]]:
    return {str(p): (p.stat().st_size, p.stat().st_mtime_ns) for p in Path(root).rglob("*") if p.is_file()}


def test_asking_a_keep_that_is_not_there_creates_nothing(root: str) -> None:
    """B9"""
    keep = Keep.open(root)
    assert keep.sessions() == [] and keep.status()["exists"] is False and keep.search("x") == [] and keep.doctor()
    assert not os.path.exists(root)


def test_files_are_for_their_owner_only(full: Keep, root: str) -> None:
    """X1: 0600 and 0700, also the index and what SQLite puts beside it, whatever the umask."""
    old = os.umask(0)
    try:
        full.session("u").record("x")
        os.remove(f"{root}/index.sqlite")
        full.sessions()
        beside = full.context.ask(lambda store: os.listdir(root))  # while it is open, -wal and -shm are there
        assert {"index.sqlite-wal", "index.sqlite-shm"} <= set(beside)
        modes = full.context.ask(
            lambda store: [stat.S_IMODE(os.stat(f"{root}/{n}").st_mode) for n in os.listdir(root) if "sqlite" in n]
        )
        assert modes == [0o600] * 3
    finally:
        os.umask(old)
    for at, folders, files in os.walk(root):
        for name in folders:
            assert stat.S_IMODE(os.stat(f"{at}/{name}").st_mode) == 0o700, name
        for name in files:
            assert stat.S_IMODE(os.stat(f"{at}/{name}").st_mode) == 0o600, name
    assert stat.S_IMODE(os.stat(root).st_mode) == 0o700


def test_handles_do_not_leak(full: Keep, root: str) -> None:
    """B6: a thousand looks and fifty openings leave as many handles open as before."""
    full.sessions()

    def count() -> int:
        return len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0

    before = count()
    for _ in range(1000):
        full.sessions(limit=1)
    assert count() == before
    for n in range(50):
        with Keep.open(root) as other:
            other.session("a").record(f"{n}")
            other.show("a")
    assert count() == before


def test_a_folder_copied_by_hand_is_not_counted_as_its_original(full: Keep, root: str) -> None:
    import shutil

    original = f"{root}/{folder_of('python:a')}"
    shutil.copytree(original, original + "-copy")
    before = len(full.show("a")["messages"])
    built = full.reindex(from_zero=True)
    assert len(built.strays) == 1 and len(full.show("a")["messages"]) == before


def test_compressed_parts_change_no_answer(root: str) -> None:
    """J7 D34"""
    with Keep.open(root) as keep:
        session = keep.session("s", cwd=".")
        for n in range(12):
            session.record(f"q{n}", ("assistant", "x" * 900_000))
        before = answers(keep)
        assert keep.compress() >= 2
        assert answers(keep) == before
        keep.reindex(from_zero=True)
        assert answers(keep) == before
        session.record("more")
        assert keep.compress() == 0
        assert keep.search("more")


# -- what it remembers of the files


def _small_parts(root: str) -> JournalWriters:
    host = RealHost()
    return JournalWriters(host, root, Ids(host.now, host.random), part_size=3_000)


def _say(journals: JournalWriters, times: int) -> Iterator[None]:
    """More than one part; whoever goes through it may look after each message."""
    for n in range(times):
        journals.say("python:s", Kind.MESSAGE_ADDED, {"role": "user", "text": f"{n} " + "x" * 200})
        yield


def _place(root: str, session: str = "python:s") -> Any:
    store = SqliteStore(f"{root}/index.sqlite")
    try:
        return store.place(folder_of(session))
    finally:
        store.close()


def test_sums_and_looks_are_the_same_however_the_index_came_to_be(root: str) -> None:
    """W4: each part's checksum is of all its bytes, followed bit by bit, from zero, hot or cold."""
    journals = _small_parts(root)
    with Keep.open(root) as keep:
        session = keep.session("s")
        for _ in _say(journals, 40):
            keep.sessions()
        stepwise = _place(root)
        keep.reindex(from_zero=True)
        assert _place(root) == stepwise and len(part_fingerprints.parse_sums(stepwise.sums)) > 3
        for number, known in part_fingerprints.parse_sums(stepwise.sums).items():
            data = part(f"{root}/{folder_of(session.id)}", number).read_bytes()
            assert known == (len(data), zlib.crc32(data))
        keep.compress(everything=True)
        keep.sessions()
        assert _place(root).sums == stepwise.sums and _place(root).looks != stepwise.looks


def test_a_finished_part_that_became_another_is_seen_when_something_is_appended(root: str) -> None:
    """W4: following what is new must not vouch for what is old."""
    journals = _small_parts(root)
    with Keep.open(root) as keep:
        session = keep.session("s")
        list(_say(journals, 40))
        keep.sessions()
        old = part(f"{root}/{folder_of(session.id)}", 1)
        old.write_bytes(old.read_bytes().replace(b"x", b"y", 1))
        list(_say(journals, 1))
        assert [f["kind"] for f in keep.show("s")["faults"]] == ["damage"]


def test_a_fault_that_a_frame_calls_mended_is_no_longer_counted(root: str) -> None:
    """J3: a fault until repaired or accepted; the frame may come long after the hole was read."""
    with Keep.open(root) as keep:
        session = keep.session("s")
        for n in range(5):
            session.record(f"prompt {n}")
        file = part(f"{root}/{folder_of(session.id)}", 1)
        rows = file.read_bytes().splitlines(keepends=True)
        file.write_bytes(b"".join(rows[:2] + rows[3:]))
    with Keep.open(root) as keep:
        [fault] = keep.show("s")["faults"]
        assert (fault["kind"], fault["mended"], keep.status()["faults"]) == ("gap", False, 1)
        mend = {"kind": "gap", "part": fault["part"], "at": fault["offset"], "size": fault["size"]}
        keep.context.journals().say(session.id, Kind.JOURNAL_MENDED, {"faults": [mend], "how": "accepted"})
        [fault] = keep.show("s")["faults"]
        assert fault["mended"] and keep.status()["faults"] == 0
        assert not any(check["check"] == "journal" and not check["ok"] for check in keep.doctor())
