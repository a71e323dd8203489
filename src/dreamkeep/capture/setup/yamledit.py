"""Edits a plain block-style YAML file by whole lines, without a YAML library. A file that it can't parse with certainty is
refused.

It can parse top-level `key:` lines; below one of them, a block of `name:` lines of one indent; below those, a block list of `- `
items or a block of `name: value` lines. Other lines are kept unread. It can't edit flow style with content, anchors, tags and
several documents. It can edit an empty value (`{}`, `[]`, `null`, nothing).

Programs that load and dump the file (Hermes does) drop comments and fold long lines, so nothing here depends on a comment.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from dreamkeep.capture.setup.text import UnreadableFile, eol_of

_NAME = re.compile(
    r"""(?P<indent>[ ]*)(?P<name>"[^"\\]*"|'[^']*'|[A-Za-z0-9_.$/<][^:#{}\[\],&*!|>'"%@`]*?)[ ]*:(?:[ ]+(?P<rest>.*?))?[ ]*$"""
)
_EMPTY = re.compile(r"(?:\{\s*\}|\[\s*\]|null|Null|NULL|~)?\s*(?:#.*)?$")
_ODD = re.compile(r"[&*!{\[|>@`%?]")


class YamlEntry(NamedTuple):
    """`name: rest` and the lines below it, from `start` to before `end`, without the blank lines and comments after them."""

    name: str
    rest: str
    indent: int
    start: int
    end: int


class YamlItem(NamedTuple):
    indent: int
    start: int
    end: int


# -- reading lines


def lines_of(text: str) -> list[str]:
    """The lines with their ends, split only at line feeds."""
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def _bare(line: str) -> str:
    return line.rstrip("\r\n")


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _silent(line: str) -> bool:
    """Whether a line is blank or only a comment."""
    return not line.strip() or line.lstrip(" ").startswith("#")


def _wrong(number: int, what: str) -> UnreadableFile:
    return UnreadableFile(f"line {number + 1}: {what}")


def top(lines: Sequence[str]) -> list[YamlEntry]:
    """The keys of the file. Every line in the first column must be a key, so that no text with such a line is taken for one."""
    for number, line in enumerate(lines):
        if line.startswith("\t") or (re.match(r" *\t", line) and line.strip()):
            raise _wrong(number, "indented with a tab")
    first = next((n for n, line in enumerate(lines) if not _silent(line)), len(lines))
    skip = first if first < len(lines) and _bare(lines[first]).rstrip() == "---" else -1
    entries = entries_in(lines, 0 if skip < 0 else skip + 1, len(lines), 0)
    for entry in entries:
        _closed(lines, entry)
    return entries


def _closed(lines: Sequence[str], entry: YamlEntry) -> None:
    """Checks that a quoted text of several lines ends before the next key."""
    whole = "".join([entry.rest, "\n", *lines[entry.start + 1 : entry.end]])
    ending = {
        '"': r'"(?:[^"\\]|\\.)*"\s*(?:#.*)?\s*',
        "'": r"'(?:[^']|'')*'\s*(?:#.*)?\s*",
        "{": r".*\}\s*(?:#.*)?\s*",
        "[": r".*\]\s*(?:#.*)?\s*",
    }
    pattern = ending.get(entry.rest[:1])
    if pattern and not re.fullmatch(pattern, whole, re.S):
        raise _wrong(entry.start, f"the value of `{entry.name}` does not end where it should")


def entries_in(lines: Sequence[str], start: int, end: int, indent: int) -> list[YamlEntry]:
    """The `name:` lines of this indent. A list may have the same indent as its key, as many programs write it."""
    entries: list[YamlEntry] = []
    for number in range(start, end):
        line = _bare(lines[number])
        if _silent(line) or _indent(line) > indent:
            continue
        if _indent(line) < indent:
            raise _wrong(number, "indented less than the line before it")
        if entries and re.match(r" *-(?: |$)", line) and _EMPTY.match(entries[-1].rest):
            continue
        found = _NAME.match(line)
        if found is None:
            raise _wrong(number, "not a plain `name:` line")
        if entries:
            entries[-1] = entries[-1]._replace(end=_trimmed(lines, entries[-1].start, number, indent))
        name = found["name"].strip("\"'") if found["name"][0] in "\"'" else found["name"].rstrip()
        entries.append(YamlEntry(name, found["rest"] or "", indent, number, end))
    if entries:
        entries[-1] = entries[-1]._replace(end=_trimmed(lines, entries[-1].start, end, indent))
    return entries


def _trimmed(lines: Sequence[str], start: int, end: int, indent: int) -> int:
    """The end without trailing blank lines and comments. A deeper `#` may be part of a text, so its line stays."""
    while end > start + 1 and _silent(lines[end - 1]) and (not lines[end - 1].strip() or _indent(lines[end - 1]) <= indent):
        end -= 1
    return end


def find_entry(entries: Sequence[YamlEntry], name: str) -> YamlEntry | None:
    found = [entry for entry in entries if entry.name == name]
    if len(found) > 1:
        raise _wrong(found[1].start, f"`{name}` occurs twice")
    return found[0] if found else None


def block(lines: Sequence[str], entry: YamlEntry) -> list[YamlEntry]:
    """The entries below `name:`; none if its value is empty."""
    indent = _below(lines, entry)
    return [] if indent is None else entries_in(lines, entry.start + 1, entry.end, indent)


def items(lines: Sequence[str], entry: YamlEntry) -> list[YamlItem]:
    """The `- ` items below `name:`."""
    indent = _below(lines, entry, or_same=True)
    found: list[YamlItem] = []
    if indent is None:
        return found
    for number in range(entry.start + 1, entry.end):
        line = _bare(lines[number])
        if _silent(line) or _indent(line) > indent:
            continue
        if _indent(line) < indent or not re.match(r" *-(?: |$)", line):
            raise _wrong(number, f"not an item of the list `{entry.name}`")
        if found:
            found[-1] = found[-1]._replace(end=_trimmed(lines, found[-1].start, number, indent))
        found.append(YamlItem(indent, number, entry.end))
    return found


def _below(lines: Sequence[str], entry: YamlEntry, *, or_same: bool = False) -> int | None:
    """The indent of the lines below; None if there are none."""
    if not _EMPTY.match(entry.rest):
        raise _wrong(entry.start, f"`{entry.name}` is not written as an indented block")
    inside = [n for n in range(entry.start + 1, entry.end) if not _silent(lines[n])]
    if not inside:
        return None
    if entry.rest and not entry.rest.startswith("#"):
        raise _wrong(entry.start, f"`{entry.name}` has a value and lines below it")
    if any(re.search(r"[|>][0-9]*\+", _bare(lines[n])) for n in inside):
        raise _wrong(inside[0], f"a text in `{entry.name}` keeps its blank lines")
    indent = _indent(lines[inside[0]])
    if indent < entry.indent or (indent == entry.indent and not or_same):
        raise _wrong(inside[0], "indented less than it should be")
    return indent


def hollow(entry: YamlEntry) -> bool:
    """Whether it has no value and nothing below it."""
    return entry.end == entry.start + 1 and bool(_EMPTY.match(entry.rest))


def scalar(lines: Sequence[str], entry: YamlEntry) -> str | None:
    """The text of `name: value`, joined if it is folded; None if it is not a plain or quoted text."""
    parts = [entry.rest, *(_bare(line).strip() for line in lines[entry.start + 1 : entry.end])]
    whole = parts[0]
    for part in parts[1:]:
        # In double quotes a backslash at the end joins the lines without a space; `\ ` is a space at the beginning of one.
        whole = (
            whole[:-1] + part.replace("\\ ", " ", 1) if whole.endswith("\\") and whole[0] == '"' else f"{whole} {part}".strip()
        )
    return decoded(whole)


def decoded(text: str) -> str | None:
    if text.startswith('"'):
        try:
            found = json.loads(re.sub(r"\\x([0-9a-fA-F]{2})", r"\\u00\1", text))
        except ValueError:
            return None
        return found if isinstance(found, str) else None
    if text.startswith("'"):
        return text[1:-1].replace("''", "'") if re.fullmatch(r"'(?:[^']|'')*'", text) else None
    return None if not text or _ODD.match(text) else re.sub(r"\s+#.*$", "", text)


def words(lines: Sequence[str], entry: YamlEntry) -> list[str] | None:
    """The texts of a list, in block or flow style."""
    if entry.rest.startswith("["):
        try:
            found = json.loads("".join([entry.rest, *lines[entry.start + 1 : entry.end]]))
        except ValueError:
            return None
        return found if isinstance(found, list) and all(isinstance(word, str) for word in found) else None
    texts = []
    for item in items(lines, entry):
        parts = [_bare(lines[item.start]).lstrip(" ")[1:].strip(), *(_bare(x).strip() for x in lines[item.start + 1 : item.end])]
        texts.append(decoded(" ".join(parts)))
    return None if None in texts else [text for text in texts if text is not None]


def fields(lines: Sequence[str], item: YamlItem) -> list[YamlEntry]:
    """The entries of an item that is a block of `name: value` lines. The first begins behind the dash."""
    after = lines[item.start][item.indent + 1 :]
    inner = item.indent + 1 + _indent(after)
    shown = [*lines[: item.start], " " * inner + after.lstrip(" "), *lines[item.start + 1 :]]
    return entries_in(shown, item.start, item.end, inner)


# -- writing lines


def quoted(text: str) -> str:
    """A text in double quotes, as in JSON. YAML reads that, too, except for some characters that it wants escaped."""
    return re.sub(r"[\x7f-\x9f\ufeff\u2028\u2029]", lambda m: f"\\u{ord(m.group()):04x}", json.dumps(text, ensure_ascii=False))


def dumped(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(dumped, value))}]"
    return quoted(value) if isinstance(value, str) else json.dumps(value)


class YamlDraft:
    """The lines of a file while it is edited. After every edit, places must be looked up again."""

    def __init__(self, text: str) -> None:
        self.lines = lines_of(text)
        self.eol = eol_of(text)
        # A file without a line feed at its end stays without, whatever is added or removed there.
        self._open = bool(text) and not text.endswith("\n")
        if self._open:
            self.lines[-1] += self.eol

    @property
    def text(self) -> str:
        whole = "".join(self.lines)
        return whole[: -len(self.eol)] if self._open and whole.endswith(self.eol) else whole

    def insert(self, at: int, new: Sequence[str]) -> None:
        self.lines[at:at] = [line + self.eol for line in new]

    def cut(self, start: int, end: int) -> None:
        del self.lines[start:end]

    def swap(self, start: int, end: int, new: Sequence[str]) -> None:
        self.lines[start:end] = [line + self.eol for line in new]

    def set_rest(self, entry: YamlEntry, rest: str) -> None:
        """`name: {}` becomes `name:` and back; a comment behind it stays."""
        line = _bare(self.lines[entry.start])
        comment = re.search(r"\s+#.*$", line)
        head = re.match(r"""[ ]*(?:"[^"]*"|'[^']*'|[^:]*?)[ ]*:""", line)
        assert head is not None, line
        self.lines[entry.start] = head.group() + (f" {rest}" if rest else "") + (comment.group() if comment else "") + self.eol

    def key(self, path: Sequence[str]) -> YamlEntry | None:
        entry = find_entry(top(self.lines), path[0])
        for name in path[1:]:
            entry = find_entry(block(self.lines, entry), name) if entry else None
        return entry

    def add_key(self, path: Sequence[str], below: Callable[[int], Sequence[str]]) -> None:
        """Adds `name:` under an existing or new parent. `below(indent)` gives its lines, beginning with the name's own."""
        if len(path) == 1:
            top(self.lines)  # understood?
            self.insert(len(self.lines), below(0))
            return
        parent = self.key(path[:-1])
        if parent is None:
            self.add_key(path[:-1], lambda indent: [f"{' ' * indent}{path[-2]}:", *below(indent + 2)])
            return
        children = block(self.lines, parent)
        if not children:
            self.set_rest(parent, "")
        indent = children[-1].indent if children else parent.indent + 2
        self.insert(children[-1].end if children else parent.start + 1, below(indent))

    def drop(self, entry: YamlEntry) -> None:
        self.cut(entry.start, entry.end)


def mapping(name: str, entries: Mapping[str, Any], indent: int) -> list[str]:
    space = " " * indent
    return [f"{space}{name}:", *(f"{space}  {key}: {dumped(value)}" for key, value in entries.items())]


def item(entries: Mapping[str, Any], indent: int) -> list[str]:
    lines = [f"{key}: {dumped(value)}" for key, value in entries.items()]
    return [f"{' ' * indent}{'- ' if n == 0 else '  '}{line}" for n, line in enumerate(lines)]
