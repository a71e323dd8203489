"""The model that dreams may ask: what is available, what it would cost, and the user's choice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from dreamkeep.errors import BadConfig, from_os
from dreamkeep.event import rfc3339

if TYPE_CHECKING:
    from dreamkeep.context import KeepContext
    from dreamkeep.dream.backends.api import Usage
    from dreamkeep.dream.backends.model.at_hand import Candidate
    from dreamkeep.dream.backends.model.budget import Prices
    from dreamkeep.index.store import Store
    from dreamkeep.session.messages import Message
    from dreamkeep.session.summary import Summary

_FILE = "keep.toml"
_DAYS = 30
#: What `model use` allows for a day, where nobody has set a limit.
_TOKENS_PER_DAY = 2_000_000
_CAPS = ("max_calls", "max_tokens", "max_usd", "max_tokens_per_day", "max_usd_per_day")
_BY_HAND = "Set it by hand: docs/models.md."


def model(context: KeepContext) -> dict[str, Any]:
    return {**_describe_model(context), "found": [one._asdict() for one in _find_models(context)]}


def model_use(context: KeepContext, what: str) -> dict[str, Any]:
    from dreamkeep.dream.backends.model.at_hand import OWN_KEYS, settings_for

    found = _find_models(context)
    dream, model = settings_for(what, found)
    gone = [key for key in OWN_KEYS if key not in model]
    if any(_differs(context, key, value) for key, value in model.items()):
        gone += ["price_in", "price_out"]  # another model has other prices
    if context.config["dream.max_tokens_per_day"] is None and context.config["dream.max_usd_per_day"] is None:
        dream["max_tokens_per_day"] = _TOKENS_PER_DAY
    _write_settings(context, dream, model, gone)
    return {**_describe_model(context), "found": [one._asdict() for one in found]}


def _differs(context: KeepContext, key: str, value: Any) -> bool:
    before = context.config[f"dream.model.{key}"]
    return bool((list(before) if isinstance(before, tuple) else before) != value)


def model_off(context: KeepContext) -> dict[str, Any]:
    if context.config["dream.backend"] != "rules":
        _write_settings(context, {"backend": "rules"}, {}, ())
    return {**_describe_model(context), "found": []}


def models_at_hand(context: KeepContext) -> list[str]:
    return [one.name for one in _find_models(context, ask_servers=False)]


def _find_models(context: KeepContext, *, ask_servers: bool = True) -> list[Candidate]:
    from dreamkeep.dream.backends.model.at_hand import find

    return find(context.environment, partial(_find_program, context), ask_servers=ask_servers)


def _find_program(context: KeepContext, name: str) -> str | None:
    """The path of a program that we may run."""
    for folder in context.environment.get("PATH", "").split(":"):
        path = f"{folder}/{name}"
        at = context.host.stat(path) if folder.startswith("/") else None
        if at is not None and at.is_file and at.mode & 0o111:
            return path
    return None


# -- what it costs


def _describe_model(context: KeepContext) -> dict[str, Any]:
    config = context.config
    asks = {"openai": config["dream.model.model"], "anthropic": config["dream.model.model"]}
    asks["command"] = " ".join(config["dream.model.command"][:2]) or None
    caps = {name: config[f"dream.{name}"] for name in _CAPS}
    return {
        "backend": config["dream.backend"],
        "model": asks.get(config["dream.backend"]),
        "estimate": _estimate_cost(context),
        "caps": {**caps, "spent_today": measure_spent_today(context)._asdict()},
    }


def _estimate_cost(context: KeepContext) -> dict[str, Any]:
    """The cost of the finished sessions of the last 30 days and, as `again`, of all that only rules have read."""
    from dreamkeep.dream.backends.model.at_hand import expect

    prices = _read_prices(context)
    if not context.exists():
        return {"days": _DAYS, **expect((), prices), "again": expect((), prices)}
    since = rfc3339(context.host.now() - _DAYS * 86_400 * 1_000_000_000)
    read = {one.session for one in context.load_memory("dreamed").dreamed.values() if one.completed_at and one.backend == "rules"}
    lately = _count_digest_tokens(context, lambda one: (one.last_at or "") >= since)
    before = _count_digest_tokens(context, lambda one: one.id in read)
    return {"days": _DAYS, **expect(lately, prices), "again": expect(before, prices)}


def _count_digest_tokens(context: KeepContext, wanted: Callable[[Summary], bool]) -> list[int]:
    from dreamkeep.session.summary import ENDED

    def sizes(store: Store) -> list[int]:
        found = [one for one in store.sessions() if one.state == ENDED and wanted(one) and not _is_unread(one)]
        return [_count_tokens(store.messages(one.id), one.cwd) for one in found]

    return [size for size in context.ask(sizes) if size]


def _read_prices(context: KeepContext) -> Prices | None:
    from dreamkeep.dream.backends.model.budget import Prices

    known = context.config["dream.model.price_in"], context.config["dream.model.price_out"]
    return None if None in known else Prices(*known)


def measure_spent_today(context: KeepContext) -> Usage:
    """What the runs of the last 24 hours spent by their reports, including runs that were undone."""
    from dreamkeep.dream.backends.api import Usage

    spent = Usage()
    if not context.exists():
        return spent
    since = rfc3339(context.host.now() - 86_400 * 1_000_000_000)
    for run in context.load_memory("runs").runs.values():
        usage = run.report.get("usage")
        if (run.started_at or "") >= since and isinstance(usage, dict):
            spent = spent.plus(Usage(**{key: value for key, value in usage.items() if key in Usage._fields}))
    return spent


# -- keep.toml


def _write_settings(context: KeepContext, dream: dict[str, Any], model: dict[str, Any], gone: Sequence[str]) -> None:
    """Change keep.toml and keep every other byte of it. The new text is checked before it is written."""
    from dreamkeep import config as settings
    from dreamkeep.capture.setup import tomledit
    from dreamkeep.capture.setup.text import UnreadableFile
    from dreamkeep.host import make_folders, read_file, replace_file

    path = f"{context.root}/{_FILE}"
    try:
        before = read_file(context.host, path).decode() if context.host.stat(path) else ""
        after = tomledit.put(before, ("dream",), dream)
        after = tomledit.unset(after, ("dream", "model"), gone)
        after = tomledit.put(after, ("dream", "model"), model) if model else after
    except (UnreadableFile, UnicodeDecodeError) as problem:
        raise BadConfig(f"it can't be changed safely ({problem})", where=path, next=_BY_HAND) from problem
    except OSError as problem:
        raise from_os(problem, "reading the settings", path) from problem
    config = settings.load(after.encode(), context.environment, where=path)
    if config["dream.backend"] != dream["backend"]:
        way = "Unset that variable, then try again. Nothing was written."
        raise BadConfig("an environment variable overrides this", where="DREAMKEEP_DREAM_BACKEND", next=way)
    try:
        make_folders(context.host, context.root)
        replace_file(context.host, path, after.encode())
    except OSError as problem:
        raise from_os(problem, "writing the settings", path) from problem
    context.config = config


def _is_unread(one: Summary) -> bool:
    """Whether no dream reads it: a subagent's session, or a dream's own."""
    from dreamkeep.dream.backends.model.requests import OURS

    return one.title.startswith(OURS) or any(kind == "subagent" for kind, _ in one.lineage)


def _count_tokens(messages: Sequence[Message], cwd: str) -> int:
    from dreamkeep.dream.backends.model.budget import estimate
    from dreamkeep.session.reading.digest import digest, render

    return estimate(render(digest(messages, cwd)))
