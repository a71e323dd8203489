"""Child programs that write into a keep and say so line by line, and `Child`, by which a test runs one.

A line goes out by one os.write to a pipe, which outlives a SIGKILL: `try n` before the call, `ack n when` right after it.
So a test knows of every (writer, n) whether it was acknowledged, attempted or never tried.
"""

from __future__ import annotations

import os
import random
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple, TypeVar

import dreamkeep
from dreamkeep import Keep
from dreamkeep.errors import NotDurable
from dreamkeep.event import Event, Ids, Kind, rfc3339
from dreamkeep.host import RealHost, publish_file, replace_file
from dreamkeep.journal.places import folder_of
from dreamkeep.journal.reader import Reading
from dreamkeep.journal.scan import events
from dreamkeep.journal.writers import JournalWriters
from dreamkeep.session.messages import messages as messages_of
from dreamkeep.verbs.sessions import open_session

T = TypeVar("T")

#: Every so manieth text takes a while to write.
LONG = 200
_PATIENCE_S = 120.0
_RAISED = 3


def text(writer: str, n: int) -> str:
    """Known in advance to its last byte. Some are long, for only a long write can be torn; some so long that they are chunked."""
    return f"{writer}:{n}:" + "x" * (1_200_000 if n % LONG == 0 else 6_000 if n % 10 == 0 else n * 37 % 400)


def folder(root: str, session: str) -> str:
    return f"{root}/{folder_of(f'python:{session}')}"


class Said(NamedTuple):
    seq: int
    id: str
    text: str


def said(root: str, session: str, *, rewritten: bool = False) -> list[Said]:
    """Every message of a session, straight from its journal, which must be without fault.

    And without gap, unless frames may have been written again after a failed sync: then their second seqs are passed over.
    """
    reading = Reading(RealHost(), folder(root, session))
    frames = list(reading)
    broken: list[int] = []
    found = [Said(seq, e.id, m.text) for seq, e in events(frames, broken) for m in messages_of(seq, e)]
    assert not reading.defects, reading.defects
    assert not broken, broken
    seqs = [frame["seq"] for frame in frames]
    assert seqs == sorted(set(seqs)), "a seq is used twice"
    assert rewritten or seqs == list(range(1, len(frames) + 1)), "a seq is missing"
    return found


class Account:
    """What one writer, through all its lives, tried and was promised."""

    def __init__(self, writer: str) -> None:
        self.writer = writer
        self.tried: list[int] = []
        self.acked: list[int] = []

    @property
    def next(self) -> int:
        return self.tried[-1] + 1 if self.tried else 1

    @property
    def next_but_long(self) -> int:
        """Some numbers are passed over, so that a new life comes to a long text soon."""
        return max(self.next, (self.next // LONG + 1) * LONG - random.randint(2, 12))

    def absorb(self, lines: Sequence[str], *, until_ns: int | None = None) -> bool:
        """Whether the last attempt of that life stayed without an answer (one that came in time, where that matters)."""
        for line in lines:
            match line.split(" "):
                case ["try", n]:
                    self.tried.append(int(n))
                case ["ack", n, at] if until_ns is None or int(at) < until_ns:
                    self.acked.append(int(n))
        return bool(self.tried) and self.tried[-1] not in self.acked[-1:]

    def check(self, found: Sequence[Said]) -> None:
        mine = [s.text for s in found if s.text.startswith(f"{self.writer}:")]
        numbers = [int(t.split(":")[1]) for t in mine]
        assert numbers == sorted(set(numbers)), f"{self.writer}: something is doubled or out of order"
        assert not set(self.acked) - set(numbers), f"{self.writer}: an acknowledged message is lost"
        assert set(numbers) <= set(self.tried), f"{self.writer}: something was invented"
        assert mine == [text(self.writer, n) for n in numbers], f"{self.writer}: other bytes than were written"


class Child:
    """A running child program; its lines are collected as they come."""

    def __init__(self, *words: object, under: Sequence[str] = ()) -> None:
        self.lines: list[str] = []
        self._news = threading.Condition()
        self._over = False
        self.process = subprocess.Popen(
            [*under, sys.executable, __file__, *map(str, words)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=_environment(),
        )
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    @property
    def pid(self) -> int:
        return self.process.pid

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._news:
                if line.endswith(b"\n"):
                    self.lines.append(line.decode().rstrip("\n"))
                self._news.notify_all()
        with self._news:
            self._over = True
            self._news.notify_all()

    def wait_for(self, start: str) -> str:
        """The rest of the first line that begins so."""
        with self._news:
            seen = self._news.wait_for(lambda: self._over or self._find(start) is not None, _PATIENCE_S)
            found = self._find(start)
        assert seen and found is not None, f"no {start!r} but {self.lines[-5:]}"
        return found.removeprefix(start).strip()

    def wait_for_long(self) -> None:
        """Until it tries the next text that is long."""
        last = next((int(line[4:]) for line in reversed(list(self.lines)) if line.startswith("try ")), 0)
        self.wait_for(f"try {(last // LONG + 1) * LONG}" if last else "try ")

    def _find(self, start: str) -> str | None:
        return next((line for line in self.lines if line.startswith(start)), None)

    def tell(self, word: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{word}\n".encode())
        self.process.stdin.flush()

    def finish(self) -> list[str]:
        """Let it end by itself, without error."""
        lines = self._join()
        assert self.process.returncode == 0, f"the child ended with {self.process.returncode}: {lines[-3:]}"
        return lines

    def kill(self) -> list[str]:
        """SIGKILL; everything that it had said."""
        self.process.kill()
        return self._join()

    def reap(self) -> None:
        """SIGKILL, and only wait for its death: somebody else may still hold its pipe open."""
        self.process.kill()
        self.process.wait(_PATIENCE_S)

    def _join(self) -> list[str]:
        process = self.process
        assert process.stdin is not None and process.stdout is not None
        if not process.stdin.closed:
            process.stdin.close()
        try:
            process.wait(_PATIENCE_S)
        finally:
            process.kill()
        self._listener.join(_PATIENCE_S)
        assert not self._listener.is_alive(), "somebody still holds the child's pipe open"
        process.stdout.close()
        return self.lines


def _environment() -> dict[str, str]:
    """The same dreamkeep as the test has, and no settings of whoever runs the test."""
    source = os.path.dirname(os.path.dirname(os.path.abspath(dreamkeep.__file__)))
    plain = {key: value for key, value in os.environ.items() if not key.startswith("DREAMKEEP_")}
    return {**plain, "PYTHONPATH": os.pathsep.join(filter(None, (source, os.environ.get("PYTHONPATH"))))}


@contextmanager
def child(*words: object, under: Sequence[str] = ()) -> Iterator[Child]:
    """Gone afterwards, whatever happens."""
    running = Child(*words, under=under)
    try:
        yield running
    finally:
        running.kill()


def run(*words: object, under: Sequence[str] = ()) -> list[str]:
    with child(*words, under=under) as running:
        return running.finish()


# -- the child programs


def say(line: str) -> None:
    os.write(1, f"{line}\n".encode())


def acknowledge(n: int) -> None:
    say(f"ack {n} {time.monotonic_ns()}")


def attempt(n: int, act: Callable[..., T], *given: object) -> T:
    say(f"try {n}")
    done = act(*given)
    acknowledge(n)
    return done


def boldly(n: int, act: Callable[..., object], *given: object) -> None:
    """Like `attempt`, but goes on when the disk refused, after saying what it was told."""
    say(f"try {n}")
    try:
        act(*given)
    except NotDurable as problem:
        _complain(problem)
    else:
        acknowledge(n)


def _complain(problem: NotDurable) -> None:
    say(f"raised {type(problem).__name__}|{problem.what}|{problem.where}|{problem.next}")


def messages(root: str, session: str, writer: str, first: str, count: str = "0") -> None:
    """Turns of a prompt and nine messages, for ever or until `count` texts are written."""
    chat = Keep.open(root).session(session)
    n, left = int(first), int(count) or sys.maxsize
    say("open")
    while left > 0:
        turn = attempt(n, chat.submit, text(writer, n))
        turn.start()
        more = range(n + 1, n + min(10, left))
        for n in more:
            attempt(n, turn.add, "assistant", text(writer, n))
            time.sleep(0.002)  # whoever writes for ever should not fill the disk
        turn.settle()
        left -= len(more) + 1
        n += 1


def adds(root: str, session: str, writer: str, count: str) -> None:
    """One turn with so many messages, of which no sync can be spared: waits for the word before it begins."""
    with Keep.open(root) as keep:
        turn = keep.session(session).submit(text(writer, 1))
        say("ready")
        sys.stdin.readline()
        for n in range(2, int(count) + 1):
            attempt(n, turn.add, "assistant", text(writer, n))


def turn(root: str, session: str, fork: str = "") -> None:
    """Owns one started turn; settles it when told. With `fork` it has a child, which lives until its stdin ends."""
    keep = Keep.open(root)
    owned = keep.session(session).submit("long work")
    owned.start()
    if fork and os.fork() == 0:
        if fork == "closes":
            keep.close()
        say("forked")
        # Reading could take the word that is meant for the parent; no events asked for, only the end is reported.
        hung_up = select.poll()
        hung_up.register(0, 0)
        hung_up.poll()
        os._exit(0)
    say(f"turn {owned.id}")
    if sys.stdin.readline():
        owned.settle("completed")
        say("settled")


def traced(root: str, session: str, appends: str) -> None:
    """A keep, a session, a turn and so many messages, with a mark after each call."""
    with Keep.open(root) as keep:
        chat = keep.session(session)
        say("mark opened")
        owned = chat.submit(text("t", 1))
        say("mark submitted")
        for n in range(2, int(appends) + 2):
            boldly(n, owned.add, "assistant", text("t", n))
        boldly(int(appends) + 2, lambda: chat.record(text("t", int(appends) + 2), ("assistant", "Because.")))


def ending(root: str, session: str, times: str) -> None:
    """Ends a session that is there, as often as told."""
    with Keep.open(root) as keep:
        chat = open_session(keep.context, f"python:{session}")  # `session()` would first resume one that had ended
        for n in range(1, int(times) + 1):
            boldly(n, chat.end)


def rotating(root: str, session: str, appends: str) -> None:
    """As many messages as wanted, in parts that are full after three."""
    host = RealHost()
    ids = Ids(host.now, host.random)
    journals = JournalWriters(host, root, ids, part_size=1000)
    for n in range(1, int(appends) + 1):
        body = {"role": "assistant", "text": text("r", n)}
        event = Event(ids.new(), Kind.MESSAGE_ADDED, rfc3339(host.now()), body)
        boldly(n, journals.append, f"python:{session}", [event])


def crowd(root: str, threads: str, appends: str) -> None:
    """So many threads, each on a session of its own, all at once."""
    many = int(threads)
    together = threading.Barrier(many)
    with Keep.open(root) as keep:
        turns = [keep.session(f"c{k}").submit("go") for k in range(many)]

        def work(k: int) -> None:
            for n in range(int(appends)):
                together.wait()
                turns[k].add("assistant", f"<c{k}.{n}>")
                say(f"ack <c{k}.{n}>")

        crew = [threading.Thread(target=work, args=(k,)) for k in range(many)]
        for thread in crew:
            thread.start()
        for thread in crew:
            thread.join()


def files(root: str) -> None:
    """Publish a file, then replace it, with a mark after each."""
    host = RealHost()
    say("mark begin")
    publish_file(host, f"{root}/published", b"one\n")
    say("mark published")
    replace_file(host, f"{root}/published", b"two\n")
    say("mark replaced")


def limited(root: str, session: str, spare: str) -> None:
    """Files may grow by `spare` bytes only; then the limit is lifted, and the same handle goes on."""
    import resource

    with Keep.open(root) as keep:
        owned = attempt(1, keep.session(session).submit, text("l", 1))
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        size = os.stat(f"{folder(root, session)}/000001.jsonl").st_size
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + int(spare), hard))
        for n in (10, 20):
            boldly(n, owned.add, "assistant", text("l", n))
        say(f"shown {len(keep.show(session)['messages'])} {keep.status()['messages']}")
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        for n in (30, 31):
            attempt(n, owned.add, "assistant", text("l", n))
        owned.settle()


PROGRAMS: Mapping[str, Callable[..., None]] = {
    act.__name__: act for act in (messages, adds, turn, traced, ending, rotating, crowd, files, limited)
}


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        PROGRAMS[sys.argv[1]](*sys.argv[2:])
    except NotDurable as refused:
        _complain(refused)
        sys.exit(_RAISED)
