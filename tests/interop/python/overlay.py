"""Writes the manifests that an overlay makes of those below it: `kubectl kustomize` for patches of JSON (RFC 6902) that replace and remove."""

import pathlib
import sys

import yaml

overlay, into = map(pathlib.Path, sys.argv[1:])
kustomization = yaml.safe_load((overlay / "kustomization.yaml").read_text())
manifests = []
for base in kustomization["resources"]:
    files = yaml.safe_load((overlay / base / "kustomization.yaml").read_text())["resources"]
    manifests += [yaml.safe_load((overlay / base / file).read_text()) for file in files]


def apply(manifest, patch):
    *steps, last = [int(step) if step.isdigit() else step for step in patch["path"].split("/")[1:]]
    place = manifest
    for step in steps:
        place = place[step]
    place[last]  # What is not there can be neither replaced nor removed.
    match patch["op"]:
        case "replace":
            place[last] = patch["value"]
        case "remove":
            del place[last]
        case other:
            sys.exit(f"this script knows no {other}")


for patch in kustomization["patches"]:
    kind, name = patch["target"]["kind"], patch["target"]["name"]
    [manifest] = [it for it in manifests if (it["kind"], it["metadata"]["name"]) == (kind, name)]
    for operation in yaml.safe_load(patch["patch"]):
        apply(manifest, operation)

named = {it["kind"]: it for it in manifests}
[container] = named["Deployment"]["spec"]["template"]["spec"]["containers"]
assert "--grpc=0.0.0.0:9001" in container["args"], container
ports = {port["name"]: port["containerPort"] for port in container["ports"]}
assert ports == {"grpc": 9001, "ops": 3001}, ports
assert [port["targetPort"] for port in named["Service"]["spec"]["ports"]] == ["grpc"]
assert "[proxies]" not in named["ConfigMap"]["data"]["limits.toml"]
[asks, _] = named["NetworkPolicy"]["spec"]["ingress"]
assert asks["ports"] == [{"port": "grpc"}] and asks["from"], asks
assert "8080" not in str(named["NetworkPolicy"])
for manifest in manifests:
    (into / f"{manifest['kind'].lower()}.yaml").write_text(yaml.safe_dump(manifest))
