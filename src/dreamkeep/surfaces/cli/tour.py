"""`tour`: a first look, in half a minute. Runs the verbs that a user would run, in a keep of its own, and shows what they say.

The sample's clock stands on a Sunday and its chance is fixed, so what is shown is the same everywhere but for the folder's name
(which is written TOUR) and sizes that depend on it. tests/surfaces/test_tour.py compares the README with it.
"""

from __future__ import annotations

import os
import shlex
import sys
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from typing import TextIO, cast

from dreamkeep.errors import BadUsage
from dreamkeep.surfaces.cli import look, text
from dreamkeep.surfaces.cli.capture import describe_ingested, show_outcomes
from dreamkeep.surfaces.cli.commands import run_verb
from dreamkeep.surfaces.cli.parser import parser
from dreamkeep.verbs.standalone import mask_secrets
from dreamkeep.verbs.tour import GONE, GONE_FROM, Tour, begin, damage_transcripts, exchange_of, lay_answers, slug, take_in

_NAME = "TOUR"
_CAPTURE = "1. Capture: copy what the agents have on disk into the keep, byte for byte."
_PACK = "5. Pack: what a hook gives the next session to read first."
#: A dream over the user's own sessions reads at most so many, because each takes a moment.
_DREAMED = "20"
_TAKES_HOME = frozenset(("audit", "repair", "restore"))


def run(arguments: Namespace) -> int:
    if arguments.json:
        raise BadUsage("a tour has no JSON output", where="--json", next="Each verb that it runs has its own --json.")
    if arguments.keep is not None:
        raise BadUsage("a tour uses its own keep", where="--keep", next="Choose a new folder for it with --at DIR.")
    tour = begin(arguments.at, os.environ, sample=arguments.sample)
    with tour.keep:
        with _named(tour.folder):
            if tour.home is None:
                _own(tour)
            else:
                _sample(tour, asked_for=arguments.sample)
        _next(tour)
    return 0


class _Stream:
    """Standard output that shows the tour's folder as TOUR."""

    def __init__(self, out: TextIO, folder: str) -> None:
        self._out = out
        self._folder = folder

    def write(self, said: str) -> int:
        return self._out.write(said.replace(self._folder, _NAME).replace(slug(self._folder), f"-{_NAME}"))

    def __getattr__(self, name: str) -> object:
        return getattr(self._out, name)


@contextmanager
def _named(folder: str) -> Iterator[None]:
    print(f"Everything here happens in {folder}, shown as {_NAME} below. Nothing else is changed.", flush=True)
    with redirect_stdout(cast(TextIO, _Stream(sys.stdout, folder))):
        yield


def _say(head: str, more: str = "") -> None:
    print(f"\n{look.paint(head, 'bold')}")
    if more:
        print(more)
    sys.stdout.flush()


def _do(tour: Tour, *words: str) -> int:
    """One verb of the command line, as it would be typed."""
    print(f"$ dreamkeep {mask_secrets(shlex.join(words))}", flush=True)
    home = ("--home", tour.home) if tour.home is not None and words[0] in _TAKES_HOME else ()
    return run_verb(tour.keep, parser().parse_args([*words, *home]))


# -- the sample


def _sample(tour: Tour, *, asked_for: bool) -> None:
    if not asked_for:
        print("No agent sessions were found on this machine, so this is the sample that comes with dreamkeep.")
    print("A week of work with three agents, on a small project for neighbours who lend each other tools. On Wednesday night a")
    print(
        "battery dies in the middle of a turn; on Thursday that session is resumed. Two contexts are compacted. A rule changes."
    )
    _say(_CAPTURE)
    _take_in(tour)
    _do(tour, "sessions")
    _say("2. Recovery: the power fails. Half of Monday's transcript is now NUL bytes, and its agent has deleted Wednesday's.")
    damage_transcripts(tour)
    _do(tour, "audit")
    _do(tour, "restore", GONE, "--to", GONE_FROM)
    _do(tour, "repair", "--apply")
    _dream_sample(tour)
    _say("4. Search: across agents, including what a compaction dropped, with the place where it was said.")
    for words in _QUERIES:
        _do(tour, "search", *words)
    for note in tour.keep.notes(kind="decision", state="superseded")[:1]:
        _do(tour, "dream", "why", note["id"])
    _say(_PACK)
    _do(tour, "pack", "--project", _PROJECT, "--query", "deploy to the Pi", "--budget", "300")


def _dream_sample(tour: Tour) -> None:
    """Twice: by rules alone, and then with answers that a model gave when the sample was made."""
    _say("3. Dream: on Sunday all is quiet. What was learned becomes notes, each with its evidence, and a page.", _RULES_FIRST)
    _do(tour, "hygiene")
    _do(tour, "dream")
    _do(tour, "page", "--project", _PROJECT)
    by_rules = len(tour.keep.notes())
    _say("The same week with a model, which understands what was said.", _RECORDED)
    _do(tour, "dream", "--again", "--export", exchange_of(tour))
    for kind, question in _ASKED.items():
        count = text.counted(lay_answers(tour)[kind], "recorded answer")
        print(f"(Put {count} into {exchange_of(tour)}/answers. The question was: {question})", flush=True)
        _do(tour, "dream", "--import", exchange_of(tour))
    _do(tour, "page", "--project", _PROJECT)
    suggested = text.counted(len(tour.keep.notes(state="suggested")), "suggestion")
    print(f"Rules alone: {text.counted(by_rules, 'note')}. With the model's answers: {len(tour.keep.notes())}, and {suggested}")
    print(_ADDED)


_RULES_FIRST = "First with rules alone, the default: no model is asked, and only certain notes are kept."
_RECORDED = """Nothing is sent anywhere: a model's answers were recorded once and come with the sample. They pass the same
checks as any model's: what does not quote the session word for word is dropped. To choose your own model: dreamkeep model"""
_ADDED = """for you to decide on (dreamkeep review). One decision changed: Friday's "reminders at 18:00" supersedes Tuesday's
"reminders at 8:00". Step 4 shows why."""
#: By kind of request, in the order of the rounds: what is asked.
_ASKED = {
    "read": "what is worth keeping?",
    "challenge": "is each of these notes true, lasting, and the user's own?",
    "merge": "which of them say the same, and which replaces another?",
}
#: Told with the dream of a user's own sessions: it is offline and free.
_BY_RULES = (
    "(This uses rules, not a model: only certain notes are kept. A model gets more out of these sessions: dreamkeep model)"
)
_PROJECT = "example.org/you/toolshed"
_QUERIES = (
    ("when do reminders go out?", "--limit", "3"),
    ("database is locked", "--kind", "note,message", "--limit", "2"),
    ("UTC or Europe/Lisbon?", "--limit", "1"),
)


# -- a user's own sessions


def _own(tour: Tour) -> None:
    assert tour.found is not None
    more = f", skipping {tour.found.left} older or larger ones" if tour.found.left else ""
    count = len(tour.found.sources)
    files = f"{count} newest session files of your own agents" if count != 1 else "newest session file of your own agents"
    print(f"This reads the {files}{more}. It doesn't change them.")
    _say(_CAPTURE)
    _take_in(tour)
    _do(tour, "sessions", "--limit", "10")
    _say("2. Recovery: is anything lost or damaged? This shows only a plan: your files are not changed.")
    _do(tour, "audit")
    _do(tour, "repair")
    _say(
        "3. Dream: what was learned becomes notes, each with its evidence, and a page.",
        f"(Here every idle session counts as ended; normally only after a day.)\n{_BY_RULES}",
    )
    _do(tour, "hygiene")
    _do(tour, "dream", "--limit", _DREAMED)
    notes, sessions = tour.keep.notes(), tour.keep.sessions(limit=10)
    if not sessions:
        print("These files hold no session. The sample shows more: dreamkeep tour --sample")
        return
    if not notes:
        print("Nothing worth a note was found in these sessions. The sample shows more: dreamkeep tour --sample")
    projects = [str(note["project"]) for note in notes] or [sessions[0].project]
    project = max(dict.fromkeys(projects), key=projects.count)
    if notes:
        _do(tour, "page", "--project", project)
    texts = [str(note["text"]) for note in notes if note["project"] == project] or [one.title for one in sessions]
    if queries := _asked(tour.keep.masked(texts)):
        _say("4. Search: what was said and learned, and where.")
    for query in queries:
        _do(tour, "search", "--kind", "note,message", "--limit", "2", "--", query)
    _say(_PACK)
    _do(tour, "pack", "--project", project)


def _asked(texts: Sequence[str]) -> list[str]:
    """The first words of three notes (or titles), as example queries."""
    return list(dict.fromkeys(words for text in texts if (words := " ".join(text.split()[:5]))))[:3]


# -- both


def _take_in(tour: Tour) -> None:
    print("$ dreamkeep ingest", flush=True)
    text.out(describe_ingested(tour.keep.masked(show_outcomes(list(take_in(tour))))))


def _next(tour: Tour) -> None:
    program = _program()
    _say("Next")
    print(f"  {program} init       adds hooks and memory to the agents here; --uninstall removes exactly what it added")
    print(f"  {program} ingest     imports the sessions that they already have")
    print("To explore what you have just seen:")
    print(f"  {program} --keep {shlex.quote(tour.folder)}/keep show {shlex.quote(_example_session(tour))}")
    print(f"  rm -r {shlex.quote(tour.folder)}      when you are done")


def _example_session(tour: Tour) -> str:
    """The id of a session that the user may look at."""
    return "claude:e07d3b52" if tour.home else next((one.id for one in tour.keep.sessions(limit=1)), "ID")


def _program() -> str:
    """How the user called dreamkeep: by its name if it is on PATH, or else by its path."""
    called = sys.argv[0]
    if os.path.basename(called) != "dreamkeep" or os.path.dirname(called) in os.environ.get("PATH", "").split(os.pathsep):
        return "dreamkeep"
    return shlex.quote(called)
