"""What is wrong with the set-up, and what to do about it. Reads only, except that the index may be brought up to date."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from dreamkeep.capture.quota import NEXT, RESERVE_NEXT
from dreamkeep.errors import DreamkeepError
from dreamkeep.event import Event, Kind
from dreamkeep.host import Host
from dreamkeep.index import open as index
from dreamkeep.index.store import Store
from dreamkeep.journal.places import KEEP
from dreamkeep.journal.scan import read_events
from dreamkeep.memory.tables import PAGES
from dreamkeep.recovery.audit.dreams import left_alone
from dreamkeep.recovery.delete.delete import ASIDE, INTENTS
from dreamkeep.recovery.faults import counted
from dreamkeep.recovery.isolate import TROUBLE, describe_error
from dreamkeep.recovery.repair.ledger import PREFIX
from dreamkeep.session import raw

#: File systems whose locks, renames or syncs may not be what a journal needs.
_SHARED = (
    *("nfs", "cifs", "smb", "9p", "fuse", "afs", "ceph", "gluster", "lustre", "virtiofs", "vboxsf", "drvfs", "webdav", "osxfuse"),
)

Ask = Callable[[Callable[[Store], Any]], Any]
Check = Callable[[Host, str, Ask], Iterator[dict[str, Any]]]


def examine(
    host: Host, root: str, ask: Ask, strays: Callable[[], Sequence[str]], more: Sequence[Check] = ()
) -> list[dict[str, Any]]:
    """Entries `{check, ok, what, next}`. `strays`: what could not be indexed when the journals were last read."""
    if host.stat(root) is None or host.stat(f"{root}/journal") is None:
        return [_entry("keep", True, f"no keep at {root} yet; it is created when the first session is recorded")]
    checks = (_folder, _file_system, _switch, _index, _journals, _garbled, _unfinished, _aside, _pages, *more)
    entries = [entry for check in checks for entry in guarded(check.__name__.strip("_"), partial(check, host, root, ask))]
    way_out = "Its contents are not shown. Check that it is readable; if it doesn't belong there, remove it."
    return [*entries, *(_entry("stray", False, stray, way_out) for stray in strays())]


def around(*, off: bool, meaning: bool) -> list[dict[str, Any]]:
    """The environment. `off`: capture is switched off there. `meaning`: a model for search is installed."""
    found = [_entry("switch", False, "capture is off: DREAMKEEP_OFF is set", "unset DREAMKEEP_OFF")] if off else []
    if not meaning:
        what = "`search` matches words only: no embedding model is installed"
        found.append(_entry("search", True, what, "to search by meaning, pip install 'dreamkeep[embed]'; it runs offline"))
    return found


def dreams(given_up: Callable[[], tuple[str, str]]) -> Check:
    """`given_up`: a sentence on what no dream tries any more ("" for nothing), and what to do."""

    def dream(host: Host, root: str, ask: Ask) -> Iterator[dict[str, Any]]:
        what, way_out = given_up()
        if what:
            yield _entry("dream", False, what, f"{way_out}; `dreamkeep dream status` lists them.")

    return dream


def disk(room: Callable[[], dict[str, Any]]) -> Check:
    """`room`: the free space on the keep's disk, and the reserve."""

    def space(host: Host, root: str, ask: Ask) -> Iterator[dict[str, Any]]:
        left = room()
        what = f"{left['free'] >> 20} MiB free"
        if not left["short"]:
            yield _entry("space", True, what)
            return
        what += f", less than the {left['reserve'] >> 20} MiB reserve: no transcripts are imported until there is more"
        yield _entry("space", False, f"{what}; hooks, the tap and Python sessions keep recording while they can", RESERVE_NEXT)

    return space


def sources(paused: Callable[[], list[dict[str, str]]]) -> Check:
    """`paused`: the sources that are over their own limit."""

    def source(host: Host, root: str, ask: Ask) -> Iterator[dict[str, Any]]:
        for one in paused():
            yield _entry(
                "source", False, f"{one['source']}: {one['problem']}", "`dreamkeep ingest` continues as soon as the limit allows."
            )

    return source


def agents(problems: Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
    """`problems`: (entry point, reason) of agents of other packages that can't be used."""
    way = "Mend or uninstall the package that offers it; all other agents are captured."
    return [_entry("agents", False, f"the agent `{offered}` can't be used: {why}", way) for offered, why in problems]


def quota(used: int, limit: int) -> list[dict[str, Any]]:
    what = f"the keep uses {used / (1 << 20):,.1f} of {limit / (1 << 20):,.1f} MiB"
    if used <= limit:
        return [_entry("quota", True, what)]
    what += ": no transcripts are imported until it is below the quota; hooks and the tap keep recording"
    return [_entry("quota", False, what, NEXT)]


def _cost(line: str) -> str:
    """What a hook's problem cost, by its line in the log (capture/hook.py)."""
    return "an agent got no pack" if " (no pack) " in line else "a hook call was not recorded"


def hooks(host: Host, root: str, lost: Sequence[tuple[str, str]], waiting: int, stuck: int) -> list[dict[str, Any]]:
    """Hook calls that could not be recorded, and those that are not in a journal yet."""
    found = [
        _entry("hook", False, f"{_cost(line)}: {line}", f"Fix the cause; then `dreamkeep audit` says how to clear this: {path}")
        for path, line in lost
    ]
    log = host.stat(f"{root}/state/drain.log")
    if log and log.size:
        found.append(_entry("drain", False, "the last drain reported a problem", f"Read {root}/state/drain.log"))
    log = host.stat(f"{root}/state/dream.log")
    if log and log.size:
        what = "the last automatic dream reported a problem"
        found.append(_entry("dream", False, what, f"Read {root}/state/dream.log; `dreamkeep dream status` shows each session"))
    if stuck:
        what = f"{counted(stuck, 'batch', 'batches')} of hook calls could not be moved into the journals yet"
        found.append(_entry("spool", False, what, "`dreamkeep drain` says why; they are kept until it works."))
    elif waiting:
        found.append(
            _entry(
                "spool",
                True,
                f"{counted(waiting, 'hook call is', 'hook calls are')} waiting to be moved into the journals",
                "dreamkeep drain",
            )
        )
    return found


def guarded(name: str, look: Callable[[], Iterable[dict[str, Any]]]) -> list[dict[str, Any]]:
    """A check that fails is an entry, and the other checks go on."""
    try:
        return list(look())
    except DreamkeepError as problem:
        return [_entry(name, False, f"{problem.what} ({problem.where})", problem.next)]
    except TROUBLE as problem:
        return [_entry(name, False, f"can't check: {describe_error(problem)}", "Check that this user can read the keep.")]


def _entry(check: str, ok: bool, what: str, step: str = "") -> dict[str, Any]:
    return {"check": check, "ok": ok, "what": what, "next": step}


def _folder(host: Host, root: str, ask: Ask) -> Iterator[dict[str, Any]]:
    found = host.stat(root)
    assert found is not None, "examined only when it is there"
    private = not found.mode & 0o077
    yield _entry(
        "folder",
        private,
        f"{root} is {'private' if private else f'open to others (mode {found.mode:o})'}",
        "" if private else f"chmod 700 {root}",
    )


def _file_system(host: Host, root: str, ask: Ask) -> Iterator[dict[str, Any]]:
    kind = host.file_system(root)
    shared = kind.lower().startswith(_SHARED)
    yield _entry(
        "file_system",
        not shared,
        f"the file system is {kind or 'unknown'}",
        "Locks and syncs are not reliable there: move the keep to a local disk." if shared else "",
    )


def _switch(host: Host, root: str, ask: Ask) -> Iterator[dict[str, Any]]:
    if host.stat(f"{root}/OFF") is not None:
        yield _entry("switch", False, "capture is off: there is a file named OFF", f"rm {root}/OFF")


def _index(host: Host, root: str, ask: Ask) -> Iterator[dict[str, Any]]:
    problem = index.problem(host, root)
    if problem:
        yield _entry("index", False, problem, "dreamkeep reindex --from-zero")
        return
    counts = ask(lambda store: store.counts())
    yield _entry("index", True, f"sessions: {counts.sessions}, messages: {counts.messages}")


def _journals(host: Host, root: str, ask: Ask) -> Iterator[dict[str, Any]]:
    faults = [found for found in ask(lambda store: store.faults()) if not found[1].mended]
    for session, fault in faults[:20]:
        lost = ", ".join(f"{a}–{b}" if b > a else f"{a}" for a, b in fault.missing)
        place = f"part {fault.part} at byte {fault.offset}" if fault.part else f"frame {fault.offset}"
        yield _entry(
            "journal",
            False,
            f"{session or 'the keep itself'}: {fault.kind} in {place}" + (f", seq {lost} missing" if lost else ""),
            "Everything readable around it is read; the damaged bytes stay where they are.",
        )
    if len(faults) > 20:
        yield _entry("journal", False, f"… and {len(faults) - 20} more", "`dreamkeep show SESSION` lists those of one session.")
    if not faults:
        yield _entry("journal", True, "no damage found")


def _garbled(host: Host, root: str, ask: Ask) -> Iterator[dict[str, Any]]:
    """Hook calls that can't be parsed, so they belong to no session. They are kept, so this is no problem of the keep."""
    fired = (event for _, event in read_events(host, f"{root}/{KEEP}") if event.kind == Kind.HOOK_FIRED)
    calls = [call for event in fired for call in _unparsed_calls(event)]
    if calls:
        last = calls[-1]
        by = f"{last.get('agent')} {last.get('event')} at {last.get('at')}"
        what = f"hook calls that were not a JSON object: {len(calls)}, the last from {by}"
        yield _entry("hook", True, what, "They are kept raw in the keep's own journal. Check what calls `dreamkeep hook`.")


def _unparsed_calls(event: Event) -> Iterator[dict[str, Any]]:
    try:
        calls = list(zip(event.body["calls"], raw.contents(event.body), strict=False))
    except (KeyError, TypeError, ValueError, AttributeError):
        return  # not a batch of calls: anybody may have written it
    for call, data in calls:
        if isinstance(call, dict) and isinstance(data, bytes) and data.strip():
            yield call


def _unfinished(host: Host, root: str, ask: Ask) -> Iterator[dict[str, Any]]:
    folder = f"{root}/{INTENTS}"
    count = len(host.names(folder)) if host.stat(folder) else 0
    if count:
        yield _entry(
            "delete",
            False,
            counted(count, "deletion was interrupted", "deletions were interrupted"),
            "The next command that writes finishes them.",
        )


def _pages(host: Host, root: str, ask: Ask) -> Iterator[dict[str, Any]]:
    known = ask(lambda store: [body for _, body in store.memory_table(PAGES)])
    way_out = "Leave exactly one pair of dreamkeep's fences in it, or none; the next dream writes it."
    for path, reason in left_alone(host, root, known):
        yield _entry("page", False, f"dreams don't write {path}: {reason}", way_out)


def _aside(host: Host, root: str, ask: Ask) -> Iterator[dict[str, Any]]:
    folder = f"{root}/{ASIDE}"
    names = host.names(folder) if host.stat(folder) else []
    count = sum(name.endswith(".tail") for name in names)
    repairs = sum(name.startswith(PREFIX) for name in names)
    if repairs:
        what = f"what {counted(repairs, 'repair', 'repairs')} replaced is kept in {folder}"
        yield _entry("aside", True, what, "`dreamkeep repair --undo ID` brings it back.")
    if count:
        yield _entry(
            "aside",
            True,
            f"{counted(count, 'unfinished append', 'unfinished appends')} set aside in {folder}, never acknowledged",
        )
