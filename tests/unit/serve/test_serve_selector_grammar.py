"""Selectors by the grammars of Kubernetes, in queries by RFC 3986, over a socket.

The test draws selectors as terms, so that it knows the objects without a parser. It writes each
in one of the ways that the grammar of labels.Parse or fields.ParseSelector allows (blanks, signs,
order), and puts it into a query in one of the ways of RFC 3986. Nothing here uses this project's
parsers. Terms with one part against the grammar must be refused, each of them.
"""

from __future__ import annotations

import contextlib
import http.client
import random
from collections.abc import Iterator
from typing import Any, NamedTuple

import orjson
import pytest
from served import Asked, pod, serving

EXAMPLES = 300
KEYS = ["app", "tier", "example.com/app", "in", "notin", "A.b_c-1", "x" * 63,
        ".".join(["d" * 62] * 4) + "/app"]  # fmt: skip
VALUES = ["web", "db", "in", "notin", "7", "10", "007", "A.b_c-1", "v" * 63, ""]
NAMESPACES = ["default", "kube-system"]
UNRESERVED = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~"
IN_QUERY = UNRESERVED + "!$'()*,=:@/?"
"""RFC 3986's query without the characters that forms give another meaning: & + ;"""

Labels = dict[str, str]


class Term(NamedTuple):
    """One condition on labels, as labels.Parse has it."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def holds(self, labels: Labels) -> bool:
        value = labels.get(self.key)
        if self.operator in {"exists", "absent"}:
            return (value is not None) == (self.operator == "exists")
        if self.operator in {"=", "==", "in"}:
            return value in self.values
        if self.operator in {"!=", "notin"}:
            return value not in self.values
        if value is None or not value.isdigit():
            return False
        number, bound = int(value), int(self.values[0])
        return number > bound if self.operator == ">" else number < bound


def term(luck: random.Random) -> Term:
    key = luck.choice(KEYS)
    operator = luck.choice(["exists", "absent", "=", "==", "!=", "in", "notin", ">", "<"])
    if operator in {"exists", "absent"}:
        return Term(key, operator)
    if operator in {">", "<"}:
        return Term(key, operator, (luck.choice(["0", "7", "8", "9", "007"]),))
    count = luck.randint(1, 4) if operator in {"in", "notin"} else 1
    return Term(key, operator, tuple(luck.sample(VALUES, count)))


def blanks(luck: random.Random, least: int = 0) -> str:
    return "".join(luck.choices(" \t\r\n", k=luck.choice([least, least, least, 1, 3])))


def label_text(one: Term, luck: random.Random) -> str:
    """A term by the grammar at labels.Parse, with blanks wherever a token may end."""
    key, operator, values = one
    if operator == "exists":
        parts = [key]
    elif operator == "absent":
        parts = ["!", key]
    elif operator in {"in", "notin"}:
        parts = [key + blanks(luck, 1) + operator, "(", values[0]]
        for value in values[1:]:
            parts += [",", value]
        parts += [")"]
    else:
        parts = [key, operator, *values]
    return blanks(luck) + "".join(part + blanks(luck) for part in parts)


class FieldTerm(NamedTuple):
    """One condition on a field."""

    path: str
    operator: str
    value: str

    def holds(self, obj: dict[str, Any]) -> bool:
        at: Any = obj
        for step in self.path.split("."):
            at = at.get(step, "")
        return bool(at == self.value) == (self.operator != "!=")


def field_term(luck: random.Random) -> FieldTerm:
    path = luck.choice(["metadata.name", "metadata.namespace", "spec.nodeName"])
    values = {
        "metadata.name": ["p-0001", "p-0002", "p-0039", ""],
        "metadata.namespace": [*NAMESPACES, "none"],
        "spec.nodeName": ["node-0", "node-1", "", "a,b", "a=b", "a\\b", "\\", "!=", "é b"],
    }
    return FieldTerm(path, luck.choice(["=", "==", "!="]), luck.choice(values[path]))


def field_text(one: FieldTerm) -> str:
    escaped = one.value.replace("\\", "\\\\").replace(",", "\\,").replace("=", "\\=")
    return f"{one.path}{one.operator}{escaped}"


def in_query(text: str, luck: random.Random) -> str:
    """A parameter's text in a query: characters that may stand there do, or are escaped."""
    often = luck.choice([0.0, 0.1, 1.0])
    made = []
    for character in text:
        if character == " " and luck.random() < 0.5:
            made.append("+")
        elif character in IN_QUERY and luck.random() >= often:
            made.append(character)
        else:
            form = luck.choice(["%%%02X", "%%%02x"])
            made += [form % byte for byte in character.encode()]
    return "".join(made)


def in_path(text: str, luck: random.Random) -> str:
    """A path: RFC 3986 takes an escaped unreserved character for the character."""
    return "".join(
        f"%{ord(one):02X}" if one.isalnum() and luck.random() < 0.1 else one for one in text
    )


def target(path: str, pairs: list[tuple[str, str]], luck: random.Random) -> str:
    luck.shuffle(pairs)
    query = [f"{in_query(name, luck)}={in_query(value, luck)}" for name, value in pairs]
    if luck.random() < 0.3:
        query.insert(luck.randrange(len(query) + 1), luck.choice(["", "unknown", "a=b", "=", "?"]))
    return f"{in_path(path, luck)}?{'&'.join(query)}"


# ---- the server ----------------------------------------------------------------------------------


def some_pod(number: int) -> dict[str, Any]:
    luck = random.Random(number)
    made: dict[str, Any] = pod(number)
    made["metadata"]["namespace"] = NAMESPACES[number % 2]
    chosen = luck.sample(KEYS, luck.randrange(len(KEYS) + 1))
    made["metadata"]["labels"] = {key: luck.choice(VALUES) for key in chosen}
    made["spec"] = {"nodeName": f"node-{number % 3}"} if number % 4 else {}
    return made


PODS = sorted(
    (some_pod(number) for number in range(40)),
    key=lambda one: (one["metadata"]["namespace"], one["metadata"]["name"]),
)


class Client:
    """One connection that goes on, whatever was refused on it."""

    def __init__(self, asked: Asked) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", asked.serve.port, timeout=30)
        self._connection.connect()
        self._sock = self._connection.sock

    def close(self) -> None:
        self._connection.close()

    def get(self, uri: str) -> tuple[int, Any]:
        self._connection.request("GET", uri)
        answer = self._connection.getresponse()
        found = answer.status, orjson.loads(answer.read())
        assert self._connection.sock is self._sock, "the connection was ended"
        return found


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with serving({"pods": PODS}) as asked, contextlib.closing(Client(asked)) as found:
        yield found
        assert asked.serve.server.stats.errors == 0


def keys(found: list[Any]) -> list[str]:
    return [f"{one['metadata']['namespace']}/{one['metadata']['name']}" for one in found]


def listed(client: Client, path: str, pairs: list[tuple[str, str]], luck: random.Random) -> Any:
    """All pages."""
    found: list[str] = []
    token = ""
    while True:
        more = [("continue", token)] if token else []
        uri = target(path, pairs + more, luck)
        code, answer = client.get(uri)
        assert code == 200, (uri, answer)
        found += keys(answer["items"])
        token = answer["metadata"].get("continue", "")
        if not token:
            return found


# ---- tests ---------------------------------------------------------------------------------------


def test_a_list_has_what_its_terms_select(client: Client, rng: random.Random) -> None:
    seen = set()
    for _ in range(EXAMPLES):
        labels = [term(rng) for _ in range(rng.choice([0, 1, 1, 2, 3]))]
        fields = [field_term(rng) for _ in range(rng.choice([0, 0, 1, 2]))]
        namespace = rng.choice(["", *NAMESPACES])
        pairs = [("limit", str(rng.choice([1, 5, 100])))] if rng.random() < 0.2 else []
        if labels:
            pairs.append(("labelSelector", ",".join(label_text(one, rng) for one in labels)))
        if fields:
            pairs.append(("fieldSelector", ",".join(map(field_text, fields))))
        path = f"/api/v1/namespaces/{namespace}/pods" if namespace else "/api/v1/pods"
        wanted = [
            one
            for one in PODS
            if namespace in {"", one["metadata"]["namespace"]}
            and all(term.holds(one["metadata"]["labels"]) for term in labels)
            and all(term.holds(one) for term in fields)
        ]
        assert listed(client, path, pairs, rng) == keys(wanted), (path, pairs)
        seen.add(len(wanted))
    assert len(seen) > 15, "the selectors hardly differ"


BROKEN = {
    "key": ["-a=w", "a-=w", "a b=w", "a/b/c=w", "/a=w", "a/=w", "Ex.com/a=w", "a..b/c=w",
            "x" * 64 + "=w", "d" * 254 + "/a=w", "é=w", "a%b=w", "a\\b=w", '"a"=w', "==w", "=w"],
    "value": ["K=-a", "K=a-", "K=a b", "K=a/b", "K=" + "v" * 64, "K=é", "K=a%b", 'K="a"', "K=a;b",
              "K=a|b", "K=(a)", "K=a=b", "K=!a", "K=a!"],
    "operator": [f"K {wrong} w" for wrong in (
        "===", "=!", "!==", "<=", ">=", "<>", "~=", ":", "is", "IN", "in", "notin", "==!", "!",
        "not in")],
    "set": [f"K {wrong}" for wrong in (
        "in", "in (", "in )", "in (a", "in a)", "in ((a))", "in (a b)", "in (a=b)", "notin [a]",
        "in (a)(b)", "in (!a)", "in (-a)", "= (a)", "in (a),", "(a)")],
    "number": [f"K{wrong}" for wrong in (
        ">", "<", ">a", "<1.5", ">1e3", "<0x1", ">" + "9" * 30, "> 1 2", "<(1)", ">-1", "<+1")],
    "joint": [",K", "K,", "K,,K", ",", "K K", "K;K", "K&&K", "(K)", "!!K", "!", "!K=a", "!(K)",
              "K,!", "K=a,,K=b", "!,K"],
}  # fmt: skip
"""Terms against the grammar; K is any key."""


@pytest.mark.parametrize("part", BROKEN)
def test_a_selector_against_the_grammar_is_refused(
    part: str, client: Client, rng: random.Random
) -> None:
    for wrong in BROKEN[part]:
        text = wrong.replace("K", rng.choice(KEYS))
        around = [label_text(term(rng), rng) for _ in range(rng.randrange(3))]
        around.insert(rng.randrange(len(around) + 1), text)
        pairs = [("labelSelector", ",".join(around)), ("limit", "5")]
        if rng.random() < 0.3:
            pairs += [("watch", "1"), ("timeoutSeconds", "1")]
        uri = target("/api/v1/pods", pairs, rng)

        code, answer = client.get(uri)

        assert (code, answer["kind"], answer["reason"]) == (400, "Status", "BadRequest"), (
            uri,
            text,
        )


def test_a_field_selector_against_the_grammar_is_refused(
    client: Client, rng: random.Random
) -> None:
    for text in ["metadata.name", "metadata.name a", "metadata.name=a=b", "metadata.name=a\\b",
                 "metadata.name=a\\", "spec.none=a", "=a", "a in (b)", "metadata.name>1",
                 "metadata.name =a", "!metadata.name", "metadata.labels.app=web"]:  # fmt: skip
        whole = ",".join(rng.sample([text, field_text(field_term(rng))], 2))
        code, answer = client.get(target("/api/v1/pods", [("fieldSelector", whole)], rng))

        assert (code, answer["kind"], answer["reason"]) == (400, "Status", "BadRequest"), whole
