"""`model` on the command line: which model dreams may ask."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from dreamkeep.errors import BadUsage
from dreamkeep.keep import Keep
from dreamkeep.surfaces.cli import text
from dreamkeep.surfaces.cli.commands import VerbAnswer


def model(keep: Keep, arguments: Namespace) -> VerbAnswer:
    if arguments.act == "use":
        if not arguments.what:
            raise BadUsage("no model given", where="model use", next="`dreamkeep model` lists the choices.")
        if not arguments.json:
            text.out("\n".join(_describe_cost(keep.model())))  # before anything changes
        return VerbAnswer(keep.model_use(arguments.what), _describe_chosen)
    if arguments.what:
        raise BadUsage(f"`model {arguments.act}` takes no argument", where="model", next="Leave it out. Nothing was done.")
    if arguments.act == "off":
        return VerbAnswer(keep.model_off(), lambda data: "Dreams use rules, offline, and ask no model.")
    return VerbAnswer(keep.model(), _describe_choices)


def _describe_choices(told: dict[str, Any]) -> str:
    lines = [_describe_current(told), "", *_describe_models(told["found"]), "", *_describe_cost(told)]
    if told["backend"] == "rules":
        lines += ["", "Nothing is sent until you choose one: dreamkeep model use NAME"]
    return "\n".join(lines)


def _describe_chosen(told: dict[str, Any]) -> str:
    lines = ["", _describe_current(told), f"Limits: {_describe_limits(told)}. Change them under [dream] in keep.toml."]
    again = told["estimate"]["again"]
    if again["sessions"]:
        lines += [
            f"Only rules have read {text.counted(again['sessions'], 'session')}. To have the model reread them"
            f" (about {_describe_amount(again)}):",
            "  dreamkeep dream --again [--since 2026-05-31]",
        ]
    return "\n".join([*lines, "Undo with: dreamkeep model off"])


def _describe_limits(told: dict[str, Any]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in told["caps"].items() if name != "spent_today" and value is not None)


def _describe_current(told: dict[str, Any]) -> str:
    if told["backend"] == "rules":
        return "Dreams use rules, offline, and ask no model: few notes, but certain ones."
    model = f" ({text.line(told['model'])})" if told["model"] else ""
    return f"Dreams use: {told['backend']}{model}"


_DESTINATIONS = {"command": "wherever that program sends them"}


def _describe_models(found: list[dict[str, Any]]) -> list[str]:
    if not found:
        return ["No model found: no agent program on PATH, no local server, no API key."]
    rows = [["NAME", "WHAT", "WHERE YOUR SESSIONS GO"]]
    for one in found:
        goes = "nowhere: it runs here" if one["stays"] else _DESTINATIONS.get(one["kind"], "to that service")
        rows.append([one["name"], text.line(one["what"]), goes])
        rows += [[f"{one['name']}:{text.line(each)}", "", ""] for each in one["models"][:8]]
    return [text.table(rows)]


def _describe_cost(told: dict[str, Any]) -> list[str]:
    size, spent = told["estimate"], told["caps"]["spent_today"]
    lines = [
        f"The last {size['days']} days: {text.counted(size['sessions'], 'finished session')}, about {_describe_amount(size)}."
    ]
    if size["usd"] is None:
        lines.append("To see a price, set price_in and price_out (USD per million tokens) under [dream.model] in keep.toml.")
    if limits := _describe_limits(told):
        lines.append(f"Limits: {limits}.")
    if spent["calls"]:
        lines.append(f"Spent in the last 24 hours: {spent['tokens_in'] + spent['tokens_out']:,} tokens, {spent['usd']:.2f} USD.")
    return lines


def _describe_amount(size: dict[str, Any]) -> str:
    money = "" if size["usd"] is None else f", {size['usd']:.2f} USD"
    return f"{size['tokens_in']:,} tokens in and {size['tokens_out']:,} out{money}"
