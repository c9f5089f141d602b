"""Run in a mount namespace of its own, where /dev/shm has 1 MiB.

small_shm.py      (it enlarges /dev/shm, and shrinks it again for each part)
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from workers import PATIENCE, Worker, eventually

import shmcache
from shmcache.errors import CacheFull, StaleObjectError
from shmcache.testing import ApiServer

SHM = "/dev/shm"  # noqa: S108
TINY = "128k"
ADVICE = (SHM, "free, ", "needed", "remount,size", "--shm-size", "emptyDir")


def resize(size: str) -> None:
    subprocess.run(["mount", "-o", f"remount,size={size}", SHM], check=True)


def is_advised(text: str) -> bool:
    return all(word in text for word in ADVICE)


def pod(number: int, size: int) -> dict[str, Any]:
    notes = {"much": f"{number:04d}" * (size // 4)}
    return {"metadata": {"name": f"p{number}", "namespace": "prod", "annotations": notes}}


# ---- a writer in this process ------------------------------------------------------------------


def test_a_cache_that_does_not_fit_is_refused_and_leaves_nothing() -> None:
    resize(TINY)
    for _ in range(3):
        try:
            shmcache.Writer("large", ["pods"])
        except CacheFull as full:
            assert is_advised(str(full)), full
        else:
            raise AssertionError(f"a new cache fits into {TINY}")
        assert [] == os.listdir(SHM), os.listdir(SHM)
    resize("1m")


def follow(pipe: Any, name: str) -> None:
    """Another process, which takes all deltas and reports their number."""
    with shmcache.attach(name) as cache:
        cursor, taken = cache.follow(), 0
        while True:
            while deltas := cursor.take():
                taken += len(deltas)
            pipe.send(taken)
            pipe.recv()


def test_a_ring_without_room_stays_narrow_and_still_delivers_everything() -> None:
    with (
        shmcache.Writer("narrow", ["pods"], seats=4) as writer,
        Worker("fork", follow, "narrow") as follower,
    ):
        reported = follower.hear()
        for number in range(1000):  # until no more fits
            try:
                writer.put("pods", f"prod/p{number}", pod(number, 8192))
            except CacheFull:
                break
        many = writer.stats()["head"]
        assert 20 < many < 1000, many
        assert many == follower.ask("all of them") + reported
        for round_ in range(50):  # in all, more than the ring begins with
            for number in range(20):
                writer.put("pods", f"prod/p{number}", {"n": round_})
            reported = follower.ask("each of them")
            assert writer.stats()["head"] == reported, (round_, writer.stats()["head"], reported)
        stats = writer.stats()
        assert stats["head"] - stats["tail"] <= 512, stats
        writer.check()
        resize("8m")
        for number in range(1500):
            writer.put("pods", f"prod/p{number % 20}", {"n": -number})
        stats = writer.stats()
        assert stats["head"] - stats["tail"] > 1000, stats  # it is requested again
        writer.check()
    resize("1m")
    assert [] == os.listdir(SHM), os.listdir(SHM)


def test_a_failed_widening_returns_memory_up_to_the_arena() -> None:
    """The last slots of this ring share a large page with the arena, and thus have memory."""
    with shmcache.Writer("back", ["pods"], seats=4, ring_slots=32768) as writer:
        [name] = [each for each in os.listdir(SHM) if each.endswith(".data")]
        with writer.batch():
            for number in range(9000):
                writer.put("pods", "prod/one", {"n": number})
        assert writer.stats()["relists"] == 1, writer.stats()  # there is no room for 2 MiB
        hole = (2 << 20) - 4096 - 1024 * 64
        assert writer.stats()["file_bytes"] - hole == os.stat(f"{SHM}/{name}").st_blocks * 512
        writer.check()


def read(pipe: Any, name: str) -> None:
    """Another process, attached when no room was left."""
    with shmcache.attach(name) as cache:
        while True:
            pipe.send(sorted(cache["pods"]))
            pipe.recv()


def test_fitting_objects_are_served_and_more_after_enlarging() -> None:
    with shmcache.Writer("small", ["pods"], ring_slots=64, seats=4) as writer:
        stored: list[str] = []
        refused: CacheFull | None = None
        for number in range(1000):
            try:
                writer.put("pods", f"prod/p{number}", pod(number, 8192))
                stored.append(f"prod/p{number}")
            except CacheFull as full:
                refused = full
                break
        assert refused is not None
        assert is_advised(str(refused)), refused
        assert len(stored) > 20, stored
        with Worker("fork", read, "small") as reader:
            assert sorted(stored) == reader.hear()
            writer.check()
            resize("8m")
            writer.put("pods", "prod/late", pod(5000, 200_000))
            assert sorted([*stored, "prod/late"]) == reader.ask("again")
        writer.check()
    assert [] == os.listdir(SHM), os.listdir(SHM)


def look_late(pipe: Any, name: str) -> None:
    """Another process, which reads its views only on request."""
    with shmcache.attach(name) as cache:
        views = list(cache["pods"]["prod/big"]["items"])
        pipe.send(len(views))
        pipe.recv()
        seen = set()
        for view in views:
            try:
                seen.add(view["k3"])
            except StaleObjectError:
                seen.add("stale")
        pipe.send(seen)
        pipe.recv()


def test_a_revoked_view_is_stale_even_where_its_memory_is_gone() -> None:
    """The memory of an old object now holds the count of a list, which as an offset points into the
    ring."""
    resize("48m")
    filler = Path(SHM, "filler")
    with shmcache.Writer(
        "late", ["pods"], seats=4, arena_max="64MiB", garbage_max="64KiB"
    ) as writer:
        objects = [{f"k{key}": 40 * number + key for key in range(30)} for number in range(20_000)]
        writer.put("pods", "prod/big", {"items": objects})
        with Worker("fork", look_late, "late") as reader:
            assert len(objects) == reader.hear()
            writer.delete("pods", "prod/big")
            for number in range(400):
                writer.put("pods", f"prod/{number % 8}", {"l": [number] * (80_000 + number)})
            with filler.open("wb") as file, suppress(OSError):
                while True:
                    file.write(bytes(1 << 16))
                    file.flush()
            assert {"stale"} == reader.ask("look")
        filler.unlink()
    resize("1m")
    assert [] == os.listdir(SHM), os.listdir(SHM)


# ---- the reflector -----------------------------------------------------------------------------


@contextmanager
def running(server: ApiServer, directory: str, *more: str) -> Iterator[Any]:
    config = server.kubeconfig(os.path.join(directory, "kubeconfig"))
    log = Path(directory, "log")
    with log.open("w") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "shmcache", "run", "pods", "--kubeconfig", config, *more],
            stdout=out,
            stderr=out,
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        if sys.exc_info()[0]:
            sys.stderr.write(log.read_text())


def test_a_reflector_without_room_to_start_reports_it_and_ends(server: ApiServer) -> None:
    resize(TINY)
    with tempfile.TemporaryDirectory() as directory:
        with running(server, directory) as process:
            assert process.wait(PATIENCE) == 75, process.returncode
        text = Path(directory, "log").read_text()
        assert is_advised(text), text
        assert "Traceback" not in text, text
    assert [] == os.listdir(SHM), os.listdir(SHM)
    resize("1m")


def test_a_reflector_resumes_after_enlarging(server: ApiServer) -> None:
    for number in range(10):
        server.create("pods", pod(number, 8192))
    small = ("--ring-slots", "64", "--seats", "4", "--cache", "run")
    with tempfile.TemporaryDirectory() as directory, running(server, directory, *small) as process:
        with shmcache.attach("run", timeout=PATIENCE) as cache:
            pods = cache["pods"]
            assert pods.wait_synced(PATIENCE)
            first = sorted(pods)
            assert len(first) == 10
            for number in range(10, 14):  # each alone is too much
                server.create("pods", pod(number, 900_000))
            eventually(lambda: pods.status.state == "exceeded", "the lack of room does not show")
            assert is_advised(pods.status.reason) or "cache less" in pods.status.reason
            assert first == sorted(pods)

            resize("64m")
            eventually(lambda: len(pods) == 14, "it does not recover")
            assert pods.wait_for(server.version, PATIENCE)
            eventually(lambda: pods.status.state == "synced", "it does not become synced")
        process.terminate()
        assert process.wait(PATIENCE) == 0


if __name__ == "__main__":
    test_a_cache_that_does_not_fit_is_refused_and_leaves_nothing()
    test_a_ring_without_room_stays_narrow_and_still_delivers_everything()
    test_a_failed_widening_returns_memory_up_to_the_arena()
    test_fitting_objects_are_served_and_more_after_enlarging()
    resize("1m")
    test_a_revoked_view_is_stale_even_where_its_memory_is_gone()
    with ApiServer(seed=1) as started:
        test_a_reflector_without_room_to_start_reports_it_and_ends(started)
        test_a_reflector_resumes_after_enlarging(started)
    print("good")  # noqa: T201
