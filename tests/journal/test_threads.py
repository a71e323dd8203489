"""Many threads at once: every promise is the same as for one."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable

import pytest

from dreamkeep import Keep
from dreamkeep.errors import NotDurable
from dreamkeep.event import Ids
from dreamkeep.host import RealHost
from dreamkeep.journal.places import folder_of
from dreamkeep.journal.reader import Reading
from dreamkeep.journal.scan import events
from dreamkeep.journal.writers import JournalWriters
from tests.helpers.journals import event


class Failing(RealHost):
    """Every `failing`th sync of an append fails; none where it is 0. The sync that begins a part succeeds."""

    def __init__(self, failing: int = 0) -> None:
        self.syncs = 0
        self.failing = failing
        self._new: set[int] = set()

    def create(self, path: str) -> int:
        handle = super().create(path)
        self._new.add(handle)
        return handle

    def sync(self, handle: int) -> None:
        self.syncs += 1
        begins = handle in self._new
        self._new.discard(handle)
        if not begins and self.failing and self.syncs % self.failing == 0:
            raise OSError(errno.EIO, "injected")
        os.fdatasync(handle)


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


def journals(host: RealHost, root: str, part_size: int = 30_000) -> JournalWriters:
    return JournalWriters(host, root, Ids(host.now, host.random), part_size=part_size, open_writers=20)


def texts(root: str, session: str) -> list[str]:
    reading = Reading(RealHost(), f"{root}/{folder_of(session)}")
    found = [e.body["text"] for _, e in events(reading)]
    assert reading.defects == [] and reading.tail is None
    return found


@pytest.mark.parametrize("failing", [0, 50])
def test_a_crowd_on_many_sessions_loses_doubles_and_reorders_nothing(root: str, failing: int) -> None:
    """J5: also when syncs fail; parts rotate and writers are parked meanwhile."""
    pool = journals(Failing(failing), root)

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


def test_a_crowd_on_one_session_shares_syncs(root: str) -> None:
    """J5: concurrent appenders share syncs."""

    host = Failing()
    pool = journals(host, root, part_size=1 << 22)

    def work(me: int) -> None:
        for n in range(30):
            pool.append("python:one", [event(f"{me}:{n}")])

    together(32, work)
    assert len(texts(root, "python:one")) == 960
    assert host.syncs < 700


def test_each_gets_his_own_refusal_and_the_others_go_on(root: str) -> None:
    pool = journals(RealHost(), root)
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
    """T10: no thread is told that its words are safe when no sync succeeds."""

    class Dead(RealHost):
        dead = False

        def sync(self, handle: int) -> None:
            if self.dead:
                raise OSError(errno.EIO, "dead")
            os.fdatasync(handle)

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
