"""The resources that the arguments of a command mean, and how a command names their objects."""

from __future__ import annotations

from shmcache.cli.output.finding import MISSING, USAGE, Trouble
from shmcache.protocol import naming

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from shmcache.protocol.kinds import Kind

MANY = 12
"""More resources than this are counted, not listed, in an error."""


def find(typed: str, kinds: Mapping[str, Kind]) -> list[tuple[str, Kind]]:
    """The resources of the cache that a typed name means: one, or those of a category. Trouble.

    `kinds`: the resources of the cache by their names there.
    """
    try:
        return [(name, kinds[name]) for name in naming.resolve(typed, kinds)]
    except naming.AmbiguousName as error:
        names = " and ".join(error.names)
        raise Trouble(f"{typed!r} is ambiguous: {names} match; add the group", USAGE) from None
    except naming.UnknownName as error:
        raise Trouble(_unknown(typed, error), MISSING) from None


def _unknown(typed: str, error: naming.UnknownName) -> str:
    """The sentence for a resource that the cache does not have."""
    if error.near:
        return f"the cache has no resource {typed!r}; did you mean {' or '.join(error.near)}?"
    there = ", ".join(error.names)
    if len(error.names) > MANY:
        there = f"{', '.join(error.names[:MANY])} and {len(error.names) - MANY} more"
    if error.builtin is None:
        return f"the cache has no resource {typed!r}; it has {there or 'no resources'}"
    return (
        f"the cache has no {error.builtin.key}, only {there or 'no resources'}; add it to the "
        "resources of its `shmcache run`"
    )


def called(kind: Kind, name: str) -> str:
    """pod/web-0, deployment.apps/web."""
    group = f".{kind.group}" if kind.group else ""
    return f"{kind.kind.lower()}{group}/{name}"
