"""Invariant tested: objects explain themselves at a prompt, and mistakes are answered in words."""

from __future__ import annotations

from typing import Any

import pytest

import shmcache
from shmcache import prompt
from shmcache.models import model

POD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "web-0", "namespace": "prod", "resourceVersion": "7"},
    "spec": {"nodeName": "<n>", "containers": [{"name": "app", "image": "a"}]},
    "status": {"phase": "Running"},
}


@pytest.fixture
def pods(writer: shmcache.Writer, cache: shmcache.Cache) -> shmcache.CachedResource:
    writer.apply("pods", [POD])
    return cache["pods"]


def test_ipython_shows_an_object_as_a_tree_under_its_name(pods: Any) -> None:
    from IPython.lib.pretty import pretty

    text = pretty(pods["prod/web-0"])

    assert text.startswith("<Pod prod/web-0 rv=7>\n")
    assert "  containers:\n    [0]:\n      name: 'app'" in text
    # the class of its model depends on the client that was imported first: Pod, or V1Pod
    assert pretty(model(pods["prod/web-0"])).partition("Pod ")[2].startswith("prod/web-0 rv=7>")
    assert pretty(pods["prod/web-0"]["spec"]).startswith("nodeName: '<n>'")


def test_notebooks_show_a_tree_of_one_object_and_tables_of_lists(pods: Any) -> None:
    view = pods["prod/web-0"]

    assert "<details open><summary>spec</summary>" in view._repr_html_()
    assert "<code>&#x27;&lt;n&gt;&#x27;</code>" in view._repr_html_()
    assert view._repr_html_() == model(view)._repr_html_()
    table = pods._repr_html_()
    assert "<td>web-0</td>" in table
    assert "<td>&lt;n&gt;</td>" in table
    assert "<th>image</th>" in view["spec"]["containers"]._repr_html_()


def test_the_text_at_a_prompt_is_bounded(roundtrip: Any) -> None:
    large = roundtrip({"list": list(range(100_000)), "text": "x" * 100_000})

    assert len(large["list"]._repr_html_()) < 10_000
    assert len(large._repr_html_()) < 10_000
    assert "99950 more" in "\n".join(prompt._lines(large["list"]))


def test_dir_and_completions_show_keys(pods: Any, cache: shmcache.Cache) -> None:
    view = pods["prod/web-0"]

    assert {"spec", "status", "to_dict", "json"} <= set(dir(view))
    assert "update" not in dir(view)
    assert "append" not in dir(view["spec"]["containers"])
    assert cache._ipython_key_completions_() == ["pods", "nodes"]
    assert pods._ipython_key_completions_() == ["prod/web-0"]
    assert view._ipython_key_completions_() == list(view)


def test_closed_handles_have_a_repr_and_a_dir(pods: Any, cache: shmcache.Cache) -> None:
    snapshot = cache.snapshot()
    things: list[Any] = [
        pods,
        pods["prod/web-0"],
        pods["prod/web-0"]["spec"]["containers"],
        pods.models(),
        pods.models()["prod/web-0"],
        pods.models()["prod/web-0"].spec.containers,
        snapshot["pods"],
        cache.follow(),
        cache,
        snapshot,
    ]
    assert repr(snapshot).startswith("<shmcache.Snapshot of generation")
    snapshot.close()
    cache.close()

    for thing in things:
        assert repr(thing).startswith("<")
        assert dir(thing)
    assert repr(snapshot) == "<shmcache.Snapshot: closed>"


def test_a_name_without_its_namespace_is_explained(pods: Any) -> None:
    with pytest.raises(KeyError) as raised:
        pods["web-0"]
    assert raised.value.args == ("web-0",)
    assert raised.value.__notes__ == [
        (
            "keys of pods are namespace/name, such as 'prod/web-0'; "
            "in one namespace: pods.get('web-0', namespace=...)"
        )
    ]
    assert pods.get("web-0", namespace="prod") == POD
    assert pods.get("web-0", 5, namespace="other") == 5
    with pytest.raises(KeyError) as raised:
        pods["prod/none"]
    assert not hasattr(raised.value, "__notes__")


@pytest.mark.parametrize(
    ("mistake", "error", "sentence"),
    [
        (lambda _, pods: pods[5], TypeError, "keys must be str like 'namespace/name', not int"),
        (lambda _, pods: pods.get(5), TypeError, "keys must be str like"),
        (lambda _, pods: pods.get(5, namespace="a"), TypeError, "the name of an object must be a"),
        (lambda _, pods: pods.get("a", namespace=5), TypeError, "namespace must be a str, not 5"),
        (lambda _, pods: pods.list(5), TypeError, "namespace must be a str, not 5"),
        (lambda _, pods: pods.list("prod/web-0"), ValueError, "has a slash: the objects of a"),
        (lambda _, pods: pods.explain(5), TypeError, "namespace must be a str, not 5"),
        (lambda _, pods: pods.list(labels=5), TypeError, "labels must be a LabelSelector"),
        (lambda _, pods: pods.owned_by(5), TypeError, "uid must be a str, not 5"),
        (lambda _, pods: pods.owner_of(5), TypeError, "needs an object with metadata, not 5"),
        (lambda _, pods: pods.add_handler(5), TypeError, "must be a function, not 5"),
        (lambda _, pods: pods.models(5), TypeError, "5 cannot be the class of models"),
        (lambda _, pods: pods.models("x"), ValueError, "no models of 'x': kubernetes"),
        (lambda cache, _: cache[5], TypeError, "the name of a resource must be a str, not 5"),
        (lambda cache, _: cache.snapshot()[5], TypeError, "the name of a resource must be a str"),
        (lambda cache, _: cache.pods, AttributeError, r"resources are items, cache\[.pods.\]"),
        (lambda cache, _: cache.nope, AttributeError, "a Cache has no attribute 'nope'$"),
        (lambda cache, _: cache.follow(5), TypeError, "must be names of resources, not 5"),
        (lambda cache, _: cache.wait("x"), TypeError, "must be a generation or a cursor, not 'x'"),
    ],
)
def test_mistakes_are_answered_in_words(
    mistake: Any, error: Any, sentence: str, cache: shmcache.Cache, pods: Any
) -> None:
    with pytest.raises(error, match=sentence):
        mistake(cache, pods)
