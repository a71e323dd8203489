"""Every agent's sessions, from its files to what people see: real ones where they are at hand, and our own in the same forms."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from dreamkeep import Keep
from dreamkeep.agents import registry
from dreamkeep.agents.registry import BUILT_IN as AGENTS
from tests.agents import suite
from tests.agents.suite import assert_rejoined, compare
from tests.helpers.agent_samples import REAL_TRANSCRIPTS
from tests.paths import TESTS

EXPECTED = TESTS / "expected"


@pytest.mark.parametrize("agent", sorted(p.stem for p in EXPECTED.glob("*.json") if p.stem in AGENTS))
def test_a_real_transcript_comes_out_as_it_was_read_by_hand(agent: str, tmp_path: Path) -> None:
    home = REAL_TRANSCRIPTS / agent
    if not home.is_dir():
        pytest.skip("no real transcripts on this machine; set DREAMKEEP_TRANSCRIPTS")
    with Keep.open(tmp_path / "keep") as keep:
        found = list(keep.ingest(agents=[agent], home=home))
        assert [one for one in found if one.problem] == []
        compare(keep, json.loads((EXPECTED / f"{agent}.json").read_text()))
        assert sum(one.new_events for one in keep.ingest(agents=[agent], home=home)) == 0
        assert sum(one.new_events for one in keep.ingest(agents=[agent], home=home, again=True)) == 0
        assert_rejoined(keep)


@pytest.mark.parametrize("check", suite.CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("agent", sorted(AGENTS))
def test_every_agents_folder_passes_the_suite(agent: str, check: Callable[[suite.Sample, Path], None], tmp_path: Path) -> None:
    check(suite.built_in(agent), tmp_path)


FOLDERS = sorted(file.parent for file in Path(registry.__file__).parent.glob("*/reader.py"))


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_every_folder_describes_its_format(folder: Path) -> None:
    page = (folder / "FORMAT.md").read_text()
    assert (page.startswith("# ") and "## Compaction" in page) or folder.name == "hermes_webui"
    assert folder.name == "acp" or folder.name.replace("_", "-") in AGENTS, "who has a folder is registered"


def test_links_in_the_pages_about_agents_exist() -> None:
    for page in [*(folder / "FORMAT.md" for folder in FOLDERS), FOLDERS[0].parent / "CONTRACT.md"]:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page} → {target}"


def test_the_hook_knows_only_agents_that_there_are() -> None:
    lines = [line.split("\t") for line in (FOLDERS[0].parent / "hook_table.tsv").read_text().splitlines() if line[:1] != "#"]
    assert {line[0] for line in lines} == {"plugin", "answer"} and {line[1] for line in lines} <= set(AGENTS)
