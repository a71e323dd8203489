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
from dreamkeep.surfaces.mcp.protocol import ToolCall, ToolOutcome, encode_message, make_reply
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
            return encode_message(make_reply(call, self._outcome(call)).body)
        except Exception:
            return encode_message(make_reply(call, ToolOutcome({}, _report_internal_error(call.tool), failed=True)).body)

    def _outcome(self, call: ToolCall) -> ToolOutcome:
        try:
            arguments = check_arguments(_SCHEMAS[call.tool], call.arguments)
            return _ACTS[call.tool](self._open(call.tool), arguments)
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


def _pick(arguments: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: arguments[name] for name in names if name in arguments}


# -- reading


def _search(keep: Keep, arguments: dict[str, Any]) -> ToolOutcome:
    chosen = _pick(arguments, "kinds", "agent", "since", "as_of")
    if "project" in arguments:
        chosen["project"] = keep.project_named(arguments["project"])
    if "session" in arguments:
        chosen["session"] = keep.resolve(arguments["session"])
    hits = keep.search(arguments["query"], limit=arguments["limit"], **chosen)
    if not hits and "project" in chosen:
        _check_project(keep, arguments["project"], chosen["project"])
    return ToolOutcome(keep.outward({"hits": [hit.as_json() for hit in hits]}, longest=SHORT))


def _check_project(keep: Keep, name: str, project: str) -> None:
    """Refuse an unknown project: "nothing found" would be misleading if its name is only misspelt. Folders are accepted."""
    if name.startswith(("/", "~")) or keep.sessions(project=project, limit=1):
        return
    known = list(dict.fromkeys(one.project for one in keep.sessions(limit=_MANY_SESSIONS) if one.project))
    if not known or any(one["project"] == project for one in keep.notes(state=None)):
        return
    alike = [other for other in known if name.casefold() in other.casefold()] or known
    raise NotFound(
        f"unknown project {name[:100]!r}",
        where="project",
        next=f"Leave it out, or give the path of its folder or its name: {', '.join(alike[:10])}.",
    )


def _pack(keep: Keep, arguments: dict[str, Any]) -> ToolOutcome:
    made = keep.outward(keep.pack(**_pick(arguments, "query", "task", "project", "budget")), longest=_LONGEST_PACK)
    return ToolOutcome(made, made["text"])


def _timeline(keep: Keep, arguments: dict[str, Any]) -> ToolOutcome:
    if "around" in arguments and arguments["offset"]:
        raise BadUsage("around and offset exclude each other", where="arguments", next="Leave one of them out.")
    shown = keep.show(arguments["session"])
    messages = keep.digest(arguments["session"])["digest"] if arguments["digest"] else shown["messages"]
    limit = arguments["limit"]
    first = _find_start(messages, arguments["around"], limit) if "around" in arguments else arguments["offset"]
    page = keep.outward(
        {"session": shown["session"], "messages": messages[first : first + limit]}, longest=arguments["max_chars"]
    )
    page["messages"] = _cut_to_page(page["messages"], arguments["max_chars"])
    after = first + len(page["messages"])
    following = after if after < len(messages) and page["messages"] else None
    return ToolOutcome({**page, "total": len(messages), "first": first, "next": following})


def _find_start(messages: list[dict[str, Any]], seq: Any, limit: int) -> int:
    for n, message in enumerate(messages):
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


def _why(keep: Keep, arguments: dict[str, Any]) -> ToolOutcome:
    found = keep.dream_why(arguments["note"])
    note = {**found["note"], "evidence": found["note"]["evidence"][:_MANY]}
    some = {"note": note, "insights": found["insights"][:_MANY], "history": found["history"][-_MANY:]}
    more = max(len(found["insights"]), len(found["history"]), len(found["note"]["evidence"])) > _MANY
    return ToolOutcome(
        keep.outward({**some, **({"cut": f"each list shows at most {_MANY} items"} if more else {})}, longest=SHORT)
    )


def _review(keep: Keep, arguments: dict[str, Any]) -> ToolOutcome:
    project = keep.project_named(arguments["project"]) if "project" in arguments else None
    items = keep.review(project=project)["items"]
    if not items and project:
        _check_project(keep, arguments["project"], project)
    some = [
        {**one, **({"evidence": one["evidence"][:_MANY]} if "evidence" in one else {})} for one in items[: arguments["limit"]]
    ]
    answer = {"items": some, "total": len(items), "next": _DECIDE if items else "Nothing is waiting."}
    return ToolOutcome(keep.outward(answer, longest=SHORT))


def _status(keep: Keep, arguments: dict[str, Any]) -> ToolOutcome:
    found = keep.dream_status()
    counts = Counter(one["eligibility"] for one in found["sessions"])
    waiting = sorted(found["sessions"], key=lambda one: (one["eligibility"] == "already_consolidated", not one["failure_reason"]))
    answer = {key: found[key] for key in ("trigger", "running", "last_successful_run_at")}
    report = found["last_report"]
    if report:
        answer["last_report"] = _shorten_report(report, arguments["limit"])
    return ToolOutcome(keep.outward({**answer, "counts": dict(counts), "sessions": waiting[: arguments["limit"]]}, longest=SHORT))


def _shorten_report(report: Mapping[str, Any], limit: int) -> dict[str, Any]:
    return {**report, **{name: list(report.get(name, ()))[:limit] for name in ("sessions", "pages", "given_up")}}


# -- writing


def _note_add(keep: Keep, arguments: dict[str, Any]) -> ToolOutcome:
    project = keep.project_named(arguments["project"]) if "project" in arguments else ""
    made = keep.note_suggest(arguments["text"], kind=arguments["kind"], project=project, **_pick(arguments, "session", "quote"))
    return _answer_note(keep, made, **_hint_at_suggestion(made))


def _note_pin(keep: Keep, arguments: dict[str, Any]) -> ToolOutcome:
    return _answer_note(keep, keep.note_change(arguments["note"], "pin" if arguments["pinned"] else "unpin", by="agent"))


def _note_retract(keep: Keep, arguments: dict[str, Any]) -> ToolOutcome:
    note = keep.note_change(arguments["note"], "retract", reason=arguments.get("reason", ""), by="agent")
    if note["state"] != "active":
        return _answer_note(keep, note, retracted=True)
    hint = f"The note is still active. Only the user can retract it: `dreamkeep note retract {note['id']}`."
    return _answer_note(keep, note, retracted=False, next=hint)


def _hint_at_suggestion(note: dict[str, Any] | None) -> dict[str, str]:
    """What to tell the user about a note that is only suggested."""
    if not note or note["state"] != "suggested":
        return {}
    id = note["id"]
    return {"next": f"A suggestion: the user runs `dreamkeep note confirm {id}` to keep it, or `dreamkeep note reject {id}`."}


def _answer_note(keep: Keep, note: dict[str, Any], **more: Any) -> ToolOutcome:
    return ToolOutcome(keep.outward({"note": {**note, "evidence": note["evidence"][:_MANY]}, **more}, longest=SHORT))


def _insight_add(keep: Keep, arguments: dict[str, Any]) -> ToolOutcome:
    chosen = _pick(arguments, "session", "quote", "task")
    if "project" in arguments:
        chosen["project"] = keep.project_named(arguments["project"])
    made = keep.add_insight(arguments["type"], arguments["text"], author=arguments["author"], **chosen)
    return ToolOutcome(keep.outward({**made, **_hint_at_suggestion(made["note"])}, longest=SHORT))


def _dream_run(keep: Keep, arguments: dict[str, Any]) -> ToolOutcome:
    chosen = arguments.get("sessions", ())
    made = keep.dream(sessions=chosen, limit=arguments["limit"], dry_run=arguments["dry_run"])
    if made["lock"] == "busy":
        raise Busy(
            f"another dream is running; {made['waiting']} sessions are waiting",
            where="dream_run",
            next="Check `dream_status` later.",
        )
    return ToolOutcome(keep.outward(_shorten_report(made, _MANY), longest=SHORT))


def _dream_next(keep: Keep, arguments: dict[str, Any]) -> ToolOutcome:
    return ToolOutcome(
        keep.outward(keep.dream_next(arguments.get("session", ""), again=arguments["again"]), longest=_LONGEST_REQUEST)
    )


def _dream_submit(keep: Keep, arguments: dict[str, Any]) -> ToolOutcome:
    made = keep.dream_submit(arguments["request"], arguments["answer"])
    answer = {name: made[name] for name in ("status", "session", "run", "insights_added", "notes", "dropped", "problems", "next")}
    failed = [one for one in made["sessions"] if one["status"] == "failed"]
    return ToolOutcome(keep.outward({**answer, **({"failed": failed} if failed else {})}, longest=_LONGEST_REQUEST))


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
