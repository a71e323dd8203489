"""Uses any program as a model: it reads the prompt on stdin and prints JSON (`claude -p`, a script, …).

Agents keep their own sessions and run hooks, ours among them. Without care a dream that asks an agent would be captured, and the
next dream would read it and ask again. So the program runs with `DREAMKEEP_OFF=1` (our hooks, tap and watcher do nothing) and
`DREAMKEEP_DREAMING=1` (model.py starts no dream inside it), its request begins with our mark (requests.py), and its working
folder belongs to no project.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from dreamkeep.dream.backends.api import Usage
from dreamkeep.dream.backends.model.http import MOST_BYTES, Got, NoReply
from dreamkeep.dream.backends.model.requests import ANSWERS, Request
from dreamkeep.host import process
from dreamkeep.secrets.redact import redact

#: Set for each program that a dream starts.
DREAMING = "DREAMKEEP_DREAMING"
#: Claude Code refuses to run where these are set, that is, inside itself.
_REMOVED_VARIABLES = ("CLAUDECODE", "CLAUDE_CODE_ENTRYPOINT")


class Command:
    retries = False
    secrets: tuple[str, ...] = ()

    def __init__(self, words: Sequence[str], timeout_s: float, environment: Mapping[str, str], folder: str) -> None:
        self._words, self._timeout_s, self._folder = tuple(words), timeout_s, folder
        self._environment = {name: value for name, value in environment.items() if name not in _REMOVED_VARIABLES}
        self._environment |= {"DREAMKEEP_OFF": "1", DREAMING: "1"}

    def where(self) -> str:
        return self._words[0]

    def body(self, request: Request) -> bytes:
        wanted = json.dumps(request.schema, ensure_ascii=False)
        return f"{request.user}\n{request.system}\n\nThe JSON schema of the answer: {wanted}\n".encode("utf-8", "replace")

    def ask(self, body: bytes, now_s: float) -> Got | NoReply:
        ran = process.run(
            self._words,
            body,
            environment=self._environment,
            folder=self._folder,
            timeout_s=self._timeout_s,
            most_bytes=MOST_BYTES,
        )
        if isinstance(ran, process.NotStarted):
            return NoReply(f"the command can't be started ({ran.detail})", "Check `dream.model.command`.", free=True, nobody=True)
        if ran.why == "time-out":
            return NoReply(f"the command did not finish within {self._timeout_s:g} s", "Raise `dream.model.timeout_s`.")
        if ran.why:
            return NoReply(f"the command printed more than {MOST_BYTES >> 20} MiB")
        if ran.code != 0:
            words = " ".join(redact(ran.errors.decode("utf-8", "replace"))[0].split())
            return NoReply(f"the command exited with {ran.code}{': ' + words[-200:] if words else ''}", "Try it by hand.")
        return _read_output(ran.out.decode("utf-8", "replace"))


def _read_output(text: str) -> Got | NoReply:
    """Reads the answer itself, or the envelope that agents put around it (`result`, `response`) with its cost. The envelope may
    also be the last of many events, in a list (verbose `claude`) or line by line."""
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError):
        parsed = _find_last_result(_read_json_lines(text))
        if parsed is None:
            return Got(text)
    if isinstance(parsed, list):
        parsed = _find_last_result(parsed) or parsed
    if not isinstance(parsed, dict) or not ANSWERS.isdisjoint(parsed):
        return Got(parsed)
    if parsed.get("is_error"):
        return NoReply("the command reports an error")
    for name in ("structured_output", "result", "response", "text", "content"):
        if isinstance(parsed.get(name), (str, dict)) and parsed[name]:
            return Got(parsed[name], _read_usage(parsed))
    return Got(parsed)


def _read_json_lines(text: str) -> list[Any]:
    """Empty if a line is not JSON."""
    try:
        return [json.loads(line) for line in text.splitlines() if line.strip()]
    except (ValueError, RecursionError):
        return []


def _find_last_result(events: Sequence[Any]) -> dict[str, Any] | None:
    results = [one for one in events if isinstance(one, dict) and one.get("type") == "result"]
    return results[-1] if results else None


def _read_usage(parsed: Mapping[str, Any]) -> Usage | None:
    usage = parsed.get("usage")
    if not isinstance(usage, dict):
        return None
    names = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens")
    numbers = [usage.get(name) or 0 for name in names]
    usd = parsed.get("total_cost_usd") or 0.0
    if not all(isinstance(n, int) and not isinstance(n, bool) and 0 <= n < 10**9 for n in numbers) or sum(numbers[:3]) == 0:
        return None
    cost = float(usd) if isinstance(usd, (int, float)) and not isinstance(usd, bool) and 0 <= usd < 1e6 else 0.0
    return Usage(1, sum(numbers[:3]), numbers[3], cost)
