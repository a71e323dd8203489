"""Finds projects that are the same: certain cases are corrected, likely ones are offered. Pure, except for `Disk`.

If a session's folder is gone when it is read, that folder becomes its project (`machine:/folder`). It belongs to a repository if

    the form of the path shows it, or git's own list of worktrees                      (worktrees.py)
    a folder above it is a repository of other sessions, and both were on the same unusual branch

Everything else is a question for the user: the same remote in the session's own output, the name of a tool's worktree, the same
branch in two folders. A home folder, or a folder above one, is never used.
"""

from __future__ import annotations

import os
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

from dreamkeep.capture.projects.project import is_home
from dreamkeep.capture.projects.worktrees import Disk, forms, repository_name
from dreamkeep.session.folders import LINK, PUSH, REMOTE, WORKTREE, SessionPlace, is_within

_FOLDER = re.compile(r"([^:/]*):(/.*)", re.DOTALL)
#: Branches that any repository may be on.
_COMMON = frozenset(("", "HEAD", "main", "master", "develop", "development", "dev", "trunk", "staging", "release", "next"))
_REASONS = {
    REMOTE: "its git remote is {}",
    PUSH: "git pushed to or fetched from {}",
    LINK: "its commands printed links to {}",
}


class Correction(NamedTuple):
    was: str
    now: str
    why: str


class Offer(NamedTuple):
    """`source` may be the same project as `into`. `session`, `seq`: the place that shows it."""

    source: str
    into: str
    why: str
    session: str
    seq: str


class ProjectTarget(NamedTuple):
    project: str
    why: str


def folder_in(project: str) -> tuple[str, str] | None:
    """(machine, folder) of a project that is named after its folder."""
    found = _FOLDER.fullmatch(project)
    return (found[1], found[2]) if found else None


class KnownFolders:
    """Indexes of all sessions' folders."""

    def __init__(self, places: Iterable[SessionPlace], home: str) -> None:
        self.home = home
        self.places = sorted(map(_normal, places), key=lambda place: (place.last_at, place.session))
        #: By folder: the projects of the sessions that began there, and the branches that any session saw there.
        self.projects: dict[str, Counter[str]] = defaultdict(Counter)
        self.branches: dict[str, set[str]] = defaultdict(set)
        self.sessions: Counter[str] = Counter()
        self.of_project: dict[str, list[SessionPlace]] = defaultdict(list)
        for place in self.places:
            if place.project:
                self.sessions[place.project] += 1
                self.of_project[place.project].append(place)
                self.projects[place.cwd][place.project] += 1
            for folder, branch, _ in place.folders:
                self.branches[folder].add(branch)

    def is_repository(self, folder: str) -> bool:
        """Whether sessions saw a branch there, or the project is named after a remote."""
        named = any(folder_in(project) is None for project in self.projects.get(folder, ()))
        return not is_home(folder, self.home) and (named or any(self.branches.get(folder, ())))

    def has(self, folder: str) -> bool:
        return folder in self.projects or folder in self.branches

    def repository_above(self, path: str) -> str:
        above = os.path.dirname(path)
        while above not in ("", "/"):
            if self.is_repository(above):
                return above
            above = os.path.dirname(above)
        return ""

    def project_at(self, machine: str, folder: str) -> str | None:
        """The project of that folder; None if there are several."""
        name = f"{machine}:{folder}"
        found = self.projects[folder] if folder in self.projects else Counter[str]()
        others = [project for project in found if folder_in(project) is None]
        if name in found or not others:
            return name
        return others[0] if len(others) == 1 else None

    def holds_repositories(self, folder: str) -> bool:
        """Whether a folder without sessions has other repositories below it, so that it may be none itself."""
        return not self.has(folder) and any(
            is_within(path, folder) and not any(form.repository == folder for form in forms(path))
            for path, projects in self.projects.items()
            if any(folder_in(project) is None for project in projects)
        )


def _normal(place: SessionPlace) -> SessionPlace:
    """With normal paths, as projects have them: no slash at the end, no `..`."""
    folders = tuple((os.path.normpath(folder), branch, seq) for folder, branch, seq in place.folders)
    return place._replace(cwd=os.path.normpath(place.cwd) if place.cwd else "", folders=folders)


# -- what is certain


def corrections(
    places: Sequence[SessionPlace], disk: Disk, *, machine: str, home: str, called: Callable[[str], str], settled: Collection[str]
) -> list[Correction]:
    """`called`: the present name of a project. `settled`: projects that the user named, merged or kept apart."""
    known = KnownFolders(places, home)
    found = []
    for project in sorted(known.sessions):
        folder = folder_in(project)
        if folder is None or project in settled or not any(place.cwd == folder[1] for place in known.of_project[project]):
            continue
        target = _repository(known, disk, folder, machine)
        now = called(target.project) if target else project
        if target and now != project:
            found.append(Correction(project, now, target.why))
    mixed = _mixed(known, found)
    return [correction for correction in found if correction.now not in mixed]


def _mixed(known: KnownFolders, found: Iterable[Correction]) -> set[str]:
    """Projects that would get sessions with different remotes. There the form of the path is misleading."""
    remotes: dict[str, set[str]] = defaultdict(set)
    for correction in found:
        for project in (correction.was, correction.now):
            named = {project} if folder_in(project) is None else set()
            seen = {what for place in known.of_project[project] for what, how, _ in place.remotes if how == REMOTE}
            remotes[correction.now] |= named or seen
    return {project for project, many in remotes.items() if len(many) > 1}


def _repository(known: KnownFolders, disk: Disk, folder: tuple[str, str], machine: str) -> ProjectTarget | None:
    owner, path = folder
    here = owner == machine
    if is_home(path, known.home) or (here and disk.is_folder(path)):
        return None
    found = _by_form(known, disk, folder, here) or (_by_list(known, disk, path) if here else None) or _by_branch(known, folder)
    if found is None or found.project == f"{owner}:{path}":
        return None
    above = folder_in(found.project)
    if above and len(above[1]) < len(path) and (further := _repository(known, disk, above, machine)):
        return further
    return found


def _by_form(known: KnownFolders, disk: Disk, folder: tuple[str, str], here: bool) -> ProjectTarget | None:
    machine, path = folder
    for repository, sure in forms(path):
        if is_home(repository, known.home):
            continue
        if here and disk.is_folder(repository):
            project = disk.project(repository)
        elif known.holds_repositories(repository) or not (sure or known.has(repository)):
            project = None
        else:
            project = known.project_at(machine, repository)
        if project:
            return ProjectTarget(project, f"{path} looks like a worktree of {repository}")
    return None


def _by_list(known: KnownFolders, disk: Disk, path: str) -> ProjectTarget | None:
    folders = (folder for folder in sorted(known.projects) if not is_home(folder, known.home))
    for worktree, root in disk.worktrees(folders).items():
        project = disk.project(root) if is_within(path, worktree) and not is_home(root, known.home) else None
        if project:
            return ProjectTarget(project, f"git lists {worktree} as a worktree of {root}")
    return None


def _by_branch(known: KnownFolders, folder: tuple[str, str]) -> ProjectTarget | None:
    machine, path = folder
    above = known.repository_above(path)
    same = (known.branches.get(above, set()) & known.branches.get(path, set())) - _COMMON
    project = known.project_at(machine, above) if same else None
    if not project:
        return None
    return ProjectTarget(project, f"{path} is inside the repository {above}, and both were on the branch {min(same)}")


# -- what is likely


def offers(
    places: Sequence[SessionPlace], *, home: str, called: Callable[[str], str], apart: Collection[tuple[str, str]]
) -> list[Offer]:
    """An offer for each project that may be the same as another. `apart`: pairs that are known to differ."""
    known = KnownFolders(places, home)
    found: dict[str, Offer] = {}
    for offer in (
        *_same_remote(known, called),
        *_git_worktrees(known),
        *_same_folder(known),
        *_same_branch(known),
        *_same_name(known),
    ):
        pair = offer.source, offer.into
        back = found.get(offer.into)
        if offer.source == offer.into or pair in apart or pair[::-1] in apart or (back and back.into == offer.source):
            continue
        if offer.source in known.sessions and offer.into in known.sessions:
            found.setdefault(offer.source, offer)
    return [found[source] for source in sorted(found)]


def _folder_projects(known: KnownFolders) -> Iterator[tuple[str, str, str]]:
    """(project, machine, folder) of the projects named after their folder."""
    for project in sorted(known.sessions):
        if folder := folder_in(project):
            yield project, *folder


def _first_seen(known: KnownFolders, project: str, path: str) -> tuple[str, str]:
    """(session, seq) where the folder occurs first."""
    found = ((place.session, seq) for place in known.of_project[project] for folder, _, seq in place.folders if folder == path)
    return next(found, (known.of_project[project][0].session, ""))


def _larger(known: KnownFolders, projects: Iterable[str]) -> str:
    return min(projects, key=lambda project: (-known.sessions[project], project))


def _remote_of(places: Iterable[SessionPlace]) -> tuple[str, str, SessionPlace, str] | None:
    """(remote, how it was seen, place, seq) that its sessions agree on; None if they don't."""
    for how in _REASONS:
        seen = [(what, place, seq) for place in places for what, by, seq in place.remotes if by == how]
        if len({what for what, _, _ in seen}) == 1:
            what, place, seq = seen[0]
            return what, how, place, seq
        if seen:
            return None
    return None


def _same_remote(known: KnownFolders, called: Callable[[str], str]) -> Iterator[Offer]:
    by_remote: dict[str, list[tuple[str, str, SessionPlace, str]]] = defaultdict(list)
    for project, _, _ in _folder_projects(known):
        if found := _remote_of(known.of_project[project]):
            remote, how, place, seq = found
            by_remote[remote].append((project, how, place, seq))
    for remote, seen in by_remote.items():
        named = called(remote)
        into = named if named in known.sessions else _larger(known, [project for project, *_ in seen])
        for project, how, place, seq in seen:
            yield Offer(project, into, _REASONS[how].format(remote), place.session, seq)


def _git_worktrees(known: KnownFolders) -> Iterator[Offer]:
    for project, machine, _ in _folder_projects(known):
        for place in known.of_project[project]:
            for repository, how, seq in place.remotes:
                into = known.project_at(machine, repository) if how == WORKTREE else None
                if into:
                    yield Offer(project, into, f"git called it a worktree of {repository}", place.session, seq)


def _same_folder(known: KnownFolders) -> Iterator[Offer]:
    for project, _, path in _folder_projects(known):
        others = [other for other in known.projects.get(path, ()) if folder_in(other) is None]
        if len(others) == 1:
            yield Offer(project, others[0], f"sessions in {path} belong to both", *_first_seen(known, project, path))


def _same_branch(known: KnownFolders) -> Iterator[Offer]:
    """One folder is inside the other's repository, or a session was in both on the same branch."""
    for project, machine, path in _folder_projects(known):
        if is_home(path, known.home):
            continue
        above = known.repository_above(path)
        if above and any(known.branches.get(path, ())) and (into := known.project_at(machine, above)):
            yield Offer(project, into, f"{path} is inside the repository {above}", *_first_seen(known, project, path))
        for place in known.places:
            yield from _same_branch_in(known, place, project, machine, path)


def _same_branch_in(known: KnownFolders, place: SessionPlace, project: str, machine: str, path: str) -> Iterator[Offer]:
    """The same, for one session."""
    here = {branch for folder, branch, _ in place.folders if folder == path} - _COMMON
    for folder, branch, seq in place.folders:
        into = known.project_at(machine, folder) if branch in here and folder != path else None
        if into and place.project in (project, into):
            source, target = (project, into) if _larger(known, (project, into)) == into else (into, project)
            yield Offer(source, target, f"a session was on the branch {branch} in {folder} and {path}", place.session, seq)


def _same_name(known: KnownFolders) -> Iterator[Offer]:
    """Tools that keep worktrees elsewhere name them after the repository's folder."""
    named: dict[tuple[str, str, str], list[tuple[str, str]]] = defaultdict(list)
    for project, machine, path in _folder_projects(known):
        if found := repository_name(path):
            named[machine, *found].append((project, path))
    for (machine, _, name), worktrees in named.items():
        owners = _owners_of_name(known, machine, name) or {_larger(known, [project for project, _ in worktrees])}
        into = owners.pop() if len(owners) == 1 else None
        if into is None:
            continue  # several repositories have this name
        why = f"its folder is a tool's worktree of a repository named {name}"
        for project, path in worktrees:
            yield Offer(project, into, why, *_first_seen(known, project, path))


def _owners_of_name(known: KnownFolders, machine: str, name: str) -> set[str | None]:
    """The projects of all repositories whose folder has this name; None for a folder of several projects."""
    roots = [folder for folder in known.projects if os.path.basename(folder) == name and repository_name(folder) is None]
    return {known.project_at(machine, root) for root in roots if known.is_repository(root)}
