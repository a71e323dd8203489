"""A model behind HTTP that speaks OpenAI's Responses API, whole and streamed, and does what the last words it is given say.

"weather" asks the tool of that name; a tool's result is repeated; "break" fails; "wait" never answers; "compact" is answered by
`/responses/compact`. Anything else is greeted.
"""

from __future__ import annotations

import json
import threading
from contextlib import AbstractContextManager
from typing import Any

from tests.helpers import loopback

Out = list[dict[str, Any]]


class Server(loopback.Server):
    def __init__(self) -> None:
        super().__init__(_Handler)
        self.asked: list[dict[str, Any]] = []
        self.waiting = threading.Event()

    @property
    def url(self) -> str:
        return super().url + "/v1"


def serving() -> AbstractContextManager[Server]:
    return loopback.serving(Server())


class _Handler(loopback.Handler):
    server: Server

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append(asked)
        number = len(self.server.asked)
        if self.path.endswith("/compact"):
            squeezed = {"type": "compaction", "id": "cmp_1", "encrypted_content": "c3F1ZWV6ZWQ="}
            first = next(one for one in asked["input"] if one.get("role") == "user")
            reply = {"id": f"resp_{number}", "object": "response.compaction", "created_at": 1, "output": [first, squeezed]}
            return self.send(json.dumps({**reply, "usage": _usage()}).encode())
        last = asked["input"][-1] if isinstance(asked["input"], list) else {"role": "user", "content": asked["input"]}
        words = json.dumps(last)
        if "wait" in words:
            self.server.waiting.set()
            self.server.stop.wait(30)
        if "break" in words or "wait" in words:
            return self.send(b'{"error": {"message": "no"}}', 500)
        response = _response(number, _output(number, last))
        if not asked.get("stream"):
            return self.send(json.dumps(response).encode())
        begun = {**response, "output": [], "status": "in_progress"}
        events = [("response.created", begun), ("response.completed", response)]
        lines = [
            f"event: {name}\ndata: {json.dumps({'type': name, 'sequence_number': n, 'response': one})}\n\n"
            for n, (name, one) in enumerate(events)
        ]
        return self.send("".join(lines).encode(), kind="text/event-stream")


def _output(number: int, last: dict[str, Any]) -> Out:
    if last.get("type") == "function_call_output":
        return [said(number, f"It is {last['output']}.")]
    if "weather" not in json.dumps(last):
        return [said(number, "Hello.")]
    return [
        {"type": "reasoning", "id": f"rs_{number}", "summary": [{"type": "summary_text", "text": "I must look."}]},
        said(number, "Let me look."),
        {
            "type": "function_call",
            "id": f"fc_{number}",
            "call_id": f"call_{number}",
            "name": "weather",
            "arguments": '{"city": "Bern"}',
            "status": "completed",
        },
    ]


def said(number: int, words: str) -> dict[str, Any]:
    content = [{"type": "output_text", "text": words, "annotations": []}]
    return {"type": "message", "id": f"msg_{number}", "role": "assistant", "status": "completed", "content": content}


def _usage() -> dict[str, Any]:
    details = {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
    return {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2, **details}


def _response(number: int, output: Out) -> dict[str, Any]:
    about = {"id": f"resp_{number}", "object": "response", "created_at": 1, "model": "stub", "status": "completed"}
    return {**about, "output": output, "parallel_tool_calls": False, "tool_choice": "auto", "tools": [], "usage": _usage()}
