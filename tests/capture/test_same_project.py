"""Sessions of one repository are one project, even if their worktrees were deleted before they were read."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from dreamkeep import Keep
from dreamkeep.capture.projects.project import project_of
from dreamkeep.capture.projects.worktrees import WorktreeForm, forms, repository_name
from dreamkeep.errors import BadUsage, NotFound
from dreamkeep.host import RealHost
from dreamkeep.journal.places import folder_of
from dreamkeep.session.folders import LINK, PUSH, REMOTE, WORKTREE, printed_remotes
from tests.helpers.claude_home import Transcripts
from tests.helpers.cli import Ran

HERE = os.uname().nodename


@pytest.fixture
def transcripts(tmp_path: Path) -> Transcripts:
    return Transcripts(tmp_path / "home")


def ingest(keep: Keep, transcripts: Transcripts) -> list[dict[str, str]]:
    list(keep.ingest(home=transcripts.home))
    return list(keep.corrected)


def shown(keep: Keep) -> dict[str, int]:
    return {one["name"]: one["sessions"] for one in keep.projects()}


def git(at: Path, *words: str) -> None:
    subprocess.run(["git", "-c", "user.name=x", "-c", "user.email=x@y", *words], cwd=at, check=True, capture_output=True)


def repository(path: Path, remote: str = "") -> Path:
    path.mkdir(parents=True)
    git(path, "init", "-q")
    git(path, "commit", "--allow-empty", "-qm", "x")
    if remote:
        git(path, "remote", "add", "origin", remote)
    return path


def journals(root: str) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in Path(root, "journal").rglob("*.jsonl")}


# -- the forms of worktrees


@pytest.mark.parametrize(
    "path",
    [
        "/code/app/.worktrees/3",
        "/code/app/.worktrees/name/branch",
        "/code/app/.worktrees/name/branch/src/deep",
        "/code/app/.claude/worktrees/bright-fox",
        "/code/app/.claude/worktrees/bright-fox/src",
        "/code/app/.gemini/worktrees/x",
        "/code/app/.git/worktrees/x",
        "/code/app.worktrees/feature/x",
        "/code/app/.claude/worktrees/a/.worktrees/b",
    ],
)
def test_a_known_form_of_a_worktree_names_its_repository(path: str) -> None:
    assert next(forms(path)) == WorktreeForm("/code/app", True)


@pytest.mark.parametrize("path", ["/code/app/worktrees/x", "/code/app-worktrees/x", "/code/app/.conductor/tokyo"])
def test_a_path_form_that_others_use_too_is_not_certain(path: str) -> None:
    assert list(forms(path)) == [WorktreeForm("/code/app", False)]


@pytest.mark.parametrize(
    "path", ["/", "/code/app", "/code/app/.worktrees", "/code/.claude/worktrees", "/code/worktrees", "/code/my.worktrees.d/x"]
)
def test_a_folder_that_only_looks_like_a_worktree_has_no_form(path: str) -> None:
    assert list(forms(path)) == []


def test_worktrees_that_tools_keep_elsewhere_name_their_repository() -> None:
    assert repository_name("/Users/me/.cursor/worktrees/app/x7k") == ("/Users/me/.cursor/worktrees", "app")
    assert repository_name("/Users/me/.codex/worktrees/a1b2/app") == ("/Users/me/.codex/worktrees", "app")
    assert repository_name("/Users/me/conductor/workspaces/app/tokyo/src") == ("/Users/me/conductor/workspaces", "app")
    assert repository_name("/Users/me/code/app") is None


# -- what is corrected


def test_84_sessions_in_15_worktrees_that_are_gone_are_one_project(root: str, transcripts: Transcripts) -> None:
    gone = [f"/gone/code/app/.worktrees/{n}" for n in range(8)]
    gone += [f"/gone/code/app/.claude/worktrees/fox-{n}" for n in range(4)]
    gone += ["/gone/code/app/.worktrees/me/feature", "/gone/code/app.worktrees/x", "/gone/code/app"]
    for n in range(84):
        transcripts.write((gone[n % 15], f"branch-{n % 15}"))
    with Keep.open(root) as keep:
        assert len(ingest(keep, transcripts)) == 14
        assert shown(keep) == {f"{HERE}:/gone/code/app": 84}
        before = journals(root)
        assert ingest(keep, transcripts) == []
        assert journals(root) == before, "a second ingest changes nothing"
        keep.reindex(from_zero=True)
        assert shown(keep) == {f"{HERE}:/gone/code/app": 84}


def test_worktrees_that_are_gone_join_the_project_that_their_repository_has(
    root: str, tmp_path: Path, transcripts: Transcripts
) -> None:
    app = repository(tmp_path / "app", "git@example.org:team/app.git")
    git(app, "worktree", "add", "-q", str(tmp_path / "elsewhere"))
    git(app, "worktree", "add", "-q", str(app / ".worktrees" / "here"))
    for path in (app, tmp_path / "elsewhere", app / ".worktrees" / "here", tmp_path / "app.worktrees" / "x"):
        transcripts.write((str(path), "x"))
    transcripts.write((str(tmp_path / "app-worktrees" / "y" / "src"), "y"))
    with Keep.open(root) as keep:
        ingest(keep, transcripts)
        assert shown(keep) == {"example.org/team/app": 5}


def test_gits_list_of_worktrees_shows_the_repository_of_a_deleted_worktree(
    root: str, tmp_path: Path, transcripts: Transcripts
) -> None:
    app = repository(tmp_path / "app", "https://example.org/team/app")
    repository(tmp_path / "other", "https://example.org/team/other")
    git(app, "worktree", "add", "-q", str(tmp_path / "fix-it"))
    git(tmp_path, "-C", str(app), "worktree", "list")
    os.rename(tmp_path / "fix-it", tmp_path / "moved-away")
    for folder in ("app", "other", "fix-it", "fix-it/src", "never-listed"):
        transcripts.write((str(tmp_path / folder), "main"))
    with Keep.open(root) as keep:
        [first, second] = ingest(keep, transcripts)
        assert "git lists" in first["why"] and first["now"] == second["now"] == "example.org/team/app"
        expected = {"example.org/team/app": 3, "example.org/team/other": 1, f"{HERE}:{tmp_path}/never-listed": 1}
        assert shown(keep) == expected


def test_worktrees_of_a_deleted_repository_get_the_project_of_its_sessions(
    root: str, tmp_path: Path, transcripts: Transcripts
) -> None:
    app = repository(tmp_path / "app", "https://example.org/team/app")
    with Keep.open(root) as keep:
        transcripts.write((str(app), "main"))
        ingest(keep, transcripts)
        os.rename(app, tmp_path / "renamed")
        transcripts.write((f"{app}/.worktrees/3", "x"))
        transcripts.write((f"{app}-worktrees/4", "x"))
        ingest(keep, transcripts)
        assert shown(keep) == {"example.org/team/app": 3}


def test_a_folder_belongs_to_the_repository_above_only_on_the_same_unusual_branch(root: str, transcripts: Transcripts) -> None:
    transcripts.write(("/gone/dev", "main"))
    transcripts.write(("/gone/dev", "fix/ducks"))
    transcripts.write(("/gone/dev/cmd", "fix/ducks"))
    transcripts.write(("/gone/dev/nested-clone", "main"))
    transcripts.write(("/gone/dev/nested-too", "fix/geese"))
    transcripts.write(("/gone/dev/no-repository", ""))
    with Keep.open(root) as keep:
        [one] = ingest(keep, transcripts)
        assert (one["was"], one["now"]) == (f"{HERE}:/gone/dev/cmd", f"{HERE}:/gone/dev")
        assert sorted(shown(keep).values()) == [1, 1, 1, 3]
        assert {(o["from"], o["into"]) for o in keep.project_offers()} == {
            (f"{HERE}:/gone/dev/nested-clone", f"{HERE}:/gone/dev"),
            (f"{HERE}:/gone/dev/nested-too", f"{HERE}:/gone/dev"),
        }


def test_a_session_that_changes_its_folder_stays_in_the_project_where_it_began(root: str, transcripts: Transcripts) -> None:
    transcripts.write(("/gone/app/.worktrees/1", "x"), ("/gone/other", "main"), ("/gone/app", "main"))
    transcripts.write(("/gone/other", "main"))
    with Keep.open(root) as keep:
        ingest(keep, transcripts)
        assert shown(keep) == {f"{HERE}:/gone/app": 1, f"{HERE}:/gone/other": 1}


@pytest.mark.parametrize("path", ["/home/me", "/Users/me", "/root", ""])
def test_a_home_and_the_root_are_never_the_repository_of_a_folder_below(path: str, root: str, transcripts: Transcripts) -> None:
    for folder in (path or "/", f"{path}/.worktrees/gone-1", f"{path}/.claude/worktrees/gone-2", f"{path}/gone-3"):
        transcripts.write((folder, "fix/ducks"))
    with Keep.open(root) as keep:
        assert ingest(keep, transcripts) == []
        assert list(shown(keep).values()) == [1, 1, 1, 1]
        assert keep.project_offers() == []


def test_a_home_that_is_a_repository_gets_no_deleted_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, root: str, transcripts: Transcripts
) -> None:
    home = repository(tmp_path / "me", "https://example.org/me/dotfiles")
    monkeypatch.setenv("HOME", str(home))
    (home / "notes").mkdir()
    assert project_of(RealHost(), str(home / "notes"), "box") == "example.org/me/dotfiles", "git says so"
    assert project_of(RealHost(), str(home / "gone"), "box") == f"box:{home}/gone"
    transcripts.write((str(home / ".worktrees" / "x"), "fix/ducks"))
    transcripts.write((str(home), "fix/ducks"))
    with Keep.open(root) as keep:
        assert ingest(keep, transcripts) == []


def test_folders_of_the_same_name_with_different_remotes_are_never_merged(
    root: str, tmp_path: Path, transcripts: Transcripts
) -> None:
    one, two = (repository(tmp_path / place / "app", f"https://example.org/{place}/app") for place in ("one", "two"))
    for app in (one, two):
        transcripts.write((str(app), "fix/ducks"))
        transcripts.write((f"{app}/.worktrees/gone", "fix/ducks"))
    transcripts.write((f"{tmp_path}/conductor/workspaces/app/tokyo", "fix/ducks"))
    with Keep.open(root) as keep:
        ingest(keep, transcripts)
        assert sorted(shown(keep).values()) == [1, 2, 2]
        assert keep.project_offers() == [], "which of the two it is, nobody knows"


def test_an_existing_folder_that_is_no_repository_decides_nothing(root: str, tmp_path: Path, transcripts: Transcripts) -> None:
    (tmp_path / "code" / "plain.worktrees" / "x").mkdir(parents=True)
    for path in ("code/.worktrees/app/x", "code/.worktrees/tool/y", "code/plain.worktrees/x"):
        transcripts.write((str(tmp_path / path), "x"))
    with Keep.open(root) as keep:
        assert ingest(keep, transcripts) == []
        assert len(shown(keep)) == 3


def test_a_folder_of_several_repositories_is_not_taken_for_a_repository(
    root: str, tmp_path: Path, transcripts: Transcripts
) -> None:
    app = repository(tmp_path / "code" / "app", "https://example.org/team/app")
    with Keep.open(root) as keep:
        transcripts.write((str(app), "main"))
        ingest(keep, transcripts)
        os.rename(tmp_path / "code", tmp_path / "moved")
        transcripts.write((f"{tmp_path}/code/.worktrees/tool/y", "x"))
        assert ingest(keep, transcripts) == []


def test_worktrees_with_different_remotes_are_not_merged(root: str, transcripts: Transcripts) -> None:
    for name in ("app", "tool"):
        listed = f"origin\thttps://example.org/team/{name} (fetch)\n"
        transcripts.write((f"/gone/code/.worktrees/{name}/x", "x"), commands=(("git remote -v", listed),))
    transcripts.write(("/gone/code/.worktrees/third/x", "x"))
    with Keep.open(root) as keep:
        assert ingest(keep, transcripts) == []
        assert len(shown(keep)) == 3 and keep.project_offers() == []


def test_a_folder_is_the_same_however_its_path_is_written(root: str, transcripts: Transcripts) -> None:
    transcripts.write(("/gone/app/.worktrees/1/", "x"))
    transcripts.write(("/gone/app/src/..", "x"))
    with Keep.open(root) as keep:
        ingest(keep, transcripts)
        assert shown(keep) == {f"{HERE}:/gone/app": 2}


def test_an_unsure_form_decides_only_with_a_repository_that_sessions_know(root: str, transcripts: Transcripts) -> None:
    transcripts.write(("/gone/git-worktrees/app/x", "x"))
    transcripts.write(("/gone/tool-worktrees/y", "x"))
    transcripts.write(("/gone/tool", "main"))
    with Keep.open(root) as keep:
        ingest(keep, transcripts)
        assert shown(keep) == {f"{HERE}:/gone/git-worktrees/app/x": 1, f"{HERE}:/gone/tool": 2}


# -- notes, pages, and undo


def old(place: str) -> str:
    return f"{HERE}:/gone/app/.worktrees/{place}"


def test_notes_and_pages_follow_a_correction_and_undo_brings_them_back(root: str, transcripts: Transcripts) -> None:
    transcripts.write(("/gone/app/.worktrees/1", "x"))
    transcripts.write(("/gone/app", "main"))
    with Keep.open(root) as keep:
        keep.note_add("Pelicans are white.", project=old("1"))
        keep.note_add("Geese are grey.", project=f"{HERE}:/gone/app")
        keep.dream()
        ingest(keep, transcripts)
        text = keep.page(project=f"{HERE}:/gone/app")["text"]
        assert "Pelicans" in text and "Geese" in text
        assert keep.project_named(old("1")) == f"{HERE}:/gone/app"
        assert len(os.listdir(f"{root}/pages")) == 1

        done = keep.project_undo("/gone/app/.worktrees/1")
        assert done == {"project": old("1"), "was": f"{HERE}:/gone/app", "sessions": 1, "notes": 1}
        assert shown(keep) == {old("1"): 1, f"{HERE}:/gone/app": 1}
        assert "Pelicans" in keep.page(project=old("1"))["text"]
        assert "Pelicans" not in keep.page(project=f"{HERE}:/gone/app")["text"]
        assert len(os.listdir(f"{root}/pages")) == 2

        transcripts.write(("/gone/app/.worktrees/1", "x"))
        transcripts.write(("/gone/app/.worktrees/2", "x"))
        assert [one["was"] for one in ingest(keep, transcripts)] == [old("2")], "what was undone by hand holds"
        assert shown(keep) == {old("1"): 2, f"{HERE}:/gone/app": 2}
        keep.reindex(from_zero=True)
        assert shown(keep) == {old("1"): 2, f"{HERE}:/gone/app": 2}
        assert keep.audit(home=str(transcripts.home))["clean"]

        keep.project_merge(old("1"), f"{HERE}:/gone/app")
        assert shown(keep) == {f"{HERE}:/gone/app": 4}, "a later word by hand counts"


def test_a_project_that_the_user_named_is_not_corrected(root: str, transcripts: Transcripts) -> None:
    transcripts.write(("/gone/app/trees", "x"))
    transcripts.write(("/gone/app", "x"))
    with Keep.open(root) as keep:
        for path in ("/gone/app/.worktrees/1", "/gone/app/.worktrees/2"):
            keep.session(path, cwd=path).record("a pelican")
        keep.project_rename(old("1"), "birds")
        keep.project_merge(f"{HERE}:/gone/app/.worktrees/2", "birds")
        ingest(keep, transcripts)
        assert shown(keep) == {"birds": 2, f"{HERE}:/gone/app": 2}


def test_project_undo_with_the_former_name_undoes_a_users_rename(root: str, cli: Callable[..., Ran]) -> None:
    with Keep.open(root) as keep:
        keep.session("one", cwd="/gone/one").record("a pelican")
        keep.note_add("Pelicans are white.", project=f"{HERE}:/gone/one")
        keep.project_rename("/gone/one", "birds")
        assert os.listdir(f"{root}/pages")[0].startswith("birds")
        with pytest.raises(NotFound, match="renamed or merged"):
            keep.project_undo("birds")
    assert cli("project", "undo", "/gone/one", "--json").json["project"] == f"{HERE}:/gone/one"
    with Keep.open(root) as keep:
        assert shown(keep) == {f"{HERE}:/gone/one": 1}
        assert [name.startswith("one") for name in os.listdir(f"{root}/pages")] == [True]
    assert cli("project", "undo", "/gone/one").code == 1
    assert cli("project", "undo", "/gone/one", "birds").code == cli("project", "merge", "/gone/one").code == 2


def test_a_correction_that_was_undone_stays_undone_in_a_keep_that_imports_it(tmp_path: Path, transcripts: Transcripts) -> None:
    transcripts.write(("/gone/app/.worktrees/1", "x"))
    transcripts.write(("/gone/app/.worktrees/2", "x"))
    with Keep.open(tmp_path / "one") as one, Keep.open(tmp_path / "two") as two:
        for keep in (one, two):
            ingest(keep, transcripts)
        two.project_undo(old("2"))
        two.export(tmp_path / "two.tar.zst")
        one.import_(tmp_path / "two.tar.zst")
        assert shown(one) == shown(two) == {f"{HERE}:/gone/app": 1, old("2"): 1}
        assert ingest(one, transcripts) == []
        one.reindex(from_zero=True)
        assert shown(one) == shown(two)


# -- what is offered


def test_a_folder_with_the_same_remote_is_offered_and_never_merged_by_itself(
    root: str, tmp_path: Path, transcripts: Transcripts, cli: Callable[..., Ran]
) -> None:
    app = repository(tmp_path / "app", "https://example.org/team/app")
    transcripts.write((str(app), "main"))
    listed = "origin\tgit@example.org:team/app.git (fetch)\norigin\tgit@example.org:team/app.git (push)\n"
    session = transcripts.write(("/gone/copy", "main"), commands=(("ls", "README.md"), ("git remote -v", listed)))
    with Keep.open(root) as keep:
        assert ingest(keep, transcripts) == []
        [offer] = keep.project_offers()
        assert (offer["from"], offer["into"]) == (f"{HERE}:/gone/copy", "example.org/team/app")
        assert "example.org/team/app" in offer["why"]
        assert offer["session"] == session
        [said] = [one["text"] for one in keep.show(session)["messages"] if str(one["seq"]) == offer["seq"]]
        assert said == listed, "the evidence is where the offer says"
    told = cli("projects", "--json").json
    assert told["offers"] == [offer]
    assert {one["name"]: one["sessions"] for one in told["projects"]} == {f"{HERE}:/gone/copy": 1, "example.org/team/app": 1}
    assert "Same project?" in cli("projects").out
    assert cli("project", "merge", offer["from"], offer["into"]).code == 0
    told = cli("projects", "--json").json
    assert told["offers"] == [] and [one["sessions"] for one in told["projects"]] == [2]


def test_a_rejected_offer_is_not_repeated(root: str, transcripts: Transcripts, cli: Callable[..., Ran]) -> None:
    link = (("gh pr create --fill", "https://example.org/team/app/pull/12\n"),)
    for folder in ("/gone/one", "/gone/two", "/gone/two"):
        transcripts.write((folder, "main"), commands=link)
    with Keep.open(root) as keep:
        ingest(keep, transcripts)
        [offer] = keep.project_offers()
        assert (offer["from"], offer["into"]) == (f"{HERE}:/gone/one", f"{HERE}:/gone/two"), "the smaller into the larger"
    assert "different projects" in cli("project", "apart", offer["from"], offer["into"]).out
    with Keep.open(root) as keep:
        assert keep.project_offers() == []
        keep.reindex(from_zero=True)
        assert keep.project_offers() == []
        transcripts.write(("/gone/one", "main"), commands=link)
        transcripts.write(("/gone/one", "main"), commands=link)
        ingest(keep, transcripts)
        assert keep.project_offers() == [], "also when the other one is the larger now"
        with pytest.raises(BadUsage, match="the same project"):
            keep.project_apart("/gone/one", "/gone/one")


@pytest.mark.parametrize(
    "command",
    [
        "cd /gone/one/vendor/lib && git remote -v",
        "git -C ../lib remote -v",
        "gh pr view 3 --repo team/lib",
        "gh pr view https://example.org/team/app/pull/3",
        "cat notes.txt",
    ],
)
def test_a_command_that_asked_about_another_folder_or_repository_offers_nothing(
    command: str, root: str, tmp_path: Path, transcripts: Transcripts
) -> None:
    app = repository(tmp_path / "app", "https://example.org/team/app")
    transcripts.write((str(app), "main"))
    output = "origin\thttps://example.org/team/app (fetch)\nhttps://example.org/team/app/pull/3\n"
    transcripts.write(("/gone/one", "main"), commands=((command, output),))
    with Keep.open(root) as keep:
        ingest(keep, transcripts)
        assert keep.project_offers() == []


def test_a_project_whose_sessions_saw_two_remotes_is_not_offered(root: str, tmp_path: Path, transcripts: Transcripts) -> None:
    app = repository(tmp_path / "app", "https://example.org/team/app")
    transcripts.write((str(app), "main"))
    for name in ("app", "lib"):
        output = f"To example.org:team/{name}.git\n   1..2  main -> main\n"
        transcripts.write(("/gone/one", "main"), commands=(("git push", output),))
    with Keep.open(root) as keep:
        ingest(keep, transcripts)
        assert keep.project_offers() == []


@pytest.mark.parametrize(
    ("how", "text", "found"),
    [
        (REMOTE, "up\thttps://x.org/u/a (fetch)\norigin\thttps://me:key@x.org/o/a.git (fetch)", [("x.org/o/a", REMOTE)]),
        (REMOTE, "git@x.org:o/a.git\n", [("x.org/o/a", REMOTE)]),
        (REMOTE, "fatal: not a git repository", []),
        (REMOTE, "origin\t/srv/git/a.git (fetch)", []),
        (PUSH, "To github.com:o/a.git\n * [new branch]", [("github.com/o/a", PUSH)]),
        (PUSH, "remote:      https://x.org/o/a/pull/new/b\nTo /srv/a.git", [("x.org/o/a", LINK)]),
        (PUSH, "remote:   https://x.org/g/sub/a/-/merge_requests/new?x=1", [("x.org/g/sub/a", LINK)]),
        (LINK, "title:\tx\nurl:\thttps://x.org/o/a/pull/3\n--\nas in https://x.org/z/z/issues/9 it", [("x.org/o/a", LINK)]),
        (LINK, '{"number":3,"url":"https://x.org/o/a/pull/3"}', [("x.org/o/a", LINK)]),
        (WORKTREE, "/code/a  0123abc [main]\n/code/b  0123abc [b]\n", [("/code/a", WORKTREE)]),
        (WORKTREE, "/code/b  0123abc [main]\n/code/a  0123abc [b]\n", []),
        (WORKTREE, "(see /code/a/.git/worktrees/b/rebase-merge/done)", [("/code/a", WORKTREE)]),
        (WORKTREE, "/code/a/.git/worktrees/other/HEAD", []),
    ],
)
def test_remotes_are_found_in_what_commands_print(how: str, text: str, found: list[tuple[str, str]]) -> None:
    assert list(printed_remotes(how, text, "/code/b")) == found


def test_worktrees_that_a_tool_keeps_elsewhere_are_offered_to_the_one_repository_of_that_name(
    root: str, transcripts: Transcripts
) -> None:
    transcripts.write(("/gone/code/app", "main"))
    for path in (
        "/Users/me/.cursor/worktrees/app/x7",
        "/Users/me/.codex/worktrees/1a/app",
        "/Users/me/conductor/workspaces/app/oslo",
    ):
        transcripts.write((path, "main"))
    with Keep.open(root) as keep:
        assert ingest(keep, transcripts) == [], "a name alone is not certain"
        assert [one["into"] for one in keep.project_offers()] == [f"{HERE}:/gone/code/app"] * 3


def test_two_folders_in_which_a_session_was_on_the_same_branch_are_offered(root: str, transcripts: Transcripts) -> None:
    transcripts.write(("/gone/app", "fix/ducks"), ("/gone/fix-ducks", "fix/ducks"))
    transcripts.write(("/gone/app", "main"), ("/gone/plain", "main"))
    transcripts.write(("/gone/fix-ducks", "fix/ducks"))
    transcripts.write(("/gone/plain", "main"))
    with Keep.open(root) as keep:
        assert ingest(keep, transcripts) == []
        [offer] = keep.project_offers()
        assert (offer["from"], offer["into"]) == (f"{HERE}:/gone/fix-ducks", f"{HERE}:/gone/app")


def test_ingest_reports_its_corrections_and_how_to_undo_them(transcripts: Transcripts, cli: Callable[..., Ran]) -> None:
    transcripts.write(("/gone/app/.worktrees/1", "x"))
    told = cli("ingest", "--home", str(transcripts.home))
    assert told.code == 0 and f"Undo with: dreamkeep project undo {old('1')}" in told.out
    told = cli("ingest", "--home", str(transcripts.home), "--json").json
    assert told["projects"] == []
    [project] = cli("projects", "--json").json["projects"]
    assert (project["name"], project["sessions"], project["notes"]) == (f"{HERE}:/gone/app", 1, 0)
    assert [one["name"] for one in project["merged"]] == [old("1")] and project["last_at"]


def test_without_a_keep_no_project_is_listed(cli: Callable[..., Ran], root: str) -> None:
    assert cli("projects", "--json").json == {"projects": [], "offers": []}
    assert "No projects." in cli("projects").out
    assert not os.path.exists(root)


def test_a_deleted_session_offers_nothing(root: str, transcripts: Transcripts) -> None:
    link = (("gh pr create", "https://example.org/team/app/pull/12"),)
    first = transcripts.write(("/gone/one", "main"), commands=link)
    transcripts.write(("/gone/two", "main"), commands=link)
    with Keep.open(root) as keep:
        ingest(keep, transcripts)
        assert keep.project_offers()
        keep.delete(first)
        assert keep.project_offers() == []
        assert not Path(root, folder_of(first)).exists()
