"""The inbox: suggestions that wait for the user, and the user's decisions."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from dreamkeep.errors import BadUsage, NotFound
from dreamkeep.verbs.dream.pages import publish_pages, take_in_edits
from dreamkeep.verbs.memory.notes import add_authors, change_note, check_state, find_note, hold_turn
from dreamkeep.verbs.projects import project_apart, project_merge, project_offers

if TYPE_CHECKING:
    from dreamkeep.context import KeepContext

_ACCEPTED, _REJECTED = "accepted by the user", "rejected by the user"


class ReviewDecision(NamedTuple):
    """The user's decision on one item. `text`: the new words, if the user changed them."""

    item: str
    accept: bool
    text: str = ""


def review(
    context: KeepContext,
    *,
    project: str | None = None,
    accept: Sequence[str] = (),
    reject: Sequence[str] = (),
    edit: tuple[str, str] | None = None,
    accept_all: str | None = None,
) -> dict[str, Any]:
    chosen = _choose_items(context, project, accept, reject, edit, accept_all)
    if chosen:
        _apply_decisions(context, chosen)
    return {
        "items": _list_inbox(context, project) if context.exists() else [],
        "accepted": [one.item for one in chosen if one.accept],
        "rejected": [one.item for one in chosen if not one.accept],
    }


def _list_inbox(context: KeepContext, project: str | None) -> list[dict[str, Any]]:
    """The oldest first, notes before projects."""
    from dreamkeep.dream.consolidate import inbox

    memory = context.load_memory("notes", "insights")
    waiting = [one for one in inbox.suggestions(memory.notes.values()) if project in (None, one.project)]
    notes = [inbox.as_item(one, memory.insights) for one in waiting]
    notes.sort(key=lambda one: (one["project"], one["suggested_at"], one["id"]))
    add_authors(context, [quote for one in notes for quote in one["evidence"]])
    offers = [{**one, "type": "project"} for one in project_offers(context) if project in (None, one["from"], one["into"])]
    return [*notes, *offers]


def _choose_items(
    context: KeepContext,
    project: str | None,
    accept: Sequence[str],
    reject: Sequence[str],
    edit: tuple[str, str] | None,
    accept_all: str | None,
) -> list[ReviewDecision]:
    """The decisions, with full ids. All items are looked up before anything is changed."""
    from dreamkeep.dream.assemble import redacted
    from dreamkeep.dream.consolidate import statements

    chosen = [ReviewDecision(_find_item(context, one), True) for one in accept]
    chosen += [ReviewDecision(_find_item(context, one), False) for one in reject]
    if edit is not None:
        text = redacted(" ".join(edit[1].split()))
        statements.check_note(text, "review --edit")
        chosen.append(ReviewDecision(_find_waiting_note(context, edit[0]), True, text))
    if accept_all is not None:
        chosen += [ReviewDecision(one["id"], True) for one in _list_waiting(context, accept_all, project)]
    twice = sorted({one.item for one in chosen if sum(one.item == other.item for other in chosen) > 1})
    if twice:
        raise BadUsage(f"{twice[0]} is named twice", where="review", next="Name each item once. Nothing was done.")
    return chosen


def _find_item(context: KeepContext, text: str) -> str:
    if text.startswith("p-"):
        return str(_find_offer(context, text)["id"])
    return find_note(context.load_memory("notes"), text).id


def _find_offer(context: KeepContext, id: str) -> dict[str, str]:
    found = next((one for one in project_offers(context) if one["id"] == id), None)
    if found is None:
        raise NotFound(f"the inbox has no item {id!r}", where="review", next="`dreamkeep review` lists the items.")
    return found


def _find_waiting_note(context: KeepContext, text: str) -> str:
    from dreamkeep.memory.note import SUGGESTED

    found = find_note(context.load_memory("notes"), text)
    if found.state != SUGGESTED:
        way = f"Change an active note with `dreamkeep note edit {found.id} TEXT`."
        raise BadUsage(f"the note is {found.state}, so it is not in the inbox", where=found.id, next=way)
    return found.id


def _list_waiting(context: KeepContext, kind: str, project: str | None) -> list[dict[str, Any]]:
    from dreamkeep.memory.insight import TYPES

    if kind not in TYPES:
        raise BadUsage(f"notes have no kind {kind!r}", where="--accept-all", next=f"Use one of {', '.join(TYPES)}.")
    return [one for one in _list_inbox(context, project) if one.get("kind") == kind] if context.exists() else []


def _apply_decisions(context: KeepContext, chosen: Sequence[ReviewDecision]) -> None:
    notes = [one for one in chosen if not one.item.startswith("p-")]
    _check_decisions(context, notes)
    if notes:
        take_in_edits(context)
        with hold_turn(context):
            for one in notes:
                act = "reject" if not one.accept else "accept" if one.text else "confirm"
                change_note(context, one.item, act, one.text, _ACCEPTED if one.accept else _REJECTED)
        publish_pages(context, "")
    for one in [one for one in chosen if one not in notes]:
        offer = _find_offer(context, one.item)
        (partial(project_merge, context) if one.accept else partial(project_apart, context))(offer["from"], offer["into"])


def _check_decisions(context: KeepContext, notes: Sequence[ReviewDecision]) -> None:
    memory = context.load_memory("notes") if notes else None
    for one in notes:
        assert memory is not None
        check_state(memory.notes[one.item], "confirm" if one.accept else "reject")
