"""Invariant tested: a configuration is right as a whole, or refused with a text that names the key,
its place, and the key that was probably meant."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from shmcache.engine.config import Configuration, environment_name, keys, load, misspelt
from shmcache.engine.config import value_types as kinds
from shmcache.engine.config.keys import ConfigurationError
from shmcache.engine.plans import Plan, PlanError

EVERYTHING = """
name = "prod"
kubeconfig = "/etc/kubeconfig"
context = "blue"
namespaces = ["a", "b"]
max_age = "2m"
requests_per_second = 5
log_format = "json"
log_level = "debug"

[memory]
arena_max = "1GiB"
ring_slots = 1024
seats = 4
mode = "0640"

[resources.pods]
labels = "app=web"
fields = "status.phase=Running"
transform = "json:loads"
max_bytes = "200MiB"
[resources.pods.indices]
node = "spec.nodeName"

[resources."deployments.apps"]
namespaces = ["c"]
metadata_only = true
keep_managed_fields = true
max_age = 300
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "shmcache.toml"
    path.write_text(EVERYTHING)
    return path


def of(text: str, tmp_path: Path) -> Configuration:
    path = tmp_path / "one.toml"
    path.write_text(text)
    return load(str(path), {}, {})


def test_a_file_can_configure_everything(file: Path) -> None:
    found = load(str(file), {}, {})

    assert ("prod", "/etc/kubeconfig", "blue") == (found.name, found.kubeconfig, found.context)
    assert (("a", "b"), 5) == (found.default_namespaces, found.requests_per_second)
    assert ("json", "debug") == (found.log_format, found.log_level)
    memory = found.memory
    assert (1 << 30, 1024, 4, 0o640) == (
        memory.arena_max,
        memory.ring_slots,
        memory.seats,
        memory.mode,
    )
    pods, deployments = found.plans
    assert ("pods", "app=web", "status.phase=Running") == (pods.name, pods.labels, pods.fields)
    assert ({"node": "spec.nodeName"}, 200 << 20, 120.0) == (
        pods.indices,
        pods.budget,
        pods.max_age,
    )
    assert (("c",), True, True, 300.0) == (
        deployments.namespaces,
        deployments.metadata_only,
        deployments.keep_managed_fields,
        deployments.max_age,
    )


def test_the_environment_goes_before_the_file_and_flags_before_both(file: Path) -> None:
    environment = {"SHMCACHE_NAME": "mine", "SHMCACHE_SEATS": "7", "SHMCACHE_CONTEXT": "green"}
    flags = {"name": "flagged", "memory": {"mode": "0600"}, "resources": {"nodes": {}}}

    found = load(str(file), flags, environment)

    assert ("flagged", "green", 7, 0o600) == (
        found.name,
        found.context,
        found.memory.seats,
        found.memory.mode,
    )
    assert ["pods", "deployments.apps", "nodes"] == [plan.name for plan in found.plans]


def test_a_flag_adds_to_a_resource_of_the_file(file: Path) -> None:
    found = load(str(file), {"resources": {"pods": {"labels": "app=api"}}}, {})

    assert ("app=api", "status.phase=Running") == (found.plans[0].labels, found.plans[0].fields)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("nmae = 'x'", r"unknown key 'nmae'; did you mean 'name'\?"),
        ("cache = 'x'", r"unknown key 'cache'; did you mean 'name'\?"),
        ("[memroy]\nseats = 1", r"unknown key 'memroy'; did you mean 'memory'\?"),
        ("[memory]\narena = 1", r"\[memory\]: unknown key 'arena'; did you mean 'arena_max'"),
        ("[resources.pods]\nlabel = 'a'", r"\[resources.pods\].*did you mean 'labels'"),
        ("[resources.pods]\nzzz = 'a'", "known keys are namespaces, labels, fields"),
        ("resources = 5", "resources must be a table"),
        ("resources.pods = 5", r"\[resources.pods\] must be a table"),
        (
            "[resources.pods]\nmax_bytes = 'much'",
            "must be a size such as .*64MiB.*, not 'much'",
        ),
        ("[resources.pods]\nmetadata_only = 'perhaps'", "true or false"),
        ("[resources.pods]\nmax_age = 5\n", "at least 90 s"),
        ("[resources.pods]\nnamespaces = ['a', 'a']", "repeated"),
        ("[resources.pods]\ntransform = 'f'", "module:function"),
        ("[resources.pods]\n[resources.pods.indices]\nnode = 5", "table of strings"),
        ("log_format = 'xml'", "log_format must be text or json, not 'xml'"),
        ("requests_per_second = 0\n[resources.pods]", "at least 1"),
        ("[memory]\nmode = '0666'\n[resources.pods]", "mode must be"),
        ("[memory]\nring_slots = 1000\n[resources.pods]", "power of two"),
        ("", "no resources to cache"),
        ("[resources.Pods_]", "'Pods_' is not a resource name"),
        ("[resources.pods]\n[resources.po]", "pods and po are the same resource"),
        ("[resources.'deployments.apps']\n[resources.deploy]", "are the same resource"),
        ("[resources.pods]\nnamespaces = ['Bad_NS']", "'Bad_NS' is not a namespace name"),
        ("[resources.pods]\nlabels = 'a=('", "pods: invalid label selector: unable to parse"),
        ("[resources.pods]\nfields = 'a..b=1'", 'pods: invalid field selector: "a..b"'),
        ("[resources.pods.indices]\nnode = 'a..b['", "index node: 'a..b\\[' is not a path"),
        ("listen = 'nowhere'\n[resources.pods]", "listen must be HOST:PORT"),
        ("replay = '/no/such/file'\n[resources.pods]", "recording /no/such/file does not exist"),
        ("record = '/no/such/file'\n[resources.pods]", "directory /no/such does not exist"),
        ("name = '/no/such/place'\n[resources.pods]", "mkdir -p /no/such"),
        ("name = 'my cache'\n[resources.pods]", "'my cache' is not the name of a cache"),
        ("name = ", "one.toml"),
        ("name = " + "[" * 100_000, "is not valid TOML: it is nested too deeply"),
        ("name = " + "{a=" * 3000 + "1" + "}" * 3000, "is not valid TOML: it is nested too deeply"),
        ("name = " + "9" * 5000, "is not valid TOML: "),
    ],
)
def test_invalid_settings_are_refused_with_a_suggestion(
    text: str, says: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigurationError, match=says):
        of(text, tmp_path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"gone\.toml cannot be read: No such file"):
        load(str(tmp_path / "gone.toml"), {}, {})


@pytest.mark.parametrize(
    "name", ["secrets", "secret", "Secrets", "secrets.v1", "secrets/v1", "secrets.v1."]
)
def test_secrets_need_leave_and_memory_of_our_own(name: str) -> None:
    resources: dict[str, Any] = {"resources": {name: {}}}
    with pytest.raises(ConfigurationError, match="allow_secrets"):
        load(None, resources, {})
    with pytest.raises(ConfigurationError, match="0600, not 0640"):
        load(None, resources | {"allow_secrets": True, "memory": {"mode": "0640"}}, {})
    assert load(None, resources | {"allow_secrets": True}, {}).plans[0].is_secret


@pytest.mark.parametrize(
    ("names", "keeps"),
    [(["pods"], True), (["pods", "secrets"], False), (["secrets", "pods"], False)],
)
def test_a_cache_with_any_secrets_is_not_kept(names: list[str], *, keeps: bool) -> None:
    """Secrets next to pods are secrets, too."""
    flags = {"allow_secrets": True, "resources": {name: {} for name in names}}

    assert keeps == load(None, flags, {}).keeps
    assert not load(None, flags | {"keep": False}, {}).keeps


@pytest.mark.parametrize("name", ["secrets.example.com", "sealedsecrets.bitnami.com", "pods"])
def test_others_are_no_secrets(name: str) -> None:
    assert not Plan(name=name).is_secret


def test_a_variable_like_a_setting_is_reported_and_those_of_kubernetes_are_not() -> None:
    environment = {
        "SHMCACHE_NAMESPACE": "a",
        "SHMCACHE_SEAT": "3",
        "SHMCACHE_PORT": "tcp://10.0.0.1:80",
        "SHMCACHE_SERVICE_HOST": "10.0.0.1",
        "SHMCACHE_PORT_80_TCP_ADDR": "10.0.0.1",
        "SHMCACHE_SEATS": "3",
        "SHMCACHE_METRICS": ":9090",
        "SHMCACHE_CONFIG": "x",
        "SHMCACHE_SOMETHING_ELSE": "x",
        "PATH": "/bin",
    }

    assert [
        ("SHMCACHE_NAMESPACE", "SHMCACHE_NAMESPACES"),
        ("SHMCACHE_SEAT", "SHMCACHE_SEATS"),
    ] == misspelt(environment)
    assert 3 == load(None, {"resources": {"pods": {}}}, environment).memory.seats


@pytest.mark.parametrize("where", ["file", "environment"])
def test_the_old_name_of_a_key_works_and_is_reported(
    where: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "one.toml"
    old = 'metrics = ":9090"\n' if where == "file" else ""
    path.write_text(f"{old}[resources.pods]")

    found = load(str(path), {}, {} if old else {"SHMCACHE_METRICS": ":9090"})

    assert ":9090" == found.listen
    assert 1 == len(caplog.messages)
    assert " is now " in caplog.messages[0]


def test_indices_of_flags_are_added_to_those_of_the_file(file: Path) -> None:
    flags = {"indices": {"pods": {"phase": "status.phase"}}}

    found = load(str(file), flags, {}).plans[0]

    assert {"node": "spec.nodeName", "phase": "status.phase"} == found.indices
    with pytest.raises(ConfigurationError, match="nodes is not cached by this command; add it"):
        load(str(file), {"indices": {"nodes": {"zone": "a"}}}, {})


def test_the_delays_of_reflectors_equal_the_defaults_of_their_settings(
    file: Path,
) -> None:
    from shmcache.reflector.backoff import BackoffSettings
    from shmcache.reflector.retrying import ReflectorSettings
    from shmcache.source.kube import LIST_SILENCE

    found = load(str(file), {}, {}).timing

    own = ReflectorSettings()
    assert (own.silence, own.end_bookmark_wait) == (found.silence, found.end_bookmark_wait)
    assert LIST_SILENCE == found.list_silence
    assert BackoffSettings() == found.backoff


def test_how_long_reflectors_wait_is_set_in_a_table_and_checked(tmp_path: Path) -> None:
    pods = "[resources.pods]\n"

    found = of(f'[reflector]\nsilence = "2m"\nbackoff_initial = 0.1\n{pods}', tmp_path).timing

    assert (120.0, 0.1) == (found.silence, found.backoff.initial)
    with pytest.raises(ConfigurationError, match="backoff_cap must not be less"):
        of(f"[reflector]\nbackoff_initial = 40\n{pods}", tmp_path)
    assert 0 == of(f'[reflector]\nproof_interval = "0s"\n{pods}', tmp_path).timing.proof_interval
    with pytest.raises(ConfigurationError, match="silence must be more than 0"):
        of(f"[reflector]\nsilence = 0\n{pods}", tmp_path)
    with pytest.raises(ConfigurationError, match=r"\[reflector\]: unknown key 'quiet'"):
        of(f"[reflector]\nquiet = 1\n{pods}", tmp_path)


def test_every_key_has_one_name_and_is_read_from_text() -> None:
    names = [key.name for key in (*keys.CACHE, *keys.MEMORY, *keys.REFLECTOR)]

    assert len(names) == len(set(names))
    assert environment_name("arena_max") == "SHMCACHE_ARENA_MAX"
    with pytest.raises(
        ConfigurationError,
        match="environment: SHMCACHE_SEATS must be a whole number, 0 or more, not 'few'",
    ):
        load(None, {"resources": {"pods": {}}}, {"SHMCACHE_SEATS": "few"})


@pytest.mark.parametrize(
    ("value", "expected"),
    [("90s", 90.0), ("2m", 120.0), ("1.5h", 5400.0), ("250ms", 0.25), (5, 5.0), ("7", 7.0)],
)
def test_seconds_have_units(value: object, expected: float) -> None:
    assert expected == kinds.seconds(value)


@pytest.mark.parametrize("value", ["soon", -1, True, "5 parsecs", None])
def test_invalid_duration_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="must be a duration"):
        kinds.seconds(value)


def test_a_transform_is_imported_where_it_is_named() -> None:
    import json

    loaded: object = Plan(name="pods", transform="json:loads").load_transform()
    assert json.loads == loaded
    assert Plan(name="pods").load_transform() is None
    with pytest.raises(PlanError, match="pods: transform json:lodas cannot be imported"):
        Plan(name="pods", transform="json:lodas").load_transform()
    with pytest.raises(PlanError, match="is not a function"):
        Plan(name="pods", transform="json:__name__").load_transform()


ROOT = Path(__file__).resolve().parents[3]


def test_the_documentation_has_every_key_and_no_other() -> None:
    text = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if line.startswith("| `")]

    assert rows == [
        f"| `{key.name}` | {key.shown} | {key.default or '–'} | {key.meaning} |"
        for section in (keys.CACHE, keys.MEMORY, keys.REFLECTOR, keys.RESOURCE)
        for key in section
    ]


def test_the_example_of_the_documentation_is_a_configuration(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    example = text.split("```toml\n")[1].split("```")[0]

    found = of(example, tmp_path)

    assert ["pods", "deployments.apps", "nodes"] == [plan.name for plan in found.plans]
    assert ("shop", "billing") == found.default_namespaces
