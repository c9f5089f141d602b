"""Credential plugins: the program that a kubeconfig names for its user (client-go's exec, v1).

It receives an ExecCredential in KUBERNETES_EXEC_INFO and prints one with a token, or with a
certificate and its key, and when they expire. On a terminal it may ask questions, unless the
kubeconfig forbids it; elsewhere it has PLUGIN_SECONDS.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any

from shmcache.errors import SourceError
from shmcache.protocol.jsontext import decoded

GROUP = "client.authentication.k8s.io/"
PLUGIN_SECONDS = 60.0
"""A plugin without a terminal that is not done by then is ended."""
_HEADER = re.compile("[!-~]+")
_UNUSABLE = re.compile("[\0\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Credentials:
    """The proof of a user's identity: a header, a certificate with its key, or both."""

    authorization: str | None = field(default=None, repr=False)
    cert: bytes = b""
    key: bytes = field(default=b"", repr=False)
    expires: float | None = None
    """Wall clock; None: never."""


def bearer(label: str, token: str) -> str:
    """The Authorization header of a token. SourceError, which does not show it, if none can be.

    HTTP libraries refuse a header with a line break as well, but quote it, and errors are logged.
    """
    if not _HEADER.fullmatch(token):
        raise SourceError(
            f"{label}: the token has blanks, or other characters than printable ASCII"
        )
    return f"Bearer {token}"


def usable(label: str, text: str) -> str:
    """A string of a kubeconfig. SourceError, which does not show it, if the system takes no such.

    YAML can write both: a zero byte ends every string of the system, and half of a surrogate pair
    has no bytes at all.
    """
    if _UNUSABLE.search(text):
        raise SourceError(f"{label} has a character that no text of the system can have")
    return text


def texts(label: str, found: object) -> tuple[str, ...]:
    """A list of strings in a kubeconfig; empty without one. SourceError for anything else."""
    if found is None:
        return ()
    if isinstance(found, list) and all(isinstance(each, str) for each in found):
        return tuple(usable(label, each) for each in found)
    raise SourceError(f"{label} must be a list of strings")


def tables(label: str, found: object) -> list[dict[str, Any]]:
    """A list of tables in a kubeconfig; empty without one. SourceError for anything else."""
    if found is None:
        return []
    if isinstance(found, list) and all(isinstance(each, dict) for each in found):
        return found
    raise SourceError(f"{label} must be a list of tables")


def run_plugin(
    label: str, wanted: dict[str, Any], folder: str, cluster: dict[str, Any]
) -> Credentials:
    """Runs the plugin of the user `label`. SourceError says why it brought nothing."""
    version, command = wanted.get("apiVersion"), wanted.get("command")
    if not isinstance(version, str) or not version.startswith(GROUP):
        raise SourceError(f"{label}: exec: apiVersion must be {GROUP}v1, not {version!r}")
    if not isinstance(command, str) or not command:
        raise SourceError(f"{label}: exec: command is missing")
    usable(f"{label}: exec: command", command)
    if "/" in command:
        command = os.path.join(folder, command)
    interactive = _is_interactive(label, wanted)
    spec: dict[str, Any] = {"interactive": interactive}
    if wanted.get("provideClusterInfo"):
        spec["cluster"] = cluster
    info = {"apiVersion": version, "kind": "ExecCredential", "spec": spec}
    environment = {**os.environ, **_variables(f"{label}: exec: env", wanted.get("env"))}
    environment["KUBERNETES_EXEC_INFO"] = _as_json(f"{label}: exec: the cluster", info)
    arguments = [command, *texts(f"{label}: exec: args", wanted.get("args"))]
    text = _output(label, arguments, environment, wanted, interactive=interactive)
    return _credentials(label, text, version)


def _variables(label: str, found: object) -> dict[str, str]:
    added = {}
    for each in tables(label, found):
        name = usable(label, str(each.get("name", "")))
        if not name or "=" in name:
            raise SourceError(f"{label}: {name!r} is not the name of a variable")
        added[name] = usable(f"{label}: {name}", str(each.get("value", "")))
    return added


def _as_json(label: str, info: dict[str, Any]) -> str:
    """For the plugin. YAML has dates, which JSON has as text; and what JSON has not."""

    def text(value: object) -> str:
        if isinstance(value, date):
            return value.isoformat()
        raise TypeError

    try:
        return json.dumps(info, default=text)
    except (TypeError, ValueError, RecursionError) as error:
        raise SourceError(f"{label} has a value that JSON cannot write") from error


def _is_interactive(label: str, wanted: dict[str, Any]) -> bool:
    """Whether the plugin may use our terminal."""
    mode = wanted.get("interactiveMode") or "IfAvailable"
    terminal = sys.stdin is not None and sys.stdin.isatty()
    if mode == "Always" and not terminal:
        raise SourceError(f"{label}: exec: {wanted['command']} needs a terminal to ask questions")
    return terminal and mode != "Never"


def _output(
    label: str,
    arguments: list[str],
    environment: dict[str, str],
    wanted: dict[str, Any],
    *,
    interactive: bool,
) -> str:
    try:
        done = subprocess.run(
            arguments,
            env=environment,
            stdin=None if interactive else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=None if interactive else subprocess.PIPE,
            timeout=None if interactive else PLUGIN_SECONDS,
            encoding="utf-8",
            errors="replace",
            check=False,
        )
    except OSError as error:
        hint = wanted.get("installHint")
        why = f"{arguments[0]}: {error.strerror}" + (f"\n{hint}" if hint else "")
        raise SourceError(f"{label}: exec: {why}") from error
    except subprocess.TimeoutExpired as error:
        message = f"{arguments[0]} has not ended within {PLUGIN_SECONDS:g} s"
        raise SourceError(f"{label}: exec: {message}") from error
    if done.returncode:
        message = (done.stderr or "").strip()
        raise SourceError(
            f"{label}: exec: {arguments[0]} ended with status {done.returncode}"
            + (f": {message}" if message else "")
        )
    return done.stdout


def _parsed(text: str) -> tuple[dict[str, Any], float | None] | None:
    """An ExecCredential, and when it expires; None for anything else.

    Not an exception: that of the JSON holds the whole output, and with it the secrets.
    """
    try:
        found = decoded(text)
        expiry = found["status"].get("expirationTimestamp")
        expires = None if expiry is None else datetime.fromisoformat(expiry.upper()).timestamp()
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
    return found, expires


def _credentials(label: str, text: str, version: str) -> Credentials:
    parsed = _parsed(text)
    if parsed is None:
        raise SourceError(f"{label}: exec: the output is not an ExecCredential")
    found, expires = parsed
    kind, theirs = found.get("kind"), found.get("apiVersion")
    if (kind, theirs) != ("ExecCredential", version):
        raise SourceError(f"{label}: exec: expected an ExecCredential of {version}, not {theirs}")
    names = ("token", "clientCertificateData", "clientKeyData")
    given = {name: found["status"].get(name) or "" for name in names}
    for name, value in given.items():
        if not isinstance(value, str):
            raise SourceError(f"{label}: exec: {name} must be a string")
    token, cert, key = given.values()
    if bool(cert) != bool(key):
        raise SourceError(f"{label}: exec: a certificate and its key must come together")
    if not token and not cert:
        raise SourceError(f"{label}: exec: neither a token nor a certificate in the output")
    authorization = bearer(f"{label}: exec", token) if token else None
    return Credentials(authorization, cert.encode(), key.encode(), expires)
