"""Makes the bundled sample (src/dreamkeep/sample) of what is written in week/: `python -m tests.planted.sample`."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from dreamkeep import sample
from tests.planted.into import write
from tests.planted.written import WEEK, load

INTO = Path(sample.__file__).parent


def made() -> dict[str, bytes]:
    """Every file of the sample, by its name."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        write(load(WEEK), home)
        found = (one for one in sorted(home.rglob("*")) if one.is_file())
        return {str(one.relative_to(home)).removeprefix("."): one.read_bytes() for one in found}


def main() -> int:
    for agent in sample.AGENTS:
        shutil.rmtree(INTO / agent, ignore_errors=True)
    for name, text in made().items():
        (INTO / name).parent.mkdir(parents=True, exist_ok=True)
        (INTO / name).write_bytes(text)
        print(f"{len(text):7}  {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
