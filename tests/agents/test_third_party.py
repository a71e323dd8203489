"""An agent of another package, as CONTRACT.md writes it: found by its entry point, held to the same suite, and captured."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dreamkeep import Keep
from dreamkeep.agents import registry
from dreamkeep.dream.consolidate.known_files import KnownFiles
from dreamkeep.errors import BadUsage
from dreamkeep.host import RealHost
from dreamkeep.session.reading import tools
from tests.agents import suite
from tests.agents.expected import completed, roles, session

CONTRACT = Path(registry.__file__).parent / "CONTRACT.md"
ENTRY = "[dreamkeep.agents]\njot = dreamkeep_jot:AGENT\n"
SID = "jot-1"


def write(home: Path) -> None:
    """The transcript that CONTRACT.md shows, with a torn line."""
    lines = re.search(r"```\n(\{\"kind\":\"start\".*?)```", CONTRACT.read_text(), re.DOTALL)
    assert lines
    folder = home / ".jot" / "sessions"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{SID}.jsonl").write_text(lines[1].replace('{"kind":"done"', f'{TORN}\n{{"kind":"done"'))


#: A record that Jot could not finish. It counts once: who parses lines reports it, and the reader is silent.
TORN = '{"kind":"answer","id":"a0","text":"On'
EXPECTED: dict[str, Any] = {
    "sessions": [
        session(
            f"jot:{SID}",
            "Which tests fail?",
            "/home/you/shop",
            turns=completed("Which tests fail?"),
            roles=roles(1, 2, 1),
            tool_calls=[{"name": "jot_run", "error": True}],
            odd=1,
        )
    ]
}
JOT = suite.Sample("jot", write, EXPECTED)


def offered(site: Path, name: str, entry: str) -> None:
    """A package as it looks when it is installed, as far as entry points go."""
    about = site / f"{name}-0.1.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1\n")
    (about / "entry_points.txt").write_text(entry)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The example of CONTRACT.md, installed."""
    where = tmp_path / "site"
    for name, code in re.findall(r"\*\*`(dreamkeep_jot/\w+\.py)`\*\*.*?```python\n(.*?)```", CONTRACT.read_text(), re.DOTALL):
        file = where / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(code)
    offered(where, "dreamkeep_jot", ENTRY)
    monkeypatch.syspath_prepend(str(where))
    registry.forget()
    yield where
    registry.forget()
    for name in [name for name in sys.modules if name.partition(".")[0] == "dreamkeep_jot"]:
        del sys.modules[name]


def run(*words: str, site: Path, home: Path) -> Any:
    environment = {**os.environ, "HOME": str(home), "PYTHONPATH": str(site)}
    done = subprocess.run([sys.executable, "-m", "dreamkeep", *words, "--json"], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("check", suite.CHECKS, ids=lambda check: check.__name__)
def test_the_example_of_the_contract_passes_the_suite(
    check: Callable[[suite.Sample, Path], None], site: Path, tmp_path: Path
) -> None:
    check(JOT, tmp_path / "work")


@pytest.mark.parametrize("check", suite.CHECKS, ids=lambda check: check.__name__)
def test_the_suite_says_what_to_do_for_an_agent_that_is_not_registered(
    check: Callable[[suite.Sample, Path], None], tmp_path: Path
) -> None:
    def write(home: Path) -> None:
        home.mkdir(exist_ok=True)

    with pytest.raises(AssertionError, match="no agent `stranger` is registered: add its name to BUILT_IN"):
        check(suite.Sample("stranger", write, {"sessions": []}), tmp_path)


def test_an_agent_of_another_package_is_captured_with_all_others(site: Path, tmp_path: Path) -> None:
    home, keep = tmp_path / "home", str(tmp_path / "keep")
    write(home)
    run("ingest", "--keep", keep, site=site, home=home)
    with Keep.open(keep) as opened:
        assert [one.id for one in opened.sessions()] == [f"jot:{SID}"]
    shown = run("show", f"jot:{SID}", "--keep", keep, site=site, home=home)
    assert [m["role"] for m in shown["messages"]] == ["user", "assistant", "tool", "assistant"]
    (home / ".jot" / "sessions" / f"{SID}.jsonl").unlink()
    done = run("restore", f"jot:{SID}", "--to", "jot", "--keep", keep, site=site, home=home)
    assert done["exact"] and done["resume"] == f"cd /home/you/shop && jot resume {SID}"


def test_the_tools_and_instruction_files_that_an_agent_names_count(site: Path, tmp_path: Path) -> None:
    assert tools.is_kind("shell", "jot_run") and not tools.is_kind("edit", "jot_run")
    (tmp_path / "JOT.md").write_text("- Always run `make lint` before a push.\n")
    assert [one.place for one in KnownFiles(RealHost(), "/nowhere").of(str(tmp_path))] == ["JOT.md:1"]


BAD = {
    "nowhere": ("bad = nowhere_at_all:AGENT", "ModuleNotFoundError"),
    "noagent": ("bad = json:dumps", "this is no Agent"),
    "ours": ("bad = dreamkeep.agents.claude:AGENT", "is there already"),
    "twice": ("zzz = dreamkeep_jot:AGENT", "is there already"),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_broken_agent_is_reported_and_stops_no_other(kind: str, site: Path, tmp_path: Path) -> None:
    entry, why = BAD[kind]
    offered(site, "broken", f"[dreamkeep.agents]\n{entry}\n")
    registry.forget()
    assert registry.names() == (*registry.BUILT_IN, "jot")
    (problem,) = registry.problems()
    assert problem.offered == entry and why in problem.why
    home = tmp_path / "home"
    write(home)
    with Keep.open(tmp_path / "keep") as keep:
        list(keep.ingest(home=home))
        assert [one.id for one in keep.sessions()] == [f"jot:{SID}"]
        told = [one for one in keep.doctor() if one["check"] == "agents"]
        assert len(told) == 1 and entry in told[0]["what"] and not told[0]["ok"]
        with pytest.raises(BadUsage, match="doctor"):
            list(keep.ingest(agents=["bad"], home=home))


def test_whatever_an_agent_of_another_package_does_the_others_are_captured(site: Path, tmp_path: Path) -> None:
    from tests.agents import claude

    home = tmp_path / "home"
    write(home)
    claude.write(home)
    discovery, reader = site / "dreamkeep_jot" / "discovery.py", site / "dreamkeep_jot" / "reader.py"
    whole = discovery.read_text()
    discovery.write_text(whole.replace("    problems: list[OSError] = []\n", "    raise RuntimeError('oops')\n"))
    with Keep.open(tmp_path / "keep") as keep:
        found = list(keep.ingest(home=home))
        assert [one.problem for one in found if one.problem and "oops" in str(one.problem)]
        assert {one.agent for one in keep.sessions()} == {"claude"}
    discovery.write_text(whole)
    first = "        if record.data is None:\n"
    assert first in reader.read_text()
    reader.write_text(reader.read_text().replace(first, f"        raise RuntimeError('oops')\n{first}"))
    for name in [name for name in sys.modules if name.partition(".")[0] == "dreamkeep_jot"]:
        del sys.modules[name]
    registry.forget()
    with Keep.open(tmp_path / "second") as keep:
        list(keep.ingest(home=home))
        assert {one.agent for one in keep.sessions()} == {"claude", "jot"}
        assert keep.show(f"jot:{SID}")["odd"]["count"] == 6 + 2, "all of it is kept raw; the torn line is odd by itself, too"


def test_entry_points_are_not_read_for_an_agent_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(*_: object) -> bool:
        raise AssertionError("entry points were read")

    registry.forget()
    monkeypatch.setattr(registry, "_is_offered", read)
    for name in (*registry.BUILT_IN, "python", "acp", ""):
        registry.find(name)
        registry.reader_for(name, "file", {})
    with pytest.raises(AssertionError):
        registry.find("stranger")
    registry.forget()
