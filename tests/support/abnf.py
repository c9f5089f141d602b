"""Texts by a grammar in ABNF (RFC 5234), also with one of their parts broken.

A grammar is read as RFCs write it; derive() draws a text. Parts can be broken: a rule that is named
in `broken` is then, once in a text, replaced by something that looks like it and is not allowed.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

_TOKEN = re.compile(
    r"""\s*(?:(?P<text>"[^"]*")|(?P<code>%x[0-9A-Fa-f]+(?:[-.][0-9A-Fa-f]+)*)
    |(?P<times>\d*\*\d*|\d+(?=["%(\[A-Za-z]))|(?P<name>[A-Za-z][A-Za-z0-9-]*)|(?P<sign>[][()/]))""",
    re.VERBOSE,
)
MOST = 4
"""Repetitions, where the grammar has no bound."""


class Node(NamedTuple):
    """A part of a rule: its kind, and what it consists of."""

    kind: str
    parts: tuple[Node, ...] = ()
    text: str = ""
    least: int = 1
    most: int = 1


class Grammar:
    """The rules of a grammar."""

    def __init__(self, text: str) -> None:
        self.rules: dict[str, Node] = {}
        for line in re.sub(r"\n[ \t]+", " ", text).splitlines():
            name, equals, rest = line.partition(" = ")
            if equals:
                tokens = [(m.lastgroup or "", m[m.lastgroup or 0]) for m in _TOKEN.finditer(rest)]
                self.rules[name.strip()], left = _alternatives(tokens)
                assert not left, (name, left)

    def derive(
        self, rule: str, luck: random.Random, broken: Mapping[str, Sequence[bytes]] | None = None
    ) -> bytes:
        """A text of this rule. `broken` maps a rule to texts that may replace it."""
        made: list[tuple[str, bytes]] = []
        self._add(Node("name", text=rule), luck, made, frozenset(broken or ()))
        places = [at for at, (name, _) in enumerate(made) if name]
        if broken and places:
            at = luck.choice(places)
            made[at] = "", luck.choice(broken[made[at][0]])
        return b"".join(text for _, text in made)

    def _add(
        self, node: Node, luck: random.Random, made: list[tuple[str, bytes]], marked: frozenset[str]
    ) -> None:
        if node.kind == "name" and node.text in marked:
            inner: list[tuple[str, bytes]] = []
            self._add(self.rules[node.text], luck, inner, frozenset())
            made.append((node.text, b"".join(text for _, text in inner)))
        elif node.kind == "name":
            self._add(self.rules[node.text], luck, made, marked)
        elif node.kind == "text":
            made.append(("", node.text.encode("latin-1")))
        elif node.kind == "range":
            made.append(("", bytes([luck.randint(node.least, node.most)])))
        elif node.kind == "either":
            self._add(luck.choice(node.parts), luck, made, marked)
        else:
            for _ in range(luck.randint(node.least, node.most) if node.kind == "times" else 1):
                for part in node.parts:
                    self._add(part, luck, made, marked)


Tokens = list[tuple[str, str]]


def _alternatives(tokens: Tokens) -> tuple[Node, Tokens]:
    found: list[Node] = []
    while True:
        some: list[Node] = []
        while tokens and tokens[0] not in {("sign", "/"), ("sign", ")"), ("sign", "]")}:
            node, tokens = _part(tokens)
            some.append(node)
        found.append(Node("all", tuple(some)))
        if not tokens or tokens[0] != ("sign", "/"):
            return (found[0] if len(found) == 1 else Node("either", tuple(found))), tokens
        tokens = tokens[1:]


def _part(tokens: Tokens) -> tuple[Node, Tokens]:
    (kind, text), tokens = tokens[0], tokens[1:]
    if kind == "times":
        least, star, most = text.partition("*")
        node, tokens = _part(tokens)
        low = int(least or 0)
        return Node("times", (node,), "", low, int(most or low + MOST) if star else low), tokens
    if (kind, text) == ("sign", "["):
        node, tokens = _alternatives(tokens)
        return Node("times", (node,), "", 0, 1), tokens[1:]
    if (kind, text) == ("sign", "("):
        node, tokens = _alternatives(tokens)
        return node, tokens[1:]
    if kind == "code" and "-" in text:
        first, _, last = text[2:].partition("-")
        return Node("range", (), "", int(first, 16), int(last, 16)), tokens
    if kind == "code":
        return Node("text", text="".join(chr(int(one, 16)) for one in text[2:].split("."))), tokens
    return Node("text" if kind == "text" else "name", text=text.strip('"')), tokens
