"""What can be typed. Loads nothing but argparse."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, NoReturn

from dreamkeep import __version__

_EPILOG = """exit codes: 0 done, found or clean; 1 the answer is no; 2 bad usage or config; 3 failed; 4 busy, try again
The keep is --keep, else $DREAMKEEP_KEEP, else the user's data folder. A SESSION is an id such as python:chat-42,
a bare native id, or the beginning of either if only one session has it."""


class _Help(argparse.RawDescriptionHelpFormatter):
    """Of a fixed width: argparse asks for the terminal's each time an argument is added, and loads shutil for that."""

    def __init__(self, prog: str, width: int = 100) -> None:
        super().__init__(prog, width=width)


class _Parser(argparse.ArgumentParser):
    """What stands below the options (manual.py), and how wide the terminal is, is found when help is asked for: the parser is
    made at every start."""

    def format_help(self) -> str:
        from dreamkeep.surfaces.cli import manual

        width = manual.width()
        self.formatter_class = partial(_Help, width=width)
        self.description = manual.filled(self.description or "", width)
        self.epilog = manual.ending(self.prog.split()[-1], width) or self.epilog
        return super().format_help()

    def error(self, message: str) -> NoReturn:
        """As every other error of ours: whoever asked for JSON gets that, too."""
        from dreamkeep.errors import BadUsage

        self.print_usage(sys.stderr)
        raise BadUsage(message, where=self.prog, next=f"`{self.prog} --help` says what can be typed.")


def _common(parser: _Parser, keep: str | None, json: bool | str) -> _Parser:
    """These may stand before the verb or after it; the verb's own must not undo what stood before."""
    parser.add_argument("--keep", metavar="PATH", default=keep, help="the folder that holds everything")
    parser.add_argument("--json", action="store_true", default=json, help="one JSON document on stdout")
    return parser


def named(words: Sequence[str]) -> str:
    """The verb that was typed, if one was: to build the parser of that one only."""
    rest = iter(words)
    for word in rest:
        if word == "--keep":
            next(rest, None)
        elif not word.startswith("-"):
            return word
    return ""


class _Verb(NamedTuple):
    """`help`: what it does, in a line. `more`: what its own help adds. `words`: gives its parser what may follow it."""

    name: str
    help: str
    more: str = ""
    words: Callable[[argparse.ArgumentParser], object] = lambda verb: None


def parser(only: str = "") -> argparse.ArgumentParser:
    """`only`: the one verb whose words are needed; making all takes longer than most verbs. A name that is none: all are made."""
    top = _Parser(
        prog="dreamkeep",
        description="Memory for AI agents: keeps their sessions crash-safe, and shows them again.",
        epilog=_EPILOG,
        formatter_class=_Help,
    )
    top.add_argument("--version", action="version", version=f"dreamkeep {__version__}")
    _common(top, None, False)
    verbs = top.add_subparsers(dest="verb", metavar="VERB", title="verbs", prog="dreamkeep", parser_class=_Parser)
    common = _common(_Parser(add_help=False, formatter_class=_Help), argparse.SUPPRESS, argparse.SUPPRESS)
    for one in [verb for verb in _VERBS if verb.name == only] or _VERBS:
        about = f"{one.help[0].upper()}{one.help[1:]}."
        about += f" {one.more}" if one.more else ""
        one.words(verbs.add_parser(one.name, parents=[common], help=one.help, description=about, formatter_class=_Help))
    return top


def _project(verb: argparse.ArgumentParser) -> None:
    acts = "give it another name; make it one with another project; undo either; or say that it is not the same as another"
    verb.add_argument("act", choices=("rename", "merge", "undo", "apart"), help=acts)
    verb.add_argument("project", metavar="PROJECT", help="as `projects` names it, or the path of a folder in it")
    verb.add_argument("into", nargs="?", metavar="NAME|PROJECT", help="the new name, or the other project; not for `undo`")


def _dream(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("act", nargs="?", choices=("status", "history", "why", "undo"), help="look at dreams, or take one back")
    verb.add_argument("what", nargs="?", metavar="NOTE|RUN", help="for `why` a note, for `undo` a run")
    verb.add_argument("--if-due", action="store_true", help="only if enough sessions or enough time has passed")
    kind = verb.add_mutually_exclusive_group()
    kind.add_argument("--dry-run", action="store_true", help="what would be read and how much: no backend, nothing written")
    kind.add_argument("--preview", action="store_true", help="with the backend, and what would change: nothing written")
    kind.add_argument("--export", metavar="DIR", help="write what a model is to be asked as files, for whoever answers them")
    kind.add_argument("--import", dest="imported", metavar="DIR", help="take the answers in DIR, and write what is asked next")
    verb.add_argument("--again", action="store_true", help="read sessions again that were read before, with a model")
    verb.add_argument("--since", metavar="T", help="with --again: only sessions from this day or time on")
    whom = verb.add_mutually_exclusive_group()
    whom.add_argument("--backend", metavar="B", help="rules, openai, anthropic or command, instead of what the settings say")
    whom.add_argument("--with-model", action="store_true", help="with the model that the settings name, instead of rules")
    verb.add_argument("--session", action="append", default=[], metavar="S", help="only this one; may be given several times")
    verb.add_argument(
        "--limit", type=_count, metavar="N", help="at most so many sessions; the others wait. For `history`: so many runs"
    )


def _model(verb: argparse.ArgumentParser) -> None:
    acts = "show what is here (default), use one, or ask none any more"
    verb.add_argument("act", nargs="?", default="show", choices=("show", "use", "off"), help=acts)
    verb.add_argument("what", nargs="?", metavar="NAME[:MODEL]", help="for `use`: as `model` lists it")


def _notes(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--kind", metavar="K", help="constraint, decision, preference, …")
    verb.add_argument(
        "--state",
        default="active",
        metavar="S",
        help="active (default), suggested, superseded, retracted, rejected, closed, expired, all",
    )
    verb.add_argument("--project", metavar="P")


def _note(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("act", choices=("add", "edit", "pin", "unpin", "retract", "confirm", "reject", "promote"))
    verb.add_argument("what", metavar="TEXT|NOTE", help="for `add` the text, else the note's id")
    verb.add_argument("text", nargs="?", default="", help="for `edit`: the new text")
    verb.add_argument("--kind", metavar="K", help="of a new note (preference)")
    verb.add_argument("--project", default="", metavar="P", help="of a new note; none: all of them")
    verb.add_argument("--reason", default="", help="kept in its history")
    verb.add_argument("--to", metavar="FILE", help="for `promote`: CLAUDE.md, AGENTS.md …; the note is added at its end")


def _review(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--project", metavar="P", help="only of this project: its name, or the path of a folder in it")
    what = verb.add_mutually_exclusive_group()
    what.add_argument(
        "--accept", metavar="ID", nargs="+", default=[], help="these hold: a note becomes active, projects are merged"
    )
    what.add_argument("--reject", metavar="ID", nargs="+", default=[], help="these don't, and are not suggested again")
    what.add_argument("--edit", metavar=("ID", "TEXT"), nargs=2, help="this note holds, in these words")
    what.add_argument("--accept-all", metavar="KIND", help="all suggested notes of this kind hold: decision, preference, …")


def _page(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--project", default="", metavar="P", help="as `sessions` shows it; none: what holds everywhere")
    verb.add_argument("--write", metavar="FILE", help="MEMORY.md, AGENTS.md, CLAUDE.md …: only its fenced region is touched")


def _tasks(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--project", metavar="P")


def _task(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("act", choices=("open", "close", "show", "rename"))
    verb.add_argument("what", metavar="TITLE|TASK", help="for `open` the title, else the task's id")
    verb.add_argument("title", nargs="?", default="", help="for `rename`: the new title")
    verb.add_argument("--state", metavar="S", help="for `close`: done (default), abandoned or superseded")
    verb.add_argument("--project", default="", metavar="P", help="for `open`")


def _tour(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--sample", action="store_true", help="the sample, also where sessions of agents are found")
    verb.add_argument("--at", metavar="DIR", help="a new folder to do it in, instead of a temporary one")


def _pack(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--query", metavar="Q", help="what the session is about: what matches it comes along")
    verb.add_argument("--project", metavar="P", help="as `sessions` shows it, or a folder in it; else the current folder's")
    verb.add_argument("--task", metavar="T", help="a task's id (`tasks` lists them), or its words")
    verb.add_argument("--budget", metavar="TOKENS", type=_count, help="instead of the setting recall.budget")


def _snapshot(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("act", choices=("export", "import", "verify"), help="write one, take one in, or check one")
    verb.add_argument("file", metavar="FILE", help="a .tar.zst; export never writes over one")
    verb.add_argument("--no-view", action="store_true", help="export: without a page for people of each session")


def _audit(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--deep", action="store_true", help="read every byte again, also of what looks as it did")
    verb.add_argument("--home", metavar="DIR", help="look for the agents' stores below this folder")


def _repair(verb: argparse.ArgumentParser) -> None:
    what = verb.add_mutually_exclusive_group()
    what.add_argument("--apply", action="store_true", help="do what is safe, keep what was there, and audit again")
    what.add_argument("--undo", metavar="ID", help="take a repair back, where nothing changed since")
    what.add_argument("--accept", metavar="ID", action="append", default=[], help="this fault stays as it is, told no more")
    verb.add_argument("--only", metavar="ID", action="append", default=[], help="of the plan only this fault")
    verb.add_argument("--home", metavar="DIR", help="look for the agents' stores below this folder")


def _session(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("session", metavar="SESSION", help="an id, a bare native id, or a unique beginning of one")


def _sessions_named(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("session", metavar="SESSION", nargs="+", help="an id, a bare native id, or a unique beginning of one")


def _restore(verb: argparse.ArgumentParser) -> None:
    _session(verb)
    verb.add_argument("--to", metavar="AGENT", required=True, help="for which agent: claude, codex, gemini, hermes, hermes-webui")
    verb.add_argument("--home", metavar="DIR", help="below this home folder instead of where it was")
    verb.add_argument("--cwd", metavar="DIR", help="converted: to go on in this folder instead of the session's own")
    verb.add_argument("--generation", metavar="N", type=_count, help="this version of a file that was rewritten, not the richest")
    verb.add_argument("--convert", action="store_true", help="from the messages, as a new session, though its bytes are here")
    verb.add_argument("--dry-run", action="store_true", help="say what would be done, and do nothing")


def _search(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("query", metavar="QUERY", nargs="+", help="words, names, error codes, times such as `last week`")
    verb.add_argument("--kind", metavar="K", action="append", default=[], help="message, insight, note; several with commas")
    verb.add_argument("--project", metavar="P", help="only of this project, as `sessions` shows it")
    verb.add_argument("--agent", metavar="A", help="only of this agent")
    verb.add_argument("--session", metavar="S", help="only of this session")
    verb.add_argument("--since", metavar="T", help="only from this day or time on, for instance 2026-05-31")
    verb.add_argument("--as-of", metavar="T", help="what was known then")
    verb.add_argument("--limit", metavar="N", type=_count, default=10, help="at most so many (10)")


def _show(verb: argparse.ArgumentParser) -> None:
    _session(verb)
    verb.add_argument("--live", action="store_true", help="also what is going on now: turn, segment, compaction, owner")
    verb.add_argument("--follow", action="store_true", help="go on showing what comes, until interrupted")
    verb.add_argument("--markdown", action="store_true", help="as Markdown, to be kept or passed on")
    verb.add_argument("--digest", action="store_true", help="the reading copy that a model is given: short, without secrets")
    verb.add_argument("--segment", metavar="N", help="only one segment: its number, or `current`")
    verb.add_argument("--lineage", action="store_true", help="also where it comes from and what came of it, all the way")
    verb.add_argument("--raw", action="store_true", help="what the agent wrote, byte for byte, in the order of capture")


def _ingest(verb: argparse.ArgumentParser) -> None:
    _agents(verb)
    verb.add_argument("--again", action="store_true", help="look into every file, also those that look unchanged")
    verb.add_argument("paths", metavar="PATH", nargs="*", help="only these transcripts, databases or folders")


def _watch(verb: argparse.ArgumentParser) -> None:
    _agents(verb)
    verb.add_argument("--poll", action="store_true", help="look again and again instead of being told by the file system")


def _tap(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--agent", metavar="NAME", help="whose sessions these are; else told by the agent or its command")
    verb.add_argument("command", metavar="CMD", nargs=argparse.REMAINDER, help="the agent's command and its arguments, after --")


def _hook(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("agent", metavar="AGENT")
    verb.add_argument("event", metavar="EVENT")


def _init(verb: argparse.ArgumentParser) -> None:
    _agents(verb)
    verb.add_argument("--dry-run", action="store_true", help="say what would be done, and do nothing")
    verb.add_argument("--uninstall", action="store_true", help="take back what was installed")
    verb.add_argument("--no-mcp", action="store_true", help="hooks only")


def _mcp(verb: argparse.ArgumentParser) -> None:
    verb.add_argument(
        "--http", action="store_true", help="over streamable HTTP, until interrupted; the address is told on stderr"
    )
    verb.add_argument("--host", default="127.0.0.1", metavar="H", help="where to listen; this machine only unless you say so")
    verb.add_argument("--port", type=int, default=8377, metavar="N", help="8377, or 0 for any that is free")


def _agents(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--agent", metavar="A", action="append", default=[], help="only this agent (may be given several times)")
    verb.add_argument("--home", metavar="DIR", help="look there instead of in your home folder")


def _sessions(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--project", metavar="P", help="only of this project")
    verb.add_argument("--agent", metavar="A", help="only of this agent")
    verb.add_argument("--limit", metavar="N", type=_count, help="at most so many")


def _reindex(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--from-zero", action="store_true", help="throw the old one away first")


def _completion(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("shell", choices=("bash", "zsh", "fish", "tcsh"))


def _count(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        value = 0
    if not 1 <= value <= 10**9:
        raise argparse.ArgumentTypeError(f"must be a number from 1 on (and no more than a billion), not {text!r}")
    return value


#: In the order in which `--help` lists them.
_VERBS = (
    _Verb(
        "tour",
        "a first look in half a minute: capture, audit, repair, dream, search and pack",
        "In a keep of its own in a temporary\n"
        "folder, with the newest sessions of your agents, which are only read, or with a bundled sample.",
        _tour,
    ),
    _Verb("status", "what is in the keep, and what is going on"),
    _Verb("sessions", "list the sessions, newest first", words=_sessions),
    _Verb("show", "show one session: its turns and messages", "Interrupted turns and damage are shown as such.", _show),
    _Verb(
        "pack",
        "what a fresh session should read first, within a budget of tokens",
        "Pinned notes, rules, open ends, where the last\nsession stood, what works here, and what matches the task."
        " Exit code 1 when there is nothing to say.",
        _pack,
    ),
    _Verb("search", "find what was said and learned", "Any text is legal. Exit code 1 when nothing is found.", _search),
    _Verb(
        "ingest",
        "find the sessions of all agents on this machine and import them",
        "Run it as often as you like: only what is new is read.\nExit code 1 when a source had a problem; the rest was imported.",
        _ingest,
    ),
    _Verb(
        "watch",
        "follow the agents' sessions as they are written, until interrupted",
        "Imports what is new as `ingest` does, and what hooks left. With --json one object a line.",
        _watch,
    ),
    _Verb(
        "tap",
        "run an ACP agent and keep a copy of what it and its client say",
        "Bytes pass unchanged: dreamkeep tap -- gemini --acp",
        _tap,
    ),
    _Verb(
        "hook",
        "one call of an agent's hook: JSON on stdin, always exit code 0",
        "What `init` installs does the same, faster.",
        _hook,
    ),
    _Verb(
        "init",
        "install capture hooks and the MCP server for the agents found here",
        "Existing settings are kept; what can't be read is left alone.\nA backup is made; --uninstall takes exactly that back.",
        _init,
    ),
    _Verb(
        "mcp",
        "the MCP server, on stdin and stdout: agents start it; or over HTTP",
        "Tools: search, pack, timeline,\nnote_add, note_pin, note_retract, why, insight_add, review, dream_status, dream_run,"
        " dream_next,\ndream_submit.",
        _mcp,
    ),
    _Verb("drain", "journal what hooks have left in the spool", "Hooks, `watch` and every command start this by themselves."),
    _Verb("reindex", "bring the index up to date", "The index is a view: deleting or rebuilding it loses nothing.", _reindex),
    _Verb("doctor", "find what is wrong with the set-up and say the way out", "Exit code 1 when something is."),
    _Verb(
        "audit",
        "find what is wrong with the sessions kept here and with the agents' own stores",
        "Changes nothing. What looks as it did\nis not opened again. Exit code 1 when there are faults.",
        _audit,
    ),
    _Verb(
        "repair",
        "say what mends the faults that an audit finds; do it with --apply",
        "Exit code 1 when faults\nremain. Every byte that it replaces is kept in the keep's folder aside/.",
        _repair,
    ),
    _Verb("end", "mark a session as finished", "Ending it twice is ending it once.", _session),
    _Verb("suspend", "set a session aside; nothing closes it for being stale", words=_session),
    _Verb("resume", "take an ended or suspended session up again", words=_session),
    _Verb(
        "delete",
        "delete sessions for good",
        "A tombstone is written first, then every word of it is\nremoved from the keep. Nothing brings it back by itself.",
        _sessions_named,
    ),
    _Verb("undelete", "lift a deletion, so that the session may be captured again", words=_session),
    _Verb(
        "dream",
        "read finished sessions and remember what matters of them",
        "Offline by default. Without a word after it: one run over all that waits.\n"
        "Exit code 1 when a session failed, 4 when another dream runs.",
        _dream,
    ),
    _Verb(
        "model",
        "which model dreams may ask, and what that would cost",
        "Lists the agents' programs, the servers on this machine\nand the API keys found here."
        " Nothing is sent until you choose one.",
        _model,
    ),
    _Verb("hygiene", "end sessions that have been quiet for long, record what ended, compress what is cold"),
    _Verb("notes", "what is remembered, best first", words=_notes),
    _Verb("note", "add a note, or say what shall become of one", words=_note),
    _Verb(
        "review",
        "decide on what waits in the inbox: suggested notes, and projects that may be one",
        "On a terminal it shows one item after the\n"
        "other and takes a key: a accept, e edit, r reject, s skip, q quit. In a pipe it lists them.",
        _review,
    ),
    _Verb("page", "a project's notes as a page, or into the fenced region of a file", words=_page),
    _Verb("tasks", "pieces of work that insights belong to", words=_tasks),
    _Verb("task", "open, close, show or rename a task", words=_task),
    _Verb("projects", "list the projects, and which may be the same"),
    _Verb(
        "project",
        "rename a project, merge it into another, or undo that",
        "For one that moved, or has two names. Its sessions, notes and tasks\n"
        "go with it, and so does what is captured under the old name later.",
        _project,
    ),
    _Verb(
        "snapshot",
        "the whole keep as one file: export, verify, import",
        "The same keep gives the same bytes. Importing adds what is\n"
        "lacking and replaces nothing. Exit code 1 when a file is not whole.",
        _snapshot,
    ),
    _Verb(
        "restore",
        "write a session back for an agent, so that the agent resumes it",
        "Byte for byte where it came from that agent, else\n"
        "converted, saying what was lost. Never over a file that holds something else.",
        _restore,
    ),
    _Verb(
        "completion",
        "print a completion script for your shell",
        'For bash: eval "$(dreamkeep completion bash)".\nFor zsh: dreamkeep completion zsh > "${fpath[1]}/_dreamkeep".',
        _completion,
    ),
)
