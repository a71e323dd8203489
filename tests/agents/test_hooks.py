"""What hooks say of a session, agent by agent, in the forms that were really seen."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from dreamkeep.agents.facts import (
    Boundary,
    Fact,
    MessageSaid,
    OddRecord,
    Record,
    SessionClosed,
    SessionPlaced,
    SessionTitled,
    Signal,
    TurnBegan,
    TurnSettled,
    UnknownRecord,
)
from dreamkeep.agents.registry import reader_for
from dreamkeep.agents.shared.hooks import Reader, meaning

AT = "2026-11-15T18:52:55.000000Z"
Calls = Iterable[tuple[str, Mapping[str, Any]]]


def read(calls: Calls, *, agent: str = "claude") -> list[Fact]:
    """All facts; with the state sent through JSON between every two records, as an index that stops and goes on does."""
    calls = list(calls)
    once = reader_for(agent, "hook", {})
    facts: list[Fact] = []
    state: dict[str, Any] = {}
    again: list[Fact] = []
    for n, (event, data) in enumerate(calls):
        record = Record("hook", data, "", event, "main", f"2026-11-15T18:52:{n:02d}.000000Z")
        facts += once.read(record)
        reader = Reader(json.loads(json.dumps(state)))
        again += reader.read(record)
        state = reader.state
    assert facts == again
    return facts


def of(kind: type, facts: Iterable[Fact]) -> list[Any]:
    """Facts of a kind; of messages with one key the last, in the place of the first."""
    found = [fact for fact in facts if isinstance(fact, kind)]
    return list({fact.key: fact for fact in found if isinstance(fact, MessageSaid)}.values()) if kind is MessageSaid else found


def one(event: str, **data: Any) -> list[Fact]:
    return read([(event, data)])


COMMON = {"session_id": "s1", "transcript_path": "/home/dev/.x/s1.jsonl", "cwd": "/home/dev/work"}


def claude(event: str, prompt_id: str = "p1", **data: Any) -> tuple[str, dict[str, Any]]:
    return event, {**COMMON, "hook_event_name": event, "prompt_id": prompt_id, **data}


CLAUDE = [
    ("SessionStart", {**COMMON, "hook_event_name": "SessionStart", "source": "startup", "model": "m1"}),
    claude("UserPromptSubmit", prompt="Fix the build"),
    claude("PreToolUse", tool_name="Bash", tool_input={"command": "make"}, tool_use_id="t1"),
    claude(
        "PostToolUse",
        tool_name="Bash",
        tool_input={"command": "make"},
        tool_response={"stdout": "ok", "stderr": ""},
        tool_use_id="t1",
    ),
    claude("PreToolUse", tool_name="Read", tool_input={}, tool_use_id="sub1", agent_id="a1", agent_type="explore"),
    claude("SubagentStop", agent_id="a1", agent_type="explore", last_assistant_message="I looked."),
    claude("Stop", stop_hook_active=False, last_assistant_message="Done."),
    claude("PreCompact", "p2", trigger="manual", custom_instructions="keep it"),
    claude("SubagentStop", "p2", agent_id="a2", agent_type="", last_assistant_message="<summary>…</summary>"),
    claude("SessionStart", "p2", source="compact"),
    claude("PostCompact", "p2", trigger="manual", compact_summary="<summary>…</summary>"),
    claude("SessionEnd", "p2", reason="other"),
    ("SessionStart", {**COMMON, "source": "resume"}),
    claude("UserPromptSubmit", "p3", prompt="Fix the build"),
]


def test_hooks_alone_show_a_claude_session() -> None:
    facts = read(CLAUDE)
    assert [(b.turn, b.prompt) for b in of(TurnBegan, facts)] == [("p1", "Fix the build"), ("p3", "Fix the build")]
    assert [(s.turn, s.state) for s in of(TurnSettled, facts)] == [("p1", "completed")]
    said = [(s.role, s.text, s.turn, (s.tool or {}).get("id")) for s in of(MessageSaid, facts)]
    assert said == [
        ("user", "Fix the build", "p1", None),
        ("assistant", "", "p1", "t1"),
        ("tool", "ok", "p1", "t1"),
        ("assistant", "Done.", "p1", None),
        ("user", "Fix the build", "p3", None),
    ]
    assert of(SessionPlaced, facts)[0] == SessionPlaced("/home/dev/work", "", "m1")
    assert [c.reason for c in of(SessionClosed, facts)] == ["other"]
    assert not of(UnknownRecord, facts) and not of(OddRecord, facts) and not of(Boundary, facts)


def test_a_compaction_is_one_started_and_one_completed_signal_and_the_start_between_is_only_a_sign_of_life() -> None:
    """G2; Observed: SessionStart{compact} comes before PostCompact, SubagentStop for the compaction itself."""
    signals = of(Signal, read(CLAUDE))
    assert [(s.source, s.phase, s.reason, s.turn) for s in signals] == [
        ("hook", "started", "manual", "p2"),
        ("hook", "progress", "", "p2"),
        ("hook", "completed", "manual", "p2"),
    ]


def test_a_subagents_calls_and_answers_are_not_the_sessions_own() -> None:
    calls = [c for c in CLAUDE if c[1].get("agent_id")]
    assert len(calls) == 3 and read(calls) == []


def test_identical_prompts_are_two_turns_also_where_the_agent_names_none() -> None:
    """T3"""
    again = [("BeforeAgent", {"session_id": "g", "prompt": "continue"})] * 2
    began = of(TurnBegan, read(again, agent="gemini"))
    assert len({b.turn for b in began}) == len({b.key for b in began}) == 2


def test_the_same_call_read_again_has_the_same_keys() -> None:
    """W14"""
    for event, data in CLAUDE:
        assert one(event, **data) == one(event, **data)


def test_an_empty_prompt_is_no_turn() -> None:
    """Observed: Qwen fires UserPromptSubmit again, with prompt "", after every tool result."""
    for prompt in ("", "  \n", None, 7):
        assert one("UserPromptSubmit", session_id="q", prompt=prompt) == []


def test_gemini_announces_no_compaction_and_its_garbled_answer_is_not_shown() -> None:
    """Observed: PreCompress fires before every model request."""
    context = "<hook_context>the user prefers tabs</hook_context>\n\n"
    moment = "2026-11-15T18:52:55.100Z"
    facts = read(
        [
            ("SessionStart", {**COMMON, "timestamp": moment, "source": "startup"}),
            ("BeforeAgent", {**COMMON, "timestamp": moment, "prompt": f"{context}do it <b>now</b>"}),
            ("PreCompress", {**COMMON, "timestamp": moment, "trigger": "auto"}),
            ("BeforeModel", {**COMMON, "timestamp": moment}),
            ("BeforeTool", {**COMMON, "tool_name": "run_shell_command", "tool_input": {"command": "ls"}}),
            ("AfterTool", {**COMMON, "tool_name": "run_shell_command", "tool_response": {"llmContent": "x"}}),
            ("AfterAgent", {**COMMON, "prompt": f"{context}do it", "prompt_response": "after compact compact "}),
            ("SessionEnd", {**COMMON, "timestamp": moment, "reason": "exit"}),
        ],
        agent="gemini",
    )
    assert of(Signal, facts) == []
    [began] = of(TurnBegan, facts)
    assert (began.prompt, began.at) == ("do it <b>now</b>", "2026-11-15T18:52:55.100000Z")
    assert [(s.text, s.mark) for s in of(MessageSaid, facts)] == [("do it <b>now</b>", "")]
    assert [s.state for s in of(TurnSettled, facts)] == ["completed"]
    assert [c.reason for c in of(SessionClosed, facts)] == ["exit"]


def test_codex_turns_have_their_own_ids_and_its_tools_answer_in_many_forms() -> None:
    call = {"session_id": "c", "turn_id": "01a", "model": "m", "tool_use_id": "call_1", "tool_name": "Bash"}
    [plain] = of(MessageSaid, one("PostToolUse", **call, tool_response="hello\n"))
    assert (plain.text, plain.turn, plain.tool) == ("hello\n", "01a", {"id": "call_1", "name": "Bash"})
    mcp = {"content": [{"type": "text", "text": "memo"}, {"type": "image", "data": "…"}], "isError": True}
    [memo] = of(MessageSaid, one("PostToolUse", **call, tool_response=mcp))
    assert memo.text == "memo\n[image]" and memo.tool["error"] is True
    [other] = of(MessageSaid, one("PostToolUse", **call, tool_response={"matches": ["ü"]}))
    assert other.text == '{"matches": ["ü"]}'
    assert [s.state for s in of(TurnSettled, one("Interrupt", session_id="c", turn_id="01a"))] == ["interrupted"]
    assert [s.turn for s in of(Signal, one("PreCompact", session_id="c", turn_id="01b", trigger="auto"))] == ["01b"]


def test_a_result_shows_its_call_if_only_the_hook_after_it_is_installed() -> None:
    facts = of(MessageSaid, read([call for call in CLAUDE if call[0] != "PreToolUse"]))
    assert [s.key for s in facts] == [s.key for s in of(MessageSaid, read(CLAUDE))]
    assert [(s.role, (s.tool or {}).get("input")) for s in facts[1:3]] == [("assistant", {"command": "make"}), ("tool", None)]


def test_a_hermes_turn_is_settled_by_its_end_and_only_finalize_closes_the_session() -> None:
    """Observed: on_session_end fires per turn."""
    extra = {"turn_id": "s:t:1", "task_id": "t"}
    facts = read(
        [
            ("on_session_start", {"session_id": "h", "cwd": "/w", "extra": {"model": "m"}}),
            ("pre_llm_call", {"session_id": "h", "extra": {**extra, "user_message": "why?", "conversation_history": []}}),
            ("pre_tool_call", {"tool_name": "terminal", "tool_input": {"c": 1}, "extra": {**extra, "tool_call_id": "c1"}}),
            (
                "post_tool_call",
                {
                    "tool_name": "terminal",
                    "extra": {**extra, "tool_call_id": "c1", "result": '{"output": "x"}', "status": "error"},
                },
            ),
            ("post_llm_call", {"session_id": "h", "extra": {**extra, "user_message": "why?", "assistant_response": "Because."}}),
            ("on_session_end", {"session_id": "h", "extra": {**extra, "completed": True, "interrupted": False}}),
            ("on_session_end", {"session_id": "h", "extra": {**extra, "completed": False, "interrupted": True}}),
            ("on_session_end", {"session_id": "h", "extra": {**extra, "completed": False, "interrupted": False}}),
            ("on_session_finalize", {"session_id": "h", "extra": {"reason": "shutdown"}}),
        ],
        agent="hermes",
    )
    assert [b.turn for b in of(TurnBegan, facts)] == ["s:t:1"]
    assert [(s.role, s.text) for s in of(MessageSaid, facts)] == [
        ("user", "why?"),
        ("assistant", ""),
        ("tool", '{"output": "x"}'),
        ("assistant", "Because."),
    ]
    assert of(MessageSaid, facts)[2].tool == {"id": "c1", "name": "terminal", "error": True}
    assert [s.state for s in of(TurnSettled, facts)] == ["completed", "interrupted", "failed"]
    assert [c.reason for c in of(SessionClosed, facts)] == ["shutdown"]


def test_opencodes_plugin_events_are_understood() -> None:
    part = {"type": "text", "text": "do it", "messageID": "msg_1", "sessionID": "ses"}
    facts = read(
        [
            (
                "event:session.created",
                {"sessionID": "ses", "info": {"directory": "/w", "title": "New session - 2026", "version": "1"}},
            ),
            ("chat.message", {"input": {"sessionID": "ses"}, "parts": [{"type": "file"}, part]}),
            ("tool.execute.before", {"input": {"tool": "bash", "sessionID": "ses", "callID": "c"}, "args": {"command": "ls"}}),
            (
                "tool.execute.after",
                {"input": {"tool": "bash", "callID": "c"}, "output": {"output": "x\n", "metadata": {"exit": 1}}},
            ),
            ("event_session.updated", {"sessionID": "ses", "info": {"title": "A title"}}),
            ("session.compacting", {"input": {"sessionID": "ses"}}),
            ("event:session.compacted", {"sessionID": "ses"}),
            ("event:session.idle", {"sessionID": "ses"}),
        ],
        agent="opencode",
    )
    assert [(b.turn, b.prompt) for b in of(TurnBegan, facts)] == [("msg_1", "do it")]
    assert of(MessageSaid, facts)[-1].tool == {"id": "c", "name": "bash", "exit_code": 1}
    assert [t.title for t in of(SessionTitled, facts)] == ["A title"]
    assert [s.phase for s in of(Signal, facts)] == ["started", "completed"]
    assert len(of(TurnSettled, facts)) == 1 and of(SessionPlaced, facts)[0].cwd == "/w"


def test_copilots_camel_case_is_understood() -> None:
    facts = read(
        [
            ("sessionStart", {"sessionId": "x", "timestamp": 1794768701283, "cwd": "/w", "source": "new"}),
            ("userPromptSubmitted", {"sessionId": "x", "timestamp": 1794768702283, "cwd": "/w", "prompt": "go"}),
            ("preToolUse", {"sessionId": "x", "toolName": "bash", "toolArgs": "{}"}),
            ("agentStop", {"sessionId": "x", "transcriptPath": "/t", "stopReason": "end_turn"}),
            ("sessionEnd", {"sessionId": "x", "reason": "complete"}),
        ],
        agent="copilot",
    )
    assert [b.at for b in of(TurnBegan, facts)] == ["2026-11-15T18:51:42.283000Z"]
    assert len(of(MessageSaid, facts)) == 1, "a tool without an id could not be paired with the transcript's"
    assert len(of(TurnSettled, facts)) == 1 and of(SessionClosed, facts)[0].reason == "complete"


def test_a_clear_in_the_middle_is_a_boundary_and_at_the_beginning_is_none() -> None:
    clear = ("SessionStart", {**COMMON, "source": "clear"})
    prompt = ("UserPromptSubmit", {**COMMON, "prompt": "x"})
    assert of(Boundary, read([clear, prompt])) == []
    assert [b.reason for b in of(Boundary, read([prompt, clear]))] == ["clear"]


def test_what_is_no_object_is_odd_and_what_nobody_knows_is_unknown() -> None:
    assert [type(f) for f in Reader({}).read(Record("hook", None, "garbage", "Stop", at=AT))] == [OddRecord]
    assert Reader({}).read(Record("hook", {}, "", "BrandNew", at=AT)) == [UnknownRecord("hook BrandNew")]
    assert Reader({}).read(Record("hook", {"hook_event_name": "SessionEnd"}, at=AT)) == [SessionClosed(AT, "")]


@pytest.mark.parametrize("event", ["Stop", "stop", "on_session_end", "event:session.idle", "event_session.idle", "PRE_TOOL_USE"])
def test_names_are_known_in_every_spelling(event: str) -> None:
    assert meaning(event)


def _anything(chance: random.Random, depth: int = 0) -> Any:
    leaves = ["", "x", "\ud800", 7, -1, 1e308, float("nan"), None, True, "2026-11-15T18:52:55Z", "a" * 100, 10**30]
    kind = chance.randrange(4 if depth < 4 else 2)
    if kind == 2:
        return [_anything(chance, depth + 1) for _ in range(chance.randrange(4))]
    if kind == 3:
        return {chance.choice(KEYS): _anything(chance, depth + 1) for _ in range(chance.randrange(5))}
    return chance.choice(leaves)


WORDS = """
session_id prompt prompt_id turn_id extra info input parts tool_input tool_response tool_use_id tool_name last_assistant_message
source trigger reason error timestamp content output stdout text type metadata exit agent_id user_message callID args title
"""
KEYS = WORDS.split()
EVENTS = [event for event, _ in CLAUDE] + [
    "pre_llm_call",
    "post_tool_call",
    "on_session_end",
    "chat.message",
    "tool.execute.after",
    "?",
]


@pytest.mark.parametrize("rounds", [500, pytest.param(10_000, marks=pytest.mark.slow)])
def test_no_payload_makes_the_reader_raise(rounds: int) -> None:
    chance = random.Random(rounds)
    reader = Reader({})
    for _ in range(rounds):
        data = {key: _anything(chance) for key in chance.sample(KEYS, 8)}
        for fact in reader.read(Record("hook", data, "", chance.choice(EVENTS), at=AT)):
            if isinstance(fact, MessageSaid):
                assert isinstance(fact.text, str) and isinstance(fact.key, str) and fact.key
    assert len(json.dumps(reader.state)) < 100


def test_deep_nesting_does_not_make_the_reader_raise() -> None:
    deep: Any = {}
    for _ in range(5000):
        deep = {"content": [deep], "x": deep} if _ % 2 else [deep]
    for event in EVENTS:
        one_of = {"tool_response": deep, "parts": deep, "extra": deep, "tool_use_id": "t", "prompt": deep, "error": deep}
        Reader({}).read(Record("hook", one_of, "", event, at=AT))
