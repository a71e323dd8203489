"""Processes that write to a keep and are killed at random moments, and what must be left then."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Iterable
from typing import NamedTuple

from dreamkeep import Keep
from tests.real.writers import Account, Child, said

SESSIONS = {"w0": "a", "w1": "a", "w2": "b", "w3": "b"}


class Killed(NamedTuple):
    """`unanswered`: who died in the middle of a call. `promised`: messages that were acknowledged; all of them were there."""

    kills: int
    unanswered: int
    promised: int


def kill_in_a_loop(root: str, times: Iterable[object]) -> Killed:
    """Kill one of four writers at a random moment and start it again, so often."""
    accounts = {name: Account(name) for name in SESSIONS}
    alive: dict[str, Child] = {}
    kills = unanswered = 0
    try:
        for name, session in SESSIONS.items():
            alive[name] = Child("messages", root, session, name, 1)
        for _ in times:
            kills += 1
            victim = random.choice(list(SESSIONS))
            wait_for_a_random_moment(alive[victim])
            unanswered += kill_and_absorb(alive.pop(victim), accounts[victim])
            alive[victim] = Child("messages", root, SESSIONS[victim], victim, accounts[victim].next_but_long)
        for name in SESSIONS:
            unanswered += kill_and_absorb(alive.pop(name), accounts[name])
    finally:
        for running in alive.values():
            running.kill()
    for session in ("a", "b"):
        found = said(root, session)
        mine = [accounts[name] for name in SESSIONS if SESSIONS[name] == session]
        for account in mine:
            account.check(found)
        assert {s.text.split(":")[0] for s in found} <= {account.writer for account in mine}
        check_that_it_goes_on(root, session, len(found))
    shutil.rmtree(root)  # much of it, and nothing in it that anybody wants to see
    return Killed(kills + len(SESSIONS), unanswered, sum(len(account.acked) for account in accounts.values()))


def wait_for_a_random_moment(running: Child) -> None:
    """Until a random moment: of starting (and settling what others left), of writing, or of writing something long."""
    kind = random.random()
    if kind < 0.2:
        time.sleep(random.uniform(0, 0.1))
        return
    running.wait_for("ack")
    if kind < 0.6:
        time.sleep(random.uniform(0, 0.1))
    else:
        running.wait_for_long()
        time.sleep(random.uniform(0, 0.006))


def kill_and_absorb(running: Child, account: Account) -> bool:
    assert running.process.poll() is None, f"{account.writer} ended by itself: {running.lines[-3:]}"
    before = len(account.tried)
    unanswered = account.absorb(running.kill())
    return unanswered and len(account.tried) > before


def check_that_it_goes_on(root: str, session: str, before: int) -> None:
    with Keep.open(root) as keep:
        keep.session(session).record("and now?", ("assistant", "It goes on."))
        assert [m["text"] for m in keep.show(session)["messages"][before:]] == ["and now?", "It goes on."]
        assert keep.show(session)["faults"] == []
    assert len(said(root, session)) == before + 2
