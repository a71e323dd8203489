"""Finds the repository of a worktree whose folder is gone: by the form of its path, or by git's own list of worktrees.

    sure      <repo>/.worktrees/…          <repo>/.claude/worktrees/…   <repo>/.gemini/worktrees/…
              <repo>/.git/worktrees/…      <repo>.worktrees/…
    only if <repo> is known to be one      <repo>/worktrees/…   <repo>-worktrees/…   <repo>/.conductor/…
    only the repository's folder name      ~/.cursor/worktrees/NAME/…   ~/.codex/worktrees/ID/NAME   ~/conductor/workspaces/NAME/…

A form that only tells the name is not enough: two repositories may have folders of the same name.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from dreamkeep.capture.projects.project import is_gone, project_of, read_text, repository_of
from dreamkeep.host import Host

#: Agents that keep worktrees in a folder of their own in the repository.
_AGENT_FOLDERS = frozenset((".claude", ".gemini"))
#: Where tools keep the worktrees of all repositories, and how deep below it the repository's name stands.
_BY_NAME = {(".cursor", "worktrees"): 0, (".codex", "worktrees"): 1, ("conductor", "workspaces"): 0}
_SUFFIX = len("-worktrees")


class WorktreeForm(NamedTuple):
    repository: str
    #: Whether the form alone is enough.
    sure: bool


def forms(path: str) -> Iterator[WorktreeForm]:
    """What the path may be a worktree of, the outermost first."""
    parts = path.split("/")
    for i, part in enumerate(parts[:-1]):
        above, after = "/".join(parts[:i]), parts[i + 1 :]
        inner = len(after) > 1 and after[0] == "worktrees"
        if part == ".worktrees" or (inner and (part == ".git" or part in _AGENT_FOLDERS)):
            yield WorktreeForm(above, True)
        elif part in ("worktrees", ".conductor"):
            yield WorktreeForm(above, False)
        elif part.endswith((".worktrees", "-worktrees")) and len(part) > _SUFFIX:
            yield WorktreeForm(f"{above}/{part[:-_SUFFIX]}", part.endswith(".worktrees"))


def repository_name(path: str) -> tuple[str, str] | None:
    """(the folder of all worktrees, the repository's folder name) for tools that keep worktrees away from their repositories."""
    parts = path.split("/")
    for i in range(len(parts) - 1):
        depth = _BY_NAME.get((parts[i], parts[i + 1]))
        if depth is not None and len(parts) > i + 3:
            return "/".join(parts[: i + 2]), parts[i + 2 + depth]
    return None


class Disk:
    """Folders on the disk of this machine."""

    def __init__(self, host: Host, machine: str) -> None:
        self._host = host
        self._machine = machine
        self._listed: dict[str, str] | None = None

    def is_folder(self, path: str) -> bool:
        return not is_gone(self._host, path)

    def project(self, repository: str) -> str | None:
        """The project of a folder that has a `.git` of its own; None for any other."""
        try:
            found = self._host.stat(f"{repository}/.git")
        except OSError:
            return None
        return project_of(self._host, repository, self._machine) if found else None

    def worktrees(self, folders: Iterable[str]) -> dict[str, str]:
        """Worktree → repository, for the repositories of these folders, as git lists them; also worktrees that are gone."""
        if self._listed is None:
            self._listed = {}
            for root in dict.fromkeys(map(self._root, folders)):
                self._listed.update(dict.fromkeys(_listed_worktrees(self._host, f"{root}/.git/worktrees"), root) if root else {})
        return self._listed

    def _root(self, folder: str) -> str:
        try:
            return (repository_of(self._host, folder) or "") if self.is_folder(folder) else ""
        except OSError:
            return ""


def _listed_worktrees(host: Host, folder: str) -> Iterator[str]:
    try:
        names = sorted(host.names(folder))
    except OSError:
        return  # it has no worktrees, or we may not look
    for name in names:
        try:
            file = read_text(host, f"{folder}/{name}/gitdir").strip()
        except OSError:
            continue
        if os.path.basename(file) == ".git":
            yield os.path.normpath(os.path.join(folder, name, os.path.dirname(file)))
