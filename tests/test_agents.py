"""Every agent's sessions, from its files to what people see: real ones where they are at hand, and our own in the same forms."""

from __future__ import annotations

import json
import os
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import zstandard

from dreamkeep import Keep
from dreamkeep.agents.registry import BUILT_IN as AGENTS
from dreamkeep.agents.shared import database
from dreamkeep.capture import rejoin, rows
from dreamkeep.event import Kind
from dreamkeep.host import RealHost
from dreamkeep.journal.places import folder_of
from dreamkeep.session.summary import Summary
from tests.agents.described import described, differences

EXPECTED = Path(__file__).parent / "expected"
#: Real transcripts are not ours to ship; where they are, they must come out as somebody read them with his own eyes.
REAL = Path(os.environ.get("DREAMKEEP_TRANSCRIPTS") or Path(__file__).parents[2] / "shared" / "data" / "transcripts")
GENERATED = sorted(AGENTS)


def generator(agent: str) -> Any:
    return import_module(f"tests.agents.{agent.replace('-', '_')}")


def compare(keep: Keep, expected: dict[str, Any]) -> None:
    wrong = {}
    for session in expected["sessions"]:
        found = described(keep.show(session["id"]))
        if bad := differences(session, found):
            wrong[session["id"]] = bad
    assert not wrong, json.dumps(wrong, indent=1, ensure_ascii=False)
    assert {s.id for s in keep.sessions()} == {s["id"] for s in expected["sessions"]}


@pytest.mark.parametrize("agent", sorted(p.stem for p in EXPECTED.glob("*.json") if p.stem in AGENTS))
def test_a_real_transcript_comes_out_as_it_was_read_by_hand(agent: str, tmp_path: Path) -> None:
    home = REAL / agent
    if not home.is_dir():
        pytest.skip("no real transcripts on this machine; set DREAMKEEP_TRANSCRIPTS")
    with Keep.open(tmp_path / "keep") as keep:
        found = list(keep.ingest(agents=[agent], home=home))
        assert [one for one in found if one.problem] == []
        compare(keep, json.loads((EXPECTED / f"{agent}.json").read_text()))
        assert sum(one.new_events for one in keep.ingest(agents=[agent], home=home)) == 0
        assert sum(one.new_events for one in keep.ingest(agents=[agent], home=home, again=True)) == 0
        assert_rejoined(keep)


@pytest.mark.parametrize("agent", GENERATED)
def test_a_generated_home_comes_out_as_its_generator_says(agent: str, tmp_path: Path) -> None:
    module = generator(agent)
    module.write(tmp_path / "home")
    with Keep.open(tmp_path / "keep") as keep:
        found = list(keep.ingest(agents=[agent], home=tmp_path / "home"))
        assert [one for one in found if one.problem] == []
        compare(keep, module.EXPECTED)
        assert sum(one.new_events for one in keep.ingest(agents=[agent], home=tmp_path / "home", again=True)) == 0
        assert_rejoined(keep)


@pytest.mark.parametrize("agent", GENERATED)
def test_following_bit_by_bit_gives_the_same_answers_as_reading_from_zero(agent: str, tmp_path: Path) -> None:
    """S24, D34."""
    generator(agent).write(tmp_path / "home")
    with Keep.open(tmp_path / "keep") as keep:
        for _ in keep.ingest(agents=[agent], home=tmp_path / "home"):
            keep.sessions()
        followed = [keep.show(s.id) for s in keep.sessions()]
        keep.reindex(from_zero=True)
        assert [keep.show(s.id) for s in keep.sessions()] == followed


def assert_rejoined(keep: Keep) -> None:
    """Every source that is a file, byte for byte out of the journal."""
    host = RealHost()
    for session in keep.sessions():
        folder = f"{keep.root}/{folder_of(session.id)}"
        for name, about in rejoin.sources(host, folder).items():
            if about["form"] == "rows":
                assert_every_row_is_there(host, session, folder, about)
                continue
            whole = b"".join(rejoin.lines(host, folder, name))
            raw = Path(about["path"]).read_bytes()
            if about["form"] == "shared":
                raw = b"".join(
                    line for line in raw.splitlines(True) if line.endswith(b"\n") and session.native_id.encode() in line
                )
            if about["form"] == "lines.zst":
                raw = zstandard.ZstdDecompressor().stream_reader(raw, read_across_frames=True).read()
            assert whole == raw, about["path"]


def assert_every_row_is_there(host: RealHost, session: Summary, folder: str, about: dict[str, Any]) -> None:
    """Row-exact: what a fresh reading of the database gives is what the journal holds."""
    held: dict[str, bytes] = {}
    for found, line in rejoin.captured(host, folder):
        if found["kind"] == Kind.SOURCE_ROWS:
            held[database.key_of(line)[0]] = line.removesuffix(b"\n")
    fresh = {row.key: row.line for row in rows.rows(host, session.agent, about["path"], session.native_id, {})}
    assert held == fresh
