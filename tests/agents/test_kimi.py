"""Kimi Code: what its wires say."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import pytest

from dreamkeep.agents import facts as f
from dreamkeep.agents.contract import DOCUMENT
from dreamkeep.agents.kimi import discovery as places
from dreamkeep.agents.kimi.reader import Reader
from dreamkeep.host import RealHost
from tests.agents import anything, crude, kimi


def lines(*made: tuple[str, dict[str, Any]]) -> list[str]:
    return [json.dumps({"type": kind, "time": 1_790_000_000_000 + n, **data}) for n, (kind, data) in enumerate(made)]


def user(words: str) -> dict[str, Any]:
    return {"message": {"role": "user", "content": [{"type": "text", "text": words}]}}


APPLY = ("context.apply_compaction", {"summary": "S", "compactedCount": 3})
BEGIN = ("full_compaction.begin", {"source": "auto"})
COMPLETE: tuple[str, dict[str, Any]] = ("full_compaction.complete", {})


@pytest.mark.parametrize(("n", "source"), [(0, "main"), (1, "subagent")])
def test_each_made_session_reads_as_expected_also_when_reading_stops_after_every_record(n: int, source: str) -> None:
    made, wanted = (kimi.main, kimi.helper)[n](), kimi.EXPECTED["sessions"][n]
    found = crude.read(Reader, made, source=source)
    assert crude.read(Reader, made, source=source, rest=True) == found
    seen = crude.fold(found)
    seen["compactions"] = [one for one in seen["compactions"] if one["state"] == "completed"]
    del seen["lineage"]  # the file's place tells that, not its records
    assert seen == {key: wanted[key] for key in seen}


def test_a_call_whose_id_comes_again_in_another_step_is_another_call() -> None:
    def pair(step: str, output: str) -> list[tuple[str, dict[str, Any]]]:
        call = {"type": "tool.call", "stepUuid": step, "toolCallId": "functions.Shell:0", "name": "Shell", "args": {}}
        result = {"type": "tool.result", "toolCallId": "functions.Shell:0", "result": {"output": output}}
        return [("context.append_loop_event", {"event": call}), ("context.append_loop_event", {"event": result})]

    roles = crude.fold(crude.read(Reader, lines(*pair("a", "x"), *pair("b", "y"))))["roles"]
    assert (roles["assistant"], roles["tool"]) == (2, 2)


def test_a_compaction_that_was_called_off_is_cancelled() -> None:
    states = [(one["state"], one["reason"]) for one in crude.fold(crude.read(Reader, kimi.main()))["compactions"]]
    assert states == [("completed", "manual"), ("cancelled", "auto")]


def test_the_same_file_read_again_says_nothing_new() -> None:
    """W14."""
    made = [line for line in kimi.main() if "sourdough" not in line]
    once, twice = crude.read(Reader, made), [*crude.read(Reader, made), *crude.read(Reader, made)]
    assert crude.fold(twice) == crude.fold(once)


@pytest.mark.parametrize(
    ("made", "compactions"),
    [
        ((BEGIN, APPLY, COMPLETE), 1),
        ((APPLY, BEGIN, COMPLETE), 1),
        ((APPLY,), 1),
        ((APPLY, APPLY), 2),
        ((BEGIN, APPLY, BEGIN, APPLY, COMPLETE), 2),
        ((BEGIN, APPLY, COMPLETE, BEGIN, APPLY, COMPLETE), 2),
        ((COMPLETE,), 0),
    ],
)
def test_records_of_one_compaction_are_one_in_any_order(made: tuple[tuple[str, dict[str, Any]], ...], compactions: int) -> None:
    seen = crude.fold(crude.read(Reader, lines(*made)))
    assert [one["state"] for one in seen["compactions"]] == ["completed"] * compactions


def test_files_without_turn_prompts_have_turns_all_the_same() -> None:
    step = {"event": {"type": "step.end", "uuid": "s", "finishReason": "end_turn"}}
    made = lines(
        ("context.append_message", user("a")), ("context.append_loop_event", step), ("context.append_message", user("a"))
    )
    assert [turn["state"] for turn in crude.fold(crude.read(Reader, made))["turns"]] == ["completed", "open"]


def test_a_message_while_a_turn_is_going_on_does_not_begin_another() -> None:
    steer = {"input": [{"type": "text", "text": "b"}], "origin": {"kind": "user"}}
    made = lines(("context.append_message", user("a")), ("turn.steer", steer), ("context.append_message", user("b")))
    seen = crude.fold(crude.read(Reader, made))
    assert ([turn["prompt"] for turn in seen["turns"]], seen["roles"]["user"]) == (["a"], 2)


def test_clearing_the_context_is_a_boundary_and_no_compaction() -> None:
    (boundary,) = crude.read(Reader, lines(("context.clear", {})))
    assert isinstance(boundary, f.Boundary)
    assert boundary.reason == "clear"


def test_the_state_file_gives_title_folder_and_parents() -> None:
    state = {"title": "T", "isCustomTitle": True, "workDir": "/w", "custom": {"parent_session_id": "p"}, "forkedFrom": "q"}
    found = list(Reader({}).read(f.Record("piece", None, json.dumps(state, indent=2), source="state")))
    assert found == [
        f.SessionTitled("T", 2),
        f.SessionPlaced("/w"),
        f.Edge("subagent", "p", "state.json"),
        f.Edge("fork", "q", "state.json"),
    ]
    cut = '{"title": "A \\"B\\"", "isCustomTitle": false, "cwd": "/w", "agents": {'
    assert list(Reader({}).read(f.Record("piece", None, cut))) == [f.SessionTitled('A "B"', 1), f.SessionPlaced("/w")]
    assert list(Reader({}).read(f.Record("piece", None, '"title": "half of'))) == []


def test_older_assistant_messages_give_texts_thoughts_and_calls() -> None:
    content = [{"type": "think", "think": "hm"}, {"type": "text", "text": "yes"}, {"type": "image_url", "url": "data:…"}]
    calls = [{"id": "c", "function": {"name": "LS", "arguments": '{"path":"/"}'}}]
    answer = {"message": {"role": "assistant", "content": content, "toolCalls": calls}}
    result = {"message": {"role": "tool", "toolCallId": "c", "content": "bin", "isError": False}}
    made = lines(("context.append_message", answer), ("context.append_message", result))
    found = [fact for fact in crude.read(Reader, made) if isinstance(fact, f.MessageSaid)]
    assert [(one.role, one.text) for one in found] == [
        ("reasoning", "hm"),
        ("assistant", "yes"),
        ("assistant", "[image]"),
        ("assistant", ""),
        ("tool", "bin"),
    ]
    assert found[3].tool == {"id": "c", "name": "LS", "input": {"path": "/"}}


def test_any_change_to_a_line_is_survived() -> None:
    anything.read_changed(Reader, kimi.main(), seed=7, times=60)


def test_what_is_found_is_what_was_written(tmp_path: pathlib.Path) -> None:
    kimi.write(tmp_path)
    (place,) = places.homes(str(tmp_path), {})
    found = list(places.discover(RealHost(), place))
    wires = [source for source in found if source.form != DOCUMENT]
    assert {f"kimi:{source.session}" for source in wires} == {one["id"] for one in kimi.EXPECTED["sessions"]}
    assert [(source.role, source.parent) for source in wires if source.session == kimi.HELPER] == [("subagent", kimi.MAIN)]
    assert [(source.session, source.role) for source in found if source.form == DOCUMENT] == [(kimi.MAIN, "state")]
    assert all(places.claims(source.path) == source and places.identify(source.path, b"") == source.session for source in found)


def test_the_environment_moves_the_home() -> None:
    assert places.homes("/h", {"KIMI_CODE_HOME": "/k"}) == ["/k", "/h/.kimi-code"]
    assert list(places.discover(RealHost(), "/nowhere/at/all")) == []
    assert places.claims("/h/.kimi/sessions/abc/def/wire.jsonl") is None
