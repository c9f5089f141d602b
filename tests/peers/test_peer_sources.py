"""Peers' cases: controller-runtime's sources and declarations (pkg/source/source_test.go,
pkg/internal/source/internal_test.go, pkg/controller/controller_test.go), the stores of client-go
(tools/cache: store_test.go, thread_safe_store_test.go, index_test.go, listers_test.go) and of
kube-rs (reflector/store.rs, wait.rs), by behaviour."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from reconciled import PATIENCE, Lab, Script, eventually

import shmcache
from shmcache import states
from shmcache.controllers.outcomes import NotCached
from shmcache.controllers.running import run_controllers
from shmcache.queue.feeder import SourceEvent

OPTIONS: dict[str, Any] = {"arena_max": "16MiB", "ring_slots": 256}


@pytest.fixture
def lab(writer: shmcache.Writer, cache: shmcache.Cache) -> Iterator[Lab]:
    made = Lab(writer, cache)
    yield made
    made.close()


@pytest.fixture
def script() -> Script:
    return Script()


# ---- controller-runtime: events of a source ------------------------------------------------------


class Seen:
    """Predicates that note their events."""

    def __init__(self, *, passes: bool = True) -> None:
        self.events: list[tuple[str, str, bool, bool]] = []
        self._passes = passes

    def __call__(self, event: SourceEvent) -> bool:
        there = (event.old is not None, event.new is not None)
        self.events.append((event.kind, event.key, *there))
        return self._passes

    def wait(self, count: int) -> list[tuple[str, str, bool, bool]]:
        eventually(lambda: len(self.events) >= count, f"{self.events}")
        return self.events


def change(lab: Lab, how: str) -> None:
    if how == "DELETED":
        lab.writer.delete("pods", "prod/web")
    else:
        lab.put("web")


@pytest.mark.parametrize("passes", [True, False], ids=["passes", "filtered"])
@pytest.mark.parametrize(
    ("how", "there"),
    [("ADDED", (False, True)), ("MODIFIED", (True, True)), ("DELETED", (True, False))],
)
def test_a_kind_gives_each_event_to_its_predicates(
    lab: Lab, script: Script, how: str, there: tuple[bool, bool], passes: bool
) -> None:
    """ "should provide a Pod CreateEvent / UpdateEvent / DeletedEvent"; "should use Predicates to
    filter CreateEvents / UpdateEvents / DeleteEvents"."""
    seen = Seen(passes=passes)
    if how != "ADDED":
        lab.put("web")
    worker = lab.start(script.function(), predicates=[seen])
    count = 0 if how == "ADDED" else 1
    seen.wait(count)
    eventually(lambda: worker.part.board.finished == worker.part.board.wanted)
    if passes and how != "ADDED":
        assert script.hear() == "prod/web"
    change(lab, how)
    seen.wait(count + 1)
    assert seen.events[-1] == (how, "prod/web", *there)
    if passes:
        assert script.hear() == "prod/web"
    else:
        assert script.quiet()


@pytest.mark.parametrize("odd", [{}, {"metadata": {}}, {"metadata": {"name": 7}}, {"kind": "Pod"}])
def test_an_object_without_usable_metadata_keeps_no_other_back(
    lab: Lab, script: Script, odd: dict[str, Any]
) -> None:
    """ "should not call Create EventHandler if the object does not have metadata", "should ignore
    objects without meta". Here its key is known all the same, and is reconciled."""
    lab.writer.put("pods", "prod/odd", odd, "2")
    lab.writer.put("nodes", "prod/odd", odd, "2")
    lab.start(script.function(), owns=["nodes"])
    assert script.hear() == "prod/odd"
    lab.put("web")
    assert script.hear() == "prod/web"


def test_a_deletion_without_its_last_state_is_a_deletion(lab: Lab, script: Script) -> None:
    """ "should create a DeleteEvent from a tombstone"."""
    lab.put("web")
    worker = lab.start(script.function())
    assert script.hear() == "prod/web"
    with lab.writer.batch():
        lab.writer.delete("pods", "prod/web")
        for number in range(2000):  # out of the window before anybody looks
            lab.writer.put("nodes", f"n{number % 7}", {"metadata": {"name": "n"}}, str(number))
    assert script.hear() == "prod/web"
    assert worker.failed is None


def test_keys_that_are_added_by_hand_are_generic_events(lab: Lab, script: Script) -> None:
    """source.Channel: "should provide a GenericEvent", "should be able to cope with events in the
    channel before the source is started"."""
    declared = shmcache.controller("pods", name="lab")(script.function())
    with declared.queue(lab.cache) as queue:
        queue.add("prod/before")
        worker = lab.start(script.function())
        assert script.hear() == "prod/before"
        eventually(lambda: worker.part.board.finished == worker.part.board.wanted)
        queue.add("prod/after")
        heard = script.hear()
        if heard == "prod/before":  # the start adds what the queue remembers: also what is taken
            heard = script.hear()
        assert heard == "prod/after"
    assert worker.failed is None


def test_pending_keys_are_worked_on_once_a_worker_is_free(lab: Lab, script: Script) -> None:
    """source.Channel: "should get pending events processed once channel unblocked"."""
    gate = threading.Event()
    script.on("prod/a", lambda *_: (gate.wait(PATIENCE), None)[1])
    worker = lab.start(script.function())
    worker.part.queue.add("prod/a")
    assert script.hear() == "prod/a"
    for key in "bcd":
        worker.part.queue.add(f"prod/{key}")
    assert script.quiet(0.02)
    gate.set()
    assert script.hear_all(3) == ["prod/b", "prod/c", "prod/d"]


@pytest.mark.parametrize("how", ["resource", "owns", "watches"])
def test_a_kind_that_is_not_in_the_cache_is_an_error_at_start(
    lab: Lab, script: Script, how: str
) -> None:
    """ "for a Kind not in the cache: should return an error when WaitForSync is called"."""
    options: dict[str, Any] = {"resource": {"resource": "podz"}, "owns": {"owns": "podz"}}.get(
        how, {"watches": {"podz": lambda *_: ()}}
    )
    with pytest.raises(NotCached, match=r"'podz'.*pods, nodes"):
        lab.start(script.function(), **options)


# ---- controller-runtime: declarations ------------------------------------------------------------


def test_a_controller_needs_a_reconcile() -> None:
    """ "should return an error if Reconciler is not Specified"."""
    declare: Any = shmcache.controller("pods")
    with pytest.raises(TypeError, match="must be a function"):
        declare(None)


def test_two_controllers_of_one_name_do_not_run_together(name: str, script: Script) -> None:
    """ "should return an error if two controllers are registered with the same name"."""
    one, other = (shmcache.controller("pods")(script.function()) for _ in range(2))
    with pytest.raises(ValueError, match="different names"):
        run_controllers(one, other, cache=name)


def test_controllers_of_different_names_work_next_to_each_other(lab: Lab, script: Script) -> None:
    """ "should not return an error if two controllers are registered with different names"."""
    for number in range(3):
        lab.start(script.function(), name=f"lab-{number}")
    lab.put("web")
    assert script.hear_all(3) == ["prod/web"] * 3


def test_the_defaults_are_those_of_the_original() -> None:
    """ "Should default MaxConcurrentReconciles to 1 if unset", "Should default CacheSyncTimeout to
    2 minutes if unset", no ReconciliationTimeout; and the values that are set stay."""
    made = shmcache.controller("pods")(lambda *_: None)
    assert (made.concurrency, made.sync_timeout, made.time_limit) == (1, 120.0, None)
    options: dict[str, Any] = {"concurrency": 5, "sync_timeout": 7.0, "time_limit": 9.0}
    made = shmcache.controller("pods", **options)(lambda *_: None)
    assert (made.concurrency, made.sync_timeout, made.time_limit) == (5, 7.0, 9.0)


@pytest.mark.parametrize("asynchronous", [False, True], ids=["thread", "loop"])
def test_a_stopped_controller_leaves_no_thread(
    lab: Lab, script: Script, asynchronous: bool
) -> None:
    """ "should not leak goroutines when stopped", "should not create goroutines …"."""
    before = set(threading.enumerate())
    shmcache.controller("pods")(script.function(asynchronous=asynchronous))
    assert set(threading.enumerate()) == before
    worker = lab.start(script.function(asynchronous=asynchronous), concurrency=3)
    lab.put("web")
    assert script.hear() == "prod/web"
    lab.stop(worker)
    eventually(lambda: set(threading.enumerate()) <= before)


def test_timeouts_count_only_what_the_limit_ended(lab: Lab, script: Script) -> None:
    """reconcile_timeouts: "should increment multiple times when multiple reconciles timeout",
    "should not increment when user code cancels context earlier …", "… completes before …"."""
    import asyncio

    hangs, raises, good = (lab.put(name) for name in ("hangs", "raises", "good"))
    script.on(hangs, *[lambda *_: asyncio.sleep(PATIENCE)] * 2)
    script.on(raises, TimeoutError("the user's own"))
    worker = lab.start(script.function(asynchronous=True), time_limit=0.1, concurrency=3)
    eventually(lambda: lab.numbers(worker).results["success"] == 3)
    assert script.count == {hangs: 3, raises: 2, good: 1}
    assert (lab.numbers(worker).timeouts, lab.numbers(worker).errors) == (2, 3)


# ---- stores (client-go, kube-rs) -----------------------------------------------------------------


def pod(name: str, namespace: str | None = "prod", **labels: str) -> dict[str, Any]:
    metadata = {"name": name, "uid": f"u-{name}", "resourceVersion": "1", "labels": labels}
    return {"metadata": metadata | ({"namespace": namespace} if namespace else {})}


@pytest.fixture
def store(name: str) -> Iterator[tuple[shmcache.Writer, shmcache.CachedResource]]:
    indices: dict[str, Any] = {"app": "metadata.labels.app", "users": users}
    resource = shmcache.Resource("pods", indices)
    with (
        shmcache.Writer(name, [resource], **OPTIONS) as writer,
        shmcache.attach(name) as cache,
    ):
        writer.set_state("pods", states.SYNCED, "1")
        yield writer, cache["pods"]


def users(obj: Any) -> list[str]:
    return [one for one in obj["metadata"]["labels"].get("users", "").split(".") if one]


Store = tuple[shmcache.Writer, shmcache.CachedResource]


def keys(found: Any) -> list[str]:
    return sorted(one["metadata"]["name"] for one in found)


def test_a_store_holds_what_was_put_and_not_what_was_deleted(store: Store) -> None:
    """TestCache (doTestStore): add, update, delete, replace, list."""
    writer, pods = store
    writer.apply("pods", [pod("a"), pod("b")])
    assert (pods["prod/a"]["metadata"]["name"], pods.get("prod/c")) == ("a", None)
    writer.apply("pods", [pod("a", app="new")])
    assert pods["prod/a"]["metadata"]["labels"]["app"] == "new"
    writer.delete("pods", "prod/a")
    assert (pods.get("prod/a"), keys(pods.list())) == (None, ["b"])
    writer.replace("pods", [pod("d"), pod("e")])
    assert keys(pods.list()) == ["d", "e"]


def test_an_index_has_no_values_without_objects(store: Store) -> None:
    """TestThreadSafeStoreDeleteRemovesEmptySetsFromIndex, …AddKeepsNonEmptySetPostDelete…."""
    writer, pods = store
    writer.apply("pods", [pod("a", app="web"), pod("b", app="web")])
    assert keys(pods.by_index("app", "web")) == ["a", "b"]
    writer.delete("pods", "prod/a")
    assert keys(pods.by_index("app", "web")) == ["b"]
    writer.delete("pods", "prod/b")
    assert keys(pods.by_index("app", "web")) == []
    assert list(pods.index_values("app")) == []


@pytest.mark.parametrize(
    ("changed", "ernie", "bert", "elmo"),
    [
        ("ernie.bert", ["new", "one", "tre"], ["new", "one", "two"], ["tre"]),
        ("", ["one", "tre"], ["one", "two"], ["tre"]),
        ("elmo.oscar", ["one", "tre"], ["one", "two"], ["new", "tre"]),
        ("ernie", ["new", "one", "tre"], ["one", "two"], ["tre"]),
    ],
)
def test_an_object_may_have_several_values(
    store: Store, changed: str, ernie: list[str], bert: list[str], elmo: list[str]
) -> None:
    """TestMultiIndexKeys, TestThreadSafeStoreIndexingFunctionsWithMultipleValues."""
    writer, pods = store
    writer.apply("pods", [pod("one", users="ernie.bert"), pod("two", users="bert.oscar")])
    writer.apply("pods", [pod("tre", users="ernie.elmo"), pod("new", users="bert.elmo")])
    writer.apply("pods", [pod("new", users=changed)])
    found = [keys(pods.by_index("users", value)) for value in ("ernie", "bert", "elmo")]
    assert found == [ernie, bert, elmo]
    writer.delete("pods", "prod/tre")
    assert "tre" not in keys(pods.by_index("users", "elmo"))


LISTS = [
    ("subset match", {"app": "web"}, ["a", "b"]),
    ("all match", {}, ["a", "b", "c"]),
    ("no match", {"app": "none"}, []),
]


@pytest.mark.parametrize(("labels", "expected"), [pytest.param(*x[1:], id=x[0]) for x in LISTS])
def test_a_lister_selects(store: Store, labels: dict[str, str], expected: list[str]) -> None:
    """TestListAll; kube-rs: state_filter_selector_filters_by_label_selector."""
    writer, pods = store
    writer.apply("pods", [pod("a", app="web"), pod("b", app="web"), pod("c", app="db")])
    selector = ",".join(f"{name}={value}" for name, value in labels.items())
    assert keys(pods.list(labels=selector)) == expected


@pytest.mark.parametrize("namespace", ["prod", None])
def test_an_object_is_found_by_its_own_key_only(store: Store, namespace: str | None) -> None:
    """kube-rs: should_allow_getting_namespaced_object_by_namespaced_ref,
    should_not_allow_getting_namespaced_object_by_clusterscoped_ref, and their reverses."""
    writer, pods = store
    writer.apply("pods", [pod("a", namespace)])
    assert (pods.get("prod/a") is not None) == (namespace is not None)
    assert (pods.get("a") is not None) == (namespace is None)


CONDITIONS: list[tuple[str, str, dict[str, Any] | None, str, bool]] = [
    ("crd_established_ok", "conditions", {"Established": "True"}, "Established", True),
    ("crd_established_fail", "conditions", {"Established": "False"}, "Established", False),
    ("crd_established_missing", "conditions", None, "Established", False),
    ("pod_running_ok", "phase", {"phase": "Running"}, "Running", True),
    ("pod_running_unschedulable", "phase", {"phase": "Pending"}, "Running", False),
    ("pod_running_missing", "phase", None, "Running", False),
    ("job_completed_ok", "conditions", {"Complete": "True"}, "Complete", True),
    ("job_completed_running", "conditions", {}, "Complete", False),
    ("job_completed_missing", "conditions", None, "Complete", False),
    ("deployment_completed_ok", "conditions", {"Available": "True"}, "Available", True),
    ("deployment_completed_pending", "conditions", {"Available": "False"}, "Available", False),
    ("deployment_completed_missing", "conditions", None, "Available", False),
]


@pytest.mark.parametrize("row", [pytest.param(row[1:], id=row[0]) for row in CONDITIONS])
def test_a_wait_for_a_condition_ends_with_it(
    store: Store, row: tuple[str, dict[str, Any] | None, str, bool]
) -> None:
    """kube-rs, wait.rs: conditions of CRDs, pods, jobs and deployments."""
    kind, given, wanted, expected = row
    writer, pods = store
    if given is not None:
        status: dict[str, Any] = dict(given)
        if kind == "conditions":
            status = {"conditions": [{"type": one, "status": to} for one, to in given.items()]}
        writer.apply("pods", [pod("a") | {"status": status}])

    def holds(obj: Any) -> bool:
        if obj is None:
            return False
        if kind == "phase":
            return bool(obj["status"]["phase"] == wanted)
        found = {one["type"]: one["status"] for one in obj["status"]["conditions"]}
        return found.get(wanted) == "True"

    if expected:
        assert pods.wait_until("prod/a", holds, timeout=PATIENCE) is not None
    else:
        assert pods.wait_until("prod/a", holds, timeout=0.01) is None
