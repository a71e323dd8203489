"""The sample homes of our own agents (`tests/agents/<name>.py` writes one each), and where real transcripts are."""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from typing import Any

from dreamkeep.agents.registry import BUILT_IN, find
from tests.paths import SHARED

AGENTS = sorted(BUILT_IN)
#: Those whose sessions are files, and no rows of a database. Only rows have habits; the suite holds every sample to that.
WITH_FILES = [name for name in BUILT_IN if (agent := find(name)) and not agent.row_habits]
#: Real transcripts are not ours to ship. Where they are at hand, they must come out as somebody read them by hand.
REAL_TRANSCRIPTS = Path(os.environ.get("DREAMKEEP_TRANSCRIPTS") or SHARED / "data" / "transcripts")


def load_generator(agent: str) -> Any:
    """The module that has `write(home)` and `EXPECTED`."""
    return import_module(f"tests.agents.{agent.replace('-', '_')}")
