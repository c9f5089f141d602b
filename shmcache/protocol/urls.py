"""URLs of servers, as settings, kubeconfigs and Leases name them."""

from __future__ import annotations

from urllib.parse import SplitResult, urlsplit


def server_url(text: str) -> SplitResult | None:
    """The parts of an http or https URL; None for other text, and for a port that no server has."""
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:  # brackets that do not match, or a port that is not a number
        return None
    usable = parts.scheme in {"http", "https"} and parts.hostname and port != 0
    return parts if usable and text.isprintable() and " " not in text else None
