"""What can be typed. Loads nothing but argparse."""

from __future__ import annotations

import argparse

from dreamkeep import __version__

_EPILOG = """exit codes: 0 done, found or clean; 1 the answer is no; 2 bad usage or config; 3 failed; 4 busy, try again
The keep is --keep, else $DREAMKEEP_KEEP, else the user's data folder. A SESSION is an id such as python:chat-42,
a bare native id, or the beginning of either if only one session has it."""


class _Help(argparse.RawDescriptionHelpFormatter):
    """Of a fixed width: argparse asks for the terminal's each time an argument is added, and loads shutil for that."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=100)


def _common(parser: argparse.ArgumentParser, keep: str | None, json: bool | str) -> argparse.ArgumentParser:
    """These may stand before the verb or after it; the verb's own must not undo what stood before."""
    parser.add_argument("--keep", metavar="PATH", default=keep, help="the folder that holds everything")
    parser.add_argument("--json", action="store_true", default=json, help="one JSON document on stdout")
    return parser


def parser() -> argparse.ArgumentParser:
    common = _common(argparse.ArgumentParser(add_help=False, formatter_class=_Help), argparse.SUPPRESS, argparse.SUPPRESS)
    top = argparse.ArgumentParser(
        prog="dreamkeep",
        description="Memory for AI agents: keeps their sessions crash-safe, and shows them again.",
        epilog=_EPILOG,
        formatter_class=_Help,
    )
    top.add_argument("--version", action="version", version=f"dreamkeep {__version__}")
    _common(top, None, False)
    verbs = top.add_subparsers(dest="verb", metavar="VERB", title="verbs", prog="dreamkeep")

    def verb(name: str, text: str, more: str = "") -> argparse.ArgumentParser:
        return verbs.add_parser(
            name,
            parents=[common],
            help=text,
            description=f"{text[0].upper()}{text[1:]}.{' ' + more if more else ''}",
            formatter_class=_Help,
        )

    verb("status", "what is in the keep")
    _sessions(verb("sessions", "list the sessions, newest first"))
    _session(verb("show", "show one session: its turns and messages", "Interrupted turns and damage are shown as such."))
    reindex = verb("reindex", "bring the index up to date", "The index is a view: deleting or rebuilding it loses nothing.")
    reindex.add_argument("--from-zero", action="store_true", help="throw the old one away first")
    verb("doctor", "find what is wrong with the set-up and say the way out", "Exit code 1 when something is.")
    _session(verb("end", "mark a session as finished", "Ending it twice is ending it once."))
    _session(verb("suspend", "set a session aside; nothing closes it for being stale"))
    _session(verb("resume", "take an ended or suspended session up again"))
    _session(
        verb(
            "delete",
            "delete a session for good",
            "A tombstone is written first, then every word of it is\nremoved from the keep. Nothing brings it back by itself.",
        )
    )
    _session(verb("undelete", "lift a deletion, so that the session may be captured again"))
    completion = verb(
        "completion",
        "print a completion script for your shell",
        'For bash: eval "$(dreamkeep completion bash)".\nFor zsh: dreamkeep completion zsh > "${fpath[1]}/_dreamkeep".',
    )
    completion.add_argument("shell", choices=("bash", "zsh", "fish", "tcsh"))
    return top


def _session(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("session", metavar="SESSION", help="an id, a bare native id, or a unique beginning of one")


def _sessions(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--project", metavar="P", help="only of this project")
    verb.add_argument("--agent", metavar="A", help="only of this agent")
    verb.add_argument("--limit", metavar="N", type=_count, help="at most so many")


def _count(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        value = 0
    if not 1 <= value <= 10**9:
        raise argparse.ArgumentTypeError(f"must be a number from 1 on (and no more than a billion), not {text!r}")
    return value
