"""Past states on the command line: `--at`, and the changes of an object in words."""

from __future__ import annotations

import argparse
import re

from shmcache.cli.arguments import value
from shmcache.cli.output.finding import USAGE, Trouble

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from shmcache.reader.cache import Cache

_PAST = re.compile(r"^-\d[\w.]*$")
_VERSION = re.compile(r"[1-9]\d*")
_LONG = 60
_NEVER_SHOWN = ("metadata.resourceVersion", "metadata.managedFields", "metadata.generation")


class Moment:
    """A moment of the past: some seconds ago, or a resourceVersion."""

    def __init__(self, seconds: float | None = None, version: str | None = None) -> None:
        self.seconds = seconds
        self.version = version


def moment(text: str) -> Moment:
    """-90s, 90s, 5m, or a resourceVersion. ArgumentTypeError for anything else."""
    if _VERSION.fullmatch(text):
        return Moment(version=text)
    found: float = value("seconds")(text.removeprefix("-"))
    return Moment(seconds=found)


def add_at(parser: argparse.ArgumentParser, name: str = "--at", **more: Any) -> None:
    """The option for a moment of the past. `-90s` is its value, not another option."""
    parser._negative_number_matcher = _PAST  # noqa: SLF001
    parser.add_argument(
        name,
        type=moment,
        metavar="MOMENT",
        help=more.pop("help", "show the state of -90s, -5m or a resourceVersion"),
        **more,
    )


def opened(cache: Cache, at: Moment | None) -> Any:
    """The state of a moment, or of now. PastUnknown where the ring does not lead there."""
    if at is None:
        return cache.snapshot()
    if at.seconds is not None:
        return cache.at(seconds_ago=at.seconds)
    return cache.at(at.version)


def split(text: str) -> tuple[str, str]:
    """pods/web-0 or pods: resource and name."""
    resource, _, name = text.partition("/")
    if not resource:
        raise Trouble(f"{text!r} names no resource", USAGE)
    return resource, name


# ---- fields --------------------------------------------------------------------------------------


def changes(old: Any, new: Any) -> list[str]:
    """The fields that differ, one line each; metadata that changes with every write is left out."""
    before = old.to_dict() if old is not None else None
    after = new.to_dict() if new is not None else None
    return [
        text for path, text in _differences("", before, after) if not path.startswith(_NEVER_SHOWN)
    ]


def _differences(path: str, old: Any, new: Any) -> Iterator[tuple[str, str]]:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in [*old, *(key for key in new if key not in old)]:
            inside = f"{path}.{key}" if path else str(key)
            yield from _differences(inside, old.get(key), new.get(key))
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for number, (left, right) in enumerate(zip(old, new, strict=True)):
            yield from _differences(f"{path}[{number}]", left, right)
    elif old != new:
        yield path, f"{path}: {shown(old)} -> {shown(new)}"


def shown(found: Any) -> str:
    """A value on one line, cut if it is long."""
    import json

    if found is None:
        return "-"
    text = json.dumps(found, ensure_ascii=False)
    return text if len(text) <= _LONG else f"{text[: _LONG - 3]}..."


def managers(old: Any, new: Any) -> str:
    """Whose entries of managedFields changed; "-" where the cache keeps none."""

    def entries(obj: Any) -> dict[tuple[str, str], Any]:
        fields = (obj["metadata"].get("managedFields") or ()) if obj is not None else ()
        return {
            (str(one.get("manager")), str(one.get("subresource") or "")): dict(one)
            for one in fields
        }

    before, after = entries(old), entries(new)
    found = [manager for (manager, _), one in after.items() if before.get((manager, _)) != one]
    return ",".join(dict.fromkeys(found)) or "-"
