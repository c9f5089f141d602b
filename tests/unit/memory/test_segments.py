"""Invariant tested: any file under a cache's name is either ours and safe, or refused."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from shmcache.errors import BusyError, LayoutMismatch, SegmentNotFound, UntrustedSegment
from shmcache.memory.locations import SharedMemory
from shmcache.memory.segments import (
    LAYOUT_VERSION,
    PREFIX,
    Current,
    Place,
    boot_id,
    cache_names,
    check_name,
)

CURRENT = Current(data=0x1234, seats=0xFEDC, max_size=1 << 20)


@pytest.fixture(params=["shared memory", "directory"])
def place(request: pytest.FixtureRequest, name: str, tmp_path: Path) -> Iterator[Place]:
    """A place of each kind, removed afterwards."""
    made = Place(name if request.param == "shared memory" else str(tmp_path / "cache"))
    made.location.prepare()
    yield made
    made.unlink()


def mode_of(place: Place, file: str) -> int:
    return stat.S_IMODE(os.stat(place.location.file(file)).st_mode)


@pytest.mark.parametrize("good", ["a", "pods", "A.b_c-9", "x" * 100])
def test_a_name_of_letters_digits_and_three_signs_is_taken(good: str) -> None:
    assert good == check_name(good)


@pytest.mark.parametrize("bad", ["", ".x", "-x", "a b", "a\0b", "ä", "x" * 101, "a\n"])
def test_another_name_is_refused_with_the_rule(bad: str) -> None:
    with pytest.raises(ValueError, match="letters, digits"):
        Place(bad)


def test_a_name_that_is_not_a_str_is_refused() -> None:
    with pytest.raises(TypeError, match="must be a str"):
        Place(5)  # type: ignore[arg-type]


def test_the_boot_id_is_sixteen_bytes_and_stays() -> None:
    assert (16, boot_id()) == (len(boot_id()), boot_id())


def test_a_published_segment_is_found(place: Place) -> None:
    place.publish(CURRENT, 0o600)

    assert str(CURRENT) == str(place.current())


def test_a_pointer_of_another_user_is_refused_in_words_and_leaves_no_file(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a directory with the sticky bit another user's file cannot be replaced."""

    def squatted(*_: str) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(type(place.location), "replace", squatted)
    before = set(place.location.names(place.stem))
    with pytest.raises(UntrustedSegment, match="belongs to another user: remove it, or choose"):
        place.publish(CURRENT, 0o600)

    assert set(place.location.names(place.stem)) == before


def test_publishing_again_replaces(place: Place) -> None:
    place.publish(CURRENT, 0o600)
    place.publish(Current(data=5, seats=6, max_size=7), 0o600)

    assert 5 == place.current().data
    assert [] == place.instances()


def test_a_missing_cache_is_not_found(place: Place) -> None:
    with pytest.raises(SegmentNotFound):
        place.current()
    with pytest.raises(SegmentNotFound):
        place.open_data(1)


@pytest.mark.parametrize("mask", [0o000, 0o077, 0o777])
def test_modes_are_exact_whatever_the_umask(place: Place, mask: int) -> None:
    old = os.umask(mask)
    try:
        for kind in ("data", "seats"):
            os.close(place.create(kind, 1, 0o640))
        place.publish(CURRENT, 0o640)
        lock = place.take_lock()
    finally:
        os.umask(old)
    os.close(lock)

    expected = {"data": 0o640, "seats": 0o660}
    for kind, mode in expected.items():
        assert mode == mode_of(place, f"{place.stem}.{1:016x}.{kind}")
    assert 0o640 == mode_of(place, place.stem + ".cache")
    assert 0o600 == mode_of(place, place.stem + ".lock")


def test_an_instance_is_created_once(place: Place) -> None:
    os.close(place.create("data", 1, 0o600))

    with pytest.raises(FileExistsError):
        place.create("data", 1, 0o600)


def test_descriptors_close_on_exec(place: Place) -> None:
    os.close(place.create("data", 1, 0o600))
    place.publish(CURRENT, 0o600)

    for fd in (place.create("data", 2, 0o600), place.take_lock(), place.open_data(1)):
        assert not os.get_inheritable(fd)
        os.close(fd)


def test_data_is_opened_for_reading_only_and_seats_for_both(place: Place) -> None:
    os.close(place.create("data", 1, 0o600))
    os.close(place.create("seats", 2, 0o600))
    data, seats = place.open_data(1), place.open_seats(2)
    try:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.write(data, b"x")
        assert 1 == os.write(seats, b"x")
    finally:
        os.close(data)
        os.close(seats)


def test_a_symbolic_link_is_not_followed(place: Place, tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text(str(CURRENT))
    for end in (".cache", ".lock"):
        os.symlink(target, place.location.file(place.stem + end))

    with pytest.raises(UntrustedSegment):
        place.current()
    with pytest.raises((UntrustedSegment, OSError)):
        place.take_lock()
    assert str(CURRENT) == target.read_text()


def test_a_fifo_a_directory_and_a_socket_are_refused_at_once(place: Place) -> None:
    path = place.location.file(place.stem + ".cache")

    os.mkfifo(path)
    with pytest.raises(UntrustedSegment):
        place.current()
    os.unlink(path)
    os.mkdir(path)
    with pytest.raises(UntrustedSegment):
        place.current()
    os.rmdir(path)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        with pytest.raises(UntrustedSegment):
            place.current()


def test_a_foreign_owner_is_refused_unless_named(place: Place) -> None:
    place.publish(CURRENT, 0o600)
    stranger = Place(place.name)
    stranger.trusted = frozenset((4242,))  # as if we were that uid

    with pytest.raises(UntrustedSegment, match=rf"uid {os.geteuid()}.*trusted_uids"):
        stranger.current()
    stranger.trusted |= {os.geteuid()}
    assert 0x1234 == stranger.current().data
    assert {os.geteuid(), 0, 4242} == Place(place.name, (4242,)).trusted


def test_a_lock_file_is_our_own_whomever_we_trust(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.close(place.take_lock())
    owner = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: 4242)

    with pytest.raises(UntrustedSegment, match=f"uid {owner}"):
        Place(place.name, (owner,)).take_lock()


def test_data_that_others_can_write_is_refused(place: Place) -> None:
    os.close(place.create("data", 1, 0o600))
    os.chmod(place.location.file(f"{place.stem}.{1:016x}.data"), 0o620)

    with pytest.raises(UntrustedSegment, match="writable for others"):
        place.open_data(1)


@pytest.mark.parametrize("text", ["", "shmcache", "other 1 2 3\n", "shmcache x y z", "\xff" * 300])
def test_a_pointer_that_reads_otherwise_is_of_another_version(place: Place, text: str) -> None:
    place.publish(CURRENT, 0o600)
    Path(place.location.file(place.stem + ".cache")).write_text(text, encoding="latin-1")

    with pytest.raises(LayoutMismatch, match="not a cache of this version"):
        place.current()


def test_the_lock_is_held_once_and_names_its_holder(place: Place) -> None:
    assert not place.writer_alive()
    lock = place.take_lock()

    with pytest.raises(BusyError, match=f"pid {os.getpid()}"):
        place.take_lock()
    with pytest.raises(BusyError):
        place.remove()
    assert place.writer_alive()

    os.close(lock)
    assert not place.writer_alive()
    os.close(place.take_lock())


def test_a_lock_file_removed_under_us_is_recreated(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = place._open_lock
    removals = [True]

    def open_and_lose(self: Place, name: str) -> int:
        fd = opened(name)
        if removals:
            removals.pop()
            self.location.unlink(name)
        return fd

    monkeypatch.setattr(Place, "_open_lock", open_and_lose)
    lock = place.take_lock()

    assert place.writer_alive()
    os.close(lock)


def test_only_the_instances_of_this_very_cache_are_unlinked(name: str) -> None:
    place, other = Place(name), Place(name + ".0123456789abcdef")
    try:
        for kind in ("data", "seats"):
            os.close(place.create(kind, 1, 0o600))
            os.close(place.create(kind, 2, 0o600))
            os.close(other.create(kind, 1, 0o600))

        assert 2 == place.unlink_instances(keep=Current(1, 1, 0))
        assert 2 == len(place.instances()) == len(other.instances())
    finally:
        other.unlink()


def test_removing_a_cache_leaves_nothing(place: Place) -> None:
    place.publish(CURRENT, 0o600)
    os.close(place.create("data", 1, 0o600))

    place.remove()

    assert [] == place.location.names(place.stem)
    place.remove()


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo, lambda path: os.symlink("/gone", path)],
                         ids=["directory", "FIFO", "link"])  # fmt: skip
@pytest.mark.parametrize("end", [".ask", ".times", ".recorder", ".a.queue", ".a.newqueue",
                                 "@a.board", f".{5:016x}.data"])  # fmt: skip
def test_a_name_that_another_user_took_keeps_no_other_from_being_removed(
    place: Place, end: str, make: Callable[[str], None]
) -> None:
    place.publish(CURRENT, 0o600)
    os.close(place.create("data", 1, 0o600))
    taken = place.stem + end
    make(place.location.file(taken))
    try:
        place.remove()

        assert set(place.location.names(place.stem)) <= {taken}
    finally:
        if os.path.isdir(place.location.file(taken)):
            os.rmdir(place.location.file(taken))
        else:
            place.clear(taken)


def test_caches_in_shared_memory_are_listed(name: str) -> None:
    place = Place(name)
    assert name not in cache_names()
    place.publish(CURRENT, 0o600)

    assert name in cache_names()
    assert [place.stem + ".cache"] == SharedMemory().names(PREFIX + name)


def test_the_error_of_a_full_file_system_explains_how_to_get_room(place: Place) -> None:
    text = str(place.full(5 << 20))

    for word in ("5 MiB", place.location.path, "--shm-size", "emptyDir", "remount"):
        assert word in text


def test_a_cache_of_another_release_is_named(tmp_path: Path) -> None:
    (tmp_path / f"shmcache-v{LAYOUT_VERSION + 1}-cache.cache").write_text("x")
    (tmp_path / "shmcache-v4-other.cache").write_text("x")
    (tmp_path / "shmcache-vnext-cache.cache").write_text("x")

    with pytest.raises(
        SegmentNotFound, match=f"only version {LAYOUT_VERSION + 1}: another release of shmcache"
    ):
        Place(str(tmp_path)).current()
