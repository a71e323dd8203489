"""A session is recorded, its writer is killed half-way, and nothing that was acknowledged is lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile

from dreamkeep import Keep
from dreamkeep.surfaces.cli import main

WRITER = """
import sys
from dreamkeep import Keep

with Keep.open(sys.argv[1]) as keep:
    session = keep.session("sample", cwd=".")
    with session.submit("Why does the build fail?") as turn:
        turn.add("assistant", "The lock file is older than the manifest.", tool={"name": "shell", "exit_code": 1})
        turn.add("assistant", "`make lock` fixes it; the build passes.")
    session.record("And the tests?", ("assistant", "All green."))
    turn = session.submit("Then publish it.")
    turn.start()
    for n in range(1_000_000):
        turn.add("assistant", f"uploading part {n} …")
        print(n, flush=True)
"""


def say(text: str) -> None:
    print(f"\n\033[1m{text}\033[0m" if sys.stdout.isatty() else f"\n{text}", flush=True)


def killed_writer(keep: str) -> int:
    """Starts a writer, kills it in the middle of its work; the number of the last append it saw acknowledged."""
    writer = subprocess.Popen([sys.executable, "-c", WRITER, keep], stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    last = -1
    for line in writer.stdout:
        last = int(line)
        if last == 3:
            os.kill(writer.pid, signal.SIGKILL)
    writer.wait()
    return last


def tear_the_tail(keep: str) -> None:
    """What a power cut leaves: half a line at the end of the journal."""
    folder = os.path.join(keep, "journal", "sessions", "python")
    part = os.path.join(folder, os.listdir(folder)[0], "000001.jsonl")
    with open(part, "rb") as file:
        last_line = file.read().splitlines()[-1]
    with open(part, "ab") as file:
        file.write(last_line[:50])


def run(keep: str) -> int:
    say("1. A keep is opened and a session recorded; its writer is killed (SIGKILL) while it uploads.")
    last = killed_writer(keep)
    print(f"   The writer had {last + 1} parts acknowledged when it died.")
    say("2. A power cut, too: half a line is left at the end of the journal.")
    tear_the_tail(keep)
    say("3. $ dreamkeep show sample")
    main(["--keep", keep, "show", "sample"])
    with Keep.open(keep) as opened:
        kept = sum(m["text"].startswith("uploading") for m in opened.show("sample")["messages"])
    say("4. Another process takes the session up: the half line is set aside, the turn is completed late, and that wins.")
    with Keep.open(keep) as opened:
        interrupted = next(t["id"] for t in opened.show("sample")["turns"] if t["state"] == "interrupted")
        turn = opened.session("sample", cwd=".").turn(interrupted)
        turn.add("assistant", "Taken up again: published.")
        turn.settle("completed")
    main(["--keep", keep, "end", "sample"])
    main(["--keep", keep, "status"])
    main(["--keep", keep, "doctor"])
    if kept < last + 1:
        print(f"LOST: {last + 1} parts were acknowledged, {kept} are there", file=sys.stderr)
        return 1
    say(f"Acknowledged before the kill: {last + 1}. There afterwards: {kept}. Nothing is lost.")
    print("Use it in your own agent:  from dreamkeep import Keep   (docs/python.md)")
    return 0


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="dreamkeep-") as folder:
        sys.exit(run(os.path.join(folder, "keep")))
