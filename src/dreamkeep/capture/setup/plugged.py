"""Whether an agent has our plugin (plugins/ of the repository), which does what `init` does: both would keep everything twice.

claude   settings.json   enabledPlugins."dreamkeep@MARKETPLACE": true
codex    config.toml     [plugins."dreamkeep@MARKETPLACE"], unless `enabled = false`
gemini, qwen             a folder extensions/dreamkeep beside their settings
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from dreamkeep.capture.setup import jsonedit, tomledit, wanted
from dreamkeep.capture.setup.text import Unreadable, bytes_at, text_of
from dreamkeep.host import Host

_NAME = "dreamkeep"


def plugged(host: Host, agent: str, home: str, environment: Mapping[str, str]) -> bool:
    """What can't be read tells nothing: whoever edits that file says what is wrong with it."""
    where = wanted.place(agent, home, environment)
    try:
        if agent == "claude":
            return any(on is True for on in _ours(jsonedit.members_of(bytes_at(host, where.hooks)).get("enabledPlugins")))
        if agent == "codex":
            plugins = tomledit.lookup(tomledit.read(text_of(bytes_at(host, where.server[0]) or b"").body), ("plugins",))
            return any(not isinstance(one, dict) or one.get("enabled") is not False for one in _ours(plugins))
        if agent in ("gemini", "qwen"):
            return host.stat(f"{os.path.dirname(where.hooks)}/extensions/{_NAME}") is not None
    except (OSError, Unreadable):
        return False
    return False


def _ours(plugins: Any) -> list[Any]:
    found = plugins.items() if isinstance(plugins, dict) else ()
    return [value for name, value in found if isinstance(name, str) and name.partition("@")[0] == _NAME]
