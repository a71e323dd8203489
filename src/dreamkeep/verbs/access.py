"""The token that every client over HTTP must send.

It is DREAMKEEP_TOKEN, or else the content of `state/http.token`, which is made at the first start: 256 random bits, readable by
the owner of the keep only. Every user of a machine can reach its loopback address, so there is no server without a token.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import NamedTuple

from dreamkeep.errors import BadConfig, Failed, cannot_read, from_os
from dreamkeep.host import Host, make_folders, publish_file, read_file

NAME = "state/http.token"
_SHORTEST = 16
_REMOVE = "Remove the file and start the server again: it makes a new token."


class AccessToken(NamedTuple):
    #: What a client sends. Never printed or logged.
    secret: str
    #: Where a person finds it: a path, or "" when it comes from DREAMKEEP_TOKEN.
    file: str


def access_token(host: Host, root: str, environment: Mapping[str, str]) -> AccessToken:
    """The token of this keep; made if there is none yet."""
    if given := environment.get("DREAMKEEP_TOKEN", ""):
        if not is_usable(given):
            raise BadConfig(
                f"the token must have at least {_SHORTEST} characters: ASCII, without spaces",
                where="DREAMKEEP_TOKEN",
                next="Set it to the output of `openssl rand -hex 32`, or unset it: then a token is made and stored in the keep.",
            )
        return AccessToken(given, "")
    path = f"{root}/{NAME}"
    _make_token(host, path)
    return AccessToken(_read_token(host, path), path)


def is_usable(token: str) -> bool:
    """Whether it is long enough, and can be sent in a header as it is."""
    return len(token) >= _SHORTEST and all("!" <= character <= "~" for character in token)


def _make_token(host: Host, path: str) -> None:
    """Does nothing if there is one. Of two servers that start at once, one makes it and both use it."""
    try:
        if host.stat(path) is not None:
            return
        make_folders(host, path.rpartition("/")[0])
        publish_file(host, path, f"{secrets.token_urlsafe(32)}\n".encode())
    except OSError as problem:
        raise from_os(problem, "writing the token for HTTP clients", path) from problem


def _read_token(host: Host, path: str) -> str:
    try:
        found = host.stat(path)
        if found and found.mode & 0o077:
            raise Failed("other users may have read the token", where=path, next=_REMOVE)
        token = read_file(host, path).decode("ascii", "replace").strip()
    except OSError as problem:
        raise cannot_read(problem, path) from problem
    if not is_usable(token):
        raise Failed("the file holds no usable token", where=path, next=_REMOVE)
    return token
