"""What new notes have to do with older ones: a model says so, and only what it was shown."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from dreamkeep import Keep
from dreamkeep.dream.backends.model.merging import nearest
from tests.helpers.answering import Reader, dream, item
from tests.helpers.cli import Ran

#: A decision, the note of it, what was said later in three phrasings, and the note of that.
STORY = {
    "the database": (
        "SQLite it is",
        "The loans are kept in SQLite.",
        ("let's move to Postgres after all", "we have outgrown SQLite, Postgres from now on", "ok, go with Postgres instead"),
        "The loans are kept in Postgres.",
    ),
    "the reminder": (
        "remind people at 8 in the morning",
        "Reminders go out at 8 in the morning.",
        ("by then they are at work, make it 18", "18 works better for the reminders", "can we send them at 18?"),
        "Reminders go out at 18.",
    ),
    "the deployment": (
        "we deploy by hand with scp",
        "Deployments are done by hand with scp.",
        ("no more scp, `make deploy` does it now", "please always deploy with `make deploy`", "2, the make target"),
        "Deployments are done with a make target.",
    ),
    "the branches": (
        "name branches after the ticket",
        "Branches are named after their ticket.",
        ("the tickets are gone, so use your name and a word", "name and topic please, not the ticket", "yes, by name and topic"),
        "Branches are named after a person and a topic.",
    ),
    "the labels": (
        "put the owner on the label",
        "Labels of tools show the owner.",
        ("people don't want their names there, only the number", "just the number on it", "B, the number alone"),
        "Labels of tools show only the number.",
    ),
    "the tests": (
        "run the tests with tox",
        "The tests are run with tox.",
        ("tox takes ages, plain pytest is fine", "from now on just pytest", "let's drop tox"),
        "The tests are run with plain pytest, without tox.",
    ),
}


def tell(keep: Keep, name: str, said: str) -> None:
    session = keep.session(name, cwd=keep.root)
    session.record(said, ("assistant", "Done."))
    session.end()


def texts(keep: Keep, state: str = "active") -> list[str]:
    return [str(one["text"]) for one in keep.notes(state=state)]


def learn(keep: Keep, name: str, said: str, note: str, *operation: str, strength: str = "clear") -> None:
    """One session in which this is said, and a dream that makes this note of it. `operation`: which, and the other text."""
    tell(keep, name, said)
    reader = Reader(item(note, said, strength=strength))
    if operation:
        reader.operations[note] = operation[0], operation[1], "it was said so"
    dream(keep, Path(keep.root).parent / f"exchange-{name}", reader)
    assert not operation or any(operation[1] in asked for asked in reader.of("merge")), "the other note was shown"


@pytest.fixture
def keep(tmp_path: Path) -> Keep:
    return Keep.open(tmp_path / "keep")


@pytest.mark.parametrize("phrasing", range(3))
@pytest.mark.parametrize("name", STORY)
def test_a_decision_that_was_changed_ends_superseded_with_its_date(name: str, phrasing: int, keep: Keep) -> None:
    said, note, later, after = STORY[name]
    with keep:
        learn(keep, "first", said, note)
        assert texts(keep) == [note]
        learn(keep, "second", later[phrasing], after, "supersedes", note)
        assert (texts(keep), texts(keep, "superseded")) == ([after], [note])
        [old] = keep.notes(state="superseded")
        [added, ended] = keep.dream_why(old["id"])["history"]
        [new] = keep.notes()
        assert (added["what"], ended["what"]) == ("added", "superseded")
        assert str(old["first_at"])[:10] in added["why"] and str(new["first_at"])[:10] in ended["why"] and after in ended["why"]
        hits = [hit.text for hit in keep.search(note, kinds=("note",))]
        assert hits.index(after) < hits.index(note), "the current one first"


def test_what_is_said_again_in_other_words_is_one_note_with_more_evidence(keep: Keep) -> None:
    first = "The ladder is not lent on Sundays."
    with keep:
        learn(keep, "first", "never lend the ladder on Sundays", first)
        learn(keep, "second", "no ladder on a Sunday, remember", "On Sundays nobody may borrow the ladder.", "same", first)
        [one] = keep.notes()
        assert one["text"] == first
        assert {quote["session"] for quote in one["evidence"]} == {"python:first", "python:second"}


def test_a_suggestion_that_the_user_types_again_becomes_active(keep: Keep) -> None:
    first = "The saw comes back oiled."
    with keep:
        learn(keep, "first", "the saw goes back oiled", first, strength="maybe")
        assert (texts(keep), texts(keep, "suggested")) == ([], [first])
        learn(keep, "second", "oil the saw before it comes back", "The saw is oiled first.", "same", first, strength="maybe")
        assert (texts(keep), texts(keep, "suggested")) == ([first], [])


def test_what_was_pasted_twice_is_said_once(keep: Keep) -> None:
    words = "The saw must come back oiled, because rust spreads to the others."
    first = "The saw must come back oiled."
    with keep:
        for n, note in enumerate((first, "The saw has to be oiled when it comes back.")):
            tell(keep, f"s{n}", f"### Review {n}\n\n**High Severity**\n\n{words}\n\n### End")
            reader = Reader(item(note, "### Review", strength="clear"))
            reader.items[0] = {**reader.items[0], "quotes": [{"place": "", "words": f"### Review {n}", "speaker": "user"}]}
            reader.operations[note] = "same", first, ""
            dream(keep, Path(keep.root).parent / f"x{n}", reader)
        assert texts(keep) == [], "nobody typed it"
        assert texts(keep, "suggested") == [first]


def test_what_a_user_rejected_does_not_come_back_in_other_words(keep: Keep) -> None:
    with keep:
        learn(keep, "first", "maybe we should log every loan", "Every loan is logged.", strength="maybe")
        [waiting] = keep.notes(state="suggested")
        keep.note_change(waiting["id"], "reject")
        learn(keep, "second", "log every loan somewhere", "All loans go to a log.", "same", "Every loan is logged.")
        assert texts(keep) == [] and texts(keep, "suggested") == []


def test_undoing_the_runs_of_a_change_brings_back_what_it_superseded(keep: Keep) -> None:
    said, note, later, after = STORY["the database"]
    with keep:
        learn(keep, "first", said, note)
        before = {run["id"] for run in keep.dream_history()}
        learn(keep, "second", later[0], after, "supersedes", note)
        assert texts(keep) == [after]
        for run in keep.dream_history():
            if run["id"] not in before:
                keep.dream_undo(run["id"])
        assert texts(keep) == [note]


def test_the_same_dream_replayed_gives_the_same_notes(tmp_path: Path) -> None:
    said, note, later, after = STORY["the tests"]
    made = []
    for folder in ("a", "b"):
        with Keep.open(tmp_path / folder / "keep") as keep:
            for name, words, text, *operation in (("first", said, note), ("second", later[1], after, "supersedes", note)):
                learn(keep, name, words, text, *operation)
            made.append(sorted((one["text"], one["state"], len(one["evidence"])) for one in keep.notes(state="all")))
    assert made[0] == made[1] and len(made[0]) == 2


def test_what_other_sessions_gave_meanwhile_changes_no_question_that_was_asked(keep: Keep, tmp_path: Path) -> None:
    """An answer stays good while other sessions of the project are concluded."""
    with keep:
        for n, said in enumerate(("never lend the ladder", "the saw goes back oiled")):
            tell(keep, f"s{n}", said)
        keep.dream_export(str(tmp_path / "x"))
        asked = sorted((tmp_path / "x" / "requests").glob("*.json"))
        (tmp_path / "x" / "answers" / asked[0].name).write_text('{"items": []}')
        keep.dream_import(str(tmp_path / "x"))
        assert sorted((tmp_path / "x" / "requests").glob("*.json")) == asked[1:]


def test_a_dream_says_that_the_sessions_that_wait_are_with_others(keep: Keep, tmp_path: Path, cli: Callable[..., Ran]) -> None:
    with keep:
        tell(keep, "first", "never lend the ladder")
        keep.dream_export(str(tmp_path / "x"))
    for flags in ((), ("--dry-run",)):
        told = cli("dream", *flags, "--keep", keep.root).out
        assert "1 waiting sessions are left to others: exported" in told and "reads ended sessions" not in told


def test_an_import_that_only_compares_says_so(keep: Keep, tmp_path: Path, cli: Callable[..., Ran]) -> None:
    said, note, later, after = STORY["the database"]
    reader = Reader(item(after, later[0]))
    reader.operations[after] = "supersedes", note, ""
    with keep:
        learn(keep, "first", said, note)
        tell(keep, "second", later[0])
        keep.dream_export(str(tmp_path / "x"))
    for _ in range(3):
        for file in (tmp_path / "x" / "requests").glob("*.json"):
            (tmp_path / "x" / "answers" / file.name).write_text(json.dumps(reader(json.loads(file.read_text()))))
        told = cli("dream", "--import", str(tmp_path / "x"), "--keep", keep.root).out
    assert told.startswith("No sessions to read; compared the notes of earlier runs.\nNotes: 1 superseded.\n")


def test_every_quote_says_whose_words_it_holds_also_the_agents(keep: Keep, tmp_path: Path) -> None:
    with keep:
        session = keep.session("first", cwd=keep.root)
        session.record("where do loans go?", ("assistant", "A: SQLite. B: files. Which one?"))
        session.record("A.", ("assistant", "Done."))
        session.end()
        question = {"place": "", "words": "A: SQLite.", "speaker": "agent"}

        def answer(request: Mapping[str, Any]) -> Mapping[str, Any]:
            made = Reader(item("Loans are kept in SQLite.", "A."))(request)
            for one in made.get("items", ()):
                one["quotes"].append(
                    {**question, "place": re.findall(r"^\[([\d.]+)\] agent: A: SQLite", request["user"], re.M)[0]}
                )
            return made

        dream(keep, tmp_path / "x", answer)
        [note] = keep.notes()
        assert [(one["author"], one["origin"]) for one in note["evidence"]] == [("user", "typed"), ("agent", "typed")]


def test_the_nearest_share_what_is_rare() -> None:
    others = {
        "n-1": "The loans are kept in SQLite.",
        "n-2": "Reminders are sent at 18.",
        "n-3": "The loans are shown by day.",
    }
    assert nearest("The loans are kept in Postgres from now on.", others)[0] == "n-1"
    assert nearest("Nothing here has anything to do with it.", others) == []


@pytest.mark.parametrize("seed", ["15", "17", "33"])
def test_which_is_nearest_does_not_hang_on_the_order_of_a_set(seed: str) -> None:
    """A sum of floats in another order may differ in its last bit, and decide between two that are equally near."""
    said = "The loans are kept in Postgres from now on."
    others = {"n-1": "The loans are kept in SQLite.", "n-2": "Reminders are sent at 18.", "n-3": "The loans are shown by day."}
    code = f"from dreamkeep.dream.backends.model.merging import nearest; print(*nearest({said!r}, {others!r}))"
    made = subprocess.run(
        [sys.executable, "-P", "-c", code], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
    )
    assert made.stdout.split() == ["n-1", "n-3"]
