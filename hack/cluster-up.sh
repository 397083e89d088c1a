#!/usr/bin/env bash
# Boots a cluster whose nodes have simulated GPUs and installs the chart. Environment: NAME, MODEL, COUNT, NODES, KUBERNETES,
# HELM_ARGS (more arguments for helm).
set -euo pipefail
cd "$(dirname "$0")/.."
name=${NAME:-default}
local=(bin/localcluster --name "$name")
namespace=prism-system

"${local[@]}" up --nodes "${NODES:-1}" --kubernetes "${KUBERNETES:-1.37.1}" \
	--boot-command "$PWD/bin/simgpu create --model ${MODEL:-h100-80} --count ${COUNT:-8}"
hack/image.sh
"${local[@]}" load-image dist/prism.tar
# shellcheck disable=SC2086 # a list
"${local[@]}" helm upgrade --install prism deployments/helm/prism --namespace "$namespace" --create-namespace \
	--wait --timeout 3m ${HELM_ARGS:-}
eval "$("${local[@]}" env)"
echo "export KUBECONFIG=$KUBECONFIG"
