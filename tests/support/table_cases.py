"""Objects of each built-in kind, with the cells that a server of 1.36 prints of them."""

from __future__ import annotations

import datetime as dt
from typing import Any

Object = dict[str, Any]
NOW = dt.datetime(2026, 11, 19, 12, tzinfo=dt.UTC)


def ago(**units: int) -> str:
    """A time so long ago, as objects have it."""
    return (NOW - dt.timedelta(**units)).isoformat().replace("+00:00", "Z")


LABELS = {"matchLabels": {"tier": "web", "app": "a"}}
TERMS = {
    "matchLabels": {"m": "1"},
    "matchExpressions": [
        {"key": "z", "operator": "Exists"},
        {"key": "b", "operator": "NotIn", "values": ["y", "x"]},
        {"key": "c", "operator": "In", "values": ["q"]},
        {"key": "n", "operator": "DoesNotExist"},
    ],
}
TEMPLATE = {
    "spec": {
        "containers": [{"name": "c", "image": "i:1"}, {"name": "d", "image": "j"}],
        "nodeSelector": {"disk": "ssd", "arch": "arm"},
    }
}


def condition(kind: str, status: str = "True", **more: str) -> Object:
    return {"type": kind, "status": status, **more}


def rules(*hosts: str) -> list[Object]:
    return [{"host": host} if host else {} for host in hosts]


def owned(*owners: Object) -> Object:
    return {"metadata": {"name": "one", "ownerReferences": list(owners)}}


ENDED = {"metadata": {"name": "one", "deletionTimestamp": "2026-01-01T00:00:00Z"}}
CASES: list[tuple[str, Object, Object]] = [
    ("configmaps", {"data": {"a": "1", "b": "2"}, "binaryData": {"c": ""}}, {"Data": 3}),
    ("secrets", {"type": "Opaque", "data": {"a": "1", "b": ""}}, {"Type": "Opaque", "Data": 2}),
    ("endpoints", {}, {"Endpoints": "<none>"}),
    ("endpoints", {"subsets": [{"notReadyAddresses": [{"ip": "1"}]}]}, {"Endpoints": ""}),
    (
        "endpoints",
        {"subsets": [{"addresses": [{"ip": "1"}, {"ip": "2"}]}, {"addresses": [{"ip": "3"}]}]},
        {"Endpoints": "1,2,3"},
    ),
    (
        "endpoints",
        {
            "subsets": [
                {"addresses": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}],
                 "ports": [{"port": 80}, {"port": 81}]}
            ]
        },
        {"Endpoints": "10.0.0.1:80,[fd00::1]:80,10.0.0.1:81 + 1 more..."},
    ),
    ("namespaces", {"status": {"phase": "Active"}}, {"Status": "Active"}),
    # events
    (
        "events",
        {
            "type": "Normal", "reason": "Pulled", "message": " two\nlines \n", "count": 4,
            "involvedObject": {"kind": "Pod", "name": "web-0", "fieldPath": "spec.containers{c}"},
            "source": {"component": "kubelet", "host": "n-1"},
            "firstTimestamp": ago(hours=2), "lastTimestamp": ago(seconds=30),
            "eventTime": ago(days=9),
        },
        {
            "Last Seen": "30s", "Type": "Normal", "Reason": "Pulled", "Object": "pod/web-0",
            "Subobject": "spec.containers{c}", "Source": "kubelet, n-1",
            "Message": "two\nlines", "First Seen": "120m", "Count": 4, "Name": "one",
        },
    ),
    (
        "events",
        {
            "involvedObject": {"kind": "Node"}, "reportingComponent": "r", "eventTime": ago(days=3),
            "series": {"count": 7, "lastObservedTime": ago(seconds=10)},
        },
        {"Last Seen": "10s", "Object": "node", "Source": "r", "First Seen": "3d", "Count": 7},
    ),
    (
        "events",
        {"eventTime": ago(days=3), "reportingInstance": "h", "source": {"component": "c"}},
        {"Last Seen": "3d", "First Seen": "3d", "Count": 1, "Source": "c, h"},
    ),
    ("events", {"firstTimestamp": ago(minutes=3)}, {"Last Seen": "3m", "First Seen": "3m"}),
    ("events", {"series": {}, "firstTimestamp": ago(hours=9)},
     {"Last Seen": "<unknown>", "First Seen": "9h", "Count": 0}),
    (
        "events.events.k8s.io",
        {
            "note": "hello", "regarding": {"kind": "Job", "name": "j", "fieldPath": "f"},
            "deprecatedSource": {"component": "c"}, "reportingController": "r",
            "reportingInstance": "i", "deprecatedCount": 3,
            "deprecatedFirstTimestamp": ago(hours=4), "deprecatedLastTimestamp": ago(hours=3),
        },
        {
            "Message": "hello", "Object": "job/j", "Subobject": "f", "Source": "c, i", "Count": 3,
            "First Seen": "4h", "Last Seen": "3h",
        },
    ),
    # nodes
    ("nodes", {}, {"Status": "Unknown", "Roles": "<none>", "Kernel-Version": "<unknown>"}),
    (
        "nodes",
        {
            "metadata": {"name": "one", "labels": {
                "node-role.kubernetes.io/worker": "", "node-role.kubernetes.io/control-plane": "",
                "node-role.kubernetes.io/": "", "kubernetes.io/role": "edge", "other": "x"}},
            "spec": {"unschedulable": True},
            "status": {
                "conditions": [condition("DiskPressure"), condition("Ready", "Unknown")],
                "addresses": [
                    {"type": "Hostname", "address": "h"},
                    {"type": "ExternalIP", "address": "5.6.7.8"},
                    {"type": "InternalIP", "address": "10.0.0.1"},
                    {"type": "InternalIP", "address": "fd00::1"},
                ],
                "nodeInfo": {"kubeletVersion": "v1.36.4", "kernelVersion": "6.1",
                             "architecture": "arm64", "osImage": "Debian",
                             "containerRuntimeVersion": "containerd://2"},
            },
        },
        {
            "Status": "NotReady,SchedulingDisabled", "Roles": "control-plane,edge,worker",
            "Version": "v1.36.4", "Internal-IP": "10.0.0.1", "External-IP": "5.6.7.8",
            "OS-Image": "Debian", "Kernel-Version": "6.1 (arm64)",
            "Container-Runtime": "containerd://2",
        },
    ),
    ("nodes", {"status": {"conditions": [condition("Ready")]}}, {"Status": "Ready"}),
    # services
    (
        "services",
        {"spec": {"type": "ClusterIP", "clusterIPs": ["10.0.0.1", "fd00::1"], "externalIPs": ["9"],
                  "clusterIP": "10.0.0.1", "selector": {"b": "2", "a": "1"},
                  "ports": [{"port": 80, "protocol": "TCP"}, {"port": 53, "protocol": "UDP"}]}},
        {"Type": "ClusterIP", "Cluster-IP": "10.0.0.1", "External-IP": "9",
         "Port(s)": "80/TCP,53/UDP", "Selector": "a=1,b=2"},
    ),
    (
        "services",
        {"spec": {"type": "LoadBalancer", "clusterIP": "None", "externalIPs": ["1"],
                  "ports": [{"port": 80, "nodePort": 30080}]},
         "status": {"loadBalancer": {"ingress": [
             {"hostname": "z"}, {"ip": "9"}, {"ip": "9"}, {}]}}},
        {"Cluster-IP": "None", "External-IP": "9,z,1", "Port(s)": "80:30080/TCP"},
    ),
    ("services", {"spec": {"type": "LoadBalancer"}}, {"External-IP": "<pending>"}),
    ("services", {"spec": {"type": "NodePort"}}, {"External-IP": "<none>", "Port(s)": "<none>"}),
    ("services", {"spec": {"type": "ExternalName", "externalName": "x.org"}},
     {"External-IP": "x.org", "Cluster-IP": "<none>"}),
    ("services", {"spec": {"type": "Odd", "externalIPs": ["1"]}}, {"External-IP": "<unknown>"}),
    # volumes
    (
        "persistentvolumes",
        {"spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce", "ReadOnlyMany"],
                  "persistentVolumeReclaimPolicy": "Retain", "storageClassName": "fast",
                  "claimRef": {"namespace": "n", "name": "c"}, "volumeMode": "Block",
                  "volumeAttributesClassName": "gold"},
         "status": {"phase": "Bound", "reason": "because"}},
        {"Capacity": "1Gi", "Access Modes": "RWO,ROX", "Reclaim Policy": "Retain",
         "Status": "Bound", "Claim": "n/c", "StorageClass": "fast", "Reason": "because",
         "VolumeAttributesClass": "gold", "VolumeMode": "Block"},
    ),
    ("persistentvolumes", ENDED | {"status": {"phase": "Released"}},
     {"Status": "Terminating", "Capacity": "0", "Claim": "", "VolumeMode": "<unset>"}),
    (
        "persistentvolumeclaims",
        {
            "metadata": {"annotations": {"volume.beta.kubernetes.io/storage-class": "old"}},
            "spec": {"volumeName": "v", "storageClassName": "new"},
            "status": {"phase": "Bound", "capacity": {"storage": "2Gi"},
                       "accessModes": ["ReadWriteMany", "ReadWriteOncePod"]}},
        {"Status": "Bound", "Volume": "v", "Capacity": "2Gi", "Access Modes": "RWX,RWOP",
         "StorageClass": "old", "VolumeAttributesClass": "<unset>"},
    ),
    ("persistentvolumeclaims", {"status": {"phase": "Pending", "capacity": {"storage": "2Gi"},
                                           "accessModes": ["ReadWriteMany"]}},
     {"Status": "Pending", "Volume": "", "Capacity": "", "Access Modes": ""}),
    ("persistentvolumeclaims", {"spec": {"volumeName": "v"}}, {"Capacity": "0"}),
    # the rest of the core group
    ("podtemplates", {"template": {"metadata": {"labels": {"b": "2", "a": "1"}}} | TEMPLATE},
     {"Containers": "c,d", "Images": "i:1,j", "Pod Labels": "a=1,b=2"}),
    (
        "replicationcontrollers",
        {"spec": {"replicas": 3, "selector": {"a": "b"}, "template": TEMPLATE},
         "status": {"replicas": 2, "readyReplicas": 1}},
        {"Desired": 3, "Current": 2, "Ready": 1, "Containers": "c,d", "Images": "i:1,j",
         "Selector": "a=b"},
    ),
    (
        "resourcequotas",
        {"status": {"hard": {"limits.cpu": "4", "requests.cpu": "2", "pods": "9", "limits": "1"},
                    "used": {"pods": "3", "limits.cpu": "1"}}},
        {"Request": "limits: 0/1, pods: 3/9, requests.cpu: 0/2", "Limit": "limits.cpu: 1/4"},
    ),
    ("limitranges", {"metadata": {"name": "one", "creationTimestamp": "2026-01-02T03:04:05Z"}},
     {"Created At": "2026-01-02T03:04:05Z"}),
    # apps
    (
        "controllerrevisions.apps",
        {"revision": 4} | owned({"apiVersion": "v1", "kind": "X", "name": "x"}, {
            "apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "controller": True}),
        {"Controller": "daemonset.apps/d", "Revision": 4},
    ),
    ("controllerrevisions.apps", owned({"apiVersion": "v1", "kind": "Y", "name": "y",
                                        "controller": True}), {"Controller": "y/y"}),
    (
        "daemonsets.apps",
        {"spec": {"selector": TERMS, "template": TEMPLATE},
         "status": {"desiredNumberScheduled": 5, "currentNumberScheduled": 4, "numberReady": 3,
                    "updatedNumberScheduled": 2, "numberAvailable": 1}},
        {"Desired": 5, "Current": 4, "Ready": 3, "Up-to-date": 2, "Available": 1,
         "Node Selector": "arch=arm,disk=ssd", "Containers": "c,d",
         "Selector": "b notin (x,y),c in (q),m=1,!n,z"},
    ),
    (
        "deployments.apps",
        {"spec": {"replicas": 3, "selector": LABELS, "template": TEMPLATE},
         "status": {"readyReplicas": 2, "updatedReplicas": 1, "availableReplicas": 4}},
        {"Ready": "2/3", "Up-to-date": 1, "Available": 4, "Images": "i:1,j",
         "Selector": "app=a,tier=web"},
    ),
    ("deployments.apps", {"spec": {"selector": {}}}, {"Ready": "0/0", "Selector": ""}),
    ("replicasets.apps", {"spec": {"replicas": 3, "selector": {}},
                          "status": {"replicas": 2, "readyReplicas": 1}},
     {"Desired": 3, "Current": 2, "Ready": 1, "Selector": "<none>"}),
    ("statefulsets.apps", {"spec": {"replicas": 3, "template": TEMPLATE},
                           "status": {"readyReplicas": 1}},
     {"Ready": "1/3", "Containers": "c,d", "Images": "i:1,j"}),
    # batch
    ("jobs.batch", {"status": {"succeeded": 2}, "spec": {"completions": 5, "parallelism": 3}},
     {"Status": "Running", "Completions": "2/5", "Duration": ""}),
    ("jobs.batch", {"status": {"succeeded": 2}, "spec": {"parallelism": 2}},
     {"Completions": "2/1 of 2"}),
    ("jobs.batch", {"spec": {"parallelism": 1}}, {"Completions": "0/1"}),
    ("jobs.batch", {"spec": {"completions": 0}}, {"Completions": "0/0"}),
    ("jobs.batch", {"status": {"conditions": [
        condition("SuccessCriteriaMet"), condition("Suspended", "False"), condition("Complete")]}},
     {"Status": "Complete"}),
    ("jobs.batch", {"status": {"conditions": [condition("FailureTarget"), condition("Failed")]}},
     {"Status": "Failed"}),
    ("jobs.batch", ENDED | {"status": {"conditions": [condition("Suspended")]}},
     {"Status": "Terminating"}),
    ("jobs.batch", ENDED | {"status": {"conditions": [condition("Failed")]}}, {"Status": "Failed"}),
    ("jobs.batch", {"status": {"conditions": [condition("FailureTarget"), condition("Suspended")]}},
     {"Status": "Suspended"}),
    ("jobs.batch", {"status": {"conditions": [
        condition("SuccessCriteriaMet"), condition("FailureTarget")]}},
     {"Status": "FailureTarget"}),
    ("jobs.batch", {"spec": {"selector": LABELS, "template": TEMPLATE}, "status": {
        "startTime": "2026-01-01T00:00:00Z", "completionTime": "2026-01-01T00:03:10Z"}},
     {"Duration": "3m10s", "Containers": "c,d", "Selector": "app=a,tier=web"}),
    ("jobs.batch", {"status": {"startTime": ago(minutes=4)}}, {"Duration": "4m"}),
    (
        "cronjobs.batch",
        {"spec": {"schedule": "* * * * *", "timeZone": "Etc/UTC", "suspend": False,
                  "jobTemplate": {"spec": {"template": TEMPLATE, "selector": LABELS}}},
         "status": {"active": [{}, {}], "lastScheduleTime": ago(minutes=3)}},
        {"Schedule": "* * * * *", "Timezone": "Etc/UTC", "Suspend": "False", "Active": 2,
         "Last Schedule": "3m", "Containers": "c,d", "Selector": "app=a,tier=web"},
    ),
    ("cronjobs.batch", {"spec": {"suspend": True}},
     {"Timezone": "<none>", "Suspend": "True", "Last Schedule": "<none>", "Selector": "<none>"}),
    ("cronjobs.batch", {}, {"Suspend": "<unset>", "Active": 0}),
    # autoscaling
    (
        "horizontalpodautoscalers.autoscaling",
        {
            "spec": {"minReplicas": 2, "maxReplicas": 9,
                     "scaleTargetRef": {"kind": "Deployment", "name": "web"},
                     "metrics": [
                         {"type": "Resource", "resource": {
                             "name": "cpu", "target": {"averageUtilization": 80}}},
                         {"type": "External", "external": {"target": {"averageValue": "5"}}}]},
            "status": {"currentReplicas": 3, "currentMetrics": [
                {"type": "Resource", "resource": {"current": {"averageUtilization": 41}}},
                {"type": "External", "external": {"current": {"averageValue": "4"}}}]},
        },
        {"Reference": "Deployment/web", "Targets": "cpu: 41%/80%, 4/5 (avg)", "MinPods": "2",
         "MaxPods": 9, "Replicas": 3},
    ),
    (
        "horizontalpodautoscalers.autoscaling",
        {"spec": {"metrics": [
            {"type": "ContainerResource", "containerResource": {"name": "memory", "target": {}}},
            {"type": "Object", "object": {"target": {"value": "2k"}}},
            {"type": "Odd"}]}},
        {"Targets": "memory: <unknown>/<auto>, <unknown>/2k + 1 more...", "MinPods": "<unset>"},
    ),
    (
        "horizontalpodautoscalers.autoscaling",
        {"spec": {"metrics": [
            {"type": "Odd"},
            {"type": "Resource", "resource": {"name": "cpu", "target": {"averageValue": "1"}}}]}},
        {"Targets": "<unknown type>, cpu: <unknown>/1"},
    ),
    ("horizontalpodautoscalers.autoscaling",
     {"spec": {"metrics": [{"type": "Pods", "pods": {"target": {"averageValue": "30"}}}]}},
     {"Targets": "<unknown>/30"}),
    ("horizontalpodautoscalers.autoscaling", {}, {"Targets": "<none>", "Reference": "/"}),
    # policy, scheduling
    ("poddisruptionbudgets.policy", {"spec": {"minAvailable": 0, "maxUnavailable": "25%"},
                                     "status": {"disruptionsAllowed": 2}},
     {"Min Available": "0", "Max Unavailable": "25%", "Allowed Disruptions": 2}),
    ("poddisruptionbudgets.policy", {}, {"Min Available": "N/A", "Max Unavailable": "N/A"}),
    ("priorityclasses.scheduling.k8s.io",
     {"value": 7, "globalDefault": True, "preemptionPolicy": "Never"},
     {"Value": 7, "Global-Default": True, "PreemptionPolicy": "Never"}),
    ("podgroups.scheduling.k8s.io",
     {"spec": {"schedulingPolicy": {"gang": {}},
               "podGroupTemplateRef": {"workload": {"workloadName": "w"}}},
      "status": {"conditions": [condition("PodGroupScheduled", "False")]}},
     {"Policy": "Gang", "Workload": "w", "Status": "Unschedulable"}),
    ("podgroups.scheduling.k8s.io",
     {"status": {"conditions": [condition("DisruptionTarget", "False", reason="Preempted"),
                                condition("PodGroupScheduled")]}},
     {"Policy": "Basic", "Workload": "<none>", "Status": "Preempted"}),
    ("podgroups.scheduling.k8s.io",
     {"status": {"conditions": [condition("PodGroupScheduled")]}}, {"Status": "Scheduled"}),
    ("podgroups.scheduling.k8s.io", {}, {"Status": "Pending"}),
    # networking, discovery
    ("ingresses.networking.k8s.io",
     {"spec": {"ingressClassName": "nginx", "rules": rules("a", "b", "c"), "tls": [{}]},
      "status": {"loadBalancer": {"ingress": [{"hostname": "z"}, {"ip": "1"}, {"ip": "1"}]}}},
     {"Class": "nginx", "Hosts": "a,b,c", "Address": "1,z", "Ports": "80, 443"}),
    ("ingresses.networking.k8s.io", {"spec": {"rules": rules("a", "b", "c", "")}},
     {"Hosts": "a,b,c + 1 more...", "Address": "", "Ports": "80", "Class": "<none>"}),
    ("ingresses.networking.k8s.io", {"spec": {"rules": rules("", "a", "b", "c", "d")}},
     {"Hosts": "a,b,c + 2 more..."}),
    ("ingresses.networking.k8s.io", {"spec": {"rules": rules("", "")}}, {"Hosts": "*"}),
    ("ingressclasses.networking.k8s.io",
     {
         "metadata": {"name": "one",
                      "annotations": {"ingressclass.kubernetes.io/is-default-class": "true"}},
         "spec": {"controller": "c/i",
                  "parameters": {"kind": "P", "apiGroup": "g", "name": "n"}}},
     {"Name": "one (default)", "Controller": "c/i", "Parameters": "P.g/n"}),
    ("ingressclasses.networking.k8s.io", {"spec": {"parameters": {"kind": "P", "name": "n"}}},
     {"Name": "one", "Parameters": "P/n"}),
    ("ipaddresses.networking.k8s.io",
     {"spec": {"parentRef": {"resource": "services", "namespace": "n", "name": "s"}}},
     {"ParentRef": "services/n/s"}),
    ("ipaddresses.networking.k8s.io",
     {"spec": {"parentRef": {"group": "g.io", "resource": "Things", "name": "s"}}},
     {"ParentRef": "things.g.io/s"}),
    ("ipaddresses.networking.k8s.io", {}, {"ParentRef": "<none>"}),
    ("networkpolicies.networking.k8s.io", {"spec": {"podSelector": TERMS}},
     {"Pod-Selector": "b notin (x,y),c in (q),m=1,!n,z"}),
    ("networkpolicies.networking.k8s.io", {"spec": {"podSelector": {}}},
     {"Pod-Selector": "<none>"}),
    ("servicecidrs.networking.k8s.io", {"spec": {"cidrs": ["10.0.0.0/8", "fd00::/8"]}},
     {"CIDRs": "10.0.0.0/8,fd00::/8"}),
    ("endpointslices.discovery.k8s.io",
     {"addressType": "IPv4", "ports": [{"port": 80}, {"name": "web"}, {}],
      "endpoints": [{"addresses": ["1", "2"]}, {"addresses": ["3", "4"]}]},
     {"AddressType": "IPv4", "Ports": "80,web,*", "Endpoints": "1,2,3 + 1 more..."}),
    ("endpointslices.discovery.k8s.io", {"ports": [{}, {}, {}, {}], "endpoints": []},
     {"Ports": "*,*,* + 1 more...", "Endpoints": "<unset>"}),
    # storage
    ("csidrivers.storage.k8s.io", {},
     {"AttachRequired": True, "PodInfoOnMount": False, "StorageCapacity": False,
      "TokenRequests": "<unset>", "RequiresRepublish": False, "Modes": "<none>"}),
    ("csidrivers.storage.k8s.io",
     {"spec": {"attachRequired": False, "podInfoOnMount": True, "storageCapacity": True,
               "requiresRepublish": True, "tokenRequests": [{"audience": "a"}, {"audience": "b"}],
               "volumeLifecycleModes": ["Persistent", "Ephemeral"]}},
     {"AttachRequired": False, "PodInfoOnMount": True, "StorageCapacity": True,
      "TokenRequests": "a,b", "RequiresRepublish": True, "Modes": "Persistent,Ephemeral"}),
    ("csinodes.storage.k8s.io", {"spec": {"drivers": [{}, {}]}}, {"Drivers": 2}),
    ("storageclasses.storage.k8s.io",
     {"metadata": {"name": "one",
                   "annotations": {"storageclass.beta.kubernetes.io/is-default-class": "true"}},
      "provisioner": "p", "reclaimPolicy": "Retain", "allowVolumeExpansion": True,
      "volumeBindingMode": "WaitForFirstConsumer"},
     {"Name": "one (default)", "Provisioner": "p", "ReclaimPolicy": "Retain",
      "VolumeBindingMode": "WaitForFirstConsumer", "AllowVolumeExpansion": True}),
    ("storageclasses.storage.k8s.io",
     {"metadata": {"name": "one",
                   "annotations": {"storageclass.kubernetes.io/is-default-class": "false"}}},
     {"Name": "one", "ReclaimPolicy": "Delete", "VolumeBindingMode": "Immediate",
      "AllowVolumeExpansion": False}),
    ("volumeattachments.storage.k8s.io",
     {"spec": {"attacher": "a", "nodeName": "n", "source": {"persistentVolumeName": "v"}},
      "status": {"attached": True}},
     {"Attacher": "a", "PV": "v", "Node": "n", "Attached": True}),
    ("volumeattributesclasses.storage.k8s.io", {"driverName": "d"}, {"DriverName": "d"}),
    ("storageversionmigrations.storagemigration.k8s.io",
     {"spec": {"resource": {"group": "apps", "resource": "deployments"}},
      "status": {"conditions": [condition("Running"), condition("Succeeded"),
                                condition("Failed", "False"), condition("Other")]}},
     {"Resource": "deployments.apps", "Status": "Succeeded"}),
    ("storageversionmigrations.storagemigration.k8s.io",
     {"spec": {"resource": {"group": "", "resource": "pods"}}},
     {"Resource": "pods", "Status": "Unknown"}),
    # rights
    ("rolebindings.rbac.authorization.k8s.io",
     {"roleRef": {"kind": "Role", "name": "r"}, "subjects": [
         {"kind": "User", "name": "ann"}, {"kind": "Group", "name": "dev"},
         {"kind": "User", "name": "b"}, {"kind": "ServiceAccount", "namespace": "x", "name": "s"}]},
     {"Role": "Role/r", "Users": "ann, b", "Groups": "dev", "ServiceAccounts": "x/s"}),
    ("certificatesigningrequests.certificates.k8s.io",
     {"spec": {"signerName": "s", "username": "u", "expirationSeconds": 86400},
      "status": {"certificate": "abc",
                 "conditions": [condition("Approved"), condition("Failed")]}},
     {"SignerName": "s", "Requestor": "u", "RequestedDuration": "24h",
      "Condition": "Approved,Failed,Issued"}),
    ("certificatesigningrequests.certificates.k8s.io",
     {"status": {"conditions": [condition("Approved"), condition("Denied")]}},
     {"Condition": "Denied", "SignerName": "<none>", "RequestedDuration": "<none>"}),
    ("certificatesigningrequests.certificates.k8s.io", {}, {"Condition": "Pending"}),
    ("clustertrustbundles.certificates.k8s.io", {}, {"SignerName": "<none>"}),
    ("podcertificaterequests.certificates.k8s.io",
     {"spec": {"podName": "p", "serviceAccountName": "a", "nodeName": "n", "signerName": "s",
               "unverifiedUserAnnotations": {"k": "v"}},
      "status": {"conditions": [condition("Issued"), condition("Other")]}},
     {"PodName": "p", "ServiceAccountName": "a", "NodeName": "n", "SignerName": "s",
      "State": "Issued", "UnverifiedUserAnnotations": "k=v"}),
    ("podcertificaterequests.certificates.k8s.io", {}, {"State": "Pending"}),
    # extensions
    ("mutatingwebhookconfigurations.admissionregistration.k8s.io", {"webhooks": [{}, {}]},
     {"Webhooks": 2}),
    ("validatingadmissionpolicies.admissionregistration.k8s.io",
     {"spec": {"validations": [{}, {}], "paramKind": {"apiVersion": "a/v1", "kind": "K"}}},
     {"Validations": 2, "ParamKind": "a/v1/K"}),
    ("mutatingadmissionpolicies.admissionregistration.k8s.io", {"spec": {"mutations": [{}]}},
     {"Mutations": 1, "ParamKind": "<unset>"}),
    ("validatingadmissionpolicybindings.admissionregistration.k8s.io",
     {"spec": {"policyName": "p", "paramRef": {"name": "n", "namespace": "x"}}},
     {"PolicyName": "p", "ParamRef": "x/n"}),
    ("mutatingadmissionpolicybindings.admissionregistration.k8s.io",
     {"spec": {"paramRef": {"name": "n"}}}, {"ParamRef": "*/n"}),
    ("mutatingadmissionpolicybindings.admissionregistration.k8s.io",
     {"spec": {"paramRef": {"selector": {
         "matchLabels": {"b": "2", "a": "1"},
         "matchExpressions": [{"key": "k", "operator": "In", "values": ["x", "y"]}]}}}},
     {"ParamRef": "&LabelSelector{MatchLabels:map[string]string{a: 1,b: 2,},"
                  "MatchExpressions:[]LabelSelectorRequirement{"
                  "LabelSelectorRequirement{Key:k,Operator:In,Values:[x y],},},}"}),
    ("mutatingadmissionpolicybindings.admissionregistration.k8s.io", {}, {"ParamRef": "<unset>"}),
    ("apiservices.apiregistration.k8s.io", {}, {"Service": "Local", "Available": "Unknown"}),
    ("apiservices.apiregistration.k8s.io",
     {"spec": {"service": {"namespace": "n", "name": "s"}},
      "status": {"conditions": [condition("Other"),
                                condition("Available", "False", reason="Missing")]}},
     {"Service": "n/s", "Available": "False (Missing)"}),
    ("apiservices.apiregistration.k8s.io",
     {"status": {"conditions": [condition("Available", reason="Passed")]}}, {"Available": "True"}),
    ("apiservices.apiregistration.k8s.io",
     {"status": {"conditions": [condition("Available", "Unknown")]}}, {"Available": "Unknown"}),
    # leases, flow control, devices
    ("leases.coordination.k8s.io", {"spec": {"holderIdentity": "h"}}, {"Holder": "h"}),
    ("leasecandidates.coordination.k8s.io",
     {"spec": {"leaseName": "l", "binaryVersion": "1.36", "emulationVersion": "1.35"}},
     {"LeaseName": "l", "BinaryVersion": "1.36", "EmulationVersion": "1.35"}),
    ("flowschemas.flowcontrol.apiserver.k8s.io",
     {"spec": {"priorityLevelConfiguration": {"name": "p"}, "matchingPrecedence": 9,
               "distinguisherMethod": {"type": "ByUser"}},
      "status": {"conditions": [condition("Dangling", "False")]}},
     {"PriorityLevel": "p", "MatchingPrecedence": 9, "DistinguisherMethod": "ByUser",
      "MissingPL": "False"}),
    ("flowschemas.flowcontrol.apiserver.k8s.io", {},
     {"DistinguisherMethod": "<none>", "MissingPL": "?"}),
    ("prioritylevelconfigurations.flowcontrol.apiserver.k8s.io", {"spec": {"type": "Exempt"}},
     {"Type": "Exempt", "NominalConcurrencyShares": "<none>", "Queues": "<none>",
      "HandSize": "<none>", "QueueLengthLimit": "<none>"}),
    ("prioritylevelconfigurations.flowcontrol.apiserver.k8s.io",
     {"spec": {"type": "Limited", "limited": {
         "nominalConcurrencyShares": 5,
         "limitResponse": {"queuing": {"queues": 64, "handSize": 6, "queueLengthLimit": 50}}}}},
     {"NominalConcurrencyShares": 5, "Queues": 64, "HandSize": 6, "QueueLengthLimit": 50}),
    ("prioritylevelconfigurations.flowcontrol.apiserver.k8s.io",
     {"spec": {"limited": {"nominalConcurrencyShares": 0, "limitResponse": {"type": "Reject"}}}},
     {"NominalConcurrencyShares": 0, "Queues": "<none>"}),
    ("storageversions.internal.apiserver.k8s.io",
     {"status": {"commonEncodingVersion": "v1", "storageVersions": [
         {"apiServerID": "a", "encodingVersion": "v1"}] * 4}},
     {"CommonEncodingVersion": "v1", "StorageVersions": "a=v1,a=v1,a=v1 + 1 more..."}),
    ("storageversions.internal.apiserver.k8s.io", {},
     {"CommonEncodingVersion": "<unset>", "StorageVersions": "<unset>"}),
    ("runtimeclasses.node.k8s.io", {"handler": "runsc"}, {"Handler": "runsc"}),
    ("devicetaintrules.resource.k8s.io",
     {"spec": {"taint": {"key": "k", "value": "v", "effect": "NoExecute",
                         "timeAdded": ago(hours=5)}}},
     {"Key": "k", "Value": "v", "Effect": "NoExecute", "TimeAdded": "5h"}),
    ("devicetaintrules.resource.k8s.io", {}, {"TimeAdded": ""}),
    ("resourceclaims.resource.k8s.io", {}, {"State": "pending"}),
    ("resourceclaims.resource.k8s.io", {"status": {"allocation": {}, "reservedFor": [{}]}},
     {"State": "allocated,reserved"}),
    ("resourceclaims.resource.k8s.io", {"status": {"allocation": {}, "reservedFor": []}},
     {"State": "allocated"}),
    ("resourceclaims.resource.k8s.io", ENDED, {"State": "deleted"}),
    ("resourceclaims.resource.k8s.io", ENDED | {"status": {"allocation": {}}},
     {"State": "deleted,allocated"}),
    ("resourceslices.resource.k8s.io",
     {"spec": {"nodeName": "n", "driver": "d", "pool": {"name": "p"}}},
     {"Node": "n", "Driver": "d", "Pool": "p"}),
    ("resourcepoolstatusrequests.resource.k8s.io", {"spec": {"driver": "d"}},
     {"Driver": "d", "Total": "-", "Available": "-", "Allocated": "-", "Unavailable": "-",
      "Errors": "-", "Pools": 0, "Status": "Pending", "Completed": "<none>"}),
    ("resourcepoolstatusrequests.resource.k8s.io",
     {"status": {"poolCount": 3,
                 "conditions": [condition("Complete", lastTransitionTime=ago(minutes=9))],
                 "pools": [{"totalDevices": 4, "availableDevices": 3, "allocatedDevices": 1},
                           {"totalDevices": 2, "unavailableDevices": 2, "validationError": "x"}]}},
     {"Total": "6", "Available": "3", "Allocated": "1", "Unavailable": "2", "Errors": "1",
      "Pools": 3, "Status": "Complete (2/3 pools)", "Completed": "9m"}),
    ("resourcepoolstatusrequests.resource.k8s.io",
     {"status": {"poolCount": 1, "pools": [{}], "conditions": [condition("Complete")]}},
     {"Status": "Complete", "Completed": "<none>"}),
    ("resourcepoolstatusrequests.resource.k8s.io",
     {"status": {"conditions": [condition("Complete", "False"), condition("Failed")],
                 "pools": [{"totalDevices": 4}]}},
     {"Status": "Failed", "Total": "-", "Errors": "-"}),
]  # fmt: skip
