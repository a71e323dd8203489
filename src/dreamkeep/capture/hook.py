"""One call of an agent's hook: what it says on stdin, verbatim and durable, into the keep's spool. Nothing else.

    python -I -S /…/hook.py AGENT EVENT [KEEP]

Started many times in a turn while the agent waits, so it is a file by itself: it imports only what the interpreter has loaded
anyway (a test pins that), knows nothing of dreamkeep, parses nothing. It always exits 0, and says nothing unless a pack waits for
the agent.

AGENT may be `auto`, for a plugin that several agents install: their environment tells. `dreamkeep-hook` is this file, installed.

KEEP is the keep that `init` knew; DREAMKEEP_KEEP is stronger, and without both it is the user's data folder. More words are
ignored. DREAMKEEP_OFF=1, or a file OFF in the keep: it only takes stdin off the agent's hands.

    spool/.<name>.tmp ─► write, sync ─► rename to spool/<name>.hook ─► sync the folder      <name>: time-pid-chance~AGENT~EVENT

At the end of a turn or session, and before a compaction, it starts the drainer (`dreamkeep drain`) in a session of its own and
does not wait for it. While one holds `state/drain.lock` none is started: that one looks into the spool again after it let go of
the lock, and sees our entry.

A pack is rendered beforehand (recall/pack_files.py). `state/packs/index` has a line `<folder> TAB <file in state/packs>` for
each folder that has one; the line of the payload's cwd, else of the nearest folder above it counts, but not beyond the repository
that the cwd is in ("/" is for all; `TAB only` at a line's end: not for what is below). A worktree is where its repository is.
After a compaction the session's own pack comes first, `after~AGENT~<session id>.md`.

What could not be kept leaves a line in `spool/problems`, else in a file of the user's temp folder: `doctor` shows both.
"""

# No `from __future__`, no `os`, no `signal`: each is a file to find, read and run, at every call.
import _signal  # type: ignore[import-not-found]  # the built-in half of `signal`
import posix
import sys
from time import time_ns

_READ = 1 << 18
#: An agent that leaves its end open without a word for so long has said what it had to say.
_IDLE_S = 2.0
#: In the middle of a payload: it may only be held up. (Below the time that agents give a hook.)
_HELD_UP_S = 8.0
#: Answers are for small payloads; what is longer is not looked into.
_HEAD = 1 << 20
_PROBLEMS_SIZE = 1 << 16
#: Before a problem that cost no more than the agent's pack.
NO_PACK = "(no pack)"
#: What must be known of single agents, below our package's folder.
_TABLE = "agents/hook_table.tsv"
_NEW = posix.O_WRONLY | posix.O_CREAT | posix.O_EXCL | posix.O_CLOEXEC | posix.O_NOFOLLOW
_ENDS = (
    *("Stop", "AfterAgent", "agentStop", "Interrupt", "on_session_end", "session.idle", "event_session.idle"),
    *("SessionEnd", "sessionEnd", "on_session_finalize", "session.deleted", "event_session.deleted"),
)
#: What is squeezed out is to be found again: the drainer reads what was said, and renders it while the agent waits for its model.
_SQUEEZES = ("PreCompact", "preCompact", "experimental.session.compacting")
#: Where an agent takes a pack.
_ANSWERS = ("SessionStart", "sessionStart", "pre_llm_call", "experimental.chat.system.transform")
#: What such a session read when it began, it still has before it: said at every resume, it would pile up.
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
        if _env("DREAMKEEP_OFF") in ("", "0") and not _there(keep + "/OFF"):
            _take(keep, agent, event)
    except Exception as problem:
        _note(keep, agent, event, problem)
    while _read():  # an agent that can't get rid of its payload would be disturbed
        pass


def _take(keep: str, agent: str, event: str) -> None:
    head: list[bytes] | None = [] if event in _ANSWERS else None
    try:
        _spool(keep + "/spool", agent, event, head)
    finally:
        if head is not None:
            _say(_answer(keep, agent, event, b"".join(head)))
    if event in _ENDS or event in _SQUEEZES:
        _start_drainer(keep)


def _file_word(word: str) -> str:
    """What may stand in a file's name."""
    return "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "_" for c in word[:64])


def _who_calls() -> str:
    """Of the agents that install a plugin in Claude's form. Where nothing tells, what was said is kept all the same."""
    for agent, *names in _lines_of("plugin"):
        told = [_env(name) for name in names]
        if told[0] and told.count(told[0]) == len(told):
            return agent
    return "auto"


def _lines_of(what: str) -> list[list[str]]:
    """The fields of these lines of the table; none where it is not to be read: then agents are asked in the usual form."""
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
    """As `config.keep_path` finds it (a test compares). A database has no spool: then it is the folder that `init` knew."""
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


def _there(path: str) -> bool:
    try:
        posix.stat(path)
    except (OSError, ValueError):  # nothing has such a name
        return False
    return True


# -- stdin


def _read(wait_s: float = _IDLE_S) -> bytes:
    """Empty at the end, when there is no stdin at all, and when nobody says anything any more."""
    _signal.setitimer(_signal.ITIMER_REAL, wait_s)
    try:
        return posix.read(0, _READ)
    except OSError:
        return b""
    finally:
        _signal.setitimer(_signal.ITIMER_REAL, 0)


def _give_up_reading(*_: object) -> None:
    # The read that is waiting is tried again after this, and finds an end.
    posix.dup2(posix.open("/dev/null", posix.O_RDONLY), 0)


# -- the spool


def _spool(folder: str, agent: str, event: str, head: list[bytes] | None) -> None:
    """Piece by piece: a payload of any size needs little memory. `head` gets the beginning."""
    name = f"{max(0, time_ns()):020d}-{posix.getpid()}-{posix.urandom(8).hex()}~{agent}~{event}"
    temp = f"{folder}/.{name}.tmp"
    # Read first: with stdin closed, the file that is opened next would get its number.
    piece = _read()
    if head is not None:
        head.append(piece)  # also where nothing can be kept: a pack is for whoever asks, and depends on what he says
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
    """With all above it, each durable. Whoever makes one at the same time does the same."""
    above = folder.rpartition("/")[0]
    if above and not _there(above):
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
    """One line, no word of the payload in it. Bounded: when the file is full it begins anew."""
    what = " ".join(f"{about} {type(problem).__name__}: {problem}".split())[:400]
    line = f"{time_ns()} {agent} {event} {what} (keep {keep})\n".encode("utf-8", "backslashreplace")
    temp = _env("XDG_RUNTIME_DIR") or _env("TMPDIR") or "/tmp"
    for path in (f"{keep}/spool/problems", f"{temp}/dreamkeep-hook-{posix.getuid()}.problems"):
        try:
            _append(path, line)
            return
        except Exception:
            continue  # there is one more place, or nowhere left to say it


def _append(path: str, line: bytes) -> None:
    """Only to a plain file of our own: in a temp folder others may have put anything under that name."""
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
    """What the agent gets to read, in its own form; nothing where there is no pack."""
    try:
        index = _file(f"{keep}/state/packs/index")
        if event == "pre_llm_call" and b'"is_first_turn":true' not in payload.replace(b": ", b":"):
            return b""  # Hermes asks at every turn
        import json  # only now: it costs as much as all the rest

        try:
            said = json.loads(payload)
        except Exception:
            said = None
        text = _text_for(f"{keep}/state/packs", agent, said if isinstance(said, dict) else {}, index)
        if not text.strip():
            return b""
        form = dict(_lines_of("answer")).get(agent)
        if form == "text":
            return text.encode()  # takes whatever is printed as it is
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


def _text_for(packs: str, agent: str, said: dict[str, object], index: bytes) -> str:
    if said.get("source") in _GOES_ON:
        return ""
    cwd, session = said.get("cwd"), said.get("session_id")
    if said.get("source") == "compact" and isinstance(session, str) and session and _file_word(session) == session:
        try:
            return _file(f"{packs}/after~{agent}~{session}.md").decode()
        except FileNotFoundError:
            pass  # nothing of it would have been lost, or nobody could tell in time
    name = _pack_for(cwd if isinstance(cwd, str) else posix.getcwd(), index.decode("utf-8", "surrogateescape"))
    return _file(f"{packs}/{name}").decode() if name else ""


def _pack_for(cwd: str, index: str) -> str:
    """From the folder upwards; a few stats, for what is in a repository that nobody knows is no part of the folder above it."""
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
        if _there(f"{at}/.git"):
            break
        at = at.rpartition("/")[0]
    return packs.get("", ("", False))[0]


def _worktree_of(folder: str) -> str:
    """The repository that a folder is a worktree of, or what is no folder at all."""
    try:
        named = _file(f"{folder}/.git").decode("utf-8", "surrogateescape")
    except (OSError, ValueError):
        return " "
    root, found, _ = named.partition("gitdir:")[2].strip().partition("/.git/worktrees/")
    return root if found else " "


def _file(path: str) -> bytes:
    handle = posix.open(path, posix.O_RDONLY | posix.O_CLOEXEC | posix.O_NONBLOCK)  # a pipe of that name must not hold us up
    found = posix.read(handle, _HEAD + 1)
    posix.close(handle)
    if len(found) > _HEAD:
        raise ValueError(f"{path} is too large")
    return found


def _say(answer: bytes) -> None:
    try:
        while answer:
            answer = answer[posix.write(1, answer) :]
    except OSError:
        pass  # nobody listens


# -- the drainer


def _start_drainer(keep: str) -> None:
    if _drainer_at_work(f"{keep}/state/drain.lock"):
        return
    if not sys.executable:
        raise RuntimeError("this Python does not know its own path, so no drainer can be started")
    above = _package().rpartition("/")[0]
    words = [sys.executable, "-E", "-P", "-c", _DRAIN, above, "--keep", keep, "drain"]
    # Nothing of the agent's may be kept open or in use by a process that outlives this one: pipes, folders.
    posix.closerange(3, 1024)
    posix.chdir("/")
    quiet = posix.open("/dev/null", posix.O_RDWR)
    try:
        # What it says last is there for `doctor`; the next one begins anew, so that it can't grow.
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
    """Shared, so that two who ask at the same time don't take each other for the drainer."""
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
        pass  # whatever it is, it is not the agent's problem
    # At once: closing down an interpreter takes as long as all of the above.
    posix._exit(0)


if __name__ == "__main__":
    script()
