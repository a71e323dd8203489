"""The end of each verb's `--help`: when it is for, examples, exit codes. Loaded only when somebody asks.

A page is: when (one paragraph), examples (one a line, a comment behind `#`), and what 1 means there. tests/test_manual.py parses
every example and sees to it that no verb is without a page.
"""

from __future__ import annotations

import sys
import textwrap
from typing import NamedTuple

from dreamkeep.surfaces.cli import look

_WIDEST = 100


class Page(NamedTuple):
    when: str
    examples: str
    #: What exit code 1 means; "" where there is no such answer.
    no: str = ""
    busy: str = "busy: somebody else holds the keep; try again"


PAGES = {
    "tour": Page(
        "When you want to see what this is before you set anything up.",
        """dreamkeep tour                                       # with your own agents' sessions, if there are any
           dreamkeep tour --sample --at /tmp/look               # with the sample, in a folder that you can look into""",
    ),
    "status": Page(
        "To see at a glance whether something is captured, and what is running now.",
        """dreamkeep status
           dreamkeep status --json                              # for a status line""",
    ),
    "sessions": Page(
        "To find a session's id, or what was worked on lately. An empty list is an answer.",
        """dreamkeep sessions --limit 10
           dreamkeep sessions --agent codex --project .         # of the project that the current folder belongs to""",
    ),
    "show": Page(
        "To read a session again, whatever became of the agent's own file.",
        """dreamkeep show claude:e07d                           # the beginning of an id is enough
           dreamkeep show e07d --segment current                # what the agent still has, since its last compaction
           dreamkeep show e07d --live                           # what goes on in it now
           dreamkeep show e07d --follow                         # as it is written; Ctrl-C ends it
           dreamkeep show e07d --markdown                       # as a page
           dreamkeep show e07d --digest                         # what you typed, and the rest in brief
           dreamkeep show e07d --raw                            # the agent's own bytes; on a terminal made harmless""",
        "there is no such session, or several begin so",
    ),
    "search": Page(
        "When something was said or learned before. Words, names, error codes and times such as `last week` are understood.",
        """dreamkeep search why did the import fail last week
           dreamkeep search OPS-306 --kind message
           dreamkeep search "which database" --as-of 2026-05-31 # what was known then
           dreamkeep search deploy --kind note,insight --limit 3 --json""",
        "nothing is found",
    ),
    "pack": Page(
        "For a fresh session that should know what the earlier ones knew. Hooks do this by themselves.",
        """dreamkeep pack                                       # for the project of the current folder
           dreamkeep pack --query "move prices to cents" --budget 1000""",
        "there is nothing to say",
    ),
    "ingest": Page(
        "Once after `init`, for what was there before; afterwards whenever you like: only what is new is read.",
        """dreamkeep ingest                                     # of all agents found here
           dreamkeep ingest --agent claude --agent codex
           dreamkeep ingest old/transcripts                     # only these
           dreamkeep ingest --home /mnt/old-disk/home/you""",
        "a source had a problem, or waits for room; the others were imported",
    ),
    "watch": Page(
        "Where hooks can't be used, and to keep an eye on it. Also ends what is quiet, compresses, and starts dreams.",
        """dreamkeep watch
           dreamkeep watch --json                               # one object a line""",
    ),
    "tap": Page(
        "For an agent that speaks ACP: put this before its command in the editor's settings.",
        """dreamkeep tap -- gemini --acp
           dreamkeep tap --agent opencode -- opencode acp""",
    ),
    "hook": Page(
        "You need not call this: what `init` installs does. Whatever happens, the exit code is 0.",
        "dreamkeep hook claude SessionStart                   # with the agent's JSON on stdin",
    ),
    "init": Page(
        "Once on each machine. Afterwards every session is captured while it runs, and agents get packs and tools.",
        """dreamkeep init --dry-run                             # what would be changed
           dreamkeep init
           dreamkeep init --agent claude --no-mcp               # hooks only, for one agent
           dreamkeep init --uninstall                           # takes exactly that back""",
        "a settings file was left alone, because it can't be read or changed",
    ),
    "mcp": Page(
        "You need not call this on stdin: agents do, once `init` has told them. Over HTTP, clients must send a token.",
        """dreamkeep mcp --http --port 8377                     # prints where the token is
           dreamkeep mcp""",
    ),
    "drain": Page("You need not call this, unless `doctor` says that hook calls wait.", "dreamkeep drain", "something is stuck"),
    "reindex": Page(
        "After an upgrade, to have it done now; or when answers look wrong. The index is a view: nothing can be lost.",
        """dreamkeep reindex
           dreamkeep reindex --from-zero                        # from the journal alone""",
    ),
    "doctor": Page(
        "When something is not captured, and after an upgrade of Python, of an agent or of dreamkeep.",
        """dreamkeep doctor
           dreamkeep doctor --json""",
        "something is wrong; the way out is told",
    ),
    "audit": Page(
        "After a crash, a full disk or a restored backup, and from time to time. Nothing is changed.",
        """dreamkeep audit
           dreamkeep audit --deep                               # every byte, also of what looks as it did""",
        "there are faults",
    ),
    "repair": Page(
        "After an audit that found something. Look at the plan first.",
        """dreamkeep repair                                     # the plan: nothing is written
           dreamkeep repair --apply
           dreamkeep repair --accept source_vanished-241ab6acefc9 # it shall stay as it is
           dreamkeep repair --undo 01a1ba99-bd00-7000           # take a repair back""",
        "faults remain",
    ),
    "end": Page("When a session is over and its agent does not say so.", "dreamkeep end claude:e07d", "there is no such session"),
    "suspend": Page(
        "For a session that waits for you and must not be ended for being quiet.",
        "dreamkeep suspend claude:e07d",
        "there is no such session",
    ),
    "resume": Page("When one goes on after all.", "dreamkeep resume claude:e07d", "there is no such session"),
    "delete": Page(
        "When something must not be kept. The agent's own file is not touched; notes that rest on this session alone go, too.",
        "dreamkeep delete claude:e07d",
        "there is no such session",
    ),
    "undelete": Page(
        "When a deleted session may be captured again, if its agent still has it. What was deleted stays deleted.",
        "dreamkeep undelete claude:e07d",
        "no such session was deleted",
    ),
    "dream": Page(
        "Whenever the agents rest; by itself if `dream.auto` says so. The report tells how to take a run back.",
        """dreamkeep dream --dry-run                            # what would be read
           dreamkeep dream --preview                            # what would change; nothing is written
           dreamkeep dream
           dreamkeep dream --with-model --session claude:e07d   # with the model of the settings
           dreamkeep dream --again --since 2026-05-31           # old sessions once more, with a model
           dreamkeep dream --export requests/                   # as files, also for a vendor's batch
           dreamkeep dream --import requests/                   # their answers; until nothing is left to ask
           dreamkeep dream status
           dreamkeep dream why n-698d4e8b4ad6
           dreamkeep dream undo 01a1ba99-bd00-7027""",
        "a session could not be read, or there is no such note or run",
        "another dream runs",
    ),
    "model": Page(
        "Before the first dream with a model. `use` prints what it would cost, and writes keep.toml; `off` goes back to rules.",
        """dreamkeep model
           dreamkeep model use claude                           # an agent's own program
           dreamkeep model use ollama:qwen3:14b                 # a server on this machine
           dreamkeep model use anthropic:MODEL                  # with the key in ANTHROPIC_API_KEY
           dreamkeep model off""",
    ),
    "hygiene": Page(
        "Before a dream, where agents do not say that a session has ended. `watch` does it every hour.",
        "dreamkeep hygiene",
        "a session could not be ended",
    ),
    "notes": Page(
        "To see what is remembered.",
        """dreamkeep notes --project .
           dreamkeep notes --kind decision
           dreamkeep notes --state superseded                   # what was replaced since""",
    ),
    "note": Page(
        "Your own word counts more than what an agent said: what it contradicts is superseded at once.",
        """dreamkeep note add "Prices are integers, in cents." --kind constraint --project .
           dreamkeep note edit n-698d4e8b4ad6 "We deploy with make deploy."
           dreamkeep note pin n-698d4e8b4ad6                    # always first
           dreamkeep note retract n-698d4e8b4ad6 --reason "not any more"
           dreamkeep note reject n-698d4e8b4ad6                 # it never held
           dreamkeep note confirm n-698d4e8b4ad6                # it does hold, also if it was taken back
           dreamkeep note promote n-698d4e8b4ad6 --to CLAUDE.md # into a file of your own""",
        "there is no such note",
    ),
    "review": Page(
        "When `status` says that something waits. A suggestion is on no page and in no pack; it expires after 60 days.",
        """dreamkeep review                                     # one after the other: a, e, r, s or q
           dreamkeep review --project . --json
           dreamkeep review --accept n-698d4e8b4ad6 n-1f09cc2be7d3
           dreamkeep review --edit n-698d4e8b4ad6 "Prices are integers, in cents."
           dreamkeep review --reject p-4afe436775bf             # these are two projects
           dreamkeep review --accept-all decision --project .""",
        "nothing in the inbox is called so",
    ),
    "page": Page(
        "To look at what agents are told, or to have it in a file of the project. Lines that you change there are your word.",
        """dreamkeep page --project .
           dreamkeep page --project . --write CLAUDE.md         # only the region between its fences is touched""",
        "the file was left alone",
    ),
    "tasks": Page("To see what pieces of work there are.", "dreamkeep tasks --project ."),
    "task": Page(
        "For work that goes over several sessions.",
        """dreamkeep task open "Move prices to cents" --project .
           dreamkeep task show t-4afe436775bf
           dreamkeep task rename t-4afe436775bf "Prices in cents"
           dreamkeep task close t-4afe436775bf --state abandoned""",
        "there is no such task",
    ),
    "projects": Page(
        "To see what there is, which worktrees belong to a project, and which projects may be one.",
        """dreamkeep projects
           dreamkeep projects --json                            # offers: what may be merged, and where that was seen""",
    ),
    "project": Page(
        "When a repository moved, or two folders are the same work. The old name is understood as before.",
        """dreamkeep project rename example.org/you/tool example.org/us/tool
           dreamkeep project merge ~/tool-copy example.org/us/tool
           dreamkeep project undo ~/tool-copy                   # by the name or folder that it had before
           dreamkeep project apart ~/tool-copy ~/tool           # these are two; don't offer it again""",
        "there is no such project",
    ),
    "snapshot": Page(
        "For a backup, or to take a keep elsewhere.",
        """dreamkeep snapshot export keep.tar.zst
           dreamkeep snapshot verify keep.tar.zst
           dreamkeep --keep elsewhere snapshot import keep.tar.zst""",
        "something in it is not whole; what is good was taken",
    ),
    "restore": Page(
        "When an agent has lost a session, or another agent shall go on with it.",
        """dreamkeep restore claude:e07d --to claude --dry-run
           dreamkeep restore claude:e07d --to claude            # byte for byte
           dreamkeep restore claude:e07d --to codex             # converted, saying what was lost""",
        "there is no such session",
    ),
    "completion": Page(
        "Once for each shell.",
        """dreamkeep completion bash                            # eval "$(dreamkeep completion bash)" in ~/.bashrc
           dreamkeep completion zsh                             # > "${fpath[1]}/_dreamkeep"
           dreamkeep completion fish                            # > ~/.config/fish/completions/dreamkeep.fish""",
    ),
}


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
    return "; ".join(["0 done", *no, "2 bad usage or settings", "3 failed", f"4 {page.busy}"])


def filled(text: str, width: int) -> str:
    return textwrap.fill(" ".join(text.split()), width, break_on_hyphens=False)


def width() -> int:
    return min(look.of(sys.stdout).width or _WIDEST, _WIDEST)
