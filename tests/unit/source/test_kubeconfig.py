"""Invariant tested: a kubeconfig comes down to the same server, identity and trust as with the
official client, without its package; and an invalid one is refused in words that name the place.
"""

from __future__ import annotations

import base64
import builtins
import itertools
import json
import os
import ssl
import stat
import subprocess
import sys
import tempfile
import textwrap
import traceback
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest
import trustme
import yaml

from shmcache.errors import SourceError
from shmcache.source import incluster
from shmcache.source.access import ServerAccess, direct, tls_context
from shmcache.source.credentials import GROUP, Credentials
from shmcache.source.kubeconfig import from_kubeconfig

VERSION = "client.authentication.k8s.io/v1"
Config = dict[str, Any]


def credential(status: Config, version: str = VERSION) -> str:
    return json.dumps({"apiVersion": version, "kind": "ExecCredential", "status": status})


TOKEN = credential({"token": "t"})


def plugin(output: str, **more: Any) -> Config:
    """A user whose plugin prints this."""
    return {"exec": {"apiVersion": VERSION, "command": "echo", "args": [output], **more}}


def config_of(
    user: Config | None = None, cluster: Config | None = None, context: Config | None = None
) -> Config:
    where = {"cluster": "c", **({} if user is None else {"user": "u"}), **(context or {})}
    return {
        "current-context": "here",
        "clusters": [
            {"name": "c", "cluster": {"server": "https://10.0.0.1:6443", **(cluster or {})}}
        ],
        "users": [] if user is None else [{"name": "u", "user": user}],
        "contexts": [{"name": "here", "context": where}],
    }


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def leaf(authority: trustme.CA) -> trustme.LeafCert:
    return authority.issue_cert("10.0.0.1", common_name="me")


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., str]:
    def writing(config: Config | str, name: str = "config") -> str:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(config if isinstance(config, str) else yaml.safe_dump(config))
        return str(path)

    return writing


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


# ---- as the official client ----------------------------------------------------------------------


def jwt(**claims: Any) -> str:
    parts = [base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=")
             for part in ({"alg": "none"}, claims)]  # fmt: skip
    return ".".join((*parts, "c2ln"))


USERS: dict[str, Config | None] = {
    "nobody": None,
    "empty": {},
    "token": {"token": "abc"},
    "token file": {"tokenFile": "token"},
    "password": {"username": "jane", "password": "pass:word"},
    "plugin": plugin(TOKEN),
    "token before plugin": {"token": "abc", **plugin(TOKEN)},
    "plugin before password": {**plugin(TOKEN), "username": "a", "password": "b"},
    "certificate files": {"client-certificate": "me.pem", "client-key": "me.key"},
    "plugin with expiry": plugin(
        credential({"token": "t2", "expirationTimestamp": "2031-02-03T04:05:06.123456789Z"})
    ),
    "oidc": {
        "auth-provider": {
            "name": "oidc",
            "config": {"id-token": jwt(exp=4_000_000_000, sub="jane")},
        }
    },
}
CLUSTERS: dict[str, Config] = {
    "plain": {},
    "http": {"server": "http://10.0.0.1:8080/"},
    "path": {"server": "https://10.0.0.1/k8s/clusters/c-1/"},
    "authority": {"certificate-authority": "ca.pem"},
    "insecure": {"insecure-skip-tls-verify": True},
    "secure in words": {"insecure-skip-tls-verify": False},
    "name and proxy": {"tls-server-name": "api.example.com", "proxy-url": "http://p:3128"},
}


def official(path: str, folder: Path) -> Any:
    """The configuration that the kubernetes package makes of a file."""
    from kubernetes.client import Configuration
    from kubernetes.config.kube_config import KubeConfigLoader, KubeConfigMerger

    loader = KubeConfigLoader(
        KubeConfigMerger(path).config, config_base_path=None, temp_file_path=str(folder)
    )
    target = Configuration()
    loader.load_and_set(target)
    target.expiry = getattr(loader, "expiry", None)
    return target


def content(path: str | None) -> bytes:
    return Path(path).read_bytes() if path else b""


@pytest.mark.parametrize("cluster", CLUSTERS)
@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize("form", ["files", "data"])
def test_it_reads_as_the_official_client_does(
    *,
    user: str,
    cluster: str,
    form: str,
    tmp_path: Path,
    write: Callable[..., str],
    authority: trustme.CA,
    leaf: trustme.LeafCert,
) -> None:
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    leaf.cert_chain_pems[0].write_to_path(str(tmp_path / "me.pem"))
    leaf.private_key_pem.write_to_path(str(tmp_path / "me.key"))
    (tmp_path / "token").write_text("from-a-file")
    config = config_of(USERS[user], CLUSTERS[cluster])
    if form == "data":
        for part, key in itertools.product(
            (config["clusters"][0]["cluster"], *(u["user"] for u in config["users"])),
            ("certificate-authority", "client-certificate", "client-key"),
        ):
            if key in part:
                text = (tmp_path / part.pop(key)).read_bytes()
                part[f"{key}-data"] = base64.b64encode(text).decode()
    path = write(config)

    ours, theirs = from_kubeconfig(path), official(path, tmp_path)

    assert theirs.host == ours.url
    header = dict(ours.headers()).get("Authorization")
    assert next(iter(theirs.api_key.values()), None) == header
    assert (theirs.expiry and theirs.expiry.timestamp()) == pytest.approx(ours.expires)
    assert theirs.tls_server_name == ours.server_name
    assert theirs.proxy == ours.proxy
    assert (ours.tls is not None) == theirs.host.startswith("https")
    if ours.tls is not None:
        assert theirs.verify_ssl == (ours.tls.verify_mode is ssl.CERT_REQUIRED)
        files = (theirs.ssl_ca_cert, theirs.cert_file, theirs.key_file)
        material = bytes([not theirs.verify_ssl]), *map(content, files)
        assert b"\0".join(material) == ours.tls_material


def test_in_a_pod_it_reads_as_the_official_client_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, authority: trustme.CA
) -> None:
    from kubernetes.client import Configuration
    from kubernetes.config.incluster_config import InClusterConfigLoader

    authority.cert_pem.write_to_path(str(tmp_path / "ca.crt"))
    (tmp_path / "token").write_text("tk")
    (tmp_path / "namespace").write_text("shop\n")
    monkeypatch.setattr(incluster, "FOLDER", str(tmp_path))
    for host in ("10.0.0.1", "fd00::1"):
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
        ours, theirs = incluster.in_cluster(), Configuration()
        InClusterConfigLoader(str(tmp_path / "token"), str(tmp_path / "ca.crt")).load_and_set(
            theirs
        )
        assert (theirs.host, "shop") == (ours.url, ours.namespace)
        assert [("Authorization", "Bearer tk")] == ours.headers()

    (tmp_path / "token").write_text("")
    with pytest.raises(SourceError, match=r"in-cluster.*token.*empty"):
        incluster.in_cluster()
    (tmp_path / "token").write_text("tk")
    (tmp_path / "namespace").write_bytes(b"\xff")
    with pytest.raises(SourceError, match=r"in-cluster.*namespace is not text"):
        incluster.in_cluster()
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "[")
    with pytest.raises(SourceError, match=r"in-cluster.*are not an address: '\['"):
        incluster.in_cluster()
    monkeypatch.delenv("KUBERNETES_SERVICE_PORT")
    with pytest.raises(SourceError, match="not a pod"):
        incluster.in_cluster()


# ---- as kubectl, where the official client differs -----------------------------------------------


def test_the_first_file_that_defines_a_name_decides_it(write: Callable[..., str]) -> None:
    """Whole entries, not single keys; files that are missing are left out."""
    first = config_of({"token": "one"})
    second = config_of({"token": "two", "as": "jane"}, {"server": "https://other"})
    second["current-context"] = "there"
    second["contexts"].append({"name": "there", "context": {"cluster": "d", "namespace": "shop"}})
    second["clusters"].append({"name": "d", "cluster": {"server": "https://d"}})
    paths = ":".join((write(first, "first"), "/nowhere/config", write(second, "second")))

    ours = from_kubeconfig(paths)
    there = from_kubeconfig(paths, "there")

    assert [("Authorization", "Bearer one")] == ours.headers()
    assert "https://10.0.0.1:6443" == ours.url
    assert ("https://d", "shop", []) == (there.url, there.namespace, there.headers())


def test_paths_are_relative_to_the_file_that_has_them(
    write: Callable[..., str], tmp_path: Path, leaf: trustme.LeafCert
) -> None:
    """The official client looks for a user's files next to those of its cluster."""
    near = config_of({})
    near["users"] = []
    far = config_of({"client-certificate": "me.pem", "client-key": "keys/me.key"})
    paths = ":".join((write(near, "near/config"), write(far, "far/config")))
    (tmp_path / "far/keys").mkdir()
    leaf.cert_chain_pems[0].write_to_path(str(tmp_path / "far/me.pem"))
    leaf.private_key_pem.write_to_path(str(tmp_path / "far/keys/me.key"))

    assert leaf.private_key_pem.bytes() in from_kubeconfig(paths).tls_material


def test_a_plugin_without_a_token_adds_its_certificate(
    write: Callable[..., str], leaf: trustme.LeafCert
) -> None:
    cert, key = leaf.cert_chain_pems[0].bytes(), leaf.private_key_pem.bytes()
    output = credential({"clientCertificateData": cert.decode(), "clientKeyData": key.decode()})

    ours = from_kubeconfig(write(config_of(plugin(output))))

    assert ours.tls_material.endswith(b"\0".join((b"", cert, key)))
    assert [] == ours.headers()


def test_a_plugin_receives_the_cluster_if_it_wants_to(
    write: Callable[..., str], tmp_path: Path, authority: trustme.CA
) -> None:
    """client-go: the authority as data, also from a file, and the extension of this plugin."""
    script = tmp_path / "plugin"
    script.write_text(
        f"#!/bin/sh\nprintf %s \"$KUBERNETES_EXEC_INFO\" > {tmp_path}/info\necho '{TOKEN}'\n"
    )
    script.chmod(0o755)
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    extensions = [
        {"name": "other", "extension": 1},
        {"name": "client.authentication.k8s.io/exec", "extension": {"audience": "x"}},
    ]
    user = {"exec": {"apiVersion": VERSION, "command": "./plugin", "provideClusterInfo": True}}
    cluster = {"certificate-authority": "ca.pem", "extensions": extensions}

    from_kubeconfig(write(config_of(user, cluster)))

    info = json.loads((tmp_path / "info").read_text())
    assert info == {
        "apiVersion": VERSION,
        "kind": "ExecCredential",
        "spec": {
            "interactive": False,
            "cluster": {
                "server": "https://10.0.0.1:6443",
                "certificate-authority-data": base64.b64encode(authority.cert_pem.bytes()).decode(),
                "config": {"audience": "x"},
            },
        },
    }


def test_compression_may_be_forbidden(write: Callable[..., str]) -> None:
    found = [
        from_kubeconfig(write(config_of({}, {"disable-compression": off}))).gzip_pays
        for off in (True, False)
    ]
    assert [False, True] == found


# ---- refusals ------------------------------------------------------------------------------------


def without(config: Config, **changes: Any) -> Config:
    return {**config, **changes}


INVALID: dict[str, tuple[Config | str, str]] = {
    "empty": ("", "is empty"),
    "a list": ("[1]", "this is not a kubeconfig"),
    "deep": ("[" * 100_000, "config: not valid YAML: it is nested too deeply"),
    "deep and whole": ("a: " + "[" * 3000 + "]" * 3000, "not valid YAML: it is nested too deeply"),
    "a number of 5,000 digits": ("a: " + "9" * 5000, "config: not valid YAML: "),
    "a time that does not exist": ("a: 2026-13-45", "config: not valid YAML: "),
    "a tag that does not fit": ('a: !!int ""', "config: not valid YAML: "),
    "broken": ("{", r"config: not valid YAML \(line 1\): expected|not valid YAML"),
    "number as token": (config_of({"token": 12}), "user u: token must be a string"),
    "text as groups": (
        config_of({"as": "root", "as-groups": "admin"}),
        "user u: as-groups must be a list of strings",
    ),
    "number among groups": (
        config_of({"as": "root", "as-groups": ["admin", 7]}),
        "user u: as-groups must be a list of strings",
    ),
    "text as extra": (
        config_of({"as": "root", "as-user-extra": {"scopes": "view"}}),
        "user u: as-user-extra: scopes must be a list of strings",
    ),
    "text as environment": (
        config_of({"exec": {"apiVersion": f"{GROUP}v1", "command": "true", "env": ["A=1"]}}),
        "user u: exec: env must be a list of tables",
    ),
    "text as extension": (
        config_of({"exec": {"apiVersion": f"{GROUP}v1", "command": "true"}}, {"extensions": ["a"]}),
        "cluster c: extensions must be a list of tables",
    ),
    "text as flag": (
        config_of({}, {"insecure-skip-tls-verify": "yes"}),
        "cluster c: insecure-skip-tls-verify must be true or false",
    ),
    "no server": (config_of({}, {"server": ""}), "cluster c: server must be"),
    "bad brackets": (config_of({}, {"server": "https://["}), "cluster c: server must be"),
    "bad port": (config_of({}, {"server": "https://a:x"}), "cluster c: server must be"),
    "bad scheme": (config_of({}, {"server": "10.0.0.1:6443"}), "cluster c: server must be"),
    "user missing": (
        config_of(context={"user": "gone"}),
        "no user 'gone'; the file has no such entries",
    ),
    "cluster missing": (config_of({}, context={"cluster": None}), "no cluster ''; the file has c"),
    "context missing": (
        without(config_of({}), **{"current-context": "gone"}),
        "no context 'gone'; the file has here",
    ),
    "no context": (without(config_of({}), **{"current-context": ""}), "no current-context"),
    "twice": (
        without(config_of({}), users=[{"name": "u", "user": {}}, {"name": "u", "user": {}}]),
        "two users are named 'u'",
    ),
    "nameless": (without(config_of({}), users=[{"user": {}}]), "an entry of users has no name"),
    "not base64": (
        config_of({"client-certificate-data": "*"}),
        "user u: client-certificate-data is not base64",
    ),
    "not PEM": (
        config_of({}, {"certificate-authority-data": base64.b64encode(b"x").decode()}),
        "TLS of cluster c, user u",
    ),
    "no file": (
        config_of({}, {"certificate-authority": "/nowhere/ca"}),
        "certificate-authority: /nowhere/ca: No such file",
    ),
    "plugin missing": (
        config_of(plugin("", command="shmcache-nowhere", installHint="brew install it")),
        "(?s)shmcache-nowhere: No such file.*brew install it",
    ),
    "plugin of old": (
        config_of(plugin("", apiVersion="v1")),
        "exec: apiVersion must be client.authentication.k8s.io/v1",
    ),
    "plugin without command": (config_of(plugin("", command="")), "exec: command is missing"),
    "plugin fails": (
        config_of(plugin("", command="sh", args=["-c", "echo no luck >&2; exit 3"])),
        "sh ended with status 3: no luck",
    ),
    "plugin babbles": (config_of(plugin("hello")), "not an ExecCredential"),
    "plugin of another version": (
        config_of(plugin(credential({"token": "t"}, "client.authentication.k8s.io/v1beta1"))),
        "expected an ExecCredential of client.authentication.k8s.io/v1, not",
    ),
    "plugin brings nothing": (config_of(plugin(credential({}))), "neither a token nor"),
    "plugin brings half": (
        config_of(plugin(credential({"clientKeyData": "k"}))),
        "must come together",
    ),
    "plugin asks": (
        config_of(plugin(TOKEN, interactiveMode="Always")),
        "echo needs a terminal",
    ),
    "plugin brings a number": (
        config_of(plugin(credential({"token": 1}))),
        "token must be a string",
    ),
    "plugin brings a list": (
        config_of(plugin(credential({"clientCertificateData": ["c"], "clientKeyData": "k"}))),
        "clientCertificateData must be a string",
    ),
    "plugin brings two lines": (
        config_of(plugin(credential({"token": "hidden\r\nX-Remote-User: admin"}))),
        "exec: the token has blanks",
    ),
    "plugin babbles after its token": (
        config_of(plugin(TOKEN + "hidden")),
        "not an ExecCredential",
    ),
    "a token of two lines": (config_of({"token": "hidden\nb"}), "user u: the token has blanks"),
    "expired in words": (
        config_of(plugin(credential({"token": "t", "expirationTimestamp": "soon"}))),
        "not an ExecCredential",
    ),
}


@pytest.mark.parametrize("case", INVALID)
def test_an_invalid_file_is_refused_by_its_place(case: str, write: Callable[..., str]) -> None:
    config, words = INVALID[case]
    path = write(config)

    with pytest.raises(SourceError, match=words) as refused:
        from_kubeconfig(path)
    assert str(refused.value).startswith(f"kubeconfig {path}: ")
    shown = "".join(traceback.format_exception(refused.value))
    causes = [refused.value.__cause__, refused.value.__context__]
    assert "hidden" not in shown + "".join(repr(vars(one)) for one in causes if one is not None)


ODD: list[Any] = [
    "", "a", "\0", "\ud800", "é", "a\r\nb", "::", 5, -1, 10**400, 1.5, float("nan"), True, None, [],
    {}, [5], ["\0"], [{}], [{"name": "\0"}], {"a": 5}, {5: 6}, {"\0": "b"}, date(2026, 1, 1),
    datetime(2026, 1, 1, tzinfo=UTC), b"b", {1, 2}, "/", "socks5://", "http://[", "http://x:99999",
]  # fmt: skip
"""Values that YAML can write."""
KEYS = {
    "clusters": [
        "server", "certificate-authority", "certificate-authority-data", "extensions", "proxy-url",
        "insecure-skip-tls-verify", "tls-server-name", "disable-compression",
    ],
    "users": [
        "client-certificate", "client-certificate-data", "client-key", "client-key-data", "token",
        "tokenFile", "username", "password", "exec", "as", "as-groups", "as-uid", "as-user-extra",
    ],
    "contexts": ["cluster", "user", "namespace"],
}  # fmt: skip
PLUGIN = ["apiVersion", "command", "args", "env", "installHint", "provideClusterInfo",
          "interactiveMode"]  # fmt: skip


PLAIN = {"server": "http://h:1"}


def odd_configs(value: Any) -> Iterator[tuple[str, Config]]:
    """With this value at each place of a kubeconfig."""
    for section, keys in KEYS.items():
        for key in keys:
            user: Config = {"as": "x", "username": "x"}
            if key in {"server", "extensions", "proxy-url", "tls-server-name"}:
                user |= plugin(TOKEN, provideClusterInfo=True)
            tls = key.startswith(("cert", "client", "tls")) or key == "server"
            config = config_of(user, None if tls else PLAIN)
            config[section][0][section[:-1]][key] = value
            yield key, config
        yield section, {**config_of({}, PLAIN), section: value}
        for inner in ("name", section[:-1]):
            config = config_of({}, PLAIN)
            config[section][0][inner] = value
            yield f"{section} {inner}", config
    for key in PLUGIN:
        yield f"exec {key}", config_of(plugin(TOKEN, **{key: value}), PLAIN)
    for pair in ({"name": value, "value": "a"}, {"name": "A", "value": value}):
        yield "exec env", config_of(plugin(TOKEN, env=[pair]), PLAIN)
    extension = [{"name": "client.authentication.k8s.io/exec", "extension": value}]
    cluster = {**PLAIN, "extensions": extension}
    yield "extension", config_of(plugin(TOKEN, provideClusterInfo=True), cluster)
    yield "current-context", {**config_of({}, PLAIN), "current-context": value}


@pytest.mark.parametrize("value", ODD, ids=ascii)
def test_odd_values_are_refused_or_taken_and_raise_nothing_else(
    value: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shmcache.source.kubeconfig.os.path.exists", lambda _: True)
    for place, config in odd_configs(value):
        monkeypatch.setattr("shmcache.source.kubeconfig._read", lambda _, found=config: found)
        try:
            from_kubeconfig("file").headers()
        except SourceError as refused:
            assert str(refused).startswith(("kubeconfig file: ", "token file /")), place


@pytest.mark.parametrize("script", ["printf 'hidden\\377'", "printf 'no\\377' >&2; exit 3"])
def test_output_of_a_plugin_that_is_not_text_is_refused(
    script: str, write: Callable[..., str]
) -> None:
    path = write(config_of(plugin("", command="/bin/sh", args=["-c", script])))

    with pytest.raises(SourceError, match=r"not an ExecCredential|status 3: no") as refused:
        from_kubeconfig(path)
    assert "hidden" not in "".join(traceback.format_exception(refused.value))


def test_a_token_file_that_is_not_text_is_named(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_bytes(b"hidden\xff")

    with pytest.raises(SourceError, match=rf"token file {file}: it is not text") as refused:
        direct("http://h:1", token_file=str(file)).headers()
    assert refused.value.__context__ is None or refused.value.__suppress_context__


def test_credentials_do_not_show_their_secrets() -> None:
    shown = repr(Credentials("Bearer hidden", b"certificate", b"hidden", 1.0))
    assert "certificate" in shown
    assert "hidden" not in shown


def test_a_file_that_does_not_exist_is_refused() -> None:
    with pytest.raises(SourceError, match=r"kubeconfig /nowhere: the file does not exist"):
        from_kubeconfig("/nowhere")


def test_a_plugin_that_hangs_is_ended(
    write: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shmcache.source.credentials.PLUGIN_SECONDS", 0.05)
    path = write(config_of(plugin("", command="sleep", args=["600"])))

    with pytest.raises(SourceError, match="sleep has not ended within"):
        from_kubeconfig(path)


# ---- without the package -------------------------------------------------------------------------


def test_no_kubernetes_package_is_needed_or_imported(write: Callable[..., str]) -> None:
    path = write(config_of({"token": "t"}))
    program = f"""
        import sys
        from shmcache.source.config import ServerSettings, open_server
        access = open_server(ServerSettings(kubeconfig={path!r})).access()
        assert access.headers() == [("Authorization", "Bearer t")]
        assert not [name for name in sys.modules if name.split(".")[0] == "kubernetes"]
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=True)


@pytest.mark.parametrize(
    ("package", "user", "words"),
    [
        ("kubernetes", {"auth-provider": {"name": "gcp"}}, "install the kubernetes package"),
        ("yaml", {}, r"PyYAML is not installed: pip install 'shmcache\[kubernetes\]'"),
    ],
)
def test_a_missing_package_is_named_where_it_is_needed(
    package: str,
    user: Config,
    words: str,
    write: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = write(config_of(user))
    imported = builtins.__import__

    def refuse(name: str, *arguments: Any, **more: Any) -> Any:
        if name.split(".", maxsplit=1)[0] == package:
            raise ImportError(name)
        return imported(name, *arguments, **more)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(SourceError, match=words):
        from_kubeconfig(path)


# ---- equality ------------------------------------------------------------------------------------


def test_impersonation_alone_counts_no_user() -> None:
    """A group, a uid or extras are nothing without a user; each alone is refused."""
    from shmcache.source.access import Impersonation

    for alone in (
        Impersonation(groups=("dev",)),
        Impersonation(uid="7"),
        Impersonation(extra={"reason": ("a",)}),
    ):
        with pytest.raises(SourceError, match="needs a user"):
            alone.headers()
    assert [] == Impersonation().headers()


def test_access_shows_no_secret() -> None:
    """Neither in logs nor in tracebacks."""
    shown = repr(
        ServerAccess(url="https://a", authorization="Bearer s3cret", tls_material=b"s3cret")
    )

    assert "https://a" in shown
    assert "s3cret" not in shown


def test_access_of_another_key_is_another_access(
    write: Callable[..., str], authority: trustme.CA
) -> None:
    """Connections are kept for equal access only."""
    found: list[ServerAccess] = []
    for leaf in (authority.issue_cert("a"), authority.issue_cert("a")):
        user = {
            "client-certificate-data": base64.b64encode(leaf.cert_chain_pems[0].bytes()).decode(),
            "client-key-data": base64.b64encode(leaf.private_key_pem.bytes()).decode(),
        }
        found += [from_kubeconfig(write(config_of(user))) for _ in range(2)]

    assert found[0] == found[1]
    assert found[0] != found[2]


def test_certificates_need_no_files_in_memory(
    authority: trustme.CA,
    leaf: trustme.LeafCert,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Systems other than Linux have no memfd: a private file exists for a moment there."""
    monkeypatch.delattr(os, "memfd_create")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    seen: list[tuple[int, int]] = []
    load = ssl.SSLContext.load_cert_chain

    def loading(context: ssl.SSLContext, cert: str, key: str) -> None:
        seen.extend(
            (stat.S_IMODE(Path(one).stat().st_mode), stat.S_IMODE(Path(one).parent.stat().st_mode))
            for one in (cert, key)
        )
        load(context, cert, key)

    monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", loading)
    ca = "# of Zürich\n".encode() + authority.cert_pem.bytes()
    chain = leaf.cert_chain_pems[0].bytes()
    context, _ = tls_context(ca=ca, cert=chain, key=leaf.private_key_pem.bytes())
    assert 1 == context.cert_store_stats()["x509_ca"]
    assert [(0o600, 0o700)] * 2 == seen
    assert [] == list(tmp_path.iterdir())
