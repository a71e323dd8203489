"""Ingests live: what an agent writes is in the journal a moment later.

The file system reports what changed (`watchfiles`). Where it can't, all files are checked again and again, which costs a stat for
each. In both cases a slow round over everything goes on, because file systems miss changes and new agents appear.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from dreamkeep.agents.contract import Source
from dreamkeep.agents.registry import discovery
from dreamkeep.capture.context import IngestOutcome
from dreamkeep.capture.find import Found, Glance, Trouble, everywhere, places
from dreamkeep.capture.ingest import Ingest
from dreamkeep.host import Host, Stat

#: How long after a change to wait for more of it, and how often to look where nothing tells.
_DEBOUNCE_MS = 200
_TICK_MS = 500
_POLL_S = 1.0
#: A round over everything, and over which places there are.
_ROUND_S = 60.0
_PLACES_S = 5.0
_SAVE_S = 30.0
_BESIDE = ("-wal", "-shm", "-journal")


class Forward:
    """A clock in seconds that only goes forward, whatever is done to the one it follows (`now`, in nanoseconds): set back by a
    day, that one would let nothing be due for a day."""

    def __init__(self, now: Callable[[], int]) -> None:
        self._now = now
        self._seen = now()
        self._passed = 0

    def __call__(self) -> float:
        now = self._now()
        self._passed += max(0, now - self._seen)
        self._seen = now
        return self._passed / 1e9


class Watching:
    """One watcher. `stopped` is asked between steps; `now_s` is a clock that only goes forward."""

    def __init__(
        self,
        host: Host,
        ingest: Ingest,
        home: str,
        environment: Mapping[str, str],
        agents: Sequence[str],
        *,
        now_s: Callable[[], float],
        stopped: Callable[[], bool],
        off: Callable[[], bool],
        polling: bool = False,
    ) -> None:
        self._host = host
        self._ingest = ingest
        self._home = home
        self._environment = environment
        self._agents = agents
        self._now_s = now_s
        self._stopped = stopped
        self._off = off
        self._polling = polling
        self._next_round = 0.0
        self._next_save = now_s() + _SAVE_S
        #: The last reported problem of each source that can't be captured now.
        self._reported: dict[tuple[str, str], str] = {}
        #: Places that could not be searched in the last round.
        self._troubles: list[str] = []

    def run(self) -> Iterator[IngestOutcome | None]:
        """Outcomes as they come; None at the end of each step, so that the caller can do its own work in between."""
        while not self._stopped():
            yield from self._round()
            watched = self._places()
            yield from self._listen(watched) if watched and not self._polling else self._poll()
        self._ingest.cache.save()

    def _round(self) -> Iterator[IngestOutcome | None]:
        """Everything, once."""
        self._next_round = self._now_s() + _ROUND_S
        if self._off():
            return
        glance = Glance(self._host)
        found = list(everywhere(glance, self._home, self._environment, self._agents))
        troubles = [one for one in found if isinstance(one, Trouble)]
        self._troubles = [f"{one.path}/" for one in troubles]
        failed = (IngestOutcome(one.agent, one.path, "", state="failed", problem=one.problem) for one in troubles)
        yield from filter(self._is_news, failed)
        yield from self._take(found, glance.seen)
        yield from self._ingest.vanished(self._agents, {one.path for one in found})

    def _take(self, found: Iterable[Found], glanced: Mapping[str, Stat] = MappingProxyType({})) -> Iterator[IngestOutcome]:
        sources = [one for one in found if isinstance(one, Source)]
        for outcome in self._ingest.run(sources, glanced=glanced, save=False):
            if outcome.state not in ("unchanged", "empty", "waiting") and self._is_news(outcome):
                yield outcome
        if self._now_s() >= self._next_save:
            self._next_save = self._now_s() + _SAVE_S
            self._ingest.cache.save()

    def _is_news(self, outcome: IngestOutcome) -> bool:
        """A problem is reported once, though a source that can't be captured now fails at each round."""
        key = (outcome.path, outcome.session)
        before = self._reported.pop(key, None)
        if outcome.problem is None:
            return True
        self._reported[key] = outcome.state if outcome.state == "paused" else outcome.problem
        return before != self._reported[key] or bool(outcome.new_events)

    def _places(self) -> list[str]:
        found = (place for agent in self._agents for place in places(agent, self._home, self._environment))
        return [place for place in dict.fromkeys(map(_folder, found)) if self._is_there(place)]

    def _is_there(self, place: str) -> bool:
        try:
            return self._host.stat(place) is not None
        except OSError:
            return False  # the next round reports why

    def _listen(self, watched: list[str]) -> Iterator[IngestOutcome | None]:
        """Until the places change, or it is time for a round."""
        changes = _watch_changes(watched)
        if changes is None:
            self._polling = True
            return
        look_again = self._now_s() + _PLACES_S
        listening = False
        for paths in changes:
            if self._stopped():
                return
            if not listening:
                # Only from now on are changes reported; those since the last round were not.
                listening = True
                yield from self._round()
            elif paths and not self._off():
                yield from self._take(self._claimed(paths))
            yield None
            now = self._now_s()
            if now >= self._next_round or (now >= look_again and self._places() != watched):
                return
            look_again = max(look_again, now + _PLACES_S) if now >= look_again else look_again

    def _poll(self) -> Iterator[IngestOutcome | None]:
        yield None
        self._host.sleep(_POLL_S)

    def _claimed(self, paths: Iterable[str]) -> list[Source]:
        """Nothing below a folder that discovery does not look into: the file system also tells of what a link leads to."""
        found: dict[str, Source] = {}
        for path in paths:
            if path.startswith(tuple(self._troubles)):
                continue
            for end in _BESIDE:
                path = path.removesuffix(end)
            for agent in self._agents:
                source = discovery(agent).claims(path) if path not in found else None
                if source is not None:
                    found[path] = source._replace(path=path)
        return list(found.values())


def _folder(place: str) -> str:
    """Databases are watched by their folder: what changes may be the file beside them."""
    return os.path.dirname(place) if place.endswith((".db", ".sqlite")) else place


def _watch_changes(watched: list[str]) -> Iterator[list[str]] | None:
    """Changed paths, as the file system reports them; an empty list now and then. None if it can't report."""
    try:
        import watchfiles
    except ImportError:
        return None

    def paths() -> Iterator[list[str]]:
        told: Any = watchfiles.watch(
            *watched,
            watch_filter=None,
            debounce=_DEBOUNCE_MS,
            step=50,
            rust_timeout=_TICK_MS,
            yield_on_timeout=True,
            raise_interrupt=True,
            recursive=True,
            ignore_permission_denied=True,
        )
        for changes in told:
            yield sorted({path for _, path in changes})

    return paths()
