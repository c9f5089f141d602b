"""GET and LIST of a served cache: states, pages, selections, shapes (G31)."""

import gzip
import re
import threading
from typing import Any

import pytest
from served import Asked, Stream, pod, serving

from shmcache.serve.read import lists
from shmcache.serve.server import Serving

PODS = "/api/v1/namespaces/default/pods"
ALL = "/api/v1/pods"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
PARTIAL = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
PARTIAL_ONE = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
QUICK = Serving(fresh_seconds=0.05)


def many(count: int = 40) -> dict[str, list[Any]]:
    odd = [pod(n, "default", n + 1, app="a" if n % 2 else "b") for n in range(count)]
    return {"pods": [*odd, pod(0, "other", 99, app="a")]}


def test_an_object() -> None:
    with serving(many()) as asked:
        answer = asked.get(f"{PODS}/p-0003")

        assert answer.code == 200
        assert answer.json == many()["pods"][3]
        assert answer.body.endswith(b"}\n")
        assert answer.headers["Content-Type"] == "application/json"


@pytest.mark.parametrize("version", ["0", "text", "5\r\nX-Other: 1", str(1 << 70), "1" * 5000],
                         ids=["none", "a text", "lines", "71 bits", "5,000 digits"])  # fmt: skip
def test_lists_have_pages_whatever_the_version(version: str) -> None:
    """Of a cache that a program fills, or of a server that is not an API server."""
    with serving({"pods": [pod(1), pod(2), pod(3)]}, version=version) as asked:
        found: list[str] = []
        token: str | None = ""
        while token is not None:
            answer = asked.get(f"{ALL}?limit=1&continue={token}")
            assert answer.code == 200
            assert "X-Other" not in answer.headers
            found += [one["metadata"]["name"] for one in answer.json["items"]]
            token = answer.json["metadata"].get("continue")
        assert found == ["p-0001", "p-0002", "p-0003"]
        assert asked.get(f"{ALL}?watch=1&timeoutSeconds=1").code == 200


def test_a_missing_object() -> None:
    with serving(many()) as asked:
        answer = asked.get(f"{PODS}/none")

        assert (answer.code, answer.json["reason"]) == (404, "NotFound")
        assert answer.json["message"] == 'pods "none" not found'


def test_discovery_has_the_groups_and_resources_of_the_cache() -> None:
    with serving(many(), resources=["pods", "deployments.apps"]) as asked:
        core, group = asked.get("/api/v1").json, asked.get("/apis/apps").json
        found = asked.get("/apis/apps/v1").json
        whole = [asked.get(path, Accept=AGGREGATED).json["items"] for path in ("/api", "/apis")]

    assert ["pods", "pods/status"] == [one["name"] for one in core["resources"]]
    assert ("APIGroup", "apps") == (group["kind"], group["name"])
    assert ["apps/v1"] == [one["groupVersion"] for one in group["versions"]]
    assert "deployments" in [one["name"] for one in found["resources"]]
    for resource, [item] in zip(["pods", "deployments"], whole, strict=True):
        [version] = item["versions"]
        assert [resource] == [one["resource"] for one in version["resources"]]


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/widgets",
        "/apis/nope/v1/things",
        "/apis/nope",
        "/apis/nope/v1",
        "/apis/apps/v2",
        "/api/v2",
        "/api/v2/pods",
        "/api/v1/pods/p-0003",
        f"{PODS}/p-0003/status",
        f"{PODS}/default%2Fp-0003",
        "/api/v1/namespaces/default%2Fp/pods",
        "/api/v1/../v1/pods",
        "/api/v1//pods",
        "/api/v1/namespaces/default/nodes",
        "/",
        "/nothing",
    ],
)
def test_paths_that_lead_nowhere(path: str) -> None:
    with serving(many()) as asked:
        assert asked.get(path).code == 404


def test_object_stored_without_type_is_served_with_it() -> None:
    bare = {"metadata": {"name": "x", "namespace": "default"}, "data": {"a": "b"}}
    with serving({"configmaps": [bare]}) as asked:
        found = asked.get("/api/v1/namespaces/default/configmaps/x").json

        assert found == {"kind": "ConfigMap", "apiVersion": "v1", **bare}
        assert list(found)[:2] == ["kind", "apiVersion"]


def test_a_list_shows_one_state_without_the_types_of_its_items() -> None:
    with serving(many()) as asked:
        answer = asked.get(ALL).json

        assert answer["kind"] == "PodList"
        assert answer["apiVersion"] == "v1"
        assert answer["metadata"] == {"resourceVersion": "100"}
        bare = [
            {key: value for key, value in one.items() if key not in {"kind", "apiVersion"}}
            for one in many()["pods"]
        ]
        assert answer["items"] == bare


def test_a_namespace_a_selector_a_field() -> None:
    with serving(many()) as asked:
        assert len(asked.names(PODS)) == 40
        assert asked.names("/api/v1/namespaces/other/pods") == ["p-0000"]
        assert asked.names("/api/v1/namespaces/none/pods") == []
        assert len(asked.names(f"{PODS}?labelSelector=app%3Da")) == 20
        assert len(asked.names(f"{ALL}?labelSelector=app+in+(a)")) == 21
        assert len(asked.names(f"{ALL}?fieldSelector=spec.nodeName=node-3")) == 8
        assert asked.names(f"{ALL}?fieldSelector=metadata.name=p-0007") == ["p-0007"]
        assert asked.names(f"{ALL}?fieldSelector=metadata.namespace=other") == ["p-0000"]


SURROGATE = "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MTAwLCJzdGFydCI6Ii9cdWQ4MDBcdTAwMDAifQ"


@pytest.mark.parametrize(
    ("query", "code", "words"),
    [
        ("labelSelector=a==b==c", 400, "found '==', expected"),
        ("fieldSelector=spec.nope=1", 400, "field label not supported: spec.nope"),
        ("limit=x", 400, "invalid syntax"),
        ("limit=", 400, 'parsing "": invalid syntax'),
        ("limit", 400, 'parsing "": invalid syntax'),
        ("watch=1&timeoutSeconds=", 400, 'parsing "": invalid syntax'),
        ("resourceVersion=x", 400, "invalid resource version"),
        (f"resourceVersion={1 << 64}", 400, "value out of range"),
        (f"resourceVersion={(1 << 64) - 1}", 504, "Too large resource version"),
        ("resourceVersionMatch=Exact", 422, "forbidden unless resourceVersion"),
        ("resourceVersion=0&resourceVersionMatch=Exact", 422, "forbidden for resourceVersion"),
        ("sendInitialEvents=true", 422, "forbidden for list"),
        ("continue=garbage", 400, "continue key is not valid"),
        ("continue=" + SURROGATE, 400, "invalid start key: /?"),
        ("continue=" + "W1tb" * 4000, 400, "exceeded max depth"),
        ("labelSelector=" + "a" * 9000, 400, "more than 8192 bytes"),
    ],
)
def test_invalid_parameters(query: str, code: int, words: str) -> None:
    with serving(many(), QUICK) as asked:
        answer = asked.get(f"{ALL}?{query}")

        assert answer.code == code
        assert words in answer.json["message"]


def test_a_limit_that_is_reached_where_a_piece_is_full_ends_the_list() -> None:
    large = [pod(number, text="x" * lists.ENOUGH) for number in range(4)]
    with serving({"pods": large}) as asked:
        answer = asked.get(f"{ALL}?limit=2").json
    assert len(answer["items"]) == 2
    assert answer["metadata"]["remainingItemCount"] == 2


def pages(asked: Asked, path: str, token: str = "") -> list[Any]:
    """All pages of a list, in order."""
    found: list[Any] = []
    while True:
        assert len(found) < 50
        answer = asked.get(path + (f"&continue={token}" if token else ""))
        assert answer.code == 200, answer.body
        found.append(answer.json)
        token = answer.json["metadata"].get("continue", "")
        if not token:
            return found


def test_pages_are_of_one_state_while_others_are_published() -> None:
    with serving(many()) as asked:
        first = asked.get(f"{PODS}?limit=15").json
        assert first["metadata"]["remainingItemCount"] == 25
        asked.delete("default/p-0020", "101")
        asked.apply(pod(99, version=102), "102")
        token = first["metadata"]["continue"]
        second = asked.get(f"{PODS}?limit=15&continue={token}").json
        third = asked.get(f"{PODS}?continue={second['metadata']['continue']}").json

        names = [
            one["metadata"]["name"] for page in (first, second, third) for one in page["items"]
        ]
        assert names == [f"p-{n:04}" for n in range(40)]
        assert {page["metadata"]["resourceVersion"] for page in (first, second, third)} == {"100"}
        assert "continue" not in third["metadata"]
        assert len(asked.names(PODS)) == 40  # one came, one went
        assert asked.get(ALL).json["metadata"]["resourceVersion"] == "102"


def test_another_process_continues_a_list_from_the_ring() -> None:
    with serving(many()) as asked:
        first = asked.get(f"{PODS}?limit=15&labelSelector=app").json
        asked.delete("default/p-0020", "101")
        asked.apply(pod(30, version=102, app="changed"), "102")
        asked.apply(pod(98, version=103, app="a"), "103")
        asked.serve.call(asked.serve.server.past.clear)  # as a process that never saw the list
        token = first["metadata"]["continue"]
        path = f"{PODS}?limit=10&labelSelector=app"
        rest = pages(asked, path, token)

        shown = [one for page in (first, *rest) for one in page["items"]]
        assert [one["metadata"]["name"] for one in shown] == [f"p-{n:04}" for n in range(40)]
        assert shown[30]["metadata"]["labels"] == {"app": "b"}
        assert list(shown[30]) == ["metadata", "spec", "status"]
        assert {page["metadata"]["resourceVersion"] for page in rest} == {"100"}


def test_a_lost_state_is_refused_with_a_token_to_continue() -> None:
    with serving(many(), ring_slots=64) as asked:
        token = asked.get(f"{PODS}?limit=15").json["metadata"]["continue"]
        for turn in range(100):
            asked.apply(pod(1, version=200 + turn), str(200 + turn))
        asked.serve.call(asked.serve.server.past.clear)
        answer = asked.get(f"{PODS}?limit=15&continue={token}")

        assert (answer.code, answer.json["reason"]) == (410, "Expired")
        token = answer.json["metadata"]["continue"]
        assert asked.names(f"{PODS}?limit=5&continue={token}")[0] == "p-0015"


def test_a_selection_that_ends_with_the_limit_has_no_next_page() -> None:
    with serving(many()) as asked:
        found = pages(asked, f"{PODS}?limit=7&labelSelector=app%3Da")

        assert [len(page["items"]) for page in found] == [7, 7, 6]
        assert "remainingItemCount" not in found[0]["metadata"]
        assert [len(page["items"]) for page in pages(asked, f"{PODS}?limit=20")] == [20, 20]


def test_the_limit_does_not_count_at_version_0() -> None:
    with serving(many()) as asked:
        assert len(asked.names(f"{PODS}?limit=3&resourceVersion=0")) == 40


def test_an_exact_version_is_served_or_refused() -> None:
    with serving(many()) as asked:
        path = f"{PODS}?resourceVersionMatch=Exact&resourceVersion="
        assert len(asked.names(f"{path}100")) == 40
        asked.get(f"{PODS}?limit=1")  # keeps the state
        asked.apply(pod(77, version=110), "110")
        assert len(asked.names(f"{path}100")) == 40
        assert len(asked.names(f"{path}110")) == 41
        answer = asked.get(f"{path}99")
        assert (answer.code, answer.json["reason"]) == (410, "Expired")


def test_an_exact_version_within_the_window_shows_the_past_state() -> None:
    """As the API server, which keeps 5 minutes: for any client, whatever was kept."""
    with serving({"pods": [pod(number) for number in range(6)]}) as asked:
        was: dict[int, list[tuple[str, str]]] = {}
        for version in range(101, 140):
            number, kind = version % 7, version % 3
            with asked.writer.batch():  # two versions in a generation, and one of nothing
                if kind:
                    asked.writer.apply("pods", [pod(number, version=version)])
                elif f"default/p-{number:04}" in asked.cache["pods"]:
                    asked.writer.delete("pods", f"default/p-{number:04}", str(version))
                asked.writer.set_version("pods", str(version))
            was[version] = named(asked.get(PODS).json["items"])
        asked.serve.call(asked.serve.server.past.clear)
        for version, expected in was.items():
            path = f"{PODS}?resourceVersionMatch=Exact&resourceVersion={version}"
            answer = asked.get(path)
            assert (answer.code, named(answer.json["items"])) == (200, expected), version
            assert answer.json["metadata"]["resourceVersion"] == str(version)
            first = asked.get(f"{path}&limit=2").json
            token = first["metadata"].get("continue", "")
            rest = pages(asked, f"{PODS}?limit=2", token) if token else []
            paged = [one for page in [first, *rest] for one in page["items"]]
            assert named(paged) == expected
        assert asked.get(f"{PODS}?limit=2&resourceVersion=110").json["metadata"][
            "resourceVersion"] == "110"  # fmt: skip
        assert asked.get(f"{PODS}?limit=2&resourceVersion=99").code == 410


def named(items: list[Any]) -> list[tuple[str, str]]:
    return [(one["metadata"]["name"], one["metadata"]["resourceVersion"]) for one in items]


def test_an_exact_version_inside_of_a_gap_is_refused() -> None:
    """The content before and after a list is known, but not the order of the changes."""
    with serving({"pods": [pod(number) for number in range(6)]}) as asked:
        asked.apply(pod(1, version=105), "105")
        asked.writer.replace("pods", [pod(1, version=105), pod(9, version=108)], version="110")
        asked.apply(pod(2, version=112), "112")
        path = f"{PODS}?resourceVersionMatch=Exact&resourceVersion="
        assert [asked.get(f"{path}{version}").code for version in (105, 107, 109)] == [410] * 3
        assert asked.names(f"{path}110") == asked.names(f"{path}111") == ["p-0001", "p-0009"]
        assert asked.names(f"{path}112") == ["p-0001", "p-0002", "p-0009"]


def test_a_kept_state_is_not_shown_for_the_same_version_of_a_restored_server() -> None:
    """PAST4."""
    with serving({"pods": [pod(number) for number in range(6)]}) as asked:
        asked.apply(pod(1, version=105), "105")
        first = asked.get(f"{PODS}?limit=1").json  # keeps the state
        asked.writer.replace("pods", [pod(7, version=50)], version="90")  # a backup of before
        asked.apply(pod(7, version=105), "105")
        asked.apply(pod(7, version=110), "110")

        found = asked.get(f"{PODS}?resourceVersionMatch=Exact&resourceVersion=105").json["items"]

        assert named(found) == [("p-0007", "105")]
        [rest] = pages(asked, f"{PODS}?limit=9", first["metadata"]["continue"])
        assert len(rest["items"]) == 5  # the list that began before goes on with its own state


def test_a_kept_state_that_was_repaired_is_not_shown_for_its_version() -> None:
    """PAST4: a change whose version does not rise shows that an event had been lost (REPAIR4)."""
    with serving({"pods": [pod(1), pod(2)]}) as asked:
        asked.apply(pod(1, version=105), "105")
        asked.get(f"{PODS}?limit=1")  # keeps the state
        asked.writer.apply("pods", [pod(2, version=101)])
        asked.apply(pod(1, version=110), "110")

        assert asked.get(f"{PODS}?resourceVersionMatch=Exact&resourceVersion=105").code == 410


def test_an_exact_version_is_that_of_the_namespace_and_not_of_the_whole() -> None:
    """The whole is at the smallest version of its namespaces; the others are beyond it."""
    with serving({"pods": [pod(1, "a"), pod(1, "b")]}) as asked:
        path = "/api/v1/namespaces/a/pods"
        for version in (105, 110):
            with asked.writer.batch():
                asked.writer.apply("pods", [pod(version, "a", version)])
                asked.writer.set_marks("pods", f'{{"a": "{version}", "b": "100"}}')
            first = asked.get(f"{path}?limit=1").json  # keeps the state
            assert first["metadata"]["resourceVersion"] == str(version)

        exact = f"{path}?resourceVersionMatch=Exact&resourceVersion="
        assert [asked.get(f"{exact}{version}").code for version in (100, 105)] == [410] * 2
        assert len(asked.names(f"{exact}110")) == 3


def test_the_history_of_an_etcd_does_not_count_as_versions_of_namespaces() -> None:
    """MARKS1: whatever the namespace is called."""
    with serving({"pods": [pod(1, "cluster"), pod(1, "term")]}) as asked:
        asked.writer.set_marks("pods", '{"cluster": "9223372036854775813", "term": 200}')
        asked.apply(pod(2, "cluster", 105), "105")
        for namespace in ("cluster", "term"):
            path = f"/api/v1/namespaces/{namespace}/pods"
            assert asked.get(path).json["metadata"]["resourceVersion"] == "105"
        path = "/api/v1/namespaces/cluster/pods"
        with Stream(asked, "resourceVersion=105&timeoutSeconds=30", path) as stream:
            asked.apply(pod(3, "cluster", 110), "110")
            assert stream.next_event() == ("ADDED", "p-0003")
        exact = f"{path}?resourceVersionMatch=Exact&resourceVersion="
        assert [len(asked.names(f"{exact}{version}")) for version in (100, 105, 110)] == [1, 2, 3]
        assert len(asked.cache.at("105")["pods"]) == 3


def test_a_version_that_does_not_come_is_504() -> None:
    with serving(many(), QUICK) as asked:
        for path in (f"{PODS}?resourceVersion=200", f"{PODS}/p-0001?resourceVersion=200"):
            answer = asked.get(path)
            assert answer.code == 504
            assert answer.json["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"
            assert "Too large resource version: 200, current: 100" in answer.json["message"]


def test_a_request_waits_for_a_future_version() -> None:
    with serving(many(), Serving(fresh_seconds=60)) as asked:
        found: list[Any] = []
        path = f"{PODS}/p-0050?resourceVersion=120"
        thread = threading.Thread(target=lambda: found.append(asked.get(path)))
        thread.start()
        while not asked.serve.call(lambda: asked.serve.server.waiting.taken):
            pass
        asked.apply(pod(50, version=120), "120")
        thread.join(60)

        assert found[0].code == 200


def test_metadata_alone() -> None:
    with serving(many()) as asked:
        page = asked.get(ALL, Accept=PARTIAL).json
        one = asked.get(f"{PODS}/p-0001", Accept=PARTIAL_ONE).json

        assert page["kind"] == "PartialObjectMetadataList"
        assert page["apiVersion"] == "meta.k8s.io/v1"
        assert page["items"][1] == one
        assert list(one) == ["kind", "apiVersion", "metadata"]
        assert one["metadata"] == many()["pods"][1]["metadata"]


def test_a_table_has_the_columns_of_kubectl() -> None:
    with serving(many()) as asked:
        table = asked.get(PODS, Accept=TABLE).json
        one = asked.get(f"{PODS}/p-0001", Accept=TABLE).json

        names = [column["name"] for column in table["columnDefinitions"]]
        assert names[:5] == ["Name", "Ready", "Status", "Restarts", "Age"]
        assert len(table["rows"]) == 40
        assert table["rows"][1]["cells"][:3] == ["p-0001", "0/1", "Running"]
        assert table["rows"][1]["object"]["kind"] == "PartialObjectMetadata"
        assert one["rows"] == [table["rows"][1]]
        whole = asked.get(f"{PODS}?includeObject=Object", Accept=TABLE).json["rows"][1]["object"]
        assert whole == many()["pods"][1]
        none = asked.get(f"{PODS}?includeObject=None", Accept=TABLE).json["rows"][1]["object"]
        assert none is None


def test_another_media_type_is_refused() -> None:
    with serving(many()) as asked:
        assert asked.get(PODS, Accept="application/yaml").code == 406
        assert asked.get(PODS, Accept="application/yaml, */*").code == 200


def test_a_long_list_comes_in_chunks_and_compressed_on_request() -> None:
    with serving({"pods": [pod(number, text="x" * 50) for number in range(3000)]}) as asked:
        plain = asked.get(PODS)
        zipped = asked.get(PODS, Accept_Encoding="gzip")

        assert plain.headers["Transfer-Encoding"] == "chunked"
        assert len(plain.json["items"]) == 3000
        assert zipped.headers["Content-Encoding"] == "gzip"
        assert gzip.decompress(zipped.body) == plain.body
        assert zipped.headers["Vary"] == "Accept-Encoding"
        for other in ("gzip;q=0", "x-gzip", "br, identity"):
            assert "Content-Encoding" not in asked.get(PODS, Accept_Encoding=other).headers


@pytest.mark.parametrize("more", [0, 1])
def test_only_bodies_over_128_kib_are_compressed(more: int) -> None:
    """Exactly, as the API server's rule is: for objects, lists and tables."""
    paths = [f"{PODS}/p-0001", PODS]
    with serving({"pods": [pod(1, text="x")]}) as asked:
        short = [len(asked.get(path).body) for path in paths]
    for path, length in zip(paths, short, strict=True):
        text = "x" * ((128 << 10) - length + 1 + more)
        with serving({"pods": [pod(1, text=text)]}) as asked:
            plain, zipped = asked.get(path), asked.get(path, Accept_Encoding="br, gzip")
        assert len(plain.body) == (128 << 10) + more
        assert zipped.headers.get("Content-Encoding") == ("gzip" if more else None)
        assert (gzip.decompress(zipped.body) if more else zipped.body) == plain.body


def test_head_has_no_body() -> None:
    with serving(many()) as asked:
        for path in (PODS, f"{PODS}/p-0001", "/api"):
            answer = asked.get(path, "HEAD")
            assert (answer.code, answer.body) == (200, b"")


def test_each_variable_of_a_path_in_the_openapi_documents_is_a_parameter() -> None:
    with serving(many()) as asked:
        documents = asked.get("/openapi/v3").json["paths"]
        paths = {
            path: place
            for one in documents.values()
            for path, place in asked.get(one["serverRelativeURL"]).json["paths"].items()
        }
        assert f"{PODS.replace('default', '{namespace}')}/{{name}}" in paths
        for path, place in paths.items():
            declared = {one["name"] for one in place["parameters"] if one["in"] == "path"}
            assert declared == set(re.findall(r"{(\w+)}", path))


def test_writes_are_refused() -> None:
    with serving(many()) as asked:
        for method in ("POST", "PUT", "PATCH", "DELETE"):
            answer = asked.get(PODS if method == "POST" else f"{PODS}/p-0001", method, b"{}")
            assert (answer.code, answer.json["reason"]) == (405, "MethodNotAllowed")
            assert answer.headers["Allow"] == "GET, HEAD, OPTIONS"
