"""The content of an empty object of each built-in resource, without its metadata.

Bookmarks carry such an object: fields that are required, or structures, are there even when empty.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_TEMPLATE: dict[str, Any] = {"metadata": {}, "spec": {"containers": None}}

ZEROS: dict[str, dict[str, Any]] = {
    "events": {
        "involvedObject": {},
        "source": {},
        "reportingComponent": "",
        "reportingInstance": "",
    },
    "limitranges": {"spec": {"limits": None}},
    "namespaces": {"spec": {}, "status": {}},
    "nodes": {
        "spec": {},
        "status": {
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 0}},
            "nodeInfo": {
                "machineID": "",
                "systemUUID": "",
                "bootID": "",
                "kernelVersion": "",
                "osImage": "",
                "containerRuntimeVersion": "",
                "kubeletVersion": "",
                "kubeProxyVersion": "",
                "operatingSystem": "",
                "architecture": "",
            },
        },
    },
    "persistentvolumeclaims": {"spec": {"resources": {}}, "status": {}},
    "persistentvolumes": {"spec": {}, "status": {}},
    "pods": {"spec": {"containers": None}, "status": {}},
    "podtemplates": {"template": _TEMPLATE},
    "replicationcontrollers": {"spec": {}, "status": {"replicas": 0}},
    "resourcequotas": {"spec": {}, "status": {}},
    "services": {"spec": {}, "status": {"loadBalancer": {}}},
    "mutatingadmissionpolicies.admissionregistration.k8s.io": {"spec": {}},
    "mutatingadmissionpolicybindings.admissionregistration.k8s.io": {"spec": {}},
    "validatingadmissionpolicies.admissionregistration.k8s.io": {"spec": {}, "status": {}},
    "validatingadmissionpolicybindings.admissionregistration.k8s.io": {"spec": {}},
    "customresourcedefinitions.apiextensions.k8s.io": {
        "spec": {"group": "", "names": {"plural": "", "kind": ""}, "scope": "", "versions": None},
        "status": {
            "conditions": None,
            "acceptedNames": {"plural": "", "kind": ""},
            "storedVersions": None,
        },
    },
    "apiservices.apiregistration.k8s.io": {
        "spec": {"groupPriorityMinimum": 0, "versionPriority": 0},
        "status": {},
    },
    "controllerrevisions.apps": {"revision": 0},
    "daemonsets.apps": {
        "spec": {"selector": None, "template": _TEMPLATE, "updateStrategy": {}},
        "status": {
            "currentNumberScheduled": 0,
            "numberMisscheduled": 0,
            "desiredNumberScheduled": 0,
            "numberReady": 0,
        },
    },
    "deployments.apps": {
        "spec": {"replicas": 0, "selector": None, "template": _TEMPLATE, "strategy": {}},
        "status": {},
    },
    "replicasets.apps": {
        "spec": {"replicas": 0, "selector": None, "template": _TEMPLATE},
        "status": {"replicas": 0},
    },
    "statefulsets.apps": {
        "spec": {
            "replicas": 0,
            "selector": None,
            "template": _TEMPLATE,
            "serviceName": "",
            "updateStrategy": {},
        },
        "status": {"replicas": 0, "availableReplicas": 0},
    },
    "horizontalpodautoscalers.autoscaling": {
        "spec": {"scaleTargetRef": {"kind": "", "name": ""}, "maxReplicas": 0},
        "status": {"desiredReplicas": 0, "currentMetrics": None},
    },
    "cronjobs.batch": {
        "spec": {"schedule": "", "jobTemplate": {"metadata": {}, "spec": {"template": _TEMPLATE}}},
        "status": {},
    },
    "jobs.batch": {"spec": {"template": _TEMPLATE}, "status": {}},
    "certificatesigningrequests.certificates.k8s.io": {
        "spec": {"request": None, "signerName": ""},
        "status": {},
    },
    "clustertrustbundles.certificates.k8s.io": {"spec": {"trustBundle": ""}},
    "podcertificaterequests.certificates.k8s.io": {
        "spec": {
            "signerName": "",
            "podName": "",
            "podUID": "",
            "serviceAccountName": "",
            "serviceAccountUID": "",
            "nodeName": "",
            "nodeUID": "",
            "pkixPublicKey": None,
            "proofOfPossession": None,
            "stubPKCS10Request": None,
        },
        "status": {},
    },
    "leasecandidates.coordination.k8s.io": {
        "spec": {"leaseName": "", "binaryVersion": "", "strategy": ""}
    },
    "leases.coordination.k8s.io": {"spec": {}},
    "endpointslices.discovery.k8s.io": {"addressType": "", "endpoints": None, "ports": None},
    "events.events.k8s.io": {"eventTime": None, "regarding": {}, "deprecatedSource": {}},
    "flowschemas.flowcontrol.apiserver.k8s.io": {
        "spec": {"priorityLevelConfiguration": {"name": ""}, "matchingPrecedence": 0},
        "status": {},
    },
    "prioritylevelconfigurations.flowcontrol.apiserver.k8s.io": {
        "spec": {"type": ""},
        "status": {},
    },
    "storageversions.internal.apiserver.k8s.io": {"spec": {}, "status": {}},
    "ingressclasses.networking.k8s.io": {"spec": {}},
    "ingresses.networking.k8s.io": {"spec": {}, "status": {"loadBalancer": {}}},
    "ipaddresses.networking.k8s.io": {"spec": {}},
    "networkpolicies.networking.k8s.io": {"spec": {"podSelector": {}}},
    "servicecidrs.networking.k8s.io": {"spec": {}, "status": {}},
    "runtimeclasses.node.k8s.io": {"handler": ""},
    "poddisruptionbudgets.policy": {
        "spec": {},
        "status": {
            "disruptionsAllowed": 0,
            "currentHealthy": 0,
            "desiredHealthy": 0,
            "expectedPods": 0,
        },
    },
    "clusterrolebindings.rbac.authorization.k8s.io": {
        "roleRef": {"apiGroup": "", "kind": "", "name": ""}
    },
    "clusterroles.rbac.authorization.k8s.io": {"rules": None},
    "rolebindings.rbac.authorization.k8s.io": {"roleRef": {"apiGroup": "", "kind": "", "name": ""}},
    "roles.rbac.authorization.k8s.io": {"rules": None},
    "deviceclasses.resource.k8s.io": {"spec": {}},
    "devicetaintrules.resource.k8s.io": {
        "spec": {"taint": {"key": "", "effect": ""}},
        "status": {},
    },
    "resourceclaims.resource.k8s.io": {"spec": {"devices": {"requests": None}}, "status": {}},
    "resourceclaimtemplates.resource.k8s.io": {
        "spec": {"metadata": {}, "spec": {"devices": {"requests": None}}}
    },
    "resourcepoolstatusrequests.resource.k8s.io": {"spec": {"driver": ""}},
    "resourceslices.resource.k8s.io": {
        "spec": {"driver": "", "pool": {"name": "", "generation": 0, "resourceSliceCount": 0}}
    },
    "podgroups.scheduling.k8s.io": {
        "spec": {"podGroupTemplateRef": None, "schedulingPolicy": {}},
        "status": {},
    },
    "priorityclasses.scheduling.k8s.io": {"value": 0},
    "workloads.scheduling.k8s.io": {"spec": {"podGroupTemplates": None}},
    "csidrivers.storage.k8s.io": {"spec": {}},
    "csinodes.storage.k8s.io": {"spec": {"drivers": None}},
    "csistoragecapacities.storage.k8s.io": {"storageClassName": ""},
    "storageclasses.storage.k8s.io": {"provisioner": ""},
    "volumeattachments.storage.k8s.io": {
        "spec": {"attacher": "", "source": {}, "nodeName": ""},
        "status": {"attached": False},
    },
    "volumeattributesclasses.storage.k8s.io": {"driverName": ""},
    "storageversionmigrations.storagemigration.k8s.io": {
        "spec": {"resource": {"group": "", "resource": ""}},
        "status": {},
    },
}
"""By keys; resources that are left out have nothing but metadata."""
