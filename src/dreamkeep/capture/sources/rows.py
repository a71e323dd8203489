"""The sessions that an agent keeps in an SQLite file, and their rows, by what its `discovery.py` knows of its tables."""

from __future__ import annotations

from collections.abc import Generator, Mapping

from dreamkeep.agents.registry import discovery
from dreamkeep.agents.shared.database import GONE, Base, Fingerprint, Keeper, SourceRow, ask, changed_rows
from dreamkeep.host import Host

#: Tables whose rows never go nor change, so that a keeper need not name those that are known.
_ONLY_ADDED = ("event", "project")


def sessions(host: Host, agent: str, path: str) -> dict[str, Fingerprint]:
    """The sessions in a database, from one read transaction."""
    return ask(host, path, lambda base: _keeper(agent).fingerprints(base))


def silent(host: Host, agent: str, path: str) -> set[str]:
    """Sessions in which a row may have been blanked."""
    return ask(host, path, lambda base: set(_keeper(agent).silent(base)))


def missing(host: Host, agent: str, path: str, session: str, known: Mapping[str, str]) -> bool:
    """Whether rows that are known are there no more. Not of rows that are only ever added (`places` leaves those out)."""

    def look(base: Base) -> bool:
        there = {f"{place[0]}/{place[1]}" for place in _keeper(agent).places(base, session, known)}
        kept = (key for key, version in known.items() if version != GONE and key.partition("/")[0] not in _ONLY_ADDED)
        return any(key not in there for key in kept)

    return ask(host, path, look)


def rows(host: Host, agent: str, path: str, session: str, known: Mapping[str, str]) -> Generator[SourceRow, None, None]:
    """The rows of a session whose (key, version) is not in `known`. Holds few of them at a time; close it if you stop early."""
    keeper = _keeper(agent)
    return changed_rows(host, path, lambda base: keeper.places(base, session, known), known)


def _keeper(agent: str) -> Keeper:
    found: Keeper = discovery(agent)  # type: ignore[assignment]  # a module is one
    return found
