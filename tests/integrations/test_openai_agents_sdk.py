"""The OpenAI Agents SDK itself runs agents with our session, and a model of our own behind HTTP."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dreamkeep import Keep
from dreamkeep.integrations.openai_agents import DreamkeepSession
from tests.helpers.responses_server import Server, serving
from tests.paths import ROOT

agents = pytest.importorskip("agents", reason="the OpenAI Agents SDK is not installed (the extra `openai-agents`)")
openai = pytest.importorskip("openai")

ROOT = ROOT
#: The SDK leaves clients and generators to the garbage collector.
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


@pytest.fixture
def model() -> Iterator[Server]:
    with serving() as server:
        yield server


@pytest.fixture(autouse=True)
def _nothing_goes_out() -> None:
    agents.set_tracing_disabled(True)


def agent(model: Server, **more: Any) -> Any:
    @agents.function_tool(**more.pop("tool", {}))  # type: ignore[untyped-decorator]
    def weather(city: str) -> str:
        return f"raining in {city}"

    client = openai.AsyncOpenAI(base_url=model.url, api_key="none", max_retries=0)
    return agents.Agent(name="a", model=agents.OpenAIResponsesModel("stub", client), tools=[weather], **more)


def turns(keep: Keep) -> list[tuple[str, str]]:
    return [(turn["prompt"], turn["state"]) for turn in keep.show("chat")["turns"]]


def test_it_is_a_session_by_the_sdks_own_protocol(keep: Keep) -> None:
    from agents.memory import Session, SessionSettings

    assert isinstance(DreamkeepSession("chat", keep), Session)
    settings = DreamkeepSession("chat", keep, session_settings={"limit": 3}).session_settings
    assert settings == SessionSettings(limit=3)


@pytest.mark.parametrize("how", ["whole", "streamed", "sync"])
def test_a_run_is_kept_and_the_next_one_is_given_all_of_it(keep: Keep, model: Server, how: str) -> None:
    def ask(session: DreamkeepSession, words: str) -> str:
        async def streamed() -> str:
            result = agents.Runner.run_streamed(agent(model), words, session=session)
            async for _ in result.stream_events():
                pass
            return str(result.final_output)

        async def whole() -> str:
            return str((await agents.Runner.run(agent(model), words, session=session)).final_output)

        if how == "sync":
            # As a script without a loop has it.
            with asyncio.Runner() as loop:
                asyncio.set_event_loop(loop.get_loop())
                return str(agents.Runner.run_sync(agent(model), words, session=session).final_output)
        return asyncio.run(streamed() if how == "streamed" else whole())

    session = DreamkeepSession("chat", keep)
    assert ask(session, "how is the weather?") == "It is raining in Bern."
    session.close()
    with Keep.open(keep.root) as other:
        again = DreamkeepSession("chat", other)
        assert ask(again, "thank you") == "Hello."
        kept = asyncio.run(again.get_items())
    # What the model was given is what was kept, but for its own answer.
    assert [_core(item) for item in model.asked[-1]["input"]] == [_core(item) for item in kept[:-1]]
    assert [item.get("type", item.get("role")) for item in kept] == [
        *("user", "reasoning", "message", "function_call", "function_call_output", "message"),
        *("user", "message"),
    ]
    assert turns(keep) == [("how is the weather?", "completed"), ("thank you", "completed")]
    assert keep.search("raining")[0].session == "python:chat"
    assert keep.audit()["clean"]


def _core(item: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(json.dumps(item.get(key)) for key in ("role", "content", "call_id", "arguments", "output"))


def test_the_sdks_own_session_and_ours_hold_the_same(keep: Keep, model: Server) -> None:
    async def work() -> None:
        theirs, ours = agents.SQLiteSession("chat"), DreamkeepSession("chat", keep)
        for words in ("how is the weather?", "thank you"):
            for session in (theirs, ours):
                del model.asked[:]  # the model counts its answers by what it was asked
                await agents.Runner.run(agent(model), words, session=session)
        assert await ours.get_items() == await theirs.get_items()
        assert await ours.get_items(3) == await theirs.get_items(3)
        assert await ours.pop_item() == await theirs.pop_item()
        assert await ours.get_items() == await theirs.get_items()
        theirs.close()

    asyncio.run(work())


@pytest.mark.parametrize("streamed", [False, True])
def test_a_run_that_fails_or_is_cancelled_ends_its_turn_so(keep: Keep, model: Server, streamed: bool) -> None:
    async def ask(session: DreamkeepSession, words: str) -> None:
        if not streamed:
            await agents.Runner.run(agent(model), words, session=session)
            return
        result = agents.Runner.run_streamed(agent(model), words, session=session)
        try:
            async for _ in result.stream_events():
                pass
        finally:
            result.cancel()

    async def work() -> None:
        session = DreamkeepSession("chat", keep)
        with pytest.raises(openai.InternalServerError):
            await asyncio.create_task(ask(session, "break"))
        waits = asyncio.create_task(ask(session, "wait"))
        await asyncio.to_thread(model.waiting.wait)
        assert turns(keep)[1:] == [("wait", "started")]
        waits.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waits
        await asyncio.create_task(ask(session, "thank you"))
        await session.aclose()

    asyncio.run(work())
    assert turns(keep) == [("break", "failed"), ("wait", "interrupted"), ("thank you", "completed")]


def test_runs_at_once_on_one_session_each_keep_their_own(keep: Keep, model: Server) -> None:
    async def work() -> None:
        session, other = DreamkeepSession("chat", keep), DreamkeepSession("chat", keep)
        runs = [agents.Runner.run(agent(model), f"weather {n}", session=(session, other)[n % 2]) for n in range(6)]
        await asyncio.gather(*runs)
        assert await session.get_items() == await other.get_items()

    asyncio.run(work())
    shown = keep.show("chat")
    assert [turn["state"] for turn in shown["turns"]] == ["completed"] * 6
    for turn in shown["turns"]:
        roles = [message["role"] for message in shown["messages"] if message["turn"] == turn["id"]]
        assert roles == ["user", "reasoning", "assistant", "assistant", "tool", "assistant"]


def test_a_call_that_is_approved_later_completes_its_turn(keep: Keep, model: Server) -> None:
    asks = agent(model, tool={"needs_approval": True})

    async def first() -> Any:
        async with DreamkeepSession("chat", keep) as session:
            result = await agents.Runner.run(asks, "weather?", session=session)
        state = result.to_state()
        state.approve(result.interruptions[0])
        return state.to_json()

    async def later(state: Any) -> str:
        async with DreamkeepSession("chat", keep) as session:
            again = await agents.RunState.from_json(asks, state)
            return str((await agents.Runner.run(asks, again, session=session)).final_output)

    waiting = asyncio.run(first())
    assert turns(keep) == [("weather?", "interrupted")]
    assert asyncio.run(later(waiting)) == "It is raining in Bern."
    assert turns(keep) == [("weather?", "completed")]


def test_the_sdks_compaction_goes_through_us_in_one_step(keep: Keep, model: Server) -> None:
    from agents.memory import OpenAIResponsesCompactionSession

    async def work() -> None:
        ours = DreamkeepSession("chat", keep)
        client = openai.AsyncOpenAI(base_url=model.url, api_key="none", max_retries=0)
        session = OpenAIResponsesCompactionSession("chat", underlying_session=ours, client=client, compaction_mode="input")
        await agents.Runner.run(agent(model), "how is the weather?", session=session)
        await session.run_compaction({"force": True})
        kept = await ours.get_items()
        assert [item.get("type", item.get("role")) for item in kept][-1] == "compaction" and len(kept) == 2
        await agents.Runner.run(agent(model), "thank you", session=session)

    asyncio.run(work())
    shown = keep.show("chat")
    assert turns(keep) == [("how is the weather?", "completed"), ("thank you", "completed")]
    assert len(shown["compactions"]) == 1


def test_a_run_that_is_killed_is_interrupted_and_another_process_goes_on(keep: Keep, model: Server) -> None:
    program = (
        "import asyncio, sys, openai, agents\n"
        "from dreamkeep.integrations.openai_agents import DreamkeepSession\n"
        "agents.set_tracing_disabled(True)\n"
        "client = openai.AsyncOpenAI(base_url=sys.argv[1], api_key='none', max_retries=0)\n"
        "agent = agents.Agent(name='a', model=agents.OpenAIResponsesModel('stub', client))\n"
        "agents.Runner.run_sync(agent, 'wait', session=DreamkeepSession('chat', sys.argv[2]))\n"
    )
    with subprocess.Popen([sys.executable, "-c", program, model.url, keep.root]) as runs:
        assert model.waiting.wait(60)
        assert turns(keep) == [("wait", "started")]
        runs.send_signal(signal.SIGKILL)
    assert turns(keep) == [("wait", "interrupted")]

    async def work() -> None:
        async with DreamkeepSession("chat", keep) as session:
            await agents.Runner.run(agent(model), "thank you", session=session)

    asyncio.run(work())
    assert turns(keep) == [("wait", "interrupted"), ("thank you", "completed")]
    assert model.asked[-1]["input"][0]["content"] == "wait"


def test_the_example_of_the_page_runs_as_it_stands(model: Server, tmp_path: Path) -> None:
    [program] = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "openai-agents.md").read_text(), re.DOTALL)
    more = {"OPENAI_BASE_URL": model.url, "OPENAI_API_KEY": "none", "OPENAI_AGENTS_DISABLE_TRACING": "1"}
    ran = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env={**os.environ, **more}, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr
    assert "It is raining in Bern." in ran.stdout and "completed" in ran.stdout
