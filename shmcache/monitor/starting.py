"""The command that starts the reflector of a cache."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from shmcache.reader.cache import Cache

DEFAULT_NAME = "shmcache"


def start_command(name: str, resources: Sequence[str] = ("pods",)) -> str:
    """The command that starts a cache."""
    flag = "" if name == DEFAULT_NAME else f" --cache {name}"
    return f"shmcache run {' '.join(resources)}{flag}"


def restart_command(cache: Cache) -> str:
    """The command that starts a reflector of this cache again, with its indices."""
    import shlex

    declared = [
        f" --index {shlex.quote(f'{resource}:{index}={path}')}"
        for resource in cache.resources
        for index, path, _ in cache[resource].record()["indices"]
        if path is not None  # a function is named in a file only
    ]
    return start_command(cache.name, cache.resources) + "".join(declared)


def without_writer(cache: Cache) -> str:
    """The warning for a cache that no process writes; "" if one does."""
    from shmcache.monitor.observing import observe

    if observe(cache).writer.alive:
        return ""
    return (
        f"cache {cache.name!r} has no writer, its data is old; start it with "
        f"`{restart_command(cache)}`"
    )
