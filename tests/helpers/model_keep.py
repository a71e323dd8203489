"""Whole dreams with a model for tests: a keep that asks a local server, and what must hold of its notes whatever that answers."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from dreamkeep import Keep
from dreamkeep.memory.insight import Quote
from dreamkeep.session.reading.digest import place_of
from dreamkeep.session.reading.origin import HeardWords, origin_at, split_origins
from tests.helpers.model_server import Server
from tests.helpers.prompt_dreams import memory


def open_keep(server: Server, root: Path, dream: str = "", model: str = "") -> Keep:
    """A keep whose dreams ask this server."""
    if not root.exists():
        root.mkdir()
        settings = f'[dream]\nbackend = "openai"\n{dream}\n[dream.model]\nmodel = "m"\nurl = "{server.url}"\nretries = 0\n{model}'
        (root / "keep.toml").write_text(settings)
    return Keep.open(str(root))


def say(keep: Keep, name: str, *turns: Any, cwd: str = "/") -> str:
    """A session with these turns, each (what the user says, what follows) or only what the user says; it has ended."""
    session = keep.session(name, cwd=cwd)
    for turn in turns:
        said, *follows = (turn, ("assistant", "Yes.")) if isinstance(turn, str) else turn
        session.record(said, *follows)
    session.end()
    return session.id


def notes(keep: Keep, state: str | None = "active") -> list[str]:
    return sorted(one["text"] for one in keep.notes(state=state))


def seen(keep: Keep) -> list[Any]:
    """All that is remembered, without what differs from run to run."""
    held = memory(keep)
    found = [(one.id, one.kind, one.text, one.state, _places(one.evidence), one.insights) for one in held.notes.values()]
    return [*sorted(found), *sorted((one.id, one.text, one.state, one.links) for one in held.insights.values())]


def _places(evidence: Iterable[Quote]) -> list[tuple[str, ...]]:
    return [(one.session, one.seq, one.quote, one.author, one.origin) for one in evidence]


def assert_grounded(keep: Keep) -> None:
    """Every note rests on words that stand at their place in the journal, told with whose they are."""
    for note in memory(keep).notes.values():
        assert note.evidence, note.text
        for quote in note.evidence:
            messages = keep.context.ask(lambda store, id=quote.session: store.messages(id))  # type: ignore[misc]
            [said] = [one for one in messages if place_of(one) == quote.seq]
            assert quote.quote in said.text or quote.quote in str(said.tool), (note.text, quote)
            if said.role == "user":
                heard = HeardWords(one.text for one in messages if one.seq < said.seq and one.role != "user")
                start = said.text.index(quote.quote)
                origin = origin_at(split_origins(said.text, heard.has), start, start + len(quote.quote))
                assert (quote.author, quote.origin) == ("user", origin)
            else:
                assert quote.author in ("agent", "tool")
        if note.state == "active":
            assert any(quote.is_own for quote in note.evidence), note.text
