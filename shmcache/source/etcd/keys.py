"""Keys of etcd to keys of a resource, and back, by a declared pattern.

    /registry/example.com/widgets/                     the rest of the key is the key: ns/name
    /services/{name}/{namespace}/config                segments in another order, fixed ends
    /config/{name*}                                    a name that has slashes of its own

KEYS1  two keys of etcd never share a key of the resource: each placeholder occurs once, matches one
       segment (a name with * also further ones, at the end), and the rest is fixed text.
KEYS2  bytes that are not UTF-8, and keys that the pattern does not fit, belong to no object.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from shmcache.errors import SourceError

_PLACE = re.compile(r"\{([^{}]*)\}")
_SEGMENTS = {
    "namespace": "(?P<namespace>[^/]+)",
    "name": "(?P<name>[^/]+)",
    "name*": "(?P<name>.+)",
}


def end_of(prefix: bytes) -> bytes:
    """The range_end that makes `prefix` a prefix: the first key after all that begin with it."""
    cut = prefix.rstrip(b"\xff")
    return cut[:-1] + bytes([cut[-1] + 1]) if cut else b"\0"


@dataclass(frozen=True, slots=True)
class KeyPattern:
    """The keys of one resource."""

    text: str
    prefix: bytes = field(init=False)
    """All of its keys begin with this."""
    _shape: re.Pattern[str] | None = field(init=False, repr=False, compare=False)
    _parts: tuple[str, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        names = _PLACE.findall(self.text)
        wrong = [name for name in names if name not in _SEGMENTS]
        plain = [name.rstrip("*") for name in names]
        if not self.text or wrong or len(set(plain)) < len(plain):
            raise SourceError(
                f"{self.text!r} is not a pattern of etcd keys; it is a prefix such as "
                "/registry/example.com/widgets/, or has {namespace}, {name} or, at the end, "
                "{name*}, each once, as in /services/{namespace}/{name}/config"
            )
        if names and "name" not in plain:
            raise SourceError(f"the pattern {self.text!r} has no {{name}}")
        if "name*" in names and not self.text.endswith("{name*}"):
            raise SourceError(f"the pattern {self.text!r} has something after {{name*}}")
        parts = tuple(_PLACE.split(self.text))  # text, name, text, name, ..., text
        object.__setattr__(self, "prefix", parts[0].encode())
        object.__setattr__(self, "_parts", parts)
        shape = "".join(
            _SEGMENTS[part] if number % 2 else re.escape(part) for number, part in enumerate(parts)
        )
        object.__setattr__(self, "_shape", re.compile(shape, re.DOTALL) if names else None)

    @property
    def is_prefix(self) -> bool:
        """Whether the rest of each key is the key."""
        return self._shape is None

    @property
    def end(self) -> bytes:
        """The range_end of its prefix."""
        return end_of(self.prefix)

    def key_of(self, raw: bytes) -> str | None:
        """The key of the object behind a key of etcd; None if it belongs to no object (KEYS2)."""
        try:
            if self._shape is None:
                found = raw[len(self.prefix) :].decode()
                return found if found and raw.startswith(self.prefix) else None
            match = self._shape.fullmatch(raw.decode())
        except UnicodeDecodeError:
            return None
        if match is None:
            return None
        parts = match.groupdict()
        namespace = parts.get("namespace")
        return f"{namespace}/{parts['name']}" if namespace else parts["name"]

    def raw_key_of(self, key: str) -> bytes:
        """The key of etcd at which the object with this key is, or would be. ValueError."""
        if self._shape is None:
            made = self.prefix + key.encode()
        else:
            namespace, name = self.names_of(key)
            values = {"namespace": namespace, "name": name, "name*": name}
            made = "".join(
                values[part] if number % 2 else part for number, part in enumerate(self._parts)
            ).encode()
        if self.key_of(made) != key:
            raise ValueError(f"{key!r} is not a key that the pattern {self.text!r} can have")
        return made

    def names_of(self, key: str) -> tuple[str, str]:
        """Namespace ("" without one) and name in the key of an object."""
        if self._shape is None:
            first, slash, rest = key.partition("/")
            return (first, rest) if slash and first and rest and "/" not in rest else ("", key)
        if "namespace" not in self._shape.groupindex:
            return "", key
        namespace, _, name = key.partition("/")
        return namespace, name


@dataclass(frozen=True, slots=True)
class EtcdResource:
    """One resource of an etcd source: its keys, and how its values become objects."""

    name: str
    pattern: KeyPattern
    value: str = "object"
    """One of values.FORMS."""
    revisions: bool = False
    """Whether Kubernetes objects have create_revision and version in their metadata, too."""


def parent_of(pattern: KeyPattern) -> bytes:
    """The prefix without its last segment: resources with the same one are watched together."""
    return pattern.prefix.rstrip(b"/").rpartition(b"/")[0]


def covering(patterns: list[KeyPattern]) -> tuple[bytes, bytes]:
    """The smallest range that holds all prefixes: key and range_end."""
    ends = [pattern.end for pattern in patterns]
    return min(pattern.prefix for pattern in patterns), b"\0" if b"\0" in ends else max(ends)
