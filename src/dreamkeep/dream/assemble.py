"""Makes the parts of a run from the settings: the backend, how sessions are cut, what is redacted, how notes are made."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dreamkeep.dream.backends.api import Answer, Given, Usage
from dreamkeep.dream.parts import Parts
from dreamkeep.errors import BadUsage
from dreamkeep.memory.insight import Insight
from dreamkeep.memory.memory import Memory

if TYPE_CHECKING:
    from dreamkeep.config import Config
    from dreamkeep.dream.backends.model.model import Model
    from dreamkeep.dream.backends.model.session import Asks
    from dreamkeep.dream.consolidate.consolidate import Consolidating
    from dreamkeep.dream.consolidate.known_files import Statement
    from dreamkeep.dream.parts import Consolidate
    from dreamkeep.host import Host

    Known = Callable[[str], Sequence[Statement]]

RULES = "rules"
NAMES = (RULES, "openai", "anthropic", "command")


#: Enough for most whole sessions: so words that an agent said long before are recognised where the user pastes them.
_RULES_TOKENS = 400_000


def named(backend: Any, config: Config) -> str:
    """`backend`: a name, None for what the settings say, or anything with `backfill`. Loads nothing expensive."""
    if hasattr(backend, "backfill"):
        return str(getattr(backend, "name", type(backend).__name__))
    name = config["dream.backend"] if backend is None else backend
    if name not in NAMES:
        # No fallback: that would send sessions to a backend that nobody asked for.
        raise BadUsage(f"unknown backend {name!r}", where="--backend", next=f"Use one of {', '.join(NAMES)}.")
    return str(name)


def assemble(
    backend: Any,
    config: Config,
    host: Host,
    environment: Mapping[str, str],
    folder: str,
    known: Known = lambda folder: (),
    spent_today: Callable[[], Usage] = Usage,
) -> Parts:
    """`folder`: where a command works, if the backend is one. `known`: what the user's own files say to whoever works in a
    folder. `spent_today`: what runs of the last 24 hours spent."""
    from dreamkeep.dream.backends.chunks import clean_chunks
    from dreamkeep.dream.consolidate.consolidate import Consolidating, loss, lost

    consolidate = _consolidate(Consolidating())
    if not hasattr(backend, "backfill") and named(backend, config) == RULES:
        from dreamkeep.dream.backends.rules.rules import Rules

        # The rules get no secrets either, though they are local: one that only another message betrays would get into a note.
        rules, size = Rules(redacted), _RULES_TOKENS
        return Parts(rules, consolidate, clean_chunks, redacted, loss, lost, chunk_tokens=size, trusted=True, known=known)
    if hasattr(backend, "backfill"):
        return Parts(backend, consolidate, clean_chunks, redacted, loss, lost, known=known)
    return assemble_for(_asked(backend, config, host, environment, folder, spent_today), known)


def assemble_for(model: Asks, known: Known = lambda folder: ()) -> Parts:
    """For a model that answers requests, or what stands for one: a folder of files, the agent at hand."""
    from dreamkeep.dream.backends.chunks import clean_chunks
    from dreamkeep.dream.consolidate.consolidate import Consolidating, loss, lost

    return Parts(Nobody(), _consolidate(Consolidating()), clean_chunks, redacted, loss, lost, model=model, known=known)


def _consolidate(planning: Consolidating) -> Consolidate:
    def consolidate(memory: Memory, insights: Sequence[Insight], now: str, run: str) -> list[tuple[str, Mapping[str, Any]]]:
        return [(one.kind, one.body) for one in planning.plan(memory, insights, now=now, run=run)]

    return consolidate


class Nobody:
    """The backend where sessions are read by requests: it proposes nothing."""

    def backfill(self, given: Given) -> Answer:
        return Answer()


def _asked(
    backend: Any,
    config: Config,
    host: Host,
    environment: Mapping[str, str],
    folder: str,
    spent_today: Callable[[], Usage],
) -> Model:
    from dreamkeep.dream.backends.model.budget import DayLimit, TokenBudget
    from dreamkeep.dream.backends.model.model import model

    tokens, usd = config["dream.max_tokens_per_day"], config["dream.max_usd_per_day"]
    day = DayLimit(tokens, usd, Usage() if tokens is None and usd is None else spent_today())
    budget = TokenBudget(config["dream.max_calls"], config["dream.max_tokens"], config["dream.max_usd"], day)
    made = model(named(backend, config), config, host, environment, budget, folder)
    made.check_budget()
    return made


def redacted(text: str) -> str:
    from dreamkeep.secrets.redact import redact

    return redact(text)[0]
