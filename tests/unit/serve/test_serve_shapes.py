"""Accept and includeObject work as in the API server, or are refused as there."""

import json
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from served import pod, serving

from shmcache.protocol import accept, failures
from shmcache.protocol.accept import FULL, TABLE, Shape
from shmcache.testing import ApiServer

ALL = "/api/v1/pods"
ONE = "/api/v1/namespaces/default/pods/p-0001"
WATCH = f"{ALL}?watch=1&resourceVersion=0&allowWatchBookmarks=1"
META = "g=meta.k8s.io"
BETA = f"v=v1beta1;{META}"
TABLE_1 = f"application/json;as=Table;v=v1;{META}"
JSON = "application/json"
LEAN = f"{JSON};drop=metadata.managedFields"
LEAN_FULL = FULL._replace(lean=True)
Ask = Callable[[str, str], tuple[int, Any]]


@pytest.mark.parametrize(("text", "shape"), [
    ("", FULL),
    ("*/*", FULL),
    ("*", FULL),
    ("application/*", FULL),
    ("text/html, application/json", FULL),
    (f"{TABLE_1},{JSON}", TABLE),
    (f"{JSON},{TABLE_1}", FULL),
    (f"{JSON};q=0.5,{TABLE_1}", TABLE),
    (f"{JSON};q=0.5,{TABLE_1};q=.4", FULL),
    (f"*/*,{TABLE_1}", TABLE),
    (f"*/*;q=0.9,{TABLE_1};q=0.1", TABLE),
    (f"{TABLE_1};q=0.1,*/*;q=0.9", FULL),
    (f"application/*,{TABLE_1}", TABLE),
    (f"*/*,application/*;as=Table;v=v1;{META}", TABLE),
    (f"{TABLE_1};q=0,{JSON};q=0.1", FULL),
    (f"{TABLE_1};q=0.000,*/*", FULL),
    (f"{JSON};q=what,{TABLE_1};q=0.1", TABLE),
    (f"{JSON} ; as=Table ; v=v1 ; {META}", TABLE),
    (f"application/json;as=Table;{BETA}", Shape("table", "v1beta1")),
    (f"application/json;as=PartialObjectMetadata;{BETA}", Shape("partial", "v1beta1")),
    (f"application/json;as=Tables;v=v1;{META},{JSON}", FULL),
    (f"application/json;as=Table;v=v2;{META},{JSON}", FULL),
    (f"application/json;as=Table;v=v1,{JSON}", FULL),
    ("application/json;v=v1,*/*;as=", FULL),
    ("application/json;stream=watch", FULL),
    (f"application/json;stream=other;as=Table;v=v1;{META},{JSON}", FULL),
    (f"application/json/x;as=Table;v=v1;{META},{JSON}", FULL),
    ("application/json;charset=utf-8", FULL),
    (LEAN, LEAN_FULL),
    (f"{LEAN}, {JSON}", LEAN_FULL),
    (f"{JSON}; drop=metadata.managedFields", LEAN_FULL),
    (f"{JSON},{LEAN}", FULL),
    (f"{JSON};drop=metadata.annotations", FULL),
    (f"{JSON};drop=metadata.annotations+metadata.managedFields", LEAN_FULL),
    (f"{JSON};drop=", FULL),
    (f"{JSON};drop=metadata.managedFieldsX", FULL),
    (f"{TABLE_1};drop=metadata.managedFields", TABLE._replace(lean=True)),
])  # fmt: skip
def test_the_clause_that_decides(text: str, shape: Shape) -> None:
    assert accept.shape(text) == shape


@pytest.mark.parametrize("text", [
    "application/yaml", "json", "/", ",", "application/json;q=0", "*/*;q=0.0,application/json;q=0",
    "application/json;as=Table", f"application/json;as=Table;v=v2;{META}", "application/json;g=x",
    "application/json;stream=other", "application/json;sv=v2", "Application/JSON",
])  # fmt: skip
def test_unservable_accept_header_is_refused(text: str) -> None:
    with pytest.raises(failures.Failure) as failure:
        accept.shape(text)
    assert failure.value.code == 406


def test_many_clauses_cost_little() -> None:
    assert accept.shape(",".join(["*/*;q=0.5", "application/*", TABLE_1] * 3000)) == TABLE


@pytest.fixture(scope="module", name="ask", params=["serve", "server for tests"])
def servers(request: pytest.FixtureRequest) -> Iterator[Ask]:
    """Both servers, of one pod."""
    one = pod(1)
    if request.param == "serve":
        with serving({"pods": [one]}) as asked:
            yield lambda path, accepted: _ask(
                f"http://127.0.0.1:{asked.serve.port}{path}", accepted
            )
    else:
        with ApiServer() as real:
            real.create("pods", {**one, "metadata": {**one["metadata"], "resourceVersion": ""}})
            yield lambda path, accepted: _ask(real.url + path, accepted)


def _ask(url: str, accepted: str) -> tuple[int, Any]:
    """The code and the body; of a watch, the first event."""
    request = urllib.request.Request(url, headers={"Accept": accepted})  # noqa: S310 - ours
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310
            return answer.status, json.loads(
                answer.readline() if "watch=" in url else answer.read()
            )
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


MANAGED = [{"manager": "kubectl", "operation": "Update", "fieldsV1": {"f:spec": {}}}]


@pytest.fixture(scope="module", name="managed", params=["serve", "server for tests"])
def servers_of_managed_fields(request: pytest.FixtureRequest) -> Iterator[Ask]:
    """Both servers, of one pod with its managedFields."""
    one = pod(1)
    one["metadata"] |= {"managedFields": MANAGED, "resourceVersion": "100"}
    if request.param == "serve":
        with serving({"pods": [one]}) as asked:
            url = f"http://127.0.0.1:{asked.serve.port}"
            yield lambda path, accepted: _ask(url + path, accepted)
    else:
        with ApiServer() as real:
            real.load("pods", one)
            yield lambda path, accepted: _ask(real.url + path, accepted)


@pytest.mark.parametrize("include", ["", "Object"])
@pytest.mark.parametrize("form", ["", "as=PartialObjectMetadata", "as=Table"])
@pytest.mark.parametrize("path", [ALL, ONE, WATCH])
def test_managed_fields_are_left_out_for_clients_that_want_none(
    managed: Ask, path: str, form: str, include: str
) -> None:
    """ACCEPT3: every other byte is the same, and clients that want them still get them."""
    if form.endswith("Metadata") and path == ALL:
        form += "List"
    accepted = f"{JSON};{form};v=v1;{META}" if form else JSON
    path += f"{'&' if '?' in path else '?'}includeObject={include}"
    for _ in range(2):
        full = managed(path, accepted)
        lean = managed(path, f"{accepted};drop=metadata.managedFields")
        assert full[0] == lean[0] == 200
        [metadata] = _metadata(full[1])
        assert metadata.pop("managedFields") == MANAGED
        assert full == lean


def _metadata(body: dict[str, Any]) -> list[dict[str, Any]]:
    """Of the objects of an answer."""
    body = body.get("object", body)
    if "rows" in body:
        return [row["object"]["metadata"] for row in body["rows"]]
    return [one["metadata"] for one in body.get("items", [body])]


def _partial(kind: str, version: str = "v1") -> str:
    return f"application/json;as={kind};v={version};{META}"


def test_metadata_of_a_list_is_not_that_of_an_object(ask: Ask) -> None:
    code, body = ask(ALL, _partial("PartialObjectMetadata"))
    assert (code, body["reason"]) == (406, "NotAcceptable")
    assert "PartialObjectMetadata, but the requested object is a list" in body["message"]
    code, body = ask(ONE, _partial("PartialObjectMetadataList"))
    assert (code, body["reason"]) == (406, "NotAcceptable")
    assert "PartialObjectMetadataList, but the requested object is not a list" in body["message"]
    assert ask(ALL, _partial("PartialObjectMetadataList"))[0] == 200
    assert ask(ONE, _partial("PartialObjectMetadata"))[0] == 200
    for kind in ("PartialObjectMetadata", "PartialObjectMetadataList"):
        assert ask(WATCH, _partial(kind))[1]["object"]["kind"] == "PartialObjectMetadata"


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
def test_both_versions_of_metadata_and_tables(ask: Ask, version: str) -> None:
    name = f"meta.k8s.io/{version}"
    assert ask(ONE, _partial("PartialObjectMetadata", version))[1]["apiVersion"] == name
    page = ask(ALL, _partial("PartialObjectMetadataList", version))[1]
    assert (page["apiVersion"], page["items"][0]["apiVersion"]) == (name, name)
    assert ask(WATCH, _partial("PartialObjectMetadata", version))[1]["object"]["apiVersion"] == name
    asked = _partial("Table", version)
    for table in (ask(ONE, asked)[1], ask(ALL, asked)[1], ask(WATCH, asked)[1]["object"]):
        [row] = table["rows"]
        assert (table["apiVersion"], row["object"]["apiVersion"]) == (name, name)


@pytest.mark.parametrize("path", [ALL, ONE, WATCH])
def test_objects_in_table_rows(ask: Ask, path: str) -> None:
    path += "&" if "?" in path else "?"
    for include, kind in (("", "PartialObjectMetadata"), ("Metadata", "PartialObjectMetadata"),
                          ("Object", "Pod"), ("None", None)):  # fmt: skip
        found = ask(f"{path}includeObject={include}", TABLE_1)[1]
        [row] = found.get("object", found)["rows"]
        assert (row["object"] or {}).get("kind") == kind
    code, body = ask(f"{path}includeObject=foo", TABLE_1)
    why = "includeObject: Invalid value: \"foo\": must be 'Metadata', 'Object', 'None', or empty"
    assert (code, body["message"]) == (400, f"Unable to convert to Table as requested: {why}")
    assert ask(f"{path}includeObject=foo", JSON)[0] == 200
