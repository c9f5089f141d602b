"""`shmcache run --validate`: checks everything that can be checked without caching anything.

In this order, each check only if the ones before it passed: the configuration (already parsed),
functions that must be imported, the server's address and our credentials, each resource's name, and
our right to list and watch it, by SelfSubjectAccessReview. Standard output has the plan, standard
error one line for each problem; the exit status is that of the first kind of problem below.

    78   the configuration is wrong: an unknown resource, a function that cannot be imported
    77   the server refuses our credentials, or a right is missing
    69   the server cannot be reached
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

from shmcache.cli.arguments import closest
from shmcache.cli.output.finding import DENIED, DONE, UNREACHABLE, WRONG
from shmcache.engine.config import Configuration
from shmcache.engine.config.checks import check_functions
from shmcache.engine.config.keys import ConfigurationError
from shmcache.engine.open_etcd import EtcdOpener
from shmcache.engine.open_source import KubeOpener
from shmcache.engine.plans import Plan, PlanError
from shmcache.engine.service import make_opener, reach
from shmcache.errors import SourceError
from shmcache.protocol.jsontext import decoded
from shmcache.protocol.options import ListOptions
from shmcache.settings import format_size
from shmcache.source.base import FailureKind, SourceFailed
from shmcache.source.client import ApiConnection, Client
from shmcache.source.discovery import AGGREGATED, ApiResource
from shmcache.source.kube import LIST_SILENCE

REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
VERBS = ("list", "watch")


def validate(configuration: Configuration) -> int:
    """Prints what would be cached and every problem; returns the exit status."""
    memory = configuration.memory
    print(f"cache {configuration.name}: at most {format_size(int(memory.arena_max))}, "
          f"mode {memory.mode:04o}, {memory.seats} seats")  # fmt: skip
    check = _Check(configuration)
    for plan in configuration.plans:
        print(f"  {_line(plan, configuration)}: {check.plan(plan)}")
    sys.stdout.flush()
    for _, text in check.problems:
        print(f"shmcache run: {text}", file=sys.stderr)
    found = {status for status, _ in check.problems}
    return next((status for status in (WRONG, DENIED, UNREACHABLE) if status in found), DONE)


class _Check:
    """The checks of one configuration. `problems`: exit status and sentence of each, once."""

    def __init__(self, configuration: Configuration) -> None:
        self.problems: list[tuple[int, str]] = []
        self._configuration = configuration
        self._opener: KubeOpener | None = None
        self._server: ApiConnection
        self._post: Any = None
        self._replays = bool(configuration.replay)
        self._etcd: EtcdOpener | None = None
        if configuration.etcd:
            self._reach_etcd()
        elif not self._replays:
            self._reach()

    def _problem(self, status: int, text: str) -> str:
        if (status, text) not in self.problems:
            self.problems.append((status, text))
        return "not valid"

    def _reach_etcd(self) -> None:
        with ExitStack() as stack:
            try:
                opener = make_opener(self._configuration, stack)
            except (SourceError, ConfigurationError) as error:
                self._problem(WRONG, str(error))
                return
            assert isinstance(opener, EtcdOpener)
            self._etcd = opener
            stack.pop_all()  # the process ends after the checks

    def _in_etcd(self, plan: Plan) -> str:
        """Reads one key under the prefix, with our user: what a list and a watch need."""
        if self._etcd is None:
            return "not checked"
        try:
            with self._etcd.open_joint([plan]).page(ListOptions(limit=1)) as page:
                return f"{plan.keys} at revision {page.meta.version}"
        except SourceFailed as failed:
            code = failed.failure.code
            status = DENIED if code in {401, 403} else WRONG if code else UNREACHABLE
            return self._problem(status, f"{plan.name}: {failed}")

    def _reach(self) -> None:
        from shmcache.serve.auth.review import Poster

        try:
            server = reach(self._configuration)[-1]  # the others relay it
        except SourceError as error:
            self._problem(WRONG, str(error))
            return
        self._opener = KubeOpener(server)
        self._server = server
        self._post = Poster(server)

    def plan(self, plan: Plan) -> str:
        """Checks one resource; returns the result as the end of a line."""
        try:
            check_functions([plan])
        except PlanError as error:
            return self._problem(WRONG, str(error))
        if self._configuration.etcd:
            return self._in_etcd(plan)
        if self._replays:
            return f"from the recording {self._configuration.replay}"
        if self._opener is None:
            return "not checked"
        try:
            found = self._opener.find(plan)
        except SourceFailed as failed:
            return self._failed(plan, failed)
        missing = list(self._missing(plan, found))
        for text in missing:
            self._problem(DENIED, text)
        scope = "namespaced" if found.namespaced else "cluster-wide"
        return "not allowed" if missing else f"{found.api_version} {found.kind}, {scope}"

    def _failed(self, plan: Plan, failed: SourceFailed) -> str:
        """The problem behind a request of discovery that failed."""
        code, origin = failed.failure.code, self._opener.origin if self._opener else ""
        if code == 404:
            return self._problem(WRONG, self._unknown(plan))
        if code in {401, 403}:
            self._opener = None
            reason = "Unauthorized" if code == 401 else "Forbidden"
            return self._problem(
                DENIED, f"the API server {origin} refused our credentials (HTTP {code} {reason}); "
                "check the user and the token of the kubeconfig"
            )  # fmt: skip
        if code:
            return self._problem(WRONG, f"{plan.name}: {failed}")
        self._opener = None
        silent = failed.failure.kind is FailureKind.SILENT
        why = "no answer in time" if silent else str(failed).rpartition(": ")[2]
        return self._problem(
            UNREACHABLE,
            f"the API server {origin} cannot be reached: {why}; check --server or the kubeconfig",
        )

    def _unknown(self, plan: Plan) -> str:
        name, known = plan.name.lower(), self._names()
        bare, near = re.split(r"[./]", name)[0], closest(name, known, 0.7)
        if bare in known and not near.startswith(bare):
            near = bare
        hint = f"; did you mean {near}?" if near else ""
        return f"the API server has no resource {plan.name!r}{hint}"

    def _names(self) -> list[str]:
        """The names of all resources of the server: pods, deployments, deployments.apps."""
        client = Client(self._server)
        try:
            core = decoded(client.document("/api/v1", silence=LIST_SILENCE))
            groups = decoded(client.document("/apis", silence=LIST_SILENCE, accept=AGGREGATED))
            return _names_in(core, groups)
        except (SourceFailed, ValueError, AttributeError, KeyError, TypeError):
            return []  # these documents only help with a hint
        finally:
            client.close()

    def _missing(self, plan: Plan, found: ApiResource) -> Iterator[str]:
        """A sentence for each right that we lack."""
        wanted = plan.namespaces or self._configuration.default_namespaces
        for namespace in (wanted if found.namespaced else ()) or ("",):
            lacking = [verb for verb in VERBS if not self._may(verb, found, namespace)]
            if lacking:
                where = f"in namespace {namespace}" if namespace else "in all namespaces"
                scope = f" {where}" if found.namespaced else ""
                group = f".{found.group}" if found.group else ""
                yield (
                    f"{plan.name}: the API server does not allow us to {' or '.join(lacking)} "
                    f"{found.plural}{group}{scope}; grant it with RBAC (verbs: {', '.join(VERBS)})"
                )

    def _may(self, verb: str, found: ApiResource, namespace: str) -> bool:
        attributes = {
            "verb": verb, "group": found.group, "version": found.version,
            "resource": found.plural, "namespace": namespace,
        }  # fmt: skip
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": attributes},
        }
        try:
            answer = self._post(REVIEWS, review)
        except SourceFailed:
            self._problem(
                DENIED, "the API server does not answer SelfSubjectAccessReviews: our rights "
                "cannot be checked"
            )  # fmt: skip
            return True
        return answer["status"].get("allowed") is True


def _line(plan: Plan, configuration: Configuration) -> str:
    where = plan.namespaces or configuration.default_namespaces
    parts = [plan.name, f"in {', '.join(where)}" if where else "in all namespaces"]
    if plan.labels:
        parts.append(f"labels {plan.labels}")
    if plan.fields:
        parts.append(f"fields {plan.fields}")
    if plan.metadata_only:
        parts.append("metadata only")
    if plan.budget:
        parts.append(f"at most {format_size(plan.budget)} of JSON")
    if plan.indices:
        parts.append(f"indices {', '.join(plan.indices)}")
    return "; ".join(parts)


def _names_in(core: Any, groups: Any) -> list[str]:
    """Of two documents of discovery: that of the core group, and that of all others."""
    found = [row["name"] for row in core.get("resources") or () if "/" not in row["name"]]
    for group in groups.get("items") or ():
        for version in group.get("versions") or ():
            for row in version.get("resources") or ():
                found += [row["resource"], f"{row['resource']}.{group['metadata']['name']}"]
    return found
