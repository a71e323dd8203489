"""Whole dreams with a model that answers well: what becomes a note, what waits, what replaces what, and what is asked at all."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dreamkeep import Keep
from dreamkeep.surfaces.cli.dream import describe_why
from tests.helpers.model_keep import assert_grounded, notes, open_keep, say
from tests.helpers.model_server import Server, item, places, serving, suggest_all
from tests.helpers.prompt_dreams import memory
from tests.helpers.secrets import planted

RULE = "never send real mail from a test"


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as one:
        yield one


def about(words: str, **more: Any) -> Any:
    """Finds these words of the user's wherever a request shows them as new."""
    return lambda asked: [item(place, words, **more) for place in places(asked, words)]


def naming_near(operation: str) -> Any:
    """Names the first note that a merge shows beside a new one."""

    def answered(asked: str) -> list[Any]:
        near = [line.split()[3].rstrip(",") for line in asked.splitlines() if " near it: " in line]
        return [{"item": 1, "operation": operation, "other": near[0], "why": "the user changed his mind"}]

    return answered


def note_project(keep: Keep) -> str:
    return str(keep.notes(state=None)[0]["project"])


def test_a_clear_rule_that_the_user_typed_becomes_an_active_note(server: Server, tmp_path: Path) -> None:
    server.items = about(RULE, note="Tests must never send real mail.")
    with open_keep(server, tmp_path / "keep") as keep:
        session = say(keep, "a", f"and {RULE}, we did that once")
        report = keep.dream()
        assert report["notes"]["added"] == 1 and report["notes"]["suggested"] == 0
        [note] = keep.notes()
        assert (note["text"], note["state"], note["author"]) == ("Tests must never send real mail.", "active", "user")
        [quote] = note["evidence"]
        assert (quote["session"], quote["quote"], quote["author"], quote["origin"]) == (session, RULE, "user", "typed")
        assert "Tests must never send real mail." in keep.page(project=note_project(keep))["text"]
        assert_grounded(keep)


def test_what_is_not_clear_is_suggested_and_stands_on_no_page_and_in_no_pack(server: Server, tmp_path: Path) -> None:
    server.items = about(RULE, note="Tests must never send real mail.", strength="maybe")
    server.verdicts = suggest_all
    with open_keep(server, tmp_path / "keep") as keep:
        say(keep, "a", f"maybe {RULE}")
        made = keep.dream()["notes"]
        assert {kind: count for kind, count in made.items() if count} == {"suggested": 1}
        assert notes(keep) == [] and notes(keep, "suggested") == ["Tests must never send real mail."]
        assert "real mail" not in keep.page(project=note_project(keep))["text"] and "real mail." not in str(
            keep.pack(project=note_project(keep))
        )
        assert_grounded(keep)


def test_a_suggestion_that_the_user_types_again_in_another_session_becomes_active(server: Server, tmp_path: Path) -> None:
    server.items = about(RULE, note="Tests must never send real mail.", strength="maybe")
    server.verdicts = suggest_all
    with open_keep(server, tmp_path / "keep") as keep:
        say(keep, "a", f"maybe {RULE}")
        keep.dream()
        assert notes(keep) == []
        server.items = about("no real mail", note="No test may send any real mail.", strength="maybe")
        server.operations = naming_near("same")
        say(keep, "b", "as I said, no real mail, also in this test")
        keep.dream()
        assert server.asked[-1][0] == "merge" and "Tests must never send real mail." in server.asked[-1][1]
        [note] = keep.notes()
        assert {quote["session"] for quote in note["evidence"]} == {"python:a", "python:b"} and notes(keep, "suggested") == []
        assert_grounded(keep)


def test_a_later_decision_supersedes_the_old_one_and_both_dates_are_told(server: Server, tmp_path: Path) -> None:
    server.items = about("keep loans in SQLite", kind="decision", note="Loans are kept in SQLite.")
    with open_keep(server, tmp_path / "keep") as keep:
        say(keep, "a", "let us keep loans in SQLite")
        keep.dream()
        [old] = keep.notes()
        server.items = about("loans go to Postgres", kind="decision", note="Loans are kept in Postgres.")
        server.operations = naming_near("supersedes")
        say(keep, "b", "from now on loans go to Postgres")
        report = keep.dream()
        assert report["notes"]["superseded"] == 1 and notes(keep) == ["Loans are kept in Postgres."]
        [new] = keep.notes()
        told = keep.dream_why(old["id"])
        assert told["note"]["state"] == "superseded" and told["note"]["by"] == new["id"]
        assert [step["what"] for step in told["history"]] == ["added", "superseded"]
        assert ("superseded_by", keep.dream_why(new["id"])["insights"][0]["id"]) in memory(keep).insights[
            old["insights"][0]
        ].links
        shown = describe_why(told)
        assert all(step["at"][:16] in shown for step in told["history"]) and "Loans are kept in SQLite." in shown
        assert old["first_at"] < new["first_at"]
        assert_grounded(keep)


def test_small_sessions_of_one_project_share_one_request(server: Server, tmp_path: Path) -> None:
    server.items = about("remember", note="This is to be remembered.")
    with open_keep(server, tmp_path / "keep") as keep:
        for name in "abc":
            say(keep, name, f"please remember {name}")
        say(keep, "d", "please remember d", cwd="/elsewhere")
        report = keep.dream()
        assert report["processed"] == 4 and report["insights_added"] == 4
        shown = [asked for kind, asked in server.asked if kind == "read"]
        assert [asked.count("please remember") for asked in shown] == [9, 3]
        for name in "abcd":
            [found] = memory(keep).insights_of_session(f"python:{name}")
            assert found.evidence[0].session == f"python:{name}"
        assert_grounded(keep)


def test_a_resumed_session_is_asked_about_its_new_part_only(server: Server, tmp_path: Path) -> None:
    server.items = about("remember", note="This is to be remembered.")
    with open_keep(server, tmp_path / "keep") as keep:
        say(keep, "a", "please remember the tabs")
        keep.dream()
        before, [old] = len(server.asked), places(server.asked[0][1], "please")
        assert keep.dream()["processed"] == 0 and len(server.asked) == before
        server.items = lambda asked: [
            *about("forget the spaces", note="The spaces are forgotten.")(asked),
            item(old, "remember the tabs", note="Remember the tabs well."),
        ]
        say(keep, "a", "please forget the spaces")
        report = keep.dream()
        asked = server.asked[before][1]
        assert "user (read before): please remember the tabs" in asked and "user: please forget the spaces" in asked
        assert {"why": "a place that was read before", "count": 1} in report["dropped"]
        assert notes(keep) == ["The spaces are forgotten.", "This is to be remembered."]


# -- budgets and trouble between the requests


def test_a_session_for_which_a_whole_budget_is_not_enough_fails_and_says_so(server: Server, tmp_path: Path) -> None:
    """Its read fits, its challenge never does: it is not put off by every run for ever."""
    server.items = about("remember", note="This is to be remembered.")
    with open_keep(server, tmp_path / "keep", "max_calls = 1\nmax_attempts = 2") as keep:
        say(keep, "a", "please remember the tabs")
        for attempt in (1, 2):
            [told] = keep.dream()["sessions"]
            assert told["status"] == "failed" and "more than one run may spend" in told["reason"]
            [row] = keep.dream_status()["sessions"]
            assert row["attempts"] == attempt
        assert row["eligibility"] == "poisoned" and len(server.asked) == 2


def test_a_merge_that_nobody_answers_is_asked_again_by_the_next_run(server: Server, tmp_path: Path) -> None:
    """What was found is kept meanwhile. What was spent is told."""
    server.items = about("loans in SQLite", note="Loans are kept in SQLite.")
    with open_keep(server, tmp_path / "keep") as keep:
        say(keep, "a", "keep the loans in SQLite")
        keep.dream()
        server.items = about("loans in Postgres", note="Loans are kept in Postgres.")
        server.operations = naming_near("supersedes")
        say(keep, "b", "keep the loans in Postgres")
        server.acts = ["good", "good", "500"]
        report = keep.dream()
        assert report["processed"] == 1 and report["usage"]["calls"] == 3
        assert report["dropped"] == [{"why": "not merged: NoAnswer", "count": 1}]
        assert notes(keep) == ["Loans are kept in Postgres.", "Loans are kept in SQLite."]
        assert keep.dream()["processed"] == 0 and notes(keep) == ["Loans are kept in Postgres."]


def test_a_merge_for_which_a_budget_has_no_room_is_made_by_the_next_run_once(server: Server, tmp_path: Path) -> None:
    server.items = about("loans in SQLite", note="Loans are kept in SQLite.")
    with open_keep(server, tmp_path / "keep", "max_calls = 2") as keep:
        say(keep, "a", "keep the loans in SQLite")
        keep.dream()
        server.items = about("loans in files", note="Old loans are kept in files.")
        say(keep, "b", "keep the old loans in files")
        report = keep.dream()
        assert report["usage"]["calls"] == 2 and notes(keep) == ["Loans are kept in SQLite.", "Old loans are kept in files."]
        before = len(server.asked)
        keep.dream()
        assert [kind for kind, _ in server.asked[before:]] == ["merge"]
        keep.dream()
        assert len(server.asked) == before + 1 and keep.dream_status()["trigger"]["waiting"] == 0


def test_a_merge_for_which_the_budget_has_run_out_is_made_by_the_next_run(server: Server, tmp_path: Path) -> None:
    server.items = lambda asked: [
        *about("loans in SQLite", note="Loans are kept in SQLite.")(asked),
        *about("loans in Postgres", note="Loans are kept in Postgres.")(asked),
    ]
    server.operations = naming_near("supersedes")
    with open_keep(server, tmp_path / "keep", "max_calls = 3") as keep:
        say(keep, "a", "keep the loans in SQLite")
        say(keep, "b", "keep the loans in Postgres", cwd="/elsewhere")
        say(keep, "c", "keep the loans in Postgres")
        for _ in range(3):
            keep.dream()
        assert keep.dream_status()["trigger"]["waiting"] == 0
        assert notes(keep) == ["Loans are kept in Postgres."] * 2 and notes(keep, "superseded") == ["Loans are kept in SQLite."]


def test_a_session_that_failed_is_asked_about_by_itself(server: Server, tmp_path: Path) -> None:
    """It may be what spoils a request that it shares."""
    server.items = about("remember", note="This is to be remembered.")
    with open_keep(server, tmp_path / "keep") as keep:
        say(keep, "a", "please remember a")
        server.acts = ["prose"]
        assert keep.dream()["failed"] == 1
        before = len(server.asked)
        say(keep, "b", "please remember b")
        say(keep, "c", "please remember c")
        assert keep.dream()["processed"] == 3
        shown = [asked for kind, asked in server.asked[before:] if kind == "read"]
        assert [[name for name in "abc" if f"user: please remember {name}" in asked] for asked in shown] == [["a"], ["b", "c"]]


def test_two_new_notes_of_one_session_can_be_linked(server: Server, tmp_path: Path) -> None:
    """Also where one before them is near nothing, and so is not asked about."""
    said = ("please use tabs", "keep the loans in SQLite", "no, keep the loans in Postgres")
    texts = ("Always use tabs here.", "Loans are kept in SQLite.", "Loans are kept in Postgres.")
    server.items = lambda asked: [
        item(places(asked, words)[0], words, note=text) for words, text in zip(said, texts, strict=True)
    ]
    server.operations = naming_near("supersedes")
    with open_keep(server, tmp_path / "keep") as keep:
        say(keep, "a", *said)
        keep.dream()
        assert notes(keep) == ["Always use tabs here.", "Loans are kept in Postgres."]
        assert notes(keep, "superseded") == ["Loans are kept in SQLite."]
        assert_grounded(keep)


def test_a_secret_in_a_note_is_not_sent_with_a_merge(server: Server, tmp_path: Path) -> None:
    """A hand may write anything on a page."""
    [token] = planted()[4].secrets
    server.items = about("loans in Postgres", note="Loans are kept in Postgres.")
    with open_keep(server, tmp_path / "keep") as keep:
        say(keep, "a", "keep the loans in Postgres")
        project = keep.summary("python:a").project
        note = keep.note_add("Loans are kept in SQLite.", project=project)["id"]
        keep.note_change(note, "edit", text=f"Loans are kept in SQLite with {token}.")
        keep.dream()
        assert server.asked[-1][0] == "merge" and "Loans are kept in SQLite" in server.asked[-1][1]
    assert token.encode() not in b"".join(server.received)
