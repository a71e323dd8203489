"""The power goes at any operation of a script of any length, and again while that is recovered from."""

from __future__ import annotations

import random

import pytest

from tests.helpers.append_script import AppendScript
from tests.helpers.claude_home import capture_transcript, captured_lines, record, write_transcript
from tests.helpers.faults import LOSSES, FragileHost, PowerCut

from .conftest import Count, Rounds


@pytest.mark.slow
def test_power_cuts_lose_nothing_that_was_promised(chance: random.Random, count: Count, rounds: Rounds) -> None:
    cuts = promised = 0
    for _ in rounds(20):
        host, script = FragileHost(seed=chance.randrange(1 << 30)), AppendScript()
        for _ in range(chance.randint(1, 4)):
            host.plan(chance.randint(1, 90), "cut")
            try:
                script.run(host, chance.randint(1, 30))
            except PowerCut:
                cuts += 1
                host = host.reboot(chance.choice(LOSSES), seed=chance.randrange(1 << 30))
            script.check(host)
        host.plan(0, "cut")
        script.run(host, 2)
        script.check_settled(host)
        promised += len(script.acked)
    assert cuts > 50
    count("power cut", cuts=cuts, events_promised=promised, events_lost=0, events_doubled=0)


@pytest.mark.slow
def test_power_cuts_during_capture_lose_no_line(chance: random.Random, count: Count, rounds: Rounds) -> None:
    cuts = lines = 0
    for _ in rounds(20):
        whole = b"".join(record(n, text="x" * chance.choice((1, 50, 3000))) for n in range(1, chance.randint(4, 40)))
        host, at = FragileHost(seed=chance.randrange(1 << 30)), 0
        while at < len(whole):
            at = min(len(whole), at + chance.randint(200, 9000))
            host.plan(0, "cut")
            write_transcript(host, whole[:at])
            host.plan(chance.randint(1, 60), "cut")
            try:
                capture_transcript(host)
            except PowerCut:
                cuts += 1
                host = host.reboot(chance.choice(LOSSES), seed=chance.randrange(1 << 30))
        host.plan(0, "cut")
        for _ in range(2):
            capture_transcript(host)
        found = b"".join(captured_lines(host))
        count("power cut", transcripts_changed=int(found != whole))
        assert found == whole
        lines += whole.count(b"\n")
    assert cuts > 50
    count("power cut", cuts=cuts, lines_captured=lines)
