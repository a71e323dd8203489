"""What people see: colours and widths on a terminal, plain text in a pipe; and nothing that was captured is ever obeyed."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from dreamkeep import Keep
from dreamkeep.surfaces.cli import look, text
from tests.helpers.terminal import control_characters

HOSTILE = "\x1b]0;owned\x07 \x9b31m \x1b[2J\x1b[31mred \u202eevil \x08\x7f pelican"
#: What a terminal may be told by us, and nothing else.
#: Colours; and progress, which a slow machine gets to see.
OURS = re.compile(r"\x1b\[(0|1|2|31|32|33|36)m|\r(?=[a-z]+ +\d+ %)")


def on_terminal(keep: str, *words: str, around: dict[str, str] | None = None, columns: int = 100) -> str:
    """All that a terminal of that width gets, without the carriage returns that it adds itself."""
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS")}
    command = [sys.executable, "-m", "dreamkeep", "--keep", keep, *words]
    going = subprocess.Popen(command, stdout=follower, stderr=follower, env={**environment, "TERM": "xterm", **(around or {})})
    os.close(follower)
    said = b""
    try:
        while piece := os.read(leader, 1 << 16):
            said += piece
    except OSError:
        pass  # so Linux tells that the other side is closed
    finally:
        os.close(leader)
        going.wait(60)
    return said.decode().replace("\r\n", "\n")


def piped(keep: str, *words: str, **around: str) -> str:
    command = [sys.executable, "-m", "dreamkeep", "--keep", keep, *words]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **around}, timeout=60)
    assert "Traceback" not in done.stderr, done.stderr
    return done.stdout + done.stderr


@pytest.fixture
def hostile(keep: Keep, root: str, tmp_path: Path) -> dict[str, str]:
    """A keep in which everything that somebody else may choose is an attack."""
    folder = tmp_path / "at \x1b[2J home"
    folder.mkdir()
    session = keep.session("evil", cwd=folder, title=HOSTILE)
    with session.submit(HOSTILE) as turn:
        turn.add("assistant", HOSTILE, tool={"name": HOSTILE, "input": {HOSTILE: HOSTILE}})
        turn.settle("failed", reason=HOSTILE)
    session.record(f"We always use {HOSTILE} for prices.", ("assistant", HOSTILE))
    session.end()
    project = keep.project_named(str(folder))
    note = keep.note_add(f"Never touch {HOSTILE}", kind="constraint", project=project)["id"]
    task = keep.task_open(HOSTILE, project=project)["id"]
    return {"session": session.id, "project": project, "note": note, "task": task, "folder": str(folder)}


@pytest.mark.slow
def test_captured_text_never_controls_the_terminal(hostile: dict[str, str], root: str, tmp_path: Path) -> None:
    """X1: in no verb's answer, in none of its errors, neither in a pipe nor on a terminal."""
    session, project = hostile["session"], hostile["project"]
    commands = [
        *(["status"], ["sessions"], ["doctor"], ["hygiene"], ["reindex", "--from-zero"], ["audit"], ["repair"]),
        *(["show", session, *more] for more in ([], ["--live"], ["--markdown"], ["--lineage"], ["--segment", "1"])),
        *(["search", "pelican"], ["search", HOSTILE], ["pack", "--query", "pelican", "--project", project]),
        *(["dream", "--dry-run"], ["dream", "--preview"], ["dream"], ["dream", "status"], ["dream", "history"]),
        *(["notes", "--state", "all"], ["note", "pin", hostile["note"]], ["dream", "why", hostile["note"]]),
        *(["tasks"], ["task", "show", hostile["task"]], ["task", "open", HOSTILE]),
        *(["page", "--project", project], ["page", "--project", project, "--write", f"{hostile['folder']}/MEMORY.md"]),
        ["restore", session, "--to", "claude", "--home", hostile["folder"], "--cwd", hostile["folder"]],
        *(["snapshot", "export", f"{hostile['folder']}/s.tar.zst"], ["snapshot", "verify", f"{hostile['folder']}/s.tar.zst"]),
        ["snapshot", "import", f"{hostile['folder']}/s.tar.zst"],
        *(["ingest", hostile["folder"]], ["ingest", f"{hostile['folder']}/nothing"], ["init", "--home", hostile["folder"]]),
        *(["show", HOSTILE], ["end", HOSTILE], ["undelete", HOSTILE], ["dream", "undo", HOSTILE], ["note", "pin", HOSTILE]),
        *(["project", "rename", project, "shed \x1b[2J"], ["suspend", session], ["resume", session], ["delete", session]),
    ]
    around = {"HOME": str(tmp_path), "DREAMKEEP_DREAM_AUTO": "false"}
    for words in commands:
        assert control_characters(piped(root, *words, **around)) == [], words
        assert control_characters(OURS.sub("", on_terminal(root, *words, around=around))) == [], words


def test_raw_bytes_go_into_a_pipe_as_they_are_and_are_only_shown_on_a_terminal(keep: Keep, root: str, tmp_path: Path) -> None:
    place = tmp_path / ".claude" / "projects" / "x"
    place.mkdir(parents=True)
    line = '{"type":"user","sessionId":"s","message":{"role":"user","content":"\x7f\x9b31m"},"uuid":"u"}\n'
    (place / "s.jsonl").write_text(line)
    list(keep.ingest(home=tmp_path))
    assert piped(root, "show", "claude:s", "--raw") == line
    shown = on_terminal(root, "show", "claude:s", "--raw")
    assert control_characters(shown) == [] and "\\x9b31m" in shown


def test_colours_are_for_terminals_that_want_them(hostile: dict[str, str], root: str) -> None:
    assert OURS.search(on_terminal(root, "sessions"))
    assert "\x1b[1mpelican\x1b[0m" in on_terminal(root, "search", "pelican")
    for around in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        for words in (["sessions"], ["search", "pelican"]):
            assert "\x1b" not in on_terminal(root, *words, around=around)
    assert "\x1b" not in piped(root, "sessions", TERM="xterm", FORCE_COLOR="1")


def test_a_table_fits_the_terminal_and_is_whole_in_a_pipe(keep: Keep, root: str) -> None:
    keep.session("s", title="long " * 40 + "the end").record("x")
    keep.session("wide", title="日本語" * 30).record("x")
    for line in OURS.sub("", on_terminal(root, "sessions", columns=90)).splitlines():
        assert look.cells(line) <= 90, line
    for line in OURS.sub("", on_terminal(root, "sessions", around={"COLUMNS": "70"}, columns=90)).splitlines():
        assert look.cells(line) <= 70, line
    assert "the end" in piped(root, "sessions", COLUMNS="70")


@pytest.mark.parametrize(
    ("terminal", "environment", "columns", "expected"),
    [
        (False, {"TERM": "xterm", "COLUMNS": "80"}, 80, look.TerminalLook(False, None)),
        (True, {"TERM": "xterm"}, 80, look.TerminalLook(True, 80)),
        (True, {"TERM": "xterm", "NO_COLOR": ""}, 80, look.TerminalLook(True, 80)),
        (True, {"TERM": "xterm", "NO_COLOR": "0"}, 80, look.TerminalLook(False, 80)),
        (True, {"TERM": "dumb"}, 80, look.TerminalLook(False, 80)),
        (True, {"COLUMNS": "120"}, 80, look.TerminalLook(True, 120)),
        (True, {"COLUMNS": "x"}, 0, look.TerminalLook(True, None)),
        (True, {"COLUMNS": "5"}, 0, look.TerminalLook(True, 40)),
    ],
)
def test_the_terminal_and_the_environment_decide_about_colours_and_width(
    terminal: bool, environment: dict[str, str], columns: int, expected: look.TerminalLook
) -> None:
    assert look.decide(terminal, environment, columns) == expected


def test_columns_line_up_by_the_width_of_characters() -> None:
    rows = [["A", "B"], ["日本", "x"], ["e\u0301e", "y"]]
    assert {look.cells(line[: line.rindex(line.split()[-1])]) for line in text.table(rows).splitlines()} == {6}
    assert look.cut("日本語です", 6) == "日本…" and look.cut("abc", 3) == "abc" and look.cut("abcd", 3) == "ab…"
