"""A model that answers every request with the same words, and keeps what it was asked: for agents that run in tests. Told to
`call` a tool, it first calls that, once, by whatever name the agent offers it.

Speaks what Claude Code (`/v1/messages`), Codex (`/v1/responses`), Gemini CLI (`:streamGenerateContent`) and Hermes
(`/v1/chat/completions`) speak, streamed and not.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

ANSWER = "The stub has heard you."


class Stub(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        #: (path, body) of every request, in order.
        self.asked: list[tuple[str, Any]] = []
        #: How the tool's name ends, and its arguments; and by which name it was called.
        self.call: tuple[str, dict[str, Any]] | None = None
        self.called = ""

    def to_call(self, body: Any) -> tuple[str, str, dict[str, Any]] | None:
        """(namespace, name, arguments) of the call to be made now: if the tool is offered, and was not called before."""
        if self.call is None or self.called:
            return None
        for space, name in _offered(body.get("tools", ())):
            whole = f"{space}__{name}" if space else name
            if whole.endswith(self.call[0]) and "dreamkeep" in whole:
                self.called = whole
                return space, name, self.call[1]
        return None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def last(self, path: str, member: str) -> Any:
        """`member` of the last request to a path that offers tools (the talk itself, not a title or a probe)."""
        found = [body for where, body in self.asked if path in where and body.get("tools")]
        return found[-1][member] if found else None


def _offered(tools: Any, space: str = "") -> Iterator[tuple[str, str]]:
    """As Anthropic (name), OpenAI (function.name, or in a namespace) and Gemini (functionDeclarations) have them."""
    for one in tools:
        if one.get("type") == "namespace":
            yield from _offered(one.get("tools", ()), one.get("name", ""))
        elif "functionDeclarations" in one:
            yield from ((space, inner.get("name", "")) for inner in one["functionDeclarations"])
        else:
            yield space, one.get("name") or one.get("function", {}).get("name", "")


@contextmanager
def running() -> Iterator[Stub]:
    stub = Stub()
    thread = threading.Thread(target=stub.serve_forever, daemon=True)
    thread.start()
    try:
        yield stub
    finally:
        stub.shutdown()
        thread.join()
        stub.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Stub

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_HEAD(self) -> None:
        self._json({})

    def do_GET(self) -> None:
        self._json({"object": "list", "data": [{"id": "stub", "object": "model"}], "models": []})

    def do_POST(self) -> None:
        body = json.loads(self._body() or b"{}")
        self.server.asked.append((self.path, body))
        if "count" in self.path and "oken" in self.path:
            self._json({"input_tokens": 10, "totalTokens": 10})
        elif "/messages" in self.path:
            self._anthropic(body)
        elif "/responses" in self.path:
            self._responses(body)
        elif "enerateContent" in self.path:
            self._gemini(body)
        elif "chat/completions" in self.path:
            self._chat(body)
        else:
            self._json({})

    def _body(self) -> bytes:
        if self.headers.get("transfer-encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("content-length", 0)))
        found = b""
        while size := int(self.rfile.readline().split(b";")[0], 16):
            found += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return found

    # -- the four interfaces

    def _anthropic(self, body: dict[str, Any]) -> None:
        said = {"type": "text", "text": ANSWER}
        message: dict[str, Any] = {"id": "msg_stub", "type": "message", "role": "assistant", "model": "stub", "content": []}
        message |= {"stop_reason": None, "stop_sequence": None, "usage": {"input_tokens": 9, "output_tokens": 1}}
        if not body.get("stream"):
            self._json({**message, "content": [said], "stop_reason": "end_turn"})
            return
        block: dict[str, Any] = {"type": "text", "text": ""}
        delta, why = {"type": "text_delta", "text": ANSWER}, "end_turn"
        if call := self.server.to_call(body):
            block = {"type": "tool_use", "id": "toolu_stub", "name": call[1], "input": {}}
            delta, why = {"type": "input_json_delta", "partial_json": json.dumps(call[2])}, "tool_use"
        ended = {"delta": {"stop_reason": why, "stop_sequence": None}, "usage": {"output_tokens": 5}}
        self._events(
            {"type": "message_start", "message": message},
            {"type": "content_block_start", "index": 0, "content_block": block},
            {"type": "content_block_delta", "index": 0, "delta": delta},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", **ended},
            {"type": "message_stop"},
        )

    def _responses(self, body: dict[str, Any]) -> None:
        item: dict[str, Any] = {"type": "message", "id": "msg_stub", "role": "assistant"}
        item["content"] = [{"type": "output_text", "text": ANSWER}]
        if call := self.server.to_call(body):
            item = {
                "type": "function_call",
                "id": "fc_stub",
                "call_id": "call_stub",
                "name": call[1],
                "arguments": json.dumps(call[2]),
            }
            item |= {"namespace": call[0]} if call[0] else {}
        used = {"input_tokens": 9, "output_tokens": 5, "total_tokens": 14}
        used |= {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}  # type: ignore[dict-item]
        self._events(
            {"type": "response.created", "response": {"id": "resp_stub"}},
            {"type": "response.output_item.done", "item": item},
            {"type": "response.completed", "response": {"id": "resp_stub", "usage": used}},
        )

    def _gemini(self, body: dict[str, Any]) -> None:
        made = body.get("generationConfig", {}).get("responseMimeType") == "application/json"
        words = '{"reasoning":"plain","model_choice":"flash","complexity_score":1,"complexity_reasoning":"x"}' if made else ANSWER
        part: dict[str, Any] = {"text": words}
        if call := self.server.to_call(body):
            part = {"functionCall": {"name": call[1], "args": call[2]}}
        one = {"content": {"role": "model", "parts": [part]}, "index": 0, "finishReason": "STOP"}
        used = {"promptTokenCount": 9, "candidatesTokenCount": 5, "totalTokenCount": 14}
        answer = {"candidates": [one], "modelVersion": "stub", "responseId": "stub", "usageMetadata": used}
        if "stream" in self.path:
            self._events(answer, named=False)
        else:
            self._json(answer)

    def _chat(self, body: dict[str, Any]) -> None:
        about: dict[str, Any] = {"id": "chat_stub", "created": 1, "model": "stub"}
        used = {"prompt_tokens": 9, "completion_tokens": 5, "total_tokens": 14}
        if not body.get("stream"):
            choice = {"index": 0, "message": {"role": "assistant", "content": ANSWER}, "finish_reason": "stop"}
            self._json({**about, "object": "chat.completion", "choices": [choice], "usage": used})
            return
        about["object"] = "chat.completion.chunk"
        delta: dict[str, Any] = {"role": "assistant", "content": ANSWER}
        call = self.server.to_call(body)
        if call:
            function = {"name": call[1], "arguments": json.dumps(call[2])}
            delta = {
                "role": "assistant",
                "tool_calls": [{"index": 0, "id": "call_stub", "type": "function", "function": function}],
            }
        said = {"index": 0, "delta": delta, "finish_reason": None}
        ended = {"index": 0, "delta": {}, "finish_reason": "tool_calls" if call else "stop"}
        self._events({**about, "choices": [said]}, {**about, "choices": [ended], "usage": used}, named=False, end="[DONE]")

    # -- bytes

    def _json(self, answer: Any) -> None:
        data = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def _events(self, *events: dict[str, Any], named: bool = True, end: str = "") -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        for event in events:
            name = f"event: {event['type']}\n" if named else ""
            self.wfile.write(f"{name}data: {json.dumps(event)}\n\n".encode())
        if end:
            self.wfile.write(f"data: {end}\n\n".encode())
        self.close_connection = True
