"""Difficult cases of hooks, the drainer, the tap, init and MCP, with real processes and real files."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from dreamkeep import Keep
from dreamkeep.capture import setup
from dreamkeep.capture.setup import Change
from dreamkeep.host import RealHost

HOOK = str(Path(setup.__file__).parents[1] / "hook.py")
DREAMKEEP = (sys.executable, "-m", "dreamkeep")


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(Path(HOOK).parents[2]), **more}


def dreamkeep(root: Path, *words: str, said: bytes = b"", wait_s: float = 20) -> subprocess.CompletedProcess[bytes]:
    home = root.parent / "home"
    home.mkdir(exist_ok=True)
    return subprocess.run(
        [*DREAMKEEP, "--keep", str(root), *words],
        input=said,
        capture_output=True,
        timeout=wait_s,
        env=environment(HOME=str(home), XDG_RUNTIME_DIR=str(home)),
        check=False,
    )


def hook(root: Path, event: str, agent: str = "claude", **payload: object) -> None:
    words = [sys.executable, "-I", "-S", HOOK, agent, event, str(root)]
    subprocess.run(words, input=json.dumps(payload).encode(), check=True, timeout=10)


def sessions(root: Path) -> list[str]:
    with Keep.open(root) as keep:
        return [found.id for found in keep.sessions()]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "keep"


# -- the hook


@pytest.mark.parametrize("words", [("claude",), ("claude", "Stop", "one", "more"), ("--new-flag", "claude", "Stop")])
def test_the_hook_verb_exits_0_whatever_its_words_are(root: Path, words: tuple[str, ...]) -> None:
    """C4: `hook AGENT EVENT` always exits with 0. (The file that `init` installs does.)"""
    done = dreamkeep(root, "hook", *words, said=b"{}")
    assert (done.returncode, done.stdout) == (0, b"")


def test_an_agent_that_stalls_in_the_middle_of_its_payload_can_write_all_of_it(root: Path) -> None:
    """Ctrl-Z, sleep or a garbage collection: otherwise the agent would get a broken pipe, and we would get half a payload."""
    words = [sys.executable, "-I", "-S", HOOK, "claude", "PostToolUse", str(root)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, bufsize=0) as calling:
        assert calling.stdin is not None
        calling.stdin.write(b'{"session_id":"s",')
        time.sleep(2.4)
        calling.stdin.write(b'"cwd":"/w"}')
    assert [path.read_bytes() for path in (root / "spool").glob("*.hook")] == [b'{"session_id":"s","cwd":"/w"}']


# -- the drainer


def test_an_excluded_session_that_changes_its_folder_stays_excluded(root: Path) -> None:
    root.mkdir()
    (root / "keep.toml").write_text('[capture]\nexclude = ["/secret"]\n')
    hook(root, "SessionStart", session_id="s", cwd="/secret/work", source="startup")
    assert dreamkeep(root, "drain").returncode == 0
    hook(root, "UserPromptSubmit", session_id="s", cwd="/elsewhere", prompt="the launch code")
    assert dreamkeep(root, "drain").returncode == 0
    assert sessions(root) == []


def test_a_session_whose_transcript_says_that_it_is_excluded_is_not_captured_by_its_hooks(root: Path, tmp_path: Path) -> None:
    root.mkdir()
    (root / "keep.toml").write_text('[capture]\nexclude = ["/secret"]\n')
    transcript = tmp_path / "home/.claude/projects/-secret-work/s.jsonl"
    transcript.parent.mkdir(parents=True)
    line = {"type": "user", "uuid": "u", "sessionId": "s", "cwd": "/secret/work", "timestamp": "2026-01-01T00:00:00Z"}
    transcript.write_text(json.dumps({**line, "message": {"role": "user", "content": "the launch code"}}) + "\n")
    hook(root, "UserPromptSubmit", session_id="s", cwd="/elsewhere", prompt="it again", transcript_path=str(transcript))
    dreamkeep(root, "drain")
    assert sessions(root) == []


def test_deleting_while_capture_is_off_leaves_no_word_in_the_spool(root: Path) -> None:
    hook(root, "UserPromptSubmit", session_id="s", cwd="/w", prompt="first")
    dreamkeep(root, "drain")
    hook(root, "UserPromptSubmit", session_id="s", cwd="/w", prompt="the launch code")
    (root / "OFF").touch()
    assert dreamkeep(root, "delete", "claude:s").returncode == 0
    assert not [path for path in root.rglob("*") if path.is_file() and b"the launch code" in path.read_bytes()]


def test_doctor_reports_calls_that_the_drainer_cannot_journal(root: Path) -> None:
    hook(root, "UserPromptSubmit", session_id="s", cwd="/w", prompt="first")
    dreamkeep(root, "drain")
    (folder,) = (root / "journal/sessions/claude").iterdir()
    folder.rename(root / "elsewhere")
    folder.touch()  # whatever it is that makes a journal unwritable
    hook(root, "UserPromptSubmit", session_id="s", cwd="/w", prompt="second")
    assert dreamkeep(root, "drain").returncode == 1
    checks = json.loads(dreamkeep(root, "doctor", "--json").stdout)["checks"]
    told = [check for check in checks if check["check"] in ("spool", "drain")]
    assert told and not all(check["ok"] for check in told)


# -- the tap


def test_an_agent_is_started_even_when_the_off_switch_cannot_be_read(root: Path) -> None:
    root.mkdir()
    (root / "OFF").symlink_to("OFF")
    done = dreamkeep(root, "tap", "--", "cat", said=b"hello\n")
    assert (done.returncode, done.stdout) == (0, b"hello\n")


def test_a_child_that_keeps_writing_does_not_keep_the_tap_running_after_the_agents_end(root: Path) -> None:
    """An MCP server or a language server that the agent left behind logs to the stderr that it inherited."""
    script = "(for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16; do echo log >&2; sleep 0.5; done) & exit 3"
    begun = time.monotonic()
    done = dreamkeep(root, "tap", "--", "sh", "-c", script)
    assert done.returncode == 3
    assert time.monotonic() - begun < 6


def test_a_signal_to_the_whole_group_reaches_the_agent_once(root: Path) -> None:
    """Clients end an agent by its process group. At a second SIGTERM, many agents end at once, without saving."""
    counting = (
        "import signal, time; n = []; signal.signal(signal.SIGTERM, lambda *a: n.append(1)); print('up', flush=True);"
        " end = time.monotonic() + 1.5\nwhile time.monotonic() < end: time.sleep(0.05)\nprint(len(n), flush=True)"
    )
    words = [*DREAMKEEP, "--keep", str(root), "tap", "--", sys.executable, "-c", counting]
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment(), start_new_session=True
    ) as tapped:
        assert tapped.stdout is not None
        tapped.stdout.readline()
        os.killpg(tapped.pid, signal.SIGTERM)
        assert tapped.stdout.read() == b"1\n"


def test_killing_the_tap_ends_the_agent_as_killing_the_agent_would(root: Path) -> None:
    words = [*DREAMKEEP, "--keep", str(root), "tap", "--", "sh", "-c", "echo $$; exec sleep 20"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment()) as tapped:
        assert tapped.stdout is not None
        agent = int(tapped.stdout.readline())
        tapped.kill()
    until = time.monotonic() + 10
    while running(agent) and time.monotonic() < until:
        time.sleep(0.05)
    assert not running(agent)


def running(process: int) -> bool:
    """A zombie does not count."""
    found = subprocess.run(["ps", "-o", "stat=", "-p", str(process)], capture_output=True, check=False)
    return found.stdout.strip()[:1] not in (b"", b"Z")


_REFUSES = "import sys, json\nfor l in sys.stdin: print(json.dumps({'jsonrpc':'2.0','id':json.loads(l)['id'],'error':{'code':-32002,'message':'no'}}), flush=True)"  # noqa: E501


def test_a_session_that_the_agent_does_not_have_gets_no_journal(root: Path) -> None:
    """Clients try to load sessions that they remember. If the agent answers with an error, there is no such session."""
    asked = {"jsonrpc": "2.0", "id": 1, "method": "session/load", "params": {"sessionId": "gone", "cwd": "/w", "mcpServers": []}}
    done = dreamkeep(root, "tap", "--", sys.executable, "-c", _REFUSES, said=json.dumps(asked).encode() + b"\n")
    assert done.returncode == 0
    assert sessions(root) == []


def test_a_copy_that_was_not_journaled_in_time_is_reported(root: Path) -> None:
    dreamkeep(root, "tap", "--", "true")
    program = (
        "import sys; from dreamkeep.capture.tap import tap; tap._JOURNAL_S = 0.5; from dreamkeep.surfaces.cli import main; main()"
    )
    words = [sys.executable, "-c", program, "--keep", str(root), "tap", "--", "cat"]
    with Keep.open(root) as keep:
        keep.session("one", cwd="/")  # makes the keep's journal, and its lock
    with open(root / "journal/keep/lock", "r+b") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        done = subprocess.run(words, input=b"hello\n", capture_output=True, timeout=20, env=environment(), check=False)
    assert done.stdout == b"hello\n"
    assert b"dreamkeep tap:" in done.stderr


# -- init


def init(folder: Path, keep: str = "keep", **more: Any) -> list[Change]:
    given = {"keep": str(folder / keep), "python": "/opt/new/bin/python", "hook": "/opt/new/dreamkeep/capture/hook.py", **more}
    return setup.init(RealHost(), str(folder / "home"), {}, **given)


def settings(folder: Path, name: str, text: str) -> Path:
    path = folder / "home" / name
    path.parent.mkdir(parents=True)
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    "command",
    [
        "python3 /home/dev/not-dreamkeep/capture/hook.py claude Stop",
        "notify-send done; /opt/new/bin/python -I -S /opt/new/dreamkeep/capture/hook.py claude Stop /keep || :",
    ],
)
def test_a_users_own_command_is_neither_changed_nor_removed(tmp_path: Path, command: str) -> None:
    foreign = json.dumps({"hooks": {"Stop": [{"hooks": [{"type": "command", "command": command}]}]}})
    path = settings(tmp_path, ".claude/settings.json", foreign)
    init(tmp_path)
    assert json.dumps(command) in path.read_text()
    init(tmp_path, "other keep", uninstall=True)
    assert json.dumps(command) in path.read_text()


def test_comments_in_an_object_that_has_only_our_entry_are_not_removed(tmp_path: Path) -> None:
    text = '{\n  "mcp": {\n    // add servers here\n  }\n}\n'
    path = settings(tmp_path, ".config/opencode/opencode.jsonc", text)
    init(tmp_path)
    init(tmp_path, "other keep", uninstall=True)
    assert "// add servers here" in path.read_text()


# -- MCP


def mcp(root: Path, *lines: bytes, **more: str) -> list[Any]:
    words = [sys.executable, "-P", "-m", "dreamkeep", "mcp", "--keep", str(root)]
    said = b"".join(line + b"\n" for line in lines)
    done = subprocess.run(words, input=said, capture_output=True, timeout=20, env=environment(**more), check=False)
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_a_batch_is_answered(root: Path) -> None:
    """The server says that it speaks version 2025-03-26, which requires it to accept batches."""
    hello = b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-03-26","capabilities":{}}}'
    batch = b'[{"jsonrpc":"2.0","id":"a","method":"ping"},{"jsonrpc":"2.0","method":"notifications/initialized"}]'
    assert mcp(root, hello + b"\n" + batch)[1:] == [[{"jsonrpc": "2.0", "id": "a", "result": {}}]]


def test_mcp_is_utf_8_whatever_the_locale(root: Path) -> None:
    (answer,) = mcp(root, '{"jsonrpc":"2.0","id":"é","method":"ping"}'.encode(), PYTHONIOENCODING="latin-1")
    assert answer["id"] == "é"


def test_an_invalid_request_is_answered_under_its_own_id(root: Path) -> None:
    (answer,) = mcp(root, b'{"jsonrpc":"2.0","id":7,"method":5}')
    assert answer["id"] == 7
