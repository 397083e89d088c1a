#!/usr/bin/env bash
# Boots a real one-node Kubernetes with simulated GPUs, installs the chart, and hands a GPU to a pod. The cluster stays, so
# that more can be tried on it; `make cluster-down NAME=demo` removes it.
set -euo pipefail
cd "$(dirname "$0")/.."
export NAME=demo

say() { printf '\n# %s\n' "$*"; }
run() { printf '$ %s\n' "$*"; "$@"; }

if [ "$(uname)" != Linux ] || [ "$(id -u)" != 0 ]; then
	echo "make demo: the cluster's node is made of Linux namespaces: run this as root on Linux" >&2
	exit 1
fi
make --no-print-directory tools
say "A node with 8 simulated GPUs (MODEL=$MODEL), and the chart"
make --no-print-directory cluster-up
eval "$(bin/localcluster --name "$NAME" env)"

say "What the node offers"
kubectl wait --for=jsonpath='{.spec.devices}' resourceslice --all --timeout=60s >/dev/null
echo '$ kubectl get resourceslices   (its devices of type gpu)'
kubectl get resourceslices -o go-template='{{range .items}}{{$pool := .spec.pool.name}}{{range .spec.devices}}{{if eq .attributes.type.string "gpu"}}{{printf "%s/%-14s %-22s %s  %s\n" $pool .name .attributes.productName.string .capacity.memory.value .attributes.uuid.string}}{{end}}{{end}}{{end}}'

say "A pod asks for one GPU"
kubectl delete --ignore-not-found --wait -f demo/specs/whole-gpu/pod.yaml >/dev/null 2>&1
run kubectl apply -f demo/specs/whole-gpu/pod.yaml
run kubectl wait --for=condition=Ready pod/whole-gpu --timeout=60s

say "Inside the container"
run kubectl exec whole-gpu -- nvidia-smi -L

say "Which GPU is it, for whoever asks the claim"
claim=$(kubectl get pod whole-gpu -o jsonpath='{.status.resourceClaimStatuses[0].resourceClaimName}')
printf '$ kubectl describe resourceclaim %s\n' "$claim"
kubectl describe resourceclaim "$claim" | awk '/^Status:/ {status = 1} status && /^  Devices:/ {on = 1} /^  Reserved For:/ {on = 0} on'

say "The cluster stays. Look around:"
echo "export KUBECONFIG=$KUBECONFIG"
echo "make cluster-down NAME=$NAME"
