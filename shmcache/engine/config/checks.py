"""Checks that a configuration can be carried out, before anything is started.

The API server would reject some of these values only minutes later, or would silently match
nothing; here each is an error that names the value and a valid spelling.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from shmcache.engine.config.keys import ConfigurationError, flag_name
from shmcache.engine.following import lease_settings
from shmcache.engine.names import PREFIX, plain
from shmcache.engine.open_etcd import check_etcd
from shmcache.engine.open_source import file_of, is_only
from shmcache.engine.plans import Plan, PlanError
from shmcache.errors import InvalidSelector, SourceError
from shmcache.memory.segments import check_name
from shmcache.protocol import builtins
from shmcache.protocol.selectors import fields
from shmcache.protocol.urls import server_url
from shmcache.reader.selectors import FieldSelector, LabelSelector
from shmcache.reasons import reason_of
from shmcache.recorder.shelf import MIN_BYTES, MIN_KEEP
from shmcache.settings import format_size
from shmcache.writer.indexing import resolve

if TYPE_CHECKING:
    from shmcache.engine.config import Configuration

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_RESOURCE = re.compile(r"[A-Za-z][-A-Za-z0-9]*(\.[A-Za-z0-9][-A-Za-z0-9]*)*\.?(/v\d\w*)?")


def check(configuration: Configuration) -> None:
    """ConfigurationError for the first value that cannot work."""
    _check_cache(configuration.name)
    _check_recordings(configuration)
    _check_recorder(configuration)
    check_namespaces("namespaces", configuration.default_namespaces)
    _check_contexts(configuration)
    _check_etcd(configuration)
    _check_servers(configuration)
    _check_lease(configuration)
    meant: dict[str, str] = {}
    for plan in configuration.plans:
        _check_plan(plan)
        known = _key_of(plan.name)
        if known in meant:
            raise ConfigurationError(
                f"{meant[known]} and {plan.name} are the same resource; configure it once"
            )
        meant[known] = plan.name


def _check_cache(name: str) -> None:
    if "/" not in name:
        try:
            check_name(name)
        except ValueError as error:
            raise ConfigurationError(f"--cache: {error}") from None
        return
    path = os.path.abspath(name)
    if os.path.exists(path) and not os.path.isdir(path):
        raise ConfigurationError(f"--cache {name}: {path} is not a directory")
    if not os.path.isdir(os.path.dirname(path)):
        raise ConfigurationError(
            f"--cache {name}: the directory {os.path.dirname(path)} does not exist; create it with "
            f"`mkdir -p {os.path.dirname(path)}`"
        )


def _check_recordings(configuration: Configuration) -> None:
    """Recordings that are read must exist; recordings that are written must be new."""
    plans = configuration.plans
    for plan in plans:
        for namespace in plan.namespaces or ("",):
            if configuration.replay:
                path = file_of(configuration.replay, plan, namespace, only=is_only(plans))
                if not os.path.isfile(path):
                    raise ConfigurationError(f"--replay: the recording {path} does not exist")
            if configuration.record:
                path = file_of(configuration.record, plan, namespace, only=is_only(plans))
                _check_new(path)


def _check_recorder(configuration: Configuration) -> None:
    """A flight recorder has bounds, and no Secrets, since files on disk stay."""
    if not configuration.recorder:
        return
    secret = next((plan.name for plan in configuration.plans if plan.is_secret), None)
    if secret is not None:
        raise ConfigurationError(
            f"{secret}: Secrets are never written to disk: --recorder needs a cache without them"
        )
    path = os.path.abspath(configuration.recorder)
    if os.path.exists(path) and not os.path.isdir(path):
        raise ConfigurationError(f"--recorder {configuration.recorder}: {path} is not a directory")
    if configuration.recorder_keep < MIN_KEEP:
        raise ConfigurationError(
            f"--recorder-keep must be at least {MIN_KEEP:g}s, not {configuration.recorder_keep:g}s"
        )
    if configuration.recorder_bytes < MIN_BYTES:
        raise ConfigurationError(
            f"--recorder-bytes must be at least {format_size(MIN_BYTES)}, not "
            f"{format_size(configuration.recorder_bytes)}"
        )


def _check_contexts(configuration: Configuration) -> None:
    """Each context has its own cache, and nothing that only one process can have."""
    contexts = configuration.contexts
    if not contexts:
        return
    if not all(contexts) or len(set(contexts)) != len(contexts):
        raise ConfigurationError(
            f"contexts must not be empty or repeated: {', '.join(map(repr, contexts))}"
        )
    for name in ("context", "server", "etcd", "replay", "record", "listen", "ui"):
        if getattr(configuration, name):
            raise ConfigurationError(
                f"{flag_name(name)} is for one cluster, and there are {len(contexts)} contexts: "
                "run a process of its own for that cluster"
            )


def _check_servers(configuration: Configuration) -> None:
    """Each server once; what belongs to them needs them; a recording has one."""
    servers = configuration.server
    if len(set(servers)) < len(servers):
        raise ConfigurationError(f"server must not repeat a URL: {', '.join(servers)}")
    for url in servers:
        if url.startswith(PREFIX) and server_url(plain(url)) is None:
            raise ConfigurationError(f"{url!r} has no URL after {PREFIX}, whose host is a name")
    if len(servers) > 1 and configuration.record:
        raise ConfigurationError("--record is for one server: name one of them with --server")
    for name in ("server_ca", "server_cert", "server_key", "server_token_file"):
        if getattr(configuration, name) and not servers:
            raise ConfigurationError(
                f"{flag_name(name)} needs the servers: name them with --server"
            )


def _check_lease(configuration: Configuration) -> None:
    """A Lease is for relays of one API server, each with an address of its own."""
    if not configuration.lease:
        if configuration.advertise:
            raise ConfigurationError("--advertise is for a holder: name the Lease with --lease")
        return
    for name in ("etcd", "replay", "record", "contexts"):
        if getattr(configuration, name):
            raise ConfigurationError(
                f"--lease is for relays of one API server, not {flag_name(name)}"
            )
    parts = server_url(configuration.advertise)
    if parts is None or "@" in parts.netloc:
        raise ConfigurationError(
            "--lease needs --advertise with the URL at which other machines follow this relay, "
            f"such as https://relays-0.relays:8443, not {configuration.advertise!r}"
        )
    if not configuration.lease_holders:
        raise ConfigurationError("lease_holders must be at least 1")
    try:
        lease_settings(configuration)
    except ValueError as error:
        raise ConfigurationError(f"--lease {configuration.lease}: {error}") from error


def _check_etcd(configuration: Configuration) -> None:
    """Keys and endpoints come together; what asks an API server does not come with them."""
    for plan in configuration.plans:
        if plan.keys and not configuration.etcd:
            raise ConfigurationError(f"{plan.name}: keys need etcd: name its endpoints with --etcd")
        if configuration.etcd and not plan.keys:
            raise ConfigurationError(
                f"{plan.name}: etcd is the source, so this resource needs the prefix of its keys, "
                f"as in `shmcache run --etcd {configuration.etcd} "
                f"'{plan.name}=/registry/example.com/{plan.name}/'`"
            )
    if not configuration.etcd:
        return
    for name in ("server", "kubeconfig", "context", "replay", "record", "default_namespaces"):
        if getattr(configuration, name):
            key = "namespaces" if name == "default_namespaces" else name
            raise ConfigurationError(f"{flag_name(key)} is for API servers, and etcd is the source")
    _check_prefixes(configuration.plans)


def _check_prefixes(plans: Iterable[Plan]) -> None:
    """An object belongs to one resource: no prefix may lie in another one."""
    from shmcache.source.etcd.keys import KeyPattern

    patterns: list[tuple[str, KeyPattern]] = []
    for plan in plans:
        check_etcd(plan)
        try:
            pattern = KeyPattern(plan.keys)
        except SourceError as error:
            raise ConfigurationError(f"{plan.name}: {error}") from None
        for name, other in patterns:
            if pattern.prefix.startswith(other.prefix) or other.prefix.startswith(pattern.prefix):
                raise ConfigurationError(
                    f"{name} and {plan.name} have keys in common: one prefix begins with the other"
                )
        patterns.append((plan.name, pattern))


def _check_new(path: str) -> None:
    folder = os.path.dirname(os.path.abspath(path))
    if os.path.lexists(path):
        raise ConfigurationError(f"--record: {path} exists already; choose a new file")
    if not os.path.isdir(folder):
        raise ConfigurationError(f"--record: the directory {folder} does not exist")
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        os.unlink(path)
    except OSError as error:
        raise ConfigurationError(f"--record: {path}: {reason_of(error)}") from None


def _check_plan(plan: Plan) -> None:
    if "," in plan.name:
        each = " ".join(filter(None, plan.name.split(",")))
        raise ConfigurationError(f"{plan.name!r}: name each resource by itself: {each}")
    if plan.name == "all":
        raise ConfigurationError(
            "'all' is a category: name each resource to cache, such as pods services deployments"
        )
    if not _RESOURCE.fullmatch(plan.name):
        raise ConfigurationError(
            f"{plan.name!r} is not a resource name; valid names are pods, deployments.apps or "
            "widgets.example.com/v1"
        )
    check_namespaces(f"{plan.name}: namespaces", plan.namespaces)
    try:
        LabelSelector.parse(plan.labels)
    except InvalidSelector as error:
        raise ConfigurationError(f"{plan.name}: invalid label selector: {error}") from None
    try:
        FieldSelector.parse(plan.fields)
    except InvalidSelector as error:
        reason = str(error).removeprefix("invalid field selector: ")
        raise ConfigurationError(f"{plan.name}: invalid field selector: {reason}") from None
    try:
        share = plan.share
    except InvalidSelector as error:
        raise ConfigurationError(
            f"{plan.name}: invalid shard: {error}; the second of four equal shards is 1/4"
        ) from None
    if share is not None and plan.keys:
        raise ConfigurationError(
            f"{plan.name}: a shard needs an API server, and etcd is the source"
        )
    for index, spec in plan.indices.items():
        if isinstance(spec, str) and ":" not in spec:
            _check_path(plan.name, index, spec)


def _check_path(resource: str, index: str, path: str) -> None:
    try:
        fields.steps_of(path)
    except InvalidSelector:
        raise ConfigurationError(
            f"{resource}: index {index}: {path!r} is not a path; valid paths are spec.nodeName, "
            "metadata.labels['app'] or spec.containers[*].image"
        ) from None


def check_namespaces(what: str, names: Iterable[str]) -> None:
    """ConfigurationError for a name that no namespace can have, or that occurs twice."""
    names = tuple(names)
    if len(set(names)) < len(names):
        raise ConfigurationError(f"{what} must not repeat a name: {', '.join(names)}")
    for name in names:
        if not _LABEL.fullmatch(name):
            raise ConfigurationError(
                f"{what}: {name!r} is not a namespace name; names have at most 63 lower-case "
                "letters, digits and '-'"
            )


def check_functions(plans: Iterable[Plan]) -> None:
    """PlanError if a transform or an index function cannot be imported."""
    for plan in plans:
        plan.load_transform()
        for index, spec in plan.indices.items():
            try:
                resolve(index, spec)
            except ImportError as error:
                raise PlanError(f"{plan.name}: index {index!r}: {error}") from error
            except (TypeError, ValueError) as error:
                raise PlanError(f"{plan.name}: {error}") from error


def _key_of(name: str) -> str:
    """One text for all names of a built-in resource; the name itself for others."""
    first, _, group = name.lower().partition("/")[0].partition(".")
    for kind in builtins.builtin():
        names = {kind.resource, kind.singular, *kind.short_names}
        if first in names and group.rstrip(".").removeprefix(kind.version).strip(".") in {
            "",
            kind.group,
        }:
            return kind.key
    return name.lower()
