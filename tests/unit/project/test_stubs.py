"""Invariant tested: mypy can believe `_hot.pyi` and `_native.Lib`.

Every name of the extension is in the stub and every name of the stub in the extension; everything
is called, and each result has the type that the stub declares; each C function takes what `Lib`
declares.
"""

from __future__ import annotations

import ast
import io
import sys
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints, is_typeddict

import pytest

import shmcache
from shmcache import Resource, Writer, _hot, _native
from shmcache.protocol.items import Item
from shmcache.queue import workqueue as queue

STUB = Path(_hot.__file__).with_name("_hot.pyi")
BY_INHERITANCE = {"__contains__", "__init_subclass__", "__subclasshook__", "__class_getitem__"}
JSON = {  # they return JSON, or what `want` asks for: the stub can promise nothing more
    "View.__getitem__", "View.__getattr__", "View.copy", "View.to_dict", "ListView.__getitem__",
    "ListView.copy", "ListView.to_list", "Root.get", "Root.scan", "Root.by_index", "Resource.get",
    "Resource.scan", "Resource.by_index", "default", "stage",
    "Model.__getattr__", "Model.__getitem__", "ModelClass.dialect", "ModelClass.fields",
    "ModelKind.of",
    "ModelList.__getitem__", "ModelList.copy", "ModelList.to_list",
    "ModelMap.__getitem__", "ModelMap.copy", "ModelMap.to_dict",
}  # fmt: skip


def stubs() -> dict[str, Any]:
    """The stub, executed: its classes and functions carry the annotations."""
    tree = ast.parse(STUB.read_text())
    stub = sys.modules["stub"] = types.ModuleType("stub")  # hints are evaluated in their module
    namespace = vars(stub)
    code = compile(tree, str(STUB), "exec", flags=annotations_flag(), dont_inherit=True)
    exec(code, namespace)  # noqa: S102 - our own stub
    return namespace


def annotations_flag() -> int:
    import __future__

    return __future__.annotations.compiler_flag


NAMESPACE = stubs()
STUB_CLASSES = {
    name: found
    for name, found in NAMESPACE.items()
    if isinstance(found, type) and found.__module__ == "stub" and not is_typeddict(found)
}


def declared() -> dict[str, list[Any]]:
    """The return types of each function, method and property; of overloads all together."""
    found: dict[str, list[Any]] = {}
    for name, value in NAMESPACE.items():
        if isinstance(value, types.FunctionType) and value.__module__ == "stub":
            found[name] = returns(value, name)
    for name, cls in STUB_CLASSES.items():
        for member, value in vars(cls).items():
            inner = value.fget if isinstance(value, property) else value
            inner = inner.__func__ if isinstance(inner, staticmethod) else inner
            if isinstance(inner, types.FunctionType):
                found[f"{name}.{member}"] = returns(inner, f"{name}.{member}")
    return found


def returns(function: Any, name: str) -> list[Any]:
    asked: Any = types.SimpleNamespace(__module__="stub", __qualname__=name)
    functions = typing.get_overloads(asked) or [function]
    return [get_type_hints(one, NAMESPACE, include_extras=True)["return"] for one in functions]


def fits(value: object, hint: Any) -> bool:
    """Whether a value is what an annotation promises, containers down to their elements."""
    origin, inner = get_origin(hint), get_args(hint)
    if hint is Any or hint is object:
        return True
    if origin in {types.UnionType, Union}:
        return any(fits(value, one) for one in inner)
    if origin is Literal:
        return value in inner
    if is_typeddict(hint):
        return is_record(value, get_type_hints(hint, NAMESPACE))
    return is_instance(value, hint) if origin is None else in_container(value, origin, inner)


def is_instance(value: object, hint: Any) -> bool:
    if hint is None or hint is bool or hint is int:  # a bool is not an int here
        return type(value) is (hint or type(None))
    return isinstance(
        value, getattr(_hot, hint.__name__) if hint in STUB_CLASSES.values() else hint
    )


def is_record(value: Any, fields: dict[str, Any]) -> bool:
    if type(value) is not dict or value.keys() != fields.keys():
        return False
    return all(fits(value[name], fields[name]) for name in fields)


def in_container(value: Any, origin: Any, inner: tuple[Any, ...]) -> bool:
    if origin is tuple and inner[-1] is not Ellipsis:
        return (
            type(value) is tuple
            and len(value) == len(inner)
            and all(fits(one, hint) for one, hint in zip(value, inner, strict=True))
        )
    if not isinstance(value, origin):
        return False
    if origin is dict:
        return all(fits(key, inner[0]) and fits(one, inner[1]) for key, one in value.items())
    if origin in {list, tuple, set}:
        return all(fits(one, inner[0]) for one in value)
    if origin is Iterator:
        return all(fits(one, inner[0]) for one in value)
    raise AssertionError(f"the test knows no {origin}")


# ---- names ---------------------------------------------------------------------------------------


def test_the_stub_names_what_the_extension_has() -> None:
    real = {name for name in vars(_hot) if not name.startswith("__")}
    typed = {name for name, value in NAMESPACE.items() if is_declared(name, value)}
    assert real == typed


def is_declared(name: str, value: object) -> bool:
    ours = getattr(value, "__module__", None) == "stub"
    return name == "defended" or (
        ours and (name in STUB_CLASSES or isinstance(value, types.FunctionType))
    )


# `defended` has no value in the stub
NAMESPACE.setdefault("defended", True)


@pytest.mark.parametrize("name", sorted(STUB_CLASSES))
def test_the_stub_names_the_members_of_each_class(name: str) -> None:
    inherited: set[str] = set()
    for base in STUB_CLASSES[name].__mro__[1:-1]:
        inherited |= set(vars(base))
    real = {member for member in vars(getattr(_hot, name)) if not member.startswith("__")}
    typed = set(vars(STUB_CLASSES[name]))
    assert real <= typed | inherited
    missing = {
        member
        for member in typed
        if not member.startswith("_") and not hasattr(getattr(_hot, name), member)
    }
    assert not missing


# ---- calls ---------------------------------------------------------------------------------------

POD = {
    "apiVersion": "v1",
    "metadata": {"name": "a", "namespace": "prod", "uid": "u-1", "labels": {"app": "web"}},
    "spec": {"nodeName": "n-1", "containers": [{"image": "nginx"}, {"image": "redis"}]},
}
FORM = ("all", b"", b"", 0)
RAW = b'{"metadata":{"name":"b","namespace":"prod","resourceVersion":"7","uid":"u-2"}}'
ITEM = Item("ADDED", "prod/b", "7", "u-2", "Pod", "v1", RAW)
Calls = Iterator[tuple[str, object]]


def images(pod: Mapping[str, Any]) -> Iterable[str]:
    return [one["image"] for one in pod.get("spec", {}).get("containers", ())]


@pytest.fixture
def writer(name: str) -> Iterator[Writer]:
    pods = Resource("pods", {"node": "spec.nodeName", "image": images})
    with Writer(name, [pods, "nodes"]) as made:
        made.put("pods", "prod/a", POD, "5")
        yield made


@pytest.fixture
def cache(writer: Writer) -> Iterator[shmcache.Cache]:
    with shmcache.attach(writer.name) as attached:
        yield attached


def of_properties(name: str, obj: object) -> Calls:
    for member, value in vars(STUB_CLASSES[name]).items():
        if isinstance(value, property):
            yield f"{name}.{member}", getattr(obj, member)


def of_views(view: Any) -> Calls:
    yield "View.__getitem__", view["metadata"]
    yield "View.__getattr__", view.metadata
    yield "View.__eq__", view == POD
    yield "View.__iter__", iter(view)
    yield "View.__reversed__", reversed(view)
    yield "View.__len__", len(view)
    yield "View.copy", view.copy()
    yield "View.to_dict", view.to_dict()
    yield "View.json", view.json()
    yield "View.json_in", view.json_in(FORM)
    array = view["spec"]["containers"]
    yield "ListView.__getitem__", array[0]
    yield "ListView.__getitem__", array[:]
    yield "ListView.__eq__", array == [1]
    yield "ListView.__len__", len(array)
    yield "ListView.copy", array.copy()
    yield "ListView.to_list", array.to_list()
    yield "ListView.json", array.json()


def of_models(view: Any) -> Calls:
    from IPython.lib.pretty import PrettyPrinter

    printer = PrettyPrinter(io.StringIO())
    for name, one in (("View", view), ("ListView", view["spec"]["containers"])):
        yield f"{name}._repr_pretty_", one._repr_pretty_(printer, False)
        yield f"{name}._repr_html_", one._repr_html_()
    yield "View._ipython_key_completions_", view._ipython_key_completions_()
    kind: Any = _hot.ModelKind("raw")
    yield "ModelKind.__init__", kind.__init__("raw")
    yield "ModelKind.how", kind.how
    yield "ModelKind.of", kind.of
    field: Any = _hot.ModelField("spec", kind)
    yield "ModelField.__init__", field.__init__("spec")
    yield "ModelField.key", field.key
    inner = _hot.ModelClass("Inner", None, {})
    every = _hot.ModelKind("any", inner)
    of: Any = _hot.ModelClass("Pod", None, {"metadata": _hot.ModelField("metadata", every)})
    yield "ModelClass.__init__", of.__init__("Pod", None, {})
    yield "ModelClass.extend", of.extend(every)
    yield "ModelClass.name", of.name
    yield "ModelClass.dialect", of.dialect
    yield "ModelClass.fields", of.fields
    yield "ModelClass.rest", of.rest
    model: Any = of.wrap(view)
    yield "ModelClass.wrap", model
    yield "Model.__getattr__", model.metadata
    yield "Model.__getitem__", model["spec"]
    yield "Model.to_view", model.to_view()
    yield "Model._model_class", model._model_class()
    yield "Model._repr_pretty_", model._repr_pretty_(printer, False)
    yield "Model._repr_html_", model._repr_html_()
    lists = {"containers": _hot.ModelField("containers", _hot.ModelKind("list", every))}
    array = _hot.ModelClass("Spec", None, lists).wrap(view["spec"]).containers
    yield "ModelList.__getitem__", array[0]
    yield "ModelList.__len__", len(array)
    yield "ModelList.copy", array.copy()
    yield "ModelList.to_list", _empty(view, every).to_list()
    yield "ModelList.to_view", array.to_view()
    maps = {"labels": _hot.ModelField("labels", _hot.ModelKind("map", kind))}
    labels = _hot.ModelClass("Meta", None, maps).wrap(view["metadata"]).labels
    yield "ModelMap.__getitem__", labels["app"]
    yield "ModelMap.__len__", len(labels)
    yield "ModelMap.__iter__", iter(labels)
    yield "ModelMap.copy", labels.copy()
    yield "ModelMap.to_dict", labels.to_dict()
    yield "ModelMap.to_view", labels.to_view()


def _empty(view: Any, every: _hot.ModelKind) -> Any:
    """A list of plain values, which needs no dialect."""
    of = {
        "containers": _hot.ModelField("containers", _hot.ModelKind("list", _hot.ModelKind("raw")))
    }
    return _hot.ModelClass("Spec", every, of).wrap(view["spec"]).containers


def of_roots(root: Any) -> Calls:
    where = _hot.Where(((("metadata", "labels"), ((("app",), "in", ("web",)),)),))
    yield "Where.__new__", where
    yield from of_properties("Root", root)
    yield "Root.names", root.names()
    yield "Root.diff", root.diff(0, root)
    yield "Root.record", root.record(0)
    yield "Root.record", root.record(1)
    yield "Root.count", root.count(0)
    yield "Root.get", root.get(0, "prod/a")
    yield "Root.scan", root.scan(0, where=where)
    yield "Root.by_index", root.by_index(0, 1, "nginx")
    yield "Root.scan_json", root.scan_json(FORM, 0)
    yield "Root.scan_json", root.scan_json(FORM, 0, limit=1)
    yield "Root.by_index_json", root.by_index_json(FORM, 0, 0, "n-1", limit=1)
    yield "Root.index_values", root.index_values(0, 1)
    taken = root.take(root.tail, 10)
    yield "Root.take", taken
    for delta in taken[0]:
        yield from of_properties("Delta", delta)
        yield "Delta.told", delta.told(True)


def of_tables(root: Any) -> Calls:
    columns = root.columns((("name", ("metadata", "name"), False),), 0)
    yield "Root.columns", columns
    yield from of_properties("ArrowColumns", columns)
    yield "ArrowColumns.buffers", columns.buffers(0)
    yield "ArrowColumns.__arrow_c_array__", columns.__arrow_c_array__()
    yield "ArrowColumns.__arrow_c_schema__", columns.__arrow_c_schema__()
    yield "ArrowColumns.__arrow_c_stream__", columns.__arrow_c_stream__()
    yield "ArrowColumns.__len__", len(columns)
    groups: Any = _hot.Groups(("metadata", "name"), (("spec", "nodeName"),))
    yield "Groups.__new__", groups
    yield "Groups.fill", groups.fill(root, 0)
    yield from of_properties("Groups", groups)
    yield "Groups.advance", groups.advance(root, 0, None, None)
    yield "Groups.items", groups.items()
    yield "Groups.get", groups.get("a")
    yield "Groups.get", groups.get(None)


def of_readers(cache: Any) -> Calls:
    reader = cache.reader
    yield from of_properties("Reader", reader)
    yield "Reader.root", reader.root()
    yield "Reader.take", reader.take(reader.root().tail, 10)
    yield "Reader.wait", reader.wait(1, 0, 0, 0.0, None)
    yield "Reader.wait", reader.wait(1, 0, reader.latest, 0.0, lambda: False)
    yield "Reader.note", reader.note(1, 0, False, 0, 0)
    yield "Reader.forget", reader.forget(1)
    yield "Reader.count_cut", reader.count_cut()
    opened, _ = _native.new_attachment()
    yield "Opened.__init__", None
    yield from of_properties("Opened", opened)
    handle = _native.ffi.new("struct shmc_reader **")
    data = cache._place and reader.owner.segments.data
    _native.check(_native.lib.shmc_reader_create(data, _native.NULL, handle), "test")
    other: Any = _hot.Reader(_native.address(handle[0]), None)
    yield "Reader.__init__", None
    yield "Reader.release", other.release()
    yield "Reader.close", other.close()
    _native.lib.shmc_reader_destroy(handle[0])


def of_resources(cache: Any) -> Calls:
    pods: Any = _hot.Resource(cache.reader, 0)
    fixed = _hot.Resource(cache.reader, 0, cache.reader.root())
    yield "Resource.__init__", None
    yield "Resource.renew", pods.renew()
    yield from of_properties("Resource", pods)
    yield from of_properties("Resource", fixed)
    yield "Resource.get", pods.get("prod/a")
    yield "Resource.get", pods.get("none")
    yield "Resource.__getitem__", pods["prod/a"]
    yield "Resource.__contains__", "prod/a" in pods
    yield "Resource.__len__", len(pods)
    yield "Resource.__iter__", iter(pods)
    yield "Resource.keys", pods.keys()
    yield "Resource.values", pods.values()
    yield "Resource.items", pods.items()
    yield "Resource.record", pods.record()
    yield "Resource.contact", pods.contact()
    yield "Resource.scan", pods.scan()
    yield "Resource.by_index", pods.by_index(0, "n-1")
    yield "Resource.index_values", pods.index_values(0)


def of_delivered(cache: Any) -> Calls:
    known: Any = _hot.Delivered()
    root = cache.reader.root()
    yield "Delivered.follow", known.follow(cache.reader, 0, 0, 10, 10)
    yield "Delivered.advance", known.advance(root, 0)
    yield from of_properties("Delivered", known)
    end = root.head + known.offset
    yield "Delivered.follow", known.follow(cache.reader, end, 1, 10, 1 << 20)
    yield "Delivered.difference", known.difference(0)
    yield "Delivered.set_bit", known.set_bit("prod/a", 0, end)
    yield "Delivered.clear_bit", known.clear_bit("prod/a", 0)
    yield "Delivered.free_bit", known.free_bit(0)
    yield "Delivered.trim", known.trim([(0, end)], root.tail)
    yield "Delivered.__len__", len(known)


def of_queues(cache: Any) -> Calls:
    opened = queue.WorkQueue(cache._place, "stubs")
    hot: Any = opened._hot
    yield "Queue.__new__", hot
    yield "Queue.add", hot.add("a")
    yield "Queue.add_many", hot.add_many(["b", "c"])
    yield "Queue.add_after", hot.add_after("d", 0.0)
    yield "Queue.add_rate_limited", hot.add_rate_limited("e")
    key = hot.get(0)
    yield "Queue.get", key
    yield "Queue.num_requeues", hot.num_requeues("e")
    yield "Queue.priority", hot.priority("e")
    yield "Queue.done", hot.done(str(key))
    yield "Queue.forget", hot.forget("e")
    yield "Queue.__len__", len(hot)
    yield from of_properties("Queue", hot)
    yield "Queue.close", hot.close()
    yield from of_properties("Queue", hot)
    opened.close()


def of_parsers() -> Calls:
    frames = _hot.Frames()
    yield "Frames.__init__", None
    yield "Frames.feed", frames.feed(b'{"type":"ADDED","object":' + RAW + b"}\nnonsense\n{")
    yield "Frames.pending", frames.pending
    items = _hot.ItemScanner(kind="Pod", api_version="v1")
    yield "ItemScanner.__init__", None
    yield "ItemScanner.feed", items.feed(b'{"kind":"PodList","items":[' + RAW + b"]}")
    yield "ItemScanner.finish", items.finish()
    grpc = _hot.GrpcMessages()
    yield "GrpcMessages.__init__", None
    wire = b"\0\0\x06\0\0\0\0\0\x01\0\0\0\0\x01x" + b"\0\0\0\x04\0\0\0\0\0"
    yield "GrpcMessages.feed", grpc.feed(wire)
    yield "GrpcMessages.received", grpc.received
    yield "EtcdAnswers.__init__", None
    event = b"\x5a\x07\x12\x05\x0a\x03/a/"
    yield "EtcdAnswers.read", _hot.EtcdAnswers([(b"/a/", "a")]).read(event)
    entry = b"\x12\x05\x0a\x03/a/"
    yield "EtcdAnswers.read_range", _hot.EtcdAnswers([(b"/a/", "a")]).read_range(entry)
    chunks = _hot.Chunks()
    yield "Chunks.__init__", None
    yield "Chunks.feed", chunks.feed(b"1\r\nx\r\n0\r\n\r\nrest")
    yield "Chunks.done", chunks.done
    yield "Chunks.unused", chunks.unused
    yield "Pretty.__init__", None
    yield "Pretty.feed", _hot.Pretty().feed(b"{}")


def of_functions(writer: Any, cache: Any) -> Calls:
    hot: Any = _hot
    at, now = writer._handle.address, 1
    view = cache["nodes"]
    yield "put_now", hot.put_now(at, 1, "n-1", POD, "1", None, now)
    yield "apply_now", hot.apply_now(at, 1, [ITEM], True, "7", now)
    yield "default", hot.default(view["n-1"])
    yield "default", hot.default(cache["pods"]["prod/a"]["spec"]["containers"])
    with writer.batch():
        yield "put", hot.put(at, 1, "n-2", POD, "1", None)
        yield "put_many", hot.put_many(at, 1, [("n-3", POD, None)])
        yield "apply", hot.apply(at, 1, [POD | {"metadata": {"name": "c"}}])
        yield "apply_items", hot.apply_items(at, 1, [ITEM, ITEM._replace(raw=b"{")], False, False)
        yield "refill", hot.refill(at, 0, "prod/a", (("nginx",),))
    _native.check(_native.lib.shmc_replace_begin(writer._handle.raw, 1), "test")
    with writer.batch():
        yield "stage", hot.stage(at, 1, "n-5", POD, "1", None)
        yield "stage_all", hot.stage_all(at, 1, [POD | {"metadata": {"name": "d"}}])
    _native.check(_native.lib.shmc_replace_cancel(writer._handle.raw, 1), "test")
    yield "forget", hot.forget(at)


def test_each_call_returns_what_the_stub_declares(writer: Writer, cache: shmcache.Cache) -> None:
    writer.put("pods", "prod/z", POD, "6")
    root = cache.reader.root()
    calls = [
        *of_views(cache["pods"]["prod/a"]),
        *of_models(cache["pods"]["prod/a"]),
        *of_roots(root),
        *of_tables(root),
        *of_readers(cache),
        *of_resources(cache),
        *of_delivered(cache),
        *of_queues(cache),
        *of_parsers(),
        *of_functions(writer, cache),
    ]
    wanted = declared()
    for name, result in calls:
        assert name in wanted, f"the stub has no {name}"
        hints = wanted[name]
        assert any(fits(result, hint) for hint in hints), f"{name} returns {result!r}, not {hints}"
    assert set(wanted) == {name for name, _ in calls}


def is_loose(hint: Any) -> bool:
    return hint is Any or any(is_loose(one) for one in get_args(hint))


def test_only_json_is_declared_as_any() -> None:
    loose = {name for name, hints in declared().items() if any(map(is_loose, hints))}
    assert loose == JSON


def test_the_index_of_a_function_has_no_path(cache: shmcache.Cache) -> None:
    paths = [path for _, path, _ in cache["pods"].record()["indices"]]
    assert paths[0] == "spec.nodeName"
    assert not isinstance(paths[1], str)


# ---- the control plane ---------------------------------------------------------------------------

HANDLES = {
    "SegmentHandle": "struct shmc_segment *",
    "WriterHandle": "struct shmc_writer *",
    "ReaderHandle": "struct shmc_reader *",
    "DescriptorOwner": "int *",
    "AttachmentOwner": "struct shmc_attachment *",
}


def lib_protocol() -> dict[str, ast.expr]:
    """The annotations of _native.Lib, which exists for mypy alone."""
    tree = ast.parse(Path(_native.__file__).read_text())
    [found] = [
        node for node in ast.walk(tree) if isinstance(node, ast.ClassDef) and node.name == "Lib"
    ]
    return {
        node.target.id: node.annotation
        for node in found.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }


def agrees(annotation: ast.expr, ctype: Any) -> bool:
    """Whether Python's word for a parameter or a result can be what C has there."""
    if isinstance(annotation, ast.BinOp):
        return agrees(annotation.left, ctype) and agrees(annotation.right, ctype)
    word = ast.unparse(annotation)
    if word in HANDLES:
        word = HANDLES[word]
    return any(word == one for one in words_for(ctype))


def words_for(ctype: Any) -> Iterator[str]:
    """The words that Python may declare for a type of C."""
    if ctype.kind == "pointer":
        yield from ("Pointer", ctype.cname.removeprefix("const "))
        if ctype.item.kind == "void" or _native.ffi.sizeof(ctype.item) == 1:
            yield "bytes"
    elif ctype.kind == "void":
        yield "None"
    elif ctype.cname == "_Bool":
        yield "bool"
    elif ctype.kind == "enum" or ctype.cname not in {"float", "double"}:
        yield "int"


@pytest.mark.parametrize("name", sorted(lib_protocol()))
def test_c_functions_take_what_lib_declares(name: str) -> None:
    annotation = lib_protocol()[name]
    if isinstance(annotation, ast.Name):
        assert annotation.id == "int"
        assert type(getattr(_native.lib, name)) is int
        return
    assert isinstance(annotation, ast.Subscript)
    assert isinstance(annotation.slice, ast.Tuple)
    parameters, result = annotation.slice.elts
    assert isinstance(parameters, ast.List)
    function = _native.ffi.typeof(getattr(_native.lib, name))
    assert len(parameters.elts) == len(function.args)
    for number, (declared_type, ctype) in enumerate(
        zip(parameters.elts, function.args, strict=True)
    ):
        assert agrees(declared_type, ctype), (number, ast.unparse(declared_type), ctype.cname)
    assert agrees(result, function.result), (ast.unparse(result), function.result.cname)


def test_the_checker_can_fail() -> None:
    """A checker that accepts everything proves nothing."""
    record: Callable[[], Any] = lambda: NAMESPACE["Record"]  # noqa: E731
    assert not fits({"name": "x"}, record())
    assert not fits([1, "2"], list[int])
    assert not fits((1, 2), tuple[int, str])
    assert not fits(None, Sequence)
    assert not fits(True, int)
    assert fits([(1, "2")], list[tuple[int, str | None]])
