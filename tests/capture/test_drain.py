"""The drainer journals every call exactly once, whatever dies, and a bad call never stops the others."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from dreamkeep import Keep
from dreamkeep.capture.hooks import spool
from dreamkeep.capture.hooks.drain import LOCK, Drained, drain, native_id
from dreamkeep.event import Event, Ids, Kind
from dreamkeep.host import Host, RealHost, make_folders
from dreamkeep.journal.places import KEEP, folder_of
from dreamkeep.journal.scan import read_events
from dreamkeep.journal.writers import JournalWriters
from dreamkeep.session import raw
from tests.helpers.faults import LOSSES, FragileHost, PowerCut, cut_at_every_step

ROOT = "/keep"
HOUR_NS = 3600 * 10**9


def payload(session: str | None, **more: object) -> bytes:
    said = {"session_id": session, "cwd": "/home/dev/work", **more} if session else more
    return json.dumps(said).encode()


def put(
    host: Host, n: int, said: bytes, event: str = "UserPromptSubmit", agent: str = "claude", root: str = ROOT, when: int = 0
) -> str:
    """As the hook does: the call is durable when this returns."""
    make_folders(host, f"{root}/spool")
    name = f"{(when or 1_700_000_000_000_000_000) + n:020d}-{100 + n}-{n:016x}~{agent}~{event}.hook"
    handle = host.create(f"{root}/spool/.{name[:-5]}.tmp")
    host.write(handle, said)
    host.sync(handle)
    host.close(handle)
    host.replace(f"{root}/spool/.{name[:-5]}.tmp", f"{root}/spool/{name}")
    host.sync_folder(f"{root}/spool")
    return name


def run(host: Host, root: str = ROOT, **more: Any) -> Drained:
    """As a new process: nothing is remembered."""
    ids = Ids(host.now, host.random)
    journals = JournalWriters(host, root, ids)
    try:
        return drain(host, root, journals, ids, **more)
    finally:
        journals.close()


def events_of(host: Host, session: str, root: str = ROOT) -> list[Event]:
    folder = folder_of(session) if session else KEEP
    return [event for _, event in read_events(host, f"{root}/{folder}")]


def kinds(host: Host, session: str, root: str = ROOT) -> list[str]:
    return [event.kind for event in events_of(host, session, root)]


def journaled(host: Host, sessions: Sequence[str], root: str = ROOT) -> list[str]:
    """The spool names of all journaled calls, each as often as it was journaled."""
    return [
        call["spool"]
        for session in sessions
        for event in events_of(host, session, root)
        if event.kind == Kind.HOOK_FIRED
        for call in event.body["calls"]
    ]


def payloads(host: Host, session: str, root: str = ROOT) -> list[object]:
    return [one for event in events_of(host, session, root) if event.kind == Kind.HOOK_FIRED for one in raw.contents(event.body)]


def empty(host: Host, root: str = ROOT) -> bool:
    return not [name for name in host.names(f"{root}/spool") if name != spool.PROBLEMS]


SESSIONS = ("claude:a", "claude:b", "codex:c", "")
CALLS = (
    (b"a", "SessionStart", "claude"),
    (b"a", "UserPromptSubmit", "claude"),
    (b"b", "UserPromptSubmit", "claude"),
    (None, "Stop", "claude"),
    (b"a", "Stop", "claude"),
    (b"c", "Stop", "codex"),
    (b"a", "SessionEnd", "claude"),
)


def fill(host: FragileHost, first: int) -> list[str]:
    names = []
    for n, (session, event, agent) in enumerate(CALLS, first):
        said = payload(session.decode(), n=n) if session else b"not JSON \xff %d" % n
        names.append(put(host, n, said, event, agent))
    return names


FIRST = fill(FragileHost(), 1)


def filled(seed: int) -> FragileHost:
    host = FragileHost(seed=seed)
    assert fill(host, 1) == FIRST
    return host


# -- exactly once


def cut_everywhere(losses: Sequence[str]) -> Iterator[tuple[FragileHost, list[str]]]:
    """Two drains of a keep, with a power cut before their nth operation."""
    names: list[str] = []

    def twice(host: FragileHost) -> None:
        names[:] = FIRST
        run(host)
        names.extend(fill(host, 101))
        run(host)

    for n, host in cut_at_every_step(filled, twice):
        for loss in losses:
            yield host.reboot(loss, seed=n), list(names)
    assert n > 60


@pytest.mark.parametrize("losses", [("lost", "kept"), ("garbage", "mixed")], ids=["plain", "wild"])
def test_a_power_cut_at_every_step_of_draining_journals_each_call_exactly_once(losses: tuple[str, ...]) -> None:
    """W14 T4: before, between and after the append; a batch that is found again is recognised."""
    for disk, names in cut_everywhere(losses):
        at_hand = [n for n in names if n in _everywhere(disk)]
        run(disk)
        found = journaled(disk, SESSIONS)
        assert sorted(found) == sorted(set(found)), "a call was journaled twice"
        assert set(at_hand) <= set(found), "a call was lost"
        assert not spool.waiting(disk, ROOT)


def _everywhere(host: FragileHost) -> set[str]:
    """The calls that were durable in the spool, in a batch or in a journal after the power cut."""
    here = set(spool.names(host, ROOT))
    for name in filter(spool.is_batch, tuple(here)):
        here |= set(host.names(f"{ROOT}/spool/{name}"))
    return here | set(journaled(host, SESSIONS))


def test_every_durable_call_is_journaled_after_a_power_cut() -> None:
    """C4: no acknowledged call is lost, not even on a disk that loses everything that was not synced."""
    for n, host in cut_at_every_step(filled, run):
        for loss in LOSSES:
            disk = host.reboot(loss, seed=n)
            run(disk)
            assert sorted(journaled(disk, SESSIONS)) == sorted(FIRST), (n, loss)


@pytest.mark.slow
def test_a_second_cut_while_a_cut_is_recovered_from_changes_nothing() -> None:
    for n in range(1, 80, 3):
        host = filled(n)
        host.plan(n, "cut")
        try:
            run(host)
        except PowerCut:
            pass
        for m in count(1):
            again = host.reboot("mixed", seed=n)
            again.plan(m, "cut")
            try:
                run(again)
            except PowerCut:
                disk = again.reboot(LOSSES[m % len(LOSSES)], seed=m)
                run(disk)
                assert sorted(journaled(disk, SESSIONS)) == sorted(FIRST), (n, m)
            else:
                break


@pytest.mark.parametrize("how", ["fail", "tear", "bad_sync"])
def test_a_failing_operation_is_reported_and_the_next_drain_finishes(how: str) -> None:
    """J2: the nth operation fails once; no call is lost, none is doubled, nothing is raised."""
    for n in count(1):
        host = filled(n)
        host.plan(n, how, errno.ENOSPC)
        first = run(host)
        if host.calls < n:
            assert first.problems == () or how == "bad_sync"
            break
        run(host)
        assert sorted(journaled(host, SESSIONS)) == sorted(FIRST), n
        assert empty(host)
    assert n > 40


def test_replaying_a_batch_that_was_appended_writes_nothing() -> None:
    for _, host in cut_at_every_step(filled, run):
        disk = host.reboot("kept")
        before = {s: kinds(disk, s) for s in SESSIONS}
        run(disk)
        after = {s: kinds(disk, s) for s in SESSIONS}
        for session in SESSIONS:
            assert after[session][: len(before[session])] == before[session]
            assert after[session].count(Kind.SESSION_OPENED) <= 1
            assert after[session].count(Kind.SESSION_ENDED) == (1 if session == "claude:a" else 0)
            assert Kind.SESSION_RESUMED not in after[session]


_DRAIN = """
import os, signal, sys
from dreamkeep.capture.hooks.drain import drain
from dreamkeep.event import Ids
from dreamkeep.host import RealHost
from dreamkeep.journal.writers import JournalWriters

left = int(sys.argv[2])

def deadly(act):
    def acts(*given):
        global left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return act(*given)
    return acts

class Dying(RealHost):
    pass

for name in "make_folder link remove remove_folder replace sync_folder write sync create cut close".split():
    setattr(Dying, name, deadly(getattr(RealHost, name)))
host = Dying()
ids = Ids(host.now, host.random)
drain(host, sys.argv[1], JournalWriters(host, sys.argv[1], ids), ids)
"""


@pytest.mark.parametrize("step", [7, pytest.param(1, marks=pytest.mark.slow)])
def test_kill_9_of_the_drainer_at_any_operation_journals_each_call_exactly_once(tmp_path: Path, step: int) -> None:
    """D3: the lock dies with its process, and the next drainer finishes the work."""
    root = str(tmp_path / "keep")
    host = RealHost()
    names: list[str] = []
    died_with_a_batch = 0
    for n in count(1, step):
        names += [put(host, n * 100 + m, payload("ab"[m % 2], n=n, m=m), root=root) for m in range(4)]
        child = subprocess.run([sys.executable, "-c", _DRAIN, root, str(n)])
        died_with_a_batch += any(map(spool.is_batch, spool.names(host, root)))
        assert run(host, root).problems == ()
        assert sorted(journaled(host, ["claude:a", "claude:b"], root)) == sorted(names)
        assert empty(host, root)
        if child.returncode == 0:
            break
        assert child.returncode == -signal.SIGKILL
    assert n > 30 and died_with_a_batch > 2


def test_two_drainers_at_once_journal_each_call_once(tmp_path: Path) -> None:
    root = str(tmp_path / "keep")
    host = RealHost()
    names = [put(host, n, payload(f"s{n % 5}", n=n), root=root) for n in range(200)]
    threads = [threading.Thread(target=run, args=(RealHost(), root)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(journaled(host, [f"claude:s{n}" for n in range(5)], root)) == sorted(names)


# -- the race with hooks that find the lock taken


class Late(RealHost):
    """A call comes at the worst moment: after the last look into the spool, while the lock is still held."""

    def __init__(self, root: str) -> None:
        self._root = root
        self.added: list[str] = []

    def close(self, handle: int) -> None:
        path = os.readlink(f"/proc/self/fd/{handle}")
        if path.endswith(LOCK) and len(self.added) < 3:
            self.added.append(put(RealHost(), 900 + len(self.added), payload("late"), root=self._root))
            assert subprocess.run([sys.executable, "-c", _ASK, path]).returncode == 1, (
                "the lock is held, so no drainer is started"
            )
        super().close(handle)


_ASK = "import fcntl, sys\ntry: fcntl.flock(open(sys.argv[1]), fcntl.LOCK_SH | fcntl.LOCK_NB)\nexcept OSError: sys.exit(1)"


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_a_drainer_also_drains_calls_that_come_while_it_ends(tmp_path: Path) -> None:
    """C4: the hook finds the lock taken and starts no drainer; the drainer looks again after it released the lock."""
    root = str(tmp_path / "keep")
    host = Late(root)
    first = put(RealHost(), 1, payload("early"), root=root)
    run(host, root)
    assert len(host.added) == 3
    assert journaled(host, ["claude:early", "claude:late"], root) == [first, *host.added]
    assert empty(host, root)


def test_a_drainer_that_finds_the_lock_taken_says_so_and_ends(tmp_path: Path) -> None:
    root = str(tmp_path / "keep")
    host = RealHost()
    put(host, 1, payload("a"), root=root)
    make_folders(host, f"{root}/state")
    handle = host.open_lock(f"{root}/{LOCK}")
    assert host.try_lock(handle)
    assert run(host, root, wait_s=0.01) == Drained(0, (), (), True)
    host.close(handle)
    assert run(host, root).events == 1


def test_draining_an_empty_spool_writes_nothing(tmp_path: Path) -> None:
    """R6: reading writes nothing."""
    root = str(tmp_path / "keep")
    assert run(RealHost(), root) == Drained(0, (), ())
    assert not os.path.exists(root)


# -- what becomes of the calls


def test_payloads_are_kept_verbatim_and_one_frame_holds_a_sessions_calls() -> None:
    host = FragileHost()
    said = [payload("a", n=1) + b"\n", b'{\n  "session_id": "a",\n "x": "\\ud800"}', payload("a", text="\u2028\0")]
    for n, one in enumerate(said):
        put(host, n, one)
    assert run(host) == Drained(3, ("claude:a",), ())
    opened, fired = events_of(host, "claude:a")
    assert (opened.kind, fired.kind) == (Kind.SESSION_OPENED, Kind.HOOK_FIRED)
    assert [c["event"] for c in fired.body["calls"]] == ["UserPromptSubmit"] * 3
    assert [c["at"] for c in fired.body["calls"]] == ["2023-11-14T22:13:20.000000Z"] * 3
    kept = [one if isinstance(one, bytes) else None for one in raw.contents(fired.body)]
    assert kept[0] == said[0] and kept[1] == said[1] and kept[2] is None
    assert payloads(host, "claude:a")[2] == json.loads(said[2])


def test_a_lone_surrogate_in_a_prompt_does_not_hide_its_session() -> None:
    """W7"""
    host = FragileHost()
    put(host, 1, b'{"session_id":"a","prompt":"x \\ud83d y"}')
    assert run(host).sessions == ("claude:a",)


def test_a_huge_payload_is_kept(tmp_path: Path) -> None:
    root = str(tmp_path / "keep")
    host = RealHost()
    said = payload("a", tool_response="x" * (12 << 20))
    put(host, 1, said, root=root)
    put(host, 2, payload("a"), root=root)
    assert run(host, root).events == 2
    assert payloads(host, "claude:a", root)[0] == json.loads(said)


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"garbage \xff\0",
        b"[1]",
        b"null",
        b'"x"',
        b"{}",
        b'{"session_id":7}',
        b'{"session_id":""}',
        b'{"session_id":"a\\nb"}',
        b"[" * 5000,
    ],
)
def test_calls_that_name_no_session_are_kept_in_the_keeps_own_journal(said: bytes) -> None:
    """C1: calls that are not understood are kept. B2: they don't stop the others."""
    host = FragileHost()
    put(host, 1, said, "Stop")
    put(host, 2, payload("a"))
    assert run(host) == Drained(2, ("claude:a",), ())
    [fired] = events_of(host, "")
    assert fired.kind == Kind.HOOK_FIRED and fired.body["calls"][0]["agent"] == "claude"
    [kept] = raw.contents(fired.body)
    assert (json.dumps(kept, separators=(",", ":")).encode() if isinstance(kept, dict) else kept) == said


def test_a_call_with_an_invalid_agent_name_is_kept_in_the_keeps_own_journal() -> None:
    host = FragileHost()
    put(host, 1, payload("a"), agent="..")
    put(host, 2, payload("a"), agent="")
    assert run(host).sessions == ()
    assert len(journaled(host, [""])) == 2


def test_ids_are_found_in_every_spelling_of_their_field() -> None:
    assert native_id({"session_id": "a"}) == native_id({"sessionId": "a"}) == native_id({"sessionID": "a"}) == "a"
    assert native_id({"input": {"sessionID": "a"}, "parts": []}) == native_id({"info": {"sessionID": "a"}}) == "a"
    assert native_id({"session_id": "", "sessionId": None}) == ""


def test_a_subagents_call_belongs_to_the_session_that_started_it() -> None:
    host = FragileHost()
    put(host, 1, payload("a", agent_id="x1", agent_type="explore", tool_name="Read"), "PreToolUse")
    assert run(host).sessions == ("claude:a",)


def test_a_sessions_folder_comes_from_the_payload_never_from_the_drainer(tmp_path: Path) -> None:
    """Observed: Copilot runs plugin hooks with cwd = plugin folder."""
    root = str(tmp_path / "keep")
    work = tmp_path / "work" / "sub"
    (tmp_path / "work" / ".git").mkdir(parents=True)
    (tmp_path / "work" / ".git" / "config").write_text('[remote "origin"]\n\turl = git@forge.example:team/thing.git\n')
    work.mkdir()
    host = RealHost()
    put(host, 1, payload("a", cwd=str(work)), "sessionStart", "copilot", root=root)
    put(host, 2, payload("b", cwd="relative/one"), root=root)
    put(host, 3, payload("c", cwd=7), root=root)
    run(host, root)
    about = events_of(host, "copilot:a", root)[0].body
    assert (about["cwd"], about["project"]) == (str(work), "forge.example/team/thing")
    for session in ("claude:b", "claude:c"):
        assert events_of(host, session, root)[0].body["cwd"] == ""


def test_a_session_end_ends_the_session_once_and_a_later_prompt_resumes_it() -> None:
    host = FragileHost()
    put(host, 1, payload("a"))
    put(host, 2, payload("a", reason="other"), "SessionEnd")
    put(host, 3, payload("a", reason="other"), "SessionEnd")
    put(host, 4, payload("a"), "PostToolUse")  # a hook that ran beside it and was slower
    run(host)
    assert kinds(host, "claude:a") == [Kind.SESSION_OPENED, Kind.HOOK_FIRED, Kind.SESSION_ENDED]
    end = events_of(host, "claude:a")[-1]
    assert end.body == {"reason": "other"} and end.at == "2023-11-14T22:13:20.000000Z"
    put(host, 5, payload("a"), "Notification")
    run(host)
    assert kinds(host, "claude:a")[3:] == [Kind.HOOK_FIRED]
    put(host, 6, payload("a", source="resume"), "SessionStart")
    run(host)
    assert kinds(host, "claude:a")[4:] == [Kind.SESSION_RESUMED, Kind.HOOK_FIRED]
    put(host, 7, payload("a"), "SessionEnd")
    put(host, 8, payload("a"), "UserPromptSubmit")
    run(host)
    assert kinds(host, "claude:a")[6:] == [Kind.HOOK_FIRED], "it ended and went on before anybody looked"


def test_a_session_end_without_a_session_creates_no_session() -> None:
    """K6; Observed: `claude mcp list` fires SessionEnd with no SessionStart and no transcript."""
    host = FragileHost()
    name = put(host, 1, payload("ghost", transcript_path="/home/dev/none.jsonl"), "SessionEnd")
    done = run(host)
    assert done.sessions == ()
    assert done.problems == (), "`doctor` has nothing to say of it"
    assert host.stat(f"{ROOT}/{folder_of('claude:ghost')}") is None
    assert journaled(host, [""]) == [name]
    assert empty(host)


def test_a_session_end_ends_a_session_that_has_only_a_transcript() -> None:
    """A session that began before the hooks were installed."""
    host = FragileHost()
    make_folders(host, "/home/dev")
    host.close(host.create("/home/dev/real.jsonl"))
    put(host, 1, payload("real", transcript_path="/home/dev/real.jsonl"), "SessionEnd")
    assert run(host).sessions == ("claude:real",)
    assert kinds(host, "claude:real")[-1] == Kind.SESSION_ENDED


def test_the_session_end_that_hermes_sends_after_each_turn_ends_no_session() -> None:
    """Observed: on_session_end fires after every turn; on_session_finalize is the end."""
    host = FragileHost()
    put(host, 1, payload("h", extra={"completed": True}), "on_session_end", "hermes")
    run(host)
    assert Kind.SESSION_ENDED not in kinds(host, "hermes:h")
    put(host, 2, payload("h", extra={"reason": "shutdown"}), "on_session_finalize", "hermes")
    run(host)
    assert events_of(host, "hermes:h")[-1].body == {"reason": "shutdown"}


def test_calls_of_a_deleted_session_are_dropped(keep: Keep) -> None:
    """K2 R5: nothing brings the session back, not even a late end."""
    host = RealHost()
    for event in ("UserPromptSubmit", "Stop", "SessionEnd"):
        keep.session("gone", agent="claude", cwd="/")
        keep.delete("claude:gone")
        put(host, 1, payload("gone", prompt="the secret"), event, root=keep.root)
        put(host, 2, payload("other"), root=keep.root)
        done = run(host, keep.root)
        assert done.problems == () and "claude:gone" not in done.sessions
        assert empty(host, keep.root)
        found = [p for p in Path(keep.root).rglob("*.jsonl") if b"the secret" in p.read_bytes()]
        assert found == []
        keep.undelete("claude:gone")


def test_calls_are_excluded_by_folder_project_or_transcript() -> None:
    """C8"""
    host = FragileHost()
    put(host, 1, payload("a", cwd="/home/dev/secret/deep"))
    put(host, 2, payload("b", transcript_path="/home/dev/.claude/projects/-x/b.jsonl"))
    put(host, 3, payload("b", cwd=""))
    put(host, 4, payload("c"))
    put(host, 5, payload(None, cwd="/home/dev/secret"))
    put(host, 6, b"garbage")
    done = run(host, exclude=("/home/dev/secret", "*/-x/*"))
    assert done == Drained(2, ("claude:c",), ())
    assert len(journaled(host, [""])) == 1 and empty(host)


def test_calls_of_a_failing_session_stay_in_the_spool_and_the_others_are_journaled(tmp_path: Path) -> None:
    """B2: and no newer call of that session overtakes its older ones."""
    root = str(tmp_path / "keep")
    host = RealHost()
    put(host, 1, payload("bad", n=1), root=root)
    put(host, 2, payload("good"), root=root)
    hurt = Path(root) / folder_of("claude:bad")
    hurt.parent.mkdir(parents=True)
    hurt.write_text("a file where the journal's folder should be")
    for n in (3, 4):
        done = run(host, root)
        assert "claude:bad" in " ".join(done.problems)
        assert len(list(filter(spool.is_batch, spool.names(host, root)))) == 1, "what can't be journaled must not pile up"
        put(host, n, payload("bad", n=n), root=root)
    assert journaled(host, ["claude:good"], root) and spool.waiting(host, root)
    hurt.unlink()
    assert run(host, root).problems == ()
    assert [p["n"] for p in payloads(host, "claude:bad", root) if isinstance(p, dict)] == [1, 3, 4]
    assert empty(host, root)


def test_the_transcript_that_a_payload_names_is_read_once_and_its_problem_is_reported(tmp_path: Path) -> None:
    """C4: a session captured by hooks alone is complete."""
    root = str(tmp_path / "keep")
    host = RealHost()
    path, sub = str(tmp_path / "t.jsonl"), str(tmp_path / "sub.jsonl")
    Path(path).touch()
    Path(sub).touch()
    for n in range(3):
        put(host, n, payload("a", transcript_path=path), root=root)
    put(host, 3, payload("a", transcript_path=path, agent_transcript_path=sub), "SubagentStop", root=root)
    put(host, 4, payload("a", agent_transcript_path=str(tmp_path / "none.jsonl")), "SubagentStop", root=root)
    put(host, 5, json.dumps({"sessionId": "b", "transcriptPath": path}).encode(), "agentStop", "copilot", root=root)
    put(host, 6, payload("h"), "post_llm_call", "hermes", root=root)
    asked: list[tuple[str, str]] = []

    def read(agent: str, where: str) -> None:
        asked.append((agent, where))
        free = host.open_lock(f"{root}/{LOCK}")
        assert host.try_lock(free), "reading a transcript may take long: others may drain meanwhile"
        host.close(free)
        if agent == "copilot":
            raise ValueError("boom")

    done = run(host, root, read_source=read)
    assert asked == [("claude", path), ("claude", sub), ("copilot", path), ("hermes", "")]
    assert done.events == 7 and done.problems == (f"{path}: boom",)


# -- unfinished and foreign files


def test_of_killed_hooks_whole_payloads_are_kept_and_torn_ones_are_removed() -> None:
    host = FragileHost()
    now = host.now()
    whole = put(host, 1, payload("a"), when=now - 2 * HOUR_NS)
    torn = put(host, 2, payload("a")[:-3], when=now - 2 * HOUR_NS)
    young = put(host, 3, payload("a"), when=now)
    for name in (whole, torn, young):
        host.replace(f"{ROOT}/spool/{name}", f"{ROOT}/spool/.{name[:-5]}.tmp")
    host.close(host.create(f"{ROOT}/spool/{spool.PROBLEMS}"))
    host.close(host.create(f"{ROOT}/spool/somebody's file"))
    run(host)
    assert journaled(host, ["claude:a"]) == [whole]
    assert sorted(host.names(f"{ROOT}/spool")) == sorted([f".{young[:-5]}.tmp", spool.PROBLEMS, "somebody's file"])


@pytest.mark.parametrize(
    "name", ["", "x", "1-2-3~a~b.hook", f"{1:020d}-1-{1:016x}~../a~b.hook", f"{1:020d}-1-{1:016x}~a~b.hook\n"]
)
def test_only_names_that_hooks_write_are_entries_of_the_spool(name: str) -> None:
    assert spool.entry(name) is None
    assert spool.left_over([f".{name.removesuffix('.hook')}.tmp"], 10**30) == []
