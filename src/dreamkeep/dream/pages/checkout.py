"""The commit at which a file's working copy is, from git's files: tells another branch's older file from an edit by hand.

.git/HEAD      `ref: refs/heads/main`, or a commit
.git/refs/…    the branch's commit; packed away, it is a line of `packed-refs`. refs/stash: what was stashed last
"""

from __future__ import annotations

import os

from dreamkeep.host import Host, read_file
from dreamkeep.memory.insight import digest

_LARGEST = 4 << 20


def head_of(host: Host, path: str) -> str:
    """A short text that changes with a checkout, a pull, a commit or a stash; "" where there is no repository that can be
    read."""
    try:
        folder = _git_folder(host, os.path.dirname(host.real_path(path)))
        head = _text(host, f"{folder}/HEAD") if folder else ""
        if not head:
            return ""
        common = os.path.normpath(os.path.join(folder, _text(host, f"{folder}/commondir").strip() or "."))
        stashed = _text(host, f"{common}/refs/stash") or _packed(host, common, "refs/stash")
        if not head.startswith("ref:"):
            return digest(head, stashed)[:16]
        ref = os.path.normpath(head.partition(":")[2].strip())
        return digest(head, _text(host, f"{common}/{ref}") or _packed(host, common, ref), stashed)[:16]
    except (OSError, ValueError):
        return ""  # a power cut leaves zeros where a name was: no path


def _git_folder(host: Host, at: str) -> str:
    while True:
        git = f"{at.rstrip('/')}/.git"
        found = host.stat(git)
        if found is not None and found.is_folder:
            return git
        if found is not None:
            return os.path.normpath(os.path.join(at, _text(host, git).partition("gitdir:")[2].strip()))
        above = os.path.dirname(at)
        if above == at:
            return ""
        at = above


def _packed(host: Host, common: str, ref: str) -> str:
    lines = _text(host, f"{common}/packed-refs").splitlines()
    return next((line for line in lines if line.endswith(f" {ref}")), "")


def _text(host: Host, path: str) -> str:
    found = host.stat(path)
    if found is None or not found.is_file or found.size > _LARGEST:
        return ""
    return read_file(host, path).decode("utf-8", "replace")
