"""Edits of settings files: bytes in, bytes out. Pure, so that tests need no disk.

An edit recognises our entries among others. To install, it updates ours in place and adds missing ones at the end: Codex trusts
hooks by their position, so no other hook may move. To remove, it deletes ours and the containers that were made for them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from dreamkeep.capture.setup import jsonedit, tomledit, yamledit
from dreamkeep.capture.setup.jsonedit import Syntax
from dreamkeep.capture.setup.program import SERVER, is_our_hook, is_our_server, words_of
from dreamkeep.capture.setup.text import UnreadableFile, text_of


class EditResult(NamedTuple):
    """`data`: the new content of the file. `made`: containers that the edit added, as dotted names. `fresh`: the file had no
    entry of ours. `empty`: the file has no content any more. `note`: what the user should know."""

    data: bytes
    made: tuple[str, ...] = ()
    fresh: bool = False
    empty: bool = False
    note: str = ""


class FileEdit(Protocol):
    def install(self, data: bytes | None) -> EditResult:
        """`data` None: there is no file. Raises UnreadableFile if the edit might damage the file."""

    def remove(self, data: bytes, made: Sequence[str] | None) -> EditResult:
        """`made`: the containers that install added; None if that is no longer known: then all empty containers go, too."""

    def commands(self, data: bytes) -> dict[str, list[str]]:
        """Our hooks in the file: event → the words of the hook's command."""

    def by_hand(self) -> str:
        """What the user can add by hand if the edit is refused; "" if the file must be corrected first."""


# -- JSON


class Switch(NamedTuple):
    """An agent's setting that stops it from running hooks. `fix`: what to do about it; the file's name follows."""

    path: Sequence[str]
    off: bool
    fix: str

    @property
    def name(self) -> str:
        return ".".join(self.path)

    def is_off(self, settings: Any) -> bool:
        return _value_at(settings, self.path) is self.off


class Json(NamedTuple):
    """A JSON file. `hooks`: event → handler; None to leave hooks alone. `holder`: the key of the MCP servers."""

    agent: str
    hook: str
    syntax: Syntax
    hooks: Mapping[str, Mapping[str, Any]] | None = None
    holder: str = ""
    server: Mapping[str, Any] | None = None
    #: The note for a file with comments.
    comment_note: str = ""
    switches: Sequence[Switch] = ()

    @property
    def _accepted_syntax(self) -> Syntax:
        return self.syntax._replace(inside=frozenset(("hooks", self.holder)))

    def install(self, data: bytes | None) -> EditResult:
        file = text_of(data or b"")
        text = file.body if file.body.strip() else "{}\n"
        before = self._value(text)
        made: list[str] = []
        notes = self._notes(text, before)
        if self.hooks is not None:
            made += _missing_paths(before, [("hooks",), *(("hooks", event) for event in self.hooks)])
            text = self._install_hooks(text, before, self.hooks)
        if self.server is not None:
            current = _value_at(before, (self.holder, SERVER))
            if current is None or is_our_server(current):
                made += _missing_paths(before, [(self.holder,)])
                text = self._install_server(text, current, self.server)
            else:
                notes.append(f"`{self.holder}.{SERVER}` is not dreamkeep's: left unchanged")
        self._check_others_unchanged(before, self._value(text))
        return EditResult(file.bytes_with(text), tuple(made), not self._has_our_entries(before), note="; ".join(notes))

    def remove(self, data: bytes, made: Sequence[str] | None) -> EditResult:
        file = text_of(data)
        text = file.body
        if not text.strip():
            return EditResult(data, empty=True)
        before = self._value(text)
        for event, group, number in reversed(self._find_hooks(before)):
            text = self._remove_entry(text, ("hooks", event, group, "hooks", number), ("hooks", event), made)
        if self.holder and is_our_server(_value_at(before, (self.holder, SERVER))):
            text = self._remove_entry(text, (self.holder, SERVER), (self.holder,), made)
        self._check_others_unchanged(before, self._value(text))
        return EditResult(file.bytes_with(text), empty=not re.sub(r"[{}\s]", "", text))

    def commands(self, data: bytes) -> dict[str, list[str]]:
        text = text_of(data).body
        value = self._value(text) if text.strip() else {}
        return {e: words_of(value["hooks"][e][g]["hooks"][n]["command"]) for e, g, n in self._find_hooks(value)}

    def by_hand(self) -> str:
        return ""

    def _value(self, text: str) -> Any:
        root = jsonedit.parse(text, self._accepted_syntax)
        if root.kind != "object":
            raise UnreadableFile("the file is not a JSON object")
        try:
            return jsonedit.value_of(text, root)
        except ValueError as problem:
            raise UnreadableFile(str(problem)) from problem

    def _install_hooks(self, text: str, before: Any, hooks: Mapping[str, Mapping[str, Any]]) -> str:
        self._check_shape(before, hooks)
        places = self._find_hooks(before)
        kept = {event: (event, group, number) for event, group, number in reversed(places) if event in hooks}
        for event, place in kept.items():
            for key, value in hooks[event].items():
                text = jsonedit.put(text, ("hooks", place[0], place[1], "hooks", place[2], key), value, self._accepted_syntax)
        for place in reversed(places):
            if kept.get(place[0]) != place:
                text = self._remove_entry(text, ("hooks", place[0], place[1], "hooks", place[2]), ("hooks", place[0]), None)
        for event, handler in hooks.items():
            if event not in kept:
                text = jsonedit.append(text, ("hooks", event), {"hooks": [dict(handler)]}, self._accepted_syntax)
        return text

    def _install_server(self, text: str, current: Any, server: Mapping[str, Any]) -> str:
        if current is None:
            return jsonedit.put(text, (self.holder, SERVER), dict(server), self._accepted_syntax)
        for key in ("command", "args"):  # the user may have changed the rest, for example disabled the server
            if key in server:
                text = jsonedit.put(text, (self.holder, SERVER, key), server[key], self._accepted_syntax)
        return text

    def _check_shape(self, before: Any, hooks: Mapping[str, Any]) -> None:
        current = before.get("hooks", {})
        if not isinstance(current, dict):
            raise UnreadableFile("`hooks` is not an object")
        for event in hooks:
            groups = current.get(event, [])
            if not isinstance(groups, list) or not all(
                isinstance(group, dict) and isinstance(group.get("hooks", []), list) for group in groups
            ):
                raise UnreadableFile(f"`hooks.{event}` is not a list of groups of hooks")
        if self.server is not None and not isinstance(before.get(self.holder, {}), dict):
            raise UnreadableFile(f"`{self.holder}` is not an object")

    def _find_hooks(self, value: Any) -> list[tuple[str, int, int]]:
        """The places of our hooks: event, number of the group, position in the group."""
        hooks = value.get("hooks") if self.hooks is not None else None
        return [
            (event, g, n)
            for event, groups in (hooks.items() if isinstance(hooks, dict) else ())
            for g, group in enumerate(groups if isinstance(groups, list) else ())
            for n, handler in enumerate(_as_list(group.get("hooks")) if isinstance(group, dict) else ())
            if isinstance(handler, dict) and is_our_hook(handler.get("command"), self.hook, self.agent)
        ]

    def _has_our_entries(self, value: Any) -> bool:
        return bool(self._find_hooks(value)) or (bool(self.holder) and is_our_server(_value_at(value, (self.holder, SERVER))))

    def _remove_entry(self, text: str, steps: Sequence[str | int], made_for: Sequence[str], made: Sequence[str] | None) -> str:
        """Removes one entry, then the containers that are empty now: groups always, others only if they were made for us."""
        text = jsonedit.remove(text, steps, self._accepted_syntax)
        holders = [steps[:n] for n in range(len(steps) - 1, 0, -1)]
        for holder in holders:
            if len(holder) <= len(made_for) and made is not None and ".".join(map(str, holder)) not in made:
                break
            node = jsonedit.find(jsonedit.parse(text, self._accepted_syntax), holder)
            # A group without hooks is useless, even if it has a matcher.
            if node is None or (node.kids and not isinstance(holder[-1], int)):
                break
            if not node.kids and text[node.value_start + 1 : node.end - 1].strip():
                break  # it has a comment
            text = jsonedit.remove(text, holder, self._accepted_syntax)
        return text

    def _check_others_unchanged(self, before: Any, after: Any) -> None:
        """A last check before the file is written: all entries of others are unchanged."""
        if self._without_our_entries(before) != self._without_our_entries(after):
            raise UnreadableFile("the edit would have changed more than dreamkeep's own entries")

    def _without_our_entries(self, value: Any) -> Any:
        rest = dict(value)
        if self.hooks is not None and isinstance(rest.get("hooks"), dict):
            kept = {event: self._without_our_hooks(groups) for event, groups in rest["hooks"].items()}
            rest["hooks"] = {event: groups for event, groups in kept.items() if groups != []}
        if self.holder and isinstance(rest.get(self.holder), dict) and is_our_server(rest[self.holder].get(SERVER)):
            rest[self.holder] = {name: entry for name, entry in rest[self.holder].items() if name != SERVER}
        return {key: entry for key, entry in rest.items() if key not in ("hooks", self.holder) or entry != {}}

    def _without_our_hooks(self, groups: Any) -> Any:
        if not isinstance(groups, list):
            return groups
        left = []
        for group in groups:
            handlers = _as_list(group.get("hooks")) if isinstance(group, dict) else []
            others = [h for h in handlers if not (isinstance(h, dict) and is_our_hook(h.get("command"), self.hook, self.agent))]
            if len(others) == len(handlers):
                left.append(group)
            elif others:
                left.append({**group, "hooks": others})
        return left

    def _notes(self, text: str, value: Any) -> list[str]:
        notes = []
        if self.comment_note:
            try:
                jsonedit.parse(text, self._accepted_syntax._replace(comments=False))
            except UnreadableFile:
                notes.append(self.comment_note)
        if self.hooks is not None:
            notes += [f"hooks are switched off here by `{switch.name}`" for switch in self.switches if switch.is_off(value)]
        return notes


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _value_at(value: Any, steps: Sequence[str]) -> Any:
    for step in steps:
        value = value.get(step) if isinstance(value, dict) else None
    return value


def _missing_paths(value: Any, paths: Sequence[Sequence[str]]) -> list[str]:
    return [".".join(path) for path in paths if _value_at(value, path) is None]


# -- TOML: an MCP server


class Toml(NamedTuple):
    holder: str
    server: Mapping[str, Any]

    def install(self, data: bytes | None) -> EditResult:
        file = text_of(data or b"")
        current = tomledit.lookup(tomledit.read(file.body), (self.holder, SERVER))
        if current is not None and not is_our_server(current):
            return EditResult(data or b"", fresh=True, note=f"`{self.holder}.{SERVER}` is not dreamkeep's: left unchanged")
        text = tomledit.put(file.body, (self.holder, SERVER), self.server)
        return EditResult(file.bytes_with(text), fresh=current is None)

    def remove(self, data: bytes, made: Sequence[str] | None) -> EditResult:
        file = text_of(data)
        text = file.body
        if is_our_server(tomledit.lookup(tomledit.read(text), (self.holder, SERVER))):
            text = tomledit.remove(text, (self.holder, SERVER))
        return EditResult(file.bytes_with(text), empty=not text.strip())

    def commands(self, data: bytes) -> dict[str, list[str]]:
        return {}

    def by_hand(self) -> str:
        return self.install(None).data.decode()


# -- YAML


class Yaml(NamedTuple):
    hook: str
    hooks: Mapping[str, Mapping[str, Any]]
    holder: str = ""
    server: Mapping[str, Any] | None = None

    def install(self, data: bytes | None) -> EditResult:
        file = text_of(data or b"")
        draft = yamledit.YamlDraft(file.body)
        fresh = not self._has_our_entries(draft)
        wanted_keys = [("hooks",), *(("hooks", event) for event in self.hooks), *([(self.holder,)] if self.server else [])]
        made = tuple(".".join(path) for path in wanted_keys if draft.key(path) is None)
        for event in self._events(draft):
            if event not in self.hooks:
                self._drop_hooks(draft, event, None)
        for event, fields in self.hooks.items():
            self._install_hook(draft, event, fields)
        note = self._install_server(draft) if self.server else ""
        return EditResult(file.bytes_with(draft.text), made, fresh, note=note)

    def remove(self, data: bytes, made: Sequence[str] | None) -> EditResult:
        file = text_of(data)
        if not self._mentions_us(file.body):
            # The file has no entry of ours, and perhaps syntax that we can't parse.
            return EditResult(data, empty=not file.body.strip())
        draft = yamledit.YamlDraft(file.body)
        for event in self._events(draft):
            self._drop_hooks(draft, event, made)
        entry = draft.key((self.holder, SERVER)) if self.holder else None
        if entry is not None and self._is_our_server(draft, entry):
            draft.drop(entry)
            self._drop_if_empty(draft, (self.holder,), "{}", made)
        return EditResult(file.bytes_with(draft.text), empty=not draft.text.strip())

    def commands(self, data: bytes) -> dict[str, list[str]]:
        draft = yamledit.YamlDraft(text_of(data).body)
        found = {}
        for event in self._events(draft):
            entry = draft.key(("hooks", event))
            assert entry is not None
            command = yamledit.find_entry(yamledit.fields(draft.lines, self._find_hooks(draft, entry)[0]), "command")
            assert command is not None
            found[event] = words_of(yamledit.scalar(draft.lines, command) or "")
        return found

    def by_hand(self) -> str:
        return self.install(None).data.decode()

    # hooks

    def _events(self, draft: yamledit.YamlDraft) -> list[str]:
        """The events that have hooks of ours."""
        hooks = draft.key(("hooks",))
        if hooks is None:
            return []
        if not self._mentions_us("".join(draft.lines[hooks.start : hooks.end])):
            return []
        return [entry.name for entry in yamledit.block(draft.lines, hooks) if self._find_hooks(draft, entry)]

    def _find_hooks(self, draft: yamledit.YamlDraft, entry: yamledit.YamlEntry) -> list[yamledit.YamlItem]:
        found = []
        for item in yamledit.items(draft.lines, entry):
            mentioned = self._mentions_us("".join(draft.lines[item.start : item.end]))
            command = yamledit.find_entry(yamledit.fields(draft.lines, item), "command") if mentioned else None
            if command is not None and is_our_hook(yamledit.scalar(draft.lines, command), self.hook):
                found.append(item)
        return found

    def _mentions_us(self, text: str) -> bool:
        """A quick check: text that doesn't even name us isn't parsed, so it may use any syntax."""
        return SERVER in text or bool(self.hook and self.hook in text)

    def _install_hook(self, draft: yamledit.YamlDraft, event: str, fields: Mapping[str, Any]) -> None:
        entry = draft.key(("hooks", event))
        if entry is None:
            draft.add_key(("hooks", event), lambda indent: [f"{' ' * indent}{event}:", *yamledit.item(fields, indent + 2)])
            return
        ours = self._find_hooks(draft, entry)
        for item in reversed(ours[1:]):
            draft.cut(item.start, item.end)
        if ours:
            self._update_fields(draft, ours[0], fields)
            return
        others = yamledit.items(draft.lines, entry)
        if not others:
            draft.set_rest(entry, "")
        indent = others[-1].indent if others else entry.indent + 2
        draft.insert(others[-1].end if others else entry.start + 1, yamledit.item(fields, indent))

    def _update_fields(self, draft: yamledit.YamlDraft, item: yamledit.YamlItem, fields: Mapping[str, Any]) -> None:
        """Changes field by field, so that fields that the user added stay."""
        for key, value in fields.items():
            present_fields = yamledit.fields(draft.lines, item)
            field = yamledit.find_entry(present_fields, key)
            if field is not None and yamledit.scalar(draft.lines, field) == str(value):
                continue
            indent = present_fields[0].indent
            line = f"{' ' * indent}{key}: {yamledit.dumped(value)}"
            if field is None:
                draft.insert(item.end, [line])
                item = item._replace(end=item.end + 1)
                continue
            if field.start == item.start:
                line = draft.lines[item.start][:indent] + line[indent:]
            draft.swap(field.start, field.end, [line])
            item = item._replace(end=item.end - (field.end - field.start) + 1)

    def _drop_hooks(self, draft: yamledit.YamlDraft, event: str, made: Sequence[str] | None) -> None:
        entry = draft.key(("hooks", event))
        assert entry is not None
        for item in reversed(self._find_hooks(draft, entry)):
            draft.cut(item.start, item.end)
        self._drop_if_empty(draft, ("hooks", event), "[]", made)
        self._drop_if_empty(draft, ("hooks",), "{}", made)

    def _drop_if_empty(self, draft: yamledit.YamlDraft, path: Sequence[str], nothing: str, made: Sequence[str] | None) -> None:
        """Removes an empty key if it was made for us; else keeps it, empty."""
        entry = draft.key(path)
        if entry is None or not yamledit.hollow(entry):
            return
        if made is None or ".".join(path) in made:
            draft.drop(entry)
        else:
            draft.set_rest(entry, nothing)

    # the server

    def _is_our_server(self, draft: yamledit.YamlDraft, entry: yamledit.YamlEntry) -> bool:
        return is_our_server(self._read_server(draft, entry))

    def _read_server(self, draft: yamledit.YamlDraft, entry: yamledit.YamlEntry) -> dict[str, Any]:
        below = yamledit.block(draft.lines, entry)
        command, args = yamledit.find_entry(below, "command"), yamledit.find_entry(below, "args")
        return {
            "command": yamledit.scalar(draft.lines, command) if command else None,
            "args": yamledit.words(draft.lines, args) if args else None,
        }

    def _install_server(self, draft: yamledit.YamlDraft) -> str:
        assert self.server is not None
        server = self.server
        path = (self.holder, SERVER)
        entry = draft.key(path)
        if entry is None:
            draft.add_key(path, lambda indent: yamledit.mapping(SERVER, server, indent))
            return ""
        if not self._is_our_server(draft, entry):
            return f"`{self.holder}.{SERVER}` is not dreamkeep's: left unchanged"
        for key, value in self.server.items():
            entry = draft.key(path)
            assert entry is not None
            if self._read_server(draft, entry)[key] == value:
                continue
            field = yamledit.find_entry(yamledit.block(draft.lines, entry), key)
            assert field is not None, "ours has both"
            draft.swap(field.start, field.end, [f"{' ' * field.indent}{key}: {yamledit.dumped(value)}"])
        return ""

    def _has_our_entries(self, draft: yamledit.YamlDraft) -> bool:
        entry = draft.key((self.holder, SERVER)) if self.holder else None
        return bool(self._events(draft)) or (entry is not None and self._is_our_server(draft, entry))


# -- a file that only dreamkeep writes


class OwnFile(NamedTuple):
    """A file that only dreamkeep writes. `sign`: how it begins, by which it is recognised."""

    sign: str
    text: str
    read: Callable[[str], dict[str, list[str]]]

    def install(self, data: bytes | None) -> EditResult:
        if data is not None and not data.startswith(self.sign.encode()):
            raise UnreadableFile("a file of this name exists, but dreamkeep didn't write it")
        return EditResult(self.text.encode(), fresh=data is None)

    def remove(self, data: bytes, made: Sequence[str] | None) -> EditResult:
        return EditResult(b"", empty=True) if data.startswith(self.sign.encode()) else EditResult(data)

    def commands(self, data: bytes) -> dict[str, list[str]]:
        return self.read(text_of(data).body) if data.startswith(self.sign.encode()) else {}

    def by_hand(self) -> str:
        return ""
