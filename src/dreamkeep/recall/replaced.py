"""What was superseded goes below what replaced it, and says so (D38). Decides by notes; the talk behind them follows.

    a superseded note (or the talk that only superseded notes rest on) is found
      └─► the note that holds now is found, too, if the filters let it, and is worth as much; so is the talk behind it
          └─► the old one comes after them, with `superseded_by`

As of an earlier time, a note is superseded only by what was said until then.
"""

from __future__ import annotations

from collections.abc import Collection

from dreamkeep.index.searching import Remembered, Within
from dreamkeep.index.store import Store
from dreamkeep.recall.hits import MESSAGE, NOTE, FoundItem, is_within, learned, message, numbers_of

_LONGEST_CHAIN = 50
_OLD = 0.6
_BELOW = 0.95
SUPERSEDED = "superseded"


class _Notes:
    """Notes by their ids, read when they are needed; as of a time."""

    def __init__(self, store: Store, until: str | None) -> None:
        self._store = store
        self._until = until
        self._known: dict[str, Remembered | None] = {}

    def get(self, id: str) -> Remembered | None:
        if id not in self._known:
            found = self._store.remembered_ids([id])
            self._known[id] = found[0] if found else None
        return self._known[id]

    def now(self, id: str) -> Remembered | None:
        """The note that holds in its place: itself, if it was not superseded until then; None if there is none any more."""
        note = self.get(id)
        for _ in range(_LONGEST_CHAIN):
            if note is None or note.state != SUPERSEDED:
                return note
            after = self.get(note.by) if note.by else None
            if after is not None and self._until is not None and (after.first_at or "") > self._until:
                return note
            if after is None:
                return None
            note = after
        return note


def settled(store: Store, found: dict[str, FoundItem], within: Within, kinds: Collection[str], most: int) -> None:
    """Puts what was superseded in its place, among the best `most`; adds what replaced it."""
    notes = _Notes(store, within.until)
    best = sorted(found.values(), key=lambda one: (-one.score, one.key))[:most]
    grounds = store.grounds({one.place for one in best if one.kind != NOTE and one.session})
    for one in best:
        about = [one.id] if one.kind == NOTE else grounds.get(one.place, [])
        current = {id: notes.now(id) for id in about}
        if not current or any(note is not None and note.id == id for id, note in current.items()):
            continue  # it says nothing that was superseded, or also something that holds
        after = next((note for note in current.values() if note is not None), None)
        if after is None:
            continue  # what replaced it was itself taken back: nothing holds instead
        _below(store, found, found[one.key], after, within, kinds)


def _below(
    store: Store, found: dict[str, FoundItem], old: FoundItem, after: Remembered, within: Within, kinds: Collection[str]
) -> None:
    newer: list[str] = []
    if NOTE in kinds and is_within(store, after, within):
        newer.append(f"note:{after.id}")
        found.setdefault(newer[0], learned(after, 0.0))
    newer += _talk(store, found, after, within, kinds)
    least = old.score
    for key in newer:
        found[key] = found[key]._replace(score=max(found[key].score, old.score))
        least = min(least, found[key].score)
    score = min(old.score * _OLD, least * _BELOW)
    found[old.key] = found[old.key]._replace(score=score, superseded_by=after.id)


def _talk(store: Store, found: dict[str, FoundItem], after: Remembered, within: Within, kinds: Collection[str]) -> list[str]:
    """What was said for it, as far as it is found."""
    numbers = numbers_of(after.place)
    if MESSAGE not in kinds or not after.session or numbers is None:
        return []
    place = (after.session, *numbers)
    no = store.numbers([place]).get(place)
    if no is None or no not in store.inside([no], within):
        return []
    key = f"message:{no}"
    if key not in found:
        for head in store.heads([no]):
            found[key] = message(head, 0.0)
    return [key] if key in found else []
