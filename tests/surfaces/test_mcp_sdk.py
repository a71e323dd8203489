"""The MCP server, driven by the official client: every tool, over both transports and in both eras of the protocol.

The client checks what it gets: the form of each message against the protocol's schema, each answer against its `outputSchema`.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from dreamkeep import Keep
from tests.helpers.answers import answer
from tests.helpers.mcp_talk import TOOLS, address, slow_keep, talked, words

mcp = pytest.importorskip("mcp", reason="the official package is not installed")
anyio = pytest.importorskip("anyio")

Work = Callable[[Any], Awaitable[None]]
#: How the client speaks: as it does with servers of 2025, or (`auto`) as it likes best.
ERAS = {"legacy": "2025-11-25", "auto": "2026-07-28"}
EVERY = [(transport, era) for transport in ("stdio", "http") for era in ERAS]
both = pytest.mark.parametrize(("transport", "era"), EVERY, ids=[f"{transport}-{era}" for transport, era in EVERY])


def drive(root: Path, transport: str, era: str, work: Work) -> None:
    """A server of its own for each piece of work."""

    async def run() -> None:
        async with _client(root, transport, era) as client:
            assert client.protocol_version == ERAS[era]
            await work(client)

    anyio.run(run)


@asynccontextmanager
async def _client(root: Path, transport: str, era: str) -> AsyncIterator[Any]:
    if transport == "stdio":
        command = words(root)
        async with mcp.Client(mcp.StdioServerParameters(command=command[0], args=command[1:], env=_paths()), mode=era) as client:
            yield client
        return
    with address(root) as server:
        async with _over_http(server.url, server.token, era) as client:
            yield client


@asynccontextmanager
async def _over_http(url: str, token: str, era: str) -> AsyncIterator[Any]:
    """As docs/mcp.md says: the token goes into a header of every request."""
    import httpx2
    from mcp.client.streamable_http import streamable_http_client

    async with (
        httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"} if token else {}, timeout=60) as http,
        mcp.Client(streamable_http_client(url, http_client=http), mode=era) as client,
    ):
        yield client


def _paths() -> dict[str, str]:
    """The client starts a server with few variables; here it must find the package that is tested."""
    return {"PYTHONPATH": ":".join(one for one in sys.path if one)}


async def ask(client: Any, tool: str, **arguments: Any) -> dict[str, Any]:
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content
    found: dict[str, Any] = result.structured_content
    return found


@both
def test_every_tool_does_its_work(tmp_path: Path, transport: str, era: str) -> None:
    root = tmp_path / "keep"
    talked(root, ("Always run the linter before a commit, never after.", "Understood."), id="done", end=True)
    talked(root, ("Deploys go out on Tuesdays only.", "I see."), id="rules")
    talked(root, ("why is the lock file old?", "Because of the cache."))

    async def work(client: Any) -> None:
        listed = await client.list_tools()
        assert tuple(tool.name for tool in listed.tools) == TOOLS and client.server_info.name == "dreamkeep"
        assert all(tool.description and tool.annotations and tool.output_schema for tool in listed.tools)
        assert "search" in client.instructions

        [hit, *_] = (await ask(client, "search", query="lock file"))["hits"]
        around = await ask(client, "timeline", session=hit["session"], around=hit["seq"])
        assert [one["text"] for one in around["messages"]] == ["why is the lock file old?", "Because of the cache."]
        rule = "Deploys go out on Tuesdays only."
        note = (await ask(client, "note_add", text=rule, quote=rule, session="rules", kind="constraint"))["note"]
        waits = (await ask(client, "note_add", text="Releases need a second look."))["note"]
        assert (note["state"], waits["state"]) == ("active", "suggested")
        assert (await ask(client, "note_pin", note=note["id"]))["note"]["pinned"]
        assert (await ask(client, "why", note=note["id"]))["insights"]
        learned = await ask(client, "insight_add", type="finding", text="The cache keeps lock files for a day.", session="chat")
        assert learned["insight"]["type"] == "finding"
        assert (await ask(client, "dream_status"))["counts"] == {"eligible": 1}
        assert (await ask(client, "dream_run", dry_run=True))["processed"] == 1
        made = await ask(client, "dream_run")
        assert made["status"] == "completed" and made["notes"]["added"] >= 1
        assert (await ask(client, "dream_status"))["last_successful_run_at"]
        packed = await ask(client, "pack", query="deploy", budget=1000)
        assert "Tuesdays" in packed["text"] and packed["tokens"] <= 1000
        by_kind = {"note": ("linter", "Tuesdays"), "insight": ("lock files for a day",), "message": ("lock file",)}
        for kind, queries in by_kind.items():
            for query in queries:
                hits = (await ask(client, "search", query=query, kinds=[kind]))["hits"]
                assert hits and hits[0]["kind"] == kind, query
        assert (await ask(client, "note_retract", note=waits["id"], reason="no more"))["retracted"]
        assert not (await ask(client, "note_retract", note=note["id"], reason="now daily"))["retracted"]

    drive(root, transport, era, work)


@both
def test_an_agent_sees_the_inbox_and_only_the_user_decides(tmp_path: Path, transport: str, era: str) -> None:
    root = tmp_path / "keep"
    talked(root, ("hello", "Hello."), id="chat")

    async def work(client: Any) -> None:
        assert (await ask(client, "review"))["items"] == []
        await ask(client, "note_add", text="Deploys go out on Tuesdays only.", kind="constraint")
        told = await ask(client, "review", limit=5)
        [one] = told["items"]
        assert (one["type"], one["text"], told["total"]) == ("note", "Deploys go out on Tuesdays only.", 1)
        assert "dreamkeep review" in told["next"]
        tools = {tool.name: tool.input_schema["properties"] for tool in (await client.list_tools()).tools}
        assert set(tools["review"]) == {"project", "limit"}, "nothing by which it could accept"

    drive(root, transport, era, work)
    with Keep.open(str(root)) as keep:
        assert len(keep.review()["items"]) == 1 and keep.notes() == []


@both
def test_the_agent_at_hand_dreams_with_two_tools_until_nothing_waits(tmp_path: Path, transport: str, era: str) -> None:
    """It sees nothing but the requests. A session that goes on, as its own does, is never offered."""
    root = tmp_path / "keep"
    talked(root, ("Always run the linter before a commit.", "Understood."), id="one", end=True)
    talked(root, ("Never push to main, ask first.", "Understood."), id="two", end=True)
    talked(root, ("Never offer me this.", "Understood."), id="own")

    async def work(client: Any) -> None:
        seen: list[str] = []
        told = await ask(client, "dream_next")
        while told["request"]:
            assert "Never offer me this" not in told["request"]["user"]
            seen.append(told["session"])
            made = await ask(client, "dream_submit", request=told["request"]["id"], answer=answer(told["request"]))
            assert made["problems"] == []
            told = made["next"] or await ask(client, "dream_next")
        assert list(dict.fromkeys(seen)) == ["python:one", "python:two"] and len(seen) <= 3 * 2
        assert told["why"] and (await ask(client, "dream_status"))["counts"] == {"already_consolidated": 2}
        refused = await client.call_tool("dream_submit", {"request": "0" * 32, "answer": {"items": []}})
        assert refused.is_error and "no longer open" in refused.content[0].text

    drive(root, transport, era, work)
    with Keep.open(root) as keep:
        assert sorted(note["text"] for note in keep.notes()) == [
            "Always run the linter before a commit.",
            "Never push to main, ask first.",
        ]
    assert not list((root / "state" / "exchange").iterdir())


@both
def test_a_hundred_calls_at_once_are_each_answered(tmp_path: Path, transport: str, era: str) -> None:
    root = tmp_path / "keep"
    for n in range(10):
        talked(root, (f"what is zebra{n}?", f"An animal, the {n}th."), id=f"s{n}")

    async def work(client: Any) -> None:
        answered: dict[int, Any] = {}

        async def one(n: int) -> None:
            if n % 10 == 0:
                answered[n] = await ask(client, "note_add", text=f"zebra{n} is striped")
            else:
                answered[n] = (await ask(client, "search", query=f"zebra{n % 10}", limit=1))["hits"][0]["text"]

        async with anyio.create_task_group() as together:
            for n in range(100):
                together.start_soon(one, n)
        assert len(answered) == 100
        assert all(answered[n] == f"what is zebra{n % 10}?" for n in range(100) if n % 10)

    drive(root, transport, era, work)
    with Keep.open(root) as keep:
        assert {one["text"] for one in keep.notes(state="suggested")} == {f"zebra{n} is striped" for n in range(0, 100, 10)}


@both
def test_malformed_arguments_get_a_clear_error(tmp_path: Path, transport: str, era: str) -> None:
    talked(tmp_path / "keep", ("hello", "there"))

    async def work(client: Any) -> None:
        bad: list[tuple[str, dict[str, Any], str]] = [
            ("search", {}, "`query` is missing"),
            ("search", {"query": ["x"]}, "`query` must be a text"),
            ("search", {"query": "x", "limit": 5000}, "`limit` must be from 1 to 50, not 5000"),
            ("timeline", {"session": "nobody"}, "no session 'nobody'"),
            ("why", {"note": "n-1"}, "no note"),
            ("dream_run", {"force": True}, "unknown argument 'force'"),
        ]
        for tool, arguments, told in bad:
            result = await client.call_tool(tool, arguments)
            assert result.is_error and told in result.content[0].text, result
        with pytest.raises(mcp.MCPError, match="unknown tool 'drop'"):
            await client.call_tool("drop", {})

    drive(tmp_path / "keep", transport, era, work)


@both
def test_a_slow_call_delays_no_other(tmp_path: Path, transport: str, era: str) -> None:
    root, go = tmp_path / "keep", tmp_path / "go"
    slow_keep(root, go)

    async def work(client: Any) -> None:
        made: list[Any] = []

        async def slow() -> None:
            made.append(await ask(client, "dream_run"))

        async with anyio.create_task_group() as together:
            together.start_soon(slow)
            while not (await ask(client, "dream_status"))["running"]:
                pass
            for _ in range(10):
                assert (await ask(client, "search", query="tabs"))["hits"]
                if era == "legacy":
                    await client.session.send_ping()
            assert not made
            go.touch()
        assert made[0]["status"] == "completed"

    drive(root, transport, era, work)


@both
def test_a_call_that_the_client_gave_up_does_not_disturb_the_next(tmp_path: Path, transport: str, era: str) -> None:
    root, go = tmp_path / "keep", tmp_path / "go"
    slow_keep(root, go)

    async def work(client: Any) -> None:
        with anyio.move_on_after(0.5) as given_up:
            await client.call_tool("dream_run", {})
        assert given_up.cancelled_caught
        assert (await ask(client, "search", query="tabs"))["hits"]
        go.touch()
        while (await ask(client, "dream_status"))["running"]:
            pass
        assert (await ask(client, "search", query="tabs"))["hits"]

    drive(root, transport, era, work)


@pytest.mark.parametrize("era", ERAS)
def test_the_official_client_gets_in_with_the_token_of_the_keep_only(tmp_path: Path, era: str) -> None:
    talked(tmp_path / "keep", ("why is the lock file old?", "Because of the cache."))

    async def run() -> None:
        with address(tmp_path / "keep") as server:
            for wrong in ("", "wrong" * 8, server.token[:-1]):
                with pytest.raises(BaseExceptionGroup) as refused:
                    async with _over_http(server.url, wrong, era):
                        pass
                assert "Server returned an error response" in _causes(refused.value)
            async with _over_http(server.url, server.token, era) as client:
                assert (await ask(client, "search", query="lock"))["hits"]

    anyio.run(run)


def _causes(problem: BaseException) -> str:
    inner = problem.exceptions if isinstance(problem, BaseExceptionGroup) else ()
    return " ".join([str(problem), *map(_causes, inner)])
