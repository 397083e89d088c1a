#!/usr/bin/env bash
# Runs test/e2e on a real one-node Kubernetes with simulated GPUs, and then, on another cluster, the tests that need several nodes or the
# kubelet's static CPU manager. A cluster that runs already is used as it is, with the plugin and the chart of this folder; else one
# is booted, and removed at the end. Environment:
#   NAME            the cluster's name (e2e)
#   RUN             a regular expression that picks tests, on one cluster of NODES nodes, of which GPU_NODES have GPUs
#   KUBERNETES      the version of the cluster that is booted; tests of features that it lacks are skipped
#   KUBELET_CONFIG  lines of its kubelets' configuration
#   E2E_KEEP        keep the cluster that was booted
set -euo pipefail
cd "$(dirname "$0")/.."
if [ "$(uname -s)" != Linux ] || [ "$(id -u)" != 0 ]; then
	echo "e2e: skipped: the nodes of the cluster are made of Linux namespaces, which needs root on Linux"
	exit 0
fi
export NAME=${NAME:-e2e}
local=(bin/localcluster --name "$NAME")

hack/tools.sh
running=
if "${local[@]}" status >/dev/null 2>&1; then
	running=yes
elif [ -z "${E2E_KEEP:-}" ]; then
	trap '"${local[@]}" down' EXIT
fi
# One CPU stays shared (a fraction is rounded up), and little of it is subtracted from what pods may request.
cpuManager=TestCPUManager_StaticPolicy_GPUStaysThroughCgroupUpdates
staticPolicy=$'cpuManagerPolicy: static\ncpuManagerReconcilePeriod: 1s\nsystemReserved: {cpu: 100m}'
if [ -z "$running" ] && [ -n "${RUN:-}" ] && [[ $cpuManager =~ $RUN ]]; then
	export KUBELET_CONFIG=${KUBELET_CONFIG:-$staticPolicy}
fi
HELM_ARGS="--values test/e2e/values.yaml ${HELM_ARGS:-}" hack/cluster-up.sh >/dev/null
eval "$("${local[@]}" env)"
if [ -n "$running" ]; then
	# The image may have changed under the same name.
	kubectl --namespace prism-system rollout restart daemonset/prism-kubelet-plugin
	kubectl --namespace prism-system rollout status daemonset/prism-kubelet-plugin --timeout=90s >/dev/null
fi
another="^(TestConfigOfTwoNodes|TestNodeWithoutGPU_IsSilent|$cpuManager)\$"
tests=(go test -v -count 1 -timeout 40m ./test/e2e/...)
if [ -n "${RUN:-}" ]; then
	"${tests[@]}" -run "$RUN"
	exit
fi
"${tests[@]}" -skip "$another"
[ -n "$running" ] || [ -n "${E2E_KEEP:-}" ] || "${local[@]}" down
NAME=$NAME-two NODES=3 GPU_NODES=2 RUN=$another KUBELET_CONFIG=$staticPolicy hack/e2e.sh
