"""Invariant tested (REASON1): failures of the system stand in messages as words for people."""

from __future__ import annotations

import ast
import errno
import logging
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from shmcache.cli.output import finding
from shmcache.cli.output.gotext import Tabs
from shmcache.cli.output.grid import Grid
from shmcache.engine.logs import Readable
from shmcache.reasons import printable, reason_at, reason_of, unheard
from shmcache.serve.http import listeners

PACKAGE = Path(__file__).resolve().parents[3] / "shmcache"
SYSTEM = {"OSError", "SSLError", "PermissionError", "FileNotFoundError", "ConnectionError"}
PRINTING = {"str", "repr", "print", "format", "debug", "info", "warning", "error"}


def names_in(node: ast.AST | None) -> set[str]:
    found = list(ast.walk(node)) if node is not None else []
    names = {each.id for each in found if isinstance(each, ast.Name)}
    return names | {each.attr for each in found if isinstance(each, ast.Attribute)}


def caught(tree: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """The name of each failure of the system, and the code that has it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ExceptHandler) and node.name and names_in(node.type) & SYSTEM:
            yield node.name, node
        if isinstance(node, ast.FunctionDef):
            for each in node.args.args:
                if names_in(each.annotation) & SYSTEM:
                    yield each.arg, node


def printed(name: str, code: ast.AST) -> Iterator[int]:
    """The lines that print the failure as Python does."""
    for node in ast.walk(code):
        if isinstance(node, ast.FormattedValue) and ast.unparse(node.value) == name:
            yield node.lineno
        if isinstance(node, ast.Call):
            called = node.func
            plain = getattr(called, "attr", None) or getattr(called, "id", "")
            given = [each.id for each in node.args if isinstance(each, ast.Name)]
            if plain in PRINTING and name in given:
                yield node.lineno


def offences(tree: ast.AST) -> set[int]:
    return {line for name, code in caught(tree) for line in printed(name, code)}


def test_no_failure_of_the_system_is_printed_as_python_does() -> None:
    found = [
        f"{path.relative_to(PACKAGE)}:{line}"
        for path in sorted(PACKAGE.rglob("*.py"))
        if path.name != "reasons.py"
        for line in offences(ast.parse(path.read_text()))
    ]

    assert [] == found, "use reason_of() or reason_at() of shmcache/reasons.py"


@pytest.mark.parametrize(
    "code",
    [
        "try: f()\nexcept OSError as error: raise ValueError(f'bad: {error}')",
        "try: f()\nexcept (ssl.SSLError, ValueError) as error: log.warning('%s', error)",
        "def explain(error: OSError) -> str: return str(error)",
    ],
)
def test_the_search_finds_what_it_is_for(code: str) -> None:
    assert offences(ast.parse(code))


def raised(work: Callable[[], object]) -> OSError:
    with pytest.raises(OSError) as found:
        work()
    return found.value


def test_tls_files_are_explained(tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("not a certificate")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)

    loading = raised(lambda: context.load_cert_chain(text, text))
    trusting = raised(lambda: context.load_verify_locations(text))
    missing = raised(lambda: context.load_cert_chain(tmp_path / "none", text))

    assert "not a certificate and its key in PEM form" == reason_of(loading)
    assert "no certificate in PEM form" == reason_of(trusting)
    assert "No such file or directory" == reason_of(missing)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[X509: KEY_VALUES_MISMATCH] key values mismatch (_ssl.c:3926)", "do not belong together"),
        ("[SSL: WRONG_VERSION_NUMBER] wrong version number (_ssl.c:1006)", "does not speak TLS"),
        ("[SSL: UNEXPECTED_EOF_WHILE_READING] EOF occurred (_ssl.c:1006)", "closed the connection"),
        (
            "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: expired (_ssl.c:1006)",
            "certificate verify failed: expired",
        ),
    ],
)
def test_openssl_words_lose_their_frame(text: str, words: str) -> None:
    found = reason_of(ssl.SSLError(1, text))

    assert words in found
    assert "_ssl" not in found
    assert "[" not in found


def test_addresses_are_explained(tmp_path: Path) -> None:
    with ExitStack() as stack, socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        taken = raised(lambda: listeners.tcp("127.0.0.1", port, stack))
        foreign = raised(lambda: listeners.tcp("192.0.2.1", 0, stack))
        regular = tmp_path / "file"
        regular.touch()
        kept = raised(lambda: listeners.unix(str(regular), None, stack))
        long = raised(lambda: listeners.unix("x" * 200, None, stack))

    assert unheard(f"127.0.0.1:{port}", taken).endswith("another process listens there; choose "
                                                        "another one")  # fmt: skip
    assert "--listen 192.0.2.1:0: Cannot assign requested address" == unheard(
        "192.0.2.1:0", foreign
    )
    assert "this file exists and is not a socket" == reason_of(kept)
    assert f"{regular}: this file exists and is not a socket" == reason_at(kept)
    assert "a socket's path has at most 107 bytes" == reason_of(long)


@pytest.mark.parametrize(
    ("address", "cure"),
    [(":443", "choose a port above 1023"), ("unix:/var/s", "choose another place")],
)
def test_a_forbidden_address_names_a_cure(address: str, cure: str) -> None:
    error = PermissionError(errno.EACCES, "Permission denied")

    assert f"--listen {address}: permission denied; {cure}" == unheard(address, error)


def test_other_failures_keep_their_own_words() -> None:
    assert "two lines" == reason_of(ValueError("two lines"))
    assert "TimeoutError" == reason_of(TimeoutError())
    assert "KeyError" == reason_of(KeyError())


ODD = "an\ttext\x1b]0;title\x07\x1b[2J \x9b31m\x7f\r\n\u00fc \u2713"
PLAIN = "an\ttext^[]0;title\\x07^[[2J \\x9b31m\\x7f\\r\n\u00fc \u2713"


def test_texts_of_others_reach_a_terminal_without_control_characters(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """REASON2: an Event's message, say, or the Status of a server."""
    line = ODD.replace("\n", "").replace("\t", "")
    plain = PLAIN.replace("\n", "").replace("\t", "")
    record = logging.LogRecord("shmcache", logging.WARNING, "", 0, "%s", (ODD,), None)
    finding.warn(ODD)

    assert printable(ODD) == PLAIN
    assert PLAIN in capsys.readouterr().err
    assert PLAIN in Readable().format(record)
    assert plain in Grid().lines([["NAME", "MESSAGE"], ["a", line]])
    assert plain in Tabs().lines([["NAME", "MESSAGE"], ["a", line]])
