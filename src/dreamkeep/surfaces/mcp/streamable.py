"""MCP over streamable HTTP: one address, `/mcp`. Every answer is one JSON document; there are no streams.

    POST     a message (or, up to 2025-03-26, a batch): 200 with the answer, 202 if none is needed
    DELETE   ends a session                             204, 404 if there is none
    GET      405: the server never sends a message first, and the specification allows this answer

Up to 2025-11-25 `initialize` returns a session id, which every later message names (400 without an id; 404 with an unknown one,
so that the client begins again). 2026-07-28 has no sessions: each request names its version, in the body and in headers, which
must agree.

A web page must not reach the server through its visitor's browser: `Host` must name this machine (unless the server listens
elsewhere), and so must `Origin`, if there is one. Every user of the machine can connect, so every request must carry the token.
Without it the answer is an empty 401, whatever the path and the method.

Bodies, connections and sessions are bounded, and each request has a deadline. When all places are taken, a new client gets the
place of the one that has kept the server waiting longest. So slow or silent clients never shut out the others.
"""

from __future__ import annotations

import hmac
import json
import secrets
import select
import signal
import socket
import sys
import threading
import time
from argparse import Namespace
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from dreamkeep.errors import BadUsage, Failed
from dreamkeep.surfaces.mcp import protocol
from dreamkeep.surfaces.mcp.calls import Tools
from dreamkeep.surfaces.mcp.lanes import Lanes
from dreamkeep.surfaces.mcp.protocol import NAMED, VERSION_KEY, VERSIONS, Cancel, McpConnection, ProtocolReply, ToolCall
from dreamkeep.surfaces.mcp.stdio import leave

PATH = "/mcp"
LARGEST = 4 << 20
_SESSIONS = 1_000
_CONNECTIONS = 256
_IDLE_S = 60
_SLOWEST_S = 120.0
_LINGER, _LINGER_S, _LONGEST_LINGER_S = 32 << 20, 2.0, 20.0
_LAST_WORDS_S = 10.0
_LOOK_S = 1.0
#: The HTTP status of an error of the protocol in 2026-07-28. Before, an error was an answer like any other.
_STATUS = {protocol.NO_METHOD: 404, **dict.fromkeys((-32700, -32600, -32602, -32020, -32022), 400)}


def run(tools: Tools, arguments: Namespace) -> int:
    """Serve until SIGTERM or SIGINT. Then calls that are under way are still answered, for a while."""
    from dreamkeep.verbs.standalone import find_http_token

    token = find_http_token(arguments.keep)
    service = Service(tools, token.secret, arguments.host)
    server = _listen(service, arguments.host, arguments.port)
    over: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, frame: over.append(number))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    _announce(server, arguments, token.file)
    # Poll: a signal that another thread gets doesn't wake this one, and a signal handler may take no lock.
    waiting = threading.Event()
    while not over:
        waiting.wait(_LOOK_S / 5)
    server.shutdown()
    server.server_close()  # so that no new client waits in vain
    if not service.quiet(_LAST_WORDS_S):
        leave()
    tools.close()
    return 0


def _announce(server: ThreadingHTTPServer, arguments: Namespace, token_file: str) -> None:
    """Print the address and where the token is, never the token itself."""
    host = f"[{arguments.host}]" if ":" in arguments.host else arguments.host
    url = f"http://{host}:{server.server_address[1]}{PATH}"
    place = f"in the file {token_file}" if token_file else "the value of DREAMKEEP_TOKEN"
    print(f"dreamkeep: MCP at {url} until interrupted (Ctrl-C).", file=sys.stderr)
    print(f"Clients must send the header `Authorization: Bearer TOKEN`. The token is {place}.", file=sys.stderr, flush=True)
    if arguments.json:
        print(json.dumps({"url": url, "token_file": token_file or None}), flush=True)


def _listen(service: Service, host: str, port: int) -> _Server:
    if not 0 <= port <= 65_535:
        raise BadUsage(f"invalid port {port}", where="--port", next="Give a number from 0 to 65535.")
    try:
        return _Server(service, host, port)
    except OSError as problem:
        raise Failed(
            f"can't listen there ({problem.strerror or problem})", where=f"{host}:{port}", next="Choose another --host or --port."
        ) from problem


class _Place:
    """One connection. `until`: the client's deadline to send its request or read its answer; None while the server works."""

    def __init__(self, until: float) -> None:
        self.until: float | None = until
        self.trusted = False


def longest_waiting(places: Mapping[Any, _Place]) -> Any | None:
    """The client whose place a new one gets: first those that never showed the token, then the others. None: no client is
    keeping the server waiting."""
    waiting = [(place.trusted, place.until, number) for number, place in enumerate(places.values()) if place.until is not None]
    return list(places)[min(waiting)[2]] if waiting else None


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, service: Service, host: str, port: int) -> None:
        self.service = service
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._places: dict[socket.socket, _Place] = {}
        self._places_lock = threading.Lock()
        super().__init__((host, port), _Handler)

    def expect(self, line: socket.socket, within_s: float | None) -> None:
        """Set the client's deadline. None: it is the server's turn."""
        with self._places_lock:
            if place := self._places.get(line):
                place.until = None if within_s is None else time.monotonic() + within_s

    def trust(self, line: socket.socket) -> None:
        with self._places_lock:
            if place := self._places.get(line):
                place.trusted = True

    def service_actions(self) -> None:
        """Called twice a second. Stop reading from clients that missed their deadline, so that their threads end."""
        now = time.monotonic()
        with self._places_lock:
            for line, place in self._places.items():
                if place.until is not None and place.until < now:
                    place.until = None
                    with suppress(OSError):  # gone by itself
                        line.shutdown(socket.SHUT_RD)

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._take_place(request):
            request.sendall(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except RuntimeError:  # no thread is left: free the place
            self._leave_place(request)
            raise

    def _take_place(self, line: socket.socket) -> bool:
        with self._places_lock:
            if len(self._places) >= _CONNECTIONS:
                slowest = longest_waiting(self._places)
                if slowest is None:
                    return False
                del self._places[slowest]
                with suppress(OSError):  # gone by itself
                    slowest.shutdown(socket.SHUT_RDWR)
            self._places[line] = _Place(time.monotonic() + _SLOWEST_S)
            return True

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._leave_place(request)

    def _leave_place(self, line: socket.socket) -> None:
        with self._places_lock:
            self._places.pop(line, None)

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), OSError):  # a client that went away is no error
            super().handle_error(request, client_address)


class HttpAnswer(NamedTuple):
    status: int
    body: bytes = b""
    headers: dict[str, str] = {}  # noqa: RUF012  # never changed


class _Refusal(Exception):
    """A request that is refused before its message is read."""

    def __init__(self, status: int, what: str, code: int = protocol.NO_REQUEST, data: Any = None, **headers: str) -> None:
        super().__init__(what)
        body = protocol.encode_message(protocol.make_error(None, code, what, data).body)
        self.answer = HttpAnswer(status, body, {name.replace("_", "-"): value for name, value in headers.items()})


class _MissingToken(_Refusal):
    """The same answer to every request, so that nobody learns from it what is here."""

    def __init__(self) -> None:
        super().__init__(401, "")
        self.answer = HttpAnswer(401, b"", {"WWW-Authenticate": 'Bearer realm="dreamkeep"'})


# -- who may ask


def is_local(name: str) -> bool:
    """Whether a host's name in an address means this machine."""
    import ipaddress

    name = name.lower().rstrip(".").removeprefix("[").removesuffix("]")
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def name_in(authority: str) -> str:
    """`localhost` of `localhost:8377`; `[::1]` of `[::1]:8377`."""
    return (
        authority[: authority.index("]") + 1] if authority.startswith("[") and "]" in authority else authority.partition(":")[0]
    )


class Service:
    """Admits requests and answers them, independently of the connection. `host`: where the server listens."""

    def __init__(self, tools: Tools, token: str, host: str) -> None:
        self.token = token
        self.local = is_local(host)
        self._lanes = Lanes(tools.answer)
        self._sessions: OrderedDict[str, McpConnection] = OrderedDict()
        self._changed = threading.Condition()
        self._working = 0

    @contextmanager
    def working(self) -> Iterator[None]:
        with self._changed:
            self._working += 1
        try:
            yield
        finally:
            with self._changed:
                self._working -= 1
                self._changed.notify_all()

    def quiet(self, wait_s: float) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: not self._working, wait_s)

    def admit(self, asked: _Handler) -> None:
        hosts, origin = asked.headers.get_all("Host") or [], asked.headers.get("Origin")
        if len(hosts) != 1 or (self.local and not is_local(name_in(hosts[0].strip()))):
            raise _Refusal(421, "the Host header must name this machine")
        if origin is not None and not self._is_own(origin.strip(), name_in(hosts[0].strip())):
            raise _Refusal(403, "web pages from other origins are not allowed")
        if not self._shows_token(asked.headers.get_all("Authorization") or []):
            raise _MissingToken

    def _shows_token(self, authorizations: list[str]) -> bool:
        scheme, _, shown = (authorizations[0] if len(authorizations) == 1 else "").strip().partition(" ")
        same = hmac.compare_digest(shown.strip().encode("utf-8", "replace"), self.token.encode())
        return same and bool(self.token) and scheme.lower() == "bearer"

    def _is_own(self, origin: str, host: str) -> bool:
        name = name_in(origin.partition("://")[2])
        return is_local(name) if self.local else bool(name) and name.lower() == host.lower()

    # -- what is asked

    def post(self, asked: _Handler, body: bytes) -> HttpAnswer:
        message = protocol.parse_message(body)
        if isinstance(message, ProtocolReply):
            return _answer(message, 400)
        version = asked.headers.get("MCP-Protocol-Version")
        if version is not None and version not in VERSIONS:
            data = {"supported": list(VERSIONS), "requested": version[:100]}
            raise _Refusal(400, "unknown protocol version", protocol.NO_SUCH_VERSION, data)
        method = message.get("method") if isinstance(message, dict) else None
        if protocol.names_version(message) or version in NAMED or method == "server/discover":
            return self._answer_request(asked, message)
        if method == "initialize":
            return self._greet(message)
        id, talk = self._session(asked)
        return self._in_session(message, id, talk)

    def _answer_request(self, asked: _Handler, message: Any) -> HttpAnswer:
        """A request of 2026-07-28, which belongs to no session."""
        if not isinstance(message, dict):
            raise _Refusal(400, "one request or notification at a time")
        if "id" not in message:
            return HttpAnswer(202)  # clients cancel by closing the connection; no other notification matters
        if differing := _find_difference(asked, message):
            return _answer(protocol.make_error(message.get("id"), protocol.HEADERS_DIFFER, differing), 400)
        step = protocol.read_message(message, McpConnection())
        if isinstance(step, ToolCall) and not step.named:
            lacks = f"params._meta must name its version ({VERSION_KEY}), as the header does"
            return _answer(protocol.make_error(step.id, protocol.BAD_PARAMS, lacks), 400)
        if isinstance(step, ToolCall):
            return HttpAnswer(200, self._run_tool(step, f"alone {secrets.token_hex(8)}", asked) or b"")
        return _answer(step, _STATUS.get(step.code, 200)) if isinstance(step, ProtocolReply) else HttpAnswer(202)

    def _greet(self, message: Any) -> HttpAnswer:
        talk = McpConnection()
        step = protocol.read_message(message, talk)
        if not isinstance(step, ProtocolReply) or step.code:
            return _answer(step, 400) if isinstance(step, ProtocolReply) else HttpAnswer(202)
        id = secrets.token_hex(16)
        with self._changed:
            self._sessions[id] = talk
            if len(self._sessions) > _SESSIONS:
                self._sessions.popitem(last=False)  # the least recently used one; its client will send `initialize` again
        return HttpAnswer(200, protocol.encode_message(step.body), {"Mcp-Session-Id": id})

    def _session(self, asked: _Handler) -> tuple[str, McpConnection]:
        id = (asked.headers.get("Mcp-Session-Id") or "").strip()
        if not id:
            raise _Refusal(400, "no session: send `initialize` first, then Mcp-Session-Id")
        with self._changed:
            if id not in self._sessions:
                raise _Refusal(404, "this session no longer exists: send `initialize` again")
            self._sessions.move_to_end(id)
            return id, self._sessions[id]

    def end(self, asked: _Handler) -> HttpAnswer:
        id, _ = self._session(asked)
        with self._changed:
            self._sessions.pop(id, None)
        return HttpAnswer(204)

    def _in_session(self, message: Any, id: str, talk: McpConnection) -> HttpAnswer:
        several = protocol.split_batch(message, talk)
        if isinstance(several, ProtocolReply):
            return _answer(several, 400)
        answers = [self._step(part, id, talk) for part in (several or [message])]
        bodies = [body for answer in answers if (body := answer.wait()) is not None]
        if not bodies:
            return HttpAnswer(202)
        return HttpAnswer(200, bodies[0] if several is None else b"[" + b",".join(bodies) + b"]")

    def _step(self, message: Any, id: str, talk: McpConnection) -> _PendingAnswer:
        coming = _PendingAnswer()
        match protocol.read_message(message, talk):
            case ToolCall() as call:
                self._lanes.put(call, coming.tell, id)
            case Cancel(other):
                self._lanes.cancel(other, id)
                coming.tell(None)
            case ProtocolReply(body):
                coming.tell(protocol.encode_message(body))
            case None:
                coming.tell(None)
        return coming

    def _run_tool(self, call: ToolCall, whose: str, asked: _Handler) -> bytes | None:
        coming = _PendingAnswer()
        self._lanes.put(call, coming.tell, whose)
        while not coming.there(_LOOK_S):
            if asked.is_gone():
                self._lanes.cancel(call.id, whose)
                return None
        return coming.wait()


class _PendingAnswer:
    """An answer that another thread will give."""

    def __init__(self) -> None:
        self._there = threading.Event()
        self._answer: bytes | None = None

    def tell(self, answer: bytes | None) -> None:
        self._answer = answer
        self._there.set()

    def there(self, wait_s: float) -> bool:
        return self._there.wait(wait_s)

    def wait(self) -> bytes | None:
        self._there.wait()
        return self._answer


def _answer(reply: ProtocolReply, status: int) -> HttpAnswer:
    return HttpAnswer(status, protocol.encode_message(reply.body))


def _find_difference(asked: _Handler, message: dict[str, Any]) -> str:
    """How headers and body differ; "" if they agree."""
    params = message.get("params")
    params = params if isinstance(params, dict) else {}
    meta = params.get("_meta")
    wanted = {
        "MCP-Protocol-Version": meta.get(VERSION_KEY) if isinstance(meta, dict) else None,
        "Mcp-Method": message.get("method"),
    }
    if message.get("method") == "tools/call" and isinstance(params.get("name"), str):
        wanted["Mcp-Name"] = params["name"]
    for name, value in wanted.items():
        headers = asked.headers.get_all(name) or []
        if value is None and name == "MCP-Protocol-Version" and headers:
            continue  # the body lacks it: that gets an error of its own
        if len(headers) != 1 or _decode_header(headers[0].strip()) != value:
            return f"the header {name} must occur once and match the body"
    return ""


def _decode_header(value: str) -> str | None:
    """A value with characters that a header can't contain is sent as `=?base64?…?=`."""
    if not (value.startswith("=?base64?") and value.endswith("?=")):
        return value
    import base64
    import binascii

    try:
        return base64.b64decode(value[9:-2], validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return None


# -- the connection


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"
    server_version = "dreamkeep"
    sys_version = ""
    timeout = _IDLE_S
    disable_nagle_algorithm = True

    def handle_one_request(self) -> None:
        self.server.expect(self.connection, _SLOWEST_S)
        super().handle_one_request()

    def finish(self) -> None:
        self.server.expect(self.connection, None)
        super().finish()

    def do_POST(self) -> None:
        self._do(self._posted)

    def do_DELETE(self) -> None:
        self._do(self.server.service.end)

    def do_GET(self) -> None:
        self._do(self._no_stream)

    do_HEAD = do_PUT = do_PATCH = do_OPTIONS = do_GET

    def parse_request(self) -> bool:
        """Refuse an unknown method like GET: only after the token was checked."""
        if not super().parse_request():
            return False
        if not hasattr(self, f"do_{self.command}"):
            self.command = "GET"
        return True

    def _do(self, act: Any) -> None:
        with self.server.service.working():
            try:
                self.server.service.admit(self)
                self.server.trust(self.connection)
                if self.path.partition("?")[0].rstrip("/") != PATH:
                    raise _Refusal(404, f"there is nothing here; MCP is at {PATH}")
                answer = act(self)
            except _Refusal as no:
                self.close_connection = True  # the body may be unread, so the next request's beginning is unknown
                answer = no.answer
            self._send(answer)
            if self.close_connection:
                self._linger()

    def _posted(self, asked: _Handler) -> HttpAnswer:
        kind = (self.headers.get("Content-Type") or "").partition(";")[0].strip().lower()
        if kind != "application/json":
            raise _Refusal(415, "the Content-Type must be application/json")
        if not _accepts_json(self.headers.get("Accept")):
            raise _Refusal(406, "the response is application/json: the Accept header must allow it")
        body = self._body()
        self.server.expect(self.connection, None)
        return self.server.service.post(self, body)

    def _no_stream(self, asked: _Handler) -> HttpAnswer:
        raise _Refusal(405, "only POST and DELETE are supported: there is no stream to listen to", Allow="POST, DELETE")

    def _body(self) -> bytes:
        coded, lengths = self.headers.get_all("Transfer-Encoding") or [], self.headers.get_all("Content-Length") or []
        if len(coded) + len(lengths) > 1 or (coded and coded[0].strip().lower() != "chunked"):
            raise _Refusal(400, "the length of the message is given twice, or in an unknown way")
        if coded:
            return self._chunks()
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdigit()):
            raise _Refusal(411, "Content-Length is missing")
        if len(length) > 12 or int(length) > LARGEST:
            raise _Refusal(413, f"a message can be at most {LARGEST >> 20} MiB")
        data = self.rfile.read(int(length))
        if len(data) < int(length):
            raise _Refusal(400, "the message ended early")
        return data

    def _chunks(self) -> bytes:
        found = bytearray()
        while True:
            head = self.rfile.readline(100).partition(b";")[0].strip()
            try:
                size = int(head, 16)
            except ValueError:
                raise _Refusal(400, "a chunk must begin with its length") from None
            if size < 0 or len(found) + size > LARGEST:
                raise _Refusal(413, f"a message can be at most {LARGEST >> 20} MiB")
            found += self.rfile.read(size)
            line = self.rfile.readline(1000)  # the line end after a chunk; after the last chunk, trailers, which are ignored
            while not size and line.strip():
                line = self.rfile.readline(1000)
            if not size:
                return bytes(found)

    def _send(self, answer: HttpAnswer) -> None:
        self.server.expect(self.connection, _SLOWEST_S)
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        if answer.body:
            self.send_header("Content-Type", "application/json")
        if answer.status != 204:
            self.send_header("Content-Length", str(len(answer.body)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)

    def _linger(self) -> None:
        """A client that is still sending would not get the answer if the connection closed now. Read the rest and drop it, up to
        a limit."""
        self.connection.settimeout(_LINGER_S)
        self.server.expect(self.connection, _LONGEST_LINGER_S)
        try:
            self.connection.shutdown(socket.SHUT_WR)
            for _ in range(_LINGER >> 16):
                if not self.rfile.read1(1 << 16):
                    return
        except OSError:
            return  # the client has closed, or is too slow

    def is_gone(self) -> bool:
        return is_closed(self.connection)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: a request may be private."""


def is_closed(connection: socket.socket) -> bool:
    """Whether either side has closed it."""
    try:
        waiting = select.poll()  # select() can't take a handle above 1023
        waiting.register(connection, select.POLLIN)
        return bool(waiting.poll(0)) and not connection.recv(1, socket.MSG_PEEK)
    except (OSError, ValueError):
        return True


def _accepts_json(header: str | None) -> bool:
    kinds = {one.partition(";")[0].strip().lower() for one in (header or "*/*").split(",")}
    return bool(kinds & {"application/json", "application/*", "*/*"})
