"""Frames of sessions that the agent has not confirmed yet: where they wait, and how they reach their session."""

from __future__ import annotations

import json
import os
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from dreamkeep import Keep
from dreamkeep.capture.python import Owners
from dreamkeep.capture.tap.copy import Copier, TapFrame
from dreamkeep.capture.tap.route import Router
from dreamkeep.event import Ids, Kind
from dreamkeep.host import Host, RealHost
from dreamkeep.journal.places import KEEP, folder_of
from dreamkeep.journal.scan import read_bodies
from dreamkeep.journal.writers import JournalWriters
from dreamkeep.recovery.delete.delete import Deleting
from dreamkeep.session.raw import unpack
from tests.helpers.faults import LOSSES, FragileHost, cut_at_every_step
from tests.helpers.tapped import Tapped, folders, journaled, wait_for

ROOT = "/k"
HERE = "acp:here"


class Kept(NamedTuple):
    conn: str
    named: str
    n: int
    side: str
    at: int
    line: bytes


def kept(host: Host, root: str, folder: str) -> list[Kept]:
    """Every frame of a journal, including doubled ones."""
    found = []
    for _, body in read_bodies(host, f"{root}/{folder}", {Kind.TAP_FRAMES}):
        about = json.loads(body)
        for (n, side, at, *_), line in zip(about["frames"], unpack(body), strict=True):
            found.append(Kept(about["conn"], about.get("named", ""), n, side, at, line))
    return found


def copier(host: Host, *, excluded: Callable[[str, str], bool] = lambda cwd, project: False) -> Copier:
    ids = Ids(host.now, host.random)
    journals, owners = JournalWriters(host, ROOT, ids), Owners(host, ROOT, ids.new)
    made = Copier(
        host,
        ROOT,
        lambda: journals,
        ids,
        lambda: owners,
        Router(None, ["x"]),
        command="x",
        scrape=True,
        excluded=excluded,
        say=lambda text: None,
    )
    made._over.set()  # nobody waits between two tries
    return made


def said(*lines: tuple[str, dict[str, Any] | bytes], first: int = 1) -> list[TapFrame]:
    return [
        TapFrame(n, side, 1000 + n, line if isinstance(line, bytes) else json.dumps(line).encode())
        for n, (side, line) in enumerate(lines, first)
    ]


def ask(id: int, method: str, session: str, **params: Any) -> tuple[str, dict[str, Any]]:
    return "c", {"id": id, "method": method, "params": {"sessionId": session, **params}}


TALK = said(
    ("c", {"id": 1, "method": "initialize"}),
    ask(2, "session/load", "here", cwd="/w"),
    ask(3, "session/load", "gone", cwd="/w"),
    ask(4, "session/prompt", "here", prompt=[{"type": "text", "text": "go on"}]),
    ("e", b"looking for it"),
    ("a", {"id": 3, "error": {"code": -32002}}),
    ("a", {"id": 2, "result": {}}),
    ("a", {"id": 4, "result": {"stopReason": "end_turn"}}),
)
#: As they may come: what is met, and what is refused, has waited in the keep's own journal.
BATCHES = [TALK[:1], TALK[1:3], TALK[3:5], TALK[5:6], TALK[6:7], TALK[7:]]
OF_HERE = [2, 4, 5, 7, 8]


def check(host: Host, promised: Sequence[TapFrame]) -> list[Kept]:
    """Checks that no promised frame is lost, doubled or changed, and that only a confirmed session is open. Gives its frames."""
    of_keep, of_here = kept(host, ROOT, KEEP), kept(host, ROOT, folder_of(HERE))
    original = {frame.n: (frame.side, frame.at, frame.line) for frame in TALK}
    for found in (of_keep, of_here):
        assert [one.n for one in found] == sorted({one.n for one in found})
        assert all((one.side, one.at, one.line) == original[one.n] for one in found)
    assert {frame.n for frame in promised} <= {one.n for one in (*of_keep, *of_here)}
    assert [one.n for one in of_here] == OF_HERE[: len(of_here)]
    assert {one.n: one.named for one in of_keep}.items() <= {1: "", 2: "here", 3: "gone", 4: "here", 5: "here", 6: "gone"}.items()
    sessions = host.names(f"{ROOT}/journal/sessions/acp") if host.stat(f"{ROOT}/journal/sessions/acp") else []
    assert sessions in ([], [os.path.basename(folder_of(HERE))])
    return of_here


def test_waiting_frames_reach_their_session_once_in_order_and_unchanged() -> None:
    host = FragileHost()
    tap = copier(host)
    for n, batch in enumerate(BATCHES):
        tap.keep(batch)
        found = check(host, TALK[: batch[-1].n])
        assert bool(found) == (n >= 4)
    assert [one.n for one in found] == OF_HERE


def cut_everywhere() -> Iterator[tuple[FragileHost, list[TapFrame]]]:
    promised: list[TapFrame] = []

    def talk(host: FragileHost) -> None:
        promised.clear()
        tap = copier(host)
        for batch in BATCHES:
            tap.keep(batch)
            promised.extend(batch)

    for n, host in cut_at_every_step(lambda seed: FragileHost(seed=seed), talk):
        for loss in LOSSES:
            yield host.reboot(loss, seed=n), list(promised)
    assert n > 40


def test_a_power_cut_at_every_step_loses_no_frame_and_doubles_none() -> None:
    """Whatever part of the page cache is lost. The next connection begins where this one ended."""
    for disk, promised in cut_everywhere():
        before = check(disk, promised)
        tap = copier(disk)
        tap.keep(TALK[1:2])
        tap.keep(TALK[6:7])
        of_here = kept(disk, ROOT, folder_of(HERE))
        assert [one for one in of_here if one.conn != tap.conn] == before
        assert [one.n for one in of_here if one.conn == tap.conn] == [2, 7]


@pytest.mark.parametrize("how", ["fail", "tear", "bad_sync"])
def test_an_operation_that_fails_once_costs_no_frame(how: str) -> None:
    for n in count(1):
        host = FragileHost(seed=n)
        host.plan(n, how)
        tap = copier(host)
        for batch in BATCHES:
            tap.keep(batch)
        assert [one.n for one in check(host, TALK)] == OF_HERE
        if host.calls < n:
            break
    assert n > 40


# -- excluded and deleted sessions


def words(host: FragileHost) -> bytes:
    def all_below(folder: str) -> Iterator[bytes]:
        for path in (f"{folder}/{name}" for name in host.names(folder)):
            found = host.stat(path)
            if found and found.is_folder:
                yield from all_below(path)
            else:
                yield host.open_stream(path).read()

    return b"".join(all_below(ROOT))


def test_waiting_frames_of_an_excluded_folder_are_not_kept() -> None:
    host = FragileHost()
    tap = copier(host, excluded=lambda cwd, project: cwd == "/secret")
    tap.keep(said(ask(1, "session/load", "s", cwd="/secret")))
    tap.keep(said(ask(2, "session/prompt", "s", prompt="hush"), first=2))
    tap.keep(said(ask(3, "session/load", "other", cwd="/open"), first=3))
    assert b"hush" not in words(host) and b"/open" in words(host)


@pytest.mark.parametrize("introduced", [False, True])
def test_waiting_frames_of_a_deleted_session_are_not_kept(introduced: bool) -> None:
    """Whatever the agent's name is: clients may send frames before it says its name."""
    host = FragileHost()
    tap = copier(host)
    tap._journals().say("", Kind.SESSION_DELETED, {"session": "gemini:gone"})
    tap.keep(said(("c", {"id": 1, "method": "initialize"})))
    if introduced:
        tap.keep(said(("a", {"id": 1, "result": {"agentInfo": {"name": "gemini-cli"}}}), first=2))
    tap.keep(said(ask(2, "session/prompt", "gone", prompt="hush"), first=3))
    tap.keep(said(ask(3, "session/prompt", "other", prompt="pears"), first=4))
    assert b"hush" not in words(host) and b"pears" in words(host)


@pytest.mark.parametrize("introduction", [{"agentInfo": {"name": "gemini-cli"}}, {}])
def test_a_session_of_another_agent_with_the_id_of_a_deleted_session_is_kept(introduction: dict[str, Any]) -> None:
    """An agent that does not say its name when asked gets the name of its command."""
    host = FragileHost()
    tap = copier(host)
    tap._journals().say("", Kind.SESSION_DELETED, {"session": "claude:gone"})
    tap.keep(said(("c", {"id": 1, "method": "initialize"}), ("a", {"id": 1, "result": introduction})))
    tap.keep(said(ask(2, "session/prompt", "gone", prompt="pears"), first=3))
    assert b"pears" in words(host)


@pytest.mark.parametrize("listed", [False, True])
def test_a_deletion_between_a_taps_check_and_its_append_leaves_none_of_its_words(listed: bool) -> None:
    """Neither in its waiting frames, nor in a list with its title."""
    host = FragileHost()
    tap = copier(host)
    ids = Ids(host.now, host.random)
    other, given = JournalWriters(host, ROOT, ids), tap._journals
    tap.keep(said(("c", {"id": 1, "method": "initialize"}), ask(2, "session/prompt", "gone", prompt="hush")))

    def deleting() -> JournalWriters:
        """Deletes the session after the tap's check."""
        tap._journals = given
        Deleting(host, ROOT, other, lambda names, pages: None).delete("acp:gone")
        return given()

    tap._journals = deleting
    title = {"id": 3, "result": {"sessions": [{"sessionId": "gone", "title": "hush"}]}}
    tap.keep(said(("a", title) if listed else ask(4, "session/prompt", "gone", prompt="hush"), first=3))
    tap.keep(said(ask(5, "session/prompt", "other", prompt="pears"), first=4))
    assert b"hush" not in words(host) and b"pears" in words(host)


def test_frames_with_an_invalid_session_id_are_in_the_keeps_own_journal_once() -> None:
    host = FragileHost()
    tap = copier(host)
    for name in ("x" * 600, "\ud800"):
        tap.keep(said(ask(1, "session/load", name)))
        tap.keep(said(("a", {"id": 1, "result": {}}), first=2))
    assert [(one.n, one.named) for one in kept(host, ROOT, KEEP)] == [(1, ""), (2, "")] * 2


@pytest.mark.parametrize("met", [False, True])
def test_deleting_a_session_removes_its_waiting_frames_and_no_others(tmp_path: Path, met: bool) -> None:
    """K7: even if the agent never confirmed it; long frames are in pieces."""
    root = str(tmp_path / "k")
    with Keep.open(root) as keep:
        keep.session("here", agent="acp").record("old", ("assistant", "words"))
        with Tapped(root, sys.executable, "-c", SPARING) as tapped:
            for session, prompt in [("here", "hush"), ("here", "hush" * 500_000), ("there", "pears")]:
                tapped.send("session/prompt", sessionId=session, prompt=prompt)
            wait_for(lambda: len(journaled(root, "")) == 3)
            if met:
                tapped.send("answer", sessionId="here")
                wait_for(lambda: journaled(root, HERE))
            tapped.process.kill()
        keep.delete(HERE)
    held = [path.read_bytes() for path in Path(root).rglob("*") if path.is_file()]
    assert not any(b"hush" in data for data in held) and any(b"pears" in data for data in held)


#: Says which sessions it has, as everybody can ask it.
LISTING = """import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    listed = {"sessions": [{"sessionId": "here", "title": "hush"}]}
    result = listed if asked["method"] == "session/list" else {"agentInfo": {"name": "pears"}}
    print(json.dumps({"id": asked["id"], "result": result}), flush=True)
"""


def test_no_title_of_a_deleted_session_stays_in_a_list_of_another_connection(tmp_path: Path) -> None:
    """K7: neither in frames from before the deletion nor in later ones. The other lines of that connection stay."""
    root = str(tmp_path / "k")

    def heard(count: int) -> list[bytes]:
        with Tapped(root, sys.executable, "-c", LISTING) as tapped:
            tapped.send("initialize")
            tapped.send("session/list")
            wait_for(lambda: len(kept(RealHost(), root, KEEP)) == count)
            tapped.process.kill()
        return [one.line for one in kept(RealHost(), root, KEEP)]

    with Keep.open(root) as keep:
        keep.session("here", agent="acp").record("hush")
        assert any(b"hush" in line for line in heard(4))
        keep.delete(HERE)
    for lines in ([one.line for one in kept(RealHost(), root, KEEP)], heard(8)):
        assert sum(b"pears" in line for line in lines) == len(lines) // 4
        assert not any(b"hush" in path.read_bytes() for path in Path(root).rglob("*") if path.is_file())


# -- kill -9

SILENT = "import sys\nfor line in sys.stdin: pass"
#: Says nothing until it is told to.
SPARING = """import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    if asked["method"] == "answer":
        print(json.dumps({"id": asked["id"], "result": {}}), flush=True)
"""
SLOW = """import json, sys, time
for line in sys.stdin:
    time.sleep(0.02)
    print(json.dumps({"id": json.loads(line)["id"], "result": {}}), flush=True)
"""


def test_a_tap_that_is_killed_before_the_agents_first_answer_has_kept_the_request(tmp_path: Path) -> None:
    root = str(tmp_path / "k")
    with Tapped(root, sys.executable, "-c", SILENT) as tapped:
        tapped.send("initialize", protocolVersion=1)
        tapped.send("authenticate", methodId="key")
        tapped.send("session/new", cwd="/w", mcpServers=[])
        tapped.send("session/load", sessionId="here", cwd="/w", mcpServers=[])
        tapped.send("session/prompt", sessionId="here", prompt=[{"type": "text", "text": "what would be lost"}])
        wait_for(lambda: len(journaled(root, "")) == 5)
        tapped.process.kill()
    assert folders(root) == [KEEP]
    waiting = kept(RealHost(), root, KEEP)
    methods = ["initialize", "authenticate", "session/new", "session/load", "session/prompt"]
    assert [json.loads(one.line)["method"] for one in sorted(waiting, key=lambda one: one.n)] == methods
    with Tapped(root) as tapped:
        tapped.ask("session/load", sessionId="here", cwd="/w", mcpServers=[])
        tapped.end()
    with Keep.open(root) as keep:
        assert [one.id for one in keep.sessions()] == [HERE]
    assert [one for one in kept(RealHost(), root, KEEP) if one.conn == waiting[0].conn] == waiting
    assert not [one for one in kept(RealHost(), root, folder_of(HERE)) if one.conn == waiting[0].conn]


def kill_between(base: Path, times: int) -> None:
    """Kills the tap at random moments while sessions are requested and confirmed."""
    chance = random.Random(times)
    for n in range(times):
        root = str(base / str(n))
        with Tapped(root, sys.executable, "-c", SLOW) as tapped:
            for number in range(100):
                tapped.send("session/load", sessionId=f"s-{number}", cwd="/w", mcpServers=[])
            wait_for(lambda root=root: journaled(root))
            time.sleep(chance.uniform(0, 1.5))
            before = {(one.n, one.line) for one in journaled(root)}
            tapped.process.kill()
        assert before <= {(one.n, one.line) for one in journaled(root)}
        for folder in set(folders(root)) - {KEEP}:
            found = kept(RealHost(), root, folder)
            assert [one.side for one in found] in (["c", "a"], [])  # its request, and the answer that it waited for


def test_killing_the_tap_before_a_session_is_confirmed_loses_no_journaled_frame(tmp_path: Path) -> None:
    kill_between(tmp_path, 2)


@pytest.mark.slow
def test_killing_the_tap_many_times_before_a_session_is_confirmed_loses_no_frame(tmp_path: Path) -> None:
    kill_between(tmp_path, 30)
