"""Pages of lists as JSON text: the same objects as scan(), in the requested form."""

import contextlib
import random
from collections.abc import Iterator
from typing import Any

import orjson
import pytest
from conftest import MINE

import shmcache
from shmcache._hot import Root
from shmcache.protocol import framing
from shmcache.reader import listing

NAME = f"{MINE}pages"
ALL = ("all", b"", b"", 1 << 26)
POD = {"apiVersion": "v1", "kind": "Pod"}


def pod(number: int) -> dict[str, Any]:
    metadata = {"name": f"p-{number:03}", "namespace": f"n{number % 3}", "uid": str(number)}
    return {**POD, "metadata": metadata, "spec": {"nodeName": f"node-{number % 5}", "text": "é\n"}}


@contextlib.contextmanager
def roots(objects: list[dict[str, Any]], **options: Any) -> Iterator[tuple[shmcache.Writer, Root]]:
    pods = shmcache.Resource("pods", {"node": "spec.nodeName"})
    with shmcache.Writer(NAME, [pods], **options) as writer:
        writer.replace("pods", objects, version="7")
        with shmcache.attach(NAME) as cache:
            yield writer, cache.reader.root()


def loaded(text: bytes) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = orjson.loads(b"[%b]" % text)
    return found


def test_a_page_is_the_text_of_a_scan() -> None:
    with roots([pod(number) for number in range(300)]) as (_, root):
        text, count, last, more = root.scan_json(ALL, 0)

        views = root.scan(0, want="values")
        assert text == b",".join(view.json() for view in views)
        assert (count, last, more) == (300, "n2/p-299", False)


def test_pages_end_when_they_are_long_enough_and_continue_after_the_last_key() -> None:
    with roots([pod(number) for number in range(300)]) as (_, root):
        found: list[dict[str, Any]] = []
        after, more, pages = None, True, 0
        while more:
            text, count, last, more = root.scan_json(("all", b"", b"", 1000), 0, after=after)
            assert len(loaded(text)) == count
            found += loaded(text)
            after, pages = last or after, pages + 1

        assert found == [view.to_dict() for view in root.scan(0, want="values")]
        assert pages > 10


def test_the_type_can_be_left_out_and_put_in_front() -> None:
    with roots([pod(1), {"metadata": {"name": "bare", "namespace": "n9"}}]) as (_, root):
        untyped = loaded(root.scan_json(("untyped", b"", b"", 1 << 20), 0)[0])
        typed = root.scan_json(("untyped", b'"kind":"Pod",', b"", 1 << 20), 0)[0]

        assert [list(one) for one in untyped] == [["metadata", "spec"], ["metadata"]]
        assert typed.startswith(b'{"kind":"Pod","metadata":')
        assert [one["kind"] for one in loaded(typed)] == ["Pod", "Pod"]


def test_metadata_alone() -> None:
    with roots([pod(1), {"name": "none", "metadata": {"name": "x"}}]) as (_, root):
        first = b'"kind":"PartialObjectMetadata",'
        found = loaded(root.scan_json(("metadata", first, b"", 1 << 20), 0)[0])

        assert [list(one) for one in found] == [["kind", "metadata"]] * 2
        assert {one["metadata"]["name"] for one in found} == {"p-001", "x"}


def test_nested_members_named_like_the_type_stay() -> None:
    inside = {"kind": "Inner", "metadata": {"kind": "x"}, "list": [{"apiVersion": "v9"}]}
    obj = {**POD, "metadata": {"name": "a", "kind": "label"}, "spec": inside}
    with roots([obj]) as (_, root):
        (found,) = loaded(root.scan_json(("untyped", b"", b"", 1), 0)[0])

        assert found == {"metadata": {"name": "a", "kind": "label"}, "spec": inside}


def test_an_empty_object_and_an_empty_list() -> None:
    with roots([]) as (_, root):
        assert root.scan_json(ALL, 0) == (b"", 0, None, False)
        assert root.by_index_json(ALL, 0, 0, "node-1") == (b"", 0, None, False)


def test_a_selection_and_an_index_show_the_same_as_their_scans() -> None:
    with roots([pod(number) for number in range(200)]) as (_, root):
        where = listing.selection(None, None, "spec.nodeName=node-3", None).where
        scanned = loaded(root.scan_json(ALL, 0, where=where, prefix="n1/")[0])
        indexed = loaded(root.by_index_json(ALL, 0, 0, "node-3", prefix="n1/")[0])
        some, count, last, more = root.by_index_json(ALL, 0, 0, "node-3", limit=4)

        assert scanned == indexed
        assert {one["spec"]["nodeName"] for one in scanned} == {"node-3"}
        assert (count, more, loaded(some)[-1]["metadata"]["name"]) == (4, False, (last or "")[3:])


def test_a_lead_comes_before_a_page_without_its_comma_if_the_page_is_empty() -> None:
    with roots([pod(1)]) as (_, root):
        text = root.scan_json(("all", b"", b"[", 1), 0)[0]
        assert text == b"[" + root.scan_json(ALL, 0)[0]
        assert root.scan_json(("all", b"", b"[", 1), 0, prefix="none/")[0] == b"["
        assert root.scan_json(("all", b"", b",", 1), 0, prefix="none/")[0] == b""


def test_a_held_page_stays_and_its_memory_is_reused_afterwards() -> None:
    form = ("all", b"", b"", 4000)
    with roots([pod(number) for number in range(300)]) as (_, root):
        held = [root.scan_json(form, 0, after=f"n0/p-{number:03}")[0] for number in range(0, 90, 3)]
        expected = [bytes(bytearray(page)) for page in held]
        view = memoryview(held.pop())
        del expected[-1:]
        shown, hashes = bytes(view), [hash(page) for page in held]
        for number in range(0, 90, 3):  # written into free memory: never into a held page
            page = root.scan_json(form, 0, after=f"n1/p-{number:03}")[0]
            assert loaded(page)[0]["metadata"]["namespace"] == "n1"
            assert hash(page) == hash(bytes(bytearray(page)))
            del page

        assert held == expected
        assert view == shown
        assert hashes == [hash(page) for page in expected]
        places = set()
        for _ in range(20):
            page = root.scan_json(form, 0)[0]
            places.add(id(page))
            del page
        assert len(places) == 1


def test_a_page_grows_with_its_objects() -> None:
    some = [pod(number) | {"text": f"{number}" * 60_000} for number in range(8)]
    with roots(some) as (_, root):
        for enough in (1, 50_000, 100_000, 300_000, 1 << 26):
            text = root.scan_json(("all", b"", b"", enough), 0)[0]
            found = loaded(text)
            assert found == [view.to_dict() for view in root.scan(0, want="values")][: len(found)]
            assert len(text) >= min(enough, len(root.scan_json(ALL, 0)[0]))


def test_one_object_has_the_form_that_it_has_in_a_page() -> None:
    first = b'"kind":"Pod","apiVersion":"v1",'
    with roots([pod(1)]) as (_, root):
        view = root.scan(0, want="values")[0]
        for form in (("all", b""), ("untyped", first), ("metadata", first), ("untyped", b"")):
            assert view.json_in((*form, b"", 0)) == root.scan_json((*form, b"", 1), 0)[0]
        with pytest.raises((TypeError, ValueError)):
            view.json_in(("some", b"", b"", 0))


def test_a_lean_form_has_no_managed_fields() -> None:
    """ACCEPT3: only those of the object's own metadata go, also where a text is known by then."""
    fields = [{"manager": "kubectl", "fieldsV1": {"f:metadata": {"f:labels": "x" * 60}}}]
    shared = {"name": "same", "labels": {"app": "x" * 60}, "managedFields": fields}

    def made(number: int) -> dict[str, Any]:
        found = pod(number)
        metadata = {**found["metadata"], "managedFields": fields} if number % 3 else shared
        template = {"metadata": shared, "managedFields": fields}
        return {**found, "metadata": metadata, "spec": template, "managedFields": fields}

    some = [made(number) for number in range(1, 30)]
    with roots([one for one in some if one["metadata"] is not shared]) as (_, root):
        views = root.scan(0, want="values")
        plain = [view.to_dict() for view in views]
        lean = [{**one, "metadata": {**one["metadata"]}} for one in plain]
        for one in lean:
            del one["metadata"]["managedFields"]
        for _ in range(2):  # the second time from the memo
            for keep in ("all", "metadata", "untyped"):
                for wanted, found in ((False, plain), (True, lean), (False, plain)):
                    form = (keep, b"", b"", 1 << 26, wanted)
                    text = root.scan_json(form, 0)[0]
                    assert text == b",".join(view.json_in(form) for view in views)
                    assert loaded(text) == [kept(one, keep) for one in found]


def kept(obj: dict[str, Any], keep: str) -> dict[str, Any]:
    if keep == "metadata":
        return {"metadata": obj["metadata"]}
    return {k: v for k, v in obj.items() if keep == "all" or k not in {"kind", "apiVersion"}}


def test_the_memo_keeps_apart_metadata_with_and_without_managed_fields() -> None:
    """The same block as metadata of objects, and deeper in them."""
    managed = [{"manager": "y" * 90}]
    metadata = {"namespace": "n", "labels": {"app": "x" * 90}, "managedFields": managed}
    some: list[dict[str, Any]] = [
        {"kind": "Pod", "metadata": metadata | {"name": f"p-{n}"}, "of": [metadata] * 3}
        for n in range(20)
    ]
    some += [{**one, "of": [one["metadata"]] * 3} for one in some]  # replaces each
    with roots(some) as (_, root):
        for lean in (True, False, True):
            for one in loaded(root.scan_json(("all", b"", b"", 1 << 26, lean), 0)[0]):
                assert ("managedFields" not in one["metadata"]) == lean
                assert all("managedFields" in each for each in one["of"])


def test_an_invalid_form_is_refused() -> None:
    with roots([pod(1)]) as (_, root):
        for form in (("some", b"", b"", 1), ("all", b"", 1), "all", None):
            with pytest.raises((TypeError, ValueError)):
                root.scan_json(form, 0)  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            root.scan_json()  # type: ignore[call-arg]
        with pytest.raises(ValueError, match="objects, not keys"):
            root.scan_json(ALL, 0, want="keys")  # type: ignore[call-arg]


def test_a_root_that_lost_its_memory_gives_no_text() -> None:
    def written(turn: int) -> list[dict[str, Any]]:
        return [pod(number) | {"text": f"{turn} {number} " * 200} for number in range(300)]

    pods = shmcache.Resource("pods")
    with shmcache.Writer(NAME, [pods], arena_max=64 << 20, garbage_max=1 << 16) as writer:
        writer.replace("pods", written(0), version="1")
        with shmcache.attach(NAME) as cache:
            root = cache.reader.root()
            for turn in range(1, 20):
                writer.replace("pods", written(turn), version="2")
            assert not root.valid
            with pytest.raises(shmcache.StaleObjectError):
                root.scan_json(ALL, 0)


def test_remembered_texts_belong_to_their_generation() -> None:
    """Blocks are reused for other values; many objects share equal ones (MEMO1, MEMO4)."""
    rng = random.Random(5)

    def made(number: int) -> dict[str, Any]:
        shared = {"kind": "x", "list": [rng.randrange(9)] * 20, "text": f"{rng.randrange(4)}" * 60}
        unlike = {"name": str(rng.random()), "deep": {"er": [shared, {"long": "y" * 50_000}]}}
        return pod(number) | {"spec": shared, "status": unlike if number % 7 == 0 else shared}

    first = [made(number) for number in range(60)]
    with roots(first, ring_slots=64, garbage_max=1 << 16) as (writer, root):
        reader = root.reader
        del root
        for _ in range(200):
            writer.apply("pods", [made(rng.randrange(60)) for _ in range(20)])
            for at in (reader.root(), reader.root()):
                views = at.scan(0, want="values")
                assert at.scan_json(ALL, 0)[0] == b",".join(view.json() for view in views)


ODD = ("<", ">", "&", "\u2028", "\u2029", "\u202a", "é", "😀", '"', "\\", "\n", "\x01", "a", "bc")


def odd(rng: random.Random, most: int) -> str:
    return "".join(rng.choices(ODD, k=rng.randrange(most)))


def test_text_in_a_form_has_the_escapes_of_gos_encoder() -> None:
    """G47: in values of any length, in keys, at the second sight of a block and from the memo."""
    rng = random.Random(9)
    plain = ("all", b"", b"", 0)
    shared = [
        {odd(rng, 4) or "k": odd(rng, 40), "in": [{odd(rng, 9) or "k": odd(rng, 12)}, "x" * 40]}
        for _ in range(12)
    ]

    def made(number: int) -> dict[str, Any]:
        own = {"short": odd(rng, 4), "long": odd(rng, 90), "clean": "c" * rng.randrange(40)}
        return pod(number) | {"spec": {"own": own, "of": rng.choices(shared, k=4)}, "of": shared[0]}

    with roots([made(number) for number in range(200)]) as (_, root):
        views = root.scan(0, want="values")
        texts = [framing.escaped(view.json()) for view in views]
        assert any(b"\\u003c" in text and b"\\u2028" in text for text in texts)
        assert [view.json_in(plain) for view in views] == texts
        for enough in (1, 2000, 1 << 26):
            assert pages(root, enough) == b",".join(texts)
            assert pages(root, enough) == b",".join(texts), "from the memo"


def pages(root: Root, enough: int) -> bytes:
    """A whole list, in pieces of so many bytes."""
    found, after, more = b"", None, True
    while more:
        lead = b"," if found else b""
        text, _, after, more = root.scan_json(("all", b"", lead, enough), 0, after=after)
        found += text
    return found
