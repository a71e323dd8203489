"""Which frame each journal was last seen to end with. It shows when a journal was cut, removed or replaced by an older copy.

    journal/witness         JSON Lines: a line says what was seen of one journal, and the last line of a journal counts
    journal/witness.lock    held while the file is written; its length is 1 once there is a witness, so that its loss is noticed

    {"format":1,"crc":"…"}
    {"journal":"journal/sessions/python/own-…","session":"python:own",
     "seen":[{"part":1,"end":4711,"seq":12,"frame":"9ae0daaf"}],"crc":"5b8b06e8"}         (in one line)

A *sighting* is the last frame of a journal: its part, the offset of its end, its seq and its checksum. It is written only when
the frame is certainly on disk. It has no text of a session. `crc` is the CRC-32 of all bytes of the line before `,"crc":`.

Writers write it when they finish a part and when they close, and so does the indexer. An append does not, and an audit only
reads. A later sighting replaces an earlier one if the earlier frame is still at its place. Otherwise the earlier sighting stays
until its frame is found, a reader accounts for it, or its session is deleted. Lines are appended. A file that is more than
twice as long as the lines that count, or has a bad line, is replaced as a whole. So a power cut leaves the old lines, and
perhaps a torn one that does not count.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple
from zlib import crc32

from dreamkeep.errors import Busy, DreamkeepError
from dreamkeep.host import Host, Stat, lock, make_folders, read_file, replace_file, write_all
from dreamkeep.journal import parts
from dreamkeep.journal.frame import CRC_SIZE, MAX_FRAME, parse

FOLDER = "journal"
FILE = f"{FOLDER}/witness"
LOCK = f"{FOLDER}/witness.lock"
#: Others hold the lock for as long as a small write takes.
_WAIT_S = 2.0
#: The file is replaced when it is longer than twice the lines that count, plus this.
_ROOM = 64 << 10
#: So many lost frames of one journal are remembered, the newest.
_MOST = 8
#: The beginning of a stretch's last line is first looked for in so many bytes: most frames are short.
_SHORT = 4096
_FORMAT = 1
GONE = "it is gone"


class Sighting(NamedTuple):
    """A frame that was the last one of a journal. `end` is the offset behind it in its part.

    Only the indexer knows the rest. `after`: the seq with which the journal ended when the frame was gone (-1: not all of it was
    read). `sources`: how far the session's files were read. `state`: the session's ("": unknown). `others`: whether anything but
    files spoke.
    """

    journal: str
    session: str
    part: int
    end: int
    seq: int
    crc: str
    after: int = -1
    sources: str = ""
    state: str = ""
    others: bool = True

    @property
    def frame(self) -> tuple[int, str]:
        return self.seq, self.crc


Seen = Mapping[str, list[Sighting]]


class Witness(NamedTuple):
    """`seen`: by journal. `lines`: those that count. `problem`: what is wrong with the file, or "". `newer`: a newer program
    wrote it, and this one does not change it."""

    seen: Seen
    lines: Mapping[str, bytes]
    size: int
    problem: str
    newer: bool = False
    #: How the file looked when it was read.
    at: Stat | None = None


# -- reading


def load(host: Host, root: str) -> Witness:
    """Read it without making a lock file. If another process holds the lock for long, a bad line may be one that it is
    writing."""
    try:
        handle = host.open_read(f"{root}/{LOCK}")
    except FileNotFoundError:
        return _read(host, root, made=False)
    try:
        made = host.end(handle) > 0
        try:
            lock(host, handle, where=f"{root}/{LOCK}", wait_s=_WAIT_S, shared=True)
        except Busy:
            return _read(host, root, made=made)._replace(problem="")
        return _read(host, root, made=made)
    finally:
        host.close(handle)


def _read(host: Host, root: str, *, made: bool) -> Witness:
    at = host.stat(f"{root}/{FILE}")
    try:
        data = read_file(host, f"{root}/{FILE}")
    except FileNotFoundError:
        return Witness({}, {}, 0, GONE if made else "")
    return _understood(data)._replace(at=at)


def _understood(data: bytes) -> Witness:
    """Pure. A bad line does not count, so an earlier line of that journal does."""
    lines: dict[str, bytes] = {}
    seen: dict[str, list[Sighting]] = {}
    first, *others = data.splitlines(keepends=True) or [b""]
    head = _parsed(first) or {}
    if head.get("format", _FORMAT) != _FORMAT:
        return Witness({}, {}, len(data), "", newer=True)
    bad = 0 if head else 1
    for line in others:
        said = _parsed(line) or {}
        try:
            journal, seen[journal] = said["journal"], [_sighting(said, one) for one in said["seen"]]
            lines[journal] = line
        except (ValueError, KeyError, TypeError):
            bad += 1
    problem = f"{bad} of its lines can't be read" if bad else ""
    return Witness(seen, lines, len(data), problem if data else "it is empty")


def _parsed(line: bytes) -> dict[str, Any] | None:
    """None for what fails its checksum."""
    import orjson

    text = line[:-1]
    if line[-1:] != b"\n" or text[-CRC_SIZE:] != b',"crc":"%08x"}' % crc32(text[:-CRC_SIZE]):
        return None
    said = orjson.loads(text)
    return said if isinstance(said, dict) else None


def _sighting(line: Mapping[str, Any], one: Mapping[str, Any]) -> Sighting:
    more = {key: one[key] for key in ("after", "sources", "state", "others") if key in one}
    return Sighting(line["journal"], line["session"], one["part"], one["end"], one["seq"], one["frame"], **more)


def _line(sightings: list[Sighting]) -> bytes:
    """Of one journal."""
    about = {"journal": sightings[0].journal, "session": sightings[0].session}
    return _signed({**about, "seen": [_as_json(one) for one in sightings]})


def _signed(said: Mapping[str, Any]) -> bytes:
    import orjson

    text = orjson.dumps(said)[:-1]
    return text + b',"crc":"%08x"}\n' % crc32(text)


def _as_json(one: Sighting) -> dict[str, Any]:
    said: dict[str, Any] = {"part": one.part, "end": one.end, "seq": one.seq, "frame": one.crc}
    if one.after >= 0:
        said["after"] = one.after
    if one.state:
        said |= {"state": one.state, "others": one.others}
    return {**said, "sources": one.sources} if one.sources else said


def is_there(host: Host, root: str, one: Sighting) -> bool:
    """Whether the whole frame is where it was seen."""
    folder = f"{root}/{one.journal}"
    for size in (_SHORT, MAX_FRAME + 2):
        start = max(0, one.end - size)
        try:
            with parts.stream(host, folder, one.part, start) as source:
                data = source.read(one.end - start).removesuffix(b"\n")
        except (FileNotFoundError, NotADirectoryError):
            return False
        at = data.rfind(b"\n") + 1
        if at or not start:
            frame = parse(data[at:])
            return frame is not None and (frame["seq"], frame["crc"]) == one.frame
    return False


def gone_sessions(host: Host, root: str) -> list[str]:
    """Sessions whose journals were seen and are gone."""
    try:
        seen = load(host, root).seen
        return [found[0].session for name, found in seen.items() if found and host.stat(f"{root}/{name}") is None]
    except OSError:
        return []


def ends_there(host: Host, root: str, one: Sighting) -> bool:
    """Whether a frame with this seq and checksum ends where it was seen. Cheap, and enough for callers that continue from there:
    damage in the frame is found when it is read."""
    foot = f'"seq":{one.seq:12d},"crc":"{one.crc}"}}'.encode()
    try:
        with parts.stream(host, f"{root}/{one.journal}", one.part, max(0, one.end - 1 - len(foot))) as source:
            return source.read(len(foot)) == foot
    except (FileNotFoundError, NotADirectoryError):
        return False


# -- writing


def note_quietly(host: Host, root: str, sightings: Collection[Sighting]) -> None:
    """For callers that have done something else: a sighting that can't be noted now is noted by the next one, so don't fail."""
    if sightings:
        with suppress(OSError, DreamkeepError):
            note(host, root, sightings)


def note(
    host: Host,
    root: str,
    sightings: Collection[Sighting],
    *,
    settled: Collection[tuple[str, int, str]] = (),
    ended: Mapping[str, int] | None = None,
    known: Witness | None = None,
) -> None:
    """Note frames that are on disk. `settled`: (journal, seq, crc) of frames that are accounted for, though not at their place.
    `ended`: by journal, the seq with which it ends, if all of it was read. `known`: what was loaded a moment ago."""

    def change(seen: Seen) -> dict[str, list[Sighting]]:
        news: dict[str, list[Sighting]] = {}
        for one in sightings:
            before = news.get(one.journal, seen.get(one.journal, []))
            left = [old for old in before if (one.journal, *old.frame) not in settled]
            news[one.journal] = merge(left, one, lambda old: _may_be_there(host, root, old), (ended or {}).get(one.journal))
        return news

    _update(host, root, change, known=known)


def _may_be_there(host: Host, root: str, one: Sighting) -> bool | None:
    try:
        return ends_there(host, root, one)
    except OSError:
        return None


def merge(
    known: Iterable[Sighting], new: Sighting, there: Callable[[Sighting], bool | None], end: int | None = None
) -> list[Sighting]:
    """The sightings of a journal with one more. `there`: whether a frame is at its place; None where that is unknown. `end`: the
    seq with which the journal ends, if all of it was read."""
    left = []
    is_behind = False
    for one in known:
        if one.frame == new.frame:
            new = one if one.state else new
            continue
        found = there(one)
        if found and one.seq < new.seq:
            # Damage since then must not hide that others than files spoke.
            new = new._replace(others=new.others or (bool(one.state) and one.others))
            continue
        is_behind |= bool(found)
        left.append(one._replace(after=end) if found is False and end is not None and one.after < 0 else one)
    return left if is_behind or not there(new) else [*left, new][-_MOST:]


def put_back(host: Host, root: str, sightings: Collection[Sighting]) -> None:
    """Note frames that were seen once, whatever is there now."""

    def change(seen: Seen) -> dict[str, list[Sighting]]:
        news: dict[str, list[Sighting]] = {}
        for one in sightings:
            known = news.get(one.journal, seen.get(one.journal, []))
            news[one.journal] = known if one.frame in {old.frame for old in known} else [one, *known][:_MOST]
        return news

    _update(host, root, change)


def drop(host: Host, root: str, journal: str, frames: Collection[tuple[int, str]]) -> None:
    """Forget frames that are no loss: an undo removed them, or their content is here again."""

    def change(seen: Seen) -> dict[str, list[Sighting]]:
        known = seen.get(journal, [])
        left = [one for one in known if one.frame not in frames]
        return {journal: left} if len(left) < len(known) else {}

    if host.stat(f"{root}/{FILE}") is not None:
        _update(host, root, change, anew=True)


def forget(host: Host, root: str, journals: Collection[str]) -> None:
    """After sessions were deleted: rewrite the file without them, so that no byte in it names them."""
    if host.stat(f"{root}/{FILE}") is not None:
        _update(host, root, lambda seen: {name: [] for name in journals if name in seen}, anew=True, sweep=True)


def mended(host: Host, root: str) -> bytes:
    """The repaired file: only the lines that can be read and count."""
    return _file(_read(host, root, made=False).lines)


def _file(lines: Mapping[str, bytes]) -> bytes:
    return b"".join((_signed({"format": _FORMAT}), *lines.values()))


def _update(
    host: Host,
    root: str,
    change: Callable[[Seen], Mapping[str, list[Sighting]]],
    *,
    anew: bool = False,
    sweep: bool = False,
    known: Witness | None = None,
) -> None:
    """`anew`: what is removed must not stay in the file. `sweep`: nor in what a crash left beside it."""
    with lock_witness(host, root) as handle:
        if known is None or known.at is None or host.stat(f"{root}/{FILE}") != known.at:
            known = _read(host, root, made=False)
        news = {name: found for name, found in change(known.seen).items() if found != known.seen.get(name, [])}
        if known.newer or not (news or sweep or known.problem):
            return
        lines = {name: _line(found) for name, found in news.items() if found}
        counts = {**{name: line for name, line in known.lines.items() if name not in news}, **lines}
        data = _file(counts)
        is_short = known.size <= 2 * len(data) + _ROOM and len(lines) == len(news)
        may_append = known.size and is_short and not (anew or known.problem)
        if not may_append or not _append(host, root, b"".join(lines.values())):
            _sweep(host, root)
            replace_file(host, f"{root}/{FILE}", data)
        _mark_made(host, handle)


@contextmanager
def lock_witness(host: Host, root: str) -> Iterator[int]:
    """Hold the lock, so that nobody else reads or writes the witness."""
    make_folders(host, f"{root}/{FOLDER}")
    handle = host.open_lock(f"{root}/{LOCK}")
    try:
        lock(host, handle, where=f"{root}/{LOCK}", wait_s=_WAIT_S)
        yield handle
    finally:
        host.close(handle)


def _sweep(host: Host, root: str) -> None:
    """Remove what crashes left while the file was replaced. The caller holds the lock."""
    for name in host.names(f"{root}/{FOLDER}"):
        if name.startswith("witness.") and name.endswith(".tmp"):
            host.remove(f"{root}/{FOLDER}/{name}")


def _mark_made(host: Host, handle: int) -> None:
    if not host.end(handle):
        host.cut(handle, 1)
        host.sync(handle)


def _append(host: Host, root: str, data: bytes) -> bool:
    """False when the disk refused: after a failed sync it is unknown what of this file is on disk, so it must be replaced."""
    handle = host.open_append(f"{root}/{FILE}")
    try:
        _write_or_cut(host, handle, data)
        host.sync(handle)
        return True
    except OSError:
        return False
    finally:
        host.close(handle)


def _write_or_cut(host: Host, handle: int, data: bytes) -> None:
    end = host.end(handle)
    try:
        write_all(host, handle, data)
    except OSError:
        host.cut(handle, end)
        raise
