"""Where things are: the repository, its tests, and the data that is only read beside it."""

from __future__ import annotations

from pathlib import Path

TESTS = Path(__file__).parent
ROOT = TESTS.parent
#: Not part of the repository: tests that want it skip where it is missing.
SHARED = ROOT.parent / "shared"
