"""Gemini CLI's records, read alone; the real transcript's expectations are in tests/expected/gemini.json."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest

from dreamkeep.agents import facts as f
from dreamkeep.agents.contract import DOCUMENT
from dreamkeep.agents.gemini import discovery
from dreamkeep.agents.gemini.reader import Reader
from dreamkeep.capture.sources.document import split
from dreamkeep.host import RealHost
from tests.agents import anything, gemini
from tests.agents.crude import fold, read

_ESSENTIAL = ("turns", "roles", "tool_calls", "compactions", "marks", "unknown")


def _lines(home: Path, part: str) -> list[str]:
    gemini.write(home)
    return next(home.rglob(f"*{part}*")).read_text(encoding="utf-8").splitlines()


def _expected(session: str) -> dict[str, Any]:
    return next(one for one in gemini.EXPECTED["sessions"] if one["id"] == f"gemini:{session}")


def _message(native: str, kind: str, content: object, at: int, **more: object) -> str:
    stamp = f"2026-03-02T10:00:{at:02d}.000Z"
    return json.dumps({"id": native, "timestamp": stamp, "type": kind, "content": content, **more})


def _list(*messages: str) -> str:
    return json.dumps({"$set": {"messages": [json.loads(one) for one in messages], "lastUpdated": "2026-03-02T10:00:59.000Z"}})


def test_a_session_with_crash_compaction_and_rewind_is_read_as_expected(tmp_path: Path) -> None:
    lines = _lines(tmp_path, "T09-14-")
    found = fold(read(Reader, lines))
    expected = _expected(gemini.MAIN)
    assert {name: found[name] for name in _ESSENTIAL} == {name: expected[name] for name in _ESSENTIAL}


def test_reading_may_stop_after_any_record(tmp_path: Path) -> None:
    lines = _lines(tmp_path, "T09-14-")
    assert read(Reader, lines, rest=True) == read(Reader, lines)


def test_reading_all_of_it_again_adds_no_message_and_no_turn(tmp_path: Path) -> None:
    """W14: a replay says nothing new."""
    lines = _lines(tmp_path, "T09-14-")
    once, twice = read(Reader, lines), read(Reader, lines) + read(Reader, lines)
    assert {x.key for x in once if isinstance(x, f.MessageSaid)} == {x.key for x in twice if isinstance(x, f.MessageSaid)}
    assert {x.turn for x in once if isinstance(x, f.TurnBegan)} == {x.turn for x in twice if isinstance(x, f.TurnBegan)}


def test_a_subagents_file_is_a_session_with_its_own_turn(tmp_path: Path) -> None:
    found = fold(read(Reader, _lines(tmp_path, gemini.SUBAGENT), source="subagent"))
    expected = _expected(gemini.SUBAGENT)
    assert {name: found[name] for name in _ESSENTIAL} == {name: expected[name] for name in _ESSENTIAL}


def test_an_older_document_is_read_from_its_pieces(tmp_path: Path) -> None:
    gemini.write(tmp_path)
    reader = Reader({})
    facts: list[f.Fact] = []
    for piece in split(next(tmp_path.rglob("*T09-02-*.json")).read_bytes()):
        facts += reader.read(f.Record("piece", None, piece.decode()))
        reader = Reader(json.loads(json.dumps(reader.state)))
    expected = _expected(gemini.OLD)
    assert {name: fold(facts)[name] for name in _ESSENTIAL} == {name: expected[name] for name in _ESSENTIAL}
    assert f.SessionTitled("Pins of the display") in facts


@pytest.mark.parametrize("words", ["System: Potential loop detected. Details: Repeating content.", "Please continue."])
def test_what_the_client_says_in_the_users_name_is_no_prompt_though_it_shows_one(words: str) -> None:
    """As Gemini CLI 0.61 writes it: the prompt stands alone, its own words carry the prompt as `displayContent`."""
    shown = [{"text": "count to ten"}]
    lines = [
        _message("u1", "user", shown, 1),
        _message("u2", "user", [{"text": words}], 2, displayContent=shown),
        _message("g1", "gemini", "Ten.", 3),
    ]
    found = read(Reader, lines)
    assert [one.prompt for one in found if isinstance(one, f.TurnBegan)] == ["count to ten"]
    assert [one.turn for one in found if isinstance(one, f.TurnSettled)] == ["u1"]
    assert f.MessageSaid(f.SYSTEM, words, "u2", "2026-03-02T10:00:02.000000Z", mark=f.META) in found
    typed = _message("u3", "user", [{"text": "Please continue."}], 4, displayContent=[{"text": "Please continue."}])
    assert [one.prompt for one in read(Reader, [*lines, typed]) if isinstance(one, f.TurnBegan)][-1] == "Please continue."


def test_masked_tool_output_in_a_list_leaves_the_output_as_it_was() -> None:
    call = {"id": "t1", "name": "ls", "args": {}, "status": "success"}
    whole = [{"functionResponse": {"id": "t1", "name": "ls", "response": {"output": "all of it"}}}]
    masked = [{"functionResponse": {"id": "t1", "name": "ls", "response": {"output": "<masked>"}}}]
    prompt = _message("u1", "user", "list it", 1)
    answered = _message("g1", "gemini", "", 2, toolCalls=[call | {"result": whole}])
    listed = _list(
        prompt, _message("g1", "gemini", "", 2, toolCalls=[call | {"result": masked}]), _message("u2", "user", masked, 3)
    )
    facts = read(Reader, [prompt, answered, _message("u2", "user", whole, 3), listed])
    assert {x.text for x in facts if isinstance(x, f.MessageSaid) and x.role == f.TOOL} == {"all of it"}
    assert not any(isinstance(x, f.Signal) for x in facts)


def test_a_summary_that_is_listed_again_is_no_second_compaction() -> None:
    """S14: the same compaction, told again after a resume."""
    prompt = _message("u1", "user", "go", 1)
    summary = _message("s1", "user", [{"text": "<state_snapshot>…</state_snapshot>"}], 5)
    thanks = _message("s2", "gemini", [{"text": "Got it. Thanks for the additional context!"}], 5)
    facts = read(Reader, [prompt, _list(summary, thanks), _message("g1", "gemini", "done", 7), _list(summary, thanks)])
    assert [x.id for x in facts if isinstance(x, f.Signal)] == ["s1"]


def test_a_prompt_that_quotes_a_snapshot_is_no_compaction() -> None:
    """S20: quoted text is text."""
    facts = read(Reader, [_message("u1", "user", "<state_snapshot> is what?", 1), _message("g1", "gemini", "a tag", 2)])
    assert not any(isinstance(x, f.Signal) for x in facts)
    assert [x.prompt for x in facts if isinstance(x, f.TurnBegan)] == ["<state_snapshot> is what?"]


def test_a_list_that_lost_two_thirds_was_compacted_and_one_without_its_prompts_was_not() -> None:
    said = [_message(f"m{n}", "user" if n % 2 else "gemini", f"words {n}", n) for n in range(1, 21)]
    answers = [one for one in said if json.loads(one)["type"] == "gemini"]
    assert not any(isinstance(x, f.Signal) for x in read(Reader, [*said, _list(*answers)]))
    assert sum(isinstance(x, f.Signal) for x in read(Reader, [*said, _list(*answers[:3])])) == 1


def test_a_copy_under_a_new_id_is_the_original_also_for_a_rewind() -> None:
    """K5: what a compaction repeats is there once, and taking the copy back takes the original back."""
    prompt = _message("u1", "user", [{"text": "do it"}], 1)
    summary = _message("s1", "user", [{"text": "<state_snapshot>…</state_snapshot>"}], 5)
    copy = _message("u9", "user", [{"text": "do it"}], 5)
    facts = read(Reader, [prompt, _list(summary, copy), json.dumps({"$rewindTo": "u9"})], rest=True)
    assert [x.key for x in facts if isinstance(x, f.MessageSaid) and x.role == f.USER] == ["u1"]
    assert [x.key for x in facts if isinstance(x, f.MessagesRewound)] == ["u1"]


def test_the_same_prompt_twice_is_two_turns() -> None:
    """T3: identity is the turn's id."""
    facts = read(Reader, [_message("u1", "user", "continue", 1), _message("u2", "user", "continue", 2)])
    assert [x.turn for x in facts if isinstance(x, f.TurnBegan)] == ["u1", "u2"]


def test_words_before_a_tool_call_do_not_end_the_turn() -> None:
    call = {"id": "t1", "name": "ls", "args": {}, "status": "success", "result": "x"}
    lines = [_message("u1", "user", "look", 1), _message("g1", "gemini", "I look.", 2)]
    lines.append(_message("g1", "gemini", "I look.", 2, toolCalls=[call]))
    assert [x.state for x in read(Reader, lines) if isinstance(x, f.TurnSettled)] == ["completed", "started"]


def test_the_state_does_not_grow_with_the_session() -> None:
    reader = Reader({})
    sizes = []
    for n in range(2000):
        for line in (_message(f"u{n:06d}", "user", f"{n} " * 50, 1), _message(f"g{n:06d}", "gemini", f"{n}! " * 50, 2)):
            list(reader.read(f.Record("file", json.loads(line))))
        sizes.append(len(json.dumps(reader.state)))
    assert sizes[-1] < sizes[500] + 10 < 20_000  # a count has more digits


def test_every_file_of_a_session_is_found_and_says_whose_it_is(tmp_path: Path) -> None:
    gemini.write(tmp_path)
    chats = tmp_path / ".gemini/tmp/barometer/chats"
    torn = chats / f"session-2026-03-02T09-40-{gemini.MAIN[:8]}.jsonl.unreadable-1772442000123"
    torn.write_bytes(b'{"sessionId":"' + gemini.MAIN.encode() + b'","projectHa')
    [place] = discovery.homes(str(tmp_path), {})
    found = {Path(one.path).name: one for one in discovery.discover(RealHost(), place)}
    assert len(found) == 5
    for name, one in found.items():
        head = Path(one.path).read_bytes()[: 1 << 16]
        native = one.session or discovery.identify(one.path, head)
        assert native == {"session-2026-03-02T09-02-9a7be210.json": gemini.OLD}.get(name, one.session or gemini.MAIN)
    assert found["session-2026-03-02T09-02-9a7be210.json"].form == DOCUMENT
    subagent = found[f"{gemini.SUBAGENT}.jsonl"]
    assert (subagent.session, subagent.role, subagent.parent) == (gemini.SUBAGENT, "subagent", gemini.MAIN)
    assert found[torn.name].role == "unreadable"


def test_a_moved_home_comes_first_and_another_agents_record_is_not_geminis() -> None:
    assert discovery.homes("/h", {"GEMINI_CLI_HOME": "/m"}) == ["/m/.gemini/tmp", "/h/.gemini/tmp"]
    assert discovery.identify("/x/any.jsonl", b'{"uuid":"1","sessionId":"s","type":"user"}') == ""
    assert discovery.claims("/h/.qwen/projects/p/chats/abc.jsonl") is None
    assert list(discovery.discover(RealHost(), "/nowhere/at/all")) == []


_NAMES = (
    *("id", "type", "content", "timestamp", "toolCalls", "thoughts", "result", "response", "functionResponse", "functionCall"),
    *("text", "$set", "messages", "$rewindTo", "sessionId", "summary", "directories", "displayContent", "status", "name", "args"),
    *("inlineData", "lastUpdated", "output", "error", "mimeType"),
)
_WORDS = (
    "user",
    "gemini",
    "info",
    "error",
    "x1",
    "<state_snapshot>",
    "<session_context>\n  - /a",
    "2026-03-02T10:00:00Z",
    "cancelled",
)


def test_no_input_makes_the_reader_raise(tmp_path: Path) -> None:
    random = Random(8)
    reader = Reader({})
    lines = _lines(tmp_path, "T09-14-")
    for n in range(1500):
        strange = anything.record(random, _NAMES, _WORDS)
        list(reader.read(f.Record("file", strange)))
        list(reader.read(f.Record("piece", None, json.dumps(strange))))
        list(reader.read(f.Record("piece", None, anything.damaged(random, lines[n % len(lines)]))))
        list(reader.read(f.Record("file", None, "torn")))
        reader = Reader(anything.resumed(reader.state))
    assert len(json.dumps(reader.state)) < 40_000


def test_words_before_a_call_that_the_user_cancels_do_not_complete_the_turn(tmp_path: Path) -> None:
    """T8: the message comes first without its call, then with it."""
    call = {"id": "c1", "name": "run_shell_command", "args": {"command": "make deploy"}, "status": "cancelled", "timestamp": ""}
    folder = tmp_path / ".gemini" / "tmp" / "shop" / "chats"
    folder.mkdir(parents=True)
    head = {"sessionId": "abcd1234-0000-4000-8000-000000000000", "projectHash": "x", "startTime": "2026-03-02T10:00:00.000Z"}
    lines = [
        json.dumps(head),
        _message("u1", "user", "deploy it", 1),
        _message("g1", "gemini", "I will deploy it now.", 2),
        _message("g1", "gemini", "I will deploy it now.", 2, toolCalls=[call]),
        _message("i1", "info", "Request cancelled.", 3),
    ]
    (folder / "session-2026-03-02T10-00-abcd1234.jsonl").write_text("\n".join(lines) + "\n")
    from dreamkeep import Keep

    for cut in (4, 5):
        with Keep.open(tmp_path / f"k{cut}") as keep:
            (folder / "session-2026-03-02T10-00-abcd1234.jsonl").write_text("\n".join(lines[:cut]) + "\n")
            list(keep.ingest(home=tmp_path, agents=["gemini"]))
            [turn] = keep.show("abcd1234")["turns"]
            assert turn["state"] == "cancelled", cut
