"""Qwen Code's records, read alone."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest

from dreamkeep.agents import facts as f
from dreamkeep.agents.qwen import discovery
from dreamkeep.agents.qwen.reader import Reader
from dreamkeep.host import RealHost
from tests.agents import anything, qwen
from tests.agents.crude import fold, read

_ESSENTIAL = ("turns", "roles", "tool_calls", "compactions", "marks", "unknown")


def _read(home: Path, part: str, *, rest: bool = False, source: str = "main") -> list[f.Fact]:
    if not (home / ".qwen").exists():
        qwen.write(home)
    return read(Reader, next(home.rglob(f"*{part}*.jsonl")).read_text().splitlines(), rest=rest, source=source)


def _expected(session: str) -> dict[str, Any]:
    return next(one for one in qwen.EXPECTED["sessions"] if one["id"] == f"qwen:{session}")


@pytest.mark.parametrize(
    ("part", "session", "source"),
    [
        (qwen.MAIN, qwen.MAIN, "main"),
        (qwen.BRANCH, qwen.BRANCH, "main"),
        ("agent-", f"{qwen.MAIN}/agent-explore-7f3c", "subagent"),
    ],
    ids=["main", "branch", "subagent"],
)
def test_a_session_is_read_as_expected_wherever_reading_stops(tmp_path: Path, part: str, session: str, source: str) -> None:
    facts = _read(tmp_path, part, source=source)
    assert facts == _read(tmp_path, part, source=source, rest=True)
    found, expected = fold(facts), _expected(session)
    assert {name: found[name] for name in _ESSENTIAL} == {name: expected[name] for name in _ESSENTIAL}
    edges = [{"kind": x.kind, "session": f"qwen:{x.session}"} for x in facts if isinstance(x, f.Edge)]
    assert edges == expected["lineage"]


def test_a_branchs_copies_have_their_originals_keys_and_no_turns(tmp_path: Path) -> None:
    """S28: copied records count once; the branch is an edge of lineage."""
    copied = {x.key for x in _read(tmp_path, qwen.BRANCH) if isinstance(x, f.MessageSaid) and x.mark == f.COPIED}
    assert copied <= {x.key for x in _read(tmp_path, qwen.MAIN) if isinstance(x, f.MessageSaid)}
    assert len([x for x in _read(tmp_path, qwen.BRANCH) if isinstance(x, f.TurnBegan)]) == 1


def test_prompt_ids_that_count_from_zero_again_do_not_join_two_turns(tmp_path: Path) -> None:
    """S25: turn ids never repeat across incarnations."""
    turns = [x.turn for x in _read(tmp_path, qwen.MAIN) if isinstance(x, f.TurnBegan)]
    assert len(turns) == len(set(turns)) == 5


def test_a_compactions_tokens_and_summary_appear_once(tmp_path: Path) -> None:
    facts = _read(tmp_path, qwen.MAIN)
    [signal] = [x for x in facts if isinstance(x, f.Signal)]
    assert (signal.before, signal.after) == ({"tokens": 91000}, {"messages": 3, "tokens": 2100})
    [summary] = [x for x in facts if isinstance(x, f.MessageSaid) and x.role == f.SUMMARY]
    assert summary.text.startswith("<state_snapshot>Apple trees")


def test_what_a_rewind_takes_back_is_known_by_what_it_hangs_below(tmp_path: Path) -> None:
    facts = _read(tmp_path, qwen.MAIN, rest=True)
    [rewound] = [x for x in facts if isinstance(x, f.MessagesRewound)]
    prompt = next(x for x in facts if isinstance(x, f.TurnBegan) and x.turn == rewound.key)
    assert prompt.prompt == "Cut down the pear tree."


def test_hook_words_are_never_part_of_the_prompt() -> None:
    hook = {"text": "<qwen:user-prompt-submit-context>\nremember X\n</qwen:user-prompt-submit-context>"}
    record = {"uuid": "u", "type": "user", "message": {"parts": [{"text": "do it"}, hook]}}
    facts = read(Reader, [json.dumps(record)])
    assert [(x.role, x.text, x.mark) for x in facts if isinstance(x, f.MessageSaid)] == [
        ("user", "do it", ""),
        ("system", "remember X", "hook"),
    ]


def test_the_state_does_not_grow_with_the_session() -> None:
    reader = Reader({})
    sizes = []
    for n in range(1500):
        record = {"uuid": f"u{n:06d}", "parentUuid": f"p{n:06d}", "type": "user", "message": {"parts": [{"text": f"{n}"}]}}
        list(reader.read(f.Record("file", record)))
        sizes.append(len(json.dumps(reader.state)))
    assert sizes[-1] == sizes[100] < 4000


def test_all_places_are_searched_and_files_show_their_session(tmp_path: Path) -> None:
    qwen.write(tmp_path)
    old = tmp_path / ".qwen/tmp/4be2/chats/old-1.jsonl"
    old.parent.mkdir(parents=True)
    old.write_text("{}\n")
    assert discovery.homes("/h", {"QWEN_RUNTIME_DIR": "/r"})[:2] == ["/r/projects", "/r/tmp"]
    found = {s.session: s for place in discovery.homes(str(tmp_path), {}) for s in discovery.discover(RealHost(), place)}
    assert set(found) == {qwen.MAIN, qwen.BRANCH, f"{qwen.MAIN}/agent-explore-7f3c", "old-1"}
    subagent = found[f"{qwen.MAIN}/agent-explore-7f3c"]
    assert (subagent.role, subagent.parent) == ("subagent", qwen.MAIN)
    moved = Path(found[qwen.MAIN].path).read_bytes()
    assert discovery.identify("/elsewhere/x.jsonl", moved) == qwen.MAIN
    assert discovery.identify("/elsewhere/x.jsonl", b'{"sessionId":"s","projectHash":"h"}') == ""
    assert discovery.claims("/h/.gemini/tmp/p/chats/session-2026-01-01T00-00-aaaaaaaa.jsonl") is None


_NAMES = (
    *("uuid", "parentUuid", "sessionId", "type", "subtype", "message", "parts", "text", "thought", "functionCall", "id", "name"),
    *("functionResponse", "response", "toolCallResult", "status", "systemPayload", "forkedFrom", "promptId", "timestamp", "info"),
    *("compressedHistory", "role", "customTitle", "state", "cwd", "model", "displayText", "rawCommand", "provenance"),
)
_WORDS = (
    *(
        "user",
        "assistant",
        "tool_result",
        "system",
        "chat_compression",
        "rewind",
        "turn_result",
        "completed",
        "model",
        "custom_title",
    ),
    *("parent_session", "slash_command", "notification", "real_user", "Got it. Thanks for the additional context!", "u1"),
)


def test_no_input_makes_the_reader_raise() -> None:
    random = Random(9)
    reader = Reader({})
    for _ in range(2000):
        list(reader.read(f.Record("file", anything.record(random, _NAMES, _WORDS), source=random.choice(("main", "subagent")))))
        list(reader.read(f.Record("file", None, "torn")))
        reader = Reader(anything.resumed(reader.state))
    assert len(json.dumps(reader.state)) < 40_000
