"""Past states on the command line: `--at`, and the changes of an object as text."""

from __future__ import annotations

import argparse
import re
import sys
import time

from shmcache.cli.arguments import value
from shmcache.cli.output.finding import MISSING, USAGE, Trouble
from shmcache.reader.sharding import metadata_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from shmcache.reader.cache import Cache
    from shmcache.recorder.contents import Contents
    from shmcache.recorder.history import FlightRecord

_PAST = re.compile(r"^-\d[\w.]*$")
_LONG = 60
_NEVER_SHOWN = ("metadata.resourceVersion", "metadata.managedFields", "metadata.generation")


class Moment:
    """A moment of the past: some seconds ago, or a resourceVersion."""

    def __init__(self, seconds: float | None = None, version: str | None = None) -> None:
        self.seconds = seconds
        self.version = version

    @property
    def time_ns(self) -> int:
        """By the wall clock; of a version it is now."""
        return time.time_ns() - int((self.seconds or 0.0) * 1e9)


def moment(text: str) -> Moment:
    """-90s, 90s, 5m, a time of day, or a resourceVersion. ArgumentTypeError for anything else."""
    if re.fullmatch(r"[1-9]\d*", text):
        return Moment(version=text)
    if "T" in text:
        return Moment(seconds=time.time() - _time_of(text))
    found: float = value("seconds")(text.removeprefix("-"))
    return Moment(seconds=found)


def _time_of(text: str) -> float:
    """Of 2026-11-19T21:00:00Z, in seconds of the wall clock; without a zone it is UTC."""
    from datetime import UTC, datetime

    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} must be a duration (-90s), a time (2026-11-19T21:00:00Z) or a "
            "resourceVersion"
        ) from None
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()


def add_at(parser: argparse.ArgumentParser, name: str = "--at", **more: Any) -> None:
    """The option for a moment of the past. `-90s` is its value, not another option."""
    parser._negative_number_matcher = _PAST  # noqa: SLF001
    parser.add_argument(
        name,
        type=moment,
        metavar="MOMENT",
        help=more.pop(
            "help", "show the state of -90s, of 2026-11-19T21:00:00Z or of a resourceVersion"
        ),
        **more,
    )


def opened(cache: Cache, at: Moment | None) -> Any:
    """The state of a moment, or of now. PastUnknown where the ring does not lead there."""
    if at is None:
        return cache.snapshot()
    if at.seconds is not None:
        return cache.at(seconds_ago=at.seconds)
    return cache.at(at.version)


def add_recorder(parser: argparse.ArgumentParser) -> None:
    """The option for a flight record instead of a cache."""
    parser.add_argument(
        "--recorder",
        metavar="DIR",
        help="read what `shmcache run --recorder DIR` recorded, without a cache",
    )


def record_of(options: argparse.Namespace) -> FlightRecord:
    """The flight record of --recorder. Trouble if the directory has none."""
    if options.cache:
        raise Trouble("--recorder replaces --cache", USAGE)
    return opened_record(options.recorder)


def opened_record(directory: str) -> FlightRecord:
    """A flight record; warns of unreadable reels. Trouble if the directory has none."""
    from shmcache.recorder.history import FlightRecord

    try:
        found = FlightRecord(directory)
    except FileNotFoundError:
        raise Trouble(f"the directory {directory} does not exist", MISSING) from None
    except NotADirectoryError:
        raise Trouble(
            f"{directory} is a file, and a flight record is a directory; a recording of a server's "
            "answers is read with `shmcache run --replay`", USAGE
        ) from None  # fmt: skip
    for text in found.unreadable:
        print(f"shmcache: warning: {text}", file=sys.stderr)
    return found


def contents_of(record: FlightRecord, at: Moment | None) -> Contents:
    """The recorded state of a moment, or the last one. PastUnknown."""
    if at is None:
        return record.last()
    if at.version is not None:
        from shmcache.recorder.versioned import at_version

        return at_version(record, at.version)
    return record.at_time(at.time_ns)


def split(text: str) -> tuple[str, str]:
    """pods/web-0 or pods: resource and name."""
    resource, _, name = text.partition("/")
    if not resource:
        raise Trouble(f"{text!r} names no resource", USAGE)
    return resource, name


# ---- fields --------------------------------------------------------------------------------------


def changes(old: Any, new: Any) -> list[str]:
    """The fields that differ, one line each; metadata that changes with every write is left out."""
    before, after = _plain(old), _plain(new)
    return [
        text for path, text in _differences("", before, after) if not path.startswith(_NEVER_SHOWN)
    ]


def _plain(obj: Any) -> Any:
    """A view as a dict; a dict, or None, as it is."""
    return obj.to_dict() if hasattr(obj, "to_dict") else obj


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
        fields = (metadata_of(obj).get("managedFields") or ()) if obj is not None else ()
        return {
            (str(one.get("manager")), str(one.get("subresource") or "")): dict(one)
            for one in fields
        }

    before, after = entries(old), entries(new)
    found = [manager for (manager, _), one in after.items() if before.get((manager, _)) != one]
    return ",".join(dict.fromkeys(found)) or "-"
