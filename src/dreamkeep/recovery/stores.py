"""What an agent's `recovery.py` offers: putting rows back into its database, or auditing and mending its own stores.

That module is in a higher layer, so it is loaded by the agent's name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from dreamkeep.agents import registry
from dreamkeep.host import Host
from dreamkeep.recovery.faults import Fault, MendResult
from dreamkeep.recovery.repair.context import PlanContext, RepairContext

Row = Mapping[str, Any]
#: Rows by their table.
Tables = Mapping[str, Sequence[Row]]


class PutRows(NamedTuple):
    """`added`: how many rows."""

    action: str
    added: int
    size: int
    lost: Counter[str]


class RowStore(Protocol):
    """The `recovery.py` of an agent that `restores_rows`."""

    def join_rows(self, before: Tables, more: Tables) -> Tables:
        """Rows of two sessions (one is the other's subagent) for one database."""

    def check_rows(self, host: Host, path: str, rows: Tables) -> None:
        """Refuse what `put_rows` would refuse, and do nothing."""

    def put_rows(self, host: Host, path: str, rows: Tables, *, dry_run: bool) -> PutRows:
        """Add the missing rows; existing ones are never changed or removed."""


class Mender(Protocol):
    """Repairs by the names in `faults.py` (see `repair/context.py`)."""

    ACTIONS: Mapping[str, Callable[[RepairContext, Fault], MendResult]]
    CHECKS: Mapping[str, Callable[[PlanContext, Fault], str]]


class OwnStore(Mender, Protocol):
    """The `recovery.py` of an agent with an `own_audit`."""

    def audit(self, host: Host, root: str, home: str, environment: Mapping[str, str]) -> Iterator[Fault]:
        """What is missing, torn or not listed. Reads only."""

    def deleted_sessions(self, host: Host, places: Iterable[str]) -> frozenset[str]:
        """Native ids that the user deleted there; none of a list that can't be read."""


def restores_rows(name: str) -> bool:
    agent = registry.find(name)
    return agent is not None and agent.restores_rows


def row_store(name: str) -> RowStore | None:
    """None when rows of that agent's database can't be put back."""
    agent = registry.find(name)
    found: RowStore | None = registry.load(agent, "recovery") if agent and agent.restores_rows else None
    return found


def own_store(name: str) -> OwnStore | None:
    agent = registry.find(name)
    found: OwnStore | None = registry.load(agent, "recovery") if agent and agent.own_audit else None
    return found


def own_stores() -> list[OwnStore]:
    return [store for agent in registry.agents() if (store := own_store(agent.name))]
