"""Which project a folder belongs to: its git remote, normalised; else this machine and the root folder.

Found when a session is captured, and journaled with it, so that everything derived later stays a pure fold.
"""

from __future__ import annotations

import os

from dreamkeep.host import Host, read_file

_LARGEST_CONFIG = 1 << 20


def project_of(host: Host, cwd: str, machine: str) -> str:
    root, config = _repository(host, os.path.abspath(cwd))
    remote = remote_in(config)
    return normalised(remote) if remote else f"{machine}:{root}"


def repository_of(host: Host, cwd: str) -> str | None:
    """The root folder of the repository that holds it, of a worktree that of all of them; None where there is none."""
    root, _ = _repository(host, os.path.abspath(cwd))
    return root if host.stat(f"{root.rstrip('/')}/.git") is not None else None


def _repository(host: Host, cwd: str) -> tuple[str, str]:
    """The root folder and git's config text ("" when there is no repository)."""
    at = cwd
    while True:
        git = f"{at.rstrip('/')}/.git"
        try:
            found = host.stat(git)
        except OSError:
            found = None  # a folder that we may not look into, or no name that could be one: what is above it may tell
        if found is not None:
            try:
                root, folder = (at, git) if found.is_folder else _worktree(host, at, git)
                return root, _text(host, f"{folder}/config")
            except OSError:
                return at, ""  # somebody else's repository that we may not read: still a root
        above = os.path.dirname(at)
        if above == at:
            return cwd, ""
        at = above


def _worktree(host: Host, at: str, git: str) -> tuple[str, str]:
    """A worktree's `.git` is a file that names its folder, which names the common one: all worktrees are one project."""
    named = _text(host, git).partition("gitdir:")[2].strip()
    folder = os.path.normpath(os.path.join(at, named))
    common = _text(host, f"{folder}/commondir").strip()
    shared = os.path.normpath(os.path.join(folder, common)) if common else folder
    return (os.path.dirname(shared) if os.path.basename(shared) == ".git" else at), shared


def _text(host: Host, path: str) -> str:
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


def normalised(url: str) -> str:
    """`git@host:a/b.git`, `https://user:secret@host/a/b` and `ssh://git@host:22/a/b/` are the same place: `host/a/b`."""
    scheme, found, rest = url.partition("://")
    if found and scheme == "file":
        return rest.rstrip("/").removesuffix(".git")
    if not found:
        host, colon, path = url.partition(":")
        if not colon or "/" in host:
            return url.rstrip("/").removesuffix(".git")
        rest = f"{host}/{path.lstrip('/')}"
    place, _, path = rest.partition("/")
    place = place.rpartition("@")[2].partition(":")[0].lower()
    return f"{place}/{path.strip('/').removesuffix('.git')}"
