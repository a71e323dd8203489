"""Any program as a model: the prompt on its stdin, JSON on its stdout (`claude -p`, a script, …).

Agents keep their own sessions and have hooks, ours among them: a dream that asked one would be captured, and dreamed of, and ask
again. So it runs with `DREAMKEEP_OFF=1` (our hooks, tap and watcher do nothing) and with `DREAMKEEP_DREAMING=1` (no dream with a
model begins inside it, model.py), its request begins with a mark of ours (requests.py), and it works in a folder of no project.
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

#: Whoever has this set was started by a dream.
DREAMING = "DREAMKEEP_DREAMING"
#: Claude Code refuses to run where this is set, that is, below itself.
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
    """The answer itself, or the envelope that agents put around it (`result`, `response`), with what it cost; also as the last of
    all that they did, in a list (`claude` where it is verbose) or line by line."""
    try:
        said = json.loads(text)
    except (ValueError, RecursionError):
        said = _find_last_result(_read_json_lines(text))
        if said is None:
            return Got(text)
    if isinstance(said, list):
        said = _find_last_result(said) or said
    if not isinstance(said, dict) or not ANSWERS.isdisjoint(said):
        return Got(said)
    if said.get("is_error"):
        return NoReply("the command reports an error")
    for name in ("structured_output", "result", "response", "text", "content"):
        if isinstance(said.get(name), (str, dict)) and said[name]:
            return Got(said[name], _read_usage(said))
    return Got(said)


def _read_json_lines(text: str) -> list[Any]:
    """Nothing where a line is no JSON."""
    try:
        return [json.loads(line) for line in text.splitlines() if line.strip()]
    except (ValueError, RecursionError):
        return []


def _find_last_result(events: Sequence[Any]) -> dict[str, Any] | None:
    results = [one for one in events if isinstance(one, dict) and one.get("type") == "result"]
    return results[-1] if results else None


def _read_usage(said: Mapping[str, Any]) -> Usage | None:
    told = said.get("usage")
    if not isinstance(told, dict):
        return None
    names = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens")
    numbers = [told.get(name) or 0 for name in names]
    usd = said.get("total_cost_usd") or 0.0
    if not all(isinstance(n, int) and not isinstance(n, bool) and 0 <= n < 10**9 for n in numbers) or sum(numbers[:3]) == 0:
        return None
    cost = float(usd) if isinstance(usd, (int, float)) and not isinstance(usd, bool) and 0 <= usd < 1e6 else 0.0
    return Usage(1, sum(numbers[:3]), numbers[3], cost)
