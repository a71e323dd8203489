"""The MCP server over HTTP, tested by plain requests: who is admitted, the limits, and the answer to each kind of request."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from dreamkeep import Keep
from dreamkeep.errors import Failed
from dreamkeep.host import RealHost
from dreamkeep.surfaces.mcp import streamable
from dreamkeep.surfaces.mcp.calls import Tools
from dreamkeep.surfaces.mcp.streamable import Service, _listen, is_closed, is_local, name_in
from dreamkeep.verbs.access import access_token
from tests.helpers.faults import LOSSES, FragileHost, PowerCut
from tests.helpers.mcp_talk import (
    META,
    TOOLS,
    Address,
    Got,
    address,
    ask,
    call,
    found,
    greet,
    named,
    refused,
    slow_keep,
    talked,
    words,
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Address]:
    root = tmp_path_factory.mktemp("http") / "keep"
    talked(root, ("why is the lock file old?", "Because of the cache."))
    with address(root) as made:
        yield made


def headed(message: dict[str, Any]) -> dict[str, str]:
    """The headers that 2026-07-28 requires."""
    name = message["params"].get("name")
    return {"MCP_Protocol_Version": "2026-07-28", "Mcp_Method": message["method"], **({"Mcp_Name": name} if name else {})}


# -- sessions


def test_a_session_begins_with_a_greeting_and_ends_with_delete(server: Address) -> None:
    hello = server.post(greet(version="2025-06-18"))
    id = hello.headers["mcp-session-id"]
    assert hello.status == 200 and hello.json["result"]["protocolVersion"] == "2025-06-18" and len(id) >= 32
    assert hello.headers["content-type"] == "application/json"
    assert server.post({"jsonrpc": "2.0", "method": "notifications/initialized"}, Mcp_Session_Id=id) == Got(202, _any, b"")
    listed = server.post(ask(1, "tools/list"), Mcp_Session_Id=id, MCP_Protocol_Version="2025-06-18")
    assert tuple(tool["name"] for tool in listed.json["result"]["tools"]) == TOOLS
    assert found(server.post(call(2, "search", query="lock"), Mcp_Session_Id=id).json)["hits"]
    assert server.post(ask(3, "ping"), Mcp_Session_Id=id).json["result"] == {}
    assert server.post(ask(4, "no/such"), Mcp_Session_Id=id).json["error"]["code"] == -32601
    assert server.request("DELETE", Mcp_Session_Id=id).status == 204
    assert server.post(ask(5, "ping"), Mcp_Session_Id=id).status == 404, "then the client greets us anew"
    assert server.request("DELETE", Mcp_Session_Id=id).status == 404
    assert server.request("DELETE").status == 400


class _Any(dict[str, str]):
    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None


_any = _Any()


def test_without_a_session_only_a_greeting_is_answered(server: Address) -> None:
    assert server.post(ask(1, "tools/list")).status == 400
    assert server.post(ask(1, "tools/list"), Mcp_Session_Id="made up").status == 404
    bad = server.post(ask(1, "initialize"))
    assert bad.status == 400 and bad.json["error"]["code"] == -32602 and "mcp-session-id" not in bad.headers


def test_two_clients_do_not_share_ids(server: Address) -> None:
    one, other = server.session(), server.session()
    assert one != other
    cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
    assert server.post(cancel, Mcp_Session_Id=other).status == 202
    assert found(server.post(call(1, "search", query="lock"), Mcp_Session_Id=one).json)["hits"]


def test_the_least_recently_used_session_makes_room(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("dreamkeep.surfaces.mcp.streamable._SESSIONS", 2)
    service = Service(Tools(lambda: Keep.open(tmp_path)), "", "127.0.0.1")
    first, second = (service._greet(greet()).headers["Mcp-Session-Id"] for _ in range(2))
    service._in_session(ask(1, "ping"), *_known(service, first))
    third = service._greet(greet()).headers["Mcp-Session-Id"]
    assert set(service._sessions) == {first, third} and second not in service._sessions


def _known(service: Service, id: str) -> tuple[str, Any]:
    service._sessions.move_to_end(id)
    return id, service._sessions[id]


def test_a_batch_is_answered_as_one_where_the_version_knows_batches(server: Address) -> None:
    id = server.session("2025-03-26")
    notice = {"jsonrpc": "2.0", "method": "notifications/x"}
    got = server.post([ask(1, "ping"), notice, call(2, "search", query="lock")], Mcp_Session_Id=id)
    assert got.status == 200 and [one["id"] for one in got.json] == [1, 2]
    assert server.post([notice], Mcp_Session_Id=id).status == 202
    assert server.post([ask(1, "ping")], Mcp_Session_Id=server.session("2025-11-25")).status == 400


# -- 2026-07-28


def test_a_request_that_names_its_version_needs_no_session(server: Address) -> None:
    for message in (ask(1, "server/discover"), ask(2, "tools/list"), call(3, "search", query="lock")):
        message = named(message)
        got = server.post(message, **headed(message))
        assert got.status == 200 and got.json["result"]["resultType"] == "complete", got
        assert "mcp-session-id" not in got.headers
    notice = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"_meta": META, "requestId": 1}}
    assert server.post(notice, MCP_Protocol_Version="2026-07-28").status == 202


@pytest.mark.parametrize(
    ("change", "status", "code"),
    [
        ({"Mcp_Method": "tools/list"}, 400, -32020),
        ({"Mcp_Method": ""}, 400, -32020),
        ({"Mcp_Name": "pack"}, 400, -32020),
        ({"Mcp_Name": ""}, 400, -32020),
        ({"Mcp_Name": "=?base64?!?="}, 400, -32020),
        ({"MCP_Protocol_Version": ""}, 400, -32020),
        ({"MCP_Protocol_Version": "2025-11-25"}, 400, -32020),
        ({"MCP_Protocol_Version": "1900-01-01"}, 400, -32022),
    ],
)
def test_headers_that_contradict_the_body_are_refused(server: Address, change: dict[str, str], status: int, code: int) -> None:
    message = named(call(1, "search", query="lock"))
    got = server.post(message, **{**headed(message), **change})
    assert (got.status, got.json["error"]["code"]) == (status, code)


def test_a_name_that_no_header_can_hold_comes_encoded(server: Address) -> None:
    message = named(call(1, "search", query="lock"))
    name = f"=?base64?{base64.b64encode(b'search').decode()}?="
    assert server.post(message, **{**headed(message), "Mcp_Name": name}).status == 200


@pytest.mark.parametrize(
    ("message", "status", "code"),
    [
        (named(ask(1, "no/such")), 404, -32601),
        (named(ask(1, "ping")), 404, -32601),
        (named(call(1, "drop")), 400, -32602),
        (call(1, "search", query="x"), 400, -32602),
        (ask(1, "tools/call", name="search", _meta={"io.modelcontextprotocol/protocolVersion": "2026-07-28"}), 400, -32602),
    ],
)
def test_errors_of_such_requests_have_their_status(server: Address, message: dict[str, Any], status: int, code: int) -> None:
    got = server.post(message, **headed(message))
    assert (got.status, got.json["error"]["code"]) == (status, code)


# -- who may ask


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8377", "localhost.evil.example", "127.0.0.1.evil.example", "10.0.0.1"]
)
def test_a_foreign_host_name_that_resolves_here_is_refused(server: Address, host: str) -> None:
    for method, body in (("POST", greet()), ("GET", None), ("DELETE", None)):
        assert server.request(method, body, Host=host).status == 421


@pytest.mark.parametrize("host", ["localhost", "localhost:1", "127.0.0.1:8377", "[::1]:8377", "LOCALHOST.", "127.8.8.8"])
def test_this_machine_may_be_called_by_all_its_names(server: Address, host: str) -> None:
    assert server.post(greet(), Host=host).status == 200


@pytest.mark.parametrize("origin", ["http://evil.example", "https://localhost.evil.example", "null", "file://", "http://", "x"])
def test_web_pages_of_other_origins_are_refused(server: Address, origin: str) -> None:
    assert server.post(greet(), Origin=origin).status == 403


def test_a_web_page_of_this_machine_is_answered(server: Address) -> None:
    assert server.post(greet(), Origin="http://localhost:3000").status == 200
    assert server.post(greet(), Origin="http://[::1]:3000").status == 200


#: What another user of the machine may try: no token, an empty one, a wrong one, one in other forms.
NO_TOKEN = ("", "Bearer", "Bearer ", "Bearer wrong", "Basic {}", "{}", "Bearer {}x", "Bearer x{}", "Bearer {} {}", "Bearer \xfc")


@pytest.mark.parametrize("set_by_hand", [False, True], ids=["made", "set"])
def test_without_the_token_every_answer_is_an_empty_401(tmp_path: Path, set_by_hand: bool) -> None:
    talked(tmp_path / "keep", ("why is the lock file old?", "Because of the cache."))
    environment = {**os.environ, "DREAMKEEP_TOKEN": "0123456789abcdef0123" if set_by_hand else ""}
    with address(tmp_path / "keep", environment=environment) as server:
        asked = [
            *((method, "/mcp") for method in ("POST", "GET", "DELETE", "PUT", "OPTIONS", "HEAD", "TRACE", "NONSENSE")),
            *(("POST", path) for path in ("/", "/else", "/mcp/../x", "*", f"/mcp?token={server.token}")),
        ]
        answers = [
            server.request(method, greet(), path=path, Authorization=wrong.replace("{}", server.token))
            for method, path in asked
            for wrong in NO_TOKEN
        ]
        assert {(got.status, got.body) for got in answers} == {(401, b"")}
        names = {"server", "date", "www-authenticate", "content-length", "connection"}
        assert all(set(got.headers) == names and got.headers["www-authenticate"].startswith("Bearer") for got in answers)
        assert server.post(greet()).status == 200


def test_two_authorization_headers_are_refused(server: Address) -> None:
    body = json.dumps(greet()).encode()
    end = b"Content-Length: %d\r\n\r\n%s" % (len(body), body)
    assert _raw(server, _head(server) + end).startswith(b"HTTP/1.1 200")
    assert _raw(server, _head(server) + b"Authorization: Bearer x\r\n" + end).startswith(b"HTTP/1.1 401")


def test_the_token_is_made_once_and_only_its_owner_can_read_it(tmp_path: Path) -> None:
    seen = set()
    for _ in range(2):
        with address(tmp_path / "keep") as server:
            seen.add(server.token)
            file = tmp_path / "keep" / "state" / "http.token"
            assert file.stat().st_mode & 0o777 == 0o600 and file.parent.stat().st_mode & 0o777 == 0o700
    assert len(seen) == 1 and len(base64.urlsafe_b64decode(seen.pop() + "=")) == 32
    file.unlink()
    with address(tmp_path / "keep") as server:
        assert server.token not in seen
    assert [path.name for path in file.parent.iterdir()] == ["http.token"], "no half-made file is left"


def test_servers_that_start_at_once_make_one_token(tmp_path: Path) -> None:
    made: list[str] = []
    start = threading.Barrier(8)

    def make() -> None:
        start.wait()
        made.append(access_token(RealHost(), str(tmp_path / "keep"), {}).secret)

    threads = [threading.Thread(target=make) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 8 and len(set(made)) == 1


def test_the_token_is_neither_printed_nor_an_argument(tmp_path: Path) -> None:
    command = words(tmp_path / "keep", "--http", "--port", "0", "--json")
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout
        file = Path(json.loads(process.stdout.readline())["token_file"])
        token = file.read_text().strip()
        arguments = Path(f"/proc/{process.pid}/cmdline")
        assert not arguments.exists() or token not in arguments.read_text()
        process.terminate()
        out, err = process.communicate(timeout=60)
    assert token not in out + err
    assert str(file) in err and "Authorization: Bearer TOKEN" in err


def test_a_token_in_the_arguments_is_refused(tmp_path: Path) -> None:
    done = subprocess.run(words(tmp_path, "--http", "--token", "0123456789abcdef"), capture_output=True, text=True)
    assert done.returncode == 2


@pytest.mark.parametrize("token", ["short", "with a space in it and more", "ümlaut-0123456789abcdef"])
def test_an_invalid_token_is_refused(tmp_path: Path, token: str) -> None:
    done = subprocess.run(
        words(tmp_path, "--http", "--port", "0"), capture_output=True, text=True, env={**os.environ, "DREAMKEEP_TOKEN": token}
    )
    assert done.returncode == 2 and "DREAMKEEP_TOKEN" in done.stderr and token not in done.stderr


@pytest.mark.parametrize(("content", "mode"), [("a" * 43, 0o644), ("a" * 43, 0o660), ("", 0o600), ("short", 0o600)])
def test_a_token_file_that_others_could_read_or_that_is_broken_is_refused(tmp_path: Path, content: str, mode: int) -> None:
    file = tmp_path / "keep" / "state" / "http.token"
    file.parent.mkdir(parents=True)
    file.write_text(content)
    file.chmod(mode)
    with pytest.raises(Failed, match="Remove the file"):
        access_token(RealHost(), str(tmp_path / "keep"), {})


def test_a_power_cut_at_every_step_leaves_no_half_of_a_token() -> None:
    for at in count(1):
        host = FragileHost(at=at)
        try:
            access_token(host, "/keep", {})
        except PowerCut:
            for loss in LOSSES:
                assert len(access_token(host.reboot(loss), "/keep", {}).secret) == 43
            continue
        break


def test_a_server_on_another_address_accepts_any_host_but_only_its_own_pages(tmp_path: Path) -> None:
    token = "0123456789abcdef"
    environment = {**os.environ, "DREAMKEEP_TOKEN": token}
    with address(tmp_path / "keep", "--host", "0.0.0.0", environment=environment) as server:
        bearer = {"Authorization": f"Bearer {token}"}
        assert server.post(greet(), Host="keep.example:8377", **bearer).status == 200
        assert server.post(greet(), Host="keep.example", Origin="https://keep.example", **bearer).status == 200
        assert server.post(greet(), Host="keep.example", Origin="https://evil.example", **bearer).status == 403
        assert server.post(greet(), Host="keep.example", Authorization="").status == 401


def test_names_of_this_machine_are_known() -> None:
    assert all(map(is_local, ("localhost", "127.0.0.1", "127.1.2.3", "::1", "[::1]", "a.localhost", "LOCALHOST")))
    assert not any(map(is_local, ("", "0.0.0.0", "::", "192.168.0.1", "example.org", "localhost.example.org", "0x7f000001")))
    assert [name_in(one) for one in ("a:1", "a", "[::1]:7", "[::1]", "")] == ["a", "a", "[::1]", "[::1]", ""]


# -- the form


def test_an_invalid_message_is_refused_with_its_status(server: Address) -> None:
    assert server.post(b"nonsense").status == 400
    assert server.post(b"\xff").json["error"]["code"] == -32700
    assert server.post(greet(), Content_Type="text/plain").status == 415
    assert server.post(greet(), Accept="text/html").status == 406
    assert server.post(greet(), Accept="application/json").status == 200
    assert server.request("POST", greet(), path="/else").status == 404
    assert server.request("POST", greet(), path="/mcp/").status == 200
    assert server.post(ask(1, "tools/list"), Mcp_Session_Id=server.session(), MCP_Protocol_Version="1900-01-01").status == 400
    for method in ("GET", "PUT", "OPTIONS", "HEAD", "PATCH"):
        got = server.request(method)
        assert got.status == 405 and got.headers["allow"] == "POST, DELETE", method


def test_bodies_are_bounded(server: Address) -> None:
    assert server.post(b"[" + b" " * (5 << 20) + b"]").status == 413
    assert server.post(b"{}", Content_Length="99999999999999999999").status == 413
    assert server.post(b"{}", Content_Length="-1").status == 411


def _raw(server: Address, data: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as line:
        line.sendall(data)
        line.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: line.recv(65_536), b""))


HEAD = b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


def _head(server: Address) -> bytes:
    return HEAD + f"Authorization: Bearer {server.token}\r\n".encode()


def test_a_body_in_chunks_is_read_and_bounded(server: Address) -> None:
    body = json.dumps(greet()).encode()
    pieces = b"".join(b"%x;x=y\r\n%s\r\n" % (len(part), part) for part in (body[:10], body[10:]))
    answer = _raw(server, _head(server) + b"Transfer-Encoding: chunked\r\n\r\n" + pieces + b"0\r\nTrailer: x\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200") and b"protocolVersion" in answer
    assert _raw(server, _head(server) + b"Transfer-Encoding: chunked\r\n\r\nnonsense\r\n").startswith(b"HTTP/1.1 400")
    assert _raw(server, _head(server) + b"Transfer-Encoding: chunked\r\n\r\nffffffff\r\n").startswith(b"HTTP/1.1 413")
    assert _raw(server, _head(server) + b"Transfer-Encoding: chunked\r\n\r\n-5\r\n").startswith(b"HTTP/1.1 413")


def test_a_cut_or_garbled_request_ends_only_its_own_connection(server: Address) -> None:
    assert _raw(server, _head(server) + b"Content-Length: 1000\r\n\r\n{").startswith(b"HTTP/1.1 400")
    assert b"400" in _raw(server, b"\x16\x03\x01\x00\r\n\r\n")
    assert _raw(server, _head(server) + b"Host: evil.example\r\nContent-Length: 2\r\n\r\n{}").startswith(b"HTTP/1.1 421")
    lengths = (b"Content-Length: 2\r\nContent-Length: 3", b"Content-Length: 2\r\nTransfer-Encoding: chunked")
    for twice in (*lengths, b"Transfer-Encoding: gzip"):
        assert _raw(server, _head(server) + twice + b"\r\n\r\n{}").startswith(b"HTTP/1.1 400")
    _raw(server, _head(server))
    assert server.post(greet()).status == 200


@pytest.mark.parametrize(
    "begun",
    [
        b"",
        b"POST /mcp HTTP/1.1\r\n",
        HEAD,
        HEAD + b"Content-Length: 9999\r\n\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n0\r\n",
    ],
    ids=["line", "headers", "one header", "body", "trailers"],
)
def test_a_client_that_sends_a_byte_now_and_then_loses_its_place(
    begun: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streamable, "_SLOWEST_S", 0.3)
    monkeypatch.setattr(streamable, "_LONGEST_LINGER_S", 0.3)
    tools = Tools(lambda: Keep.open(tmp_path / "none"))
    server = _listen(Service(tools, "", "127.0.0.1"), "127.0.0.1", 0)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        with socket.create_connection(("127.0.0.1", server.server_port), timeout=60) as line:
            line.sendall(begun)
            for _ in range(300):
                try:
                    line.sendall(b"a")
                except OSError:
                    break
                time.sleep(0.05)
            else:
                pytest.fail("it still listens")
    finally:
        server.shutdown()
        server.server_close()


def test_one_connection_serves_many_requests(server: Address) -> None:
    body = json.dumps(greet()).encode()
    one = _head(server) + b"Content-Length: %d\r\n\r\n%s" % (len(body), body)
    assert _raw(server, one * 3).count(b"HTTP/1.1 200 OK") == 3


# -- many at once, and the end


class Slow(NamedTuple):
    """A server that was asked for a dream, which lasts until it is told to end."""

    server: Address
    session: str
    answers: list[Got]
    asking: threading.Thread
    go: Path

    def end(self) -> None:
        self.go.touch()
        self.asking.join()


@contextmanager
def slow(tmp_path: Path) -> Iterator[Slow]:
    root, go = tmp_path / "keep", tmp_path / "go"
    slow_keep(root, go)
    with address(root) as server:
        id = server.session()
        answers: list[Got] = []
        asking = threading.Thread(target=lambda: answers.append(server.post(call(1, "dream_run"), Mcp_Session_Id=id)))
        asking.start()
        yield Slow(server, id, answers, asking, go)


def test_a_slow_call_delays_no_other_and_is_answered_before_the_server_ends(tmp_path: Path) -> None:
    with slow(tmp_path) as dream:
        server, id = dream.server, dream.session
        for n in range(5):
            assert found(server.post(call(10 + n, "search", query="tabs"), Mcp_Session_Id=id).json)["hits"]
            assert server.post(ask(20 + n, "ping"), Mcp_Session_Id=id).status == 200
        assert not dream.answers
        server.process.send_signal(signal.SIGTERM)
        with pytest.raises(OSError):
            while True:
                socket.create_connection(("127.0.0.1", server.port), timeout=60).close()
                time.sleep(0.05)
        dream.end()
        assert server.process.wait(timeout=60) == 0
    assert found(dream.answers[0].json)["status"] == "completed"


def test_a_cancelled_call_ends_without_an_answer(tmp_path: Path) -> None:
    with slow(tmp_path) as dream:
        server, id = dream.server, dream.session
        running = call(2, "dream_status")
        while not found(server.post(running, Mcp_Session_Id=id).json)["running"]:
            pass
        cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
        assert server.post(cancel, Mcp_Session_Id=id).status == 202
        dream.end()
    assert dream.answers[0].status == 202 and dream.answers[0].body == b""


def test_a_port_that_is_taken_is_reported(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = subprocess.run(words(tmp_path, "--http", "--port", port), capture_output=True, text=True)
    assert done.returncode == 3 and "can't listen there" in done.stderr and port in done.stderr
    done = subprocess.run(words(tmp_path, "--http", "--port", "70000"), capture_output=True, text=True)
    assert done.returncode == 2


def test_a_missing_keep_gives_an_answer(tmp_path: Path) -> None:
    with address(tmp_path / "none") as server:
        text = refused(server.post(call(1, "search", query="x"), Mcp_Session_Id=server.session()).json)
        assert "there is no keep yet" in text
    assert [path.name for path in (tmp_path / "none").rglob("*")] == ["state", "http.token"]


@contextmanager
def small_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, places: int) -> Iterator[Address]:
    """A server in this process with few places."""
    monkeypatch.setattr(streamable, "_CONNECTIONS", places)
    talked(tmp_path / "keep", ("why is the lock file old?", "Because of the cache."))
    tools, token = Tools(lambda: Keep.open(tmp_path / "keep")), "0123456789abcdef"
    server = _listen(Service(tools, token, "127.0.0.1"), "127.0.0.1", 0)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield Address(f"http://127.0.0.1:{server.server_port}/mcp", None, token)
    finally:
        server.shutdown()
        server.server_close()
        tools.close()


#: How a client may keep a place without any progress. The token is right in some of them.
SLOW = {
    "silent": b"",
    "half a line": b"POST /m",
    "half a header": HEAD,
    "no body": HEAD + b"Authorization: Bearer 0123456789abcdef\r\nContent-Length: 9999\r\n\r\n",
    "half a chunk": HEAD + b"Authorization: Bearer 0123456789abcdef\r\nTransfer-Encoding: chunked\r\n\r\nff\r\nx",
    "refused": HEAD + b"Content-Length: 9999\r\n\r\n",
}


@pytest.mark.parametrize("begun", SLOW.values(), ids=SLOW)
def test_many_slow_clients_do_not_shut_out_a_good_one(begun: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with small_server(tmp_path, monkeypatch, places=8) as server, ExitStack() as open_lines:
        for _ in range(3):
            for _ in range(20):
                line = open_lines.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=60))
                line.sendall(begun)
            assert server.post(greet()).status == 200


def test_clients_that_never_read_their_answers_do_not_shut_out_a_good_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    message = named(ask(1, "tools/list"))
    body = json.dumps(message).encode()
    names = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headed(message).items())
    with small_server(tmp_path, monkeypatch, places=4) as server, ExitStack() as open_lines:
        one = _head(server) + names.encode() + b"Content-Length: %d\r\n\r\n%s" % (len(body), body)
        for _ in range(8):
            line = open_lines.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=60))
            line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
            line.settimeout(0.2)
            with suppress(OSError):  # asks until nobody listens any more, and never reads
                line.sendall(one * 1_000)
        for _ in range(100):  # while all are at work there is no place; soon they are stuck with their answers
            if server.post(greet()).status == 200:
                return
            time.sleep(0.1)
    pytest.fail("those who never read keep all places")


def test_a_newcomer_gets_the_place_of_the_client_that_waits_longest() -> None:
    def place(until: float | None, trusted: bool = False) -> Any:
        made = streamable._Place(0)
        made.until, made.trusted = until, trusted
        return made

    places = {"works": place(None), "idle": place(1, True), "later": place(5), "stranger": place(3)}
    assert streamable.longest_waiting(places) == "stranger", "the one without a token goes first"
    del places["stranger"], places["later"]
    assert streamable.longest_waiting(places) == "idle"
    del places["idle"]
    assert streamable.longest_waiting(places) is None, "nobody at work is disturbed"


@pytest.mark.skipif(sys.platform != "linux", reason="how many threads a process has is told by /proc")
def test_connections_are_bounded(tmp_path: Path) -> None:
    with address(tmp_path / "none") as server, ExitStack() as lines:
        for _ in range(400):
            lines.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=60))
        assert server.post(greet()).status == 200
        while len(os.listdir(f"/proc/{server.process.pid}/task")) > 260:
            pass
        lines.close()
        while len(os.listdir(f"/proc/{server.process.pid}/task")) > 100:
            pass
        assert server.post(greet()).status == 200


def test_a_connection_with_a_high_handle_is_open_until_the_client_closes_it() -> None:
    """A busy server has more than a thousand handles."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
    ours, theirs = socket.socketpair()
    try:
        high = socket.socket(fileno=fcntl.fcntl(ours.fileno(), fcntl.F_DUPFD_CLOEXEC, 2000))
        with ours, high:
            assert high.fileno() >= 2000 and not is_closed(high)
            theirs.close()
            assert is_closed(high)
    finally:
        theirs.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
