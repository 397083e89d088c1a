#!/usr/bin/env bash
# Runs test/e2e on real Kubernetes with simulated GPUs. Tests mostly wait, so they are divided among clusters, three of which run side by
# side: two with one node, and one with what needs several nodes or kubelets with a static CPU manager policy. Each that is done makes room for
# another: one whose pods run under NVIDIA's profiler, and one with MPS. Meanwhile Prometheus is built for tests that read metrics from
# it. With RUN it is one cluster: one that runs already is used as it is, with the plugin and the chart of this folder; else it is booted,
# and removed at the end. Environment:
#   NAME            the cluster's name (e2e)
#   RUN             a regular expression that picks tests, on one cluster of NODES nodes, of which GPU_NODES have GPUs
#   SKIP            a regular expression of tests that are left out of those
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
cpuManager=TestCPUManager_StaticPolicy_GPUStaysThroughCgroupUpdates
# One CPU stays shared (a fraction is rounded up), and little of it is subtracted from what pods may request.
staticPolicy=$'cpuManagerPolicy: static\ncpuManagerReconcilePeriod: 1s\nsystemReserved: {cpu: 100m}'

# here runs the tests that RUN picks on one cluster.
here() {
	if [[ $cpuManager =~ $RUN && ! $cpuManager =~ ${SKIP:-^\$} ]]; then
		export KUBELET_CONFIG=${KUBELET_CONFIG:-$staticPolicy}
	fi
	running=
	if "${local[@]}" status >/dev/null 2>&1; then
		running=yes
	else
		# What is left of a cluster whose processes were killed, perhaps of another folder.
		"${local[@]}" down >/dev/null
		[ -n "${E2E_KEEP:-}" ] || trap '"${local[@]}" down' EXIT
	fi
	HELM_ARGS="--values test/e2e/values.yaml ${HELM_ARGS:-}" hack/cluster-up.sh >/dev/null
	eval "$("${local[@]}" env)"
	if [ -n "$running" ]; then
		# The image may have changed under the same name.
		kubectl --namespace prism-system rollout restart daemonset/prism-kubelet-plugin
		kubectl --namespace prism-system rollout status daemonset/prism-kubelet-plugin --timeout=90s >/dev/null
		kubectl --namespace prism-system delete pods --selector app.kubernetes.io/component=mps >/dev/null
	fi
	go test -v -count 1 -timeout 80m ./test/e2e/... -run "$RUN" -skip "${SKIP:-^\$}"
}

hack/tools.sh
if [ -n "${RUN:-}" ]; then
	here
	exit
fi

# The names of clusters are those of the machine. One run at a time has them, and first ends what a run left that was killed.
exec 9>"${TMPDIR:-/tmp}/prism-$NAME.lock"
flock --nonblock 9 || { echo "e2e: waiting for another run with clusters $NAME-*" && flock 9; }
for left in layouts node nodes mps profile; do
	bin/localcluster --name "$NAME-$left" down >/dev/null 9>&-
done

# A group is a cluster and the tests that run on it. Those of one node take about as long as each other.
nodes="^(TestConfigOfTwoNodes|TestNodeWithoutGPU_IsSilent|$cpuManager)\$"
layouts='^Test(Config|ExtendedResource|MIG|Monitor)'
mps='^Test(MPS|EnforcedMemory)'
profile='^TestProfile_'
logs=$(mktemp -d)
declare -A groups=()
# rules tests the chart's rules and the queries of the documentation with promtool, and the queries of the dashboards on example pages. Tests that read metrics wait for the Prometheus that it builds beside the clusters.
rules() {
	bin/localcluster build prometheus >/dev/null
	go test -v -count 1 ./deployments/helm -run '^TestChartRules_Promtool_ChecksAndTests$' | tee "$logs/promtool"
	grep -q '^--- PASS' "$logs/promtool"
	go test -v -count 1 ./deployments/helm -run '^TestDocs_Queries_EvaluatedAsWritten$' | tee "$logs/docs"
	grep -q '^--- PASS' "$logs/docs"
	go test -v -count 1 ./hack/preview -run '^TestQueries_' | tee "$logs/preview"
	grep -q '^--- PASS' "$logs/preview"
}
group() {
	env NAME="$NAME-$1" RUN="$2" SKIP="${3:-^\$}" "${@:4}" hack/e2e.sh >"$logs/$1" 2>&1 9>&- &
	groups[$1]=$!
}
# finish waits until a group ends, prints what it wrote, and leaves its name in ended.
status=0
finish() {
	local pid result=passed name
	wait -n -p pid "${groups[@]}" || { status=1 result=failed; }
	for name in "${!groups[@]}"; do
		[ "${groups[$name]}" != "$pid" ] || ended=$name
	done
	unset "groups[$ended]"
	cat "$logs/$ended"
	results+=("e2e: $NAME-$ended: $result, $(grep -c '^--- PASS' "$logs/$ended" || true) tests passed, $((SECONDS / 60)) min after the start")
}
# The clusters of groups that were started go with this script.
trap 'kill "${groups[@]}" 2>/dev/null || true; wait; rm -rf "$logs"' EXIT
rules >"$logs/rules" 2>&1 9>&- &
groups[rules]=$!
group nodes "$nodes" '' NODES=3 GPU_NODES=2 KUBELET_CONFIG="$staticPolicy"
group layouts "$layouts" "$nodes"
group node . "$layouts|$nodes|$mps|$profile"
next=(profile mps)
while [ ${#groups[@]} -gt 0 ]; do
	finish
	if [ "$ended" != rules ] && [ ${#next[@]} -gt 0 ]; then
		group "${next[0]}" "${!next[0]}"
		next=("${next[@]:1}")
	fi
done
printf '%s\n' "${results[@]}"
exit "$status"
