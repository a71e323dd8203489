"""The inbox: what waits for the user, and what he decides. Wiring, no rules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from dreamkeep.errors import BadUsage, NotFound
from dreamkeep.verbs.memory.notes import check_state, find_note

if TYPE_CHECKING:
    from dreamkeep.context import KeepContext
    from dreamkeep.verbs.dream.pages import PageVerbs
    from dreamkeep.verbs.memory.notes import NoteVerbs
    from dreamkeep.verbs.projects import ProjectVerbs

_ACCEPTED, _REJECTED = "accepted by the user", "rejected by the user"


class ReviewDecision(NamedTuple):
    """What the user decided on one item. `text`: in which words, where he gave others."""

    item: str
    accept: bool
    text: str = ""


class ReviewVerbs:
    """The inbox: what waits for the user, and what he decides."""

    def __init__(self, context: KeepContext, notes: NoteVerbs, pages: PageVerbs, projects: ProjectVerbs) -> None:
        self._context = context
        self._notes = notes
        self._pages = pages
        self._projects = projects

    def review(
        self,
        *,
        project: str | None = None,
        accept: Sequence[str] = (),
        reject: Sequence[str] = (),
        edit: tuple[str, str] | None = None,
        accept_all: str | None = None,
    ) -> dict[str, Any]:
        chosen = self._choose_items(project, accept, reject, edit, accept_all)
        if chosen:
            self._apply_decisions(chosen)
        return {
            "items": self._list_inbox(project) if self._context.exists() else [],
            "accepted": [one.item for one in chosen if one.accept],
            "rejected": [one.item for one in chosen if not one.accept],
        }

    def _list_inbox(self, project: str | None) -> list[dict[str, Any]]:
        """The oldest first, notes before projects."""
        from dreamkeep.dream.consolidate import inbox

        memory = self._context.load_memory("notes", "insights")
        waiting = [one for one in inbox.suggestions(memory.notes.values()) if project in (None, one.project)]
        notes = [inbox.as_item(one, memory.insights) for one in waiting]
        notes.sort(key=lambda one: (one["project"], one["suggested_at"], one["id"]))
        self._notes.add_authors([quote for one in notes for quote in one["evidence"]])
        offers = [
            {**one, "type": "project"} for one in self._projects.project_offers() if project in (None, one["from"], one["into"])
        ]
        return [*notes, *offers]

    def _choose_items(
        self,
        project: str | None,
        accept: Sequence[str],
        reject: Sequence[str],
        edit: tuple[str, str] | None,
        accept_all: str | None,
    ) -> list[ReviewDecision]:
        """By their whole ids. All are looked up before anything is done."""
        from dreamkeep.dream.assemble import redacted
        from dreamkeep.dream.consolidate import statements

        chosen = [ReviewDecision(self._find_item(one), True) for one in accept]
        chosen += [ReviewDecision(self._find_item(one), False) for one in reject]
        if edit is not None:
            text = redacted(" ".join(edit[1].split()))
            statements.check_note(text, "review --edit")
            chosen.append(ReviewDecision(self._find_waiting_note(edit[0]), True, text))
        if accept_all is not None:
            chosen += [ReviewDecision(one["id"], True) for one in self._list_waiting(accept_all, project)]
        twice = sorted({one.item for one in chosen if sum(one.item == other.item for other in chosen) > 1})
        if twice:
            raise BadUsage(f"{twice[0]} is named twice", where="review", next="Name each item once. Nothing was done.")
        return chosen

    def _find_item(self, text: str) -> str:
        if text.startswith("p-"):
            return str(self._find_offer(text)["id"])
        return find_note(self._context.load_memory("notes"), text).id

    def _find_offer(self, id: str) -> dict[str, str]:
        found = next((one for one in self._projects.project_offers() if one["id"] == id), None)
        if found is None:
            raise NotFound(f"the inbox has no item {id!r}", where="review", next="`dreamkeep review` lists the items.")
        return found

    def _find_waiting_note(self, text: str) -> str:
        from dreamkeep.memory.note import SUGGESTED

        found = find_note(self._context.load_memory("notes"), text)
        if found.state != SUGGESTED:
            way = f"Change an active note with `dreamkeep note edit {found.id} TEXT`."
            raise BadUsage(f"the note is {found.state}, so it is not in the inbox", where=found.id, next=way)
        return found.id

    def _list_waiting(self, kind: str, project: str | None) -> list[dict[str, Any]]:
        from dreamkeep.memory.insight import TYPES

        if kind not in TYPES:
            raise BadUsage(f"notes have no kind {kind!r}", where="--accept-all", next=f"Use one of {', '.join(TYPES)}.")
        return [one for one in self._list_inbox(project) if one.get("kind") == kind] if self._context.exists() else []

    def _apply_decisions(self, chosen: Sequence[ReviewDecision]) -> None:
        notes = [one for one in chosen if not one.item.startswith("p-")]
        self._check_decisions(notes)
        if notes:
            self._pages.take_in_edits()
            with self._notes.hold_turn():
                for one in notes:
                    act = "reject" if not one.accept else "accept" if one.text else "confirm"
                    self._notes.change_note(one.item, act, one.text, _ACCEPTED if one.accept else _REJECTED)
            self._pages.publish("")
        for one in [one for one in chosen if one not in notes]:
            offer = self._find_offer(one.item)
            (self._projects.project_merge if one.accept else self._projects.project_apart)(offer["from"], offer["into"])

    def _check_decisions(self, notes: Sequence[ReviewDecision]) -> None:
        memory = self._context.load_memory("notes") if notes else None
        for one in notes:
            assert memory is not None
            check_state(memory.notes[one.item], "confirm" if one.accept else "reject")
