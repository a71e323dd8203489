"""Where a session ran, by its own records: folders with their branches, and remotes that its commands printed. Pure.

    state["folder"]    the current folder
    state["folders"]   [folder, branch, place] each, in the order in which they appeared
    state["remotes"]   [what, how, place] each: a remote in the form of a project's name, or the path of a repository (`worktree`)
    state["asked"]     calls that ask for a remote, and whose results have not come yet

A command only counts if it asks about the session's own folder, so not if it goes elsewhere (`cd`, `-C`, `--repo`, an address).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from dreamkeep.session.reading import tools

#: How a remote was found, the surest first.
REMOTE, PUSH, LINK, WORKTREE = "remote", "push", "link", "worktree"

_MOST_FOLDERS = 32
_MOST_REMOTES = 16
_MOST_ASKED = 16
_LONGEST = 1000
_LOOK = 20_000

_ASKS_REMOTE = re.compile(r"\bgit\s+(?:remote\b|config\s+(?:--get\s+)?remote\.)")
_ASKS_PUSH = re.compile(r"\bgit\s+(?:push|pull|fetch)\b")
_ASKS_FORGE = re.compile(r"\b(?:gh\s+(?:pr|repo|issue|run)|glab\s+(?:mr|repo|issue|ci))\b")
_ASKS_GIT = re.compile(r"\bgit\s+(?:worktree|rev-parse|status|rebase|commit)\b")
_ELSEWHERE = re.compile(r"(?:^|[;&|(\s])(?:cd|pushd)\s|\s-C\s|\s(?:-R|--repo)\b|--git-dir|GH_REPO|://|git@|\bclone\b")
_LISTED = re.compile(r"^(\S+)\t(\S+) \((?:fetch|push)\)$", re.MULTILINE)
_ADDRESS = re.compile(r"^(?:(?:https?|ssh|git)://[^/\s]+/\S+|[\w.-]+@[\w.-]+:\S+|[\w-]+(?:\.[\w-]+)+:[^/\s]\S*)$")
_MOVED = re.compile(r"^(?:To|From) (\S+)$", re.MULTILINE)
_FORGE = r"(https?://[\w.-]+/[\w.-]+(?:/[\w.-]+)+?)/(?:-/)?(?:pull|pulls|issues|merge_requests|compare|actions)/\S*"
_LINK = re.compile(rf"^(?:remote:|url:)?\s*{_FORGE}\s*$", re.MULTILINE)
_LINK_JSON = re.compile(rf'"url":\s*"{_FORGE}"')
_ADMIN = re.compile(r"(/[^\s\"':]+)/\.git/worktrees/([^/\s\"']+)")
_WORKTREE_LINE = re.compile(r"^(/.+?)\s+(?:[0-9a-f]{7,40} |\(bare\))", re.MULTILINE)


class SessionPlace(NamedTuple):
    """Where one session ran, as far as the index knows. `project`: its current name."""

    session: str
    project: str
    cwd: str
    last_at: str
    #: (folder, branch, seq) each.
    folders: tuple[tuple[str, str, str], ...] = ()
    #: (what, how, seq) each.
    remotes: tuple[tuple[str, str, str], ...] = ()


def place_of(session: str, project: str, cwd: str, last_at: str, folders: object, remotes: object) -> SessionPlace:
    """From a row. Anything of an unexpected form is left out."""
    return SessionPlace(session, project, cwd, last_at, _triples(folders), _triples(remotes))


def _triples(value: object) -> tuple[tuple[str, str, str], ...]:
    many = value if isinstance(value, list) else []
    return tuple((str(entry[0]), str(entry[1]), str(entry[2])) for entry in many if isinstance(entry, list) and len(entry) == 3)


def note_folder(state: dict[str, Any], cwd: str, branch: str, remote: str, place: str) -> None:
    """Note what one record says; "" for what it does not say."""
    folder, branch = (cwd or state.get("folder", ""))[:_LONGEST], branch[:200]
    if not folder:
        return
    state["folder"] = folder
    known = state.setdefault("folders", [])
    if branch:
        known[:] = [entry for entry in known if entry[:2] != [folder, ""]]
    if len(known) < _MOST_FOLDERS and not any(entry[0] == folder and branch in ("", entry[1]) for entry in known):
        known.append([folder, branch, place])
    if remote and _ADDRESS.match(remote):
        _note_remotes(state, [(normalise_remote(remote), REMOTE)], place)


def note_tool(state: dict[str, Any], tool: Mapping[str, Any], text: str, place: str) -> None:
    """Remember a call that asks for a remote until its result comes; then note the result."""
    id, name = str(tool.get("id") or ""), str(tool.get("name") or "")
    if not id:
        return
    cwd = str(state.get("folder", ""))
    if name and tool.get("input") is not None:
        if tools.is_kind("shell", name) and (how := _asks(tools.command_of(tool["input"]), cwd)):
            asked = state.setdefault("asked", {})
            asked[id] = how
            while len(asked) > _MOST_ASKED:
                del asked[next(iter(asked))]
        return
    how = state.get("asked", {}).pop(id, "")
    if how and not tool.get("error"):
        _note_remotes(state, printed_remotes(how, text[:_LOOK], cwd), place)


def _note_remotes(state: dict[str, Any], found: Iterable[tuple[str, str]], place: str) -> None:
    known = state.setdefault("remotes", [])
    for what, how in found:
        if len(known) < _MOST_REMOTES and not any(entry[:2] == [what, how] for entry in known):
            known.append([what[:_LONGEST], how, place])


def _asks(command: str, cwd: str) -> str:
    if "git" not in command and "gh" not in command and "glab" not in command:
        return ""
    for begin in (f"cd {cwd} && ", f'cd "{cwd}" && ', f"cd {cwd}; "):
        command = command.removeprefix(begin) if cwd else command
    # The text of a commit or of a pull request may hold anything: only the first line counts.
    if _ELSEWHERE.search(command.split("\n", 1)[0]):
        return ""
    for pattern, how in ((_ASKS_REMOTE, REMOTE), (_ASKS_PUSH, PUSH), (_ASKS_FORGE, LINK), (_ASKS_GIT, WORKTREE)):
        if pattern.search(command):
            return how
    return ""


def printed_remotes(how: str, text: str, cwd: str) -> Iterator[tuple[str, str]]:
    """(remote, how it was found) each, in the output of a command."""
    text = text.replace("\r\n", "\n")
    if how == REMOTE:
        listed = dict(reversed(_LISTED.findall(text)))
        lines = text.split()
        url = listed.get("origin") or next(reversed(listed.values()), "") or (lines[0] if len(lines) == 1 else "")
        if _ADDRESS.match(url):
            yield normalise_remote(url), REMOTE
    if how == PUSH:
        for url in _MOVED.findall(text):
            if _ADDRESS.match(url):
                yield normalise_remote(url), PUSH
    if how in (PUSH, LINK):
        for url in (*_LINK.findall(text), *_LINK_JSON.findall(text)):
            yield normalise_remote(url), LINK
    if cwd and (main := _main_worktree(text, cwd)):
        yield main, WORKTREE


def _main_worktree(text: str, cwd: str) -> str:
    """The repository of which git says that this folder is a worktree; "" if it does not."""
    listed = [os.path.normpath(str(path)) for path in _WORKTREE_LINE.findall(text)]
    if any(is_within(cwd, path) for path in listed[1:]) and not is_within(cwd, listed[0]):
        return listed[0]
    for repository, name in _ADMIN.findall(text):
        if name in cwd.split("/") and not is_within(cwd, repository):
            return os.path.normpath(str(repository))
    return ""


def is_within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder.rstrip('/')}/")


def normalise_remote(url: str) -> str:
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
