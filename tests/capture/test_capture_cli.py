"""Capture from the command line, as people and scripts use it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dreamkeep import Keep
from dreamkeep.host import RealHost
from dreamkeep.surfaces.cli import main
from tests.agents import claude, codex
from tests.helpers.claude_home import SID, home_with, record
from tests.helpers.cli import Ran

WAIT_S = 30.0


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, Any]:
    code = main([*words, "--json"])
    return code, json.loads(capsys.readouterr().out)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DREAMKEEP_KEEP", str(tmp_path / "keep"))
    monkeypatch.setenv("HOME", str(tmp_path / "nobody"))
    return tmp_path


def test_ingest_has_every_field_of_the_contract(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    claude.write(place / "home")
    codex.write(place / "home")
    code, data = run(capsys, "ingest", "--home", str(place / "home"))
    assert code == 0
    assert {one["agent"] for one in data["sources"]} == {"claude", "codex"}
    assert set(data["sources"][0]) == {"agent", "path", "session", "new_bytes", "new_events", "state"}
    assert data["totals"]["new_bytes"] == sum(one["new_bytes"] for one in data["sources"]) > 0
    code, again = run(capsys, "ingest", "--home", str(place / "home"))
    assert (code, again["totals"]["new_events"]) == (0, 0)
    code, one_agent = run(capsys, "ingest", "--home", str(place / "home"), "--agent", "codex")
    assert {one["agent"] for one in one_agent["sources"]} == {"codex"}


def test_a_problem_is_reported_and_gives_exit_code_1(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home_with(place, record(1))
    lost = place / "home" / ".gemini" / "tmp" / "p" / "chats" / "session-2026-11-01T10-00-aaaaaaaa.jsonl"
    lost.parent.mkdir(parents=True)
    lost.write_bytes(b"\xff\xfe nothing of Gemini's\n")
    code, data = run(capsys, "ingest", "--home", str(place / "home"))
    assert code == 1
    assert [one["problem"] for one in data["sources"] if "problem" in one] == ["its beginning doesn't name a session"]
    assert data["totals"]["sessions"] == 1
    assert main(["ingest", "--home", str(place / "home")]) == 1
    assert "doesn't name a session" in capsys.readouterr().out


def test_ingest_accepts_names_of_files_and_folders(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, file = home_with(place, record(1))
    elsewhere = place / "copies" / f"{SID}.jsonl"
    elsewhere.parent.mkdir()
    elsewhere.write_bytes(file.read_bytes())
    for named in (file, elsewhere, elsewhere.parent, place / "home"):
        code, data = run(capsys, "ingest", str(named))
        assert (code, [one["session"] for one in data["sources"]]) == (0, [f"claude:{SID}"]), named
    code, data = run(capsys, "ingest", str(place / "no-such"), str(place / "home"))
    assert (code, data["totals"]["failed"], data["totals"]["sessions"]) == (1, 1, 1)
    assert main(["ingest", "--agent", "nobody"]) == 2
    assert main(["--keep", str(place / "none"), "ingest", "--home", str(place / "empty")]) == 0
    assert not (place / "none").exists(), "nothing found, nothing made"
    assert "No agent sessions found" in capsys.readouterr().out


def test_show_reports_the_live_state_and_the_compactions(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """G6."""
    claude.write(place / "home")
    run(capsys, "ingest", "--home", str(place / "home"))
    [expected] = [s for s in claude.EXPECTED["sessions"] if s["compactions"]][:1]
    _, shown = run(capsys, "show", expected["id"], "--live")
    assert set(shown["live"]) >= {"owner_alive", "active_turn", "active_segment", "compaction"}
    assert set(shown["live"]["compaction"]) >= {"active", "last_source", "last_started_at", "last_completed_at", "count"}
    assert shown["live"]["compaction"]["count"] == len(expected["compactions"])
    assert shown["live"]["active_segment"] == shown["segments"][-1]["id"]
    assert set(shown["segments"][0]) >= {"id", "opened_seq", "closed_seq", "end_reason", "precision"}
    wanted = {"id", "state", "active", "closing", "sources", "before", "after", "opened_at", "closed_at"}
    assert set(shown["compactions"][0]) >= wanted
    _, current = run(capsys, "show", expected["id"], "--segment", "current")
    assert {m["segment"] for m in current["messages"]} <= {s["id"] for s in shown["segments"]}
    assert len(current["messages"]) < len(shown["messages"])
    assert main(["show", expected["id"], "--segment", "99"]) == 2
    assert main(["show", expected["id"]]) == 0
    text = capsys.readouterr().out
    assert "──────── compaction ────────" in text
    assert main(["show", expected["id"], "--markdown"]) == 0
    assert "*Here the agent's context was cut.*" in capsys.readouterr().out


def test_the_raw_view_has_the_agents_bytes_and_the_lineage_is_complete(
    place: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    claude.write(place / "home")
    main(["ingest", "--home", str(place / "home")])
    child = next(s for s in claude.EXPECTED["sessions"] if s["lineage"])
    parent = child["lineage"][0]["session"]
    capfdbinary.readouterr()
    assert main(["show", parent, "--raw"]) == 0
    [file] = (place / "home").rglob(f"{parent.partition(':')[2]}.jsonl")
    assert capfdbinary.readouterr().out == file.read_bytes()
    assert main(["show", parent, "--lineage", "--json"]) == 0
    shown = json.loads(capfdbinary.readouterr().out)
    assert child["id"] in {one["session"] for one in shown["lineage"]["descendants"]}
    assert main(["show", child["id"], "--lineage", "--json"]) == 0
    shown = json.loads(capfdbinary.readouterr().out)
    assert {"kind": child["lineage"][0]["kind"], "session": parent, "of": child["id"]} in shown["lineage"]["ancestors"]
    assert main(["show", child["id"], "--lineage"]) == 0
    assert f"ancestor: {child['id']} is a {child['lineage'][0]['kind']} of {parent}" in capfdbinary.readouterr().out.decode()


def test_a_segment_shows_both_ends_of_a_turn_that_spans_its_boundary(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """G4."""
    boundary: dict[str, Any] = {"subtype": "compact_boundary", "type": "system", "compactMetadata": {"trigger": "auto"}}
    summary: dict[str, Any] = {"isCompactSummary": True}
    data = record(1, "the prompt") + record(2, "working on it", message=_working("working on it"))
    data += record(3, **boundary) + record(5, "a summary", **summary) + record(6, "the last word")
    home_with(place, data)
    run(capsys, "ingest", "--home", str(place / "home"))
    _, shown = run(capsys, "show", SID)
    assert len(shown["segments"]) == 2
    for number, own in (("1", ["the prompt", "working on it"]), ("2", ["a summary", "the last word"])):
        _, part = run(capsys, "show", SID, "--segment", number)
        texts = [m["text"] for m in part["messages"]]
        assert set(own) <= set(texts)
        assert {"the prompt", "the last word"} <= set(texts), number


def _working(text: str) -> dict[str, Any]:
    content = [{"type": "text", "text": text}]
    return {"role": "assistant", "content": content, "id": "m", "model": "m", "stop_reason": "tool_use"}


def test_markdown_separates_the_sessions_words_from_our_own(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """X1: captured text is data."""
    evil = "# not a heading\n````\n<script>alert(1)</script>\x1b[31m"
    with Keep.open() as keep:
        keep.session("evil", title="*bold* <b>").record(evil)
    main(["show", "evil", "--markdown"])
    text = capsys.readouterr().out
    assert "\x1b" not in text
    assert "`````\n# not a heading\n````\n<script>" in text
    assert text.startswith("# \\*bold\\* \\<b\\>")


def program(*words: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-u", "-m", "dreamkeep", *words], stdout=subprocess.PIPE, text=True)


def until(what: Any) -> Iterator[None]:
    end = time.monotonic() + WAIT_S
    while not what():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.05)
        yield


@pytest.mark.parametrize("polling", [False, True])
def test_a_watcher_captures_a_session_while_it_is_written(polling: bool, place: Path) -> None:
    """New files, more lines, a new agent; and it ends on request."""
    home, file = home_with(place, record(1))
    watcher = program("watch", "--home", str(home), "--json", *(["--poll"] if polling else []))
    with Keep.open() as keep:
        list(until(lambda: len(keep.sessions()) == 1))
        with file.open("ab") as grows:
            grows.write(record(2))
        list(until(lambda: keep.sessions()[0].messages == 2))
        home_with(place, record(1, uuid="other"), "another")
        list(until(lambda: len(keep.sessions()) == 2))
        codex.write(home)
        list(until(lambda: len({s.agent for s in keep.sessions()}) == 2))
    watcher.send_signal(signal.SIGTERM)
    told, _ = watcher.communicate(timeout=WAIT_S)
    assert watcher.returncode == 0
    outcomes = [json.loads(line) for line in told.splitlines()]
    assert {"new", "grew"} <= {one["state"] for one in outcomes}


def test_a_watcher_drains_the_spool_and_compresses_cold_parts(place: Path) -> None:
    home, _ = home_with(place, b"".join(map(record, range(1, 50))))
    with Keep.open() as keep:
        list(keep.ingest(home=home, agents=["claude"]))
    [part] = (place / "keep" / "journal" / "sessions").rglob("*.jsonl")
    os.utime(part, (0, 0))
    watcher = program("watch", "--home", str(home))
    payload = json.dumps({"session_id": "by-hook", "cwd": "/home/dev/shop", "prompt": "said to a hook"})
    hook = Path(sys.modules["dreamkeep"].__path__[0]) / "capture" / "hook.py"
    words = [sys.executable, "-I", "-S", str(hook), "claude", "UserPromptSubmit", str(place / "keep")]
    subprocess.run(words, input=payload, text=True, check=True)
    with Keep.open() as keep:
        list(until(lambda: "claude:by-hook" in [s.id for s in keep.sessions()]))
    list(until(lambda: part.with_suffix(".jsonl.zst").exists() and not part.exists()))
    with Keep.open() as keep:
        assert len(keep.show(SID)["messages"]) == 49
    watcher.terminate()
    watcher.communicate(timeout=WAIT_S)


class Adjusted(RealHost):
    """Sleeping only moves the clock, which may be set back."""

    moved_ns = 0

    def now(self) -> int:
        return super().now() + self.moved_ns

    def sleep(self, seconds: float) -> None:
        self.moved_ns += int(seconds * 1e9)


def test_a_watcher_continues_when_the_clock_is_set_back(place: Path) -> None:
    home, _ = home_with(place, b"".join(map(record, range(1, 50))))
    host = Adjusted()
    with Keep.open(host=host) as keep:
        list(keep.ingest(home=home, agents=["claude"]))
        [part] = (place / "keep" / "journal" / "sessions").rglob("*.jsonl")
        for n, _ in enumerate(keep.watch(home=home, agents=["claude"], polling=True, stopped=lambda: False)):
            if n == 5:
                host.moved_ns -= 7 * 86_400_000_000_000
                os.utime(part, (0, 0))
            if part.with_suffix(".jsonl.zst").exists() or n == 8_000:  # two hours and more
                break
    assert part.with_suffix(".jsonl.zst").exists()


def test_a_watcher_that_is_switched_off_does_nothing(place: Path) -> None:
    home, _ = home_with(place, record(1))
    (place / "keep").mkdir()
    (place / "keep" / "OFF").touch()
    watcher = program("watch", "--home", str(home), "--poll")
    time.sleep(2)
    with Keep.open() as keep:
        assert keep.sessions() == []
    (place / "keep" / "OFF").unlink()
    with Keep.open() as keep:
        list(until(lambda: len(keep.sessions()) == 1))
    watcher.terminate()
    watcher.communicate(timeout=WAIT_S)


def test_following_a_session_shows_new_messages(place: Path) -> None:
    with Keep.open() as keep:
        session = keep.session("chat")
        session.record("first")
        follower = program("show", "chat", "--follow")
        assert follower.stdout is not None
        assert "first" in follower.stdout.readline()
        session.record("second")
        assert "second" in follower.stdout.readline()
    follower.send_signal(signal.SIGINT)
    follower.communicate(timeout=WAIT_S)
    assert follower.returncode == 0


def test_init_and_uninstall_from_the_command_line(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home = place / "home"
    settings = home / ".claude" / "settings.json"
    settings.parent.mkdir(parents=True)
    settings.write_bytes(b'{\r\n  "model": "opus"\r\n}\r\n')
    before = settings.read_bytes()
    _, planned = run(capsys, "init", "--home", str(home), "--dry-run")
    assert settings.read_bytes() == before
    assert {change["action"] for change in planned["changes"]} == {"install"}
    code, done = run(capsys, "init", "--home", str(home))
    assert code == 0
    assert set(done["changes"][0]) >= {"agent", "file", "action"}
    hooks = json.loads(settings.read_text())["hooks"]
    command = hooks["Stop"][0]["hooks"][0]["command"]
    payload = {"session_id": SID, "hook_event_name": "Stop", "cwd": "/home/dev/shop", "last_assistant_message": "Done."}
    environment = {key: value for key, value in os.environ.items() if key != "DREAMKEEP_KEEP"}
    for event in ("UserPromptSubmit", "Stop"):
        command = hooks[event][0]["hooks"][0]["command"]
        given = json.dumps({**payload, "hook_event_name": event, "prompt": "go on"})
        said = subprocess.run(command, shell=True, input=given, text=True, capture_output=True, env=environment, check=True)
        assert (said.stdout, said.stderr) == ("", "")
    with Keep.open() as keep:
        list(until(lambda: [s.turns for s in keep.sessions()] == [1]))  # the hook has started the drainer
    assert run(capsys, "init", "--home", str(home), "--uninstall")[0] == 0
    assert settings.read_bytes() == before
    settings.write_text("{ not json")
    code, refused = run(capsys, "init", "--home", str(home))
    assert (code, settings.read_text()) == (1, "{ not json")
    assert "refused" in {change["action"] for change in refused["changes"]}


def test_an_agent_starts_even_when_the_keep_cannot_be_opened(place: Path) -> None:
    (place / "keep").mkdir()
    (place / "keep" / "keep.toml").write_text("nonsense = [")
    done = subprocess.run(
        [sys.executable, "-m", "dreamkeep", "tap", "--", "cat"], input="x\n", text=True, capture_output=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "x\n")
    assert "this session is not recorded" in done.stderr
    assert subprocess.run([sys.executable, "-m", "dreamkeep", "tap"], capture_output=True).returncode == 2


def test_an_ingest_updates_the_index_but_does_not_need_it(tmp_path: Path, root: str, cli: Callable[..., Ran]) -> None:
    """B5: the next question, or an audit, opens no journal. A session that can't be indexed is kept."""
    home, _ = home_with(tmp_path, b"".join(map(record, range(1, 9))))
    assert cli("ingest", "--home", str(home)).code == 0
    audit = cli("audit", "--json", "--home", str(home)).json
    assert (audit["clean"], audit["checked"]["read"], audit["checked"]["index"]) == (True, 0, 1)
    os.remove(f"{root}/index.sqlite")
    os.mkdir(f"{root}/index.sqlite")
    Path(f"{root}/aside").write_text("where the folder would be put aside")
    told = cli("ingest", "--json", "--again", "--home", str(home))
    assert told.code == 0 and told.json["totals"]["failed"] == 0
    assert "index can't be updated" in told.err
