"""Invariant: a view behaves as the stored dict or list, except that it cannot be changed; a copy of
it is plain, equal, and outlives the cache."""

from __future__ import annotations

import collections
import collections.abc
import copy
import gc
import json
import operator
import pickle
import sys
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import orjson
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import shmcache
from shmcache import ClosedError, ListView, StaleObjectError, View

if TYPE_CHECKING:
    from collections.abc import Callable

    Roundtrip = Callable[[Any], Any]

POD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "web-0", "labels": {"app": "web"}, "annotations": {}},
    "spec": {
        "nodeName": "node-7",
        "priority": 0,
        "containers": [
            {"name": "web", "image": "registry.example.com/web:1.2", "args": ["-v", "2"]},
            {"name": "sidecar", "image": "registry.example.com/sidecar:3", "args": []},
        ],
    },
    "status": {"phase": "Running", "ready": True, "reason": None, "load": 0.25},
}
BORDERS = [
    0, 1, -1, 2**60 - 1, 2**60, -(2**60), -(2**60) - 1, 2**63 - 1, -(2**63), 2**63, 2**64 - 1,
]  # fmt: skip

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.sampled_from(BORDERS)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts
)
values = st.recursive(
    scalars,
    lambda children: st.lists(children, max_size=5) | st.dictionaries(texts, children, max_size=8),
    max_leaves=25,
)
objects = st.dictionaries(texts, values, max_size=8)
hypothesis = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.fixture
def view(roundtrip: Roundtrip) -> Any:
    return roundtrip(POD)


@pytest.fixture
def listed(roundtrip: Roundtrip) -> Any:
    """The view of [0, 'one', 2.5, None, [4], {'five': 5}]."""
    return roundtrip({"items": LIST})["items"]


LIST: list[Any] = [0, "one", 2.5, None, [4], {"five": 5}]


def plain_all_through(value: Any) -> bool:
    if type(value) is dict:
        return all(type(key) is str and plain_all_through(value[key]) for key in value)
    if type(value) is list:
        return all(map(plain_all_through, value))
    return value is None or type(value) in {str, int, float, bool}


def exact(value: Any) -> Any:
    """Distinguishes values that == does not: 1, 1.0 and True, 0.0 and -0.0, the order of keys."""
    if isinstance(value, (dict, View)):
        return ["dict", *((key, exact(value[key])) for key in value)]
    if isinstance(value, (list, ListView)):
        return ["list", *map(exact, value)]
    return type(value), repr(value)


# ---- equality with the stored value --------------------------------------------------------------


@hypothesis
@given(obj=objects)
@example(obj={"": "", "\0": "\0", '"\\': '"\\\b\f\n\r\t\x1f\x7f', "é": "é\u2028𝄞"})
@example(obj={str(n): n for n in BORDERS})
@example(obj={"floats": [0.0, -0.0, 5e-324, 1.7976931348623157e308, 1e-05, 1e16, 0.1, 100.0]})
def test_every_stored_value_comes_back_equal_and_exact(roundtrip: Roundtrip, obj: Any) -> None:
    view = roundtrip(obj)
    assert view == obj
    assert obj == view
    assert not view != obj
    assert not obj != view
    assert exact(view) == exact(obj)
    plain = view.to_dict()
    assert exact(plain) == exact(obj)
    assert plain_all_through(plain)


@hypothesis
@given(obj=objects)
def test_json_has_the_same_value_and_order(roundtrip: Roundtrip, obj: Any) -> None:
    assert exact(orjson.loads(roundtrip(obj).json())) == exact(obj)


@hypothesis
@given(obj=st.dictionaries(texts, texts | st.integers(-(2**63), 2**64 - 1) | st.lists(texts)))
def test_json_equals_orjsons_byte_for_byte(roundtrip: Roundtrip, obj: Any) -> None:
    assert roundtrip(obj).json() == orjson.dumps(obj)


def test_every_character_is_escaped_as_orjson_does_at_every_place(
    roundtrip: Roundtrip,
) -> None:
    for point in [*range(0x100), 0x7FF, 0x800, 0x2028, 0xFFFF, 0x10000, 0x10FFFF]:
        c = chr(point)
        obj = {c: c, "a" * 6 + c: "a" * 6 + c, c + "a" * 20: c + "a" * 20, c * 100: [c * 100, c]}
        assert roundtrip(obj).json() == orjson.dumps(obj)
        assert exact(roundtrip(obj).to_dict()) == exact(obj)


def test_strings_of_every_length_come_back(roundtrip: Roundtrip) -> None:
    obj = {kind * n: [kind * n, n] for kind in ("a", "é", "𝄞", "\n") for n in range(70)}
    view = roundtrip(obj)
    assert exact(obj) == exact(view)
    assert orjson.dumps(obj) == view.json()


def test_a_repeated_text_is_one_str_and_never_an_older_one(
    writer: shmcache.Writer, cache: shmcache.Cache
) -> None:
    """Blocks of texts that left the window are reused for texts of the same length."""
    pods = cache["pods"]
    for turn in range(3_000):
        text = f"text-{turn:016}"
        writer.put("pods", "prod/web-0", {"node": text})
        view = pods["prod/web-0"]
        first, second, third = view["node"], view["node"], view["node"]
        assert text == first == second == third == view.to_dict()["node"]
        assert second is third


def test_floats_have_the_shortest_text_in_orjsons_form(roundtrip: Roundtrip) -> None:
    for number, text in (
        (0.0, b"0.0"), (-0.0, b"-0.0"), (100.0, b"100.0"), (0.1, b"0.1"),
        (1e15, b"1000000000000000.0"), (1e16, b"1e+16"), (-1.5e300, b"-1.5e+300"),
        (1e-4, b"0.0001"), (1e-5, b"0.00001"), (-1.25e-5, b"-0.0000125"), (1e-6, b"1e-6"),
        (5e-324, b"5e-324"), (1.5e-10, b"1.5e-10"),
    ):  # fmt: skip
        view = roundtrip({"f": [number, 1]})
        assert view.json() == b'{"f":[' + text + b",1]}"


def test_a_large_object_and_a_long_string_come_back(roundtrip: Roundtrip) -> None:
    obj = {f"key-{n}": n for n in range(3000)} | {"long": "x" * 300_000, "wide": "é" * 100_000}
    view = roundtrip(obj)
    assert obj == view.to_dict()
    assert orjson.dumps(obj) == view.json()
    assert all(view[key] == value for key, value in obj.items())


def test_a_thousand_levels_come_back(roundtrip: Roundtrip) -> None:
    levels = 1000 // 2
    text = b'{"in":[' * levels + b'"deep"' + b"]}" * levels
    view = roundtrip(orjson.loads(text))
    assert view.json() == text
    plain = view.to_dict()
    for _ in range(levels):
        (view,), (plain,) = view["in"], plain["in"]
    assert view == plain == "deep"


def test_copies_outlive_the_cache(
    roundtrip: Roundtrip, cache: shmcache.Cache, writer: shmcache.Writer
) -> None:
    plain, text = roundtrip(POD).to_dict(), roundtrip(POD).json()
    cache.close()
    writer.close()
    assert plain == POD
    assert orjson.loads(text) == POD


# ---- as a dict -----------------------------------------------------------------------------------


def test_fields_are_read_by_subscript_get_and_attribute(view: Any) -> None:
    assert view["spec"]["nodeName"] == "node-7"
    assert view.get("spec").get("nodeName") == "node-7"
    assert view.spec.nodeName == "node-7"
    assert view.spec.containers[1].image == "registry.example.com/sidecar:3"
    assert view.get("absent") is None
    assert view.get("absent", 5) == 5
    for arguments in ((), ("a", "b", "c")):
        with pytest.raises(TypeError, match="get expected"):
            view.get(*arguments)


def test_an_absent_key_raises_key_error_with_the_key(view: Any) -> None:
    for key in ("absent", "", 5, None, 2.5, ("kind", 1), ("kind",), b"kind"):
        with pytest.raises(KeyError) as caught:
            view[key]
        assert caught.value.args == (key,)
        assert key not in view
        assert view.get(key) is None


def test_unhashable_keys_are_type_errors_even_without_keys(view: Any) -> None:
    for mapping in (view, view.metadata.annotations):
        for use in (operator.getitem, operator.contains, type(view).get):
            with pytest.raises(TypeError, match="unhashable"):
                use(mapping, [])


def test_keys_that_only_equal_a_str_are_found_as_in_a_dict(view: Any) -> None:
    class Text(str):
        __slots__ = ()

    class Odd:
        def __hash__(self) -> int:
            return hash("kind")

        def __eq__(self, other: object) -> bool:
            return other == "kind"

    not_interned = b"kind".decode()
    assert view[Text("kind")] == view[not_interned] == view[Odd()] == "Pod"
    assert Text("kind") in view


def test_an_error_in_a_keys_own_comparison_is_passed_on(view: Any) -> None:
    class Broken:
        def __hash__(self) -> int:
            return hash("kind")

        def __eq__(self, other: object) -> bool:
            raise ZeroDivisionError

    for use in (operator.getitem, operator.contains, type(view).get):
        with pytest.raises(ZeroDivisionError):
            use(view, Broken())


def test_length_truth_and_iteration_equal_the_dicts(view: Any) -> None:
    assert len(view) == 5
    assert view
    assert not view.metadata.annotations
    assert list(view) == list(POD)
    assert list(reversed(view)) == list(reversed(POD))
    assert dict(view) == POD
    assert {**view} == POD
    assert list(view.metadata.annotations) == list(reversed(view.metadata.annotations)) == []


def test_keys_values_and_items_equal_the_dicts(view: Any) -> None:
    assert view.keys() == POD.keys()
    assert view.items() == POD.items()
    assert POD.items() == view.items()
    assert list(view.values()) == list(POD.values())
    assert list(view.items()) == list(POD.items())
    assert view.keys() & {"kind", "absent"} == {"kind"}
    assert ("kind", "Pod") in view.items()
    assert list(reversed(view.items())) == list(reversed(POD.items()))
    assert len(view.items()) == len(view.values()) == len(view.keys()) == 5
    empty = view.metadata.annotations
    assert list(empty.keys()) == list(empty.values()) == list(empty.items()) == []


def test_one_changed_value_anywhere_makes_it_unequal_both_ways(roundtrip: Roundtrip) -> None:
    view = roundtrip(POD)
    changes: list[Callable[[Any], Any]] = [
        lambda pod: pod.update(kind="pod"),
        lambda pod: pod.pop("kind"),
        lambda pod: pod.update(more=1),
        lambda pod: pod["metadata"].update(annotations=[]),
        lambda pod: pod["spec"]["containers"].pop(),
        lambda pod: pod["spec"]["containers"].append(1),
        lambda pod: pod["spec"]["containers"].reverse(),
        lambda pod: pod["spec"]["containers"][0]["args"].append("x"),
        lambda pod: pod["status"].update(reason="x"),
        lambda pod: pod["status"].update(renamed=pod["status"].pop("reason")),
    ]
    for change in changes:
        other = copy.deepcopy(POD)
        change(other)
        stored = roundtrip(other)
        for left, right in ((view, other), (other, view), (view, stored), (stored, POD)):
            assert left != right
            assert not left == right


def test_equality_ignores_the_order_of_keys_and_the_kind_of_number(roundtrip: Roundtrip) -> None:
    one, other = {"a": 1, "b": {"c": 0, "d": 2}}, {"b": {"d": 2.0, "c": False}, "a": True}
    view, reordered = roundtrip(one), roundtrip(other)
    assert view == other == view
    assert view == reordered
    assert not view != reordered
    assert view == collections.OrderedDict(other)
    assert view == MappingProxyType(other)
    assert MappingProxyType(other) == view
    assert view == roundtrip(one)
    assert roundtrip({"l": [1, [2]]}) == roundtrip({"l": [1.0, [2.0]]})


def test_views_in_containers_compare_like_their_values(view: Any) -> None:
    assert [view, view.spec] == [POD, POD["spec"]]
    assert {"pod": POD} == {"pod": view}
    assert POD in [1, view]
    assert view in [1, POD]


def test_other_values_are_unequal_and_ordering_is_refused(view: Any, listed: Any) -> None:
    others: list[Any] = [None, 5, "View", [], [*POD], tuple(POD.items()), set(POD), listed]
    for other in others:
        assert view != other
        assert not view == other
    comparable: list[Any] = [POD, view, 5]
    for other in comparable:
        with pytest.raises(TypeError, match="not supported between"):
            view < other  # noqa: B015


def test_an_error_in_a_values_own_comparison_is_passed_on(view: Any, listed: Any) -> None:
    class Broken:
        __hash__ = None  # type: ignore[assignment]

        def __eq__(self, other: object) -> bool:
            raise ZeroDivisionError

    for use in (
        lambda: view == {**POD, "kind": Broken()}, lambda: listed == [Broken()] * 6,
        lambda: Broken() in listed, lambda: listed.index(Broken()), lambda: listed.count(Broken()),
    ):  # fmt: skip
        with pytest.raises(ZeroDivisionError):
            use()


def test_union_gives_a_plain_dict(view: Any) -> None:
    for union in (view | {"more": 1}, view | view | {"more": 1}):
        assert type(union) is dict
        assert union == {**POD, "more": 1}
    assert {"kind": "x", "more": 1} | view == {"kind": "x", "more": 1} | POD
    merged = {"more": 1}
    merged |= view
    assert merged == {**POD, "more": 1}
    others: list[Any] = [[], 5, None]
    for other in others:
        with pytest.raises(TypeError, match="unsupported operand"):
            view | other


def test_patterns_match(view: Any) -> None:
    match view:
        case {"kind": "Pod", "spec": {"containers": [{"name": first}, *others]}, **rest}:
            assert (first, len(others)) == ("web", 1)
            assert list(rest) == ["apiVersion", "metadata", "status"]
        case _:
            pytest.fail("a View is not a mapping")
    match view.spec:
        case [*_]:
            pytest.fail("a View is not a sequence")
    match view.spec.containers:
        case {}:
            pytest.fail("a ListView is not a mapping")


def test_the_abstract_base_classes_include_views(view: Any, listed: Any) -> None:
    assert type(view) is View
    assert type(listed) is ListView
    assert isinstance(view, collections.abc.Mapping)
    assert isinstance(view.items(), collections.abc.ItemsView)
    assert isinstance(listed, collections.abc.Sequence)
    assert not issubclass(View, collections.abc.MutableMapping)
    assert not issubclass(ListView, collections.abc.MutableSequence)
    assert not isinstance(view, collections.abc.Hashable)


# ---- attributes ----------------------------------------------------------------------------------


def test_methods_win_over_keys_of_the_same_name(roundtrip: Roundtrip) -> None:
    view = roundtrip({"items": [1], "keys": 2, "other": 3})
    assert view.other == 3
    assert callable(view.items)
    assert view["items"] == [1]
    assert view["keys"] == 2


def test_an_absent_attribute_names_itself_and_hasattr_works(view: Any, listed: Any) -> None:
    with pytest.raises(AttributeError, match=r"no attribute or key 'absent'$"):
        _ = view.absent
    with pytest.raises(AttributeError, match=r"'update': it is read-only.*to_dict"):
        view.update({})
    with pytest.raises(AttributeError, match=r"no attribute 'append': it is read-only.*to_list"):
        listed.append(1)
    assert hasattr(view, "kind")
    assert not hasattr(view, "absent")
    assert not hasattr(view, "pop")
    assert getattr(view, "absent", 5) == 5


# ---- as a list -----------------------------------------------------------------------------------


def test_a_list_view_is_indexed_and_iterated_as_the_list(listed: Any) -> None:
    assert len(listed) == 6
    assert listed
    for i in range(-6, 6):
        assert listed[i] == LIST[i]
    for outside in (6, -7, 2**40, -(2**40), 2**70):
        with pytest.raises(IndexError):
            listed[outside]
    for wrong in ("0", 0.0, None):
        with pytest.raises(TypeError, match="indices must be integers or slices"):
            listed[wrong]
    assert list(listed) == LIST
    assert list(reversed(listed)) == LIST[::-1]
    assert [*listed, *listed] == LIST * 2
    assert operator.length_hint(iter(listed)) == 6
    iterator = reversed(listed)
    next(iterator)
    assert operator.length_hint(iterator) == 5
    assert len(list(iterator)) == 5
    assert list(iterator) == []


def test_an_empty_list_view_is_an_empty_list(roundtrip: Roundtrip) -> None:
    empty = roundtrip({"l": []}).l
    assert not empty
    assert empty == []
    assert [] == empty
    assert list(empty) == list(reversed(empty)) == empty[:] == empty[::-1] == empty.to_list() == []
    assert empty.json() == b"[]"
    assert repr(empty) == "ListView([])"


@hypothesis
@given(length=st.integers(0, 12), where=st.data())
def test_slices_equal_the_lists_and_are_plain(
    roundtrip: Roundtrip, length: int, where: Any
) -> None:
    items = list(range(length))
    view = roundtrip({"items": items})["items"]
    cut = where.draw(st.slices(length)) if length else slice(None)
    assert type(view[cut]) is list
    assert view[cut] == items[cut]


def test_slices_with_any_bounds_equal_the_lists(listed: Any) -> None:
    bounds = [None, *range(-8, 9), 2**70, -(2**70)]
    for start in bounds:
        for stop in bounds:
            for step in (None, 1, 2, 7, -1, -2, -7, 2**70):
                assert listed[start:stop:step] == LIST[start:stop:step]
    with pytest.raises(ValueError, match="step"):
        listed[::0]
    with pytest.raises(TypeError, match="slice indices"):
        listed["a":]


def test_search_equals_the_lists(roundtrip: Roundtrip) -> None:
    items = ["a", "b", "a", {"x": [1]}, 1, True, None, "a"]
    view = roundtrip({"items": items})["items"]
    for sought in ("a", "b", "z", {"x": [1]}, {"x": [2]}, 1, True, 1.0, None, [], items[3]):
        assert (sought in view) == (sought in items)
        assert view.count(sought) == items.count(sought)
        for bounds in ((), (1,), (3, -1), (-3,), (0, 100), (-100, 3), (5, 2), (2**70,)):
            try:
                expected: Any = items.index(sought, *bounds)
            except ValueError:
                with pytest.raises(ValueError, match="is not in list"):
                    view.index(sought, *bounds)
            else:
                assert view.index(sought, *bounds) == expected
    for wrong in ((), ("a", 0, 1, 2), ("a", "0"), ("a", 0, None)):
        with pytest.raises(TypeError):
            view.index(*wrong)


def test_a_list_view_equals_lists_only(listed: Any) -> None:
    assert listed == LIST
    assert LIST == listed
    assert not listed != LIST
    others: list[Any] = [LIST[:-1], [*LIST, 1], LIST[::-1], tuple(LIST), None, "one", {}]
    for other in others:
        assert listed != other
        assert not listed == other
    with pytest.raises(TypeError, match="not supported between"):
        listed < LIST  # noqa: B015


def test_a_list_that_changes_while_it_is_compared_does_no_harm(listed: Any) -> None:
    class Shrinks:
        def __eq__(self, other: object) -> bool:
            victim.clear()
            return True

        __hash__ = None  # type: ignore[assignment]

    victim: list[Any] = [Shrinks(), *LIST[1:]]
    assert listed != victim


def test_sums_and_products_are_plain_lists(listed: Any) -> None:
    seven = [7]
    assert listed + seven == LIST + seven
    assert seven + listed == seven + LIST
    assert listed + listed == LIST * 2
    assert listed * 2 == 2 * listed == LIST * 2
    assert type(listed + seven) is type(listed * 1) is list
    others: list[Any] = [(), 5, None]
    for other in others:
        with pytest.raises(TypeError):
            listed + other


# ---- copies --------------------------------------------------------------------------------------


def test_a_shallow_copy_is_plain_and_its_containers_are_views(view: Any, listed: Any) -> None:
    for shallow in (view.copy(), copy.copy(view)):
        assert type(shallow) is dict
        assert type(shallow["spec"]) is View
        assert shallow == POD
    for shallow in (listed.copy(), copy.copy(listed)):
        assert type(shallow) is list
        assert type(shallow[5]) is View
        assert shallow == LIST
    assert view.metadata.annotations.copy() == {}


def test_copies_are_independent_of_each_other(view: Any) -> None:
    first, second = view.to_dict(), view.to_dict()
    first["metadata"]["labels"]["app"] = first["more"] = "changed"
    shallow = view.copy()
    shallow["kind"] = shallow["more"] = "changed"
    assert view == second == POD
    assert list(view.keys()) == list(POD)
    assert view.to_dict() == POD


def test_a_deep_copy_is_plain_all_the_way(view: Any, listed: Any) -> None:
    for deep, original in (
        (copy.deepcopy(view), POD), (view.to_dict(), POD), (copy.deepcopy([view])[0], POD),
        (copy.deepcopy(listed), LIST), (listed.to_list(), LIST), (listed[4].to_list(), [4]),
    ):  # fmt: skip
        assert exact(deep) == exact(original)
        assert plain_all_through(deep)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_unpickling_gives_plain_values_without_shmcache(
    view: Any, listed: Any, protocol: int
) -> None:
    pickled = pickle.dumps([view, listed, view.spec], protocol)
    assert b"shmcache" not in pickled
    restored = pickle.loads(pickled)  # noqa: S301
    assert exact(restored) == exact([POD, LIST, POD["spec"]])
    assert plain_all_through(restored)


def test_default_lets_json_and_orjson_encode_views(view: Any, listed: Any) -> None:
    thing = {"pod": view, "list": listed, "nested": [view.spec]}
    plain = {"pod": POD, "list": LIST, "nested": [POD["spec"]]}
    assert orjson.dumps(thing, default=shmcache.default) == orjson.dumps(plain)
    assert json.dumps(thing, default=shmcache.default) == json.dumps(plain)
    for other in (object(), {1}, {}, [], "text"):
        with pytest.raises(TypeError, match=f"type {type(other).__name__} is not JSON"):
            shmcache.default(other)


def test_json_of_a_part_is_the_part(view: Any, listed: Any) -> None:
    assert view.spec.json() == orjson.dumps(POD["spec"])
    assert view.spec.containers.json() == orjson.dumps(POD["spec"]["containers"])
    assert view.metadata.annotations.json() == b"{}"
    assert listed.json() == orjson.dumps(LIST)


# ---- refusals ------------------------------------------------------------------------------------


def test_every_attempt_to_write_raises_read_only_with_the_alternative(
    view: Any, listed: Any
) -> None:
    def augmented(name: str, thing: Any, value: Any) -> None:
        getattr(operator, name)(thing, value)

    for attempt in (
        lambda: view.__setitem__("a", 1), lambda: operator.setitem(view, "a", 1),
        lambda: operator.delitem(view, "kind"), lambda: setattr(view, "a", 1),
        lambda: setattr(view, "kind", 1), lambda: delattr(view, "kind"),
        lambda: setattr(view, "items", 1), lambda: augmented("ior", view, {}),
    ):  # fmt: skip
        with pytest.raises(TypeError, match=r"^View does not support .* read-only .*\.to_dict\(\)"):
            attempt()
    for attempt in (
        lambda: operator.setitem(listed, 0, 1), lambda: operator.setitem(listed, slice(2), []),
        lambda: operator.delitem(listed, 0), lambda: setattr(listed, "a", 1),
        lambda: delattr(listed, "index"), lambda: augmented("iadd", listed, [1]),
        lambda: augmented("imul", listed, 2),
    ):  # fmt: skip
        with pytest.raises(TypeError, match=r"^ListView does not .* read-only .*\.to_list\(\)"):
            attempt()
    assert view == POD
    assert listed == LIST


def test_views_are_unhashable_and_cannot_be_subclassed(view: Any, listed: Any) -> None:
    for thing in (view, listed):
        with pytest.raises(TypeError, match="unhashable"):
            hash(thing)
        with pytest.raises(TypeError, match="not an acceptable base type"):
            type("Sub", (type(thing),), {})


def test_a_view_is_taken_for_a_dict_or_list_and_its_type_makes_plain_ones(
    view: Any, listed: Any
) -> None:
    assert isinstance(view, dict)
    assert isinstance(listed, list)
    assert [isinstance(one, list) for one in (view, listed)] == [False, True]
    made = type(view)(a=1), type(listed)((1, 2))
    assert made == ({"a": 1}, [1, 2])
    assert [type(one) for one in made] == [dict, list]


# ---- repr ----------------------------------------------------------------------------------------


def test_repr_names_objects_and_shows_the_first_plain_fields_of_others(
    view: Any, listed: Any
) -> None:
    assert repr(view) == "<Pod web-0>"
    assert repr(view.metadata) == "View({'name': 'web-0', …2 more})"
    assert repr(view.metadata.labels) == "View({'app': 'web'})"
    assert repr(view.metadata.annotations) == "View({})"
    assert repr(listed) == "ListView([0, 'one', 2.5, None, …2 more])"
    assert repr(view.spec.containers) == "ListView([{…}, {…}])"


def test_repr_of_containers_only_shows_their_kinds(roundtrip: Roundtrip) -> None:
    view = roundtrip({"a": {"x": 1}, "b": [1], "c": {}, "d": [], "e": [2]})
    assert repr(view) == "View({'a': {…}, 'b': […], 'c': {}, 'd': [], …1 more})"


def test_repr_is_short_whatever_the_size(roundtrip: Roundtrip) -> None:
    long = "é'\n" * 100_000
    for obj in ({long + str(n): long for n in range(3)}, {str(n): [n] for n in range(10_000)}):
        view = roundtrip(obj)
        assert len(repr(view)) < 500
        assert len(repr(roundtrip({"l": [view.to_dict()] * 1000 + [long] * 9})["l"])) < 500


# ---- memory --------------------------------------------------------------------------------------


def test_the_collector_never_visits_views(view: Any, listed: Any) -> None:
    for thing in (view, listed, view.spec, iter(listed)):
        assert not gc.is_tracked(thing)


def test_nothing_is_left_behind(view: Any, listed: Any) -> None:
    wrongs: list[Callable[[], Any]] = [
        lambda: view["x"], lambda: view.x, lambda: listed[99], lambda: view[[]],
    ]  # fmt: skip

    def use_everything() -> None:
        for thing in (view, listed, view.metadata.annotations):
            repr(thing)
            thing.json()
            copy.copy(thing), copy.deepcopy(thing), pickle.dumps(thing)
            thing == POD, thing == LIST, list(thing), list(reversed(thing)), 5 in thing
        view.items(), view.values(), view.keys(), view | view, view.get("x"), view.kind
        listed[1:], listed.count(1), listed + listed, listed * 2
        for wrong in wrongs:
            with pytest.raises((LookupError, AttributeError, TypeError)):
                wrong()
        [view.spec for _ in range(500)]  # more than any free list keeps

    def growth() -> int:
        before = sys.getallocatedblocks()
        for _ in range(50):
            use_everything()
        gc.collect()
        return sys.getallocatedblocks() - before

    assert min(growth() for _ in range(6)) < 50  # the interpreter's own caches fill up first


def test_more_shapes_than_the_cache_holds_do_no_harm(roundtrip: Roundtrip) -> None:
    obj = {"all": [{f"key-{n}": n, "n": n} for n in range(6000)]}
    view = roundtrip(obj)
    kept = list(view["all"])
    for _ in range(2):
        assert all(each[f"key-{n}"] == n for n, each in enumerate(kept))
        assert [each["n"] for each in view["all"]] == list(range(6000))
    assert obj == view.to_dict()
    assert orjson.dumps(obj) == view.json()


# ---- after the memory is gone --------------------------------------------------------------------


def uses(view: Any, unopened: Any, listed: Any) -> list[Callable[[], Any]]:
    """Every way to read them. `unopened` was never read."""
    iterator = iter(listed)
    return [
        lambda: view["kind"], lambda: view.kind, lambda: view.get("kind"), lambda: "kind" in view,
        lambda: len(view), lambda: bool(view), lambda: list(view), lambda: list(reversed(view)),
        view.keys, view.values, view.items, view.copy, view.to_dict, view.json,
        lambda: view == POD, lambda: view == view, lambda: POD == view, lambda: view | {},  # noqa: PLR0124
        lambda: copy.deepcopy(view), lambda: pickle.dumps(view),
        lambda: unopened["nodeName"], lambda: unopened == POD["spec"], lambda: len(unopened),
        unopened.to_dict, unopened.json,
        lambda: listed[0], lambda: listed[:], lambda: len(listed), lambda: iter(listed),
        lambda: next(iterator), lambda: 0 in listed, lambda: listed.index(0), listed.copy,
        lambda: listed.count(0), lambda: listed == LIST, lambda: reversed(listed),
        listed.to_list, listed.json, lambda: listed + LIST, lambda: listed * 2,
    ]  # fmt: skip


def test_after_close_every_access_raises_closed_error_and_repr_reports_it(
    view: Any, listed: Any, cache: shmcache.Cache
) -> None:
    unopened, accesses = view.spec, uses(view, view.spec, listed)
    cache.close()
    for access in accesses:
        with pytest.raises(ClosedError):
            access()
    assert repr(view) == repr(unopened) == "<View: ClosedError>"
    assert repr(listed) == "<ListView: ClosedError>"


def test_after_revocation_every_access_raises_stale_object_error_and_repr_reports_it(
    name: str,
) -> None:
    with (
        shmcache.Writer(name, ["pods"], arena_max="64MiB", ring_slots=16, garbage_max="1MiB") as w,
        shmcache.attach(name) as cache,
    ):
        w.put("pods", "a/kept", POD)
        w.put("pods", "a/listed", {"items": LIST})
        w.put("pods", "a/other", {"text": "x" * 2_000_000})  # more than the garbage limit
        view, listed = cache["pods"]["a/kept"], cache["pods"]["a/listed"]["items"]
        accesses = uses(view, view.spec, listed)
        assert view == POD
        assert listed == LIST
        for number in range(3000):
            w.put("pods", "a/other", {"text": f"{number} " * 500})
            if repr(listed).startswith("<"):
                break
        for access in accesses:
            with pytest.raises(StaleObjectError):
                access()
        assert repr(view) == "<View: StaleObjectError>"
        assert repr(listed) == "<ListView: StaleObjectError>"
        assert cache["pods"]["a/kept"] == POD
