"""Pages in the keep whose project was given another name: where a page is, and how it is withdrawn."""

from __future__ import annotations

import os
from hashlib import sha256

from dreamkeep.host import Host, Stat, read_file, replace_file
from dreamkeep.memory import page
from dreamkeep.memory.memory import Memory
from dreamkeep.memory.page import FOLDER


def place(root: str, project: str, name: str) -> str:
    """Where a project's page lies in the keep: readable, and different for projects that differ."""
    words = "".join(c if c.isascii() and (c.isalnum() or c in "-_.") else "_" for c in project.rstrip("/").rpartition("/")[2])
    slug = words.strip("._")[:40] or "all"
    return f"{root}/{FOLDER}/{slug}-{sha256(project.encode('utf-8', 'surrogatepass')).hexdigest()[:12]}/{name}"


def withdraw(host: Host, path: str) -> str:
    """Removes a page in the keep that is not needed any more, under the lock. What somebody wrote around our region stays,
    without our notes. Why it could not, "" where it could."""
    if host.stat(path) is None:
        return ""
    data = read_file(host, path)
    text = data.decode("utf-8", "surrogateescape")
    found = page.parse(text)
    if found.problem or not is_text(data):
        return found.problem or "it is not UTF-8 text"
    if found.region is not None and not (found.before + found.after).strip():
        host.remove(path)
        if not host.names(os.path.dirname(path)):
            host.remove_folder(os.path.dirname(path))
    elif found.region is not None and (emptied := page.replace_region(text, page.empty_region())) != text:
        replace_file(host, host.real_path(path), emptied.encode("utf-8", "surrogateescape"))
    return ""


def left_over(host: Host, root: str, memory: Memory) -> list[str]:
    """Files among the keep's pages that are no project's page any more: the project was given another name, and somebody wrote
    around the notes, or a crash came before the page was withdrawn."""
    known = {str(one["path"]) for one in memory.pages.values()}
    names = [
        f"{FOLDER}/{name}/{inner}"
        for name, at in _inside(host, f"{root}/{FOLDER}")
        if at.is_folder
        for inner, under in _inside(host, f"{root}/{FOLDER}/{name}")
        if not under.is_folder
    ]
    return [f"{root}/{name}" for name in names if name not in known]


def _inside(host: Host, folder: str) -> list[tuple[str, Stat]]:
    """Nothing of a folder that can't be read: no page in it could be withdrawn."""
    try:
        return [(entry.name, entry.at) for entry in host.entries(folder) if entry.at]
    except OSError:
        return []


def given_up(host: Host, root: str, memory: Memory) -> list[str]:
    """Leftover pages of given-up names that still have our notes: a crash came before they were withdrawn, or the project was
    renamed in another copy of the keep."""
    if not memory.projects:
        return []
    return [path for path in left_over(host, root, memory) if once_called(root, memory, path) and _has_notes(host, path)]


def once_called(root: str, memory: Memory, path: str) -> str:
    """The project whose page it was, by its present name; "" where that isn't known."""
    name = os.path.basename(path)
    was = (one for one in memory.projects if place(root, one, name) == path)
    return memory.current_project(next(was, ""))


def _has_notes(host: Host, path: str) -> bool:
    """And can be taken out of it."""
    try:
        data = read_file(host, path)
    except OSError:
        return False  # what can't be read can't be withdrawn either
    text = data.decode("utf-8", "surrogateescape")
    found = page.parse(text)
    return (
        is_text(data)
        and not found.problem
        and found.region is not None
        and page.replace_region(text, page.empty_region()) != text
    )


def is_text(data: bytes) -> bool:
    """Whether our lines can stand in it. Bytes that are not UTF-8 are kept as they are, but UTF-16 and NULs are refused."""
    return not data.startswith((b"\xff\xfe", b"\xfe\xff")) and b"\0" not in data
