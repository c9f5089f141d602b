"""Invariant tested: a selector means the same here as to the API server, and fails with its texts.

The tables are those of apimachinery's labels/selector_test.go and fields/selector_test.go.
"""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest

import shmcache
from shmcache.errors import InvalidSelector
from shmcache.protocol.selectors import fields
from shmcache.protocol.selectors.labels import Requirement
from shmcache.reader.selectors import FieldSelector, LabelSelector

TRACES = Path(__file__).parents[2] / "conformance" / "traces"


def labelled(**labels: str) -> dict[str, Any]:
    return {"metadata": {"labels": labels}}


# ---- label selectors: parsing --------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "x=a,y=b,z=c",
        "",
        "x!=a,y=b",
        "x=",
        "x= ",
        "x=,z= ",
        "x= ,z= ",
        "!x",
        "x>1",
        "x>1,z<5",
    ],
)
def test_a_valid_selector_is_written_as_it_was_read(text: str) -> None:
    parsed = LabelSelector.parse(text)

    assert str(parsed) == text.replace(" ", "")
    assert LabelSelector.parse(str(parsed)) == parsed
    assert pickle.loads(pickle.dumps(parsed)) == parsed  # noqa: S301


@pytest.mark.parametrize(
    ("text", "requirements"),
    [
        ("\rx", [("x", "exists")]),
        (
            "this-is-a-dns.domain.com/key-with-dash",
            [("this-is-a-dns.domain.com/key-with-dash", "exists")],
        ),
        (
            "this-is-another-dns.domain.com/key-with-dash in (so,what)",
            [("this-is-another-dns.domain.com/key-with-dash", "in", "so", "what")],
        ),
        (
            "0.1.2.domain/99 notin (10.10.100.1, tick.tack.clock)",
            [("0.1.2.domain/99", "notin", "10.10.100.1", "tick.tack.clock")],
        ),
        ("foo  in\t (abc)", [("foo", "in", "abc")]),
        ("x notin\n (abc)", [("x", "notin", "abc")]),
        ("x  notin\t\t\t(abc,def)", [("x", "notin", "abc", "def")]),
        ("x in (abc,def)", [("x", "in", "abc", "def")]),
        ("x in (abc,)", [("x", "in", "", "abc")]),
        ("x in (abc,abc)", [("x", "in", "abc")]),
        ("x in ()", [("x", "in", "")]),
        ("x in (a,,)", [("x", "in", "", "a")]),
        ("x in (a,,,)", [("x", "in", "", "a")]),
        ("x in (a,,,,,,)", [("x", "in", "", "a")]),
        ("x in (a,,a,,a,,a,,)", [("x", "in", "", "a")]),
        (
            "x notin (abc,,def),bar,z in (),w",
            [
                ("bar", "exists"),
                ("w", "exists"),
                ("x", "notin", "", "abc", "def"),
                ("z", "in", ""),
            ],
        ),
        ("x,y in (a)", [("x", "exists"), ("y", "in", "a")]),
        ("x=a", [("x", "=", "a")]),
        ("x>1", [("x", "gt", "1")]),
        ("x<7", [("x", "lt", "7")]),
        ("x=a,y!=b", [("x", "=", "a"), ("y", "!=", "b")]),
        (
            "x=a,y!=b,z in (h,i,j)",
            [("x", "=", "a"), ("y", "!=", "b"), ("z", "in", "h", "i", "j")],
        ),
        ("x notin ( )", [("x", "notin", "")]),
        ("x notin (, a)", [("x", "notin", "", "a")]),
        ("a ", [("a", "exists")]),
        ("a in (x,y,notin, z,in)", [("a", "in", "in", "notin", "x", "y", "z")]),
        ("in in (in)", [("in", "in", "in")]),
        ("x==a", [("x", "==", "a")]),
    ],
)
def test_the_set_based_grammar(text: str, requirements: list[tuple[str, ...]]) -> None:
    expected = tuple(Requirement(key, op, values) for key, op, *values in requirements)

    assert LabelSelector.parse(text).requirements == expected


NAME = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
    "alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for "
    "validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
OPERATORS = "in, notin, =, ==, !=, gt, lt"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("==!", "found '==', expected: !, identifier, or 'end of string'"),
        (
            "x=a||y=b",
            'unable to parse requirement: values[0][x]: Invalid value: "a||y": a valid label must',
        ),
        ("x==a==b", "found '==', expected: ',' or 'end of string'"),
        ("!x=a", "found '=', expected: ',' or 'end of string'"),
        (
            "x<a",
            (
                "unable to parse requirement: values[0]: Invalid value: \"a\": for 'Gt', 'Lt' "
                "operators, the value must be an integer"
            ),
        ),
        ("x,,y", "found ',', expected: identifier after ','"),
        (",x,y", "found ',', expected: !, identifier, or 'end of string'"),
        ("x nott in (y)", f"unable to parse requirement: found 'nott', expected: {OPERATORS}"),
        ("a in (xyz),", "found '', expected: identifier after ','"),
        ("a in (xyz)b notin ()", "found 'b', expected: ',' or 'end of string'"),
        ("a in (xyz abc)", "unable to parse requirement: found 'abc', expected: ',' or ')'"),
        (
            "a notin(",
            "unable to parse requirement: found '', expected: ',', ')' or identifier",
        ),
        ("a (", f"unable to parse requirement: found '(', expected: {OPERATORS}"),
        ("(", "found '(', expected: !, identifier, or 'end of string'"),
        ("a in b", "unable to parse requirement: found 'b' expected: '('"),
        ("a in (b,", "unable to parse requirement: found '', expected: ',', or identifier"),
        ("a=(b)", "unable to parse requirement: found '(', expected: identifier"),
        ("!", "unable to parse requirement: found '', expected: identifier"),
        ("-x", f'unable to parse requirement: <nil>: Invalid value: "-x": name part {NAME}'),
        *[
            (
                f"{prefix}/x",
                f'unable to parse requirement: <nil>: Invalid value: "{prefix}/x": prefix part a ',
            )
            for prefix in ("example.Up", "-a.example", "a..b", "a.")
        ],
        (
            "Up/x",
            (
                'unable to parse requirement: <nil>: Invalid value: "Up/x": prefix part a '
                "lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, "
                "'-' or '.', and must start and end with an alphanumeric character (e.g. 'exam"
            ),
        ),
        (
            "a/b/c",
            f'unable to parse requirement: <nil>: Invalid value: "a/b/c": a valid label key {NAME}',
        ),
        (
            "/x",
            'unable to parse requirement: <nil>: Invalid value: "/x": prefix part must be non-',
        ),
        (
            "x=" + "a" * 64,
            (
                f'unable to parse requirement: values[0][x]: Invalid value: "{"a" * 64}": must be '
                "no more than 63 bytes"
            ),
        ),
        (
            "a" * 254,
            (
                f'unable to parse requirement: <nil>: Invalid value: "{"a" * 254}": name part '
                "must be no more than 63 bytes"
            ),
        ),
    ],
)
def test_errors_equal_the_servers(text: str, message: str) -> None:
    with pytest.raises(InvalidSelector) as caught:
        LabelSelector.parse(text)

    assert str(caught.value).startswith(message)


def test_errors_equal_the_recorded_servers_texts() -> None:
    """The answers of a real kube-apiserver to `==!` and to `data.x=1` for configmaps."""
    label = json.loads((TRACES / "k-400-labelselector.body").read_bytes())
    field = json.loads((TRACES / "k-400-fieldselector.body").read_bytes())

    with pytest.raises(InvalidSelector) as caught:
        LabelSelector.parse("==!")
    assert str(caught.value) == label["message"]
    with pytest.raises(InvalidSelector) as caught:
        FieldSelector.parse("data.x=1", known={"metadata.name", "metadata.namespace"})
    assert str(caught.value) == field["message"]


@pytest.mark.parametrize(
    ("key", "operator", "values", "wrong"),
    [
        ("x1", "in", (), "values: Invalid value: []"),
        ("x2", "notin", (), "values: Invalid value: []"),
        ("x3", "in", ("foo",), None),
        ("x4", "notin", ("foo",), None),
        ("x5", "=", ("bar", "foo"), 'values: Invalid value: ["bar","foo"]'),
        ("x6", "exists", (), None),
        ("x7", "!", (), None),
        ("x8", "exists", ("foo",), 'values: Invalid value: ["foo"]'),
        ("x11", "gt", ("1",), None),
        ("x12", "lt", ("6",), None),
        ("x13", "gt", (), "values: Invalid value: []"),
        ("x14", "gt", ("bar",), 'values[0]: Invalid value: "bar"'),
        ("x15", "lt", ("bar",), 'values[0]: Invalid value: "bar"'),
        ("a" * 254, "exists", (), "key: Invalid value"),
        ("x16", "=", ("a" * 254,), "values[0][x16]: Invalid value"),
        ("x17", "=", ("a b",), 'values[0][x17]: Invalid value: "a b"'),
        ("x18", "unsupportedOp", (), 'operator: Unsupported value: "unsupportedOp": supported'),
    ],
)
def test_requirements_are_checked(
    key: str, operator: str, values: tuple[str, ...], wrong: str | None
) -> None:
    if wrong is None:
        assert Requirement.checked(key, operator, values).values == values
        return
    with pytest.raises(InvalidSelector) as caught:
        Requirement.checked(key, operator, values)
    assert str(caught.value).startswith(wrong)


def test_several_problems_are_all_reported() -> None:
    with pytest.raises(InvalidSelector) as caught:
        Requirement.checked("-", "gt", ("a b",))

    assert str(caught.value).startswith("[key: Invalid value")
    assert "values[0]: Invalid value" in str(caught.value)
    assert "values[0][-]: Invalid value" in str(caught.value)


def test_the_order_of_requirements_does_not_matter() -> None:
    assert LabelSelector.parse("x=a,a=x") == LabelSelector.parse("a=x,x=a")
    assert hash(LabelSelector.parse("x=a,a=x")) == hash(LabelSelector.parse("a=x,x=a"))


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("x in (def,abc),y notin (jkl),z", "x in (abc,def),y notin (jkl),z"),
        ("x notin (abc,def),y!=jkl,!z", "x notin (abc,def),y!=jkl,!z"),
        ("x notin (abc),y in (jkl,mno),z notin ()", "x notin (abc),y in (jkl,mno),z notin ()"),
        ("x=abc,y==jkl,z!=a,z", "x=abc,y==jkl,z!=a,z"),
        ("x>2,y<8,z", "x>2,y<8,z"),
    ],
)
def test_to_string(text: str, written: str) -> None:
    assert str(LabelSelector.parse(text)) == written


# ---- label selectors: matching -------------------------------------------------------------------

BOTH = {"foo": "bar", "baz": "blah"}


@pytest.mark.parametrize(
    ("text", "labels", "match"),
    [
        ("", {"x": "y"}, True),
        ("x=y", {"x": "y"}, True),
        ("x=y,z=w", {"x": "y", "z": "w"}, True),
        ("x!=y,z!=w", {"x": "z", "z": "a"}, True),
        ("notin=in", {"notin": "in"}, True),
        ("x", {"x": "z"}, True),
        ("!x", {"y": "z"}, True),
        ("x>1", {"x": "2"}, True),
        ("x<1", {"x": "0"}, True),
        ("x=z", {}, False),
        ("x=y", {"x": "z"}, False),
        ("x=y,z=w", {"x": "w", "z": "w"}, False),
        ("x!=y,z!=w", {"x": "z", "z": "w"}, False),
        ("x", {"y": "z"}, False),
        ("!x", {"x": "z"}, False),
        ("x>1", {"x": "0"}, False),
        ("x<1", {"x": "2"}, False),
        ("foo=bar", BOTH, True),
        ("baz=blah", BOTH, True),
        ("foo=bar,baz=blah", BOTH, True),
        ("foo=blah", BOTH, False),
        ("baz=bar", BOTH, False),
        ("foo=bar,foobar=bar,baz=blah", BOTH, False),
        ("x in (foo),y notin (alpha)", {"x": "foo", "y": "baz"}, True),
        ("x in (foo),y in (alpha)", {"x": "foo", "y": "baz"}, False),
        ("x notin (),y", {"y": ""}, True),
        ("!x,y", {"y": ""}, True),
        ("x notin (),!y", {"y": ""}, False),
        ("x in ()", {"y": "baz"}, False),
        ("z>1", {"z": "2"}, True),
        ("z>1", {"z": "v2"}, False),
        ("z>1", {}, False),
        ("z<5", {"z": "-6"}, True),
        ("z>1", {"z": "9223372036854775807"}, True),
        ("z>1", {"z": "9223372036854775808"}, False),  # not an int64: no match
        ("z>1", {"z": "1_000"}, False),
        ("z>1", {"z": "\u0662"}, False),  # a digit to Python, but not to strconv
        ("x=", {"x": ""}, True),
        ("x=", {}, False),
        ("x!=", {}, True),
    ],
)
def test_matching_labels(text: str, labels: dict[str, str], match: bool) -> None:
    selector = LabelSelector.parse(text)

    assert selector.matches(labelled(**labels)) is match
    assert selector.matches_labels(labels) is match


@pytest.mark.parametrize("obj", [{}, {"metadata": {}}, {"metadata": {"labels": None}}])
def test_an_object_without_labels_matches_as_unlabelled(obj: dict[str, Any]) -> None:
    assert LabelSelector.parse("!x,y!=a").matches(obj)
    assert not LabelSelector.parse("x").matches(obj)


def test_a_mapping_as_selector() -> None:
    assert str(LabelSelector.of({"app": "foo", "a": "b"})) == "a=b,app=foo"
    assert not LabelSelector.of({})
    assert LabelSelector.of({}).matches({})
    with pytest.raises(InvalidSelector, match=r"values\[0\]\[Key\]"):
        LabelSelector.of(
            {"Key": "axahm2EJ8Phiephe2eixohbee9eGeiyees1thuozi1xoh0GiuH3diewi8iem7Nui"}
        )


@pytest.mark.parametrize(
    ("text", "key", "value"),
    [
        ("key in (value)", "key", "value"),
        ("key in (value,value2)", "key", None),
        ("key in (value,value1),key2 in (value2)", "key2", "value2"),
        ("key=value", "key", "value"),
        ("key==value", "key", "value"),
        ("key!=value", "key", None),
        ("key in (value),key2 in (value2)", "key", "value"),
        ("other=value", "key", None),
    ],
)
def test_exact_values(text: str, key: str, value: str | None) -> None:
    assert LabelSelector.parse(text).exact(key) == value


# ---- field selectors -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", ["x=a,y=b,z=c", "", "x!=a,y=b", "x=a||y\\=b", "x=a\\=\\=b", "함=수", "k=\\\\\\,"]
)
def test_fields_are_written_as_they_were_read(text: str) -> None:
    parsed = FieldSelector.parse(text)

    assert str(parsed) == text
    assert pickle.loads(pickle.dumps(parsed)) == parsed  # noqa: S301


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x=a||y=b", "invalid field selector: unescaped character in value: 61"),
        ("x==a==b", "invalid field selector: unescaped character in value: 61"),
        ("x=a,b", "invalid selector: 'x=a,b'; can't understand 'b'"),
        ("x in (a)", "invalid selector: 'x in (a)'; can't understand 'x in (a)'"),
        ("x in (a,b,c)", "invalid selector: 'x in (a,b,c)'; can't understand 'b'"),
        ("x", "invalid selector: 'x'; can't understand 'x'"),
        ("x=\\", "invalid field selector: invalid escape sequence: \\"),
        ("x=\\\\\\", "invalid field selector: invalid escape sequence: \\"),
        ("x=\\a", "invalid field selector: invalid escape sequence: \\a"),
        ("a..b=1", 'invalid field selector: "a..b" is not a path'),
        ("=1", 'invalid field selector: "" is not a path'),
        ("a[0]=1", 'invalid field selector: "a[0]" is not a path'),
        ("a['b=1", 'invalid field selector: "a[\'b" is not a path'),
        ("a." * 64 + "a=1", 'invalid field selector: "a.a.a'),
    ],
)
def test_field_errors(text: str, message: str) -> None:
    with pytest.raises(InvalidSelector) as caught:
        FieldSelector.parse(text)

    assert str(caught.value).startswith(message)


def test_a_server_accepts_only_its_own_fields() -> None:
    known = {"metadata.name", "metadata.namespace", "spec.nodeName"}

    assert FieldSelector.parse("spec.nodeName=a", known).exact("spec.nodeName") == "a"
    with pytest.raises(InvalidSelector, match=r"^field label not supported: spec\.x\n"):
        FieldSelector.parse("spec.x=a", known)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("", ""),
        ("a", "a"),
        ("=", "\\="),
        (",", "\\,"),
        ("\\", "\\\\"),
        ("\\=\\,\\", "\\\\\\=\\\\\\,\\\\"),
    ],
)
def test_escaping(value: str, text: str) -> None:
    assert fields.escape(value) == text
    assert fields.unescape(text) == value


FIELDS = {"foo": "bar", "baz": "blah", "complex": "=value\\,\\"}


@pytest.mark.parametrize(
    ("text", "obj", "match"),
    [
        ("", {"x": "y"}, True),
        ("x=y", {"x": "y"}, True),
        ("x=y,z=w", {"x": "y", "z": "w"}, True),
        ("x!=y,z!=w", {"x": "z", "z": "a"}, True),
        ("notin=in", {"notin": "in"}, True),
        ("x=y", {"x": "z"}, False),
        ("x=y,z=w", {"x": "w", "z": "w"}, False),
        ("x!=y,z!=w", {"x": "z", "z": "w"}, False),
        ("foo=bar,baz=blah,complex=\\=value\\\\\\,\\\\", FIELDS, True),
        ("foo=bar,foobar=bar,baz=blah", FIELDS, False),
        ("x=", {}, True),  # a missing field is "", as for the server
        ("x!=", {}, False),
        ("x!=y", {}, True),
        ("a=,a!=b", {"a": ""}, True),
    ],
)
def test_matching_fields(text: str, obj: dict[str, str], match: bool) -> None:
    assert FieldSelector.parse(text).matches(obj) is match


POD: dict[str, Any] = {
    "metadata": {
        "labels": {"app.kubernetes.io/name": "web", "n": 3},
        "ownerReferences": [{"uid": "u1"}, {"uid": "u2"}],
        "finalizers": ["a", "b"],
    },
    "spec": {"replicas": 3, "paused": False, "ratio": 0.5, "big": 1e15, "none": None, "args": []},
}


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("metadata.ownerReferences[*].uid=u2", True),
        ("metadata.ownerReferences[*].uid=u3", False),
        ("metadata.ownerReferences[*].uid!=u2", False),  # none of them may match
        ("metadata.ownerReferences[*].uid!=u3", True),
        ("metadata.ownerReferences[*].uid=", False),
        ("metadata.nothing[*].uid=", True),
        ("metadata.labels['app.kubernetes.io/name']=web", True),
        ('metadata.labels["app.kubernetes.io/name"]=web', True),
        ("metadata.labels=n\\=3", True),
        ("metadata.finalizers=b", True),
        ("metadata.finalizers[*]=b", True),
        ("spec.replicas=3", True),
        ("spec.paused=false", True),
        ("spec.ratio=0.5", True),
        ("spec.big=1e+15", True),
        ("spec.none=", True),
        ("spec.none.deeper=", True),
        ("spec.args=", True),
        ("spec.replicas.deeper=", True),
        ("spec.replicas[*]=", True),
    ],
)
def test_any_path_can_be_selected(text: str, match: bool) -> None:
    assert FieldSelector.parse(text).matches(POD) is match


def test_views_are_selected_like_dicts(name: str) -> None:
    pod = {**POD, "metadata": {**POD["metadata"], "name": "a", "namespace": "s"}}
    with shmcache.Writer(name, ["pods"]) as writer, shmcache.attach(name) as cache:
        writer.apply("pods", [pod])
        view = cache["pods"]["s/a"]

        assert LabelSelector.parse("n,!m").matches({"metadata": {"labels": {"n": "3"}}})
        assert LabelSelector.parse("app.kubernetes.io/name in (web),!other").matches(view)
        assert not LabelSelector.parse("other").matches(view)
        for text in (
            "metadata.ownerReferences[*].uid=u2",
            "spec.big=1e+15",
            "metadata.labels=n\\=3",
        ):
            assert FieldSelector.parse(text).matches(view)
            assert not FieldSelector.parse(text.replace("=", "!=", 1)).matches(view)


def test_importing_selectors_is_light() -> None:
    import subprocess
    import sys

    code = "import sys; import shmcache.reader.selectors; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-S", "-c", f"import sys; sys.path[:] = {sys.path!r}; {code}"],
        capture_output=True,
        text=True,
        check=True,
    )

    assert not {"re", "typing", "dataclasses", "json", "logging"} & set(done.stdout.split())
