"""What a repair may set aside (readable regular files, and folders of them), and what is in a repair's way.

The bytes of a pipe or a device can't be kept, and the target of a link is not the keep's. Such things are reported and left to
the user.
"""

from __future__ import annotations

import os

from dreamkeep.host import Host

_LINK = "It is a link to something outside the keep. Remove it by hand."
_NO_FILE = "It is not a regular file. Check what it is, and remove it by hand."


def is_link(host: Host, path: str) -> bool:
    folder, name = os.path.split(path)
    return host.real_path(path) != os.path.join(host.real_path(folder), name)


def dangling(host: Host, path: str) -> str:
    """The link to nothing at a path or above it; "" when there is none."""
    while host.stat(path) is None and path != os.path.dirname(path):
        if is_link(host, path):
            return path
        path = os.path.dirname(path)
    return ""


def in_the_way(host: Host, path: str) -> str:
    """Why no file can be made at a path; "" when one can."""
    if link := dangling(host, path):
        return f"`{link}` is a link to nothing. Bring back its target, or remove it by hand."
    at = host.stat(path)
    while at is None and path != os.path.dirname(path):
        path = os.path.dirname(path)
        at = host.stat(path)
        if at is not None and not at.is_folder:
            return f"`{path}` is not a folder. Move it away by hand."
    return ""


def why_not(host: Host, path: str, *, folder: bool = True) -> str:
    """Why something can't be set aside; "" when it can (or is gone). `folder`: a folder may be, with what is in it."""
    try:
        if is_link(host, path):
            return _LINK
        at = host.stat(path)
        if at is None:
            return ""
        if at.is_folder and folder:
            return next(filter(None, (why_not(host, f"{path}/{name}") for name in host.names(path))), "")
        if not at.is_file:
            return _NO_FILE
        host.close(host.open_read(path))
    except FileNotFoundError:
        return ""
    except OSError as problem:
        return f"It can't be read ({problem.strerror}). Fix that, or remove it by hand."
    return ""
