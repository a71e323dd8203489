"""What the user's own files for agents say: CLAUDE.md, AGENTS.md, GEMINI.md, and the agents' memory folders. It is not learned
again; what contradicts it waits in the inbox. Each agent names its files (`Agent`).

    a session's folder ─► files (read, never written) ─► statements, each with its line ─► the nearest to a note

Only the first 256 KiB of a file are read. Our own region of a file is no statement of the user's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from dreamkeep.agents import registry
from dreamkeep.agents.contract import FOLDER
from dreamkeep.dream.backends.model.merging import nearest
from dreamkeep.host import Host
from dreamkeep.memory import alike, page
from dreamkeep.secrets.redact import redact

#: How far up from a session's folder we look for the top of its repository.
_HIGHEST = 32
_MOST_BYTES, _MOST_FILES, _MOST_STATEMENTS, _LONGEST = 256 << 10, 64, 2000, 2000
_HEADING = re.compile(r"\s*#{1,6}\s")
_ITEM = re.compile(r"\s*(?:[-*+]|\d{1,9}[.)])\s+(?:\[[ xX]\]\s+)?")
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_UNSAFE = re.compile(r"[^\w.:/@-]")


class Statement(NamedTuple):
    """`place`: the file's short name and the line, as in CLAUDE.md:12."""

    place: str
    text: str

    @property
    def name(self) -> str:
        """The name under which a request shows it: one word."""
        return f"file:{_UNSAFE.sub('_', self.place)}"


# -- pure


def statements(file: str, text: str) -> list[Statement]:
    """List items and paragraphs, one statement each. Code, headings, comments, and our own region are none."""
    lines = _blanked(text).split("\n")
    hidden = {n for first, last in page.find_code_blocks(lines) for n in range(first, last + 1)}
    found: list[Statement] = []
    begun, words = 0, list[str]()
    for n, line in enumerate([*lines, ""], 1):
        breaks = n - 1 in hidden or not line.strip() or _HEADING.match(line) is not None
        if (breaks or _ITEM.match(line)) and words:
            found.append(Statement(f"{file}:{begun}", " ".join(" ".join(words).split())[:_LONGEST]))
            words = []
        if not breaks:
            begun = begun if words else n
            words.append(_ITEM.sub("", line, count=1))
    return found[:_MOST_STATEMENTS]


def _blanked(text: str) -> str:
    """Comments and our region are blanked, and every line stays where it was. Behind a broken fence everything is left out."""
    parsed = page.parse(text)
    if parsed.problem:
        text = text[: text.find("dreamkeep:begin")].rpartition("\n")[0]
    elif parsed.region is not None:
        text = parsed.before + "\n" * parsed.region.count("\n") + parsed.after
    return _COMMENT.sub(lambda found: "\n" * found[0].count("\n"), text.replace("\r\n", "\n"))


def nearest_statements(text: str, known: Sequence[Statement]) -> list[Statement]:
    """Those that share most of what is rare, best first."""
    by_place = {one.place: one for one in known}
    return [by_place[place] for place in nearest(text, {one.place: one.text for one in known})]


def find_known(text: str, known: Sequence[Statement]) -> Statement | None:
    """The statement that says all of it already."""
    return next((one for one in nearest_statements(text, known) if _says(one.text, text)), None)


def find_contradiction(text: str, known: Sequence[Statement]) -> tuple[Statement, str] | None:
    """The statement that can't hold together with it, and why."""
    for one in nearest_statements(text, known):
        if why := alike.contradicts(text, one.text):
            return one, why
    return None


def _says(statement: str, text: str) -> bool:
    """Only where it is certain: a model is asked about statements that are merely near."""
    return alike.key(statement) == alike.key(text) or alike.fuller(statement, text) or alike.near(statement, text)


def contradicts_file(one: Statement) -> str:
    """The reason why a note waits in the inbox."""
    return f"{one.place} says otherwise: “{one.text[:200]}”"


# -- from disk


class KnownFiles:
    """Reads each folder's files once."""

    def __init__(self, host: Host, home: str) -> None:
        self._host, self._home = host, home
        self._found: dict[str, list[Statement]] = {}

    def of(self, folder: str) -> list[Statement]:
        """What is known to whoever works in that folder."""
        if folder not in self._found:
            read = (statement for name, path in self._files(folder) for statement in self._statements(name, path))
            self._found[folder] = list(dict.fromkeys(read))[:_MOST_STATEMENTS]
        return self._found[folder]

    def _files(self, folder: str) -> Iterator[tuple[str, str]]:
        """(short name, path) each."""
        agents = registry.agents()
        for at in self._up(folder):
            yield from ((name, f"{at}/{name}") for agent in agents for name in agent.instruction_files)
            slug = re.sub(r"[^A-Za-z0-9]", "-", at)
            for agent in agents:
                if agent.memory_folder:
                    yield from self._memory(f"{self._home}/{agent.memory_folder.replace(FOLDER, slug)}")
        everywhere = (agent.home_instruction_file for agent in agents)
        yield from ((f"~/{name}", f"{self._home}/{name}") for name in everywhere if name)

    def _up(self, folder: str) -> list[str]:
        """The folder, and those above it up to the top of its repository; outside of one only itself."""
        found: list[str] = []
        at = folder.rstrip("/")
        while at and len(found) < _HIGHEST:
            found.append(at)
            if self._stat(f"{at}/.git"):
                return found
            at = at.rpartition("/")[0]
        return found[:1]

    def _stat(self, path: str) -> bool:
        try:
            return self._host.stat(path) is not None
        except OSError:
            return False

    def _memory(self, folder: str) -> Iterable[tuple[str, str]]:
        try:
            names = sorted(self._host.names(folder))
        except OSError:
            return []
        return [(f"memory/{name}", f"{folder}/{name}") for name in names if name.endswith(".md")][:_MOST_FILES]

    def _statements(self, name: str, path: str) -> list[Statement]:
        """None of a file that isn't there or can't be read. Secrets are redacted."""
        try:
            at = self._host.stat(path)
            if at is None or not at.is_file:
                return []
            handle = self._host.open_read(path)
            try:
                data = self._host.read(handle, _MOST_BYTES, 0)
            finally:
                self._host.close(handle)
        except OSError:
            return []
        found = statements(name, data.decode("utf-8", "replace"))
        return [one._replace(text=redact(one.text)[0]) for one in found]
