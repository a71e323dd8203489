"""The bundled sample: an invented week of a small project, as Claude Code, Codex and Gemini CLI would have kept it.

    claude/ codex/ gemini/   what goes into ~/.claude, ~/.codex, ~/.gemini, byte for byte but for the home folder's name
    answers.json             what a model answered when it was asked about that week (recorded.py)

The week is written in tests/planted/week/; `python -m tests.planted.sample` makes these files from it. The folders' names lack
their dot, so that an agent at work on this repository does not take them for its own.
"""

from __future__ import annotations

import os
import random
import re

from dreamkeep.host import Host, RealHost, make_folders, publish_file, read_file, replace_file

AGENTS = ("claude", "codex", "gemini")
#: The home folder in the transcripts; `lay_out` replaces it.
HOME = "/home/you"
PROJECT = "toolshed"
REMOTE = "https://example.org/you/toolshed.git"
#: Sunday after that week, in the morning: everything has been quiet for a day.
NOW_NS = 1_794_132_000 * 10**9
#: The sessions whose transcripts get damaged: half of Monday's becomes NULs, Wednesday's is removed by its agent.
BLANKED = "5b1e0c7a-2f6d-4c1b-8e21-9d4a71c3f001"
GONE = "c1f2a9d4-6be0-4f57-a3d8-70b9e2d5c003"
#: The agent whose Wednesday session that is.
GONE_FROM = "gemini"

_GIT = f'[core]\n\tbare = false\n[remote "origin"]\n\turl = {REMOTE}\n'


class SundayHost(RealHost):
    """This machine, but with a stopped clock and without chance, so that everybody sees the same."""

    def __init__(self) -> None:
        self._chance = random.Random(PROJECT)

    def now(self) -> int:
        return NOW_NS

    def random(self, count: int) -> bytes:
        return self._chance.randbytes(count)


def lay_out(host: Host, home: str) -> None:
    """Writes the week's transcripts, and a folder for the project, into an empty home."""
    git = f"{home}/{PROJECT}/.git"
    make_folders(host, git)
    publish_file(host, f"{git}/config", _GIT.encode())
    for name in _names(host, _here(), AGENTS):
        agent, _, rest = name.partition("/")
        to = f"{home}/.{agent}/{rest.replace(slug(HOME), slug(home))}"
        make_folders(host, os.path.dirname(to))
        publish_file(host, to, read_file(host, f"{_here()}/{name}").replace(HOME.encode(), home.encode()))


def slug(folder: str) -> str:
    """The name that Claude Code gives to a project's folder."""
    return re.sub(r"[^A-Za-z0-9]", "-", folder)


def damage_transcripts(host: Host, home: str) -> None:
    """What happens to agents' files in real life: a power cut leaves NULs, and old chats are cleaned up."""
    for name in _names(host, home, tuple(f".{agent}" for agent in AGENTS)):
        path = f"{home}/{name}"
        if BLANKED in name:
            whole = read_file(host, path)
            lines = whole.splitlines(keepends=True)
            at = len(b"".join(lines[: len(lines) // 2]))
            replace_file(host, path, whole[:at] + bytes(len(whole) - at))
        elif GONE[:8] in name:
            host.remove(path)


def _here() -> str:
    return os.path.dirname(os.path.abspath(__file__))


def _names(host: Host, root: str, folders: tuple[str, ...]) -> list[str]:
    """Every file below these folders of `root`."""
    found: list[str] = []
    for folder in folders:
        for entry in host.entries(f"{root}/{folder}"):
            name = f"{folder}/{entry.name}"
            if entry.at and entry.at.is_folder:
                found += _names(host, root, (name,))
            else:
                found.append(name)
    return found
