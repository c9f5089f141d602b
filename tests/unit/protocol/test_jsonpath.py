"""Invariant tested: a path leads to the values that kubectl finds."""

from __future__ import annotations

from typing import Any

import pytest

from shmcache.protocol.jsonpath import path, walk
from shmcache.protocol.tables.printcustom import declared_column

OBJECT: dict[str, Any] = {
    "kind": "List",
    "a.b": {"c": 1},
    "numbers": [10, 11, 12, 13, 14],
    "items": [
        {"name": "x", "size": 1, "tags": ["p", "q"]},
        {"name": "y", "size": 2, "inner": {"name": "deep"}},
        {"name": "z", "size": 3, "on": True},
    ],
}


@pytest.mark.parametrize(
    ("text", "values"),
    [
        (".kind", ["List"]),
        ("kind", ["List"]),
        ("$.kind", ["List"]),
        ("@.kind", ["List"]),
        (" .kind ", ["List"]),
        (".", [OBJECT]),
        (".none", []),
        (".kind.none", []),
        (".items.name", []),
        (".items[*].name", ["x", "y", "z"]),
        (".items.*.name", ["x", "y", "z"]),
        (".items[0].name", ["x"]),
        (".items[-1].name", ["z"]),
        (".items[3].name", []),
        (".items[-3].name", ["x"]),
        (".items[-4].name", []),
        (".items[0:2].name", ["x", "y"]),
        (".items[1:].name", ["y", "z"]),
        (".items[:1].name", ["x"]),
        (".numbers[::2]", [10, 12, 14]),
        (".numbers[1:4:2]", [11, 13]),
        (".numbers[0,2,-1]", [10, 12, 14]),
        (".numbers[0:2,4]", [10, 11, 14]),
        (r"['a\.b'].c", [1]),
        ("['a.b'].c", []),
        ("['items'][0]['name', 'size']", ["x", 1]),
        ("['kind','numbers'][0]", [10]),
        (r".a\.b.c", [1]),
        ("..name", ["x", "y", "deep", "z"]),
        ("..tags[0]", ["p"]),
        (".items[0].*", ["x", 1, ["p", "q"]]),
        ('.items[?(@.name=="y")].size', [2]),
        (".items[?(@.name=='y')].size", [2]),
        (".items[?(@.name==y)].size", [2]),
        ('.items[?(@.name!="y")].size', [1, 3]),
        (".items[?(@.size>1)].name", ["y", "z"]),
        (".items[?(@.size>=2)].name", ["y", "z"]),
        (".items[?(@.size<2)].name", ["x"]),
        (".items[?(@.size<=2)].name", ["x", "y"]),
        (".items[?(@.size>3)].name", []),
        (".items[?(@.on)].name", ["z"]),
        (".items[?(@.on==true)].name", ["z"]),
        (".items[?(@.inner.name)].name", ["y"]),
        (".items[?(@.name>1)].name", []),
        ('.items[?(@.none=="y")].name', []),
        (".items[?( @.size == 2 )].name", ["y"]),
    ],
)  # fmt: skip
def test_a_path_leads_to_its_values(text: str, values: list[Any]) -> None:
    assert walk(path(text), OBJECT) == values


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        (".items[", "["),
        (".items[x]", "[x]"),
        (".items[]", "[]"),
        (".numbers[0:1:1:1]", "[0:1:1:1]"),
        (".numbers[::0]", "[::0]"),
        (".items[?(name==1)]", "[?(name==1)]"),
        (".a{b}", "{b}"),
        (".a b", " b"),
    ],
)
def test_a_path_that_cannot_be_read_is_refused_where_it_fails(text: str, rest: str) -> None:
    with pytest.raises(ValueError, match="invalid JSONPath") as caught:
        path(text)

    assert str(caught.value) == f"invalid JSONPath {text!r}: unexpected {rest!r}"


@pytest.mark.parametrize("text", [
    ".a" + "[0,0]" * 60, ".a[" + "0," * 300 + "0]", "..*" * 30, "$" * 2000 + ".b",
])  # fmt: skip
def test_a_column_of_a_stranger_costs_no_more_than_its_object(text: str) -> None:
    lists: Any = 1
    maps: Any = 1
    for _ in range(60):
        lists, maps = [lists], {"b": maps}
    column = declared_column({"name": "A", "type": "string", "jsonPath": text})
    assert column.cell({"a": lists, "b": maps}) is None


def test_a_cell_of_an_object_that_is_too_deep_or_too_large_is_empty() -> None:
    deep: Any = {}
    for _ in range(5000):
        deep = {"a": deep}
    column = declared_column({"name": "A", "type": "string", "jsonPath": "..x"})
    assert column.cell(deep) is None
    column = declared_column({"name": "A", "type": "integer", "jsonPath": ".a"})
    assert [column.cell({"a": value}) for value in (1e300, 1 << 63, 7.0)] == [None, None, 7]


def test_a_filter_with_a_value_that_is_nested_too_deeply_compares_with_its_text() -> None:
    deep = "[" * 1000
    column = declared_column({"name": "A", "type": "string", "jsonPath": f".a[?(@.b=={deep})].c"})
    assert column.cell({"a": [{"b": 1, "c": "x"}]}) is None
    assert walk(path(f"a[?(@.b=={deep * 20})].c"), {"a": [{"b": deep * 20, "c": "x"}]}) == ["x"]
