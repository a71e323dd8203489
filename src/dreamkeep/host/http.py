"""Part of the door: one HTTP request, bounded in time and size.

What may go wrong on a network is expected, so it is a value (`Lost`), not an error. Redirects are not followed: a key must not go
where it was not sent to. A proxy named by the environment (`https_proxy`, `no_proxy`) is used.
"""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
import zlib
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import unquote, urlsplit


class HttpReply(NamedTuple):
    """Names of headers in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Lost(NamedTuple):
    """No whole reply. `why`: "unreachable" (nothing was sent), "time-out", "cut off", "too long"."""

    why: str
    detail: str = ""


_PIECE = 1 << 16


def post(
    url: str,
    headers: Mapping[str, str],
    body: bytes,
    *,
    timeout_s: float,
    most_bytes: int,
    environment: Mapping[str, str],
) -> HttpReply | Lost:
    """All of it within `timeout_s`: a reply that drips is cut off too."""
    sent = {**headers, "Content-Length": str(len(body))}
    return _asked("POST", url, sent, body, timeout_s=timeout_s, most_bytes=most_bytes, environment=environment)


def get(url: str, *, timeout_s: float, most_bytes: int, environment: Mapping[str, str]) -> HttpReply | Lost:
    return _asked("GET", url, {}, None, timeout_s=timeout_s, most_bytes=most_bytes, environment=environment)


def _asked(
    method: str,
    url: str,
    headers: Mapping[str, str],
    body: bytes | None,
    *,
    timeout_s: float,
    most_bytes: int,
    environment: Mapping[str, str],
) -> HttpReply | Lost:
    connection, target, more = _connection(url, timeout_s, environment)
    expired = threading.Event()
    #: Kept here because a connection forgets its socket when a reply says that it is the last one, long before it is read.
    lines: list[socket.socket] = []

    def hang_up() -> None:
        expired.set()
        # Wakes a thread that waits in a read; closing would not.
        for line in lines or [connection.sock]:
            try:
                if line is not None:
                    socket.socket.shutdown(line, socket.SHUT_RDWR)
            except OSError:
                pass  # it was over already

    sent = False
    timer = threading.Timer(timeout_s, hang_up)
    timer.daemon = True
    timer.start()
    try:
        connection.connect()
        lines.append(connection.sock)
        if expired.is_set():
            return Lost("time-out")  # hang_up may have run before the socket was listed
        sent = True
        connection.request(method, target, body, {**headers, **more, "Connection": "close"})
        reply = connection.getresponse()
        received = _received(reply, most_bytes)
        if expired.is_set():
            return Lost("time-out")  # we cut it off, whatever it looks like
        if isinstance(received, Lost):
            return received
        return HttpReply(reply.status, {name.lower(): value for name, value in reply.getheaders()}, received)
    except TimeoutError:
        return Lost("time-out")
    except (OSError, http.client.HTTPException, ValueError) as problem:
        if expired.is_set():
            return Lost("time-out")
        return Lost("cut off" if sent else "unreachable", type(problem).__name__)
    finally:
        timer.cancel()
        connection.close()


def _received(reply: http.client.HTTPResponse, most: int) -> bytes | Lost:
    pieces: list[bytes] = []
    size = 0
    unpack = None
    if reply.headers.get("Content-Encoding", "identity").lower() in ("gzip", "x-gzip", "deflate"):
        unpack = zlib.decompressobj(47)  # either of the two, by what its head says
    while True:
        piece = reply.read(_PIECE)
        if unpack is not None:
            # At most one byte more than allowed: a few compressed bytes may expand to gigabytes.
            try:
                piece = unpack.decompress(piece, most - size + 1) if piece else b""
            except zlib.error:
                return Lost("cut off", "badly compressed")
        if not piece and (unpack is None or unpack.eof or reply.isclosed()):
            break
        pieces.append(piece)
        size += len(piece)
        if size > most:
            return Lost("too long")
    # When read in pieces, http.client does not report that the rest never came.
    if reply.length or (unpack is not None and not unpack.eof):
        return Lost("cut off", "incomplete")
    return b"".join(pieces)


def _connection(
    url: str, timeout_s: float, environment: Mapping[str, str]
) -> tuple[http.client.HTTPConnection, str, Mapping[str, str]]:
    """The connection, the request target, and headers for a proxy."""
    parts = urlsplit(url)
    host, target = parts.hostname or "", parts.path or "/"
    secure = parts.scheme == "https"
    port = parts.port or (443 if secure else 80)
    proxy = _proxy(parts.scheme, host, environment)
    if proxy is None:
        if secure:
            return http.client.HTTPSConnection(host, port, timeout=timeout_s, context=ssl.create_default_context()), target, {}
        return http.client.HTTPConnection(host, port, timeout=timeout_s), target, {}
    way, headers = proxy
    if secure:
        tunnel = http.client.HTTPSConnection(way[0], way[1], timeout=timeout_s, context=ssl.create_default_context())
        tunnel.set_tunnel(host, port, dict(headers))
        return tunnel, target, {}
    return http.client.HTTPConnection(way[0], way[1], timeout=timeout_s), url, headers


def _proxy(scheme: str, host: str, environment: Mapping[str, str]) -> tuple[tuple[str, int], Mapping[str, str]] | None:
    import base64

    def setting_of(name: str) -> str:
        return environment.get(name) or environment.get(name.upper()) or ""

    address = setting_of(f"{scheme}_proxy") or setting_of("all_proxy")
    if not address or local(host) or _excepted(host, setting_of("no_proxy")):
        return None
    parts = urlsplit(address if "://" in address else f"http://{address}")
    if parts.scheme not in ("http", "https"):
        return None  # SOCKS and others are not supported
    headers = {}
    if parts.username:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
        headers["Proxy-Authorization"] = "Basic " + base64.b64encode(pair).decode()
    return (parts.hostname or "", parts.port or 3128), headers


def _excepted(host: str, listed: str) -> bool:
    names = [name.strip().lstrip(".").lower() for name in listed.split(",")]
    return any(name == "*" or (name and (host == name or host.endswith("." + name))) for name in names)


def local(host: str) -> bool:
    """Whether a host name means this machine."""
    return host == "localhost" or host.endswith(".localhost") or host == "::1" or host.startswith("127.")


def near(host: str) -> bool:
    """Whether a host is this machine or in this network, where plain http is acceptable."""
    import ipaddress

    try:
        return ipaddress.ip_address(host).is_private
    except ValueError:
        return local(host) or "." not in host or host.endswith((".local", ".lan", ".internal", ".home.arpa"))
