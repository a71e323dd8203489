"""What the tools do: check the arguments, call one verb of `Keep`, and answer the model.

The first call opens the keep: greeting a client must not wait for it, and a keep that can't be opened now may be fixed before
the next call. Every answer passes `Keep.outward` (marked, masked, cut). An error is an answer, too: what, where and what to
do next. An internal error is also reported on stderr with its trace, and the server goes on.
"""

from __future__ import annotations

import json
import sys
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from dreamkeep.errors import BadUsage, Busy, DreamkeepError, NotFound, cannot_read
from dreamkeep.surfaces.mcp.arguments import check_arguments
from dreamkeep.surfaces.mcp.protocol import ToolCall, ToolOutcome, settled, written
from dreamkeep.surfaces.mcp.tools import SHORT, TOOLS

if TYPE_CHECKING:
    from dreamkeep.keep import Keep

    Act = Callable[[Keep, dict[str, Any]], ToolOutcome]

_SCHEMAS = {tool["name"]: tool["inputSchema"] for tool in TOOLS}
_READING = frozenset(tool["name"] for tool in TOOLS if tool["annotations"]["readOnlyHint"])
#: These drain the spool first: the answer must include the latest hook calls, perhaps of the very session that asks.
_FRESH = frozenset(("search", "timeline", "pack", "insight_add", "note_add", "dream_next"))
#: A timeline answers at most so many characters at once.
_PAGE = 100_000
_MANY = 50
_MANY_SESSIONS = 1_000
_LONGEST_PACK = 400_000
_DECIDE = (
    "Only the user can decide, with `dreamkeep review`, or `dreamkeep review --accept ID` and `dreamkeep review --reject ID`."
)
#: A request must not be cut: an answer to half of it is useless.
_LONGEST_REQUEST = 1_000_000


class Tools:
    """The tools on one keep, which the first call opens. Opening may fail; the next call tries again."""

    def __init__(self, open_keep: Callable[[], Keep]) -> None:
        self._open_keep = open_keep
        self._opening = threading.Lock()
        self._keep: Keep | None = None

    def answer(self, call: ToolCall) -> bytes:
        """The response to a call. Never raises."""
        try:
            return written(settled(call, self._outcome(call)).body)
        except Exception:
            return written(settled(call, ToolOutcome({}, _report_internal_error(call.tool), failed=True)).body)

    def _outcome(self, call: ToolCall) -> ToolOutcome:
        try:
            given = check_arguments(_SCHEMAS[call.tool], call.arguments)
            return _ACTS[call.tool](self._open(call.tool), given)
        except DreamkeepError as problem:
            return ToolOutcome({}, _describe_problem(problem), failed=True)
        except OSError as problem:
            return ToolOutcome({}, _describe_problem(cannot_read(problem, call.tool)), failed=True)

    def close(self) -> None:
        with self._opening:
            if self._keep is not None:
                self._keep.close()
                self._keep = None

    def _open(self, tool: str) -> Keep:
        with self._opening:
            if self._keep is None:
                keep = self._open_keep()
                keep.warn = _warn
                self._keep = keep
            keep = self._keep
        if (tool in _READING or tool.startswith("dream_")) and not keep.exists():
            raise NotFound(
                "there is no keep yet: nothing has been captured on this machine",
                where=keep.root,
                next="Tell the user to run `dreamkeep init` (captures new sessions) or `dreamkeep ingest` (imports old ones).",
            )
        if tool in _FRESH:
            keep.take_in()
        return keep


def _describe_problem(problem: DreamkeepError) -> str:
    """The error as text, masked because it may quote the arguments."""
    from dreamkeep.verbs.standalone import mask_secrets

    return mask_secrets(str(problem))


def _warn(line: str) -> None:
    from dreamkeep.verbs.standalone import mask_secrets

    print(f"dreamkeep: {mask_secrets(line)}", file=sys.stderr, flush=True)


def _report_internal_error(tool: str) -> str:
    import traceback

    _warn(f"internal error of dreamkeep in the tool {tool}:\n{traceback.format_exc()}")
    kind = type(sys.exception()).__name__
    return (
        f"dreamkeep failed in the tool {tool} ({kind}). This is an internal error: your arguments are fine. Go on without it and"
        " tell the user; the server's stderr has the details."
    )


def _pick(given: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: given[name] for name in names if name in given}


# -- reading


def _search(keep: Keep, given: dict[str, Any]) -> ToolOutcome:
    chosen = _pick(given, "kinds", "agent", "since", "as_of")
    if "project" in given:
        chosen["project"] = keep.project_named(given["project"])
    if "session" in given:
        chosen["session"] = keep.resolve(given["session"])
    hits = keep.search(given["query"], limit=given["limit"], **chosen)
    if not hits and "project" in chosen:
        _check_project(keep, given["project"], chosen["project"])
    return ToolOutcome(keep.outward({"hits": [hit.as_json() for hit in hits]}, longest=SHORT))


def _check_project(keep: Keep, said: str, project: str) -> None:
    """Refuse an unknown project: "nothing found" would be misleading if its name is only misspelt. Folders are accepted."""
    if said.startswith(("/", "~")) or keep.sessions(project=project, limit=1):
        return
    known = list(dict.fromkeys(one.project for one in keep.sessions(limit=_MANY_SESSIONS) if one.project))
    if not known or any(one["project"] == project for one in keep.notes(state=None)):
        return
    alike = [one for one in known if said.casefold() in one.casefold()] or known
    raise NotFound(
        f"unknown project {said[:100]!r}",
        where="project",
        next=f"Leave it out, or give the path of its folder or its name: {', '.join(alike[:10])}.",
    )


def _pack(keep: Keep, given: dict[str, Any]) -> ToolOutcome:
    made = keep.outward(keep.pack(**_pick(given, "query", "task", "project", "budget")), longest=_LONGEST_PACK)
    return ToolOutcome(made, made["text"])


def _timeline(keep: Keep, given: dict[str, Any]) -> ToolOutcome:
    if "around" in given and given["offset"]:
        raise BadUsage("around and offset exclude each other", where="arguments", next="Leave one of them out.")
    shown = keep.show(given["session"])
    said, limit = keep.digest(given["session"])["digest"] if given["digest"] else shown["messages"], given["limit"]
    first = _find_start(said, given["around"], limit) if "around" in given else given["offset"]
    page = keep.outward({"session": shown["session"], "messages": said[first : first + limit]}, longest=given["max_chars"])
    page["messages"] = _cut_to_page(page["messages"], given["max_chars"])
    after = first + len(page["messages"])
    following = after if after < len(said) and page["messages"] else None
    return ToolOutcome({**page, "total": len(said), "first": first, "next": following})


def _find_start(said: list[dict[str, Any]], seq: Any, limit: int) -> int:
    for n, message in enumerate(said):
        if str(message["seq"]) == str(seq):
            return max(0, n - limit // 2)
    raise NotFound(f"it has no message {str(seq)[:40]!r}", where="around", next="Give the seq of a hit, or no `around`.")


def _cut_to_page(messages: list[dict[str, Any]], longest: int) -> list[dict[str, Any]]:
    """As many messages as fit into one answer, at least one. A tool input that is too long as a whole is cut like a text."""
    found: list[dict[str, Any]] = []
    room = _PAGE
    for message in messages:
        tool = message.get("tool")
        if tool and len(text := json.dumps(tool.get("input"), ensure_ascii=False)) > longest:
            message = {**message, "tool": {**tool, "input": f"{text[:longest]}… [{len(text) - longest} more characters]"}}
        room -= len(json.dumps(message, ensure_ascii=False))
        if room < 0 and found:
            break
        found.append(message)
    return found


def _why(keep: Keep, given: dict[str, Any]) -> ToolOutcome:
    found = keep.dream_why(given["note"])
    note = {**found["note"], "evidence": found["note"]["evidence"][:_MANY]}
    some = {"note": note, "insights": found["insights"][:_MANY], "history": found["history"][-_MANY:]}
    more = max(len(found["insights"]), len(found["history"]), len(found["note"]["evidence"])) > _MANY
    return ToolOutcome(
        keep.outward({**some, **({"cut": f"each list shows at most {_MANY} items"} if more else {})}, longest=SHORT)
    )


def _review(keep: Keep, given: dict[str, Any]) -> ToolOutcome:
    project = keep.project_named(given["project"]) if "project" in given else None
    items = keep.review(project=project)["items"]
    if not items and project:
        _check_project(keep, given["project"], project)
    some = [{**one, **({"evidence": one["evidence"][:_MANY]} if "evidence" in one else {})} for one in items[: given["limit"]]]
    told = {"items": some, "total": len(items), "next": _DECIDE if items else "Nothing is waiting."}
    return ToolOutcome(keep.outward(told, longest=SHORT))


def _status(keep: Keep, given: dict[str, Any]) -> ToolOutcome:
    found = keep.dream_status()
    counts = Counter(one["eligibility"] for one in found["sessions"])
    waiting = sorted(found["sessions"], key=lambda one: (one["eligibility"] == "already_consolidated", not one["failure_reason"]))
    told = {key: found[key] for key in ("trigger", "running", "last_successful_run_at")}
    report = found["last_report"]
    if report:
        told["last_report"] = _shorten_report(report, given["limit"])
    return ToolOutcome(keep.outward({**told, "counts": dict(counts), "sessions": waiting[: given["limit"]]}, longest=SHORT))


def _shorten_report(report: Mapping[str, Any], limit: int) -> dict[str, Any]:
    return {**report, **{name: list(report.get(name, ()))[:limit] for name in ("sessions", "pages", "given_up")}}


# -- writing


def _note_add(keep: Keep, given: dict[str, Any]) -> ToolOutcome:
    project = keep.project_named(given["project"]) if "project" in given else ""
    made = keep.note_suggest(given["text"], kind=given["kind"], project=project, **_pick(given, "session", "quote"))
    return _answer_note(keep, made, **_hint_at_suggestion(made))


def _note_pin(keep: Keep, given: dict[str, Any]) -> ToolOutcome:
    return _answer_note(keep, keep.note_change(given["note"], "pin" if given["pinned"] else "unpin", by="agent"))


def _note_retract(keep: Keep, given: dict[str, Any]) -> ToolOutcome:
    note = keep.note_change(given["note"], "retract", reason=given.get("reason", ""), by="agent")
    if note["state"] != "active":
        return _answer_note(keep, note, retracted=True)
    told = f"The note is still active. Only the user can retract it: `dreamkeep note retract {note['id']}`."
    return _answer_note(keep, note, retracted=False, next=told)


def _hint_at_suggestion(note: dict[str, Any] | None) -> dict[str, str]:
    """What to tell the user about a note that is only suggested."""
    if not note or note["state"] != "suggested":
        return {}
    id = note["id"]
    return {"next": f"A suggestion: the user runs `dreamkeep note confirm {id}` to keep it, or `dreamkeep note reject {id}`."}


def _answer_note(keep: Keep, note: dict[str, Any], **more: Any) -> ToolOutcome:
    return ToolOutcome(keep.outward({"note": {**note, "evidence": note["evidence"][:_MANY]}, **more}, longest=SHORT))


def _insight_add(keep: Keep, given: dict[str, Any]) -> ToolOutcome:
    chosen = _pick(given, "session", "quote", "task")
    if "project" in given:
        chosen["project"] = keep.project_named(given["project"])
    made = keep.add_insight(given["type"], given["text"], author=given["author"], **chosen)
    return ToolOutcome(keep.outward({**made, **_hint_at_suggestion(made["note"])}, longest=SHORT))


def _dream_run(keep: Keep, given: dict[str, Any]) -> ToolOutcome:
    chosen = given.get("sessions", ())
    made = keep.dream(sessions=chosen, limit=given["limit"], dry_run=given["dry_run"])
    if made["lock"] == "busy":
        raise Busy(
            f"another dream is running; {made['waiting']} sessions are waiting",
            where="dream_run",
            next="Check `dream_status` later.",
        )
    return ToolOutcome(keep.outward(_shorten_report(made, _MANY), longest=SHORT))


def _dream_next(keep: Keep, given: dict[str, Any]) -> ToolOutcome:
    return ToolOutcome(keep.outward(keep.dream_next(given.get("session", ""), again=given["again"]), longest=_LONGEST_REQUEST))


def _dream_submit(keep: Keep, given: dict[str, Any]) -> ToolOutcome:
    made = keep.dream_submit(given["request"], given["answer"])
    told = {name: made[name] for name in ("status", "session", "run", "insights_added", "notes", "dropped", "problems", "next")}
    failed = [one for one in made["sessions"] if one["status"] == "failed"]
    return ToolOutcome(keep.outward({**told, **({"failed": failed} if failed else {})}, longest=_LONGEST_REQUEST))


_ACTS: Mapping[str, Act] = {
    "search": _search,
    "pack": _pack,
    "timeline": _timeline,
    "note_add": _note_add,
    "note_pin": _note_pin,
    "note_retract": _note_retract,
    "why": _why,
    "insight_add": _insight_add,
    "review": _review,
    "dream_status": _status,
    "dream_run": _dream_run,
    "dream_next": _dream_next,
    "dream_submit": _dream_submit,
}
