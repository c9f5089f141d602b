"""The usual built-in resources, and those that a definition of a custom resource adds."""

from __future__ import annotations

from typing import Any

from shmcache.protocol.fields import MADE
from shmcache.protocol.kinds import ALL_VERBS, CUSTOM_VERBS, Kind

Object = dict[str, Any]


POD_FIELDS = (
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.schedulerName",
    "spec.serviceAccountName",
    "spec.hostNetwork",
    "status.phase",
    "status.podIP",
    "status.podIPs",
    "status.nominatedNodeName",
)
EVENT_FIELDS = (
    "involvedObject.kind",
    "involvedObject.namespace",
    "involvedObject.name",
    "involvedObject.uid",
    "involvedObject.apiVersion",
    "involvedObject.resourceVersion",
    "involvedObject.fieldPath",
    "reason",
    "reportingComponent",
    "source",
    "type",
)
ENDPOINTS_WARNING = "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"

# group/version resource kind, then: c cluster scope, s status, g generation, a category "all",
# short names
TABLE = """
v1 configmaps ConfigMap - cm
v1 endpoints Endpoints - ep
v1 events Event - ev
v1 limitranges LimitRange - limits
v1 namespaces Namespace cs ns
v1 nodes Node cs no
v1 persistentvolumeclaims PersistentVolumeClaim s pvc
v1 persistentvolumes PersistentVolume cs pv
v1 pods Pod sga po
v1 podtemplates PodTemplate g
v1 replicationcontrollers ReplicationController sga rc
v1 resourcequotas ResourceQuota s quota
v1 secrets Secret -
v1 serviceaccounts ServiceAccount - sa
v1 services Service sa svc
admissionregistration.k8s.io/v1 mutatingwebhookconfigurations MutatingWebhookConfiguration cg
admissionregistration.k8s.io/v1 validatingwebhookconfigurations ValidatingWebhookConfiguration cg
apiextensions.k8s.io/v1 customresourcedefinitions CustomResourceDefinition csg crd,crds
apps/v1 controllerrevisions ControllerRevision -
apps/v1 daemonsets DaemonSet sga ds
apps/v1 deployments Deployment sga deploy
apps/v1 replicasets ReplicaSet sga rs
apps/v1 statefulsets StatefulSet sga sts
autoscaling/v2 horizontalpodautoscalers HorizontalPodAutoscaler sa hpa
batch/v1 cronjobs CronJob sga cj
batch/v1 jobs Job sga
coordination.k8s.io/v1 leases Lease -
discovery.k8s.io/v1 endpointslices EndpointSlice g
networking.k8s.io/v1 ingressclasses IngressClass cg
networking.k8s.io/v1 ingresses Ingress sg ing
networking.k8s.io/v1 networkpolicies NetworkPolicy g netpol
policy/v1 poddisruptionbudgets PodDisruptionBudget sg pdb
rbac.authorization.k8s.io/v1 clusterrolebindings ClusterRoleBinding c
rbac.authorization.k8s.io/v1 clusterroles ClusterRole c
rbac.authorization.k8s.io/v1 rolebindings RoleBinding -
rbac.authorization.k8s.io/v1 roles Role -
scheduling.k8s.io/v1 priorityclasses PriorityClass cg pc
storage.k8s.io/v1 storageclasses StorageClass c sc
"""
FIELDS = {
    "pods": POD_FIELDS,
    "events": EVENT_FIELDS,
    "namespaces": ("status.phase",),
    "nodes": ("spec.unschedulable",),
    "secrets": ("type",),
    "services": ("spec.clusterIP", "spec.type"),
    "replicationcontrollers": ("status.replicas",),
    "jobs": ("status.successful",),
}
WARNINGS = {"endpoints": ENDPOINTS_WARNING}
PLAIN: Object = {"spec": {}, "status": {}}
TEMPLATE: Object = {"metadata": {}, "spec": {"containers": None}}
ZEROS: dict[str, Object] = {
    "namespaces": PLAIN,
    "nodes": PLAIN,
    "pods": {"spec": {"containers": None}, "status": {}},
    "services": {"spec": {}, "status": {"loadBalancer": {}}},
    "persistentvolumes": PLAIN,
    "persistentvolumeclaims": {"spec": {"resources": {}}, "status": {}},
    "endpointslices": {"addressType": "", "endpoints": None, "ports": None},
    "deployments": {
        "spec": {"selector": None, "template": TEMPLATE, "strategy": {}},
        "status": {},
    },
}
VERBS = {"namespaces": tuple(verb for verb in ALL_VERBS if verb != "deletecollection")}


def builtin() -> list[Kind]:
    """The resources of a server to which nothing was added."""
    return [_row(line.split()) for line in TABLE.strip().splitlines()]


def _row(words: list[str]) -> Kind:
    api_version, resource, kind, marks, *short = words
    group, _, version = api_version.rpartition("/")
    return Kind(
        group=group,
        version=version,
        resource=resource,
        kind=kind,
        singular=kind.lower(),
        namespaced="c" not in marks,
        status="s" in marks,
        generation="g" in marks,
        categories=("all",) if "a" in marks else (),
        short_names=tuple(short[0].split(",")) if short else (),
        fields=FIELDS.get(resource, ()),
        made=MADE.get(f"{resource}.{group}" if group else resource, {}),
        warning=WARNINGS.get(resource, ""),
        zero=ZEROS.get(resource, {}),
        verbs=VERBS.get(resource, ALL_VERBS),
    )


def defined(definition: Object) -> list[Kind]:
    """The resources that a CustomResourceDefinition adds: one for each version that is served."""
    spec = definition["spec"]
    return [_custom(spec, version) for version in spec["versions"] if version.get("served", True)]


def _custom(spec: Object, version: Object) -> Kind:
    names = spec["names"]
    return Kind(
        group=spec["group"],
        version=version["name"],
        resource=names["plural"],
        kind=names["kind"],
        singular=names.get("singular") or names["kind"].lower(),
        namespaced=spec.get("scope", "Namespaced") == "Namespaced",
        short_names=tuple(names.get("shortNames") or ()),
        categories=tuple(names.get("categories") or ()),
        status="status" in (version.get("subresources") or {}),
        generation=True,
        fields=tuple(
            row["jsonPath"].removeprefix(".") for row in version.get("selectableFields") or ()
        ),
        columns=tuple(version.get("additionalPrinterColumns") or ()),
        custom=True,
        verbs=CUSTOM_VERBS,
    )
