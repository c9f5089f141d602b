"""What people call resources, and which of a cache they mean: po, pod, deployments.v1.apps."""

from __future__ import annotations

from shmcache.cli.finding import Trouble

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

# plural, group ("-" for none), singular, short names; c: without namespaces
_TABLE = """
configmaps - configmap cm
endpoints - endpoints ep
events - event ev
limitranges - limitrange limits
namespaces - namespace ns c
nodes - node no c
persistentvolumeclaims - persistentvolumeclaim pvc
persistentvolumes - persistentvolume pv c
pods - pod po
podtemplates - podtemplate
replicationcontrollers - replicationcontroller rc
resourcequotas - resourcequota quota
secrets - secret
serviceaccounts - serviceaccount sa
services - service svc
customresourcedefinitions apiextensions.k8s.io customresourcedefinition crd,crds c
controllerrevisions apps controllerrevision
daemonsets apps daemonset ds
deployments apps deployment deploy
replicasets apps replicaset rs
statefulsets apps statefulset sts
horizontalpodautoscalers autoscaling horizontalpodautoscaler hpa
cronjobs batch cronjob cj
jobs batch job
leases coordination.k8s.io lease
endpointslices discovery.k8s.io endpointslice
ingressclasses networking.k8s.io ingressclass c
ingresses networking.k8s.io ingress ing
networkpolicies networking.k8s.io networkpolicy netpol
poddisruptionbudgets policy poddisruptionbudget pdb
clusterrolebindings rbac.authorization.k8s.io clusterrolebinding c
clusterroles rbac.authorization.k8s.io clusterrole c
rolebindings rbac.authorization.k8s.io rolebinding
roles rbac.authorization.k8s.io role
priorityclasses scheduling.k8s.io priorityclass pc c
storageclasses storage.k8s.io storageclass sc c
"""


class Kind:
    """A resource's names."""

    __slots__ = ("group", "namespaced", "plural", "singular")

    def __init__(self, plural: str, group: str | None, singular: str, *, namespaced: bool) -> None:
        self.plural = plural
        self.group = group
        """None: not said."""
        self.singular = singular
        self.namespaced = namespaced

    @property
    def key(self) -> str:
        """pods, deployments.apps."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def called(self, name: str) -> str:
        """pod/web-0, deployment.apps/web."""
        return f"{self.singular}{'.' + self.group if self.group else ''}/{name}"


def _known() -> dict[str, Kind]:
    found: dict[str, Kind] = {}
    for line in _TABLE.strip().splitlines():
        plural, group, singular, *more = line.split()
        kind = Kind(plural, group.strip("-"), singular, namespaced="c" not in more)
        short = [word for word in more if word != "c"]
        for alias in (plural, singular, *(short[0].split(",") if short else ())):
            found.setdefault(alias, kind)
    return found


_KNOWN: Mapping[str, Kind] = _known()


def kind_of(word: str) -> Kind:
    """What a word says: of a person, or of a configuration."""
    name, _, _version = word.lower().partition("/")
    first, _, group = name.partition(".")
    known = _KNOWN.get(first)
    if known is not None and (not group or _same_group(known.group or "", group)):
        return known
    singular = first.removesuffix("s")
    plural = first if first.endswith("s") else first + "s"
    return Kind(plural, group or None, singular, namespaced=True)


def _same_group(known: str, said: str) -> bool:
    """`deployments.v1.apps` names a version, too; `deployments.app` is no group."""
    return said == known or said.partition(".")[2] == known


def find(word: str, cached: tuple[str, ...]) -> tuple[str, Kind]:
    """Which resource of the cache the word means. Trouble that says what there is."""
    if word in cached:
        return word, kind_of(word)
    wanted = kind_of(word)
    fits = [
        (name, kind)
        for name in cached
        if (kind := kind_of(name)).plural == wanted.plural
        and (wanted.group is None or _same_group(kind.group or "", wanted.group))
    ]
    if len(fits) == 1:
        return fits[0]
    if fits:
        names = ", ".join(name for name, _ in fits)
        raise Trouble(f"{word!r} may mean {names}: name the group, too", 2)
    there = ", ".join(cached) or "nothing"
    raise Trouble(
        f"the cache has no {word!r}; it has {there}. To cache it, too: shmcache run "
        f"{' '.join(cached)} {word}"
    )
