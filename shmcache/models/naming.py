"""Names of attributes for the members of JSON objects, as the official clients form them."""

from __future__ import annotations

import keyword
import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

_PART = re.compile(r"(.)([A-Z][a-z]+)")
_END = re.compile(r"([a-z0-9])([A-Z])")
_PLURAL = re.compile(r"([A-Z])s\b|([A-Z])s(?=[A-Z])")


def snake(key: str) -> str:
    """`nodeName` ▸ `node_name`, `containerID` ▸ `container_id`, `podIPs` ▸ `pod_ips`.

    A character that names of Python lack becomes "_"; a keyword has a "_" behind it.
    """
    name = _PLURAL.sub(lambda found: (found[1] or found[2]) + "S", key)
    name = _END.sub(r"\1_\2", _PART.sub(r"\1_\2", name)).lower()
    name = re.sub(r"\W", "_", name).strip("_") or key
    return name + "_" if keyword.iskeyword(name) else name


def attributes(keys: Iterable[str]) -> dict[str, int]:
    """The position of each key by the name of its attribute; the first of equal names counts."""
    found: dict[str, int] = {}
    for position, key in enumerate(keys):
        found.setdefault(snake(key), position)
    return found
