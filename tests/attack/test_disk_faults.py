"""A full disk and a dying one: each fault costs the call that it hits, which says so, and nothing that was promised before."""

from __future__ import annotations

import errno
import os
import random
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from dreamkeep import Keep
from tests.helpers.append_script import AppendScript
from tests.helpers.faults import LOSSES, FragileHost
from tests.helpers.small_disk import fill, mount_tmpfs

from .conftest import Count, Rounds
from .world import World

ERRORS = (errno.ENOSPC, errno.EIO, errno.EDQUOT, errno.EROFS)
COMMANDS: list[list[str]] = [
    *(["ingest"], ["reindex", "--from-zero"], ["hygiene"], ["dream"], ["repair", "--apply"]),
    *(["sessions"], ["search", "the"], ["pack"], ["audit"], ["status"], ["doctor"]),
]


@pytest.mark.slow
def test_faults_of_the_disk_lose_nothing_that_was_promised(chance: random.Random, count: Count, rounds: Rounds) -> None:
    faults = refused = promised = 0
    for _ in rounds(20):
        host, script = FragileHost(seed=chance.randrange(1 << 30)), AppendScript()
        for _ in range(chance.randint(1, 5)):
            before = len(script.tried) - len(script.acked)
            at = chance.randint(1, 40)
            host.plan(at, chance.choice(("fail", "tear", "bad_sync")), chance.choice(ERRORS))
            script.run(host, chance.randint(1, 12), go_on=True)
            faults += host.calls >= at
            refused += len(script.tried) - len(script.acked) - before
            script.check(host)
        disk = host.reboot(chance.choice(LOSSES), seed=chance.randrange(1 << 30))
        script.run(disk, 1)
        script.check_settled(disk)
        promised += len(script.acked)
    assert faults > 50 and refused > 50
    count("ENOSPC, EIO", faults=faults, appends_refused=refused, events_promised=promised, events_lost=0, events_doubled=0)


@pytest.fixture
def small(tmp_path: Path) -> Iterator[str]:
    yield from mount_tmpfs(tmp_path, "size=12m")


@pytest.mark.slow
def test_commands_on_a_full_disk_refuse_with_a_reason_and_lose_nothing(
    world: World, small: str, chance: random.Random, count: Count, rounds: Rounds
) -> None:
    world.root = f"{small}/keep"
    expected = world.expected()
    given = refused = 0
    notes = []
    for n in rounds(25):
        text = f"Prices in shop {n} are in cents."
        words = chance.choice((chance.choice(COMMANDS), ["note", "add", text]))
        fill(f"{small}/full", keep_free=chance.choice((0, 0, 4096, 40_000, 400_000)))
        ran = world.run(*words)
        os.remove(f"{small}/full")
        given, refused = given + 1, refused + (ran.code >= 3)
        if words[0] == "note" and ran.code == 0:
            notes.append(text)
    world.run("ingest")
    lost = world.lost(expected)
    with Keep.open(world.root) as keep:
        kept = [one["text"] for one in keep.notes()]
    lost += [text for text in notes if kept.count(text) != 1]
    faults = world.faults()
    count("ENOSPC, EIO", commands_on_a_full_disk=given, commands_refused=refused)
    count("ENOSPC, EIO", sessions_and_notes_lost=len(lost), faults_left=len(faults))
    assert lost == []
    assert faults == []


@pytest.mark.slow
def test_a_file_that_the_disk_can_not_read_costs_no_other_session(
    world: World, chance: random.Random, count: Count, rounds: Rounds, tmp_path: Path
) -> None:
    """EIO from every reading of one transcript. When the disk is well again, the file is captured, too."""
    failing = ("strace", "-f", "-qq", "-o", str(tmp_path / "trace"), "-e", "inject=read,pread64,readv,preadv,preadv2:error=EIO")
    tried = subprocess.run([*failing, "-P", "/nowhere", "true"], capture_output=True) if shutil.which("strace") else None
    if tried is None or tried.returncode:
        pytest.skip("there is no strace on this machine, or it can't trace here")
    expected = world.expected()
    files = sorted(path for path in world.home.rglob("*") if path.suffix in (".jsonl", ".json", ".zst", ".db"))
    for _ in rounds(20):
        shutil.rmtree(world.root, ignore_errors=True)
        broken = chance.choice(files)
        world.run("ingest", under=(*failing, "-P", str(broken)))
        others = _not_from(broken, world, expected)
        taken_along = [id for id in world.lost(expected) if id in others]
        world.run("ingest")
        lost = world.lost(expected, ("title", "roles", "tool_calls"))
        count("ENOSPC, EIO", files_unreadable=1, other_sessions_lost=len(taken_along), sessions_lost_for_good=len(lost))
        assert taken_along == [], f"{broken} took others along"
        assert lost == [], f"{broken} is readable again"


def _not_from(broken: Path, world: World, expected: dict[str, object]) -> set[str]:
    """Sessions of other agents: those of the same one may be told by the file that can't be read."""
    own = world.agent_of[broken].partition("-")[0]  # Hermes WebUI and Hermes have one folder
    return {id for id in expected if not id.startswith(own)}
