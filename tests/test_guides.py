"""Every `dreamkeep …` line of a fenced block in the guides is run, page by page and in its order, on the sample.

A command ends where its explanation begins: at two spaces or at ` # `. Words in capitals stand for something that the keep has.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dreamkeep import Keep
from dreamkeep.surfaces.cli.parser import parser
from tests.helpers.cli import Ran

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
COMMAND = re.compile(r"^\s*(?:\$ )?(?:\.venv/bin/)?(dreamkeep .*?)(?:\s{2,}.*|\s+# .*)?$")
#: What is not run here, and why. (What a tour shows in the README is run and compared by tests/surfaces/test_tour.py.)
NOT_RUN = {
    "dreamkeep mcp --http [--host H] [--port N]": "serves until it is interrupted: tests/surfaces/test_mcp_http.py",
}
#: What the sample has no answer to: "no" is an answer, too.
ANSWERS_NO = {
    "dreamkeep search OPS-306 --kind message --project git.example.org/shop",
    'dreamkeep search "which database" --as-of 2026-05-31 --json',
}
#: Whether there is an answer depends on what day it is.
BY_THE_CLOCK = {"dreamkeep search why did the import fail last week"}
#: Something must be wrong before this can be shown.
NEEDS_A_FAULT = {"dreamkeep repair --apply --only ID", "dreamkeep repair --accept ID"}
SESSION = "claude:e07d3b52"


def commands(page: Path) -> list[str]:
    fenced = re.findall(r"^```(\w*)\n(.*?)^```", page.read_text(), re.M | re.S)
    lines = [line for language, block in fenced if language != "text" for line in block.splitlines()]
    return [found.group(1) for line in lines if (found := COMMAND.match(line))]


class Guide:
    """One page's copy of the sample's keep, in the folder of the sample's project."""

    def __init__(self, tour: Path, keep: Path, own: Path) -> None:
        self.tour, self.keep, self.own = tour, keep, own
        shutil.copytree(tour / "keep", keep)
        own.mkdir()
        # An agent's program, as `dreamkeep model` finds it. Nothing here asks it anything.
        self._programs = keep.parent / "programs"
        self._programs.mkdir()
        (self._programs / "claude").write_text("#!/bin/sh\nexit 1\n")
        (self._programs / "claude").chmod(0o755)
        self._undo = ""

    def run(self, *words: str) -> Ran:
        around = {
            **os.environ,
            "HOME": str(self.tour / "home"),
            "DREAMKEEP_KEEP": str(self.keep),
            "PATH": f"{self._programs}{os.pathsep}{os.environ['PATH']}",
            "DREAMKEEP_DREAM_AUTO": "false",
        }
        folder = self.tour / "home" / "toolshed"
        done = subprocess.run(
            [sys.executable, "-m", "dreamkeep", *words], capture_output=True, text=True, env=around, cwd=folder, timeout=120
        )
        if told := re.search(r"repair --undo (\S+)", done.stdout):
            self._undo = told.group(1)
        return Ran(done.returncode, done.stdout, done.stderr)

    def ask(self, *words: str) -> Any:
        return self.run(*words, "--json").json

    def words(self, command: str) -> list[str]:
        if command in NEEDS_A_FAULT:
            with next(self.keep.glob("journal/sessions/claude/*/000001.jsonl")).open("ab") as part:
                part.write(b'{"half a frame')
        return [self._stands_for(word, command) for word in shlex.split(command)[1:]]

    def _stands_for(self, word: str, command: str) -> str:
        if word == "SESSION":
            return SESSION
        if word == "NOTE":
            return str(self.ask("notes")["notes"][0]["id"])
        if word == "SUGGESTION":
            with Keep.open(str(self.keep)) as keep:
                return str(keep.note_suggest(f"The shed is painted for {command}.")["id"])
        if word == "RUN":
            return str(self.ask("dream", "history")["runs"][0]["id"])
        if word == "TASK":
            return str(self.ask("tasks")["tasks"][0]["id"])
        if word == "DIR":
            return str(self.own)
        if word == "ID":
            return self._undo if "--undo" in command else str(self.ask("audit")["faults"][0]["id"])
        return str(self.own / word) if word.endswith((".tar.zst", "MEMORY.md")) else word


@pytest.fixture(scope="module")
def tour(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("guides") / "tour"
    subprocess.run(
        [sys.executable, "-m", "dreamkeep", "tour", "--sample", "--at", str(place)], check=True, stdout=subprocess.DEVNULL
    )
    return place


@pytest.mark.parametrize("page", [page for page in PAGES if commands(page)], ids=lambda page: page.name)
def test_the_commands_of_a_guide_do_what_it_says(page: Path, tour: Path, tmp_path: Path) -> None:
    guide = Guide(tour, tmp_path / "keep", tmp_path / "own")
    for command in commands(page):
        if command in NOT_RUN:
            continue
        ran = guide.run(*guide.words(command))
        expected = (0, 1) if command in BY_THE_CLOCK else (1,) if command in ANSWERS_NO else (0,)
        assert ran.code in expected, (command, ran)
        assert "Traceback" not in ran.err and (ran.out or ran.err), command
    guide.run("init", "--uninstall")  # the home is that of all pages


def test_there_is_something_to_run_and_nothing_is_excused_that_no_page_has() -> None:
    found = [command for page in PAGES for command in commands(page)]
    assert len(found) > 70
    assert {*NOT_RUN, *ANSWERS_NO, *BY_THE_CLOCK, *NEEDS_A_FAULT} <= set(found)
    assert {"guide.md", "README.md", "recovery.md", "dream.md"} <= {page.name for page in PAGES if commands(page)}


def test_every_verb_that_a_page_names_exists() -> None:
    """Also those in the middle of a sentence."""
    verbs = next(one.choices for one in parser()._actions if one.dest == "verb")
    assert verbs is not None
    for page in PAGES:
        for said in re.findall(r"`dreamkeep ((?:--keep \S+ )?[a-z][a-z-]*)", page.read_text()):
            assert said.split()[-1] in verbs, f"{page.name}: dreamkeep {said}"
