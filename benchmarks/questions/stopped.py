"""What does one reader that is stopped, or one view that is kept for ever, cost in memory?

A cache of 10,000 pods gets 1,000,000 updates as a watch brings them, nine of ten of the status
alone, once with a reader that lets go, once while it is stopped (SIGSTOP) and holds a view. The
figure is the high water of DATA: all the memory that was ever used. The view must be whole at the
end.
"""

from __future__ import annotations

import os
import signal
from typing import Any

import shmcache
from benchmarks import harness
from benchmarks.harness import Row, at_most, show_bytes
from benchmarks.scenes import objects
from benchmarks.scenes.children import Children, Pipe
from benchmarks.scenes.shared import RESOURCE, Corpus, directory, open_writer
from shmcache.protocol.items import Item

BATCH = 100
OFTEN = 10  # one update of so many is of more than the status


def run(quick: bool) -> list[Row]:
    updates = 20_000 if quick else 1_000_000
    corpus = Corpus("pods", 2_000 if quick else 10_000)
    pods = list(corpus.objects())
    without = _updated(pods, updates, stop=False)
    stopped = _updated(pods, updates, stop=True)
    return [
        Row(
            question=f"memory with one reader stopped for {updates:,} updates, {corpus}",
            ours=show_bytes(stopped["high_water_bytes"]),
            peer=f"without {show_bytes(without['high_water_bytes'])}",
            note=f"held for it {show_bytes(stopped['limbo_bytes'])}; "
            f"{stopped['revoked']} pins revoked",
            **at_most(1.3, stopped["high_water_bytes"] / without["high_water_bytes"]),
        )
    ]


def _updated(pods: list[objects.Object], updates: int, *, stop: bool) -> dict[str, Any]:
    with directory() as name, open_writer(name) as writer:
        writer.apply(RESOURCE, pods)
        changes = Changes(pods)
        with Children(_hold, [(name, objects.key_of(pods[0]))]) as children:
            (pid,) = children.receive()
            if stop:
                os.kill(pid, signal.SIGSTOP)
            else:
                children.send("let go")
            for start in range(0, updates, BATCH):
                writer.apply_items(RESOURCE, [changes.item(start + n) for n in range(BATCH)])
            found: dict[str, Any] = writer.stats()
            if stop:
                os.kill(pid, signal.SIGCONT)
                children.send("look")
            assert children.receive() == [True], "the view has changed"
        return found


class Changes:
    """The n-th update: each changes another pod than the last ones, to a new state."""

    def __init__(self, pods: list[objects.Object]) -> None:
        self._pods = pods
        self._keys = [objects.key_of(pod) for pod in pods]
        self._status = [(_pieces(pod, 0), _pieces(pod, 1)) for pod in pods]

    def item(self, n: int) -> Item:
        place = n * 7_919 % len(self._pods)
        version = str(objects.FIRST_UPDATE_VERSION + n)
        if n % OFTEN == 0:
            (raw,) = objects.encode([objects.update(self._pods[place], n)])
        else:
            first, second, rest = self._status[place][n // len(self._pods) % 2]
            raw = f"{first}{version}{second}{objects.time_of(3_000_000 + n)}{rest}".encode()
        return Item("MODIFIED", self._keys[place], version, None, "Pod", "v1", raw)


def _pieces(pod: objects.Object, n: int) -> tuple[str, str, str]:
    """A status-only update's text, around its version and the time of its transition."""
    changed = objects.status_update(pod, n)
    version, time = str(objects.FIRST_UPDATE_VERSION + n), objects.time_of(3_000_000 + n)
    text = objects.encode([changed])[0].decode()
    first, second = text.split(f'"{version}"')
    second, rest = second.split(f'"{time}"')
    return f'{first}"', f'"{second}"', f'"{rest}'


def _hold(pipe: Pipe, name: str, key: str) -> None:
    cache = shmcache.attach(name)
    view = cache[RESOURCE][key]
    before = view.to_dict()
    pipe.answer(os.getpid())
    pipe.next()
    pipe.answer(view.to_dict() == before)
    del view
    cache.close()


if __name__ == "__main__":
    harness.main(__doc__, run)
