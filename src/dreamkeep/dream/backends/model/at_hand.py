"""Finds the models that can be used on this machine, and estimates their cost. Nothing of a session is sent for that.

    claude, codex, …       the agents' own programs, in their print mode
    ollama, localhost-…    servers on this machine with OpenAI's protocol; they are asked only for the names of their models
    openai, anthropic      a vendor whose key is in the environment; the variable is named, the key never shown

Agents have their own sessions, hooks and tools. Each program gets flags for no tools, no hooks and no session, as far as it has
such flags. If it keeps a session all the same, that is recognised as ours (command.py).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from dreamkeep.agents import registry
from dreamkeep.agents.contract import OWN_TITLE
from dreamkeep.dream.backends.model.budget import Prices, estimate
from dreamkeep.dream.backends.model.model import KEYS
from dreamkeep.dream.backends.model.requests import OURS, challenge_request, merge_request, read_request
from dreamkeep.errors import BadUsage
from dreamkeep.host import http

COMMAND, SERVER, KEY = "command", "server", "key"
#: Agents answer slowly.
_COMMAND_TIMEOUT_S = 300
PORTS: Mapping[str, int] = {"ollama": 11434, "localhost-1234": 1234, "localhost-8080": 8080, "localhost-8000": 8000}
_PROBE_S, _PROBE_BYTES, _MOST_MODELS = 0.5, 1 << 20, 50
#: The challenges of a session show about this share of its digest again; and how many tokens its answers take.
_CHALLENGE_SHARE, _ANSWER_TOKENS = 0.5, 800
#: The settings that choose a model.
OWN_KEYS = ("url", "model", "key_env", "command")


class Candidate(NamedTuple):
    """`name`: for `model use`. `models`: the names of its models, if it lists them. `stays`: nothing leaves this machine."""

    name: str
    kind: str
    what: str
    models: tuple[str, ...] = ()
    stays: bool = False


def commands() -> dict[str, tuple[str, ...]]:
    """The command that asks each agent's own program, by the agent's name."""
    return {
        agent.name: tuple(OURS if word == OWN_TITLE else word for word in agent.ask_command)
        for agent in registry.agents()
        if agent.ask_command
    }


def find(environment: Mapping[str, str], which: Callable[[str], str | None], *, ask_servers: bool = True) -> list[Candidate]:
    """`which`: finds a program's path by its name."""
    found = [Candidate(name, COMMAND, f"the program {path}") for name in commands() if (path := which(name))]
    if ask_servers:
        found += [one for name, port in PORTS.items() if (one := _probe_server(name, port, environment)) is not None]
    return found + [Candidate(name, KEY, f"the key in {key}") for name, key in KEYS.items() if environment.get(key, "").strip()]


def _probe_server(name: str, port: int, environment: Mapping[str, str]) -> Candidate | None:
    """The server at this port, if it lists models."""
    url = f"http://127.0.0.1:{port}/v1/models"
    got = http.get(url, timeout_s=_PROBE_S, most_bytes=_PROBE_BYTES, environment=environment)
    if isinstance(got, http.Lost) or got.status != 200:
        return None
    try:
        listed = json.loads(got.body)
        names = [str(one["id"]) for one in listed["data"] if _is_model_name(one.get("id"))]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    return Candidate(name, SERVER, f"a server at http://127.0.0.1:{port}", tuple(names[:_MOST_MODELS]), stays=True)


def _is_model_name(text: object) -> bool:
    return isinstance(text, str) and 0 < len(text) <= 200 and text.isprintable()


# -- settings


def settings_for(what: str, found: Sequence[Candidate]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The entries of `[dream]` and `[dream.model]` for NAME or NAME:MODEL."""
    name, _, model = what.partition(":")
    one = next((one for one in found if one.name == name), None)
    if one is None:
        known = ", ".join(each.name for each in found) or "nothing"
        way = f"Found: {known}. Set others by hand in keep.toml: docs/models.md."
        raise BadUsage(f"{name!r} was not found here", where="model use", next=way)
    if one.kind == COMMAND:
        if model:
            way = f"Use `{name}`. Choose its model in its own settings or in `dream.model.command`."
            raise BadUsage(f"{name} chooses its model itself", where=what, next=way)
        return {"backend": "command"}, {"command": list(commands()[name]), "timeout_s": _COMMAND_TIMEOUT_S}
    model = _select_model(one, model)
    if one.kind == SERVER:
        return {"backend": "openai"}, {"url": f"http://127.0.0.1:{PORTS[name]}", "model": model}
    return {"backend": name}, {"key_env": KEYS[name], "model": model}


def _select_model(one: Candidate, model: str) -> str:
    """The model that was named, or the only one that there is."""
    if not model and len(one.models) == 1:
        return one.models[0]
    if model and (not one.models or model in one.models):
        return model
    if one.models:
        way = f"Name one of them: {', '.join(f'{one.name}:{each}' for each in one.models[:10])}."
        raise BadUsage(f"{one.name} has no model {model!r}" if model else "no model given", where=one.name, next=way)
    raise BadUsage("no model given", where=one.name, next=f"Name it: `dreamkeep model use {one.name}:MODEL`.")


# -- what it would cost


def expect(digests: Sequence[int], prices: Prices | None) -> dict[str, Any]:
    """The expected cost of reading sessions, each given by the tokens of its digest: three requests each (read, challenge,
    merge)."""
    words = [
        f"{one.system}{one.user}{json.dumps(one.schema)}" for one in (read_request(()), challenge_request(()), merge_request(()))
    ]
    prompts = sum(map(estimate, words))
    tokens_in = round(sum(digests) * (1 + _CHALLENGE_SHARE)) + len(digests) * prompts
    tokens_out = len(digests) * _ANSWER_TOKENS
    usd = None if prices is None else round(prices.of(tokens_in, tokens_out), 4)
    return {"sessions": len(digests), "tokens": sum(digests), "tokens_in": tokens_in, "tokens_out": tokens_out, "usd": usd}
