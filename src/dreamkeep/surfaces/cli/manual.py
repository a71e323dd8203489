"""The end of each verb's `--help`: when to use it, examples, exit codes. Loaded only when somebody asks for help."""

from __future__ import annotations

import sys
import textwrap
import tomllib
from importlib.resources import files
from typing import NamedTuple

from dreamkeep.surfaces.cli import look

_WIDEST = 100


class Page(NamedTuple):
    """`no`: what exit code 1 means; "" where there is no such answer. `busy`: what 4 means."""

    when: str
    examples: str
    no: str = ""
    busy: str = "busy: another process is using the keep; try again"


_TOML = tomllib.loads(files(__package__).joinpath("manual.toml").read_text(encoding="utf-8"))
PAGES = {verb: Page(**page) for verb, page in _TOML.items()}


def ending(verb: str, width: int) -> str:
    """What stands below the options; "" for what is no verb."""
    if verb not in PAGES:
        return ""
    page = PAGES[verb]
    examples = "\n".join(f"  {line.strip()}" for line in page.examples.splitlines())
    codes = "always 0" if verb == "hook" else "the agent's" if verb == "tap" else _codes(page)
    when = filled(page.when, width - 2).replace("\n", "\n  ")
    return f"when:\n  {when}\n\nexamples:\n{examples}\n\n{filled(f'exit code: {codes}', width)}"


def _codes(page: Page) -> str:
    no = [f"1 {page.no}"] if page.no else []
    return "; ".join(["0 success", *no, "2 bad usage or settings", "3 failed", f"4 {page.busy}"])


def filled(text: str, width: int) -> str:
    return textwrap.fill(" ".join(text.split()), width, break_on_hyphens=False)


def width() -> int:
    return min(look.of(sys.stdout).width or _WIDEST, _WIDEST)
