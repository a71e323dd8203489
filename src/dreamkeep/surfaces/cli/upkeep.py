"""The keep itself on the command line: its state, its index, its faults and repairs, its snapshots."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sized
from typing import Any

from dreamkeep.keep import Keep
from dreamkeep.surfaces.cli import text
from dreamkeep.surfaces.cli.commands import VerbAnswer
from dreamkeep.surfaces.cli.look import paint


def status(keep: Keep, arguments: Namespace) -> VerbAnswer:
    return VerbAnswer(keep.status(), _describe_status)


_BY_RULES = "rules: few notes, but certain ones. A model would find more: `dreamkeep model`"


def _describe_status(s: dict[str, Any]) -> str:
    if not s["exists"]:
        return f"No keep at {s['keep']} yet. It is created when the first session is recorded."
    lines = [
        f"keep      {s['keep']}" + ("  (capture is off)" if s["off"] else ""),
        f"sessions  {s['sessions']}" + (f"  ({s['deleted']} deleted)" if s["deleted"] else ""),
        f"turns     {s['turns']}  ({s['turns_running']} running, {s['turns_interrupted']} interrupted)",
        f"messages  {s['messages']}",
        f"journal   {text.size(s['bytes'])}",
        f"notes     {s['notes']['active']}",
    ]
    if waiting := s["notes"]["suggested"]:
        lines.append(f"inbox     {waiting}  (suggestions waiting for you: `dreamkeep review`)")
    if doubted := s["notes"]["doubted"]:
        lines.append(f"doubted   {doubted}  (an agent says they are wrong; `dreamkeep notes` marks them)")
    lines.append(f"dreams    by {_BY_RULES if s['backend'] == 'rules' else text.line(s['backend'])}")
    if use := s["quota"]:
        more = "  (see `dreamkeep doctor`)" if use["over"] else ""
        lines.append(f"quota     {text.size(use['used'])} of {text.size(use['limit'])}{more}")
    if disk := s["disk"]:
        lines.append(f"disk      {text.size(disk['free'])} free: too little to import transcripts  (see `dreamkeep doctor`)")
    lines += [f"paused    {text.line(one['source'])}  (see `dreamkeep doctor`)" for one in s["paused"]]
    for one in s["live"]:
        compacting = "  (compacting)" if one["compaction"]["active"] else ""
        lines += [f"  running  {text.line(one['session'])}  {text.line(one['title'])}{compacting}"]
    if s["strays"]:
        lines.append(f"strays    {s['strays']}  (see `dreamkeep doctor`)")
    if s["faults"]:
        lines.append(f"problems  {s['faults']}  (see `dreamkeep doctor`)")
    return "\n".join(lines)


def reindex(keep: Keep, arguments: Namespace) -> VerbAnswer:
    built = keep.reindex(from_zero=arguments.from_zero, progress=text.ProgressLine("indexing", always=True))
    keep.embed(progress=text.ProgressLine("embedding", always=True, of="texts"))
    return VerbAnswer({**built._asdict(), "strays": list(built.strays)}, _describe_reindexed)


def _describe_reindexed(data: dict[str, Any]) -> str:
    extra = f"; removed {data['removed']}" if data["removed"] else ""
    strays = "".join(f"\nNot indexed: {text.line(stray)}" for stray in data["strays"])
    if not data["journals"] and not data["removed"]:
        return f"The index is up to date.{strays}"
    return f"Indexed {text.counted(data['journals'], 'journal')}, {text.counted(data['events'], 'event')}{extra}.{strays}"


def doctor(keep: Keep, arguments: Namespace) -> VerbAnswer:
    checks = keep.doctor()
    ok = all(check["ok"] for check in checks)
    return VerbAnswer({"ok": ok, "checks": checks}, _describe_checks, 0 if ok else 1)


def _describe_checks(data: dict[str, Any]) -> str:
    lines = []
    for check in data["checks"]:
        verdict = paint("ok ", "green") if check["ok"] else paint("BAD", "red")
        lines.append(f"{verdict} {check['check']}: {text.line(check['what'])}")
        if check["next"]:
            lines.append(
                f"      → {text.line(check['next'])}" if not check["ok"] else paint(f"      ({text.line(check['next'])})", "dim")
            )
    return "\n".join(lines)


def audit(keep: Keep, arguments: Namespace) -> VerbAnswer:
    found = keep.audit(deep=arguments.deep, home=arguments.home)
    return VerbAnswer(found, describe_audit, 0 if found["clean"] else 1)


def describe_audit(found: dict[str, Any]) -> str:
    lines = []
    for one in found["faults"]:
        lines += [f"{paint(one['class'], 'red')}  {text.line(one['where'])}", *_describe_problem(one)]
    for one in found.get("notices", ()):
        lines += [f"notice: {text.line(one['where'])}", *_describe_problem(one)]
    looked = found["checked"]
    sources = f" and {text.counted(looked['sources'], 'agent file')}" if looked.get("sources") else ""
    what = f"Checked {text.counted(looked.get('journals', 0), 'journal')}{sources}"
    return "\n".join([*lines, f"{what}: {_count_problems(found['faults'])}{_count_earlier(looked)}."])


def _describe_problem(one: dict[str, Any]) -> list[str]:
    return [f"    {_make_sentence(text.line(one['what']))}", f"    → {text.line(one['next'])}"]


def _make_sentence(words: str) -> str:
    """With a capital letter and a full stop."""
    return f"{words[:1].upper()}{words[1:]}" + ("" if words.endswith((".", "!", "?", "…")) else ".")


def _count_earlier(looked: dict[str, Any]) -> str:
    """Problems that an earlier repair dealt with."""
    told = (("mended", "repaired earlier"), ("accepted", "accepted"))
    return "".join(f", {looked[how]} {words}" for how, words in told if looked.get(how))


def repair(keep: Keep, arguments: Namespace) -> VerbAnswer:
    done = keep.repair(
        apply=arguments.apply, undo=arguments.undo, accept=arguments.accept, only=arguments.only, home=arguments.home
    )
    if arguments.undo:
        return VerbAnswer(done, _describe_undone, 1 if done["skipped"] else 0)
    return VerbAnswer(done, _describe_repair, 0 if done["audit"]["clean"] else 1)


def _describe_repair(done: dict[str, Any]) -> str:
    faults = {fault["id"]: fault for fault in done["audit"]["faults"]}
    steps = done["applied"] or ([] if done["undo_id"] else done["plan"])
    would = "" if done["applied"] else "would "
    lines = [f"{would}{step['action'].replace('_', ' ')}  {text.line(step['where'])}  ({step['fault']})" for step in steps]
    for one in done["skipped"]:
        where = f"  {text.line(faults[one['fault']]['where'])}" if one["fault"] in faults else ""
        lines.append(f"skipped: {one['fault']}{where}\n    {_make_sentence(text.line(one['reason']))}")
    if done["undo_id"]:
        lines.append(f"Undo with: dreamkeep repair --undo {done['undo_id']}")
    elif done["plan"] and not done["applied"]:
        lines.append("Nothing was changed. To apply this plan: dreamkeep repair --apply")
    remain = " remain" if done["applied"] else ""
    return "\n".join([*lines, f"{_count_problems(faults).capitalize()}{remain}."])


def _count_problems(faults: Sized) -> str:
    return text.counted(len(faults), "problem") if faults else "no problems"


def _describe_undone(done: dict[str, Any]) -> str:
    lines = [f"restored: {text.line(step['where'])}" for step in done["applied"]]
    lines += [f"skipped: {text.line(one['reason'])}" for one in done["skipped"]]
    return "\n".join(lines or ["There was nothing to undo."])


def snapshot(keep: Keep, arguments: Namespace) -> VerbAnswer:
    progress = text.ProgressLine(f"{arguments.act}ing" if arguments.act != "verify" else "verifying", always=True)
    if arguments.act == "export":
        exported = keep.export(arguments.file, view=not arguments.no_view, progress=progress)
        return VerbAnswer(exported, _describe_exported, 1 if exported["problems"] else 0)
    if arguments.act == "verify":
        found = keep.verify(arguments.file, progress=progress)
        return VerbAnswer(found, _describe_verified, 0 if found["ok"] else 1)
    done = keep.import_(arguments.file, progress=progress)
    return VerbAnswer(done, _describe_imported, 1 if done["bad"] else 0)


def _describe_exported(done: dict[str, Any]) -> str:
    held = (("sessions", "session"), ("parts", "journal part"), ("files", "file"))
    what = ", ".join([*(text.counted(done[key], one) for key, one in held), text.size(done["bytes"])])
    lines = [f"{text.line(done['file'])}: {what}", f"digest {done['digest']}"]
    return "\n".join(
        [*lines, *(f"  incomplete: {text.line(one['where'])}: {text.line(one['what'])}" for one in done["problems"])]
    )


def _describe_verified(found: dict[str, Any]) -> str:
    if found["ok"]:
        return f"Intact. {_describe_exported(found)}"
    lines = [
        f"Damaged: {text.line(found['file'])}",
        *(f"  {text.line(one['where'])}: {text.line(one['what'])}" for one in found["problems"]),
    ]
    return "\n".join([*lines, "`dreamkeep snapshot import` imports the good parts and skips the rest."])


def _describe_imported(done: dict[str, Any]) -> str:
    said = f"{done['added']} sessions added, {done['merged']} merged, {done['unchanged']} unchanged; {done['events']} events"
    lines = [said, *(f"  skipped: {text.line(one['where'])}: {text.line(one['why'])}" for one in done["skipped"])]
    return "\n".join([*lines, *(f"  damaged: {text.line(one['where'])}: {text.line(one['what'])}" for one in done["bad"])])
