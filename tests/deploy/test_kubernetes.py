"""deploy/kubernetes.yaml: valid by the types of the API, and its objects name each other."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import msgspec
import pytest
from deployed import DEPLOY
from image import instructions
from ruamel.yaml import YAML

OBJECTS: dict[str, Any] = {one["kind"]: one for one in YAML(typ="safe").load_all(DEPLOY / "kubernetes.yaml")}
POD = OBJECTS["Deployment"]["spec"]["template"]["spec"]
(CONTAINER,) = POD["containers"]


def check(found: dict[str, Any]) -> None:
    """Raise for a member of the wrong type, a missing one and an unknown one."""
    group, _, version = found["apiVersion"].rpartition("/")
    models = import_module(f"lightkube.models.{group or 'core'}_{version}")
    assert msgspec.convert(found, getattr(models, found["kind"])).to_dict() == found


@pytest.mark.parametrize("kind", OBJECTS)
def test_every_object_is_valid(kind: str) -> None:
    check(OBJECTS[kind])


def test_an_unknown_member_and_a_wrong_type_are_found() -> None:
    service = OBJECTS["Service"]
    with pytest.raises(AssertionError):
        check({**service, "spec": {**service["spec"], "selectors": {}}})
    with pytest.raises(msgspec.ValidationError, match=r"Expected `int`, got `str`"):
        check({**service, "spec": {"ports": [{"port": "http"}]}})


def test_the_objects_name_each_other() -> None:
    labels = OBJECTS["Deployment"]["spec"]["template"]["metadata"]["labels"]
    assert labels == OBJECTS["Deployment"]["spec"]["selector"]["matchLabels"]
    assert labels == OBJECTS["Service"]["spec"]["selector"]
    assert labels == OBJECTS["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"]
    (port,) = CONTAINER["ports"]
    assert ("EXPOSE", str(port["containerPort"])) in instructions(DEPLOY / "Dockerfile")
    users = [CONTAINER[probe]["httpGet"]["port"] for probe in ("readinessProbe", "livenessProbe")]
    assert {port["name"]} == {*users, OBJECTS["Service"]["spec"]["ports"][0]["targetPort"]}


def test_only_a_process_that_does_not_answer_is_restarted() -> None:
    assert CONTAINER["readinessProbe"]["httpGet"]["path"] == "/readyz"
    assert CONTAINER["livenessProbe"]["httpGet"]["path"] == "/healthz"


def test_no_process_has_rights_that_it_does_not_need() -> None:
    assert POD["securityContext"]["runAsNonRoot"] is True
    (user,) = (rest for name, rest in instructions(DEPLOY / "Dockerfile") if name == "USER")
    assert int(user) > 0  # of a name, Kubernetes cannot tell
    assert CONTAINER["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
    }
    assert POD["enableServiceLinks"] is False
