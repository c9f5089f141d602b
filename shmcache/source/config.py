"""Where the configuration comes from, in the order that kubectl has: said, found, the pod's own."""

from __future__ import annotations

from dataclasses import dataclass, replace

from shmcache.errors import SourceError
from shmcache.source.access import Impersonation, ServerAccess, direct
from shmcache.source.client import CONNECT_TIMEOUT, ApiConnection
from shmcache.source.incluster import in_cluster
from shmcache.source.kubeconfig import default_paths, from_kubeconfig


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """Which server, and as whom. Nothing at all means what kubectl would take, or the pod's own."""

    url: str | None = None
    """A server without any configuration file; what follows until `insecure` belongs to it."""
    token: str | None = None
    token_file: str | None = None
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    insecure: bool = False
    proxy: str | None = None
    kubeconfig: str | None = None
    """A file, or several as in KUBECONFIG."""
    context: str | None = None
    in_cluster: bool = False
    impersonate_user: str = ""
    impersonate_groups: tuple[str, ...] = ()
    connect_timeout: float = CONNECT_TIMEOUT

    def load(self) -> ServerAccess:
        """Reads it all, credentials included. SourceError names the problem."""
        found = self._found()
        if self.impersonate_user or self.impersonate_groups:
            found = replace(
                found,
                impersonation=Impersonation(
                    user=self.impersonate_user, groups=self.impersonate_groups
                ),
            )
        found.impersonation.headers()  # refuses what is incomplete
        return found

    def _found(self) -> ServerAccess:
        if self.url is not None:
            return self._direct(self.url)
        if self.in_cluster:
            return in_cluster()
        paths = self.kubeconfig or default_paths()
        if paths is not None:
            return from_kubeconfig(paths, self.context)
        try:
            return in_cluster()
        except SourceError as error:
            raise SourceError(
                "no API server is configured: use --server URL or --kubeconfig FILE, or set "
                "KUBECONFIG; ~/.kube/config does not exist, and this process does not run in a Pod"
            ) from error

    def _direct(self, url: str) -> ServerAccess:
        return direct(
            url,
            token=self.token,
            token_file=self.token_file,
            ca_file=self.ca_file,
            cert_file=self.cert_file,
            key_file=self.key_file,
            insecure=self.insecure,
            proxy=self.proxy,
        )


def open_server(settings: ServerSettings) -> ApiConnection:
    """The server as all sources of the process share it; nothing is asked of it yet."""
    return ApiConnection(settings.load, connect_timeout=settings.connect_timeout)
