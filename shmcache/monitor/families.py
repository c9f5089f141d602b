"""Metric families and their text: the format of Prometheus, 0.0.4."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    Labels = dict[str, str]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Family:
    """One metric: its name, what it is, and its samples."""

    __slots__ = ("help", "kind", "name", "samples")

    def __init__(self, name: str, kind: str, text: str) -> None:
        self.name = name
        self.kind = kind
        """counter, gauge, summary or histogram."""
        self.help = text
        self.samples: list[tuple[str, Labels, float]] = []
        """The suffix of the name, such as _sum; labels; value."""

    def add(self, value: float | None, **labels: str) -> None:
        """A sample; none where there is no value."""
        if value is not None:
            self.samples.append(("", labels, value))

    def add_part(self, suffix: str, value: float, **labels: str) -> None:
        """A part of a summary or histogram: its sum, its count, a bucket."""
        self.samples.append((suffix, labels, value))

    def lines(self) -> Iterator[str]:
        """In the text format; nothing at all without samples."""
        if not self.samples:
            return
        yield f"# HELP {self.name} {escaped(self.help)}\n# TYPE {self.name} {self.kind}\n"
        for suffix, labels, value in self.samples:
            inner = ",".join(f'{key}="{escaped(text, quote=True)}"' for key, text in labels.items())
            yield f"{self.name}{suffix}{'{' + inner + '}' if inner else ''} {_number(value)}\n"


def escaped(text: str, *, quote: bool = False) -> str:
    """A text of a comment, or with `quote` of a label."""
    text = text.replace("\\", "\\\\").replace("\n", "\\n")
    return text.replace('"', '\\"') if quote else text


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else repr(float(value))


class Families(dict[str, Family]):
    """The metrics of one look, in the order in which they were begun."""

    def counter(self, name: str, text: str) -> Family:
        """The counter of this name."""
        return self.setdefault(name, Family(name, "counter", text))

    def gauge(self, name: str, text: str) -> Family:
        """The gauge of this name."""
        return self.setdefault(name, Family(name, "gauge", text))

    def histogram(self, name: str, text: str) -> Family:
        """The histogram of this name."""
        return self.setdefault(name, Family(name, "histogram", text))


def render(families: Families) -> str:
    """In the text format of Prometheus."""
    return "".join(line for family in families.values() for line in family.lines())
