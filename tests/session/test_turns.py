"""Turns: prompt → settle; every event counts, order is seq, and a late completion wins."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from itertools import permutations
from typing import Any

import pytest

from dreamkeep import Keep
from dreamkeep.capture.python import Turn as Handle
from dreamkeep.errors import NotDurable, Refused
from dreamkeep.event import Event, Kind
from dreamkeep.host import RealHost
from dreamkeep.session.turns import TurnView, step, view_turn
from tests.helpers.cli import Ran
from tests.helpers.faults import FragileHost, PowerCut


def said(kind: str, at: str = "t", **body: Any) -> Event:
    return Event("e", kind, at, {"turn": "T", **body})


SUBMIT = said(Kind.TURN_SUBMITTED, "2026-01-01T00:00:03", prompt="p", owner="o")
START = said(Kind.TURN_STARTED, "2026-01-01T00:00:02")
DONE = said(Kind.TURN_SETTLED, "2026-01-01T00:00:01", state="completed")
GUESS = said(Kind.TURN_SETTLED, "2026-01-01T00:00:00", state="interrupted", reason="guess")


def fold(*events: Event) -> TurnView:
    turn = None
    for seq, event in enumerate(events, 1):
        turn = step(turn, seq, event)
    assert turn is not None
    return turn


def test_all_events_of_a_turn_count_whatever_order_damage_left_them_in() -> None:
    """T8: not only the last one is looked at."""
    for order in permutations([SUBMIT, START, DONE]):
        turn = fold(*order)
        assert (turn.state, turn.prompt, turn.owner) == ("completed", "p", "o")
        assert (turn.submitted_at, turn.started_at, turn.settled_at) == (SUBMIT.at, START.at, DONE.at)


def test_a_clock_that_stepped_back_changes_nothing_about_a_turn() -> None:
    """T7: the events above run backwards in time; the order is seq."""
    assert fold(SUBMIT, START, DONE).state == "completed"


def test_a_late_completion_wins_over_an_inferred_interruption() -> None:
    """T2"""
    assert fold(SUBMIT, START, GUESS).state == "interrupted"
    assert fold(SUBMIT, START, GUESS, DONE).state == "completed"
    assert fold(SUBMIT, START, DONE, GUESS).state == "completed"


def test_the_first_word_about_the_end_stands() -> None:
    """T4: a recovery that says it again adds nothing."""
    failed = said(Kind.TURN_SETTLED, "later", state="failed", reason="r")
    assert fold(SUBMIT, DONE, failed) == fold(SUBMIT, DONE)


def test_liveness_is_asked_for_not_remembered() -> None:
    """T2: a fast turn, a live owner, a dead owner, nobody."""
    running = fold(SUBMIT, START)
    assert view_turn(running, lambda owner: owner == "o").state == "started"
    assert view_turn(running, lambda owner: False).state == "interrupted"
    assert view_turn(fold(SUBMIT, DONE), lambda owner: False).state == "completed"
    assert view_turn(fold(START), lambda owner: True).state == "open"


def test_the_same_words_typed_twice_are_two_turns(keep: Keep) -> None:
    """T3"""
    session = keep.session("a")
    first, second = session.submit("continue"), session.submit("continue")
    first.settle()
    turns = keep.show("a")["turns"]
    assert [(t["id"], t["state"]) for t in turns] == [(first.id, "completed"), (second.id, "submitted")]
    assert len(keep.show("a")["messages"]) == 2


def test_a_turns_id_does_not_depend_on_its_session(keep: Keep) -> None:
    """T9: a turn that is settled after its session went on under another id is settled where it was submitted."""
    before, after = keep.session("old"), keep.session("new")
    turn = before.submit("go")
    after.record("meanwhile")
    turn.settle()
    ids = {t["id"] for name in ("old", "new") for t in keep.show(name)["turns"]}
    assert len(ids) == 2
    assert [t["state"] for t in keep.show("old")["turns"]] == ["completed"]


def test_the_prompt_is_durable_before_work_starts_or_the_call_fails() -> None:
    """T1 T10: power cut or failure at every operation of submit; a turn that was handed out is there with its prompt."""
    for how in ("cut", "fail", "bad_sync"):
        for n in range(1, 200):
            host = FragileHost()
            keep = Keep.open("/keep", host=host, environment={})
            session = keep.session("a", cwd="/")
            host.plan(n, how)
            turn: Handle | None = None
            try:
                turn = session.submit("the prompt")
                turn.start()
            except (PowerCut, NotDurable):
                pass
            disk = host.reboot("garbage", seed=n)
            again = Keep.open("/keep", host=disk, environment={})
            prompts = [e.body["prompt"] for e in _events(disk) if e.kind == Kind.TURN_SUBMITTED]
            if turn is not None:
                assert prompts == ["the prompt"], (how, n)
            assert prompts in ([], ["the prompt"])
            again.session("a", cwd="/").record("goes on")
            if host.calls < n:
                assert n > 5
                break


def _events(host: FragileHost) -> list[Event]:
    from dreamkeep.journal.places import folder_of
    from dreamkeep.journal.scan import read_events

    return [e for _, e in read_events(host, f"/keep/{folder_of('python:a')}")]


OWNER = """
import sys
from dreamkeep import Keep
keep = Keep.open(sys.argv[1])
turn = keep.session("s").submit("work")
turn.start()
print(turn.id, flush=True)
sys.stdin.readline()
turn.settle("completed")
print("settled", flush=True)
"""


@pytest.fixture
def owner(root: str) -> Any:
    process = subprocess.Popen([sys.executable, "-c", OWNER, root], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.turn = process.stdout.readline().strip()  # type: ignore[attr-defined]  # carried along for the test
    yield process
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        assert pipe is not None
        pipe.close()


def state(ran: Ran) -> str:
    [turn] = ran.json["turns"]
    return str(turn["state"])


def test_a_killed_owner_means_interrupted_at_once(owner: Any, cli: Callable[..., Ran]) -> None:
    """T2 C7"""
    assert state(cli("show", "s", "--json")) == "started"
    owner.kill()
    owner.wait()
    assert state(cli("show", "s", "--json")) == "interrupted"


def test_an_owner_stopped_for_an_hour_still_runs(owner: Any, root: str) -> None:
    """T2 C7: SIGSTOP, and a clock that says an hour later."""

    class Later(RealHost):
        def now(self) -> int:
            return super().now() + 3600 * 10**9

    os.kill(owner.pid, signal.SIGSTOP)
    assert Keep.open(root, host=Later()).show("s")["turns"][0]["state"] == "started"
    os.kill(owner.pid, signal.SIGCONT)
    owner.stdin.write("\n")
    owner.stdin.flush()
    assert owner.stdout.readline() == "settled\n"
    assert Keep.open(root).show("s")["turns"][0]["state"] == "completed"


def test_a_completion_that_comes_late_from_elsewhere_wins(owner: Any, root: str) -> None:
    """T2"""
    owner.kill()
    owner.wait()
    with Keep.open(root) as keep:
        assert keep.show("s")["turns"][0]["state"] == "interrupted"
        keep.session("s").turn(owner.turn).settle("completed")
        assert keep.show("s")["turns"][0]["state"] == "completed"


def test_a_forked_child_does_not_keep_its_dead_parents_turn_alive(root: str) -> None:
    """T2: the child inherits copies of the handles; ownership must not come with them. And it can record for itself."""
    program = (
        "import os, sys, time\nfrom dreamkeep import Keep\n"
        "keep = Keep.open(sys.argv[1]); s = keep.session('s'); t = s.submit('parent'); t.start()\n"
        "r, w = os.pipe()\n"
        "if os.fork() == 0:\n"
        "    s.record('child', ('assistant', 'lives')); os.write(w, b'x'); time.sleep(60); os._exit(0)\n"
        "os.read(r, 1); print('ready', flush=True); time.sleep(60)"
    )
    parent = subprocess.Popen([sys.executable, "-c", program, root], stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert parent.stdout is not None and parent.stdout.readline() == "ready\n"
    try:
        with Keep.open(root) as keep:
            assert [t["state"] for t in keep.show("s")["turns"]] == ["started", "completed"]
            os.kill(parent.pid, signal.SIGKILL)
            parent.wait()
            assert [t["state"] for t in keep.show("s")["turns"]] == ["interrupted", "completed"]
            assert keep.show("s")["faults"] == []
    finally:
        os.killpg(parent.pid, signal.SIGKILL)
        parent.stdout.close()


def test_a_turn_as_a_block_settles_by_how_it_ends(keep: Keep) -> None:
    session = keep.session("a")
    with session.submit("one"):
        pass
    with pytest.raises(ZeroDivisionError), session.submit("two"):
        _ = 1 / 0
    with pytest.raises(KeyboardInterrupt), session.submit("three"):
        raise KeyboardInterrupt
    with session.submit("four") as turn:
        turn.settle("failed", "said so")
    assert [(t["state"], "reason" in t) for t in keep.show("a")["turns"]] == [
        ("completed", False),
        ("failed", True),
        ("cancelled", True),
        ("failed", True),
    ]


def test_what_makes_no_sense_is_refused_before_anything_is_written(keep: Keep) -> None:
    """W13 W8: absurd arguments are validated before anything happens."""
    session = keep.session("a")
    before = keep.summary("python:a")
    turn = session.submit("x")
    turn.settle()
    with pytest.raises(Refused, match="already completed"):
        turn.settle("failed")
    turn.settle("completed")
    wrong: list[Callable[[], object]] = [
        lambda: session.submit(None),  # type: ignore[arg-type]
        lambda: session.submit(b"bytes"),  # type: ignore[arg-type]
        lambda: session.record("p", ("assistant",)),  # type: ignore[arg-type]
        lambda: session.record("p", {"role": "assistant", "text": "t", "extra": 1}),
        lambda: session.record("p", state="done"),
        lambda: turn.add("", "text"),
        lambda: turn.add("assistant", "text", tool=["list"]),  # type: ignore[arg-type]
        lambda: turn.add("assistant", "text", tool={"x": object()}),
        lambda: turn.add("assistant", "text", tool={1: "x"}),  # type: ignore[dict-item]
        lambda: keep.session(""),
        lambda: keep.session("a\nb"),
        lambda: keep.session("x" * 2000),
        lambda: keep.session("a", agent="../up"),
        lambda: keep.session("a", agent="Claude"),
        lambda: keep.session("a", agent=""),
    ]
    for call in wrong:
        with pytest.raises((Refused, ValueError)):
            call()
    assert keep.summary("python:a").messages == before.messages + 1


def test_ids_from_outside_never_leave_the_keep(keep: Keep, root: str) -> None:
    """X1: paths, dots, other scripts, case; each is a session of its own, inside the folder."""
    names = [
        "../../etc/passwd",
        "..",
        "/abs",
        "a/b",
        "A/B",
        "Chat",
        "chat",
        "CHAT",
        "日本",
        "日 本",
        "x" * 500,
        "a:b",
        "-",
        "sess-1",
        "sess-12",
    ]
    for name in names:
        keep.session(name).record(f"in {name}")
    assert sorted(s.native_id for s in keep.sessions()) == sorted(names)
    for name in names:
        assert keep.show(f"python:{name}")["messages"][0]["text"] == f"in {name}"
    places = [os.path.join(at, f) for at, _, files in os.walk(os.path.dirname(root)) for f in files]
    assert all(p.startswith(root + "/") for p in places)
