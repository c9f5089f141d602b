"""The configuration of one reflector process: of a file, the environment and flags, in that order.

What a later one gives replaces what an earlier one gave; resources named by flags come on top of
those of the file. Unknown keys are errors that name the nearest right one.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from shmcache.engine import keys
from shmcache.engine.keys import ConfigurationError
from shmcache.engine.plans import Plan
from shmcache.engine.timing import Timing
from shmcache.settings import WriterSettings

PREFIX = "SHMCACHE_"
OURS = frozenset({"SHMCACHE_CONFIG", "SHMCACHE_TRACES"})
"""Names in the environment that are no keys: the file's own, and what tests and benchmarks use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """All that one process is told: checked, frozen, with defaults filled in."""

    plans: tuple[Plan, ...]
    memory: WriterSettings = field(default_factory=WriterSettings)
    timing: Timing = field(default_factory=Timing)
    name: str = "shmcache"
    server: str = ""
    kubeconfig: str = ""
    context: str = ""
    allow_secrets: bool = False
    requests_per_second: int = 20
    log_format: str = "text"
    log_level: str = "info"
    metrics: str = ""
    replay: str = ""
    record: str = ""
    keep: bool = True
    standby: bool = True
    default_namespaces: tuple[str, ...] = ()
    """For resources that have namespaces; what a plan says itself goes first."""

    @property
    def keeps(self) -> bool:
        """Whether the memory stays when the process ends in order. Secrets never do."""
        return self.keep and not any(plan.is_secret for plan in self.plans)

    def __post_init__(self) -> None:
        if not self.plans:
            raise ConfigurationError(
                "nothing is to be cached: name resources (shmcache run pods deployments.apps), or "
                "a file with [resources.pods]"
            )
        if not self.requests_per_second:
            raise ConfigurationError("requests_per_second must be at least 1")
        refuse_secrets(self)


def refuse_secrets(configuration: Configuration) -> None:
    """ConfigurationError if Secrets are wanted, and either not allowed or not kept to ourselves."""
    secret = next((plan.name for plan in configuration.plans if plan.is_secret), None)
    if secret is None:
        return
    if not configuration.allow_secrets:
        raise ConfigurationError(
            f"{secret}: Secrets are not cached unless allow_secrets = true (--allow-secrets) says "
            "that every process of this user may read them"
        )
    if configuration.memory.mode != 0o600:
        raise ConfigurationError(
            f"{secret}: with Secrets in it the memory's mode must be 0600, not "
            f"{configuration.memory.mode:#o}"
        )


def load(
    path: str | None, flags: Mapping[str, Any], environment: Mapping[str, str]
) -> Configuration:
    """The whole configuration. `flags`: top-level keys, and "memory", "resources" as in a file."""
    given = _file(path) if path else {}
    where = path or "flags"
    top = {name: value for name, value in given.items() if name not in keys.SECTIONS}
    sections = {name: _section(given, name, where) for name in keys.SECTIONS}
    cache = keys.read(keys.CACHE, top, where, also=keys.SECTIONS)
    memory = keys.read(keys.MEMORY, sections["memory"], f"{where}: [memory]")
    cache |= _environment(environment, keys.CACHE) | keys.read(keys.CACHE, _top(flags), "flags")
    memory |= _environment(environment, keys.MEMORY)
    memory |= keys.read(keys.MEMORY, flags.get("memory", {}), "flags")
    timing = keys.read(keys.REFLECTOR, sections["reflector"], f"{where}: [reflector]")
    timing |= _environment(environment, keys.REFLECTOR)
    resources = {
        name: _table(table, f"{where}: [resources.{name}]")
        for name, table in sections["resources"].items()
    }
    for name, table in flags.get("resources", {}).items():
        resources[name] = resources.get(name, {}) | dict(table)
    return _build(cache, memory, timing, resources, where)


def _build(
    cache: dict[str, Any],
    memory: dict[str, Any],
    timing: dict[str, Any],
    resources: Mapping[str, Any],
    where: str,
) -> Configuration:
    namespaces = cache.pop("namespaces", ())
    max_age = cache.pop("max_age", None)
    try:
        plans = []
        for name, table in resources.items():
            found = keys.read(keys.RESOURCE, table, f"{where}: [resources.{name}]")
            if max_age is not None:
                found.setdefault("max_age", max_age)
            plans.append(Plan(name=name, **found))
        settings, times = WriterSettings(**memory), Timing(**timing)
    except (TypeError, ValueError) as error:
        raise ConfigurationError(str(error)) from error
    return Configuration(
        plans=tuple(plans), memory=settings, timing=times, default_namespaces=namespaces, **cache
    )


def _file(path: str) -> dict[str, Any]:
    try:
        with open(path, "rb") as file:
            return tomllib.load(file)
    except OSError as error:
        raise ConfigurationError(f"{path}: {error.strerror}") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"{path}: {error}") from error


def _section(given: Mapping[str, Any], name: str, where: str) -> dict[str, Any]:
    return _table(given.get(name, {}), f"{where}: {name}")


def _table(value: object, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ConfigurationError(f"{where} must be a table")
    return value


def _top(flags: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in flags.items() if name not in keys.SECTIONS}


def _environment(environment: Mapping[str, str], table: Iterable[keys.Key]) -> dict[str, Any]:
    """What SHMCACHE_... sets of this table; other variables are none of our business."""
    found = {
        key.name: environment[variable]
        for key in table
        if (variable := environment_name(key.name)) in environment
    }
    return keys.read(table, found, "environment")


def strangers(environment: Mapping[str, str]) -> list[str]:
    """Variables that look as if they were meant for us, and are not: misspelt ones, perhaps.

    They are no errors: for a Service named shmcache, Kubernetes sets SHMCACHE_PORT and others.
    """
    ours = (*keys.CACHE, *keys.MEMORY, *keys.REFLECTOR)
    known = {environment_name(key.name) for key in ours} | OURS
    return sorted(name for name in environment if name.startswith(PREFIX) and name not in known)


def environment_name(key: str) -> str:
    """The variable that sets this key."""
    return PREFIX + key.upper()


def of_process(path: str | None, flags: Mapping[str, Any]) -> Configuration:
    """load() with this process's environment, which may name the file too (SHMCACHE_CONFIG)."""
    return load(path or os.environ.get("SHMCACHE_CONFIG"), flags, os.environ)
