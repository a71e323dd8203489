"""Whatever an agent's file may hold, nothing escapes, everything is kept raw, and the fold's memory is JSON.

Mutations of generated homes: cut, bits flipped, wrong types, deep nesting, huge values, NULs, doubled keys, lines lost, doubled,
swapped.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from dreamkeep import Keep
from dreamkeep.capture import document, rejoin, rows
from dreamkeep.capture.find import everywhere
from dreamkeep.capture.sources import AGENTS, DOCUMENT, LINES_ZST, ROWS, SHARED, TEXT, Source
from dreamkeep.event import Event, Kind
from dreamkeep.host import RealHost
from dreamkeep.index.rows import Rows
from dreamkeep.journal.places import folder_of
from dreamkeep.session.messages import Message
from dreamkeep.session.raw import pack, unpack
from dreamkeep.session.summary import empty
from dreamkeep.session.turns import Turn

WRONG: list[Any] = [None, 0, -1, 1e308, True, "", "x", [], {}, [[]], [None], {"": None}, "\ud800", 2**70, ["a", {"b": []}]]


class Nobody:
    """Nothing was known before."""

    def message(self, key: str) -> Message | None:
        return None

    def twin(self, twin: str, not_heard: int, after: tuple[int, int]) -> Message | None:
        return None

    def turn(self, turn: str) -> Turn | None:
        return None

    def last_turns(self, count: int) -> list[Turn]:
        return []


def inputs(agent: str, home: Path) -> list[tuple[str, str, list[bytes]]]:
    """(form, role, lines or pieces) of each source of a generated home."""
    import_module(f"tests.agents.{AGENTS[agent]}").write(home)
    host = RealHost()
    found = []
    for source in everywhere(host, str(home), {}, [agent]):
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


def folded(agent: str, form: str, role: str, lines: list[bytes]) -> Rows:
    """As the index folds it, the memory put away and taken out again between frames."""
    summary = empty(f"{agent}:fuzz")
    state: dict[str, Any] = {}
    built = Rows(summary, state, Nobody())
    for seq, event in enumerate(events(form, role, lines), 1):
        built.add(seq, event)
        state = built.state()
    assert built.strange == []
    json.dumps(state)
    assert not [odd for odd in state.get("odd", {}).get("first", ()) if odd["kind"] == "reader"], state["odd"]
    built.seen()
    return built


@pytest.mark.parametrize("count", [500, pytest.param(10_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("agent", sorted(AGENTS))
def test_no_input_makes_a_reader_or_the_fold_fail(agent: str, count: int, tmp_path: Path) -> None:
    """B2, W6, W7."""
    chance = random.Random(count)
    found = [one for one in inputs(agent, tmp_path) if one[2]]
    done = 0
    while done < count:
        form, role, lines = chance.choice(found)
        start = chance.randrange(len(lines))
        some = mutated(chance, lines[start : start + 25])
        folded(agent, form, role, some)
        done += 1


@pytest.mark.parametrize("agent", sorted(AGENTS))
def test_mutated_files_are_ingested_and_come_back_byte_for_byte(agent: str, tmp_path: Path) -> None:
    chance = random.Random(agent)
    module = import_module(f"tests.agents.{AGENTS[agent]}")
    host = RealHost()
    with Keep.open(tmp_path / "keep") as keep:
        for n in range(4):
            home = tmp_path / f"home{n}"
            module.write(home)
            for source in list(everywhere(host, str(home), {}, [agent])):
                if isinstance(source, Source) and source.form not in (ROWS, LINES_ZST):
                    file = Path(source.path)
                    file.write_bytes(b"\n".join(mutated(chance, file.read_bytes().split(b"\n"))))
            for one in keep.ingest(agents=[agent], home=home):
                assert one.state != "failed" or "doesn't name a session" in str(one.problem), one
        for session in keep.sessions():
            keep.show(session.id)
            folder = f"{keep.root}/{folder_of(session.id)}"
            for name, about in rejoin.sources(host, folder).items():
                if about["form"] not in (ROWS, LINES_ZST, SHARED):
                    assert b"".join(rejoin.lines(host, folder, name)) == Path(about["path"]).read_bytes()
