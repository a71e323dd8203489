"""Edits JSON text and changes only what it adds or removes: comments, order, spaces and line ends stay as they are.

The text is parsed into a tree of *spans* (where each value begins and ends), and an edit is a splice between spans. Values are
never printed again, because the author of the file chose its format. `remove` undoes an addition exactly; only the white space
inside an empty container (`{}` or `{ }`) is not restored.

Two extensions of JSON are accepted on demand: comments (`//`, `/* */`) and a comma after the last member.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from dreamkeep.capture.setup.text import UnreadableFile, eol_of, text_of

DEEPEST = 200

_SPACE = re.compile(r"[ \t\r\n]*")
_COMMENT = re.compile(r"//[^\r\n]*|/\*.*?\*/", re.S)
_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"')
_OTHER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|true|false|null")
_INDENT = re.compile(r"[\r\n]([ \t]*)\Z")


class Syntax(NamedTuple):
    """`inside`: the only members of the root that are parsed; None for all. The others are skipped at C's speed, because a state
    file of many megabytes may have just one small table that we edit."""

    comments: bool = False
    last_comma: bool = False
    inside: frozenset[str] | None = None


STRICT = Syntax()


def _no_constant(name: str) -> None:
    raise ValueError(name)  # NaN and Infinity, which Python accepts and JSON does not


_PLAIN = json.JSONDecoder(parse_constant=_no_constant)


class Node(NamedTuple):
    """A value and its place. `kids` of an object are its members; each has a `key` and begins where its key does."""

    kind: str
    start: int
    end: int
    kids: tuple[Node, ...] = ()
    key: str | None = None
    #: Where the value itself begins; for a member, behind the key.
    value_start: int = 0
    #: The place of the comma behind it; -1 if there is none.
    comma: int = -1
    #: The value was skipped: its kids are not known.
    closed: bool = False

    def members(self, name: str) -> list[Node]:
        return [kid for kid in self.kids if kid.key == name]


# -- reading


def parse(text: str, syntax: Syntax = STRICT) -> Node:
    reader = _Reader(text, syntax)
    node = reader.value(reader.gap(0), 0)
    end = reader.gap(node.end)
    if end != len(text):
        raise reader.wrong(end, "something follows the end")
    return node


class _Reader:
    def __init__(self, text: str, syntax: Syntax) -> None:
        self.text = text
        self.syntax = syntax

    def wrong(self, at: int, what: str) -> UnreadableFile:
        line = self.text.count("\n", 0, at) + 1
        column = at - self.text.rfind("\n", 0, at)
        return UnreadableFile(f"line {line}, column {column}: {what}")

    def gap(self, at: int) -> int:
        """The place behind white space and comments."""
        while True:
            at = _SPACE.match(self.text, at).end()  # type: ignore[union-attr]  # matches the empty text, too
            if not self.text.startswith("/", at):
                return at
            comment = _COMMENT.match(self.text, at)
            if comment is None:
                raise self.wrong(at, "an unterminated comment" if self.text.startswith("/*", at) else "an unexpected `/`")
            if not self.syntax.comments:
                raise self.wrong(at, "a comment, which this file must not contain")
            at = comment.end()

    def value(self, at: int, depth: int) -> Node:
        opening = self.text[at : at + 1]
        if depth > DEEPEST:
            raise self.wrong(at, "nested too deeply")
        if opening == "{":
            return self.container(at, depth, "object", "}")
        if opening == "[":
            return self.container(at, depth, "array", "]")
        kind, found = ("string", _STRING.match(self.text, at)) if opening == '"' else ("other", _OTHER.match(self.text, at))
        if found is None:
            raise self.wrong(at, "the text ends too early" if not opening else "not a value")
        return Node(kind, at, found.end(), value_start=at)

    def container(self, start: int, depth: int, kind: str, closing: str) -> Node:
        kids: list[Node] = []
        at = self.gap(start + 1)
        while not self.text.startswith(closing, at):
            if kids and kids[-1].comma < 0:
                raise self.wrong(at, f"`,` or `{closing}` is missing" if at < len(self.text) else "the text ends too early")
            kid = self.member(at, depth) if kind == "object" else self.value(at, depth + 1)
            at = self.gap(kid.end)
            if self.text.startswith(",", at):
                kid = kid._replace(comma=at)
                at = self.gap(at + 1)
            kids.append(kid)
        if kids and kids[-1].comma >= 0 and not self.syntax.last_comma:
            raise self.wrong(kids[-1].comma, f"a comma before `{closing}`")
        return Node(kind, start, at + 1, tuple(kids), value_start=start)

    def member(self, at: int, depth: int) -> Node:
        key = _STRING.match(self.text, at)
        if key is None:
            raise self.wrong(at, "a key in double quotes is missing" if at < len(self.text) else "the text ends too early")
        colon = self.gap(key.end())
        if not self.text.startswith(":", colon):
            raise self.wrong(colon, "`:` is missing")
        name = json.loads(key.group())
        start = self.gap(colon + 1)
        passed = depth == 0 and self.syntax.inside is not None and name not in self.syntax.inside
        value = (self.passed(start) if passed else None) or self.value(start, depth + 1)
        return value._replace(start=at, key=name)

    def passed(self, at: int) -> Node | None:
        """Skips a value. None if it is not strict JSON: then it must be parsed."""
        try:
            _, end = _PLAIN.raw_decode(self.text, at)
        except (ValueError, RecursionError):
            return None
        return Node("other", at, end, value_start=at, closed=True)


def members_of(data: bytes | None) -> dict[str, Any]:
    """The members of settings, with comments and a last comma allowed; {} if the file is missing, empty or no object."""
    text = text_of(data or b"").body
    if not text.strip():
        return {}
    value = value_of(text, parse(text, Syntax(comments=True, last_comma=True)))
    return value if isinstance(value, dict) else {}


def value_of(text: str, node: Node) -> Any:
    """The Python value. If a key occurs twice, the last counts, as usual in JSON."""
    if node.kind == "object":
        return {kid.key: value_of(text, kid) for kid in node.kids}
    if node.kind == "array":
        return [value_of(text, kid) for kid in node.kids]
    return json.loads(text[node.value_start : node.end])


def find(root: Node, steps: Sequence[str | int]) -> Node | None:
    """The value at `steps`; None if there is none. Raises UnreadableFile if a key on the way occurs twice."""
    node = root
    for step in steps:
        assert not node.closed, steps
        if isinstance(step, int):
            kids: Sequence[Node] = node.kids[step : step + 1] if node.kind == "array" else ()
        else:
            kids = node.members(step)
        if len(kids) > 1:
            raise UnreadableFile(f"the key `{step}` occurs {len(kids)} times")
        if not kids:
            return None
        node = kids[0]
    return node


# -- how the file looks


class Looks(NamedTuple):
    """The format of a file. `unit`: one indentation; None if everything is on one line."""

    eol: str
    unit: str | None
    colon: str
    comma: str


def looks(text: str, root: Node) -> Looks:
    eol = eol_of(text)
    if not root.kids:
        return Looks(eol, "  ", ": ", ", ")
    first = root.kids[0]
    own_line = _INDENT.search(text, root.start, first.start)
    spaced = text[first.value_start - 1] in " \t\r\n"
    if own_line is None:
        return Looks(eol, None, ": " if spaced else ":", ", " if spaced else ",")
    return Looks(eol, own_line.group(1), ": " if spaced else ":", ", ")


def rendered(value: Any, style: Looks, indent: str) -> str:
    if isinstance(value, (dict, list)) and value and style.unit is not None:
        inner = indent + style.unit
        if isinstance(value, dict):
            lines = [f"{_word(k)}{style.colon}{rendered(v, style, inner)}" for k, v in value.items()]
        elif all(isinstance(v, (str, int)) for v in value):
            return rendered(value, style._replace(unit=None), indent)
        else:
            lines = [rendered(v, style, inner) for v in value]
        body = f",{style.eol}{inner}".join(lines)
        opening, closing = "{}" if isinstance(value, dict) else "[]"
        return f"{opening}{style.eol}{inner}{body}{style.eol}{indent}{closing}"
    return json.dumps(value, ensure_ascii=False, separators=(style.comma, style.colon))


def _word(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _line_indent(text: str, at: int) -> str:
    start = text.rfind("\n", 0, at) + 1
    return re.match(r"[ \t]*", text[start:at]).group()  # type: ignore[union-attr]  # matches the empty text, too


# -- edits: each takes a text and gives a text


def put(text: str, steps: Sequence[str | int], value: Any, syntax: Syntax = STRICT) -> str:
    """Sets the member at `steps`, and adds missing objects on the way. If the value is the same, nothing changes."""
    root = parse(text, syntax)
    node = find(root, steps)
    if node is not None:
        if value_of(text, node) == value:
            return text
        new = rendered(value, looks(text, root), _line_indent(text, node.start))
        return text[: node.value_start] + new + text[node.end :]
    holder, missing, value = _nearest(root, steps, value)
    return _added(text, root, holder, missing, value)


def append(text: str, steps: Sequence[str], value: Any, syntax: Syntax = STRICT) -> str:
    """Adds an element at the end of the array at `steps`, and missing containers on the way."""
    root = parse(text, syntax)
    node = find(root, steps)
    if node is None:
        holder, missing, value = _nearest(root, steps, [value])
        return _added(text, root, holder, missing, value)
    if node.kind != "array":
        raise UnreadableFile(f"`{'.'.join(steps)}` is not a list")
    return _added(text, root, node, None, value)


def remove(text: str, steps: Sequence[str | int], syntax: Syntax = STRICT) -> str:
    """Removes a member or an element, with its comma and the white space before it."""
    root = parse(text, syntax)
    holder = find(root, steps[:-1])
    node = find(root, steps)
    assert holder is not None and node is not None, steps
    at = holder.kids.index(node)
    before = holder.kids[at - 1] if at else None
    # First without the space. If a line comment before it would then swallow the next member, the space stays.
    for keep_space in (False, True):
        after = _without(text, holder, before, node, keep_space)
        try:
            if _kids(after, parse(after, syntax), steps) == _kids(text, root, steps, node):
                return after
        except UnreadableFile:
            continue
    raise UnreadableFile(f"`{'.'.join(map(str, steps))}` can't be removed cleanly")


def _kids(text: str, root: Node, steps: Sequence[str | int], gone: Node | None = None) -> list[list[str]]:
    """The keys in each container on the way, and the text of each kid of the last one: shows whether a comment swallowed more."""
    found = []
    for depth in range(len(steps)):
        holder = find(root, steps[:depth])
        kids = [kid for kid in holder.kids if kid is not gone] if holder else []
        last = depth == len(steps) - 1
        found.append([text[kid.start : kid.end] if last else str(kid.key) for kid in kids])
    return found


def _without(text: str, holder: Node, before: Node | None, node: Node, keep_space: bool) -> str:
    start = node.start
    while not keep_space and text[start - 1] in " \t\r\n":
        start -= 1
    cuts = [(start, node.end)]
    if node.comma >= 0:
        cuts.append((node.comma, node.comma + 1))
    elif before is not None:
        cuts.append((before.comma, before.comma + 1))
    elif not text[holder.value_start + 1 : start].strip() and not text[node.end : holder.end - 1].strip():
        cuts = [(holder.value_start + 1, holder.end - 1)]  # nothing is left inside: `{}`
    for a, b in sorted(cuts, reverse=True):
        text = text[:a] + text[b:]
    return text


def _nearest(root: Node, steps: Sequence[str | int], value: Any) -> tuple[Node, str, Any]:
    """The last existing object on the way, the first missing key, and the value for that key."""
    for depth in range(len(steps) - 1, -1, -1):
        holder, key = find(root, steps[:depth]), steps[depth]
        if holder is not None:
            if holder.kind != "object" or isinstance(key, int):
                raise UnreadableFile(f"`{'.'.join(map(str, steps[:depth])) or 'the file'}` is not an object")
            return holder, key, value
        value = {key: value}
    raise AssertionError("the root is always there")


def _added(text: str, root: Node, holder: Node, key: str | None, value: Any) -> str:
    style = looks(text, root)
    last = holder.kids[-1] if holder.kids else None
    own_line = _INDENT.search(text, holder.value_start, last.start) if last else None
    if last is None:
        return _first(text, holder, key, value, style)
    if own_line is None:
        style = style._replace(unit=None)
    indent = own_line.group(1) if own_line else ""
    entry = _entry(key, value, style, indent)
    space = style.eol + indent if own_line else style.comma[1:]
    if last.comma >= 0:
        at = _line_rest(text, last.comma + 1) if own_line else last.comma + 1
        return f"{text[:at]}{space}{entry},{text[at:]}"
    at = _line_rest(text, last.end) if own_line else last.end
    return f"{text[: last.end]},{text[last.end : at]}{space}{entry}{text[at:]}"


def _first(text: str, holder: Node, key: str | None, value: Any, style: Looks) -> str:
    at = holder.value_start + 1
    inside = text[at : holder.end - 1]
    if style.unit is None:
        return text[:at] + _entry(key, value, style, "") + text[at:]
    outer = _line_indent(text, at)
    indent = outer + style.unit
    # A comment on the opening line stays there.
    at = _line_rest(text, at)
    closing = "" if "\n" in text[at : holder.end - 1] or inside.strip() else style.eol + outer
    return f"{text[:at]}{style.eol}{indent}{_entry(key, value, style, indent)}{closing}{text[at:]}"


def _entry(key: str | None, value: Any, style: Looks, indent: str) -> str:
    return rendered(value, style, indent) if key is None else f"{_word(key)}{style.colon}{rendered(value, style, indent)}"


def _line_rest(text: str, at: int) -> int:
    """The place behind the comments on the same line, which belong to the entry before them."""
    end = at
    while True:
        after = re.compile(r"[ \t]*").match(text, end).end()  # type: ignore[union-attr]  # matches the empty text, too
        comment = _COMMENT.match(text, after)
        if comment is None or "\n" in comment.group():
            return end
        end = comment.end()
