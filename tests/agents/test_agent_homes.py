"""Small homes in the forms that agents describe, end to end."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import apsw
import pytest
import zstandard

from dreamkeep import Keep
from tests.agents import goose as goose_home

Shown = dict[str, Any]
Json = dict[str, Any]


def write(path: Path, records: Iterable[Json]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(one) + "\n" for one in records))
    return path


def shown(tmp_path: Path, agent: str, session: str) -> Shown:
    with Keep.open(tmp_path / "keep") as keep:
        assert [one.problem for one in keep.ingest(home=tmp_path / "home", agents=[agent]) if one.problem] == []
        return keep.show(f"{agent}:{session}")


def turns(show: Shown) -> list[tuple[str, str]]:
    return [(one["prompt"], one["state"]) for one in show["turns"]]


def said(show: Shown, *roles: str) -> list[tuple[str, str]]:
    wanted = roles or ("user", "assistant", "summary")
    return [(one["text"], one.get("mark") or "") for one in show["messages"] if one["role"] in wanted and one["text"]]


def results(show: Shown) -> list[Json]:
    return [one["tool"] for one in show["messages"] if one["role"] == "tool"]


# -- Copilot


def copilot(tmp_path: Path, *events: tuple[str, Json]) -> Shown:
    made = [
        {"type": kind, "data": data, "id": f"e{n}", "timestamp": f"2026-11-01T10:00:{n:02d}.000Z", "parentId": f"e{n - 1}"}
        for n, (kind, data) in enumerate((("session.start", {"sessionId": "c", "context": {"cwd": "/w"}}), *events))
    ]
    write(tmp_path / "home/.copilot/session-state/c/events.jsonl", made)
    return shown(tmp_path, "copilot", "c")


def test_copilot_an_answer_without_tool_requests_ends_the_turn_where_no_turn_end_is_written(tmp_path: Path) -> None:
    show = copilot(
        tmp_path,
        ("user.message", {"content": "one"}),
        ("assistant.message", {"content": "I look", "toolRequests": [{"toolCallId": "t", "name": "bash", "arguments": {}}]}),
        ("tool.execution_start", {"toolCallId": "t", "toolName": "bash", "arguments": {}}),
        ("tool.execution_complete", {"toolCallId": "t", "success": True, "result": {"content": "x"}}),
        ("assistant.message", {"content": "done", "toolRequests": []}),
        ("session.shutdown", {"shutdownType": "routine"}),
    )
    assert turns(show) == [("one", "completed")]


@pytest.mark.parametrize("ending", ["<exited with exit code 2>", "<shellId: 0 completed with exit code 2>"])
def test_copilot_a_shell_command_that_failed_is_an_error_with_its_exit_code(tmp_path: Path, ending: str) -> None:
    show = copilot(
        tmp_path,
        ("user.message", {"content": "one"}),
        ("tool.execution_start", {"toolCallId": "t", "toolName": "bash", "arguments": {"command": "ls x"}}),
        ("tool.execution_complete", {"toolCallId": "t", "success": True, "result": {"content": f"no such file\n{ending}"}}),
    )
    [result] = results(show)
    assert (result["error"], result.get("exit_code")) == (True, 2)


def test_copilot_a_compaction_that_the_end_of_the_process_cancelled_does_not_count(tmp_path: Path) -> None:
    show = copilot(
        tmp_path,
        ("user.message", {"content": "one"}),
        ("session.compaction_start", {}),
        ("session.compaction_complete", {"success": False, "outcome": "cancelled"}),
    )
    assert [(one["state"], one["counted"]) for one in show["compactions"]] == [("cancelled", False)]
    assert len(show["segments"]) == 1


# -- Goose


@pytest.mark.parametrize("manual", [False, True])
def test_goose_a_compaction_is_found_whatever_the_words_of_the_note_behind_the_summary(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, manual: bool
) -> None:
    monkeypatch.setattr(goose_home, "AUTO", "Your context was compacted. The previous message contains a summary.")
    monkeypatch.setattr(goose_home, "MANUAL", "Your context was compacted at the user's request. The previous message is it.")
    goose = goose_home.Goose(tmp_path / "home/.local/share/goose/sessions/sessions.db")
    session = goose.session("20261101_1")
    goose.ask(session, "first")
    goose.answer(session, "answer")
    goose.ask(session, "second")
    goose.call(session, "c1", "developer__shell", {"command": "ls"}, "out")
    goose.compact(session, "What was said so far", manual=manual)
    goose.close()
    show = shown(tmp_path, "goose", session)
    assert [(one["state"], one["reason"]) for one in show["compactions"]] == [("completed", "manual" if manual else "auto")]
    assert turns(show) == [("first", "completed"), ("second", "open")]
    assert [mark for words, mark in said(show) if words.startswith("Your context")] == ["meta"]


# -- Kimi


def kimi(tmp_path: Path, *records: Json) -> Shown:
    head = {"type": "metadata", "protocol_version": "1.4", "created_at": 1_793_520_000_000}
    timed = [{**one, "time": 1_793_520_000_000 + 1000 * n} for n, one in enumerate(records, 1)]
    write(tmp_path / "home/.kimi-code/sessions/wd_w/session_1/agents/main/wire.jsonl", [head, *timed])
    return shown(tmp_path, "kimi", "session_1")


def kimi_asked(words: str) -> Json:
    message = {"role": "user", "content": [{"type": "text", "text": words}], "toolCalls": [], "origin": {"kind": "user"}}
    return {"type": "context.append_message", "message": message}


def kimi_loop(kind: str, **event: Any) -> Json:
    return {"type": "context.append_loop_event", "event": {"type": kind, **event}}


KIMI_PARTS_WITHOUT_IDS = (
    kimi_asked("one"),
    kimi_loop("step.begin", uuid="s1"),
    kimi_loop("content.part", part={"type": "text", "text": "first answer"}),
    kimi_loop("step.end", uuid="s1"),
    kimi_asked("two"),
    kimi_loop("step.begin", uuid="s2"),
    kimi_loop("content.part", part={"type": "text", "text": "second answer"}),
    kimi_loop("step.end", uuid="s2"),
)


def test_kimi_parts_that_name_no_step_belong_to_the_step_that_began_and_none_is_lost(tmp_path: Path) -> None:
    show = kimi(tmp_path, *KIMI_PARTS_WITHOUT_IDS)
    assert said(show, "assistant") == [("first answer", ""), ("second answer", "")]


def test_kimi_a_users_message_without_turn_prompt_begins_a_turn(tmp_path: Path) -> None:
    show = kimi(tmp_path, *KIMI_PARTS_WITHOUT_IDS)
    assert [prompt for prompt, _ in turns(show)] == ["one", "two"]


# -- Qwen


def qwen(tmp_path: Path, *records: Json) -> Shown:
    made = [
        {
            "uuid": f"r{n}",
            "parentUuid": f"r{n - 1}" if n else None,
            "sessionId": "q",
            "cwd": "/w",
            "timestamp": f"2026-11-01T10:00:{n:02d}.000Z",
            **one,
        }
        for n, one in enumerate(records)
    ]
    write(tmp_path / "home/.qwen/projects/-w/chats/q.jsonl", made)
    return shown(tmp_path, "qwen", "q")


def qwen_said(kind: str, *parts: Json) -> Json:
    return {"type": kind, "message": {"role": "model" if kind == "assistant" else "user", "parts": list(parts)}}


def test_qwen_words_that_a_call_follows_were_not_the_last(tmp_path: Path) -> None:
    show = qwen(
        tmp_path,
        qwen_said("user", {"text": "one"}),
        qwen_said("assistant", {"text": "Let me see."}),
        qwen_said("assistant", {"functionCall": {"id": "c", "name": "read_file", "args": {}}}),
    )
    assert turns(show) == [("one", "open")]


def test_qwen_a_compression_that_failed_by_number_does_not_count(tmp_path: Path) -> None:
    info = {"originalTokenCount": 1000, "newTokenCount": 1100, "compressionStatus": 2}
    payload = {"info": info, "compressedHistory": []}
    show = qwen(
        tmp_path,
        qwen_said("user", {"text": "one"}),
        {"type": "system", "subtype": "chat_compression", "systemPayload": payload},
    )
    assert [one["state"] for one in show["compactions"]] == ["failed"]


def qwen_command(phase: str, command: str) -> Json:
    return {"type": "system", "subtype": "slash_command", "systemPayload": {"phase": phase, "rawCommand": command}}


QWEN_ASKED = qwen_command("invocation", "/compress keep the plan")
QWEN_DONE = qwen_command("result", "/compress keep the plan")


@pytest.mark.parametrize(
    ("before", "behind", "reason"),
    [
        ([QWEN_ASKED], [QWEN_DONE], "manual"),
        ([], [QWEN_ASKED, QWEN_DONE], "manual"),  # as the client's source writes it: when the command is done
        ([], [], ""),
        ([QWEN_ASKED, QWEN_DONE], [], ""),  # that one did nothing
        ([QWEN_ASKED, qwen_said("user", {"text": "two"})], [], ""),
        ([], [qwen_said("assistant", {"text": "go on"}), QWEN_ASKED, QWEN_DONE], ""),
    ],
)
def test_qwen_a_compression_that_the_user_asked_for_is_manual(
    tmp_path: Path, before: list[Json], behind: list[Json], reason: str
) -> None:
    info = {"originalTokenCount": 1000, "newTokenCount": 100, "compressionStatus": 1}
    summary = [
        {"role": "user", "parts": [{"text": "So far"}]},
        {"role": "model", "parts": [{"text": "Got it. Thanks for the additional context!"}]},
    ]
    show = qwen(
        tmp_path,
        qwen_said("user", {"text": "one"}),
        qwen_said("assistant", {"text": "done"}),
        *before,
        {"type": "system", "subtype": "chat_compression", "systemPayload": {"info": info, "compressedHistory": summary}},
        *behind,
    )
    assert [(one["reason"] or "", one["counted"]) for one in show["compactions"]] == [(reason, True)]


@pytest.mark.parametrize("inside", [True, False])
def test_qwen_a_result_without_function_response_is_a_result(tmp_path: Path, inside: bool) -> None:
    told: Json = {"name": "run_shell_command", "callId": "c", "status": "error"}
    told |= {} if inside else {"result": "it broke"}
    record = {"type": "tool_result", "toolCallResult": told}
    record |= {"message": {"role": "tool", "parts": [{"text": "it broke"}]}} if inside else {}
    show = qwen(
        tmp_path,
        qwen_said("user", {"text": "one"}),
        qwen_said("assistant", {"functionCall": {"id": "c", "name": "run_shell_command", "args": {}}}),
        record,
    )
    assert [(one["text"], one["tool"]["id"], one["tool"]["error"]) for one in show["messages"] if one["role"] == "tool"] == [
        ("it broke", "c", True)
    ]


# -- Gemini


def gemini_message(key: str, kind: str, content: Any, at: int, **more: Any) -> Json:
    return {"id": key, "timestamp": f"2026-11-01T10:{at // 60:02d}:{at % 60:02d}.000Z", "type": kind, "content": content, **more}


GEMINI_HEAD = {"sessionId": "aaaaaaaa-1", "projectHash": "f", "startTime": "2026-11-01T10:00:00.000Z", "kind": "main"}
GEMINI_TALK = [
    gemini_message("u1", "user", [{"text": "one"}], 1),
    gemini_message("g1", "gemini", "answer one", 2),
    gemini_message("u2", "user", [{"text": "two"}], 3),
    gemini_message("g2", "gemini", "answer two", 4),
]


def gemini(tmp_path: Path, *records: Json) -> Shown:
    path = tmp_path / "home/.gemini/tmp/shop/chats/session-2026-11-01T10-00-aaaaaaaa.jsonl"
    write(path, [GEMINI_HEAD, *records])
    return shown(tmp_path, "gemini", "aaaaaaaa-1")


def test_gemini_a_rewind_takes_back_the_message_and_all_behind_it(tmp_path: Path) -> None:
    show = gemini(tmp_path, *GEMINI_TALK, {"$rewindTo": "u2"}, gemini_message("u3", "user", [{"text": "three"}], 9))
    assert [mark for _, mark in said(show)] == ["", "", "rewound", "rewound", ""]


def test_gemini_a_rewind_to_an_unknown_id_takes_everything_back(tmp_path: Path) -> None:
    show = gemini(tmp_path, *GEMINI_TALK, {"$rewindTo": "nobody"}, gemini_message("u3", "user", [{"text": "three"}], 9))
    assert [mark for _, mark in said(show)] == ["rewound"] * 4 + [""]


@pytest.mark.parametrize("thoughts", [[], [{"subject": "Reading", "description": "I look."}]])
def test_gemini_a_rewind_to_a_message_of_calls_alone_takes_back_it_and_what_is_behind_it(
    tmp_path: Path, thoughts: list[Json]
) -> None:
    calls = [{"id": "c1", "name": "read_file", "args": {}, "status": "success", "result": "x"}]
    show = gemini(
        tmp_path,
        gemini_message("u1", "user", [{"text": "one"}], 1),
        gemini_message("g1", "gemini", "", 2, toolCalls=calls, thoughts=thoughts),
        gemini_message("g2", "gemini", "done", 3),
        {"$rewindTo": "g1"},
    )
    assert said(show) == [("one", ""), ("done", "rewound")]
    assert [one.get("mark") or "" for one in show["messages"]] == ["", *["rewound"] * (len(show["messages"]) - 1)]


def test_gemini_what_a_compaction_kept_of_a_long_session_stands_there_once(tmp_path: Path) -> None:
    talk = [
        one
        for n in range(100)
        for one in (
            gemini_message(f"u{n}", "user", [{"text": f"question {n}"}], 2 * n),
            gemini_message(f"g{n}", "gemini", f"answer {n}", 2 * n + 1),
        )
    ]
    kept = [{**one, "id": f"new-{one['id']}", "timestamp": "2026-11-01T10:05:00.000Z"} for one in talk[-80:]]
    summary = [
        gemini_message("s", "user", [{"text": "<state_snapshot>so far</state_snapshot>"}], 300),
        gemini_message("s2", "gemini", "Got it. Thanks for the additional context!", 300),
    ]
    show = gemini(tmp_path, *talk, {"$set": {"messages": [*summary, *kept], "lastUpdated": "2026-11-01T10:05:00.000Z"}})
    words = Counter(words for words, _ in said(show))
    assert [one for one, times in words.items() if times > 1] == []
    assert len(show["compactions"]) == 1


def test_gemini_masking_a_tools_output_changes_nothing_and_is_no_compaction(tmp_path: Path) -> None:
    def called(output: str) -> Json:
        result = [{"functionResponse": {"id": "c1", "name": "read_file", "response": {"output": output}}}]
        calls = [{"id": "c1", "name": "read_file", "args": {}, "status": "success", "result": result}]
        return gemini_message("g1", "gemini", "", 2, toolCalls=calls)

    talk = [gemini_message("u1", "user", [{"text": "one"}], 1), called("all of it"), gemini_message("g2", "gemini", "done", 4)]
    masked = {"$set": {"messages": [talk[0], called("<tool_output_masked>"), talk[2]]}}
    show = gemini(tmp_path, *talk, masked, gemini_message("u2", "user", [{"text": "two"}], 6))
    assert said(show, "tool") == [("all of it", "")]
    assert show["compactions"] == []


def test_gemini_the_folder_comes_from_projects_json_if_the_transcript_lacks_it(tmp_path: Path) -> None:
    (tmp_path / "home/.gemini").mkdir(parents=True)
    (tmp_path / "home/.gemini/projects.json").write_text(json.dumps({"projects": {"/home/dev/shop": "shop"}}))
    assert gemini(tmp_path, *GEMINI_TALK)["session"]["cwd"] == "/home/dev/shop"


def test_gemini_the_transcripts_folder_wins_over_projects_json(tmp_path: Path) -> None:
    (tmp_path / "home/.gemini").mkdir(parents=True)
    (tmp_path / "home/.gemini/projects.json").write_text(json.dumps({"projects": {"/home/dev/shop": "shop"}}))
    head = {"$set": {"directories": ["/home/dev/moved"]}}
    assert gemini(tmp_path, head, *GEMINI_TALK)["session"]["cwd"] == "/home/dev/moved"


@pytest.mark.parametrize("listed", ["{", "[]", '{"projects": 7}', '{"projects": {"/a": "shop", "/b": "shop", "c": "other"}}'])
def test_gemini_a_projects_json_without_the_folder_is_no_problem(tmp_path: Path, listed: str) -> None:
    (tmp_path / "home/.gemini").mkdir(parents=True)
    (tmp_path / "home/.gemini/projects.json").write_text(listed)
    assert gemini(tmp_path, *GEMINI_TALK)["session"]["cwd"] == ""


# -- Claude

CLAUDE = "11111111-1111-4111-8111-111111111111"


def claude_line(role: str, key: str, parent: str | None, words: str, at: int, stop: str | None = "end_turn", **more: Any) -> Json:
    message: Json = {"role": role, "content": words}
    if role == "assistant":
        message |= {"id": f"m{at}", "model": "claude-x", "content": [{"type": "text", "text": words}], "stop_reason": stop}
    return {
        "parentUuid": parent,
        "isSidechain": False,
        "type": role,
        "message": message,
        "uuid": key,
        "timestamp": f"2026-11-01T10:{at // 60:02d}:{at % 60:02d}.000Z",
        "sessionId": CLAUDE,
        "cwd": "/w",
        **more,
    }


def claude(tmp_path: Path, *lines: Json) -> Shown:
    write(tmp_path / f"home/.claude/projects/-w/{CLAUDE}.jsonl", lines)
    return shown(tmp_path, "claude", CLAUDE)


def claude_talk(count: int) -> list[Json]:
    return [
        one
        for n in range(count)
        for one in (
            claude_line("user", f"u{n}", f"a{n - 1}" if n else None, f"question {n}", 2 * n),
            claude_line("assistant", f"a{n}", f"u{n}", f"answer {n}", 2 * n + 1),
        )
    ]


def claude_compacted(at: int, after: str) -> list[Json]:
    boundary = {
        "parentUuid": None,
        "logicalParentUuid": after,
        "type": "system",
        "subtype": "compact_boundary",
        "uuid": "b",
        "timestamp": f"2026-11-01T10:{at // 60:02d}:{at % 60:02d}.000Z",
        "sessionId": CLAUDE,
        "compactMetadata": {"trigger": "auto", "preTokens": 1000},
    }
    return [boundary, claude_line("user", "s", "b", "So far", at, isCompactSummary=True)]


@pytest.mark.parametrize("count", [20, 60])
def test_claude_a_replay_under_new_uuids_counts_once_however_long(tmp_path: Path, count: int) -> None:
    talk = claude_talk(100)
    again = [{**one, "uuid": f"again-{one['uuid']}"} for one in talk[-2 * count :]]
    show = claude(tmp_path, *talk, *claude_compacted(300, "a99"), *again, claude_line("user", "n", "again-a99", "new", 400))
    assert len(show["turns"]) == 101
    assert Counter(one["state"] for one in show["turns"]) == {"completed": 100, "open": 1}
    assert len(said(show)) == 202


def test_claude_a_replay_under_the_same_uuids_counts_once_however_long(tmp_path: Path) -> None:
    talk = claude_talk(100)
    show = claude(tmp_path, *talk, *claude_compacted(300, "a99"), *talk[-120:], claude_line("user", "n", "a99", "new", 400))
    assert len(show["turns"]) == 101
    assert len(said(show)) == 202


def test_claude_going_back_to_the_first_prompt_takes_everything_back(tmp_path: Path) -> None:
    show = claude(tmp_path, *claude_talk(2), claude_line("user", "n", None, "question 0, better", 90))
    assert [mark for _, mark in said(show)] == ["rewound"] * 4 + [""]


def test_claude_a_replay_of_the_first_prompt_under_a_new_uuid_takes_nothing_back(tmp_path: Path) -> None:
    """However long ago it was: older than what is remembered of the lines before a boundary."""
    talk = claude_talk(200)
    again = [{**one, "uuid": f"again-{one['uuid']}"} for one in talk[:2]]
    show = claude(tmp_path, *talk, *claude_compacted(500, "a199"), *again, claude_line("user", "n", "again-a0", "new", 600))
    assert [mark for _, mark in said(show) if mark == "rewound"] == []


def test_claude_a_turn_that_was_cut_before_an_answer_in_words_stays_open(tmp_path: Path) -> None:
    calls = [{"type": "text", "text": "I look"}, {"type": "tool_use", "id": "t", "name": "Read", "input": {}}]
    result = [{"type": "tool_result", "tool_use_id": "t", "content": "x"}]
    cut = claude_line("assistant", "a1", "u1", "", 2, stop=None)
    cut["message"]["content"] = calls
    done = claude_line("user", "r1", "a1", "", 3)
    done["message"]["content"] = result
    for n, lines in enumerate(([cut], [cut, done])):
        show = claude(
            tmp_path / str(n), claude_line("user", "u1", None, "one", 1), *lines, claude_line("user", "u2", "a1", "two", 9)
        )
        assert turns(show) == [("one", "open"), ("two", "open")]


def test_claude_a_prompt_below_an_answer_in_words_says_that_the_turn_before_was_over(tmp_path: Path) -> None:
    show = claude(
        tmp_path,
        claude_line("user", "u1", None, "one", 1),
        claude_line("assistant", "a1", "u1", "answer", 2, stop=None),
        claude_line("user", "u2", "a1", "two", 9),
    )
    assert turns(show) == [("one", "completed"), ("two", "open")]


# -- Codex

THREAD = "019a0000-0000-7000-8000-000000000001"


def codex_line(kind: str, at: int, payload: Json, **more: Any) -> Json:
    return {"timestamp": f"2026-11-01T10:00:{at:02d}.000Z", "type": kind, "payload": payload, **more}


def codex_said(role: str, words: str, at: int) -> list[Json]:
    kind, event = ("input_text", "user_message") if role == "user" else ("output_text", "agent_message")
    item = {"type": "message", "role": role, "content": [{"type": kind, "text": words}]}
    return [codex_line("response_item", at, item), codex_line("event_msg", at, {"type": event, "message": words})]


CODEX_HEAD = codex_line("session_meta", 0, {"id": THREAD, "timestamp": "2026-11-01T10:00:00.000Z", "cwd": "/w"})
#: As versions before task_started and task_complete were written.
CODEX_OLD = [
    CODEX_HEAD,
    *codex_said("user", "one", 1),
    *codex_said("assistant", "answer", 2),
    *codex_said("user", "two", 8),
    *codex_said("assistant", "second answer", 9),
]


def codex_file(tmp_path: Path) -> Path:
    return tmp_path / f"home/.codex/sessions/2026/11/01/rollout-2026-11-01T10-00-00-{THREAD}.jsonl"


def test_codex_a_rollout_that_is_archived_and_then_compressed_stays_one_session(tmp_path: Path) -> None:
    path = write(codex_file(tmp_path), CODEX_OLD)
    with Keep.open(tmp_path / "keep") as keep:
        list(keep.ingest(home=tmp_path / "home", agents=["codex"]))
        first = said(keep.show(f"codex:{THREAD}"))
        archived = tmp_path / "home/.codex/archived_sessions" / path.name
        archived.parent.mkdir()
        shutil.move(path, archived)
        list(keep.ingest(home=tmp_path / "home", agents=["codex"]))
        assert said(keep.show(f"codex:{THREAD}")) == first
        archived.with_name(f"{path.name}.zst").write_bytes(zstandard.compress(archived.read_bytes()))
        archived.unlink()
        list(keep.ingest(home=tmp_path / "home", agents=["codex"]))
        assert said(keep.show(f"codex:{THREAD}")) == first
        assert len(keep.sessions()) == 1


def test_codex_a_prompt_behind_an_answer_in_words_says_that_an_old_turn_was_over(tmp_path: Path) -> None:
    write(codex_file(tmp_path), CODEX_OLD)
    assert turns(shown(tmp_path, "codex", THREAD)) == [("one", "completed"), ("two", "open")]


CODEX_CALL = {"type": "function_call", "call_id": "c", "name": "shell", "arguments": "{}"}
CODEX_RESULT = {"type": "function_call_output", "call_id": "c", "output": "x"}


@pytest.mark.parametrize(
    "cut",
    [
        [codex_line("response_item", 3, CODEX_CALL)],
        [codex_line("response_item", 3, CODEX_CALL), codex_line("response_item", 4, CODEX_RESULT)],
        [codex_line("event_msg", 3, {"type": "turn_aborted", "reason": "interrupted"})],
    ],
)
def test_codex_an_old_turn_whose_last_thing_was_no_answer_is_not_completed(tmp_path: Path, cut: list[Json]) -> None:
    write(codex_file(tmp_path), [*CODEX_OLD[:5], *cut, *CODEX_OLD[5:]])
    wanted = "cancelled" if "turn_aborted" in json.dumps(cut) else "open"
    assert turns(shown(tmp_path, "codex", THREAD)) == [("one", wanted), ("two", "open")]


def test_codex_a_turn_without_its_end_stays_open_in_files_that_record_ends(tmp_path: Path) -> None:
    started = codex_line("event_msg", 1, {"type": "task_started"})
    write(codex_file(tmp_path), [CODEX_HEAD, started, *CODEX_OLD[1:]])
    assert turns(shown(tmp_path, "codex", THREAD))[0] == ("one", "open")


def test_codex_a_later_file_of_the_same_thread_is_no_fork(tmp_path: Path) -> None:
    path = write(codex_file(tmp_path), CODEX_OLD)
    base = {"thread_id": "019a0000-0000-7000-8000-0000000000aa", "end_ordinal_exclusive": 9, "end_byte_offset": 100}
    head = codex_line("session_meta", 30, {"id": THREAD, "session_id": THREAD, "cwd": "/w", "history_base": base})
    later = path.with_name(f"rollout-2026-11-01T11-00-00-{THREAD}_019a0000-0000-7000-8000-0000000000bb.jsonl")
    write(later, [head, *codex_said("user", "three", 31)])
    show = shown(tmp_path, "codex", THREAD)
    assert [prompt for prompt, _ in turns(show)] == ["one", "two", "three"]
    assert show["session"]["lineage"] == []


def test_codex_legacy_names_give_turns_and_one_compaction(tmp_path: Path) -> None:
    write(
        codex_file(tmp_path),
        [
            CODEX_HEAD,
            codex_line("event_msg", 1, {"type": "turn_started", "turn_id": "t1"}),
            *codex_said("user", "one", 1),
            codex_line("compacted", 2, {"message": "So far"}),
            codex_line("event_msg", 2, {"type": "context_compacted"}),
            *codex_said("assistant", "done", 3),
            codex_line("event_msg", 4, {"type": "task_complete", "turn_id": "t1", "last_agent_message": "done"}),
            codex_line("event_msg", 5, {"type": "thread_rolled_back", "num_turns": 1}),
        ],
    )
    show = shown(tmp_path, "codex", THREAD)
    assert turns(show) == [("one", "completed")]
    assert [(one["state"], one["reason"]) for one in show["compactions"]] == [("completed", "auto")]
    assert said(show) == [("one", "rewound"), ("So far", "rewound"), ("done", "rewound")]


# -- OpenCode, Hermes, pi

OPENCODE = """
CREATE TABLE session(id TEXT PRIMARY KEY, parent_id TEXT, directory TEXT, title TEXT, revert TEXT, time_created INTEGER,
    time_updated INTEGER);
CREATE TABLE message(id TEXT PRIMARY KEY, session_id TEXT, time_created INTEGER, time_updated INTEGER, data TEXT);
CREATE TABLE part(id TEXT PRIMARY KEY, message_id TEXT, session_id TEXT, time_created INTEGER, time_updated INTEGER, data TEXT);
"""


class OpenCode:
    """A database, and what is shown of its one session after each change of it."""

    def __init__(self, tmp_path: Path) -> None:
        path = tmp_path / "home/.local/share/opencode/opencode.db"
        path.parent.mkdir(parents=True)
        self._home, self._keep = tmp_path / "home", tmp_path / "keep"
        self._db = apsw.Connection(str(path))
        self._db.execute(OPENCODE)
        self._db.execute("INSERT INTO session VALUES('ses_1', NULL, '/w', 'T', NULL, 1793520000000, 1793520000000)")
        self._clock = 1793520000000

    def ask(self, n: int) -> None:
        self._clock += 1
        at, role = self._clock, json.dumps({"role": "user"})
        self._db.execute("INSERT INTO message VALUES(?, 'ses_1', ?, ?, ?)", (f"msg_{n}", at, at, role))
        part = json.dumps({"type": "text", "text": f"question {n}"})
        self._db.execute("INSERT INTO part VALUES(?, ?, 'ses_1', ?, ?, ?)", (f"prt_{n}", f"msg_{n}", at, at, part))

    def delete(self, *numbers: int) -> None:
        for n in numbers:
            self._db.execute("DELETE FROM part WHERE message_id = ?", (f"msg_{n}",))
            self._db.execute("DELETE FROM message WHERE id = ?", (f"msg_{n}",))

    def revert(self, n: int | None) -> None:
        self._clock += 1
        told = None if n is None else json.dumps({"messageID": f"msg_{n}"})
        self._db.execute("UPDATE session SET revert = ?, time_updated = ?", (told, self._clock))

    def rewound(self) -> list[str]:
        """What is marked, as it grew and as it comes from zero."""
        with Keep.open(self._keep) as keep:
            assert [one.problem for one in keep.ingest(home=self._home, agents=["opencode"]) if one.problem] == []
            grown = [words for words, mark in said(keep.show("opencode:ses_1")) if mark == "rewound"]
            keep.reindex(from_zero=True)
            assert [words for words, mark in said(keep.show("opencode:ses_1")) if mark == "rewound"] == grown
        return [words.removeprefix("question ") for words in grown]


def test_opencode_what_is_redone_after_a_revert_is_not_rewound(tmp_path: Path) -> None:
    code = OpenCode(tmp_path)
    for n in (1, 2, 3):
        code.ask(n)
    found = []
    for revert in (None, 2, 3, 1, None):
        code.revert(revert)
        found.append(code.rewound())
    assert found == [[], ["2", "3"], ["3"], ["1", "2", "3"], []]


@pytest.mark.parametrize("seen", [True, False])
def test_opencode_what_was_reverted_stays_so_when_a_prompt_follows_and_its_rows_are_deleted(tmp_path: Path, seen: bool) -> None:
    code = OpenCode(tmp_path)
    for n in (1, 2, 3):
        code.ask(n)
    assert code.rewound() == []
    code.revert(2)
    assert not seen or code.rewound() == ["2", "3"]
    code.delete(2, 3)
    code.revert(None)
    code.ask(4)
    assert code.rewound() == ["2", "3"]
    code.revert(1)
    assert code.rewound() == ["1", "2", "3", "4"]
    code.revert(None)
    assert code.rewound() == ["2", "3"]


HERMES = """
CREATE TABLE sessions(id TEXT PRIMARY KEY, source TEXT, parent_session_id TEXT, started_at REAL, ended_at REAL, end_reason TEXT,
    model_config TEXT, title TEXT, cwd TEXT);
CREATE TABLE messages(id INTEGER PRIMARY KEY AUTOINCREMENT, session_id TEXT, role TEXT, content TEXT, tool_call_id TEXT,
    tool_calls TEXT, tool_name TEXT, timestamp REAL, finish_reason TEXT, active INTEGER DEFAULT 1, compacted INTEGER DEFAULT 0);
"""


def test_hermes_a_child_of_a_session_that_ended_as_branched_is_a_fork_and_its_copies_count_once(tmp_path: Path) -> None:
    path = tmp_path / "home/.hermes/state.db"
    path.parent.mkdir(parents=True)
    db = apsw.Connection(str(path))
    db.execute(HERMES)
    began, parent, child = 1793520000.0, "20261101_100000_aaaaaa", "20261101_101000_bbbbbb"
    db.execute("INSERT INTO sessions VALUES(?, 'cli', NULL, ?, ?, 'branched', NULL, NULL, '/w')", (parent, began, began + 600))
    db.execute("INSERT INTO sessions VALUES(?, 'cli', ?, ?, NULL, NULL, NULL, NULL, '/w')", (child, parent, began + 600))
    for session, role, words, at in (
        *(
            (one, role, words, at)
            for one in (parent, child)
            for role, words, at in (("user", "one", 1), ("assistant", "answer", 2))
        ),
        (child, "user", "two", 700),
    ):
        done = "stop" if role == "assistant" else None
        columns = "(session_id, role, content, timestamp, finish_reason)"
        db.execute(f"INSERT INTO messages{columns} VALUES(?, ?, ?, ?, ?)", (session, role, words, began + at, done))
    show = shown(tmp_path, "hermes", child)
    assert [(one["kind"], one["session"]) for one in show["session"]["lineage"]] == [("fork", f"hermes:{parent}")]
    assert said(show) == [("one", "copied"), ("answer", "copied"), ("two", "")]
    # The parent is resumed, and has no end any more; then the branch is named.
    db.execute("UPDATE sessions SET end_reason = NULL, ended_at = NULL WHERE id = ?", (parent,))
    db.execute("UPDATE sessions SET title = 'T' WHERE id = ?", (child,))
    db.close()
    assert shown(tmp_path, "hermes", child)["session"]["lineage"] == show["session"]["lineage"]


def pi_entry(kind: str, key: str, parent: str | None, at: int, **more: Any) -> Json:
    return {"type": kind, "id": key, "parentId": parent, "timestamp": f"2026-11-01T10:00:{at:02d}.000Z", **more}


def pi_message(role: str, key: str, parent: str | None, words: str, at: int) -> Json:
    content: Json = {"role": role, "content": [{"type": "text", "text": words}]}
    return pi_entry("message", key, parent, at, message=content | ({"stopReason": "stop"} if role == "assistant" else {}))


def pi(tmp_path: Path, *entries: Json) -> Shown:
    head = {"type": "session", "version": 3, "id": "pi-1", "timestamp": "2026-11-01T10:00:00.000Z", "cwd": "/w"}
    write(tmp_path / "home/.pi/agent/sessions/--w--/2026-11-01T10-00-00-000Z_pi-1.jsonl", [head, *entries])
    return shown(tmp_path, "pi", "pi-1")


PI_TALK = [
    pi_entry("model_change", "m0", None, 1, modelId="x"),
    pi_message("user", "u1", "m0", "one", 2),
    pi_message("assistant", "a1", "u1", "answer", 3),
    pi_entry("model_change", "m1", "a1", 4, modelId="y"),
    pi_message("user", "u2", "m1", "two", 5),
    pi_message("assistant", "a2", "u2", "second answer", 6),
]


@pytest.mark.parametrize(
    ("behind", "marks"),
    [
        ([pi_message("user", "u3", "a1", "two, better", 9)], ["", "", "rewound", "rewound", ""]),
        (
            [pi_entry("model_change", "m2", "a1", 8, modelId="z"), pi_message("user", "u3", "m2", "two, better", 9)],
            ["", "", "rewound", "rewound", ""],
        ),
        ([pi_message("user", "u3", "u1", "say it shorter", 9)], ["", "rewound", "rewound", "rewound", ""]),
        ([pi_message("user", "u3", None, "from the beginning", 9)], ["rewound"] * 4 + [""]),
        # What only stands aside shows nothing.
        ([pi_entry("label", "l", "a1", 8), pi_message("user", "u3", "a2", "three", 9)], [""] * 5),
        ([*PI_TALK[1:3], pi_message("user", "u3", "a2", "three", 9)], [""] * 5),
    ],
)
def test_pi_going_back_takes_back_what_was_said_behind_the_entry(tmp_path: Path, behind: list[Json], marks: list[str]) -> None:
    show = pi(tmp_path, *PI_TALK, *behind)
    assert [mark for _, mark in said(show)] == marks
