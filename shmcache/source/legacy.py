"""Users with an auth-provider (gcp, oidc), which kubectl has given up for credential plugins.

The official Python client still knows how to refresh their tokens: its package does it, if it is
installed.
"""

from __future__ import annotations

from shmcache.errors import SourceError
from shmcache.reasons import reason_at


def by_auth_provider(paths: str, context: str) -> tuple[str | None, float | None]:
    """The Authorization header and when it expires. SourceError if the package is missing."""
    try:
        from kubernetes.client import Configuration
        from kubernetes.config import ConfigException
        from kubernetes.config.kube_config import KubeConfigLoader, KubeConfigMerger
    except ImportError as error:
        raise SourceError(
            f"the user of context {context} has an auth-provider: install the kubernetes package "
            "for it (pip install kubernetes), or use a credential plugin (exec)"
        ) from error
    try:
        merger = KubeConfigMerger(paths)
        loader = KubeConfigLoader(merger.config, active_context=context, config_base_path=None)
        target = Configuration()
        loader.load_and_set(target)
    except (ConfigException, OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        raise SourceError(f"auth-provider of context {context}: {reason_at(error)}") from error
    expiry = getattr(loader, "expiry", None)
    header = next(iter(target.api_key.values()), None)
    if header is None:
        raise SourceError(f"auth-provider of context {context}: no token came of it")
    return header, None if expiry is None else float(expiry.timestamp())
