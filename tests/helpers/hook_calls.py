"""The hook, started as an agent starts it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from dreamkeep.capture.hooks import spool
from dreamkeep.host import RealHost
from tests.paths import ROOT

HOOK = str(ROOT / "src" / "dreamkeep" / "capture" / "hook.py")

START = [sys.executable, "-I", "-S", HOOK]

PAYLOAD = b'{"session_id":"a","cwd":"/home/dev/work","prompt":"why?"}'


class HookCalls:
    """One keep, one temp folder of the user's, and hooks that are called."""

    def __init__(self, place: Path) -> None:
        self.keep = str(place / "keep")
        self.temp = place / "temp"
        self.temp.mkdir()

    def environment(self, **more: str) -> dict[str, str]:
        return {"PATH": os.environ["PATH"], "HOME": str(self.temp), "XDG_RUNTIME_DIR": str(self.temp), **more}

    def call(
        self,
        agent: str = "claude",
        event: str = "UserPromptSubmit",
        said: bytes = PAYLOAD,
        *,
        keep: str | None = None,
        environment: dict[str, str] | None = None,
        hook: list[str] = START,
        **more: Any,
    ) -> subprocess.CompletedProcess[bytes]:
        words = [*hook, agent, event, self.keep if keep is None else keep]
        env = self.environment() if environment is None else environment
        done = subprocess.run(words, input=said, capture_output=True, env=env, timeout=60, **more)
        assert done.returncode == 0, done.stderr
        assert done.stderr == b""
        return done

    @property
    def names(self) -> list[str]:
        folder = Path(self.keep) / "spool"
        return sorted(n.name for n in folder.iterdir() if n.name != spool.PROBLEMS) if folder.is_dir() else []

    @property
    def kept(self) -> list[bytes]:
        return [(Path(self.keep) / "spool" / name).read_bytes() for name in self.names]

    @property
    def problems(self) -> list[str]:
        return self.problems_of(self.keep)

    def problems_of(self, keep: str) -> list[str]:
        found = spool.problems(RealHost(), keep, {"XDG_RUNTIME_DIR": str(self.temp)})
        return [line for lines in found.values() for line in lines]
