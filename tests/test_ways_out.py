"""Every form of secret that we know, through every way by which words of a keep come out: none of them is seen.

WAYS lists the verbs of the command line and TOOLS the tools of the MCP server. A new one that is not listed fails a test.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from dreamkeep import Keep
from dreamkeep.surfaces.cli import main
from dreamkeep.surfaces.cli.parser import parser
from dreamkeep.surfaces.mcp.tools import TOOLS as MCP_TOOLS
from tests.helpers.hooked_agent import Agent
from tests.helpers.mcp_talk import address, call, wire
from tests.helpers.model_server import item, serving
from tests.helpers.scanners import forms
from tests.helpers.secrets import Planted, planted, said

#: Each with the secrets that may not be seen. Of each sentence one is enough: another test has them all.
FORMS = [
    *planted(),
    *(one for one in said() if not re.search(r" [12]\Z", one.kind)),
    *(Planted(*one) for one in forms()),
]
#: As a title or a note has it: one line.
LINES = [one for one in FORMS if "\n" not in one.text and len(one.text) < 300][::3]
WAIT_S = 60


#: Our own ids, digests and times may hold the six digits of a code by chance.
_OWN_NUMBERS = re.compile(
    r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|\b[a-z]-[0-9a-f]{12}\b|\b[0-9a-f]{16,64}\b|:\d\d\.\d{6}Z"
)


def leaks(out: str) -> list[str]:
    """The kinds that are seen in it, as they are or as JSON writes them."""
    text = _OWN_NUMBERS.sub(" ", out)
    return sorted(
        {one.kind for one in FORMS for secret in one.secrets if _seen(secret, one.text, text if len(secret) < 8 else out)}
    )


def _seen(secret: str, text: str, out: str) -> bool:
    if len(secret) < 6:
        return text in out  # a number like many others
    return any(form in out for form in {secret, json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]})


class Place(NamedTuple):
    root: str
    home: Path
    project: Path
    session: str
    note: str
    task: str
    run: str


TOKEN = next(one.secrets[0] for one in FORMS if one.kind == "github token")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A keep in which every form was said, run and printed, is a title, a note, a task, a reason, a folder's name."""
    folder = tmp_path_factory.mktemp("out")
    home, project = folder / "home", folder / f"work-{TOKEN}"
    project.mkdir()
    (folder / "keep").mkdir()
    _write_sessions(home, project)
    root = str(folder / "keep")
    with Keep.open(root) as keep:
        list(keep.ingest(home=home))
        for n, one in enumerate(LINES):
            keep.session(f"t-{n}", cwd=project, title=one.text).end()
        for session in keep.sessions():
            keep.end(session.id)
        name = keep.sessions()[0].project
        notes = [keep.note_add(f"Mind this: {one.text}", project=name) for one in LINES[:60]]
        tasks = [keep.task_open(one.text, project=name) for one in LINES[:60]]
        keep.add_insight("decision", f"We keep {LINES[0].text}", project=name, task=tasks[0]["id"])
        keep.note_change(notes[1]["id"], "retract", reason=LINES[1].text)
        made = keep.dream(limit=3)
        big = next(one.id for one in keep.sessions(agent="claude"))
        yield Place(root, home, project, big, notes[0]["id"], tasks[0]["id"], made["run"])


def _write_sessions(home: Path, project: Path) -> None:
    """One long session of Claude Code, with each form in a prompt, a command, its output and an answer."""
    lines: list[str] = []
    at = "2026-11-01T10:00:00.000Z"

    def line(kind: str, content: Any) -> None:
        head = {"type": kind, "uuid": f"u-{len(lines)}", "parentUuid": f"u-{len(lines) - 1}" if lines else None, "timestamp": at}
        more = {"sessionId": "0a0b0c0d-1111-4222-8333-444455556666", "cwd": str(project), "version": "2.0.0"}
        lines.append(json.dumps({**head, **more, "message": {"role": kind, "content": content}}))

    for n, one in enumerate(FORMS):
        line("user", f"From now on always remember this for later:\n{one.text}\nand tell me.")
        call = {"type": "tool_use", "id": f"toolu_{n}", "name": "Bash", "input": {"command": one.text, "env": [one.text]}}
        line("assistant", [{"type": "text", "text": "I look."}, call])
        line("user", [{"type": "tool_result", "tool_use_id": f"toolu_{n}", "content": f"$ run\n{one.text}\ndone"}])
        line("assistant", [{"type": "text", "text": f"I saw this:\n{one.text}\nand went on."}])
    folder = home / ".claude" / "projects" / f"-work-{TOKEN}"
    folder.mkdir(parents=True)
    (folder / "0a0b0c0d-1111-4222-8333-444455556666.jsonl").write_text("\n".join(lines) + "\n")


# -- the command line

#: Verb → what is typed, or why nothing of a session is printed. `{x}`: a field of Place; each is tried with --json, too.
WAYS: dict[str, list[str] | str] = {
    "status": [""],
    "sessions": ["", "--limit 5"],
    "show": [
        "{session}",
        "{session} --markdown",
        "{session} --lineage",
        "{session} --segment 1",
        "{session} --live",
        "{session} --digest",
    ],
    "pack": ["--project {project}", "--project {project} --query remember --budget 4000"],
    "search": ["remember --limit 200", "always --kind note,insight,message --limit 200", "looked"],
    "notes": ["", "--state all"],
    "note": ["add {said}", "edit {note} {said}", "pin {note}", "retract {note} --reason {said}", "pin {said}"],
    "tasks": [""],
    "task": ["show {task}", "open {said}", "rename {task} {said}", "close {task}", "show {said}"],
    "page": ["--project {project}", "--project {project} --write {home}/MEMORY.md", ""],
    "dream": ["status", "history", "why {note}", "--dry-run", "--preview --limit 1", "--limit 2", "why {said}", "undo {said}"],
    "hygiene": [""],
    "ingest": ["--home {home} --again"],
    "watch": "is another process, below",
    "hook": "is called by agents, below",
    "mcp": "has tools, below",
    "tour": "has a keep of its own, below",
    "tap": "passes an agent's bytes on as they are, and says nothing else",
    "completion": "knows no keep",
    "init": ["--home {home} --dry-run"],
    "drain": [""],
    "reindex": ["", "--from-zero"],
    "doctor": [""],
    "audit": ["--home {home}", "--home {home} --deep"],
    "repair": ["--home {home}"],
    "end": ["{session}", "{said}"],
    "suspend": ["{session}"],
    "resume": ["{session}"],
    "delete": ["{said}", "python:t-1"],
    "undelete": ["python:t-1"],
    "project": ["rename {project} {said}"],
    "projects": [""],
    "review": ["", "--accept {said}", "--edit {note} {said}"],
    "model": ["", "use {said}", "off"],
    "snapshot": ["export {home}/all.snap", "verify {home}/all.snap", "import {home}/all.snap", "verify {said}"],
    "restore": ["{session} --to claude --home {home} --dry-run"],
}
#: These give back what was captured, byte for byte, and docs/settings.md says so.
EXACT = "show --raw, restore, snapshot"


def test_each_verb_of_the_command_line_is_a_way_that_is_listed() -> None:
    verbs = next(one for one in parser()._actions if isinstance(one, argparse._SubParsersAction))
    assert set(WAYS) == set(verbs.choices)


def _typed(words: str, place: Place) -> list[str]:
    said = f"the password is {TOKEN}"
    return [part.format(**place._asdict(), said=said) for part in words.split()]


@pytest.mark.parametrize("as_json", [False, True], ids=["text", "json"])
@pytest.mark.parametrize("verb", [verb for verb, ways in WAYS.items() if not isinstance(ways, str)])
def test_no_secret_is_printed_by(verb: str, as_json: bool, place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    said = 0
    for words in WAYS[verb]:
        typed = [verb, *_typed(words, place), "--keep", place.root, *(["--json"] if as_json else [])]
        assert main(typed) in (0, 1, 2, 3), typed
        out, err = capsys.readouterr()
        assert (leaks(out), leaks(err)) == ([], []), typed
        said += len(out) + len(err)
    assert said


def test_a_page_that_is_written_holds_no_secret(place: Place, tmp_path: Path) -> None:
    with Keep.open(place.root) as keep:
        made = keep.page(project=keep.project_named(str(place.project)), write=tmp_path / "MEMORY.md")
    assert made["notes"] and leaks((tmp_path / "MEMORY.md").read_text()) == []
    pages = [one for one in (*place.project.rglob("*.md"), *Path(place.root).rglob("*.md")) if one.is_file()]
    assert [leaks(one.read_text()) for one in pages] == [[] for _ in pages]


def test_notes_tasks_and_reports_are_kept_without_secrets(place: Place) -> None:
    with Keep.open(place.root) as keep:
        kept = [
            keep.notes(state=None),
            keep.tasks(),
            keep.dream_history(),
            keep.dream_why(place.note),
            keep.task_show(place.task),
        ]
    # A project is known by its name, whatever that is.
    told = json.dumps(kept, ensure_ascii=False, default=str)
    assert leaks(re.sub(r'"project": "[^"]*"', "", told).replace(str(place.project), "")) == []


def test_with_the_setting_off_a_terminal_shows_what_was_captured(
    place: Place, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DREAMKEEP_RECALL_REDACT", "false")
    assert main(["show", place.session, "--keep", place.root]) == 0
    assert len(leaks(capsys.readouterr().out)) > 300
    assert main(["sessions", "--keep", place.root, "--json"]) == 0
    assert leaks(capsys.readouterr().out)
    assert main(["notes", "--keep", place.root]) == 0
    assert leaks(capsys.readouterr().out) == [], "what was written without is without"


def test_show_raw_is_exact_as_it_promises(place: Place, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert main(["show", place.session, "--raw", "--keep", place.root]) == 0
    assert TOKEN.encode() in capfdbinary.readouterr().out


def test_no_secret_is_printed_by_watch(place: Place, tmp_path: Path) -> None:
    words = [
        sys.executable,
        "-m",
        "dreamkeep",
        "watch",
        "--keep",
        str(tmp_path / "keep"),
        "--home",
        str(place.home),
        "--json",
        "--poll",
    ]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as watcher:
        assert watcher.stdout
        first = watcher.stdout.readline()
        watcher.send_signal(signal.SIGTERM)
        out, err = watcher.communicate(timeout=WAIT_S)
    assert json.loads(first)["session"] and leaks(first + out + err) == []


def test_no_secret_is_shown_by_a_tour_of_ones_own_sessions(place: Place, tmp_path: Path) -> None:
    environment = {**os.environ, "HOME": str(place.home)}
    words = [sys.executable, "-m", "dreamkeep", "tour", "--at", str(tmp_path / "tour")]
    done = subprocess.run(words, capture_output=True, text=True, env=environment, timeout=WAIT_S * 3)
    assert done.returncode == 0 and "newest session file" in done.stdout
    assert leaks(done.stdout + done.stderr) == []


def test_no_secret_is_handed_in_by_a_hook(place: Place) -> None:
    agent = Agent(place.root, place.project, "another-session")
    agent.says(f"Rename it; {LINES[0].text}", f"It is renamed; {LINES[3].text}")
    with Keep.open(place.root) as keep:
        keep.drain()
    said = [
        Agent(place.root, place.project, "a-third").starts(),
        agent.fires("UserPromptSubmit", prompt=f"what of {LINES[0].text}?"),
        agent.starts("clear"),
    ]
    assert said[0] and [leaks(one) for one in said] == [[], [], []]
    packs = [one.read_text() for one in Path(place.root).rglob("packs/*.md")]
    assert packs and [leaks(one) for one in packs] == [[] for _ in packs]


# -- MCP

TOOLS: dict[str, list[dict[str, Any]]] = {
    "search": [{"query": "remember", "limit": 50}, {"query": "x", "project": "the password is {said}"}],
    "pack": [{"project": "{project}", "query": "remember"}, {"task": "the password is {said}"}],
    "timeline": [{"session": "{session}", "limit": 200}, {"session": "the password is {said}"}],
    "note_add": [{"text": "mind: the password is {said}", "kind": "preference"}],
    "note_pin": [{"note": "{note}", "pinned": True}, {"note": "the password is {said}", "pinned": True}],
    "note_retract": [{"note": "{note}", "reason": "the password is {said}"}],
    "why": [{"note": "{note}"}, {"note": "the password is {said}"}],
    "insight_add": [{"type": "decision", "text": "the password is {said}", "author": "user"}, {"type": "the password is {said}"}],
    "review": [{"limit": 50}],
    "dream_status": [{}],
    "dream_run": [{"limit": 1, "dry_run": True}, {"limit": 1}],
    "dream_next": [{"again": True}, {"session": "the password is {said}"}],
    "dream_submit": [{"request": "0" * 32, "answer": {"items": [{"note": "the password is {said}"}]}}],
}


def test_each_tool_is_a_way_that_is_listed() -> None:
    assert set(TOOLS) == {tool["name"] for tool in MCP_TOOLS}


def _asked(place: Place) -> list[dict[str, Any]]:
    def filled(value: Any) -> Any:
        return value.format(**place._asdict(), said=TOKEN) if isinstance(value, str) else value

    asked = [(name, {key: filled(value) for key, value in one.items()}) for name, ways in TOOLS.items() for one in ways]
    return [call(n, name, **arguments) for n, (name, arguments) in enumerate([*asked, (f"no_tool_{TOKEN}", {TOKEN: TOKEN})], 1)]


def test_no_secret_is_answered_by_a_tool(place: Place) -> None:
    with wire(place.root) as server:
        for message in _asked(place):
            answer = server.ask(message)
            assert leaks(json.dumps(answer, ensure_ascii=False)) == [], message
        for offset in range(0, 2000, 200):
            page = server.ask(call(f"p{offset}", "timeline", session=place.session, offset=offset, limit=200))
            assert leaks(json.dumps(page, ensure_ascii=False)) == []
        _, err = server.close()
    assert leaks(err) == []


def test_no_secret_is_answered_over_http(place: Place) -> None:
    with address(place.root) as server:
        id = server.session()
        for message in _asked(place):
            got = server.post(message, Mcp_Session_Id=id)
            assert leaks(got.body.decode()) == [], message


# -- models

SETTINGS = '[dream.model]\nmodel = "m"\nkey_env = "SOME_KEY"\n'


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_KEY", "zk-" + "q7W" * 12)


def _dreamed(place: Place, tmp_path: Path, settings: str, backend: str) -> dict[str, Any]:
    root = tmp_path / "keep"
    root.mkdir(mode=0o700)
    (root / "keep.toml").write_text(settings)
    with Keep.open(root) as keep:
        list(keep.ingest(home=place.home))
        for one in LINES[:20]:
            keep.task_open(one.text, project=keep.sessions()[0].project)
        for session in keep.sessions():
            keep.end(session.id)
        return keep.dream(backend=backend)


@pytest.mark.parametrize("backend", ["openai", "anthropic"])
def test_no_secret_is_sent_to_a_model(backend: str, place: Place, tmp_path: Path) -> None:
    with serving() as server:
        server.items = [item("1", "From now on", note=f"Always {LINES[0].text}")]
        made = _dreamed(place, tmp_path, f'{SETTINGS}url = "{server.url}"\n', backend)
        sent = b"\n".join(server.received).decode()
    assert made["processed"] == 1 and len(sent) > 100_000 and leaks(sent) == []
    assert leaks(json.dumps(made, ensure_ascii=False, default=str)) == []


def test_no_secret_is_exported(place: Place, tmp_path: Path) -> None:
    """Requests as files are what a model is sent."""
    root = tmp_path / "keep"
    with Keep.open(root) as keep:
        list(keep.ingest(home=place.home))
        for session in keep.sessions():
            keep.end(session.id)
        assert keep.dream_export(str(tmp_path / "x"))["requests"]
    sent = [file.read_text() for file in (tmp_path / "x").rglob("*.json*")]
    assert sum(map(len, sent)) > 100_000 and leaks("\n".join(sent)) == []


def test_no_secret_is_handed_to_a_command(place: Place, tmp_path: Path) -> None:
    heard = tmp_path / "heard"
    script = tmp_path / "model.sh"
    script.write_text(f"#!/bin/sh\ncat >> {heard}\nenv | grep -v ^PATH >> {heard}\necho '{{\"items\": []}}'\n")
    script.chmod(0o700)
    made = _dreamed(place, tmp_path, f'[dream.model]\ncommand = ["{script}"]\n', "command")
    assert made["processed"] == 1 and leaks(heard.read_text()) == []


def test_what_a_failing_model_says_is_told_without_secrets(place: Place, tmp_path: Path) -> None:
    script = tmp_path / "model.sh"
    script.write_text(f"#!/bin/sh\ncat > /dev/null\necho 'bad: the password is {TOKEN}' >&2\nexit 3\n")
    script.chmod(0o700)
    made = _dreamed(place, tmp_path, f'[dream.model]\ncommand = ["{script}"]\n', "command")
    assert made["failed"] and leaks(json.dumps(made, default=str)) == []
