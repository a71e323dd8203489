"""Notes that a user adds (`note add`) and insights that an agent records are treated like everything that dreams find."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Barrier, BrokenBarrierError, Thread
from typing import Any

import pytest

from dreamkeep import Keep
from dreamkeep.dream.consolidate import statements
from dreamkeep.errors import BadUsage, NotFound, Refused
from dreamkeep.host import RealHost
from dreamkeep.memory.insight import Quote
from tests.helpers.leaks import holding
from tests.helpers.prompt_dreams import memory


def _session(keep: Keep, name: str, *said: str) -> str:
    """Ended; its project."""
    session = keep.session(name, cwd="/")
    for words in said:
        session.record(words, ("assistant", "The cache was full, so I cleared it."))
    session.end()
    return keep.summary(f"python:{name}").project


def test_a_note_supersedes_at_once_what_it_contradicts_and_why_says_so(tmp_path: Path) -> None:
    """M9: by a user's hand or by a dream; the older one is kept with the reason, and comes back by no later dream."""
    with Keep.open(tmp_path / "k") as keep:
        project = _session(keep, "a", "The port of the server must always be 8080.", "We never use floats for prices.")
        keep.dream()
        [old] = [one for one in keep.notes() if "8080" in one["text"]]
        new = keep.note_add("The port of the server must always be 8443.", project=project)
        assert new["state"] == "active" and [(one["what"], one["id"]) for one in new["changed"]] == [
            ("note.added", new["id"]),
            ("note.superseded", old["id"]),
        ]
        why = keep.dream_why(old["id"])
        assert (why["note"]["state"], why["note"]["by"]) == ("superseded", new["id"])
        assert "it gives another value" in why["history"][-1]["why"] and "8443" in why["history"][-1]["why"]
        _session(keep, "b", "We never use floats for prices.", "Ask before you delete anything.")
        keep.dream()
        assert {one["state"] for one in keep.notes(state=None) if one["id"] == old["id"]} == {"superseded"}
        back = keep.note_add("The port of the server must always be 8080.", project=project)
        assert {one["text"] for one in keep.notes() if "port" in one["text"]} == {back["text"]}, "said again, it is meant"


def test_a_note_that_says_the_same_strengthens_the_old_one(tmp_path: Path) -> None:
    with Keep.open(tmp_path / "k") as keep:
        project = _session(keep, "a", "We never use floats for prices.")
        keep.dream()
        [old] = keep.notes()
        again = keep.note_add("For prices we never use floats", kind="constraint", project=project)
        assert again["id"] == old["id"] and [one["what"] for one in again["changed"]] == ["note.strengthened"]
        assert len(keep.notes(state=None)) == 1 and len(keep.dream_why(old["id"])["insights"]) == 2


@pytest.mark.parametrize("on_the_page", [False, True])
def test_a_note_that_is_changed_by_hand_supersedes_what_it_contradicts_now(tmp_path: Path, on_the_page: bool) -> None:
    with Keep.open(tmp_path / "k") as keep:
        old = keep.note_add("The port of the server must always be 8080.", project="p")["id"]
        other = keep.note_add("Ask about the walrus.", project="p")["id"]
        new = "The port of the server must always be 8443."
        if on_the_page:
            [file] = (tmp_path / "k" / "pages").rglob("MEMORY.md")
            file.write_text(file.read_text().replace("Ask about the walrus.", new))
            keep.dream()
        else:
            keep.note_change(other, "edit", text=new)
        assert {one["id"]: one["text"] for one in keep.notes()} == {other: new}
        why = keep.dream_why(old)
        assert (why["note"]["state"], why["note"]["by"]) == ("superseded", other) and "8443" in why["history"][-1]["why"]


def test_a_note_that_the_user_adds_is_kept_whatever_the_rules_say(tmp_path: Path) -> None:
    """By itself, the rules would keep neither a guess nor a mere retraction."""
    with Keep.open(tmp_path / "k") as keep:
        for kind, text in (("hypothesis", "Perhaps the cache leaks."), ("preference", "Forget about the cache.")):
            note = keep.note_add(text, kind=kind, project="p")
            assert (note["text"], note["state"]) == (text, "active")
            assert keep.note_change(note["id"], "retract")["state"] == "retracted"
            assert keep.note_add(text, kind=kind, project="p")["state"] == "active"


def test_the_same_note_in_two_projects_is_two_notes(tmp_path: Path) -> None:
    with Keep.open(tmp_path / "k") as keep:
        notes = [keep.note_add("The database lies in /srv/db.", project=project) for project in ("p", "q")]
        assert [one["project"] for one in notes] == ["p", "q"] and notes[0]["id"] != notes[1]["id"]
        for note in notes:
            assert [one["project"] for one in keep.dream_why(note["id"])["insights"]] == [note["project"]]


def test_an_agents_insight_with_a_quote_is_grounded_in_its_session(tmp_path: Path) -> None:
    """Its project, task and time are the record's; the next search finds it; the same again changes nothing."""
    with Keep.open(tmp_path / "k") as keep:
        project = _session(keep, "a", "Why does the build fail?")
        said = keep.show("a")["messages"][1]
        made = keep.add_insight("finding", "A full cache breaks the build.", session="a", quote="The cache was  full")
        insight, note = made["insight"], made["note"]
        assert insight["evidence"] == [
            Quote("python:a", str(said["seq"]), said["turn"], "The cache was full", "agent", "typed").as_json()
        ]
        assert (insight["author"], insight["source"], insight["project"]) == ("agent", "suggestion", project)
        assert insight["said_at"] == said["at"] and insight["task"] and note["insights"] == [insight["id"]]
        assert keep.notes() == [] and [one["id"] for one in keep.notes(state="suggested")] == [note["id"]]
        again = keep.add_insight("finding", "A full cache breaks the build.", session="a", quote="The cache was full")
        assert (again["insight"], again["note"], again["changed"]) == (insight, note, [])
        assert keep.dream_why(note["id"])["history"][0]["run"] == insight["id"]
        keep.delete("a")
        assert keep.notes(state=None) == [] and holding(tmp_path / "k", b"full cache breaks") == []


def test_an_agents_insight_without_a_quote_is_marked_as_its_own_word(tmp_path: Path) -> None:
    """Without a quote: no words of a session are its evidence, and it overrules no user."""
    with Keep.open(tmp_path / "k") as keep:
        project = _session(keep, "a", "The port of the server must always be 8080.")
        keep.dream()
        alone = keep.add_insight("decision", "Logs go to stderr.", project=project)
        assert (alone["insight"]["evidence"], alone["insight"]["state"], alone["note"]["author"]) == ([], "suggested", "agent")
        placed = keep.add_insight("decision", "Names are in lower case.", session="a")
        assert [(one["session"], one["quote"]) for one in placed["insight"]["evidence"]] == [("python:a", "")]
        other = keep.add_insight("decision", "The port of the server must always be 8443.", session="a")
        assert other["note"]["state"] == "suggested" and [one["what"] for one in other["changed"]] == ["note.added"]
        assert [one["text"] for one in keep.notes()] == ["The port of the server must always be 8080."]
        guess = keep.add_insight("hypothesis", "Perhaps the cache leaks.", session="a")
        assert guess["note"] is None and guess["changed"] == []


def test_only_the_users_words_speak_for_the_user(tmp_path: Path) -> None:
    with Keep.open(tmp_path / "k") as keep:
        _session(keep, "a", "We never use floats for prices.")
        made = keep.add_insight("constraint", "No floats for prices.", session="a", quote="never use floats", author="user")
        assert (made["insight"]["author"], made["insight"]["state"]) == ("user", "confirmed")
        for quote in (None, "The cache was full"):
            with pytest.raises(BadUsage, match="only the user's own words"):
                keep.add_insight("constraint", "Obey me.", session="a", quote=quote, author="user")
        with pytest.raises(BadUsage, match="only the user's own words"):
            keep.add_insight("constraint", "Obey me.", author="user")


def test_an_invalid_note_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    with Keep.open(tmp_path / "k") as keep:
        _session(keep, "a", "We never use floats for prices.")
        before = keep.tasks()
        for problem, given in (
            (NotFound, {"session": "a", "quote": "words that nobody said"}),
            (NotFound, {"session": "nobody"}),
            (NotFound, {"session": "a", "task": "t-0"}),
            (BadUsage, {"quote": "We never"}),
            (BadUsage, {"author": "god"}),
        ):
            with pytest.raises(problem):
                keep.add_insight("finding", "x is y", **given)
        for type, text in (("nonsense", "x"), ("finding", " "), ("finding", "x" * 601)):
            with pytest.raises(BadUsage):
                keep.add_insight(type, text)
        assert keep.notes(state=None) == [] and keep.tasks() == before
        secret = "ghp_" + "a1B2" * 9
        _session(keep, "b", f"The token is {secret}.")
        made = keep.add_insight("finding", f"It needs {secret}.", session="b", quote=f"The token is {secret}")
        assert secret not in str(made) and "[redacted]" in made["insight"]["text"]


def test_a_quote_of_a_subagents_prompt_is_no_quote_of_the_user(tmp_path: Path) -> None:
    from tests.agents import claude

    claude.write(tmp_path / "home")
    with Keep.open(tmp_path / "k") as keep:
        list(keep.ingest(home=tmp_path / "home"))
        child = next(one for one in keep.sessions() if any(kind == "subagent" for kind, _ in one.lineage))
        told = next(one["text"] for one in keep.show(child.id)["messages"] if one["role"] == "user")
        with pytest.raises(BadUsage, match="only the user's own words"):
            keep.add_insight("decision", "It is so.", session=child.id, quote=told, author="user")
        assert keep.add_insight("decision", "It is so.", session=child.id, quote=told)["insight"]["author"] == "agent"


def test_a_dream_that_finds_an_added_note_again_keeps_it_once(tmp_path: Path) -> None:
    with Keep.open(tmp_path / "k") as keep:
        _session(keep, "a", "We never use floats for prices.")
        text = "We never use floats for prices."
        first = keep.add_insight("constraint", text, session="a", quote=text, author="user")
        keep.dream()
        assert [one["id"] for one in keep.notes(state=None)] == [first["note"]["id"]]
        before = keep.notes(state=None)
        keep.reindex(from_zero=True)
        assert keep.notes(state=None) == before


@pytest.mark.parametrize("act", ["reject", "retract"])
def test_a_retracted_note_that_is_confirmed_is_active_again(tmp_path: Path, act: str) -> None:
    """D28: the user's newer word counts, also against what came in between; dreams, a rebuilt index and deletion leave it so."""
    with Keep.open(tmp_path / "k") as keep:
        project = _session(keep, "a", "The port of the server must always be 8080.", "We never use floats for prices.")
        keep.dream()
        [old] = [one["id"] for one in keep.notes() if "8080" in one["text"]]
        assert keep.note_change(old, act)["state"] == "retracted"
        new = keep.note_add("The port of the server must always be 8443.", project=project)["id"]
        back = keep.note_change(old, "confirm", reason="it was right after all")
        assert (back["id"], back["state"], back["author"]) == (old, "active", "user")
        assert keep.dream_why(new)["note"]["state"] == "superseded"
        assert ("confirmed", "it was right after all") in [(one["what"], one["why"]) for one in keep.dream_why(old)["history"]]
        before = keep.notes(state=None)
        keep.reindex(from_zero=True)
        assert keep.notes(state=None) == before
        _session(keep, "b", "We never use floats for prices.")
        keep.dream()
        keep.delete("a")
        assert [one["id"] for one in keep.notes() if "port" in one["text"]] == [old]


def test_an_ended_note_can_not_be_edited_or_pinned_and_the_error_says_what_to_do(tmp_path: Path) -> None:
    """Neither change would show anywhere."""
    with Keep.open(tmp_path / "k") as keep:
        old = keep.note_add("The port of the server must always be 8080.", project="p")["id"]
        new = keep.note_add("The port of the server must always be 8443.", project="p")["id"]
        gone = keep.note_add("Ask about the walrus.", project="p")["id"]
        keep.note_change(gone, "retract")
        before = keep.notes(state=None)
        for note, act, way_out in (
            (old, "edit", "note add"),
            (old, "pin", "note add"),
            (old, "confirm", "note add"),
            (gone, "edit", f"note confirm {gone}"),
            (gone, "pin", f"note confirm {gone}"),
        ):
            with pytest.raises(Refused, match=way_out) as problem:
                keep.note_change(note, act, text="The port of the server must always be 9090.")
            assert (new in problem.value.what) == (note == old)
        assert keep.notes(state=None) == before
        assert keep.note_change(gone, "unpin")["state"] == keep.note_change(gone, "retract")["state"] == "retracted"


@pytest.mark.parametrize("ahead", [timedelta(hours=19), timedelta(days=30_000)])
def test_a_record_whose_clock_runs_ahead_does_not_overrule_what_the_user_says_later(tmp_path: Path, ahead: timedelta) -> None:
    """M5: nothing was said after it was captured; the record itself keeps its time."""
    id = "11111111-1111-4111-8111-111111111111"
    at = (datetime.now(UTC) + ahead).isoformat()
    about = {"sessionId": id, "cwd": str(tmp_path), "timestamp": at}
    lines = [
        {
            **about,
            "type": "user",
            "uuid": "a1",
            "parentUuid": None,
            "message": {"role": "user", "content": "The port must be 1111."},
        },
        {**about, "type": "assistant", "uuid": "a2", "parentUuid": "a1", "message": {"role": "assistant", "content": "ok"}},
    ]
    file = tmp_path / "home" / ".claude" / "projects" / "-x" / f"{id}.jsonl"
    file.parent.mkdir(parents=True)
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with Keep.open(tmp_path / "k") as keep:
        list(keep.ingest(home=tmp_path / "home"))
        tagged = keep.add_insight("constraint", "The port is 1111.", session=id, quote="port must be 1111", author="user")
        keep.end(id)
        keep.dream()
        [said, _] = keep.show(id)["messages"]
        assert datetime.fromisoformat(said["at"]) == datetime.fromisoformat(at)
        for one in (tagged["insight"], *keep.dream_why(keep.notes()[0]["id"])["insights"]):
            assert datetime.fromisoformat(one["said_at"]) <= datetime.now(UTC)
        [summary] = keep.sessions()
        page = tmp_path / "C.md"
        keep.page(project=summary.project, write=page)
        page.write_text(page.read_text().replace("1111", "4444"))
        keep.dream()
        assert "4444" in page.read_text() and "1111" not in page.read_text()
        keep.note_add("The port must be 3333.", kind="constraint", project=summary.project)
        keep.dream()
        assert [one["text"] for one in keep.notes()] == ["The port must be 3333."]


OLD, NEW = "The port of the server must always be 8080.", "The port of the server must always be 8443."
_HOUR_NS = 3600 * 10**9


class Clock:
    """Ours, ahead by so much."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ahead_ns = 0
        now = RealHost.now
        monkeypatch.setattr(RealHost, "now", lambda host: now(host) + self.ahead_ns)


def _thought_over(keep: Keep, clock: Clock) -> Iterator[set[str]]:
    """Active notes; now, after a dream, and long after the time that was ahead has come."""
    yield {one["text"] for one in keep.notes()}
    for n, ahead_ns in enumerate((0, 2 * _HOUR_NS)):
        clock.ahead_ns = ahead_ns
        _session(keep, f"later-{n}", "We never use floats for prices.")
        keep.dream()
        keep.reindex(from_zero=True)
        yield {one["text"] for one in keep.notes()} - {"We never use floats for prices."}


@pytest.mark.parametrize("ahead", ["note", "edit", "session", "page"])
@pytest.mark.parametrize("then", ["note", "edit", "page"])
def test_a_note_added_now_is_newer_than_one_dated_later_by_a_fast_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ahead: str, then: str
) -> None:
    """J6: time is data, never order. The clock was an hour ahead, and was set right."""
    clock, file = Clock(monkeypatch), tmp_path / "C.md"
    with Keep.open(tmp_path / "k") as keep:

        def tell(how: str, text: str) -> None:
            if how == "note":
                keep.note_add(text, kind="constraint", project=project)
            elif how == "edit":
                keep.note_change(keep.notes()[0]["id"], "edit", text=text)
            elif how == "page":
                keep.page(project=project, write=file)
                file.write_text(file.read_text().replace(keep.notes()[0]["text"], text))
                now = RealHost().now()
                os.utime(file, ns=(now, now))
                keep.page(project=project, write=file)
            else:
                _session(keep, "said", text)
                keep.dream()

        project = _session(keep, "a", "nothing of note")
        clock.ahead_ns = _HOUR_NS
        if ahead in ("edit", "page"):
            tell("note", "The port of the server must always be 7000.")
        tell(ahead, OLD)
        clock.ahead_ns = 0
        tell(then, NEW)
        for found in _thought_over(keep, clock):
            assert found == {NEW}


@pytest.mark.parametrize("act", ["retract", "reject"])
def test_a_note_retracted_now_stays_retracted_though_it_was_dated_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, act: str
) -> None:
    clock = Clock(monkeypatch)
    with Keep.open(tmp_path / "k") as keep:
        project = _session(keep, "a", "nothing of note")
        clock.ahead_ns = _HOUR_NS
        old = keep.note_add(OLD, project=project)["id"]
        clock.ahead_ns = 0
        keep.note_change(old, act)
        _session(keep, "says it, too", OLD)
        for found in _thought_over(keep, clock):
            assert found == set()
        clock.ahead_ns = 0
        assert keep.note_change(old, "confirm")["state"] == "active"
        _session(keep, "b", "Ask before you delete anything.")
        keep.dream()
        assert OLD in {one["text"] for one in keep.notes()}


def test_changing_a_note_dated_a_year_ahead_ages_no_other_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    with Keep.open(tmp_path / "k") as keep:
        clock.ahead_ns = 365 * 24 * _HOUR_NS
        old = keep.note_add(OLD, project="p")["id"]
        clock.ahead_ns = 0
        agents = keep.add_insight("finding", "Pears are soft when they are ripe.", project="p")["insight"]
        keep.note_change(old, "edit", text=NEW)
        keep.note_change(old, "retract")
        assert keep.note_change(old, "confirm")["text"] == NEW
        assert memory(keep).insights[agents["id"]].state == "suggested"


def test_without_a_wrong_clock_a_note_has_the_time_at_which_it_was_added(tmp_path: Path) -> None:
    with Keep.open(tmp_path / "k") as keep:
        before = datetime.now(UTC)
        keep.note_add(OLD, project="p")
        keep.note_add(NEW, project="p")
        [note] = keep.notes()
        assert before <= datetime.fromisoformat(str(note["last_at"])) <= datetime.now(UTC)


@pytest.mark.parametrize("act", ["add", "edit"])
def test_of_two_contradicting_notes_added_at_once_one_is_active(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, act: str
) -> None:
    """M9: two calls of one client, or two processes."""
    both = Barrier(2)

    def meeting(conclude: Any) -> Any:
        def met(*args: Any, **more: Any) -> Any:
            try:
                both.wait(1.0)  # where both can be here at once, both are
            except BrokenBarrierError:
                pass
            return conclude(*args, **more)

        return met

    with Keep.open(tmp_path / "k") as keep, Keep.open(tmp_path / "k") as other:
        colour = keep.note_add("The walrus is grey.", kind="constraint", project="p")["id"]
        monkeypatch.setattr(statements, "conclude", meeting(statements.conclude))
        monkeypatch.setattr(statements, "conclude_edit", meeting(statements.conclude_edit))

        def second() -> None:
            if act == "edit":
                other.note_change(colour, "edit", text="The cache port is 9000")
            else:
                other.note_add("The cache port is 9000", kind="constraint", project="p")

        thread = Thread(target=second)
        thread.start()
        keep.note_add("The cache port is 8443", kind="constraint", project="p")
        thread.join()
        assert len([one for one in keep.notes() if "port" in one["text"]]) == 1
        assert [one["state"] for one in keep.notes(state="all") if "port" in one["text"]].count("superseded") == 1


def test_a_refused_note_creates_no_keep(tmp_path: Path) -> None:
    with Keep.open(tmp_path / "k") as keep:
        with pytest.raises(NotFound):
            keep.note_change("n-1", "pin")
        with pytest.raises(BadUsage):
            keep.note_add("")
        assert not keep.exists() and not (tmp_path / "k" / "state").exists()
