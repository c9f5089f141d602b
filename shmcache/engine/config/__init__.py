"""The configuration of one reflector process, read from a file, the environment and flags.

The environment replaces values of the file, and flags replace both; resources of the flags are
added to those of the file. An unknown key is an error that names the closest known one.
"""

from __future__ import annotations

import difflib
import logging
import os
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from shmcache.engine.config import checks, keys
from shmcache.engine.config.keys import ConfigurationError
from shmcache.engine.config.timing import Timing
from shmcache.engine.plans import Plan
from shmcache.recorder.shelf import BYTES, KEEP
from shmcache.settings import WriterSettings

logger = logging.getLogger(__name__)

PREFIX = "SHMCACHE_"
_SERVICE = re.compile(r"_PORT(_|$)|_SERVICE_(HOST|PORT)(_|$)")
OURS = frozenset({"SHMCACHE_CONFIG", "SHMCACHE_TRACES"})
"""Variables that are not keys: the path of the file, and a variable of tests and benchmarks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """The checked, frozen configuration of one process, with defaults filled in."""

    plans: tuple[Plan, ...]
    memory: WriterSettings = field(default_factory=WriterSettings)
    timing: Timing = field(default_factory=Timing)
    name: str = "shmcache"
    server: tuple[str, ...] = ()
    server_ca: str = ""
    server_cert: str = ""
    server_key: str = ""
    server_token_file: str = ""
    lease: str = ""
    lease_holders: int = 1
    lease_duration: float = 15.0
    advertise: str = ""
    kubeconfig: str = ""
    context: str = ""
    contexts: tuple[str, ...] = ()
    allow_secrets: bool = False
    requests_per_second: int = 20
    log_format: str = "text"
    log_level: str = "info"
    listen: str = ""
    etcd: str = ""
    etcd_ca: str = ""
    etcd_cert: str = ""
    etcd_key: str = ""
    etcd_user: str = ""
    etcd_password: str = field(default="", repr=False)
    etcd_password_file: str = ""
    etcd_together: bool = False
    recorder: str = ""
    recorder_keep: float = KEEP
    recorder_bytes: int = BYTES
    replay: str = ""
    record: str = ""
    keep: bool = True
    standby: bool = True
    ui: str = ""
    """Where to serve the page; not at all if empty."""
    default_namespaces: tuple[str, ...] = ()
    """For namespaced resources whose plan lists no namespaces."""

    @property
    def keeps(self) -> bool:
        """Whether the memory stays when the process ends in order. Secrets never stay."""
        return self.keep and not any(plan.is_secret for plan in self.plans)

    def __post_init__(self) -> None:
        if not self.plans:
            raise ConfigurationError(
                "no resources to cache: name some (`shmcache run pods deployments.apps`), or give "
                "a configuration file with a table such as [resources.pods]"
            )
        if not self.requests_per_second:
            raise ConfigurationError("requests_per_second must be at least 1")
        checks.check(self)
        refuse_secrets(self)


def refuse_secrets(configuration: Configuration) -> None:
    """ConfigurationError if Secrets are configured but not allowed, or readable by other users."""
    secret = next((plan.name for plan in configuration.plans if plan.is_secret), None)
    if secret is None:
        return
    if not configuration.allow_secrets:
        raise ConfigurationError(
            f"{secret}: Secrets are cached only with allow_secrets = true (--allow-secrets): every "
            "process of this user can then read them"
        )
    if configuration.memory.mode != 0o600:
        raise ConfigurationError(
            f"{secret}: a cache with Secrets must have mode 0600, not "
            f"{configuration.memory.mode:04o}"
        )


def load(
    path: str | None, flags: Mapping[str, Any], environment: Mapping[str, str]
) -> Configuration:
    """The whole configuration.

    `flags` has the keys of the top level, the tables "memory" and "resources" as in a file, and
    "indices": resource -> name -> path, for resources that are configured in either place.
    """
    given = _file(path) if path else {}
    where = path or ""
    top = {name: value for name, value in given.items() if name not in keys.SECTIONS}
    sections = {name: _section(given, name, where) for name in keys.SECTIONS}
    cache = keys.read(keys.CACHE, top, where, also=keys.SECTIONS)
    memory = keys.read(keys.MEMORY, sections["memory"], f"{where}: [memory]")
    cache |= _environment(environment, keys.CACHE)
    cache |= keys.read(keys.CACHE, _top(flags), "", shown=keys.flag_name)
    memory |= _environment(environment, keys.MEMORY)
    memory |= keys.read(keys.MEMORY, flags.get("memory", {}), "", shown=keys.flag_name)
    timing = keys.read(keys.REFLECTOR, sections["reflector"], f"{where}: [reflector]")
    timing |= _environment(environment, keys.REFLECTOR)
    resources = {
        name: _table(table, f"{where}: [resources.{name}]")
        for name, table in sections["resources"].items()
    }
    for name, table in flags.get("resources", {}).items():
        resources[name] = resources.get(name, {}) | dict(table)
    _add_indices(resources, flags.get("indices", {}))
    return _build(cache, memory, timing, resources, where)


def _add_indices(resources: dict[str, Any], indices: Mapping[str, Mapping[str, str]]) -> None:
    """Adds the indices of --index to their resources."""
    for name, paths in indices.items():
        if name not in resources:
            raise ConfigurationError(
                f"--index {name}:{next(iter(paths))}=…: {name} is not cached by this command; add "
                f"it: `shmcache run {' '.join([*resources, name])}`"
            )
        before = resources[name].get("indices", {})
        resources[name] = resources[name] | {"indices": {**before, **paths}}


def _build(
    cache: dict[str, Any],
    memory: dict[str, Any],
    timing: dict[str, Any],
    resources: Mapping[str, Any],
    where: str,
) -> Configuration:
    namespaces = cache.pop("namespaces", ())
    max_age = cache.pop("max_age", None)
    plans = []
    for name, table in resources.items():
        if where:
            found = keys.read(keys.RESOURCE, table, f"{where}: [resources.{name}]")
        else:
            found = keys.read(keys.RESOURCE, table, name, shown=keys.flag_name)
        if max_age is not None:
            found.setdefault("max_age", max_age)
        plans.append(_plan(name, found))
    try:
        settings, times = WriterSettings(**memory), Timing(**timing)
    except (TypeError, ValueError) as error:
        raise ConfigurationError(str(error)) from error
    return Configuration(
        plans=tuple(plans), memory=settings, timing=times, default_namespaces=namespaces, **cache
    )


def _plan(name: str, found: dict[str, Any]) -> Plan:
    try:
        return Plan(name=name, **found)
    except (TypeError, ValueError) as error:
        text = str(error)
        raise ConfigurationError(text if text.startswith(name) else f"{name}: {text}") from error


def _file(path: str) -> dict[str, Any]:
    try:
        with open(path, "rb") as file:
            return tomllib.load(file)
    except OSError as error:
        raise ConfigurationError(
            f"configuration file {path} cannot be read: {error.strerror}"
        ) from error
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(
            f"configuration file {path} is not valid TOML: {_toml_reason(error)}"
        ) from error


def _toml_reason(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    return "it is not UTF-8 text" if isinstance(error, UnicodeDecodeError) else str(error)


def _section(given: Mapping[str, Any], name: str, where: str) -> dict[str, Any]:
    return _table(given.get(name, {}), f"{where}: {name}")


def _table(value: object, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ConfigurationError(f"{where} must be a table")
    return value


def _top(flags: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in flags.items() if name not in (*keys.SECTIONS, "indices")}


def _environment(environment: Mapping[str, str], table: Iterable[keys.Key]) -> dict[str, Any]:
    """The values of this table's SHMCACHE_... variables; all other variables are ignored."""
    names = {key.name for key in table}
    names |= {old for old, now in keys.RENAMED.items() if now in names}
    found = {}
    for name in sorted(names, key=lambda name: name not in keys.RENAMED):  # new names win
        variable = environment_name(name)
        if variable in environment:
            found[name] = environment[variable]
    return keys.read(table, found, "environment", shown=environment_name)


def misspelt(environment: Mapping[str, str]) -> list[tuple[str, str]]:
    """Variables that are probably misspelt keys, and the variable that was meant.

    An unknown variable alone proves nothing: for a Service named shmcache, Kubernetes sets
    SHMCACHE_PORT and others.
    """
    ours = (*keys.CACHE, *keys.MEMORY, *keys.REFLECTOR)
    known = {environment_name(key.name) for key in ours}
    known |= {environment_name(old) for old in keys.RENAMED} | OURS
    found = []
    for name in sorted(environment):
        if name.startswith(PREFIX) and name not in known and not _SERVICE.search(name):
            near = difflib.get_close_matches(name, known, 1, 0.85)
            found += [(name, near[0])] if near else []
    return found


def environment_name(key: str) -> str:
    """The environment variable of a key."""
    return PREFIX + key.upper()


def of_process(path: str | None, flags: Mapping[str, Any]) -> Configuration:
    """load() with the environment of this process, where SHMCACHE_CONFIG may name the file."""
    for variable, meant in misspelt(os.environ):
        logger.warning("environment: %s is not a setting; did you mean %s?", variable, meant)
    return load(path or os.environ.get("SHMCACHE_CONFIG"), flags, os.environ)
