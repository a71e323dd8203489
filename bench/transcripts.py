"""Transcripts to measure on: in the agents' own forms, nothing in them happened, as large as asked for.

How well they compress decides what the disk lines of `ingest` say, so it must not be better than in real life. Text is drawn word
by word (frequent words often, rare ones seldom), code and logs line by line from identifiers; signatures, encrypted reasoning and
images are chance in base64, and there are as many of them as in real sessions. What agents write twice (a tool's output as the
model got it and as it is shown) is written twice here too. The long system prompts that newer clients repeat, which compress to
nothing, are left out. What zstd makes of the sources themselves is printed beside our own numbers.
"""

from __future__ import annotations

import base64
import os
import random
from collections.abc import Callable, Iterator
from functools import cache
from itertools import accumulate, count
from pathlib import Path
from typing import Any, NamedTuple

import orjson

MB = 1 << 20
CWD = "/home/dev/shop"
Line = dict[str, Any]

#: Words of text, lines of code: so many bytes go by before a stretch comes again, and a compressor looks back 2 MB at most.
_STOCK = 12 * MB
#: Among so many results of tools one is an image.
_IMAGES = 800
_LONGEST = 64 << 10


# -- what is said


class Stock:
    """A long text, handed out in pieces from front to back."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def take(self, size: int) -> str:
        if self._at + size > len(self._text):
            self._at = 0
        self._at += size
        return self._text[self._at - size : self._at]


@cache
def _stocks() -> tuple[str, str]:
    """Prose and code: made once, for it takes some seconds."""
    chance = random.Random(3)
    words = _words(chance, 6_000)
    return _prose(chance, words), _code(chance, words)


def _words(chance: random.Random, number: int) -> list[str]:
    """Frequent words are short."""
    starts = (*"bcdfghlmnprstvw", "st", "tr", "pl", "gr", "ch")
    syllables = [start + end for start in starts for end in (*"aeiou", "ea", "ou", "er", "in", "an")]
    found: dict[str, None] = {}
    while len(found) < number:
        longest = 1 + min(4, len(found) // 400)
        found["".join(chance.choices(syllables, k=chance.randint(1, longest + 1)))] = None
    return list(found)


def _drawn(chance: random.Random, words: list[str], number: int) -> list[str]:
    weights = list(accumulate(1 / (rank + 2.7) for rank in range(len(words))))
    return chance.choices(words, cum_weights=weights, k=number)


def _prose(chance: random.Random, words: list[str]) -> str:
    ends = (". ", ".\n\n", ", ", ", ", ": ", ".\n- ", " `", "` ", "; ", "? ")
    drawn = _drawn(chance, words, _STOCK // 6)
    marks = chance.choices(ends, k=len(drawn) // 9 + 1)
    pieces = []
    for n in range(0, len(drawn), 9):
        pieces += [" ".join(drawn[n : n + 9]), marks[n // 9]]
    return "".join(pieces)[:_STOCK]


_FORMS = (
    "    def {a}_{b}(self, {c}: {D}, *, {e}: int = {n}) -> {D}{B}:",
    "        return self._{a}.{b}({c}, {e}={n})",
    "        if not {a}.{b} or {c}[{n}] == {e}:",
    '            raise {D}Error(f"{a} {b} {{{c}}}", where={e})',
    "        {a}, {b} = {c}.{e}(), [{d}.{b} for {d} in {a}]",
    "src/{a}/{b}_{c}.py:{n}:    {d} = {e}({a})",
    'import {{ {A}{B} }} from "../{c}/{d}";',
    '  const {a}{B} = await {c}.{d}({{ {e}: {n}, {b}: "{a}" }});',
    "2026-11-15T09:{m}:{m}.{n}Z INFO  [{a}-{m}] {b} {c}: {d}={n} {e}=0x{h}",
    "-rw-r--r-- 1 dev dev {n} Nov 15 09:{m} {a}_{b}.{c}",
    "tests/test_{a}_{b}.py::test_{c}_{d}_{e} PASSED",
    "FAILED tests/test_{a}.py::test_{b}_{c} - assert {n} == {m}",
    '  "{a}_{b}": {{"{c}": {n}, "{d}": "{e}", "id": "{h}"}},',
    "+        self.{a} = {b} or {c}({d}, {n})",
    "-        self.{a} = {b}",
    "# {a} {b} {c} {d} {e}",
    "",
)


def _code(chance: random.Random, words: list[str]) -> str:
    names = words[:2_500]
    chance.shuffle(names)
    drawn = _drawn(chance, names, _STOCK // 40 * 5)
    lines = []
    for n in range(0, len(drawn) - 5, 5):
        a, b, c, d, e = drawn[n : n + 5]
        numbers = {"n": chance.randrange(10_000), "m": chance.randrange(10, 60), "h": f"{chance.getrandbits(40):010x}"}
        form = chance.choice(_FORMS)
        lines.append(form.format(a=a, b=b, c=c, d=d, e=e, A=a.title(), B=b.title(), D=d.title(), **numbers))
    return "\n".join(lines)[:_STOCK]


class Talk:
    """What is said in sessions, whatever their form."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self._prose, self._code = map(Stock, _stocks())
        self._prose.take(self.chance.randrange(_STOCK // 2))
        self._code.take(self.chance.randrange(_STOCK // 2))
        self._clock = 1_794_000_000_000 + seed * 1_000
        self._results = count(1)

    def prompt(self) -> str:
        return self._prose.take(self._size(160, 1.1))

    def answer(self) -> str:
        words = self._prose.take(self._size(420, 1.0))
        return words if self.chance.random() < 0.6 else f"{words}\n```python\n{self._code.take(self._size(400, 0.9))}\n```\n"

    def thought(self) -> str:
        return self._prose.take(self._size(500, 0.9))

    def command(self) -> str:
        return f"cd {CWD} && grep -rn '{self._prose.take(12)}' src | head -{self.chance.randrange(99)}"

    def path(self) -> str:
        return f"{CWD}/src/{self._prose.take(7).strip().replace(' ', '_')}/{self.hex(6)}.py"

    def output(self) -> str:
        """What a tool gave: mostly little, now and then a file."""
        return self._code.take(self._size(900, 1.4))

    def source(self) -> str:
        return self._code.take(self._size(2_500, 0.9))

    def is_image(self) -> bool:
        return next(self._results) % _IMAGES == _IMAGES // 4

    def image(self) -> str:
        return self.blob(150_000 + self.chance.randrange(150_000))

    def blob(self, size: int) -> str:
        return base64.b64encode(self.chance.randbytes(size)).decode()

    def signature(self) -> str:
        return self.blob(250 + self.chance.randrange(700))

    def hex(self, digits: int) -> str:
        return f"{self.chance.getrandbits(4 * digits):0{digits}x}"

    def uuid(self) -> str:
        h = self.hex(32)
        return f"{h[:8]}-{h[8:12]}-4{h[13:16]}-8{h[17:20]}-{h[20:]}"

    def tick(self) -> int:
        self._clock += self.chance.randrange(20, 30_000)
        return self._clock

    def now(self) -> str:
        seconds, ms = divmod(self.tick(), 1000)
        minutes, second = divmod(seconds, 60)
        hours, minute = divmod(minutes, 60)
        return f"2026-11-{hours // 24 % 28 + 1:02}T{hours % 24:02}:{minute:02}:{second:02}.{ms:03}Z"

    def steps(self) -> range:
        return range(self.chance.choice((0, 1, 2, 3, 5, 8, 13)))

    def _size(self, middle: int, spread: float) -> int:
        return min(_LONGEST, max(4, int(self.chance.lognormvariate(0, spread) * middle)))


# -- one form for each agent: endless lines of one session


def claude(talk: Talk, session: str) -> Iterator[Line]:
    leaf: str | None = None
    tail = {
        "userType": "external",
        "entrypoint": "cli",
        "cwd": CWD,
        "sessionId": session,
        "version": "2.1.325",
        "gitBranch": "main",
    }
    usage = {"service_tier": "standard", "cache_creation": {"ephemeral_1h_input_tokens": 0, "ephemeral_5m_input_tokens": 0}}

    def line(kind: str, **more: Any) -> Line:
        nonlocal leaf
        before, leaf = leaf, talk.uuid()
        return {"parentUuid": before, "isSidechain": False, **more, "type": kind, "uuid": leaf, "timestamp": talk.now(), **tail}

    def model(message: str, request: str, block: Line, stop: str) -> Line:
        tokens = {"input_tokens": talk.chance.randrange(9), "cache_read_input_tokens": talk.chance.randrange(150_000)}
        used = {**tokens, "output_tokens": talk.chance.randrange(4_000), **usage}
        known = {"id": message, "type": "message", "role": "assistant", "model": "claude-sonnet-4-5", "content": [block]}
        return line("assistant", message={**known, "stop_reason": stop, "usage": used}, requestId=request)

    def result(tool: str, name: str) -> Line:
        if talk.is_image():
            data = talk.image()
            source = {"type": "base64", "data": data, "media_type": "image/png"}
            content: object = [{"type": "image", "source": source}]
            outcome: Line = {"type": "image", "file": {"base64": data, "type": "image/png"}}
        elif name == "Read":
            content = text = talk.source()
            outcome = {"type": "text", "file": {"filePath": talk.path(), "content": text, "numLines": text.count("\n")}}
        else:
            content = text = talk.output()
            outcome = {"stdout": text, "stderr": "", "interrupted": False, "isImage": False}
        block = {"tool_use_id": tool, "type": "tool_result", "content": content}
        return line("user", promptId=prompt, message={"role": "user", "content": [block]}, toolUseResult=outcome)

    while True:
        prompt = talk.uuid()
        yield line("user", promptId=prompt, message={"role": "user", "content": talk.prompt()})
        for _ in talk.steps():
            message, request, tool = f"msg_01{talk.hex(22)}", f"req_011{talk.hex(21)}", f"toolu_01{talk.hex(22)}"
            if talk.chance.random() < 0.3:
                thinking = {"type": "thinking", "thinking": talk.thought(), "signature": talk.signature()}
                yield model(message, request, thinking, "tool_use")
            name = talk.chance.choice(("Bash", "Bash", "Read", "Read", "Edit"))
            given: Line = {"command": talk.command(), "description": talk.prompt()[:60]}
            if name == "Read":
                given = {"file_path": talk.path()}
            elif name == "Edit":
                given = {"file_path": talk.path(), "old_string": talk.output()[:600], "new_string": talk.output()[:900]}
            yield model(message, request, {"type": "tool_use", "id": tool, "name": name, "input": given}, "tool_use")
            yield result(tool, name)
        yield model(f"msg_01{talk.hex(22)}", f"req_011{talk.hex(21)}", {"type": "text", "text": talk.answer()}, "end_turn")


def codex(talk: Talk, session: str) -> Iterator[Line]:
    ordinal = count()

    def line(kind: str, payload: Line) -> Line:
        return {"timestamp": talk.now(), "ordinal": next(ordinal), "type": kind, "payload": payload}

    def shown(kind: str, own: str, **more: Any) -> Line:
        item = {"type": kind, "id": own, **more}
        return line("event_msg", {"type": "item_completed", "thread_id": session, "turn_id": turn, "item": item})

    def said(role: str, own: str, words: str) -> Line:
        form = "output_text" if role == "assistant" else "input_text"
        inside = {"turn_id": turn, "content_item_kinds": ["unknown"]}
        payload = {"type": "message", "id": own, "role": role, "content": [{"type": form, "text": words}]}
        return line("response_item", {**payload, "internal_chat_message_metadata_passthrough": inside})

    known = {"session_id": session, "id": session, "timestamp": talk.now(), "cwd": CWD, "cli_version": "0.166.0", "source": "cli"}
    yield line("session_meta", {**known, "history_mode": "paginated", "git": {"branch": "main"}})
    while True:
        turn, prompt = talk.uuid(), talk.prompt()
        yield line("event_msg", {"type": "task_started", "turn_id": turn, "started_at": talk.tick() // 1000})
        yield line("turn_context", {"turn_id": turn, "cwd": CWD, "approval_policy": "never", "model": "gpt-5-codex"})
        yield said("user", f"msg_{talk.uuid()}", prompt)
        yield shown("UserMessage", talk.uuid(), content=[{"type": "text", "text": prompt, "text_elements": []}])
        for _ in talk.steps():
            own, call, command, output = f"rs_{talk.hex(48)}", f"call_{talk.hex(24)}", talk.command(), talk.output()
            if talk.chance.random() < 0.5:
                summary = [{"type": "summary_text", "text": talk.thought()[:300]}]
                secret = talk.blob(500 + talk.chance.randrange(1_000))
                yield line("response_item", {"type": "reasoning", "id": own, "summary": summary, "encrypted_content": secret})
            arguments = orjson.dumps({"cmd": command}).decode()
            yield line(
                "response_item", {"type": "function_call", "name": "exec_command", "arguments": arguments, "call_id": call}
            )
            ran = {"command": ["/bin/bash", "-lc", command], "cwd": f"file://{CWD}", "status": "completed", "exit_code": 0}
            yield shown("CommandExecution", call, **ran, aggregated_output=output)
            text = f"Chunk ID: {talk.hex(6)}\nWall time: 0.1 seconds\nProcess exited with code 0\nOutput:\n{output}"
            yield line("response_item", {"type": "function_call_output", "call_id": call, "output": text})
            used = {"input_tokens": talk.chance.randrange(200_000), "output_tokens": talk.chance.randrange(4_000)}
            yield line("event_msg", {"type": "token_count", "info": {"total_token_usage": used, "last_token_usage": used}})
        own, answer = f"msg_{talk.hex(48)}", talk.answer()
        yield shown("AgentMessage", own, content=[{"type": "Text", "text": answer}])
        yield said("assistant", own, answer)
        yield line("event_msg", {"type": "task_complete", "turn_id": turn, "last_agent_message": answer})


def gemini(talk: Talk, session: str) -> Iterator[Line]:
    def message(kind: str, content: object, **more: Any) -> Line:
        return {"id": talk.uuid(), "timestamp": talk.now(), "type": kind, "content": content, **more}

    def model(words: str) -> Line:
        used = {"input": talk.chance.randrange(200_000), "output": talk.chance.randrange(4_000), "cached": 0, "thoughts": 0}
        subject = {"subject": talk.thought()[:40], "description": talk.thought(), "timestamp": talk.now()}
        return message("gemini", words, thoughts=[subject], tokens=used, model="gemini-2.5-pro")

    yield {"sessionId": session, "projectHash": talk.hex(64), "startTime": talk.now(), "lastUpdated": talk.now(), "kind": "main"}
    while True:
        shown = [{"text": talk.prompt()}]
        yield message("user", shown, displayContent=shown)
        yield {"$set": {"lastUpdated": talk.now()}}
        for _ in talk.steps():
            call, output = f"run_shell_command__{talk.hex(8)}", talk.output()
            asked = model("")
            yield asked
            yield {"$set": {"lastUpdated": talk.now()}}
            part = {"functionResponse": {"id": call, "name": "run_shell_command", "response": {"output": output}}}
            ran = {"id": call, "name": "run_shell_command", "args": {"command": talk.command()}, "result": [part]}
            yield {**asked, "toolCalls": [{**ran, "status": "success", "timestamp": talk.now(), "resultDisplay": output}]}
            yield message("user", [part])
        yield model(talk.answer())
        yield {"$set": {"lastUpdated": talk.now()}}


def pi(talk: Talk, session: str) -> Iterator[Line]:
    leaf: str | None = None
    about = {"api": "openai-completions", "provider": "openai", "model": "gpt-5"}

    def entry(**message: Any) -> Line:
        nonlocal leaf
        before, leaf = leaf, talk.hex(8)
        inside = {**message, "timestamp": talk.tick()}
        return {"type": "message", "id": leaf, "parentId": before, "timestamp": talk.now(), "message": inside}

    yield {"type": "session", "version": 3, "id": session, "timestamp": talk.now(), "cwd": CWD}
    while True:
        yield entry(role="user", content=[{"type": "text", "text": talk.prompt()}])
        for _ in talk.steps():
            call = f"call_{talk.hex(24)}"
            signature = talk.signature() if talk.chance.random() < 0.4 else ""
            thinking = {"type": "thinking", "thinking": talk.thought(), "thinkingSignature": signature}
            wanted = {"type": "toolCall", "id": call, "name": "bash", "arguments": {"command": talk.command()}}
            yield entry(role="assistant", content=[thinking, wanted], **about, stopReason="toolUse")
            text = [{"type": "text", "text": talk.output()}]
            yield entry(role="toolResult", toolCallId=call, toolName="bash", content=text, isError=False)
        yield entry(role="assistant", content=[{"type": "text", "text": talk.answer()}], **about, stopReason="stop")


def hermes_webui(talk: Talk, session: str) -> Iterator[Line]:
    """Its messages; `_document` puts them into the file."""
    while True:
        yield {"role": "user", "content": talk.prompt(), "timestamp": talk.tick() / 1000}
        for _ in talk.steps():
            call = f"call_{talk.hex(24)}"
            function = {"name": "terminal", "arguments": orjson.dumps({"command": talk.command()}).decode()}
            asked = [{"id": call, "type": "function", "function": function}]
            yield {
                "role": "assistant",
                "content": "",
                "timestamp": talk.tick() / 1000,
                "tool_calls": asked,
                "reasoning": talk.thought(),
            }
            content = orjson.dumps({"output": talk.output(), "exit_code": 0, "error": None}).decode()
            yield {"role": "tool", "content": content, "timestamp": talk.tick() / 1000, "tool_call_id": call, "name": "terminal"}
        yield {"role": "assistant", "content": talk.answer(), "timestamp": talk.tick() / 1000}


# -- files


Form = Callable[[Talk, str], Iterator[Line]]


def written(path: str, form: Form, size: int, seed: int = 1, session: str = "") -> int:
    """One file of about `size` bytes; how many they really are. A longer one begins with the same lines."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    done = 0
    with open(path, "wb", buffering=MB) as file:
        for line in form(Talk(seed), session or session_of(path)):
            done += file.write(orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE))
            if done >= size:
                break
    return done


def session_of(path: str) -> str:
    return os.path.basename(path).removesuffix(".jsonl")


def claude_home(home: str, size: int, seed: int = 1) -> str:
    """A home with one session of Claude Code; its file."""
    path = f"{home}/.claude/projects/-home-dev-shop/{Talk(seed).uuid()}.jsonl"
    written(path, claude, size, seed)
    return path


def claude_many(home: str, files: int, folders: int, size: int) -> None:
    for n in range(files):
        name = Talk(n).uuid()
        written(f"{home}/.claude/projects/-home-dev-p{n % folders}/{name}.jsonl", claude, size, n)


class Share(NamedTuple):
    """How much of the mix an agent has, and how one of its sessions is written."""

    agent: str
    share: float
    write: Callable[[str, int, int], None]


def mixed(home: str, total: int) -> Iterator[tuple[str, str]]:
    """Sessions of several agents, each agent in a home of its own: (agent, home). Many are small, few are large."""
    for share in _SHARES:
        own = f"{home}/{share.agent}"
        chance = random.Random(share.agent)
        left = int(total * share.share)
        for n in count(1):
            size = min(int(chance.lognormvariate(0, 1.5) * 150_000) + 2_000, 12 * MB, left)
            share.write(own, size, n)
            left -= size
            if left <= 2_000:
                break
        yield share.agent, own


def _write_claude(home: str, size: int, n: int) -> None:
    written(f"{home}/.claude/projects/-home-dev-p{n % 9}/{Talk(n).uuid()}.jsonl", claude, size, n)


def _write_codex(home: str, size: int, n: int) -> None:
    own = Talk(n).uuid()
    path = f"{home}/.codex/sessions/2026/11/{n % 28 + 1:02}/rollout-2026-11-{n % 28 + 1:02}T09-00-00-{own}.jsonl"
    written(path, codex, size, n, own)


def _write_gemini(home: str, size: int, n: int) -> None:
    own = Talk(n).uuid()
    written(
        f"{home}/.gemini/tmp/shop/chats/session-2026-11-15T{n // 60 % 24:02}-{n % 60:02}-{own[:8]}.jsonl", gemini, size, n, own
    )


def _write_pi(home: str, size: int, n: int) -> None:
    own = Talk(n).uuid()
    written(f"{home}/.pi/agent/sessions/--home-dev-shop--/2026-11-15T09-00-00-000Z_{own}.jsonl", pi, size, n, own)


def _write_hermes_webui(home: str, size: int, n: int) -> None:
    own = Talk(n).hex(12)
    messages: list[Line] = []
    half = size // 2  # the document holds all of it twice
    for message in hermes_webui(Talk(n), own):
        messages.append(message)
        half -= len(orjson.dumps(message))
        if half <= 0:
            break
    known = {"session_id": own, "title": "Untitled", "workspace": CWD, "model": "hermes-4-70b", "message_count": len(messages)}
    document = {**known, "messages": messages, "tool_calls": [], "context_messages": messages}
    path = Path(f"{home}/.hermes/webui/sessions/{own}.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(orjson.dumps(document, option=orjson.OPT_INDENT_2))


def _write_opencode(home: str, size: int, n: int) -> None:
    """Rows in OpenCode's real schema, written as it writes them: every part is also an event."""
    from tests.agents.opencode import OpenCode, text, tool

    talk = Talk(n)
    store = OpenCode(Path(f"{home}/.local/share/opencode/opencode.db"))
    with store.db:
        store.now += n * 10_000_000  # ids are made of it
        session = store.session(f"ses_{talk.hex(20)}", talk.prompt()[:40])
        while size > 0:
            prompt = talk.prompt()
            asked = store.ask(session, prompt)
            for _ in talk.steps():
                words, output = talk.thought(), talk.output()
                reasoning = {"type": "reasoning", "text": words, "time": {"start": 1}}
                store.answer(session, asked, [reasoning, tool("bash", {"command": talk.command()}, output, 0)], "tool-calls")
                size -= 3 * (len(words) + len(output)) + 3_500
            answer = talk.answer()
            store.answer(session, asked, [text(answer)])
            size -= 3 * (len(prompt) + len(answer)) + 5_000
    store.close()


_SHARES = (
    Share("claude", 0.45, _write_claude),
    Share("codex", 0.25, _write_codex),
    Share("opencode", 0.12, _write_opencode),
    Share("gemini", 0.08, _write_gemini),
    Share("pi", 0.05, _write_pi),
    Share("hermes-webui", 0.05, _write_hermes_webui),
)
