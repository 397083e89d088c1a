#!/usr/bin/env bash
# Boots a cluster whose nodes have simulated GPUs and installs the chart. Environment: NAME, MODEL, COUNT, NODES, GPU_NODES (number of nodes
# with GPUs, all by default), KUBERNETES (version of a new cluster), KUBELET_CONFIG (lines of a new cluster's kubelet configuration),
# HELM_ARGS (additional arguments for helm), IMAGE_BUILT (if set, installs dist/prism.tar).
set -euo pipefail
cd "$(dirname "$0")/.."
local=(bin/localcluster --name "${NAME:-default}")

kubelet=()
while IFS= read -r line; do
	[ -z "$line" ] || kubelet+=(--kubelet-config "$line")
done <<<"${KUBELET_CONFIG:-}"
"${local[@]}" up --nodes "${NODES:-1}" --kubernetes "${KUBERNETES:-}" "${kubelet[@]}" \
	--boot-command "[ \$NODE_INDEX -ge ${GPU_NODES:-99} ] || $PWD/bin/simgpu create --model ${MODEL:-h100-80} --count ${COUNT:-8}"
[ -n "${IMAGE_BUILT:-}" ] || hack/image.sh
"${local[@]}" load-image dist/prism.tar
# shellcheck disable=SC2086 # HELM_ARGS is a list
# The watcher, the default of --wait, only waits for DaemonSets whose pods are replaced on deletion.
"${local[@]}" helm upgrade --install prism deployments/helm/prism --namespace prism-system --create-namespace \
	--set "image.tag=$(cat dist/image.tag)" --wait=legacy --timeout 10m --hide-notes ${HELM_ARGS:-} | awk '/^(NAME|NAMESPACE|STATUS):/'
eval "$("${local[@]}" env)"
echo "export KUBECONFIG=$KUBECONFIG"
