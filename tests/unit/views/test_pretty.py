"""JSON laid out for people: the layout, the clients that get it, and that nothing else changes
(G47)."""

import gzip
import itertools
import random
from typing import Any

import orjson
import pytest
from served import pod, serving

from shmcache._hot import Pretty
from shmcache.protocol import accept, framing

ALL = "/api/v1/pods"
ONE = "/api/v1/namespaces/default/pods/p-0001"
TEXTS = ("", "a", '"', "\\", '\\"', "{", "]", ",", ":", "\n", "é", "  ")


def value(rng: random.Random, depth: int = 0) -> Any:
    kind = rng.randrange(4 if depth < 6 else 2)
    if kind == 0:
        return "".join(rng.choices(TEXTS, k=rng.randrange(5)))
    if kind == 1:
        return rng.choice((None, True, False, 0, -7, 1.5, 10**15))
    some = [value(rng, depth + 1) for _ in range(rng.randrange(4))]
    return some if kind == 2 else {f"{n}{rng.choice(TEXTS)}": one for n, one in enumerate(some)}


def test_the_layout_is_that_of_the_whole_text_wherever_it_is_cut() -> None:
    rng = random.Random(3)
    for _ in range(300):
        found = value(rng)
        text, pretty = orjson.dumps(found) + b"\n", Pretty()
        cuts = [0, *sorted(rng.choices(range(len(text) + 1), k=3)), len(text)]
        pieces = [pretty.feed(text[a:b]) for a, b in itertools.pairwise(cuts)]

        assert b"".join(pieces) == orjson.dumps(found, option=orjson.OPT_INDENT_2)


def test_text_that_is_laid_out_already_stays() -> None:
    text = orjson.dumps({"a": [1, {}], "b": []}, option=orjson.OPT_INDENT_2)

    assert Pretty().feed(text) == text
    with pytest.raises(TypeError):
        Pretty().feed("text")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("query", "headers", "shown"),
    [
        ({}, {}, False),
        ({"pretty": "true"}, {}, True),
        ({"pretty": "1"}, {}, True),
        ({"pretty": "yes"}, {"user-agent": "curl/8"}, False),
        ({"pretty": "0"}, {"user-agent": "curl/8"}, False),
        ({"pretty": ""}, {"user-agent": "curl/8"}, True),
        ({}, {"user-agent": "curl/7.88.1"}, True),
        ({}, {"user-agent": "Wget/1.21"}, True),
        ({}, {"user-agent": "Mozilla/5.0 (X11)"}, True),
        ({}, {"user-agent": "kubectl/v1.36"}, False),
        ({"pretty": "false"}, {"accept": "application/json;pretty=1"}, True),
        ({}, {"accept": "application/json;pretty=true"}, False),
        ({}, {"accept": "application/yaml;pretty=1,application/json"}, False),
    ],
)
def test_people_and_explicit_requests_get_the_layout(
    query: dict[str, str], headers: dict[str, str], shown: bool
) -> None:
    assert accept.pretty(query, headers) == shown


def test_objects_documents_and_refusals_are_laid_out_with_the_same_content() -> None:
    paths = (ONE, ALL, f"{ALL}?limit=1", f"{ALL}/x/y/z", "/api", "/apis", f"{ALL}?limit=x")
    with serving({"pods": [pod(n, note="<&>") for n in range(5)]}) as asked:
        for path in paths:
            plain = asked.get(path)
            shown = asked.get(path, User_Agent="curl/8")

            assert shown.code == plain.code
            if plain.headers["Content-Type"] != "application/json":
                assert shown.body == plain.body
                continue
            expected = orjson.dumps(plain.json, option=orjson.OPT_INDENT_2)
            assert shown.body == framing.escaped(expected)
            assert framing.escaped(plain.body) == plain.body


def test_a_long_list_is_laid_out_piece_by_piece_and_compressed_afterwards() -> None:
    with serving({"pods": [pod(n, note="<" * 60) for n in range(3000)]}) as asked:
        plain = asked.get(ALL)
        shown = asked.get(f"{ALL}?pretty=true")
        zipped = asked.get(f"{ALL}?pretty=true", Accept_Encoding="gzip")

        expected = framing.escaped(orjson.dumps(plain.json, option=orjson.OPT_INDENT_2))
        assert plain.body == framing.escaped(plain.body)
        assert shown.body == expected
        assert gzip.decompress(zipped.body) == expected


def test_a_watch_has_lines_for_every_client() -> None:
    with serving({"pods": [pod(1)]}) as asked:
        path = f"{ALL}?watch=1&timeoutSeconds=1&pretty=true"
        answer = asked.get(path, User_Agent="curl/8")

        (line,) = answer.body.splitlines()
        assert orjson.loads(line)["type"] == "ADDED"
