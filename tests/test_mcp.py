"""The MCP server, by its own words on stdin and stdout. (A real client drives it once recall is built.)"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from dreamkeep import Keep


def talk(keep: Path, *messages: Any) -> list[dict[str, Any]]:
    given = "".join((m if isinstance(m, str) else json.dumps(m)) + "\n" for m in messages)
    done = subprocess.run(
        [sys.executable, "-m", "dreamkeep", "mcp", "--keep", str(keep)], input=given, capture_output=True, text=True, check=True
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def ask(id: int, method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}


def call(id: int, name: str, **arguments: Any) -> dict[str, Any]:
    return ask(id, "tools/call", name=name, arguments=arguments)


def test_a_client_is_greeted_and_told_of_the_tools_without_a_keep(tmp_path: Path) -> None:
    hello, tools = talk(
        tmp_path / "none",
        ask(1, "initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo={"name": "t", "version": "1"}),
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        ask(2, "tools/list"),
    )
    assert hello["result"]["protocolVersion"] == "2025-06-18"
    assert [tool["name"] for tool in tools["result"]["tools"]] == ["search", "timeline"]
    assert all(tool["annotations"]["readOnlyHint"] for tool in tools["result"]["tools"])
    assert not (tmp_path / "none").exists()


def test_a_hit_is_found_and_read_around(tmp_path: Path) -> None:
    with Keep.open(tmp_path / "keep") as keep:
        keep.session("chat").record("why is the lock file old?", ("assistant", "Because of the cache."))
    found, read = talk(tmp_path / "keep", call(1, "search", query="lock file"), call(2, "timeline", session="chat", around="2.1"))
    [hit] = found["result"]["structuredContent"]["hits"]
    assert (hit["session"], hit["seq"], hit["text"]) == ("python:chat", "3.1", "why is the lock file old?")
    assert read["result"]["isError"], "no such seq is an error that a model can act on"
    [read] = talk(tmp_path / "keep", call(2, "timeline", session="chat", around=hit["seq"]))
    assert [m["text"] for m in read["result"]["structuredContent"]["messages"]][-1] == "Because of the cache."


def test_bad_words_get_an_answer_and_do_not_end_the_talk(tmp_path: Path) -> None:
    bad = ["nonsense", "[]", "{}", "7", ask(1, "no/such"), ask(2, "tools/call", name="drop", arguments=None)]
    bad += [
        call(3, "search"),
        call(4, "search", query=5),
        call(5, "search", query='"', limit=0),
        call(6, "timeline", session="?"),
    ]
    answers = talk(tmp_path / "none", *bad, ask(99, "ping"))
    assert answers[-1] == {"jsonrpc": "2.0", "id": 99, "result": {}}
    assert answers[0]["error"]["code"] == -32700
    by_id = {a["id"]: a for a in answers}
    assert by_id[1]["error"]["code"] == -32601
    for n in (2, 3, 4, 5, 6):
        assert by_id[n]["result"]["isError"], n
