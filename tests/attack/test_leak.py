"""What must not be known: a secret that passes through, and a word of a session that was deleted. Every byte is searched."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from dreamkeep import Keep
from tests.helpers.claude_home import SID, record
from tests.helpers.hook_calls import START
from tests.helpers.leaks import every_byte, holding, leaks
from tests.helpers.model_server import serving
from tests.helpers.secrets import INNOCENT, Planted, planted

from .conftest import Count
from .world import World

SECRETS = planted()
ALL = [secret for one in SECRETS for secret in one.secrets]


def texts(chance: random.Random) -> list[str]:
    """Each secret with the words around it, in any order, among lines that hold none."""

    def among(one: Planted) -> str:
        return f"{chance.choice(INNOCENT)}\n{one.text}\nThen it worked."

    made = [among(one) for one in SECRETS]
    chance.shuffle(made)
    return made


def put_through(world: World, chance: random.Random) -> int:
    """By every way in: a program of one's own, a transcript, a hook. How many secrets."""
    with Keep.open(world.root) as keep:
        session = keep.session("chat", cwd=str(world.place))
        for text in texts(chance):
            with session.submit(f"Always remember this: {text}") as turn:
                turn.add("assistant", text, tool={"name": "sh", "input": {"command": text}, "output": text})
        session.end()
    transcript = b"".join(record(n, text=text) for n, text in enumerate(texts(chance), 1))
    folder = world.home / ".claude" / "projects" / "-home-dev-shop"
    (folder / f"{SID}.jsonl").write_bytes(transcript)
    world.run("ingest")
    _hooks(world, texts(chance))
    world.run("ingest")
    return 3 * len(SECRETS)


def _hooks(world: World, said: list[str]) -> None:
    import subprocess

    for text in said[::4]:  # a process each
        call = json.dumps({"session_id": "hooked", "cwd": "/home/dev/work", "prompt": text}).encode()
        words = [*START, "claude", "UserPromptSubmit", world.root]
        subprocess.run(words, input=call, capture_output=True, env=world.environment, timeout=60, check=True)


def answers(world: World) -> dict[str, str]:
    """All that goes to a model, an agent, or a page."""
    return {
        "pack": world.run("pack", "--json").out,
        "pack for a query": world.run("pack", "--query", "password token key", "--json").out,
        "notes": world.run("notes", "--state", "all", "--json").out,
        "pages": "".join(path.read_text() for path in Path(world.root).rglob("*.md")),
    }


def found_in(text: str, secrets: list[str]) -> list[str]:
    return [one for one in secrets if one in text or json.dumps(one)[1:-1] in text]


@pytest.mark.slow
def test_no_secret_goes_to_a_model_an_agent_or_a_page(world: World, chance: random.Random, count: Count) -> None:
    secrets = put_through(world, chance)
    with serving() as server:
        config = f'[dream]\nbackend = "openai"\n[dream.model]\nurl = "{server.url}/v1"\nmodel = "m"\n'
        Path(world.root, "keep.toml").write_text(config)
        world.run("dream")
        sent = b"".join(server.received).decode("utf-8", "replace")
    Path(world.root, "keep.toml").unlink()
    world.run("dream")
    said = {**answers(world), "model": sent}
    leaked = {where: found_in(text, ALL) for where, text in said.items()}
    count("leak", secrets_put_through=secrets, answers_searched=len(said))
    count("leak", secrets_leaked=sum(map(len, leaked.values())))
    assert "Then it worked" in sent, "else nothing was sent"
    assert {where: found for where, found in leaked.items() if found} == {}


@pytest.mark.slow
def test_no_secret_is_in_a_keep_that_masks_them(world: World, chance: random.Random, count: Count) -> None:
    Path(world.root).mkdir(mode=0o700)
    Path(world.root, "keep.toml").write_text("[capture]\nredact_raw = true\n")
    secrets = put_through(world, chance)
    for words in (["dream"], ["search", "password"], ["pack"], ["hygiene"]):
        world.run(*words)
    files = sum(1 for _ in every_byte(world.root))
    found = leaks(world.root, *ALL)
    count("leak", secrets_put_through=secrets, files_searched=files, secrets_leaked=len(found))
    assert found == []


@pytest.mark.slow
def test_no_word_of_a_deleted_session_is_left(world: World, chance: random.Random, count: Count) -> None:
    """Words that went through prompts, answers, tools, titles, notes, packs, pages, the index, compressed parts and repairs."""
    kept, gone = (["".join(chance.choices("bcdfghjklmnpqrstvwxz", k=14)) for _ in range(20)] for _ in range(2))
    with Keep.open(world.root) as keep:
        for name, words in (("stays", kept), ("goes", gone)):
            session = keep.session(name, cwd=str(world.place), title=f"About {words[0]}")
            for word in words[1:-1]:
                with session.submit(f"Always use {word} for prices.") as turn:
                    turn.add("assistant", f"I use {word}.", tool={"name": "sh", "input": {"command": word}})
            session.end(reason=words[-1])
    transcripts = world.home / ".claude" / "projects" / "-home-dev-shop"
    line = b"".join(record(n, text=f"Never use {word}.") for n, word in enumerate(gone, 1))
    (transcripts / f"{SID}.jsonl").write_bytes(line)
    for words in (["ingest"], ["dream"], ["search", gone[3]], ["pack"], ["reindex", "--from-zero"], ["repair", "--apply"]):
        world.run(*words)
    if chance.random() < 0.5:
        with Keep.open(world.root) as keep:
            keep.compress(everything=True)
    assert all(holding(Path(world.root), word.encode()) for word in gone), "else nothing was there to delete"
    for id in ("python:goes", f"claude:{SID}"):
        assert world.run("delete", id).code == 0
    for words in (["ingest"], ["dream"], ["reindex", "--from-zero"]):  # nothing brings it back
        world.run(*words)
    left = [word for word in gone if holding(Path(world.root), word.encode())]
    lost = [word for word in kept if not holding(Path(world.root), word.encode())]
    count("leak", words_looked_for=len(gone), words_of_the_deleted_left=len(left), words_of_others_lost=len(lost))
    assert left == []
    assert lost == []
