"""MCP over stdin and stdout: one message a line. Ends when the client closes stdin.

Only the protocol uses stdin and stdout. Whatever else this process or its children print goes to stderr, and they read nothing.
Requests from before the end are still answered, for a while. A dream that takes longer is stopped as by a crash, which loses
nothing.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from typing import NoReturn

from dreamkeep.surfaces.mcp import protocol
from dreamkeep.surfaces.mcp.calls import Tools
from dreamkeep.surfaces.mcp.lanes import Lanes
from dreamkeep.surfaces.mcp.protocol import Cancel, McpConnection, ProtocolReply, ToolCall

LARGEST = 16 << 20
#: How long to wait for answers after the client has closed. Quick ones come soon, unless the machine is very busy.
_LAST_WORDS_S, _QUICK_S = 5.0, 60.0


def run(tools: Tools) -> int:
    wire_in, wire_out = _private(0, os.O_RDONLY), _private(1, os.O_WRONLY)
    with os.fdopen(wire_in, "rb") as lines:
        done = serve(tools, lines.readline, lambda data: _write(wire_out, data))
    if not done:
        leave()
    tools.close()
    return 0


def leave() -> NoReturn:
    """Exit at once: an orderly exit would interrupt working threads in the middle of the database's code."""
    sys.stderr.flush()
    os._exit(0)


def _private(number: int, way: int) -> int:
    """Move stdin or stdout to another handle, which `print` and children don't know. Stderr takes the place of stdout, an empty
    file that of stdin."""
    wire = os.dup(number)
    nothing = os.open(os.devnull, way)
    try:
        os.dup2(2 if way == os.O_WRONLY else nothing, number)
    except OSError:
        os.dup2(nothing, number)
    os.close(nothing)
    return wire


def _write(wire: int, data: bytes) -> None:
    while data:
        data = data[os.write(wire, data) :]


def serve(tools: Tools, readline: Callable[[int], bytes], write: Callable[[bytes], None]) -> bool:
    """Serve until the input ends. Returns whether every request was answered."""
    talk, lanes, out = McpConnection(), Lanes(tools.answer), _Output(write)
    while line := readline(LARGEST):
        if len(line) == LARGEST and not line.endswith(b"\n"):
            while line and not line.endswith(b"\n"):
                line = readline(LARGEST)
            out.say(protocol.make_error(None, protocol.NO_REQUEST, f"a message can be at most {LARGEST >> 20} MiB"))
        elif line.strip():
            _take(line, talk, lanes, out)
    return lanes.done(_LAST_WORDS_S, _QUICK_S)


def _take(line: bytes, talk: McpConnection, lanes: Lanes, out: _Output) -> None:
    message = protocol.parse_message(line)
    if isinstance(message, ProtocolReply):
        out.say(message)
        return
    messages = protocol.split_batch(message, talk)
    if isinstance(messages, ProtocolReply):
        out.say(messages)
        return
    if messages is None:
        _step(message, talk, lanes, out.line)
        return
    batched = _BatchAnswers(len(messages), out.line)
    for one in messages:
        _step(one, talk, lanes, batched.add)


def _step(message: object, talk: McpConnection, lanes: Lanes, tell: Callable[[bytes | None], None]) -> None:
    match protocol.read_message(message, talk):
        case ToolCall() as call:
            lanes.put(call, tell)
        case Cancel(id):
            lanes.cancel(id)
            tell(None)
        case ProtocolReply(body):
            tell(protocol.encode_message(body))
        case None:
            tell(None)


class _Output:
    """Writes whole lines from any thread. After the client has gone, nothing more is written."""

    def __init__(self, write: Callable[[bytes], None]) -> None:
        self._write = write
        self._lock = threading.Lock()
        self._closed = False

    def say(self, reply: ProtocolReply) -> None:
        self.line(protocol.encode_message(reply.body))

    def line(self, data: bytes | None) -> None:
        if data is None:
            return
        with self._lock:
            if self._closed:
                return
            try:
                self._write(data + b"\n")
            except OSError:
                self._closed = True


class _BatchAnswers:
    """Collects the answers of a batch and sends them as one when the last is there."""

    def __init__(self, expected: int, tell: Callable[[bytes | None], None]) -> None:
        self._expected = expected
        self._tell = tell
        self._lock = threading.Lock()
        self._answers: list[bytes] = []

    def add(self, data: bytes | None) -> None:
        with self._lock:
            self._expected -= 1
            if data is not None:
                self._answers.append(data)
            if self._expected == 0:
                self._tell(b"[" + b",".join(self._answers) + b"]" if self._answers else None)
