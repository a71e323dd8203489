"""Which symbolic links in an agent's folders are followed.

Anybody who can write there (an agent, a tool it runs, an archive it unpacks) can leave a link to a device that never ends, to
/proc/self/environ, or to another user's file. So a link is followed only to a plain file or a folder that belongs to the user.
For root, the link must be root's own or belong to the same user as what it leads to: root can read everything, and whoever made
the link may not.
"""

from __future__ import annotations

from dreamkeep.host import Host, Stat

#: File systems whose files are made by the kernel while somebody reads them.
_NO_DISK = frozenset(("proc", "sysfs", "devtmpfs", "devpts", "debugfs", "tracefs", "securityfs", "cgroup", "cgroup2", "configfs"))


def refusal(host: Host, path: str) -> str:
    """Why a link is not followed; empty when it is, and when the path is no link."""
    link = host.link_stat(path)
    target = host.stat(path) if link is not None and link.is_link else None
    if link is None or target is None:
        return ""
    real = host.real_path(path)
    why = why_not_followed(link, target, host.file_system(real), host.user())
    return f"it is a symbolic link to `{real}`, {why}, so it is not followed. Put the file itself in its place." if why else ""


def why_not_followed(link: Stat, target: Stat, file_system: str, user: int) -> str:
    """Why a link to this target is not followed; empty when it is. Pure."""
    if not (target.is_file or target.is_folder):
        return "which is a device, a pipe or a socket"
    if file_system in _NO_DISK:
        return "which is not a file on a disk"
    if user == 0:
        return "" if link.owner in (0, target.owner) else "and the two belong to different users"
    return "" if target.owner == user else "which belongs to another user"
