"""Invariant tested: the command line starts quickly, options are complete words, spellings of the
last release still work, and flags mean what the same keys of a file mean."""

from __future__ import annotations

import argparse
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import shmcache
from shmcache.__main__ import COMMANDS, EXIT_CODES, main
from shmcache.cli.arguments import Parser
from shmcache.cli.commands import run
from shmcache.cli.commands.serve import _listen

HELP = """
import sys
if sys.version_info >= (3, 14):
    import _colorize  # argparse does so for any help, and this brings dataclasses and inspect
given = set(sys.modules)
from shmcache.__main__ import main
try:
    status = main(sys.argv[1:])
except SystemExit as end:
    status = end.code
heavy = {"orjson", "urllib3", "kubernetes", "tomllib", "logging", "asyncio", "dataclasses"}
heavy |= {"inspect", "typing", "shutil"}
if sys.argv[1:] in (["--help"], ["version"]):
    heavy |= {"shmcache._hot", "shmcache._core"}
print(status, sorted(heavy & (set(sys.modules) - given)))
"""
WITH_MODULES = [name for name in COMMANDS if name != "help"]
ROOT = Path(__file__).resolve().parents[3]


def parser_of(name: str) -> Parser:
    module = importlib.import_module(f"shmcache.cli.commands.{name}")
    parser = Parser(name, module.HELP)
    module.add_arguments(parser)
    return parser


def parsed(*arguments: str, command: str = "run") -> argparse.Namespace:
    return parser_of(command).parse_args(arguments)


def imports_nothing_heavy(*words: str) -> str:
    """The output of a command that does not."""
    command = [sys.executable, "-c", HELP, *words]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "0 []" == output.splitlines()[-1]
    return output


def test_help_lists_the_commands_and_imports_nothing_heavy() -> None:
    output = imports_nothing_heavy("--help")

    assert all(f"\n  {name} " in output for name in COMMANDS)


@pytest.mark.parametrize(
    "words", ["get --help", "watch --help", "completion bash", "completion --line get p"]
)
def test_a_short_command_imports_nothing_heavy(words: str) -> None:
    imports_nothing_heavy(*words.split())


@pytest.mark.parametrize("words", ["get pods -A", "get po -o wide", "get pods -o name -l a=b"])
def test_get_imports_nothing_heavy(writer: shmcache.Writer, words: str) -> None:
    writer.put("pods", "default/a", {"metadata": {"name": "a", "namespace": "default"}})

    imports_nothing_heavy(*words.split(), "--cache", writer.name)


@pytest.mark.parametrize("name", WITH_MODULES)
def test_help_of_a_command_describes_each_option(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    parser = parser_of(name)
    with pytest.raises(SystemExit) as end:
        parser.parse_args(["--help"])

    output = capsys.readouterr().out
    assert 0 == end.value.code
    assert output.startswith(f"usage: shmcache {name} ")
    assert max(map(len, output.splitlines())) <= 100
    for action in parser._actions:
        assert action.help, f"{name}: {action.dest} has no help"


NEEDED = {
    "get": ["x"],
    "watch": ["x"],
    "blame": ["x"],
    "diff": ["--since", "1"],
    "replay": ["x"],
}
"""Arguments without which a command complains of these first."""


@pytest.mark.parametrize("name", WITH_MODULES)
def test_an_option_cannot_be_abbreviated(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Else a misspelt option could mean another one: --names, --namespaces."""
    parser = parser_of(name)
    known = set(parser.options())
    for option in sorted(known):
        short = option[:-1]
        if not option.startswith("--") or short in known or short in parser._option_string_actions:
            continue
        with pytest.raises(SystemExit) as end:
            parser.parse_args([*NEEDED.get(name, []), short])
        error = capsys.readouterr().err
        assert 2 == end.value.code
        assert f"unknown option {short}; did you mean --" in error


OLD = [
    ("run", ["--name", "x"], {"cache": "x"}),
    ("run", ["--namespaces", "a,b"], {"namespace": "a,b"}),
    ("run", ["--labels", "a=b"], {"selector": "a=b"}),
    ("run", ["--fields", "a=b"], {"field_selector": "a=b"}),
    ("run", ["--metrics", ":9090"], {"listen": ":9090"}),
    ("get", ["pods", "--name", "x"], {"cache": "x"}),
    ("top", ["--name", "x"], {"cache": "x"}),
    ("metrics", ["--serve", ":9090"], {"listen": ":9090"}),
    ("gc", ["-n"], {"dry_run": True}),
    ("gc", ["--older", "2m"], {"older_than": 120.0}),
    ("serve", ["--name", "x"], {"cache": "x"}),
    ("serve", ["--address", "[::1]:1"], {"listen": "[::1]:1"}),
    ("serve", ["--unix-socket", "/a"], {"listen": "unix:/a"}),
    ("serve", ["--fresh-seconds", "1"], {"fresh_timeout": 1.0}),
    ("serve", ["--drain-seconds", "1"], {"drain_timeout": 1.0}),
    ("serve", ["--attach-seconds", "1"], {"attach_timeout": 1.0}),
]


@pytest.mark.parametrize(("command", "words", "meaning"), OLD)
def test_a_spelling_of_the_last_release_works_and_warns_once(
    command: str, words: list[str], meaning: dict[str, object], capsys: pytest.CaptureFixture[str]
) -> None:
    found = vars(parser_of(command).parse_intermixed_args(words))

    warning = capsys.readouterr().err
    assert meaning == {name: found[name] for name in meaning}
    assert 1 == warning.count("\n")
    assert "the old spelling will be removed in the next release" in warning


def test_flags_mean_the_same_as_the_keys_of_a_file() -> None:
    options = parsed(
        *("pods", "deployments.apps", "-n", "a,b", "-l", "app=web", "--metadata-only"),
        *("--index", "pods:node=spec.nodeName", "--index", "pods:zone=metadata.labels"),
        *("--arena-max", "1GiB", "--allow-secrets", "--server", "http://x", "--replay", "f"),
    )

    shared = {"labels": "app=web", "metadata_only": True}
    assert {
        "namespaces": "a,b",
        "allow_secrets": True,
        "server": ["http://x"],
        "replay": "f",
        "memory": {"arena_max": "1GiB"},
        "resources": {"pods": shared, "deployments.apps": shared},
        "indices": {"pods": {"node": "spec.nodeName", "zone": "metadata.labels"}},
    } == run.flags_of(options)


@pytest.mark.parametrize(
    ("contexts", "expected"),
    [(["a"], {"context": "a"}), (["a", "b"], {"contexts": ["a", "b"]})],
)
def test_one_context_is_that_of_the_process_and_several_have_one_each(
    contexts: list[str], expected: dict[str, object]
) -> None:
    flags = run.flags_of(parsed(*[f"--context={each}" for each in contexts]))

    assert {"memory": {}, "resources": {}, "indices": {}, **expected} == flags


def test_a_command_line_without_flags_sets_nothing() -> None:
    assert {"memory": {}, "resources": {}, "indices": {}} == run.flags_of(parsed())


@pytest.mark.parametrize("text", ["node", "pods:node", "pods:=x", ":node=x", "pods:node="])
def test_a_malformed_index_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="RESOURCE:NAME=PATH"):
        run.flags_of(parsed("--index", text))


def test_every_exit_status_of_the_package_is_documented() -> None:
    from shmcache.cli.output import finding
    from shmcache.engine import service
    from shmcache.serve import process

    used = {
        value
        for module in (finding, service, process)
        for name, value in vars(module).items()
        if name.isupper() and isinstance(value, int) and value in range(65, 79)
    }
    documented = {
        int(line.split()[0]) for line in EXIT_CODES.splitlines()[2:] if line[4:5].isdigit()
    }
    page = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")

    assert used <= documented
    assert all(f"| {status} |" in page for status in documented - {130})


def test_a_command_without_arguments_or_an_unknown_one_is_a_usage_error(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert 2 == main([])
    assert 2 == main(["gett"])
    assert "unknown command gett; did you mean get?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("127.0.0.1:8001", ("127.0.0.1", 8001, None)),
        (":8001", ("0.0.0.0", 8001, None)),  # noqa: S104
        ("[::1]:0", ("::1", 0, None)),
        ("localhost:65535", ("localhost", 65535, None)),
        ("unix:/run/cache", ("127.0.0.1", 0, "/run/cache")),
    ],
)
def test_an_address_to_listen_on_is_read(text: str, expected: tuple[str, int, str | None]) -> None:
    assert expected == _listen(text)


@pytest.mark.parametrize(
    "text",
    ["8001", "", "localhost", "localhost:", ":http", ":65536", ":-1", ":٣", "[::1:0", "::1]:0"],
)
def test_an_address_that_cannot_be_listened_on_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"must be HOST:PORT, :PORT or unix:PATH"):
        _listen(text)


@pytest.mark.parametrize("form", ["", "wide", "yaml", "json", "name", "jsonpath={.items[*].status}",
                                  "custom-columns=A:.metadata.name"])  # fmt: skip
def test_objects_of_another_shape_are_shown_in_every_form(
    form: str, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with shmcache.Writer(name, ["pods"]) as writer:
        odd: list[object] = ["text", None, 5, [], {"name": 5, "labels": "text"}]
        for number, metadata in enumerate(odd):
            writer.put("pods", f"n/o{number}", {"metadata": metadata, "status": metadata})
        writer.put("pods", "n/none", {})
        forms = ["-o", form] if form else ["--show-labels", "-L", "app"]
        assert main(["get", "pods", "-A", *forms, "--cache", name]) == 0
        assert capsys.readouterr().out


@pytest.mark.parametrize(
    ("caches", "chosen"),
    [([], "shmcache"), (["a"], "a"), (["a", "shmcache"], "shmcache"), (["a", "b"], None)],
)
def test_without_a_name_the_only_cache_is_taken_or_the_default(
    caches: list[str], chosen: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    from shmcache.cli.output import finding

    monkeypatch.delenv("SHMCACHE_NAME", raising=False)
    monkeypatch.setattr(finding, "cache_names", lambda: caches)
    if chosen is None:
        with pytest.raises(finding.Trouble, match="several caches: a, b; choose one with --cache"):
            finding.name_of(None)
    else:
        assert finding.name_of(None) == chosen
