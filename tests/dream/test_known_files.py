"""What the user's own files for agents say is known: it is not learned again, the inbox asks where a note contradicts it, and a
note can be put there."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from dreamkeep import Keep
from dreamkeep.dream.consolidate.known_files import (
    KnownFiles,
    Statement,
    find_contradiction,
    find_known,
    nearest_statements,
    statements,
)
from dreamkeep.dream.pages.promote import with_item
from dreamkeep.errors import BadUsage, NotFound, Refused
from dreamkeep.host import RealHost
from tests.helpers.answering import Reader, dream, item
from tests.helpers.cli import Ran

FILE = """# Our shed

Read this first. It is
about the shed.

- Always run `make lint` before a push.
- The server listens on
  port 8100.
<!-- a comment: use spaces -->

```
- never use this line
```

1. Names of tables are singular.
<!-- dreamkeep:begin v1: x -->
### Rules
- Ours alone. [n-0123456789ab]
<!-- dreamkeep:end -->
The end.
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def shed(home: Path) -> Path:
    """A repository of the user's."""
    folder = home / "shed"
    (folder / ".git").mkdir(parents=True)
    return folder


def session(keep: Keep, name: str, said: str, cwd: Path) -> None:
    made = keep.session(name, cwd=cwd)
    made.record(said, ("assistant", "Done."))
    made.end()


def texts(keep: Keep, state: str = "active") -> list[str]:
    return sorted(str(one["text"]) for one in keep.notes(state=state))


# -- statements


def test_list_items_and_paragraphs_are_statements_with_their_line() -> None:
    assert statements("CLAUDE.md", FILE) == [
        Statement("CLAUDE.md:3", "Read this first. It is about the shed."),
        Statement("CLAUDE.md:6", "Always run `make lint` before a push."),
        Statement("CLAUDE.md:7", "The server listens on port 8100."),
        Statement("CLAUDE.md:15", "Names of tables are singular."),
        Statement("CLAUDE.md:20", "The end."),
    ]
    assert statements("CLAUDE.md", FILE.replace("\n", "\r\n")) == statements("CLAUDE.md", FILE)


def test_a_broken_fence_of_ours_makes_nothing_of_ours_a_statement() -> None:
    broken = FILE.replace("<!-- dreamkeep:end -->\n", "")
    assert not [one for one in statements("x", broken) if "Ours alone" in one.text]


@pytest.mark.parametrize(
    ("note", "place"),
    [
        ("Always run `make lint` before a push.", "CLAUDE.md:6"),
        ("Run `make lint` before a push, always.", "CLAUDE.md:6"),
        ("The server's port is 8200.", ""),
        ("Run `make test` before a push.", ""),
        ("Never run `make lint` before a push.", ""),
        ("Deploys go out on Tuesdays.", ""),
    ],
)
def test_only_what_a_file_says_already_is_known(note: str, place: str) -> None:
    found = find_known(note, statements("CLAUDE.md", FILE))
    assert (found.place if found else "") == place


def test_a_contradiction_names_the_nearest_statement() -> None:
    known = statements("CLAUDE.md", FILE)
    against = find_contradiction("The server listens on port 8200.", known)
    assert against is not None and against[0].place == "CLAUDE.md:7"
    assert find_contradiction("Deploys go out on Tuesdays.", known) is None
    assert nearest_statements("which port has the server?", known)[0].place == "CLAUDE.md:7"


def test_files_up_to_the_top_of_the_repository_and_memory_folders_are_read(home: Path, shed: Path) -> None:
    deep = shed / "src" / "deep"
    deep.mkdir(parents=True)
    (home / "AGENTS.md").write_text("- Not of this repository.\n")
    (shed / "AGENTS.md").write_text("- At the top.\n")
    (deep / "CLAUDE.md").write_text("- In the folder.\n")
    memory = home / ".claude" / "projects" / str(shed).replace("/", "-").replace("_", "-") / "memory"
    memory.mkdir(parents=True)
    (memory / "build notes.md").write_text("- In Claude's memory. The key is sk-ant-api03-" + "a1B2" * 20 + "\n")
    (home / ".codex").mkdir()
    (home / ".codex" / "AGENTS.md").write_text("- For all projects.\n")
    (shed / "GEMINI.md").mkdir()
    found = KnownFiles(RealHost(), str(home)).of(str(deep))
    assert [one.place for one in found] == ["CLAUDE.md:1", "AGENTS.md:1", "memory/build notes.md:1", "~/.codex/AGENTS.md:1"]
    assert found[2].name == "file:memory/build_notes.md:1" and "a1B2a1B2" not in found[2].text
    assert KnownFiles(RealHost(), str(home)).of("/nowhere/at/all") == [Statement("~/.codex/AGENTS.md:1", "For all projects.")]


# -- in a dream


def test_an_insight_that_a_file_says_already_becomes_no_note(keep: Keep, shed: Path, tmp_path: Path) -> None:
    (shed / "CLAUDE.md").write_text(FILE)
    session(keep, "one", "remember to run `make lint` before a push", shed)
    lint = item("Run `make lint` before a push.", "run `make lint` before a push", kind="procedure")
    made = dream(keep, tmp_path / "exchange", Reader(lint))
    assert texts(keep, "all") == [] and made["insights_added"] == 0
    assert (shed / "CLAUDE.md").read_text() == FILE


def test_the_report_says_from_which_file_it_is_known(keep: Keep, shed: Path) -> None:
    (shed / "AGENTS.md").write_text("- From now on always run the linter before a push.\n")
    session(keep, "one", "From now on always run the linter before a push.", shed)
    made = keep.dream(backend="rules")
    assert {"why": "known from AGENTS.md", "count": 1} in made["dropped"] and texts(keep, "all") == []


def test_what_contradicts_a_file_waits_in_the_inbox_and_says_which_line(keep: Keep, shed: Path) -> None:
    (shed / "AGENTS.md").write_text("# Shed\n\n- Never squash commits.\n")
    session(keep, "one", "From now on, always squash commits.", shed)
    assert keep.dream(backend="rules", preview=True)["notes"]["suggested"] == 1 and keep.review()["items"] == []
    assert keep.dream(backend="rules")["notes"]["suggested"] == 1 and texts(keep) == []
    [one] = keep.review()["items"]
    assert "AGENTS.md:3 says otherwise" in one["why"]
    keep.review(accept=[one["id"]])
    assert texts(keep) == [one["text"]]


def merged(keep: Keep, shed: Path, folder: Path, operation: str) -> Reader:
    (shed / "CLAUDE.md").write_text("# Shed\n\n- Commits get their summaries at each checkpoint.\n")
    session(keep, "one", "make the summaries when a commit is made", shed)
    new = item("Summaries are made when commits are made.", "make the summaries when a commit is made")
    reader = Reader(new)
    reader.operations[new["note"]] = (operation, "file:CLAUDE.md:3", "when")
    reader.report = dream(keep, folder, reader)  # type: ignore[attr-defined]
    return reader


def test_a_model_is_shown_the_nearest_statements_of_files(keep: Keep, shed: Path, tmp_path: Path) -> None:
    [asked] = merged(keep, shed, tmp_path / "exchange", "new").of("merge")
    assert "near it: file:CLAUDE.md:3, " in asked and "Commits get their summaries at each checkpoint." in asked
    assert texts(keep) == ["Summaries are made when commits are made."]


def test_what_a_model_calls_the_same_as_a_file_is_dropped_and_counted(keep: Keep, shed: Path, tmp_path: Path) -> None:
    reader = merged(keep, shed, tmp_path / "exchange", "same")
    assert texts(keep) == [] and keep.review()["items"] == []
    assert {"why": "known from CLAUDE.md", "count": 1} in reader.report["dropped"]  # type: ignore[attr-defined]
    session(keep, "two", "hello", shed)
    keep.dream(backend="rules")
    assert texts(keep) == [], "it does not come back by itself"


def test_what_a_model_says_contradicts_a_file_is_a_suggestion_that_names_it(keep: Keep, shed: Path, tmp_path: Path) -> None:
    merged(keep, shed, tmp_path / "exchange", "supersedes")
    assert texts(keep) == []
    [one] = keep.review()["items"]
    assert one["text"] == "Summaries are made when commits are made." and "CLAUDE.md:3 says otherwise" in one["why"]


# -- a wish for all projects


def test_a_wish_for_all_projects_is_only_suggested_beside_the_projects_own_note(keep: Keep, shed: Path, tmp_path: Path) -> None:
    session(keep, "one", "please use british spelling, as always with me", shed)
    wish = item("British spelling is used.", "please use british spelling", kind="preference", scope="person")
    dream(keep, tmp_path / "exchange", Reader(wish))
    [note] = keep.notes()
    project = keep.project_named(str(shed))
    assert note["project"] == project
    [one] = keep.review()["items"]
    assert (one["text"], one["project"]) == ("British spelling is used.", "") and "all projects" in one["why"]
    keep.review(accept=[one["id"]])
    assert {found["project"] for found in keep.notes()} == {"", project}


# -- note promote


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", "- N.\n"),
        ("# A\n\n- one\n", "# A\n\n- one\n- N.\n"),
        ("# A\n\n- one", "# A\n\n- one\n- N.\n"),
        ("some words", "some words\n\n- N.\n"),
        ("some words\n\n", "some words\n\n- N.\n"),
        ("# A\r\n\r\nwords\r\n", "# A\r\n\r\nwords\r\n\r\n- N.\r\n"),
        ("<!-- dreamkeep:end -->\n", "<!-- dreamkeep:end -->\n\n- N.\n"),
    ],
)
def test_a_list_item_is_put_behind_all_that_is_there(before: str, after: str) -> None:
    assert with_item(before, "N.") == after and after.startswith(before)


def test_a_promoted_note_stands_in_the_file_and_leaves_our_page(keep: Keep, shed: Path) -> None:
    project = keep.project_named(str(shed))
    note = keep.note_add("Prices are integers, in cents.", kind="constraint", project=project)
    keep.note_add("Deploys go out on Tuesdays.", kind="constraint", project=project)
    file = shed / "CLAUDE.md"
    file.write_bytes(b"# Shed\r\n\r\n- one \xf0\x9f\x90\xa6\r\n")
    file.chmod(0o640)
    keep.page(project=project, write=str(file))
    whole = file.read_bytes()
    assert b"in cents" in whole
    done = keep.note_promote(note["id"], file)
    assert done["added"] and done["state"] == "active" and done["promoted"] == str(file)
    now = file.read_bytes().decode()
    assert now.startswith("# Shed\r\n\r\n- one 🐦\r\n") and now.endswith("\r\n- Prices are integers, in cents.\r\n")
    assert now.count("in cents") == 1 and "Tuesdays" in now, "our region has the other note alone"
    assert now.splitlines()[done["line"] - 1] == "- Prices are integers, in cents." and stat.S_IMODE(file.stat().st_mode) == 0o640
    assert "in cents" not in keep.page(project=project)["text"]
    assert [hit.id for hit in keep.search("prices cents", kinds=["note"])] == [note["id"]]
    again = keep.note_promote(note["id"], file)
    assert not again["added"] and file.read_bytes().decode() == now
    keep.note_change(note["id"], "pin")
    assert "in cents" in keep.page(project=project)["text"], "what is pinned is on the page"


def test_a_promoted_note_is_not_learned_again(keep: Keep, shed: Path, tmp_path: Path) -> None:
    project = keep.project_named(str(shed))
    note = keep.note_add("Prices are integers, in cents.", kind="constraint", project=project)
    (shed / "CLAUDE.md").write_text("")
    keep.note_promote(note["id"], shed / "CLAUDE.md")
    keep.note_change(note["id"], "retract")
    session(keep, "one", "prices are integers, in cents", shed)
    dream(keep, tmp_path / "x", Reader(item("Prices are integers, in cents.", "prices are integers, in cents")))
    assert texts(keep) == []


def test_what_is_no_regular_file_of_the_users_is_refused_and_stays(keep: Keep, shed: Path) -> None:
    note = keep.note_add("Prices are integers, in cents.")["id"]
    (shed / "folder").mkdir()
    os.mkfifo(shed / "pipe")
    (shed / "latin").write_bytes(b"caf\xe9\x00")
    (shed / "open").write_text("words\n<!-- a comment that nobody closes\n")
    (shed / "fence").write_text("<!-- dreamkeep:begin v1: x -->\n- one\n")
    page = Path(keep.root) / "pages" / "CLAUDE.md"
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text("ours\n")
    files = [file for file in (*shed.iterdir(), page) if file.is_file()]
    before = {file: file.read_bytes() for file in files}
    for file in (shed / "folder", shed / "pipe", shed / "latin", shed / "fence", page):
        with pytest.raises(Refused):
            keep.note_promote(note, file)
    with pytest.raises(BadUsage):
        keep.note_promote(note, shed / "nothing")
    with pytest.raises(NotFound):
        keep.note_promote("n-nothing", shed / "open")
    assert {file: file.read_bytes() for file in files} == before and not (shed / "nothing").exists()


def test_only_an_active_note_is_promoted(keep: Keep, shed: Path) -> None:
    (shed / "CLAUDE.md").write_text("# Shed\n")
    note = keep.note_suggest("Deploys go out on Tuesdays.")["id"]
    with pytest.raises(Refused):
        keep.note_promote(note, shed / "CLAUDE.md")
    assert (shed / "CLAUDE.md").read_text() == "# Shed\n"


def test_a_link_stays_a_link_when_a_note_is_promoted(keep: Keep, shed: Path) -> None:
    (shed / "AGENTS.md").write_text("# Shed\n")
    (shed / "CLAUDE.md").symlink_to("AGENTS.md")
    note = keep.note_add("Prices are integers, in cents.")["id"]
    assert keep.note_promote(note, shed / "CLAUDE.md")["file"] == str(shed / "AGENTS.md")
    assert (shed / "CLAUDE.md").is_symlink() and "in cents" in (shed / "AGENTS.md").read_text()


def test_the_command_says_where_the_note_went(keep: Keep, shed: Path, cli: Callable[..., Ran]) -> None:
    file = shed / "AGENTS.md"
    file.write_text("# Shed\n")
    note = keep.note_add("Prices are integers, in cents.")["id"]
    told = cli("note", "promote", note, "--to", str(file))
    assert told.code == 0 and f"{file}:3" in told.out
    assert cli("note", "promote", note).code == 2
    assert cli("note", "pin", note, "--to", str(file)).code == 2
    assert cli("note", "promote", note, "--to", str(file), "--json").json["added"] is False


def test_a_wish_that_is_not_clear_waits_once_and_for_its_project_only(keep: Keep, shed: Path, tmp_path: Path) -> None:
    session(keep, "one", "please use british spelling", shed)
    wish = item("British spelling is used.", "please use british spelling", kind="preference", scope="person", strength="maybe")
    dream(keep, tmp_path / "x", Reader(wish))
    assert [one["project"] != "" for one in keep.notes(state="suggested")] == [True]
