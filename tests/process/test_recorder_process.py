"""Invariant tested: `shmcache run --recorder` records through kills of every process. A recorder
that cannot write is reported in words and metrics, and the cache goes on."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Self

import pytest
from workers import PATIENCE

import shmcache
from shmcache.errors import PastUnknown
from shmcache.monitor.metering import Meter
from shmcache.recorder import standing
from shmcache.recorder.history import FlightRecord
from shmcache.recorder.standing import FAILING, FULL, RECORDING, RecorderStatus
from shmcache.testing import ApiServer

ROOT = Path(__file__).resolve().parent.parent.parent
SEED = int(os.environ.get("SEED") or random.SystemRandom().randrange(1 << 31))


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer(seed=1) as started:
        for number in range(20):
            started.create("pods", pod(f"web-{number}"))
        yield started


def eventually(fact: Callable[[], Any]) -> Any:
    """The fact, once it is true; a failure if it never is."""
    deadline = time.monotonic() + PATIENCE
    while not (found := fact()):
        assert time.monotonic() < deadline, f"SEED={SEED}: it never becomes true"
        time.sleep(0.02)  # between looks at another process
    return found


def pod(name: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": "prod", "labels": {"n": "0"}},
        "spec": {"containers": [{"name": "app", "image": "app:1"}]},
    }


class Reflector:
    """A `shmcache run --recorder` as a process of its own."""

    def __init__(self, server: ApiServer, name: str, directory: Path, *more: str) -> None:
        self.name = name
        self.process = subprocess.Popen(
            [sys.executable, "-m", "shmcache", "run", "pods", "--server", server.url,
             "--cache", name, "--recorder", str(directory), *more],
            cwd=ROOT, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def end(self, number: int = signal.SIGTERM) -> str:
        self.process.send_signal(number)
        return self.process.communicate(timeout=PATIENCE)[1]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()


def status_of(cache: shmcache.Cache) -> RecorderStatus | None:
    return standing.read(cache.place)


def awaited(cache: shmcache.Cache, state: str = RECORDING) -> RecorderStatus:
    """The status of a living recorder in this state, that has acknowledged something."""

    def there() -> RecorderStatus | None:
        found = status_of(cache)
        fits = found is not None and found.alive and found.state == state
        return found if fits and found and (found.recorded_ns or state != RECORDING) else None

    found = eventually(there)
    assert isinstance(found, RecorderStatus)
    return found


def label(server: ApiServer, number: int, text: str) -> None:
    found = server.get("pods", f"web-{number}", "prod")
    found["metadata"]["labels"]["n"] = text
    server.update("pods", found)


def acknowledged(cache: shmcache.Cache) -> RecorderStatus:
    """Once everything that the ring has now is acknowledged."""
    head = cache.snapshot().head

    def there() -> RecorderStatus | None:
        found = status_of(cache)
        return found if found is not None and found.alive and found.position >= head else None

    found = eventually(there)
    assert isinstance(found, RecorderStatus)
    return found


def recorded(directory: Path) -> dict[str, str]:
    found = FlightRecord(str(directory)).last()
    values = [one.value()["metadata"] for one in found.objects.values()]
    return {one["name"]: one["labels"]["n"] for one in values}


@pytest.mark.slow
def test_kills_of_each_process_lose_nothing_acknowledged_record2_recproc1(
    server: ApiServer, name: str, tmp_path: Path
) -> None:
    rng, directory = random.Random(SEED), tmp_path / "record"
    count = 0
    for _ in range(3):
        with Reflector(server, name, directory) as reflector:
            with shmcache.attach(name, timeout=PATIENCE) as cache:
                cache["pods"].wait_synced(PATIENCE)
                for _ in range(3):
                    awaited(cache)
                    for _ in range(rng.randrange(1, 20)):
                        count += 1
                        label(server, rng.randrange(20), str(count))
                    wanted = {
                        one["metadata"]["name"]: one["metadata"]["labels"]["n"]
                        for one in server.list("pods")
                    }
                    eventually(partial(_shows, cache, wanted))
                    known = acknowledged(cache)
                    os.kill(known.pid, signal.SIGKILL)
                    assert recorded(directory) == wanted, f"SEED={SEED}"
                    eventually(partial(_is_another, cache, known))
            reflector.end(signal.SIGKILL)
    record = FlightRecord(str(directory))
    steps = [step for _, step in record.play()]
    assert steps
    assert {reel.fault for reel in record.reels[:-1]} <= {""}
    assert record.gaps() == [], f"SEED={SEED}"


def _shows(cache: shmcache.Cache, wanted: dict[str, str]) -> bool:
    return shown(cache) == wanted


def _is_another(cache: shmcache.Cache, before: RecorderStatus) -> bool:
    found = status_of(cache)
    return found is not None and found.alive and found.pid != before.pid


def shown(cache: shmcache.Cache) -> dict[str, str]:
    return {one["metadata"]["name"]: one["metadata"]["labels"]["n"] for one in cache["pods"].list()}


@pytest.mark.slow
def test_the_last_changes_are_recorded_at_the_end_recproc1(
    server: ApiServer, name: str, tmp_path: Path
) -> None:
    directory = tmp_path / "record"
    with Reflector(server, name, directory) as reflector:
        with shmcache.attach(name, timeout=PATIENCE) as cache:
            cache["pods"].wait_synced(PATIENCE)
            recorder = awaited(cache)
            label(server, 3, "last")
            eventually(lambda: shown(cache)["web-3"] == "last")
        log = reflector.end()
    assert reflector.process.returncode == 0, log
    assert recorded(directory)["web-3"] == "last"
    assert list(FlightRecord(str(directory)).play())
    with pytest.raises(ProcessLookupError):
        os.kill(recorder.pid, 0)
    record = FlightRecord(str(directory))
    list(record.play())
    assert record.reels[-1].ended


@pytest.mark.slow
def test_a_recorder_that_cannot_write_leaves_the_cache_alone_record4_recproc3(
    server: ApiServer, name: str, tmp_path: Path
) -> None:
    """The directory of another recorder, then one that is free; as root no mode would stop us."""
    from shmcache.recorder.disk import Disk

    directory = tmp_path / "record"
    disk = Disk()
    disk.make_directory(str(directory))
    lock = disk.lock(str(directory))
    with Reflector(server, name, directory) as reflector:
        with shmcache.attach(name, timeout=PATIENCE) as cache:
            cache["pods"].wait_synced(PATIENCE)
            found = awaited(cache, FAILING)
            assert "another recorder writes in" in found.reason
            text = Meter(cache).text()
            assert f'shmcache_recorder_up{{cache="{name}"}} 0' in text
            assert f'shmcache_recorder_state{{cache="{name}",state="failing"}} 1' in text
            label(server, 1, "seen")
            eventually(lambda: shown(cache)["web-1"] == "seen")
            os.close(lock)
            awaited(cache)
            acknowledged(cache)
            assert f'shmcache_recorder_up{{cache="{name}"}} 1' in Meter(cache).text()
        log = reflector.end()
    assert "changes are not recorded: another recorder writes in" in log
    assert "changes are recorded again" in log
    assert recorded(directory)["web-1"] == "seen"


@pytest.mark.slow
def test_a_full_disk_is_reported_everywhere_and_stops_nothing_record4(
    server: ApiServer, name: str, tmp_path: Path
) -> None:
    """By its own bound; test_recorder.py fills a file system."""
    directory = tmp_path / "record"
    directory.mkdir()
    with Reflector(server, name, directory, "--recorder-bytes", "1MiB") as reflector:
        with shmcache.attach(name, timeout=PATIENCE) as cache:
            cache["pods"].wait_synced(PATIENCE)
            rng = random.Random(SEED)
            deadline = time.monotonic() + PATIENCE
            found = awaited(cache)
            number = 0
            while found.state != FULL and time.monotonic() < deadline:
                number += 1
                obj = server.get("pods", f"web-{number % 20}", "prod")
                noise = rng.randbytes(60_000).hex()
                obj["metadata"]["annotations"] = {"noise": noise}
                server.update("pods", obj)
                now = status_of(cache)
                found = now if now is not None else found
            assert found.state == FULL
            assert "recorder_bytes" in found.reason
            label(server, 1, "seen")
            eventually(lambda: shown(cache)["web-1"] == "seen")
            assert (
                f'shmcache_recorder_state{{cache="{name}",state="full"}} 1' in Meter(cache).text()
            )
            done = subprocess.run(
                [sys.executable, "-m", "shmcache", "top", "--once", "--cache", name],
                capture_output=True, text=True, check=True, cwd=ROOT, timeout=PATIENCE,
            )  # fmt: skip
            assert "recorder FULL: the objects of the cache alone need more" in done.stdout
        log = reflector.end()
    assert "changes are not recorded" in log
    assert sum(each.stat().st_size for each in directory.iterdir()) <= 1 << 20
    try:
        FlightRecord(str(directory)).last()
    except PastUnknown as error:
        raise AssertionError(f"SEED={SEED}") from error
