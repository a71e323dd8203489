"""A model that may be asked: one method, `ask(Request) -> Reply`, whatever stands behind it.

    request ─► set aside the most it can cost ─► ask ─► settle ─► reply
                 │ no room: OverBudget            │ 429, 5xx, time-out: wait, ask again (a call of its own in the budget)
                 ▼                                ▼ everything else: NoAnswer; a later run asks again

No room to ask again is no excuse for who did not answer: that is NoAnswer, too, and says both. What is asked holds no secrets
(clean.py); what is answered is believed by nobody (items.py).
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
#: How often a question is put in another way, because the server does not know a part of it.
_MOST_ADAPTATIONS = 4

URLS = {"openai": "https://api.openai.com", "anthropic": "https://api.anthropic.com"}
KEYS = {"openai": "OPENAI_API_KEY", "anthropic": "ANTHROPIC_API_KEY"}


_NO_PRICES = Prices()


class ModelCall(Protocol):
    """One question, one try."""

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
        """What must never stand in a request: our own key."""
        return self._call.secrets

    def ask(self, request: Request) -> ModelReply:
        got = self._ask_until_answered(request)
        return ModelReply(got.found, got.cut)

    def unreadable(self, request: Request, why: str) -> NoAnswer:
        return NoAnswer(why, where=f"the request to {request.kind}", next="A later run asks again.")

    # -- asking

    def _ask_until_answered(self, question: Request) -> Got:
        tries = ways = 0
        before: NoReply | None = None
        while True:
            body = self._call.body(question)
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
            if got.otherwise and ways < _MOST_ADAPTATIONS:
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
        """How long until it is asked again; None: not now."""
        if not trouble.again or tries >= self._retries:
            return None
        # Half of it by chance: many who were turned away at once should not come back at once.
        chance = int.from_bytes(self._host.random(4), "big") / 2**32
        own = min(_LONGEST_WAIT_S, _FIRST_WAIT_S * 2**tries) * (0.5 + chance / 2)
        wait_s = own if trouble.wait_s is None else trouble.wait_s + own * 0.1
        # A server that wants to be left alone for longer is: a later run asks again.
        return wait_s if wait_s <= _LONGEST_WAIT_S else None

    def _ask_once(self, body: bytes) -> Got | NoReply:
        most = self._make_usage(len(body) + HIDDEN_TOKENS, self._max_output)
        self._budget.set_aside(most)
        got = self._call.ask(body, self._host.now() / 1e9)
        if isinstance(got, Got):
            told = got.usage
            if told is None:
                told = Usage(1, estimate(body.decode()), estimate(str(got.found)))
            self._budget.settle(most, told._replace(usd=told.usd or self._prices.of(told.tokens_in, told.tokens_out)))
        elif got.free:
            self._budget.settle(most, Usage(calls=1))
        return got

    def check_budget(self) -> None:
        """Where not even a question about nothing fits, no session is to blame: said before a run begins."""
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
    """The model that the backend `name` asks. `folder`: where a command works; no project's."""
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
    """Sessions and keys do not cross the internet in the clear."""
    from urllib.parse import urlsplit

    parts = urlsplit(url)
    if parts.scheme != "https" and not http.near(parts.hostname or ""):
        raise BadConfig("plain http is allowed only on this machine and network", where="dream.model.url", next="Use https://.")


def _read_key(name: str, config: Config, environment: Mapping[str, str]) -> str:
    variable = config["dream.model.key_env"]
    key = environment.get(variable or KEYS[name], "").strip()
    # A server of one's own may want none; the vendors' do.
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
    # A vendor's key goes to that vendor only: with another address its variable must be named on purpose.
    return key if variable or config["dream.model.url"] is None else ""
