"""Invariant tested (G24): under gunicorn, whichever process is killed, no request fails and no
answer goes back in time; there is one reflector, and it ends with its master."""

from __future__ import annotations

import bisect
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Self

import pytest
from masters import APPLICATION, Gunicorn, Load, ask
from workers import PATIENCE, eventually

import shmcache
from shmcache import states
from shmcache.memory.locations import SharedMemory
from shmcache.memory.segments import PREFIX
from shmcache.testing import ApiServer

pytest.importorskip("gunicorn", reason="needs gunicorn: pip install gunicorn")
pytestmark = pytest.mark.slow

PODS = 30
SLACK = 10.0
"""Seconds that a busy machine may take to carry a change; a defect takes minutes, or for ever."""


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory with a short path, since sockets need one."""
    made = tempfile.mkdtemp(prefix="shmcache-")
    yield Path(made)
    shutil.rmtree(made)


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer(seed=1) as started:
        for number in range(PODS - 1):
            started.create("pods", {"metadata": {"name": f"web-{number}", "namespace": "prod"}})
        started.create("pods", clock(0))
        yield started


def clock(at: int) -> dict[str, object]:
    return {"metadata": {"name": "clock", "namespace": "prod", "labels": {"at": str(at)}}}


class Clock:
    """Writes a rising number into one pod, and records when it wrote each."""

    def __init__(self, server: ApiServer) -> None:
        self.times: list[float] = [time.monotonic()]
        self._server = server
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while not self._stop.wait(0.1):
            self._server.update("pods", clock(len(self.times)))
            self.times.append(time.monotonic())

    def written_by(self, moment: float) -> int:
        """The last number that had been written at that time."""
        return max(0, bisect.bisect_right(self.times, moment) - 1)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


def words(server: ApiServer, name: str, more: str = "") -> str:
    return f"'pods', name={name!r}, options=['--server', {server.url!r}], silence=4.0{more}"


def left_behind(name: str) -> list[str]:
    return SharedMemory().names(PREFIX + name)


def follows(load: Load, time_of: Clock) -> None:
    """Returns once answers show everything written from now on, so a reflector works."""
    wanted = len(time_of.times)
    load.await_more(1)
    eventually(lambda: load.answers[-1].content["clock"] >= wanted, "nothing new arrives")


def test_no_request_fails_and_no_answer_goes_back_whichever_process_is_killed(
    server: ApiServer, name: str, place: Path
) -> None:
    bound = 30.0
    options = ["--workers", "3", "--worker-class", "gthread", "--threads", "2"]
    options += ["--max-requests", "200", "--graceful-timeout", "20"]
    with Gunicorn(place, words(server, name), *options, BOUND=str(bound)) as gunicorn:
        gunicorn.await_answer()
        with Clock(server) as time_of, Load(gunicorn.path) as load:
            follows(load, time_of)

            first = gunicorn.await_reflector()
            first.kill()
            load.await_more()
            second = gunicorn.await_reflector(other_than=first)
            follows(load, time_of)

            keeper = gunicorn.keeper()
            assert keeper is not None
            keeper.kill()
            load.await_more()
            gunicorn.await_reflector(other_than=second)
            assert not second.is_running() or second.status() == "zombie"
            follows(load, time_of)

            assert 0 == load.cut  # until here no process that answers was touched
            for _ in range(2):
                gunicorn.kill_a_worker()
                load.await_more()
            assert load.cut <= 2 * 3  # requests that were under way in them

            cut = load.cut
            gunicorn.masters[0].send_signal(signal.SIGHUP)
            load.await_more()
            kept = gunicorn.keeper()

            gunicorn.upgrade()
            eventually(lambda: gunicorn.workers(1), "the second master has no workers")
            eventually(lambda: "standing by" in gunicorn.log.read_text(), "no reflector stands by")
            assert gunicorn.keeper() == kept  # HUP with the same configuration leaves it alone
            writing = gunicorn.reflector()
            assert writing is not None
            load.await_more()
            assert writing.pid == gunicorn.writers()[-1]
            gunicorn.end()
            eventually(lambda: gunicorn.writers()[-1] != writing.pid, "the standby does not start")
            follows(load, time_of)
            assert cut == load.cut  # an orderly end drops no request

        assert [] == load.lost
        assert {200} == {answer.status for answer in load.answers}
        assert {PODS} == {answer.content["pods"] for answer in load.answers}  # full from the first
        for answer in load.answers:
            assert answer.content["clock"] >= time_of.written_by(answer.began - bound - SLACK)
        assert 6 <= len({answer.content["pid"] for answer in load.answers})

        gunicorn.masters[1].send_signal(signal.SIGTERM)
        eventually(gunicorn.all_gone, "a process outlived both masters")
    assert [] == left_behind(name)


def test_the_master_imports_what_its_workers_read_with() -> None:
    code = (
        "import sys, shmcache.integrations.gunicorn; print('shmcache.reader.cache' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout == "True\n"


def test_a_stopped_reflector_leads_to_refusals_and_is_replaced(
    server: ApiServer, name: str, place: Path
) -> None:
    bound = 1.0
    with (
        Gunicorn(place, words(server, name), "--workers", "2", BOUND=str(bound)) as gunicorn,
        Clock(server) as time_of,
    ):
        gunicorn.await_answer()
        keeper, stopped = gunicorn.keeper(), gunicorn.await_reflector()
        assert keeper is not None
        keeper.suspend()  # or it would replace the other one
        stopped.suspend()

        eventually(lambda: ask(gunicorn.path).status == 503, "old answers pass as new")
        for _ in range(20):
            refused = ask(gunicorn.path)
            assert 503 == refused.status
            assert b"last contact" in refused.body

        keeper.resume()
        gunicorn.await_reflector(other_than=stopped)
        eventually(lambda: ask(gunicorn.path).status == 200, "it does not recover")
        answer = gunicorn.await_answer()
        assert answer.content["clock"] >= time_of.written_by(answer.began - bound - SLACK)
        before = gunicorn.writers()
        gunicorn.configure(words(server, name).replace("'pods'", "'pods', 'namespaces'"))
        eventually(lambda: len(gunicorn.writers()) > len(before), "HUP changes nothing")
        with shmcache.attach(name, timeout=PATIENCE) as cache:
            eventually(
                lambda: "namespaces" in cache, "the cache lacks the newly configured resource"
            )
        assert "stuck or stopped" in gunicorn.end()
    assert [] == left_behind(name)


def test_a_preloaded_application_attaches_in_the_master_and_all_ends_with_it(
    server: ApiServer, name: str, place: Path
) -> None:
    application = APPLICATION + "assert cache['pods'].synced\n"
    with Gunicorn(
        place,
        words(server, name),
        *[
            "--preload",
            "--workers",
            "2",
            "--timeout",
            "4",
        ],  # it soon misses the master
        application=application,
    ) as gunicorn:
        assert PODS == gunicorn.await_answer().content["pods"]
        pids = {ask(gunicorn.path).content["pid"] for _ in range(20)}
        assert gunicorn.process.pid not in pids
        gunicorn.await_reflector()
        gunicorn.workers()

        gunicorn.end(signal.SIGKILL)

        eventually(gunicorn.all_gone, "a process outlived the master")
    eventually(lambda: not left_behind(name), f"left behind: {left_behind(name)}")


@pytest.mark.parametrize("kind", ["sync", "gthread", "gevent"])
def test_every_kind_of_worker_finds_a_cache_that_was_started_outside(
    kind: str, name: str, place: Path
) -> None:
    with (
        shmcache.Writer(name, resources=["pods"], arena_max="64MiB") as writer,
        Gunicorn(
            place,
            f"name={name!r}",
            *["--worker-class", kind, "--workers", "2"],
            application=PLAIN,
        ) as gunicorn,
    ):
        eventually(lambda: b"Booting worker" in gunicorn.log.read_bytes(), "no worker is started")
        with ThreadPoolExecutor(1) as threads:
            early = threads.submit(ask, gunicorn.path)  # no worker answers before the first list
            with pytest.raises(TimeoutError):
                early.result(0.5)
            writer.replace("pods", [POD], "5")
            writer.set_state("pods", states.SYNCED)
            assert b"1" == early.result(PATIENCE).body
        assert gunicorn.keeper() is None
        gunicorn.end()


POD = {"metadata": {"name": "a", "namespace": "prod", "resourceVersion": "5", "uid": "u"}}
PLAIN = """
import shmcache
from shmcache import states

cache = shmcache.attach()

def application(environ, start_response):
    assert cache["pods"].wait_for("5", timeout=1)  # however this kind of worker waits
    start_response("200 OK", [])
    return [str(len(cache["pods"])).encode()]
"""


def test_an_invalid_configuration_ends_gunicorn_with_the_reason(name: str, place: Path) -> None:
    log = ""
    for wait in (1.0, 4.0, 16.0):  # a busy machine may start the reflector late
        bad = f"'pods', name={name!r}, wait={wait}, options=['--kubeconfig', '/nowhere/at/all']"
        with Gunicorn(place, bad) as gunicorn:
            assert 3 == gunicorn.process.wait(PATIENCE)
            log = gunicorn.log.read_text()
            eventually(gunicorn.all_gone, "a process outlived the master")
        assert "SegmentNotFound" in log
        if "/nowhere/at/all" in log:
            return
    pytest.fail(f"its reason is not logged: {log}")
