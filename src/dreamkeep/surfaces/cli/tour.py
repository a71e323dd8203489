"""`tour`: a first look, in half a minute. Runs the verbs that a user would run, in a keep of its own, and shows what they say.

The sample's clock stands on a Sunday and its chance is fixed, so what is shown is the same everywhere but for the folder's name
(which is written TOUR) and sizes that depend on it. tests/test_tour.py compares the README with it.
"""

from __future__ import annotations

import os
import shlex
import sys
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from typing import TextIO, cast

from dreamkeep.app import without_secrets
from dreamkeep.app_tour import GONE, GONE_FROM, Tour, begin, mishap, slug, take_in
from dreamkeep.errors import BadUsage
from dreamkeep.surfaces.cli import look, text

_NAME = "TOUR"
#: Of a user's own sessions a dream reads no more than so many: each takes a moment.
_DREAMED = "20"
_TAKES_HOME = frozenset(("audit", "repair", "restore"))


def run(arguments: Namespace) -> int:
    if arguments.json:
        raise BadUsage("a tour is for people", where="--json", next="Each verb that it runs has --json of its own.")
    if arguments.keep is not None:
        raise BadUsage("a tour has a keep of its own", where="--keep", next="Say with --at DIR in which new folder.")
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
    """Standard output, on which the tour's folder is called TOUR."""

    def __init__(self, out: TextIO, folder: str) -> None:
        self._out = out
        self._folder = folder

    def write(self, said: str) -> int:
        return self._out.write(said.replace(self._folder, _NAME).replace(slug(self._folder), f"-{_NAME}"))

    def __getattr__(self, name: str) -> object:
        return getattr(self._out, name)


@contextmanager
def _named(folder: str) -> Iterator[None]:
    print(f"Everything here happens in {folder}, called {_NAME} below. Nothing else is written.", flush=True)
    with redirect_stdout(cast(TextIO, _Stream(sys.stdout, folder))):
        yield


def _say(head: str, more: str = "") -> None:
    print(f"\n{look.paint(head, 'bold')}")
    if more:
        print(more)
    sys.stdout.flush()


def _do(tour: Tour, *words: str) -> int:
    """One verb of the command line, as it would be typed."""
    from dreamkeep.surfaces.cli import verbs
    from dreamkeep.surfaces.cli.parser import parser

    print(f"$ dreamkeep {without_secrets(shlex.join(words))}", flush=True)
    home = ("--home", tour.home) if tour.home is not None and words[0] in _TAKES_HOME else ()
    return verbs.act(tour.keep, parser().parse_args([*words, *home]))


# -- the sample


def _sample(tour: Tour, *, asked_for: bool) -> None:
    if not asked_for:
        print("No agent's sessions were found on this machine, so this is the sample that comes with dreamkeep:")
    print("a week of a small project, in which neighbours lend each other tools, with three agents. On Wednesday night a battery")
    print("dies in the middle of a turn, on Thursday that session is taken up again; two contexts are compacted; a rule changes.")
    _say("1. Capture: what the agents kept on disk goes into the keep, byte for byte.")
    _take_in(tour)
    _do(tour, "sessions")
    _say(
        "2. Recovery: the power fails. Half of Monday's transcript is NULs now; and Wednesday's was cleaned away by its agent.",
    )
    mishap(tour)
    _do(tour, "audit")
    _do(tour, "restore", GONE, "--to", GONE_FROM)
    _do(tour, "repair", "--apply")
    _say("3. Dream: on Sunday all is quiet. What was learned becomes notes, each with its evidence, and a page.", _BY_RULES)
    _do(tour, "hygiene")
    _do(tour, "dream")
    _do(tour, "page", "--project", _PROJECT)
    _say("4. Search: across agents, also what a compaction has squeezed out, with the place where it was said.")
    for words in _QUERIES:
        _do(tour, "search", *words)
    for note in tour.keep.notes(kind="constraint")[:1]:
        _do(tour, "dream", "why", note["id"])
    _say("5. Pack: what the next session is given to read first, by a hook.")
    _do(tour, "pack", "--project", _PROJECT, "--query", "deploy to the Pi", "--budget", "300")


#: Told with each dream of a tour: it is offline and free.
_BY_RULES = "(By rules, without a model: only what is certain is kept. A model makes more of the same sessions: dreamkeep model)"
_PROJECT = "example.org/you/toolshed"
_QUERIES = (
    ("when do reminders go out?", "--limit", "3"),
    ("database is locked", "--kind", "note,message", "--limit", "2"),
    ("UTC or Europe/Lisbon?", "--limit", "1"),
)


# -- a user's own sessions


def _own(tour: Tour) -> None:
    assert tour.found is not None
    more = f" ({tour.found.left} older or larger ones are left out)" if tour.found.left else ""
    count = len(tour.found.sources)
    files = (
        f"{count} newest files of your own agents' sessions are" if count != 1 else "newest file of your own agents' sessions is"
    )
    print(f"The {files} looked at{more}; nothing there is changed.")
    _say("1. Capture: what the agents kept on disk goes into the keep, byte for byte.")
    _take_in(tour)
    _do(tour, "sessions", "--limit", "10")
    _say("2. Recovery: is anything lost or damaged? A plan only: nothing of yours is changed.")
    _do(tour, "audit")
    _do(tour, "repair")
    _say(
        "3. Dream: what was learned becomes notes, each with its evidence, and a page.",
        f"(Here every session that is quiet counts as ended; elsewhere after a day.)\n{_BY_RULES}",
    )
    _do(tour, "hygiene")
    _do(tour, "dream", "--limit", _DREAMED)
    notes, sessions = tour.keep.notes(), tour.keep.sessions(limit=10)
    if not sessions:
        print("There is no session in these files. The sample shows more: dreamkeep tour --sample")
        return
    if not notes:
        print("Nothing worth a note was found in these sessions. The sample shows more: dreamkeep tour --sample")
    projects = [str(note["project"]) for note in notes] or [sessions[0].project]
    project = max(dict.fromkeys(projects), key=projects.count)
    if notes:
        _do(tour, "page", "--project", project)
    texts = [str(note["text"]) for note in notes if note["project"] == project] or [one.title for one in sessions]
    if queries := _asked(tour.keep.masked(texts)):
        _say("4. Search: what was said and learned, with the place where it was.")
    for query in queries:
        _do(tour, "search", "--kind", "note,message", "--limit", "2", "--", query)
    _say("5. Pack: what the next session is given to read first, by a hook.")
    _do(tour, "pack", "--project", project)


def _asked(texts: Sequence[str]) -> list[str]:
    """Of three of the notes (or titles) a few words: nobody knows here what the user would ask."""
    return list(dict.fromkeys(words for text in texts if (words := " ".join(text.split()[:5]))))[:3]


# -- both


def _take_in(tour: Tour) -> None:
    from dreamkeep.surfaces.cli import verbs

    print("$ dreamkeep ingest", flush=True)
    text.out(text.ingested(tour.keep.masked(verbs.ingested(list(take_in(tour))))))
    tour.keep.catch_up()


def _next(tour: Tour) -> None:
    program = _program()
    _say("Next")
    print(f"  {program} init       hooks and memory for the agents on this machine; --uninstall takes exactly that back")
    print(f"  {program} ingest     the sessions that they have already")
    print("To look around in what you have just seen:")
    print(f"  {program} --keep {shlex.quote(tour.folder)}/keep show {shlex.quote(_one_of(tour))}")
    print(f"  rm -r {shlex.quote(tour.folder)}      when you have seen enough")


def _one_of(tour: Tour) -> str:
    """A session to look at."""
    return "claude:e07d3b52" if tour.home else next((one.id for one in tour.keep.sessions(limit=1)), "ID")


def _program() -> str:
    """As it was called, if not found by its name alone."""
    called = sys.argv[0]
    if os.path.basename(called) != "dreamkeep" or os.path.dirname(called) in os.environ.get("PATH", "").split(os.pathsep):
        return "dreamkeep"
    return shlex.quote(called)
