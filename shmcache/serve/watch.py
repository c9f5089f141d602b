"""Watches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shmcache.protocol import failures

if TYPE_CHECKING:
    from shmcache.serve.catalogue import Served
    from shmcache.serve.connection import Connection
    from shmcache.serve.requests import Request
    from shmcache.serve.server import Server


async def answer(
    server: Server,  # noqa: ARG001
    request: Request,  # noqa: ARG001
    connection: Connection,  # noqa: ARG001
    served: Served,  # noqa: ARG001
) -> None:
    """Takes the connection over for a watch; a Failure refuses it before it begins."""
    raise failures.method_not_allowed()
