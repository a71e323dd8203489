"""`--help` is a manual: when a verb is for, examples that can be typed, exit codes; and completion knows all of it."""

from __future__ import annotations

import argparse
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from dreamkeep.surfaces.cli import manual
from dreamkeep.surfaces.cli.parser import parser
from tests.helpers.cli import Cli


def verbs() -> dict[str, argparse.ArgumentParser]:
    found = next(one.choices for one in parser()._actions if one.dest == "verb")
    assert isinstance(found, dict)
    return found


def test_no_verb_is_without_its_page_and_no_page_without_its_verb() -> None:
    assert set(manual.PAGES) == set(verbs())


@pytest.mark.parametrize("verb", manual.PAGES)
def test_every_example_can_be_typed_and_the_help_says_when_and_what_codes_mean(verb: str) -> None:
    shown = verbs()[verb].format_help()
    assert all(f"\n{head}" in shown for head in ("when:\n", "examples:\n", "exit code: "))
    assert max(map(len, shown.splitlines())) <= 115
    for line in manual.PAGES[verb].examples.splitlines():
        words = shlex.split(line, comments=True)
        given = parser().parse_args(words[1:])
        assert words[0] == "dreamkeep" and given.verb == verb, line


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_knows_every_verb_and_every_option(cli: Cli, shell: str, tmp_path: Path) -> None:
    script = cli("completion", shell).out
    for verb, about in verbs().items():
        assert verb in script
        for option in (word for action in about._actions for word in action.option_strings if word.startswith("--")):
            assert (option.removeprefix("--") if shell == "fish" else option) in script, f"{verb} {option}"
    if shutil.which(shell):
        (tmp_path / "script").write_text(script)
        assert subprocess.run([shell, "-n", str(tmp_path / "script")], capture_output=True).returncode == 0


@pytest.mark.skipif(not shutil.which("bash"), reason="no bash")
@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        (["dreamkeep", "proj"], "project"),
        (["dreamkeep", "project", "me"], "merge"),
        (["dreamkeep", "snapshot", "ex"], "export"),
        (["dreamkeep", "show", "--mark"], "--markdown"),
        (["dreamkeep", "search", "--as"], "--as-of"),
    ],
)
def test_bash_completes_a_word_that_was_begun(cli: Cli, typed: list[str], offered: str) -> None:
    ask = 'eval "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); f=$(complete -p dreamkeep); '
    ask += 'f=${f##*-F }; f=${f%% *}; "$f" dreamkeep "${COMP_WORDS[COMP_CWORD]}"; printf "%s\\n" "${COMPREPLY[@]}"'
    script = cli("completion", "bash").out
    done = subprocess.run(["bash", "-c", ask, "bash", script, *typed], capture_output=True, text=True)
    assert offered in done.stdout.split(), done
