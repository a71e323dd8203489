"""The verbs of `Keep`: a function for each, with the same name and parameters as the method of `Keep`, which has its docstring.

A verb is given the `KeepContext`. It wires parts together; rules live in the layers below. `Keep` reaches the modules as
`verbs.<module>`, whatever folder they are in. A module loads when the first of its verbs is called, so that starting stays cheap.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dreamkeep.verbs import arguments, capture, projects, sessions, upkeep, views  # noqa: F401
    from dreamkeep.verbs.dream import dreams, exchange, hygiene, models, pages  # noqa: F401
    from dreamkeep.verbs.memory import notes, review, tasks  # noqa: F401
    from dreamkeep.verbs.recall import packs, search, similarity  # noqa: F401
    from dreamkeep.verbs.recovery import deletion, faults, forget, restore, snapshots  # noqa: F401

_FOLDERS = {
    "": ("arguments", "capture", "projects", "sessions", "upkeep", "views"),
    "dream.": ("dreams", "exchange", "hygiene", "models", "pages"),
    "memory.": ("notes", "review", "tasks"),
    "recall.": ("packs", "search", "similarity"),
    "recovery.": ("deletion", "faults", "forget", "restore", "snapshots"),
}


def __getattr__(name: str) -> object:
    for folder, modules in _FOLDERS.items():
        if name in modules:
            return import_module(f"{__name__}.{folder}{name}")
    raise AttributeError(f"there is no module of verbs {name!r}")
