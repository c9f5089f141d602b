"""Field selectors as text: the grammar of fields.ParseSelector, with the API server's error texts.

The parser turns a string into `Requirement`s in the order of their texts. Their keys
are paths. On the server a resource names its few selectable fields; here a path may lead anywhere:

    spec.nodeName   metadata.ownerReferences[*].uid   metadata.labels['app.kubernetes.io/name']

The same paths declare indices, and lead to the same values there.

A few selectable fields do not follow a path: the server makes their text of its typed object.
`Made` is how it does, `asked` turns a term about one into conditions on paths.
"""

from __future__ import annotations

from shmcache.errors import InvalidSelector
from shmcache.protocol.selectors.labels import EQUALS, NOT_EQUALS, Requirement, quoted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection

    Made = tuple[str, str, str]
    """How the text of a field is made: a path, the text where nothing is there (a number that is
    left out is 0, a bool is false), the path that counts instead where nothing is there."""

MADE: dict[str, dict[str, Made]] = {
    "pods": {"spec.hostNetwork": ("spec.hostNetwork", "false", "")},
    "events": {"source": ("source.component", "", "reportingComponent")},
    "nodes": {"spec.unschedulable": ("spec.unschedulable", "false", "")},
    "replicationcontrollers": {"status.replicas": ("status.replicas", "0", "")},
    "jobs.batch": {"status.successful": ("status.succeeded", "0", "")},
}
"""Of built-in resources, the fields that do not follow a path. All others are strings on the
server, which never sets status.podIPs; that path leads to no text here either."""

PATH_MAX = 64
"""Steps in a path: as many as an index's may have."""

_FALSE, _TRUE = "false", "true"
_ALWAYS = frozenset(("metadata.name", "metadata.namespace"))
_ESCAPED = frozenset("\\,=")


def parse(text: str, known: Collection[str] | None = None) -> list[Requirement]:
    """The requirements of a field selector. InvalidSelector names the fault.

    `known`: the fields that may be selected, as a server has them; then their names are not
    read as paths.
    """
    found = []
    for term in sorted(_terms(text)):
        if term:
            key, operator, value = _split(text, term)
            found.append(Requirement(key, operator, (unescape(value),)))
    for requirement in found:
        if known is None:
            steps_of(requirement.key)
        elif requirement.key not in known:
            raise InvalidSelector(_unknown(requirement.key, known))
    return found


def _unknown(key: str, known: Collection[str]) -> str:
    if _ALWAYS.issuperset(known):
        names = '"metadata.name", "metadata.namespace"'
        return f"{quoted(key)} is not a known field selector: only {names}"
    return f"field label not supported: {key}"


def _terms(text: str) -> list[str]:
    """Cut at the commas without a backslash in front; backslashes stay."""
    terms, begin, escaped = [], 0, False
    for at, character in enumerate(text):
        if escaped:
            escaped = False
        elif character == "\\":
            escaped = True
        elif character == ",":
            terms.append(text[begin:at])
            begin = at + 1
    return [*terms, text[begin:]]


def _split(text: str, term: str) -> tuple[str, str, str]:
    """Path, operator and escaped value: cut at the first operator."""
    for at, character in enumerate(term):
        if term.startswith("!=", at):
            return term[:at], NOT_EQUALS, term[at + 2 :]
        if character == "=":
            return term[:at], EQUALS, term[at + (2 if term.startswith("==", at) else 1) :]
    raise InvalidSelector(f"invalid selector: '{text}'; can't understand '{term}'")


def unescape(text: str) -> str:
    """A value as it is meant; InvalidSelector for what escape() does not write."""
    found, escaped = [], False
    for character in text:
        if escaped and character not in _ESCAPED:
            raise _no_escape("\\" + character)
        if not escaped and character in {",", "="}:
            raise InvalidSelector(
                f"invalid field selector: unescaped character in value: {ord(character)}"
            )
        if not escaped and character == "\\":
            escaped = True
            continue
        found.append(character)
        escaped = False
    if escaped:
        raise _no_escape("\\")
    return "".join(found)


def _no_escape(sequence: str) -> InvalidSelector:
    return InvalidSelector(f"invalid field selector: invalid escape sequence: {sequence}")


def escape(text: str) -> str:
    """A value as selectors have it."""
    return text.replace("\\", "\\\\").replace(",", "\\,").replace("=", "\\=")


def format_term(requirement: Requirement) -> str:
    """One term of a selector's text."""
    return f"{requirement.key}{requirement.operator}{escape(requirement.values[0])}"


def asked(term: Requirement, made: Made | None) -> tuple[tuple[Requirement, ...], bool]:
    """The conditions on paths that a term implies, and whether they are all of its meaning."""
    if made is None:
        return (term,), True
    path, default, fallback = made
    [wanted] = term.values
    if fallback or (default and not wanted):
        return (), False
    if wanted != default or not wanted:
        return (Requirement(path, term.operator, (wanted,)),), True
    if default == _FALSE:
        other = NOT_EQUALS if term.operator == EQUALS else EQUALS
        return (Requirement(path, other, (_TRUE,)),), True
    if term.operator == EQUALS:
        return (), False
    return tuple(Requirement(path, NOT_EQUALS, (text,)) for text in (default, "")), True


# ---- paths ---------------------------------------------------------------------------------------


def steps_of(path: str) -> tuple[str | None, ...]:
    """The keys that lead to a value, None for [*]; InvalidSelector for anything else."""
    steps: list[str | None] = []
    rest = path
    while rest:
        step, rest = _step(path, rest)
        steps.append(step)
        if len(steps) > PATH_MAX:
            raise _no_path(path)
    if not steps:
        raise _no_path(path)
    return tuple(steps)


def _step(path: str, rest: str) -> tuple[str | None, str]:
    rest = rest.removeprefix(".")
    if rest.startswith("[*]"):
        return None, rest[3:]
    if rest.startswith("["):
        quote = rest[1:2]
        end = rest.find(quote, 2) if quote in {"'", '"'} else -1
        if end < 0 or rest[end + 1 : end + 2] != "]":
            raise _no_path(path)
        return rest[2:end], rest[end + 2 :]
    ends = [at for at in (rest.find("."), rest.find("[")) if at >= 0]
    end = min(ends, default=len(rest))
    if end == 0:
        raise _no_path(path)
    return rest[:end], rest[end:]


def _no_path(path: str) -> InvalidSelector:
    return InvalidSelector(f"invalid field selector: {quoted(path)} is not a path")
