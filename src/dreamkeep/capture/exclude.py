"""What must not be captured: patterns over folders, projects and paths (`capture.exclude`). Pure.

A pattern is a shell pattern (`*` also matches `/`); one that names a folder covers everything below it; `~` is the user's home.
"""

from __future__ import annotations

import os
from collections.abc import Sequence


class Excluded:
    def __init__(self, patterns: Sequence[str]) -> None:
        self.patterns = [os.path.expanduser(pattern).rstrip("/") or "/" for pattern in patterns if pattern]

    def path(self, path: str) -> bool:
        return self._any(path)

    def session(self, cwd: str, project: str) -> bool:
        return self._any(cwd) or self._any(project)

    def _any(self, text: str) -> bool:
        if not text or not self.patterns:
            return False
        from fnmatch import fnmatchcase

        return any(
            text == pattern or text.startswith(f"{pattern}/") or fnmatchcase(text, pattern) or fnmatchcase(text, f"{pattern}/*")
            for pattern in self.patterns
        )
