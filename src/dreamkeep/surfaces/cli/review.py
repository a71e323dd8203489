"""`review`: the inbox, one item after the other on a terminal, as a list elsewhere."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections import Counter
from typing import Any

from dreamkeep.errors import DreamkeepError
from dreamkeep.keep import Keep
from dreamkeep.surfaces.cli import text
from dreamkeep.surfaces.cli.commands import VerbAnswer, find_project

_KEYS = "a accept, e edit, r reject, s skip, q quit"
_PROJECT_KEYS = "a same project, r different projects, s skip, q quit"


def review(keep: Keep, arguments: Namespace) -> VerbAnswer | int:
    project = find_project(keep, arguments) or None
    edit = (arguments.edit[0], arguments.edit[1]) if arguments.edit else None
    decided = bool(arguments.accept or arguments.reject or edit or arguments.accept_all is not None)
    if not decided and not arguments.json and sys.stdin.isatty() and sys.stdout.isatty():
        return _decide_one_by_one(keep, project)
    made = keep.review(
        project=project, accept=arguments.accept, reject=arguments.reject, edit=edit, accept_all=arguments.accept_all
    )
    return VerbAnswer(made, _describe_decided if decided else _describe_inbox)


def _describe_decided(made: dict[str, Any]) -> str:
    left = text.counted(len(made["items"]), "item")
    return f"{len(made['accepted'])} accepted, {len(made['rejected'])} rejected; {left} left in the inbox."


def _describe_inbox(made: dict[str, Any]) -> str:
    if not made["items"]:
        return "The inbox is empty."
    blocks = [_describe_item(one) for one in made["items"]]
    return "\n\n".join([*blocks, "Decide with: dreamkeep review --accept ID, --reject ID or --edit ID TEXT"])


def _describe_item(one: dict[str, Any]) -> str:
    if one["type"] == "project":
        seen = f"  {text.line(one['session'])} {one['seq']}" if one["session"] else ""
        asked = f"Same project? {text.line(one['from'])} and {text.line(one['into'])}"
        return "\n".join([f"{one['id']}  {asked}", f"  why: {text.line(one['why'])}", *([seen] if seen else [])])
    project = text.line(one["project"]) or "all projects"
    lines = [f"{one['id']}  {one['kind']}, for {project}", f"  {text.line(one['text'])}"]
    lines += [f"  why it needs a review: {text.line(one['why'])}"] if one["why"] else []
    return "\n".join([*lines, *(f"  {_describe_quote(quote)}" for quote in one["evidence"])])


def _describe_quote(quote: dict[str, Any]) -> str:
    known = [str(quote[key]) for key in ("author", "origin") if quote.get(key)]
    by = f" ({text.line(', '.join(known))})" if known else ""
    words = f": “{text.line(quote['quote'])}”" if quote["quote"] else ""
    return f"{text.line(quote['session'])} {quote['seq']}{by}{words}"


# -- on a terminal


def _decide_one_by_one(keep: Keep, project: str | None) -> int:
    items = keep.review(project=project)["items"]
    if not items:
        text.out("The inbox is empty.")
        return 0
    done: Counter[str] = Counter()
    for n, one in enumerate(items, 1):
        text.out(f"\n{n} of {len(items)}\n{_describe_item(one)}\n{_PROJECT_KEYS if one['type'] == 'project' else _KEYS}")
        key = _ask(keep, one)
        if key == "q":
            break
        done[key] += 1
    counts = f"{done['a'] + done['e']} accepted, {done['r']} rejected"
    text.out(f"{counts}; {text.counted(len(items) - done['a'] - done['e'] - done['r'], 'item')} left.")
    return 0


def _ask(keep: Keep, one: dict[str, Any]) -> str:
    """Ask for a key and act on it. Returns the key. After an error it asks again."""
    while True:
        key = _read_key()
        try:
            if key == "a":
                keep.review(accept=[one["id"]])
            elif key == "r":
                keep.review(reject=[one["id"]])
            elif key == "e" and one["type"] == "note":
                words = _read_line(one["text"])
                if not words.strip():
                    text.out(f"Nothing was changed. {_KEYS}")
                    continue
                keep.review(edit=(one["id"], words))
            elif key not in "sq":
                continue
            return key
        except DreamkeepError as problem:
            text.complain(str(problem))


def _read_key() -> str:
    """Read one key, without Return. The end of the input, Ctrl-D and Escape count as `q`."""
    import termios
    import tty

    terminal = sys.stdin.fileno()
    unbuffered: Any = sys.stdin.buffer
    before = termios.tcgetattr(terminal)
    try:
        tty.setcbreak(terminal, termios.TCSADRAIN)  # keep what was typed ahead
        found = unbuffered.raw.read(1)  # no more: the rest is the next answer
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)
    return "q" if not found or found in (b"\x04", b"\x1b") else found.decode("ascii", "replace").lower()


def _read_line(words: str) -> str:
    """Let the user edit the text."""
    import readline

    readline.set_startup_hook(lambda: readline.insert_text(text.line(words)))
    try:
        return input("> ")
    except EOFError:
        return ""
    finally:
        readline.set_startup_hook(None)
