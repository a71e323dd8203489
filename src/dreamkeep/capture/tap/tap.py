"""`tap -- AGENT…`: sits between an ACP client and its agent, on stdio. Bytes pass unchanged; a copy is journaled (copy.py).

    client stdin ──► pump ──► agent stdin       Each pump is a thread that passes bytes on as they come. A slow side delays only
    client stdout ◄── pump ◄── agent stdout     its own direction, as with a pipe. The end of a stream is passed on, too. No pump
    our stderr ◄── pump ◄── agent stderr        waits for a whole line, a parser or a disk.

It behaves like a direct connection: signals go to the agent (signals.py), its exit code comes back (128 + N for signal N), the
client gets a broken pipe when the agent stops reading, and when the tap is killed, so is the agent (guard.py). If dreamkeep is
switched off, the tap *becomes* the agent (exec).

Unlike other modules, this one handles pipes and processes itself, without the host.
"""

from __future__ import annotations

import errno
import fcntl
import os
import select
import signal
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Mapping, Sequence

from dreamkeep.capture.python import Owners
from dreamkeep.capture.tap.copy import ROOM, AgentExit, Copier, Queue
from dreamkeep.capture.tap.route import AGENT, CLIENT, STDERR, Router
from dreamkeep.capture.tap.signals import Guard, Signals
from dreamkeep.config import switched_off
from dreamkeep.errors import BadUsage
from dreamkeep.event import Ids
from dreamkeep.host import Host
from dreamkeep.journal.places import session_id
from dreamkeep.journal.writers import JournalWriters

_READ = 1 << 18
#: After the agent's death, its children may hold its pipes open. We stop reading after so long without a byte.
_QUIET_S = 1.0
#: How long we wait for a client that does not read the agent's last bytes.
_SLOW_CLIENT_S = 30.0
#: A child that the agent left behind may write into its pipes for ever. We read them for so long.
_LEFT_BEHIND_S = 3.0
#: How many bytes left in the agent's pipes are read for the copy.
_MOST_LEFTOVERS = 1 << 20
#: How long an agent without a client may take to end by itself, and then after SIGTERM.
_GRACE_S = 5.0
#: How long journaling may take at the end. The client has seen the end of the stream by then.
_JOURNAL_S = 10.0
#: How often threads switch, so that copying never delays a byte for long.
_SWITCH_S = 0.000_5
_NOT_FOUND, _NOT_STARTED = 127, 126


def run(
    host: Host,
    root: str,
    journals: Callable[[], JournalWriters],
    ids: Ids,
    owners: Callable[[], Owners],
    command: Sequence[str],
    *,
    agent: str | None,
    environment: Mapping[str, str],
    off: bool,
    scrape: bool,
    excluded: Callable[[str, str], bool] = lambda cwd, project: False,
    room: int = ROOM,
) -> int:
    """Runs until the agent ends; returns its exit code. Only the copying thread calls `journals` and `owners`. `excluded`:
    whether a session must not be kept, by its folder and its project."""
    if not command:
        raise BadUsage("no agent command given", where="tap", next="Put its command after `--`.")
    if agent is not None:
        session_id(agent, "x")  # refuses an invalid name
    if off or switched_off(environment):
        return become(command, environment)
    router = Router(agent, command)
    name = os.path.basename(command[0])
    copier = Copier(
        host, root, journals, ids, owners, router, command=name, scrape=scrape, excluded=excluded, say=_say, room=room
    )
    return _run_agent(command, environment, copier)


def become(command: Sequence[str], environment: Mapping[str, str]) -> int:
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores it; the agent must not inherit that
    try:
        os.execvpe(command[0], list(command), dict(environment))
    except OSError as problem:
        return _not_started(command, problem)


def _not_started(command: Sequence[str], problem: OSError) -> int:
    _say(f"dreamkeep tap: {command[0]} can't be started ({problem.strerror or problem}). Check the command after `--`.")
    return _NOT_FOUND if problem.errno == errno.ENOENT else _NOT_STARTED


def _say(text: str) -> None:
    """Writes to stderr, unless its pipe is full: that must not block us."""
    try:
        if _ready(2, select.POLLOUT, 0):
            os.write(2, f"{text}\n".encode("utf-8", "replace"))
    except OSError:
        pass  # nobody reads


def _ready(handle: int, what: int, wait_ms: int | None = None) -> bool:
    watched = select.poll()
    watched.register(handle, what)
    return bool(watched.poll(wait_ms))


class Pump(threading.Thread):
    """Passes bytes on in one direction. While it runs, no other code reads from its source."""

    def __init__(
        self, side: str, source: int, sink: int, queue: Queue, broken: Callable[[], bool], ended: Callable[[], None]
    ) -> None:
        super().__init__(name=f"tap {side}", daemon=True)
        self.side = side
        self.source = source
        self._sink = sink
        self._queue = queue
        self._broken = broken
        self._ended = ended
        self.passed = 0
        self.writing = False

    def run(self) -> None:
        """Passes on until the source ends; then it ends the sink."""
        flows = True
        while data := _read(self.source):
            # Copied first, or an answer could be journaled before its question. Copying never waits.
            self._queue.put(self.side, data)
            self.passed += len(data)
            if flows and not self._write(data):
                flows = False
                if not self._broken():
                    return
        self._ended()

    def _write(self, data: bytes) -> bool:
        self.writing = True
        try:
            return _write(self._sink, data)
        finally:
            self.writing = False


def _read(handle: int) -> bytes:
    while True:
        try:
            return os.read(handle, _READ)
        except BlockingIOError:
            _ready(handle, select.POLLIN)  # the process that gave us this pipe made it non-blocking
        except OSError:
            return b""


def _write(handle: int, data: bytes) -> bool:
    """Writes all of it; False when nobody reads there any more."""
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(handle, view) :]
        except BlockingIOError:
            _ready(handle, select.POLLOUT)
        except OSError:
            return False
    return True


class Connection:
    """The agent's process and the three pumps."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], queue: Queue) -> None:
        self._nothing = os.open(os.devnull, os.O_RDWR)
        agent_in, self._to_agent = os.pipe()
        from_agent, agent_out = os.pipe()
        errors, agent_errors = os.pipe()
        try:
            # The agent inherits the other handles that the client passed to us. Our own handles are not inheritable.
            self.process = subprocess.Popen(
                list(command), stdin=agent_in, stdout=agent_out, stderr=agent_errors, env=dict(environment), close_fds=False
            )
        finally:
            for handle in (agent_in, agent_out, agent_errors):
                os.close(handle)
        self._queue = queue
        self.inward = Pump(CLIENT, 0, self._to_agent, queue, self._on_agent_stopped_reading, self._close_agent_input)
        self.outward = Pump(AGENT, from_agent, 1, queue, self._on_client_gone, self.end_output)
        # Our own stderr stays open for our own messages.
        self.errors = Pump(STDERR, errors, 2, queue, lambda: True, lambda: None)

    def start(self) -> None:
        for pump in (self.inward, self.outward, self.errors):
            pump.start()

    def _close_agent_input(self) -> None:
        # Replaced, not closed: another thread may be about to use this handle.
        os.dup2(self._nothing, self._to_agent, inheritable=False)

    def _on_agent_stopped_reading(self) -> bool:
        """The agent has stopped reading. We stop, too, so that the client gets a broken pipe."""
        os.dup2(self._nothing, 0)
        return False

    def _on_client_gone(self) -> bool:
        """The client is gone. Let the agent end, and keep what it still writes."""
        self._close_agent_input()
        threading.Thread(target=self._end_agent, name="tap end", daemon=True).start()
        return True

    def _end_agent(self) -> None:
        for act in (self.process.terminate, self.process.kill):
            time.sleep(_GRACE_S)
            if self.process.returncode is not None:
                return
            act()

    def drain(self) -> None:
        """Called after the agent's death: passes on everything that it wrote, within the time limits."""
        pumps = [self.outward, self.errors]
        passed, since = -1, time.monotonic()
        died = since
        while any(pump.is_alive() for pump in pumps):
            now = time.monotonic()
            if (total := sum(pump.passed for pump in pumps)) != passed:
                passed, since = total, now
            blocked = any(pump.is_alive() and pump.writing for pump in pumps)
            if now - since > (_SLOW_CLIENT_S if blocked else _QUIET_S) or (not blocked and now - died > _LEFT_BEHIND_S):
                break
            pumps[0 if pumps[0].is_alive() else 1].join(0.02)
        for pump in pumps:
            if pump.is_alive():
                self._read_leftovers(pump)

    def _read_leftovers(self, pump: Pump) -> None:
        os.set_blocking(pump.source, False)
        left = _MOST_LEFTOVERS
        try:
            while left > 0 and (data := os.read(pump.source, left)):
                self._queue.put(pump.side, data)
                left -= len(data)
            waiting = fcntl.ioctl(pump.source, termios.FIONREAD, b"\0\0\0\0")
            self._queue.miss(pump.side, int.from_bytes(waiting, sys.byteorder))
        except OSError:
            pass  # nothing is left

    def end_output(self) -> None:
        """Lets the client see the end of the stream now, and not only when everything is journaled."""
        os.dup2(self._nothing, 1)


def _run_agent(command: Sequence[str], environment: Mapping[str, str], copier: Copier) -> int:
    switch = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_S)
    signals = Signals()
    try:
        try:
            connection = Connection(command, environment, copier.queue)
        except OSError as problem:
            return _not_started(command, problem)
        guard = _start_guard(connection.process.pid)
        signals.forward_to(connection.process, guard)
        connection.start()
        copier.start()
        code = connection.process.wait()
        signals.restore()  # the agent no longer handles them
        if guard:
            guard.end()
        connection.drain()
        connection.end_output()
        if not copier.finish(_exit_of(code), wait_s=_JOURNAL_S):
            _say("dreamkeep tap: the end of this session could not be recorded in time. Run `dreamkeep doctor`.")
        return code if code >= 0 else 128 - code
    finally:
        signals.restore()
        sys.setswitchinterval(switch)


def _start_guard(agent: int) -> Guard | None:
    try:
        return Guard(agent)
    except OSError as problem:
        _say(f"dreamkeep tap: no guard ({problem}): the agent may get a signal twice, and outlive a tap that is killed.")
        return None


def _exit_of(code: int) -> AgentExit:
    if code >= 0:
        return AgentExit(code, None, f"the agent exited with code {code}")
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return AgentExit(None, -code, f"the agent was killed by {name}")
