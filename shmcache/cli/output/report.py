"""The facts of `top` and `inspect` about a cache, as text in columns and as JSON."""

from __future__ import annotations

from shmcache.cli.output.finding import ago
from shmcache.cli.output.grid import Grid
from shmcache.settings import format_size

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from shmcache.monitor.observing import Observed, ObservedWorker, Survey

    Queues = dict[str, dict[str, Any]]


def size(count: int | None) -> str:
    """Bytes for people; a dash where they are not known."""
    return "-" if count is None else format_size(count)


def writer(at: Observed) -> str:
    """One line about the process that writes."""
    who = at.writer
    if who.beats:
        return f"pid {who.pid}, last sign of life {ago(who.heartbeat or 0)}"
    if who.alive:
        beat = "never" if who.heartbeat is None else ago(who.heartbeat)
        return f"pid {who.pid} DOES NOT RESPOND: last sign of life {beat}"
    return "none: it ended" if who.closed else f"NONE: pid {who.pid} died; start it again"


_RARE = ("repaired", "cut")
"""Counters of resources with a column only if one of them is not zero."""


def resources(at: Observed, survey: Survey | None) -> str:
    """A row for each resource."""
    heads = ["RESOURCE", "STATE", "HEARD", "OBJECTS", "MEMORY", "EVENTS", "ERRORS", "VERSION"]
    rare = [one for one in _RARE if any(of.counters[one] for of in at.resources.values())]
    rows = [heads + [one.upper() for one in rare]]
    for name, status in at.resources.items():
        heard = "-" if status.age is None else ago(status.age).removesuffix(" ago")
        row = survey.resources.get(name) if survey else None
        memory = None if row is None else row["value_bytes"] + row["tree_bytes"]
        counts = status.counters
        events, errors = f"{counts['events']:,}", f"{counts['errors']:,}"
        objects, version = f"{status.objects:,}", status.version or "-"
        rows.append([name, status.state, heard, objects, size(memory), events, errors, version])
        rows[-1] += [f"{counts[one]:,}" for one in rare]
    return Grid().lines(rows)


def workers(at: Observed) -> str:
    """A row for each attached process. PROCESS: its private memory, interpreter included."""
    cut = any(one.cut for one in at.workers)
    heads = ["WORKER", "LAG", "LAPPED", "TAKEN", "PINS", "PROCESS", "ATTACHED", "COMMAND"]
    rows = [heads[:-1] + ["CUT"] * cut + heads[-1:]]
    for one in sorted(at.workers, key=lambda one: (-(one.lag or 0), one.seat)):
        lag = "-" if one.lag is None else f"{one.lag:,}"
        command = ("this one: " if one.own else "") + (one.command or "?")
        since = ago(one.attached).removesuffix(" ago")
        counts = [lag, f"{one.lapped:,}", f"{one.taken:,}", str(one.pins)]
        cuts = [f"{one.cut:,}"] * cut
        rows.append([str(one.pid), *counts, size(one.private), since, *cuts, command])
    return Grid().lines(rows)


def queues(found: Queues) -> str:
    """A row for each work queue; "" without queues."""
    if not found:
        return ""
    rows = [["QUEUE", "DEPTH", "DELAYED", "WORKING", "ADDS", "RETRIES", "LONGEST"]]
    for name, stats in found.items():
        longest = f"{stats['longest_seconds']:.1f} s"
        counts = [
            f"{stats[key]:,}" for key in ("depth", "delayed", "in_progress", "adds", "retries")
        ]
        rows.append([name, *counts, longest])
    return Grid().lines(rows)


def memory(at: Observed) -> str:
    """One line about memory."""
    found = at.memory
    return (
        f"{size(found['bytes'])} shared of at most {size(found['maximum'])}, values "
        f"{size(found['values'])}, trees {size(found['trees'])}, past {size(found['retained'])}, "
        f"kept for readers {size(found['limbo'])}, free {size(found['free'])}"
    )


def recorder(at: Observed) -> str:
    """One line about the flight recorder; "" without one."""
    found = at.recorder
    if found is None:
        return ""
    what = f"{size(found.bytes)} in {found.directory}"
    if found.reach is not None:
        what += f", since {ago(found.reach)}"
    if found.behind is not None:
        what += f", written {ago(found.behind)}"
    if found.records:
        return f"pid {found.pid}, {what}"
    state = found.state.upper() if found.alive else "NOT RUNNING"
    why = f": {found.reason}" if found.reason else ""
    return f"{state}{why}, {what}"


def wrapped(label: str, text: str, columns: int) -> list[str]:
    """A labelled line that continues below itself, cut at its commas, where it is too long."""
    first, *rest = text.split(", ")
    lines = [label + first]
    for part in rest:
        if len(lines[-1]) + len(part) + len(", ,") > columns:
            lines[-1] += ","
            lines.append(" " * len(label) + part)
        else:
            lines[-1] += f", {part}"
    return lines


def as_json(at: Observed, survey: Survey | None, found: Queues) -> dict[str, Any]:
    """All of it."""
    return {
        "cache": at.name,
        "instance": at.instance,
        "generation": at.generation,
        "ring": {"head": at.head, "tail": at.tail, "slots": at.ring_slots},
        "writer": {
            "pid": at.writer.pid,
            "alive": at.writer.alive,
            "closed": at.writer.closed,
            "incarnation": at.writer.incarnation,
            "heartbeat_age": at.writer.heartbeat,
        },
        "memory": at.memory,
        "stats": at.stats,
        "recorder": at.recorder
        and {
            "directory": at.recorder.directory,
            "alive": at.recorder.alive,
            "state": at.recorder.state,
            "reason": at.recorder.reason,
            "behind": at.recorder.behind,
            "reach": at.recorder.reach,
            "bytes": at.recorder.bytes,
            "changes": at.recorder.events,
            "gaps": at.recorder.gaps,
        },
        "seats": at.seats,
        "resources": {
            name: {
                "state": status.state,
                "reason": status.reason,
                "since": status.since,
                "synced": status.synced,
                "version": status.version,
                "age": status.age,
                "lag": status.lag,
                "stamp_age": status.stamp_age,
                "objects": status.objects,
                "counters": status.counters,
                "memory": survey.resources.get(name) if survey else None,
            }
            for name, status in at.resources.items()
        },
        "workers": [_worker(one) for one in at.workers],
        "queues": found,
    }


def _worker(one: ObservedWorker) -> dict[str, Any]:
    names = ("pid", "seat", "lag", "lapped", "taken", "cut", "busy", "asleep", "pins",
             "oldest_pin", "private", "attached", "command", "own")  # fmt: skip
    return {name: getattr(one, name) for name in names}
