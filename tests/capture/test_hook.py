"""The hook as an agent starts it: it keeps its payload and never disturbs the agent, whatever is broken."""

from __future__ import annotations

import json
import os
import pwd
import re
import resource
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from dreamkeep import Keep
from dreamkeep.capture.hooks import spool
from dreamkeep.config import keep_path
from dreamkeep.event import Kind
from dreamkeep.host import RealHost
from dreamkeep.journal.places import folder_of
from dreamkeep.journal.scan import read_events
from tests.helpers.hook_calls import HOOK, PAYLOAD, START, HookCalls


@pytest.fixture
def hooks(tmp_path: Path) -> HookCalls:
    return HookCalls(tmp_path)


# -- payloads are kept


@pytest.mark.parametrize(
    "said",
    [PAYLOAD, b"", b"\0\xff garbage", b"{}\n", b"[" * 10_000, b"x" * (3 << 20)],
    ids=["JSON", "empty", "bytes", "line", "deep", "big"],
)
def test_stdin_is_kept_verbatim_under_a_name_that_says_who_and_when(hooks: HookCalls, said: bytes) -> None:
    before = time.time_ns()
    assert hooks.call(said=said).stdout == b""
    [name] = hooks.names
    assert hooks.kept == [said]
    found = spool.entry(name)
    assert found and (found.agent, found.event) == ("claude", "UserPromptSubmit")
    assert before <= int(name[:20]) <= time.time_ns()
    assert stat.S_IMODE(os.stat(f"{hooks.keep}/spool/{name}").st_mode) == 0o600
    assert stat.S_IMODE(os.stat(f"{hooks.keep}/spool").st_mode) == stat.S_IMODE(os.stat(hooks.keep).st_mode) == 0o700


def test_a_payload_of_50_megabytes_is_kept_in_little_memory(hooks: HookCalls) -> None:
    """J6"""

    def little() -> None:
        resource.setrlimit(resource.RLIMIT_DATA, (40 << 20, 40 << 20))

    said = os.urandom(1 << 20) * 50
    hooks.call(said=said, preexec_fn=little)
    assert hooks.kept == [said]


def test_many_hooks_at_once_keep_one_entry_each(hooks: HookCalls) -> None:
    """W10: temp names are unique and exclusive."""
    words = [*START, "claude", "PreToolUse", hooks.keep]
    started = [subprocess.Popen(words, stdin=subprocess.PIPE, env=hooks.environment()) for _ in range(30)]
    for n, one in enumerate(started):
        one.communicate(b"%d" % n, timeout=60)
    assert sorted(map(int, hooks.kept)) == list(range(30))


@pytest.mark.skipif(not shutil.which("strace"), reason="needs strace")
def test_the_file_is_synced_before_its_name_and_its_folder_after_it(hooks: HookCalls, tmp_path: Path) -> None:
    """W12"""
    hooks.call()
    out = tmp_path / "trace"
    trace = ["strace", "-f", "-qq", "-o", str(out), "-e", "trace=fdatasync,fsync,rename,openat", *START]
    hooks.call(hook=trace)
    steps = [
        re.sub(r"^\d+ +", "", line).split("(")[0] for line in out.read_text().splitlines() if "spool" in line or "sync" in line
    ]
    assert steps == ["openat", "fdatasync", "rename", "openat", "fsync"]


@pytest.mark.parametrize(
    "words", [[], ["claude"], ["", ""], ["../..", "a/b\n"], ["ü" * 300, "x" * 300], ["claude", "Stop?", "K", "||", ":"]]
)
def test_any_arguments_are_accepted_and_none_becomes_a_path(hooks: HookCalls, words: list[str], tmp_path: Path) -> None:
    """X1. An agent that starts hooks without a shell passes `|| :` as arguments."""
    words = [hooks.keep if word == "K" else word for word in words]
    environment = hooks.environment(DREAMKEEP_KEEP=hooks.keep)
    done = subprocess.run([*START, *words], input=b"x", capture_output=True, env=environment, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert hooks.kept == [b"x"] and spool.entry(hooks.names[0])
    assert sorted(os.listdir(tmp_path)) == ["keep", "temp"]


@pytest.mark.parametrize(
    ("agent", "told"),
    [
        # The environments of real plugin hooks: Claude Code 2.1.197, Codex 0.166, Copilot CLI 1.0.102, Qwen Code 0.15.10.
        ("claude", {"CLAUDECODE": "1", "CLAUDE_PLUGIN_ROOT": "/p", "CLAUDE_PROJECT_DIR": "/w"}),
        ("codex", {"CLAUDE_PLUGIN_ROOT": "/p", "PLUGIN_ROOT": "/p", "PLUGIN_DATA": "/d"}),
        ("copilot", {"CLAUDE_PLUGIN_ROOT": "/p", "PLUGIN_ROOT": "/p", "COPILOT_PLUGIN_ROOT": "/p", "COPILOT_CLI": "1"}),
        ("qwen", {"CLAUDE_PROJECT_DIR": "/w", "GEMINI_PROJECT_DIR": "/w", "QWEN_PROJECT_DIR": "/w"}),
        # Codex, started by Claude; Claude, started by a user who has set PLUGIN_ROOT.
        ("codex", {"CLAUDECODE": "1", "CLAUDE_PLUGIN_ROOT": "/p", "PLUGIN_ROOT": "/p"}),
        ("claude", {"CLAUDE_PLUGIN_ROOT": "/p", "PLUGIN_ROOT": "/mine"}),
        ("auto", {}),
    ],
)
def test_the_shared_plugin_recognises_the_agent_that_calls_it(hooks: HookCalls, agent: str, told: dict[str, str]) -> None:
    environment = hooks.environment(DREAMKEEP_KEEP=hooks.keep, **told)
    done = subprocess.run([*START, "auto", "PostToolUse"], input=b"x", capture_output=True, env=environment, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    found = spool.entry(hooks.names[0])
    assert hooks.kept == [b"x"] and found and (found.agent, found.event) == (agent, "PostToolUse")


ENVIRONMENTS: list[dict[str, str]] = [
    {"HOME": "/h"},
    {"HOME": "/h", "XDG_DATA_HOME": "/x"},
    {"HOME": "/h", "XDG_DATA_HOME": " "},
    {"HOME": "/h", "DREAMKEEP_KEEP": "/k"},
    {"HOME": "/h", "DREAMKEEP_KEEP": "~/k"},
    {"HOME": "/h", "DREAMKEEP_KEEP": "file:///k/ü"},
    {"HOME": "/h", "DREAMKEEP_KEEP": "sub/k"},
    {},
]


@pytest.mark.parametrize("environment", ENVIRONMENTS, ids=str)
def test_without_a_third_word_the_keep_is_where_every_command_finds_it(environment: dict[str, str]) -> None:
    program = f"import sys; sys.argv = ['hook']; exec(open({HOOK!r}).read().partition('if __name__')[0]); print(_keep(''))"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program], env=environment, capture_output=True, check=True, cwd="/tmp"
    )
    here = {**environment} if "HOME" in environment else {**environment, "HOME": pwd.getpwuid(os.getuid()).pw_dir}
    expected = keep_path(None, {**here, "DREAMKEEP_KEEP": here.get("DREAMKEEP_KEEP", "").replace("~", "/h")}, sys.platform)
    assert os.fsdecode(done.stdout).strip() == expected.replace(os.getcwd(), "/tmp")


def test_the_environment_overrides_the_keep_that_init_wrote_unless_it_is_a_database(hooks: HookCalls, tmp_path: Path) -> None:
    hooks.call(environment=hooks.environment(DREAMKEEP_KEEP=str(tmp_path / "other")))
    assert hooks.names == [] and len(os.listdir(tmp_path / "other" / "spool")) == 1
    hooks.call(environment=hooks.environment(DREAMKEEP_KEEP="postgresql://somewhere/db"))
    assert len(hooks.names) == 1


# -- the agent is not disturbed


def test_the_agent_does_not_notice_a_keep_that_is_a_file(hooks: HookCalls) -> None:
    Path(hooks.keep).write_text("x")
    assert hooks.call(said=b"x" * (1 << 20)).stdout == b""
    [line] = hooks.problems
    assert "claude UserPromptSubmit" in line and "NotADirectoryError" in line


@pytest.mark.parametrize("where", ["/proc/nothing/keep", "/dev/null/keep"])
def test_an_unwritable_keep_leaves_a_trace_elsewhere(hooks: HookCalls, where: str) -> None:
    hooks.call(keep=where)
    assert hooks.problems == [] and len(hooks.problems_of(where)) == 1 and where in hooks.problems_of(where)[0]
    [left] = hooks.temp.iterdir()
    assert stat.S_IMODE(left.stat().st_mode) == 0o600


def test_the_agent_does_not_notice_a_full_disk_and_no_half_entry_is_left(hooks: HookCalls) -> None:
    def full() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))

    hooks.call(said=b"secret words " * (1 << 17), preexec_fn=full)
    assert hooks.names == []
    [line] = hooks.problems
    assert "File too large" in line and "secret" not in line
    assert os.path.exists(f"{hooks.keep}/spool/{spool.PROBLEMS}")


def test_the_agent_does_not_notice_a_read_only_folder(hooks: HookCalls) -> None:
    hooks.call()
    os.chmod(f"{hooks.keep}/spool", 0o500)
    try:
        hooks.call()  # root may still write there
    finally:
        os.chmod(f"{hooks.keep}/spool", 0o700)
    assert len(hooks.names) + len(hooks.problems) == 2


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-", "</dev/null >/dev/full", "<&1"])
def test_the_agent_does_not_notice_closed_or_unusual_streams(hooks: HookCalls, closed: str) -> None:
    command = spool.hook_command(sys.executable, HOOK, "claude", "SessionStart", hooks.keep)
    done = subprocess.run(
        ["sh", "-c", f"{command.removesuffix(' || :')} {closed}"], env=hooks.environment(), stdin=subprocess.DEVNULL
    )
    assert done.returncode == 0
    assert hooks.kept == [b""], "a call with nothing to say is a call, too"


def test_the_agent_does_not_notice_that_the_reader_of_stdout_is_gone(hooks: HookCalls) -> None:
    _pack(hooks, "/", "x" * (1 << 19))
    command = spool.hook_command(sys.executable, HOOK, "claude", "SessionStart", hooks.keep).removesuffix(" || :")
    done = subprocess.run(["bash", "-c", f"{command} </dev/null | true; exit ${{PIPESTATUS[0]}}"], env=hooks.environment())
    assert done.returncode == 0 and len(hooks.names) == 1


def test_the_agent_does_not_notice_a_missing_home_user_or_folder(hooks: HookCalls, tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    program = f"cd {gone} && rmdir {gone} && exec {' '.join(START)} claude Stop"
    done = subprocess.run(
        ["sh", "-c", f"{program} relative/keep"], input=PAYLOAD, env={"TMPDIR": str(hooks.temp)}, capture_output=True, timeout=60
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert "FileNotFoundError" in next(hooks.temp.iterdir()).read_text()


def test_a_hook_that_was_uninstalled_does_not_block_the_agent(hooks: HookCalls, tmp_path: Path) -> None:
    """Observed: exit code 2 means block, and Python exits with 2 if it can't find its file."""
    for python, file in ((sys.executable, str(tmp_path / "no hook.py")), (str(tmp_path / "no python"), HOOK)):
        command = spool.hook_command(python, file, "claude", "Stop", hooks.keep)
        for stdin in ("/dev/null", "/"):  # Python itself gives up when stdin is a folder
            assert subprocess.run(["sh", "-c", f"{command} < {stdin}"], capture_output=True).returncode == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_hook_that_gets_a_signal_still_keeps_its_payload(hooks: HookCalls, number: signal.Signals) -> None:
    """Observed: SessionEnd is ended by SIGTERM after 1.2 s; Ctrl-C reaches hooks, too."""
    child = subprocess.Popen([*START, "claude", "PostToolUse", hooks.keep], stdin=subprocess.PIPE, env=hooks.environment())
    assert child.stdin
    child.stdin.write(PAYLOAD)
    child.stdin.flush()
    _wait_for(lambda: bool(hooks.names))
    child.send_signal(number)
    child.stdin.close()
    assert child.wait(60) == 0
    assert hooks.kept == [PAYLOAD]


def test_a_hook_does_not_wait_long_for_an_agent_that_never_closes_stdin(hooks: HookCalls) -> None:
    child = subprocess.Popen([*START, "claude", "PostToolUse", hooks.keep], stdin=subprocess.PIPE, env=hooks.environment())
    assert child.stdin
    child.stdin.write(PAYLOAD)
    child.stdin.flush()
    began = time.monotonic()
    assert child.wait(60) == 0
    assert time.monotonic() - began < 10
    child.stdin.close()
    assert hooks.kept == [PAYLOAD]


# -- the trace of a failure


def test_the_trace_never_follows_a_link_blocks_on_a_pipe_or_grows_without_end(hooks: HookCalls, tmp_path: Path) -> None:
    """X1: in a temp folder, others may have created anything with that name."""
    trace = hooks.temp / f"dreamkeep-hook-{os.getuid()}.problems"
    other = tmp_path / "other"
    other.write_text("mine\n")
    trace.symlink_to(other)
    hooks.call(keep="/proc/nothing")
    assert other.read_text() == "mine\n"
    trace.unlink()
    os.link(other, trace)
    hooks.call(keep="/proc/nothing")
    assert other.read_text() == "mine\n"
    trace.unlink()
    os.mkfifo(trace)
    hooks.call(keep="/proc/nothing")
    assert hooks.problems == []
    trace.unlink()
    trace.write_text("x" * (70 << 10))
    hooks.call(keep="/proc/nothing")
    assert trace.stat().st_size < 1000


# -- switched off


@pytest.mark.parametrize("how", ["1", "yes", "file"])
def test_with_the_kill_switch_a_hook_only_reads_its_stdin(hooks: HookCalls, how: str) -> None:
    """D27: so do our own children, for which the switch is set."""
    environment = hooks.environment() if how == "file" else hooks.environment(DREAMKEEP_OFF=how)
    os.mkdir(hooks.keep)
    if how == "file":
        Path(f"{hooks.keep}/OFF").touch()
    _pack(hooks, "/", "pack")
    for event in ("Stop", "SessionStart"):
        child = subprocess.Popen(
            [*START, "claude", event, hooks.keep], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
        )
        out, _ = child.communicate(b"x" * (4 << 20), timeout=60)  # raises BrokenPipeError where nobody reads
        assert (child.returncode, out) == (0, b"")
    assert hooks.names == [] and not os.path.exists(f"{hooks.keep}/state/drain.log")


def test_a_kill_switch_that_is_zero_is_off(hooks: HookCalls) -> None:
    hooks.call(environment=hooks.environment(DREAMKEEP_OFF="0"))
    assert len(hooks.names) == 1


# -- packs


def _pack(hooks: HookCalls, folder: str, text: str, name: str = "one.md") -> None:
    packs = Path(hooks.keep) / "state" / "packs"
    packs.mkdir(parents=True, exist_ok=True)
    (packs / name).write_text(text)
    with (packs / "index").open("a") as index:
        index.write(f"{folder}\t{name}\n")


TEXT = 'Remember: "tabs"\n\t\\ ü \u2028 </script>'
FORMS = {
    ("claude", "SessionStart"): {"hookSpecificOutput": {"hookEventName": "SessionStart", "additionalContext": TEXT}},
    ("codex", "SessionStart"): {"hookSpecificOutput": {"hookEventName": "SessionStart", "additionalContext": TEXT}},
    ("gemini", "SessionStart"): {"hookSpecificOutput": {"hookEventName": "SessionStart", "additionalContext": TEXT}},
    ("qwen", "SessionStart"): {"hookSpecificOutput": {"hookEventName": "SessionStart", "additionalContext": TEXT}},
    ("copilot", "sessionStart"): {"additionalContext": TEXT},
    ("copilot", "SessionStart"): {"additionalContext": TEXT},
    ("hermes", "pre_llm_call"): {"context": TEXT},
    ("opencode", "experimental.chat.system.transform"): {"context": TEXT},
}


@pytest.mark.parametrize(("agent", "event"), FORMS)
def test_a_pack_is_printed_in_the_agents_own_form(hooks: HookCalls, agent: str, event: str) -> None:
    _pack(hooks, "/home/dev", TEXT)
    said = json.dumps({"session_id": "a", "cwd": "/home/dev/work", "extra": {"is_first_turn": True}}).encode()
    assert json.loads(hooks.call(agent, event, said).stdout) == FORMS[agent, event]
    assert hooks.kept == [said]


def test_kimi_gets_the_pack_as_plain_text(hooks: HookCalls) -> None:
    """Observed: any stdout is used, even `{}`."""
    _pack(hooks, "/", TEXT)
    assert hooks.call("kimi", "SessionStart").stdout.decode() == TEXT


def test_nothing_is_printed_when_there_is_no_pack(hooks: HookCalls, fake: list[str]) -> None:
    """Observed: `{}` became part of Claude's compaction instructions and a Kimi message."""
    everywhere = ["SessionStart", "sessionStart", "pre_llm_call", "PreCompact", "UserPromptSubmit", "Stop", "on_session_start"]
    for agent in ("claude", "kimi", "hermes", "copilot"):
        for event in everywhere:
            assert hooks.call(agent, event, hook=fake).stdout == b""
    _pack(hooks, "/elsewhere", TEXT)
    _pack(hooks, "/home/dev/work/deeper", TEXT)
    _pack(hooks, "/home/dev/wor", TEXT)
    _pack(hooks, "/home/dev", " \n", "blank.md")
    assert hooks.call(event="SessionStart").stdout == b""
    for event in ("PreCompact", "UserPromptSubmit", "Stop"):
        assert hooks.call("kimi", event, hook=fake).stdout == b""


def test_hermes_gets_the_pack_only_at_its_first_turn(hooks: HookCalls) -> None:
    _pack(hooks, "/", TEXT)
    for first, answer in ((b'{"extra": {"is_first_turn": false}}', b""), (b"{}", b"")):
        assert hooks.call("hermes", "pre_llm_call", first).stdout == answer


def test_the_pack_of_the_nearest_folder_is_printed(hooks: HookCalls) -> None:
    for n, folder in enumerate(("/", "/home/dev/work/", "/home/dev", "/home/dev/work/sub")):
        _pack(hooks, folder, f"pack {n}", f"{n}.md")
    said = hooks.call(event="SessionStart").stdout
    assert json.loads(said)["hookSpecificOutput"]["additionalContext"] == "pack 1"


@pytest.mark.parametrize(
    "index", ["/\t../../secret\n", "/\t/etc/hostname\n", "/\t.hidden\n", "/ no tab\n", "\0\n", "/\tnone.md\n", "\xff\t\n", ""]
)
def test_an_invalid_index_of_packs_prints_nothing(hooks: HookCalls, index: str) -> None:
    _pack(hooks, "/x", "y")
    Path(f"{hooks.keep}/state/packs/index").write_text(index)
    Path(f"{hooks.keep}/state/packs/.hidden").write_text("hidden")
    Path(f"{hooks.keep}/secret").write_text("secret")
    assert hooks.call(event="SessionStart").stdout == b""
    assert len(hooks.names) == 1


@pytest.mark.parametrize("said", [b"", b"garbage", b"[]", b'{"cwd": 7}', b'{"session_id":"a"}'])
def test_a_payload_without_a_folder_means_the_folder_in_which_the_hook_runs(
    hooks: HookCalls, said: bytes, tmp_path: Path
) -> None:
    _pack(hooks, str(tmp_path.resolve()), "here")
    assert b"here" in hooks.call(event="SessionStart", said=said, cwd=tmp_path).stdout
    assert hooks.call(event="SessionStart", said=said, cwd="/").stdout == b""


def test_a_pack_is_printed_even_when_the_spool_is_broken(hooks: HookCalls) -> None:
    _pack(hooks, "/", TEXT)
    Path(f"{hooks.keep}/spool").write_text("a file")
    assert hooks.call(event="SessionStart").stdout
    assert len(hooks.problems) == 1


def test_with_a_broken_spool_the_folder_has_its_pack_and_a_resumed_session_none(hooks: HookCalls) -> None:
    _pack(hooks, "/", "everywhere", "all.md")
    _pack(hooks, "/home/dev", TEXT)
    Path(f"{hooks.keep}/spool").write_text("a file")
    said = {"session_id": "a", "cwd": "/home/dev/work", "source": "startup"}
    assert b"Remember" in hooks.call(event="SessionStart", said=json.dumps(said).encode()).stdout
    assert hooks.call(event="SessionStart", said=json.dumps({**said, "source": "resume"}).encode()).stdout == b""


# -- the drainer


FAKE = """
import json, os, sys
def main():
    keep = sys.argv[sys.argv.index("--keep") + 1]
    about = {
        "argv": sys.argv[1:], "sid": os.getsid(0), "pid": os.getpid(), "cwd": os.getcwd(), "path0": sys.path[0],
        "fds": {n: os.readlink("/proc/self/fd/" + n) for n in "012"}, "open": len(os.listdir("/proc/self/fd")),
    }
    sys.stderr.write("a word for doctor")
    sys.stderr.flush()
    with open(keep + "/started", "a") as out:
        out.write(json.dumps(about) + "\\n")
    import time
    time.sleep(float(os.environ.get("LINGER", "0")))
    os.rename(keep + "/started", keep + "/done")
"""


@pytest.fixture
def fake(tmp_path: Path) -> list[str]:
    """A hook of another dreamkeep, whose drainer only reports how it was started."""
    package = tmp_path / "other place" / "dreamkeep"
    for folder in ("capture", "surfaces/cli"):
        (package / folder).mkdir(parents=True)
    for file in ("__init__.py", "capture/__init__.py", "surfaces/__init__.py"):
        (package / file).touch()
    (package / "surfaces" / "cli" / "__init__.py").write_text(FAKE)
    shutil.copy(HOOK, package / "capture" / "hook.py")
    return [sys.executable, "-I", "-S", str(package / "capture" / "hook.py")]


def _wait_for(ready: Callable[[], bool], seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not ready():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)


ENDS = ["Stop", "SessionEnd", "AfterAgent", "agentStop", "sessionEnd", "on_session_end", "on_session_finalize", "session.idle"]


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_the_end_of_a_turn_starts_a_drainer_that_is_independent_of_the_agent(
    hooks: HookCalls, fake: list[str], tmp_path: Path
) -> None:
    (tmp_path / "orjson.py").write_text("raise SystemExit('captured code must never run')")
    (tmp_path / "dreamkeep.py").write_text("raise SystemExit('captured code must never run')")
    Path(hooks.keep, "state").mkdir(parents=True)
    extra, _ = os.pipe()
    done = Path(hooks.keep, "done")
    child = subprocess.Popen(
        [*fake, "claude", "Stop", hooks.keep],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=hooks.environment(PYTHONPATH=str(tmp_path), PYTHONHOME="/nowhere", LINGER="2"),
        cwd=tmp_path,
        start_new_session=True,
        pass_fds=[extra],
    )
    # Returns when all pipes are closed: a drainer that had them would keep the agent waiting.
    assert child.communicate(PAYLOAD, timeout=60) == (b"", b"")
    assert child.returncode == 0 and not done.exists()
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass  # nobody is left in the hook's group
    _wait_for(done.exists)
    about = json.loads(done.read_text())
    assert about["argv"] == ["--keep", hooks.keep, "drain"]
    assert about["sid"] == about["pid"] and about["cwd"] == "/"
    assert about["fds"] == {"0": "/dev/null", "1": "/dev/null", "2": f"{hooks.keep}/state/drain.log"}
    assert about["open"] == 4, "its three, and the one that lists them"
    assert Path(f"{hooks.keep}/state/drain.log").read_text() == "a word for doctor"
    assert len(hooks.names) == 1


@pytest.mark.parametrize("event", ENDS)
def test_a_drainer_is_started_at_every_kind_of_end(hooks: HookCalls, fake: list[str], event: str) -> None:
    hooks.call("x", event, hook=fake)
    _wait_for(Path(hooks.keep, "done").exists)


@pytest.mark.parametrize("event", ["UserPromptSubmit", "PreToolUse", "PostToolUse", "PreCompress", "SessionStart"])
def test_no_drainer_is_started_in_the_middle_of_a_turn(hooks: HookCalls, fake: list[str], event: str) -> None:
    hooks.call("gemini", event, hook=fake)
    time.sleep(0.3)
    assert not Path(hooks.keep, "started").exists() and not Path(hooks.keep, "done").exists()


def test_no_second_drainer_is_started_while_one_runs(hooks: HookCalls, fake: list[str]) -> None:
    host = RealHost()
    Path(hooks.keep, "state").mkdir(parents=True)
    handle = host.open_lock(f"{hooks.keep}/state/drain.lock")
    assert host.try_lock(handle)
    hooks.call(event="Stop", hook=fake)
    time.sleep(0.3)
    assert not Path(hooks.keep, "started").exists()
    host.close(handle)
    hooks.call(event="Stop", hook=fake)
    _wait_for(Path(hooks.keep, "done").exists)
    assert len(hooks.names) == 2


def test_hooks_alone_capture_a_session_without_any_command(hooks: HookCalls) -> None:
    """C4: hook, spool, detached drainer, journal."""
    answer = json.dumps({"session_id": "a", "cwd": "/home/dev/work", "last_assistant_message": "Because."}).encode()
    hooks.call()
    hooks.call(event="PostToolUse", said=b"garbage")
    hooks.call(event="Stop", said=answer)
    _wait_for(lambda: hooks.names == [])
    folder = f"{hooks.keep}/{folder_of('claude:a')}"
    _wait_for(lambda: [e.kind for _, e in read_events(RealHost(), folder)] == [Kind.SESSION_OPENED, Kind.HOOK_FIRED])
    [fired] = [e for _, e in read_events(RealHost(), folder) if e.kind == Kind.HOOK_FIRED]
    assert [call["event"] for call in fired.body["calls"]] == ["UserPromptSubmit", "Stop"]
    with Keep.open(hooks.keep) as keep:
        [turn] = keep.show("claude:a")["turns"]
        assert (turn["prompt"], turn["state"]) == ("why?", "completed")


def test_an_unknown_hook_call_is_kept_and_doctor_shows_it(hooks: HookCalls) -> None:
    """C4: it does not disturb the agent, but `doctor` reports it. An empty payload is not reported."""
    for said in (b"", b"{}"):
        hooks.call(event="SessionEnd", said=said)
    with Keep.open(hooks.keep) as keep:
        keep.drain()
        assert not [one for one in keep.doctor() if one["check"] == "hook"]
        hooks.call(event="PostToolUse", said=b"garbage \xff")
        keep.drain()
        [told] = [one for one in keep.doctor() if one["check"] == "hook"]
        assert told["ok"] and "object: 1," in told["what"] and "PostToolUse" in told["what"] and "garbage" not in told["what"]


# -- few modules


def _loaded(hook: list[str]) -> set[str]:
    words = [hook[0], "-X", "importtime", *hook[1:]]
    done = subprocess.run(words, input=PAYLOAD, capture_output=True, env={"HOME": "/", "PATH": "/bin"}, timeout=60)
    return {line.rpartition("|")[2].strip() for line in done.stderr.decode().splitlines()[1:]}


def test_a_hook_loads_no_module_that_an_empty_python_does_not(hooks: HookCalls) -> None:
    """Each module would be a file to find, read and run at every call."""
    nothing = _loaded([sys.executable, "-I", "-S", "-c", "pass"])
    assert _loaded([*START, "claude", "UserPromptSubmit", hooks.keep]) == nothing
    assert _loaded([*START, "claude", "SessionStart", hooks.keep]) == nothing
    Path(hooks.keep, "state").mkdir()
    host = RealHost()
    handle = host.open_lock(f"{hooks.keep}/state/drain.lock")
    assert host.try_lock(handle)
    assert _loaded([*START, "claude", "Stop", hooks.keep]) <= nothing | {"fcntl"}
    host.close(handle)
    assert not any("dreamkeep" in name for name in nothing)


def test_a_hook_loads_the_json_parser_only_for_a_pack(hooks: HookCalls) -> None:
    _pack(hooks, "/", TEXT)
    assert "json" in _loaded([*START, "claude", "SessionStart", hooks.keep])
    assert "json" not in _loaded([*START, "claude", "PreToolUse", hooks.keep])
