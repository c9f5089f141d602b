"""Run in a mount namespace of its own: a cache in a small file system, filled to the brim.

full_disk.py DIRECTORY      (a tmpfs of 4 MiB; it is enlarged here)
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import Any

import shmcache
from shmcache.errors import CacheFull

KIB = 1024


def text(number: int, size: int) -> dict[str, Any]:
    return {"n": number, "text": f"{number:04d}" * (size // 4)}


def content(cache: shmcache.Cache) -> dict[str, Any]:
    with cache.snapshot() as at:
        found = {key: view.to_dict() for key, view in at["pods"].items()}
        assert at["pods"].index_values("n") == sorted(str(each["n"]) for each in found.values())
        return found


def seen_by_another(name: str) -> int:
    """Attaching and reading need no room."""
    pid = os.fork()
    if pid == 0:
        with shmcache.attach(name) as cache:
            os._exit(len(content(cache)))
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def fill(writer: shmcache.Writer, size: int) -> CacheFull:
    """Until it is full, also after all garbage was reclaimed."""
    failed = 0
    for number in range(10_000):
        try:
            writer.put("pods", f"k{number - failed:04d}", text(number, size))
        except CacheFull as full:
            failed += 1
            if failed == 5:
                return full
    raise AssertionError("it is never full")


def follow_advice(full: CacheFull) -> None:
    """Runs the command that the error names, as an administrator would copy it."""
    found = re.search(r"`(mount -o [^`]*)`", str(full))
    assert found is not None, full
    subprocess.run(found[1].split(), check=True)


def test_full(mount: str) -> None:
    directory = os.path.join(mount, "cache")  # a mount point is not always the cache's directory
    pods = shmcache.Resource("pods", {"n": "n"})
    with shmcache.Writer(directory, [pods], arena_max="64MiB", ring_slots=64) as writer:
        cache = shmcache.attach(directory)
        full = fill(writer, 30 * KIB)
        for word in (
            f": {mount} is full: ",
            " needed. Enlarge it (`mount -o remount,size=16M ",
            "docker run --shm-size=16m",
            f"sizeLimit: 16Mi, mounted at {mount})",
        ):
            assert word in str(full), (word, str(full))
        before, latest = content(cache), cache.latest
        assert len(before) >= 10, "hardly any object fits"

        # no failed change becomes visible, whatever it is
        for refused in (
            lambda: writer.put("pods", "new", text(9, 300 * KIB)),
            lambda: writer.put_many(
                "pods", [("small", {}, None), ("large", text(9, 300 * KIB), None)]
            ),
            lambda: writer.replace("pods", [replacement(n) for n in range(100)]),
        ):
            try:
                refused()
            except CacheFull as error:
                assert directory in str(error)
            else:
                raise AssertionError("there is no room for that")
            writer.check()
            assert (before, latest) == (content(cache), cache.latest)
        with_batch(writer)
        assert before == content(cache)
        assert len(before) == seen_by_another(directory)

        # enlarging gives room again
        follow_advice(full)
        writer.put("pods", "new", text(9000, 300 * KIB))
        assert {**before, "new": text(9000, 300 * KIB)} == content(cache)
        # and so does deleting
        fill(writer, 30 * KIB)
        writer.drop_window()
        writer.reclaim()
        for key in list(cache["pods"]):
            writer.delete("pods", key)
            writer.drop_window()
            writer.reclaim()
        writer.put("pods", "new", text(9001, 300 * KIB))
        assert text(9001, 300 * KIB) == cache["pods"]["new"]
        writer.check()
        cache.close()
    assert [] == os.listdir(directory)
    os.rmdir(directory)


def replacement(number: int) -> dict[str, Any]:
    return {"metadata": {"name": f"r{number}"}, **text(5000 + number, 30 * KIB)}


def with_batch(writer: shmcache.Writer) -> None:
    """A batch that runs out of room is aborted, also if the caller ignores the error."""
    try:
        with writer.batch():
            writer.delete("pods", "k0000")
            try:
                writer.put("pods", "new", text(9, 300 * KIB))
            except CacheFull:
                pass
            raise KeyError
    except KeyError:
        pass
    writer.check()


def test_no_room_to_start(directory: str) -> None:
    with open(os.path.join(directory, "other"), "wb", buffering=0) as other:
        try:
            while True:
                other.write(b"x" * KIB)
        except OSError:
            pass
    for _ in range(3):
        try:
            shmcache.Writer(directory, ["pods"], ring_slots=64)
        except CacheFull as full:
            assert " needed. Enlarge it" in str(full), full
        else:
            raise AssertionError("there is no room at all")
        assert ["other"] == os.listdir(directory), os.listdir(directory)
    os.unlink(os.path.join(directory, "other"))
    with shmcache.Writer(directory, ["pods"], ring_slots=64) as writer:
        writer.put("pods", "a", {})


if __name__ == "__main__":
    test_full(sys.argv[1])
    test_no_room_to_start(sys.argv[1])
    print("good")  # noqa: T201
