"""Which model dreams may ask, what that would cost, and the user's yes or no to it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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


class ModelVerbs:
    """The model that dreams may ask: shown, chosen, switched off."""

    def __init__(self, context: KeepContext) -> None:
        self._context = context
        self._host = context.host
        self._root = context.root

    def model(self) -> dict[str, Any]:
        return {**self._describe_model(), "found": [one._asdict() for one in self._find_models()]}

    def model_use(self, what: str) -> dict[str, Any]:
        from dreamkeep.dream.backends.model.at_hand import OWN_KEYS, settings_for

        found = self._find_models()
        dream, model = settings_for(what, found)
        gone = [key for key in OWN_KEYS if key not in model]
        if any(self._differs(key, value) for key, value in model.items()):
            gone += ["price_in", "price_out"]  # another model has other prices
        if self._context.config["dream.max_tokens_per_day"] is None and self._context.config["dream.max_usd_per_day"] is None:
            dream["max_tokens_per_day"] = _TOKENS_PER_DAY
        self._write_settings(dream, model, gone)
        return {**self._describe_model(), "found": [one._asdict() for one in found]}

    def _differs(self, key: str, value: Any) -> bool:
        before = self._context.config[f"dream.model.{key}"]
        return bool((list(before) if isinstance(before, tuple) else before) != value)

    def model_off(self) -> dict[str, Any]:
        if self._context.config["dream.backend"] != "rules":
            self._write_settings({"backend": "rules"}, {}, ())
        return {**self._describe_model(), "found": []}

    def models_at_hand(self) -> list[str]:
        return [one.name for one in self._find_models(ask_servers=False)]

    def _find_models(self, *, ask_servers: bool = True) -> list[Candidate]:
        from dreamkeep.dream.backends.model.at_hand import find

        return find(self._context.environment, self._find_program, ask_servers=ask_servers)

    def _find_program(self, name: str) -> str | None:
        """Where a program lies that we may run."""
        for folder in self._context.environment.get("PATH", "").split(":"):
            path = f"{folder}/{name}"
            at = self._host.stat(path) if folder.startswith("/") else None
            if at is not None and at.is_file and at.mode & 0o111:
                return path
        return None

    # -- what it costs

    def _describe_model(self) -> dict[str, Any]:
        config = self._context.config
        asks = {"openai": config["dream.model.model"], "anthropic": config["dream.model.model"]}
        asks["command"] = " ".join(config["dream.model.command"][:2]) or None
        caps = {name: config[f"dream.{name}"] for name in _CAPS}
        return {
            "backend": config["dream.backend"],
            "model": asks.get(config["dream.backend"]),
            "estimate": self._estimate_cost(),
            "caps": {**caps, "spent_today": self.measure_spent_today()._asdict()},
        }

    def _estimate_cost(self) -> dict[str, Any]:
        """What the finished sessions of the last 30 days would take; and, with `again`, all that rules alone have read."""
        from dreamkeep.dream.backends.model.at_hand import expect

        prices = self._read_prices()
        if not self._context.exists():
            return {"days": _DAYS, **expect((), prices), "again": expect((), prices)}
        since = rfc3339(self._host.now() - _DAYS * 86_400 * 1_000_000_000)
        read = {
            one.session
            for one in self._context.load_memory("dreamed").dreamed.values()
            if one.completed_at and one.backend == "rules"
        }
        lately = self._count_digest_tokens(lambda one: (one.last_at or "") >= since)
        before = self._count_digest_tokens(lambda one: one.id in read)
        return {"days": _DAYS, **expect(lately, prices), "again": expect(before, prices)}

    def _count_digest_tokens(self, wanted: Callable[[Summary], bool]) -> list[int]:
        from dreamkeep.session.summary import ENDED

        def sizes(store: Store) -> list[int]:
            found = [one for one in store.sessions() if one.state == ENDED and wanted(one) and not _is_unread(one)]
            return [_count_tokens(store.messages(one.id), one.cwd) for one in found]

        return [size for size in self._context.ask(sizes) if size]

    def _read_prices(self) -> Prices | None:
        from dreamkeep.dream.backends.model.budget import Prices

        known = self._context.config["dream.model.price_in"], self._context.config["dream.model.price_out"]
        return None if None in known else Prices(*known)

    def measure_spent_today(self) -> Usage:
        """By the runs of the last 24 hours, as their reports say; also by those that were undone."""
        from dreamkeep.dream.backends.api import Usage

        spent = Usage()
        if not self._context.exists():
            return spent
        since = rfc3339(self._host.now() - 86_400 * 1_000_000_000)
        for run in self._context.load_memory("runs").runs.values():
            told = run.report.get("usage")
            if (run.started_at or "") >= since and isinstance(told, dict):
                spent = spent.plus(Usage(**{key: value for key, value in told.items() if key in Usage._fields}))
        return spent

    # -- keep.toml

    def _write_settings(self, dream: dict[str, Any], model: dict[str, Any], gone: Sequence[str]) -> None:
        """Every other byte of the file stays. What it says then is checked before it is written."""
        from dreamkeep import config as settings
        from dreamkeep.capture.setup import tomledit
        from dreamkeep.capture.setup.text import UnreadableFile
        from dreamkeep.host import make_folders, read_file, replace_file

        path = f"{self._root}/{_FILE}"
        try:
            before = read_file(self._host, path).decode() if self._host.stat(path) else ""
            after = tomledit.put(before, ("dream",), dream)
            after = tomledit.unset(after, ("dream", "model"), gone)
            after = tomledit.put(after, ("dream", "model"), model) if model else after
        except (UnreadableFile, UnicodeDecodeError) as problem:
            raise BadConfig(f"it can't be changed safely ({problem})", where=path, next=_BY_HAND) from problem
        except OSError as problem:
            raise from_os(problem, "reading the settings", path) from problem
        config = settings.load(after.encode(), self._context.environment, where=path)
        if config["dream.backend"] != dream["backend"]:
            way = "Unset that variable, then try again. Nothing was written."
            raise BadConfig("an environment variable overrides this", where="DREAMKEEP_DREAM_BACKEND", next=way)
        try:
            make_folders(self._host, self._root)
            replace_file(self._host, path, after.encode())
        except OSError as problem:
            raise from_os(problem, "writing the settings", path) from problem
        self._context.config = config


def _is_unread(one: Summary) -> bool:
    """A subagent's, or a dream's own: nobody reads it."""
    from dreamkeep.dream.backends.model.requests import OURS

    return one.title.startswith(OURS) or any(kind == "subagent" for kind, _ in one.lineage)


def _count_tokens(messages: Sequence[Message], cwd: str) -> int:
    from dreamkeep.dream.backends.model.budget import estimate
    from dreamkeep.session.reading.digest import digest, render

    return estimate(render(digest(messages, cwd)))
