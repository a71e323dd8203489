"""What a repair's actions and checks are given.

A module with repairs (`keep.py`, `dreams.py`, `sources.py`, an agent's `recovery.py`) offers two mappings by the names in
`faults.py`: `ACTIONS: dict[str, Callable[[RepairContext, Fault], MendResult]]` does a repair. `CHECKS: dict[str,
Callable[[PlanContext, Fault], str]]` says for the plan, without writing anything, why a repair can't be promised ("" when it
can).

An action changes files only through `context.ledger` (`publish`, `replace`, `remove`, `make_folders`, `remove_folder`,
`set_mode`) and journals only through `context.journals`. Then the previous state is kept first, and `repair --undo` works. An
action must look again, because what the audit saw may have changed since, and it must end right when it is run again after a
crash at any step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dreamkeep.event import Ids
    from dreamkeep.host import Host
    from dreamkeep.journal.writers import JournalWriters
    from dreamkeep.recovery.repair.ledger import Ledger


@dataclass(frozen=True)
class PlanContext:
    """What a check needs; nothing in it can write. `home`, `environment`: where to look for agents' stores."""

    host: Host
    root: str
    home: str
    environment: Mapping[str, str]
    exclude: Sequence[str]


@dataclass(frozen=True)
class RepairContext(PlanContext):
    """`journals` and `ids` belong to this repair: undo recognises what they wrote."""

    journals: JournalWriters
    ids: Ids
    ledger: Ledger
    #: Whether the process that owns a turn lives.
    alive: Callable[[str], bool]
    #: Discards the index and builds it again.
    rebuild: Callable[[], None]
    #: Capture is switched off.
    off: bool = False
