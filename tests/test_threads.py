"""Many threads at once: one leads for all, and every promise is the same as alone."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from dreamkeep import Keep, aio
from dreamkeep.errors import NotDurable
from dreamkeep.event import Ids
from dreamkeep.host import RealHost
from dreamkeep.journal.places import folder_of
from dreamkeep.journal.pool import Journals
from dreamkeep.journal.reader import Reading, events

from .journals import event


class Watched(RealHost):
    """Counts group syncs, and can make some of them fail."""

    def __init__(self, failing: int = 0, unable: bool = False) -> None:
        self.groups: list[int] = []
        self.failing = failing
        self.unable = unable

    def sync_all(self, handles: Sequence[int]) -> list[OSError | None] | None:
        if self.unable:
            return None
        outcome = super().sync_all(handles)
        if outcome is None:
            pytest.skip("this kernel has no asynchronous fdatasync")
        self.groups.append(len(handles))
        if self.failing and len(self.groups) % self.failing == 0:
            outcome[0] = OSError(errno.EIO, "injected")
        return outcome


def together(count: int, work: Callable[[int], object]) -> None:
    problems: list[BaseException] = []

    def guarded(n: int) -> None:
        try:
            work(n)
        except BaseException as problem:
            problems.append(problem)

    threads = [threading.Thread(target=guarded, args=(n,)) for n in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
    assert not any(thread.is_alive() for thread in threads), "a thread never came back"
    if problems:
        raise problems[0]


def journals(host: RealHost, root: str, part_size: int = 30_000) -> Journals:
    return Journals(host, root, Ids(host.now, host.random), part_size=part_size, open_writers=20)


def texts(root: str, session: str) -> list[str]:
    reading = Reading(RealHost(), f"{root}/{folder_of(session)}")
    found = [e.body["text"] for _, e in events(reading)]
    assert reading.faults == [] and reading.tail is None
    return found


@pytest.mark.parametrize(("failing", "unable"), [(0, False), (3, False), (0, True)])
def test_a_crowd_on_many_sessions_loses_doubles_and_reorders_nothing(root: str, failing: int, unable: bool) -> None:
    """J5: with group syncs, with failing ones, and where the kernel can't; parts rotate and writers are parked meanwhile."""
    host = Watched(failing, unable)
    pool = journals(host, root)

    def work(me: int) -> None:
        for n in range(60):
            pool.append(f"python:s{me % 30}", [event(f"{me}:{n} " + "x" * 900)])

    together(60, work)
    pool.close()
    for s in range(30):
        there = texts(root, f"python:s{s}")
        for me in (s, s + 30):
            assert [t.split()[0] for t in there if t.startswith(f"{me}:")] == [f"{me}:{n}" for n in range(60)]
        assert len(there) == 120
    if not unable:
        assert max(host.groups) > 1, "nobody ever led for others"


def test_a_crowd_on_one_session_shares_syncs(root: str) -> None:
    """J5: concurrent appenders share syncs."""

    class Counting(Watched):
        syncs = 0

        def sync(self, handle: int) -> None:
            self.syncs += 1
            os.fdatasync(handle)

    host = Counting()
    pool = journals(host, root, part_size=1 << 22)

    def work(me: int) -> None:
        for n in range(30):
            pool.append("python:one", [event(f"{me}:{n}")])

    together(32, work)
    assert len(texts(root, "python:one")) == 960
    assert host.syncs + len(host.groups) < 700


def test_each_gets_his_own_refusal_and_the_others_go_on(root: str) -> None:
    pool = journals(Watched(), root)
    refused: list[int] = []

    def work(me: int) -> None:
        for n in range(30):
            if me == 7:
                with pytest.raises(Exception, match="only events"):
                    pool.append("python:s7", ["no event"])  # type: ignore[list-item]  # that is the point
                refused.append(n)
            else:
                pool.append(f"python:s{me}", [event(f"{n}")])

    together(16, work)
    assert len(refused) == 30
    assert all(texts(root, f"python:s{me}") == [f"{n}" for n in range(30)] for me in range(16) if me != 7)


def test_a_disk_that_fails_for_good_is_told_to_everybody(root: str) -> None:
    """T10: no thread is told that its words are safe when no sync succeeds, in a group or alone."""

    class Dead(Watched):
        dead = False

        def sync(self, handle: int) -> None:
            if self.dead:
                raise OSError(errno.EIO, "dead")
            os.fdatasync(handle)

        def sync_all(self, handles: Sequence[int]) -> list[OSError | None] | None:
            return [OSError(errno.EIO, "dead") for _ in handles] if self.dead else super().sync_all(handles)

    host = Dead()
    pool = journals(host, root)
    for me in range(16):
        pool.append(f"python:s{me}", [event("before")])
    host.dead = True
    told: list[int] = []

    def work(me: int) -> None:
        for _ in range(5):
            with pytest.raises(NotDurable):
                pool.append(f"python:s{me}", [event("never safe")])
            told.append(me)

    together(16, work)
    assert len(told) == 80
    host.dead = False
    together(16, lambda me: pool.append(f"python:s{me}", [event("after")]))
    assert all(texts(root, f"python:s{me}")[0] == "before" and texts(root, f"python:s{me}")[-1] == "after" for me in range(16))


def test_many_files_are_synced_at_once_and_each_says_how_it_went(tmp_path: Path) -> None:
    handles = [os.open(tmp_path / str(n), os.O_CREAT | os.O_WRONLY) for n in range(200)]
    for handle in handles:
        os.write(handle, b"x" * 5000)
    outcome = aio.sync_all(handles)
    if outcome is None:
        pytest.skip("this kernel has no asynchronous fdatasync")
    assert outcome == [None] * 200
    read_end, write_end = os.pipe()
    mixed = aio.sync_all([handles[0], write_end, handles[1]])
    assert mixed is not None and mixed[0] is None and isinstance(mixed[1], OSError)
    for handle in (*handles, read_end, write_end):
        os.close(handle)
    assert all(isinstance(p, OSError) for p in aio.sync_all([handles[0]]) or [])


def test_a_forked_child_of_a_busy_parent_can_record(root: str) -> None:
    """The parent's threads hold every lock there is at the moment of the fork; the child has its own."""
    keep = Keep.open(root)
    stop = threading.Event()
    sessions = [keep.session(f"s{n}") for n in range(12)]

    def busy(me: int) -> None:
        while not stop.is_set():
            sessions[me].record("parent")

    threads = [threading.Thread(target=busy, args=(n,)) for n in range(12)]
    for thread in threads:
        thread.start()
    children = []
    for n in range(5):
        child = os.fork()
        if child == 0:
            try:
                sessions[n].record(f"child {n}")
                keep.session(f"new{n}").record("child's own")
                os._exit(0)
            except BaseException:
                os._exit(1)
        children.append(child)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    stop.set()
    for thread in threads:
        thread.join()
    assert codes == [0] * 5
    for n in range(5):
        said = [m["text"] for m in keep.show(f"python:s{n}")["messages"]]
        assert said.count(f"child {n}") == 1 and keep.show(f"python:s{n}")["faults"] == []
    keep.close()
