# SPDX-License-Identifier: Apache-2.0
"""Credentials: by what a client knows a daemon, and shows it who it is. Secrets are in files alone."""

from __future__ import annotations

import os
import stat
import urllib.parse
from typing import NamedTuple

import grpc

from meshloom.messages import refuse

_VARIABLES = {"token": "MESHLOOM_TOKEN_FILE", "ca": "MESHLOOM_CA", "cert": "MESHLOOM_CERT", "key": "MESHLOOM_KEY"}
_NAMES = {"token": "token", "ca": "ca.pem", "cert": "cert.pem", "key": "key.pem"}
_OPTIONS = {"token": "token_file", "ca": "ca", "cert": "cert", "key": "key"}


class Files(NamedTuple):
    """Paths; None where there is none."""

    token: str | None = None
    ca: str | None = None
    cert: str | None = None
    key: str | None = None


class Credentials(NamedTuple):
    """What the files hold."""

    token: str = ""
    ca: bytes = b""
    cert: bytes = b""
    key: bytes = b""

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        return (("authorization", f"Bearer {self.token}"),) if self.token else ()

    def channel(self, address: str, options: list[tuple[str, int]]) -> grpc.Channel:
        if address.startswith("unix:"):  # a path of a URI to gRPC, which has no spaces and the like
            address = "unix:" + urllib.parse.quote(address[len("unix:"):])
        if not self.ca:
            return grpc.insecure_channel(address, options=options)
        secure = grpc.ssl_channel_credentials(self.ca, self.key or None, self.cert or None)
        return grpc.secure_channel(address, secure, options=options)


def find(asked: Files, address: str) -> Files:
    """For each file the first of these that there is: the one that was asked for, that of the environment, and the one
    of its name in CONFIG/meshloom/HOST:PORT, CONFIG being XDG_CONFIG_HOME or ~/.config; as the program `meshloom` has
    it. A Unix socket needs none of the last two."""
    if address.startswith("unix:"):
        return asked
    config = os.environ.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    folder = os.path.join(config, "meshloom", address)
    found = {}
    for kind in Files._fields:
        path = os.path.join(folder, _NAMES[kind])
        there = path if "/" not in address and os.path.exists(path) else None
        found[kind] = getattr(asked, kind) or os.environ.get(_VARIABLES[kind]) or there
    return Files(**found)


def read(files: Files, address: str) -> Credentials:
    """Refuses a file that cannot be read, a secret that others may read, a certificate without its key or without a CA,
    and a token that would go in the clear to another host."""
    if bool(files.cert) != bool(files.key):
        raise refuse("key" if files.cert else "cert", "is not given: a certificate and its key go together")
    if files.cert and not files.ca:
        raise refuse("ca", "is not given: a client with a certificate needs the CA of the daemon's")
    local = address.startswith(("unix:", "127.", "localhost:", "[::1]:"))
    if files.token and not files.ca and not local:
        raise refuse("ca", f"is not given: the token of {files.token} would go to {address} in the clear")
    return Credentials(_token(files.token), _content("ca", files.ca), _content("cert", files.cert),
                       _secret("key", files.key))


def _content(kind: str, path: str | None) -> bytes:
    if not path:
        return b""
    try:
        with open(path, "rb") as file:
            return file.read(1 << 20)
    except OSError as error:
        raise refuse(_OPTIONS[kind], f"{path}: {error.strerror}") from None


def _secret(kind: str, path: str | None) -> bytes:
    if path and os.path.isfile(path) and (mode := stat.S_IMODE(os.stat(path).st_mode)) & 0o077:
        raise refuse(_OPTIONS[kind], f"{path}: its mode is {mode:04o}, so that others may read it; chmod 600 it")
    return _content(kind, path)


def _token(path: str | None) -> str:
    text = _secret("token", path).decode("ascii", "replace").strip()
    if path and (not text or len(text) > 512 or not all("!" <= c <= "~" for c in text)):
        raise refuse("token_file", f"{path}: holds no token: one word on one line, as meshloom token create wrote it")
    return text
