"""Projects renamed and merged by hand: old and new sessions follow the name, however the index was built."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dreamkeep import Keep
from dreamkeep.errors import BadUsage, NotFound
from dreamkeep.event import Event, Kind
from dreamkeep.memory.memory import Memory, fold
from dreamkeep.memory.project import add_renaming
from tests.helpers.cli import Ran

NAMES = st.sampled_from(["a", "b", "c", "d", ""])


def folder(tmp_path: Path, name: str) -> str:
    """A repository whose remote is example.org/you/NAME."""
    place = tmp_path / name
    (place / ".git").mkdir(parents=True)
    (place / ".git" / "config").write_text(f'[remote "origin"]\n\turl = https://example.org/you/{name}.git\n')
    return str(place)


def plain_folder(tmp_path: Path, name: str) -> str:
    """A folder without a repository."""
    (tmp_path / name).mkdir()
    return str(tmp_path / name)


def look(keep: Keep) -> tuple[object, ...]:
    sessions = [(one.id, one.project) for one in keep.sessions()]
    notes = [(one["id"], one["project"]) for one in keep.notes(state=None)]
    tasks = [(one["id"], one["project"]) for one in keep.tasks()]
    hits = sorted((hit.session, hit.project) for hit in keep.search("pelican"))
    return sessions, notes, tasks, hits


@given(st.lists(st.tuples(NAMES, NAMES), max_size=12), NAMES)
def test_a_name_leads_to_a_current_one_and_following_agrees_with_starting_over(steps: list[tuple[str, str]], name: str) -> None:
    names: dict[str, str] = {}
    followed = name  # as a row that is brought up to date with each step
    for was, now in steps:
        names = add_renaming(names, was, now)
        followed = names.get(followed, followed)
        assert not names.keys() & set(names.values())
        assert "" not in names and "" not in names.values()
    assert followed == names.get(name, name)


@given(st.lists(st.tuples(st.sampled_from(["hand", "ingest", "undo", "apart"]), NAMES, NAMES, st.integers(0, 9)), max_size=12))
def test_names_are_the_same_followed_step_by_step_and_folded_from_the_beginning(steps: list[tuple[str, str, str, int]]) -> None:
    events = [Event(f"t{name}", Kind.TASK_OPENED, "x", {"id": name, "title": name, "project": name}) for name in "abcd"]
    followed = fold(events)
    for n, (what, was, now, which) in enumerate(steps):
        renamings = [one for one in events if one.kind == Kind.PROJECT_RENAMED]
        if what == "undo" and renamings:
            one = renamings[which % len(renamings)]
            event = Event(f"e{n}", Kind.PROJECT_UNDONE, "x", {"renaming": one.id, "was": one.body["was"], "now": one.body["now"]})
        elif what == "apart":
            event = Event(f"e{n}", Kind.PROJECT_APART, "x", {"was": was, "now": now})
        else:
            event = Event(f"e{n}", Kind.PROJECT_RENAMED, "x", {"was": was, "now": now, "by": what})
        events.append(event)
        followed = Memory.load((*key, body) for key, body in rows_of(followed).items())
        followed.apply(event)
        if followed.needs_refold:
            followed = fold(events)
    told = fold(events)
    assert rows_of(followed) == rows_of(told)
    assert {one.project for one in told.tasks.values()} == {told.current_project(name) for name in "abcd"}


def rows_of(memory: Memory) -> dict[tuple[str, str], Any]:
    return {
        (table, id): one if isinstance(one, dict) else one.as_json()
        for table in ("tasks", "projects", "apart")
        for id, one in getattr(memory, table).items()
    }


def test_sessions_notes_tasks_and_pages_go_with_the_name_and_so_does_what_comes_later(tmp_path: Path, root: str) -> None:
    place = folder(tmp_path, "old")
    with Keep.open(root) as keep:
        keep.session("one", cwd=place).record("a pelican")
        keep.note_add("Pelicans are white.", project="example.org/you/old")
        keep.task_open("Count the pelicans", project="example.org/you/old")
        [before] = os.listdir(f"{root}/pages")
        done = keep.project_rename("example.org/you/old", "birds")
        assert done == {"project": "birds", "was": "example.org/you/old", "sessions": 1, "notes": 1}
        assert os.listdir(f"{root}/pages") != [before] and len(os.listdir(f"{root}/pages")) == 1
        keep.session("two", cwd=place).record("another pelican")
        keep.note_add("Pelicans eat fish.", project=keep.project_named(place))
        shown = look(keep)
        assert {project for rows in shown for _, project in rows} == {"birds"}  # type: ignore[attr-defined]
        assert keep.project_named("example.org/you/old") == keep.project_named(place) == "birds"
        assert "Pelicans are white" in keep.pack(project=place)["text"]
        keep.reindex(from_zero=True)
        assert look(keep) == shown
        assert keep.audit(home=str(tmp_path))["clean"]


def test_a_session_that_goes_on_under_another_project_name_keeps_its_task(tmp_path: Path, root: str) -> None:
    with Keep.open(root) as keep:
        session = keep.session("one", cwd=folder(tmp_path, "old"))
        session.record("Count the pelicans. We never count at night.")
        session.end()
        assert keep.dream()["processed"] == 1
        keep.project_rename("example.org/you/old", "birds")
        session.resume()
        session.record("We never count on Mondays.")
        session.end()
        assert keep.dream()["processed"] == 1
        [task] = keep.tasks()
        assert task["project"] == "birds"


def test_renaming_a_project_back_restores_its_name(tmp_path: Path, root: str) -> None:
    place = folder(tmp_path, "old")
    with Keep.open(root) as keep:
        keep.session("one", cwd=place).record("a pelican")
        keep.project_rename("example.org/you/old", "birds")
        keep.project_rename("birds", "example.org/you/old")
        keep.session("two", cwd=place).record("more")
        assert {one.project for one in keep.sessions()} == {"example.org/you/old"}
        assert keep.project_named("birds") == "example.org/you/old"


def test_merging_makes_two_projects_one_and_the_page_holds_the_notes_of_both(tmp_path: Path, root: str) -> None:
    first, second = folder(tmp_path, "first"), folder(tmp_path, "second")
    page = tmp_path / "MEMORY.md"
    with Keep.open(root) as keep:
        for place in (first, second):
            keep.session(f"in {place}", cwd=place).record("a pelican")
            keep.note_add(f"The way to {Path(place).name} is short.", project=keep.project_named(place))
        keep.page(project="example.org/you/first", write=page)
        keep.project_merge(first, second)
        assert {one.project for one in keep.sessions()} == {"example.org/you/second"}
        text = keep.page(project="example.org/you/second")["text"]
        assert "way to first" in text and "way to second" in text
        assert "way to second" in page.read_text(), "a file that showed the one shows both"


def test_an_index_that_followed_a_lost_renaming_reads_the_sessions_again(tmp_path: Path, root: str) -> None:
    """Damage took the event: answers do not depend on what the index once knew."""
    with Keep.open(root) as keep:
        keep.session("one", cwd=folder(tmp_path, "old")).record("a pelican")
        keep.project_rename("example.org/you/old", "birds")
        assert [one.project for one in keep.sessions()] == ["birds"]
    part = Path(root, "journal/keep/000001.jsonl")
    part.write_bytes(part.read_bytes().replace(b'"project.renamed"', b'"project.removed"'))
    with Keep.open(root) as keep:
        assert [one.project for one in keep.sessions()] == ["example.org/you/old"]


@pytest.mark.parametrize(
    "bad", ["a\nb../../x", "a\rb", "a\tb", "a\x1b[2Jb", "a\x00b", "a\x85b", "a\u2028b", "a\u202eb", "a\udcffb"]
)
def test_a_name_with_an_invisible_character_is_refused_and_nothing_is_renamed(tmp_path: Path, root: str, bad: str) -> None:
    """X1: one with a line feed would be two lines wherever it is shown, and an escape is the terminal's."""
    with Keep.open(root) as keep:
        for name in ("first", "second"):
            keep.session(name, cwd=folder(tmp_path, name)).record("x")
        first = "example.org/you/first"
        with pytest.raises(BadUsage, match="invisible") as told:
            keep.project_rename(first, bad)
        assert told.value.exit_code == 2 and bad not in str(told.value)
        with pytest.raises(NotFound):
            keep.project_merge(first, bad)
        assert keep.project_rename(first, " Vögel und 鳥 ")["project"] == "Vögel und 鳥"
        assert {one.project for one in keep.sessions()} == {"Vögel und 鳥", "example.org/you/second"}


def test_no_project_is_merged_into_one_whose_name_can_not_be_shown(tmp_path: Path, root: str) -> None:
    """X1: such a name may come from a folder; it can be given up, and not taken."""
    with Keep.open(root) as keep:
        for name in ("first", "odd\nname"):
            keep.session(name.replace("\n", ""), cwd=plain_folder(tmp_path, name)).record("x")
        first, odd = [one.project for one in sorted(keep.sessions(), key=lambda one: one.id)]
        assert "\n" in odd
        with pytest.raises(BadUsage, match="invisible"):
            keep.project_merge(first, odd)
        assert keep.project_merge(odd, first)["sessions"] == 2


def test_a_renaming_that_is_impossible_is_refused_with_a_message(tmp_path: Path, root: str, cli: Callable[..., Ran]) -> None:
    with Keep.open(root) as keep:
        for name in ("first", "second"):
            keep.session(name, cwd=folder(tmp_path, name)).record("x")
        first, second = "example.org/you/first", "example.org/you/second"
        for bad in (second, first, "", " ", "~/x"):
            with pytest.raises(BadUsage):
                keep.project_rename(first, bad)
        with pytest.raises(NotFound):
            keep.project_merge(first, "nobody's")
        with pytest.raises(NotFound):
            keep.project_rename("nobody's", "x")
    assert cli("project", "merge", first, "nobody's").code == 1
    assert cli("project", "rename", first, second).code == 2
    merged = cli("project", "merge", first, second, "--json")
    assert merged.code == 0 and merged.json == {"project": second, "was": first, "sessions": 2, "notes": 0}
    assert len(cli("sessions", "--project", first, "--json").json["sessions"]) == 2, "the old name is understood"
    assert cli("search", "x", "--project", first).code == cli("search", "x", "--project", str(tmp_path / "second")).code == 0
