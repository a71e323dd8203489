"""Changes settings files: reads, edits and backs up a file, writes it all or nothing, and remembers what is needed to undo that.

    state/init/<agent>-<name>-<hash of its path>.json     what we did to a file (a `FileHistory`), written before the file
    state/init/<agent>-<name>-<hash of its bytes>.bak     a file as it was before our edit

If a file is exactly as we left it, removing restores the old bytes. If somebody else has written to it since, only our entries
are removed. A crash between any two steps leaves either the old or the new file, and a history that is correct for both: bytes
that it does not know belong to the user.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from typing import NamedTuple

from dreamkeep.capture.setup.plan import EditResult, FileEdit
from dreamkeep.capture.setup.text import UnreadableFile
from dreamkeep.host import Host, make_folders, publish_file, read_file, replace_file, write_new

FOLDER = "state/init"
_LARGEST = 64 << 20
#: How often the file may change while we read it before we give up.
_TRIES = 5
#: In the name of an unfinished file. If such a file is found later, a crash left it.
_TEMP = ".dreamkeep-tmp-"
#: How many versions that we wrote are remembered for one original.
_REMEMBERED = 16


class Change(NamedTuple):
    """What was, or would be, done with a file.

    `action`: install, update, unchanged, remove; skipped (with `reason`), refused or failed (with `problem`).
    """

    agent: str
    file: str
    action: str
    reason: str = ""
    problem: str = ""
    backup: str = ""

    def as_json(self) -> dict[str, str]:
        return {key: value for key, value in self._asdict().items() if value or key in ("agent", "file", "action")}


class FileHistory(NamedTuple):
    """`original`: the hash of the bytes before our first edit, "" if unknown. `wrote`: hashes of what we wrote. `created`: there
    was no file. `folders`: the folders made for it, outermost first. `made`: see `EditResult`."""

    original: str = ""
    wrote: tuple[str, ...] = ()
    created: bool = False
    folders: tuple[str, ...] = ()
    made: tuple[str, ...] = ()


class SetupTarget(NamedTuple):
    agent: str
    file: str
    edit: FileEdit


class _ChangedMeanwhile(Exception):
    """The file changed after we read it."""


class FileChanger:
    """Changes files for one keep. `dry`: only says what it would do."""

    def __init__(self, host: Host, keep: str, *, dry: bool) -> None:
        self._host = host
        self._keep = keep
        self._dry = dry

    def install(self, target: SetupTarget) -> Change:
        return self._try(target, self._install)

    def remove(self, target: SetupTarget) -> Change:
        return self._try(target, self._remove)

    def _try(self, target: SetupTarget, act: Callable[[SetupTarget], Change]) -> Change:
        """A bad file must not stop the others."""
        for _ in range(_TRIES):
            try:
                if not self._dry:
                    self._remove_unfinished(self._host.real_path(target.file))
                return act(target)
            except _ChangedMeanwhile:
                continue
            except UnreadableFile as problem:
                hint = target.edit.by_hand() if act == self._install else ""
                reason = f"to add it by hand, insert:\n{hint}" if hint else ""
                return Change(target.agent, target.file, "refused", reason, f"{problem}; the file was not changed")
            except OSError as problem:
                return Change(target.agent, target.file, "failed", problem=f"{problem.strerror or problem}")
        return Change(target.agent, target.file, "failed", problem="something keeps changing it; stop the agent and try again")

    def _install(self, target: SetupTarget) -> Change:
        path = self._host.real_path(target.file)
        data = self._read(path)
        edited = target.edit.install(data)
        if edited.data == (data or b""):
            # If the file has no entry of ours, another program's entry has our name.
            return Change(target.agent, target.file, "skipped" if edited.fresh else "unchanged", edited.note)
        action = "install" if edited.fresh else "update"
        if self._dry:
            return Change(target.agent, target.file, action, edited.note)
        backup = self._save_backup(target, path, data)
        self._save_history(target, path, self._next_history(target, path, data, edited))
        make_folders(self._host, os.path.dirname(path))
        self._write(path, data, edited.data)
        return Change(target.agent, target.file, action, edited.note, backup=backup)

    def _remove(self, target: SetupTarget) -> Change:
        path = self._host.real_path(target.file)
        data = self._read(path)
        history = self._read_history(target, path)
        if data is None:
            self._clean_up(target, path, history)
            return Change(target.agent, target.file, "unchanged")
        after = self._without_us(target, data, history)
        if after == data:
            self._clean_up(target, path, history)
            return Change(target.agent, target.file, "unchanged")
        if self._dry:
            return Change(target.agent, target.file, "remove")
        is_ours = history is not None and _hash(data) in history.wrote
        backup = "" if is_ours else self._save_backup(target, path, data)
        if after is None:
            self._delete(path, data)
        else:
            self._write(path, data, after)
        self._clean_up(target, path, history)
        return Change(target.agent, target.file, "remove", backup=backup)

    def _without_us(self, target: SetupTarget, data: bytes, history: FileHistory | None) -> bytes | None:
        """The file without our entries; None if the file must be deleted."""
        if history is not None and _hash(data) in history.wrote:
            if history.created:
                return None
            original = self._read_backup(target, history.original)
            if original is not None:
                return original
        edited = target.edit.remove(data, history.made if history else None)
        created = history.created if history else False
        # A file that only we wrote is deleted. A file that the user had stays, even if it is empty.
        return None if edited.data != data and edited.empty and (created or not edited.data) else edited.data

    # -- the history of a file

    def _next_history(self, target: SetupTarget, path: str, data: bytes | None, edited: EditResult) -> FileHistory | None:
        """The history after this edit; None if nothing useful is known."""
        new = _hash(edited.data)
        old = self._read_history(target, path)
        if data is None:
            return FileHistory(wrote=(new,), created=True, folders=self._missing_folders(path), made=edited.made)
        if edited.fresh:
            return FileHistory(_hash(data), (new,), made=edited.made)
        if old is not None and _hash(data) in old.wrote:
            return old._replace(wrote=(*old.wrote[-_REMEMBERED:], new), made=(*old.made, *edited.made))
        # The file had our entries and was changed since: the original is unknown, but we still know which containers we made.
        return old._replace(original="", wrote=(), made=(*old.made, *edited.made)) if old else None

    def _name(self, target: SetupTarget, mark: str, ending: str) -> str:
        return f"{self._keep}/{FOLDER}/{target.agent}-{os.path.basename(target.file)}-{mark[:16]}.{ending}"

    def _read_history(self, target: SetupTarget, path: str) -> FileHistory | None:
        name = self._name(target, _hash(path.encode()), "json")
        if self._host.stat(name) is None:
            return None
        try:
            found = json.loads(read_file(self._host, name))
            return FileHistory(
                str(found["original"]),
                tuple(map(str, found["wrote"])),
                found["created"] is True,
                tuple(map(str, found["folders"])),
                tuple(map(str, found["made"])),
            )
        except (ValueError, KeyError, TypeError):
            return None  # without a history, only our entries are removed

    def _save_history(self, target: SetupTarget, path: str, history: FileHistory | None) -> None:
        if history is None:
            return
        name = self._name(target, _hash(path.encode()), "json")
        replace_file(self._host, name, json.dumps({"file": path, **history._asdict()}, indent=1).encode())

    def _clean_up(self, target: SetupTarget, path: str, history: FileHistory | None) -> None:
        if self._dry or history is None:
            return
        for folder in reversed(history.folders):
            if self._host.stat(folder) is not None and not self._host.names(folder):
                self._host.remove_folder(folder)
                self._host.sync_folder(os.path.dirname(folder))
        self._host.remove(self._name(target, _hash(path.encode()), "json"))
        self._host.sync_folder(f"{self._keep}/{FOLDER}")

    def _save_backup(self, target: SetupTarget, path: str, data: bytes | None) -> str:
        if data is None:
            return ""
        name = self._name(target, _hash(data), "bak")
        if self._host.stat(name) is None:
            publish_file(self._host, name, data)
        return name

    def _read_backup(self, target: SetupTarget, original: str) -> bytes | None:
        name = self._name(target, original, "bak")
        if not original or self._host.stat(name) is None:
            return None
        data = read_file(self._host, name)
        return data if _hash(data) == original else None

    # -- the agent's file

    def _read(self, path: str) -> bytes | None:
        found = self._host.stat(path)
        if found is None:
            return None
        if found.is_folder:
            raise UnreadableFile("it is a folder")
        if found.size > _LARGEST:
            raise UnreadableFile(f"{found.size} bytes are too large for a settings file")
        if not found.mode & 0o200:
            raise UnreadableFile("it is read-only, probably on purpose")
        return read_file(self._host, path)

    def _missing_folders(self, path: str) -> tuple[str, ...]:
        """The folders above it that don't exist, outermost first."""
        missing: list[str] = []
        folder = os.path.dirname(path)
        while folder not in ("", "/") and self._host.stat(folder) is None:
            missing.insert(0, folder)
            folder = os.path.dirname(folder)
        return tuple(missing)

    def _remove_unfinished(self, path: str) -> None:
        folder, name = os.path.split(path)
        for left in self._host.names(folder) if self._host.stat(folder) is not None else ():
            if left.startswith(name + _TEMP):
                self._host.remove(f"{folder}/{left}")

    def _write(self, path: str, before: bytes | None, after: bytes) -> None:
        """Writes all or nothing, and only if the file is still as we read it."""
        temp = f"{path}{_TEMP}{self._host.random(8).hex()}"
        write_new(self._host, temp, [after])
        try:
            if before is None:
                self._put_new_file(temp, path)
            else:
                self._host.copy_mode(temp, path)
                self._check_unchanged(path, before)
                self._host.replace(temp, path)
        except BaseException:
            if self._host.stat(temp) is not None:
                self._host.remove(temp)
            raise
        self._host.sync_folder(os.path.dirname(path))

    def _put_new_file(self, temp: str, path: str) -> None:
        try:
            self._host.link(temp, path)
        except FileExistsError as problem:
            raise _ChangedMeanwhile from problem
        self._host.remove(temp)

    def _delete(self, path: str, before: bytes) -> None:
        self._check_unchanged(path, before)
        self._host.remove(path)
        self._host.sync_folder(os.path.dirname(path))

    def _check_unchanged(self, path: str, before: bytes) -> None:
        """A program that writes without a lock could still write between this check and the rename; that can't be avoided."""
        if self._host.stat(path) is None or read_file(self._host, path) != before:
            raise _ChangedMeanwhile


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
