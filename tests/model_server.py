"""A model behind HTTP for tests: speaks OpenAI's and Anthropic's protocols, and misbehaves as it is told to.

`server.acts` says what happens to each request in turn (names of `_Handler`'s ways to behave; when they are used up: "good").
What it received is kept whole, so that tests can look for what must not be there.
"""

from __future__ import annotations

import gzip
import json
import socket
import struct
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from tests import loopback

Insights = list[Any]


def insight(**more: Any) -> dict[str, Any]:
    one = {"type": "constraint", "text": "Use tabs.", "seq": "1", "quote": "use tabs", "task": "t-1", "author": "user"}
    return {**one, "confidence": 0.9, **more}


class Server(loopback.Server):
    def __init__(self) -> None:
        super().__init__(_Handler)
        self.acts: list[str] = []
        self.received: list[bytes] = []
        self.headers_seen: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.insights: Insights | Callable[[str], Insights] = [insight()]
        self.usage: Any = {}
        #: What an honest biller would count: tokens are at most the bytes of what was sent, and of what was answered.
        self.billed: list[tuple[int, int]] = []
        #: Somebody heard a reply that drips to its end.
        self.dripped_out = False


def serving() -> AbstractContextManager[Server]:
    return loopback.serving(Server())


class _Handler(loopback.Handler):
    server: Server
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.received.append(self.requestline.encode() + str(self.headers).encode() + body)
        self.server.headers_seen.append({name.lower(): value for name, value in self.headers.items()})
        self.server.paths.append(self.path)
        self.asked = json.loads(body)
        act = self.server.acts.pop(0) if self.server.acts else "good"
        self.server.billed.append((len(body), 0))
        getattr(self, "act_" + act)()

    # -- what a good reply is

    def _insights(self) -> Insights:
        made = self.server.insights
        return made(self.asked["messages"][-1]["content"]) if callable(made) else made

    def _words(self, content: Any = None, **more: Any) -> bytes:
        found = {"insights": self._insights()} if content is None else content
        openai = "choices" in more or self.path.endswith("/chat/completions")
        usage: Any
        if openai:
            text = found if isinstance(found, str) else json.dumps(found)
            reply: dict[str, Any] = {"choices": [{"message": {"role": "assistant", "content": text}, "finish_reason": "stop"}]}
            usage = {"prompt_tokens": 1000, "completion_tokens": 50}
        else:
            block = (
                {"type": "text", "text": found}
                if isinstance(found, str)
                else {"type": "tool_use", "id": "x", "name": self.asked["tools"][0]["name"], "input": found}
            )
            reply = {"type": "message", "content": [block], "stop_reason": "tool_use"}
            usage = {"input_tokens": 1000, "output_tokens": 50}
        reply["usage"] = usage if self.server.usage == {} else self.server.usage
        return json.dumps({**reply, **more}).encode()

    def _error(self, status: int, message: str = "no", headers: dict[str, str] | None = None) -> None:
        self.send(json.dumps({"error": {"message": message, "type": "x"}}).encode(), status, headers)

    def act_good(self) -> None:
        self.send(self._words())

    # -- refusals

    def act_500(self) -> None:
        self._error(500)

    def act_400(self) -> None:
        self._error(400)

    def act_529(self) -> None:
        self._error(529, "overloaded")

    def act_html(self) -> None:
        self.send(b"<html>bad gateway</html>", 502)

    def act_429(self) -> None:
        self._error(429, "slow down", {"Retry-After": "7"})

    def act_429_date(self) -> None:
        self._error(429, "slow down", {"Retry-After": "Thu, 01 Jan 1970 00:00:20 GMT"})

    def act_429_long(self) -> None:
        self._error(429, "slow down", {"Retry-After": "86400"})

    def act_429_odd(self) -> None:
        self._error(429, "slow down", {"Retry-After": "-nan"})

    def act_401(self) -> None:
        self._error(401, "Incorrect API key provided: " + self.headers.get("Authorization", self.headers.get("x-api-key", "")))

    def act_redirect(self) -> None:
        self.send(b"", 307, {"Location": self.server.url + "/elsewhere"})

    def act_no_schema(self) -> None:
        if "response_format" in self.asked:
            self._error(400, "response_format is not supported")
        else:
            self.send(self._words("Here you are:\n```json\n" + json.dumps({"insights": self._insights()}) + "\n```"))

    def act_new_limit(self) -> None:
        if "max_tokens" in self.asked:
            self._error(400, "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.")
        else:
            self.act_no_temperature()

    def act_no_temperature(self) -> None:
        if "temperature" in self.asked:
            self._error(400, "Unsupported value: 'temperature' does not support 0.")
        else:
            self.act_good()

    def act_error_200(self) -> None:
        self.send(json.dumps({"error": {"message": "provider down"}}).encode())

    # -- the line

    def act_hang(self) -> None:
        self.server.stop.wait(30)

    def act_drip(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "100000")
        self.end_headers()
        self._drip()

    def act_drip_last(self) -> None:
        """And says that nothing comes after it: what most servers answer to whoever says so first."""
        self.send_response(200)
        self.send_header("Content-Length", "100000")
        self.send_header("Connection", "close")
        self.end_headers()
        self._drip()

    def act_drip_open(self) -> None:
        """Its end is the end of the line."""
        self.send_response(200)
        self.end_headers()
        self._drip()

    def _drip(self) -> None:
        for _ in range(1500):
            if self.server.stop.is_set():
                return
            self.wfile.write(b" ")
            time.sleep(0.02)
        self.server.dripped_out = True

    def act_drip_head(self) -> None:
        self.wfile.write(b"HTTP/1.1 200 OK\r\nX-A: ")
        while not self.server.stop.is_set():
            self.wfile.write(b"a")
            self.wfile.flush()
            time.sleep(0.02)

    def act_reset(self) -> None:
        body = self._words()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: len(body) // 2])
        self.wfile.flush()
        # Sends a reset, not an end.
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True
        self.connection.close()

    def act_short(self) -> None:
        body = self._words()
        self.send(body[:-20], length=len(body))
        self.close_connection = True

    def act_garbage_line(self) -> None:
        self.wfile.write(b"\x00\xff\xfe not http at all\r\n\r\n")
        self.close_connection = True

    def act_gzip(self) -> None:
        self.send(gzip.compress(self._words()), headers={"Content-Encoding": "gzip"})

    def act_bomb(self) -> None:
        self.send(gzip.compress(b" " * (6 << 20)), headers={"Content-Encoding": "gzip"})

    def act_bad_gzip(self) -> None:
        self.send(b"\x1f\x8b broken", headers={"Content-Encoding": "gzip"})

    # -- what it says

    def act_huge(self) -> None:
        self.send(self._words({"insights": [insight(text="x" * 1000) for _ in range(10_000)]}))

    def act_truncated(self) -> None:
        body = self._words()
        self.send(body[: len(body) // 2])

    def act_truncated_inside(self) -> None:
        self.send(self._words(json.dumps({"insights": self._insights()})[:-15]))

    def act_cut(self) -> None:
        """It stopped in the middle of the last one, and says so."""
        whole = json.dumps({"insights": [*self._insights(), insight(text="the last one")]})[:-30]
        if self.path.endswith("/chat/completions"):
            self.send(self._words(None, choices=[{"message": {"content": whole}, "finish_reason": "length"}]))
        else:
            self.send(self._words(whole, stop_reason="max_tokens"))

    def act_prose(self) -> None:
        self.send(self._words("I am sorry, there is nothing to say. {not json}"))

    def act_refusal(self) -> None:
        if self.path.endswith("/chat/completions"):
            self.send(self._words(None, choices=[{"message": {"content": None, "refusal": "no"}}]))
        else:
            self.send(self._words("", stop_reason="refusal"))

    def act_list(self) -> None:
        self.send(b"[1, 2]")

    def act_null(self) -> None:
        self.send(b"null")

    def act_empty(self) -> None:
        self.send(b"")

    def act_deep(self) -> None:
        self.send(b"[" * 200_000)

    def act_deep_inside(self) -> None:
        self.send(self._words('{"insights":' + "[" * 100_000))

    def act_no_choices(self) -> None:
        self.send(json.dumps({"choices": [], "content": []}).encode())

    def act_odd_choices(self) -> None:
        self.send(json.dumps({"choices": "x", "content": {"a": 1}, "usage": []}).encode())

    def act_wrong_types(self) -> None:
        wrong: Insights = [None, 7, "x", [], insight(text=7), insight(quote=None), insight(seq={"a": 1}), insight(type="close")]
        self.send(self._words({"insights": [*wrong, insight(text="the good one", confidence="high")]}))

    def act_no_list(self) -> None:
        self.send(self._words({"insights": 7}))

    def act_unicode(self) -> None:
        odd = insight(text="\x1b[31mred\u2028 \ud800 \u202eevil \x00", quote="\ud800")
        self.send(self._words({"insights": [odd]}))

    def act_bad_utf8(self) -> None:
        self.send(self._words().replace(b"tabs", b"\xff\xfe\xfa"))

    def act_twice(self) -> None:
        self.send(self._words({"insights": [insight(), insight(), insight()]}))

    def act_many(self) -> None:
        self.send(self._words({"insights": [insight(text=f"number {n}") for n in range(500)]}))


#: All ways there are, for tests that try any sequence of them. Slow ones wait until the caller gives up.
ACTS = sorted(name.removeprefix("act_") for name in vars(_Handler) if name.startswith("act_"))
SLOW = ("hang", "drip", "drip_last", "drip_open", "drip_head")
