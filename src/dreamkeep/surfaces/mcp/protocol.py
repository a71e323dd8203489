"""JSON-RPC 2.0 and MCP's own methods: reads messages and writes answers. Knows no keep, no pipe, no socket.

    bytes ─► parse_message ─► read_message ─► ProtocolReply   answered here: greeting, list of tools, ping, an invalid request
                                           ├► ToolCall        the transport runs it; `make_reply` makes its outcome a reply
                                           ├► Cancel          the client no longer waits for an answer
                                           └► None            needs no answer

Two eras. The message itself shows to which it belongs, so one connection may use both (the specification's "dual-era server"):

    2024-11-05 … 2025-11-25   `initialize` agrees on a version, which holds from then on; `ping`; batches up to 2025-03-26
    2026-07-28                no greeting: every request names its version in `params._meta`; `server/discover`; no ping, no batch

An error here means that a message breaks the protocol. A tool that fails gives a result (`isError`) with words that a model can
act on.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from dreamkeep import __version__
from dreamkeep.surfaces.mcp.tools import INSTRUCTIONS, NAMES, TOOLS

#: Newest first. These are reached by `initialize` …
GREETED = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
#: … and these are named by each request.
NAMED = ("2026-07-28",)
VERSIONS = NAMED + GREETED
_BATCHES = ("2025-03-26", "2024-11-05")

NO_JSON, NO_REQUEST, NO_METHOD, BAD_PARAMS = -32700, -32600, -32601, -32602
HEADERS_DIFFER, NO_SUCH_VERSION = -32020, -32022

_META = "io.modelcontextprotocol/"
VERSION_KEY, CAPABILITIES_KEY = f"{_META}protocolVersion", f"{_META}clientCapabilities"
_SERVER = {"name": "dreamkeep", "title": "dreamkeep", "version": __version__}
_ABLE: Mapping[str, Any] = {"tools": {}}
#: How long a client may remember the list of tools: it changes only with our version.
_REMEMBER_MS = 300_000
#: The most messages in one batch.
LARGEST_BATCH = 100

Id = str | int


class McpConnection:
    """The protocol version that a connection agreed on; "" before `initialize`."""

    def __init__(self) -> None:
        self.version = ""


class ProtocolReply(NamedTuple):
    body: dict[str, Any]

    @property
    def code(self) -> int:
        """Of an error; 0 if it is none."""
        return int(self.body.get("error", {}).get("code", 0))


class ToolCall(NamedTuple):
    """`named`: whether the request names its version, as from 2026-07-28 on; then the answer has that form, too."""

    id: Id
    tool: str
    arguments: Mapping[str, Any]
    named: bool


class Cancel(NamedTuple):
    id: Id


Step = ProtocolReply | ToolCall | Cancel | None


class _Refuse(Exception):
    def __init__(self, code: int, what: str, data: Any = None) -> None:
        super().__init__(what)
        self.code, self.data = code, data


# -- what comes in


def parse_message(line: bytes) -> Any | ProtocolReply:
    """The message, or the error reply to bytes that are no JSON."""
    try:
        return json.loads(line.decode(), parse_constant=_no_constant)
    except (ValueError, RecursionError) as problem:
        return make_error(None, NO_JSON, f"this is not JSON ({problem})"[:200])


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def split_batch(message: Any, talk: McpConnection) -> list[Any] | ProtocolReply | None:
    """The messages of a batch; None if it is no batch; an error reply if the agreed version has no batches."""
    if not isinstance(message, list):
        return None
    if talk.version not in _BATCHES:
        return make_error(None, NO_REQUEST, "no batches in this version of the protocol: send one message at a time")
    if not 1 <= len(message) <= LARGEST_BATCH:
        return make_error(None, NO_REQUEST, f"a batch must have 1 to {LARGEST_BATCH} messages")
    return message


def read_message(message: Any, talk: McpConnection) -> Step:
    """One message. May change what `talk` has agreed on."""
    if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
        return make_error(_id_of(message), NO_REQUEST, 'this is not a request: a request is an object with "jsonrpc": "2.0"')
    if "method" not in message and ("result" in message or "error" in message):
        return None  # an answer, although we asked nothing
    method, id = message.get("method"), _id_of(message)
    if not isinstance(method, str):
        return make_error(id, NO_REQUEST, "this is not a request: it has no method")
    params = message.get("params")
    if "id" not in message:
        return _notice(method, params if isinstance(params, dict) else {})
    if id is None:
        return make_error(None, NO_REQUEST, "an id must be a string or an integer")
    try:
        if params is not None and not isinstance(params, dict):
            raise _Refuse(BAD_PARAMS, "params must be an object")
        return _request(id, method, params or {}, talk)
    except _Refuse as no:
        return make_error(id, no.code, str(no), no.data)


def names_version(message: Any) -> bool:
    """Whether the message names its version, as every request does from 2026-07-28 on."""
    params = message.get("params") if isinstance(message, dict) else None
    meta = params.get("_meta") if isinstance(params, dict) else None
    return isinstance(meta, dict) and VERSION_KEY in meta and message.get("method") != "initialize"


def _id_of(message: Any) -> Id | None:
    id = message.get("id") if isinstance(message, dict) else None
    return id if isinstance(id, (str, int)) and not isinstance(id, bool) else None


def _notice(method: str, params: Mapping[str, Any]) -> Cancel | None:
    if method != "notifications/cancelled":
        return None
    id = _id_of({"id": params.get("requestId")})
    return Cancel(id) if id is not None else None


def _request(id: Id, method: str, params: Mapping[str, Any], talk: McpConnection) -> ProtocolReply | ToolCall:
    named = method == "server/discover" or names_version({"method": method, "params": params})
    if named:
        _check_meta(params.get("_meta"))
    if method == "tools/call":
        return _call(id, params, named)
    if method == "tools/list":
        if params.get("cursor") is not None:
            raise _Refuse(BAD_PARAMS, "no such page: all tools are on the first one")
        return _reply(id, {"tools": TOOLS}, named, remember=True)
    if method == "server/discover":
        found = {"supportedVersions": list(VERSIONS), "capabilities": _ABLE, "instructions": INSTRUCTIONS}
        return _reply(id, found, True, remember=True)
    if method == "initialize" and not named:
        return _reply(id, _greeting(params, talk), False)
    if method == "ping" and not named:
        return _reply(id, {}, False)
    raise _Refuse(NO_METHOD, f"unknown method {method[:100]!r}")


def _greeting(params: Mapping[str, Any], talk: McpConnection) -> dict[str, Any]:
    wanted = params.get("protocolVersion")
    if not isinstance(wanted, str):
        raise _Refuse(BAD_PARAMS, "protocolVersion must be a string", {"supported": list(GREETED)})
    talk.version = wanted if wanted in GREETED else GREETED[0]
    return {
        "protocolVersion": talk.version,
        "capabilities": _ABLE,
        "serverInfo": _SERVER,
        "instructions": INSTRUCTIONS,
    }


def _check_meta(meta: Any) -> None:
    if not isinstance(meta, dict):
        raise _Refuse(BAD_PARAMS, f"params._meta must be an object with {VERSION_KEY} and {CAPABILITIES_KEY}")
    if missing := [key for key in (VERSION_KEY, CAPABILITIES_KEY) if key not in meta]:
        raise _Refuse(BAD_PARAMS, f"params._meta lacks {' and '.join(missing)}")
    version = meta[VERSION_KEY]
    if not isinstance(version, str):
        raise _Refuse(BAD_PARAMS, f"{VERSION_KEY} must be a string")
    if version not in NAMED:
        data = {"supported": list(VERSIONS), "requested": version[:100]}
        raise _Refuse(NO_SUCH_VERSION, "unknown protocol version", data)
    if not isinstance(meta[CAPABILITIES_KEY], dict):
        raise _Refuse(BAD_PARAMS, f"{CAPABILITIES_KEY} must be an object")


def _call(id: Id, params: Mapping[str, Any], named: bool) -> ToolCall:
    tool, arguments = params.get("name"), params.get("arguments")
    if not isinstance(tool, str):
        raise _Refuse(BAD_PARAMS, "name must be the name of a tool")
    if tool not in NAMES:
        from dreamkeep.verbs.standalone import mask_secrets

        raise _Refuse(BAD_PARAMS, f"unknown tool {mask_secrets(tool)[:100]!r}; the tools are: {', '.join(NAMES)}")
    if arguments is not None and not isinstance(arguments, dict):
        raise _Refuse(BAD_PARAMS, "arguments must be an object")
    return ToolCall(id, tool, arguments or {}, named)


# -- what goes out


class ToolOutcome(NamedTuple):
    """The result of a tool. `text`: for clients that read only text (default: `found` as JSON)."""

    found: Mapping[str, Any]
    text: str = ""
    failed: bool = False


def make_reply(call: ToolCall, outcome: ToolOutcome) -> ProtocolReply:
    text = outcome.text or json.dumps(outcome.found, ensure_ascii=False, separators=(",", ":"))
    result: dict[str, Any] = {"content": [{"type": "text", "text": text}], "isError": outcome.failed}
    if outcome.found:
        result["structuredContent"] = outcome.found
    return _reply(call.id, result, call.named)


def _reply(id: Id, result: dict[str, Any], named: bool, *, remember: bool = False) -> ProtocolReply:
    if named:
        result = {**result, "resultType": "complete", "_meta": {f"{_META}serverInfo": _SERVER}}
        if remember:
            result |= {"ttlMs": _REMEMBER_MS, "cacheScope": "public"}
    return ProtocolReply({"jsonrpc": "2.0", "id": id, "result": result})


def make_error(id: Id | None, code: int, what: str, data: Any = None) -> ProtocolReply:
    error = {"code": code, "message": what, **({} if data is None else {"data": data})}
    return ProtocolReply({"jsonrpc": "2.0", "id": id, "error": error})


def encode_message(body: Any) -> bytes:
    """One line, which every client reads as one, and every JSON parser accepts.

    Node takes U+2028 for the end of a line; strict parsers refuse half a surrogate pair, which captured texts may hold.
    """
    text = json.dumps(body, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for sign, escaped in (("\u2028", "\\u2028"), ("\u2029", "\\u2029"), ("\u0085", "\\u0085")):
        text = text.replace(sign, escaped)
    try:
        return text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").encode()
