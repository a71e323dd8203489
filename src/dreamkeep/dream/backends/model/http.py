"""Two protocols for asking a model over HTTP: OpenAI's chat completions, which many servers support, and Anthropic's messages.

Each protocol class makes a request's body and reads a reply, without any I/O. `Endpoint` sends one request (host/http.py) and
returns the result; model.py decides about retries.

Not all servers support all of OpenAI's protocol. What a server refuses (400, 422) is left out from then on: the schema (the
prompt asks for plain JSON as well), the temperature, or the older name of the output limit.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from dreamkeep.dream.backends.api import Usage
from dreamkeep.dream.backends.model.requests import Request
from dreamkeep.host import http
from dreamkeep.secrets.redact import redact

MOST_BYTES = 4 << 20
_TOOL_NAME = "answer"
#: Statuses for a missing key or payment. (403 and 429 may be about the request itself.)
_NO_ACCESS = (401, 402)


class Got(NamedTuple):
    """`found`: the answer, as text or parsed JSON. `usage`: None if the reply doesn't say. `cut`: it was cut off as too long."""

    found: Any
    usage: Usage | None = None
    cut: bool = False


class NoReply(NamedTuple):
    """No answer. `again`: a retry may help, after `wait_s` if that is given. `free`: it certainly cost nothing."""

    what: str
    next: str = ""
    again: bool = False
    wait_s: float | None = None
    free: bool = False
    #: The next request leaves out what the server doesn't support, so it can be made at once.
    adapted: bool = False
    #: No request can succeed: the server can't be reached, or refuses access.
    nobody: bool = False


class OpenAI:
    path = "/v1/chat/completions"

    def __init__(self, model: str, max_output: int) -> None:
        self._model, self._max_output = model, max_output
        self._schema, self._temperature, self._limit = True, True, "max_tokens"

    def headers(self, key: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {key}"} if key else {}

    def body(self, request: Request) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self._model,
            self._limit: self._max_output,
            "messages": [{"role": "system", "content": request.system}, {"role": "user", "content": request.user}],
        }
        if self._temperature:
            body["temperature"] = 0
        if self._schema:
            named = {"name": request.kind, "strict": True, "schema": request.schema}
            body["response_format"] = {"type": "json_schema", "json_schema": named}
        return body

    def adapt_to(self, refusal: str) -> bool:
        """Leaves out what the server refused. False if there is nothing left to leave out."""
        if "max_completion_tokens" in refusal and self._limit == "max_tokens":
            self._limit = "max_completion_tokens"
        elif "temperature" in refusal and self._temperature:
            self._temperature = False
        elif self._schema:
            self._schema = False
        else:
            return False
        return True

    def read(self, reply: Any) -> Got | NoReply:
        choice = _read_first(reply.get("choices"))
        message = choice.get("message")
        usage = _read_usage(reply.get("usage"), ("prompt_tokens",), "completion_tokens")
        if not isinstance(message, dict):
            return NoReply("a reply without a message")
        if message.get("refusal"):
            return NoReply("the model refused to answer")
        content = message.get("content")
        if isinstance(content, list):
            content = "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
        if not isinstance(content, str):
            return NoReply("a reply without text")
        return Got(_strip_thinking(content), usage, choice.get("finish_reason") == "length")


class Anthropic:
    path = "/v1/messages"

    def __init__(self, model: str, max_output: int) -> None:
        self._model, self._max_output, self._temperature = model, max_output, True

    def headers(self, key: str) -> dict[str, str]:
        return {"x-api-key": key, "anthropic-version": "2023-06-01"}

    def body(self, request: Request) -> dict[str, Any]:
        return {
            "model": self._model,
            "max_tokens": self._max_output,
            "system": request.system,
            "messages": [{"role": "user", "content": request.user}],
            "tools": [{"name": _TOOL_NAME, "description": "Hands over the answer.", "input_schema": request.schema}],
            "tool_choice": {"type": "tool", "name": _TOOL_NAME},
            **({"temperature": 0} if self._temperature else {}),
        }

    def adapt_to(self, refusal: str) -> bool:
        adapted = self._temperature and "temperature" in refusal
        self._temperature = self._temperature and not adapted
        return adapted

    def read(self, reply: Any) -> Got | NoReply:
        usage = _read_usage(
            reply.get("usage"), ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens"), "output_tokens"
        )
        cut = reply.get("stop_reason") == "max_tokens"
        if reply.get("stop_reason") == "refusal":
            return NoReply("the model refused to answer")
        blocks = reply.get("content")
        for block in blocks if isinstance(blocks, list) else ():
            if isinstance(block, dict) and block.get("type") == "tool_use" and isinstance(block.get("input"), dict):
                return Got(block["input"], usage, cut)
        words = (
            [str(block.get("text", "")) for block in blocks or () if isinstance(block, dict)] if isinstance(blocks, list) else []
        )
        return Got("".join(words), usage, cut) if any(words) else NoReply("a reply without text")


def _read_first(listed: Any) -> dict[str, Any]:
    return listed[0] if isinstance(listed, list) and listed and isinstance(listed[0], dict) else {}


def _strip_thinking(content: str) -> str:
    """Without the thoughts that some models put before their answer."""
    return content.rpartition("</think>")[2] if "<think>" in content else content


def _read_usage(usage: Any, inward: tuple[str, ...], outward: str) -> Usage | None:
    """None if it is missing or not plausible."""
    if not isinstance(usage, dict):
        return None
    numbers = [usage.get(name) or 0 for name in (*inward, outward)]
    if not all(isinstance(n, int) and not isinstance(n, bool) and 0 <= n < 10**9 for n in numbers) or sum(numbers[:-1]) == 0:
        return None
    return Usage(1, sum(numbers[:-1]), numbers[-1])


# -- one request


class Endpoint:
    """`key` is sent in a header and used nowhere else."""

    retries = True

    def __init__(
        self, protocol: OpenAI | Anthropic, url: str, key: str, timeout_s: float, environment: Mapping[str, str]
    ) -> None:
        self._protocol, self._url, self._key = protocol, _complete_url(url, protocol.path), key
        self._timeout_s, self._environment = timeout_s, environment

    @property
    def secrets(self) -> tuple[str, ...]:
        return (self._key,) if self._key else ()

    def where(self) -> str:
        return self._url

    def body(self, request: Request) -> bytes:
        return json.dumps(self._protocol.body(request), ensure_ascii=False).encode("utf-8", "replace")

    def ask(self, body: bytes, now_s: float) -> Got | NoReply:
        headers = {"Content-Type": "application/json", "Accept": "application/json", "Accept-Encoding": "identity"}
        headers.update(self._protocol.headers(self._key))
        reply = http.post(
            self._url,
            headers,
            body,
            timeout_s=self._timeout_s,
            most_bytes=MOST_BYTES,
            environment=self._environment,
        )
        if isinstance(reply, http.Lost):
            return self._explain_loss(reply)
        if reply.status != 200:
            return self._explain_status(reply, now_s)
        try:
            parsed = json.loads(reply.body)
        except (ValueError, RecursionError):
            return NoReply("a reply that is not JSON", next="Check what that address serves.")
        if not isinstance(parsed, dict):
            return NoReply("a reply that is not an object", next="Check what that address serves.")
        if parsed.get("error") and not parsed.get("choices"):
            return NoReply(f"an error instead of an answer{self._describe_error(parsed)}")
        return self._protocol.read(parsed)

    def _explain_loss(self, lost: http.Lost) -> NoReply:
        detail = f" ({lost.detail})" if lost.detail else ""
        if lost.why == "too long":
            return NoReply(f"a reply of more than {MOST_BYTES >> 20} MiB")
        what = {"time-out": f"no reply within {self._timeout_s:g} s", "unreachable": "can't be reached"}.get(
            lost.why, "the reply was cut off"
        )
        gone = lost.why == "unreachable"
        return NoReply(what + detail, "Check that the server is running.", again=True, free=gone, nobody=gone)

    def _explain_status(self, reply: http.HttpReply, now_s: float) -> NoReply:
        try:
            parsed = json.loads(reply.body)
        except (ValueError, RecursionError):
            parsed = None
        words = self._describe_error(parsed)
        what = f"the server answered {reply.status}{words}"
        if reply.status in (400, 404, 422, 501) and self._protocol.adapt_to(words):
            return NoReply(what, free=True, adapted=True)
        if reply.status in (408, 409, 425, 429) or reply.status >= 500:
            next = "It asked to wait." if reply.status == 429 else "This is a problem of the server; a later run tries again."
            return NoReply(what, next, again=True, wait_s=read_retry_after(reply.headers, now_s), free=reply.status != 408)
        next = {
            401: "Check the key in the variable that `dream.model.key_env` names.",
            403: "Check the key in the variable that `dream.model.key_env` names.",
            404: "Check `dream.model.url` and `dream.model.model`.",
        }.get(reply.status, "Check `dream.model.url` and `dream.model.model`.")
        return NoReply(what, next, free=True, nobody=reply.status in _NO_ACCESS)

    def _describe_error(self, parsed: Any) -> str:
        """The server's error message, shortened and without secrets that it may repeat."""
        error = parsed.get("error") if isinstance(parsed, dict) else None
        message = error.get("message") if isinstance(error, dict) else error
        if not isinstance(message, str) or not message:
            return ""
        plain = " ".join(redact(message[:2000], self.secrets)[0].split())
        return f": {plain[:200]}"


def _complete_url(url: str, path: str) -> str:
    """Accepts `https://host`, `https://host/v1` and the whole address."""
    url = url.rstrip("/")
    end = path.removeprefix("/v1")
    if url.endswith(end):
        return url
    return url + (end if url.count("/") > 2 else path)


def read_retry_after(headers: Mapping[str, str], now_s: float) -> float | None:
    """Retry-After: seconds, or a date."""
    from email.utils import parsedate_to_datetime

    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        value = headers.get(name, "").strip()
        try:
            seconds = float(value) / unit
        except ValueError:
            continue
        return seconds if 0 <= seconds < 1e9 else None
    try:
        return max(0.0, parsedate_to_datetime(headers.get("retry-after", "")).timestamp() - now_s)
    except (ValueError, TypeError, OverflowError):
        return None
