"""A model, with one method, `ask(Request) -> ModelReply`, for an HTTP server and for a command alike.

    request ─► reserve the most it can cost ─► ask ─► settle ─► reply
                 │ over the limit: OverBudget   │ 429, 5xx, time-out: wait, then retry (another call in the budget)
                 ▼                              ▼ anything else: NoAnswer; a later run asks again

If the budget doesn't allow a retry, that is NoAnswer, too: its message says why there was no answer and why no retry. Requests
contain no secrets (clean.py), and answers are not trusted (items.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from dreamkeep.agents.registry import BUILT_IN
from dreamkeep.config import Config
from dreamkeep.dream.backends.api import Usage
from dreamkeep.dream.backends.model.budget import HIDDEN_TOKENS, Prices, TokenBudget, estimate
from dreamkeep.dream.backends.model.command import DREAMING, Command
from dreamkeep.dream.backends.model.http import Anthropic, Endpoint, Got, NoReply, OpenAI
from dreamkeep.dream.backends.model.reading import ModelReply
from dreamkeep.dream.backends.model.requests import Request, read_request
from dreamkeep.errors import BadConfig, NoAnswer, OverBudget, Refused
from dreamkeep.host import Host, http

_FIRST_WAIT_S = 1.0
_LONGEST_WAIT_S = 60.0
#: How often a request is changed because the server doesn't support a part of it.
_MOST_ADAPTATIONS = 4

URLS = {"openai": "https://api.openai.com", "anthropic": "https://api.anthropic.com"}
KEYS = {"openai": "OPENAI_API_KEY", "anthropic": "ANTHROPIC_API_KEY"}


_NO_PRICES = Prices()


class ModelCall(Protocol):
    """Makes a request once, without retries."""

    retries: bool

    @property
    def secrets(self) -> tuple[str, ...]: ...

    def where(self) -> str: ...

    def body(self, request: Request) -> bytes: ...

    def ask(self, body: bytes, now_s: float) -> Got | NoReply: ...


class Model:
    shares = True

    def __init__(
        self,
        host: Host,
        asked: ModelCall,
        budget: TokenBudget,
        *,
        prices: Prices = _NO_PRICES,
        max_output: int = 4096,
        retries: int = 3,
    ) -> None:
        self._host, self._call, self._budget = host, asked, budget
        self._prices, self._max_output, self._retries = prices, max_output, retries if asked.retries else 0

    @property
    def spent(self) -> Usage:
        return self._budget.spent

    @property
    def secrets(self) -> tuple[str, ...]:
        """Our own key, which must never be part of a request."""
        return self._call.secrets

    def ask(self, request: Request) -> ModelReply:
        got = self._ask_until_answered(request)
        return ModelReply(got.found, got.cut)

    def unreadable(self, request: Request, why: str) -> NoAnswer:
        return NoAnswer(why, where=f"the request to {request.kind}", next="A later run asks again.")

    # -- asking

    def _ask_until_answered(self, request: Request) -> Got:
        tries = ways = 0
        before: NoReply | None = None
        while True:
            body = self._call.body(request)
            try:
                got = self._ask_once(body)
            except OverBudget as problem:
                if before is None:
                    raise
                later = f"It was not asked again: {problem.what}. A later run does."
                raise self._make_no_answer(before, later) from None
            if isinstance(got, Got):
                return got
            before = got
            if got.adapted and ways < _MOST_ADAPTATIONS:
                ways += 1
                continue
            wait_s = self._find_wait_s(tries, got)
            if wait_s is None:
                raise self._make_no_answer(got, got.next or "A later run tries again.")
            tries += 1
            self._host.sleep(wait_s)

    def _make_no_answer(self, trouble: NoReply, next: str) -> NoAnswer:
        problem = NoAnswer(trouble.what, where=self._call.where(), next=next)
        problem.nobody = trouble.nobody
        return problem

    def _find_wait_s(self, tries: int, trouble: NoReply) -> float | None:
        """How long to wait before a retry; None for no retry."""
        if not trouble.again or tries >= self._retries:
            return None
        # Half of the wait is random, so that clients that were refused together don't all retry together.
        chance = int.from_bytes(self._host.random(4), "big") / 2**32
        own = min(_LONGEST_WAIT_S, _FIRST_WAIT_S * 2**tries) * (0.5 + chance / 2)
        wait_s = own if trouble.wait_s is None else trouble.wait_s + own * 0.1
        # If the server asks for a longer wait, a later run asks again.
        return wait_s if wait_s <= _LONGEST_WAIT_S else None

    def _ask_once(self, body: bytes) -> Got | NoReply:
        most = self._make_usage(len(body) + HIDDEN_TOKENS, self._max_output)
        self._budget.set_aside(most)
        got = self._call.ask(body, self._host.now() / 1e9)
        if isinstance(got, Got):
            used = got.usage or Usage(1, estimate(body.decode()), estimate(str(got.found)))
            self._budget.settle(most, used._replace(usd=used.usd or self._prices.of(used.tokens_in, used.tokens_out)))
        elif got.free:
            self._budget.settle(most, Usage(calls=1))
        return got

    def check_budget(self) -> None:
        """Raises, before a run begins, if the limits don't even allow an empty request: no session is to blame."""
        nothing = self._call.body(read_request(()))
        most = self._make_usage(len(nothing) + HIDDEN_TOKENS, self._max_output)
        today = self._budget.lacks_today(most)
        lack = self._budget.lack(most) or self._budget.lacks_ever(most)
        if lack is None and today is not None:
            raise OverBudget(
                f"`{today}` is spent for today",
                where="the runs of the last 24 hours",
                next="Wait, or raise it. `dreamkeep model` shows the spending.",
            )
        if lack is not None:
            money = f", {most.usd:.4f} USD" if most.usd else ""
            raise BadConfig(
                f"`{lack}` does not allow even one call",
                where=f"one call may cost {most.tokens_in + most.tokens_out} tokens{money}",
                next=f"Raise `{lack}`, or lower `dream.model.max_output`.",
            )

    def _make_usage(self, tokens_in: int, tokens_out: int) -> Usage:
        return Usage(1, tokens_in, tokens_out, self._prices.of(tokens_in, tokens_out))


# -- by name


def model(name: str, config: Config, host: Host, environment: Mapping[str, str], budget: TokenBudget, folder: str) -> Model:
    """The model of the backend `name`. `folder`: the working folder of a command, which is no project's."""
    if environment.get(DREAMING):
        raise Refused(
            "a dream's own model may not start a dream with a model",
            where=DREAMING,
            next="Use the backend `rules` there.",
        )
    prices = Prices(config["dream.model.price_in"] or 0.0, config["dream.model.price_out"] or 0.0)
    if budget.limits_money and None in (config["dream.model.price_in"], config["dream.model.price_out"]):
        raise BadConfig(
            "a spending limit needs prices",
            where=f"backend {name}",
            next="Set `dream.model.price_in` and `dream.model.price_out` (USD per million tokens).",
        )
    asked = _make_command(config, environment, folder) if name == "command" else _make_endpoint(name, config, environment)
    return Model(
        host,
        asked,
        budget,
        prices=prices,
        max_output=config["dream.model.max_output"],
        retries=config["dream.model.retries"],
    )


def _make_command(config: Config, environment: Mapping[str, str], folder: str) -> Command:
    words = config["dream.model.command"]
    if not words:
        example = f'For example: command = ["{BUILT_IN[0]}", "-p"].'
        raise BadConfig("no command is set", where="dream.model.command", next=example)
    return Command(words, config["dream.model.timeout_s"], environment, folder)


def _make_endpoint(name: str, config: Config, environment: Mapping[str, str]) -> Endpoint:
    kinds: dict[str, type[OpenAI] | type[Anthropic]] = {"openai": OpenAI, "anthropic": Anthropic}
    if name not in kinds:
        raise BadConfig(f"no backend `{name}` asks a model", where="dream.backend", next=f"Known: {', '.join(URLS)}, command.")
    if not config["dream.model.model"]:
        raise BadConfig("no model is set", where="dream.model.model", next="Name one that the server offers.")
    url = config["dream.model.url"] or URLS[name]
    _check_encrypted(url)
    key = _read_key(name, config, environment)
    return Endpoint(
        kinds[name](config["dream.model.model"], config["dream.model.max_output"]),
        url,
        key,
        config["dream.model.timeout_s"],
        environment,
    )


def _check_encrypted(url: str) -> None:
    """Sessions and keys must not cross the internet unencrypted."""
    from urllib.parse import urlsplit

    parts = urlsplit(url)
    if parts.scheme != "https" and not http.near(parts.hostname or ""):
        raise BadConfig("plain http is allowed only on this machine and network", where="dream.model.url", next="Use https://.")


def _read_key(name: str, config: Config, environment: Mapping[str, str]) -> str:
    variable = config["dream.model.key_env"]
    key = environment.get(variable or KEYS[name], "").strip()
    # The user's own server may need no key; the vendors' do.
    if not key and (variable or config["dream.model.url"] is None):
        raise BadConfig(
            "the key is missing",
            where=variable or KEYS[name],
            next="Set that variable, or name another in `dream.model.key_env`.",
        )
    if not key.isascii() or not key.isprintable():
        raise BadConfig(
            "the key contains invalid characters", where=variable or KEYS[name], next="Set it again, without line breaks."
        )
    # A vendor's key is sent only to that vendor. For another address the user must name the variable.
    return key if variable or config["dream.model.url"] is None else ""
