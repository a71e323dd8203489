"""Finds the agents' sessions on this machine: in the places they use, or in what the user named."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

from dreamkeep.agents.contract import ROWS, Discovery, Source
from dreamkeep.agents.registry import beside, discovery, is_built_in, names, problems
from dreamkeep.agents.registry import find as find_agent
from dreamkeep.errors import BadUsage
from dreamkeep.host import FolderEntry, Host, Stat

Answer = TypeVar("Answer")

_HEAD = 1 << 16


class Trouble(NamedTuple):
    """A place that could not be searched; the others were."""

    agent: str
    path: str
    problem: str


Found = Source | Trouble


class Newest(NamedTuple):
    """Transcripts and databases, newest first, and how many more there are."""

    sources: tuple[Source, ...]
    left: int


class Glance:
    """A host that remembers the `stat` of each file in the folders it lists, so that it need not be repeated."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self.seen: dict[str, Stat] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._host, name)

    def entries(self, folder: str) -> list[FolderEntry]:
        found = self._host.entries(folder)
        self.seen.update((f"{folder}/{entry.name}", entry.at) for entry in found if entry.at)
        return found


class AgentTree:
    """A host for searching an agent's place: it notes what can't be read instead of raising. Missing files raise as usual. Links
    are followed as `refusal` allows, but the place itself may be any link."""

    def __init__(self, host: Host, agent: str, place: str) -> None:
        self._host = host
        self._agent = agent
        self._follows = {place: True}
        self.troubles: list[Trouble] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._host, name)

    def names(self, folder: str) -> list[str]:
        return [entry.name for entry in self.entries(folder) if entry.at]

    def entries(self, folder: str) -> list[FolderEntry]:
        try:
            if not self._is_followed(folder):
                return []
            found = self._host.entries(folder)
        except (FileNotFoundError, NotADirectoryError):
            raise
        except OSError as problem:
            self._note(folder, problem.strerror or str(problem))
            return []
        bad = [entry for entry in found if entry.error]
        if bad and len(bad) == len(found):
            self._note(folder, bad[0].error)
        else:
            for entry in bad:
                self._note(f"{folder}/{entry.name}", entry.error)
        return found

    def stat(self, path: str) -> Stat | None:
        try:
            return self._host.stat(path)
        except OSError as problem:
            self._note(path, problem.strerror or str(problem))
            return None

    def _is_followed(self, folder: str) -> bool:
        known = self._follows.get(folder)
        if known is None:
            above = os.path.dirname(folder)
            known = above == folder or self._is_followed(above)
            if known and (why := refusal(self._host, folder)):
                self._note(folder, why)
                known = False
            self._follows[folder] = known
        return known

    def _note(self, path: str, problem: str) -> None:
        self.troubles.append(Trouble(self._agent, path, problem))


def checked(agents: Iterable[str]) -> list[str]:
    chosen = list(agents)
    for agent in chosen:
        if find_agent(agent) is None:
            broken = " `dreamkeep doctor` tells why others can't be used." if problems() else ""
            way = f"Known: {', '.join(names())}.{broken}"
            raise BadUsage(f"no agent `{agent}` keeps sessions on disk", where="--agent", next=way)
    return chosen or list(names())


def everywhere(host: Host, home: str, environment: Mapping[str, str], agents: Iterable[str]) -> Iterator[Found]:
    """Every source of these agents below `home` and where the environment says."""
    seen: set[str] = set()
    for agent in agents:
        for place in places(agent, home, environment):
            yield from _fresh(_below(host, agent, place), seen)


def places(agent: str, home: str, environment: Mapping[str, str]) -> list[str]:
    found: list[str] = _ask(agent, lambda discovery: discovery.homes(home, environment), list[str]())
    return list(dict.fromkeys(os.path.abspath(place) for place in found))


def _ask(agent: str, question: Callable[[Discovery], Answer], otherwise: Answer) -> Answer:
    """An error in another package's discovery must not stop the other agents."""
    try:
        return question(discovery(agent))
    except Exception:
        if is_built_in(agent):
            raise
        return otherwise


def _below(host: Host, agent: str, place: str) -> Iterator[Found]:
    tree = AgentTree(host, agent, place)
    try:
        if tree.stat(place) is not None:
            yield from discovery(agent).discover(tree, place)
    except OSError as problem:
        yield Trouble(agent, str(problem.filename or place), problem.strerror or str(problem))
    except Exception as problem:
        if is_built_in(agent):
            raise
        yield Trouble(agent, place, f"what dreamkeep was taught of this agent fails: {type(problem).__name__}: {problem}")
    yield from tree.troubles


def _fresh(found: Iterable[Found], seen: set[str]) -> Iterator[Found]:
    for one in found:
        if one.path not in seen:
            seen.add(one.path)
            yield one


def newest(found: Iterable[Found], looks: Mapping[str, Stat], *, most: int, size: int) -> Newest:
    """At most `most` of them, together no larger than `size` bytes; larger ones are skipped."""
    files = [one for one in found if isinstance(one, Source) and one.role == "main" and one.path in looks]
    chosen: list[Source] = []
    for one in sorted(files, key=lambda one: (-looks[one.path].mtime_ns, one.path)):
        if len(chosen) < most and 0 < looks[one.path].size <= size:
            chosen.append(one)
            size -= looks[one.path].size
    return Newest(tuple(chosen), len(files) - len(chosen))


def named(host: Host, path: str, agents: Iterable[str]) -> list[Found]:
    """What the user named: a transcript, a database, or a folder to look through."""
    path = os.path.abspath(os.path.expanduser(path))
    try:
        return _at(host, path, list(agents))
    except OSError as problem:
        return [Trouble("", path, problem.strerror or str(problem))]


def _at(host: Host, path: str, agents: list[str]) -> list[Found]:
    at = host.stat(path)
    if at is None:
        return [Trouble("", path, "no such file or folder")]
    if at.is_folder:
        return _in_folder(host, path, agents)
    for agent in agents:
        claimed = _ask(agent, lambda discovery: discovery.claims(path), None)
        if claimed is not None:
            source = claimed._replace(path=path)
            return [source, *beside(host, source)]
    return [_by_head(host, path, agents) or Trouble("", path, "unknown format; name the agent with --agent")]


def _in_folder(host: Host, path: str, agents: list[str]) -> list[Found]:
    """Tries it as a user's home, then as an agent's own folder, then as a folder of transcripts."""
    found = list(everywhere(host, path, {}, agents))
    if not found:
        seen: set[str] = set()
        for agent in agents:
            found += _fresh(_below(host, agent, path), seen)
    if not found:
        for name, at, _ in host.entries(path):
            if at and not at.is_folder and name.endswith((".jsonl", ".json", ".db")):
                found += [one for one in named(host, f"{path}/{name}", agents) if isinstance(one, Source)]
    return found or [Trouble("", path, "no sessions found here")]


def _by_head(host: Host, path: str, agents: list[str]) -> Source | None:
    if path.endswith((".db", ".sqlite", ".sqlite3")):
        # Only SQLite may open another program's database: even closing a plain handle could drop its locks.
        return Source(agents[0], path, ROWS) if len(agents) == 1 else None
    handle = host.open_read(path)
    try:
        head = host.read(handle, _HEAD, 0)
    finally:
        host.close(handle)
    for agent in agents:
        native = _ask(agent, lambda discovery: discovery.identify(path, head), "")
        if native:
            return Source(agent, path, session=native)
    return None


# -- which symbolic links are followed
#
# Anybody who can write there (an agent, a tool it runs, an archive it unpacks) can leave a link to a device that never ends, to
# /proc/self/environ, or to another user's file. So a link is followed only to a plain file or a folder that belongs to the user.
# For root, the link must be root's own or belong to the same user as what it leads to: root can read everything, and whoever made
# the link may not.


#: File systems whose files are made by the kernel while somebody reads them.
_NO_DISK = frozenset(("proc", "sysfs", "devtmpfs", "devpts", "debugfs", "tracefs", "securityfs", "cgroup", "cgroup2", "configfs"))


def refusal(host: Host, path: str) -> str:
    """Why a link is not followed; empty when it is, and when the path is no link."""
    link = host.link_stat(path)
    target = host.stat(path) if link is not None and link.is_link else None
    if link is None or target is None:
        return ""
    real = host.real_path(path)
    why = why_not_followed(link, target, host.file_system(real), host.user())
    return f"it is a symbolic link to `{real}`, {why}, so it is not followed. Put the file itself in its place." if why else ""


def why_not_followed(link: Stat, target: Stat, file_system: str, user: int) -> str:
    """Why a link to this target is not followed; empty when it is. Pure."""
    if not (target.is_file or target.is_folder):
        return "which is a device, a pipe or a socket"
    if file_system in _NO_DISK:
        return "which is not a file on a disk"
    if user == 0:
        return "" if link.owner in (0, target.owner) else "and the two belong to different users"
    return "" if target.owner == user else "which belongs to another user"
