"""Every key of a configuration, in one table: what it is called, what it takes, what it means.

The file, the environment, the flags and the documentation are all made of these.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from shmcache.engine import kinds


class ConfigurationError(ValueError):
    """A configuration that cannot be: the text names the key and what is wanted."""


@dataclass(frozen=True, slots=True)
class Key:
    """One key: `shown` is its kind and `default` its default, for people."""

    name: str
    read: kinds.Read
    shown: str
    default: str
    meaning: str


CACHE = (
    Key("name", kinds.text, "text", "shmcache", "of the cache: a name in shared memory, or a "
        "directory if it has a /"),
    Key("server", kinds.text, "text", "that of the kubeconfig", "a URL that needs no kubeconfig, "
        "as that of kubectl proxy"),
    Key("kubeconfig", kinds.text, "text", "as kubectl", "the file that names the server; without "
        "one, and inside a Pod, its service account"),
    Key("context", kinds.text, "text", "the current one", "of the kubeconfig"),
    Key("namespaces", kinds.texts, "texts", "all", "of every resource that names none itself and "
        "has namespaces"),
    Key("allow_secrets", kinds.flag, "flag", "false", "whether Secrets may be cached; the memory "
        "must then be readable by our own uid alone"),
    Key("max_age", kinds.seconds, "seconds", "120s", "of silence after which a resource is said "
        "to be stale; at least 90s"),
    Key("requests_per_second", kinds.count, "number", "20", "lists and watches started, by all "
        "resources together"),
    Key("keep", kinds.flag, "flag", "true", "whether the memory stays when the process is told to "
        "end, so that the next one goes on without a list; never with Secrets. shmcache gc removes "
        "it"),
    Key("standby", kinds.flag, "flag", "true", "whether to wait while another process keeps this "
        "cache, and to take over when that ends or dies; else it is status 75"),
    Key("log_format", kinds.one_of("text", "json"), "text, json", "text", "of the log lines on "
        "standard error"),
    Key("log_level", kinds.one_of("debug", "info", "warning", "error"), "debug to error", "info",
        "the least that is logged"),
    Key("metrics", kinds.text, "address", "not served", "where metrics and probes are served: "
        "ADDRESS:PORT, :PORT or unix:/path"),
    Key("replay", kinds.text, "text", "", "a recording that is served instead of a server's "
        "answers"),
    Key("record", kinds.text, "text", "", "a file that all answers are recorded to"),
)  # fmt: skip
"""At the top of the file."""

MEMORY = (
    Key("arena_max", kinds.size, "size", "4GiB", "address space of the cache; memory is taken only "
        "as objects need it"),
    Key("ring_slots", kinds.count, "number", "65536", "of the ring of changes at the "
        "most, a power of two; memory comes as it is needed"),
    Key("ring_bytes", kinds.size, "size", "a fifth of the live bytes", "what old versions may "
        "retain"),
    Key("garbage_max", kinds.size, "size", "a quarter of arena_max", "what readers that hold old "
        "states may keep from being used again"),
    Key("seats", kinds.count, "number", "128", "processes that may be attached at a time"),
    Key("mode", kinds.mode, "octal text", "0600", "who may read: 0600 our uid, 0640 the group, "
        "0644 all"),
)  # fmt: skip
"""In the table [memory]."""

REFLECTOR = (
    Key("silence", kinds.seconds, "seconds", "90s", "without a byte after which a watch is taken "
        "for dead; bookmarks come each minute"),
    Key("list_silence", kinds.seconds, "seconds", "70s", "the same of lists, and of all else that "
        "is asked"),
    Key("end_bookmark_wait", kinds.seconds, "seconds", "30s", "for the end of a watch-list's first "
        "objects, after which the resource is listed"),
    Key("backoff_initial", kinds.seconds, "seconds", "0.8s", "to wait after a first failure; each "
        "further one doubles it, and chance up to doubles that"),
    Key("backoff_cap", kinds.seconds, "seconds", "30s", "up to which it is doubled"),
)  # fmt: skip
"""In the table [reflector]."""

RESOURCE = (
    Key("namespaces", kinds.texts, "texts", "those at the top", "each is listed and watched by "
        "itself"),
    Key("labels", kinds.text, "text", "", "a label selector, as of kubectl -l"),
    Key("fields", kinds.text, "text", "", "a field selector, as of kubectl --field-selector"),
    Key("metadata_only", kinds.flag, "flag", "false", "whether only metadata is asked for and "
        "kept"),
    Key("transform", kinds.text, "text", "", "module:function that is given each object and "
        "returns what is to be stored of it, or None"),
    Key("keep_managed_fields", kinds.flag, "flag", "false", "whether metadata.managedFields is "
        "kept"),
    Key("max_bytes", kinds.size, "size", "no bound", "of JSON text that its objects may need"),
    Key("max_age", kinds.seconds, "seconds", "that at the top", "of silence after which it is "
        "stale"),
    Key("indices", kinds.table, "table", "none", "names to paths (spec.nodeName) or functions "
        "(module:function)"),
)  # fmt: skip
"""In a table [resources.NAME] each."""

SECTIONS = ("memory", "reflector", "resources")


def read(
    keys: Iterable[Key], given: Mapping[str, object], where: str, also: Iterable[str] = ()
) -> dict[str, Any]:
    """The values by name; ConfigurationError for a key that is none, or a value that cannot be.

    `also`: what else may have been meant by a key that is none.
    """
    known = {key.name: key for key in keys}
    found: dict[str, Any] = {}
    for name, value in given.items():
        if name not in known:
            meant = nearest(name, (*known, *also))
            raise ConfigurationError(f"{where}: there is no key {name!r}{meant}")
        try:
            found[name] = known[name].read(value)
        except ValueError as error:
            raise ConfigurationError(f"{where}: {name} = {value!r}: {error}") from error
    return found


def nearest(name: str, known: Iterable[str]) -> str:
    """What was probably meant, as the end of a sentence."""
    names = list(known)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    return f"; did you mean {close[0]!r}?" if close else f"; there are {', '.join(names)}"
