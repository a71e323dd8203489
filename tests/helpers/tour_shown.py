"""What `make run` shows without agents, and the README's copy of it, which `python -m tests.helpers.tour_shown` writes."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.paths import ROOT

README = ROOT / "README.md"
#: As long as a temporary folder's name is, because sizes depend on it.
FOLDER = "/tmp/dreamkeep-5ca1ab1e"
_BLOCK = re.compile(r"^(```text\n\$ make run\n)(.*?)(^```)$", re.M | re.S)
_TOUR = "import sys; from dreamkeep.surfaces.cli import main; sys.argv[0] = '.venv/bin/dreamkeep'; sys.exit(main(sys.argv[1:]))"


def tour(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """In a process of its own, with this home and none of our settings."""
    ours = {key: value for key, value in os.environ.items() if not key.startswith(("DREAMKEEP_", "CLAUDE_", "CODEX_"))}
    command = [sys.executable, "-c", _TOUR, "tour", *words]
    return subprocess.run(command, capture_output=True, text=True, env={**ours, "HOME": str(home), "XDG_DATA_HOME": ""})


def masked(text: str, folder: str) -> str:
    """Without what depends on the folder's name (itself, sizes, and ids of faults, which are about paths) and on how long the
    prompts are."""
    text = text.replace(folder, "FOLDER")
    text = re.sub(r"\babout [\d,]+ tokens\b", "about N tokens", text)
    text = re.sub(r"\b\d+(?:\.\d)? (?:B|bytes|KiB)\b", "SIZE", text)
    return re.sub(r"\b(source_[a-z]+)-[0-9a-f]{12}", r"\1-ID", text)


def in_readme() -> str:
    [(_, found, _)] = _BLOCK.findall(README.read_text())
    return str(found)


def main() -> int:
    shutil.rmtree(FOLDER, ignore_errors=True)
    try:
        done = tour(Path(FOLDER) / "nobody", "--at", FOLDER)
    finally:
        shutil.rmtree(FOLDER, ignore_errors=True)
    if done.returncode:
        print(done.stderr, file=sys.stderr)
        return done.returncode
    README.write_text(_BLOCK.sub(lambda found: found[1] + done.stdout + found[3], README.read_text()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
