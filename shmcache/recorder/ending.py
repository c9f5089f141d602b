"""Where a reel ends: all that the next recorder has to know of it."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import Any

from shmcache.recorder import lines
from shmcache.recorder.reels import ReelReader


@dataclass(slots=True)
class ReelEnd:
    """The last whole step of a reel."""

    whole_checkpoint: bool = False
    checkpoint: int = 0
    """Bytes up to the end of the checkpoint."""
    instance: int = 0
    position: int = 0
    time_ns: int = 0
    begun_ns: int = 0
    size: int = 0
    checksum: int = 0
    fault: str = ""
    cut: bool = False
    """The fault is a missing end."""


def head_of(path: str) -> dict[str, Any] | None:
    """The head of a reel; None if its beginning is not whole. OSError."""
    for packet in ReelReader(path).packets():
        found: dict[str, Any] = json.loads(lines.fields(packet.split(b"\n", 1)[0])[0])
        return found
    return None


def begun_at(path: str) -> int:
    """When a reel began, in ns of the wall clock; by its file where it does not say."""
    try:
        head = head_of(path)
        return int(head["time"]) if head else os.stat(path).st_mtime_ns
    except FileNotFoundError:
        return 0


def last_end(path: str) -> ReelEnd:
    """Reads a whole reel. OSError."""
    reader = ReelReader(path)
    end = ReelEnd()
    complete = False
    for packet in reader.packets():
        complete = complete or packet.startswith(b"C\n") or b"\nC\n" in packet
        if not end.instance:
            end.instance = int(json.loads(lines.fields(packet.split(b"\n", 1)[0])[0])["instance"])
        at = packet.rfind(b"\nT\t")
        if at >= 0 or packet.startswith(b"T\t"):
            text = packet[at + 1 :].split(b"\n", 1)[0]
            time_ns, position, _ = lines.fields(text)
            end.time_ns, end.position = int(time_ns), int(position)
            if complete and not end.whole_checkpoint:
                end.whole_checkpoint, end.checkpoint = True, reader.size
                end.begun_ns = end.time_ns
    end.size, end.checksum = reader.size, reader.checksum
    end.fault, end.cut = reader.fault, reader.cut
    return end
