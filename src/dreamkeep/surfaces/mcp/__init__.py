"""The MCP server: recall for agents, over stdin and stdout or over HTTP.

    stdio.py, streamable.py ─► protocol.py ─► lanes.py ─► calls.py ─► one verb of Keep
           transports          messages         threads    tools.py: names, schemas and descriptions; arguments.py: checks

The protocol is written here instead of using the SDK: clients drop the tools of a server that answers late, and importing the SDK
alone takes longer than they wait. The SDK's own client tests it (tests/surfaces/test_mcp_sdk.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from argparse import Namespace

    from dreamkeep.keep import Keep


def run(arguments: Namespace) -> int:
    from dreamkeep.surfaces.mcp.calls import Tools

    def open_keep() -> Keep:
        from dreamkeep.keep import Keep

        return Keep.open(arguments.keep)

    tools = Tools(open_keep)
    if not arguments.http:
        from dreamkeep.surfaces.mcp import stdio

        return stdio.run(tools)
    from dreamkeep.surfaces.mcp import streamable

    return streamable.run(tools, arguments)
