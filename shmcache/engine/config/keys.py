"""Every key of a configuration in one table: its name, type, default and meaning.

The file and the environment are read with this table, and a test compares docs/configuration.md
with it. A flag of `shmcache run` for a key, and the field of Configuration or Plan that takes its
value, are written by hand.
"""

from __future__ import annotations

import difflib
import json
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from shmcache.engine.config import value_types as kinds

logger = logging.getLogger(__name__)


class ConfigurationError(ValueError):
    """An invalid configuration. The text names the key and a valid value."""


@dataclass(frozen=True, slots=True)
class Key:
    """One key. `shown` and `default` are its type and default in the documentation."""

    name: str
    read: kinds.Read
    shown: str
    default: str
    meaning: str


KUBE = "kube"
"""Stands for the server of the kubeconfig among several servers."""

CACHE = (
    Key("name", kinds.text, "string", "shmcache", "name of the cache in shared memory, or a "
        "directory if it contains a /"),
    Key("server", kinds.texts, "list of strings", "from the kubeconfig", "URLs of an API server "
        "and of relays, in the order of preference; `kube` is the server of the kubeconfig, and "
        "`dns+` before a URL means all addresses of its host"),
    Key("server_ca", kinds.text, "string", "the system's", "certificates to check those servers "
        "with"),
    Key("server_cert", kinds.text, "string", "none", "client certificate for those servers"),
    Key("server_key", kinds.text, "string", "none", "key of that certificate"),
    Key("server_token_file", kinds.text, "string", "none", "file with the token for those servers; "
        "it is read at each request"),
    Key("lease", kinds.text, "string", "none", "Lease of the relays of several machines, as NAME "
        "or NAMESPACE/NAME: its holders watch the servers, the others follow them"),
    Key("lease_holders", kinds.count, "number", "1", "so many hold a Lease each: NAME, NAME-2, and "
        "so on"),
    Key("lease_duration", kinds.seconds, "duration", "15s", "another machine takes a Lease that "
        "was not renewed for this long"),
    Key("advertise", kinds.text, "string", "none", "URL at which other machines follow this relay "
        "while it holds a Lease; of this machine alone"),
    Key("kubeconfig", kinds.text, "string", "as kubectl", "kubeconfig file; without one, a Pod "
        "uses its service account"),
    Key("context", kinds.text, "string", "the current one", "context of the kubeconfig"),
    Key("contexts", kinds.texts, "list of strings", "none", "contexts of several clusters: each "
        "has a process and a cache of its own, which `attach(context=)` finds"),
    Key("namespaces", kinds.texts, "list of strings", "all", "namespaces of every namespaced "
        "resource that lists none of its own"),
    Key("allow_secrets", kinds.flag, "boolean", "false", "allow Secrets in the cache; only our own "
        "uid may then read the memory"),
    Key("max_age", kinds.seconds, "duration", "120s", "report a resource as stale after this long "
        "without any data from the server; at least 90s"),
    Key("requests_per_second", kinds.count, "number", "20", "limit on new lists and watches, for "
        "all resources together"),
    Key("keep", kinds.flag, "boolean", "true", "keep the memory when the process ends, so that the "
        "next run continues without a list; Secrets are never kept. `shmcache gc` removes it"),
    Key("standby", kinds.flag, "boolean", "true", "wait while another process writes this cache, "
        "and take over when that process ends; if false, exit with status 75"),
    Key("log_format", kinds.one_of("text", "json"), "text or json", "text", "format of the log "
        "lines on standard error"),
    Key("log_level", kinds.one_of("debug", "info", "warning", "error"), "debug to error", "info",
        "lowest level that is logged"),
    Key("listen", kinds.address, "address", "none", "serve metrics and probes on HOST:PORT, "
        ":PORT or unix:PATH"),
    Key("ui", kinds.address, "address", "none", "serve the page of `shmcache ui` on HOST:PORT, "
        ":PORT or unix:PATH, in a process of its own; `--ui` means 127.0.0.1:8002"),
    Key("etcd", kinds.text, "string", "none", "endpoints of an etcd cluster, with commas; it "
        "replaces the API server, and each resource needs `keys`"),
    Key("etcd_ca", kinds.text, "string", "the system's", "file of the certificates that etcd's are "
        "checked with"),
    Key("etcd_cert", kinds.text, "string", "none", "client certificate for etcd; the file is read "
        "at each new connection"),
    Key("etcd_key", kinds.text, "string", "none", "key of that certificate"),
    Key("etcd_user", kinds.text, "string", "none", "user at etcd"),
    Key("etcd_password", kinds.text, "string", "none", "password of that user, best in the "
        "environment"),
    Key("etcd_password_file", kinds.text, "string", "none", "file with the password; it is read "
        "whenever a token is needed"),
    Key("etcd_together", kinds.flag, "boolean", "false", "follow all resources with one watch, so "
        "that every transaction is one generation; otherwise those whose prefixes have the same "
        "parent"),
    Key("recorder", kinds.text, "string", "none", "directory in which the flight recorder keeps "
        "every change to the cache, for `get --recorder`, `replay` and tests"),
    Key("recorder_keep", kinds.seconds, "duration", "24h", "record changes of this long"),
    Key("recorder_bytes", kinds.size, "size", "1GiB", "limit on the disk space of the records"),
    Key("replay", kinds.text, "string", "", "recording to read instead of a server"),
    Key("record", kinds.text, "string", "", "new file in which to record every answer of the "
        "server"),
)  # fmt: skip
"""At the top of the file."""

MEMORY = (
    Key("arena_max", kinds.size, "size", "4GiB", "address space of the cache; memory is used only "
        "as objects need it"),
    Key("ring_slots", kinds.count, "number", "65536", "largest size of the ring of changes, a "
        "power of two; memory is used only as needed"),
    Key("ring_bytes", kinds.size, "size", "a fifth of the live bytes", "limit on the memory that "
        "old versions of objects may keep"),
    Key("garbage_max", kinds.size, "size", "a quarter of arena_max", "limit on the memory that "
        "readers of old states may keep from reuse"),
    Key("seats", kinds.count, "number", "128", "number of processes that can be attached at once"),
    Key("mode", kinds.mode, "octal string", "0600", "file mode of the memory: 0600 lets our own "
        "uid read it, 0640 the group, 0644 everybody"),
)  # fmt: skip
"""In the table [memory]."""

REFLECTOR = (
    Key("silence", kinds.seconds, "duration", "90s", "consider a watch dead after this long "
        "without an event or bookmark; a bookmark comes every minute"),
    Key("list_silence", kinds.seconds, "duration", "70s", "the same for lists and all other "
        "requests"),
    Key("end_bookmark_wait", kinds.seconds, "duration", "30s", "wait this long for the end of the "
        "first objects of a streaming list, then fall back to a plain list"),
    Key("backoff_initial", kinds.seconds, "duration", "0.8s", "delay after a first failure; each "
        "further failure doubles it, with up to as much again at random"),
    Key("backoff_cap", kinds.seconds, "duration", "30s", "longest delay before the random part"),
    Key("proof_interval", kinds.seconds, "duration", "5m", "compare each resource with its server "
        "this often, by keys and versions; 0 compares only after an outage"),
)  # fmt: skip
"""In the table [reflector]."""

RESOURCE = (
    Key("namespaces", kinds.texts, "list of strings", "those at the top", "namespaces to cache; "
        "each has its own list and watch"),
    Key("labels", kinds.text, "string", "", "label selector, as for `kubectl -l`"),
    Key("fields", kinds.text, "string", "", "field selector, as for `kubectl --field-selector`"),
    Key("shard", kinds.text, "string", "", "part of the objects by the hash of their UIDs: `1/4` "
        "is the second of four, or a `shardRange(…)` expression"),
    Key("metadata_only", kinds.flag, "boolean", "false", "request and store metadata only"),
    Key("transform", kinds.text, "string", "", "module:function that takes an object and returns "
        "the object to store, or None to leave it out"),
    Key("keep_managed_fields", kinds.flag, "boolean", "false", "store metadata.managedFields"),
    Key("max_bytes", kinds.size, "size", "no limit", "limit on the JSON text of its objects"),
    Key("keys", kinds.text, "string", "", "with etcd: the prefix of its keys, or a pattern with "
        "{namespace} and {name}"),
    Key("value", kinds.one_of("object", "json", "text", "bytes"), "string", "object", "with etcd: "
        'what its values are; all but a JSON object become {"metadata": …, "value": …}'),
    Key("revisions", kinds.flag, "boolean", "false", "with etcd: createRevision and version in the "
        "metadata of Kubernetes objects, too; other objects always have them"),
    Key("max_age", kinds.seconds, "duration", "that at the top", "report the resource as stale "
        "after this long without any data"),
    Key("indices", kinds.table, "table", "none", "index names and their paths (spec.nodeName) or "
        "functions (module:function)"),
)  # fmt: skip
"""In a table [resources.NAME] for each resource."""

SECTIONS = ("memory", "reflector", "resources")
RENAMED = {"metrics": "listen"}
"""Keys of an earlier release, which still work and are reported."""
MEANT = {
    "cache": "name",
    "namespace": "namespaces",
    "selector": "labels",
    "label_selector": "labels",
    "field_selector": "fields",
    "address": "listen",
    "bind": "listen",
    "indexes": "indices",
    "index": "indices",
}
"""Names that people use for a key: the flag's, kubectl's, other tools'."""


def read(
    keys: Iterable[Key],
    given: Mapping[str, object],
    where: str,
    *,
    also: Iterable[str] = (),
    shown: Callable[[str], str] = str,
) -> dict[str, Any]:
    """The values by name; a ConfigurationError for an unknown key or an invalid value.

    `also` lists further names that are valid in this place, and `shown` spells a key as the user
    wrote it; both are for messages.
    """
    known = {key.name: key for key in keys}
    found: dict[str, Any] = {}
    at = f"{where}: " if where else ""
    for written, value in given.items():
        name = RENAMED.get(written, written)
        if name not in known:
            raise ConfigurationError(
                f"{at}unknown key {written!r}{nearest(written, (*known, *also))}"
            )
        if name != written:
            logger.warning(
                "%s%s is now %s; the old name will be removed in the next release",
                at, shown(written), shown(name),
            )  # fmt: skip
        try:
            found[name] = known[name].read(value)
        except ValueError as error:
            raise ConfigurationError(
                f"{at}{shown(written)} {error}, not {_shown(value)}"
            ) from error
    return found


def _shown(value: object) -> str:
    """A value as a user writes it, not as Python does."""
    if isinstance(value, str):
        return repr(value)
    return json.dumps(value, default=str, ensure_ascii=False)


def flag_name(key: str) -> str:
    """The flag of `shmcache run` that sets a key."""
    return _FLAGS.get(key, f"--{key.replace('_', '-')}")


_FLAGS = {
    "name": "--cache",
    "namespaces": "--namespace",
    "labels": "--selector",
    "fields": "--field-selector",
    "indices": "--index",
}


def nearest(name: str, known: Iterable[str]) -> str:
    """The key that was probably meant, as the end of a sentence."""
    names = list(known)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    meant = MEANT.get(name, "")
    found = meant if meant in names else close[0] if close else ""
    return f"; did you mean {found!r}?" if found else f"; known keys are {', '.join(names)}"
