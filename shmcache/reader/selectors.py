"""Label and field selectors: parsed once, then evaluated on dicts and views alike.

    LabelSelector.parse("app=web,tier in (a,b),!canary").matches(pod)
    FieldSelector.parse("status.phase!=Running,spec.containers[*].image=nginx").matches(pod)

Label selectors are those of the API server, to the letter of their errors. Field selectors have its
grammar, and any path: a path leads to the values that an index of the same path has for the object.

    a string, number, bool     its text
    an object                  "key=value" for each member with a text (labels)
    an array                   each element's text
    null, or nothing there     nothing

`=` is true if the value is among them, `!=` if it is not; a path that leads nowhere has the value
"" (as on the server). Values that the server computes (a missing boolean is "false") count only if
the selector is parsed for a resource of the server, whose fields are `made` so (fields.MADE).
"""

from __future__ import annotations

from shmcache.protocol.selectors import fields, labels
from shmcache.protocol.selectors.labels import Requirement

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping
    from typing import Any, Self

    from shmcache.protocol.selectors.fields import Made

    Test = Callable[[Any], bool]

__all__ = ["FieldSelector", "LabelSelector", "Requirement", "Selector"]


class Selector:
    """Requirements that an object must all meet. Immutable, hashable, and str() parses back."""

    __slots__ = ("_tests", "requirements")

    requirements: tuple[Requirement, ...]
    """The requirements, in a fixed order."""

    def __init__(self, requirements: tuple[Requirement, ...]) -> None:
        self.requirements = requirements
        self._tests = tuple(self._test(requirement) for requirement in requirements)

    def _test(self, requirement: Requirement) -> Test:
        raise NotImplementedError

    def matches(self, obj: Any) -> bool:
        """Whether an object (a dict or a View) meets all requirements."""
        return all(test(obj) for test in self._tests)

    def exact(self, key: str) -> str | None:
        """The one value that this label or path must have; None if several, or none, are fine."""
        for requirement in self.requirements:
            one_of = requirement.operator in {labels.EQUALS, labels.DOUBLE_EQUALS, labels.IN}
            if requirement.key == key and one_of and len(requirement.values) == 1:
                return requirement.values[0]
        return None

    def __bool__(self) -> bool:
        """Whether it has any requirement."""
        return bool(self.requirements)

    def __str__(self) -> str:
        return ",".join(map(str, self.requirements))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {str(self)!r}>"

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.requirements == other.requirements

    def __hash__(self) -> int:
        return hash((type(self).__name__, self.requirements))

    def __reduce__(self) -> tuple[type[Self], tuple[tuple[Requirement, ...]]]:
        return type(self), (self.requirements,)


# ---- labels --------------------------------------------------------------------------------------


class LabelSelector(Selector):
    """Conditions on metadata.labels, in the whole Kubernetes grammar."""

    __slots__ = ()

    @classmethod
    def parse(cls, text: str) -> LabelSelector:
        """Parses a text such as `app=web,tier in (a,b),!canary,size>3`; else InvalidSelector.

        The texts of the errors are the API server's.
        """
        return cls(tuple(labels.parse(text)))

    @classmethod
    def of(cls, wanted: Mapping[str, str]) -> LabelSelector:
        """Requires these values of these labels; an empty mapping selects everything."""
        given: Mapping[Any, Any] = wanted
        for key, value in given.items():
            if not isinstance(key, str) or not isinstance(value, str):
                raise TypeError(f"labels must be strings, not {key!r}: {value!r}")
        found = [Requirement.checked(key, labels.EQUALS, (value,)) for key, value in wanted.items()]
        return cls(tuple(sorted(found, key=lambda requirement: requirement.key)))

    def _test(self, requirement: Requirement) -> Test:
        return _label_test(requirement)

    def matches(self, obj: Any) -> bool:
        """Whether an object's metadata.labels meet all requirements."""
        metadata: Any = obj.get("metadata")
        found: Any = metadata.get("labels") if _is_object(metadata) else None
        return self.matches_labels(found if _is_object(found) else {})

    def matches_labels(self, found: Mapping[str, Any]) -> bool:
        """Whether these labels meet all requirements."""
        return all(test(found) for test in self._tests)


def _label_test(requirement: Requirement) -> Test:
    key, operator = requirement.key, requirement.operator
    values = frozenset(requirement.values)
    if operator in {labels.EQUALS, labels.DOUBLE_EQUALS, labels.IN}:
        return lambda found: isinstance(value := found.get(key), str) and value in values
    if operator in {labels.NOT_EQUALS, labels.NOT_IN}:
        return lambda found: not (isinstance(value := found.get(key), str) and value in values)
    if operator == labels.EXISTS:
        return lambda found: key in found
    if operator == labels.NOT_EXISTS:
        return lambda found: key not in found
    if operator in {labels.GREATER, labels.LESS}:
        return _number_test(key, int(requirement.values[0]), greater=operator == labels.GREATER)
    raise ValueError(f"a label selector has no operator {operator!r}")


def _number_test(key: str, bound: int, *, greater: bool) -> Test:
    def test(found: Any) -> bool:
        text = found.get(key)
        number = labels.as_int64(text) if isinstance(text, str) else None
        return number is not None and (number > bound if greater else number < bound)

    return test


# ---- fields --------------------------------------------------------------------------------------


class FieldSelector(Selector):
    """Conditions on the values that paths lead to."""

    __slots__ = ("_made", "asked", "sifts")

    asked: tuple[Requirement, ...]
    """The requirements on paths: an object that does not meet them is not selected."""
    sifts: bool
    """Whether there are others: then only matches() decides."""

    def __init__(
        self, requirements: tuple[Requirement, ...], made: Mapping[str, Made] | None = None
    ) -> None:
        made = made or {}
        self._made = {term.key: made[term.key] for term in requirements if term.key in made}
        terms = [fields.asked(term, self._made.get(term.key)) for term in requirements]
        self.asked = tuple(one for found, _ in terms for one in found)
        self.sifts = not all(exact for _, exact in terms)
        super().__init__(requirements)

    @classmethod
    def parse(
        cls,
        text: str,
        known: Collection[str] | None = None,
        made: Mapping[str, Made] | None = None,
    ) -> FieldSelector:
        """Parses a text such as `status.phase=Running,spec.nodeName!=n-1`; else InvalidSelector.

        `known`: the only fields that may be selected; others are refused as by the API server.
        `made`: those of them that are not paths.
        """
        return cls(tuple(fields.parse(text, known)), made)

    def __eq__(self, other: object) -> bool:
        mine = isinstance(other, FieldSelector) and self._made == other._made
        return mine and super().__eq__(other)

    __hash__ = Selector.__hash__

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.requirements, self._made)

    def __str__(self) -> str:
        return ",".join(map(fields.format_term, self.requirements))

    def _test(self, requirement: Requirement) -> Test:
        made = self._made.get(requirement.key)
        if made is not None:
            return _made_test(made, requirement)
        steps, (wanted,) = fields.steps_of(requirement.key), requirement.values
        if requirement.operator == labels.NOT_EQUALS:
            return lambda obj: not _leads_to(obj, steps, wanted)
        return lambda obj: _leads_to(obj, steps, wanted)


def _leads_to(obj: Any, steps: tuple[str | None, ...], wanted: str) -> bool:
    nothing = True
    for text in texts_at(obj, steps):
        if text == wanted:
            return True
        nothing = False
    return nothing and not wanted


def _made_test(made: Made, requirement: Requirement) -> Test:
    path, default, fallback = made
    ways = [fields.steps_of(way) for way in (path, fallback) if way]
    equal, (wanted,) = requirement.operator != labels.NOT_EQUALS, requirement.values

    def test(obj: Any) -> bool:
        texts = (text for steps in ways for text in texts_at(obj, steps) if text)
        return (next(texts, default) == wanted) is equal

    return test


def texts_at(obj: Any, steps: tuple[str | None, ...]) -> Iterator[str]:
    """The values that an index of this path would hold of the object."""
    for number, step in enumerate(steps):
        if step is None:
            if _is_array(obj):
                for element in obj:
                    yield from texts_at(element, steps[number + 1 :])
            return
        obj = obj.get(step) if _is_object(obj) else None
        if obj is None:
            return
    if _is_object(obj):
        for key, value in obj.items():
            yield from (f"{key}={text}" for text in _text(value))
    elif _is_array(obj):
        for element in obj:
            yield from _text(element)
    else:
        yield from _text(obj)


def _is_object(value: Any) -> bool:
    return hasattr(value, "items")


def _is_array(value: Any) -> bool:
    return hasattr(value, "index") and not isinstance(value, str)


def _text(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        return (value,)
    if isinstance(value, bool):
        return ("true" if value else "false",)
    if isinstance(value, float):
        return (_digits(value),)
    return (str(value),) if isinstance(value, int) else ()


def _digits(number: float) -> str:
    """The text of a double as the core has it in an index (indices.c)."""
    text = ""
    for count in (15, 16, 17):
        text = f"{number:.{count}g}"
        if float(text) == number:
            break
    return text if "." in text or "e" in text else text + ".0"
