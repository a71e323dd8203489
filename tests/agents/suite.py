"""What every agent's folder must do, ours and other packages': one suite, run for each of them.

A `Sample` is an agent and a home with sessions of it, of which somebody wrote down what must come out. CHECKS are the suite; each
takes a sample and an empty folder, and passes over what the agent does not offer.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import zstandard

from dreamkeep import Keep
from dreamkeep.agents import facts as f
from dreamkeep.agents import registry
from dreamkeep.agents.contract import BESIDE, DOCUMENT, LINES, LINES_ZST, MANY, ROWS, SHARED, TEXT, Agent, Discovery, Source
from dreamkeep.agents.shared import database, hooks
from dreamkeep.capture import find, setup
from dreamkeep.capture import hook as hook_module
from dreamkeep.capture.find import everywhere
from dreamkeep.capture.setup.offer import setup_of
from dreamkeep.capture.sources import document, rows, source_bytes
from dreamkeep.event import Event, Kind
from dreamkeep.host import RealHost
from dreamkeep.index.rows import RowCollector
from dreamkeep.journal.places import folder_of
from dreamkeep.session.changes import NoEarlierResults
from dreamkeep.session.raw import pack, unpack
from dreamkeep.session.records import loads
from dreamkeep.session.summary import Summary, empty
from tests.agents.described import described, differences
from tests.helpers.agent_samples import load_generator

HOOK = str(Path(hook_module.__file__))
_HEAD = 1 << 16


class Sample(NamedTuple):
    """`write` lays sessions into a home; `expected`: `{"sessions": [...]}`, as tests/expected/*.json have it."""

    agent: str
    write: Callable[[Path], Any]
    expected: dict[str, Any]


def built_in(name: str) -> Sample:
    module = load_generator(name)
    return Sample(name, module.write, module.EXPECTED)


def facts_of(sample: Sample) -> Agent:
    found = registry.find(sample.agent)
    assert found is not None, (
        f"no agent `{sample.agent}` is registered: add its name to BUILT_IN of src/dreamkeep/agents/registry.py, or install its "
        "package with the entry point (agents/CONTRACT.md)"
    )
    return found


def discovery_of(sample: Sample) -> Discovery:
    facts_of(sample)
    return registry.discovery(sample.agent)


def everything(sample: Sample, home: Path) -> list[find.Found]:
    """What discovery finds in a home."""
    facts_of(sample)
    return list(everywhere(RealHost(), str(home), {}, [sample.agent]))


def captured(sample: Sample, keep: Keep, home: Path) -> None:
    facts_of(sample)
    sample.write(home)
    assert [one.problem for one in keep.ingest(agents=[sample.agent], home=home) if one.problem] == []


# -- what it is


def check_description(sample: Sample, folder: Path) -> None:
    """AGENT says what is there: every module that it names can be loaded, and has what the contract asks for."""
    agent = facts_of(sample)
    assert agent.name == sample.agent and agent.title and agent.package
    wanted = {
        "discovery": ["homes", "discover", "claims", "identify"],
        "reader": ["Reader"],
        "writer": ["convert", "beside", "usual_path"],
        "row_habits": ["HABITS"],
        "setup": ["EVENTS", "NEXT", "NEXT_AFTER_REMOVAL", "place", "targets", "has_plugin", "check"],
        "recovery": [],
        "forks": ["BOUNDARY", "chain_ids"],
    }
    for kind, names in wanted.items():
        if getattr(agent, kind):
            module = registry.load(agent, kind)
            assert [name for name in names if not hasattr(module, name)] == [], kind
    discovery = registry.load(agent, "discovery")
    for told, name in (
        (agent.has_files_beside, "beside"),
        (agent.has_shared_files, "owner"),
        (agent.has_folder_list, "folder"),
    ):
        assert told == hasattr(discovery, name), name
    recovery = registry.load(agent, "recovery") if agent.recovery else None
    for told, name in ((agent.restores_rows, "put_rows"), (bool(agent.own_audit), "audit")):
        assert told == hasattr(recovery, name), name
    assert hasattr(discovery, "fingerprints") == bool(agent.row_habits), "rows that go need somebody who says why"


# -- where it is


def check_discovery(sample: Sample, folder: Path) -> None:
    """All that discovery finds is there, is known by its name or its beginning, and by nobody else first."""
    sample.write(folder)
    host, discovery = RealHost(), discovery_of(sample)
    found = everything(sample, folder)
    sources = [one for one in found if isinstance(one, Source)]
    assert sources == found and sources, "no trouble in a whole home"
    assert len({source.path for source in sources}) == len(sources)
    assert any(source.form == ROWS for source in sources) == bool(facts_of(sample).row_habits), "only rows have habits"
    places = find.places(sample.agent, str(folder), {})
    for source in sources:
        assert source.agent == sample.agent and os.path.isfile(source.path)
        assert any(source.path == place or source.path.startswith(f"{place}/") for place in places)
        claimed = discovery.claims(source.path)
        if claimed is not None:
            assert (claimed.agent, claimed.form, claimed.role) == (source.agent, source.form, source.role)
            assert claimed.session in ("", source.session)
        if source.form in (LINES, DOCUMENT) and source.role not in BESIDE:
            told = discovery.identify(source.path, Path(source.path).read_bytes()[:_HEAD])
            assert told == source.session or (told and not source.session), source.path
        if source.role == "main":
            named = find.named(host, source.path, registry.names())
            assert isinstance(named[0], Source) and named[0].agent == sample.agent, "nobody else takes it for his own"
    assert {source.session for source in sources if source.session} <= {
        session["id"].partition(":")[2] for session in sample.expected["sessions"]
    }


def check_absence(sample: Sample, folder: Path) -> None:
    """Nothing there is nothing found, and no other program's files are claimed."""
    discovery = discovery_of(sample)
    assert everything(sample, folder / "nobody") == []
    for place in discovery.homes(str(folder), {}):
        assert place.startswith(str(folder)), "without an environment all is below the home"
        Path(place).parent.mkdir(parents=True, exist_ok=True)
    assert everything(sample, folder) == []
    for name in ("notes.txt", "x/y.py", ".jsonl", "", "/", "photo.png"):
        assert discovery.claims(f"{folder}/{name}") is None
        assert discovery.identify(f"{folder}/{name}", b"\xff\0{[") == ""


# -- what comes out


def check_capture(sample: Sample, folder: Path) -> None:
    """A home comes out as its author says; a second look adds nothing; every source comes back byte for byte."""
    with Keep.open(folder / "keep") as keep:
        captured(sample, keep, folder / "home")
        compare(keep, sample.expected)
        assert sum(one.new_events for one in keep.ingest(agents=[sample.agent], home=folder / "home", again=True)) == 0
        assert_rejoined(keep)


def check_following(sample: Sample, folder: Path) -> None:
    """S24, D34: bit by bit gives the same answers as reading from zero."""
    facts_of(sample)
    sample.write(folder / "home")
    with Keep.open(folder / "keep") as keep:
        for _ in keep.ingest(agents=[sample.agent], home=folder / "home"):
            keep.sessions()
        followed = [keep.show(s.id) for s in keep.sessions()]
        keep.reindex(from_zero=True)
        assert [keep.show(s.id) for s in keep.sessions()] == followed


def check_stopping(sample: Sample, folder: Path) -> None:
    """A reader may stop after any record, and another one goes on from its state as JSON, with the same facts."""
    for form, role, lines in inputs(sample, folder):
        whole = registry.reader_for(sample.agent, _channel(form), {})
        at_once = [fact for record in records(form, role, lines) for fact in whole.read(record)]
        state: dict[str, Any] = {}
        in_steps: list[f.Fact] = []
        for record in records(form, role, lines):
            reader = registry.reader_for(sample.agent, _channel(form), state)
            in_steps += reader.read(record)
            state = json.loads(json.dumps(reader.state))
        assert in_steps == at_once
        assert not [fact for fact in at_once if isinstance(fact, f.OddRecord) and fact.kind == "reader"]


def check_fuzz(sample: Sample, folder: Path, count: int = 150) -> None:
    """B2, W6, W7: no input makes a reader or the fold fail."""
    chance = random.Random(count)
    found = [one for one in inputs(sample, folder) if one[2]]
    for _ in range(count):
        form, role, lines = chance.choice(found)
        start = chance.randrange(len(lines))
        folded(sample.agent, form, role, mutated(chance, lines[start : start + 25]))


def check_mutated_files(sample: Sample, folder: Path) -> None:
    """Whatever is in a file, it is captured and comes back byte for byte."""
    chance, host = random.Random(sample.agent), RealHost()
    with Keep.open(folder / "keep") as keep:
        for n in range(4):
            home = folder / f"home{n}"
            sample.write(home)
            for source in everything(sample, home):
                if isinstance(source, Source) and source.form not in (ROWS, LINES_ZST):
                    file = Path(source.path)
                    file.write_bytes(b"\n".join(mutated(chance, file.read_bytes().split(b"\n"))))
            for one in keep.ingest(agents=[sample.agent], home=home):
                assert one.state != "failed" or "doesn't name a session" in str(one.problem), one
        for session in keep.sessions():
            keep.show(session.id)
            where = f"{keep.root}/{folder_of(session.id)}"
            for name, about in source_bytes.sources(host, where).items():
                if about["form"] not in (ROWS, LINES_ZST, SHARED):
                    assert b"".join(source_bytes.lines(host, where, name)) == Path(about["path"]).read_bytes()


# -- hooks and settings


def check_hooks(sample: Sample, folder: Path) -> None:
    """Every hook that it is given has a meaning; a call is kept as it is, and says nothing where there is no pack."""
    agent = facts_of(sample)
    for event in setup_of(agent.name).EVENTS if agent.setup else ():
        assert hooks.meaning(event), event
        reader = registry.reader_for(agent.name, "hook", {})
        payload = {"session_id": "s", "cwd": "/work", "hook_event_name": event}
        assert not [
            one for one in reader.read(f.Record("hook", payload, "", event)) if isinstance(one, (f.OddRecord, f.UnknownRecord))
        ]
    keep, said = folder / "keep", b'{"session_id": "s-1", "cwd": "/work"}'
    event = setup_of(agent.name).EVENTS[0] if agent.setup else "SessionStart"
    words = [sys.executable, "-I", "-S", HOOK, agent.name, event, str(keep)]
    done = subprocess.run(words, input=said, capture_output=True, env={"HOME": str(folder)})
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    (kept,) = (keep / "spool").iterdir()
    assert kept.read_bytes() == said and kept.name.endswith(f"~{agent.name}~{event}.hook")


_OWN_SETTINGS = {".json": '{\n  "mine": {"a": [1, 2]}\n}\n', ".toml": "mine = 1\n", ".yaml": "mine: 1\n"}


def check_setup(sample: Sample, folder: Path) -> None:
    """`init` installs, finds nothing to do the second time, and `init --uninstall` leaves every byte as it was."""
    agent = facts_of(sample)
    if not agent.setup:
        return
    host = RealHost()
    for name in ("empty", "used"):
        home, keep = folder / name, folder / f"{name}-keep"
        place = setup_of(agent.name).place(str(home), {})
        for file in [place.hooks, place.server[-1]] if name == "used" else []:
            if own := _OWN_SETTINGS.get(Path(file).suffix):
                Path(file).parent.mkdir(parents=True, exist_ok=True)
                Path(file).write_text(own)
        home.mkdir(exist_ok=True)
        before = tree(home)
        given: dict[str, Any] = {"agents": [agent.name], "keep": str(keep), "python": sys.executable, "hook": HOOK}
        changes = setup.init(host, str(home), {}, **given)
        assert changes and {change.action for change in changes} == {"install"}, changes
        assert {change.action for change in setup.init(host, str(home), {}, **given)} == {"unchanged"}
        told = [one for one in setup.examine(host, str(home), {}, hook=HOOK, keep=str(keep)) if not one["ok"]]
        assert not [one for one in told if "missing" in one["what"] or "not there" in one["what"]], told
        assert {change.action for change in setup.init(host, str(home), {}, uninstall=True, **given)} == {"remove"}
        assert tree(home) == before


# -- the way back


def check_restore(sample: Sample, folder: Path) -> None:
    """Wiped files come back byte for byte to where they were. (Rows of databases: test_restore.py.)"""
    with Keep.open(folder / "keep") as keep:
        captured(sample, keep, folder / "home")
        before = files_held(keep)
        if not before:
            return
        shutil.rmtree(folder / "home")
        for session in keep.sessions():
            done = keep.restore(session.id, session.agent)
            assert done["exact"] and done["lost"] == []
            assert done["files"][-1]["role"] in ("main", "subagent"), "where it appears, all the rest is there"
            assert all(file["bytes"] == os.stat(file["path"]).st_size for file in done["files"])
        for path, data in before.items():
            assert Path(path).read_bytes() == data, path
        again = [keep.restore(session.id, session.agent) for session in keep.sessions()]
        assert {file["action"] for done in again for file in done["files"]} == {"unchanged"}


def check_conversion(sample: Sample, folder: Path) -> None:
    """What its writer makes of a session, its own discovery and reader understand: the same prompts and answers."""
    if not facts_of(sample).writer:
        return
    with Keep.open(folder / "keep") as keep:
        captured(sample, keep, folder / "home")
        session = max(keep.sessions(), key=lambda one: one.messages)
        done = keep.restore(session.id, sample.agent, home=folder / "new", convert=True)
        with Keep.open(folder / "second") as second:
            assert [one.problem for one in second.ingest(agents=[sample.agent], home=folder / "new") if one.problem] == []
            (made,) = second.sessions()
            assert made.native_id == done["native_id"]
            assert _spoken(second, made) == _spoken(keep, session)


def _spoken(keep: Keep, session: Summary) -> list[tuple[str, str]]:
    said = keep.show(session.id)["messages"]
    plain = [m for m in said if m["role"] in ("user", "assistant") and m["text"].strip() and m.get("mark", "") in ("", "partial")]
    return [(m["role"], m["text"]) for m in plain]


CHECKS: tuple[Callable[[Sample, Path], None], ...] = (
    check_description,
    check_discovery,
    check_absence,
    check_capture,
    check_following,
    check_stopping,
    check_fuzz,
    check_mutated_files,
    check_hooks,
    check_setup,
    check_restore,
    check_conversion,
)


# -- sessions, compared


def compare(keep: Keep, expected: dict[str, Any]) -> None:
    wrong = {}
    for session in expected["sessions"]:
        found = described(keep.show(session["id"]))
        if bad := differences(session, found):
            wrong[session["id"]] = bad
    assert not wrong, json.dumps(wrong, indent=1, ensure_ascii=False)
    assert {s.id for s in keep.sessions()} == {s["id"] for s in expected["sessions"]}


def assert_rejoined(keep: Keep) -> None:
    """Every source that is a file, byte for byte out of the journal."""
    host = RealHost()
    for session in keep.sessions():
        folder = f"{keep.root}/{folder_of(session.id)}"
        for name, about in source_bytes.sources(host, folder).items():
            if about["form"] == "rows":
                assert_every_row_is_there(host, session, folder, about)
                continue
            whole = b"".join(source_bytes.lines(host, folder, name))
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
    for found, line in source_bytes.captured(host, folder):
        if found["kind"] == Kind.SOURCE_ROWS:
            held[database.key_of(line)[0]] = line.removesuffix(b"\n")
    fresh = {row.key: row.line for row in rows.rows(host, session.agent, about["path"], session.native_id, {})}
    assert held == fresh


def files_held(keep: Keep) -> dict[str, bytes]:
    """Every file of every session, as the journal has it."""
    found = {}
    for session in keep.sessions():
        where = f"{keep.root}/{folder_of(session.id)}"
        for name, about in source_bytes.sources(RealHost(), where).items():
            if about["form"] not in MANY:
                found[about["path"].removesuffix(".zst")] = b"".join(source_bytes.lines(RealHost(), where, name))
    return found


def tree(top: Path) -> dict[str, bytes]:
    return {str(path.relative_to(top)): path.read_bytes() for path in sorted(top.rglob("*")) if path.is_file()}


# -- records


def _channel(form: str) -> str:
    return {ROWS: "row", DOCUMENT: "piece", TEXT: "text"}.get(form, "file")


def records(form: str, role: str, lines: Iterable[bytes]) -> Iterator[f.Record]:
    for line in lines:
        data = None if form in (DOCUMENT, TEXT) else loads(line)
        words = "" if data is not None else line.decode("utf-8", "replace")
        if form == ROWS:
            assert data is not None
            beside = {f.BESIDE: data["beside"]} if "beside" in data else {}
            yield f.Record("row", {**data["row"], **beside}, "", data["table"])
        else:
            yield f.Record(_channel(form), data, words, "out.txt" if form == TEXT else "", role)


# -- input that nobody would write


WRONG: list[Any] = [None, 0, -1, 1e308, True, "", "x", [], {}, [[]], [None], {"": None}, "\ud800", 2**70, ["a", {"b": []}]]


def inputs(sample: Sample, home: Path) -> list[tuple[str, str, list[bytes]]]:
    """(form, role, lines or pieces) of each source of a sample's home."""
    agent, host = sample.agent, RealHost()
    sample.write(home)
    found = []
    for source in everything(sample, home):
        assert isinstance(source, Source)
        if source.form == ROWS:
            sessions = rows.sessions(host, agent, source.path)
            found += [(ROWS, "main", [row.line for row in rows.rows(host, agent, source.path, s, {})]) for s in sessions]
        elif source.form == DOCUMENT:
            found.append((DOCUMENT, source.role, document.split(Path(source.path).read_bytes())))
        elif source.form != LINES_ZST:
            found.append((source.form, source.role, Path(source.path).read_bytes().split(b"\n")[:-1]))
    return found


def mutated(chance: random.Random, lines: list[bytes]) -> list[bytes]:
    lines = list(lines)
    for _ in range(chance.randint(1, 3)):
        n = chance.randrange(len(lines))
        how = chance.random()
        if how < 0.06:
            del lines[n]
            lines = lines or [b""]
        elif how < 0.12:
            lines.insert(n, lines[n])
        elif how < 0.18:
            m = chance.randrange(len(lines))
            lines[n], lines[m] = lines[m], lines[n]
        else:
            lines[n] = bent(chance, lines[n])
    return lines


def bent(chance: random.Random, line: bytes) -> bytes:
    how = chance.random()
    at = chance.randrange(len(line) + 1)
    if how < 0.1:
        return line[:at]
    if how < 0.25 and line:
        at = chance.randrange(len(line))
        return line[:at] + bytes([line[at] ^ 1 << chance.randrange(8)]) + line[at + 1 :]
    if how < 0.3:
        return line[:at] + b"\0" * chance.randint(1, 50) + line[at:]
    if how < 0.35:
        return line.replace(b"{", b'{"type":"twice","id":7,"role":null,', 1)
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return line[at:]
    return json.dumps(distorted(chance, record, 0)).encode().replace(b'"@deep@"', deep(chance.choice((50, 150, 5_000))))


def distorted(chance: random.Random, value: Any, depth: int) -> Any:
    """Somewhere inside, something is not what it should be."""
    if isinstance(value, dict) and value and chance.random() < 0.85:
        key = chance.choice(list(value))
        if chance.random() < 0.1:
            return {k: v for k, v in value.items() if k != key}
        return {**value, key: distorted(chance, value[key], depth + 1)}
    if isinstance(value, list) and value and chance.random() < 0.7:
        n = chance.randrange(len(value))
        return [*value[:n], distorted(chance, value[n], depth + 1), *value[n + 1 :]]
    how = chance.random()
    if how < 0.03:
        return "x" * 200_000
    if how < 0.08:
        return "@deep@"
    return chance.choice(WRONG)


def deep(levels: int) -> bytes:
    return b'{"a":[' * levels + b"1" + b"]}" * levels


def events(form: str, role: str, lines: list[bytes]) -> Iterator[Event]:
    kind = Kind.SOURCE_ROWS if form == ROWS else Kind.SOURCE_READ
    about = {"source": "s", "role": role, "gen": 1, "at": 0}
    if form == DOCUMENT:
        about["pieces"] = 1
    if form == TEXT:
        about["text"] = "toolu_01.json"
    for n in range(0, len(lines), 7):
        packed = pack(about, lines[n : n + 7])
        assert unpack(packed.raw) == lines[n : n + 7]
        assert b"\n" not in packed.raw
        yield Event(f"e{n}", kind, "2026-11-01T10:00:00.000000Z", json.loads(packed.raw))


def folded(agent: str, form: str, role: str, lines: list[bytes]) -> RowCollector:
    """As the index folds it, the memory put away and taken out again between frames."""
    summary = empty(f"{agent}:fuzz")
    state: dict[str, Any] = {}
    built = RowCollector(summary, state, NoEarlierResults())
    for seq, event in enumerate(events(form, role, lines), 1):
        built.add(seq, event)
        state = built.state()
    assert built.strange == []
    json.dumps(state)
    assert not [odd for odd in state.get("odd", {}).get("first", ()) if odd["kind"] == "reader"], state["odd"]
    built.seen()
    return built
