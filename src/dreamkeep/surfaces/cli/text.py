"""Answers as text for people. Captured text is data: control characters in it never reach the terminal."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Mapping, Sized
from types import MappingProxyType
from typing import Any

from dreamkeep.event import printable, readable_size
from dreamkeep.surfaces.cli import look
from dreamkeep.surfaces.cli.look import paint

#: Of a table's last column, however narrow the terminal.
_LEAST_ROOM = 20
_STATES = {"active": "green", "suspended": "yellow", "ended": "dim"}
_MARK_COLOURS = {"completed": "green", "failed": "red", "interrupted": "yellow"}
_MARKS = {"completed": "✓", "failed": "✗", "cancelled": "–", "interrupted": "!", "started": "…", "submitted": "…", "open": "?"}


def json_text(data: Any) -> str:
    """One line of JSON. ASCII only, so that lone surrogates survive and any terminal can take it."""
    import json

    try:
        return json.dumps(data, separators=(",", ":"), allow_nan=False)
    except ValueError:
        return json.dumps(_without_nan(data), separators=(",", ":"))


def _without_nan(data: Any) -> Any:
    """NaN and the infinities have no place in JSON; their names have."""
    if isinstance(data, float) and (data != data or data in (float("inf"), float("-inf"))):
        return str(data)
    if isinstance(data, dict):
        return {key: _without_nan(value) for key, value in data.items()}
    return [_without_nan(value) for value in data] if isinstance(data, list) else data


def out(said: str) -> None:
    """On stdout, for people. What an agent wrote may hold lone surrogates or what the terminal's encoding lacks: never fail on
    it; and it may hold escape sequences: this is the door that lets none of them out."""
    encoding = sys.stdout.encoding or "utf-8"
    said = look.terminal_text(said, colours=look.of(sys.stdout).colours)
    print(said.encode(encoding, "backslashreplace").decode(encoding), flush=True)


def complain(said: str) -> None:
    """One line on stderr, with our name before it. It may quote what was typed or read: a secret in that is masked."""
    from dreamkeep.verbs.standalone import mask_secrets

    print(f"dreamkeep: {line(mask_secrets(said))}", file=sys.stderr, flush=True)


clean = printable
size = readable_size


def line(text: str) -> str:
    """As `clean`, for places of one line."""
    return clean(text).replace("\n", "\\n").replace("\t", "\\t")


def counted(number: int, what: str) -> str:
    """ "1 session", "2 sessions"."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def table(rows: list[list[str]], colours: Mapping[str, str] = MappingProxyType({})) -> str:
    """The first row is the head. On a terminal the last column gets what room is left; `colours`: of cells that say this."""
    widths = [max(look.cells(row[n]) for row in rows) for n in range(len(rows[0]))]
    width = look.of(sys.stdout).width
    room = max(width - sum(widths[:-1]) - 2 * len(widths) + 2, _LEAST_ROOM) if width else None
    lines = []
    for n, row in enumerate(rows):
        cells = [*row[:-1], row[-1] if room is None else look.cut(row[-1], room)]
        padded = [cell + " " * (to - look.cells(cell)) for cell, to in zip(cells, widths, strict=True)]
        padded[-1] = cells[-1]
        shown = (paint(cell, "bold" if n == 0 else colours.get(cell.rstrip(), "")) for cell in padded)
        lines.append("  ".join(shown).rstrip())
    return "\n".join(lines)


def _clock(at: str | None) -> str:
    return (at or "")[:16].replace("T", " ")


_BY_RULES = "rules: few notes, but certain ones. A model would find more: `dreamkeep model`"


def status(s: dict[str, Any]) -> str:
    if not s["exists"]:
        return f"No keep at {s['keep']} yet. It is created when the first session is recorded."
    lines = [
        f"keep      {s['keep']}" + ("  (capture is off)" if s["off"] else ""),
        f"sessions  {s['sessions']}" + (f"  ({s['deleted']} deleted)" if s["deleted"] else ""),
        f"turns     {s['turns']}  ({s['turns_running']} running, {s['turns_interrupted']} interrupted)",
        f"messages  {s['messages']}",
        f"journal   {size(s['bytes'])}",
        f"notes     {s['notes']['active']}",
    ]
    if waiting := s["notes"]["suggested"]:
        lines.append(f"inbox     {waiting}  (suggestions waiting for you: `dreamkeep review`)")
    if doubted := s["notes"]["doubted"]:
        lines.append(f"doubted   {doubted}  (an agent says they are wrong; `dreamkeep notes` marks them)")
    lines.append(f"dreams    by {_BY_RULES if s['backend'] == 'rules' else line(s['backend'])}")
    if use := s["quota"]:
        more = "  (see `dreamkeep doctor`)" if use["over"] else ""
        lines.append(f"quota     {size(use['used'])} of {size(use['limit'])}{more}")
    if disk := s["disk"]:
        lines.append(f"disk      {size(disk['free'])} free: too little to import transcripts  (see `dreamkeep doctor`)")
    lines += [f"paused    {line(one['source'])}  (see `dreamkeep doctor`)" for one in s["paused"]]
    for one in s["live"]:
        compacting = "  (compacting)" if one["compaction"]["active"] else ""
        lines += [f"  running  {line(one['session'])}  {line(one['title'])}{compacting}"]
    if s["strays"]:
        lines.append(f"strays    {s['strays']}  (see `dreamkeep doctor`)")
    if s["faults"]:
        lines.append(f"problems  {s['faults']}  (see `dreamkeep doctor`)")
    return "\n".join(lines)


def sessions(data: dict[str, Any]) -> str:
    found = data["sessions"]
    if not found:
        return "No sessions."
    head = ["SESSION", "STATE", "TURNS", "LAST (UTC)", "TITLE"]
    rows = [[line(s["id"]), s["state"], str(s["turns"]), _clock(s["last_at"]), line(s["title"])] for s in found]
    return table([head, *rows], _STATES)


def digest(data: dict[str, Any]) -> str:
    lines = [f"[{one['seq']}] {one['what']}: {clean(one['text'])}" for one in data["digest"]]
    return "\n".join([*lines, f"{data['tokens']} tokens"])


def session(data: dict[str, Any]) -> str:
    s = data["session"]
    lines = [
        f"{line(s['id'])}  {paint(s['state'], _STATES.get(s['state'], ''))}  {paint(line(s['title']), 'bold')}",
        f"  project {line(s['project'])}   {s['turns']} turns, {s['messages']} messages, {size(s['bytes'])}",
        f"  {_clock(s['started_at'])} – {_clock(s['last_at'])} UTC" if s["last_at"] else "  no timestamps yet",
    ]
    lines += [_fault(f) for f in data["faults"]]
    lines += _around(data)
    turns = {t["id"]: t for t in data["turns"]}
    shown = segment = None
    for m in data["messages"]:
        if segment is not None and m["segment"] != segment:
            lines += ["", f"──────── {_why(data, segment)} ────────"]
        segment = m["segment"]
        if m["turn"] != shown and m["turn"] in turns:
            shown = m["turn"]
            t = turns[shown]
            reason = f" ({line(t['reason'])})" if t.get("reason") else ""
            mark = paint(_MARKS.get(t["state"], " "), _MARK_COLOURS.get(t["state"], ""))
            head = f"turn {line(shown[:8])}…{line(shown[-4:])}  {t['state']}{reason}"
            lines += ["", f"{mark} {paint(head, 'dim')}"]
        lines.append(message(m))
    return "\n".join(lines)


def message(m: dict[str, Any]) -> str:
    tool = m.get("tool") or {}
    name = f" [{line(str(tool.get('name', 'tool')))}]" if tool else ""
    mark = f" ({m['mark']})" if m.get("mark") else ""
    said = clean(m["text"])
    if not said and tool:
        said = line(json_text(tool["input"])) if tool.get("input") is not None else "(nothing)"
    role = paint(f"{line(m['role'])}{name}{mark}:", "cyan" if m["role"] == "user" else "bold")
    return f"  {role} " + said.replace("\n", "\n    ")


def _around(data: dict[str, Any]) -> list[str]:
    """What belongs to no message: lineage, compactions, what is going on."""
    s = data["session"]
    lines = [f"  {line(edge['kind'])} of {line(edge['session'])}" for edge in s["lineage"]]
    for side in ("ancestors", "descendants"):
        for edge in data.get("lineage", {}).get(side, ()):
            of = edge.get("of") or edge.get("from")
            pair = (of, edge["session"]) if side == "ancestors" else (edge["session"], of)
            lines.append(f"  {side[:-1]}: {line(pair[0])} is a {line(edge['kind'])} of {line(pair[1])}")
    for c in data["compactions"]:
        how = "active" if c["active"] else c["closing"] or c["state"]
        lines.append(
            f"  compaction {c['state']} ({how}; seen by {', '.join(c['sources'])})  {_clock(c['opened_at'] or c['closed_at'])}"
        )
    if data.get("unknown"):
        lines.append("  unknown kinds of records, kept raw: " + ", ".join(f"{line(k)} ×{n}" for k, n in data["unknown"].items()))
    if data.get("odd"):
        lines.append(f"  {counted(data['odd']['count'], 'unexpected record')}, kept raw (see --json)")
    if "live" in data:
        now = data["live"]
        owner = "alive" if now["owner_alive"] else "not seen"
        active = ", compacting" if now["compaction"]["active"] else ""
        turn = line(now["active_turn"] or "none")
        lines.append(f"  now: owner {owner}, turn {turn}, segment {line(now['active_segment'])}{active}")
    return lines


def _why(data: dict[str, Any], segment: str) -> str:
    return next((line(str(s["end_reason"])) for s in data["segments"] if s["id"] == segment and s["end_reason"]), "boundary")


def _fault(f: dict[str, Any]) -> str:
    lost = ", ".join(f"{a}–{b}" if b > a else f"{a}" for a, b in f["missing"])
    return f"  ! {f['kind']} in part {f['part']} at byte {f['offset']}" + (f": seq {lost} missing" if lost else "")


def ingested(data: dict[str, Any]) -> str:
    lines = [outcome(one) for one in data["sources"] if one["state"] not in ("unchanged", "empty", "waiting", "paused")]
    totals = data["totals"]
    if not totals["sources"]:
        return "No agent sessions found. Look elsewhere with --home DIR, or name the files."
    new = f"{totals['changed']} with new data ({size(totals['new_bytes'])})" if totals["changed"] else "nothing new"
    bad = f", {totals['failed']} with a problem" if totals["failed"] else ""
    lines.append(f"Checked {counted(totals['sources'], 'source')}: {new}{bad}.")
    if why := next((one["problem"] for one in data["sources"] if one["state"] == "paused"), ""):
        lines.append(f"✗ {totals['paused']} of them {line(why)}")  # the same for all: said once
    for one in data.get("projects", ()):
        lines.append(f"{line(one['was'])} belongs to {line(one['now'])}: {line(one['why'])}.")
        lines.append(f"  Undo with: dreamkeep project undo {shlex.quote(line(one['was']))}")
    return "\n".join(lines)


def outcome(one: dict[str, Any]) -> str:
    what = line(one["session"] or one["path"])
    if one.get("problem"):
        return f"✗ {line(one['path'])}: {line(one['problem'])}"
    return f"{'+' if one['new_events'] else ' '} {one['state']:9} {what}" + (
        f"  {size(one['new_bytes'])}" if one["new_bytes"] else ""
    )


def changes(data: dict[str, Any]) -> str:
    if not data["changes"]:
        return "No agents found. Name one with --agent, or another home folder with --home."
    lines = []
    for change in data["changes"]:
        lines.append(f"{change['action']:10} {change['agent']:9} {line(change['file'])}")
        lines += [f"             {line(change[key])}" for key in ("problem", "reason") if change.get(key)]
    return "\n".join([*lines, *_models(data.get("model"))])


def _models(told: dict[str, Any] | None) -> list[str]:
    """One line, where dreams ask no model yet."""
    if told is None or told["backend"] != "rules":
        return []
    found = f" (found here: {', '.join(told['found'])})" if told["found"] else ""
    return [f"A model would get more out of your sessions{found}. See: dreamkeep model"]


def drained(data: dict[str, Any]) -> str:
    if not data["calls"]:
        return "No hook calls are waiting."
    calls = "1 hook call" if data["calls"] == 1 else f"{data['calls']} hook calls"
    return f"Moved {calls} from {counted(data['sessions'], 'session')} into the journals."


def reindexed(data: dict[str, Any]) -> str:
    extra = f"; removed {data['removed']}" if data["removed"] else ""
    strays = "".join(f"\nNot indexed: {line(stray)}" for stray in data["strays"])
    if not data["journals"] and not data["removed"]:
        return f"The index is up to date.{strays}"
    return f"Indexed {counted(data['journals'], 'journal')}, {counted(data['events'], 'event')}{extra}.{strays}"


def doctor(data: dict[str, Any]) -> str:
    lines = []
    for check in data["checks"]:
        verdict = paint("ok ", "green") if check["ok"] else paint("BAD", "red")
        lines.append(f"{verdict} {check['check']}: {line(check['what'])}")
        if check["next"]:
            lines.append(f"      → {line(check['next'])}" if not check["ok"] else paint(f"      ({line(check['next'])})", "dim"))
    return "\n".join(lines)


def audited(found: dict[str, Any]) -> str:
    lines = []
    for one in found["faults"]:
        lines += [f"{paint(one['class'], 'red')}  {line(one['where'])}", *_describe(one)]
    for one in found.get("notices", ()):
        lines += [f"notice: {line(one['where'])}", *_describe(one)]
    looked = found["checked"]
    sources = f" and {counted(looked['sources'], 'agent file')}" if looked.get("sources") else ""
    what = f"Checked {counted(looked.get('journals', 0), 'journal')}{sources}"
    return "\n".join([*lines, f"{what}: {_how_many(found['faults'])}{_before(looked)}."])


def _describe(one: dict[str, Any]) -> list[str]:
    return [f"    {_sentence(line(one['what']))}", f"    → {line(one['next'])}"]


def _sentence(words: str) -> str:
    """With a capital letter and a full stop."""
    return f"{words[:1].upper()}{words[1:]}" + ("" if words.endswith((".", "!", "?", "…")) else ".")


def _before(looked: dict[str, Any]) -> str:
    """Problems that an earlier repair dealt with."""
    told = (("mended", "repaired earlier"), ("accepted", "accepted"))
    return "".join(f", {looked[how]} {words}" for how, words in told if looked.get(how))


def repaired(done: dict[str, Any]) -> str:
    faults = {fault["id"]: fault for fault in done["audit"]["faults"]}
    steps = done["applied"] or ([] if done["undo_id"] else done["plan"])
    would = "" if done["applied"] else "would "
    lines = [f"{would}{step['action'].replace('_', ' ')}  {line(step['where'])}  ({step['fault']})" for step in steps]
    for one in done["skipped"]:
        where = f"  {line(faults[one['fault']]['where'])}" if one["fault"] in faults else ""
        lines.append(f"skipped: {one['fault']}{where}\n    {_sentence(line(one['reason']))}")
    if done["undo_id"]:
        lines.append(f"Undo with: dreamkeep repair --undo {done['undo_id']}")
    elif done["plan"] and not done["applied"]:
        lines.append("Nothing was changed. To apply this plan: dreamkeep repair --apply")
    remain = " remain" if done["applied"] else ""
    return "\n".join([*lines, f"{_how_many(faults).capitalize()}{remain}."])


def _how_many(faults: Sized) -> str:
    return counted(len(faults), "problem") if faults else "no problems"


def undone(done: dict[str, Any]) -> str:
    lines = [f"restored: {line(step['where'])}" for step in done["applied"]]
    lines += [f"skipped: {line(one['reason'])}" for one in done["skipped"]]
    return "\n".join(lines or ["There was nothing to undo."])


class ProgressLine:
    """A line on stderr that counts up; nothing for work that is over at once, and nothing moving where nobody watches."""

    def __init__(self, what: str, *, always: bool = False, of: str = "") -> None:
        """`of`: what is counted; nothing said: bytes."""
        self._what = what
        self._of = of
        self._shows = look.moves(sys.stderr)
        self._always = always
        self._begun = time.monotonic()
        self._last = 0.0

    def __call__(self, done: int, total: int) -> None:
        now = time.monotonic()
        over = done >= total
        if self._shows and ((now - self._begun > 0.3 and now - self._last > 0.1) or (over and self._last)):
            self._last = now
            share = 100 * done // total if total else 100
            print(
                f"\r{self._what} {share:3d} %  {self._many(done)} of {self._many(total)}",
                end="\n" if over else "",
                file=sys.stderr,
                flush=True,
            )
        elif self._always and not self._shows and now - self._last > 10 and now - self._begun > 5:
            self._last = now
            print(f"{self._what}: {self._many(done)} of {self._many(total)}", file=sys.stderr, flush=True)

    def _many(self, count: int) -> str:
        return f"{count} {self._of}" if self._of else size(count)


def project(done: dict[str, Any]) -> str:
    what = f"{counted(done['sessions'], 'session')}, {counted(done['notes'], 'note')}"
    return f"{line(done['was'])} is now {line(done['project'])}: {what}."


def project_apart(done: dict[str, Any]) -> str:
    return f"{line(done['project'])} and {line(done['apart'])} are different projects. Merging them won't be suggested again."


def projects(data: dict[str, Any]) -> str:
    if not data["projects"]:
        return "No projects."
    head = ["PROJECT", "SESSIONS", "NOTES", "LAST (UTC)"]
    rows = [[line(p["name"]), str(p["sessions"]), str(p["notes"]), _clock(p["last_at"])] for p in data["projects"]]
    lines = [table([head, *rows], {})]
    for one in data["offers"]:
        both = f"{shlex.quote(line(one['from']))} {shlex.quote(line(one['into']))}"
        lines += [f"\nSame project? {line(one['from'])} and {line(one['into'])}: {line(one['why'])}."]
        lines += [f"  yes: dreamkeep project merge {both}", f"  no:  dreamkeep project apart {both}"]
    return "\n".join(lines)


def exported(done: dict[str, Any]) -> str:
    held = (("sessions", "session"), ("parts", "journal part"), ("files", "file"))
    what = ", ".join([*(counted(done[key], one) for key, one in held), size(done["bytes"])])
    lines = [f"{line(done['file'])}: {what}", f"digest {done['digest']}"]
    return "\n".join([*lines, *(f"  incomplete: {line(one['where'])}: {line(one['what'])}" for one in done["problems"])])


def verified(found: dict[str, Any]) -> str:
    if found["ok"]:
        return f"Intact. {exported(found)}"
    lines = [f"Damaged: {line(found['file'])}", *(f"  {line(one['where'])}: {line(one['what'])}" for one in found["problems"])]
    return "\n".join([*lines, "`dreamkeep snapshot import` imports the good parts and skips the rest."])


def imported(done: dict[str, Any]) -> str:
    said = f"{done['added']} sessions added, {done['merged']} merged, {done['unchanged']} unchanged; {done['events']} events"
    lines = [said, *(f"  skipped: {line(one['where'])}: {line(one['why'])}" for one in done["skipped"])]
    return "\n".join([*lines, *(f"  damaged: {line(one['where'])}: {line(one['what'])}" for one in done["bad"])])


def _how_exact(file: Mapping[str, Any]) -> str:
    if file["exact"]:
        return "byte for byte"
    told = next((word for word in ("damaged", "masked") if file.get(word)), "")
    return told or ("converted" if file.get("role") in (None, "main") else str(file["role"]))


def restored(done: dict[str, Any]) -> str:
    would = "would be " if done["dry_run"] else ""
    lines = []
    for file in done["files"]:
        how = _how_exact(file)
        how = "what is left of it in the journal" if file.get("damaged") else how
        lines.append(f"{would}{file['action']}  {line(file['path'])}  ({size(file['bytes'])}, {how})")
        if file.get("aside"):
            lines.append(f"  the previous file is kept as {line(file['aside'])}")
    lines += [line(note) for note in done["notes"]]
    lines += [f"lost: {one['count']} × {one['what']}" for one in done["lost"]]
    if done["resume"]:
        lines.append(f"Resume with: {line(done['resume'])}")
    return "\n".join(lines)
