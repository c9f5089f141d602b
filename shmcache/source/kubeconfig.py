"""The configuration of kubectl: files, contexts, and what a context comes down to.

The rules are kubectl's. Of several files (KUBECONFIG) the first one that defines a cluster, a user,
a context or the current context decides it; a path in a file is relative to that file; data go
before files, and a tokenFile, which may be rotated, before a token. Users with an old auth-provider
are left to the `kubernetes` package (legacy.py), which nothing else needs.
"""

from __future__ import annotations

import base64
import os
from dataclasses import dataclass, field
from typing import Any

from shmcache.errors import SourceError
from shmcache.protocol.urls import server_url
from shmcache.reasons import reason_at, reason_of
from shmcache.source.access import (
    Impersonation,
    ServerAccess,
    basic,
    environment_proxy,
    tls_context,
)
from shmcache.source.credentials import Credentials, bearer, run_plugin, tables, texts, usable

DEFAULT_PATH = "~/.kube/config"
SECTIONS = {"clusters": "cluster", "users": "user", "contexts": "context"}
"""Lists of a file, and under which key each entry has its content."""


def default_paths() -> str | None:
    """The files that kubectl reads without a flag: KUBECONFIG, or the file at home if it exists."""
    listed = os.environ.get("KUBECONFIG")
    if listed:
        return listed
    home = os.path.expanduser(DEFAULT_PATH)
    return home if os.path.exists(home) else None


def from_kubeconfig(paths: str, context: str | None = None) -> ServerAccess:
    """Of one context (the current one) of a file, or of a list of files as in KUBECONFIG."""
    try:
        return _access(_choose(_merge(paths), context), paths)
    except (SourceError, OSError) as error:
        text = reason_at(error).removeprefix(f"{paths}: ")  # one file: its name comes once
        raise SourceError(f"kubeconfig {paths}: {text}") from error


@dataclass(frozen=True, slots=True)
class Entry:
    """One cluster, user or context: its values, what to call it, and the folder of its file."""

    label: str
    folder: str
    values: dict[str, Any]

    def text(self, key: str) -> str:
        """A string; "" without one. SourceError for anything else."""
        found = self.values.get(key)
        if found is None or isinstance(found, str):
            return usable(f"{self.label}: {key}", found or "")
        raise SourceError(f"{self.label}: {key} must be a string")

    def flag(self, key: str) -> bool:
        """A boolean; false without one."""
        found = self.values.get(key)
        if found is None or isinstance(found, bool):
            return bool(found)
        raise SourceError(f"{self.label}: {key} must be true or false")

    def table(self, key: str) -> dict[str, Any]:
        """A table; an empty one without one."""
        found = self.values.get(key) or {}
        if isinstance(found, dict):
            return found
        raise SourceError(f"{self.label}: {key} must be a table")

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of strings; empty without one."""
        return texts(f"{self.label}: {key}", self.values.get(key))

    def tables(self, key: str) -> list[dict[str, Any]]:
        """A list of tables; empty without one."""
        return tables(f"{self.label}: {key}", self.values.get(key))

    def path(self, key: str) -> str:
        """A path, relative to the file of the entry; "" without one."""
        found = self.text(key)
        return found and os.path.normpath(os.path.join(self.folder, found))

    def material(self, key: str) -> bytes:
        """The bytes of KEY-data, or of the file KEY; empty without either."""
        data = self.text(f"{key}-data")
        if data:
            try:
                return base64.b64decode("".join(data.split()), validate=True)
            except ValueError as error:  # binascii.Error is one, other letters are another
                raise SourceError(f"{self.label}: {key}-data is not base64") from error
        path = self.path(key)
        if not path:
            return b""
        try:
            with open(path, "rb") as file:
                return file.read()
        except OSError as error:
            raise SourceError(f"{self.label}: {key}: {path}: {error.strerror}") from error


@dataclass(slots=True)
class Merged:
    """All files as one."""

    current: str = ""
    entries: dict[str, dict[str, Entry]] = field(
        default_factory=lambda: {section: {} for section in SECTIONS}
    )

    def find(self, section: str, name: str) -> Entry:
        """SourceError names what is missing."""
        found = self.entries[section].get(name)
        if found is None:
            known = ", ".join(sorted(self.entries[section])) or "no such entries"
            raise SourceError(f"no {SECTIONS[section]} {name!r}; the file has {known}")
        return found


@dataclass(frozen=True, slots=True)
class Chosen:
    """The parts that a context names."""

    context: str
    namespace: str
    cluster: Entry
    user: Entry


# ---- files -----------------------------------------------------------------------------------


def _merge(paths: str) -> Merged:
    merged, seen = Merged(), 0
    for path in paths.split(os.pathsep):
        file = os.path.expanduser(path)
        if path and os.path.exists(file):
            seen += 1
            _add(merged, file)
    if not seen:
        raise SourceError("the file does not exist")
    return merged


def _add(merged: Merged, path: str) -> None:
    found = _read(path)
    current = found.get("current-context")
    if not merged.current and isinstance(current, str):
        merged.current = current
    folder = os.path.dirname(os.path.abspath(path))
    for section, kind in SECTIONS.items():
        here: dict[str, Entry] = {}
        entries = found.get(section) or []
        if not isinstance(entries, list):
            raise SourceError(f"{path}: {section} must be a list of tables")
        for entry in entries:
            name = entry.get("name") if isinstance(entry, dict) else None
            if not isinstance(name, str):
                raise SourceError(f"{path}: an entry of {section} has no name")
            if name in here:
                raise SourceError(f"{path}: two {section} are named {name!r}")
            here[name] = Entry(f"{kind} {name}", folder, {})
            here[name].values.update(Entry(f"{kind} {name}", folder, entry).table(kind))
        merged.entries[section] = here | merged.entries[section]


def _read(path: str) -> dict[str, Any]:
    try:
        import yaml
    except ImportError as error:
        raise SourceError(
            "PyYAML is not installed: pip install 'shmcache[kubernetes]' (a server given by its "
            "URL, or a pod's own, needs no such file)"
        ) from error
    with open(path, "rb") as file:
        text = file.read()
    try:
        found = yaml.safe_load(text)
    except Exception as error:  # PyYAML raises its own, and whatever its constructors meet
        raise SourceError(f"{path}: {_yaml_reason(error)}") from error
    if found is None:
        raise SourceError(f"{path}: the file is empty")
    if not isinstance(found, dict):
        raise SourceError(f"{path}: this is not a kubeconfig, which is a table")
    return found


def _yaml_reason(error: Exception) -> str:
    """One line, with the number of the line."""
    problem, mark = getattr(error, "problem", None), getattr(error, "problem_mark", None)
    where = "" if mark is None else f" (line {mark.line + 1})"
    if isinstance(error, RecursionError):
        problem = "it is nested too deeply"
    return f"not valid YAML{where}: {problem or reason_of(error).splitlines()[0]}"


# ---- contexts --------------------------------------------------------------------------------


def _choose(merged: Merged, name: str | None) -> Chosen:
    chosen = name or merged.current
    if not chosen:
        raise SourceError("no current-context; name the context to use")
    context = merged.find("contexts", chosen)
    user = context.text("user")
    return Chosen(
        chosen,
        context.text("namespace") or "default",
        merged.find("clusters", context.text("cluster")),
        merged.find("users", user) if user else Entry("no user", "", {}),
    )


def _access(chosen: Chosen, paths: str) -> ServerAccess:
    cluster, user = chosen.cluster, chosen.user
    url = cluster.text("server").rstrip("/")
    parts = server_url(url)
    if parts is None:
        raise SourceError(f"{cluster.label}: server must be http(s)://host[:port], not {url!r}")
    token_file = user.path("tokenFile")
    credentials = _credentials(chosen, paths, has_token_file=bool(token_file))
    tls, material = None, b""
    if parts.scheme == "https":
        tls, material = tls_context(
            ca=cluster.material("certificate-authority"),
            cert=credentials.cert,
            key=credentials.key,
            insecure=cluster.flag("insecure-skip-tls-verify"),
            label=f"{cluster.label}, {user.label}",
        )
    return ServerAccess(
        url=url,
        namespace=chosen.namespace,
        authorization=credentials.authorization,
        token_file=token_file or None,
        impersonation=_impersonation(user),
        tls=tls,
        tls_material=material,
        server_name=cluster.text("tls-server-name") or None,
        proxy=cluster.text("proxy-url") or environment_proxy(url),
        compress=not cluster.flag("disable-compression"),
        expires=credentials.expires,
    )


def _credentials(chosen: Chosen, paths: str, *, has_token_file: bool) -> Credentials:
    """By the first of the ways that the user has: auth-provider, token, plugin, password."""
    user = chosen.user
    cert, key = user.material("client-certificate"), user.material("client-key")
    token, name = user.text("token"), user.text("username")
    if user.table("auth-provider"):
        from shmcache.source.legacy import by_auth_provider

        authorization, expires = by_auth_provider(paths, chosen.context)
        return Credentials(authorization, cert, key, expires)
    if has_token_file or token:
        return Credentials(bearer(user.label, token) if token else None, cert, key)
    if user.table("exec"):
        given = run_plugin(user.label, user.table("exec"), user.folder, _exec_info(chosen.cluster))
        return given if given.cert else Credentials(given.authorization, cert, key, given.expires)
    if name:
        return Credentials(basic(name, user.text("password")), cert, key)
    return Credentials(None, cert, key)


def _exec_info(cluster: Entry) -> dict[str, Any]:
    """The cluster as a plugin with provideClusterInfo sees it."""
    kept = ("server", "tls-server-name", "insecure-skip-tls-verify", "proxy-url")
    found = {name: cluster.values[name] for name in kept if name in cluster.values}
    authority = cluster.material("certificate-authority")
    if authority:
        found["certificate-authority-data"] = base64.b64encode(authority).decode()
    for extension in cluster.tables("extensions"):
        if extension.get("name") == "client.authentication.k8s.io/exec":
            found["config"] = extension.get("extension")
    return found


def _impersonation(user: Entry) -> Impersonation:
    return Impersonation(
        user=user.text("as"),
        groups=user.texts("as-groups"),
        uid=user.text("as-uid"),
        extra={
            name: texts(f"{user.label}: as-user-extra: {name}", values)
            for name, values in user.table("as-user-extra").items()
        },
    )
