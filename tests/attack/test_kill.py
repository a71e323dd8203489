"""kill -9, at any moment: writers lose nothing that was promised, and a command that was killed is simply given again."""

from __future__ import annotations

import random
import shutil
import time
from pathlib import Path

import pytest

from dreamkeep import Keep
from tests.helpers.killed_writers import kill_in_a_loop

from .conftest import Count, Rounds
from .world import World

#: A command is killed after this time at the latest: some are done by then.
_LIFE_S = 0.7
COMMANDS: list[list[str]] = [
    ["ingest"],
    ["ingest", "--again"],
    ["reindex", "--from-zero"],
    ["hygiene"],
    ["dream"],
    ["repair", "--apply"],
    ["pack"],
]


@pytest.mark.slow
def test_killed_writers_lose_nothing_that_was_promised(
    tmp_path: Path, chance: random.Random, count: Count, rounds: Rounds
) -> None:
    random.seed(chance.random())
    done = kill_in_a_loop(str(tmp_path / "keep"), rounds(20))
    count("kill -9", kills=done.kills, messages_promised=done.promised, messages_lost=0, messages_doubled=0)


@pytest.mark.slow
def test_killed_commands_lose_no_session_and_no_note(world: World, chance: random.Random, count: Count, rounds: Rounds) -> None:
    expected = world.expected()
    kills = promised = 0
    for _ in rounds(30):
        shutil.rmtree(world.root, ignore_errors=True)
        notes = []
        for n in range(chance.randint(6, 14)):
            text = f"Prices in shop {n} are in cents."
            words = chance.choice([*COMMANDS, ["note", "add", text]])
            running = world.start(*words)
            time.sleep(chance.uniform(0.1, _LIFE_S))
            kills += running.poll() is None
            running.kill()
            running.communicate()
            if words[0] == "note" and running.returncode == 0:
                notes.append(text)
        world.run("ingest")
        lost = world.lost(expected)
        with Keep.open(world.root) as keep:
            kept = [one["text"] for one in keep.notes()]
        lost += [text for text in notes if kept.count(text) != 1]
        promised += len(expected) + len(notes)
        faults = world.faults()
        count("kill -9", sessions_and_notes_lost=len(lost), faults_left=len(faults))
        assert lost == []
        assert faults == []
    count("kill -9", kills=kills, sessions_and_notes=promised)
