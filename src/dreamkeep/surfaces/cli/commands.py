"""Runs a verb: opens the keep, calls the verb's function, prints its answer, gives the exit code.

A verb's function (`parser.VERBS` names it) is given the keep and the arguments. It calls one verb of `Keep` and returns a
`VerbAnswer`. One that prints while it runs, such as `watch`, returns its exit code instead.
"""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

from dreamkeep.errors import BadUsage, DreamkeepError
from dreamkeep.keep import Keep
from dreamkeep.surfaces.cli import text
from dreamkeep.surfaces.cli.parser import VERBS, parser
from dreamkeep.verbs.standalone import run_hook, run_untapped

#: These drain themselves, or must not write anything afterwards, such as an audit.
_NO_DRAINER = frozenset(("drain", "watch", "tap", "hook", "init", "audit", "repair"))
#: These must work even if keep.toml is broken.
_ANYWAY = frozenset(("audit", "repair"))
_RUN = ("if_due", "dry_run", "preview", "export", "imported", "backend", "with_model", "session", "limit", "again", "since")
#: Options that only some acts of a verb use: their name in the parser, and the flag as it is typed.
_TYPED = {
    **{name: f"--{name.replace('_', '-')}" for name in (*_RUN, "kind", "project", "reason", "state", "to")},
    "imported": "--import",
    **dict.fromkeys(("what", "text", "title"), ""),
}
_CHANGES: dict[str, tuple[str, ...]] = dict.fromkeys(("pin", "unpin", "retract", "confirm", "reject"), ("what", "reason"))
_USES: dict[str, dict[str, tuple[str, ...]]] = {
    "dream": {
        "": _RUN,
        "status": (),
        "history": ("limit",),
        "why": ("what",),
        "undo": ("what",),
    },
    "note": {"add": ("what", "kind", "project"), "promote": ("what", "to"), "edit": ("what", "text", "reason"), **_CHANGES},
    "task": {"open": ("what", "project"), "close": ("what", "state"), "show": ("what",), "rename": ("what", "title")},
}


class VerbAnswer(NamedTuple):
    """`data` is what --json prints. `describe` makes the text for people from it."""

    data: Any
    describe: Callable[[Any], str]
    exit_code: int = 0


def run(arguments: Namespace) -> int:
    if arguments.verb == "completion":
        import shtab

        print(shtab.complete(parser(), arguments.shell))
        return 0
    if arguments.verb == "hook":  # `init` installs the hook's own file, which starts much faster
        run_hook([arguments.agent, arguments.event], arguments.keep or "")
        return 0
    with _open_keep(arguments) as keep:
        if keep is None:
            return run_untapped(tapped_command(arguments))
        keep.warn = text.complain
        keep.progress = text.ProgressLine("indexing") if sys.stderr.isatty() else None
        code = run_verb(keep, arguments)
        if arguments.verb not in _NO_DRAINER:
            keep.start_drainer()
        return code


def run_verb(keep: Keep, arguments: Namespace) -> int:
    """One verb on an open keep. No secret leaves by what is printed here; docs/settings.md names the exceptions."""
    from importlib import import_module

    module, _, function = next(verb.run for verb in VERBS if verb.name == arguments.verb).partition(".")
    answer: VerbAnswer | int = getattr(import_module(f"dreamkeep.surfaces.cli.{module}"), function)(keep, arguments)
    if isinstance(answer, int):
        return answer
    data = keep.masked(answer.data)
    if arguments.json:
        print(text.json_text(data))
    else:
        text.out(answer.describe(data))
    return answer.exit_code


def find_project(keep: Keep, arguments: Namespace) -> str | None:
    """The project of --project: by a name that it has or had, or by the path of a folder in it."""
    return keep.project_named(arguments.project) if arguments.project else arguments.project


def check_used(arguments: Namespace) -> None:
    """Refuse an option that this act would ignore, before anything is done."""
    uses = _USES[arguments.verb][arguments.act or ""]
    for name, flag in _TYPED.items():
        given = getattr(arguments, name, None)
        if given and name not in uses:
            act = " ".join(filter(None, (arguments.verb, arguments.act)))
            raise BadUsage(
                f"`{act}` doesn't take {flag or repr(given)}",
                where=act,
                next="Leave it out. Nothing was done." if flag else "Leave it out, or quote a text of several words.",
            )


def tapped_command(arguments: Namespace) -> list[str]:
    """The agent's command that `tap` runs."""
    command: list[str] = arguments.command[1:] if arguments.command[:1] == ["--"] else arguments.command
    if not command:
        raise BadUsage("no agent command given", where="tap", next="Write it after --: dreamkeep tap -- gemini --acp")
    return command


def _open_keep(arguments: Namespace) -> AbstractContextManager[Keep | None]:
    """The keep. For `tap`, None if it can't be opened: the agent must start whatever is wrong with our folder."""
    try:
        return Keep.open(arguments.keep, anyway=arguments.verb in _ANYWAY)
    except DreamkeepError as problem:
        if arguments.verb != "tap":
            raise
        text.complain(f"this session is not recorded: {problem}")
        return nullcontext()
