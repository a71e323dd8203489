"""A small ACP agent, and the tap in front of it, as processes of their own.

    python -m tests.agents.acp_agent agent                 an ACP agent on stdio: what a prompt says is what it does
    python -m tests.agents.acp_agent echo | burst N        no ACP at all: bytes
    python -m tests.agents.acp_agent sdk                   built on the protocol's own package
    python -m tests.agents.acp_agent play FILE             the agent's part of a conversation that was written down
    python -m tests.agents.acp_agent tap ROOT [--stall S] [--room BYTES] [--agent NAME] -- CMD…

Prompts: `say WORDS` streams them word by word; `log LINE` writes to stderr; `die` kills itself with -9 behind its first word;
`exit N`; `children` ends and leaves a child that holds its pipes; `wait`; several with `;` between them.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from functools import lru_cache
from typing import Any

STALLED_SESSION = "s-1"


def send(message: dict[str, Any]) -> None:
    sys.stdout.buffer.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
    sys.stdout.buffer.flush()


class Agent:
    def __init__(self) -> None:
        self.sessions = 0
        self.told: list[tuple[str, str]] = []

    def run(self) -> None:
        for line in sys.stdin.buffer:
            try:
                message = json.loads(line)
            except ValueError:
                continue
            if "method" in message and "id" in message:
                self.answer(message["id"], message["method"], message.get("params") or {})

    def answer(self, number: int, method: str, params: dict[str, Any]) -> None:
        result: dict[str, Any] = {}
        if method == "initialize":
            result = {"protocolVersion": 1, "agentInfo": {"name": "tiny-agent", "version": "7.1"}, "agentCapabilities": {}}
        elif method == "session/new":
            self.sessions += 1
            result = {"sessionId": f"s-{self.sessions}"}
        elif method == "session/load":
            for role, words in [("user", "say an old answer"), ("agent", "an old answer")]:
                self.update(params["sessionId"], f"{role}_message_chunk", words)
        elif method == "session/prompt":
            for order in params["prompt"][0]["text"].split(";"):
                self.obey(params["sessionId"], order.strip())
            result = {"stopReason": "end_turn"}
        send({"id": number, "result": result})

    def update(self, session: str, kind: str, words: str) -> None:
        update = {"sessionUpdate": kind, "content": {"type": "text", "text": words}}
        send({"method": "session/update", "params": {"sessionId": session, "update": update}})

    def obey(self, session: str, order: str) -> None:
        verb, _, rest = order.partition(" ")
        if verb == "say":
            for n, word in enumerate(rest.split(" ")):
                self.update(session, "agent_message_chunk", word if n == 0 else f" {word}")
        elif verb == "log":
            os.write(2, f"{rest}\n".encode())
        elif verb == "die":
            self.update(session, "agent_message_chunk", "half of")
            os.write(2, b"last words\n")
            os.kill(os.getpid(), signal.SIGKILL)
        elif verb == "exit":
            sys.exit(int(rest))
        elif verb == "children":
            subprocess.Popen([sys.executable, "-c", "import time; time.sleep(20)"])
            os._exit(0)
        elif verb == "wait":
            time.sleep(60)


def echo() -> None:
    while data := os.read(0, 1 << 16):
        view = memoryview(data)
        while view:
            view = view[os.write(1, view) :]


def burst(count: int) -> None:
    out = sys.stdout.buffer
    for n in range(count):
        out.write(b'{"jsonrpc":"2.0","method":"_x","params":{"n":%d}}\n' % n)
    out.flush()


def play(file: str) -> None:
    """Lines of {"dir": "out" (the client says) | "in" (the agent says), "msg": {…}}."""
    with open(file, "rb") as lines:
        for line in lines:
            said = json.loads(line)
            if said["dir"] == "in":
                sys.stdout.buffer.write(json.dumps(said["msg"]).encode() + b"\n")
                sys.stdout.buffer.flush()
            elif not sys.stdin.buffer.readline():
                return


def sdk() -> None:
    """An agent built on the protocol's own package."""
    import asyncio

    import acp
    from acp.schema import AgentCapabilities, Implementation

    class Polite:
        client: Any = None

        def on_connect(self, conn: Any) -> None:
            self.client = conn

        async def initialize(self, protocol_version: int, **more: Any) -> acp.InitializeResponse:
            about = Implementation(name="polite", version="1")
            return acp.InitializeResponse(
                protocol_version=protocol_version, agent_info=about, agent_capabilities=AgentCapabilities()
            )

        async def new_session(self, cwd: str, **more: Any) -> acp.NewSessionResponse:
            return acp.NewSessionResponse(session_id="sdk-1")

        async def prompt(self, prompt: list[Any], session_id: str, **more: Any) -> acp.PromptResponse:
            for words in ("You said: ", prompt[0].text):
                await self.client.session_update(session_id=session_id, update=acp.update_agent_message_text(words))
            await self.client.ext_notification("vendor/news", {"sessionId": session_id, "newer": [1, 2, 3]})
            return acp.PromptResponse(stop_reason="end_turn")

    polite: Any = Polite()
    asyncio.run(acp.run_agent(polite))


def tap(words: list[str]) -> int:
    from dreamkeep.capture.python import Owners
    from dreamkeep.capture.sources.masked import mask_event
    from dreamkeep.capture.tap import tap as it
    from dreamkeep.event import Ids
    from dreamkeep.host import RealHost
    from dreamkeep.journal.writers import JournalWriters

    class Host(RealHost):
        """A disk that takes its time."""

        stall_s = 0.0

        def sync(self, handle: int) -> None:
            time.sleep(self.stall_s)
            super().sync(handle)

    cut = words.index("--")
    options = dict(zip(words[1:cut:2], words[2:cut:2], strict=True))
    root, command = words[0], words[cut + 1 :]
    host = Host()
    Host.stall_s = float(options.get("--stall", "0"))
    ids = Ids(host.now, host.random)
    mask = mask_event if os.environ.get("TAP_MASKS") else None
    journals = lru_cache(lambda: JournalWriters(host, root, ids, mask=mask))
    owners = lru_cache(lambda: Owners(host, root, ids.new))
    code = it.run(
        host,
        root,
        journals,
        ids,
        owners,
        command,
        agent=options.get("--agent"),
        environment=os.environ,
        off=False,
        scrape=True,
        room=int(options.get("--room", 64 << 20)),
    )
    owners().close()
    return code


def main(words: list[str]) -> None:
    match words:
        case ["agent"]:
            Agent().run()
        case ["play", file]:
            play(file)
        case ["sdk"]:
            sdk()
        case ["echo"]:
            echo()
        case ["burst", count]:
            burst(int(count))
        case ["tap", *rest]:
            sys.exit(tap(rest))
        case _:
            sys.exit(f"what is {words}?")


if __name__ == "__main__":
    main(sys.argv[1:])
