"""The spool: hook calls that are durable but not journaled yet. This module reads its names and files, and changes nothing.

    spool/<time>-<pid>-<chance>~<agent>~<event>.hook    one call's stdin, verbatim, whole (hook.py writes them)
    spool/.<…>.tmp                                       being written, or left by a hook that was killed
    spool/batch-<id>~<whose>/<…>.hook                    calls of one session on their way into its journal (drain.py); `whose`
                                                         is a hash of its id; "keep" for calls of none: the keep's own journal
    spool/problems                                       what hooks could not keep, a line each

Calls are ordered by time, because hooks know nothing of each other. Nothing else depends on the time.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from dreamkeep.agents.shared.values import digest
from dreamkeep.event import rfc3339
from dreamkeep.host import Host, read_file

SPOOL = "spool"
PROBLEMS = "problems"
_BATCH = "batch-"
_NAME = re.compile(r"(\d{20})-\d{1,20}-[0-9a-f]{16}~([A-Za-z0-9._-]{0,64})~([A-Za-z0-9._-]{0,64})\.hook")
#: A hook stops reading after a few seconds of silence, so a file this old is not being written any more.
_LEFT_AFTER_NS = 3600 * 10**9
_PROBLEMS_SHOWN = 20
_LONGEST_PROBLEM = 600
_LARGEST_PROBLEMS = 1 << 20


class SpooledCall(NamedTuple):
    """One finished call. `at`: when the hook was started, RFC 3339."""

    name: str
    at: str
    agent: str
    event: str


def entry(name: str) -> SpooledCall | None:
    """Parses a file's name; None if it is no finished call."""
    found = _NAME.fullmatch(name)
    if not found:
        return None
    time, agent, event = found.groups()
    return SpooledCall(name, rfc3339(min(int(time), 2**63)), agent, event)


def entries(names: Iterable[str]) -> list[SpooledCall]:
    """The finished calls among the names of a folder, in the order in which they were made."""
    return [found for found in map(entry, sorted(names)) if found]


def is_batch(name: str) -> bool:
    return name.startswith(_BATCH)


def batch_name(id: str, session: str) -> str:
    return f"{_BATCH}{id}~{whose_is(session)}"


def whose(batch: str) -> str:
    return batch.rpartition("~")[2]


def whose_is(session: str) -> str:
    """Names a session in a batch's name, which so tells its session even when its calls can't be read."""
    return digest(session) if session else "keep"


def left_over(names: Iterable[str], now: int) -> list[str]:
    """Files of hooks that were killed while writing."""
    return [n for n in sorted(names) if (made := _finished(n)) and now - int(made[:20]) > _LEFT_AFTER_NS]


def finished_name(left: str) -> str:
    """The name that a hook which was killed would have given in the end."""
    return _finished(left) or left


def _finished(name: str) -> str | None:
    if not (name.startswith(".") and name.endswith(".tmp")):
        return None
    found = f"{name[1:-4]}.hook"
    return found if _NAME.fullmatch(found) else None


def names(host: Host, root: str) -> list[str]:
    """Everything in the spool; nothing when there is none."""
    try:
        return host.names(f"{root}/{SPOOL}")
    except (FileNotFoundError, NotADirectoryError):
        return []


def waiting(host: Host, root: str) -> int:
    """How many calls, or batches of them, wait for a drainer. One listing."""
    found = names(host, root)
    return sum(1 for name in found if is_batch(name) or entry(name)) + (len(left_over(found, host.now())) if found else 0)


def counts(host: Host, root: str) -> tuple[int, int]:
    """How many calls or batches wait; and how many of these are batches, which an earlier drainer did not finish."""
    return waiting(host, root), sum(map(is_batch, names(host, root)))


def problems(host: Host, root: str, environment: Mapping[str, str]) -> dict[str, list[str]]:
    """File → the newest problems that hooks of this keep noted there, a line each. Hooks that can't write into their keep share a
    file in the temp folder, so lines about other keeps are left out. Unreadable files are skipped."""
    temp = environment.get("XDG_RUNTIME_DIR") or environment.get("TMPDIR") or "/tmp"
    paths = [f"{root}/{SPOOL}/{PROBLEMS}"]
    try:
        mine = [name for name in host.names(temp) if name.startswith("dreamkeep-hook-")]
        paths += [f"{temp}/{name}" for name in sorted(mine) if re.fullmatch(r"dreamkeep-hook-\d+\.problems", name)]
    except OSError:
        pass  # no temp folder, no problems in it
    this_keep = re.compile(rf"{re.escape(root)}(?![\w.-])")
    found = {path: [line for line in _lines(host, path) if is_in(root, path) or this_keep.search(line)] for path in paths}
    return {path: lines[-_PROBLEMS_SHOWN:] for path, lines in found.items() if lines}


def is_in(root: str, path: str) -> bool:
    return path.startswith(f"{root}/")


def _lines(host: Host, path: str) -> list[str]:
    try:
        found = host.stat(path)
        # A pipe has no size, and reading it would block.
        if found is None or found.is_folder or not 0 < found.size <= _LARGEST_PROBLEMS:
            return []
        text = read_file(host, path).decode("utf-8", "replace")
    except OSError:
        return []
    return ["".join(c if c.isprintable() else "?" for c in line[:_LONGEST_PROBLEM]) for line in text.split("\n") if line.strip()]


def hook_command(python: str, hook: str, agent: str, event: str, keep: str) -> str:
    """The command for an agent's settings, for a shell or for agents that only split words.

    `|| :` because a Python that doesn't find its file exits with 2, which tells an agent to stop its work: an uninstalled
    dreamkeep must not do that. An agent that uses no shell passes these two words on, and the hook ignores them.
    """
    return f"{shlex.join([python, '-I', '-S', hook, agent, event, keep])} || :"


def journaled(body: Mapping[str, Any]) -> set[str]:
    """The calls in a frame of hooks, by their names in the spool; none if the frame is invalid."""
    calls = body.get("calls")
    found = [one.get("spool") for one in calls if isinstance(one, dict)] if isinstance(calls, list) else []
    return {one for one in found if isinstance(one, str)}
