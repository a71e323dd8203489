"""The docs are true: commands, settings and errors are in them, and what they show is run."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from dreamkeep import Keep, errors
from dreamkeep.agents.registry import BUILT_IN
from dreamkeep.config import SETTINGS
from dreamkeep.journal.places import folder_of
from dreamkeep.surfaces.cli.parser import VERBS

ROOT = Path(__file__).parent.parent
FORMAT = ROOT / "src" / "dreamkeep" / "journal" / "FORMAT.md"


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.M | re.S)


def test_the_reader_in_the_format_page_reads_real_output(keep: Keep, root: str, tmp_path: Path) -> None:
    """J8: 20 lines of plain Python, run as they stand; they see what we see, and they see damage."""
    session = keep.session("s")
    session.record("hello", ("assistant", "world\u2028 \ud800"))
    session.end()
    [program] = blocks(FORMAT, "python")
    script = tmp_path / "reader.py"
    script.write_text(program)
    folder = Path(root) / folder_of("python:s")

    def read() -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, "-I", str(script), str(folder)], capture_output=True, text=True, check=True)

    clean = read()
    assert clean.stderr == ""
    assert [line.split()[:2] for line in clean.stdout.splitlines()] == [
        ["1", "part.opened"],
        ["2", "session.opened"],
        ["3", "turn.recorded"],
        ["4", "session.ended"],
    ]
    part = folder / "000001.jsonl"
    part.write_bytes(part.read_bytes().replace(b"turn.recorded", b"turn.recorde4"))
    assert "damaged" in read().stderr and "does not follow seq 2" in read().stderr


def test_the_example_line_of_the_format_page_has_our_members_in_our_order() -> None:
    [example] = [line for line in FORMAT.read_text().splitlines() if line.startswith('{"id"')]
    assert list(json.loads(example)) == ["id", "kind", "at", "body", "prev", "seq", "crc"]


def test_the_python_page_and_the_readme_run_as_they_stand(tmp_path: Path) -> None:
    programs = blocks(ROOT / "docs" / "python.md", "python") + blocks(ROOT / "README.md", "python")
    assert len(programs) == 2
    for n, program in enumerate(programs):
        place = tmp_path / str(n)
        place.mkdir()
        subprocess.run([sys.executable, "-c", program], cwd=place, check=True, capture_output=True)


def test_every_verb_setting_and_error_is_in_the_docs() -> None:
    cli, page = (ROOT / "docs" / "cli.md").read_text(), (ROOT / "docs" / "settings.md").read_text()
    for verb in (one.name for one in VERBS):
        assert re.search(rf"`{verb}[ `]", cli), verb
    for key in SETTINGS:
        assert f"`{key}`" in page, key
    python = (ROOT / "docs" / "python.md").read_text()
    for name, kind in vars(errors).items():
        if isinstance(kind, type) and issubclass(kind, errors.DreamkeepError):
            assert f"`{name}`" in python or f".{name}`" in python, name
            assert name in (errors.__doc__ or ""), name


@pytest.mark.parametrize("agent", BUILT_IN)
def test_every_agent_is_in_the_table_of_capture_and_among_the_names_of_the_spec(agent: str) -> None:
    capture, spec = ((ROOT / "docs" / page).read_text() for page in ("capture.md", "SPEC.md"))
    table = re.search(r"^## Agents\n(.*?)^## ", capture, re.M | re.S)
    names = re.search(r"^\*\*Agents\*\*: (.*?)\n\n", spec, re.M | re.S)
    assert table and names
    assert re.search(rf"^\| [^|]*`{agent}`[^|]* \|", table[1], re.M), "add a row to the table of agents in docs/capture.md"
    assert f"`{agent}`" in names[1], "add it to the agents' names in docs/SPEC.md"


def test_the_example_does_what_it_says(tmp_path: Path) -> None:
    """A writer killed half-way loses nothing."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "killed_writer.py")],
        capture_output=True,
        text=True,
        env={**os.environ, "HOME": str(tmp_path), "TMPDIR": str(tmp_path)},
    )
    assert done.returncode == 0, done.stderr
    assert "interrupted (its owner is gone)" in done.stdout and "Nothing is lost." in done.stdout
    assert os.listdir(tmp_path) == []


def test_a_machine_without_venv_is_told_what_to_install(tmp_path: Path) -> None:
    """X3: and one whose Python is too old or missing."""
    fake = tmp_path / "python3"

    def told(script: str) -> str:
        fake.write_text(f"#!/bin/sh\n{script}\n")
        fake.chmod(0o755)
        done = subprocess.run(
            ["sh", str(ROOT / "tools" / "venv.sh"), str(fake), str(tmp_path / "v")], capture_output=True, text=True
        )
        assert done.returncode == 1
        return done.stderr

    lacks = f'case "$2" in *ensurepip*) exit 1;; esac; exec {sys.executable} "$@"'
    version = ".".join(map(str, sys.version_info[:2]))
    assert f"apt-get install python{version}-venv" in told(lacks)
    assert "needs Python 3.11 or later" in told('case "$2" in *version_info*) exit 1;; esac; echo Python 3.9')
    fake.unlink()
    done = subprocess.run(["sh", str(ROOT / "tools" / "venv.sh"), str(fake), "v"], capture_output=True, text=True)
    assert done.returncode == 1 and "was not found" in done.stderr


@pytest.mark.parametrize("command", ["run", "test", "test-all", "test-agents", "bench", "lint"])
def test_make_knows_the_commands_we_name(command: str) -> None:
    assert subprocess.run(["make", "-n", command], cwd=ROOT, capture_output=True).returncode == 0


def test_versions_agree() -> None:
    import tomllib

    import dreamkeep

    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"] == dreamkeep.__version__
