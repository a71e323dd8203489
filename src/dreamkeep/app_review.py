"""Part of app: the inbox. What waits for the user, and what he decides. Wiring, no rules."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, NamedTuple

from dreamkeep.app_part import Part
from dreamkeep.errors import BadUsage, NotFound

if TYPE_CHECKING:
    from dreamkeep.memory.memory import Memory
    from dreamkeep.memory.note import Note

_ACCEPTED, _REJECTED = "accepted by the user", "rejected by the user"


class Decided(NamedTuple):
    """What the user decided on one item. `text`: in which words, where he gave others."""

    item: str
    accept: bool
    text: str = ""


class Reviewing(Part):
    """What `Keep` can do with the inbox."""

    if TYPE_CHECKING:

        def _memory(self, *tables: str) -> Memory: ...

        def _note(self, memory: Memory, text: str) -> Note: ...

        def _note_changed(self, note: str, act: str, text: str, why: str) -> str: ...

        def _look_up_authors(self, evidence: Sequence[dict[str, Any]]) -> None: ...

        def _one_at_a_time(self) -> AbstractContextManager[None]: ...

        def _take_in(self) -> list[dict[str, Any]]: ...

        def _publish(self, run: str) -> list[dict[str, Any]]: ...

        def project_offers(self) -> list[dict[str, str]]: ...

        def project_merge(self, project: str, into: str) -> dict[str, Any]: ...

        def project_apart(self, project: str, other: str) -> dict[str, Any]: ...

    def review(
        self,
        *,
        project: str | None = None,
        accept: Sequence[str] = (),
        reject: Sequence[str] = (),
        edit: tuple[str, str] | None = None,
        accept_all: str | None = None,
    ) -> dict[str, Any]:
        """`{items, accepted, rejected}`: what waits in the inbox now, of one project or of all, and what this call decided.

        `accept`, `reject`: ids of items. Accepting a note makes it active, as the user's own word; accepting a project offer
        merges the two projects. `edit`: (id, text): accepted in these words. `accept_all`: every suggested note of that kind. An
        id that nothing has is an error, and then nothing is done.
        """
        chosen = self._chosen_items(project, accept, reject, edit, accept_all)
        if chosen:
            self._decide(chosen)
        return {
            "items": self._inbox(project) if self.exists() else [],
            "accepted": [one.item for one in chosen if one.accept],
            "rejected": [one.item for one in chosen if not one.accept],
        }

    def _inbox(self, project: str | None) -> list[dict[str, Any]]:
        """The oldest first, notes before projects."""
        from dreamkeep.dream import inbox

        memory = self._memory("notes", "insights")
        waiting = [one for one in inbox.suggestions(memory.notes.values()) if project in (None, one.project)]
        notes = [inbox.as_item(one, memory.insights) for one in waiting]
        notes.sort(key=lambda one: (one["project"], one["suggested_at"], one["id"]))
        self._look_up_authors([quote for one in notes for quote in one["evidence"]])
        offers = [{**one, "type": "project"} for one in self.project_offers() if project in (None, one["from"], one["into"])]
        return [*notes, *offers]

    def _chosen_items(
        self,
        project: str | None,
        accept: Sequence[str],
        reject: Sequence[str],
        edit: tuple[str, str] | None,
        accept_all: str | None,
    ) -> list[Decided]:
        """By their whole ids. All are looked up before anything is done."""
        from dreamkeep.dream import told
        from dreamkeep.dream.parts import redacted

        chosen = [Decided(self._item_id(one), True) for one in accept]
        chosen += [Decided(self._item_id(one), False) for one in reject]
        if edit is not None:
            text = redacted(" ".join(edit[1].split()))
            told.check_note(text, "review --edit")
            chosen.append(Decided(self._waiting_note(edit[0]), True, text))
        if accept_all is not None:
            chosen += [Decided(one["id"], True) for one in self._waiting_of_kind(accept_all, project)]
        twice = sorted({one.item for one in chosen if sum(one.item == other.item for other in chosen) > 1})
        if twice:
            raise BadUsage(f"{twice[0]} is named twice", where="review", next="Name each item once. Nothing was done.")
        return chosen

    def _item_id(self, text: str) -> str:
        if text.startswith("p-"):
            return str(self._offer(text)["id"])
        return self._note(self._memory("notes"), text).id

    def _offer(self, id: str) -> dict[str, str]:
        found = next((one for one in self.project_offers() if one["id"] == id), None)
        if found is None:
            raise NotFound(f"the inbox has no item {id!r}", where="review", next="`dreamkeep review` lists the items.")
        return found

    def _waiting_note(self, text: str) -> str:
        from dreamkeep.memory.note import SUGGESTED

        found = self._note(self._memory("notes"), text)
        if found.state != SUGGESTED:
            way = f"Change an active note with `dreamkeep note edit {found.id} TEXT`."
            raise BadUsage(f"the note is {found.state}, so it is not in the inbox", where=found.id, next=way)
        return found.id

    def _waiting_of_kind(self, kind: str, project: str | None) -> list[dict[str, Any]]:
        from dreamkeep.memory.insight import TYPES

        if kind not in TYPES:
            raise BadUsage(f"notes have no kind {kind!r}", where="--accept-all", next=f"Use one of {', '.join(TYPES)}.")
        return [one for one in self._inbox(project) if one.get("kind") == kind] if self.exists() else []

    def _decide(self, chosen: Sequence[Decided]) -> None:
        notes = [one for one in chosen if not one.item.startswith("p-")]
        self._check_decisions(notes)
        if notes:
            self._take_in()
            with self._one_at_a_time():
                for one in notes:
                    act = "reject" if not one.accept else "accept" if one.text else "confirm"
                    self._note_changed(one.item, act, one.text, _ACCEPTED if one.accept else _REJECTED)
            self._publish("")
        for one in [one for one in chosen if one not in notes]:
            offer = self._offer(one.item)
            (self.project_merge if one.accept else self.project_apart)(offer["from"], offer["into"])

    def _check_decisions(self, notes: Sequence[Decided]) -> None:
        from dreamkeep.app_notes import check_state

        memory = self._memory("notes") if notes else None
        for one in notes:
            assert memory is not None
            check_state(memory.notes[one.item], "confirm" if one.accept else "reject")
