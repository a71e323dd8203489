"""One session heard on several channels: its transcript, its hooks, the tap. Each message once, each turn once, nothing lost."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from dreamkeep.event import Kind
from dreamkeep.session.raw import pack
from tests.helpers.channels import (
    FRAMES,
    HOOKS,
    SID,
    TRANSCRIPT,
    WORDS,
    Heard,
    assert_everything_once,
    chunk,
    line,
    prompt,
    rpc,
    tool,
    update,
)


@pytest.fixture
def heard(tmp_path: Path) -> Heard:
    return Heard(tmp_path / "keep")


@pytest.mark.parametrize("order", ["ft", "tf", "fh", "hf", "fth", "htf", "tfh", "hft"])
def test_a_session_on_several_channels_has_each_message_and_turn_once(order: str, heard: Heard) -> None:
    """ACP and file capture of one session give one session with each message once; so with hooks. T3: "continue" twice is two."""
    for channel in order:
        if channel == "f":
            heard.lines(*TRANSCRIPT)
        elif channel == "t":
            heard.frames(*FRAMES)
        else:
            heard.hooks(*HOOKS)
    assert_everything_once(heard)


@pytest.mark.parametrize("seed", range(25))
def test_channels_may_interleave_in_any_way(seed: int, tmp_path: Path) -> None:
    """Each channel in its own order, but mixed by chance, one record to a frame; bit by bit as well as from zero."""
    chance = random.Random(seed)
    heard = Heard(tmp_path / "keep")
    queues: list[list[Any]] = [
        [("lines", one) for one in TRANSCRIPT],
        [("frames", one) for one in FRAMES],
        [("hooks", one) for one in HOOKS],
    ]
    while any(queues):
        queue = chance.choice([q for q in queues if q])
        how, one = queue.pop(0)
        getattr(heard, how)(one)
        if chance.random() < 0.5:
            heard.shown()
    assert_everything_once(heard)
    followed = heard.shown()
    heard.keep.reindex(from_zero=True)
    assert heard.shown() == followed


def test_a_partial_answer_that_only_the_tap_saw_is_kept_and_marked(heard: Heard) -> None:
    heard.frames(*FRAMES[:4])  # the agent was killed while it said "There is "
    heard.lines(*TRANSCRIPT[:3])
    shown = heard.shown()
    assert [(m["text"], m["mark"]) for m in shown["messages"] if m.get("mark")] == [("There is ", "partial")]
    assert heard.words() == [("user", "continue"), ("assistant", "There is ")]


def test_a_partial_answer_gives_way_to_the_whole_one(heard: Heard) -> None:
    heard.frames(*FRAMES[:4])
    heard.lines(*TRANSCRIPT[:4])
    assert heard.words() == WORDS[:2]
    assert not any(m.get("mark") for m in heard.shown()["messages"])


def test_what_was_said_only_on_a_weak_channel_stays(heard: Heard) -> None:
    heard.lines(*TRANSCRIPT[:4])
    heard.hooks(*HOOKS)  # the transcript was lost before the second turn was in it
    assert sorted(heard.words()) == sorted(WORDS)
    assert [t["prompt"] for t in heard.shown()["turns"]] == ["continue", "continue"]


def test_compacted_messages_are_still_found_and_unknown_records_are_shown(heard: Heard) -> None:
    """S27 G5."""
    boundary = {
        **json.loads(line("system", "u7", "", 7)),
        "type": "system",
        "subtype": "compact_boundary",
        "compactMetadata": {"trigger": "auto", "preTokens": 100, "postTokens": 10},
    }
    summary = {**json.loads(line("user", "u8", "This is a summary.", 7)), "isCompactSummary": True}
    heard.lines(*TRANSCRIPT, json.dumps(boundary).encode(), json.dumps(summary).encode(), b'{"type":"never-seen","x":1}')
    heard.lines(line("user", "u9", "and now?", 9))
    shown = heard.shown()
    assert "There is a.txt." in [hit.text for hit in heard.keep.search("a.txt")]
    assert shown["unknown"] == {"never-seen": 1}
    assert (shown["session"]["segments"], shown["session"]["compactions"]) == (2, 1)
    first, second = shown["segments"]
    assert [m["segment"] for m in shown["messages"]] == [first["id"]] * 6 + [second["id"]] * 2
    assert [c["sources"] for c in shown["compactions"]] == [["transcript"]]


def test_tools_that_have_another_id_on_each_channel_are_paired_by_their_order_in_the_turn(tmp_path: Path) -> None:
    """Hermes says `tc-…` over ACP and `call_…` in its database."""

    def row(n: int, role: str, content: str, **more: Any) -> bytes:
        values = {
            "id": n,
            "session_id": SID,
            "role": role,
            "content": content,
            "timestamp": 1793527200.0 + n,
            "active": 1,
            **more,
        }
        return json.dumps({"table": "messages", "row": values}).encode()

    def call(n: int) -> str:
        return json.dumps([{"id": f"call_{n}", "function": {"name": "terminal", "arguments": '{"command": "ls"}'}}])

    rows = [
        row(1, "user", "twice, please"),
        row(2, "assistant", "", tool_calls=call(1)),
        row(3, "tool", '{"output": "a"}', tool_call_id="call_1", tool_name="terminal"),
        row(4, "assistant", "", tool_calls=call(2)),
        row(5, "tool", '{"output": "b"}', tool_call_id="call_2", tool_name="terminal"),
        row(6, "assistant", "Both done."),
    ]
    frames = [prompt(1, "twice, please")]
    for n in (1, 2):
        frames.append(update(sessionUpdate="tool_call", toolCallId=f"tc-{n}", title="terminal: ls", kind="execute"))
        done = [{"type": "content", "content": {"type": "text", "text": f"terminal result {n}"}}]
        frames.append(update(sessionUpdate="tool_call_update", toolCallId=f"tc-{n}", status="completed", content=done))
    frames += [chunk("Both done."), rpc("a", id=1, result={"stopReason": "end_turn"})]
    for order in ("rows first", "frames first"):
        heard = Heard(tmp_path / order, f"hermes:{SID}")
        told = [
            lambda heard=heard: heard.say(Kind.SOURCE_ROWS, pack({"source": "main-1", "role": "main"}, rows)),
            lambda heard=heard: heard.frames(*frames),
        ]
        for tell in told if order == "rows first" else reversed(told):
            tell()
        shown = heard.shown()
        assert [(m["role"], m["text"]) for m in shown["messages"] if m["role"] == "tool"] == [
            ("tool", '{"output": "a"}'),
            ("tool", '{"output": "b"}'),
        ], order
        assert [m["role"] for m in shown["messages"]].count("assistant") == 3
        assert len(shown["turns"]) == 1


def test_messages_between_those_that_hooks_reported_are_shown_between_them(heard: Heard) -> None:
    """Text before a tool call: no hook tells of it, and the transcript is read later."""
    looks = line("assistant", "u2", [{"type": "text", "text": "I will look first."}], 2, id="m1", stop_reason="tool_use")
    call = line("assistant", "u2b", tool("Bash", "toolu_1", {"command": "ls"}), 2, id="m1", stop_reason="tool_use")
    heard.hooks(*HOOKS)
    heard.lines(TRANSCRIPT[0], looks, call, *TRANSCRIPT[2:])
    shown = [m["text"] or "call" for m in heard.shown()["messages"]]
    assert shown == ["continue", "I will look first.", "call", "a.txt", "There is a.txt.", "continue", "Done."]
    heard.lines(line("user", "u9", "a turn that no hook told of", 9))
    assert heard.shown()["messages"][-1]["text"] == "a turn that no hook told of"


def test_a_session_that_was_there_before_its_hooks_keeps_its_order(heard: Heard) -> None:
    """As seen: hooks are installed, an old session is resumed, its transcript is read at the end of that turn."""
    before = [
        line("user", "o1", "the old prompt", 0),
        line("assistant", "o2", [{"type": "text", "text": "Long ago."}], 0, id="m0"),
    ]
    heard.hooks(*HOOKS[:4])
    heard.lines(*before, *TRANSCRIPT[:4])
    assert [m["text"] or "call" for m in heard.shown()["messages"]] == [
        "the old prompt",
        "Long ago.",
        "continue",
        "call",
        "a.txt",
        "There is a.txt.",
    ]
    assert [turn["prompt"] for turn in heard.shown()["turns"]] == ["the old prompt", "continue"]
    heard.hooks(*HOOKS[4:])
    heard.lines(*TRANSCRIPT[4:])
    assert heard.words() == [("user", "the old prompt"), ("assistant", "Long ago."), *WORDS]
    assert [turn["prompt"] for turn in heard.shown()["turns"]] == ["the old prompt", "continue", "continue"]


def test_what_only_the_tap_has_stays_behind_its_prompt_though_the_transcript_begins_with_more(heard: Heard) -> None:
    """As seen with Gemini: its file begins with a context that ACP does not tell, and lacks the answer that was cancelled."""
    context = json.loads(line("user", "u0", "The project's folder is …", 0)) | {"isMeta": True}
    heard.frames(FRAMES[0], chunk("It is a long"), rpc("a", id=1, result={"stopReason": "cancelled"}))
    heard.lines(json.dumps(context).encode(), TRANSCRIPT[0])
    assert [m["text"] for m in heard.shown()["messages"]] == ["The project's folder is …", "continue", "It is a long"]
    heard.frames(prompt(2, "continue"), chunk("Done."), rpc("a", id=2, result={"stopReason": "end_turn"}))
    heard.lines(*TRANSCRIPT[4:])
    assert [m["text"] for m in heard.shown()["messages"]][2:] == ["It is a long", "continue", "Done."]


def test_a_thought_is_one_with_and_without_stars_around_its_heading(tmp_path: Path) -> None:
    """Gemini CLI 0.61: `**Plan**` over ACP, subject and description in its file."""
    heard = Heard(tmp_path / "keep", f"gemini:{SID}")
    thought = update(sessionUpdate="agent_thought_chunk", content={"type": "text", "text": "**Plan**\nlook first"})
    heard.frames(prompt(1, "look"), thought, chunk("There."), rpc("a", id=1, result={"stopReason": "end_turn"}))
    at = {"timestamp": "2026-11-01T10:00:01.000Z"}
    heard.lines(
        json.dumps({"id": "1", "type": "user", "content": [{"text": "look"}], **at}).encode(),
        json.dumps(
            {
                "id": "2",
                "type": "gemini",
                "content": "There.",
                "thoughts": [{"subject": "Plan", "description": "look first"}],
                **at,
            }
        ).encode(),
    )
    assert [(m["role"], m["text"]) for m in heard.shown()["messages"]] == [
        ("user", "look"),
        ("reasoning", "Plan\nlook first"),
        ("assistant", "There."),
    ]


def test_going_back_takes_nothing_that_lies_before_though_it_came_later(tmp_path: Path) -> None:
    """The old turns were read after the hook had told of the new one, which is the one that is taken back."""
    heard = Heard(tmp_path / "keep", f"codex:{SID}")

    def record(kind: str, **payload: Any) -> bytes:
        return json.dumps({"timestamp": "2026-11-01T10:00:01.000Z", "type": kind, "payload": payload}).encode()

    def turn(id: str, prompt: str) -> list[bytes]:
        said = [{"type": "input_text", "text": prompt}]
        return [
            record("event_msg", type="task_started", turn_id=id),
            record("response_item", type="message", role="user", content=said),
            record("event_msg", type="user_message", message=prompt),
            record("event_msg", type="task_complete", turn_id=id, last_agent_message=""),
        ]

    heard.hooks(("UserPromptSubmit", {"prompt": "new", "turn_id": "t2"}), ("Stop", {"turn_id": "t2"}))
    heard.lines(record("session_meta", id=SID, cwd="/home/dev/shop"), *turn("t1", "old"), *turn("t2", "new"))
    heard.lines(record("event_msg", type="thread_rolled_back", num_turns=1))
    assert [(m["text"], m.get("mark")) for m in heard.shown()["messages"]] == [("old", None), ("new", "rewound")]


def test_what_a_transcript_has_behind_a_compaction_lies_in_the_segment_behind_it(heard: Heard) -> None:
    """As seen: the hooks' words of the next turn are journaled before the transcript with the boundary is read."""
    boundary = {
        "parentUuid": None,
        "type": "system",
        "subtype": "compact_boundary",
        "compactMetadata": {"trigger": "manual"},
        "uuid": "b1",
        "timestamp": "2026-11-01T10:00:04.500Z",
        "sessionId": SID,
    }
    summary = json.loads(line("user", "b2", "In short: there is a.txt.", 4)) | {"isCompactSummary": True}
    heard.hooks(*HOOKS[:4])
    heard.lines(*TRANSCRIPT[:4])
    heard.hooks(("PreCompact", {"trigger": "manual"}), ("PostCompact", {"trigger": "manual"}), *HOOKS[4:])
    heard.lines(json.dumps(boundary).encode(), json.dumps(summary).encode(), *TRANSCRIPT[4:])
    shown = heard.shown()
    found = [(m["text"] or "call", m["segment"].rpartition("#")[2]) for m in shown["messages"]]
    assert found[:4] == [(text, "1") for text in ("continue", "call", "a.txt", "There is a.txt.")]
    assert found[4:] == [(text, "2") for text in ("In short: there is a.txt.", "continue", "Done.")]
    assert [one["sources"] for one in shown["compactions"]] == [["transcript", "hook"]]


def test_a_hook_and_a_transcript_with_different_tool_ids_show_one_use(tmp_path: Path) -> None:
    """Qwen Code 0.15: its hooks say `toolu_…`, its transcript what the model said."""

    def record(kind: str, uuid: str, part: dict[str, Any], **more: Any) -> bytes:
        message = {"role": "model" if kind == "assistant" else "user", "parts": [part]}
        about = {"uuid": uuid, "timestamp": "2026-11-01T10:00:01.000Z", "sessionId": SID, "type": kind}
        return json.dumps(about | {"message": message} | more).encode()

    args = {"command": "ls", "is_background": False}
    answer = {"functionResponse": {"id": "call_7", "name": "run_shell_command", "response": {"output": "Output: a.txt"}}}
    heard = Heard(tmp_path / "keep", f"qwen:{SID}")
    tap = Heard(tmp_path / "tapped", f"qwen:{SID}")
    use = {"tool_name": "run_shell_command", "tool_input": args, "tool_use_id": "toolu_1794_x"}
    done = [{"type": "content", "content": {"type": "text", "text": "Output: a.txt"}}]
    tap.frames(
        prompt(1, "look"),
        update(sessionUpdate="tool_call", toolCallId="call_7", title="Shell: ls", kind="execute", rawInput=args),
        update(sessionUpdate="tool_call_update", toolCallId="call_7", status="completed", content=done),
        chunk("There."),
        rpc("a", id=1, result={"stopReason": "end_turn"}),
    )
    hooks: list[tuple[str, dict[str, Any]]] = [
        ("UserPromptSubmit", {"prompt": "look"}),
        ("PostToolUse", use | {"tool_response": {"llmContent": "Output: a.txt", "returnDisplay": "a.txt"}}),
        ("UserPromptSubmit", {"prompt": ""}),
        ("Stop", {"last_assistant_message": "There."}),
    ]
    lines = [
        record("user", "u1", {"text": "look"}),
        record("assistant", "u2", {"functionCall": {"id": "call_7", "name": "run_shell_command", "args": args}}),
        record("tool_result", "u3", answer, toolCallResult={"callId": "call_7", "status": "success"}),
        record("assistant", "u4", {"text": "There."}),
    ]
    for one in (heard, tap):
        one.hooks(*hooks)
        one.lines(*lines)
        shown = one.shown()["messages"]
        assert [(m["role"], m["text"]) for m in shown] == [
            ("user", "look"),
            ("assistant", ""),
            ("tool", "Output: a.txt"),
            ("assistant", "There."),
        ]
        assert {m["tool"]["id"] for m in shown if m.get("tool")} == {"call_7"}


def test_a_session_that_ended_stays_so_when_its_turns_are_only_read_late(heard: Heard) -> None:
    """A client that was ended by a signal: its last hook and its transcript come together."""
    heard.hooks(*HOOKS[:2])
    heard.hooks(("SessionEnd", {"reason": "other"}))
    heard.say(Kind.SESSION_ENDED, {"captured": 1})
    heard.lines(*TRANSCRIPT)
    assert heard.shown()["session"]["state"] == "ended"


def test_our_own_pack_is_marked_wherever_an_agent_puts_it(heard: Heard) -> None:
    """D33: what was recalled is never learned again; a prompt that quotes a pack is still a prompt."""
    pack = "<!-- dreamkeep:pack 1 -->\nUse tabs."
    attached = {"type": "hook_additional_context", "content": [f"before: {pack}"], "hookName": "SessionStart"}
    told = {**json.loads(line("user", "h1", "", 0)), "type": "attachment", "attachment": attached}
    heard.lines(json.dumps(told).encode(), line("user", "u1", f"what is this? {pack}", 1))
    heard.hooks(("UserPromptSubmit", {"prompt": "go on"}))
    marks = {m["text"][:6]: m.get("mark", "") for m in heard.shown()["messages"]}
    assert marks == {"before": "injected", "what i": "", "go on": ""}
