"""What can be typed. Loads nothing but argparse."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, NoReturn

from dreamkeep import __version__

_EPILOG = """exit codes: 0 success; 1 not found, or problems found; 2 bad usage or settings; 3 failed; 4 busy, try again
The keep is the folder given by --keep or $DREAMKEEP_KEEP, or else your user data folder. A SESSION is a full id such as
python:chat-42, the agent's own id, or any unique prefix of either."""


class _Help(argparse.RawDescriptionHelpFormatter):
    """Has a fixed width: argparse would ask for the terminal's whenever an argument is added, and load shutil for that."""

    def __init__(self, prog: str, width: int = 100) -> None:
        super().__init__(prog, width=width)


class _Parser(argparse.ArgumentParser):
    """Loads the manual (manual.py) and asks for the terminal's width only when help is asked for: a parser is made at every
    start."""

    def format_help(self) -> str:
        from dreamkeep.surfaces.cli import manual

        width = manual.width()
        self.formatter_class = partial(_Help, width=width)
        self.description = manual.filled(self.description or "", width)
        self.epilog = manual.ending(self.prog.split()[-1], width) or self.epilog
        return super().format_help()

    def error(self, message: str) -> NoReturn:
        """Raise our own error, so that --json gives JSON for it, too."""
        from dreamkeep.errors import BadUsage

        self.print_usage(sys.stderr)
        raise BadUsage(message, where=self.prog, next=f"See `{self.prog} --help`.")


def _common(parser: _Parser, keep: str | None, json: bool | str) -> _Parser:
    """Options that may stand before or after the verb. The verb's defaults must not undo what stood before it."""
    parser.add_argument("--keep", metavar="PATH", default=keep, help="the folder that dreamkeep stores everything in")
    parser.add_argument("--json", action="store_true", default=json, help="print one JSON document on stdout")
    return parser


def named(words: Sequence[str]) -> str:
    """The verb that was typed, or "": then only its parser needs to be built."""
    rest = iter(words)
    for word in rest:
        if word == "--keep":
            next(rest, None)
        elif not word.startswith("-"):
            return word
    return ""


class Verb(NamedTuple):
    """One verb of the command line.

    `run`: the function that runs it, as `module.function` of this folder (see `commands.py`); "" for what needs no open keep.
    `help`: what it does, in a line. `more`: what its own help adds. `add_options`: gives its parser what may follow it.
    """

    name: str
    run: str
    help: str
    more: str = ""
    add_options: Callable[[argparse.ArgumentParser], object] = lambda verb: None


def parser(only: str = "") -> argparse.ArgumentParser:
    """`only`: build the options of this verb alone; building all takes longer than most verbs run. An unknown name builds all."""
    top = _Parser(
        prog="dreamkeep",
        description="Memory for AI agents: keeps their sessions crash-safe and brings them back.",
        epilog=_EPILOG,
        formatter_class=_Help,
    )
    top.add_argument("--version", action="version", version=f"dreamkeep {__version__}")
    _common(top, None, False)
    verbs = top.add_subparsers(dest="verb", metavar="VERB", title="verbs", prog="dreamkeep", parser_class=_Parser)
    common = _common(_Parser(add_help=False, formatter_class=_Help), argparse.SUPPRESS, argparse.SUPPRESS)
    for one in [verb for verb in VERBS if verb.name == only] or VERBS:
        about = f"{one.help[0].upper()}{one.help[1:]}."
        about += f" {one.more}" if one.more else ""
        one.add_options(verbs.add_parser(one.name, parents=[common], help=one.help, description=about, formatter_class=_Help))
    return top


def _project(verb: argparse.ArgumentParser) -> None:
    acts = "rename it, merge it into another project, undo either, or record that it differs from another project"
    verb.add_argument("act", choices=("rename", "merge", "undo", "apart"), help=acts)
    verb.add_argument("project", metavar="PROJECT", help="its name in `projects`, or the path of a folder in it")
    verb.add_argument("into", nargs="?", metavar="NAME|PROJECT", help="the new name or the other project; not used with `undo`")


def _dream(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("act", nargs="?", choices=("status", "history", "why", "undo"), help="inspect dreams, or undo one")
    verb.add_argument("what", nargs="?", metavar="NOTE|RUN", help="a note for `why`, a run for `undo`")
    verb.add_argument("--if-due", action="store_true", help="run only if enough sessions are waiting or enough time has passed")
    kind = verb.add_mutually_exclusive_group()
    kind.add_argument("--dry-run", action="store_true", help="show what would be read; asks no backend and writes nothing")
    kind.add_argument("--preview", action="store_true", help="ask the backend and show what would change; writes nothing")
    kind.add_argument("--export", metavar="DIR", help="write the requests for a model as files, to be answered elsewhere")
    kind.add_argument("--import", dest="imported", metavar="DIR", help="read the answers in DIR and write the next requests")
    verb.add_argument("--again", action="store_true", help="use a model to reread sessions that were already read")
    verb.add_argument("--since", metavar="T", help="with --again: only sessions since this date or time")
    whom = verb.add_mutually_exclusive_group()
    whom.add_argument("--backend", metavar="B", help="rules, openai, anthropic or command; overrides the settings")
    whom.add_argument("--with-model", action="store_true", help="use the model from the settings instead of rules")
    verb.add_argument("--session", action="append", default=[], metavar="S", help="only this session; repeatable")
    verb.add_argument(
        "--limit", type=_count, metavar="N", help="read at most N sessions; the others wait. With `history`: show at most N runs"
    )


def _model(verb: argparse.ArgumentParser) -> None:
    acts = "show what is available (default), choose a model, or stop using one"
    verb.add_argument("act", nargs="?", default="show", choices=("show", "use", "off"), help=acts)
    verb.add_argument("what", nargs="?", metavar="NAME[:MODEL]", help="for `use`: a name from the list that `model` prints")


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
    verb.add_argument("what", metavar="TEXT|NOTE", help="the text for `add`, otherwise the note's id")
    verb.add_argument("text", nargs="?", default="", help="for `edit`: the new text")
    verb.add_argument("--kind", metavar="K", help="kind of the new note (default: preference)")
    verb.add_argument("--project", default="", metavar="P", help="project of the new note (default: all projects)")
    verb.add_argument("--reason", default="", help="stored in the note's history")
    verb.add_argument("--to", metavar="FILE", help="for `promote`: CLAUDE.md, AGENTS.md …; the note is appended to it")


def _review(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--project", metavar="P", help="only this project: its name, or the path of a folder in it")
    what = verb.add_mutually_exclusive_group()
    what.add_argument(
        "--accept", metavar="ID", nargs="+", default=[], help="accept these: notes become active, projects are merged"
    )
    what.add_argument("--reject", metavar="ID", nargs="+", default=[], help="reject these; they won't be suggested again")
    what.add_argument("--edit", metavar=("ID", "TEXT"), nargs=2, help="accept this note with a new text")
    what.add_argument("--accept-all", metavar="KIND", help="accept all suggested notes of this kind: decision, preference, …")


def _page(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--project", default="", metavar="P", help="the project's name (default: notes for all projects)")
    verb.add_argument("--write", metavar="FILE", help="MEMORY.md, AGENTS.md, CLAUDE.md …: changes only its fenced region")


def _tasks(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--project", metavar="P")


def _task(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("act", choices=("open", "close", "show", "rename"))
    verb.add_argument("what", metavar="TITLE|TASK", help="the title for `open`, otherwise the task's id")
    verb.add_argument("title", nargs="?", default="", help="for `rename`: the new title")
    verb.add_argument("--state", metavar="S", help="for `close`: done (default), abandoned or superseded")
    verb.add_argument("--project", default="", metavar="P", help="for `open`")


def _tour(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--sample", action="store_true", help="use the bundled sample even if agents' sessions are found")
    verb.add_argument("--at", metavar="DIR", help="use this new folder instead of a temporary one")


def _pack(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--query", metavar="Q", help="what the session is about; adds whatever matches")
    verb.add_argument("--project", metavar="P", help="the project's name, or a folder in it (default: the current folder)")
    verb.add_argument("--task", metavar="T", help="a task's id (see `tasks`), or words from its title")
    verb.add_argument("--budget", metavar="TOKENS", type=_count, help="overrides the setting recall.budget")


def _snapshot(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("act", choices=("export", "import", "verify"), help="write a snapshot, import one, or check one")
    verb.add_argument("file", metavar="FILE", help="a .tar.zst file; export never overwrites an existing file")
    verb.add_argument("--no-view", action="store_true", help="export: leave out the readable page of each session")


def _audit(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--deep", action="store_true", help="reread every byte, even of files that look unchanged")
    verb.add_argument("--home", metavar="DIR", help="look for the agents' stores under this folder")


def _repair(verb: argparse.ArgumentParser) -> None:
    what = verb.add_mutually_exclusive_group()
    what.add_argument("--apply", action="store_true", help="make the safe repairs, keep the replaced bytes, and audit again")
    what.add_argument("--undo", metavar="ID", help="undo a repair, except where something has changed since")
    what.add_argument(
        "--accept", metavar="ID", action="append", default=[], help="acknowledge this problem: don't report it again"
    )
    verb.add_argument("--only", metavar="ID", action="append", default=[], help="repair only this problem; repeatable")
    verb.add_argument("--home", metavar="DIR", help="look for the agents' stores under this folder")


def _session(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("session", metavar="SESSION", help="a full id, the agent's own id, or a unique prefix of either")


def _sessions_named(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("session", metavar="SESSION", nargs="+", help="a full id, the agent's own id, or a unique prefix of either")


def _restore(verb: argparse.ArgumentParser) -> None:
    _session(verb)
    verb.add_argument("--to", metavar="AGENT", required=True, help="the agent: claude, codex, gemini, hermes, hermes-webui")
    verb.add_argument("--home", metavar="DIR", help="write under this home folder instead of the original place")
    verb.add_argument("--cwd", metavar="DIR", help="for a converted session: continue in this folder instead of its own")
    verb.add_argument("--generation", metavar="N", type=_count, help="this version of a rewritten file instead of the fullest")
    verb.add_argument("--convert", action="store_true", help="convert to a new session even if the original bytes are available")
    verb.add_argument("--dry-run", action="store_true", help="show what would be done, and do nothing")


def _search(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("query", metavar="QUERY", nargs="+", help="words, names, error codes, or times such as `last week`")
    verb.add_argument("--kind", metavar="K", action="append", default=[], help="message, insight or note, separated by commas")
    verb.add_argument("--project", metavar="P", help="only this project; see `projects`")
    verb.add_argument("--agent", metavar="A", help="only this agent")
    verb.add_argument("--session", metavar="S", help="only this session")
    verb.add_argument("--since", metavar="T", help="only since this date or time, such as 2026-05-31")
    verb.add_argument("--as-of", metavar="T", help="what was known at this date or time")
    verb.add_argument("--limit", metavar="N", type=_count, default=10, help="at most N results (default: 10)")


def _show(verb: argparse.ArgumentParser) -> None:
    _session(verb)
    verb.add_argument("--live", action="store_true", help="also show what is going on now: turn, segment, compaction, owner")
    verb.add_argument("--follow", action="store_true", help="keep showing new messages until interrupted")
    verb.add_argument("--markdown", action="store_true", help="print as Markdown")
    verb.add_argument("--digest", action="store_true", help="print the short copy that a model reads, without secrets")
    verb.add_argument("--segment", metavar="N", help="show only one segment: its number, or `current`")
    verb.add_argument(
        "--lineage", action="store_true", help="also show the sessions it descends from and those that descend from it"
    )
    verb.add_argument("--raw", action="store_true", help="print what the agent wrote, byte for byte, in the order of capture")


def _ingest(verb: argparse.ArgumentParser) -> None:
    _agents(verb)
    verb.add_argument("--again", action="store_true", help="read every file, even those that look unchanged")
    verb.add_argument("paths", metavar="PATH", nargs="*", help="import only these transcripts, databases or folders")


def _watch(verb: argparse.ArgumentParser) -> None:
    _agents(verb)
    verb.add_argument("--poll", action="store_true", help="poll instead of relying on file system notifications")


def _tap(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--agent", metavar="NAME", help="the agent's name (default: taken from the agent or its command)")
    verb.add_argument("command", metavar="CMD", nargs=argparse.REMAINDER, help="the agent's command with its arguments, after --")


def _hook(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("agent", metavar="AGENT")
    verb.add_argument("event", metavar="EVENT")


def _init(verb: argparse.ArgumentParser) -> None:
    _agents(verb)
    verb.add_argument("--dry-run", action="store_true", help="show what would be done, and do nothing")
    verb.add_argument("--uninstall", action="store_true", help="remove exactly what was installed")
    verb.add_argument("--no-mcp", action="store_true", help="install hooks only")


def _mcp(verb: argparse.ArgumentParser) -> None:
    verb.add_argument(
        "--http", action="store_true", help="serve over streamable HTTP until interrupted; the address is printed on stderr"
    )
    verb.add_argument("--host", default="127.0.0.1", metavar="H", help="address to listen on (default: this machine only)")
    verb.add_argument("--port", type=int, default=8377, metavar="N", help="port to listen on (default: 8377); 0 picks a free one")


def _agents(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--agent", metavar="A", action="append", default=[], help="only this agent; repeatable")
    verb.add_argument("--home", metavar="DIR", help="use this folder instead of your home folder")


def _sessions(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--project", metavar="P", help="only this project")
    verb.add_argument("--agent", metavar="A", help="only this agent")
    verb.add_argument("--limit", metavar="N", type=_count, help="at most N sessions")


def _reindex(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--from-zero", action="store_true", help="delete the old index first")


def _completion(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("shell", choices=("bash", "zsh", "fish", "tcsh"))


def _count(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be a positive integer, not {text!r}")
    if value > 10**9:
        raise argparse.ArgumentTypeError(f"must be at most a billion, not {text!r}")
    return value


#: In the order in which `--help` lists them.
VERBS = (
    Verb(
        "tour",
        "",
        "take a half-minute tour: capture, audit, repair, dream, search and pack",
        "Runs in a separate keep in a temporary\n"
        "folder, on your agents' newest sessions (it only reads them) or on a bundled sample.",
        _tour,
    ),
    Verb("status", "upkeep.status", "show what is in the keep, and what is running"),
    Verb("sessions", "sessions.sessions", "list sessions, newest first", add_options=_sessions),
    Verb("show", "sessions.show", "show one session: its turns and messages", "Marks interrupted turns and damage.", _show),
    Verb(
        "pack",
        "recall.pack",
        "print what a new session should read first, within a token budget",
        "Contains pinned notes, rules, open items, where the last\nsession left off, what works here, and what matches the task."
        " Exit code 1 when there is nothing to say.",
        _pack,
    ),
    Verb(
        "search",
        "recall.search",
        "search what was said and learned",
        "Any text is a valid query. Exit code 1 when nothing is found.",
        _search,
    ),
    Verb(
        "ingest",
        "capture.ingest",
        "find the sessions of every agent on this machine and import them",
        "Run it as often as you like: it reads only what is new.\nExit code 1 when a source had a problem; the rest is imported.",
        _ingest,
    ),
    Verb(
        "watch",
        "capture.watch",
        "follow the agents' sessions as they are written, until interrupted",
        "Imports new data as `ingest` does, and waiting hook calls. --json prints one object per line.",
        _watch,
    ),
    Verb(
        "tap",
        "capture.tap",
        "run an ACP agent and record what it and its client say",
        "Bytes pass through unchanged: dreamkeep tap -- gemini --acp",
        _tap,
    ),
    Verb(
        "hook",
        "",
        "handle one hook call of an agent: JSON on stdin, exit code always 0",
        "The hooks that `init` installs do the same, faster.",
        _hook,
    ),
    Verb(
        "init",
        "capture.init",
        "install capture hooks and the MCP server for the agents found here",
        "Keeps your settings, and skips files that it can't read.\nMakes a backup; --uninstall removes exactly what it added.",
        _init,
    ),
    Verb(
        "mcp",
        "",
        "run the MCP server on stdin and stdout (agents start it), or over HTTP",
        "Tools: search, pack, timeline,\nnote_add, note_pin, note_retract, why, insight_add, review, dream_status, dream_run,"
        " dream_next,\ndream_submit.",
        _mcp,
    ),
    Verb(
        "drain",
        "capture.drain",
        "move waiting hook calls into the journals",
        "Hooks, `watch` and every command do this on their own.",
    ),
    Verb(
        "reindex",
        "upkeep.reindex",
        "bring the index up to date",
        "The index is a view: deleting or rebuilding it loses nothing.",
        _reindex,
    ),
    Verb("doctor", "upkeep.doctor", "check the setup and say how to fix it", "Exit code 1 when something is wrong."),
    Verb(
        "audit",
        "upkeep.audit",
        "check the sessions in the keep and the agents' own stores for damage and loss",
        "Changes nothing. Skips files that\nhave not changed since the last audit. Exit code 1 when it finds problems.",
        _audit,
    ),
    Verb(
        "repair",
        "upkeep.repair",
        "plan how to fix what an audit finds; --apply does it",
        "Exit code 1 when problems\nremain. Every byte that it replaces is kept in the keep's aside/ folder.",
        _repair,
    ),
    Verb("end", "sessions.end", "mark a session as ended", "Ending it twice has no further effect.", _session),
    Verb("suspend", "sessions.suspend", "suspend a session, so that it isn't ended for being idle", add_options=_session),
    Verb("resume", "sessions.resume", "reopen an ended or suspended session", add_options=_session),
    Verb(
        "delete",
        "sessions.delete",
        "delete sessions for good",
        "Writes a tombstone first, then removes every word of\nthe session from the keep. Nothing brings it back on its own.",
        _sessions_named,
    ),
    Verb("undelete", "sessions.undelete", "lift a deletion, so that the session can be captured again", add_options=_session),
    Verb(
        "dream",
        "dream.dream",
        "read finished sessions and write notes about what matters",
        "Offline by default. Without an action: one run over all waiting sessions.\n"
        "Exit code 1 when a session failed, 4 when another dream is running.",
        _dream,
    ),
    Verb(
        "model",
        "model.model",
        "choose which model dreams may ask, and see what it would cost",
        "Lists the agents' programs, the local servers\nand the API keys found on this machine."
        " Nothing is sent until you choose one.",
        _model,
    ),
    Verb("hygiene", "dream.hygiene", "end idle sessions, add missing completion records, and compress old journals"),
    Verb("notes", "notes.notes", "list what is remembered, best first", add_options=_notes),
    Verb("note", "notes.note", "add a note, or change one", add_options=_note),
    Verb(
        "review",
        "review.review",
        "decide on the items in the inbox: suggested notes, and projects that may be the same",
        "On a terminal it shows one item at a\n"
        "time and takes a key: a accept, e edit, r reject, s skip, q quit. In a pipe it lists them all.",
        _review,
    ),
    Verb(
        "page",
        "notes.page",
        "show a project's notes as a page, or write them into the fenced region of a file",
        add_options=_page,
    ),
    Verb("tasks", "notes.tasks", "list tasks: the pieces of work that insights belong to", add_options=_tasks),
    Verb("task", "notes.task", "open, close, show or rename a task", add_options=_task),
    Verb("projects", "sessions.projects", "list projects, and which of them may be the same"),
    Verb(
        "project",
        "sessions.project",
        "rename a project, merge it into another, or undo that",
        "For a project that moved or has two names. Its sessions, notes and tasks\n"
        "go with it, and so does anything captured later under the old name.",
        _project,
    ),
    Verb(
        "snapshot",
        "upkeep.snapshot",
        "export, verify or import the whole keep as one file",
        "The same keep always gives the same bytes. Importing adds what is\n"
        "missing and replaces nothing. Exit code 1 when a file is damaged.",
        _snapshot,
    ),
    Verb(
        "restore",
        "sessions.restore",
        "write a session back, so that an agent can resume it",
        "Byte for byte for the agent it came from. For another agent it is\n"
        "converted, and what was lost is listed. Never overwrites a file that holds something else.",
        _restore,
    ),
    Verb(
        "completion",
        "",
        "print a completion script for your shell",
        'For bash: eval "$(dreamkeep completion bash)".\nFor zsh: dreamkeep completion zsh > "${fpath[1]}/_dreamkeep".',
        _completion,
    ),
)
