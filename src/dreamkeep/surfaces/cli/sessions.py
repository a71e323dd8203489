"""Sessions and projects on the command line: listed, shown, ended, deleted, restored, renamed."""

from __future__ import annotations

import shlex
import sys
import time
from argparse import Namespace
from collections.abc import Iterator, Mapping
from typing import Any

from dreamkeep.errors import BadUsage
from dreamkeep.keep import Keep
from dreamkeep.surfaces.cli import text
from dreamkeep.surfaces.cli.commands import VerbAnswer, find_project
from dreamkeep.surfaces.cli.look import paint

_FOLLOW_EVERY_S = 0.5
_STATES = {"active": "green", "suspended": "yellow", "ended": "dim"}
_MARK_COLOURS = {"completed": "green", "failed": "red", "interrupted": "yellow"}
_MARKS = {"completed": "✓", "failed": "✗", "cancelled": "–", "interrupted": "!", "started": "…", "submitted": "…", "open": "?"}


def sessions(keep: Keep, arguments: Namespace) -> VerbAnswer:
    found = keep.sessions(project=find_project(keep, arguments), agent=arguments.agent, limit=arguments.limit)
    return VerbAnswer({"sessions": [keep.as_json(s) for s in found]}, _describe_sessions)


def _describe_sessions(data: dict[str, Any]) -> str:
    found = data["sessions"]
    if not found:
        return "No sessions."
    head = ["SESSION", "STATE", "TURNS", "LAST (UTC)", "TITLE"]
    rows = [[text.line(s["id"]), s["state"], str(s["turns"]), text.clock(s["last_at"]), text.line(s["title"])] for s in found]
    return text.table([head, *rows], _STATES)


def end(keep: Keep, arguments: Namespace) -> VerbAnswer:
    ended = keep.as_json(keep.end(arguments.session))
    keep.start_dream()
    return VerbAnswer(ended, _describe_state)


def suspend(keep: Keep, arguments: Namespace) -> VerbAnswer:
    return VerbAnswer(keep.as_json(keep.suspend(arguments.session)), _describe_state)


def resume(keep: Keep, arguments: Namespace) -> VerbAnswer:
    return VerbAnswer(keep.as_json(keep.resume(arguments.session)), _describe_state)


def _describe_state(session: dict[str, Any]) -> str:
    return f"{session['id']} is {session['state']}."


def delete(keep: Keep, arguments: Namespace) -> VerbAnswer:
    gone = [{**keep.as_json(one), "state": "deleted"} for one in keep.delete_all(arguments.session)]
    if len(arguments.session) == 1:
        return VerbAnswer(gone[0], _describe_state)
    return VerbAnswer({"sessions": gone}, lambda data: "\n".join(map(_describe_state, data["sessions"])))


def undelete(keep: Keep, arguments: Namespace) -> VerbAnswer:
    session = keep.undelete(arguments.session)
    return VerbAnswer({"id": session, "state": "undeleted"}, lambda data: f"{data['id']} can be captured again.")


def restore(keep: Keep, arguments: Namespace) -> VerbAnswer:
    done = keep.restore(
        arguments.session,
        arguments.to,
        home=arguments.home,
        cwd=arguments.cwd,
        generation=arguments.generation,
        convert=arguments.convert,
        dry_run=arguments.dry_run,
    )
    return VerbAnswer(done, _describe_restored)


def _describe_restored(done: dict[str, Any]) -> str:
    would = "would be " if done["dry_run"] else ""
    lines = []
    for file in done["files"]:
        how = _how_exact(file)
        how = "what is left of it in the journal" if file.get("damaged") else how
        lines.append(f"{would}{file['action']}  {text.line(file['path'])}  ({text.size(file['bytes'])}, {how})")
        if file.get("aside"):
            lines.append(f"  the previous file is kept as {text.line(file['aside'])}")
    lines += [text.line(note) for note in done["notes"]]
    lines += [f"lost: {one['count']} × {one['what']}" for one in done["lost"]]
    if done["resume"]:
        lines.append(f"Resume with: {text.line(done['resume'])}")
    return "\n".join(lines)


def _how_exact(file: Mapping[str, Any]) -> str:
    if file["exact"]:
        return "byte for byte"
    told = next((word for word in ("damaged", "masked") if file.get(word)), "")
    return told or ("converted" if file.get("role") in (None, "main") else str(file["role"]))


# -- one session


def show(keep: Keep, arguments: Namespace) -> VerbAnswer | int:
    if arguments.raw:
        return _print_raw(keep, arguments)
    if arguments.digest:
        return VerbAnswer(keep.digest(arguments.session), _describe_digest)
    if arguments.follow:
        return _follow(keep, arguments)
    return VerbAnswer(_find_shown(keep, arguments), keep.markdown if arguments.markdown else _describe_session)


def _find_shown(keep: Keep, arguments: Namespace) -> dict[str, Any]:
    data = keep.show(arguments.session, live=arguments.live)
    if arguments.lineage:
        data["lineage"] = keep.lineage(data["session"]["id"])
    return _select_segment(data, arguments.segment) if arguments.segment else data


def _print_raw(keep: Keep, arguments: Namespace) -> int:
    """What agents wrote, as they wrote it: bytes on stdout, or a list of it as JSON."""
    found = keep.raw(arguments.session)
    if arguments.json:
        lines = [{**about, "line": line.decode("utf-8", "backslashreplace")} for about, line in found]
        print(text.json_text({"raw": lines}))
        return 0
    if sys.stdout.isatty():
        # A terminal would obey escape sequences in it. The exact bytes go only to a file or a pipe.
        for _, line in found:
            text.out(line.decode("utf-8", "backslashreplace").rstrip("\n"))
        return 0
    for _, line in found:
        sys.stdout.buffer.write(line)
    sys.stdout.buffer.flush()
    return 0


def _select_segment(data: dict[str, Any], which: str) -> dict[str, Any]:
    """Only one segment of a session. A turn that spans its boundary is included with both ends."""
    found = data["segments"]
    number = len(found) if which == "current" else int(which) if which.isascii() and which.isdigit() else 0
    if not 1 <= number <= len(found):
        raise BadUsage(f"no segment {which!r}", where="--segment", next=f"Use `current`, or 1 to {len(found)}.")
    segment = found[number - 1]
    ends = _find_bookends(data["messages"], {segment["carried_turn"], segment["continued_turn"]})
    said = [m for m in data["messages"] if m["segment"] == segment["id"] or m["seq"] in ends]
    return {
        **data,
        "segments": [segment],
        "messages": said,
        "turns": [t for t in data["turns"] if t["id"] in {m["turn"] for m in said}],
    }


def _find_bookends(said: list[dict[str, Any]], turns: set[str | None]) -> set[Any]:
    """The seqs of the prompt and the last answer of turns that span a boundary."""
    ends = set()
    for turn in turns - {None}:
        mine = [m for m in said if m["turn"] == turn and not m.get("mark")]
        ends |= {m["seq"] for m in mine if m["role"] == "user"} if mine else set()
        last = [m["seq"] for m in mine if m["role"] == "assistant" and m["text"]]
        ends |= set(last[-1:])
    return ends


def _follow(keep: Keep, arguments: Namespace) -> int:
    """Print the messages so far, then new ones as they come. A message that changes is printed again."""
    shown: dict[str, str] = {}
    try:
        while True:
            for message in keep.masked(_find_shown(keep, arguments))["messages"]:
                key = str(message["seq"])
                if shown.get(key) != message["text"]:
                    shown[key] = message["text"]
                    text.out(text.json_text(message) if arguments.json else _describe_message(message))
            time.sleep(_FOLLOW_EVERY_S)
    except KeyboardInterrupt:
        return 0


def _describe_digest(data: dict[str, Any]) -> str:
    lines = [f"[{one['seq']}] {one['what']}: {text.clean(one['text'])}" for one in data["digest"]]
    return "\n".join([*lines, f"{data['tokens']} tokens"])


def _describe_session(data: dict[str, Any]) -> str:
    s = data["session"]
    lines = [
        f"{text.line(s['id'])}  {paint(s['state'], _STATES.get(s['state'], ''))}  {paint(text.line(s['title']), 'bold')}",
        f"  project {text.line(s['project'])}   {s['turns']} turns, {s['messages']} messages, {text.size(s['bytes'])}",
        f"  {text.clock(s['started_at'])} – {text.clock(s['last_at'])} UTC" if s["last_at"] else "  no timestamps yet",
    ]
    lines += [_describe_fault(f) for f in data["faults"]]
    lines += _describe_context(data)
    turns = {t["id"]: t for t in data["turns"]}
    shown = segment = None
    for m in data["messages"]:
        if segment is not None and m["segment"] != segment:
            lines += ["", f"──────── {_find_end_reason(data, segment)} ────────"]
        segment = m["segment"]
        if m["turn"] != shown and m["turn"] in turns:
            shown = m["turn"]
            t = turns[shown]
            reason = f" ({text.line(t['reason'])})" if t.get("reason") else ""
            mark = paint(_MARKS.get(t["state"], " "), _MARK_COLOURS.get(t["state"], ""))
            head = f"turn {text.line(shown[:8])}…{text.line(shown[-4:])}  {t['state']}{reason}"
            lines += ["", f"{mark} {paint(head, 'dim')}"]
        lines.append(_describe_message(m))
    return "\n".join(lines)


def _describe_message(m: dict[str, Any]) -> str:
    tool = m.get("tool") or {}
    name = f" [{text.line(str(tool.get('name', 'tool')))}]" if tool else ""
    mark = f" ({m['mark']})" if m.get("mark") else ""
    said = text.clean(m["text"])
    if not said and tool:
        said = text.line(text.json_text(tool["input"])) if tool.get("input") is not None else "(nothing)"
    role = paint(f"{text.line(m['role'])}{name}{mark}:", "cyan" if m["role"] == "user" else "bold")
    return f"  {role} " + said.replace("\n", "\n    ")


def _describe_context(data: dict[str, Any]) -> list[str]:
    """Lines about the session as a whole: lineage, compactions, what is going on."""
    lines = [f"  {text.line(edge['kind'])} of {text.line(edge['session'])}" for edge in data["session"]["lineage"]]
    lines += _describe_lineage(data.get("lineage", {}))
    for c in data["compactions"]:
        how = "active" if c["active"] else c["closing"] or c["state"]
        at = text.clock(c["opened_at"] or c["closed_at"])
        lines.append(f"  compaction {c['state']} ({how}; seen by {', '.join(c['sources'])})  {at}")
    if data.get("unknown"):
        lines.append(
            "  unknown kinds of records, kept raw: " + ", ".join(f"{text.line(k)} ×{n}" for k, n in data["unknown"].items())
        )
    if data.get("odd"):
        lines.append(f"  {text.counted(data['odd']['count'], 'unexpected record')}, kept raw (see --json)")
    return [*lines, _describe_live(data["live"])] if "live" in data else lines


def _describe_lineage(lineage: dict[str, Any]) -> Iterator[str]:
    """How other sessions descend from this one, and it from others."""
    for side in ("ancestors", "descendants"):
        for edge in lineage.get(side, ()):
            of = edge.get("of") or edge.get("from")
            child, parent = (of, edge["session"]) if side == "ancestors" else (edge["session"], of)
            yield f"  {side[:-1]}: {text.line(child)} is a {text.line(edge['kind'])} of {text.line(parent)}"


def _describe_live(now: dict[str, Any]) -> str:
    owner = "alive" if now["owner_alive"] else "not seen"
    active = ", compacting" if now["compaction"]["active"] else ""
    turn = text.line(now["active_turn"] or "none")
    return f"  now: owner {owner}, turn {turn}, segment {text.line(now['active_segment'])}{active}"


def _find_end_reason(data: dict[str, Any], segment: str) -> str:
    return next((text.line(str(s["end_reason"])) for s in data["segments"] if s["id"] == segment and s["end_reason"]), "boundary")


def _describe_fault(f: dict[str, Any]) -> str:
    lost = ", ".join(f"{a}–{b}" if b > a else f"{a}" for a, b in f["missing"])
    return f"  ! {f['kind']} in part {f['part']} at byte {f['offset']}" + (f": seq {lost} missing" if lost else "")


# -- projects


def projects(keep: Keep, arguments: Namespace) -> VerbAnswer:
    return VerbAnswer({"projects": keep.projects(), "offers": keep.project_offers()}, _describe_projects)


def project(keep: Keep, arguments: Namespace) -> VerbAnswer:
    if (arguments.act == "undo") != (arguments.into is None):
        what = "`undo` takes one project" if arguments.act == "undo" else f"`{arguments.act}` takes two names"
        raise BadUsage(what, where=f"project {arguments.act}", next="See `dreamkeep project --help`.")
    if arguments.act == "undo":
        return VerbAnswer(keep.project_undo(arguments.project), _describe_project)
    if arguments.act == "apart":
        return VerbAnswer(keep.project_apart(arguments.project, arguments.into), _describe_apart)
    change = keep.project_rename if arguments.act == "rename" else keep.project_merge
    return VerbAnswer(change(arguments.project, arguments.into), _describe_project)


def _describe_project(done: dict[str, Any]) -> str:
    what = f"{text.counted(done['sessions'], 'session')}, {text.counted(done['notes'], 'note')}"
    return f"{text.line(done['was'])} is now {text.line(done['project'])}: {what}."


def _describe_apart(done: dict[str, Any]) -> str:
    both = f"{text.line(done['project'])} and {text.line(done['apart'])}"
    return f"{both} are different projects. Merging them won't be suggested again."


def _describe_projects(data: dict[str, Any]) -> str:
    if not data["projects"]:
        return "No projects."
    head = ["PROJECT", "SESSIONS", "NOTES", "LAST (UTC)"]
    rows = [[text.line(p["name"]), str(p["sessions"]), str(p["notes"]), text.clock(p["last_at"])] for p in data["projects"]]
    lines = [text.table([head, *rows], {})]
    for one in data["offers"]:
        both = f"{shlex.quote(text.line(one['from']))} {shlex.quote(text.line(one['into']))}"
        lines += [f"\nSame project? {text.line(one['from'])} and {text.line(one['into'])}: {text.line(one['why'])}."]
        lines += [f"  yes: dreamkeep project merge {both}", f"  no:  dreamkeep project apart {both}"]
    return "\n".join(lines)
