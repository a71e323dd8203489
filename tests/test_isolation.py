"""One odd value, one bad file, one interrupt, one locked session: the others never notice, and it is told."""

from __future__ import annotations

import asyncio
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest

from dreamkeep import Keep
from dreamkeep.capture.ingest_file import FileIngest
from dreamkeep.capture.sources import rows
from dreamkeep.errors import BadUsage, Busy, Deleted, Refused
from dreamkeep.event import Kind
from dreamkeep.host import RealHost
from dreamkeep.index import build
from dreamkeep.journal.places import folder_of
from dreamkeep.journal.reader import Reading
from dreamkeep.journal.writers import JournalWriters
from dreamkeep.verbs.sessions import open_session
from tests.agents import hermes
from tests.helpers.claude_home import home_with, record
from tests.helpers.journals import HOST, IDS, event, part, texts
from tests.helpers.keep_answers import answers


def folder(root: str, name: str) -> Path:
    return Path(root) / folder_of(f"python:{name}")


def bad(keep: Keep) -> dict[str, str]:
    return {c["check"]: c["what"] for c in keep.doctor() if not c["ok"]}


# -- values


def test_any_text_in_any_place_is_stored_and_shown(keep: Keep) -> None:
    """W7: reasons, roles, titles, names of tools; a surrogate in one of them must not hide all sessions."""
    odd = "no file caf\udce9.txt"
    session = keep.session("s", title=odd)
    turn = session.submit(odd)
    turn.add(odd, odd, tool={odd: odd})
    turn.settle("failed", reason=odd)
    session.suspend(odd)
    shown = keep.show("s")
    assert shown["session"]["title"] == shown["turns"][0]["reason"] == shown["messages"][1]["role"] == odd
    assert keep.search("caf")[0].text == odd


def test_what_is_no_text_is_refused_at_once(keep: Keep) -> None:
    """W8 W13"""
    session = keep.session("s")
    turn = session.submit("x")
    deep: Any = []
    for _ in range(3000):
        deep = [deep]
    wrong: list[Callable[[], object]] = [
        lambda: turn.settle("failed", reason={"code": 1}),  # type: ignore[arg-type]
        lambda: session.end(reason=5),  # type: ignore[arg-type]
        lambda: keep.session("t", title=["a"]),  # type: ignore[arg-type]
        lambda: keep.session(42),  # type: ignore[arg-type]
        lambda: session.record("p", ("assistant",)),  # type: ignore[arg-type]
        lambda: turn.add("assistant", "x", tool={"deep": deep}),
        lambda: turn.add("assistant", "x", tool={"n": 10**5000}),
        lambda: keep.session("u", cwd="a\0b"),
    ]
    for call in wrong:
        with pytest.raises((Refused, BadUsage)):
            call()
    assert keep.show("s")["faults"] == []


def test_a_title_given_later_is_taken_once(keep: Keep) -> None:
    for _ in range(3):
        keep.session("s", title="first")
    keep.session("s", title="second")
    assert keep.summary("python:s").title == "second"
    assert sum(b"session.titled" in line for line in part(folder(keep.root, "s")).read_bytes().split(b"\n")) == 2


# -- files


@pytest.mark.parametrize("trouble", ["stray file", "part is a folder", "unreadable", "empty folder", "file for an agent"])
def test_what_cannot_be_read_hides_nothing_else(root: str, trouble: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """B2: and doctor tells of it."""
    with Keep.open(root) as keep:
        keep.session("good").record("pears")
        keep.session("bad").record("plums")
    place = folder(root, "bad")
    if trouble == "stray file":
        (place.parent / ".DS_Store").write_text("x")
    elif trouble == "file for an agent":
        (place.parent.parent / ".DS_Store").write_text("x")
    elif trouble == "empty folder":
        (place.parent / "empty").mkdir()
    elif trouble == "part is a folder":
        part(place).unlink()
        part(place).mkdir()
    else:
        real = RealHost.open_stream
        monkeypatch.setattr(RealHost, "open_stream", lambda self, path: _refuse(path) if str(place) in path else real(self, path))
    with Keep.open(root) as keep:
        assert "good" in {s.native_id for s in keep.sessions()}
        assert keep.search("pears")
        harmless = trouble in ("stray file", "empty folder", "file for an agent")
        assert ("stray" in bad(keep)) == (not harmless)
        assert keep.status()["strays"] == (0 if harmless else 1)


def _refuse(path: str) -> Any:
    raise OSError(5, "Input/output error", path)


def test_a_bit_flipped_in_the_head_hides_no_session(root: str) -> None:
    """W4: the only head of a journal; its session says its name elsewhere, too."""
    with Keep.open(root) as keep:
        keep.session("s").record("one")
    file = part(folder(root, "s"))
    data = bytearray(file.read_bytes())
    data[20] ^= 1
    file.write_bytes(data)
    with Keep.open(root) as keep:
        assert [m["text"] for m in keep.show("s")["messages"]] == ["one"]
        assert "journal" in bad(keep)
        keep.session("s").record("two")
        assert [m["text"] for m in keep.show("s")["messages"]] == ["one", "two"]


@pytest.mark.parametrize("change", ["parts gone", "middle part gone", "same size", "tombstone lost"])
def test_a_change_behind_the_indexs_back_is_seen(root: str, change: str) -> None:
    """D34: incremental and from zero give the same answers, whatever happened to the files meanwhile."""
    with Keep.open(root) as keep:
        keep.session("t", cwd="/").record("to be deleted")
        session = keep.session("s", cwd="/")
        for n in range(12):
            session.record(f"m{n} " + "x" * 900_000)
        answers(keep)
        place = folder(root, "s")
        if change == "parts gone":
            for file in place.glob("*.jsonl"):
                file.unlink()
        elif change == "middle part gone":
            part(place, 2).unlink()
        elif change == "same size":
            last = sorted(place.glob("*.jsonl"))[-1]
            last.write_bytes(last.read_bytes().replace(b'"m11 ', b'"m1! '))
        else:
            journal = Path(root, "journal", "keep", "000001.jsonl")
            size = journal.stat().st_size
            shutil.copytree(folder(root, "t"), Path(root, "saved"))
            keep.delete("t")
            os.truncate(journal, size)
            shutil.copytree(Path(root, "saved"), folder(root, "t"))
        before = answers(keep)
        keep.reindex(from_zero=True)
        assert answers(keep) == before


@pytest.mark.parametrize("in_place", [True, False])
def test_damage_in_what_was_indexed_long_ago_is_told_once_the_session_goes_on(root: str, in_place: bool) -> None:
    """W4 B3: by the hole that the next writer records; or at once, when the file was replaced by another."""
    with Keep.open(root) as keep:
        session = keep.session("s", cwd="/")
        for word in ("alpha", "beta", "gamma"):
            session.record(word)
        answers(keep)
    file = part(folder(root, "s"))
    damaged = file.read_bytes().replace(b'"beta"', b'"bet4"') + b"garbage"
    if in_place:
        file.write_bytes(damaged)
    else:
        Path(f"{file}.new").write_bytes(damaged)
        os.replace(f"{file}.new", file)
    with Keep.open(root) as keep:
        assert in_place or "journal" in bad(keep)
        keep.session("s", cwd="/").record("delta")
        assert [m["text"] for m in keep.show("s")["messages"]] == ["alpha", "gamma", "delta"]
        assert "damage" in bad(keep)["journal"]
        before = answers(keep)
        keep.reindex(from_zero=True)
        assert answers(keep) == before


def test_damage_in_the_keeps_own_journal_is_told(root: str) -> None:
    """B3: that one holds the tombstones."""
    with Keep.open(root) as keep:
        for name in ("a", "b", "c"):
            keep.session(name).record("x")
            keep.delete(name)
    journal = Path(root, "journal", "keep", "000001.jsonl")
    journal.write_bytes(journal.read_bytes().replace(b"python:b", b"python:B"))
    with Keep.open(root) as keep:
        assert "the keep itself: damage" in bad(keep)["journal"]


def test_an_answer_waits_for_a_follower_that_is_ahead(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """B7: another process indexes the same journal at the same time; the answer is whole all the same."""
    monkeypatch.setattr(build, "_BATCH_EVENTS", 10)
    with Keep.open(root) as keep, Keep.open(root) as other:
        session = keep.session("s")
        for n in range(100):
            session.record(f"m{n}")
        once = [1]
        reading = build._Stretch.read

        def overtaken(self: Any) -> Any:
            batches = reading(self)
            yield next(batches)
            if once:
                once.clear()
                other.sessions()
            yield from batches

        monkeypatch.setattr(build._Stretch, "read", overtaken)
        assert keep.sessions()[0].messages == 100
        assert not once


# -- deletion


def test_a_deleted_session_takes_nothing_however_it_was_opened(root: str) -> None:
    """K2 R5: the same handle, another process' handle, one that was checked before; again and again."""
    with Keep.open(root) as keep, Keep.open(root) as other:
        handles = [keep.session("x"), other.session("x")]
        late = open_session(other.context, "python:x")
        for handle in handles:
            handle.record("before")
        keep.delete("x")
        for _ in range(2):
            for handle in (*handles, late):
                with pytest.raises(Deleted):
                    handle.record("ZZSECRET")
        assert not any(b"ZZSECRET" in p.read_bytes() for p in Path(root).rglob("*") if p.is_file())
        keep.undelete("x")
        handles[0].record("allowed again")
        assert [m["text"] for m in keep.show("x")["messages"]] == ["allowed again"]


def test_a_deletion_waits_for_those_who_still_read_the_words(keep: Keep, root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """K7: it is not called done while a word is left; the next writer finishes it."""
    monkeypatch.setattr("dreamkeep.context.INDEX_WAIT_S", 0.2)
    keep.session("x").record("xylophone")
    keep.session("y").record("stays")
    keep.search("xylophone")
    reader = apsw.Connection(f"{root}/index.sqlite")
    rows = reader.execute("BEGIN; SELECT text FROM messages")
    next(rows)
    with pytest.raises(Busy):
        keep.delete("x")
    assert [s.native_id for s in keep.sessions()] == ["y"]
    rows.close(True)
    reader.close()
    with Keep.open(root) as later:
        later.session("y").record("more")
        assert bad(later) == {}
    assert not any(b"xylophon" in p.read_bytes() for p in Path(root).rglob("*") if p.is_file())


def test_a_deletion_that_cannot_be_finished_stops_nobody(root: str) -> None:
    with Keep.open(root) as keep:
        keep.session("x").record("gone")
        (folder(root, "x") / "somebody's folder").mkdir()
        with pytest.raises(Exception, match="deleting"):
            keep.delete("x")
    warned: list[str] = []
    with Keep.open(root) as keep:
        keep.warn = warned.append
        keep.session("y").record("works")
        assert warned and "delete" in bad(keep)
        assert [s.native_id for s in keep.sessions()] == ["y"]


# -- interrupts, locks, threads


def test_an_interrupt_while_a_file_is_closed_does_not_wedge_the_writer(root: str) -> None:
    class Interrupting(RealHost):
        armed = False

        def close(self, handle: int) -> None:
            super().close(handle)
            if self.armed:
                self.armed = False
                raise KeyboardInterrupt

    host = Interrupting()
    pool = JournalWriters(host, root, IDS)
    pool.append("python:s", [event("one")])
    for n in range(4):
        host.armed = True
        try:
            pool.writer("python:s").park()
        except KeyboardInterrupt:
            pass
        pool.append("python:s", [event(f"after {n}")])
    assert len(texts(f"{root}/{folder_of('python:s')}")) == 5


def test_one_locked_session_does_not_stall_the_crowd(root: str) -> None:
    """J5: whoever holds a lock too long delays his own session only."""
    pool = JournalWriters(HOST, root, IDS)
    for n in range(20):
        pool.append(f"python:s{n}", [event("first")])
    holder = HOST.open_lock(f"{root}/{folder_of('python:s0')}/lock")
    assert HOST.try_lock(holder)
    done: list[int] = []

    def work(me: int) -> None:
        for n in range(20):
            pool.append(f"python:s{me}", [event(f"{n}")])
        done.append(me)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads[1:]:
        thread.join(timeout=30)
    assert sorted(done) == list(range(1, 20)), "only the locked one waits"
    HOST.unlock(holder)
    threads[0].join(timeout=30)
    HOST.close(holder)
    assert len(texts(f"{root}/{folder_of('python:s0')}")) == 21


def test_a_locked_journal_is_not_compressed_under_its_writer(root: str) -> None:
    with Keep.open(root) as keep:
        session = keep.session("s")
        for n in range(12):
            session.record(f"m{n} " + "x" * 900_000)
        holder = HOST.open_lock(f"{folder(root, 's')}/lock")
        assert HOST.try_lock(holder) and keep.compress() == 0
        HOST.close(holder)
        assert keep.compress() > 0


def test_first_calls_from_many_threads_make_one_of_each(root: str) -> None:
    made: list[int] = []

    class Counting(RealHost):
        def most_handles(self) -> int:  # asked once for each pool of journals
            made.append(1)
            return super().most_handles()

    with Keep.open(root, host=Counting()) as keep:
        threads = [threading.Thread(target=lambda n=n: keep.session(f"s{n}").submit("x")) for n in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert made == [1]
        assert len(os.listdir(f"{root}/state/owners")) == 1


def test_a_cancelled_task_cancels_its_turn(keep: Keep) -> None:
    session = keep.session("s")
    with pytest.raises(asyncio.CancelledError), session.submit("x"):
        raise asyncio.CancelledError
    assert keep.show("s")["turns"][0]["state"] == "cancelled"


def test_ending_from_two_sides_is_one_event(root: str) -> None:
    """M2: decided under the lock, not by who looked first."""
    with Keep.open(root) as one, Keep.open(root) as two:
        sides = [one.session("s"), two.session("s")]
        for side in sides:
            side.end()
        frames = Reading(HOST, str(folder(root, "s")))
        assert sum(f["kind"] == Kind.SESSION_ENDED for f in frames) == 1


def test_an_interrupt_just_after_locking_leaves_no_lock_behind(root: str) -> None:
    class Interrupting(RealHost):
        armed = False

        def try_lock(self, handle: int, *, shared: bool = False) -> bool:
            got = super().try_lock(handle, shared=shared)
            if self.armed:
                self.armed = False
                raise KeyboardInterrupt
            return got

    host = Interrupting()
    pool, other = JournalWriters(host, root, IDS), JournalWriters(HOST, root, IDS)
    pool.append("python:s", [event("one")])
    for events in ([event("a"), event("b")], [event("c")], []):  # the long way, and the quick one
        host.armed = True
        with pytest.raises(KeyboardInterrupt):
            pool.append("python:s", events)
        probe = HOST.open_lock(f"{root}/{folder_of('python:s')}/lock")
        assert HOST.try_lock(probe)
        HOST.close(probe)
    other.append("python:s", [event("two")])
    assert texts(f"{root}/{folder_of('python:s')}") == ["one", "two"]


def test_undeleting_waits_for_a_deletion_under_way(keep: Keep, root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """K2: lifted half-way, a torn session would come back."""
    monkeypatch.setattr("dreamkeep.recovery.delete.delete._WAIT_S", 0.1)
    keep.session("x").record("gone")
    keep.delete("x")
    holder = HOST.open_lock(f"{root}/state/delete.lock")
    assert HOST.try_lock(holder)
    with pytest.raises(Busy):
        keep.undelete("x")
    HOST.close(holder)
    assert keep.undelete("x") == "python:x"


@pytest.mark.parametrize("agent", ["claude", "hermes"], ids=["a file", "rows"])
def test_a_source_at_which_our_own_code_fails_stops_no_other(
    tmp_path: Path, root: str, monkeypatch: pytest.MonkeyPatch, agent: str
) -> None:
    """Whatever it raises is that source's failure, with its reason, and is tried again by the next ingest."""
    home, _ = home_with(tmp_path, record(1))
    hermes.write(home)

    def mistake(*_: object) -> object:
        raise TypeError("cannot convert 'NoneType' object to bytes")

    with monkeypatch.context() as patched, Keep.open(root) as keep:
        patched.setattr(FileIngest if agent == "claude" else rows, "ingest" if agent == "claude" else "rows", mistake)
        outcomes = list(keep.ingest(home=home))
        failed = [one for one in outcomes if one.state == "failed"]
        assert failed
        assert {one.agent for one in failed} == {agent}
        assert {one.problem for one in failed} == {"TypeError: cannot convert 'NoneType' object to bytes"}
        assert {one.agent for one in keep.sessions()} == {"claude", "hermes"} - {agent}
    with Keep.open(root) as keep:
        assert not [one for one in keep.ingest(home=home) if one.problem]
        assert {one.agent for one in keep.sessions()} == {"claude", "hermes"}
