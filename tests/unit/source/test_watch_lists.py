"""Invariant tested: the first refusal of a watch-list counts for all resources of a server
that have not asked yet (WATCHLIST1 to WATCHLIST3)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from shmcache.protocol.options import ListOptions
from shmcache.source.access import ServerAccess
from shmcache.source.base import SourceFailed
from shmcache.source.client import ApiConnection
from shmcache.source.discovery import ApiResource
from shmcache.source.kube import KubeSource
from shmcache.source.watch_lists import FORGET_SECONDS
from shmcache.testing import ApiServer, ManualClock

WATCH_LIST = ListOptions(
    watch=True,
    allow_bookmarks=True,
    send_initial_events=True,
    resource_version_match="NotOlderThan",
)


def of(group: str, plural: str, kind: str) -> ApiResource:
    return ApiResource(group=group, version="v1", plural=plural, kind=kind, namespaced=True)


PODS = of("", "pods", "Pod")
LEASES = of("coordination.k8s.io", "leases", "Lease")
GADGETS = of("example.com", "gadgets", "Gadget")
WIDGETS = of("example.org", "widgets", "Widget")
DEFINITION = {
    "scope": "Namespaced",
    "versions": [{"name": "v1", "served": True, "storage": True}],
}


def defined(resource: ApiResource) -> dict[str, object]:
    names = {"plural": resource.plural, "singular": resource.kind.lower(), "kind": resource.kind}
    spec = DEFINITION | {"group": resource.group, "names": names}
    return {"metadata": {"name": f"{resource.plural}.{resource.group}"}, "spec": spec}


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer(watch_list=False) as started:
        for each in (GADGETS, WIDGETS):
            started.create("customresourcedefinitions", defined(each))
        yield started


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def connect(server: ApiServer, clock: ManualClock) -> ApiConnection:
    return ApiConnection(lambda: ServerAccess(url=server.url), clock=clock)


def asked(server: ApiServer, at: ApiConnection, resource: ApiResource) -> bool:
    """Whether a refused watch-list of this resource cost a request."""
    before = sum(server.requests.values())
    source = KubeSource(at, resource)
    try:
        with (
            pytest.raises(SourceFailed, match="sendInitialEvents is forbidden") as failed,
            source.watch(WATCH_LIST, silence=60.0),
        ):
            pass
    finally:
        source.close()
    assert 422 == failed.value.failure.code
    return sum(server.requests.values()) > before


def test_a_refusal_of_a_built_in_group_counts_for_all_watchlist1(
    server: ApiServer, clock: ManualClock
) -> None:
    at = connect(server, clock)

    assert asked(server, at, LEASES)
    assert [False] * 4 == [asked(server, at, each) for each in (PODS, LEASES, GADGETS, WIDGETS)]
    assert asked(server, connect(server, clock), PODS)  # another server may have them


def test_a_refusal_of_another_group_counts_for_that_group_watchlist1(
    server: ApiServer, clock: ManualClock
) -> None:
    """Another program may serve it."""
    at = connect(server, clock)

    assert [True, False] == [asked(server, at, each) for each in (GADGETS, GADGETS)]
    assert [True, True] == [asked(server, at, each) for each in (WIDGETS, PODS)]


def test_a_refusal_is_forgotten_watchlist3(server: ApiServer, clock: ManualClock) -> None:
    at = connect(server, clock)
    asked(server, at, PODS)
    clock.advance(FORGET_SECONDS - 1)
    assert not asked(server, at, LEASES)
    clock.advance(2)
    assert asked(server, at, LEASES)


def test_other_failures_and_watches_say_nothing_about_watch_lists(
    server: ApiServer, clock: ManualClock
) -> None:
    at = connect(server, clock)
    source = KubeSource(at, PODS)
    for code in (503, 422):
        server.faults.error(code, "watch", text=b"no")
        with pytest.raises(SourceFailed), source.watch(WATCH_LIST, silence=60.0):
            pass
    assert asked(server, at, PODS)
    with source.watch(ListOptions(watch=True, timeout_seconds=1), silence=60.0) as events:
        assert [] == [item for items in events for item in items]
    source.close()


@pytest.mark.parametrize(
    ("options", "has"), [({}, False), ({"managed_fields": True}, True)], ids=["default", "whole"]
)
def test_objects_come_without_managed_fields_unless_they_are_wanted(
    options: dict[str, Any], has: bool
) -> None:
    with ApiServer(seed=1) as server:
        managed = [{"manager": "m", "operation": "Update", "fieldsV1": {}}]
        server.create(
            "pods", {"metadata": {"namespace": "a", "name": "b", "managedFields": managed}}
        )
        source = KubeSource(connect(server, ManualClock()), PODS, **options)
        with source.page(ListOptions()) as page:
            [text] = [item.raw for items in page for item in items]
        source.close()
    assert (b"managedFields" in text) is has
