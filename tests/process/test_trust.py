"""Invariant tested: whatever files have a cache's names, attaching either serves a whole cache or
states clearly what is wrong; it never crashes, hangs, or reads a stranger's plant."""

from __future__ import annotations

import os
import random
import shutil
import signal
import stat
import struct
from collections import Counter
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import orjson
import pytest
from workers import Worker

import shmcache
from shmcache.controllers.board import Board
from shmcache.errors import (
    CorruptSegment,
    LayoutMismatch,
    SegmentNotFound,
    ShmCacheError,
    UntrustedSegment,
)
from shmcache.memory.segments import LAYOUT_VERSION, Place
from shmcache.queue.queuefile import file_of as file_of_queue
from shmcache.queue.workqueue import WorkQueue

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to act as other users")

EXAMPLES = int(os.environ.get("SHMCACHE_EXAMPLES") or 40)
OWNER, STRANGER, FRIEND = 12345, 65534, 23456
FILES = ["cache", "data", "seats"]


def content(cache: shmcache.Cache) -> dict[str, Any]:
    with cache.snapshot() as at:
        return {key: view.to_dict() for key, view in at["pods"].items()}


def outcome(name: str) -> Any:
    """The result of attaching and reading everything: the content, or the error's name and text."""
    try:
        with shmcache.attach(name) as cache:
            cache.follow(start=0)
            return content(cache)
    except (ShmCacheError, OSError, KeyError) as error:  # KeyError: an older root, without pods
        return type(error).__name__, str(error)


# ---- users --------------------------------------------------------------------------------------


def attacher(pipe: Connection, name: str, uid: int, trusted: list[int]) -> None:
    """As another user."""
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    try:
        with shmcache.attach(name, trusted_uids=trusted) as cache:
            pipe.send(content(cache))
    except (ShmCacheError, OSError) as error:
        pipe.send((type(error), str(error)))


def attach_as(uid: int, name: str, trusted: tuple[int, ...] = ()) -> Any:
    with Worker("fork", attacher, name, uid, list(trusted)) as worker:
        return worker.hear()


def chown(writer: shmcache.Writer, uid: int, ends: tuple[str, ...] = ("cache", "data", "seats")):  # type: ignore[no-untyped-def] # noqa: ANN201
    place = writer.place
    for file in place.location.names(place.stem):
        if file.endswith(ends):
            os.chown(place.location.file(file), uid, uid)


@pytest.fixture
def open_to_all(name: str) -> Iterator[shmcache.Writer]:
    with shmcache.Writer(name, ["pods"], mode=0o644) as writer:
        writer.put("pods", "a", {"x": 1})
        yield writer


@as_root
def test_a_cache_of_another_user_is_refused_unless_trusted(
    open_to_all: shmcache.Writer,
) -> None:
    name = open_to_all.name
    assert {"a": {"x": 1}} == attach_as(STRANGER, name)  # root's

    chown(open_to_all, OWNER)

    kind, text = attach_as(STRANGER, name)
    assert UntrustedSegment is kind
    assert f"uid {OWNER}" in text
    assert "trusted_uids" in text
    assert {"a": {"x": 1}} == attach_as(STRANGER, name, (OWNER,)) == attach_as(OWNER, name)
    assert UntrustedSegment is attach_as(STRANGER, name, (FRIEND,))[0]
    with pytest.raises(UntrustedSegment, match=f"uid {OWNER}"):
        shmcache.attach(name)  # root does not trust other users either


@as_root
@pytest.mark.parametrize("end", FILES)
def test_one_foreign_file_is_enough_to_refuse(open_to_all: shmcache.Writer, end: str) -> None:
    chown(open_to_all, OWNER, (end,))

    kind, text = attach_as(STRANGER, open_to_all.name)

    assert UntrustedSegment is kind
    assert text.split()[0].endswith(end)


@as_root
def test_a_file_without_read_permission_gives_the_systems_error(name: str) -> None:
    with shmcache.Writer(name, ["pods"]) as writer:
        assert PermissionError is attach_as(STRANGER, writer.name)[0]


@as_root
def test_a_lock_file_that_a_stranger_planted_is_refused(name: str) -> None:
    with shmcache.Writer(name) as writer:
        path = writer.place.location.file(writer.place.stem + ".lock")
    with open(path, "x", encoding="ascii") as file:
        os.fchown(file.fileno(), STRANGER, STRANGER)

    with pytest.raises(UntrustedSegment, match=str(STRANGER)):
        shmcache.Writer(name)

    assert "" == Path(path).read_text(encoding="ascii")


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o604, 0o644])
@pytest.mark.parametrize("mask", [0o000, 0o077, 0o777])
def test_modes_are_as_configured_whatever_the_umask(name: str, mode: int, mask: int) -> None:
    before = os.umask(mask)
    try:
        with shmcache.Writer(name, ["pods"], mode=mode) as writer:
            writer.put("pods", "a", {"x": "y" * 1000})
            with shmcache.attach(name) as cache:
                assert ["a"] == list(cache["pods"])
            location = writer.place.location
            modes = {
                file.rsplit(".", 1)[1]: stat.S_IMODE(os.stat(location.file(file)).st_mode)
                for file in location.names(writer.place.stem)
            }
    finally:
        os.umask(before)
    seats = mode | (mode & 0o044) >> 1
    assert {"lock": 0o600, "cache": mode, "data": mode, "seats": seats} == modes


@pytest.mark.parametrize("mask", [0o000, 0o077])
def test_a_directory_is_made_and_its_files_have_their_modes(tmp_path: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        with shmcache.Writer(str(tmp_path / "new"), ["pods"], mode=0o640) as writer:
            found = {path.suffix: stat.S_IMODE(path.stat().st_mode)
                     for path in (tmp_path / "new").iterdir()}  # fmt: skip
            assert {".lock": 0o600, ".cache": 0o640, ".data": 0o640, ".seats": 0o660} == found
            shmcache.attach(writer.name).close()
    finally:
        os.umask(before)


# ---- planted or broken files --------------------------------------------------------------------


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """A cache in a directory, which tests can break at will: its writer works on the original."""
    with shmcache.Writer(
        str(tmp_path / "original"), ["pods"], arena_max="4MiB", ring_slots=256
    ) as writer:
        writer.put_many("pods", [(f"k{n}", {"n": n, "text": "x" * n}, None) for n in range(100)])
        shutil.copytree(tmp_path / "original", tmp_path / "copy")
    return tmp_path / "copy"


def file_of(copied: Path, end: str) -> Path:
    (found,) = copied.glob(f"*.{end}")
    return found


def patch(path: Path, offset: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(data)


WHOLE = {f"k{n}": {"n": n, "text": "x" * n} for n in range(100)}


def test_an_untouched_copy_is_served_without_a_writer(copied: Path) -> None:
    assert WHOLE == outcome(str(copied))


@pytest.mark.parametrize("end", FILES)
def test_a_planted_link_is_not_followed(copied: Path, tmp_path: Path, end: str) -> None:
    path, target = file_of(copied, end), tmp_path / "target"
    path.rename(target)
    path.symlink_to(target)
    before = target.read_bytes()

    with pytest.raises(UntrustedSegment, match="not a file"):
        shmcache.attach(str(copied))

    assert before == target.read_bytes()


def test_a_writer_does_not_follow_a_planted_link_either(name: str, tmp_path: Path) -> None:
    with shmcache.Writer(name) as writer:
        place = writer.place
    (tmp_path / "precious").write_text("precious")
    for end in (".lock", ".cache"):
        os.symlink(tmp_path / "precious", place.location.file(place.stem + end))

    with pytest.raises(UntrustedSegment):
        shmcache.Writer(name)

    place.location.unlink(place.stem + ".lock")
    with shmcache.Writer(name, ["pods"]) as writer:
        writer.put("pods", "a", {})
        with shmcache.attach(name) as cache:
            assert ["a"] == list(cache["pods"])
    assert "precious" == (tmp_path / "precious").read_text()


@pytest.mark.parametrize("end", FILES)
@pytest.mark.parametrize("what", ["fifo", "directory", "nothing"])
def test_a_name_that_is_not_a_regular_file_is_refused_at_once(
    copied: Path, end: str, what: str
) -> None:
    path = file_of(copied, end)
    path.unlink()
    if what == "fifo":
        os.mkfifo(path)
    elif what == "directory":
        path.mkdir()
    expected = SegmentNotFound if what == "nothing" else UntrustedSegment

    with pytest.raises(expected):
        shmcache.attach(str(copied))


HEADERS: list[tuple[str, str, int, bytes, type[Exception]]] = [
    # as drawn in layout.h
    ("magic", "data", 0, b"SHMCSOUP", CorruptSegment),
    ("version", "data", 8, struct.pack("<I", LAYOUT_VERSION + 1), LayoutMismatch),
    ("signature", "data", 12, struct.pack("<I", 0), LayoutMismatch),
    ("instance", "data", 16, struct.pack("<Q", 1), LayoutMismatch),
    ("boot id", "data", 24, bytes(16), LayoutMismatch),
    ("magic", "seats", 0, bytes(8), CorruptSegment),
    ("version", "seats", 8, struct.pack("<I", LAYOUT_VERSION + 1), LayoutMismatch),
    ("signature", "seats", 12, struct.pack("<I", 0), LayoutMismatch),
    ("instance", "seats", 16, struct.pack("<Q", 1), LayoutMismatch),
    ("no seats", "seats", 24, struct.pack("<Q", 0), CorruptSegment),
    ("too many seats", "seats", 24, struct.pack("<Q", 1 << 40), CorruptSegment),
    ("ring", "data", 48, struct.pack("<Q", 3), CorruptSegment),
    ("huge ring", "data", 48, struct.pack("<Q", 1 << 40), CorruptSegment),
    ("arena", "data", 56, struct.pack("<Q", 1), CorruptSegment),
    ("huge size", "data", 128, struct.pack("<Q", 1 << 40), CorruptSegment),
    ("longer than its file", "data", 128, struct.pack("<Q", 4 << 20), CorruptSegment),
]


@pytest.mark.parametrize(
    ("end", "offset", "data", "expected"),
    [header[1:] for header in HEADERS],
    ids=[f"{header[1]}-{header[0]}" for header in HEADERS],
)
def test_an_invalid_header_is_refused_with_its_reason(
    copied: Path, end: str, offset: int, data: bytes, expected: type[Exception]
) -> None:
    patch(file_of(copied, end), offset, data)

    with pytest.raises(expected, match="attaching to cache"):
        shmcache.attach(str(copied))


@pytest.mark.parametrize("size", [0, 1, 7, 64, 1000, 4096, 5000, 8192, 20_000])
@pytest.mark.parametrize("end", ["data", "seats"])
def test_a_truncated_segment_is_refused(copied: Path, end: str, size: int) -> None:
    path = file_of(copied, end)
    if size >= path.stat().st_size:
        size = path.stat().st_size - 1
    os.truncate(path, size)

    with pytest.raises((CorruptSegment, LayoutMismatch), match="attaching to cache"):
        shmcache.attach(str(copied))


POINTERS = [
    "",
    "shmcache",
    "shmcache 1 2",
    "shmcache 1 2 3 4",
    "shmcache x 2 4096",
    "shmcache {data} {seats} 0",
    "shmcache {data} {seats} -1",
    "shmcache {data} {seats} 4096",
    "shmcache {data} {seats} 4194305",
    "shmcache {data} {seats} 99999999999999999999999999",
    "shmcache {data} {seats} 9223372036854775807",
    "shmcache {data}{data} {seats} 4194304",
    "shmcache -1 {seats} 4194304",
    "shmcache {data} -{seats} 4194304",
    "shmcache {seats} {data} 4194304",
    "\0" * 100,
    "x" * 5000,
]


@pytest.mark.parametrize("text", POINTERS, ids=[repr(each[:45]) for each in POINTERS])
def test_an_invalid_pointer_is_refused_with_its_reason(copied: Path, text: str) -> None:
    path = file_of(copied, "cache")
    _, data, seats, _ = path.read_text().split()
    path.write_text(text.format(data=data, seats=seats) + "\n")

    with pytest.raises((LayoutMismatch, CorruptSegment, SegmentNotFound), match=r"cache|shmcache"):
        shmcache.attach(str(copied))


def attach_and_tell(pipe: Connection, directory: str) -> None:
    signal.alarm(60)
    while True:
        pipe.recv()
        pipe.send(outcome(directory))


def flip_bits(rng: random.Random, data: bytearray) -> None:
    for _ in range(rng.randrange(1, 4)):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def overwrite(rng: random.Random, data: bytearray) -> None:
    start = rng.randrange(len(data)) & ~7
    data[start : start + 8] = struct.pack(
        "<Q", rng.choice([0, 1, 8, 1 << 63, (1 << 64) - 1, len(data), rng.getrandbits(64)])
    )[: len(data) - start]


def cut(rng: random.Random, data: bytearray) -> None:
    del data[rng.randrange(len(data)) :]


DAMAGES: list[Callable[[random.Random, bytearray], None]] = [flip_bits, overwrite, cut]


OBJECT, ARRAY, TAG = 7, 6, 7  # the three lowest bits of a word in DATA
READS: dict[str, Callable[[shmcache.Cache], list[Any]]] = {
    "get": lambda cache: [cache["pods"][f"k{n}"] for n in range(100)],
    "scan": lambda cache: list(cache["pods"].values()),
    "delta": lambda cache: [delta.new for delta in cache.follow(start=0).take(200) if delta.key],
    "json": lambda cache: orjson.loads(
        b"[%b]" % cache.reader.root().scan_json(("all", b"", b"", 1 << 20), 0)[0]
    ),
}


@pytest.mark.parametrize("read", READS)
def test_an_entry_that_is_not_an_object_is_refused(copied: Path, read: str) -> None:
    """The words of objects, in tree, directory and ring, become words of arrays."""
    path = file_of(copied, "data")
    good = path.read_bytes()
    places: dict[int, list[int]] = {}
    for number, (word,) in enumerate(struct.iter_unpack("<Q", good)):
        if word & TAG == OBJECT and OBJECT < word < len(good):
            places.setdefault(word, []).append(number * 8)
    # A number, such as a hash, can look like such a word; no head of an object lies behind it.
    heads = Counter(good[word - OBJECT : word - OBJECT + 8] for word in places)
    ((head, _),) = heads.most_common(1)
    roots = {word: found for word, found in places.items() if good.startswith(head, word - OBJECT)}
    refused = 0
    with shmcache.attach(str(copied)) as cache:
        for word, found in roots.items():
            for place in found:
                patch(path, place, struct.pack("<Q", word - OBJECT + ARRAY))
            try:
                objects = READS[read](cache)
                assert len(objects) == 100
                assert all(isinstance(each, shmcache.View | dict) for each in objects)
            except CorruptSegment:
                refused += 1
            for place in found:
                patch(path, place, struct.pack("<Q", word))
    assert refused == 100, "each of the objects, and nothing else"


@pytest.mark.slow
@pytest.mark.parametrize("end", FILES)
def test_a_damaged_file_is_served_whole_or_refused_and_never_crashes(
    copied: Path, rng: random.Random, end: str
) -> None:
    """Random damage before attaching; the head of the file is hit more often than the rest."""
    path = file_of(copied, end)
    good = path.read_bytes()
    refused = 0
    with Worker("fork", attach_and_tell, str(copied)) as worker:
        for _ in range(EXAMPLES * 5):
            head = bytearray(good[: rng.choice([64, 1024, 4096, 1 << 20])])
            damage = rng.choice(DAMAGES)
            damage(rng, head)
            rest = b"" if damage is cut else good[len(head) :]
            path.write_bytes(bytes(head) + rest)

            found = worker.ask("again")

            if isinstance(found, tuple):
                refused += 1
                assert found[0] not in {"OSError", "ShmCacheError"}, found
                assert len(found[1]) > 20, "the text is too short"
    assert refused > 0


# ---- the next writer, queues and boards ---------------------------------------------------------

OPTIONS: dict[str, Any] = {"arena_max": "4MiB", "ring_slots": 64}


def other_boot(path: Path) -> None:
    patch(path, 24, bytes(16))


def other_build(path: Path) -> None:
    patch(path, 12, struct.pack("<I", 0))


def link(path: Path) -> None:
    path.rename(path.parent.parent / "target")
    path.symlink_to(path.parent.parent / "target")


def strangers(path: Path) -> None:
    os.chown(path, STRANGER, STRANGER)


@pytest.mark.parametrize(
    ("end", "plant"),
    [
        ("data", other_boot),  # SEATS does not hold its boot id
        *[(end, plant) for end in ("data", "seats") for plant in (other_build, link)],
        *[pytest.param(end, strangers, marks=as_root) for end in ("data", "seats")],
    ],
)
def test_a_writer_resumes_only_what_is_its_own(
    copied: Path, end: str, plant: Callable[[Path], None]
) -> None:
    """Files of another boot, another build, another user, or a link: it starts from scratch."""
    path = file_of(copied, end)
    plant(path)
    before = (copied.parent / "target").read_bytes() if plant is link else b""

    with shmcache.Writer(str(copied), ["pods"], **OPTIONS) as writer:
        assert not writer.inherited
        writer.put("pods", "new", {"n": 1})
        with shmcache.attach(str(copied)) as cache:
            assert ["new"] == list(cache["pods"])

    if plant is link:
        assert before == (copied.parent / "target").read_bytes(), "the link's target was touched"


@pytest.mark.parametrize("plant", [link, pytest.param(strangers, marks=as_root)])
def test_a_planted_queue_or_board_is_refused(tmp_path: Path, plant: Callable[[Path], None]) -> None:
    (tmp_path / "cache").mkdir()
    place = Place(str(tmp_path / "cache"))
    for name in (file_of_queue(place, "work"), f"{place.stem}@work.board"):
        path = tmp_path / "cache" / name
        path.write_bytes(b"x" * 4096)
        plant(path)
    (tmp_path / "target").write_bytes(b"precious")

    with pytest.raises(UntrustedSegment):
        WorkQueue(place, "work", slots=64)
    with pytest.raises(UntrustedSegment):
        Board(place, "work")

    assert b"precious" == (tmp_path / "target").read_bytes()
