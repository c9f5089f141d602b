"""TokenReview, SubjectAccessReview, SelfSubjectAccessReview: users of tokens, and their rights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shmcache.protocol import failures
from shmcache.testing.apiserver.requests import Response, document

if TYPE_CHECKING:
    from shmcache.testing.apiserver.access import Authorizer
    from shmcache.testing.apiserver.requests import ApiRequest

OWN = "SelfSubjectAccessReview"
AUDIENCE = "https://kubernetes.default.svc.cluster.local"


def answer(access: Authorizer, request: ApiRequest, user: str) -> Response | None:
    """The answer to a review; None for other requests. `user` has been admitted already."""
    kind, decide = _KINDS.get(request.resource, ("", None))
    if decide is None:
        return None
    if request.verb != "create":
        raise failures.method_not_allowed()
    body = request.json()
    spec = body.get("spec") if isinstance(body, dict) else None
    if not isinstance(spec, dict):
        raise failures.bad_request(f"a {kind} needs a spec")
    access.reviews.append({"kind": kind, "spec": spec})
    version = f"{request.target.group}/{request.target.version}" if request.target else ""
    review = {"kind": kind, "apiVersion": version, "metadata": {}, "spec": spec}
    subject = {"user": user} if kind == OWN else {}
    return document(review | {"status": decide(access, {**spec, **subject})}, 201)


def _token(access: Authorizer, spec: dict[str, Any]) -> dict[str, Any]:
    user = access.tokens.get(str(spec.get("token", "")))
    if user is None:
        return {"user": {}, "error": "[invalid bearer token, unknown]"}
    found = {"username": user, **access.identities.get(user, {})}
    found["groups"] = [*found.get("groups", ()), "system:authenticated"]
    return {"authenticated": True, "user": found, "audiences": [AUDIENCE]}


def _access(access: Authorizer, spec: dict[str, Any]) -> dict[str, Any]:
    asked = spec.get("resourceAttributes")
    if not isinstance(asked, dict) or not (spec.get("user") or spec.get("groups")):
        raise failures.bad_request("a review needs resourceAttributes, and a user or groups")
    group, resource = asked.get("group", ""), str(asked.get("resource", ""))
    name = f"{resource}.{group}" if group else resource
    if sub := asked.get("subresource"):
        name += f"/{sub}"
    subjects = [spec.get("user", ""), *(f"group:{one}" for one in spec.get("groups") or ())]
    if access.denies(subjects, str(asked.get("verb", "")), name):
        return {"allowed": False, "reason": "denied"}
    return {"allowed": True, "reason": "RBAC: allowed"}


_KINDS = {
    "tokenreviews.authentication.k8s.io": ("TokenReview", _token),
    "subjectaccessreviews.authorization.k8s.io": ("SubjectAccessReview", _access),
    "selfsubjectaccessreviews.authorization.k8s.io": (OWN, _access),
}
