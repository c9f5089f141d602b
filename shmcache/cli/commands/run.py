"""`shmcache run`: keeps a cache as the configuration file, the environment and the flags define."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from shmcache.cli.arguments import renamed
from shmcache.cli.output.finding import USAGE, WRONG

TYPE_CHECKING = False
if TYPE_CHECKING:
    from shmcache.engine.config import Configuration

UI_ADDRESS = "127.0.0.1:8002"
HELP = "Watches the API server and keeps a cache: one process for the whole machine."

_TOP = {
    "cache": "name",
    "server": "server",
    "server_ca": "server_ca",
    "server_cert": "server_cert",
    "server_key": "server_key",
    "server_token_file": "server_token_file",
    "lease": "lease",
    "lease_holders": "lease_holders",
    "lease_duration": "lease_duration",
    "advertise": "advertise",
    "kubeconfig": "kubeconfig",
    "context": "context",
    "namespace": "namespaces",
    "max_age": "max_age",
    "listen": "listen",
    "replay": "replay",
    "requests_per_second": "requests_per_second",
    "record": "record",
    "recorder": "recorder",
    "recorder_keep": "recorder_keep",
    "recorder_bytes": "recorder_bytes",
    "keep": "keep",
    "log_format": "log_format",
    "log_level": "log_level",
    "allow_secrets": "allow_secrets",
    "etcd": "etcd",
    "etcd_ca": "etcd_ca",
    "etcd_cert": "etcd_cert",
    "etcd_key": "etcd_key",
    "etcd_user": "etcd_user",
    "etcd_password_file": "etcd_password_file",
    "etcd_together": "etcd_together",
    "standby": "standby",
    "ui": "ui",
}
_MEMORY = ("arena_max", "ring_slots", "ring_bytes", "garbage_max", "seats", "mode")
_RESOURCE = {
    "selector": "labels",
    "field_selector": "fields",
    "shard": "shard",
    "transform": "transform",
    "max_bytes": "max_bytes",
    "metadata_only": "metadata_only",
    "value": "value",
    "revisions": "revisions",
}
"""Flags, and the keys of a configuration file that they set."""

EPILOG = """\
Flags override environment variables (SHMCACHE_NAME, SHMCACHE_ARENA_MAX, ...), which override the
configuration file; docs/configuration.md describes every key. -l, --field-selector, --shard,
--transform, --metadata-only and --max-bytes apply to the resources on the command line.

  shmcache run pods deployments.apps --index pods:node=spec.nodeName
  shmcache run pods --context staging --context production
  shmcache run -c cache.toml --validate
  shmcache run --etcd https://a:2379,https://b:2379 'widgets=/registry/example.com/widgets/'

Exit status: 0 ended normally, 2 command line, 69 no server, 70 internal error, 75 try again later,
77 permission denied, 78 configuration.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """A flag for each key that is often set; the file has all of them."""
    parser.epilog = EPILOG
    parser.usage = "shmcache run [RESOURCE ...] [OPTIONS]"
    parser.add_argument(
        "resources",
        nargs="*",
        metavar="RESOURCE",
        help="resources to cache, such as pods or deployments.apps; with --etcd, NAME=PREFIX",
    )
    parser.add_argument(
        "-c",
        "--config",
        metavar="FILE",
        help="configuration file in TOML (default: SHMCACHE_CONFIG)",
    )
    parser.add_argument(
        "--cache", metavar="NAME", help="name of the cache (default: SHMCACHE_NAME, or shmcache)"
    )
    parser.add_argument(
        "--validate",
        action="store_true",
        help="check the configuration, the credentials and the rights at the API "
        "server, print what would be cached, and exit",
    )
    add_selection(parser)
    add_server(parser)
    _add_etcd(parser)
    _add_recorder(parser)
    _add_process(parser)
    renamed(parser, "--name", now="--cache", dest="cache")
    renamed(parser, "--namespaces", now="--namespace", dest="namespace")
    renamed(parser, "--labels", now="--selector", dest="selector")
    renamed(parser, "--fields", now="--field-selector", dest="field_selector")
    renamed(parser, "--metrics", now="--listen", dest="listen")


def add_selection(parser: argparse.ArgumentParser) -> None:
    """The options that choose objects."""
    group = parser.add_argument_group("objects")
    group.add_argument(
        "-n", "--namespace", metavar="A,B", help="namespaces to cache (default: all)"
    )
    group.add_argument("-l", "--selector", metavar="SELECTOR", help="label selector")
    group.add_argument("--field-selector", metavar="SELECTOR", help="field selector")
    group.add_argument(
        "--shard",
        metavar="I/N",
        help="only the objects of one of N shards by UID, as in 1/4; the server filters if it can",
    )
    group.add_argument(
        "--index",
        action="append",
        default=[],
        metavar="RESOURCE:NAME=PATH",
        help="index objects by a path, as in pods:node=spec.nodeName; may be repeated",
    )
    group.add_argument(
        "--metadata-only",
        action="store_true",
        default=None,
        help="cache only the metadata of objects",
    )
    group.add_argument(
        "--transform",
        metavar="MODULE:FUNCTION",
        help="Python function that changes each object before it is stored",
    )
    group.add_argument(
        "--max-bytes",
        metavar="SIZE",
        help="limit on the JSON text of each resource, such as 200MiB",
    )
    group.add_argument(
        "--allow-secrets", action="store_true", default=None, help="allow Secrets in the cache"
    )


def add_server(parser: argparse.ArgumentParser, *, of_relay: bool = False) -> None:
    """The options that choose servers; a relay has one cluster."""
    several = "" if of_relay else "; may be repeated: a process and a cache for each"
    group = parser.add_argument_group("API server")
    group.add_argument("--kubeconfig", metavar="FILE", help="kubeconfig file, as for kubectl")
    group.add_argument(
        "--context",
        metavar="NAME",
        action="append",
        help=f"context of the kubeconfig{several}",
    )
    group.add_argument(
        "-s",
        "--server",
        metavar="URL",
        action="append",
        help="API server or relay; `kube`: that of the kubeconfig (the default); `dns+URL`: all "
        "addresses of its host; may be repeated, in the order of preference",
    )
    group.add_argument("--server-ca", metavar="FILE", help="CA bundle for --server")
    group.add_argument("--server-cert", metavar="FILE", help="client certificate for servers")
    group.add_argument("--server-key", metavar="FILE", help="key of the client certificate")
    group.add_argument("--server-token-file", metavar="FILE", help="file with a token for servers")
    _add_lease(group)
    group.add_argument(
        "--requests-per-second", metavar="N", help="limit on new lists and watches (default: 20)"
    )
    if not of_relay:
        group.add_argument("--replay", metavar="FILE", help="read a recording instead of a server")
    group.add_argument(
        "--record", metavar="FILE", help="record every answer of the server in a new file"
    )


def _add_lease(group: Any) -> None:
    group.add_argument(
        "--lease",
        metavar="NAME",
        help="Lease of the relays of several machines: its holders watch the servers, the others "
        "follow them; NAMESPACE/NAME for one in another namespace",
    )
    group.add_argument(
        "--lease-holders", metavar="N", help="number of relays that watch at a time (default: 1)"
    )
    group.add_argument(
        "--lease-duration",
        metavar="DURATION",
        help="another machine takes over a Lease that was not renewed for this long (default: 15s)",
    )
    group.add_argument(
        "--advertise",
        metavar="URL",
        help="URL at which other machines follow this cache while it holds the Lease",
    )


def _add_recorder(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("flight recorder")
    group.add_argument(
        "--recorder",
        metavar="DIR",
        help="keep every change to the cache on disk, for `get --recorder`, `replay` and tests",
    )
    group.add_argument(
        "--recorder-keep", metavar="DURATION", help="keep changes for this long (default: 24h)"
    )
    group.add_argument(
        "--recorder-bytes", metavar="SIZE", help="limit on the disk space (default: 1GiB)"
    )


def _add_etcd(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("etcd, instead of an API server")
    group.add_argument("--etcd", metavar="URL,URL", help="endpoints of an etcd cluster")
    group.add_argument("--etcd-ca", metavar="FILE", help="certificate authorities of etcd")
    group.add_argument("--etcd-cert", metavar="FILE", help="client certificate for etcd")
    group.add_argument("--etcd-key", metavar="FILE", help="key of the client certificate")
    group.add_argument("--etcd-user", metavar="NAME", help="user at etcd")
    group.add_argument(
        "--etcd-password-file",
        metavar="FILE",
        help="file with the password; without it, SHMCACHE_ETCD_PASSWORD has it",
    )
    group.add_argument(
        "--etcd-together",
        action="store_true",
        default=None,
        help="follow all resources with one watch: each transaction is one generation",
    )
    group.add_argument(
        "--value",
        choices=["object", "json", "text", "bytes"],
        help="format of the values (default: object, one JSON object for each key)",
    )
    group.add_argument(
        "--revisions",
        action="store_true",
        default=None,
        help="add createRevision and version to the metadata of Kubernetes objects",
    )


def _add_process(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("process")
    group.add_argument(
        "--max-age",
        metavar="DURATION",
        help="report a resource as stale after this long without data from the "
        "server (default: 120s, minimum: 90s)",
    )
    group.add_argument(
        "--listen",
        metavar="ADDRESS",
        help="serve metrics and probes on HOST:PORT, :PORT or unix:PATH",
    )
    group.add_argument(
        "--ui",
        action="store_const",
        const=UI_ADDRESS,
        help=f"show the cache live in a browser, at http://{UI_ADDRESS}/ui/, as `shmcache ui` does",
    )
    group.add_argument(
        "--keep",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="keep the memory for the next run when this one ends (default: yes)",
    )
    group.add_argument(
        "--standby",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="wait while another process writes the cache (default: yes)",
    )
    group.add_argument(
        "--log-format", choices=["text", "json"], help="format of log lines (default: text)"
    )
    group.add_argument(
        "--log-level",
        choices=["debug", "info", "warning", "error"],
        help="lowest level that is logged (default: info)",
    )
    for name in _MEMORY:
        group.add_argument(f"--{name.replace('_', '-')}", metavar="N", help=argparse.SUPPRESS)


def run(options: argparse.Namespace) -> int:
    """Runs the command and returns its exit status."""
    from shmcache.engine import config as configuration
    from shmcache.engine import logs, plans
    from shmcache.engine.config import keys

    try:
        flags = flags_of(options)
    except ValueError as error:
        print(f"shmcache run: {error}", file=sys.stderr)
        return USAGE
    try:
        wanted = configuration.of_process(options.config, flags)
    except (keys.ConfigurationError, plans.PlanError) as error:
        print(f"shmcache run: {error}", file=sys.stderr)
        return WRONG
    logs.start_logging(wanted.log_format, wanted.log_level)
    if options.validate:
        from shmcache.cli.commands import run_validate

        return max(run_validate.validate(each) for each in _each(wanted))
    if wanted.contexts:
        from shmcache.engine import several

        return several.run(wanted)
    from shmcache.engine import service

    return service.run(wanted)


def _each(wanted: Configuration) -> list[Configuration]:
    if not wanted.contexts:
        return [wanted]
    from shmcache.engine import several

    return several.each_context(wanted)


def flags_of(options: argparse.Namespace) -> dict[str, Any]:
    """The flags in the form of a configuration file. ValueError if one of them is invalid."""
    given = vars(options)
    found: dict[str, Any] = {
        key: given[flag] for flag, key in _TOP.items() if given[flag] is not None
    }
    if options.context and len(options.context) > 1:
        found["contexts"] = found.pop("context")
    elif options.context:
        found["context"] = options.context[0]
    found["memory"] = {name: given[name] for name in _MEMORY if given[name] is not None}
    shared = {key: given[flag] for flag, key in _RESOURCE.items() if given[flag] is not None}
    if shared and not options.resources:
        flag = next(flag for flag in _RESOURCE if given[flag] is not None).replace("_", "-")
        raise ValueError(
            f"--{flag} needs the resources that it applies to, as in `shmcache run pods --{flag} …`"
        )
    found["resources"] = {}
    for text in options.resources:
        name, equals, pattern = text.partition("=")
        if equals and not (name and pattern):
            raise ValueError(f"{text!r} must be RESOURCE, or RESOURCE=KEYS with --etcd")
        found["resources"][name] = dict(shared) | ({"keys": pattern} if equals else {})
    found["indices"] = {}
    for text in options.index:
        resource, name, path = _index(text)
        found["indices"].setdefault(resource, {})[name] = path
    return found


def _index(text: str) -> tuple[str, str, str]:
    resource, colon, rest = text.partition(":")
    name, equals, path = rest.partition("=")
    if not (resource and colon and name and equals and path):
        raise ValueError(
            f"--index must be RESOURCE:NAME=PATH, as in pods:node=spec.nodeName, not {text!r}"
        )
    return resource, name, path
