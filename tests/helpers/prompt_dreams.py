"""Dreams without a model, for tests: a backend that makes a note of every prompt, and what a keep remembers of it."""

from __future__ import annotations

from pathlib import Path

from dreamkeep import Keep
from dreamkeep.dream.backends.api import Given, Proposal
from dreamkeep.memory.memory import Memory

RULES = ("Never store prices as floats.", "Deploys go through the staging cluster.", "The changelog is written by hand.")


class Prompts:
    """A backend that proposes every new prompt of the user as a constraint."""

    name = "prompts"

    def backfill(self, given: Given) -> list[Proposal]:
        prompts = [m for turn in given.turns if not turn.known for m in turn.messages if m.role == "user"]
        return [Proposal("constraint", m.text, m.seq, m.text, confidence=0.9) for m in prompts]


def say(keep: Keep, name: str, *prompts: str) -> str:
    """Records a session of these prompts and ends it. Its project."""
    session = keep.session(name, cwd="/")
    for prompt in prompts:
        session.record(prompt)
    session.end()
    return keep.summary(f"python:{name}").project


def page_of(root: Path) -> Path:
    """The page of a keep that has only one."""
    [page] = (root / "pages").glob("*/MEMORY.md")
    return page


def texts(keep: Keep) -> set[str]:
    """What the notes in use say."""
    return {note["text"] for note in keep.notes()}


def memory(keep: Keep) -> Memory:
    return Memory.load(keep.context.ask(lambda store: store.memory()))
