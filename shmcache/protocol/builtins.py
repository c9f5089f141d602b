"""The usual built-in resources, and those that a definition of a custom resource adds."""

from __future__ import annotations

from shmcache.protocol.kinds import ALL_VERBS, CUSTOM_VERBS, Kind
from shmcache.protocol.selectors.fields import MADE
from shmcache.protocol.zeros import ZEROS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

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
EVENTS_FIELDS = (
    "regarding.kind",
    "regarding.namespace",
    "regarding.name",
    "regarding.uid",
    "regarding.apiVersion",
    "regarding.resourceVersion",
    "regarding.fieldPath",
    "reason",
    "reportingController",
    "type",
)
ENDPOINTS_WARNING = "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"

# group/version resource kind, then: c cluster scope, s status, g generation, a category all,
# x category api-extensions; short names. Each has its columns in protocol/tables.
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
admissionregistration.k8s.io/v1 mutatingadmissionpolicies MutatingAdmissionPolicy cgx
admissionregistration.k8s.io/v1 mutatingadmissionpolicybindings MutatingAdmissionPolicyBinding cgx
admissionregistration.k8s.io/v1 mutatingwebhookconfigurations MutatingWebhookConfiguration cgx
admissionregistration.k8s.io/v1 validatingadmissionpolicies ValidatingAdmissionPolicy csgx
admissionregistration.k8s.io/v1 validatingadmissionpolicybindings ValidatingAdmissionPolicyBinding cgx
admissionregistration.k8s.io/v1 validatingwebhookconfigurations ValidatingWebhookConfiguration cgx
apiextensions.k8s.io/v1 customresourcedefinitions CustomResourceDefinition csgx crd,crds
apiregistration.k8s.io/v1 apiservices APIService csx
apps/v1 controllerrevisions ControllerRevision -
apps/v1 daemonsets DaemonSet sga ds
apps/v1 deployments Deployment sga deploy
apps/v1 replicasets ReplicaSet sga rs
apps/v1 statefulsets StatefulSet sga sts
autoscaling/v2 horizontalpodautoscalers HorizontalPodAutoscaler sa hpa
batch/v1 cronjobs CronJob sga cj
batch/v1 jobs Job sga
certificates.k8s.io/v1 certificatesigningrequests CertificateSigningRequest cs csr
coordination.k8s.io/v1 leases Lease -
discovery.k8s.io/v1 endpointslices EndpointSlice g
events.k8s.io/v1 events Event - ev
flowcontrol.apiserver.k8s.io/v1 flowschemas FlowSchema csg
flowcontrol.apiserver.k8s.io/v1 prioritylevelconfigurations PriorityLevelConfiguration csg
networking.k8s.io/v1 ingressclasses IngressClass cg
networking.k8s.io/v1 ingresses Ingress sg ing
networking.k8s.io/v1 ipaddresses IPAddress c ip
networking.k8s.io/v1 networkpolicies NetworkPolicy g netpol
networking.k8s.io/v1 servicecidrs ServiceCIDR cs
node.k8s.io/v1 runtimeclasses RuntimeClass c
policy/v1 poddisruptionbudgets PodDisruptionBudget sg pdb
rbac.authorization.k8s.io/v1 clusterrolebindings ClusterRoleBinding c
rbac.authorization.k8s.io/v1 clusterroles ClusterRole c
rbac.authorization.k8s.io/v1 rolebindings RoleBinding -
rbac.authorization.k8s.io/v1 roles Role -
resource.k8s.io/v1 deviceclasses DeviceClass cg
resource.k8s.io/v1 resourceclaims ResourceClaim s
resource.k8s.io/v1 resourceclaimtemplates ResourceClaimTemplate -
resource.k8s.io/v1 resourceslices ResourceSlice cg
scheduling.k8s.io/v1 priorityclasses PriorityClass cg pc
storage.k8s.io/v1 csidrivers CSIDriver c
storage.k8s.io/v1 csinodes CSINode c
storage.k8s.io/v1 csistoragecapacities CSIStorageCapacity -
storage.k8s.io/v1 storageclasses StorageClass c sc
storage.k8s.io/v1 volumeattachments VolumeAttachment cs
storage.k8s.io/v1 volumeattributesclasses VolumeAttributesClass c vac
"""  # noqa: E501 - one resource a line
OPTIONAL = """
certificates.k8s.io/v1beta1 clustertrustbundles ClusterTrustBundle c
certificates.k8s.io/v1beta1 podcertificaterequests PodCertificateRequest s
coordination.k8s.io/v1beta1 leasecandidates LeaseCandidate -
internal.apiserver.k8s.io/v1alpha1 storageversions StorageVersion cs
resource.k8s.io/v1beta2 devicetaintrules DeviceTaintRule csg
resource.k8s.io/v1alpha3 resourcepoolstatusrequests ResourcePoolStatusRequest cs
scheduling.k8s.io/v1alpha2 podgroups PodGroup s
scheduling.k8s.io/v1alpha2 workloads Workload -
storagemigration.k8s.io/v1beta1 storageversionmigrations StorageVersionMigration cs
"""
"""Built-in resources that a server has only where they were turned on."""
CATEGORIES = {"a": "all", "x": "api-extensions"}
FIELDS = {
    "pods": POD_FIELDS,
    "events": EVENT_FIELDS,
    "namespaces": ("status.phase",),
    "nodes": ("spec.unschedulable",),
    "secrets": ("type",),
    "services": ("spec.clusterIP", "spec.type"),
    "replicationcontrollers": ("status.replicas",),
    "jobs.batch": ("status.successful",),
    "certificatesigningrequests.certificates.k8s.io": ("spec.signerName",),
    "events.events.k8s.io": EVENTS_FIELDS,
    "resourceslices.resource.k8s.io": ("spec.nodeName", "spec.driver"),
}
WARNINGS = {"endpoints": ENDPOINTS_WARNING}
VERBS = {"namespaces": tuple(verb for verb in ALL_VERBS if verb != "deletecollection")}


def builtin() -> list[Kind]:
    """The resources of a server to which nothing was added."""
    return [_row(line.split()) for line in TABLE.strip().splitlines()]


def optional() -> list[Kind]:
    """The resources that a server has only where they were turned on."""
    return [_row(line.split()) for line in OPTIONAL.strip().splitlines()]


def _row(cells: list[str]) -> Kind:
    api_version, resource, kind, letters, *short = cells
    group, _, version = api_version.rpartition("/")
    key = f"{resource}.{group}" if group else resource
    return Kind(
        group=group,
        version=version,
        resource=resource,
        kind=kind,
        singular=kind.lower(),
        namespaced="c" not in letters,
        status="s" in letters,
        generation="g" in letters,
        categories=tuple(CATEGORIES[letter] for letter in letters if letter in CATEGORIES),
        short_names=tuple(short[0].split(",")) if short else (),
        fields=FIELDS.get(key, ()),
        made=MADE.get(key, {}),
        warning=WARNINGS.get(key, ""),
        zero=ZEROS.get(key, {}),
        verbs=VERBS.get(key, ALL_VERBS),
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
