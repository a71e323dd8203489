"""Audit and repair of Hermes WebUI's session folder, and of the rows of `state.db` that belong to it.

documents.py   what its files mean; pure            empty_session.json   a new session's document
folder.py      every copy of a session              rows.py              a session file made of rows
audit.py       what is missing, torn or not listed  repair.py            repairs: they add, and never delete
"""

from __future__ import annotations

from collections.abc import Iterable

from dreamkeep.agents.hermes_webui.recovery import documents
from dreamkeep.agents.hermes_webui.recovery.audit import audit_webui as audit
from dreamkeep.agents.hermes_webui.recovery.folder import DELETED
from dreamkeep.agents.hermes_webui.recovery.repair import ACTIONS, CHECKS
from dreamkeep.host import Host, read_file

__all__ = ["ACTIONS", "CHECKS", "audit", "deleted_sessions"]


def deleted_sessions(host: Host, places: Iterable[str]) -> frozenset[str]:
    """Sessions that the user deleted in these folders; none of a list that can't be read."""
    return frozenset(sid for place in places for sid in _read_tombstones(host, f"{place}/{DELETED}"))


def _read_tombstones(host: Host, path: str) -> Iterable[str]:
    try:
        at = host.stat(path)
        return (documents.parse_tombstones(read_file(host, path)) if at and at.is_file else None) or ()
    except OSError:
        return ()  # the audit of that folder reports it
