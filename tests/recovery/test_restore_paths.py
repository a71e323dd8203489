"""The edges of `restore`: paths that cannot be trusted, holes, pipes, old logs, copies, and the notes about them."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest

from dreamkeep import Keep
from dreamkeep.agents.claude import writer as claude
from dreamkeep.agents.contract import LINES, Source
from dreamkeep.agents.hermes import recovery as statedb
from dreamkeep.capture.ingest import Ingest
from dreamkeep.capture.projects.project import project_of
from dreamkeep.errors import Failed, NotFound, Unsupported
from dreamkeep.event import Ids
from dreamkeep.host import RealHost
from dreamkeep.journal.places import folder_of
from dreamkeep.journal.writers import JournalWriters
from dreamkeep.recovery.restore import convert, put
from dreamkeep.recovery.restore.places import Home, is_agent_path
from dreamkeep.session.messages import Message
from dreamkeep.session.summary import Summary
from tests.agents.suite import tree
from tests.helpers.cli import Ran
from tests.helpers.restorable import WITH_ROWS, captured, claude_file, claude_line, rows_of

HOST = RealHost()
NATIVE = "11111111-1111-4111-8111-111111111111"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's own home: nothing of a test goes into the real one."""
    monkeypatch.setenv("HOME", str(tmp_path / "mine"))
    return tmp_path / "mine"


def ingested(keep: Keep, source: Source) -> None:
    """A source with any values that a foreign snapshot might have."""
    ids = Ids(HOST.now, HOST.random)
    journals = JournalWriters(HOST, keep.root, ids)
    assert [one.problem for one in Ingest(HOST, keep.root, journals, ids).run([source])] == [None]
    journals.close()


# -- where to


@pytest.mark.parametrize(
    "agent, path",
    [
        ("claude", "/etc/passwd"),
        ("claude", "/h/.ssh/authorized_keys"),
        ("claude", "/h/.claude/settings.json"),
        ("claude", "/h/.claude/projects/../settings.json"),
        ("claude", "/h/.claude/projects/-w/../../../.bashrc.jsonl"),
        ("claude", "/h/.claude/projects/x.jsonl"),
        ("claude", "/h/.claude/projects/-w/run.sh"),
        ("claude", "/h/.codex/sessions/2026/01/01/rollout-2026-01-01T00-00-00-a.jsonl"),
        ("claude", "/h/.claude/projects/-w/a\0b.jsonl"),
        ("claude", ".claude/projects/-w/a.jsonl"),
        ("codex", "/h/.codex/config.toml"),
        ("codex", "/h/.codex/hooks.json"),
        ("codex", "/h/.claude/projects/-w/a.jsonl"),
        ("codex", "/h/rollout-2026-01-01T00-00-00-a.jsonl"),
        ("gemini", "/h/.gemini/settings.json"),
        ("gemini", "/h/.gemini/tmp/p/.env"),
        ("hermes", "/h/.hermes/config.yaml"),
        ("hermes", "/h/state.db"),
        ("hermes-webui", "/h/.hermes/webui/sessions/_index.json"),
        ("hermes-webui", "/h/.hermes/webui/settings.json"),
        ("copilot", "/h/.copilot/config.json"),
        ("kimi", "/h/.kimi-code/config.toml"),
        ("pi", "/h/.pi/agent/settings.json"),
        ("qwen", "/h/.qwen/settings.json"),
    ],
)
def test_a_path_outside_the_agents_session_folders_is_refused(agent: str, path: str) -> None:
    assert not is_agent_path(agent, path, Home("/h", False, {}))


@pytest.mark.parametrize(
    "agent, path",
    [
        ("claude", "/h/.claude/projects/-w/a.jsonl"),
        ("claude", "/moved/projects/-w/a/subagents/agent-1.jsonl"),
        ("claude", "/somebody/else/.claude/projects/-w/a/tool-results/t.txt"),
        ("codex", "/h/.codex/archived_sessions/rollout-2026-01-01T00-00-00-a.jsonl.zst"),
        ("codex", "/h/.codex/session_index.jsonl"),
        ("hermes", "/h/.hermes/profiles/p/state.db"),
        ("hermes-webui", "/ui/sessions/any-name.json"),
        ("pi", "/pi/named-by-hand.jsonl"),
    ],
)
def test_a_moved_session_folder_still_counts_as_the_agents(agent: str, path: str) -> None:
    moved = {"CLAUDE_CONFIG_DIR": "/moved", "HERMES_WEBUI_STATE_DIR": "/ui", "PI_CODING_AGENT_SESSION_DIR": "/pi/"}
    assert is_agent_path(agent, path, Home("/h", False, moved))


def test_the_root_may_be_a_home() -> None:
    assert is_agent_path("claude", "/.claude/projects/-w/a.jsonl", Home("/", False, {}))
    assert is_agent_path("codex", "/.codex/sessions/2026/01/01/rollout-2026-01-01T00-00-00-a.jsonl", Home("/", True, {}))


@pytest.mark.parametrize("name", ["authorized_keys", ".bashrc", "x.jsonl"])
def test_nothing_is_ever_written_outside_of_an_agents_places(name: str, keep: Keep, mine: Path, tmp_path: Path) -> None:
    """X1: a path in a journal can't be trusted."""
    crafted = tmp_path / "dot" / name
    crafted.parent.mkdir()
    crafted.write_text(claude_line(0, NATIVE, "evil"))
    ingested(keep, Source("claude", str(crafted), LINES, NATIVE))
    crafted.unlink()
    for to_home in (None, tmp_path / "new"):
        done = keep.restore(NATIVE, "claude", home=to_home)
        assert [file["path"] for file in done["files"]] == [f"{to_home or mine}/.claude/projects/-w/{NATIVE}.jsonl"]
    assert list(crafted.parent.iterdir()) == []


@pytest.mark.parametrize("native", ["../../../.ssh/rc", "a/../../b", "/etc/x"])
def test_an_id_that_climbs_out_gets_no_place(native: str, keep: Keep, mine: Path, tmp_path: Path) -> None:
    loose = tmp_path / "loose.jsonl"
    loose.write_text(claude_line(0, native, "evil"))
    list(keep.ingest(agents=["claude"], paths=[loose]))
    [session] = keep.sessions()
    with pytest.raises(Unsupported, match="none of the folders"):
        keep.restore(session.id, "claude")
    assert keep.restore(session.id, "claude", home=tmp_path / "new", convert=True)["resume"]
    assert not mine.exists()


def test_one_session_captured_from_two_places_comes_back_as_the_richer_one(keep: Keep, tmp_path: Path) -> None:
    claude_file(tmp_path / "one", 3)
    longer = claude_file(tmp_path / "two", 6)
    for name in ("one", "two"):
        list(keep.ingest(home=tmp_path / name))
    done = keep.restore(NATIVE, "claude", home=tmp_path / "new")
    [file] = done["files"]
    assert Path(file["path"]).read_bytes() == longer.read_bytes() and not any(
        "two different copies" in note for note in done["notes"]
    )
    claude_file(tmp_path / "three", 9, words="another")
    list(keep.ingest(home=tmp_path / "three"))
    done = keep.restore(NATIVE, "claude", home=tmp_path / "newer")
    assert len(done["files"]) == 1 and "two different copies were captured" in done["notes"][0]


def test_rows_captured_from_two_databases_come_back_once(keep: Keep, home: Path, tmp_path: Path) -> None:
    captured(keep, WITH_ROWS, home)
    shutil.copytree(home, tmp_path / "copy")
    list(keep.ingest(agents=[WITH_ROWS], home=tmp_path / "copy"))
    for session in keep.sessions():
        assert keep.restore(session.id, WITH_ROWS, home=tmp_path / "new")["exact"]
        native = session.native_id
        assert rows_of(tmp_path / "new/.hermes/state.db", native).keys() == rows_of(home / ".hermes/state.db", native).keys()


# -- what is there


def test_a_pipe_is_neither_waited_for_nor_replaced(keep: Keep, home: Path) -> None:
    path = claude_file(home, 3)
    list(keep.ingest(home=home))
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(Failed, match="another file is there"):
        keep.restore(NATIVE, "claude")
    [found] = keep.ingest(home=home)
    assert found.state == "failed" and "pipe" in (found.problem or "")


def test_a_file_in_place_of_a_folder_is_reported_before_anything_is_written(keep: Keep, home: Path, tmp_path: Path) -> None:
    captured(keep, "claude", home)
    parent = next(s for s in keep.sessions() if any(("subagent", s.id) in one.lineage for one in keep.sessions()))
    place = Path(keep.restore(parent.id, "claude", home=tmp_path / "new")["files"][-1]["path"]).parent
    shutil.rmtree(place)
    place.write_text("a file")
    before = tree(tmp_path / "new")
    with pytest.raises(Failed, match="a file is where a folder must be") as refused:
        keep.restore(parent.id, "claude", home=tmp_path / "new")
    assert refused.value.where == str(place) and tree(tmp_path / "new") == before


def test_the_same_bytes_published_meanwhile_by_another_process_count_as_done(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"

    class Second(RealHost):
        def link(self, old: str, new: str) -> None:
            Path(new).write_bytes(b"ours\n")
            super().link(old, new)

    done = put.put_file(Second(), str(path), lambda: [b"ours\n"], aside=str(tmp_path / "aside"))
    assert done.action == put.UNCHANGED and os.listdir(tmp_path) == ["x.jsonl"]


def test_a_disk_that_refuses_is_named_by_the_file_it_refused(root: str, cli: Callable[..., Ran], home: Path) -> None:
    path = claude_file(home, 300, words="a long story " * 50)
    assert cli("ingest", "--home", str(home)).code == 0 and cli("sessions").code == 0
    path.unlink()
    words = f'ulimit -f 50; trap "" XFSZ; exec "$0" -m dreamkeep --keep {shlex.quote(root)} restore {NATIVE} --to claude'
    refused = subprocess.run(["bash", "-c", words, sys.executable], capture_output=True, text=True)
    assert refused.returncode == 3 and "no space" in refused.stderr and str(path) in refused.stderr
    assert list(path.parent.iterdir()) == []


def test_a_large_file_that_was_emptied_comes_back(keep: Keep, home: Path) -> None:
    """K4: the newest version of it holds nothing, and does not count."""
    path = claude_file(home, 300, words="a long story " * 500)
    whole = path.read_bytes()
    list(keep.ingest(home=home))
    path.write_bytes(b"")
    list(keep.ingest(home=home))
    assert keep.restore(NATIVE, "claude")["exact"] and path.read_bytes() == whole


def test_bytes_are_restored_without_loading_the_messages(keep: Keep, home: Path, tmp_path: Path) -> None:
    path = claude_file(home, 400, words="a long story " * 4000)
    list(keep.ingest(home=home))
    keep.sessions()
    tracemalloc.start()
    try:
        assert keep.restore(NATIVE, "claude", home=tmp_path / "new")["exact"]
        assert tracemalloc.get_traced_memory()[1] < path.stat().st_size / 2
    finally:
        tracemalloc.stop()


# -- Hermes' database


@pytest.mark.parametrize("ending", ["-wal", "-journal"])
def test_no_database_is_made_beside_the_log_of_one_that_is_gone(ending: str, keep: Keep, home: Path, tmp_path: Path) -> None:
    """SQLite would play the old log into the new file, and ruin it."""
    captured(keep, WITH_ROWS, home)
    session = max(keep.sessions(), key=lambda s: s.messages)
    state = home / ".hermes" / "state.db"
    if ending == "-wal":
        db = apsw.Connection(str(state))
        db.pragma("journal_mode", "wal")
        db.execute("CREATE TABLE more(a); INSERT INTO more VALUES (randomblob(90000))")
        log = Path(f"{state}-wal").read_bytes()
        db.close()
    else:
        log = b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7" + b"\1" * 600
    state.unlink()
    left = Path(f"{state}{ending}")
    left.write_bytes(log)
    for dry_run in (True, False):
        with pytest.raises(Failed, match="a log of a missing database"):
            keep.restore(session.id, WITH_ROWS, dry_run=dry_run)
    assert not state.exists() and left.read_bytes() == log
    left.write_bytes(b"")
    keep.restore(session.id, WITH_ROWS)
    db = apsw.Connection(str(state))
    assert db.pragma("integrity_check") == "ok"
    db.close()


def test_sessions_of_one_title_go_into_a_new_database(tmp_path: Path) -> None:
    two = [{"id": name, "source": "cli", "started_at": 1.0, "title": "same"} for name in "ab"]
    done = statedb.put_rows(HOST, str(tmp_path / "state.db"), {"sessions": two, "messages": []}, dry_run=False)
    assert +done.lost == {statedb.TITLES: 1}


# -- holes


def hurt(keep: Keep, session: str, kind: str, *, last: bool = False) -> None:
    """One frame of that kind fails its checksum."""
    part = Path(keep.root) / folder_of(session) / "000001.jsonl"
    lines = part.read_bytes().splitlines(keepends=True)
    at = [n for n, line in enumerate(lines) if f'"kind":"{kind}"'.encode() in line[:200]][-1 if last else 0]
    lines[at] = lines[at][:-30] + b"?" + lines[at][-29:]
    part.write_bytes(b"".join(lines))


@pytest.mark.parametrize(
    "agent, kind, last",
    [(WITH_ROWS, "source.rows", False), (WITH_ROWS, "source.rows", True), ("claude", "source.opened", False)],
)
def test_what_a_damaged_journal_still_holds_is_never_called_exact(
    agent: str, kind: str, last: bool, keep: Keep, home: Path, tmp_path: Path
) -> None:
    captured(keep, agent, home)
    session = max(keep.sessions(), key=lambda s: s.messages)
    keep.close()
    hurt(keep, session.id, kind, last=last)
    with Keep.open(keep.root) as again:
        done = again.restore(session.id, agent, home=tmp_path / "new")
        assert not done["exact"] and not done["files"][-1]["exact"]
        assert any("can no longer be read" in note for note in done["notes"])


def test_a_session_that_lost_its_source_names_is_converted_with_notes_about_the_damage(
    keep: Keep, home: Path, tmp_path: Path
) -> None:
    claude_file(home, 5)
    list(keep.ingest(home=home))
    keep.close()
    hurt(keep, f"claude:{NATIVE}", "source.opened")
    with Keep.open(keep.root) as again:
        done = again.restore(NATIVE, "claude", home=tmp_path / "new")
    assert done["native_id"] != NATIVE and "can't rebuild any of claude's own files or rows: converted" in done["notes"][0]
    assert "1 event of its journal can no longer be read" in done["notes"][1]


def test_a_file_that_reads_well_of_a_journal_with_holes_is_not_called_exact(keep: Keep, home: Path, tmp_path: Path) -> None:
    """Its checksum holds up to the hole; what came after is unknown."""
    path = claude_file(home, 5)
    list(keep.ingest(home=home))
    with path.open("a") as file:
        file.write(claude_line(5, NATIVE, "more"))
    list(keep.ingest(home=home))
    keep.close()
    hurt(keep, f"claude:{NATIVE}", "source.read", last=True)
    with Keep.open(keep.root) as again:
        done = again.restore(NATIVE, "claude", home=tmp_path / "new")
        [restored] = done["files"]
        assert not done["exact"] and restored["damaged"] and not restored["exact"]
        assert path.read_bytes().startswith(Path(restored["path"]).read_bytes())


def test_damage_that_leaves_nothing_to_restore_is_named_in_the_error(keep: Keep, home: Path, tmp_path: Path) -> None:
    claude_file(home, 1)
    list(keep.ingest(home=home))
    keep.close()
    hurt(keep, f"claude:{NATIVE}", "source.read")
    with Keep.open(keep.root) as again, pytest.raises(NotFound, match="nothing that could be restored") as refused:
        again.restore(NATIVE, "codex", home=tmp_path / "new")
    assert "can no longer be read" in refused.value.next


# -- notes and commands


def test_a_session_without_a_file_is_converted_for_its_own_agent_with_a_note(
    root: str, cli: Callable[..., Ran], tmp_path: Path
) -> None:
    calls: list[tuple[str, dict[str, Any]]] = [
        ("SessionStart", {"source": "startup"}),
        ("UserPromptSubmit", {"prompt": "why does it fail?"}),
        ("Stop", {"last_assistant_message": "a rule is missing"}),
    ]
    for event, more in calls:
        about = {"session_id": NATIVE, "cwd": "/w", "hook_event_name": event, **more}
        words = [sys.executable, "-m", "dreamkeep", "--keep", root, "hook", "claude", event]
        subprocess.run(words, input=json.dumps(about).encode(), check=True)
    cli("drain")
    done = cli("restore", NATIVE, "--to", "claude", "--home", str(tmp_path / "new"), "--json").json
    assert not done["exact"] and done["native_id"] != NATIVE and "only what was said" in done["notes"][0]
    written = Path(done["files"][0]["path"]).read_text()
    assert "why does it fail?" in written and "a rule is missing" in written


def test_the_resume_command_goes_where_the_session_was_put(keep: Keep, home: Path, mine: Path, tmp_path: Path) -> None:
    claude_file(home, 2)
    list(keep.ingest(home=home))
    assert keep.restore(NATIVE, "claude")["resume"] == f"cd /w && HOME={home} claude --resume {NATIVE}", "not the user's home"
    keep.context.environment = {**keep.context.environment, "CLAUDE_CONFIG_DIR": "/elsewhere", "CODEX_HOME": "/elsewhere"}
    named = keep.restore(NATIVE, "claude", home=tmp_path / "new")["resume"]
    assert named == f"cd /w && env -u CLAUDE_CONFIG_DIR HOME={tmp_path}/new claude --resume {NATIVE}"


@pytest.mark.parametrize("name", ["with space", "it's", '"$(touch evil)`x`', "back\\slash\nline", "tab\tescape\x1b[2J", "äß∂"])
def test_the_resume_command_is_right_for_any_folder(name: str, keep: Keep, tmp_path: Path) -> None:
    folder = tmp_path / name
    folder.mkdir()
    turn = keep.session("chat", cwd=folder).submit("hello")
    turn.start()
    turn.settle("completed")
    command = keep.restore("chat", "claude", home=tmp_path / "new")["resume"]
    assert command.isprintable(), "one line, and nothing that a terminal obeys"
    assert command.startswith("cd ") and " && HOME=" in command
    shown = subprocess.run(
        ["bash", "-c", command.split(" && HOME=")[0] + " && pwd"], capture_output=True, cwd=tmp_path, check=True
    )
    assert shown.stdout.decode() == f"{folder}\n" and not (tmp_path / "evil").exists()


def test_an_id_that_could_be_an_option_is_in_no_command(keep: Keep, home: Path, tmp_path: Path) -> None:
    claude_file(home, 2, native="--dangerously-skip-permissions")
    list(keep.ingest(home=home))
    [session] = keep.sessions()
    assert keep.restore(session.id, "claude", home=tmp_path / "new")["resume"] == ""


@pytest.mark.parametrize("cwd", ["/w/a\0b", "/" + "x" * 5000, "/w/\ud800"])
def test_an_impossible_folder_name_stops_neither_capture_nor_restore(cwd: str, keep: Keep, home: Path, tmp_path: Path) -> None:
    path = claude_file(home, 1)
    line = {**json.loads(path.read_text()), "cwd": cwd}
    path.write_text(json.dumps(line) + "\n")
    assert [one.problem for one in keep.ingest(home=home)] == [None]
    for to in ("claude", "codex", "gemini", "hermes", "hermes-webui"):
        done = keep.restore(NATIVE, to, home=tmp_path / "new")
        assert any("is not on this machine" in note for note in done["notes"]), to
        assert "\0" not in done["resume"]


def test_a_folder_that_may_not_be_looked_into_has_a_project() -> None:
    class Closed(RealHost):
        def stat(self, path: str) -> Any:
            if path.startswith("/closed/"):
                raise PermissionError(13, "no", path)
            return super().stat(path)

    assert project_of(Closed(), "/closed/inside", "machine") == "machine:/closed/inside"


def test_cwd_changes_nothing_in_an_exact_restore_and_a_note_says_so(keep: Keep, home: Path, tmp_path: Path) -> None:
    claude_file(home, 2)
    list(keep.ingest(home=home))
    done = keep.restore(NATIVE, "claude", home=tmp_path / "new", cwd=tmp_path)
    assert done["cwd"] == "/w" and any("--cwd is for converted sessions" in note for note in done["notes"])
    assert shlex.split(done["resume"])[1] == "/w"


def test_a_turns_last_answer_is_distinguished_from_earlier_ones_at_any_length() -> None:
    said = [Message(n, 0, role, f"w {n}", None, None) for n, role in enumerate(["user", "assistant", "reasoning", "assistant"])]
    plain, _ = convert.build_talk(Summary("python:a", "python", "a", cwd="/w"), said, {})
    lines = [json.loads(line) for line in claude.write(plain).data.splitlines()]
    assert [line["message"].get("stop_reason") for line in lines] == [None, "tool_use", None, "end_turn"]
