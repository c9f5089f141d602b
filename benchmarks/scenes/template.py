"""The form of one generated pod: the parts of its owner, and the parts that are its own."""

from __future__ import annotations

import hashlib
import random
from typing import Any

Part = dict[str, Any]

APPS = (
    "api-gateway", "billing", "cart", "catalog", "checkout", "data-loader", "email-sender",
    "frontend", "identity", "inventory", "metrics-agent", "orders", "payments", "pricing",
    "recommender", "report-builder", "search", "session-store", "shipping", "web",
)  # fmt: skip
SIZES = (("100m", "128Mi", "500m", "256Mi"), ("250m", "256Mi", "1", "512Mi"),
         ("500m", "1Gi", "2", "2Gi"), ("1", "2Gi", "4", "4Gi"))  # fmt: skip
SIDECAR = "registry.example.internal/platform/vector:0.39.0"
SIDECAR_ID = "registry.example.internal/platform/vector@sha256:" + hashlib.sha256(b"v").hexdigest()
CONDITIONS = (
    "PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled",
)  # fmt: skip


def owner(rng: random.Random, number: int, template_hash: str, uid: str) -> Part:
    """A ReplicaSet: the parts that all of its pods have in common."""
    app = APPS[number % len(APPS)]
    namespace = f"team-{number % 23}"
    digest = f"{rng.getrandbits(256):064x}"
    version = f"v{rng.randint(1, 4)}.{rng.randint(0, 20)}.{rng.randint(0, 9)}"
    image = f"registry.example.internal/{namespace}/{app}@sha256:{digest}"
    return {
        "app": app,
        "namespace": namespace,
        "name": f"{app}-{template_hash}",
        "image": image,
        "size": rng.choice(SIZES),
        "port": rng.choice((8000, 8080, 9000)),
        "labels": {
            "app.kubernetes.io/instance": f"{app}-{number // len(APPS)}",
            "app.kubernetes.io/managed-by": "Helm",
            "app.kubernetes.io/name": app,
            "app.kubernetes.io/version": version,
            "helm.sh/chart": f"{app}-{rng.randint(1, 5)}.{rng.randint(0, 9)}.0",
            "pod-template-hash": template_hash,
            "tier": rng.choice(("frontend", "backend", "batch")),
            "topology.kubernetes.io/zone": f"eu-central-1{rng.choice('abc')}",
        },
        "annotations": {
            "checksum/config": f"{rng.getrandbits(256):064x}",
            "kubectl.kubernetes.io/restartedAt": f"2026-02-{rng.randint(10, 28)}T09:14:22Z",
            "prometheus.io/port": "9090",
            "prometheus.io/scrape": "true",
        },
        "references": [{
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "name": f"{app}-{template_hash}",
            "uid": uid,
            "controller": True,
            "blockOwnerDeletion": True,
        }],
    }  # fmt: skip


def pod(owner: Part, own: Part) -> Part:
    return {
        "metadata": {
            "name": f"{owner['name']}-{own['suffix']}",
            "generateName": f"{owner['name']}-",
            "namespace": owner["namespace"],
            "uid": own["uid"],
            "resourceVersion": own["version"],
            "creationTimestamp": own["times"][0],
            "labels": owner["labels"],
            "annotations": owner["annotations"],
            "ownerReferences": owner["references"],
        },
        "spec": _spec(owner, own),
        "status": status([(owner["image"], owner["image"]), (SIDECAR, SIDECAR_ID)], own),
    }


def status(images: list[tuple[str, str]], own: Part) -> Part:
    created, started, ready = own["times"]
    changed = (started, created, ready, ready, created)
    return {
        "phase": "Running",
        "conditions": [
            {"type": kind, "status": "True", "lastProbeTime": None, "lastTransitionTime": time}
            for kind, time in zip(CONDITIONS, changed, strict=True)
        ],
        "hostIP": own["host"],
        "hostIPs": [{"ip": own["host"]}],
        "podIP": own["address"],
        "podIPs": [{"ip": own["address"]}],
        "startTime": created,
        "containerStatuses": [
            {
                "name": name,
                "state": {"running": {"startedAt": started}},
                "lastState": _last_state(own) if name == "app" else {},
                "ready": True,
                "restartCount": own["restarts"] if name == "app" else 0,
                "image": image,
                "imageID": image_id,
                "containerID": container,
                "started": True,
            }
            for name, (image, image_id), container in zip(
                ("app", "log-shipper"), images, own["containers"][:2], strict=True
            )
        ],
        "qosClass": "Burstable",
    }


def _last_state(own: Part) -> Part:
    if not own["restarts"]:
        return {}
    created, started, _ready = own["times"]
    ended = {"exitCode": 137, "reason": "OOMKilled", "startedAt": created, "finishedAt": started}
    return {"terminated": {**ended, "containerID": own["containers"][2]}}


def _spec(owner: Part, own: Part) -> Part:
    app = owner["app"]
    selector = {"matchLabels": {"app.kubernetes.io/name": app}}
    term = {"labelSelector": selector, "topologyKey": "kubernetes.io/hostname"}
    return {
        "volumes": _volumes(app, own["token"]),
        "containers": [_application(owner, own["token"]), _sidecar(own["token"])],
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
        "serviceAccountName": app,
        "serviceAccount": app,
        "nodeName": own["node"],
        "securityContext": {"runAsUser": 10001, "runAsNonRoot": True, "fsGroup": 10001},
        "affinity": {
            "podAntiAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {"weight": 100, "podAffinityTerm": term}
                ]
            }
        },
        "schedulerName": "default-scheduler",
        "tolerations": [
            {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute",
             "tolerationSeconds": 300}
            for key in ("not-ready", "unreachable")
        ],
        "priority": 0,
        "enableServiceLinks": True,
        "preemptionPolicy": "PreemptLowerPriority",
    }  # fmt: skip


def _volumes(app: str, token: str) -> list[Part]:
    field = {"apiVersion": "v1", "fieldPath": "metadata.namespace"}
    sources = [
        {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": field}]}},
    ]
    return [
        {"name": "config", "configMap": {"name": f"{app}-config", "defaultMode": 420}},
        {"name": "tmp", "emptyDir": {}},
        {"name": token, "projected": {"sources": sources, "defaultMode": 420}},
    ]


def _application(owner: Part, token: str) -> Part:
    app, port = owner["app"], owner["port"]
    return {
        "name": "app",
        "image": owner["image"],
        "args": ["--config=/etc/app/config.yaml", "--log-format=json"],
        "ports": [
            {"name": "http", "containerPort": port, "protocol": "TCP"},
            {"name": "metrics", "containerPort": 9090, "protocol": "TCP"},
        ],
        "env": [
            _field("POD_NAME", "metadata.name"),
            _field("POD_IP", "status.podIP"),
            {"name": "APP_ENV", "value": "production"},
            {"name": "OTEL_SERVICE_NAME", "value": app},
            {"name": "DB_PASSWORD",
             "valueFrom": {"secretKeyRef": {"name": f"{app}-db", "key": "password"}}},
        ],
        "resources": _resources(*owner["size"]),
        "volumeMounts": [
            {"name": "config", "readOnly": True, "mountPath": "/etc/app"},
            {"name": "tmp", "mountPath": "/tmp"},
            _token_mount(token),
        ],
        "livenessProbe": _probe("/healthz", 10),
        "readinessProbe": _probe("/readyz", 5),
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "imagePullPolicy": "IfNotPresent",
        "securityContext": {
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
            "allowPrivilegeEscalation": False,
        },
    }  # fmt: skip


def _sidecar(token: str) -> Part:
    return {
        "name": "log-shipper",
        "image": SIDECAR,
        "env": [_field("NODE_NAME", "spec.nodeName")],
        "resources": _resources("20m", "48Mi", "100m", "96Mi"),
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}, _token_mount(token)],
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "imagePullPolicy": "IfNotPresent",
    }


def _token_mount(token: str) -> Part:
    path = "/var/run/secrets/kubernetes.io/serviceaccount"
    return {"name": token, "readOnly": True, "mountPath": path}


def _field(name: str, path: str) -> Part:
    return {"name": name, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}}


def _resources(cpu: str, memory: str, cpu_limit: str, memory_limit: str) -> Part:
    limits = {"cpu": cpu_limit, "memory": memory_limit}
    return {"limits": limits, "requests": {"cpu": cpu, "memory": memory}}


def _probe(path: str, period: int) -> Part:
    return {
        "httpGet": {"path": path, "port": "http", "scheme": "HTTP"},
        "timeoutSeconds": 2,
        "periodSeconds": period,
        "successThreshold": 1,
        "failureThreshold": 3,
    }
