"""SIGKILL, SIGSTOP and fork, done to real processes that write to a real disk."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from dreamkeep import Keep
from dreamkeep.capture.python import Turn
from dreamkeep.host import RealHost
from tests.helpers.killed_writers import kill_in_a_loop

from .writers import Account, Child, child, run, said


class AnHourLater(RealHost):
    @staticmethod
    def now() -> int:
        return time.time_ns() + 3600 * 10**9


# -- writers are killed


def test_a_few_kills_lose_double_and_reorder_nothing(tmp_path: Path) -> None:
    """W9 T5: four writers on two sessions; who dies in the middle of an append takes nothing acknowledged along."""
    kill_in_a_loop(str(tmp_path / "keep"), range(12))


@pytest.mark.slow
def test_two_hundred_kills_lose_double_and_reorder_nothing(tmp_path: Path) -> None:
    """W9 T5: as above; and some of the kills hit the middle of a call, or this proves nothing."""
    assert kill_in_a_loop(str(tmp_path / "keep"), range(220)).unanswered > 20


def test_two_processes_with_a_thousand_appends_each_make_one_order_of_two_thousand(tmp_path: Path) -> None:
    """W9: all 2000 present, none doubled, one gap-free order, in which neither waited for the other to be done."""
    root = str(tmp_path / "keep")
    with child("adds", root, "chat", "p", 1000) as p, child("adds", root, "chat", "q", 1000) as q:
        for running in (p, q):
            running.wait_for("ready")
        for running in (p, q):
            running.tell("go")
        accounts = [Account("p"), Account("q")]
        for account, running in zip(accounts, (p, q), strict=True):
            account.absorb(["try 1", "ack 1 0", *running.finish()])
    found = said(root, "chat")
    assert len(found) == len({s.id for s in found}) == 2000
    for account in accounts:
        assert account.acked == list(range(1, 1001))
        account.check(found)
    assert sum(a.text[0] != b.text[0] for a, b in pairwise(found)) > 2, "they never met, so this proves nothing"


# -- owners of turns are killed and stopped


@pytest.fixture
def root(tmp_path: Path) -> str:
    return str(tmp_path / "keep")


@pytest.fixture
def owner(root: str) -> Iterator[Child]:
    """A process in the middle of a turn."""
    with child("turn", root, "chat") as running:
        running.wait_for("turn ")
        yield running


def state(root: str, host: RealHost | None = None) -> str:
    """Of the one turn in the session, by a keep that was opened anew."""
    with Keep.open(root, host=host) as keep:
        (turn,) = keep.show("chat")["turns"]
        return str(turn["state"])


def test_a_turn_is_interrupted_at_once_when_its_owner_is_killed(root: str, owner: Child) -> None:
    """T2: no timeout, no sweep: who looks sees it. Before that it is no false alarm."""
    with Keep.open(root) as keep:
        assert keep.show("chat")["turns"][0]["state"] == "started"
        assert keep.status()["turns_running"] == 1
        owner.reap()
        assert keep.show("chat")["turns"][0]["state"] == "interrupted"
        assert keep.status()["turns_interrupted"] == 1
    assert state(root) == "interrupted"


def test_a_turn_whose_owner_is_stopped_for_an_hour_still_runs_and_then_completes(root: str, owner: Child) -> None:
    """T2: a live process is a live process, whatever the clock says; the completion that comes late is what happened."""
    os.kill(owner.pid, signal.SIGSTOP)
    os.waitpid(owner.pid, os.WUNTRACED)
    assert state(root) == "started"
    assert state(root, AnHourLater()) == "started"
    # Somebody else begins a turn (and sweeps what the dead left behind): that does not touch the one who is only stopped.
    with Keep.open(root, host=AnHourLater()) as keep:
        keep.session("other").submit("meanwhile")
        assert state(root, AnHourLater()) == "started"
    os.kill(owner.pid, signal.SIGCONT)
    owner.tell("settle")
    owner.wait_for("settled")
    owner.finish()
    assert state(root) == "completed"


def test_a_completion_that_another_process_brings_late_wins_over_interrupted(root: str, owner: Child) -> None:
    """T2: also when the interruption had been written down as such."""
    turn = owner.wait_for("turn ")
    owner.reap()
    assert state(root) == "interrupted"
    with Keep.open(root) as keep:
        Turn(keep.session("chat"), turn).settle("interrupted", "somebody noticed")
        assert state(root) == "interrupted"
        Turn(keep.session("chat"), turn).settle("completed")
        assert state(root) == "completed"
    with Keep.open(root) as keep:
        keep.reindex(from_zero=True)
    assert state(root) == "completed"


def test_a_forked_child_does_not_keep_the_turn_of_its_dead_parent_alive(root: str) -> None:
    """T2: a fork copies the handle of the lock; the owner is gone all the same."""
    with child("turn", root, "chat", "lives") as running:
        running.wait_for("turn ")
        running.wait_for("forked")
        assert state(root) == "started"
        running.reap()
        assert state(root) == "interrupted"


def test_a_forked_child_that_closes_the_keep_does_not_end_the_turn_of_its_living_parent(root: str) -> None:
    """T2: closing gives back one's own ownership, not that of the process one was copied from."""
    with child("turn", root, "chat", "closes") as running:
        running.wait_for("turn ")
        running.wait_for("forked")
        assert state(root) == "started"
        running.tell("settle")
        running.wait_for("settled")
        assert state(root) == "completed"


def test_a_killed_writer_is_followed_by_a_new_one_that_reads_its_unanswered_message_or_not_but_never_half(root: str) -> None:
    """T5: writers in a row, each killed while it writes long messages, each settling what the one before left."""
    account = Account("w")
    for _ in range(5):
        with child("messages", root, "chat", "w", account.next_but_long) as running:
            running.wait_for("ack")
            running.wait_for_long()
            time.sleep(random.uniform(0, 0.006))
            account.absorb(running.kill())
        account.check(said(root, "chat"))
    run("messages", root, "chat", "w", account.next, 5)
    account.tried += range(account.next, account.next + 5)
    found = said(root, "chat")
    account.check(found)
    assert [s.text.split(":")[1] for s in found[-5:]] == [str(n) for n in account.tried[-5:]]
