"""Command lines of `kubectl get`, drawn from kinds, names, forms, selectors and orders.

The seed and the kinds determine them. Each kind is in several; each form of output is with many
kinds; the rest is drawn.
"""

from __future__ import annotations

import random
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from shmcache.protocol.kinds import Kind

Words = tuple[str, ...]

RANGE = "{range .items[*]}{.metadata.name}{\"\\t\"}{.kind}{'\\n'}{end}"
FORMS: tuple[str, ...] = (
    "", "wide", "name", "yaml", "json",
    "jsonpath={.items[*].metadata.name}", "jsonpath=" + RANGE, "jsonpath={.items[0]}",
    "jsonpath={.items[-1:].metadata.labels}", "jsonpath={..name}",
    "jsonpath={.items[?(@.metadata.namespace=='prod')].metadata.name}",
    "jsonpath={.items[*]['metadata.name','metadata.namespace']}",
    "jsonpath={.items[*].metadata.annotations.note}", "jsonpath={.kind} {.apiVersion}",
    "jsonpath={.items[*].metadata.nothing}", "jsonpath-as-json={.items[*].metadata.labels}",
    "jsonpath-as-json={.items[0].metadata}",
    "custom-columns=NAME:.metadata.name,APP:.metadata.labels.app",
    "custom-columns=KIND:.kind,NS:.metadata.namespace,NONE:.metadata.nothing",
    "custom-columns=WHEN:.metadata.creationTimestamp,L:.metadata.labels,N:metadata.name",
    "custom-columns=NOTE:{.metadata.annotations.note},U:.metadata.uid",
)  # fmt: skip
FLAGS: tuple[Words, ...] = (
    (), (), ("--show-labels",), ("-L", "app"), ("-L", "app,n,none"), ("--no-headers",),
    ("--show-kind",), ("--show-kind", "--no-headers"), ("--show-labels", "-L", "n"),
)  # fmt: skip
SELECTORS: tuple[Words, ...] = (
    (), (), ("-l", "app=web"), ("-l", "app!=web"), ("-l", "app in (web,db),n"), ("-l", "!app"),
    ("--selector", "n notin (1,2)"), ("-l", "n=7"), ("-l", "n>0"), ("-l", ""),
    ("--field-selector", "metadata.name={name}"), ("--field-selector", "metadata.name!={name}"),
    ("--field-selector", "metadata.namespace=prod"),
    ("--field-selector", "metadata.name!={name},metadata.namespace!=prod"), ("-l", "app==api"),
)  # fmt: skip
ORDERS: tuple[Words, ...] = (
    (), (), ("--sort-by=.metadata.name",), ("--sort-by=.metadata.creationTimestamp",),
    ("--sort-by", "{.metadata.labels.n}"), ("--sort-by=metadata.labels.app",),
    ("--sort-by=.metadata.uid",),
)  # fmt: skip
PLACES: tuple[Words, ...] = ((), ("-A",), ("-n", "prod"), ("--all-namespaces",), ("-n", "empty"))
ONE: tuple[str, ...] = (
    "", "wide", "name", "yaml", "json", "jsonpath={.metadata.name}", "jsonpath={.metadata}",
    'jsonpath={.metadata.labels.app}{"\\n"}', "custom-columns=N:.metadata.name",
    "jsonpath-as-json={.metadata.labels}", "jsonpath={@}", "jsonpath={$.kind}",
)  # fmt: skip

SPECIAL = Path(__file__).with_suffix(".txt")


def special() -> list[Words]:
    """Command lines that are written by hand."""
    lines = SPECIAL.read_text(encoding="utf-8").splitlines()
    return [tuple(shlex.split(line)) for line in lines if line and line[0] != "#"]


def commands(kinds: Sequence[Kind], seed: int, count: int) -> Iterator[Words]:
    """So many command lines after `get`."""
    luck = random.Random(seed)
    made: dict[Words, None] = dict.fromkeys(special())
    for number, kind in enumerate(kinds):
        made[_of_kind(kind, FORMS[number % len(FORMS)], luck)] = None
        made[(kind.key, "-A", "-o", "wide")] = None
        made[(kind.key, "-A")] = None
        made[_single(kind, ONE[number % len(ONE)], luck)] = None
    while len(made) < count:
        kind = luck.choice(kinds)
        if luck.random() < 0.2:
            made[_single(kind, luck.choice(ONE), luck)] = None
        else:
            made[_of_kind(kind, luck.choice(FORMS), luck)] = None
    found = list(made)
    if count < len(found):
        found = luck.sample(found, count)
    yield from found


def _called(kind: Kind, luck: random.Random) -> str:
    return luck.choice([kind.key, kind.resource, kind.singular, kind.kind, *kind.short_names])


def _object(kind: Kind) -> str:
    prefix = {"widgets": "w", "gadgets": "g"}.get(kind.resource, kind.singular)
    return "widgets.example.com" if kind.singular == "customresourcedefinition" else f"{prefix}-0"


def _form(form: str) -> Words:
    return ("-o", form) if form else ()


def _single(kind: Kind, form: str, luck: random.Random) -> Words:
    called, name = _called(kind, luck), _object(kind)
    words = (f"{called}/{name}",) if luck.random() < 0.5 else (called, name)
    return (*words, *_form(form), *luck.choice([(), (), ("--show-kind",), ("--show-labels",)]))


def _of_kind(kind: Kind, form: str, luck: random.Random) -> Words:
    selector = tuple(word.replace("{name}", _object(kind)) for word in luck.choice(SELECTORS))
    flags = luck.choice(FLAGS) if form in {"", "wide"} else ()
    words = (*luck.choice(PLACES), *_form(form), *flags, *selector, *luck.choice(ORDERS))
    return (_called(kind, luck), *words)
