"""Which project a folder belongs to: the remote, else machine and root; worktrees share it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from dreamkeep.capture.projects.project import project_of
from dreamkeep.host import RealHost
from dreamkeep.session.folders import normalise_remote


@pytest.mark.parametrize(
    "url",
    [
        "git@Example.org:team/app.git",
        "https://example.org/team/app",
        "https://user:secret@example.org/team/app.git",
        "ssh://git@example.org:22/team/app/",
        "https://EXAMPLE.org/team/app.git/",
    ],
)
def test_all_spellings_of_a_remote_give_one_project_name_without_secrets(url: str) -> None:
    assert normalise_remote(url) == "example.org/team/app"


def git(at: Path, *words: str) -> None:
    subprocess.run(["git", "-c", "user.name=x", "-c", "user.email=x@y", *words], cwd=at, check=True, capture_output=True)


def test_worktrees_share_their_project_and_folders_without_git_are_their_own(tmp_path: Path) -> None:
    host = RealHost()
    repo = tmp_path / "repo"
    (repo / "deep" / "er").mkdir(parents=True)
    git(repo, "init", "-q")
    git(repo, "commit", "--allow-empty", "-qm", "x")
    git(repo, "worktree", "add", "-q", str(tmp_path / "tree"))
    assert project_of(host, str(repo / "deep" / "er"), "box") == f"box:{repo}"
    assert project_of(host, str(tmp_path / "tree"), "box") == f"box:{repo}"
    git(repo, "remote", "add", "fork", "https://example.org/me/app")
    assert project_of(host, str(tmp_path / "tree"), "box") == "example.org/me/app"
    git(repo, "remote", "add", "origin", "git@example.org:team/app.git")
    for place in (repo, repo / "deep", tmp_path / "tree"):
        assert project_of(host, str(place), "box") == "example.org/team/app"
    plain = tmp_path / "plain"
    plain.mkdir()
    assert project_of(host, str(plain), "box") == f"box:{plain}"
    (plain / ".git").write_text("gitdir: /nowhere")
    assert project_of(host, str(plain), "box") == f"box:{plain}"
