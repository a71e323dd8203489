"""How soon the MCP server answers, and what a call costs through it.

Starting: from the start of the process (as `init` enters it) until the answers to `initialize` and `tools/list` are read, against
`python -c pass`; both whole processes of one interpreter, in turn, with compiled modules kept as after an installation. Importing
the official SDK alone stands beside it, where it is installed: that is why it is not used.

Calls: the same search in the same keep of 2,000 messages, asked of `Keep` in this process, of a server on pipes and of one over
HTTP (a new connection each time); all three follow the index and open it anew for each answer.
"""

from __future__ import annotations

import http.client
import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from bench.side_by_side import Act, Goal, Table, arguments, milliseconds, say, take_turns, workplace
from bench.startup import _keeping_compiled_modules, _starting

from dreamkeep import Keep

_GOAL = Goal(10)
_HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}
_FIRST: tuple[dict[str, Any], ...] = (
    {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": _HELLO},
    {"jsonrpc": "2.0", "method": "notifications/initialized"},
    {"jsonrpc": "2.0", "id": 2, "method": "tools/list"},
)
_QUERY = "why does the build of module 7 fail"
_SEARCH = {"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": {"name": "search", "arguments": {"query": _QUERY}}}


def main() -> None:
    given = arguments(__doc__ or "").parse_args()
    with workplace(given.dir) as place:
        environment = _keeping_compiled_modules(f"{place}/compiled")
        say("mcp: filling a keep")
        root = _filled(f"{place}/keep")
        say("mcp: starting servers")
        _start(root, environment, 8 if given.quick else 60)
        say("mcp: asking")
        _ask(root, environment, 20 if given.quick else 200)


def _words(root: str, *more: str) -> list[str]:
    return [sys.executable, "-P", "-m", "dreamkeep", "mcp", "--keep", root, *more]


def _start(root: str, environment: dict[str, str], rounds: int) -> None:
    base = "python -c pass"
    sides: dict[str, Act] = {
        base: _starting([sys.executable, "-c", "pass"], environment),
        "initialize + tools/list on pipes": lambda: _greeted(root, environment),
        "… and a first search": lambda: _greeted(root, environment, _SEARCH),
    }
    times = take_turns(sides, rounds)
    table = Table("Until an agent has our tools")
    for n, name in enumerate(list(sides)[1:]):
        table.compare(name, times[name], times[base], _GOAL if n == 0 else None, show=milliseconds)
    if importlib.util.find_spec("mcp"):
        name = "importing the SDK, and nothing else"
        slow = {base: sides[base], name: _starting([sys.executable, "-c", "import mcp"], environment)}
        times = take_turns(slow, 5, warm_up=1)  # more than a second each
        table.compare(name, times[name], times[base], show=milliseconds)
    table.print()


def _greeted(root: str, environment: dict[str, str], *more: dict[str, Any]) -> None:
    """Its end is not waited for: a client does not, either."""
    asked = (*_FIRST, *more)
    process = _server(root, environment)
    _told(process, asked, sum("id" in one for one in asked))
    process.kill()
    process.communicate()


def _server(root: str, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(_words(root), stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, close_fds=False)


def _told(process: subprocess.Popen[bytes], asked: Any, answers: int) -> None:
    assert process.stdin and process.stdout
    process.stdin.write(b"".join(json.dumps(one).encode() + b"\n" for one in asked))
    process.stdin.flush()
    for _ in range(answers):
        assert b'"error"' not in process.stdout.readline()


def _ask(root: str, environment: dict[str, str], rounds: int) -> None:
    base = "Keep.search in this process"
    with Keep.open(root) as keep, _over_http(root, environment) as (port, headers):
        process = _server(root, environment)
        _told(process, _FIRST, 2)
        sides: dict[str, Act] = {
            base: lambda: keep.search(_QUERY),
            "search on pipes": lambda: _told(process, (_SEARCH,), 1),
            "search over HTTP": lambda: _posted(port, _SEARCH, headers),
        }
        times = take_turns(sides, rounds)
        process.kill()
        process.communicate()
    table = Table("A call, against the same question asked directly")
    for name in list(sides)[1:]:
        table.compare(name, times[name], times[base], show=milliseconds)
    table.print()


@contextmanager
def _over_http(root: str, environment: dict[str, str]) -> Iterator[tuple[int, dict[str, str]]]:
    words = _words(root, "--http", "--port", "0", "--json")
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment) as process:
        assert process.stdout
        told = json.loads(process.stdout.readline())
        port = int(told["url"].rpartition(":")[2].partition("/")[0])
        with open(told["token_file"]) as file:
            headers = {"Authorization": f"Bearer {file.read().strip()}"}
        try:
            yield port, {**headers, "Mcp-Session-Id": _posted(port, _FIRST[0], headers)}
        finally:
            process.terminate()


def _posted(port: int, message: Any, more: dict[str, str]) -> str:
    """The session that it gave."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    headers = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json", **more}
    connection.request("POST", "/mcp", json.dumps(message), headers)
    answer = connection.getresponse()
    assert answer.status == 200 and b'"error"' not in answer.read()
    connection.close()
    return answer.headers.get("Mcp-Session-Id", "")


def _filled(root: str) -> str:
    with Keep.open(root) as keep:
        for n in range(20):
            session = keep.session(f"s{n}")
            for turn in range(50):
                session.record(f"why does the build of module {turn} fail in run {n}?", ("assistant", f"A cache of day {turn}."))
        keep.search(_QUERY)
    return root


if __name__ == "__main__":
    main()
