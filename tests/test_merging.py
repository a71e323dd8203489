"""What new notes have to do with older ones: a model says so, and only what it was shown."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from dreamkeep import Keep
from dreamkeep.dream.merging import nearest
from tests import recorded

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


def tell(keep: Keep, name: str, said: str, cwd: Path) -> str:
    session = keep.session(name, cwd=str(cwd))
    turn = session.submit(said)
    turn.add("assistant", "Done.")
    turn.settle("completed")
    session.end()
    return session.id


def reads(said: str, note: str) -> recorded.Answers:
    def read(request: Mapping[str, Any]) -> object:
        return {"items": [recorded.item(note, recorded.place_of(request["user"], said), said)]}

    return read


def supersedes(request: Mapping[str, Any]) -> object:
    """It ends the first note that it is shown beside it."""
    near = re.search(r"near it: (n-\w+),", request["user"])
    assert near, "the older note is near the new one"
    return {"operations": [{"item": 1, "operation": "supersedes", "other": near[1], "why": "it was changed"}]}


def same(request: Mapping[str, Any]) -> object:
    near = re.search(r"near it: (n-\w+),", request["user"])
    assert near
    return {"operations": [{"item": 1, "operation": "same", "other": near[1], "why": ""}]}


def notes(keep: Keep, state: str) -> list[str]:
    return [one["text"] for one in keep.notes(state=state)]


@pytest.mark.parametrize("phrasing", range(3))
@pytest.mark.parametrize("name", STORY)
def test_a_decision_that_was_changed_ends_superseded_with_both_dates(name: str, phrasing: int, tmp_path: Path) -> None:
    said, note, later, after = STORY[name]
    with Keep.open(tmp_path / "keep") as keep:
        tell(keep, "first", said, tmp_path)
        recorded.dream(keep, tmp_path / "one", reads(said, note))
        assert notes(keep, "active") == [note]
        tell(keep, "second", later[phrasing], tmp_path)
        recorded.dream(keep, tmp_path / "two", reads(later[phrasing], after), merge=supersedes)
        assert (notes(keep, "active"), notes(keep, "superseded")) == ([after], [note])
        [old] = keep.notes(state="superseded")
        why = keep.dream_why(old["id"])
        assert [step["what"] for step in why["history"]] == ["added", "superseded"]
        assert keep.search(said, kinds=["note"]) is not None
        first, last = (one["at"] for one in why["history"])
        assert first <= last


def test_what_is_said_again_in_other_words_is_one_note_with_more_evidence(tmp_path: Path) -> None:
    with Keep.open(tmp_path / "keep") as keep:
        tell(keep, "first", "never lend the ladder on Sundays", tmp_path)
        recorded.dream(keep, tmp_path / "one", reads("never lend the ladder", "The ladder is not lent on Sundays."))
        tell(keep, "second", "no ladder on a Sunday, remember", tmp_path)
        read = reads("no ladder on a Sunday", "On Sundays nobody may borrow the ladder.")
        recorded.dream(keep, tmp_path / "two", read, merge=same)
        [one] = keep.notes()
        assert one["text"] == "The ladder is not lent on Sundays."
        assert {quote["session"] for quote in one["evidence"]} == {"python:first", "python:second"}


def test_a_suggestion_that_the_user_types_again_becomes_active(tmp_path: Path) -> None:
    with Keep.open(tmp_path / "keep") as keep:
        for n, said in enumerate(("the saw goes back oiled", "oil the saw before it comes back")):
            tell(keep, f"s{n}", said, tmp_path)
            item = recorded.item(f"The saw comes back oiled{'.' if n else ''}", "0", said, kind="preference", strength="maybe")

            def read(request: Mapping[str, Any], item: dict[str, Any] = item, said: str = said) -> object:
                place = recorded.place_of(request["user"], said)
                return {"items": [{**item, "quotes": [{"place": place, "words": said, "speaker": "user"}]}]}

            assert notes(keep, "active") == []
            recorded.dream(keep, tmp_path / f"x{n}", read, challenge=recorded.suggest_all, merge=same)
        assert len(notes(keep, "active")) == 1 and notes(keep, "suggested") == []


def test_what_was_pasted_twice_is_said_once(tmp_path: Path) -> None:
    review = "### Review\n\n**High Severity**\n\nThe saw must come back oiled, because rust spreads to the others.\n\n### End"
    with Keep.open(tmp_path / "keep") as keep:
        for n in range(2):
            tell(keep, f"s{n}", f"{review} {'x' * n}", tmp_path)
            words = "The saw must come back oiled"

            def read(request: Mapping[str, Any], words: str = words, n: int = n) -> object:
                quotes = [{"place": re.findall(r"^\[([\w.]+)\] user pasted", request["user"], re.M)[0], "words": words}]
                return {"items": [{**recorded.item(f"The saw must come back oiled{'!' * n}", "0", words), "quotes": quotes}]}

            recorded.dream(keep, tmp_path / f"x{n}", read, merge=same)
        assert notes(keep, "active") == [], "nobody typed it"


def test_what_a_user_rejected_does_not_come_back_in_other_words(tmp_path: Path) -> None:
    with Keep.open(tmp_path / "keep") as keep:
        tell(keep, "first", "maybe we should log every loan", tmp_path)
        read = reads("maybe we should log every loan", "Every loan is logged.")
        recorded.dream(keep, tmp_path / "one", lambda request: _maybe(read(request)), challenge=recorded.suggest_all)
        [waiting] = keep.notes(state="suggested")
        keep.note_change(waiting["id"], "reject")
        tell(keep, "second", "log every loan somewhere", tmp_path)
        again = reads("log every loan somewhere", "All loans are written to a log.")
        recorded.dream(keep, tmp_path / "two", again, merge=same)
        assert notes(keep, "active") == [] and notes(keep, "suggested") == []


def _maybe(answer: object) -> object:
    assert isinstance(answer, dict)
    return {"items": [{**one, "strength": "maybe"} for one in answer["items"]]}


def test_undoing_the_run_brings_back_what_it_superseded(tmp_path: Path) -> None:
    said, note, later, after = STORY["the database"]
    with Keep.open(tmp_path / "keep") as keep:
        tell(keep, "first", said, tmp_path)
        recorded.dream(keep, tmp_path / "one", reads(said, note))
        tell(keep, "second", later[0], tmp_path)
        recorded.dream(keep, tmp_path / "two", reads(later[0], after), merge=supersedes)
        assert notes(keep, "active") == [after]
        for run in keep.dream_history():
            if notes(keep, "active") != [note]:
                keep.dream_undo(run["id"])
        assert notes(keep, "active") == [note]


def test_the_same_dream_replayed_gives_the_same_notes(tmp_path: Path) -> None:
    said, note, later, after = STORY["the tests"]
    made = []
    for n in range(2):
        with Keep.open(tmp_path / f"keep{n}") as keep:
            tell(keep, "first", said, tmp_path)
            recorded.dream(keep, tmp_path / f"one{n}", reads(said, note))
            tell(keep, "second", later[1], tmp_path)
            recorded.dream(keep, tmp_path / f"two{n}", reads(later[1], after), merge=supersedes)
            made.append([(one["id"], one["text"], one["state"]) for one in keep.notes(state="all")])
    assert made[0] == made[1]


def test_the_nearest_share_what_is_rare() -> None:
    others = {
        "n-1": "The loans are kept in SQLite.",
        "n-2": "Reminders are sent at 18.",
        "n-3": "The loans are shown by day.",
    }
    assert nearest("The loans are kept in Postgres from now on.", others)[0] == "n-1"
    assert nearest("Nothing here has anything to do with it.", others) == []


def test_what_other_sessions_gave_meanwhile_changes_no_question_that_was_asked(tmp_path: Path) -> None:
    """An answer stays good while other sessions of the project are concluded."""
    with Keep.open(tmp_path / "keep") as keep:
        for n, said in enumerate(("never lend the ladder", "the saw goes back oiled")):
            tell(keep, f"s{n}", said, tmp_path)
        keep.dream_export(str(tmp_path / "x"))
        asked = sorted((tmp_path / "x" / "requests").glob("*.json"))
        (tmp_path / "x" / "answers" / asked[0].name).write_text('{"items": []}')
        keep.dream_import(str(tmp_path / "x"))
        assert sorted((tmp_path / "x" / "requests").glob("*.json")) == asked[1:]
