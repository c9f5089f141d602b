"""Invariant tested: a writer resumes the cache of a dead one, and its readers do not notice; it
rebuilds only unusable parts; a writer that merely slept does no harm (G40, G41)."""

from __future__ import annotations

import os
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import pytest
from workers import PATIENCE, Worker, await_sleep, eventually

import shmcache
from shmcache import states
from shmcache.errors import BusyError, FencedError
from shmcache.memory.locations import SharedMemory
from shmcache.memory.segments import PREFIX, Place

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")

OPTIONS: dict[str, Any] = {"arena_max": "64MiB", "ring_slots": 256}


def pod(name: str, version: int, node: str = "n1") -> dict[str, Any]:
    metadata = {"name": name, "namespace": "p", "uid": f"u-{name}", "resourceVersion": str(version)}
    return {"metadata": metadata, "spec": {"nodeName": node}}


def by_first_letter(obj: Any) -> str:
    return str(obj["metadata"]["name"][0])


def by_last_letter(obj: Any) -> str:
    return str(obj["metadata"]["name"][-1])


def resources(*names: str, **settings: Any) -> list[shmcache.Resource]:
    return [shmcache.Resource(name, {"node": "spec.nodeName"}, **settings) for name in names]


def writing(pipe: Connection, name: str, wanted: list[shmcache.Resource]) -> None:
    """A writer that runs commands until it is killed."""
    writer = shmcache.Writer(name, wanted, **OPTIONS)
    pipe.send(sorted(writer.inherited))
    while (order := pipe.recv()) is not None:
        try:
            pipe.send(getattr(writer, order[0])(*order[1:]))
        except Exception as error:  # noqa: BLE001 - the test looks
            pipe.send(error)


@pytest.fixture
def dead(name: str) -> str:
    """The name of a cache whose writer was killed: ten pods at version 17."""
    with Worker("fork", writing, name, resources("pods", "nodes")) as first:
        assert first.hear() == []
        assert first.ask(("apply", "pods", [pod(f"a{i}", i) for i in range(10)])) == 10
        first.ask(("set_state", "pods", states.SYNCED, "17", ""))
        first.kill()
    return name


def go_on(name: str, wanted: list[shmcache.Resource], **options: Any) -> shmcache.Writer:
    return shmcache.Writer(name, wanted, **(OPTIONS | options))


# ---- readers do not notice ----------------------------------------------------------------------


def sleeper(pipe: Connection, name: str) -> None:
    """Sleeps for deltas, and reports them; holds the first state all the time."""
    with shmcache.attach(name) as cache, cache.snapshot() as at:
        cursor = cache.follow(["pods"])
        pipe.send(cache.seat)
        while True:
            assert cache.wait(cursor, PATIENCE), "a wake-up was lost"
            taken = [delta.key for delta in cursor.take()]
            if taken:
                pipe.send(
                    (
                        taken,
                        cache.instance,
                        [view["metadata"]["name"] for view in at["pods"].list()],
                    )
                )


def test_readers_continue_where_they_are(dead: str) -> None:
    old = [f"a{i}" for i in range(10)]
    with Worker("spawn", sleeper, dead) as worker, shmcache.attach(dead) as cache:
        worker.hear()
        instance, latest = cache.instance, cache.latest
        view, cursor = cache["pods"]["p/a1"], cache.follow(["pods"])
        for life in range(3):
            with Worker("fork", writing, dead, resources("pods", "nodes")) as successor:
                assert successor.hear() == ["nodes", "pods"]
                new = f"b{life}"
                successor.ask(("apply", "pods", [pod(new, 20 + life)]))
                assert worker.hear() == ([f"p/{new}"], instance, old)
                assert [delta.key for delta in cursor.take()] == [f"p/{new}"]
                successor.kill()
        assert cache.instance == instance
        assert cache.latest == latest + 3
        assert len(cache["pods"]) == 13
        assert view["metadata"]["name"] == "a1"  # of an old generation, still whole
        assert len(cache["pods"].by_index("node", "n1")) == 13


def test_inherited_content_is_logged_and_checked(dead: str) -> None:
    with go_on(dead, resources("pods", "nodes")) as writer:
        writer.check()
        found = writer.inherited["pods"]
        assert (found.version, found.state, found.count) == ("17", states.SYNCED, 10)
        assert writer.inherited["nodes"].version == ""
        assert writer.stats()["limbo_bytes"] == 0
        assert not writer.apply("pods", [pod("a3", 3)])  # it is there, as it was
        assert writer.delete("pods", "p/a3")
        writer.check()
    assert SharedMemory().names(PREFIX + dead) == []


def test_leave_keeps_the_cache_and_close_ends_it(name: str) -> None:
    writer = go_on(name, resources("pods"))
    writer.apply("pods", [pod("a", 1)])
    with shmcache.attach(name) as cache:
        writer.leave()
        writer.leave()
        assert writer.closed
        assert not Place(name).writer_alive()
        assert list(cache["pods"]) == ["p/a"]
        with go_on(name, resources("pods")) as successor:
            assert list(successor.inherited) == ["pods"]
            instance = cache.instance
            successor.apply("pods", [pod("b", 2)])
            assert list(cache["pods"]) == ["p/a", "p/b"]
            assert cache.instance == instance
    assert SharedMemory().names(PREFIX + name) == []


def test_a_state_held_for_long_survives_several_writers(dead: str) -> None:
    with shmcache.attach(dead) as cache:
        at = cache.snapshot()
        whole = at["pods"]["p/a1"].to_dict()
        for life in range(3):
            writer = go_on(dead, resources("pods", "nodes"))
            for i in range(200):
                writer.apply("pods", [pod(f"a{i % 10}", 1000 * life + i, node=f"node-{i}")])
            writer.drop_window()
            writer.reclaim()
            assert writer.stats()["limbo_bytes"] > 0
            assert whole == at["pods"]["p/a1"].to_dict()
            assert len(at["pods"].by_index("node", "n1")) == 10
            writer.check()
            writer.leave()
        at.close()
    with go_on(dead, resources("pods", "nodes")) as writer:
        writer.drop_window()
        eventually(lambda: writer.stats()["limbo_bytes"] == 0, "it leaks")


def test_content_staged_by_a_dead_writer_leaves_nothing(name: str) -> None:
    writer = go_on(name, resources("pods"))
    writer.apply("pods", [pod("a", 1)])
    blocks = writer.stats()["blocks"]
    staging = writer.begin_replace("pods")
    staged = staging.__enter__()
    staged.apply([pod(f"s{i}", i) for i in range(2000)])
    assert writer.stats()["blocks"] > blocks
    writer.leave()  # as at a death: nothing is finished, nothing cancelled
    del staging
    with go_on(name, resources("pods")) as successor:
        assert successor.stats()["blocks"] == blocks
        assert successor.stats()["limbo_bytes"] == 0
        successor.replace("pods", [pod("b", 2)], "9")
        successor.check()


# ---- other configurations ------------------------------------------------------------------


def test_a_changed_index_is_filled_from_existing_objects(dead: str) -> None:
    wanted = [
        shmcache.Resource("pods", {"name": "metadata.name", "first": by_first_letter}),
        *resources("nodes"),
    ]
    with shmcache.attach(dead) as cache:
        with go_on(dead, wanted) as writer:
            assert writer.inherited["pods"].version == "17"
            pods = cache["pods"]
            assert len(pods.by_index("first", "a")) == 10
            assert len(pods.by_index("name", "a4")) == 1
            with pytest.raises(KeyError):
                pods.by_index("node", "n1")
            writer.apply("pods", [pod("b", 20)])
            assert [view["metadata"]["name"] for view in pods.by_index("first", "b")] == ["b"]
            writer.check()
            writer.leave()

        same = go_on(dead, wanted)
        latest = cache.latest
        assert latest == cache.latest
        same.leave()

        wanted[0] = shmcache.Resource(
            "pods", {"first": by_last_letter, "last": by_last_letter, "name": "metadata.name"}
        )
        with go_on(dead, wanted) as writer:
            assert len(cache["pods"].by_index("first", "4")) == 1
            assert len(cache["pods"].by_index("last", "4")) == 1
            writer.check()


def test_the_same_configuration_publishes_nothing(dead: str) -> None:
    wanted = [shmcache.Resource("pods", {"first": by_first_letter}), *resources("nodes")]
    go_on(dead, wanted).leave()
    with shmcache.attach(dead) as cache:
        latest = cache.latest
        go_on(dead, wanted).leave()
        assert cache.latest == latest


def test_other_settings_of_a_resource_invalidate_it_alone(dead: str) -> None:
    wanted = [*resources("pods", settings={"labels": "app=web"}), *resources("nodes")]
    with shmcache.attach(dead) as cache:
        go_on(dead, wanted).leave()
        status = cache["pods"].status
        assert (status.state, status.version) == ("listing", None)
        assert len(cache["pods"]) == 10  # readable until it is listed again
        writer = go_on(dead, wanted)  # which has not happened
        assert sorted(writer.inherited) == ["nodes", "pods"]
        assert writer.inherited["pods"].version == ""
        writer.replace("pods", [pod("a1", 1), pod("web", 30)], "30")
        writer.set_state("pods", states.SYNCED)
        assert list(cache["pods"]) == ["p/a1", "p/web"]
        writer.leave()
        with go_on(dead, wanted) as again:
            assert again.inherited["pods"].version == "30"
        with go_on(dead, resources("pods", "nodes"), fresh=True) as last:
            assert last.inherited == {}


def test_a_resource_that_was_removed_from_the_configuration_returns_empty(dead: str) -> None:
    deleted: list[str] = []
    with shmcache.attach(dead) as cache:
        cache["pods"].add_handler(on_delete=lambda obj, _: deleted.append(obj["metadata"]["name"]))
        cache.start()
        with go_on(dead, resources("nodes", "jobs")) as writer:
            assert cache.resources == ("nodes", "jobs")
            assert cache["pods"].status.state == "gone"  # for readers that knew it
            assert len(cache["pods"]) == 0
            with shmcache.attach(dead) as late, pytest.raises(KeyError, match="only nodes, jobs"):
                late["pods"].get("p/a1")
            eventually(lambda: len(deleted) == 10, "handlers do not receive the deletions")
            writer.drop_window()
            writer.check()
            writer.leave()
        with go_on(dead, resources("pods", "nodes", "jobs")) as writer:
            assert "pods" not in writer.inherited or not writer.inherited["pods"].count
            assert set(cache.resources) == {"nodes", "jobs", "pods"}
            assert len(cache["pods"]) == 0
            writer.apply("pods", [pod("c", 1)])
            assert list(cache["pods"]) == ["p/c"]
            writer.check()


@pytest.mark.parametrize(
    "options", [{"arena_max": "128MiB"}, {"ring_slots": 512}, {"seats": 5}, {"mode": 0o640}]
)
def test_another_geometry_builds_a_new_instance_next_to_the_old_one(
    dead: str, options: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    with shmcache.attach(dead) as cache, go_on(dead, resources("pods"), **options) as writer:
        assert "starting a fresh cache" in caplog.text
        assert writer.inherited == {}
        assert len(cache["pods"]) == 10  # the old one, until the new one holds as much
        writer.apply("pods", [pod("b", 1)])
        assert list(cache["pods"]) == ["p/b"]


def test_a_cache_that_fails_verification_is_replaced(
    dead: str, caplog: pytest.LogCaptureFixture
) -> None:
    place = Place(dead)
    with shmcache.attach(dead) as cache:
        instance = cache.instance
        fd = place.location.open(place._instance(instance, "data"), writable=True)
        size = os.fstat(fd).st_size
        for at in range(4096 + 256 * 64, size, 4096):  # every page of the arena
            os.pwrite(fd, os.urandom(64), at)
        os.close(fd)
        with go_on(dead, resources("pods")) as writer:
            assert "corrupt" in caplog.text
            assert writer.inherited == {}
            writer.apply("pods", [pod("b", 1)])
            assert list(cache["pods"]) == ["p/b"]
            assert cache.instance != instance


# ---- writers that sleep --------------------------------------------------------------------


def test_a_new_writer_waits_for_a_stopped_one_which_resumes(dead: str) -> None:
    with Worker("fork", writing, dead, resources("pods", "nodes")) as first:
        first.hear()
        first.stop()
        with pytest.raises(BusyError, match=str(first.pid)):
            go_on(dead, resources("pods"))
        first.tell(("apply", "pods", [pod("b", 20)]))
        first.send_signal(18)
        assert first.hear() == 1


def without_lock_file(place: Place) -> None:
    place.location.unlink(place.stem + ".lock")


def without_any_file(place: Place) -> None:
    place.unlink()


@pytest.mark.parametrize("remove", [without_lock_file, without_any_file])
def test_a_writer_that_slept_while_its_files_were_removed_does_no_harm(
    dead: str, remove: Callable[[Place], None]
) -> None:
    """TAKEOVER6: the new writer has another lock file and never touches the old one's memory."""
    with Worker("fork", writing, dead, resources("pods", "nodes")) as old:
        old.hear()
        old.ask(("apply", "pods", [pod("old", 20)]))
        cache = shmcache.attach(dead)
        instance = cache.instance
        old.stop()
        remove(Place(dead))
        with go_on(dead, resources("pods", "nodes")) as writer:
            assert writer.inherited == {}
            writer.apply("pods", [pod("new", 30)])
            assert list(cache["pods"]) == ["p/new"]
            assert cache.instance != instance

            old.tell(("apply", "pods", [pod("late", 40)]))
            old.send_signal(18)
            assert isinstance(old.hear(), FencedError)
            assert isinstance(old.ask(("set_state", "pods", states.STALED)), FencedError)
            assert isinstance(old.ask(("put", "pods", "k", {})), FencedError)
            names = SharedMemory().names(PREFIX + dead)
            old.ask(("close",))
            assert SharedMemory().names(PREFIX + dead) == names
            assert list(cache["pods"]) == ["p/new"]
            writer.apply("pods", [pod("newer", 31)])
            with shmcache.attach(dead) as late:
                assert list(late["pods"]) == ["p/new", "p/newer"] == list(cache["pods"])
        cache.close()


def test_sleepers_of_a_dead_writer_wake_for_the_next(dead: str) -> None:
    with Worker("spawn", sleeper, dead) as worker:
        seat = worker.hear()
        with go_on(dead, resources("pods", "nodes")) as writer:
            await_sleep(writer, [seat])
            writer.apply("pods", [pod("b", 20)])
            assert worker.hear()[0] == ["p/b"]
