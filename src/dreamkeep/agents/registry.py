"""All agents: those of this package, and those that other packages offer by the entry point group `dreamkeep.agents`.

An agent's modules are imported when they are needed. Entry points are read once: when all agents are listed, or when a name is
not one of ours. An agent of another package that can't be loaded is left out and reported (`problems`); the others go on.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from dreamkeep.agents import facts as f
from dreamkeep.agents.contract import BESIDE, Agent, Discovery, Neighbours, Reader, Sharing, Source
from dreamkeep.host import Host, RealHost, read_file

if TYPE_CHECKING:
    from dreamkeep.agents.shared.row_habits import RowHabits
    from dreamkeep.agents.shared.talk import TalkWriter

GROUP = "dreamkeep.agents"
#: Our own, in the order in which they are asked. Each has the folder of its name.
BUILT_IN: tuple[str, ...] = (
    "claude",
    "codex",
    "gemini",
    "qwen",
    "opencode",
    "hermes",
    "hermes-webui",
    "copilot",
    "kimi",
    "goose",
    "pi",
)
#: Names before a session's id that belong to no agent: recorded from Python, or by a tap that does not recognise the agent.
_NO_AGENTS = frozenset(("", "python", "acp"))
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")


class Problem(NamedTuple):
    """An agent of another package that can't be used, and why."""

    offered: str
    why: str


class _Registry:
    """What is loaded so far. `others` is None until entry points are read."""

    def __init__(self) -> None:
        self.known: dict[str, Agent] = {}
        self.others: dict[str, Agent] | None = None
        self.problems: list[Problem] = []
        self.tools: dict[str, frozenset[str]] = {}


_loaded = _Registry()


def find(name: str) -> Agent | None:
    """The agent of this name; None when there is none."""
    if name in BUILT_IN:
        if name not in _loaded.known:
            _loaded.known[name] = import_module(f"dreamkeep.agents.{name.replace('-', '_')}").AGENT
        return _loaded.known[name]
    return None if name in _NO_AGENTS else _others().get(name)


def agents() -> list[Agent]:
    """All of them: ours in their order, then the others by their names."""
    return [agent for name in names() if (agent := find(name))]


def names() -> tuple[str, ...]:
    return (*BUILT_IN, *sorted(_others()))


def problems() -> list[Problem]:
    _others()
    return list(_loaded.problems)


def is_built_in(name: str) -> bool:
    return name in BUILT_IN


def forget() -> None:
    """Start again: entry points are read anew when they are needed. For tests."""
    _loaded.known.clear()
    _loaded.others = None
    _loaded.problems.clear()
    _loaded.tools.clear()


# -- what agents offer


def tool_names(kind: str) -> frozenset[str]:
    """The names of all agents' tools of this kind (`Agent.tools`)."""
    if kind not in _loaded.tools:
        _loaded.tools[kind] = frozenset(name for agent in agents() for name in agent.tools.get(kind, ()))
    return _loaded.tools[kind]


def reader_for(agent: str, channel: str, state: dict[str, Any]) -> Reader:
    """The reader of one channel. ACP frames, stderr, hooks and items look the same for every agent; its own files do not."""
    if channel in _READERS:
        return _make_reader(_READERS[channel], state)
    found = find(agent)
    if found is None:
        return _make_reader("dreamkeep.agents.shared.unknown", state)
    reader = _make_reader(f"{found.package}.{found.reader}", state)
    return reader if is_built_in(agent) else _Guarded(reader)


def _make_reader(module: str, state: dict[str, Any]) -> Reader:
    reader: Reader = import_module(module).Reader(state)
    return reader


_READERS = {
    "acp": "dreamkeep.agents.acp.reader",
    "stderr": "dreamkeep.agents.acp.reader",
    "hook": "dreamkeep.agents.shared.hooks",
    "items": "dreamkeep.agents.shared.openai_items",
}


class _Guarded:
    """Another package's reader: what it raises is noted at that record, and reading goes on."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self.state = reader.state

    def read(self, record: f.Record) -> Iterable[f.Fact]:
        try:
            yield from self._reader.read(record)
            self.state = self._reader.state
        except Exception as problem:
            yield f.OddRecord("reader", f"{type(problem).__name__}: {problem}"[:500])


def discovery(name: str) -> Discovery:
    found: Discovery = load(_find_agent(name), "discovery")
    return found


def writer(name: str) -> TalkWriter | None:
    """None if sessions can't be converted for that agent."""
    agent = _find_agent(name)
    made: TalkWriter | None = load(agent, "writer") if agent.writer else None
    return made


def row_habits(name: str) -> RowHabits:
    made: RowHabits = load(_find_agent(name), "row_habits").HABITS
    return made


def load(agent: Agent, kind: str) -> Any:
    """One of an agent's modules, by the name of the field that names it."""
    return import_module(f"{agent.package}.{getattr(agent, kind)}")


def _find_agent(name: str) -> Agent:
    found = find(name)
    if found is None:
        raise KeyError(name)
    return found


def beside(host: Host, source: Source) -> list[Source]:
    """The files beside a transcript that belong to its session."""
    agent = find(source.agent)
    if agent is None or not agent.has_files_beside or source.role in BESIDE:
        return []
    found: Neighbours = load(agent, "discovery")
    return list(found.beside(host, source))


def sharing(name: str) -> Sharing | None:
    agent = find(name)
    if agent is None or not agent.has_shared_files:
        return None
    found: Sharing = load(agent, "discovery")
    return found


# -- other packages


def _others() -> dict[str, Agent]:
    if _loaded.others is None:
        _loaded.others = {}
        for offered, load_agent in _offers() if _is_offered(RealHost()) else ():
            try:
                agent = _checked(load_agent())
            except Exception as problem:  # whatever another package does, ours go on
                _loaded.problems.append(Problem(offered, f"{type(problem).__name__}: {problem}"))
                continue
            _loaded.others[agent.name] = agent
    return _loaded.others


def _is_offered(host: Host) -> bool:
    """Whether any package offers an agent. Python's own way to ask takes ten times as long, and mostly there is none."""
    return any(GROUP.encode() in _read(host, path) for folder in sys.path for path in _entry_points(host, folder or "."))


def _entry_points(host: Host, folder: str) -> list[str]:
    try:
        return [f"{folder}/{name}/entry_points.txt" for name in host.names(folder) if name.endswith((".dist-info", ".egg-info"))]
    except OSError:
        return []  # many places that Python would look at are not there


def _read(host: Host, path: str) -> bytes:
    try:
        return read_file(host, path)
    except OSError:
        return b""  # a package without entry points


def _offers() -> list[tuple[str, Any]]:
    """(as it stands in the entry point, what loads it)."""
    from importlib.metadata import entry_points

    found = sorted(entry_points(group=GROUP), key=lambda point: (point.name, point.value))
    return [(f"{point.name} = {point.value}", point.load) for point in found]


def _checked(agent: object) -> Agent:
    """Raises what is wrong with it. Its discovery and reader are loaded: an agent without them is none."""
    if not isinstance(agent, Agent):
        raise TypeError(f"this is no Agent, but {type(agent).__name__}")
    if not _NAME.fullmatch(agent.name) or agent.name in _NO_AGENTS:
        raise ValueError(f"{agent.name!r} can't be an agent's name")
    if agent.name in BUILT_IN or agent.name in (_loaded.others or ()):
        raise ValueError(f"an agent `{agent.name}` is there already")
    for kind, offers in (("discovery", ("homes", "discover", "claims", "identify")), ("reader", ("Reader",))):
        module = load(agent, kind)
        missing = [name for name in offers if not hasattr(module, name)]
        if missing:
            raise AttributeError(f"its {kind} has no {missing[0]}")
    return agent
