"""Finds the project of a folder: its git remote, normalised; else this machine and the root folder.

It is found when a session is captured and journaled with it, so that everything derived later is a pure fold.
"""

from __future__ import annotations

import os

from dreamkeep.host import Host, read_file
from dreamkeep.session.folders import normalise_remote

_LARGEST_CONFIG = 1 << 20
_HOMES = ("/home", "/Users", "/root", "/var/root")


def project_of(host: Host, cwd: str, machine: str) -> str:
    root, config = _repository(host, os.path.abspath(cwd))
    remote = remote_in(config)
    return normalise_remote(remote) if remote else f"{machine}:{root}"


def repository_of(host: Host, cwd: str) -> str | None:
    """The root folder of its repository (for a worktree, of the main one); None if there is none."""
    root, _ = _repository(host, os.path.abspath(cwd))
    return root if host.stat(f"{root.rstrip('/')}/.git") is not None else None


def is_home(path: str, home: str) -> bool:
    """Whether it is a user's home, or above one: such a folder holds many projects."""
    if path in ("", "/") or path == home or home.startswith(f"{path}/"):
        return True
    return path in _HOMES or os.path.dirname(path) in ("/home", "/Users")


def is_gone(host: Host, folder: str) -> bool:
    try:
        found = host.stat(folder)
    except OSError:
        return False  # unreadable, but not gone
    return found is None or not found.is_folder


def _repository(host: Host, cwd: str) -> tuple[str, str]:
    """The root folder and git's config text ("" without a repository). A folder that is gone may have been a repository itself:
    then a repository that covers a whole home does not count."""
    at, home = cwd, os.path.expanduser("~")
    while True:
        git = f"{at.rstrip('/')}/.git"
        try:
            found = host.stat(git)
        except OSError:
            found = None  # unreadable, or no valid path: a folder above it may tell
        if found is not None and not (at != cwd and is_home(at, home) and is_gone(host, cwd)):
            try:
                root, folder = (at, git) if found.is_folder else _worktree(host, at, git)
                return root, read_text(host, f"{folder}/config")
            except OSError:
                return at, ""  # a repository that we may not read is still a root
        above = os.path.dirname(at)
        if above == at:
            return cwd, ""
        at = above


def _worktree(host: Host, at: str, git: str) -> tuple[str, str]:
    """A worktree's `.git` is a file that names its folder, which names the common one: all worktrees are one project."""
    named = read_text(host, git).partition("gitdir:")[2].strip()
    folder = os.path.normpath(os.path.join(at, named))
    common = read_text(host, f"{folder}/commondir").strip()
    shared = os.path.normpath(os.path.join(folder, common)) if common else folder
    return (os.path.dirname(shared) if os.path.basename(shared) == ".git" else at), shared


def read_text(host: Host, path: str) -> str:
    found = host.stat(path)
    if found is None or found.is_folder or found.size > _LARGEST_CONFIG:
        return ""
    return read_file(host, path).decode("utf-8", "replace")


def remote_in(config: str) -> str:
    """The url of `origin`, else of the first remote."""
    section = ""
    urls: dict[str, str] = {}
    for line in config.split("\n"):
        line = line.strip()
        if line.startswith("["):
            section = line.strip("[]").strip()
        elif section.startswith("remote ") and line.partition("=")[0].strip() == "url":
            urls.setdefault(section[len("remote ") :].strip('" '), line.partition("=")[2].strip())
    return urls.get("origin") or next(iter(urls.values()), "")
