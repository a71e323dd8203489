"""An agent's hook: writes what comes on stdin, verbatim and durable, into the keep's spool. Nothing else.

    python -I -S /…/hook.py AGENT EVENT [KEEP]

It is started many times in a turn while the agent waits. So it stands alone: it imports only what the interpreter has loaded
anyway (a test checks that), uses nothing of dreamkeep and parses nothing. It always exits with 0, and prints nothing unless there
is a pack for the agent.

AGENT may be `auto`, for a plugin that several agents install: then the environment tells. `dreamkeep-hook` is this file,
installed.

KEEP is the keep that `init` wrote. DREAMKEEP_KEEP overrides it; without both it is the user's data folder. More words are
ignored. With DREAMKEEP_OFF=1, or a file OFF in the keep, it only reads stdin.

    spool/.<name>.tmp ─► write, sync ─► rename to spool/<name>.hook ─► sync the folder      <name>: time-pid-chance~AGENT~EVENT

At the end of a turn or session, and before a compaction, it starts the drainer (`dreamkeep drain`) in a session of its own and
does not wait for it. While a drainer holds `state/drain.lock` no other is started: it looks into the spool again after it
released the lock, and sees our entry.

A pack is a text rendered beforehand (recall/pack_files.py). `state/packs/index` has a line `<folder> TAB <file in state/packs>`
for each folder with a pack. The line of the payload's cwd counts, else that of the nearest folder above it within the repository;
"/" is for all folders. `TAB only` at the end of a line: not for folders below. A worktree counts as its repository. After a
compaction the session's own pack comes first, `after~AGENT~<session id>.md`.

A call that could not be kept leaves a line in `spool/problems`, else in a file in the user's temp folder. `doctor` shows both.
"""

# No `from __future__`, no `os`, no `signal`: each would be one more file to find, read and run at every call.
import _signal  # type: ignore[import-not-found]  # the built-in half of `signal`
import posix
import sys
from time import time_ns

_READ = 1 << 18
#: An agent that leaves its end open for so long without writing has written everything.
_IDLE_S = 2.0
#: In the middle of a payload the agent may just be slow. (Less than the time that agents give a hook.)
_HELD_UP_S = 8.0
#: Only so many bytes of a payload are read for an answer.
_HEAD = 1 << 20
_PROBLEMS_SIZE = 1 << 16
#: Marks a problem that lost nothing but the agent's pack.
NO_PACK = "(no pack)"
#: What single agents need, below our package's folder.
_TABLE = "agents/hook_table.tsv"
_NEW = posix.O_WRONLY | posix.O_CREAT | posix.O_EXCL | posix.O_CLOEXEC | posix.O_NOFOLLOW
_ENDS = (
    *("Stop", "AfterAgent", "agentStop", "Interrupt", "on_session_end", "session.idle", "event_session.idle"),
    *("SessionEnd", "sessionEnd", "on_session_finalize", "session.deleted", "event_session.deleted"),
)
#: Before a compaction the drainer ingests the session, and renders a pack while the agent waits for its model.
_SQUEEZES = ("PreCompact", "preCompact", "experimental.session.compacting")
#: Events at which an agent takes a pack.
_ANSWERS = ("SessionStart", "sessionStart", "pre_llm_call", "experimental.chat.system.transform")
#: Such a session still has the pack from its beginning: repeated at every resume, packs would pile up.
_GOES_ON = ("resume", "fork")
#: As `python -m dreamkeep`, but the one that this file belongs to. (`-E -P`: nothing of the agent's project is ever imported.)
_DRAIN = (
    "import sys; here = sys.argv.pop(1); sys.path.insert(0, here); import dreamkeep; sys.path.append(sys.path.pop(0));"
    " from dreamkeep.surfaces.cli import main; sys.exit(main())"
)


def main(words: list[str], flag: str = "") -> None:
    """`words`: AGENT EVENT [KEEP], and whatever else the agent's shell made of the command. `flag`: a keep that a user named."""
    agent, event, given = [*words, "", "", ""][:3]
    agent, event = _file_word(agent if agent != "auto" else _who_calls()), _file_word(event)
    for number in (_signal.SIGINT, _signal.SIGTERM, _signal.SIGHUP):
        # A few milliseconds from the end anyway; half a payload would be of no use to anybody.
        _signal.signal(number, _signal.SIG_IGN)
    _signal.signal(_signal.SIGALRM, _give_up_reading)
    keep = ""
    try:
        keep = flag or _keep(given)
        if _env("DREAMKEEP_OFF") in ("", "0") and not _exists(keep + "/OFF"):
            _take(keep, agent, event)
    except Exception as problem:
        _note(keep, agent, event, problem)
    while _read():  # an agent that can't write its payload would be disturbed
        pass


def _take(keep: str, agent: str, event: str) -> None:
    head: list[bytes] | None = [] if event in _ANSWERS else None
    try:
        _spool(keep + "/spool", agent, event, head)
    finally:
        if head is not None:
            _print(_answer(keep, agent, event, b"".join(head)))
    if event in _ENDS or event in _SQUEEZES:
        _start_drainer(keep)


def _file_word(word: str) -> str:
    """Makes a word safe for a file's name."""
    return "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "_" for c in word[:64])


def _who_calls() -> str:
    """Which of the agents that install a plugin in Claude's form. If nothing tells, the call is kept as `auto`."""
    for agent, *names in _lines_of("plugin"):
        values = [_env(name) for name in names]
        if values[0] and values.count(values[0]) == len(values):
            return agent
    return "auto"


def _lines_of(what: str) -> list[list[str]]:
    """The fields of these lines of the table; none if it can't be read: then the usual form is used."""
    try:
        lines = _file(f"{_package()}/{_TABLE}").decode().split("\n")
    except Exception:
        return []
    return [line.split("\t")[1:] for line in lines if line.startswith(what + "\t")]


def _package() -> str:
    """The folder `dreamkeep` that this file lies in."""
    file = __file__ if __file__.startswith("/") else f"{posix.getcwd()}/{__file__}"
    return file.rsplit("/", 2)[0]


def _env(name: str) -> str:
    return posix.environ.get(name.encode(), b"").decode(sys.getfilesystemencoding(), "surrogateescape")


def _keep(given: str) -> str:
    """The same as `config.keep_path` (a test compares them). A database has no spool: then it is the folder that `init` wrote."""
    keep = _env("DREAMKEEP_KEEP").removeprefix("file://")
    if not keep or "://" in keep:
        keep = given
    if not keep:
        data = "Library/Application Support" if sys.platform == "darwin" else ".local/share"
        other = "" if sys.platform == "darwin" else _env("XDG_DATA_HOME").strip()
        keep = f"{other or _home() + '/' + data}/dreamkeep"
    if keep == "~" or keep.startswith("~/"):
        keep = _home() + keep[1:]
    return keep if keep.startswith("/") else f"{posix.getcwd()}/{keep}"


def _home() -> str:
    home = _env("HOME")
    if home:
        return home
    import pwd

    return pwd.getpwuid(posix.getuid()).pw_dir


def _exists(path: str) -> bool:
    try:
        posix.stat(path)
    except (OSError, ValueError):  # ValueError: no file can have such a name
        return False
    return True


# -- stdin


def _read(wait_s: float = _IDLE_S) -> bytes:
    """Empty at the end of stdin, if there is no stdin, and if nothing comes for too long."""
    _signal.setitimer(_signal.ITIMER_REAL, wait_s)
    try:
        return posix.read(0, _READ)
    except OSError:
        return b""
    finally:
        _signal.setitimer(_signal.ITIMER_REAL, 0)


def _give_up_reading(*_: object) -> None:
    # The waiting read is repeated after this, and finds the end.
    posix.dup2(posix.open("/dev/null", posix.O_RDONLY), 0)


# -- the spool


def _spool(folder: str, agent: str, event: str, head: list[bytes] | None) -> None:
    """Piece by piece, so that a payload of any size needs little memory. `head` gets the beginning."""
    name = f"{max(0, time_ns()):020d}-{posix.getpid()}-{posix.urandom(8).hex()}~{agent}~{event}"
    temp = f"{folder}/.{name}.tmp"
    # Read first: if stdin is closed, the file that is opened next would get its number.
    piece = _read()
    if head is not None:
        head.append(piece)  # before anything can fail: the agent gets its pack also if the call can't be kept
    try:
        handle = posix.open(temp, _NEW, 0o600)
    except FileNotFoundError:
        _make(folder)
        handle = posix.open(temp, _NEW, 0o600)
    try:
        size = 0
        while piece:
            if head is not None and 0 < size < _HEAD:
                head.append(piece)
            size += len(piece)
            wait_s = _IDLE_S if piece.rstrip().endswith(b"}") else _HELD_UP_S
            while piece:
                piece = piece[posix.write(handle, piece) :]
            piece = _read(wait_s)
        _sync(handle)
        posix.close(handle)
        posix.rename(temp, f"{folder}/{name}.hook")
    except BaseException:
        posix.unlink(temp)
        raise
    _sync_folder(folder)


def _make(folder: str) -> None:
    """With all folders above it, each durable. Another hook may do the same at the same time."""
    above = folder.rpartition("/")[0]
    if above and not _exists(above):
        _make(above)
    try:
        posix.mkdir(folder, 0o700)
    except FileExistsError:
        return
    _sync_folder(above or "/")


def _sync(handle: int) -> None:
    if sys.platform == "darwin":
        import fcntl

        fcntl.fcntl(handle, fcntl.F_FULLFSYNC)
    else:
        posix.fdatasync(handle)


def _sync_folder(folder: str) -> None:
    handle = posix.open(folder, posix.O_RDONLY | posix.O_CLOEXEC)
    posix.fsync(handle)
    posix.close(handle)


# -- what went wrong


def _note(keep: str, agent: str, event: str, problem: BaseException, about: str = "") -> None:
    """One line, without any word of the payload. When the file is full it begins anew."""
    what = " ".join(f"{about} {type(problem).__name__}: {problem}".split())[:400]
    line = f"{time_ns()} {agent} {event} {what} (keep {keep})\n".encode("utf-8", "backslashreplace")
    temp = _env("XDG_RUNTIME_DIR") or _env("TMPDIR") or "/tmp"
    for path in (f"{keep}/spool/problems", f"{temp}/dreamkeep-hook-{posix.getuid()}.problems"):
        try:
            _append(path, line)
            return
        except Exception:
            continue  # try the other file; after that there is nowhere left to report it


def _append(path: str, line: bytes) -> None:
    """Only to a plain file of our own: in a temp folder, others may have put anything under that name."""
    flags = posix.O_WRONLY | posix.O_APPEND | posix.O_CREAT | posix.O_NOFOLLOW | posix.O_NONBLOCK | posix.O_CLOEXEC
    handle = posix.open(path, flags, 0o600)
    found = posix.fstat(handle)
    if found.st_mode & 0o170000 != 0o100000 or found.st_uid != posix.getuid() or found.st_nlink != 1:
        raise PermissionError(path)
    if found.st_size > _PROBLEMS_SIZE:
        posix.ftruncate(handle, 0)
    posix.write(handle, line)
    posix.close(handle)


# -- the pack


def _answer(keep: str, agent: str, event: str, payload: bytes) -> bytes:
    """What to print for the agent, in its own form; nothing if there is no pack."""
    try:
        index = _file(f"{keep}/state/packs/index")
        if event == "pre_llm_call" and b'"is_first_turn":true' not in payload.replace(b": ", b":"):
            return b""  # Hermes calls at every turn
        import json  # only here: it costs as much as all the rest

        try:
            payload_fields = json.loads(payload)
        except Exception:
            payload_fields = None
        text = _text_for(f"{keep}/state/packs", agent, payload_fields if isinstance(payload_fields, dict) else {}, index)
        if not text.strip():
            return b""
        form = dict(_lines_of("answer")).get(agent)
        if form == "text":
            return text.encode()  # it takes the printed text as it is
        if event in ("pre_llm_call", "experimental.chat.system.transform"):
            answer: dict[str, object] = {"context": text}
        elif event == "sessionStart" or form == "context":  # which also knows Claude's names for events
            answer = {"additionalContext": text}
        else:
            answer = {"hookSpecificOutput": {"hookEventName": event, "additionalContext": text}}
        return json.dumps(answer).encode()
    except FileNotFoundError:
        return b""
    except Exception as problem:
        _note(keep, agent, event, problem, NO_PACK)
        return b""


def _text_for(packs: str, agent: str, fields: dict[str, object], index: bytes) -> str:
    if fields.get("source") in _GOES_ON:
        return ""
    cwd, session = fields.get("cwd"), fields.get("session_id")
    if fields.get("source") == "compact" and isinstance(session, str) and session and _file_word(session) == session:
        try:
            return _file(f"{packs}/after~{agent}~{session}.md").decode()
        except FileNotFoundError:
            pass  # the compaction loses nothing of it, or the drainer was too late
    name = _pack_for(cwd if isinstance(cwd, str) else posix.getcwd(), index.decode("utf-8", "surrogateescape"))
    return _file(f"{packs}/{name}").decode() if name else ""


def _pack_for(cwd: str, index: str) -> str:
    """From the folder upwards, but not beyond its repository: one that has no pack doesn't belong to the folder above it."""
    packs: dict[str, tuple[str, bool]] = {}
    for line in index.split("\n"):
        folder, _, rest = line.partition("\t")
        name, _, only = rest.partition("\t")
        if name and "/" not in name and name[:1] != ".":
            packs[folder.rstrip("/")] = (name, only == "only")
    at = here = cwd.rstrip("/")
    while at:
        found = packs.get(at) or packs.get(_worktree_of(at))
        if found and not (found[1] and at != here):
            return found[0]
        if _exists(f"{at}/.git"):
            break
        at = at.rpartition("/")[0]
    return packs.get("", ("", False))[0]


def _worktree_of(folder: str) -> str:
    """The repository that a folder is a worktree of; " ", which is no folder, if it is none."""
    try:
        named = _file(f"{folder}/.git").decode("utf-8", "surrogateescape")
    except (OSError, ValueError):
        return " "
    root, found, _ = named.partition("gitdir:")[2].strip().partition("/.git/worktrees/")
    return root if found else " "


def _file(path: str) -> bytes:
    handle = posix.open(path, posix.O_RDONLY | posix.O_CLOEXEC | posix.O_NONBLOCK)  # a pipe must not block us
    found = posix.read(handle, _HEAD + 1)
    posix.close(handle)
    if len(found) > _HEAD:
        raise ValueError(f"{path} is too large")
    return found


def _print(answer: bytes) -> None:
    try:
        while answer:
            answer = answer[posix.write(1, answer) :]
    except OSError:
        pass  # nobody reads


# -- the drainer


def _start_drainer(keep: str) -> None:
    if _drainer_at_work(f"{keep}/state/drain.lock"):
        return
    if not sys.executable:
        raise RuntimeError("this Python does not know its own path, so no drainer can be started")
    above = _package().rpartition("/")[0]
    words = [sys.executable, "-E", "-P", "-c", _DRAIN, above, "--keep", keep, "drain"]
    # A process that outlives this one must not keep the agent's pipes open or its folders in use.
    posix.closerange(3, 1024)
    posix.chdir("/")
    quiet = posix.open("/dev/null", posix.O_RDWR)
    try:
        # `doctor` shows its last output; each drainer begins the file anew, so that it can't grow.
        log = posix.open(f"{keep}/state/drain.log", posix.O_WRONLY | posix.O_CREAT | posix.O_TRUNC | posix.O_NOFOLLOW, 0o600)
    except OSError:
        log = quiet
    posix.posix_spawn(
        words[0],
        words,
        posix.environ,
        file_actions=[(posix.POSIX_SPAWN_DUP2, old, new) for old, new in ((quiet, 0), (quiet, 1), (log, 2))],
        setsid=True,
        setsigdef=(_signal.SIGINT, _signal.SIGTERM, _signal.SIGHUP, _signal.SIGPIPE),
    )


def _drainer_at_work(path: str) -> bool:
    """Takes a shared lock, so that two hooks don't take each other for the drainer."""
    try:
        handle = posix.open(path, posix.O_RDONLY | posix.O_CLOEXEC)
    except OSError:
        return False
    import fcntl

    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        posix.close(handle)
    return False


def script() -> None:
    """Does not return."""
    try:
        main(sys.argv[1:])
    except BaseException:
        pass  # whatever fails here must not disturb the agent
    # At once: a regular exit of the interpreter takes as long as all of the above.
    posix._exit(0)


if __name__ == "__main__":
    script()
