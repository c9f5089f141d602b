"""Invariant tested: a refusal of the system - room in /dev/shm, address space, memory, or
descriptors - gives a clear error, changes nothing, leaks nothing, and work resumes once the
resource is available; and the wall clock decides nothing (G43, G44, G45). Cgroups:
test_limits.py."""

from __future__ import annotations

import errno
import fcntl
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
from wall_clock import WallClock
from workers import PATIENCE, Worker, eventually

import shmcache
from shmcache import states
from shmcache.memory.locations import SharedMemory
from shmcache.memory.segments import PREFIX, Place
from shmcache.processes.supervisor import Supervisor
from shmcache.reader.relay import Relay
from shmcache.testing import ApiServer
from shmcache.testing.serving import ServeThread

ROOT = Path(__file__).resolve().parents[2]
TESTS = ROOT / "tests"
MIB = 1 << 20

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")


def pod(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "prod"}, "spec": {"nodeName": "n"}}


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer(seed=1) as started:
        yield started


@contextmanager
def reflecting(
    server: ApiServer, name: str, directory: Path, **environment: str
) -> Iterator[subprocess.Popen[bytes]]:
    """A `shmcache run` that retries soon."""
    config = directory / "run.toml"
    config.write_text(
        f'name = "{name}"\nkubeconfig = "{server.kubeconfig(str(directory / "kubeconfig"))}"\n'
        "[reflector]\nbackoff_initial = 0.05\nbackoff_cap = 0.2\n[resources.pods]\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "shmcache", "run", "--config", str(config)],
        cwd=ROOT,
        env=os.environ | environment,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


# ---- /dev/shm ----------------------------------------------------------------------------------

MOUNT = 'mount -t tmpfs -o size=1m shmcache-test /dev/shm && exec "$@"'
READ_ONLY = 'mount --bind "$1" "$1" && mount -o remount,ro,bind "$1" && shift && exec "$@"'


def own_mounts(mounted: str, *command: str, at: str = "") -> subprocess.CompletedProcess[str]:
    """A command in a mount namespace of its own, where the shell's words mount something first."""
    own = ["unshare", "-m"] if os.geteuid() == 0 else ["unshare", "-Urm"]
    shell = [*own, "sh", "-c", mounted, "sh", *([at] if at else [])]
    try:
        tried = subprocess.run([*shell, "true"], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no unshare: apt-get install util-linux")
    if tried.returncode != 0:
        pytest.skip(f"mounting is not permitted: {tried.stderr.strip()}")
    return subprocess.run(
        [*shell, *command],
        capture_output=True,
        text=True,
        check=False,
        timeout=3 * PATIENCE,
        env=os.environ | {"PYTHONPATH": f"{ROOT}:{TESTS / 'support'}"},
    )


def test_g43_a_dev_shm_of_one_mebibyte_is_survived() -> None:
    """The writer, its readers and `shmcache run`: small_shm.py."""
    done = own_mounts(MOUNT, sys.executable, str(TESTS / "campaigns" / "small_shm.py"))

    assert (0, "good\n", "") == (done.returncode, done.stdout, done.stderr)


def test_a_reader_on_a_read_only_mount_gets_an_error_with_the_remedy(tmp_path: Path) -> None:
    """For example a volume with readOnly: true."""
    where = str(tmp_path / "cache")
    with shmcache.Writer(where, ["pods"]) as writer:
        writer.put("pods", "prod/web-0", pod("web-0"))
        attach = f"import shmcache; print(len(shmcache.attach({where!r})['pods']))"

        refused = own_mounts(READ_ONLY, sys.executable, "-c", attach, at=where)

        assert refused.returncode == 1
        last = refused.stderr.splitlines()[-1]
        assert last.startswith("OSError: [Errno 30] readers write to the seats of a cache"), last
        assert where in last
        with shmcache.attach(where) as cache:
            assert len(cache["pods"]) == 1


# ---- address space and memory ------------------------------------------------------------------


@contextmanager
def limited(kind: int, more: int) -> Iterator[None]:
    """This process may have at most so many bytes more than now."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    soft, hard = resource.getrlimit(kind)
    resource.setrlimit(kind, (pages * resource.getpagesize() + more, hard))
    try:
        yield
    finally:
        resource.setrlimit(kind, (soft, hard))


def is_about_space(error: OSError, size: str) -> bool:
    words = (size, "address space", "RLIMIT_AS is", "iB)", "ulimit -v", "smaller arena_max")
    return error.errno == errno.ENOMEM and all(word in str(error) for word in words)


def attach_in_little_space(pipe: Connection, large: str, small: str) -> None:
    shmcache.attach(large).close()  # created once per process
    before = open_descriptors()
    with limited(resource.RLIMIT_AS, 256 * MIB):
        for timeout in (None, 5.0):
            with pytest.raises(OSError, match="attaching") as refused:
                shmcache.attach(large, timeout=timeout)
            assert is_about_space(refused.value, "4 GiB"), refused.value
        assert before == open_descriptors()
        with shmcache.attach(small) as cache:
            assert ["a"] == list(cache["pods"])
    with shmcache.attach(large) as cache:
        pipe.send(list(cache["pods"]))


def test_g43_a_worker_with_too_little_address_space_gets_an_error_with_the_need(name: str) -> None:
    other = f"{name}-small"
    with (
        shmcache.Writer(name, ["pods"]) as large,
        shmcache.Writer(other, ["pods"], arena_max="16MiB") as small,
    ):
        for each in (large, small):
            each.put("pods", "a", {})
        with Worker("fork", attach_in_little_space, name, other) as worker:
            assert ["a"] == worker.hear()


def write_in_little_space(pipe: Connection, name: str) -> None:
    before = open_descriptors()
    place = Place(name)
    with limited(resource.RLIMIT_AS, 256 * MIB):
        for _ in range(2):
            with pytest.raises(OSError, match="creating DATA") as refused:
                shmcache.Writer(name, ["pods"])
            assert is_about_space(refused.value, "4 GiB"), refused.value
            assert [] == place.location.names(place.stem)
            assert before == open_descriptors()
        with shmcache.Writer(name, ["pods"], arena_max="16MiB") as writer:
            writer.put("pods", "a", {})
    pipe.send("good")


def test_g43_a_writer_with_too_little_address_space_gets_an_error_with_the_need(name: str) -> None:
    with Worker("fork", write_in_little_space, name) as worker:
        assert "good" == worker.hear()


def test_g43_a_reflector_with_too_little_address_space_ends_with_a_clear_error(
    name: str, server: ApiServer, tmp_path: Path
) -> None:
    config = server.kubeconfig(str(tmp_path / "kubeconfig"))
    run = [sys.executable, "-m", "shmcache", "run", "pods", "--cache", name, "--kubeconfig", config]
    done = subprocess.run(
        ["sh", "-c", 'ulimit -v 2000000 && exec "$@"', "sh", *run],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
    assert 75 == done.returncode, done.stderr
    assert "4 GiB of address space" in done.stderr
    assert "RLIMIT_AS is 1.907 GiB" in done.stderr
    assert "Traceback" not in done.stderr


def content(cache: shmcache.Cache) -> dict[str, Any]:
    with cache.snapshot() as at:
        return {key: view.to_dict() for key, view in at["pods"].items()}


def entry(number: int) -> tuple[str, Any, None]:
    """Nothing in it equals anything else: each text is a line in the table of equals."""
    return f"k{number}", {"n": number, "texts": [f"{number} and {i}" * 3 for i in range(20)]}, None


def holds(writer: shmcache.Writer, cache: shmcache.Cache, count: int) -> None:
    writer.check()
    assert content(cache) == {key: obj for key, obj, _ in map(entry, range(count))}


def write_in_little_memory(pipe: Connection, name: str) -> None:
    """Writes until the writer's own tables cannot grow: one by one, and in batches."""
    count = refused = 0
    with (
        shmcache.Writer(name, ["pods"], arena_max="256MiB", ring_slots=64) as writer,
        shmcache.attach(name) as cache,
    ):
        for size in (1, 50):
            entries, done = [entry(count + each) for each in range(size)], False
            with limited(resource.RLIMIT_AS, MIB // 4):
                try:
                    while True:
                        writer.put_many("pods", entries)
                        done = True
                        count += size
                        entries = [entry(count + each) for each in range(size)]
                        done = False
                except MemoryError:
                    refused += 1
            holds(writer, cache, count)
            if not done:
                writer.put_many("pods", entries)
                count += size
                holds(writer, cache, count)
    pipe.send((refused, count))


def test_g43_a_put_without_memory_did_not_happen(name: str) -> None:
    """In test_undo.c each allocation of the core fails once; here the limit is real."""
    with Worker("spawn", write_in_little_memory, name) as worker:  # no heap of an earlier test
        refused, count = worker.hear()
    assert (2, True) == (refused, count > 50)


# ---- descriptors -------------------------------------------------------------------------------

DESCRIPTORS = 256


def open_descriptors() -> list[int]:
    """Those below DESCRIPTORS, found without opening one."""
    found = []
    for fd in range(DESCRIPTORS):
        try:
            fcntl.fcntl(fd, fcntl.F_GETFD)
        except OSError:
            continue
        found.append(fd)
    return found


@contextmanager
def descriptors_left(count: int) -> Iterator[None]:
    """This process can open only so many more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, hard))
    taken: list[int] = []
    try:
        while True:
            try:
                taken.append(os.dup(2))
            except OSError:
                break
        for _ in range(count):
            os.close(taken.pop())
        yield
    finally:
        for fd in taken:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def use_a_queue(cache: shmcache.Cache) -> None:
    queue = cache.queue("work")
    queue.add("a")
    queue.close()


def doings(name: str, cache: shmcache.Cache) -> dict[str, Callable[[], object]]:
    """Every operation that opens something."""
    other = f"{name}-other"
    return {
        "attach": lambda: shmcache.attach(name).close(),
        "attach, waiting": lambda: shmcache.attach(name, timeout=PATIENCE).close(),
        "write": lambda: shmcache.Writer(other, ["pods"], arena_max="16MiB").close(),
        "queue": lambda: use_a_queue(cache),
        "relay": lambda: Relay(cache.reader, (1, 1, 0)).close(),
    }


def try_with_few_descriptors(pipe: Connection, name: str, what: str) -> None:
    cache = shmcache.attach(name)
    do = doings(name, cache)[what]
    do()  # created once per process
    before, names, failed = open_descriptors(), SharedMemory().names(PREFIX + name), 0
    for count in range(20):
        with descriptors_left(count):
            try:
                do()
            except OSError as error:
                assert error.errno == errno.EMFILE, repr(error)
                failed += 1
                succeeded = False
            else:
                succeeded = True
            assert ["a"] == list(cache["pods"])  # which needs none
            assert not cache.wait(cache.latest, timeout=0)
        assert before == open_descriptors(), (count, before, open_descriptors())
        assert names == SharedMemory().names(PREFIX + name)
        do()
        if succeeded:
            break
    else:
        raise AssertionError("it needs twenty descriptors")
    pipe.send(failed)


@pytest.mark.parametrize("what", doings("", None))  # type: ignore[arg-type]
def test_g44_without_descriptors_operations_fail_clearly_leak_nothing_and_recover(
    name: str, what: str
) -> None:
    with shmcache.Writer(name, ["pods"], arena_max="64MiB", ring_slots=64) as writer:
        writer.put("pods", "a", {})
        with Worker("fork", try_with_few_descriptors, name, what) as worker:
            assert worker.hear() > 0


def read_on_without_descriptors(pipe: Connection, name: str) -> None:
    with shmcache.attach(name) as cache:
        pipe.send("attached")
        pipe.recv()
        with descriptors_left(0):
            pipe.send("none left")
            pipe.recv()
            for _ in range(3):
                assert ["a"] == list(cache["pods"])
                assert not cache.wait(cache.latest, timeout=0.01)
        eventually(lambda: list(cache["pods"]) == ["b"], "it does not move on")
        pipe.send("moved on")


def test_g44_a_worker_without_descriptors_keeps_reading_when_its_writer_restarts(name: str) -> None:
    first = shmcache.Writer(name, ["pods"], arena_max="64MiB")
    first.put("pods", "a", {})
    first.set_state("pods", states.SYNCED, "1")
    with Worker("fork", read_on_without_descriptors, name) as worker:
        assert "attached" == worker.hear()
        first.close()
        with shmcache.Writer(name, ["pods"], arena_max="64MiB") as second:
            assert "none left" == worker.ask("go on")
            second.put("pods", "b", {})
            second.set_state("pods", states.SYNCED, "1")
            assert "moved on" == worker.ask("it is there")


def idle() -> None:
    while True:
        signal.pause()


def supervise_without_descriptors(pipe: Connection) -> None:
    supervisor = Supervisor([idle])
    opened, forks = os.pidfd_open, []

    def refused(pid: int) -> int:
        if pid != os.getpid():
            forks.append(pid)
            raise OSError(errno.EMFILE, "taken by another thread")
        return opened(pid)

    try:
        with descriptors_left(0):
            supervisor.start()
            assert supervisor.children[0].pid == 0
        os.pidfd_open = refused  # type: ignore[assignment]
        while not forks:
            supervisor.turn(0.01)
        assert supervisor.children[0].pid == 0
        with pytest.raises(ChildProcessError):
            os.waitpid(-1, os.WNOHANG)  # no child is left unsupervised
        os.pidfd_open = opened
        while not supervisor.alive:
            supervisor.turn(0.01)
    finally:
        supervisor.close()
    pipe.send("good")


def test_g44_a_supervisor_without_descriptors_has_no_unknown_child() -> None:
    with Worker("fork", supervise_without_descriptors) as worker:
        assert "good" == worker.hear()


def connection_to(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)


def is_answered(sock: socket.socket) -> bool:
    sock.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
    return sock.recv(4096).startswith(b"HTTP/1.1 200")


def serve_without_descriptors(pipe: Connection, name: str) -> None:
    with shmcache.attach(name) as cache, ServeThread(cache) as serve:
        pipe.send(serve.port)
        assert "open" == pipe.recv()
        with descriptors_left(0):
            used, begun = time.process_time(), time.monotonic()
            pipe.send("none left")
            pipe.recv()
            pipe.send((time.process_time() - used) / (time.monotonic() - begun))
        pipe.recv()


def test_g44_serve_without_descriptors_answers_connected_clients_and_lets_others_wait(
    name: str,
) -> None:
    with (
        shmcache.Writer(name, ["pods"], arena_max="64MiB", ring_slots=64),
        Worker("fork", serve_without_descriptors, name) as worker,
    ):
        port = worker.hear()
        with closing(connection_to(port)) as early:
            assert is_answered(early)
            assert "none left" == worker.ask("open")
            with closing(connection_to(port)) as late:  # the kernel accepts it
                late.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
                late.settimeout(0.5)
                with pytest.raises(TimeoutError):
                    late.recv(1)
                assert is_answered(early)
                share = worker.ask("how busy?")
                assert share < 0.5, "it spins"
                late.settimeout(PATIENCE)
                assert late.recv(4096).startswith(b"HTTP/1.1 200")


def test_g44_a_reflector_without_descriptors_reports_it_and_recovers(
    name: str, server: ApiServer, tmp_path: Path
) -> None:
    server.create("pods", pod("a"))
    server.go_down()
    with (
        reflecting(server, name, tmp_path) as run,
        shmcache.attach(name, timeout=PATIENCE) as cache,
    ):
        pods = cache["pods"]
        eventually(lambda: pods.status.state == "retrying", "it does not try")
        before = resource.prlimit(run.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(run.pid, resource.RLIMIT_NOFILE, (0, before[1]))
        server.come_back()
        eventually(lambda: "Too many open files" in pods.status.reason, "the reason is missing")

        resource.prlimit(run.pid, resource.RLIMIT_NOFILE, before)
        assert pods.wait_synced(PATIENCE)
        assert ["prod/a"] == list(pods)


# ---- clocks ------------------------------------------------------------------------------------


WORKER = """
import sys, time, shmcache
with shmcache.attach(sys.argv[1], timeout=60) as cache:
    pods, queue = cache["pods"], cache.queue("work")
    received = []
    pods.add_handler(lambda obj, initial: received.append(obj["metadata"]["name"]))
    cache.start()
    held = None
    print("ready", flush=True)
    for line in sys.stdin:
        version, name = line.split()
        assert pods.wait_for(version, 60), "it does not come"
        until = time.monotonic() + 60
        while name not in received:
            assert cache.wait(cache.latest, timeout=0.01) or time.monotonic() < until
        begun = time.monotonic()
        assert not pods.wait_for("99999999999", 0.05), "a wait ended too early"
        assert 0.05 <= time.monotonic() - begun, "a time limit came too early"
        queue.add_after(name, 0.05)
        assert queue.get(timeout=60, deadline=3600) == name, "a key that was to come later"
        queue.done(name)
        status = pods.status
        print(round(time.time()), status.state, round(status.age), flush=True)
"""


def test_g45_the_wall_clock_decides_nothing(name: str, server: ApiServer, tmp_path: Path) -> None:
    clock = WallClock(tmp_path)
    with (
        reflecting(server, name, tmp_path, **clock.environment),
        shmcache.attach(name, timeout=PATIENCE) as cache,
        subprocess.Popen(
            [sys.executable, "-c", WORKER, name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=os.environ | clock.environment,
        ) as worker,
    ):
        try:
            assert worker.stdin is not None
            assert worker.stdout is not None
            assert cache["pods"].wait_synced(PATIENCE)
            assert "ready\n" == worker.stdout.readline()
            for number, hours in enumerate((0, 30, -1000, 200_000, 0)):
                clock.move(hours * 3600)
                server.create("pods", pod(f"p{number}"))
                worker.stdin.write(f"{server.version} p{number}\n")
                worker.stdin.flush()
                words = worker.stdout.readline().split()
                assert words, "the worker has ended"
                assert abs(int(words[0]) - time.time() - hours * 3600) < 2 * PATIENCE, "not moved"
                assert "synced" == words[1]
                assert int(words[2]) < PATIENCE, "its age follows the wall clock"
            counters = cache["pods"].status.counters
            assert (0, 0) == (counters["errors"], counters["relists"])
            assert 1 == server.requests["watch", "pods"], server.requests
        finally:
            worker.kill()
