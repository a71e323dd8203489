"""An agent whose hooks are installed, as tests play it."""

from __future__ import annotations

import fcntl
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from dreamkeep.capture import hook


class Agent:
    """An agent with our hooks, as the agent calls them."""

    def __init__(self, root: str, cwd: Path, session: str = "5e551011-1111", name: str = "claude") -> None:
        self.root, self.cwd, self.session, self.name = root, cwd, session, name

    def fires(self, event: str, **more: Any) -> str:
        """What the hook says to the agent; the drainer is called by hand, so that nothing goes on behind a test."""
        Path(f"{self.root}/state").mkdir(parents=True, exist_ok=True)
        said = {"session_id": self.session, "cwd": str(self.cwd), "hook_event_name": event, **more}
        words = [sys.executable, "-I", "-S", hook.__file__, self.name, event, self.root]
        with open(f"{self.root}/state/drain.lock", "a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            done = subprocess.run(words, input=json.dumps(said).encode(), capture_output=True, timeout=60)
        assert (done.returncode, done.stderr) == (0, b"")
        if not done.stdout:
            return ""
        answer = json.loads(done.stdout)["hookSpecificOutput"]
        assert answer["hookEventName"] == event
        return str(answer["additionalContext"])

    def starts(self, source: str = "startup") -> str:
        return self.fires("SessionStart", source=source)

    def says(self, prompt: str, answer: str = "Understood.") -> None:
        self.fires("UserPromptSubmit", prompt=prompt)
        self.fires("Stop", last_assistant_message=answer)
