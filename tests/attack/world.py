"""A home with good sessions of every agent, what a keep says of them when nothing is wrong, and the command line."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dreamkeep import Keep
from tests.agents.described import described
from tests.helpers.agent_samples import AGENTS, load_generator
from tests.helpers.cli import Ran

PATIENCE_S = 240.0


class World:
    def __init__(self, place: Path) -> None:
        self.place = place
        self.home = place / "home"
        self.root = str(place / "keep")
        #: The agent whose sample wrote the file.
        self.agent_of: dict[Path, str] = {}
        for agent in AGENTS:
            load_generator(agent).write(self.home)
            for file in self.home.rglob("*"):
                self.agent_of.setdefault(file, agent)

    # -- the command line

    def command(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "dreamkeep", "--keep", self.root, *words]

    @property
    def environment(self) -> dict[str, str]:
        plain = {name: value for name, value in os.environ.items() if not name.startswith(("DREAMKEEP_", "XDG_"))}
        return {**plain, "HOME": str(self.home), "DREAMKEEP_DREAM_AUTO": "false"}

    def start(self, *words: str) -> subprocess.Popen[str]:
        quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen(self.command(*words), text=True, errors="replace", env=self.environment, **quiet)  # type: ignore[call-overload, no-any-return]

    def run(self, *words: str, under: tuple[str, ...] = ()) -> Ran:
        """A command as a user gives it. It may refuse, and then it says why; it never breaks."""
        done = subprocess.run(
            [*under, *self.command(*words)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            env=self.environment,
            timeout=PATIENCE_S,
        )
        assert "Traceback" not in done.stderr, f"{' '.join(words)}: {done.stderr[-2000:]}"
        assert done.returncode in (0, 1, 3, 4), f"{' '.join(words)} ended with {done.returncode}: {done.stderr[-2000:]}"
        assert done.returncode < 3 or done.stderr.strip(), f"{' '.join(words)} failed without a word"
        return Ran(done.returncode, done.stdout, done.stderr)

    # -- what a keep says

    def expected(self) -> dict[str, Any]:
        """Of the good sessions, in a keep of its own, which nothing attacks."""
        with Keep.open(self.place / "unharmed") as keep:
            assert not [one.problem for one in keep.ingest(home=self.home) if one.problem]
            return _sessions(keep)

    def lost(self, expected: dict[str, Any], about: Sequence[str] = ()) -> list[str]:
        """Good sessions that the attacked keep lacks, or of which it says something else. `about`: only this is compared."""
        with Keep.open(self.root) as keep:
            found = _sessions(keep)
        return sorted(id for id, said in expected.items() if _only(found.get(id), about) != _only(said, about))

    def faults(self) -> list[str]:
        """Classes of the faults of the keep that a deep audit tells of after a repair. The good sessions of some agents are
        meant to have faults of their own: these count only where the keep is at fault."""
        self.run("repair", "--apply")
        found = self.run("audit", "--deep", "--json").json["faults"]
        return sorted(one["class"] for one in found if one["where"].startswith(self.root))


def _only(said: dict[str, Any] | None, about: Sequence[str]) -> Any:
    return {key: said[key] for key in about} if said and about else said


def _sessions(keep: Keep) -> dict[str, Any]:
    return {one.id: described(keep.show(one.id)) for one in keep.sessions()}
