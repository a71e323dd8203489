"""Repairs of Hermes WebUI's session folder: they add, and never delete. Each looks again, because the WebUI may be running.

A missing file is created or the repair fails: if another one has appeared, that one stays. An existing file is replaced only if
it still looks as it did when the new bytes were made from it. The repair's ledger has the old bytes; backups stay where they
are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from dreamkeep.agents.hermes_webui.recovery import documents
from dreamkeep.agents.hermes_webui.recovery.folder import INDEX, Folder, copies, read_row_messages, rebuild_document
from dreamkeep.agents.hermes_webui.recovery.rows import databases
from dreamkeep.recovery.faults import MENDED, Fault, MendResult, not_mended
from dreamkeep.recovery.repair.context import PlanContext, RepairContext

_DELETED = "it was deleted in the WebUI, or that can't be ruled out"
_NO_COPY = "there is no good copy left"


def _folder(context: PlanContext, fault: Fault) -> Folder:
    return Folder(context.host, context.root, fault.about["place"])


def _is_deleted(folder: Folder, sid: str) -> bool:
    return folder.deleted is None or sid in folder.deleted


def _read_row_messages(context: PlanContext, folder: Folder, sid: str) -> documents.WebuiMessages:
    return read_row_messages(folder, sid, databases(context.host, context.home, context.environment))


def _has_more_copies(context: PlanContext, folder: Folder, sid: str) -> bool:
    """Whether there is more than a prompt of a session whose file is gone, even if that can't be rebuild_document."""
    if context.host.stat(folder.backup(sid)) is not None or any(folder.versions(sid)):
        return True
    return bool(copies(folder, sid, databases(context.host, context.home, context.environment)))


def rebuild_sidecar(context: RepairContext, fault: Fault) -> MendResult:
    """Make a session file that is missing or can't be read, from all its copies."""
    folder, sid = _folder(context, fault), fault.about["sid"]
    if why := folder.why_no_file(sid):
        return not_mended(why)
    path = folder.live(sid)
    seen = context.host.stat(path)
    if seen is not None and folder.document(path) is not None:
        return _list_in_index(context, folder, sid)  # by the WebUI, or by us before a crash
    if _is_deleted(folder, sid):
        return not_mended(_DELETED)
    data = rebuild_document(folder, sid, databases(context.host, context.home, context.environment))
    if data is None:
        return not_mended(_NO_COPY)
    if seen is None:
        done = context.ledger.publish(path, data, session=fault.session)
    else:
        done = context.ledger.replace(path, data, seen=seen, session=fault.session)
    return _list_in_index(context, folder, sid) if done.mended else done


def restore_backup(context: RepairContext, fault: Fault) -> MendResult:
    """Add what only the `.bak` has to the session file, or put it in the place of a missing one."""
    folder, sid = _folder(context, fault), fault.about["sid"]
    path = folder.live(sid)
    seen = context.host.stat(path)
    if seen is None:
        return rebuild_sidecar(context, fault)
    live, held = folder.document(path), folder.document(folder.backup(sid))
    if live is None or held is None:
        return not_mended("it is no longer readable; run the audit again")
    whole = documents.merge_documents(live, [held], _read_row_messages(context, folder, sid))
    if whole != live:
        done = context.ledger.replace(path, documents.encode(whole), seen=seen, session=fault.session)
        if not done.mended:
            return done
    return _list_in_index(context, folder, sid, again=True)


def recover_turn(context: RepairContext, fault: Fault) -> MendResult:
    """Add the prompt to the messages, marked as recovered; once, however often this runs."""
    folder, sid = _folder(context, fault), fault.about["sid"]
    if why := folder.why_no_file(sid):
        return not_mended(why)
    path = folder.live(sid)
    seen = context.host.stat(path)
    live = folder.document(path) if seen is not None else {}
    if live is None:
        return not_mended("its session file can't be read; fix that first")
    if seen is None and _is_deleted(folder, sid):
        return not_mended(_DELETED)
    turn = next((one for one in documents.pending_turns(folder.turns(sid), live) if one.id == fault.about["turn"]), None)
    if turn is None:
        return MENDED  # it has ended, or its prompt is in the file by now
    if documents.may_be_intended(live, turn, _read_row_messages(context, folder, sid)):
        return not_mended("messages were cleared or undone in this session, perhaps this one too")
    if seen is None:
        if _has_more_copies(context, folder, sid):
            return not_mended("its session file is missing, and more of it is kept elsewhere; fix that first")
        done = context.ledger.publish(path, documents.encode(documents.document_of_turn(turn, sid)), session=fault.session)
    else:
        done = context.ledger.replace(path, documents.encode(documents.with_prompt(live, turn)), seen=seen, session=fault.session)
    return _list_in_index(context, folder, sid, again=True) if done.mended else done


def rebuild_webui_index(context: RepairContext, fault: Fault) -> MendResult:
    """Entries of existing files stay as they are, missing ones are added, those without a file go."""
    folder = _folder(context, fault)
    path = f"{folder.place}/{INDEX}"
    seen = context.host.stat(path)
    entries = folder.entries() if seen is not None else None
    listed = {documents.entry_id(one) for one in entries or ()}
    more = {}
    for sid in set(folder.lives) - listed - folder.pruned:
        found = folder.document(folder.live(sid))
        if found is not None:
            more[sid] = documents.index_entry(found, sid)
    return _write_index(context, path, entries, documents.rebuild_index(entries, folder.lives, more))


def _write_index(context: RepairContext, path: str, before: list[object] | None, after: list[object]) -> MendResult:
    seen = context.host.stat(path)
    if seen is None:
        return context.ledger.publish(path, documents.encode(after))
    return MENDED if before == after else context.ledger.replace(path, documents.encode(after), seen=seen)


def _list_in_index(context: RepairContext, folder: Folder, sid: str, *, again: bool = False) -> MendResult:
    """List the session in the index. `again`: also if it has an entry, which may be out of date."""
    path = f"{folder.place}/{INDEX}"
    if context.host.stat(path) is None:
        return MENDED  # the WebUI makes it when it starts
    entries, found = folder.entries(), folder.document(folder.live(sid))
    if entries is None or found is None or (not again and sid in {documents.entry_id(one) for one in entries}):
        return MENDED
    kept = [one for one in entries if documents.entry_id(one) != sid]
    _write_index(context, path, entries, documents.newest_first([*kept, documents.index_entry(found, sid)]))
    return MENDED  # the session is back; if the index was changed meanwhile, the next audit reports it


ACTIONS: Mapping[str, Callable[[RepairContext, Fault], MendResult]] = MappingProxyType(
    {
        "rebuild_sidecar": rebuild_sidecar,
        "restore_backup": restore_backup,
        "rebuild_webui_index": rebuild_webui_index,
        "recover_turn": recover_turn,
    }
)
#: Whether one can be done is found out by the audit.
CHECKS: Mapping[str, Callable[[PlanContext, Fault], str]] = MappingProxyType({})
