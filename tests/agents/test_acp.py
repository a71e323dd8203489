"""What the reader of ACP frames says: five agents' real frames, our own in the same forms, and everything that goes wrong."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from dreamkeep.agents import facts as f
from dreamkeep.agents.acp import log_lines as acp_scraped
from dreamkeep.agents.acp import reader as acp
from dreamkeep.agents.facts import Record
from dreamkeep.capture.tap.route import Router
from tests.helpers.acp_frames import (
    AT,
    EXPECTED,
    FIRST,
    LOAD,
    REAL,
    REPLAY,
    SIDES,
    Said,
    answer,
    ask,
    chunk,
    closed,
    messages,
    of,
    opened,
    prompt,
    read,
    records,
    tool,
    update,
)

# -- real frames


def real_sessions(file: Path) -> tuple[str, str, list[list[Record]]]:
    """(session's id, cwd, its records by connection), through the tap's own router."""
    found: list[list[Record]] = []
    session = cwd = ""
    router = Router(None, ["?"])
    for line in file.read_text().splitlines():
        frame = json.loads(line)
        message, side = frame["msg"], {"out": "c", "in": "a"}[frame["dir"]]
        if message.get("method") == "initialize":
            router, n, conn = Router(None, ["?"]), 0, f"conn{len(found)}"
            found.append([])
        n += 1
        native = router.route(side, json.dumps(message).encode())
        if native:
            about = router.about(native)
            assert about
            session, cwd = f"{router.agent}:{native}", about.cwd
            if not found[-1]:
                found[-1].append(opened(router.agent, native, conn))
            found[-1].append(Record("acp", message, "", SIDES[side], f"{conn}#{n}", AT))
    return session, cwd, found


@pytest.mark.parametrize("name", EXPECTED)
def test_real_frames_come_out_as_they_were_read_by_hand(name: str) -> None:
    """S19: a load is one boundary; what is told again before or after its answer is no second message."""
    if not (REAL / name).exists():
        pytest.skip("no real transcripts on this machine; set DREAMKEEP_TRANSCRIPTS")
    want = EXPECTED[name]
    session, cwd, connections = real_sessions(REAL / name)
    found = [fact for connection in connections for fact in read(connection)]
    said = messages(found)
    states = {settled.turn: settled.state for settled in of(f.TurnSettled, found)}
    assert (session, cwd) == (want["id"], want["cwd"])
    assert [{"prompt": one.prompt, "state": states[one.turn]} for one in of(f.TurnBegan, found)] == want["turns"]
    assert Counter(one.role for one in said) == want["roles"]
    assert [one.text for one in said if one.role == "assistant" and not one.tool] == want["texts"]
    results = {one.tool["id"]: one.tool for one in said if one.role == "tool" and one.tool}
    calls = [one.tool for one in said if one.role == "assistant" and one.tool]
    assert [{"name": c["name"], "error": results[c["id"]].get("error", False)} for c in calls] == want["tool_calls"]
    assert len(of(f.Boundary, found)) + 1 == want["segments"]
    assert [one for one in of(f.Signal, found) if one.phase != "noop"] == want["compactions"]
    assert Counter(one.mark for one in said if one.mark) == want["marks"]
    assert Counter(one.kind for one in of(f.UnknownRecord, found)) == want["unknown"]
    assert len(of(f.OddRecord, found)) == want["odd"]
    titles = [one.title for one in of(f.SessionTitled, found)]
    assert (titles[-1] if titles else of(f.TurnBegan, found)[0].prompt)[:79] == want["title"][:79]


# -- turns


@pytest.mark.parametrize(
    ("result", "state"),
    [
        ({"result": {"stopReason": "end_turn"}}, "completed"),
        ({"result": {"stopReason": "max_tokens"}}, "completed"),
        ({"result": {"stopReason": "a_newer_one"}}, "completed"),
        ({"result": {"stopReason": "cancelled"}}, "cancelled"),
        ({"result": {"stopReason": "refusal"}}, "failed"),
        ({"error": {"code": -32603, "message": "no"}}, "failed"),
        ({"error": {"code": -32800, "message": "request cancelled"}}, "cancelled"),
    ],
)
def test_a_turn_ends_as_its_answer_says(result: dict[str, Any], state: str) -> None:
    found = read(records([prompt(3, "why?"), chunk("Because."), ("a", {"jsonrpc": "2.0", "id": 3, **result})]))
    [began], [settled] = of(f.TurnBegan, found), of(f.TurnSettled, found)
    assert (began.prompt, settled.turn, settled.state) == ("why?", began.turn, state)


def test_turn_ids_never_come_again_though_every_connection_counts_from_one() -> None:
    """S25: the same prompt with the same number, over five connections and twice in each."""
    turns = []
    for conn in range(5):
        said = [prompt(3, "continue"), answer(3, stopReason="end_turn")] * 2
        turns += [one.turn for one in of(f.TurnBegan, read(records(said, f"conn{conn}")))]
    assert len(set(turns)) == 10


def test_a_turn_is_settled_though_the_agent_goes_on_in_another_session_of_its_own() -> None:
    """T9: Hermes' own id rotates in the middle of a turn; the turn is the client's."""
    meta = {"hermes": {"sessionProvenance": {"acpSessionId": "s", "currentHermesSessionId": "s2", "compressionDepth": 1}}}
    found = read(records([prompt(3, "go"), update("session_info_update", _meta=meta), answer(3, stopReason="end_turn")]))
    assert [one.turn for one in of(f.TurnBegan, found)] == [one.turn for one in of(f.TurnSettled, found)]


def test_answers_belong_to_the_first_of_two_prompts_until_it_is_settled() -> None:
    """Some agents queue prompts."""
    found = read(
        records(
            [
                prompt(3, "one"),
                chunk("1"),
                prompt(4, "two"),
                chunk("st"),
                answer(3, stopReason="end_turn"),
                chunk("2nd"),
                answer(4, stopReason="end_turn"),
            ]
        )
    )
    first, second = (one.turn for one in of(f.TurnBegan, found))
    answers = [(one.text, one.turn, one.mark) for one in messages(found) if one.role == "assistant"]
    assert answers == [("1st", first, ""), ("2nd", second, "")]


def test_a_dead_agent_leaves_its_turns_interrupted_and_its_last_words_partial() -> None:
    found = read([opened(), *records([prompt(3, "write a poem"), chunk("Roses "), chunk("are")]), closed()])
    [settled] = of(f.TurnSettled, found)
    assert (settled.state, settled.reason) == ("interrupted", "the agent was killed by SIGKILL")
    assert [(one.text, one.mark) for one in messages(found)] == [("write a poem", ""), ("Roses are", f.PARTIAL)]


# -- messages


def test_chunks_grow_into_one_message_of_each_kind() -> None:
    found = read(
        records(
            [
                prompt(3, "?"),
                chunk("Let me ", "agent_thought"),
                chunk("think.", "agent_thought"),
                chunk("It "),
                chunk("is."),
                tool("t1", title="Bash"),
                tool("t1", "tool_call_update", status="completed", rawOutput="ok"),
                chunk("Done."),
                answer(3, stopReason="end_turn"),
            ]
        )
    )
    assert [(one.role, one.text, one.mark) for one in messages(found)] == [
        ("user", "?", ""),
        ("reasoning", "Let me think.", ""),
        ("assistant", "It is.", ""),
        ("assistant", "", ""),
        ("tool", "ok", ""),
        ("assistant", "Done.", ""),
    ]
    assert len({one.key for one in messages(found)}) == 6


def test_one_message_id_before_and_after_a_tool_is_two_messages_and_nothing_is_overwritten() -> None:
    said = [chunk("a", messageId="m"), tool("t", title="x"), chunk("b", messageId="m"), chunk("c", messageId="n")]
    found = read(records([prompt(3, "?"), *said, chunk("d", messageId="m"), answer(3, stopReason="end_turn")]))
    assert [one.text for one in messages(found) if one.role == "assistant" and not one.tool] == ["a", "b", "c", "d"]


def test_what_comes_between_chunks_of_one_message_id_does_not_cut_it() -> None:
    between = [update("usage_update", used=1, size=2), update("available_commands_update", availableCommands=[])]
    found = read(records([prompt(3, "?"), chunk("a", messageId="m"), *between, chunk("b", messageId="m")]))
    assert [one.text for one in messages(found)] == ["?", "ab"]
    found = read(records([prompt(3, "?"), chunk("a warning"), *between, chunk("b")]))
    assert [one.text for one in messages(found)] == ["?", "a warning", "b"]


@pytest.mark.parametrize("kind", ["available_commands_update", "current_mode_update", "config_option_update"])
def test_news_of_commands_and_modes_does_not_cut_an_answer_without_an_id(kind: str) -> None:
    """As seen: Qwen Code tells of its commands a second after a session began, whatever is being said."""
    said = [
        prompt(3, "go"),
        chunk("One "),
        update(kind, availableCommands=[]),
        chunk("answer."),
        answer(3, stopReason="end_turn"),
    ]
    assert [one.text for one in messages(read(records(said))) if one.role == "assistant"] == ["One answer."]
    said[1:2], said[3:4] = [chunk("One.")], [chunk(" Two.")]
    assert [one.text for one in messages(read(records(said))) if one.role == "assistant"] == ["One. Two."]
    said[1:2], said[3:4] = [chunk("A warning of the client's.")], [chunk("answer.")]
    assert [one.text for one in messages(read(records(said))) if one.role == "assistant"] == [
        "A warning of the client's.",
        "answer.",
    ]


def test_a_very_long_answer_goes_on_in_another_message_and_the_state_stays_small() -> None:
    reader = acp.Reader({})
    piece = "x" * 10_000
    found: list[f.Fact] = []
    for record in records([prompt(3, "?"), *(chunk(piece) for _ in range(100)), chunk("y" * 2_000_000), chunk("z")]):
        found += reader.read(record)
        assert len(json.dumps(reader.state)) < acp.LONGEST_SAID + 4096
    said = [one for one in messages(found) if one.role == "assistant"]
    assert "".join(one.text for one in said) == piece * 100 + "y" * 2_000_000 + "z"
    assert [one.mark for one in said] == [""] * (len(said) - 1) + [f.PARTIAL]


def test_a_prompt_that_the_agent_echoes_is_one_message() -> None:
    found = read(
        records([prompt(3, "hello there"), chunk("hello ", "user_message"), chunk("there", "user_message"), chunk("Hi.")])
    )
    assert [(one.role, one.text) for one in messages(found)] == [("user", "hello there"), ("assistant", "Hi.")]


def test_a_frame_that_was_journaled_twice_counts_once() -> None:
    once = records([prompt(3, "?"), chunk("a"), chunk("b"), answer(3, stopReason="end_turn")])
    assert read([*once[:2], once[1], once[2], *once]) == read(once)


def test_prompts_hold_what_was_attached() -> None:
    blocks = [
        {"type": "text", "text": "Look at "},
        {"type": "resource_link", "uri": "file:///a.py", "name": "a.py"},
        {"type": "text", "text": " and this:"},
        {"type": "image", "data": "aGVsbG8=", "mimeType": "image/png"},
        {"type": "resource", "resource": {"uri": "file:///b", "text": "embedded"}},
    ]
    [began] = of(f.TurnBegan, read(records([ask(3, "session/prompt", sessionId="s", prompt=blocks)])))
    assert began.prompt == "Look at file:///a.py and this:[image]embedded"


# -- tools


def test_a_tool_call_keeps_its_name_and_its_last_input() -> None:
    meta = {"claudeCode": {"toolName": "Bash"}}
    found = read(
        records(
            [
                prompt(3, "?"),
                tool("t", _meta=meta, rawInput={}, title="Terminal", status="pending"),
                tool("t", "tool_call_update", rawInput={"command": "ls"}, title="ls", content=[_text("a description")]),
                tool("t", "tool_call_update", _meta=meta),
                tool("t", "tool_call_update", status="failed", rawOutput={"output": "no", "metadata": {"exit": 2}}),
            ]
        )
    )
    call, result = [one for one in messages(found) if one.tool]
    assert call.tool == {"id": "t", "name": "Bash", "input": {"command": "ls"}}
    assert (result.role, result.text, result.tool) == ("tool", "no", {"id": "t", "name": "Bash", "error": True, "exit_code": 2})


def _text(text: str) -> dict[str, Any]:
    return {"type": "content", "content": {"type": "text", "text": text}}


def test_output_that_a_dead_agent_had_shown_so_far_is_kept_as_partial() -> None:
    said = [prompt(3, "?"), tool("t", title="bash"), tool("t", "tool_call_update", status="in_progress", content=[_text("12%")])]
    found = read([*records(said), closed()])
    assert [(one.text, one.mark) for one in messages(found) if one.role == "tool"] == [("12%", f.PARTIAL)]


# -- history told again


@pytest.mark.parametrize("answered", ["behind", "before", "between"])
def test_history_that_a_load_repeats_is_nothing_new_whenever_the_answer_comes(answered: str) -> None:
    """S19: 1 boundary, 0 compactions. Gemini answers first and tells then."""
    at = {"behind": len(REPLAY), "before": 0, "between": 4}[answered]
    second = [
        LOAD,
        *REPLAY[:at],
        answer(2),
        *REPLAY[at:],
        prompt(3, "continue"),
        chunk("Sure."),
        answer(3, stopReason="end_turn"),
    ]
    before = read(records(FIRST, "conn1"))
    found = [*before, *read(records(second, "conn2"))]
    assert messages(found)[: len(messages(before))] == messages(before)
    assert [one.text for one in messages(found)[len(messages(before)) :]] == ["continue", "Sure."]
    assert [one.reason for one in of(f.Boundary, found)] == ["load"]
    assert len(of(f.TurnBegan, found)) == 4


def test_a_loaded_session_that_nobody_knew_has_its_history_as_messages_and_loading_again_adds_none() -> None:
    once = read(records([LOAD, *REPLAY, answer(2)], "conn1"))
    again = read(records([LOAD, *REPLAY, answer(2)], "conn2"))
    assert [one.text for one in messages(once)] == [
        *("build it", "On it.", "", "Wall time 1 s\nok", "Done."),
        *("continue", "Yes.", "continue", "Yes."),
    ]
    assert [one.key for one in messages([*once, *again])] == [one.key for one in messages(once)]
    assert len(of(f.Boundary, [*once, *again])) == 2
    assert of(f.TurnBegan, once) == []


def test_a_call_that_hermes_repeats_under_another_id_stays_one() -> None:
    def call(native: str) -> list[Said]:
        shown = [_text("$ make")]
        return [
            tool(native, title="terminal: make", content=shown),
            tool(native, "tool_call_update", status="completed", content=[_text("ok")]),
        ]

    first = [prompt(3, "go"), *call("tc-1"), *call("tc-2"), answer(3, stopReason="end_turn")]
    second = [LOAD, chunk("go", "user_message"), *call("call_x"), *call("call_y"), answer(2), prompt(3, "more"), *call("tc-9")]
    found = [*read([opened("hermes"), *records(first, "conn1")]), *read([opened("hermes"), *records(second, "conn2")])]
    assert [(one.role, one.text) for one in messages(found)] == [
        *[("user", "go"), ("assistant", ""), ("tool", "ok"), ("assistant", ""), ("tool", "ok")],
        *[("user", "more"), ("assistant", ""), ("tool", "ok")],
    ]


def test_a_load_that_fails_is_no_boundary() -> None:
    failed: Said = ("a", {"jsonrpc": "2.0", "id": 2, "error": {"code": -32000, "message": "no such session"}})
    assert of(f.Boundary, read(records([LOAD, failed, prompt(3, "hm")]))) == []


def test_a_resumed_session_has_no_new_boundary() -> None:
    """S14: an agent that goes on with the same context says nothing new."""
    assert of(f.Boundary, read(records([ask(2, "session/resume", sessionId="s", cwd="/w"), answer(2)]))) == []


# -- compactions


def compaction(status: str, native: str = "k1", **more: Any) -> Said:
    return update("compaction_update", compactionId=native, status=status, **more)


def test_an_update_of_a_compaction_is_a_signal_with_its_id_and_its_summary() -> None:
    piece = update("compaction_summary_chunk", compactionId="k1", content={"type": "text", "text": "We built "})
    rest = update("compaction_summary_chunk", compactionId="k1", content={"type": "text", "text": "it."})
    said = [prompt(3, "?"), compaction("in_progress"), piece, compaction("in_progress"), rest, compaction("completed")]
    found = read(records(said))
    assert [(one.phase, one.id, one.historic) for one in of(f.Signal, found)] == [
        ("started", "k1", False),
        ("progress", "k1", False),
        ("completed", "k1", False),
    ]
    assert "".join(one.text for one in messages(found) if one.role == "summary") == "We built it."
    whole = compaction("completed", summary=[{"type": "text", "text": "All of it."}])
    found = read(records([prompt(3, "?"), compaction("in_progress"), piece, whole]))
    assert [(one.text, one.mark) for one in messages(found) if one.role == "summary"] == [("All of it.", "")]


def test_a_compaction_can_fail() -> None:
    found = read(records([compaction("in_progress"), compaction("failed", error="too long"), compaction("cancelled", "k2")]))
    assert [(one.phase, one.id, one.error) for one in of(f.Signal, found)] == [
        ("started", "k1", ""),
        ("failed", "k1", "too long"),
        ("cancelled", "k2", ""),
    ]


def test_a_compaction_in_history_is_history() -> None:
    """S21."""
    found = read(records([LOAD, chunk("build it", "user_message"), compaction("completed"), answer(2), prompt(3, "?")]))
    assert [(one.phase, one.historic) for one in of(f.Signal, found)] == [("completed", True)]


def provenance(depth: int, now: str = "s", naming: str = "currentHermesSessionId", **more: Any) -> dict[str, Any]:
    origin = {"acpSessionId": "s", naming: now, "rootHermesSessionId": "s", "compressionDepth": depth, **more}
    return {"hermes": {"sessionProvenance": origin, "compaction": {"lastMode": "split", "lastReason": "auto"}}}


@pytest.mark.parametrize("naming", ["hermesSessionId", "currentHermesSessionId"])
@pytest.mark.parametrize("inside", [True, False])
def test_hermes_reports_its_depth_in_two_places_and_under_two_names(naming: str, inside: bool) -> None:
    meta = provenance(2, "s3", naming, previousHermesSessionId="s2", reason="compression")
    side, frame = update("session_info_update")
    (frame["params"]["update"] if inside else frame["params"])["_meta"] = meta
    signals = of(f.Signal, read(records([prompt(3, "?"), (side, frame)])))
    learned, done = signals
    assert (learned.phase, learned.scope, learned.old_scope, learned.historic) == ("noop", "s2", "s", True)
    assert (done.source, done.phase, done.depth, done.scope, done.old_scope) == ("structured", "completed", 2, "s3", "s2")
    assert (done.reason, done.historic, bool(done.turn)) == ("compression", False, True)


@pytest.mark.parametrize("method", ["session/new", "session/load", "session/resume"])
def test_an_answer_states_the_depth_and_is_no_new_compaction(method: str) -> None:
    """S14."""
    found = read(records([ask(2, method, sessionId="s", cwd="/w"), answer(2, sessionId="s", _meta=provenance(3, "s4"))]))
    done = [one for one in of(f.Signal, found) if one.phase == "completed"]
    assert [(one.depth, one.historic) for one in done] == [(3, True)]


def test_a_session_that_was_never_compacted_says_so_without_a_compaction() -> None:
    meta = provenance(0)
    del meta["hermes"]["compaction"]
    found = read(records([ask(2, "session/new", cwd="/w"), answer(2, sessionId="s", _meta=meta)]))
    assert [one.phase for one in of(f.Signal, found)] == ["noop"]


def test_a_foreign_session_id_changes_nothing_here() -> None:
    """S26: in a frame, and in what it says about itself."""
    meta = provenance(5, "x9")
    meta["hermes"]["sessionProvenance"]["acpSessionId"] = "x"
    said = [prompt(3, "?"), chunk("a"), chunk("foreign", session="x"), compaction_of("x"), update("plan", _meta=meta), chunk("b")]
    found = read([opened(session="s"), *records(said)])
    assert of(f.Signal, found) == [] and of(f.Boundary, found) == []
    assert [one.text for one in messages(found)] == ["?", "a", "b"]
    assert len(of(f.UnknownRecord, found)) == 3


def compaction_of(session: str) -> Said:
    return update("compaction_update", session, compactionId="k", status="completed")


# -- stderr

STARTED = "context compression started: session=s messages=38 tokens=~180,694 model=x focus=none"
DONE = "context compression done: session=s messages=38->11 rough_tokens=~63,972 awaiting_real_usage=true"


@pytest.mark.parametrize(
    "prefix",
    [
        "",
        "INFO: ",
        "INFO ",
        "INFO:run_agent:",
        "2026-11-15 18:48:17,232 INFO [20261115_184817_ab12cd] agent.conversation_compression: ",
        "2026-11-15 18:48:17 [INFO] run_agent: ",
        "2026-11-15T18:48:17.232Z - agent.x - INFO - ",
        "18:48:17 agent.conversation_compression: ",
        "\x1b[32mINFO\x1b[0m     agent.x: ",
    ],
)
def test_hermes_log_lines_are_signals(prefix: str) -> None:
    started = acp_scraped.signal(prefix + STARTED, AT, "t")
    assert started == f.Signal("scraped", "started", AT, scope="s", before={"messages": 38, "tokens": 180694}, turn="t")
    done = acp_scraped.signal(prefix + DONE, AT, "")
    after = {"messages": 11, "tokens": 63972}
    assert done == f.Signal("scraped", "completed", AT, scope="s", before={"messages": 38}, after=after)


@pytest.mark.parametrize(
    "line",
    [
        f'INFO agent.x: the log said "{DONE}"',
        f"2026-11-15 18:48:17 [INFO] gateway: user message: {DONE}",
        f"user: {DONE}",
        f"assistant: {DONE}",
        f"INFO tool_executor: {DONE}",
        f"> {DONE}",
        f"grep found: {DONE}",
        f"[tool] {DONE}",
        f"2026-11-15 INFO {DONE}",
        "context compression done: nothing",
        "context compression done: session=s messages=38",
        "INFO agent.x: context compression done",
        "context compression started:",
    ],
)
def test_a_log_line_that_quotes_a_compaction_is_none(line: str) -> None:
    """S20."""
    assert read(records([prompt(3, "?"), ("e", line)])) == read(records([prompt(3, "?")]))


def test_a_compaction_that_changed_nothing_is_a_noop() -> None:
    """S16."""
    signal = acp_scraped.signal("context compression done: session=s messages=25→25 tokens=~9", AT, "")
    assert signal and signal.phase == "noop"


def test_a_subagents_line_names_the_subagents_session() -> None:
    """S15: whose it is, is in the scope; the fold tells it from the parent's."""
    [signal] = of(f.Signal, read(records([prompt(3, "?"), ("e", DONE.replace("session=s", "session=sub"))])))
    assert signal.scope == "sub"


def test_scraping_can_be_switched_off() -> None:
    assert read([opened(scrape=False), *records([("e", DONE)])]) == []


# -- what else comes


def test_unknown_and_newer_messages_are_counted_as_unknown_and_change_nothing() -> None:
    said: list[Said] = [
        prompt(3, "?"),
        update("hologram_update", data={"x": 1}),
        ("a", {"jsonrpc": "2.0", "method": "session/teleport", "params": {"sessionId": "s"}}),
        ("a", {"jsonrpc": "2.0", "id": 9, "method": "_vendor/ask", "params": {}}),
        ("a", {"jsonrpc": "2.0", "id": 77, "result": {"stopReason": "end_turn"}}),
        ("a", {"jsonrpc": "2.0", "method": "session/request_permission", "id": 0, "params": {"sessionId": "s"}}),
        ("c", {"jsonrpc": "2.0", "id": 0, "result": {"outcome": {"outcome": "selected", "optionId": "x"}}}),
        ("a", {"what": "is this"}),
        ("a", "Debugger attached."),
    ]
    found = read(records(said))
    kinds = ["update hologram_update", "method session/teleport", "method _vendor/ask", "frame"]
    assert [one.kind for one in of(f.UnknownRecord, found)] == kinds
    assert len(of(f.OddRecord, found)) == 1
    assert of(f.TurnSettled, found) == []


def test_a_batch_is_read_message_by_message() -> None:
    batch = json.dumps([chunk("a")[1], chunk("b")[1], 7, {"jsonrpc": "2.0", "id": 3, "result": {"stopReason": "end_turn"}}])
    found = read(records([prompt(3, "?"), ("a", batch)]))
    assert [one.text for one in messages(found)] == ["?", "ab"]
    assert [one.state for one in of(f.TurnSettled, found)] == ["completed"]


def test_titles_forks_closings_and_the_model_become_facts() -> None:
    found = read(
        [
            opened(parent="s0", version="1.2"),
            *records(
                [
                    ask(2, "session/resume", sessionId="s", cwd="/w"),
                    answer(2, models={"currentModelId": "big"}),
                    update("session_info_update", title="A title"),
                    update("session_info_update", title=None),
                    ask(4, "session/close", sessionId="s"),
                    answer(4),
                ]
            ),
        ]
    )
    assert of(f.Edge, found) == [f.Edge("fork", "s0", "ACP session/fork", AT)]
    assert of(f.SessionTitled, found) == [f.SessionTitled("A title")]
    assert of(f.SessionPlaced, found) == [f.SessionPlaced(version="1.2"), f.SessionPlaced(cwd="/w"), f.SessionPlaced(model="big")]
    assert of(f.SessionClosed, found) == [f.SessionClosed(AT, "session/close")]


# -- anything at all

STRANGE: Sequence[Any] = [None, True, 0, -1, 1e300, "", "x", "s", [], [[]], {}, {"type": "text"}, "\ud800", ["s"], {"s": []}]
ALL = [*FIRST, LOAD, *REPLAY, answer(2), compaction("in_progress"), compaction("completed", summary="x"), ("e", DONE)]
ALL += [update("session_info_update", _meta=provenance(2, "s3")), ask(9, "session/new", cwd="/w"), answer(9, sessionId="s")]


def broken(value: Any, chance: random.Random) -> Any:
    """The same with something else somewhere inside."""
    if chance.random() < 0.08:
        return chance.choice(STRANGE)
    if isinstance(value, dict):
        kept = {key: broken(inner, chance) for key, inner in value.items() if chance.random() > 0.04}
        return dict(chance.sample(list(kept.items()), len(kept)))
    if isinstance(value, list):
        return [broken(inner, chance) for inner in value]
    return value


def fuzz(seed: int, count: int) -> None:
    chance = random.Random(seed)
    state: dict[str, Any] = {}
    for n in range(count):
        side, what = chance.choice(ALL)
        if side == "e":
            what = "".join(chance.sample(what, len(what))) if chance.random() < 0.5 else what[chance.randrange(len(what)) :]
        elif chance.random() < 0.8:
            what = broken(what, chance)
            what = what if isinstance(what, dict) else json.dumps(what)[: chance.randrange(1, 200)]
        source = chance.choice([f"c#{n}", "c", "c#", "#", "c#99999999999999999999", "", f"c#{n}"])
        data, text = (what, "") if isinstance(what, dict) else (None, what)
        name = chance.choice(
            ["client", "agent", "agent", "", "opened", "closed"] if chance.random() < 0.1 else [SIDES.get(side, "")]
        )
        reader = acp.Reader(state)
        for fact in reader.read(Record("stderr" if side == "e" else "acp", data, text, name, source, AT)):
            assert isinstance(fact, f.Fact)
        state = json.loads(json.dumps(reader.state))
        assert len(json.dumps(state)) < 64_000


def test_nothing_that_a_frame_may_hold_stops_the_reader() -> None:
    fuzz(1, 500)


@pytest.mark.slow
def test_nothing_that_a_frame_may_hold_stops_the_reader_for_long() -> None:
    for seed in range(20):
        fuzz(seed, 1000)


def test_deep_and_huge_frames_do_not_stop_it() -> None:
    deep: Any = "x"
    for _ in range(900):
        deep = [deep]
    said: list[Said] = [
        prompt(3, "?"),
        tool("t", title="x", rawInput=deep),
        tool("t", "tool_call_update", status="completed", rawOutput=deep, content=deep),
        ("a", "[" * 100_000),
        ("a", {"jsonrpc": "2.0", "id": deep, "method": deep, "params": deep}),
        chunk("y" * 5_000_000),
    ]
    reader = acp.Reader({"agent": "hermes"})
    for record in records(said):
        list(reader.read(record))
