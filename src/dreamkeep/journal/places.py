"""Where journals lie in a keep. Pure: ids from outside become names that can't leave it."""

from __future__ import annotations

from dreamkeep.errors import Refused

KEEP = "journal/keep"
SESSIONS = "journal/sessions"
#: Where requests of dreams lie that an agent is answering: no journal, but words of sessions, which a deletion takes away.
EXCHANGE = "state/exchange"
#: One file for each session whose deletion has begun: whoever writes next finishes what a crash left of it.
DELETIONS = "state/deleting"
_LONGEST_ID = 500
_SLUG = 40


def session_id(agent: str, native_id: str) -> str:
    """`AGENT:NATIVE_ID`, checked: ids come from files and hooks that anybody may have written."""
    if not isinstance(agent, str) or not isinstance(native_id, str):
        raise Refused("an agent and a session id must be strings", where=f"{agent!r}, {native_id!r}"[:80], next="Pass a str.")
    plain = agent.replace("-", "")
    if not (plain.isascii() and plain.isalnum() and plain == plain.lower() and len(agent) <= 32 and agent[0] != "-"):
        raise Refused(f"{agent!r} is not a valid agent name", where="agent", next="Use lowercase letters, digits and dashes.")
    if not native_id or len(native_id) > _LONGEST_ID or not native_id.isprintable():
        raise Refused(
            f"{native_id[:60]!r} is not a valid session id",
            where="session",
            next=f"Use 1 to {_LONGEST_ID} printable characters.",
        )
    return f"{agent}:{native_id}"


def folder_of(session: str) -> str:
    """Relative to the keep. Readable, and different for ids that differ only in case or in what a file system can't hold."""
    from hashlib import sha256  # 3 ms, and most commands need no name

    agent, _, native_id = session.partition(":")
    slug = "".join(c if c.isascii() and (c.isalnum() or c in "-_") else "_" for c in native_id[:_SLUG].lower())
    return f"{SESSIONS}/{agent}/{slug}-{sha256(session.encode()).hexdigest()[:16]}"
