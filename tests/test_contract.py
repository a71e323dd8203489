"""Every verb that scripts rely on, on the sample's keep: its options, its exit code, and the names in its JSON.

A shape is what the contract has: a dict of names (`name?`: may be missing), a list with the shape of each of its entries, or a
type. More names than these are welcome. With --json there is exactly one document on stdout, on one line, and nothing else.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from dreamkeep.surfaces.cli.parser import VERBS, parser
from tests.helpers.cli import Ran

PROJECT = "example.org/you/toolshed"
SESSION = "claude:e07d3b52-91c4-4a0e-b6f8-1c5a2d9e4004"
TEXT, COUNT, FLAG, TIME = str, int, bool, "time"
MAYBE_TEXT, MAYBE_TIME = (str, type(None)), ("time", type(None))

SESSION_SHAPE = {
    **dict.fromkeys(("id", "agent", "native_id", "project", "cwd", "title", "state"), TEXT),
    **dict.fromkeys(("started_at", "last_at", "ended_at"), MAYBE_TIME),
    **dict.fromkeys(("turns", "messages", "segments", "compactions", "bytes"), COUNT),
    "lineage": [{"kind": TEXT, "session": TEXT}],
}
TURN = {"id": TEXT, "state": TEXT, "prompt": TEXT, "submitted_at": MAYBE_TIME, "settled_at": MAYBE_TIME, "reason?": MAYBE_TEXT}
SEGMENT = {
    "id": TEXT,
    "opened_seq": (int, str),
    "closed_seq": (int, str, type(None)),
    "end_reason": MAYBE_TEXT,
    "precision": TEXT,
}
COMPACTION = {
    "id": TEXT,
    "state": TEXT,
    "active": FLAG,
    "closing": MAYBE_TEXT,
    "sources": [TEXT],
    "before": object,
    "after": object,
    "opened_at": MAYBE_TIME,
    "closed_at": MAYBE_TIME,
}
MESSAGE = {
    "seq": (int, str),
    "role": TEXT,
    "text": TEXT,
    "at": MAYBE_TIME,
    "turn": MAYBE_TEXT,
    "segment": TEXT,
    "tool?": dict,
}
SHOWN = {"session": SESSION_SHAPE, "turns": [TURN], "segments": [SEGMENT], "compactions": [COMPACTION], "messages": [MESSAGE]}
LIVE = {
    "owner_alive": FLAG,
    "active_turn": MAYBE_TEXT,
    "active_segment": MAYBE_TEXT,
    "compaction": {
        "active": FLAG,
        "last_source": MAYBE_TEXT,
        "last_started_at": MAYBE_TIME,
        "last_completed_at": MAYBE_TIME,
        "count": COUNT,
    },
}
HIT = {
    "kind": TEXT,
    "session": TEXT,
    "seq": (int, str),
    "turn": MAYBE_TEXT,
    "text": TEXT,
    "at": MAYBE_TIME,
    "score": float,
    "project": TEXT,
}
NOTE = {
    "id": TEXT,
    "kind": TEXT,
    "text": TEXT,
    "state": TEXT,
    "pinned": FLAG,
    "score": float,
    "first_at": MAYBE_TIME,
    "last_at": MAYBE_TIME,
    "evidence": [{"session": TEXT, "seq": (int, str), "turn": MAYBE_TEXT, "quote": TEXT}],
}
PROJECT_SHAPE = {"name": TEXT, "sessions": COUNT, "notes": COUNT, "last_at": MAYBE_TIME}
TASK = {"id": TEXT, "title": TEXT, "state": TEXT, "project": TEXT, "sessions": [TEXT], "insights": (int, list)}
_SIZE = {"sessions": COUNT, "tokens": COUNT, "tokens_in": COUNT, "tokens_out": COUNT}
MODEL = {"backend": TEXT, "found": list, "estimate": {"days": COUNT, **_SIZE, "again": _SIZE}, "caps": {"spent_today": dict}}
REPORT = {
    "run": MAYBE_TEXT,
    "trigger": {"session_count", "time_elapsed", "manual", None},  # None: nothing was due
    "status": {"completed", "partial", "failed", "skipped"},
    "lock": {"acquired", "busy"},
    "started_at": MAYBE_TIME,
    "finished_at": MAYBE_TIME,
    **dict.fromkeys(("considered", "processed", "failed", "insights_added"), COUNT),
    "notes": dict.fromkeys(("added", "strengthened", "superseded", "retracted"), COUNT),
    "dropped": [{"why": TEXT, "count": COUNT}],
    "usage": object,
    "phases": object,
    "sessions": [{"id": TEXT, "status": TEXT, "reason?": TEXT}],
    "diff?": object,
}
DREAMED = {
    "id": TEXT,
    "eligibility": TEXT,
    "status": TEXT,
    "trigger_reason": MAYBE_TEXT,
    **dict.fromkeys(("completion_recorded_at", "last_attempt_at", "completed_at"), MAYBE_TIME),
    "attempts": COUNT,
    "artifact_refs": [TEXT],
    "failure_reason": MAYBE_TEXT,
}
STATUS = {
    "sessions": [DREAMED],
    "trigger": {"due": FLAG, "why": TEXT, "waiting": COUNT},
    "last_successful_run_at": MAYBE_TIME,
    "last_report": (dict, type(None)),
}
FAULT = {"id": TEXT, "class": TEXT, "where": TEXT, "what": TEXT, "repairable": FLAG, "next": TEXT}
AUDIT = {"clean": FLAG, "checked": dict, "faults": [FAULT]}
STEP = {"fault": TEXT, "action": TEXT, "where": TEXT}
REPAIR = {
    "plan": [STEP],
    "applied": list,
    "skipped": [{"fault": TEXT, "reason": TEXT}],
    "undo_id": MAYBE_TEXT,
    "audit": AUDIT,
}
SOURCE = {
    "agent": TEXT,
    "path": TEXT,
    "session": TEXT,
    "new_bytes": COUNT,
    "new_events": COUNT,
    "state": TEXT,
    "problem?": TEXT,
}
FILES = {"files": [{"path": TEXT, "bytes": COUNT, "exact": FLAG}]}
COUNTS = {"file": TEXT, "sessions": COUNT, "bytes": COUNT, "digest": TEXT}
ERROR = {"error": {"what": TEXT, "where": TEXT, "next": TEXT}}


class Row(NamedTuple):
    """`{…}` in a word stands for what the fixture knows. `rows`: this list in the answer must not be empty, or nothing is shown
    of its shape."""

    words: str
    shape: Any
    code: int = 0
    rows: str = ""


ROWS = [
    Row("status", {"keep": TEXT, "sessions": COUNT, "turns": COUNT, "messages": COUNT}),
    Row("doctor", {"ok": FLAG, "checks": [{"check": TEXT, "ok": FLAG, "what": TEXT, "next": TEXT}]}, rows="checks"),
    Row("ingest --home {home}", {"sources": [SOURCE], "totals": dict}, rows="sources"),
    Row("ingest --agent gemini --agent codex --home {home}", {"sources": [SOURCE], "totals": dict}, rows="sources"),
    Row("ingest {home}/.codex", {"sources": [SOURCE], "totals": dict}, rows="sources"),
    Row("ingest {nothing}", {"sources": [SOURCE], "totals": dict}, 1, "sources"),
    Row("ingest --agent nobody", ERROR, 2),
    Row("init --home {home} --dry-run", {"changes": [{"agent": TEXT, "file": TEXT, "action": TEXT}]}, rows="changes"),
    Row("init --home {own} --agent claude", {"changes": [{"agent": TEXT, "file": TEXT, "action": TEXT}]}, rows="changes"),
    Row("init --home {own} --agent claude --uninstall", {"changes": list}),
    Row("sessions", {"sessions": [SESSION_SHAPE]}, rows="sessions"),
    Row("sessions --project {project} --agent gemini --limit 1", {"sessions": [SESSION_SHAPE]}, rows="sessions"),
    Row("sessions --limit 0", ERROR, 2),
    Row("show {session}", SHOWN, rows="compactions"),
    Row("show {session} --live", {**SHOWN, "live": LIVE}, rows="messages"),
    Row("show {session} --markdown", SHOWN, rows="turns"),
    Row("show nobody", ERROR, 1),
    Row("search reminders", {"hits": [HIT]}, rows="hits"),
    Row("search reminders --kind message,insight,note --project {project} --limit 20", {"hits": [HIT]}, rows="hits"),
    Row("search deploy --session {session} --since 2026-01-01", {"hits": [HIT]}, rows="hits"),
    Row("search reminders --as-of 2026-11-04", {"hits": [HIT]}, rows="hits"),
    Row("search xyzzyplugh", {"hits": [HIT]}, 1),
    Row("search deploy --session nobody", ERROR, 1),
    Row("search deploy --kind nonsense", ERROR, 2),
    Row("pack --query deploy --project {project} --budget 300", {"text": TEXT, "tokens": COUNT, "sources": list}, rows="sources"),
    Row("pack --task {task} --project {project}", {"text": TEXT, "tokens": COUNT, "sources": list}, rows="sources"),
    Row("pack --project none --budget 50", {"text": TEXT, "tokens": COUNT, "sources": list}, 1),
    Row("dream --dry-run", REPORT),
    Row("dream --preview --session {session} --limit 1", REPORT),
    Row("dream --if-due", REPORT),
    Row("dream --backend rules", REPORT),
    Row("dream --with-model", ERROR, 2),
    Row("dream --backend nonsense", ERROR, 2),
    Row("dream status", STATUS, rows="sessions"),
    Row("dream history", {"runs": [{"id": TEXT, "trigger": TEXT, "started_at": TIME, "report": REPORT}]}, rows="runs"),
    Row("dream why {note}", {"note": NOTE, "insights": list, "history": list}, rows="history"),
    Row("dream why n-nobody", ERROR, 1),
    Row("dream undo {run}", {"run": TEXT, "undone": FLAG}),
    Row("dream undo nothing", ERROR, 1),
    Row("model", MODEL),
    Row("model use nobody", ERROR, 2),
    Row("model off", MODEL),
    Row("hygiene", {"closed": list, "failed": list, "reconverged": COUNT, "compressed": COUNT}),
    Row("tasks", {"tasks": [TASK]}, rows="tasks"),
    Row("tasks --project {project}", {"tasks": [TASK]}, rows="tasks"),
    Row("task open Painting --project {project}", TASK),
    Row("task show {task}", TASK),
    Row("task rename {task} Other", TASK),
    Row("task close {task}", TASK),
    Row("task show nothing", ERROR, 1),
    Row("end {session}", SESSION_SHAPE),
    Row("resume {session}", SESSION_SHAPE),
    Row("suspend {session}", ERROR, 2),
    Row("delete {session}", SESSION_SHAPE),
    Row("delete {session} {session}", {"sessions": [SESSION_SHAPE]}, rows="sessions"),
    Row("undelete {session}", ERROR, 1),
    Row("notes", {"notes": [NOTE]}, rows="notes"),
    Row("notes --kind constraint --state active", {"notes": [NOTE]}, rows="notes"),
    Row("notes --state nonsense", ERROR, 2),
    Row("note add Painting --project {project}", NOTE),
    *(Row(f"note {act} {{note}}", NOTE) for act in ("pin", "unpin", "retract", "confirm", "reject")),
    Row("note edit {note} Other", NOTE),
    Row("note pin n-nobody", ERROR, 1),
    Row("note promote {note} --to {own}/nothing.md", ERROR, 2),
    Row("review", {"items": list, "accepted": list, "rejected": list}),
    Row("review --accept {note}", {"items": list, "accepted": [TEXT], "rejected": list}, rows="accepted"),
    Row("review --reject {note}", {"items": list, "accepted": list, "rejected": [TEXT]}, rows="rejected"),
    Row("review --accept-all decision --project {project}", {"items": list, "accepted": list, "rejected": list}),
    Row("review --accept n-nobody", ERROR, 1),
    Row("page --project {project}", {"text": TEXT, "project": TEXT}),
    Row("page --project {project} --write {own}/MEMORY.md", {"path": TEXT, "changed": FLAG}),
    Row("audit --home {home}", AUDIT),
    Row("audit --deep {torn}", AUDIT, 1, "faults"),
    Row("repair {torn}", REPAIR, 1, "plan"),
    Row("repair --apply {torn}", REPAIR, 0, "applied"),
    Row("repair --home {home}", REPAIR),
    Row("repair --undo nothing", ERROR, 1),
    Row("restore {session} --to claude --home {own}", FILES, rows="files"),
    Row("restore {session} --to gemini --home {own}", FILES, rows="files"),
    Row("restore {session} --to nobody", ERROR, 2),
    Row("snapshot export {own}/out.tar.zst", COUNTS),
    Row("snapshot verify {snapshot}", COUNTS),
    Row("snapshot import {snapshot}", {"added": COUNT, "merged": COUNT, "unchanged": COUNT, "events": COUNT}),
    Row("snapshot verify {own}/nothing", ERROR, 2),
    Row("reindex", {"journals": COUNT, "events": COUNT}),
    Row("reindex --from-zero", {"journals": COUNT, "events": COUNT}),
    Row("projects", {"projects": [PROJECT_SHAPE], "offers": list}, rows="projects"),
    Row("project undo {project}", ERROR, 1),
    Row("project undo {project} shed", ERROR, 2),
    Row("project apart {project} nobody", ERROR, 1),
    Row("project rename {project} shed", {"project": TEXT, "was": TEXT, "sessions": COUNT}),
    Row("project merge {project} nobody", ERROR, 1),
    Row("drain", {"calls": COUNT, "sessions": COUNT}),
    Row("nonsense", ERROR, 2),
    Row("show", ERROR, 2),
    Row("notes --nonsense", ERROR, 2),
]


class Week(NamedTuple):
    keep: str
    home: str
    named: dict[str, str]


@pytest.fixture(scope="module")
def week(tmp_path_factory: pytest.TempPathFactory) -> Week:
    """The sample, as a tour leaves it; each row has a copy of the keep."""
    place = tmp_path_factory.mktemp("week") / "tour"
    subprocess.run(
        [sys.executable, "-m", "dreamkeep", "tour", "--sample", "--at", str(place)], check=True, stdout=subprocess.DEVNULL
    )
    keep, home = str(place / "keep"), str(place / "home")

    def ask(*words: str) -> Any:
        return run(keep, home, *words, "--json").json

    snapshot = str(place / "week.tar.zst")
    ask("snapshot", "export", snapshot)
    notes = ask("notes")["notes"]
    named = {
        "note": next(one["id"] for one in notes if one["evidence"]),
        "task": next(one["id"] for one in ask("tasks")["tasks"] if one["insights"]),
        "run": ask("dream", "history")["runs"][0]["id"],
        "snapshot": snapshot,
    }
    return Week(keep, home, named)


def run(keep: str, home: str, *words: str, environment: dict[str, str] | None = None) -> Ran:
    # Nothing of this user's own agents; and no dream or drainer may start in the background and write to what is compared.
    around = {**os.environ, "HOME": home, "DREAMKEEP_DREAM_AUTO": "false", **(environment or {})}
    command = [sys.executable, "-m", "dreamkeep", "--keep", keep, *words]
    done = subprocess.run(command, capture_output=True, text=True, env=around, timeout=120)
    return Ran(done.returncode, done.stdout, done.stderr)


def misses(value: Any, shape: Any, where: str) -> Iterator[str]:
    """What of the shape is not there."""
    if isinstance(shape, dict):
        if not isinstance(value, dict):
            yield f"{where} is no object"
            return
        for name, of in shape.items():
            if name.rstrip("?") in value:
                yield from misses(value[name.rstrip("?")], of, f"{where}.{name}")
            elif not name.endswith("?"):
                yield f"{where}.{name} is missing"
    elif isinstance(shape, list):
        if not isinstance(value, list):
            yield f"{where} is no list"
            return
        for n, one in enumerate(value):
            yield from misses(one, shape[0], f"{where}[{n}]")
    elif isinstance(shape, set):
        if value not in shape:
            yield f"{where} is {value!r}"
    elif not any(_is(value, one) for one in (shape if isinstance(shape, tuple) else (shape,))):
        yield f"{where} is {value!r}"


def _is(value: Any, kind: Any) -> bool:
    if kind == "time":
        return isinstance(value, str) and value[10:11] == "T" and value.endswith("Z")
    if kind is float:
        return isinstance(value, (int, float))
    return isinstance(value, kind) and (kind is bool or kind is object or not isinstance(value, bool))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.words)
def test_a_verb_answers_as_the_contract_says(week: Week, tmp_path: Path, row: Row) -> None:
    keep, own = tmp_path / "keep", tmp_path / "home"
    shutil.copytree(week.keep, keep)
    own.mkdir()
    if "{torn}" in row.words:
        with next(keep.glob("journal/sessions/claude/*/000001.jsonl")).open("ab") as part:
            part.write(b'{"half a frame')
    names = {**week.named, "home": week.home, "own": str(own), "nothing": str(own / "nothing")}
    names |= {"project": PROJECT, "session": SESSION, "torn": f"--home={week.home}"}
    ran = run(str(keep), str(own), *(word.format(**names) for word in row.words.split()), "--json")
    assert ran.code == row.code, ran
    assert "Traceback" not in ran.err
    assert ran.out.endswith("\n") and ran.out.count("\n") == 1, ran.out[:500]
    assert ran.out.isascii() and ran.out.isprintable() is False and "\x1b" not in ran.out
    assert list(misses(ran.json, row.shape, "answer")) == []
    if row.rows:
        assert ran.json[row.rows], f"nothing shows what {row.rows} look like"


def test_every_verb_of_the_contract_is_there_and_every_other_one_is_looked_at_here() -> None:
    told = [
        "ingest",
        "watch",
        "tap",
        "hook",
        "init",
        "sessions",
        "show",
        "search",
        "pack",
        "dream",
        "model",
        "hygiene",
        "tasks",
        "task",
        "end",
        "suspend",
        "resume",
        "delete",
        "undelete",
        "notes",
        "note",
        "review",
        "page",
        "audit",
        "repair",
        "restore",
        "snapshot",
        "reindex",
        "mcp",
        "project",
        "projects",
        "status",
        "doctor",
    ]
    verbs = next(one.choices for one in parser()._actions if one.dest == "verb")
    assert verbs is not None and set(told) <= set(verbs)
    looked_at = {row.words.split()[0] for row in ROWS} | {"watch", "tap"}
    assert {verb.name for verb in VERBS if verb.run} <= looked_at


def test_who_is_busy_says_so_with_four_and_who_failed_with_three(week: Week, tmp_path: Path) -> None:
    import fcntl

    keep = tmp_path / "keep"
    shutil.copytree(week.keep, keep)
    with open(keep / "state" / "dream.lock", "a") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        run(str(keep), str(tmp_path), "resume", SESSION)
        run(str(keep), str(tmp_path), "end", SESSION)
        busy = run(str(keep), str(tmp_path), "dream", "--json")
    assert busy.code == 4 and busy.json["lock"] == "busy" and list(misses(busy.json, REPORT, "answer")) == []
    words = [sys.executable, "-m", "dreamkeep", "--keep", str(keep), "snapshot", "export", "--json", str(tmp_path / "s")]
    done = subprocess.run(["sh", "-c", 'ulimit -f 1; exec "$@"', "sh", *words], capture_output=True, text=True)
    failed = Ran(done.returncode, done.stdout, done.stderr)
    assert failed.code == 3 and list(misses(failed.json, ERROR, "answer")) == []
    assert "dreamkeep: no space: writing the snapshot failed" in failed.err and "Traceback" not in failed.err


def test_following_and_watching_say_one_object_a_line(week: Week, tmp_path: Path) -> None:
    keep, home = tmp_path / "keep", tmp_path / "home"
    shutil.copytree(week.home, home)
    for words, shape in ((["show", SESSION, "--follow"], MESSAGE), (["watch", "--home", str(home), "--poll"], SOURCE)):
        shutil.copytree(week.keep, keep, dirs_exist_ok=True)
        command = [sys.executable, "-m", "dreamkeep", "--keep", str(keep), *words, "--json"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as going:
            assert going.stdout is not None
            line = going.stdout.readline()
            assert list(misses(json.loads(line), shape, words[0])) == []
            time.sleep(0.2)
            going.send_signal(signal.SIGINT)
            rest = going.stdout.read()
            assert going.wait(30) == 0
        assert all(list(misses(json.loads(one), shape, words[0])) == [] for one in rest.splitlines())


def test_a_hook_answers_with_zero_whatever_it_is_told_and_a_tap_with_what_its_agent_did(tmp_path: Path) -> None:
    for words, said in ((["claude", "Stop"], "no json"), (["nobody", "Nothing"], ""), ([], "")):
        command = [sys.executable, "-m", "dreamkeep", "--keep", str(tmp_path / "keep"), "hook", *words]
        done = subprocess.run(command, input=said, capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stdout) == (0, "")
    ran = run(str(tmp_path / "keep"), str(tmp_path), "tap", "--agent", "gemini", "--", sys.executable, "-c", "exit(7)")
    assert (ran.code, ran.out) == (7, "")
