"""Label selectors as text: the grammar of labels.Parse, with the API server's own error texts.

The parser turns a string into `Requirement`s, sorted by key. The names and values of labels are
checked here, too. Small on purpose: workers that read import it.
"""

from __future__ import annotations

from shmcache.errors import InvalidSelector

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

IN, NOT_IN, EQUALS, DOUBLE_EQUALS, NOT_EQUALS = "in", "notin", "=", "==", "!="
GREATER, LESS, EXISTS, NOT_EXISTS = "gt", "lt", "exists", "!"
BINARY = (IN, NOT_IN, EQUALS, DOUBLE_EQUALS, NOT_EQUALS, GREATER, LESS)
OPERATORS = (*BINARY, EXISTS, NOT_EXISTS)

NAME_MAX, PREFIX_MAX, VALUE_MAX = 63, 253, 63

_END, _IDENTIFIER = "end", "identifier"
_SPACE = frozenset(" \t\r\n")
_SPECIAL = frozenset("=!(),><")
_ENDS = _SPACE | _SPECIAL | {"\0"}
"""Characters that end an identifier."""
_TOKENS = frozenset((")", ",", "!", "==", "=", ">", "in", "<", "!=", "notin", "("))
_AFTER_KEY = {">": GREATER, "<": LESS, **{text: text for text in BINARY[:5]}}

_ALNUM = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789")
_LOWER = frozenset("abcdefghijklmnopqrstuvwxyz0123456789")
_NAME = _ALNUM | frozenset("-_.")
_LABEL = _LOWER | frozenset("-")

_NAME_RULE = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
    "alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for "
    "validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
_VALUE_RULE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or "
    "'.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or "
    "'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
_PREFIX_RULE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or "
    "'.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used "
    "for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)


class Requirement:
    """One condition on one label (or, of a field selector, on one path). Never changes."""

    __slots__ = ("key", "operator", "values")

    def __init__(self, key: str, operator: str, values: Iterable[str] = ()) -> None:
        self.key = key
        self.operator = operator
        self.values = tuple(values)

    @classmethod
    def checked(cls, key: str, operator: str, values: Iterable[str] = ()) -> Requirement:
        """As labels.NewRequirement: InvalidSelector lists everything that is wrong with it."""
        made = cls(key, operator, values)
        problems = list(dict.fromkeys(made._problems()))
        if len(problems) == 1:
            raise InvalidSelector(problems[0])
        if problems:
            raise InvalidSelector(f"[{', '.join(problems)}]")
        return made

    def _problems(self) -> Iterable[str]:
        yield from _invalid("key", self.key, label_key_errors(self.key))
        yield from self._wrong_values()
        for number, value in enumerate(self.values):
            yield from _invalid(f"values[{number}][{self.key}]", value, label_value_errors(value))

    def _wrong_values(self) -> Iterable[str]:
        count, rule = len(self.values), ""
        if self.operator in {IN, NOT_IN}:
            rule = "" if count else "for 'in', 'notin' operators, values set can't be empty"
        elif self.operator in {EQUALS, DOUBLE_EQUALS, NOT_EQUALS}:
            rule = "" if count == 1 else "exact-match compatibility requires one single value"
        elif self.operator in {EXISTS, NOT_EXISTS}:
            rule = "values set must be empty for exists and does not exist" if count else ""
        elif self.operator in {GREATER, LESS}:
            rule = "for 'Gt', 'Lt' operators, exactly one value is required" if count != 1 else ""
        else:
            known = ", ".join(map(quoted, OPERATORS))
            yield f"operator: Unsupported value: {quoted(self.operator)}: supported values: {known}"
        if rule:
            yield f"values: Invalid value: [{','.join(map(quoted, self.values))}]: {rule}"
        if self.operator in {GREATER, LESS}:
            for number, value in enumerate(self.values):
                if as_int64(value) is None:
                    wrong = ["for 'Gt', 'Lt' operators, the value must be an integer"]
                    yield from _invalid(f"values[{number}]", value, wrong)

    def __str__(self) -> str:
        if self.operator == EXISTS:
            return self.key
        if self.operator == NOT_EXISTS:
            return "!" + self.key
        values = ",".join(sorted(self.values))
        if self.operator in {IN, NOT_IN}:
            return f"{self.key} {self.operator} ({values})"
        return f"{self.key}{ {GREATER: '>', LESS: '<'}.get(self.operator, self.operator) }{values}"

    def __repr__(self) -> str:
        return f"Requirement({self.key!r}, {self.operator!r}, {self.values!r})"

    def _facts(self) -> tuple[object, ...]:
        return self.key, self.operator, self.values

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Requirement) and self._facts() == other._facts()

    def __hash__(self) -> int:
        return hash(self._facts())

    def __reduce__(self) -> tuple[type[Requirement], tuple[str, str, tuple[str, ...]]]:
        return type(self), (self.key, self.operator, self.values)


# ---- rules for labels -------------------------------------------------------------------------


def _shaped(text: str, inner: frozenset[str], ends: frozenset[str]) -> bool:
    return bool(text) and text[0] in ends and text[-1] in ends and inner.issuperset(text)


def subdomain_errors(text: str) -> list[str]:
    """The faults of a DNS subdomain (RFC 1123), in the API server's wording."""
    errors = []
    if len(text.encode()) > PREFIX_MAX:
        errors.append(f"must be no more than {PREFIX_MAX} bytes")
    if not all(_shaped(part, _LABEL, _LOWER) for part in text.split(".")):
        errors.append(_PREFIX_RULE)
    return errors


def label_key_errors(key: str) -> list[str]:
    """The fault of a label's key, in the API server's wording; empty if nothing is."""
    errors: list[str] = []
    parts = key.split("/")
    if len(parts) > 2:
        rule = f"a valid label key {_NAME_RULE}"
        return [f"{rule} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"]
    if len(parts) == 2:
        found = subdomain_errors(parts[0]) if parts[0] else ["must be non-empty"]
        errors += [f"prefix part {error}" for error in found]
    name = parts[-1]
    if not name:
        errors.append("name part must be non-empty")
    elif len(name.encode()) > NAME_MAX:
        errors.append(f"name part must be no more than {NAME_MAX} bytes")
    if not _shaped(name, _NAME, _ALNUM):
        errors.append(f"name part {_NAME_RULE}")
    return errors


def label_value_errors(value: str) -> list[str]:
    """The fault of a label's value, in the API server's wording; empty if nothing is."""
    errors = []
    if len(value.encode()) > VALUE_MAX:
        errors.append(f"must be no more than {VALUE_MAX} bytes")
    if value and not _shaped(value, _NAME, _ALNUM):
        errors.append(_VALUE_RULE)
    return errors


def as_int64(text: str) -> int | None:
    """The number as strconv.ParseInt reads it in base 10 and 64 bits; None if it does not."""
    digits = text[1:] if text[:1] in {"+", "-"} else text
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 64:
        return None
    number = int(text)
    return number if -(1 << 63) <= number < 1 << 63 else None


def quoted(text: str) -> str:
    """In double quotes, as Go's %q writes it."""
    short = {'"': '\\"', "\\": "\\\\", "\a": "\\a", "\b": "\\b", "\f": "\\f"}
    short |= {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v"}
    return '"' + "".join(short.get(c) or (c if c.isprintable() else _hex(c)) for c in text) + '"'


def _hex(character: str) -> str:
    point = ord(character)
    if point < 0x20 or point == 0x7F:
        return f"\\x{point:02x}"
    return f"\\u{point:04x}" if point < 0x10000 else f"\\U{point:08x}"


def _invalid(field: str, value: str, errors: list[str]) -> list[str]:
    return [f"{field}: Invalid value: {quoted(value)}: {'; '.join(errors)}"] if errors else []


# ---- from text -----------------------------------------------------------------------------------


def parse(text: str) -> list[Requirement]:
    """The requirements of a label selector, sorted by key. InvalidSelector names the fault."""
    return sorted(_Parser(text).parse(), key=lambda requirement: requirement.key)


def _scan(text: str) -> list[tuple[str, str]]:
    """All tokens with their texts; the last is _END. A NUL ends a token, as in labels.Parse."""
    found: list[tuple[str, str]] = []
    at, size = 0, len(text)
    while True:
        while at < size and text[at] in _SPACE:
            at += 1
        if at >= size or text[at] == "\0":
            found.append((_END, ""))
            return found
        begin = at
        if text[at] in _SPECIAL:
            at += 2 if text[at : at + 2] in {"==", "!="} else 1
            found.append((text[begin:at], text[begin:at]))
            continue
        while at < size and text[at] not in _ENDS:
            at += 1
        token = text[begin:at]
        found.append((token if token in _TOKENS else _IDENTIFIER, token))
        at += at < size and text[at] == "\0"


class _Parser:
    """Recursive descent over the tokens: what is found, and what was expected there."""

    def __init__(self, text: str) -> None:
        self._tokens = _scan(text)
        self._at = 0

    def _look(self) -> tuple[str, str]:
        """The kind that comes next, where a value may stand: in and notin are identifiers there."""
        kind, text = self._tokens[self._at]
        return (_IDENTIFIER if kind in {IN, NOT_IN} else kind), text

    def _take(self) -> tuple[str, str]:
        found = self._look()
        self._at += 1
        return found

    def parse(self) -> Iterable[Requirement]:
        kind, text = self._look()
        if kind == _END:
            return
        if kind not in {_IDENTIFIER, "!"}:
            raise _unexpected(text, "!, identifier, or 'end of string'")
        while True:
            try:
                yield self._requirement()
            except InvalidSelector as error:
                raise InvalidSelector(f"unable to parse requirement: {error}") from None
            kind, text = self._take()
            if kind == _END:
                return
            if kind != ",":
                raise _unexpected(text, "',' or 'end of string'")
            kind, text = self._look()
            if kind not in {_IDENTIFIER, "!"}:
                raise _unexpected(text, "identifier after ','")

    def _requirement(self) -> Requirement:
        kind, key = self._take()
        absent = kind == "!"
        if absent:
            kind, key = self._take()
        if kind != _IDENTIFIER:
            raise _unexpected(key, "identifier")
        for problem in _invalid("<nil>", key, label_key_errors(key)):
            raise InvalidSelector(problem)
        if absent:
            return Requirement.checked(key, NOT_EXISTS)
        if self._look()[0] in {_END, ","}:
            return Requirement.checked(key, EXISTS)
        operator = self._operator()
        values = self._values() if operator in {IN, NOT_IN} else self._value()
        return Requirement.checked(key, operator, sorted(values))

    def _operator(self) -> str:
        kind, text = self._tokens[self._at]
        self._at += 1
        if kind not in _AFTER_KEY:
            raise _unexpected(text, ", ".join(BINARY))
        return _AFTER_KEY[kind]

    def _value(self) -> set[str]:
        if self._look()[0] in {_END, ","}:
            return {""}
        kind, text = self._take()
        if kind != _IDENTIFIER:
            raise _unexpected(text, "identifier")
        return {text}

    def _values(self) -> set[str]:
        kind, text = self._take()
        if kind != "(":
            raise InvalidSelector(f"found '{text}' expected: '('")  # no comma, there as here
        kind, text = self._look()
        if kind == ")":
            values = {""}
        elif kind in {_IDENTIFIER, ","}:
            values = self._list()
        else:
            raise _unexpected(text, "',', ')' or identifier")
        self._take()  # the parenthesis that _list() stops at
        return values

    def _list(self) -> set[str]:
        values: set[str] = set()
        while True:
            kind, text = self._take()
            following, next_text = self._look() if kind != _END else (_END, "")
            if kind == _IDENTIFIER:
                values.add(text)
                if following not in {",", ")"}:
                    raise _unexpected(next_text, "',' or ')'")
            elif kind == ",":
                if not values or following in {")", ","}:
                    values.add("")
            else:
                raise _unexpected(text, "',', or identifier")
            if following == ")":
                return values


def _unexpected(found: str, expected: str) -> InvalidSelector:
    return InvalidSelector(f"found '{found}', expected: {expected}")
