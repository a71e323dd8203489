"""Dreaming as a user does it: by the command line, on sessions as agents leave them."""

from __future__ import annotations

import hashlib
import json
import socket
import time
from pathlib import Path
from typing import Any

import pytest

from dreamkeep import Keep
from dreamkeep.dream.backends.api import Given, Proposal
from dreamkeep.errors import BadUsage, NotFound
from dreamkeep.verbs.dream.dreams import open_dreaming
from tests.helpers.cli import Cli


@pytest.fixture
def told(root: str) -> str:
    """A keep with two finished sessions, and one that is not."""
    with Keep.open(root) as keep:
        for n, words in enumerate(("We never use floats for prices.", "Always run `make lint` before you commit.")):
            session = keep.session(f"s{n}", cwd="/")
            session.record(words, ("assistant", "Understood."))
            session.end()
        keep.session("open", cwd="/").record("We never deploy on Fridays.")
    return root


def tree(root: str) -> dict[str, str]:
    return {str(p): hashlib.sha256(p.read_bytes()).hexdigest() for p in sorted(Path(root).rglob("*")) if p.is_file()}


def test_a_dream_is_told_what_it_did_and_what_is_remembered(told: str, cli: Cli) -> None:
    """M11 D23: the report by the contract; a note is found by the next search."""
    made = cli("dream", "--json")
    assert made.code == 0
    wanted = {
        *("run", "trigger", "status", "lock", "started_at", "finished_at", "considered", "processed", "failed"),
        *("insights_added", "notes", "dropped", "usage", "phases", "sessions"),
    }
    assert wanted <= set(made.json) and (made.json["processed"], made.json["trigger"]) == (2, "manual")
    notes = cli("notes", "--json").json["notes"]
    assert any("floats" in one["text"] for one in notes) and not any("Friday" in one["text"] for one in notes)
    for one in notes:
        assert {"id", "kind", "text", "state", "pinned", "score", "first_at", "last_at", "evidence"} <= set(one)
        for quote in one["evidence"]:
            shown = cli("show", quote["session"], "--json").json["messages"]
            assert any(str(m["seq"]) == quote["seq"] and quote["quote"] in m["text"] for m in shown)
    again = cli("dream", "--json").json
    assert (again["considered"], again["run"]) == (0, None)
    assert "Nothing to dream about" in cli("dream").out


def test_status_says_that_a_model_would_make_more_of_the_sessions_unless_one_does(
    told: str, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cli("status", "--json").json["backend"] == "rules"
    assert "A model would find more: `dreamkeep model`" in cli("status").out
    monkeypatch.setenv("DREAMKEEP_DREAM_BACKEND", "command")
    assert "dreams    by command" in cli("status").out and "A model would" not in cli("status").out


def test_a_dry_run_opens_no_socket_and_changes_no_byte(told: str, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """D36: nor does a preview write; scope is told, nothing is recorded."""
    cli("dream", "status")
    with Keep.open(told) as keep:
        open_dreaming(keep.context).complete()
    before = tree(told)

    def no_socket(*given: Any, **more: Any) -> socket.socket:
        raise AssertionError("a socket was opened")

    monkeypatch.setattr(socket, "socket", no_socket)

    class Never:
        def backfill(self, given: Given) -> list[Proposal]:
            raise AssertionError("a backend was asked")

    with Keep.open(told) as keep:
        made = keep.dream(dry_run=True, backend=Never())
        assert (made["processed"], made["insights_added"], made["run"]) == (2, 0, None)
        assert made["estimate"]["tokens"] > 0 and tree(told) == before
        shown = keep.dream(preview=True)
        assert shown["diff"]["notes"] and shown["run"] is None and tree(told) == before
        assert keep.dream_history() == []


@pytest.mark.parametrize("most", [200, 4])
def test_a_preview_tells_of_each_page_what_the_dream_then_writes_into_it(
    told: str, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """D36: within the page's budget, in files elsewhere, too; and for people as well."""
    monkeypatch.setenv("DREAMKEEP_PAGE_MAX_LINES", str(most))
    cli("dream", "--session", "s1")
    elsewhere = tmp_path / "CLAUDE.md"
    with Keep.open(told) as keep:
        keep.page(project=keep.sessions()[0].project, write=elsewhere)
    [ours] = Path(told).glob("pages/*/MEMORY.md")
    before = {str(path): path.read_text().splitlines() for path in (ours, elsewhere)}
    shown = cli("dream", "--preview", "--json").json["diff"]
    seen = cli("dream", "--preview").out
    assert cli("dream").code == 0
    changed = {path for path, lines in before.items() if Path(path).read_text().splitlines() != lines}
    assert {one["path"] for one in shown["pages"]} == changed and bool(changed) == (most > 4)
    for one in shown["pages"]:
        lines = one["diff"].splitlines()[2:]
        after = Path(one["path"]).read_text().splitlines()
        assert [line[1:] for line in lines if line[0] == "+"] == [line for line in after if line not in before[one["path"]]]
        assert f"{one['path']}:" in seen and all(f"  {line}" in seen for line in lines)
    monkeypatch.setenv("DREAMKEEP_PAGE_MAX_LINES", "200")
    elsewhere.write_text(elsewhere.read_text().replace("<!-- dreamkeep:end -->", ""))
    with Keep.open(told) as keep:
        keep.end("open")
    assert f"{elsewhere} would not be written: dreamkeep's region has no end" in cli("dream", "--preview").out


def test_a_page_that_is_left_alone_is_told_by_dream_history_status_and_doctor_until_it_is_mended(told: str, cli: Cli) -> None:
    """M10 M11: and kept in the report of the run that could not write it."""
    cli("dream", "--session", "s1")
    [page] = Path(told).glob("pages/*/MEMORY.md")
    whole = page.read_text()
    page.write_text(whole.replace("<!-- dreamkeep:end -->", ""))
    said = f"{page}: dreamkeep's region has no end"
    ran = cli("dream")
    assert ran.code == 1 and f"Not written: {said}" in ran.out and "Read 1 of 1 session" in ran.out
    [run, _] = cli("dream", "history", "--json").json["runs"]
    assert [(one["path"], one["problem"]) for one in run["report"]["pages"]] == [tuple(said.split(": "))]
    assert f"{run['id']}: Not written: {said}" in cli("dream", "history").out
    assert f"Not written: {said}" in cli("dream", "status").out
    nothing = cli("dream")
    assert nothing.code == 1 and "Nothing to dream about" in nothing.out and f"Not written: {said}" in nothing.out
    [found] = [one for one in cli("doctor", "--json").json["checks"] if one["check"] == "page"]
    assert not found["ok"] and str(page) in found["what"] and "fences" in found["next"]
    page.write_text(whole)
    assert cli("dream").code == 0 and cli("dream", "status", "--json").json["pages"] == []
    assert not [one for one in cli("doctor", "--json").json["checks"] if one["check"] == "page"]


def test_a_dream_that_only_took_hand_edits_in_says_so(told: str, cli: Cli) -> None:
    """M10: with nothing to read; and a run that took some in keeps that in its report."""
    cli("dream", "--session", "s1")
    [page] = Path(told).glob("pages/*/MEMORY.md")
    page.write_text(page.read_text().replace("make lint", "make check"))
    with Keep.open(told) as keep:
        made = keep.dream(sessions=["open"])
    assert made["run"] is None and [one["edits"] for one in made["pages"]] == [1]
    page.write_text(page.read_text().replace("make check", "make all"))
    assert f"Applied 1 hand edit from {page}" in cli("dream").out
    assert [one["edits"] for one in cli("dream", "history", "--json").json["runs"][0]["report"]["pages"]] == [1]
    page.write_text(page.read_text().replace("make all", "make test"))
    out = cli("dream").out
    assert f"Applied 1 hand edit from {page}" in out and "Nothing else to dream about" in out
    assert cli("dream").out.startswith("Nothing to dream about")


def test_status_tells_of_each_session_what_the_contract_says(told: str, cli: Cli) -> None:
    """M1 D10"""
    cli("hygiene")
    found = cli("dream", "status", "--json").json
    assert {one["id"]: one["eligibility"] for one in found["sessions"]} == {"python:s0": "eligible", "python:s1": "eligible"}
    fields = {
        *("id", "eligibility", "status", "trigger_reason", "completion_recorded_at", "last_attempt_at", "completed_at"),
        *("attempts", "artifact_refs", "failure_reason"),
    }
    assert all(fields <= set(one) for one in found["sessions"])
    assert found["trigger"]["due"] is False and found["trigger"]["waiting"] == 2 and found["last_report"] is None
    cli("dream")
    found = cli("dream", "status", "--json").json
    assert {one["eligibility"] for one in found["sessions"]} == {"already_consolidated"}
    assert found["last_report"]["processed"] == 2 and all(one["artifact_refs"] for one in found["sessions"])


def test_undo_takes_a_run_back_and_why_tells_where_a_note_comes_from(told: str, cli: Cli) -> None:
    """M11"""
    run = cli("dream", "--json").json["run"]
    note = cli("notes", "--json").json["notes"][0]
    why = cli("dream", "why", note["id"], "--json").json
    assert why["note"]["id"] == note["id"] and why["insights"] and why["history"][0]["what"] == "added"
    assert note["evidence"][0]["quote"] in cli("dream", "why", note["id"]).out
    assert cli("dream", "undo", run[:18]).code == 0
    assert cli("notes", "--json").json["notes"] == []
    assert [one["undone"] for one in cli("dream", "history", "--json").json["runs"]] == [True]
    assert cli("dream", "--json").json["considered"] == 0, "nobody wants the same again by itself"
    assert cli("dream", "undo", "nobody").code == 1 and cli("dream", "why").code == 2


def test_what_an_undone_run_had_superseded_is_superseded_by_a_later_run_that_said_the_same(root: str) -> None:
    """M11: and with that run undone, too, it holds again."""
    from tests.helpers.prompt_dreams import Prompts

    old, new = "The port of the server is always 8080.", "The port of the server is always 8443."
    with Keep.open(root) as keep:

        def dream(name: str, *words: str) -> str:
            session = keep.session(name, cwd="/")
            for one in words:
                session.record(one)
            session.end()
            return str(keep.dream(backend=Prompts())["run"])

        def active() -> set[str]:
            return {one["text"] for one in keep.notes()}

        dream("a", old, "We never use floats for prices.")
        first, second = dream("b", new), dream("c", new)
        keep.dream_undo(first)
        assert active() == {new, "We never use floats for prices."}
        [was] = [one for one in keep.notes(state="superseded") if one["text"] == old]
        [now] = [one for one in keep.notes() if one["text"] == new]
        assert was["by"] == now["id"] and keep.dream_why(was["id"])["history"][-1]["run"] == second
        before = keep.notes(state=None)
        keep.reindex(from_zero=True)
        assert keep.notes(state=None) == before and keep.dream()["considered"] == 0
        keep.dream_undo(second)
        assert active() == {old, "We never use floats for prices."}


def test_a_word_that_another_runs_word_had_overruled_when_it_was_heard_holds_when_that_run_is_undone(root: str) -> None:
    """M11: it came too late, or from an agent: the run that heard it superseded it itself."""
    from tests.helpers.prompt_dreams import Prompts

    class Replies:
        def backfill(self, given: Given) -> list[Proposal]:
            said = [one for turn in given.turns for one in turn.messages if one.role == "assistant"]
            return [Proposal("constraint", one.text, one.seq, one.text) for one in said]

    by_user, by_agent = "The port of the server is always 8443.", "The port of the server is always 8080."
    with Keep.open(root) as keep:
        session = keep.session("a", cwd="/")
        session.record(by_user)
        session.end()
        first = str(keep.dream(backend=Prompts())["run"])
        other = keep.session("b", cwd="/")
        other.record("Which port?", ("assistant", by_agent))
        other.end()
        keep.dream(backend=Replies())
        assert [one["text"] for one in keep.notes(state="superseded")] == [by_agent]
        keep.dream_undo(first)
        assert [one["text"] for one in keep.notes()] == [by_agent]
        before = keep.notes(state=None)
        keep.reindex(from_zero=True)
        assert keep.notes(state=None) == before


@pytest.mark.parametrize("gone", [0, 1])
def test_a_notes_history_counts_no_session_whose_run_was_undone(root: str, gone: int) -> None:
    """M11: `why` tells how many sessions said it, of those that are left."""
    from tests.helpers.prompt_dreams import Prompts

    runs = []
    with Keep.open(root) as keep:
        for name in ("a", "b"):
            session = keep.session(name, cwd="/")
            session.record("We never use floats for prices.")
            session.end()
            runs.append(str(keep.dream(backend=Prompts())["run"]))
        [note] = keep.notes()
        assert any("said in 2 sessions" in step["why"] for step in keep.dream_why(note["id"])["history"])
        keep.dream_undo(runs[gone])
        [note] = keep.notes()
        history = keep.dream_why(note["id"])["history"]
        assert note["sessions"] == 1 and history and not any("2 sessions" in step["why"] for step in history)


def test_ending_or_suspending_an_old_session_by_hand_does_not_make_it_the_newest(
    root: str, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else `sessions` and packs would take it for what was done last. That somebody comes back to it is news."""
    with Keep.open(root) as keep:
        for name in ("old", "older", "new"):
            keep.session(name, cwd="/").record("We never use floats.")
        later = keep.context.host.now() + 3600 * 10**9
        monkeypatch.setattr(type(keep.context.host), "now", lambda host: later)
        said_at = {one: keep.summary(f"python:{one}").last_at for one in ("old", "older")}
        assert keep.end("old").last_at == said_at["old"] and keep.suspend("older").last_at == said_at["older"]
        assert keep.sessions()[0].id == "python:new" and str(keep.summary("python:old").ended_at) > str(said_at["old"])
        keep.reindex(from_zero=True)
        assert keep.sessions()[0].id == "python:new"
        keep.resume("older")
        assert keep.sessions()[0].id == "python:older"


def test_hygiene_ends_quiet_sessions_and_never_suspended_or_working_ones(
    root: str, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """M3 D8 D9: what was closed is what is recorded, and a second pass finds nothing."""
    monkeypatch.setenv("DREAMKEEP_HYGIENE_STALE_HOURS", "0.01")
    with Keep.open(root) as keep:
        for name in ("quiet", "suspended", "works"):
            keep.session(name, cwd="/").record("We never use floats.")
        keep.suspend("suspended")
        turn = keep.session("works").submit("more")
        turn.start()
        later = keep.context.host.now() + 3600 * 10**9
        said_at = keep.summary("python:quiet").last_at
        monkeypatch.setattr(type(keep.context.host), "now", lambda host: later)
        done = keep.hygiene()
        assert keep.summary("python:quiet").last_at == said_at, "that it was quiet does not make it the last one"
        assert (done["closed"], done["failed"], done["reconverged"]) == (["python:quiet"], [], 0)
        assert [one["id"] for one in keep.dream_status()["sessions"]] == ["python:quiet"]
        assert keep.hygiene()["closed"] == []
        keep.session("ended", cwd="/").record("x")
        keep.session("ended").end()
        keep.session("silent", cwd="/")
        monkeypatch.setattr(type(keep.context.host), "now", lambda host: later + 3600 * 10**9)
        done = keep.hygiene()
        assert done["closed"] == ["python:silent"] and done["reconverged"] == 1, "an end that nobody recorded"


def test_a_note_of_the_user_is_kept_changed_and_taken_back(root: str, cli: Cli) -> None:
    """D28"""
    note = cli("note", "add", "Tabs,  not spaces.", "--kind", "preference", "--json").json
    assert (note["text"], note["author"], note["state"]) == ("Tabs, not spaces.", "user", "active")
    assert cli("note", "add", "tabs, not spaces", "--json").json["id"] == note["id"]
    assert cli("note", "pin", note["id"], "--json").json["pinned"] is True
    assert cli("note", "edit", note["id"][:6], "Spaces.", "--json").json["text"] == "Spaces."
    assert cli("note", "retract", note["id"], "--json").json["state"] == "retracted"
    assert cli("notes", "--json").json["notes"] == [] and len(cli("notes", "--state", "all", "--json").json["notes"]) == 1
    for bad, code in (
        (("note", "add", " "), 2),
        (("note", "add", "x", "--kind", "nonsense"), 2),
        (("note", "pin", "n-nobody"), 1),
    ):
        assert cli(*bad).code == code, bad


def test_tasks_are_opened_renamed_and_closed(told: str, cli: Cli) -> None:
    cli("dream")
    found = cli("tasks", "--json").json["tasks"]
    assert {one["title"] for one in found} == {"We never use floats for prices.", "Always run `make lint` before you commit."}
    task = cli("task", "open", "Ship it", "--json").json
    assert cli("task", "rename", task["id"], "Ship it now", "--json").json["title"] == "Ship it now"
    assert cli("task", "close", task["id"], "--state", "abandoned", "--json").json["state"] == "abandoned"
    assert cli("task", "close", task["id"], "--state", "open").code == 2 and cli("task", "show", "t-nobody").code == 1


def test_ones_own_backend_and_only_some_sessions(told: str) -> None:
    class Mine:
        def backfill(self, given: Given) -> list[Proposal]:
            said = given.turns[0].messages[0]
            return [Proposal("decision", f"Decided: {said.text}", said.seq, said.text)]

    with Keep.open(told) as keep:
        made = keep.dream(backend=Mine(), sessions=["s1"])
        assert [one["id"] for one in made["sessions"]] == ["python:s1"]
        assert keep.notes()[0]["kind"] == "decision"
        with pytest.raises(BadUsage, match="unknown backend 'gpt'"):
            keep.dream(backend="gpt")
        with pytest.raises(NotFound):
            keep.dream(sessions=["nobody"])
        with pytest.raises(BadUsage):
            keep.dream(limit=0)


def test_a_keep_that_is_not_there_dreams_of_nothing(root: str, cli: Cli) -> None:
    assert cli("dream").code == 0 and cli("hygiene").code == 0 and not Path(root).exists()
    assert json.loads(cli("dream", "--json").out)["considered"] == 0


def test_the_fifth_session_that_ends_starts_a_dream_by_itself_and_off_means_off(root: str, cli: Cli) -> None:
    """M4: after completion was recorded, detached; never while capture is off or dreams are by hand."""
    with Keep.open(root) as keep:
        for n in range(5):
            keep.session(f"s{n}", cwd="/").record(f"We never use floats for price number {n}.")
    for n in range(4):
        assert cli("end", f"s{n}").code == 0
    with Keep.open(root) as keep:
        assert keep.dream_history() == []
        keep.end("s4")
        (Path(root) / "OFF").touch()
        assert keep.start_dream() is False
        (Path(root) / "OFF").unlink()
    with Keep.open(root, environment={"DREAMKEEP_DREAM_AUTO": "false"}) as keep:
        assert keep.start_dream() is False and keep.dream_history() == []
    assert cli("end", "s4").code == 0
    with Keep.open(root) as keep:
        for _ in range(300):
            if keep.dream_history() and keep.dream_history()[0]["report"]:
                break
            time.sleep(0.1)
        [run] = keep.dream_history()
        assert (run["trigger"], run["report"]["processed"]) == ("session_count", 5)
        assert keep.start_dream() is False
    assert (Path(root) / "state" / "dream.log").read_text() == ""


def test_an_unknown_backend_is_refused_also_where_there_is_no_keep_yet(tmp_path: Path) -> None:
    """D35: whoever tries a name before the first session must not think that it is one."""
    with Keep.open(tmp_path / "none", environment={}) as keep:
        with pytest.raises(BadUsage, match="unknown backend 'gpt'"):
            keep.dream(backend="gpt")
        assert keep.dream()["run"] is None and not keep.exists()


def test_with_model_means_the_model_of_the_settings_and_says_so_where_there_is_none(told: str, cli: Cli) -> None:
    """D35: never silently another one."""
    refused = cli("dream", "--with-model")
    assert refused.code == 2 and "name no model" in refused.err
    settings = Path(told) / "keep.toml"
    settings.write_text('[dream.model]\ncommand = ["false"]\n')
    made = cli("dream", "--with-model", "--json")
    assert made.code == 1 and made.json["failed"] == 2 and cli("notes", "--json").json["notes"] == []
    assert cli("dream", "--json").json["processed"] == 2, "what failed is read by the next run"


def test_a_dream_does_not_dream_of_its_own_questions(root: str) -> None:
    """D13: an agent's command line that a dream asked has left a session, too."""
    from dreamkeep.dream.backends.model.requests import OURS

    with Keep.open(root) as keep:
        session = keep.session("asked", cwd="/")
        session.record(f"{OURS}\nmaterial: we never use floats", ("assistant", "{}"))
        session.end()
        assert keep.dream()["considered"] == 0 and keep.dream_status()["sessions"] == []


def test_a_lock_that_somebody_holds_is_an_answer_and_nobody_waits_for_it(told: str) -> None:
    """D7: an event loop goes on, because nothing here blocks: asked in a thread or not, the answer comes at once."""
    import asyncio

    with Keep.open(told) as keep, Keep.open(told) as other, open_dreaming(keep.context).lock() as mine:
        assert mine

        async def both() -> tuple[dict[str, Any], int]:
            ticks = 0
            asked = asyncio.create_task(asyncio.to_thread(other.dream))
            while not asked.done():
                ticks += 1
                await asyncio.sleep(0)
            return asked.result(), ticks

        made, ticks = asyncio.run(both())
        assert made["lock"] == "busy" and ticks > 0


def test_what_was_compressed_or_is_gone_at_its_agent_before_it_was_dreamed_is_dreamed_all_the_same(tmp_path: Path) -> None:
    """D21: nothing undreamed is ever dropped here; hygiene only compresses."""
    from tests.agents import claude

    claude.write(tmp_path / "home")
    with Keep.open(tmp_path / "k") as keep:
        list(keep.ingest(home=tmp_path / "home"))
        before = {one.id: one.messages for one in keep.sessions()}
        for file in list((tmp_path / "home").rglob("*.jsonl")):
            file.unlink()
        list(keep.ingest(home=tmp_path / "home"))
        keep.hygiene()
        assert keep.compress(everything=True) > 0
        assert {one.id: one.messages for one in keep.sessions()} == before
        for one in keep.sessions():
            keep.end(one.id)
        made = keep.dream()
        assert made["failed"] == 0 and made["processed"] == made["considered"] > 0


def test_what_failed_in_a_dream_that_started_by_itself_is_told_by_doctor(
    root: str, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Keep.open(root) as keep:
        keep.session("s", cwd="/").record("We never use floats.")
        keep.end("s")
    monkeypatch.setenv("DREAMKEEP_DREAM_SESSION_COUNT", "1")
    monkeypatch.setenv("DREAMKEEP_DREAM_MODEL_COMMAND", '["false"]')
    monkeypatch.setenv("DREAMKEEP_DREAM_BACKEND", "command")
    with Keep.open(root) as keep:
        assert keep.start_dream()
    log = Path(root, "state", "dream.log")
    for _ in range(300):
        if log.exists() and log.read_text().endswith("\n"):
            break
        time.sleep(0.1)
    assert "python:s: " in log.read_text()
    with Keep.open(root) as keep:
        [told] = [one for one in keep.doctor() if one["check"] == "dream"]
        assert not told["ok"] and "dream.log" in told["next"]
        assert keep.dream_status()["sessions"][0]["eligibility"] == "retry_after_failure"


def test_a_dreams_own_command_starts_no_dream(told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """D27 D13"""
    monkeypatch.setenv("DREAMKEEP_DREAM_SESSION_COUNT", "1")
    monkeypatch.setenv("DREAMKEEP_DREAMING", "1")
    with Keep.open(told) as keep:
        assert not keep.start_dream() and not Path(told, "state", "dream.log").exists()


def test_garbage_in_the_journal_breaks_no_verb(told: str, cli: Cli) -> None:
    """M4 D2"""
    strange: list[tuple[str, dict[str, Any]]] = [
        ("page.published", {"project": ["x"], "path": "pages/x/y", "region": 7, "notes": 3}),
        ("page.published", {"project": "x", "path": 5}),
        ("dream.finished", {"run": "r", "report": {"sessions": 5, "notes": 4, "lock": 2}}),
        ("dream.finished", {"run": "r-2", "report": {}}),
        ("dream.started", {"run": ["r"], "trigger": {}, "sessions": [7]}),
        ("session.completed", {"session": "python:s0", "seq": 10**15}),
        ("session.completed", {"session": "python:nobody", "seq": 3}),
        ("insight.added", {"id": "i-1", "type": "constraint", "text": "x", "evidence": [], "confidence": 1e308, "state": "odd"}),
        ("note.added", {"id": "n-1", "kind": "odd", "text": "y" * 9000, "insights": ["i-1"], "project": "../../../x"}),
        ("task.opened", {"id": "t-1", "title": ["x"], "project": {}}),
        ("note.pinned", {"id": "n-1"}),
    ]
    with Keep.open(told) as keep:
        for kind, body in strange:
            keep.context.journals().say("", kind, body)
    assert cli("dream")[0] in (0, 1)
    for words in (("dream", "status"), ("dream", "history"), ("notes",), ("tasks",), ("page",), ("dream", "why", "n-1")):
        assert cli(*words)[0] == 0, words
        assert cli(*words, "--json")[0] == 0, words
    assert {path.parent.parent for path in Path(told).parent.rglob("MEMORY.md")} == {Path(told, "pages")}
    with Keep.open(told) as keep:
        assert {"We never use floats for prices.", "y" * 9000} <= {one["text"] for one in keep.notes()}


def test_the_last_report_is_the_last_ones_also_when_the_clock_was_set_back(told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """M4"""
    with Keep.open(told) as keep:
        real = type(keep.context.host).now
        monkeypatch.setattr(type(keep.context.host), "now", lambda host: real(host) + 400 * 24 * 3600 * 10**9)
        first = keep.dream(limit=1)["run"]
        monkeypatch.setattr(type(keep.context.host), "now", real)
        assert keep.dream_status()["trigger"]["due"], "a success in the future is no reason to wait"
        second = keep.dream()["run"]
        assert keep.dream_status()["last_report"]["run"] == second
        assert [one["id"] for one in keep.dream_history()] == [second, first]


def test_what_can_not_be_is_said_and_what_is_not_there_yet_has_a_next_step(root: str, cli: Cli) -> None:
    """A misspelt kind is not an empty answer; and who ingested a moment ago learns why nothing is dreamed of."""
    with Keep.open(root) as keep:
        keep.session("s", cwd="/").record("We never use floats.")
    assert "hygiene" in cli("dream").out
    for flag, word in (("--kind", "constraints"), ("--state", "alive")):
        refused = cli("notes", flag, word)
        assert refused.code == 2 and word in refused.err and "Use one of" in refused.err
    assert cli("notes", "--state", "all", "--kind", "constraint").code == 0
    assert "There are no notes for that project" in cli("page", "--project", "nothing").out
    assert (
        "No notes apply to every project" in cli("page", "--write", f"{root}/none.md").out
        and not Path(f"{root}/none.md").exists()
    )


def test_what_a_command_has_no_use_for_is_refused_and_nothing_is_done(told: str, cli: Cli) -> None:
    """Who types `undo RUN --dry-run` wants to see what would be, and who forgets the quotes wants all of the words."""
    run = cli("dream", "--json").json["run"]
    note = cli("notes", "--json").json["notes"][0]["id"]
    task = cli("tasks", "--json").json["tasks"][0]["id"]
    before = tree(f"{told}/journal")
    for words, left_out in (
        (("dream", "undo", run, "--dry-run"), "--dry-run"),
        (("dream", "status", "extra"), "'extra'"),
        (("dream", "status", "--dry-run"), "--dry-run"),
        (("dream", "history", "--if-due"), "--if-due"),
        (("dream", "why", note, "--session", "s0"), "--session"),
        (("note", "add", "Prices", "integers"), "'integers'"),
        (("note", "add", "Prices", "--reason", "x"), "--reason"),
        (("note", "pin", note, "well"), "'well'"),
        (("note", "retract", note, "--kind", "preference"), "--kind"),
        (("task", "open", "Ship", "it"), "'it'"),
        (("task", "show", task, "--state", "done"), "--state"),
        (("task", "close", task, "--project", "x"), "--project"),
    ):
        refused = cli(*words, "--json")
        assert refused.code == 2 and left_out in refused.json["error"]["what"] and refused.json["error"]["next"], words
    for verb in ("notes", "page", "tasks", "hygiene"):
        assert cli(verb, "extra").code == 2
    assert cli("dream", "--backend", "rules", "--with-model").code == 2
    assert tree(f"{told}/journal") == before


def test_a_history_is_as_long_as_it_is_asked_for(told: str, cli: Cli) -> None:
    runs = [cli("dream", "--limit", "1", "--json").json["run"] for _ in range(2)]
    assert [one["id"] for one in cli("dream", "history", "--limit", "1", "--json").json["runs"]] == runs[1:]
    assert len(cli("dream", "history", "--json").json["runs"]) == 2


def test_why_tells_every_reason_that_a_user_gave(root: str, cli: Cli) -> None:
    note = cli("note", "add", "Tabs, not spaces.", "--json").json["id"]
    for n, act in enumerate(("pin", "unpin", "confirm", "reject", "confirm", "retract")):
        assert cli("note", act, note, "--reason", f"reason {n} for token=hunter2hunter2").code == 0
    steps = cli("dream", "why", note, "--json").json["history"]
    assert [one["what"] for one in steps[1:]][:3] == ["pinned", "unpinned", "confirmed"]
    told = cli("dream", "why", note).out
    assert all(f"reason {n} for" in told for n in range(6)) and "hunter2hunter2" not in told


def _recorded(keep: str) -> dict[str, str]:
    """All but the witness, which every question may bring up to date."""
    return {path: mark for path, mark in tree(f"{keep}/journal").items() if "/witness" not in path}


def test_status_knows_what_waits_though_nobody_recorded_its_end_or_it_failed_just_now(
    told: str, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D10: what `dream --dry-run` would read, `dream status` does not call nothing; and looking records nothing."""
    before = _recorded(told)
    found = cli("dream", "status", "--json").json
    assert [(one["id"], one["eligibility"], one["completion_recorded_at"]) for one in found["sessions"]] == [
        ("python:s0", "eligible", None),
        ("python:s1", "eligible", None),
    ]
    assert found["trigger"]["waiting"] == 2 and _recorded(told) == before
    monkeypatch.setenv("DREAMKEEP_DREAM_MODEL_COMMAND", '["false"]')
    assert cli("dream", "--backend", "command").code == 1
    found = cli("dream", "status", "--json").json
    assert {one["eligibility"] for one in found["sessions"]} == {"retry_after_failure"}
    assert found["trigger"] == {
        "due": False,
        "why": "only 2 failed sessions are waiting, for a later retry",
        "waiting": 2,
    }
    skipped = cli("dream", "--if-due", "--json").json
    assert (skipped["status"], skipped["waiting"], skipped["why"]) == ("skipped", 2, found["trigger"]["why"])


def test_what_is_given_up_is_told_with_its_reason_and_the_way_out_and_another_backend_tries_it(
    told: str, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D26 D35: an outage must not lose sessions without a word."""
    monkeypatch.setenv("DREAMKEEP_DREAM_MAX_ATTEMPTS", "2")
    monkeypatch.setenv("DREAMKEEP_DREAM_MODEL_COMMAND", '["false"]')
    monkeypatch.setenv("DREAMKEEP_DREAM_BACKEND", "command")
    assert cli("dream", "--json").json["given_up"] == []
    last = cli("dream")
    assert last.code == 1 and "Gave up on 2 sessions after 2 attempts" in last.out and "--session ID" in last.out
    for words in (("dream",), ("dream", "--dry-run"), ("dream", "--preview"), ("dream", "--if-due")):
        ran, made = cli(*words), cli(*words, "--json").json
        assert "gave up on 2 sessions after 2 attempts" in ran.out and "--session ID" in ran.out, words
        assert [(one["id"], one["attempts"]) for one in made["given_up"]] == [("python:s0", 2), ("python:s1", 2)]
        assert "gave up" in made["why"] and "false" in made["given_up"][0]["reason"]
    found = cli("dream", "status")
    assert "gave up on 2 sessions" in found.out and "--session ID" in found.out
    [entry] = [one for one in cli("doctor", "--json").json["checks"] if one["check"] == "dream"]
    assert not entry["ok"] and "gave up on 2 sessions after 2 attempts" in entry["what"] and "--session ID" in entry["next"]
    assert cli("dream", "--dry-run", "--backend", "rules", "--json").json["considered"] == 2
    assert cli("dream", "--backend", "rules", "--limit", "1", "--json").json["processed"] == 1
    monkeypatch.setenv("DREAMKEEP_DREAM_BACKEND", "rules")
    assert cli("dream", "status", "--json").json["trigger"]["waiting"] == 1
    assert not [one for one in cli("doctor", "--json").json["checks"] if one["check"] == "dream"]
    made = cli("dream", "--json").json
    assert (made["processed"], made["given_up"]) == (1, [])


def test_where_no_note_is_shown_it_is_told_why(told: str, cli: Cli) -> None:
    """A misspelt project is not an empty memory, nor is one whose notes have ended."""
    assert "No notes yet" in cli("notes").out
    cli("dream")
    assert "Unknown project 'zzz'" in cli("notes", "--project", "zzz").out
    assert "Unknown project 'zzz'" in cli("tasks", "--project", "zzz").out
    assert cli("notes", "--project", "zzz", "--json").json == {"notes": []}
    assert "lists all of them" in cli("notes", "--kind", "rejection").out
    for one in cli("notes", "--json").json["notes"]:
        cli("note", "retract", one["id"])
    shown = cli("notes").out
    assert "2 retracted" in shown and "--state all" in shown
    assert "all" in cli("notes", "--state", "zzz", "--json").json["error"]["next"].split("Use one of")[1]


def test_what_can_not_be_parsed_is_a_json_document_too(root: str, cli: Cli) -> None:
    for words in (("dream", "--limit", "0"), ("dream", "nonsense"), ("note",), ("nonsense",), ()):
        refused = cli(*words, "--json")
        assert refused.code == 2 and set(refused.json["error"]) == {"what", "where", "next"} and refused.err, words
        assert cli(*words).code == 2
    assert cli("hook", "--nonsense", "--json")[:2] == (0, "")


def test_what_an_undone_run_had_read_is_read_again_only_when_it_is_asked_for_by_name(told: str, cli: Cli) -> None:
    first = cli("dream", "--json").json
    undone = cli("dream", "undo", first["run"])
    assert "--session ID" in undone.out and cli("notes", "--json").json["notes"] == []
    assert cli("dream", "--json").json["considered"] == 0
    assert cli("dream", "--session", "s0", "--dry-run", "--json").json["considered"] == 1
    again = cli("dream", "--session", "s0", "--json").json
    assert (again["processed"], again["insights_added"]) == (1, 1)
    [note] = cli("notes", "--json").json["notes"]
    status = {one["id"]: one for one in cli("dream", "status", "--json").json["sessions"]}
    assert {one["eligibility"] for one in status.values()} == {"already_consolidated"}
    assert note["id"] in status["python:s0"]["artifact_refs"] and status["python:s1"]["artifact_refs"] == []
    last = cli("dream", "--session", "s0")
    assert "already_consolidated" in last.out and "already read to the end" in last.out and "reads ended sessions" not in last.out
    with Keep.open(told) as keep:
        keep.reindex(from_zero=True)
        assert [one["id"] for one in keep.notes()] == [note["id"]] and keep.dream()["considered"] == 0
        keep.dream_undo(again["run"])
        session = keep.session("s0")
        session.record("Always ask before you delete anything.")
        session.end()
        assert keep.dream()["insights_added"] == 1, "by itself only the new part"
        assert keep.dream(sessions=["s0"])["insights_added"] == 1, "by name also what was taken back"
        assert len(keep.notes()) == 2 and keep.dream(sessions=["s0"])["considered"] == 0
