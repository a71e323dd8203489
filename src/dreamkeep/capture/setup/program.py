"""The commands that an agent starts (our hook, our MCP server), and how to recognise them. Pure.

Every path is absolute and every word is quoted for a shell, because agents start hooks with their own PATH and working folder. We
recognise our entries by the hook's path. So entries of another install are updated, and not added twice.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any, NamedTuple

from dreamkeep.capture.hooks import spool

SERVER = "dreamkeep"

#: The end of our hook's path, wherever it is installed.
_HOOK_TAIL = "/dreamkeep/capture/hook.py"


class Program(NamedTuple):
    """The Python that dreamkeep runs on, its hook file, and the keep. All absolute paths."""

    python: str
    hook: str
    keep: str

    def hook_words(self, agent: str, event: str) -> list[str]:
        return [self.python, "-I", "-S", self.hook, agent, event, self.keep]

    def hook_command(self, agent: str, event: str) -> str:
        return spool.hook_command(self.python, self.hook, agent, event, self.keep)

    def server_words(self) -> list[str]:
        # -P: the agent starts it in the project's folder, from which nothing may be imported.
        return ["-P", "-m", "dreamkeep", "mcp", "--keep", self.keep]

    def server_entry(self) -> dict[str, Any]:
        """The MCP server, in the form of most agents' settings."""
        return {"command": self.python, "args": self.server_words()}


def is_our_hook(command: Any, hook: str, agent: str = "") -> bool:
    """Whether a command calls our hook (for this agent), of this install or of another one."""
    words = words_of(command) if isinstance(command, str) else []
    if words[-2:] == ["||", ":"]:
        del words[-2:]
    at = next((n for n, word in enumerate(words[:4]) if word.endswith(_HOOK_TAIL) or (hook and word == hook)), -1)
    # Only exactly our form: a command that the user changed belongs to the user, and stays.
    if at < 1 or not set(words[1:at]) <= {"-I", "-S"} or len(words) > at + 5 or any(set(word) & set(";&|") for word in words):
        return False
    return not agent or words[at + 1 : at + 2] == [agent]


def words_of(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError:
        return command.split()


def is_our_server(entry: Any) -> bool:
    """Whether an MCP entry starts our server, whichever Python and keep it names."""
    if not isinstance(entry, Mapping):
        return False
    words: list[Any] = []
    for key in ("command", "args"):
        value = entry.get(key)
        words += value if isinstance(value, list) else [value]
    return any(words[n : n + 3] == ["-m", "dreamkeep", "mcp"] for n in range(len(words)))
