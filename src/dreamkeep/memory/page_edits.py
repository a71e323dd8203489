"""What a user did inside the page's region: each changed, deleted or new line is a statement by the user. Pure.

    published     - use tabs [n-1a2b3c4d5e6f]        - sign commits [n-222222222222]
    in the file   - use two spaces [n-1a2b3c4d5e6f]  - never force-push
    edits         changed n-1a2b3c4d5e6f, deleted n-222222222222, added "never force-push"

A moved line is no edit. A line belongs to the note that its reference names. A line that lost its reference belongs to the note
with nearly the same words. Nobody may know what the file had last (a crash, a folder that may not be written), so the region is
compared with every version that it may rest on (`possible_versions`).
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from itertools import islice
from typing import Any, NamedTuple

from dreamkeep.memory import page
from dreamkeep.memory.insight import digest
from dreamkeep.memory.note import RETRACTED, Note
from dreamkeep.memory.page import unflatten

CHANGED, DELETED, ADDED = "changed", "deleted", "added"
#: Why a note ended whose line was deleted. If its line is put back, the note is meant again.
LINE_DELETED = "its line was deleted from the page"

_CONFLICT = re.compile(r"^(<{7}|={7}|>{7}|\|{7})(?: .*)?$")
_BULLET = re.compile(r"^\s*(?:[-*+]|\d{1,9}[.)])(?:\s+(.*))?$")
#: Only ids as we make them: other words in brackets are the user's.
_REFERENCE = re.compile(r"(?:^|\s)\\?\[(n-[0-9a-f]{6,64})\\?\]$")
#: A formatter of Markdown puts a backslash before characters that could format something.
_ESCAPED = re.compile(r"\\([*_\[\]<>#`~|&$])")
_HEADING = re.compile(r"^ {0,3}#{1,6}(?:\s|$)")
_COMMENT = re.compile(r"^\s*<!--.*-->\s*$")
#: A line that lost its reference and keeps this much of its words is still that note's line.
_SAME_LINE = 0.6


class PageEdit(NamedTuple):
    """What a user did: `changed` (note, was, text), `deleted` (note, was), `added` (text; `note`: an id that is not ours)."""

    what: str
    note: str | None
    was: str
    text: str


class PageVersion(NamedTuple):
    """A region as it was published. `written`: for certain it was in the file then."""

    at: str
    region: str
    written: bool = False


class _PageLine(NamedTuple):
    """A list item or paragraph on one line. `disputed`: it stands in an unfinished merge."""

    ref: str | None
    text: str
    disputed: bool


# -- the region against what was published


def find_hand_edits(last: Mapping[str, Any], region: str, versions: Sequence[PageVersion] = ()) -> list[PageEdit]:
    """`last`: the page's row in memory; `versions`: as for `possible_versions`."""
    unified = region.replace("\r\n", "\n")
    possible = [one.region for one in possible_versions(last, versions)]
    # What was published since may never have reached the file: then any version that we wrote before may still stand there.
    if unified in possible or (not last.get("written") and is_our_version(last, region)):
        return []
    return _compare([_note_lines(one) for one in possible], unified)


def find_edits(published: str, current: str) -> list[PageEdit]:
    """`published`: the region as it was written; `current`: as it is now."""
    return _compare([_note_lines(published)], current)


def possible_versions(last: Mapping[str, Any], versions: Sequence[PageVersion] = ()) -> list[PageVersion]:
    """What the file may rest on, newest first: the last publication; where nobody knows whether that was written, also all before
    it, back to the last that was. `versions`: all that were published there, oldest first; where the caller has not looked
    them up, the last written region is known from `last`."""
    newest = PageVersion(str(last.get("at", "")), str(last.get("region", "")), bool(last.get("written")))
    if newest.written:
        return [newest]
    certain = max((n for n, one in enumerate(versions) if one.written), default=None)
    if certain is not None:
        return [newest, *reversed(versions[certain:])]
    before = str(last.get("before") or "")
    return [newest, *([PageVersion("", before, True)] if before else [])]


def nearest_version(versions: Sequence[PageVersion], region: str) -> PageVersion | None:
    """The version from which the region differs in the fewest lines; of several the newest."""
    now = {(line.ref, line.text) for line in _read_lines(region)}

    def distance(version: PageVersion) -> int:
        was = {(line.ref, line.text) for line in _read_lines(version.region)}
        # A changed line differs on both sides, and counts once.
        return len(was ^ now) - len({ref for ref, _ in was - now if ref} & {ref for ref, _ in now - was})

    return min(reversed(versions), key=distance, default=None)


def keep_user_words(edits: Iterable[PageEdit], notes: Mapping[str, Note]) -> Iterator[PageEdit]:
    """Those of the edits that are a user's word. A line with the id of a note that is not on the page any more is an older
    version's, unless it was deleted there by hand and is put back. New words for a note that is gone (its run was undone) stand
    by themselves."""
    for edit in edits:
        note = notes.get(edit.note) if edit.note else None
        if edit.what == ADDED:
            if note is None or (note.state == RETRACTED and note.history[-1].why == LINE_DELETED):
                yield edit
        elif note is not None:
            yield edit
        elif edit.what == CHANGED:
            yield PageEdit(ADDED, None, "", edit.text)


def is_our_version(last: Mapping[str, Any], region: str) -> bool:
    """Whether it is, to the letter, a region that we wrote there."""
    return digest(region.replace("\r\n", "\n"))[:16] in last.get("regions", ())


def is_foreign(last: Mapping[str, Any], region: str, ours: Container[str]) -> bool:
    """Whether another keep has written it: its fence names that keep, or it has notes that we never had (`ours`: the ids of our
    notes). Then a missing line was not deleted, and a new line is nobody's word to us."""
    if not last.get("region") or "erased" in last or is_our_version(last, region):
        return False  # in an erased region the unknown notes are those that went with a session
    if page.fence_owner(region) not in ("", page.fence_owner(str(last["region"]))):
        return True
    published = note_ids(str(last["region"])) | note_ids(str(last.get("before", "")))
    return any(id not in ours for id in note_ids(region) - published)


def unreferenced_lines(region: str, ours: Container[str] = ()) -> list[PageEdit]:
    """Lines that name no note, of a region whose published version is not known here: only a user writes such a line. `ours`:
    texts that were ours."""
    texts = dict.fromkeys(line.text for line in _read_lines(region) if not line.ref and line.text)
    return [PageEdit(ADDED, None, "", unflatten(text)) for text in texts if text not in ours]


def reworded_lines(published: str, text: str) -> list[PageEdit]:
    """Of a file whose region can't be told: lines that still name their note, once, with other words than were published."""
    was = _note_lines(published)
    lines = [line for line in _read_lines(text) if line.ref in was]
    named = [line.ref for line in lines]
    single = [line for line in lines if named.count(line.ref) == 1 and not line.disputed and line.text]
    found = [(str(line.ref), line.text) for line in single]
    return [PageEdit(CHANGED, ref, unflatten(was[ref]), unflatten(text)) for ref, text in found if text != was[ref]]


def note_ids(region: str) -> set[str]:
    """The ids of the notes that its lines name."""
    return {line.ref for line in _read_lines(region) if line.ref}


def note_texts(region: str) -> set[str]:
    """What its notes say, as it stands there."""
    return set(_note_lines(region).values())


def _note_lines(region: str) -> dict[str, str]:
    """Each note's line, by the note's id."""
    return {line.ref: line.text for line in _read_lines(region) if line.ref}


def _compare(versions: Sequence[Mapping[str, str]], current: str) -> list[PageEdit]:
    """`versions`: the note lines of each version that the file may rest on, newest first. A text of any of them is no new word,
    and only a line that all of them had can have been deleted."""
    was: dict[str, list[str]] = {}
    for version in versions:
        for ref, text in version.items():
            was.setdefault(ref, []).append(text)
    published = {text for old in was.values() for text in old}
    lines: dict[str, list[_PageLine]] = {}
    loose: list[_PageLine] = []
    for line in _read_lines(current):
        # A formatter that only escaped some characters changed no words.
        unescaped = _ESCAPED.sub(r"\1", line.text)
        if line.text not in published and unescaped in published:
            line = line._replace(text=unescaped)
        if line.ref is not None and line.ref in was:
            lines.setdefault(line.ref, []).append(line)
        else:
            loose.append(line)
    found = [edit for ref, old in was.items() if ref in lines for edit in _compare_note(ref, old, lines[ref])]
    missing = {ref: old[0] for ref, old in was.items() if ref not in lines and all(ref in version for version in versions)}
    return found + _compare_loose(missing, loose, published)


def _compare_note(ref: str, old: Sequence[str], lines: Sequence[_PageLine]) -> list[PageEdit]:
    """The lines that name one note. Usually there is one. There are several where somebody copied the line to write a new one, or
    where two branches were merged and nobody decided."""
    other = list(dict.fromkeys(line.text for line in lines if line.text not in old))
    kept = any(line.text in old for line in lines)
    if other == [""] and not kept:
        return [PageEdit(DELETED, ref, unflatten(old[0]), "")]
    other = [text for text in other if text]
    if kept and not any(line.disputed for line in lines):
        return [PageEdit(ADDED, None, "", unflatten(text)) for text in other]
    first = [PageEdit(CHANGED, ref, unflatten(old[0]), unflatten(text)) for text in other[:1]]
    return first + [PageEdit(ADDED, None, "", unflatten(text)) for text in other[1:]]


def _compare_loose(missing: Mapping[str, str], loose: Sequence[_PageLine], published: Container[str]) -> list[PageEdit]:
    """The lines that name none of our notes: lines that lost their reference, and new ones. `missing`: notes without a line."""
    left = dict(missing)
    new: list[_PageLine] = []
    for line in loose:
        ref = next((ref for ref, old in left.items() if old == line.text), None)
        if ref is not None:
            del left[ref]  # it only lost its reference, or has another one
        elif line.text and line.text not in published:
            new.append(line)
    found: list[PageEdit] = []
    for line in dict.fromkeys(new):
        ref = None if line.ref else _closest(line.text, left)
        if ref is not None:
            found.append(PageEdit(CHANGED, ref, unflatten(left.pop(ref)), unflatten(line.text)))
        else:
            found.append(PageEdit(ADDED, line.ref, "", unflatten(line.text)))
    return [PageEdit(DELETED, ref, unflatten(old), "") for ref, old in left.items()] + found


def _closest(text: str, left: Mapping[str, str]) -> str | None:
    likeness = {ref: SequenceMatcher(None, old, text, autojunk=False).ratio() for ref, old in left.items()}
    ref = max(likeness, key=lambda ref: (likeness[ref], ref), default=None)
    return ref if ref is not None and likeness[ref] >= _SAME_LINE else None


# -- the lines of a region


def _read_lines(region: str) -> Iterator[_PageLine]:
    """Each list item or paragraph, unwrapped."""
    gathered: list[str] = []
    for line, disputed in _read_sides([line.rstrip("\r") for line in region.split("\n")]):
        bullet = _BULLET.match(line)
        if gathered and (bullet or not line.strip() or _REFERENCE.search(" ".join(gathered).rstrip())):
            yield _unwrap(gathered, disputed=disputed)
            gathered = []
        if line.strip():
            gathered.append((bullet[1] or " ") if bullet else line)


def _read_sides(lines: Sequence[str]) -> Iterator[tuple[str, bool]]:
    """Each line, and whether it stands in an unfinished merge. Such a merge gives both sides, without the version that they come
    from. An empty line stands for a marker of the merge, for a line that is no note, and for the end."""
    no_notes = {n for first, last in _find_no_notes(lines) for n in range(first, last + 1)}
    disputed = in_base = False
    for n, line in enumerate(lines):
        if conflict := _CONFLICT.match(line):
            yield "", disputed
            mark = conflict[1][0]
            # A row of = outside a conflict is somebody's underline.
            disputed, in_base = mark == "<" or (disputed and mark != ">"), disputed and mark == "|"
        elif not in_base:
            yield "" if n in no_notes else line, disputed
    yield "", disputed


def _unwrap(lines: Sequence[str], *, disputed: bool) -> _PageLine:
    whole = " ".join(" ".join(lines).split())
    ref = _REFERENCE.search(whole)
    return _PageLine(ref[1] if ref else None, whole[: ref.start()].strip() if ref else whole, disputed)


def stray_lines(region: str) -> list[str]:
    """Headings, comments and code blocks that somebody wrote into the region: they are no notes, and not ours to drop."""
    lines = [line.rstrip("\r") for line in region.split("\n")]
    found: list[str] = []
    for first, last in _find_no_notes(lines):
        if first < last or not (lines[first].strip() in page.OUR_HEADINGS or page.is_fence(lines[first])):
            found += lines[first : last + 1]
    return found


def _find_no_notes(lines: Sequence[str]) -> Iterator[tuple[int, int]]:
    """First and last line of each heading, comment and code block."""
    code = dict(page.find_code_blocks(lines))
    comment_ends = [n for n, line in enumerate(lines) if "-->" in line]
    until = -1
    for n in range(len(lines)):
        last = _find_last_line(lines, n, code, comment_ends) if n > until else None
        if last is not None and (last == n or not any(map(_CONFLICT.match, lines[n : last + 1]))):
            until = last
            yield n, last


def _find_last_line(lines: Sequence[str], n: int, code: Mapping[int, int], comment_ends: Sequence[int]) -> int | None:
    """The last line of the heading, comment or code block that begins in line `n`; None where none does. The lines of a comment
    that does not end inside the region are ordinary lines. So are those of code that has one of our lines in it: a stray ``` is
    easily made."""
    line = lines[n]
    if line.lstrip().startswith("<!--") and "-->" not in line:
        end = next(islice(comment_ends, bisect_right(comment_ends, n), None), None)
        return None if end is None or page.is_fence(lines[end]) else end
    if n in code and not any(_REFERENCE.search(other.rstrip()) for other in lines[n : code[n]]):
        return code[n]
    return n if _HEADING.match(line) or _COMMENT.match(line) else None
