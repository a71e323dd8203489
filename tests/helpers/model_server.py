"""A model behind HTTP for tests: speaks OpenAI's and Anthropic's protocols, and misbehaves as it is told to.

`server.acts` says what happens to each request in turn (names of `_Handler`'s ways to behave; when they are used up: "good").
What it received is kept whole, so that tests can look for what must not be there.
"""

from __future__ import annotations

import gzip
import json
import re
import socket
import struct
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from tests.helpers import loopback

Listed = list[Any]
#: Which list answers which kind of request.
LISTS = {"read": "items", "challenge": "verdicts", "merge": "operations"}


def item(place: str = "1", words: str = "use tabs", **more: Any) -> dict[str, Any]:
    quote = {"place": place, "words": words, "speaker": "user"}
    one = {"kind": "constraint", "note": "Always use tabs here.", "quotes": [quote], "strength": "clear", "typed": True}
    return {**one, "scope": "project", "task": "", **more}


def keep_all(asked: str) -> Listed:
    """A verdict for every note that a challenge numbers."""
    return [{"item": n, "verdict": "keep", "why": "", "note": ""} for n in numbered(asked, "note")]


def suggest_all(asked: str) -> Listed:
    """A verdict for every note that a challenge numbers."""
    return [{"item": n, "verdict": "suggest", "why": "", "note": ""} for n in numbered(asked, "note")]


def all_new(asked: str) -> Listed:
    return [{"item": n, "operation": "new", "other": "", "why": ""} for n in numbered(asked, "new note")]


def numbered(asked: str, what: str) -> list[int]:
    return [int(n) for n in re.findall(rf"^==\w+== {what} (\d+),", asked, re.MULTILINE)]


def places(asked: str, words: str) -> list[str]:
    """Where a read request shows these words as new ones of the user's."""
    return re.findall(rf"^\[(\S+)\] user: .*?{re.escape(words)}", asked, re.MULTILINE)


class Server(loopback.Server):
    def __init__(self) -> None:
        super().__init__(_Handler)
        self.acts: list[str] = []
        self.received: list[bytes] = []
        self.headers_seen: list[dict[str, str]] = []
        self.paths: list[str] = []
        #: What it answers, by kind of request: a list, or a function of the request's words.
        self.items: Listed | Callable[[str], Listed] = [item()]
        self.verdicts: Listed | Callable[[str], Listed] = keep_all
        self.operations: Listed | Callable[[str], Listed] = all_new
        #: What it was asked: (kind, the request's words) each.
        self.asked: list[tuple[str, str]] = []
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
        self.server.asked.append((self._kind(), self._user()))
        getattr(self, "act_" + act)()

    # -- what a good reply is

    def _user(self) -> str:
        return str(self.asked["messages"][-1]["content"])

    def _kind(self) -> str:
        """By the schema; where that was given up, by the words."""
        if "response_format" in self.asked:
            return str(self.asked["response_format"]["json_schema"]["name"])
        if "tools" in self.asked:
            wanted = self.asked["tools"][0]["input_schema"]["properties"]
            return next(kind for kind, name in LISTS.items() if name in wanted)
        system = self.asked["messages"][0]["content"]
        return next(kind for kind, name in LISTS.items() if f'JSON only: {{"{name}"' in system)

    def _listed(self) -> Listed:
        made = getattr(self.server, LISTS[self._kind()])
        found: Listed = made(self._user()) if callable(made) else made
        return found

    def _named(self, listed: Any) -> dict[str, Any]:
        return {LISTS[self._kind()]: listed}

    def _answer(self) -> dict[str, Any]:
        return self._named(self._listed())

    def _words(self, content: Any = None, **more: Any) -> bytes:
        found = self._answer() if content is None else content
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
            self.send(self._words("Here you are:\n```json\n" + json.dumps(self._answer()) + "\n```"))

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
        self.send(self._words(self._named([item(note="x" * 1000) for _ in range(10_000)])))

    def act_truncated(self) -> None:
        body = self._words()
        self.send(body[: len(body) // 2])

    def act_truncated_inside(self) -> None:
        self.send(self._words(json.dumps(self._answer())[:-15]))

    def act_cut(self) -> None:
        """It stopped in the middle of the last one, and says so."""
        whole = json.dumps(self._named([*self._listed(), item(note="This is the last one.")]))[:-30]
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
        self.send(self._words(f'{{"{LISTS[self._kind()]}":' + "[" * 100_000))

    def act_no_choices(self) -> None:
        self.send(json.dumps({"choices": [], "content": []}).encode())

    def act_odd_choices(self) -> None:
        self.send(json.dumps({"choices": "x", "content": {"a": 1}, "usage": []}).encode())

    def act_wrong_types(self) -> None:
        wrong: Listed = [None, 7, "x", [], item(note=7), item(quotes=None), item(place={"a": 1}), item(kind="close")]  # type: ignore[arg-type]
        self.send(self._words(self._named([*wrong, item(note="This one is good.", typed="high")])))

    def act_no_list(self) -> None:
        self.send(self._words(self._named(7)))

    def act_unicode(self) -> None:
        odd = item(note="\x1b[31mred\u2028 \ud800 \u202eevil \x00", quotes=[*item()["quotes"], {"place": "1", "words": "\ud800"}])
        self.send(self._words(self._named([odd])))

    def act_bad_utf8(self) -> None:
        body = self._words()
        self.send(body[: len(body) // 2] + b"\xff\xfe\xfa" + body[len(body) // 2 :])

    def act_twice(self) -> None:
        self.send(self._words(self._named([item(), item(), item()])))

    def act_many(self) -> None:
        self.send(self._words(self._named([item(words=f"w{n}", note=f"Mind the word w{n} here.") for n in range(500)])))


#: All ways there are, for tests that try any sequence of them. Slow ones wait until the caller gives up.
ACTS = sorted(name.removeprefix("act_") for name in vars(_Handler) if name.startswith("act_"))
SLOW = ("hang", "drip", "drip_last", "drip_open", "drip_head")
