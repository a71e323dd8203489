"""The end of each verb's `--help`: when it is for, examples, exit codes. Loaded only when somebody asks.

A page is: when (one paragraph), examples (one a line, a comment behind `#`), and what 1 means there.
tests/surfaces/test_manual.py parses every example and checks that no verb is without a page.
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
    busy: str = "busy: another process is using the keep; try again"


PAGES = {
    "tour": Page(
        "To see what dreamkeep does before you set anything up.",
        """dreamkeep tour                                       # on your own agents' sessions, if there are any
           dreamkeep tour --sample --at /tmp/look               # on the sample, in a folder that you can inspect""",
    ),
    "status": Page(
        "To see at a glance whether sessions are being captured, and what is running now.",
        """dreamkeep status
           dreamkeep status --json                              # for a status line""",
    ),
    "sessions": Page(
        "To find a session's id, or to see recent work. An empty list is not an error.",
        """dreamkeep sessions --limit 10
           dreamkeep sessions --agent codex --project .         # only the current folder's project""",
    ),
    "show": Page(
        "To read a session again, even if the agent's own file is gone.",
        """dreamkeep show claude:e07d                           # a unique prefix of the id is enough
           dreamkeep show e07d --segment current                # what the agent still sees, since its last compaction
           dreamkeep show e07d --live                           # what is happening in it now
           dreamkeep show e07d --follow                         # follow it as it is written; Ctrl-C stops
           dreamkeep show e07d --markdown                       # as Markdown
           dreamkeep show e07d --digest                         # what you typed, with the rest in brief
           dreamkeep show e07d --raw                            # the agent's own bytes; made safe for a terminal""",
        "no such session, or the prefix is ambiguous",
    ),
    "search": Page(
        "To find what was said or learned before. It understands words, names, error codes and times such as `last week`.",
        """dreamkeep search why did the import fail last week
           dreamkeep search OPS-306 --kind message
           dreamkeep search "which database" --as-of 2026-05-31 # what was known on that day
           dreamkeep search deploy --kind note,insight --limit 3 --json""",
        "nothing found",
    ),
    "pack": Page(
        "To give a new session what earlier ones knew. Hooks do this on their own.",
        """dreamkeep pack                                       # for the project of the current folder
           dreamkeep pack --query "move prices to cents" --budget 1000""",
        "nothing to say",
    ),
    "ingest": Page(
        "Once after `init`, to import existing sessions. Later, whenever you like: it reads only what is new.",
        """dreamkeep ingest                                     # every agent found here
           dreamkeep ingest --agent claude --agent codex
           dreamkeep ingest old/transcripts                     # only these
           dreamkeep ingest --home /mnt/old-disk/home/you""",
        "a source had a problem or is waiting for disk space; the others were imported",
    ),
    "watch": Page(
        "Where hooks can't be used, or to see capture live. It also ends idle sessions, compresses journals and starts dreams.",
        """dreamkeep watch
           dreamkeep watch --json                               # one object per line""",
    ),
    "tap": Page(
        "For agents that speak ACP: put this in front of the agent's command in your editor's settings.",
        """dreamkeep tap -- gemini --acp
           dreamkeep tap --agent opencode -- opencode acp""",
    ),
    "hook": Page(
        "You don't need to call this: the hooks that `init` installs do. The exit code is always 0.",
        "dreamkeep hook claude SessionStart                   # with the agent's JSON on stdin",
    ),
    "init": Page(
        "Once on each machine. From then on every session is captured as it runs, and agents get packs and tools.",
        """dreamkeep init --dry-run                             # show what would change
           dreamkeep init
           dreamkeep init --agent claude --no-mcp               # hooks only, for one agent
           dreamkeep init --uninstall                           # removes exactly what it added""",
        "a settings file was skipped because it can't be read or changed",
    ),
    "mcp": Page(
        "Agents start this on stdin once `init` has set it up. Use --http to serve over HTTP; clients must send a token.",
        """dreamkeep mcp --http --port 8377                     # prints where the token is
           dreamkeep mcp""",
    ),
    "drain": Page("Only when `doctor` says that hook calls are waiting.", "dreamkeep drain", "some hook calls are stuck"),
    "reindex": Page(
        "After an upgrade, or when answers look wrong. The index is a view, so rebuilding it loses nothing.",
        """dreamkeep reindex
           dreamkeep reindex --from-zero                        # rebuild it from the journals alone""",
    ),
    "doctor": Page(
        "When something isn't captured, and after you upgrade Python, an agent or dreamkeep.",
        """dreamkeep doctor
           dreamkeep doctor --json""",
        "something is wrong; the output says how to fix it",
    ),
    "audit": Page(
        "After a crash, a full disk or a restored backup, and from time to time. It changes nothing.",
        """dreamkeep audit
           dreamkeep audit --deep                               # every byte, even of unchanged files""",
        "problems found",
    ),
    "repair": Page(
        "After an audit that found problems. Read the plan first.",
        """dreamkeep repair                                     # show the plan; writes nothing
           dreamkeep repair --apply
           dreamkeep repair --accept source_vanished-241ab6acefc9 # don't report it again
           dreamkeep repair --undo 01a1ba99-bd00-7000           # undo a repair""",
        "problems remain",
    ),
    "end": Page("When a session is over but its agent doesn't say so.", "dreamkeep end claude:e07d", "no such session"),
    "suspend": Page(
        "For a session that waits for you and must not be ended for being idle.",
        "dreamkeep suspend claude:e07d",
        "no such session",
    ),
    "resume": Page("When an ended or suspended session continues after all.", "dreamkeep resume claude:e07d", "no such session"),
    "delete": Page(
        "When something must not be kept. Also deletes notes that rest on it alone. Doesn't touch the agent's own file.",
        "dreamkeep delete claude:e07d",
        "no such session",
    ),
    "undelete": Page(
        "To allow a deleted session to be captured again, if its agent still has it. What was deleted stays deleted.",
        "dreamkeep undelete claude:e07d",
        "no such session was deleted",
    ),
    "dream": Page(
        "Whenever your agents are idle; it starts on its own if `dream.auto` is set. The report says how to undo the run.",
        """dreamkeep dream --dry-run                            # show what would be read
           dreamkeep dream --preview                            # show what would change; writes nothing
           dreamkeep dream
           dreamkeep dream --with-model --session claude:e07d   # with the model from the settings
           dreamkeep dream --again --since 2026-05-31           # reread old sessions with a model
           dreamkeep dream --export requests/                   # requests as files, also for a vendor's batch API
           dreamkeep dream --import requests/                   # read the answers; repeat until none are missing
           dreamkeep dream status
           dreamkeep dream why n-698d4e8b4ad6
           dreamkeep dream undo 01a1ba99-bd00-7027""",
        "a session could not be read, or no such note or run",
        "another dream is running",
    ),
    "model": Page(
        "Before the first dream with a model. `use` prints the estimated cost and writes keep.toml; `off` returns to rules.",
        """dreamkeep model
           dreamkeep model use claude                           # an agent's own program
           dreamkeep model use ollama:qwen3:14b                 # a server on this machine
           dreamkeep model use anthropic:MODEL                  # with the key in ANTHROPIC_API_KEY
           dreamkeep model off""",
    ),
    "hygiene": Page(
        "Before a dream, for agents that don't say when a session has ended. `watch` does this every hour.",
        "dreamkeep hygiene",
        "a session could not be ended",
    ),
    "notes": Page(
        "To see what is remembered.",
        """dreamkeep notes --project .
           dreamkeep notes --kind decision
           dreamkeep notes --state superseded                   # what has since been replaced""",
    ),
    "note": Page(
        "To add or correct what is remembered. Your word outranks an agent's: notes that contradict yours are superseded.",
        """dreamkeep note add "Prices are integers, in cents." --kind constraint --project .
           dreamkeep note edit n-698d4e8b4ad6 "We deploy with make deploy."
           dreamkeep note pin n-698d4e8b4ad6                    # always listed first
           dreamkeep note retract n-698d4e8b4ad6 --reason "no longer true"
           dreamkeep note reject n-698d4e8b4ad6                 # it was never true
           dreamkeep note confirm n-698d4e8b4ad6                # it is true, even if it was retracted
           dreamkeep note promote n-698d4e8b4ad6 --to CLAUDE.md # copy it into your own file""",
        "no such note",
    ),
    "review": Page(
        "When `status` says that the inbox has items. A suggestion is in no page or pack, and expires after 60 days.",
        """dreamkeep review                                     # one at a time: a, e, r, s or q
           dreamkeep review --project . --json
           dreamkeep review --accept n-698d4e8b4ad6 n-1f09cc2be7d3
           dreamkeep review --edit n-698d4e8b4ad6 "Prices are integers, in cents."
           dreamkeep review --reject p-4afe436775bf             # they are different projects
           dreamkeep review --accept-all decision --project .""",
        "no such item in the inbox",
    ),
    "page": Page(
        "To see what agents are told, or to write it into a file of the project. Lines that you edit there count as your word.",
        """dreamkeep page --project .
           dreamkeep page --project . --write CLAUDE.md         # changes only the fenced region""",
        "the file was not changed",
    ),
    "tasks": Page("To see which pieces of work there are.", "dreamkeep tasks --project ."),
    "task": Page(
        "For work that spans several sessions.",
        """dreamkeep task open "Move prices to cents" --project .
           dreamkeep task show t-4afe436775bf
           dreamkeep task rename t-4afe436775bf "Prices in cents"
           dreamkeep task close t-4afe436775bf --state abandoned""",
        "no such task",
    ),
    "projects": Page(
        "To see all projects, their worktrees, and which of them may be the same.",
        """dreamkeep projects
           dreamkeep projects --json                            # offers: what could be merged, and why""",
    ),
    "project": Page(
        "When a repository moved, or two folders hold the same work. The old name still works.",
        """dreamkeep project rename example.org/you/tool example.org/us/tool
           dreamkeep project merge ~/tool-copy example.org/us/tool
           dreamkeep project undo ~/tool-copy                   # by its old name or folder
           dreamkeep project apart ~/tool-copy ~/tool           # they differ; don't ask again""",
        "no such project",
    ),
    "snapshot": Page(
        "For a backup, or to move a keep elsewhere.",
        """dreamkeep snapshot export keep.tar.zst
           dreamkeep snapshot verify keep.tar.zst
           dreamkeep --keep elsewhere snapshot import keep.tar.zst""",
        "part of the file is damaged; the rest was imported",
    ),
    "restore": Page(
        "When an agent has lost a session, or another agent should continue it.",
        """dreamkeep restore claude:e07d --to claude --dry-run
           dreamkeep restore claude:e07d --to claude            # byte for byte
           dreamkeep restore claude:e07d --to codex             # converted; what was lost is listed""",
        "no such session",
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
    return "; ".join(["0 success", *no, "2 bad usage or settings", "3 failed", f"4 {page.busy}"])


def filled(text: str, width: int) -> str:
    return textwrap.fill(" ".join(text.split()), width, break_on_hyphens=False)


def width() -> int:
    return min(look.of(sys.stdout).width or _WIDEST, _WIDEST)
