"""Configuration as kubectl has it, and that of a pod: read by the official client's own loader.

The `kubernetes` package knows the files, their lists, credential plugins and the old providers.
Here stands what it leaves out: the first file of a list decides the context, a plugin that fails
is an error instead of a request without credentials, token files are read again, impersonation.
Private keys are on disk only while the TLS context takes them in.
"""

from __future__ import annotations

import base64
import os
import tempfile
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from shmcache.errors import SourceError
from shmcache.source.access import Access, Impersonation, environment_proxy, tls_context

DEFAULT_PATH = "~/.kube/config"


def default_paths() -> str | None:
    """What kubectl would read without a flag: KUBECONFIG, or the file at home if it is there."""
    listed = os.environ.get("KUBECONFIG")
    if listed:
        return listed
    home = os.path.expanduser(DEFAULT_PATH)
    return home if os.path.exists(home) else None


def from_kubeconfig(paths: str, context: str | None = None) -> Access:
    """Of one context (the current one) of a file, or of a list of files as in KUBECONFIG."""
    from kubernetes.client import Configuration
    from kubernetes.config import ConfigException
    from kubernetes.config.kube_config import KubeConfigLoader, KubeConfigMerger
    from yaml import YAMLError

    try:
        merger = KubeConfigMerger(paths)
        if merger.config is None:
            raise SourceError(f"kubeconfig {paths}: there is no such file")
        chosen = _Chosen.of(merger, context or _first_context(merger))
        with tempfile.TemporaryDirectory(prefix="shmcache-") as folder:
            expires = _run_plugin(chosen)
            loader = KubeConfigLoader(
                merger.config,
                active_context=chosen.context,
                config_base_path=None,
                temp_file_path=folder,
            )
            target = Configuration()
            loader.load_and_set(target)
            return _access(chosen, target, expires)
    except (ConfigException, YAMLError, OSError, ValueError, AttributeError) as error:
        raise SourceError(f"kubeconfig {paths}: {error}") from error


def _first_context(merger: Any) -> str:
    for config in merger.config_files.values():
        found = config.get("current-context")
        if found:
            return str(found)
    raise SourceError("kubeconfig: no current-context; say which context is meant")


@dataclass(frozen=True, slots=True)
class _Chosen:
    """The parts of the files that a context names; each knows the file it stands in."""

    context: str
    namespace: str
    cluster: Any
    user: Any

    @classmethod
    def of(cls, merger: Any, name: str) -> _Chosen:
        context = merger.config["contexts"].get_with_name(name)["context"]
        user_name = context.safe_get("user")
        user = merger.config["users"].get_with_name(user_name, safe=True) if user_name else None
        if user_name and user is None:
            raise SourceError(
                f"kubeconfig: context {name} names the user {user_name}, who is not there"
            )
        return cls(
            context=name,
            namespace=str(context.safe_get("namespace") or "default"),
            cluster=merger.config["clusters"].get_with_name(context["cluster"]),
            user=user,
        )

    @property
    def user_values(self) -> dict[str, Any]:
        """The user's own part, as it stands in the file: changes are seen by the loader."""
        return {} if self.user is None else self.user.value["user"]


def _run_plugin(chosen: _Chosen) -> float | None:
    """Puts what the credential plugin says in its place; when it expires, if ever."""
    from kubernetes.config.dateutil import parse_rfc3339
    from kubernetes.config.exec_provider import ExecProvider

    user = chosen.user_values
    if "exec" not in user or "token" in user or "tokenFile" in user:
        return None
    node = chosen.user["user"]
    folder = os.path.dirname(os.path.abspath(chosen.user.path or ""))
    status = ExecProvider(node["exec"], folder, chosen.cluster["cluster"]).run()
    del user["exec"]
    if "token" in status:
        user["token"] = status["token"]
    if "clientCertificateData" in status and "clientKeyData" in status:
        user["client-certificate-data"] = _encoded(status["clientCertificateData"])
        user["client-key-data"] = _encoded(status["clientKeyData"])
    elif "token" not in status:
        raise SourceError("the credential plugin gave neither a token nor a certificate")
    expiry = status.get("expirationTimestamp")
    return None if expiry is None else float(parse_rfc3339(expiry).timestamp())


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _access(chosen: _Chosen, target: Any, expires: float | None) -> Access:
    cluster, user = chosen.cluster.value["cluster"], chosen.user_values
    tls, material = None, b""
    if urlsplit(target.host).scheme == "https":
        tls, material = tls_context(
            ca_file=target.ssl_ca_cert,
            cert_file=target.cert_file,
            key_file=target.key_file,
            insecure=not target.verify_ssl,
        )
    token_file = user.get("tokenFile")
    if token_file is not None:
        folder = os.path.dirname(os.path.abspath(chosen.user.path or ""))
        token_file = os.path.join(folder, token_file)
    return Access(
        url=target.host,
        namespace=chosen.namespace,
        authorization=next(iter(target.api_key.values()), None),  # under either of two names
        token_file=token_file,
        impersonation=_impersonation(user),
        tls=tls,
        tls_material=material,
        server_name=cluster.get("tls-server-name"),
        proxy=cluster.get("proxy-url") or environment_proxy(target.host),
        expires=expires,
    )


def _impersonation(user: dict[str, Any]) -> Impersonation:
    return Impersonation(
        user=user.get("as") or "",
        groups=tuple(user.get("as-groups") or ()),
        uid=user.get("as-uid") or "",
        extra={name: tuple(values) for name, values in (user.get("as-user-extra") or {}).items()},
    )


def in_cluster() -> Access:
    """Of the pod we run in; the kubelet writes its token anew, so it is read for every request."""
    from kubernetes.client import Configuration
    from kubernetes.config import ConfigException
    from kubernetes.config import incluster_config as library

    target = Configuration()
    try:
        library.InClusterConfigLoader(
            token_filename=library.SERVICE_TOKEN_FILENAME,
            cert_filename=library.SERVICE_CERT_FILENAME,
        ).load_and_set(target)
        tls, material = tls_context(
            ca_file=target.ssl_ca_cert, cert_file=None, key_file=None, insecure=False
        )
        folder = os.path.dirname(library.SERVICE_TOKEN_FILENAME)
        with open(os.path.join(folder, "namespace"), encoding="utf-8") as file:
            namespace = file.read().strip()
    except (ConfigException, OSError) as error:
        raise SourceError(f"in-cluster configuration: {error}") from error
    return Access(
        url=target.host,
        namespace=namespace,
        token_file=library.SERVICE_TOKEN_FILENAME,
        tls=tls,
        tls_material=material,
        proxy=environment_proxy(target.host),
    )
