"""Codex: what its rollouts say, record by record."""

from __future__ import annotations

import json
import os
import pathlib
from typing import Any

import pytest
import zstandard

from dreamkeep.agents import facts as f
from dreamkeep.agents.codex import discovery as places
from dreamkeep.agents.codex.reader import Reader
from dreamkeep.agents.contract import LINES, LINES_ZST, NAMES, SHARED
from dreamkeep.agents.registry import discovery
from dreamkeep.host import RealHost
from tests.agents import anything, codex, crude

MADE = {
    codex.MAIN: codex.main,
    codex.FORK: codex.fork,
    codex.HELPER: codex.helper,
    codex.LEGACY: codex.legacy,
    codex.COLD: codex.cold,
}


def event(kind: str, **more: Any) -> str:
    return json.dumps({"timestamp": "2026-10-03T09:00:00Z", "type": "event_msg", "payload": {"type": kind, **more}})


def item(kind: str, at: str = "2026-10-03T09:00:00Z", **more: Any) -> str:
    return json.dumps({"timestamp": at, "type": "response_item", "payload": {"type": kind, **more}})


def said(found: list[f.Fact], role: str) -> list[f.MessageSaid]:
    return [fact for fact in found if isinstance(fact, f.MessageSaid) and fact.role == role]


@pytest.mark.parametrize("wanted", codex.EXPECTED["sessions"], ids=lambda one: str(one["id"][6:14]))
def test_each_made_session_reads_as_expected_also_when_reading_stops_after_every_record(wanted: dict[str, Any]) -> None:
    """S28: a fork's copies are marked, and the fork is an edge. T11: the ordinal used twice is told once, and read around."""
    lines = MADE[wanted["id"].removeprefix("codex:")]()
    found = crude.read(Reader, lines)
    assert crude.read(Reader, lines, rest=True) == found
    seen = crude.fold(found, "codex")
    assert seen == {key: wanted[key] for key in seen}


def test_the_same_file_read_again_says_nothing_new() -> None:
    """W14: a replay changes nothing."""
    lines = [line for line in codex.main() if "thread_rolled_back" not in line and "weather" not in line]
    once, twice = crude.fold(crude.read(Reader, lines)), crude.fold([*crude.read(Reader, lines), *crude.read(Reader, lines)])
    assert {**once, "odd": 0} == {**twice, "odd": 0}


def test_of_a_text_that_stands_twice_either_one_is_enough() -> None:
    lines = codex.main()
    shown = [line for line in lines if '"response_item"' not in line]
    raw = [line for line in lines if "item_completed" not in line]
    whole = crude.fold(crude.read(Reader, lines))
    assert crude.fold(crude.read(Reader, raw))["roles"] == whole["roles"]
    assert crude.fold(crude.read(Reader, raw))["turns"] == whole["turns"]
    only = crude.fold(crude.read(Reader, shown))
    assert only["turns"] == whole["turns"]
    assert only["roles"]["tool"] == whole["roles"]["tool"]
    assert [call["error"] for call in only["tool_calls"]] == [True, False]


def test_the_same_words_said_twice_stay_two_messages() -> None:
    lines = [
        event("agent_message", message="ok"),
        item("message", role="assistant", content=[{"type": "output_text", "text": "ok"}]),
    ]
    lines += [line.replace("09:00:00", "09:00:09") for line in lines]
    assert [one.text for one in said(crude.read(Reader, lines), f.ASSISTANT)] == ["ok", "ok"]


def test_one_compaction_has_one_identity_whichever_records_report_it() -> None:
    ids = {fact.id for fact in crude.read(Reader, codex.main()) if isinstance(fact, f.Signal)}
    assert ids == {"window-1", "window-2"}
    shown = [line for line in codex.main() if '"compacted"' not in line]
    assert len({fact.id for fact in crude.read(Reader, shown) if isinstance(fact, f.Signal)}) == 2


def test_counts_of_tokens_before_and_after_come_with_the_compaction() -> None:
    signals = [fact for fact in crude.read(Reader, codex.main()) if isinstance(fact, f.Signal) and fact.id == "window-1"]
    assert [s.before for s in signals if s.before] == [{"tokens": 9000}]
    assert [s.after for s in signals if s.after] == [{"tokens": 3000}]


def test_repeated_compacted_records_are_one_compaction_and_the_state_stays_small() -> None:
    """T11: 19 GiB of them were seen in one file."""
    kept = [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "x" * 10_000}]}] * 20
    line = json.dumps({"type": "compacted", "payload": {"message": "m", "replacement_history": kept, "window_id": "w"}})
    reader = Reader({})
    found = [fact for _ in range(200) for fact in reader.read(f.Record("file", json.loads(line)))]
    assert len({fact.id for fact in found if isinstance(fact, f.Signal)}) == 1
    assert len({fact.key for fact in found if isinstance(fact, f.MessageSaid)}) == 1
    assert len(json.dumps(reader.state)) < 1000


def test_the_state_does_not_grow_with_the_session() -> None:
    reader = Reader({})
    sizes = []
    for n in range(2000):
        turn = f"0199a000-2000-7000-8000-{n:012}"
        lines = [
            event("task_started", turn_id=turn),
            item("message", role="user", content=[{"type": "input_text", "text": f"do {n}"}]),
        ]
        lines += [item("function_call", name="t", call_id=f"c{n}", arguments="{}"), event("task_complete", turn_id=turn)]
        for line in lines:
            list(reader.read(f.Record("file", json.loads(line))))
        sizes.append(len(json.dumps(reader.state)))
    assert max(sizes[200:]) < sizes[200] * 1.2


def test_an_encrypted_compaction_without_words_is_still_one() -> None:
    lines = [
        event("task_started", turn_id="t"),
        item("message", role="user", id="u", content=[{"type": "input_text", "text": "go"}]),
    ]
    lines += [item("compaction", encrypted_content="gAAA"), json.dumps({"type": "compacted", "payload": {"message": ""}})]
    lines += [event("item_completed", turn_id="t", item={"type": "ContextCompaction", "id": "x"})]
    found = crude.read(Reader, lines)
    assert len({fact.id for fact in found if isinstance(fact, f.Signal)}) == 1
    assert not said(found, f.SUMMARY)


@pytest.mark.parametrize(
    ("ordinals", "told"),
    [
        ([0, 1, 2], 0),
        ([0, 1, 1, 2], 1),
        ([0, 1, 5, 6], 1),
        ([0, 3, 1, 2], 2),
        ([7, 8], 0),
        ([0, None, None, 1], 1),
        ([None, None], 0),
    ],
)
def test_each_break_in_the_ordinals_is_reported_once(ordinals: list[int | None], told: int) -> None:
    """T11: missing or reused ordinals are readable around, and reported."""
    lines = [
        json.dumps({"ordinal": n, "type": "world_state", "payload": {}} if n is not None else {"type": "world_state"})
        for n in ordinals
    ]
    assert len([fact for fact in crude.read(Reader, lines) if isinstance(fact, f.OddRecord)]) == told


def test_a_prompt_while_a_turn_is_going_on_does_not_begin_another() -> None:
    words = [{"type": "input_text", "text": "first"}], [{"type": "input_text", "text": "and this"}]
    lines = [event("task_started", turn_id="t"), *(item("message", role="user", id=w[0]["text"], content=w) for w in words)]
    found = crude.read(Reader, [*lines, event("task_complete", turn_id="t")])
    assert [(b.turn, b.prompt) for b in found if isinstance(b, f.TurnBegan)] == [("t", "first")]
    assert {one.turn for one in said(found, f.USER)} == {"t"}


def test_an_image_is_no_text_and_its_prompt_is_said_once() -> None:
    content = [
        {"type": "input_text", "text": "<image name=[Image #1]>"},
        {"type": "input_image", "image_url": "data:image/png;base64,AAAA"},
        {"type": "input_text", "text": "</image>"},
        {"type": "input_text", "text": "what is this?"},
    ]
    lines = [item("message", role="user", content=content), event("user_message", message="what is this?", images=["data:…"])]
    assert [one.text for one in said(crude.read(Reader, lines), f.USER)] == ["[image]\nwhat is this?"]


@pytest.mark.parametrize(
    ("output", "code", "error"),
    [
        ("Chunk ID: 1\nProcess exited with code 3\nOutput:\nno\n", 3, True),
        ("Exit code: 0\nWall time: 1 seconds\nOutput:\nyes", 0, False),
        ("Wall time: 1 seconds\nOutput:\nProcess exited with code 9", None, None),
        ('{"output":"x","metadata":{"exit_code":2}}', 2, True),
        ({"content": "denied", "success": False}, None, True),
        ([{"type": "input_text", "text": "a"}, {"type": "input_image"}], None, None),
    ],
)
def test_how_a_tool_ended_is_read_from_the_clients_words_not_from_the_output(
    output: object, code: int | None, error: bool | None
) -> None:
    (result,) = said(crude.read(Reader, [item("function_call_output", call_id="c", output=output)]), f.TOOL)
    assert result.tool is not None
    assert (result.tool.get("exit_code"), result.tool.get("error")) == (code, error)


@pytest.mark.parametrize(
    ("reason", "state"),
    [("interrupted", "cancelled"), ("replaced", "cancelled"), ("budget_limited", "failed"), ("something new", "interrupted")],
)
def test_an_aborted_turn_is_settled_by_its_reason(reason: str, state: str) -> None:
    lines = [event("turn_started", turn_id="t"), item("message", role="user", content=[{"type": "input_text", "text": "go"}])]
    (turn,) = crude.fold(crude.read(Reader, [*lines, event("turn_aborted", turn_id="t", reason=reason)]))["turns"]
    assert turn["state"] == state


def test_a_turn_that_completes_with_nothing_but_an_error_has_failed() -> None:
    lines = [event("task_started", turn_id="t"), item("message", role="user", content=[{"type": "input_text", "text": "go"}])]
    lines += [event("error", message="quota"), event("task_complete", turn_id="t", last_agent_message=None)]
    (settled,) = [fact for fact in crude.read(Reader, lines) if isinstance(fact, f.TurnSettled)]
    assert (settled.state, settled.reason) == ("failed", "quota")


def test_a_fork_without_turn_ids_is_its_own_from_the_first_prompt_after_a_pause() -> None:
    def lines(second: int, words: str) -> str:
        content = [{"type": "input_text", "text": words}]
        return item("message", f"2026-10-03T09:00:{second:02}Z", role="user", content=content)

    head = {"type": "session_meta", "payload": {"id": "b", "forked_from_id": "a", "timestamp": "2026-10-03T09:00:00Z"}}
    found = crude.read(Reader, [json.dumps(head), lines(1, "old"), lines(1, "older"), lines(30, "new")])
    assert [(one.text, one.mark) for one in said(found, f.USER)] == [("old", "copied"), ("older", "copied"), ("new", "")]
    edges = [fact for fact in found if isinstance(fact, f.Edge)]
    assert [edge.through for edge in edges] == ["", said(found, f.USER)[1].key]


def test_the_first_versions_bare_lines_are_read() -> None:
    lines = [json.dumps({"id": "a", "timestamp": "2025-05-01T10:00:00Z", "instructions": None}), '{"record_type":"state"}']
    lines += ['{"type":"message","role":"user","content":[{"type":"input_text","text":"hi"}]}']
    seen = crude.fold(crude.read(Reader, lines))
    assert seen["turns"] == [{"prompt": "hi", "state": "open"}]
    assert not seen["unknown"]


def test_any_change_to_a_line_is_survived() -> None:
    for make in MADE.values():
        anything.read_changed(Reader, make(), seed=5, times=20, chance=0.08)


def test_what_is_found_is_what_was_written(tmp_path: pathlib.Path) -> None:
    codex.write(tmp_path)
    home = str(tmp_path)
    (place,) = discovery("codex").homes(home, {})
    found = {source.session: source for source in places.discover(RealHost(), place)}
    shared = found.pop("")
    assert (shared.form, shared.role, places.claims(shared.path)) == (SHARED, NAMES, shared)
    assert {f"codex:{session}" for session in found} == {one["id"] for one in codex.EXPECTED["sessions"]}
    assert [source.form for source in found.values() if source.session == codex.COLD] == [LINES_ZST]
    for source in found.values():
        assert places.claims(source.path) == source
        if source.form == LINES:
            assert places.identify("copy.txt", pathlib.Path(source.path).read_bytes()[:65536]) == source.session
    packed = pathlib.Path(found[codex.COLD].path).read_bytes()
    assert zstandard.decompress(packed).count(b"\n") == len(codex.cold())


def test_a_cold_copy_beside_its_hot_file_is_one_source(tmp_path: pathlib.Path) -> None:
    codex.write(tmp_path)
    (place,) = places.homes(str(tmp_path), {})
    before = list(places.discover(RealHost(), place))
    pathlib.Path(before[0].path + ".zst").write_bytes(b"being written")
    assert list(places.discover(RealHost(), place)) == before


def test_another_file_of_a_thread_is_the_same_session_and_other_names_are_none() -> None:
    name = f"/x/sessions/2026/10/03/rollout-2026-10-03T11-00-00-{codex.MAIN}_0199a000-9999-7000-8000-000000000000.jsonl"
    found = places.claims(name)
    assert found is not None
    assert found.session == codex.MAIN
    for other in ("history.jsonl", "rollout-x.jsonl", "rollout-2026-10-03T11-00-00-a.json", "state_5.sqlite"):
        assert places.claims(os.path.join("/x", other)) is None


def test_the_environment_moves_the_home() -> None:
    assert places.homes("/home/dev", {"CODEX_HOME": "/data/codex"}) == ["/data/codex", "/home/dev/.codex"]
    assert list(places.discover(RealHost(), "/nowhere/at/all")) == []
