"""A session for the OpenAI Agents SDK, by the protocol that the SDK asks for; the SDK itself is in test_openai_agents_sdk.py."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Coroutine
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dreamkeep import Keep
from dreamkeep.agents.shared.openai_items import Reader
from dreamkeep.capture.items import Items
from dreamkeep.errors import BadUsage, Deleted, NotDurable, Refused
from dreamkeep.event import Event, Kind
from dreamkeep.host import RealHost
from dreamkeep.integrations.openai_agents import DreamkeepSession
from dreamkeep.session.changes import Changes
from dreamkeep.session.fold import Fold
from dreamkeep.session.summary import empty
from tests.helpers.faults import FragileHost, PowerCut

T = TypeVar("T")
Item = dict[str, Any]

ASKED: Item = {"role": "user", "content": "why does the build fail?"}
THOUGHT: Item = {
    "type": "reasoning",
    "id": "rs_1",
    "encrypted_content": "opaque",
    "content": None,
    "summary": [{"type": "summary_text", "text": "The lock file may be old."}],
}
CALL: Item = {"type": "function_call", "call_id": "c1", "name": "shell", "arguments": '{"command": "make"}', "id": "fc_1"}
RESULT: Item = {"type": "function_call_output", "call_id": "c1", "output": "make: *** [all] Error 2"}
ANSWER: Item = {
    "type": "message",
    "id": "msg_1",
    "role": "assistant",
    "status": "completed",
    "content": [{"type": "output_text", "text": "The lockfile is stale.", "annotations": [], "new_field": {"deep": [1, None]}}],
}
STRANGE: Item = {"type": "something_new", "of": {"tomorrow": [True, 1.5, "ß", None]}, "$s": "not ours"}


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)


def turns(keep: Keep, session: str = "chat") -> list[tuple[str, str]]:
    return [(turn["prompt"], turn["state"]) for turn in keep.show(session)["turns"]]


def test_items_come_back_exactly_and_in_order_also_in_another_process(keep: Keep, root: str) -> None:
    everything = [ASKED, THOUGHT, CALL, RESULT, ANSWER, STRANGE]

    async def work() -> None:
        async with DreamkeepSession("chat", keep) as session:
            await session.add_items(everything[:2])
            await session.add_items(everything[2:])
            assert await session.get_items() == everything

    run(work())
    program = (
        "import asyncio, json, sys; from dreamkeep.integrations.openai_agents import DreamkeepSession\n"
        "print(json.dumps(asyncio.run(DreamkeepSession('chat', sys.argv[1]).get_items())))"
    )
    found = subprocess.run([sys.executable, "-c", program, root], capture_output=True, text=True, check=True).stdout
    assert json.loads(found) == everything
    assert [list(item) for item in json.loads(found)] == [list(item) for item in everything], "fields are in another order"


def test_the_module_needs_no_sdk_and_settings_that_do_say_what_to_install(root: str) -> None:
    program = (
        "import asyncio, sys; sys.modules['agents'] = None\n"
        "from dreamkeep.integrations.openai_agents import DreamkeepSession\n"
        f"s = DreamkeepSession('chat', {root!r}); asyncio.run(s.add_items([{{'role': 'user', 'content': 'hi'}}])); s.close()\n"
        f"DreamkeepSession('chat', {root!r}, session_settings={{'limit': 1}})"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "pip install 'dreamkeep[openai-agents]'" in ran.stderr.splitlines()[-1]
    with Keep.open(root) as keep:
        assert turns(keep) == [("hi", "interrupted")]


def test_a_whole_turn_is_shown_found_and_completed(keep: Keep) -> None:
    async def work() -> None:
        session = DreamkeepSession("chat", keep, title="The build")
        await session.add_items([ASKED])
        assert turns(keep) == [(ASKED["content"], "started")]
        await session.add_items([THOUGHT, ANSWER, CALL, RESULT])
        assert turns(keep) == [(ASKED["content"], "started")], "words before a tool call are not the last"
        await session.add_items([ANSWER])
        assert turns(keep) == [(ASKED["content"], "completed")]
        await session.add_items([CALL])
        assert turns(keep) == [(ASKED["content"], "started")], "it was not the last word"
        await session.pop_item()
        await session.add_items([{"role": "assistant", "content": "That is all."}])
        assert turns(keep) == [(ASKED["content"], "completed")]

    run(work())
    shown = keep.show("chat")
    assert shown["session"]["title"] == "The build" and shown["session"]["messages"] == 8
    assert [message["role"] for message in shown["messages"][:6]] == [
        "user",
        "reasoning",
        "assistant",
        "assistant",
        "tool",
        "assistant",
    ]
    call, result = shown["messages"][3]["tool"], shown["messages"][4]
    assert call == {"id": "c1", "name": "shell", "input": {"command": "make"}}
    assert result["tool"]["id"] == "c1" and result["text"] == RESULT["output"]
    assert {message["turn"] for message in shown["messages"]} == {shown["turns"][0]["id"]}
    assert keep.search("lockfile")[0].session == "python:chat"
    assert keep.audit()["clean"]


def test_what_the_sdk_reports_of_tools_is_understood() -> None:
    """A tool of ours that raised, a shell's exit code, a tool that ran at the model's own place."""
    reader = Reader({})

    def tools(*items: Item) -> list[Any]:
        from dreamkeep.agents.facts import MessageSaid, Record

        body = {"run": "r", "items": list(items)}
        return [fact for fact in reader.read(Record("items", body, "", Kind.ITEMS_ADDED, "e")) if isinstance(fact, MessageSaid)]

    raised = {**RESULT, "output": "An error occurred while running the tool. Please try again. Error: no"}
    assert tools(raised)[0].tool == {"id": "c1", "error": True}
    out = [{"stdout": "x", "stderr": "bad", "outcome": {"type": "exit", "exit_code": 2}}]
    [shell] = tools({"type": "shell_call_output", "call_id": "s1", "output": out})
    assert shell.tool == {"id": "s1", "exit_code": 2, "error": True} and shell.text == "x\nbad"
    asked, got = tools({"type": "mcp_call", "id": "m1", "name": "look", "arguments": "{}", "output": "seen"})
    assert asked.tool == {"id": "m1", "name": "look", "input": {}} and (got.role, got.text) == ("tool", "seen")
    assert (
        tools({"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "two"}]})[0].text
        == "two"
    )


def test_what_was_learned_in_such_a_session_becomes_a_note(keep: Keep) -> None:
    said = "Always run the linter before you commit."

    async def work() -> None:
        async with DreamkeepSession("chat", keep) as session:
            await session.add_items([{"role": "user", "content": said}, ANSWER])

    run(work())
    keep.end("chat")
    keep.dream(sessions=["python:chat"])
    notes = keep.notes()
    assert any("linter" in note["text"] and note["evidence"][0]["session"] == "python:chat" for note in notes)


def test_limits_are_of_the_latest_items(keep: Keep) -> None:
    items = [{"role": "user", "content": str(n)} for n in range(5)]

    class Settings:
        limit = 2

    async def work() -> None:
        session = DreamkeepSession("chat", keep, session_settings=Settings())
        assert await session.get_items() == []
        await session.add_items(items)
        assert await session.get_items() == items[-2:]
        assert await session.get_items(limit=4) == items[-4:]
        assert await session.get_items(limit=99) == items
        assert await session.get_items(limit=0) == []

    run(work())


def test_what_is_popped_or_cleared_is_gone_for_the_agent_and_kept_by_us(keep: Keep) -> None:
    async def work() -> None:
        session = DreamkeepSession("chat", keep)
        assert await session.pop_item() is None
        await session.add_items([ASKED, ANSWER])
        assert await session.pop_item() == ANSWER
        assert await session.get_items() == [ASKED]
        await session.clear_session()
        assert await session.get_items() == [] and await session.pop_item() is None
        await session.add_items([{"role": "user", "content": "something else"}])
        assert len(await session.get_items()) == 1

    run(work())
    shown = keep.show("chat")
    assert [(message["text"], message.get("mark", "")) for message in shown["messages"]] == [
        (ASKED["content"], ""),
        ("The lockfile is stale.", "rewound"),
        ("something else", ""),
    ]
    assert [segment["end_reason"] for segment in shown["segments"]] == ["clear", None]
    kinds = [event.kind for event in journal(keep)]
    assert [kind for kind in kinds if kind.startswith("items")] == ["items.added", "items.popped", "items.cleared", "items.added"]


def test_a_prompt_that_is_taken_back_cancels_its_turn_and_may_be_said_again(keep: Keep) -> None:
    """What the SDK does when a request is tried again."""

    async def work() -> None:
        session = DreamkeepSession("chat", keep)
        await session.add_items([ASKED])
        await session.pop_item()
        await session.add_items([ASKED])
        await session.add_items([ANSWER])

    run(work())
    assert turns(keep) == [(ASKED["content"], "cancelled"), (ASKED["content"], "completed")]


def test_a_compaction_replaces_all_in_one_step_and_opens_no_turn(keep: Keep) -> None:
    squeezed = {"type": "compaction", "encrypted_content": "…"}

    async def work() -> None:
        session = DreamkeepSession("chat", keep)
        await session.add_items([ASKED, ANSWER])
        assert await session._atomic_replace_items([ASKED, squeezed])
        assert await session.get_items() == [ASKED, squeezed]

    run(work())
    shown = keep.show("chat")
    assert len(shown["turns"]) == 1 and len(shown["compactions"]) == 1
    assert [message.get("mark", "") for message in shown["messages"]] == ["", "", "compacted"]


def test_a_compaction_that_clears_and_adds_is_the_same(keep: Keep) -> None:
    async def work() -> None:
        session = DreamkeepSession("chat", keep)
        await session.add_items([ASKED, ANSWER])
        await session.clear_session()
        await session.add_items([ASKED, {"type": "compaction", "encrypted_content": "…"}])

    run(work())
    shown = keep.show("chat")
    assert len(shown["turns"]) == 1 and [m.get("mark", "") for m in shown["messages"]] == ["", "", "compacted"]


def test_a_history_that_is_handed_over_at_once_has_its_turns(keep: Keep) -> None:
    more = {"role": "user", "content": "look at the log"}

    async def work() -> None:
        await DreamkeepSession("chat", keep).add_items([ASKED, more, ANSWER, {"role": "user", "content": "and now?"}, CALL])

    run(work())
    # Two questions before anything else are one turn; whose task is over without an answer is interrupted.
    assert turns(keep) == [(ASKED["content"], "completed"), ("and now?", "interrupted")]


def test_a_run_without_an_answer_is_journaled_as_soon_as_its_task_ends(keep: Keep) -> None:
    async def fails(session: DreamkeepSession) -> None:
        await session.get_items()
        await session.add_items([ASKED])
        raise RuntimeError("no model")

    async def hangs(session: DreamkeepSession) -> None:
        await session.get_items()
        await session.add_items([{"role": "user", "content": "and then?"}])
        await asyncio.Event().wait()

    async def work() -> None:
        session = DreamkeepSession("chat", keep)
        await asyncio.gather(fails(session), return_exceptions=True)
        task = asyncio.create_task(hangs(session))
        while not (await session.get_items())[1:]:
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await session.get_items()  # behind what was said of the end, in the session's thread

    run(work())
    assert turns(keep) == [(ASKED["content"], "failed"), ("and then?", "interrupted")]
    assert [turn["reason"] for turn in keep.show("chat")["turns"]] == ["RuntimeError: no model", "cancelled"]


def test_a_new_run_in_the_same_task_shows_that_the_one_before_was_interrupted(keep: Keep) -> None:
    async def work() -> None:
        session = DreamkeepSession("chat", keep)
        for words in ("first", "second"):
            await session.get_items()
            await session.add_items([{"role": "user", "content": words}])
        assert turns(keep) == [("first", "interrupted"), ("second", "started")]

    run(work())


def test_what_a_user_adds_before_the_model_answers_belongs_to_the_same_turn(keep: Keep) -> None:
    async def work() -> None:
        session = DreamkeepSession("chat", keep)
        await session.get_items()
        await session.add_items([ASKED])
        await session.add_items([{"role": "user", "content": "it is the one of today"}])
        await session.add_items([ANSWER])

    run(work())
    assert turns(keep) == [(ASKED["content"], "completed")]


def test_a_run_that_ends_with_a_tools_result_is_completed(keep: Keep) -> None:
    """Some agents stop at their first tool."""

    async def work() -> None:
        await DreamkeepSession("chat", keep).add_items([ASKED, CALL, RESULT])

    run(work())
    assert turns(keep) == [(ASKED["content"], "completed")]


def test_what_comes_late_after_an_interruption_completes_the_turn(keep: Keep) -> None:
    """A call that somebody had to approve, perhaps in another process and much later."""

    async def asks() -> None:
        async with DreamkeepSession("chat", keep) as session:
            await session.add_items([ASKED, CALL])

    async def goes_on() -> None:
        async with DreamkeepSession("chat", keep) as session:
            await session.get_items()
            await session.add_items([RESULT])
            await session.add_items([ANSWER])

    run(asks())
    assert turns(keep) == [(ASKED["content"], "interrupted")]
    run(goes_on())
    assert turns(keep) == [(ASKED["content"], "completed")]


def test_runs_at_once_keep_their_turns_apart(keep: Keep) -> None:
    async def one(session: DreamkeepSession, name: str, go: asyncio.Barrier) -> None:
        await session.get_items()
        await session.add_items([{"role": "user", "content": name}])
        await go.wait()
        assert [state for _, state in turns(keep)] == ["started"] * 4, "what one run begins does not end another"
        await go.wait()
        await session.add_items([CALL, RESULT])
        await go.wait()
        await session.add_items([{"role": "assistant", "content": f"answer to {name}"}])

    async def work() -> None:
        go = asyncio.Barrier(4)
        sessions = [DreamkeepSession("chat", keep), DreamkeepSession("chat", keep)]
        await asyncio.gather(*(one(sessions[n % 2], f"question {n}", go) for n in range(4)))
        assert await sessions[0].get_items() == await sessions[1].get_items()

    run(work())
    shown = keep.show("chat")
    assert {turn["state"] for turn in shown["turns"]} == {"completed"} and len(shown["turns"]) == 4
    asked = {turn["id"]: turn["prompt"] for turn in shown["turns"]}
    answers = [message for message in shown["messages"] if message["text"].startswith("answer")]
    assert len(answers) == 4
    for message in answers:
        assert message["text"] == f"answer to {asked[message['turn']]}"


def test_two_that_pop_at_once_never_get_the_same_item(keep: Keep) -> None:
    items = [{"role": "user", "content": str(n)} for n in range(60)]
    sessions = [keep.items("chat") for _ in range(3)]
    sessions[0].add(items, run="r")
    got: list[str] = []

    def pop(session: Items) -> None:
        while item := session.pop():
            got.append(item["content"])

    threads = [threading.Thread(target=pop, args=(session,)) for session in sessions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(got, key=int) == [item["content"] for item in items]


class Slow(RealHost):
    """A disk that syncs when it is allowed to."""

    def __init__(self) -> None:
        self.may = threading.Event()
        self.asked = threading.Event()

    def sync(self, handle: int) -> None:
        self.asked.set()
        if not self.may.wait(20):
            raise OSError("the event loop never came round")
        super().sync(handle)


def test_the_event_loop_goes_on_while_the_disk_is_slow_and_closing_waits(root: str) -> None:
    host = Slow()

    async def work() -> None:
        session = DreamkeepSession("chat", Keep.open(root, host=host))
        adding = asyncio.create_task(session.add_items([ASKED, ANSWER]))
        while not host.asked.is_set():
            await asyncio.sleep(0.001)
        adding.cancel()  # it is on its way to the disk: the task learns what became of it, then ends
        await asyncio.sleep(0)
        assert not adding.done()
        closing = asyncio.create_task(session.aclose())
        await asyncio.sleep(0.01)
        assert not closing.done()
        host.may.set()  # if the loop were blocked, nobody would come here
        await closing
        with pytest.raises(asyncio.CancelledError):
            await adding
        with pytest.raises(BadUsage, match="closed"):
            await session.get_items()

    run(work())
    with Keep.open(root) as keep:
        assert keep.items("chat").now() == [ASKED, ANSWER]


def test_what_is_given_and_got_may_be_changed_without_changing_what_is_kept(keep: Keep) -> None:
    async def work() -> None:
        session = DreamkeepSession("chat", keep)
        mine = json.loads(json.dumps([ANSWER]))
        await session.add_items(mine)
        mine[0]["content"].clear()
        got = await session.get_items()
        got[0]["content"].clear()
        assert await session.get_items() == [ANSWER]

    run(work())


def test_what_is_no_json_is_refused_and_nothing_of_the_call_is_kept(keep: Keep) -> None:
    async def work() -> None:
        session = DreamkeepSession("chat", keep)
        deep: Any = []
        for _ in range(5000):
            deep = [deep]
        for odd in ({"content": object()}, {1: "number"}, {"content": b"bytes"}, {"content": deep}, {"at": datetime.now(UTC)}):
            with pytest.raises(Refused):
                await session.add_items([ASKED, odd])
        assert await session.get_items() == []

    run(work())


def test_a_snapshot_brings_the_items_into_another_keep(keep: Keep, tmp_path: Path) -> None:
    keep.items("chat").add([ASKED, ANSWER, STRANGE], run="r")
    keep.items("chat").pop()
    keep.export(tmp_path / "s")
    with Keep.open(tmp_path / "other") as other:
        other.import_(tmp_path / "s")
        items = other.items("chat")
        assert items.now() == [ASKED, ANSWER]
        assert items.pop() == ANSWER and items.now() == [ASKED]


def test_a_deleted_session_is_empty_and_takes_nothing_more(keep: Keep) -> None:
    async def work() -> None:
        session = DreamkeepSession("chat", keep)
        await session.add_items([ASKED])
        keep.delete("chat")
        assert await session.get_items() == []
        with pytest.raises(Deleted):
            await session.add_items([ANSWER])

    run(work())


def test_a_journal_that_is_another_one_now_is_read_anew(keep: Keep, root: str) -> None:
    items = keep.items("chat")
    items.add([ASKED], run="r")
    assert items.now() == [ASKED]
    with Keep.open(root) as other:
        other.delete("chat")
        other.undelete("chat")
        other.items("chat").add([CALL, RESULT, ANSWER], run="r")
        other.items("chat").add([STRANGE], run="r")
    assert items.now() == [CALL, RESULT, ANSWER, STRANGE]


def test_an_ended_session_that_goes_on_is_active_again(keep: Keep) -> None:
    async def work() -> None:
        session = DreamkeepSession("chat", keep)
        await session.add_items([ASKED, ANSWER])
        keep.end("chat")
        await session.add_items([ASKED])
        assert keep.summary("python:chat").state == "active"

    run(work())


_WRITER = """
import asyncio, sys
from dreamkeep.integrations.openai_agents import DreamkeepSession
async def main():
    session = DreamkeepSession("chat", sys.argv[1])
    had = len(await session.get_items())
    for n in range(had // 2, 100000):
        await session.add_items([{"role": "user", "content": f"{n}a" * 50}, {"role": "user", "content": f"{n}b" * 50}])
        print(n, flush=True)
asyncio.run(main())
"""


def test_after_kill_9_every_acknowledged_item_is_there_and_none_is_half(root: str) -> None:
    for stop_after in (1, 7, 40):
        with subprocess.Popen([sys.executable, "-c", _WRITER, root], stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout
            for _ in range(stop_after):
                acked = int(writer.stdout.readline())
            writer.send_signal(signal.SIGKILL)
            # What it still said before it died was acknowledged, too.
            acked = max([acked, *(int(line) for line in writer.stdout if line.endswith("\n"))])
        with Keep.open(root) as keep:
            items = keep.items("chat").now()
            assert len(items) % 2 == 0 and len(items) // 2 >= acked + 1
            assert [item["content"] for item in items] == [f"{n}{x}" * 50 for n in range(len(items) // 2) for x in "ab"]
            assert keep.show("chat")["turns"][-1]["state"] == "interrupted"


def test_a_power_cut_at_every_step_keeps_what_was_promised() -> None:
    script = [
        ("add", [ASKED]),
        ("add", [CALL, RESULT]),
        ("pop", None),
        ("add", [RESULT, ANSWER]),
        ("clear", None),
        ("add", [ASKED]),
    ]
    for fail_at in count(1):
        host = FragileHost(at=fail_at)
        states: list[list[Item]] = [[]]
        try:
            items = Keep.open("/keep", host=host, environment={}).items("chat", cwd="/")
            for act, what in script:
                before = states[-1]
                states.append([*before, *what] if what else before[:-1] if act == "pop" else [])
                items.add(what, run="r") if what else items.pop() if act == "pop" else items.clear()
                states = states[-1:]  # acknowledged: from here on it is promised
        except PowerCut:
            pass
        found = Keep.open("/keep", host=host.reboot(), environment={}).items("chat", cwd="/").now()
        assert found in states, fail_at
        if host.calls < fail_at:
            break


def test_a_failing_disk_is_reported_and_the_same_session_works_again(keep: Keep, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        session = DreamkeepSession("chat", keep)
        await session.add_items([ASKED])

        def broken(handle: int, data: bytes) -> int:
            raise OSError(5, "broken")

        with monkeypatch.context() as patch:
            patch.setattr(keep.context.host, "write", broken)
            with pytest.raises(NotDurable):
                await session.add_items([ANSWER])
        assert await session.get_items() == [ASKED]
        await session.add_items([ANSWER])
        assert await session.get_items() == [ASKED, ANSWER]

    run(work())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_goes_on_with_the_session_it_inherited(keep: Keep) -> None:
    session = DreamkeepSession("chat", keep)
    run(session.add_items([ASKED]))
    child = os.fork()
    if child == 0:
        try:
            run(session.add_items([ANSWER]))
            session.close()
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert run(session.get_items()) == [ASKED, ANSWER]


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(st.characters()) | st.just("\ud800"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8) | st.just("$n"), inner, max_size=3),
    max_leaves=8,
)
_ITEM = st.dictionaries(
    st.sampled_from(["role", "type", "content", "output", "call_id", "summary", "arguments", "$d"]),
    _JSON
    | st.sampled_from(["user", "assistant", "message", "reasoning", "function_call", "compaction", "x_call", "x_call_output"]),
    max_size=5,
)
_ACT = st.one_of(
    st.lists(_ITEM, max_size=3), st.sampled_from(["pop", "clear", "look"]), st.lists(_ITEM, min_size=1, max_size=2).map(tuple)
)


@settings(max_examples=40)
@given(acts=st.lists(st.tuples(st.integers(0, 1), _ACT), max_size=12))
def test_a_session_is_what_a_list_would_be_whoever_writes(tmp_path_factory: pytest.TempPathFactory, acts: list[Any]) -> None:
    root = str(tmp_path_factory.mktemp("list") / "keep")
    expected: list[Item] = []
    with Keep.open(root) as one, Keep.open(root) as two:
        both = [one.items("chat"), two.items("chat")]
        for who, act in acts:
            items = both[who]
            if act == "pop":
                assert items.pop() == (expected.pop() if expected else None)
            elif act == "clear":
                items.clear()
                expected = []
            elif isinstance(act, list):
                items.add(act, run="r")
                expected += act
            elif isinstance(act, tuple):
                items.add(act, run="", instead=True)
                expected = list(act)
            assert items.now() == expected
            if who and expected:
                two.sessions()  # the index follows, bit by bit
        assert both[0].now() == both[1].now() == expected
        if one.exists() and acts and any(isinstance(act, list) for _, act in acts):
            followed = one.show("chat")
            one.reindex(from_zero=True)
            assert one.show("chat") == followed, "read in one go it is another session"
            assert one.audit()["clean"]


@settings(max_examples=200)
@given(
    bodies=st.lists(st.tuples(st.sampled_from([Kind.ITEMS_ADDED, Kind.ITEMS_POPPED, Kind.ITEMS_CLEARED, Kind.RUN_OVER]), _JSON))
)
def test_no_body_makes_the_fold_raise_or_call_a_reader_broken(bodies: list[Any]) -> None:
    class Nothing:
        def message(self, key: str) -> None: ...

        def twin(self, twin: str, not_heard: int, after: tuple[int, int]) -> None: ...

        def turn(self, turn: str) -> None: ...

        def last_turns(self, count: int) -> list[Any]:
            return []

    fold = Fold("python:chat", {}, Changes(Nothing()))
    summary = empty("python:chat")
    for n, (kind, body) in enumerate(bodies, 1):
        held = {"run": "r", "items": body} if n % 2 else {"items": [body], "of": body, "state": body, "run": body}
        summary = fold.step(summary, n, Event(f"e{n}", kind, "2026-01-01T00:00:00.000000Z", held))
    assert "odd" not in fold.state()
    json.dumps(fold.state())


def journal(keep: Keep) -> list[Event]:
    from dreamkeep.journal.scan import read_events

    [folder] = Path(keep.root, "journal", "sessions", "python").iterdir()
    return [event for _, event in read_events(RealHost(), str(folder))]
