#!/usr/bin/env bash
# Runs tests of test/e2e on real Kubernetes with simulated GPUs: the core tests, a third of the others, and all tests of each area with
# changed files, according to test/e2e/selection. Its table assigns each test to a cluster. Tests mostly wait, so three clusters run
# concurrently, and the end of one starts another. Everything is built before the first cluster boots, except Prometheus, which tests that
# read its metrics use after the clusters have booted. With RUN all tests use one cluster: a running cluster is used as it is, with the
# plugin and the chart of this folder; otherwise a cluster is booted, and removed at the end. Environment:
#   NAME            name of the cluster (e2e)
#   FULL            if set, all tests
#   E2E_SHARE       i/3: the third to run, instead of the third for the hash of HEAD's tree; areas: only the changed areas
#   RUN             regular expression that selects tests, on one cluster of NODES nodes, GPU_NODES of them with GPUs
#   GROUP           with RUN: the group of the table that defines the cluster
#   SKIP            regular expression of tests to exclude
#   KUBERNETES      version of the booted cluster; tests of features that it lacks are skipped
#   KUBELET_CONFIG  lines of the kubelet configuration
#   E2E_KEEP        keep the booted cluster
#   VERDICT_DIR     if set, folder of a run of hack/verdict, which runs a failed test once more, if allowed; the events of test2json are
#                   written there, in a file e2e-GROUP.json for each cluster
#   E2E_RAN         file to which the names of tests that ran are appended, without skipped tests
set -euo pipefail
cd "$(dirname "$0")/.."
if [ "$(uname -s)" != Linux ] || [ "$(id -u)" != 0 ]; then
	echo "e2e: skipped: the nodes of the cluster are made of Linux namespaces, which needs root on Linux"
	exit 0
fi
export NAME=${NAME:-e2e} SKIP=${SKIP:-} E2E_RAN=${E2E_RAN:-}
[ -z "$E2E_RAN" ] || E2E_RAN=$(realpath "$E2E_RAN")
# One CPU stays shared (a fraction is rounded up), and little of it is subtracted from the allocatable CPU of pods.
staticPolicy=$'cpuManagerPolicy: static\ncpuManagerReconcilePeriod: 1s\nsystemReserved: {cpu: 100m}'
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
export LOGS=$logs E2E_RETRY=${VERDICT_DIR:-} VERDICT_DIR=${VERDICT_DIR:-$logs}
mkdir -p "$VERDICT_DIR"
VERDICT_DIR=$(realpath "$VERDICT_DIR")

# compile compiles the tests of a folder into bin/NAME.test. `make check` has vetted them, and without debug information the linker takes
# half of the time.
compile() { go test -c -vet=off -trimpath -ldflags '-s -w' -o "bin/$1.test" "./$2"; }
# build builds the programs of the groups.
build() {
	hack/tools.sh
	CGO_ENABLED=0 go build -o bin/e2e ./test/e2e/selection/cmd/e2e
	# It is built when it is first used.
	go tool test2json </dev/null >/dev/null
	compile e2e test/e2e
	bin/localcluster build ${KUBERNETES:+--kubernetes "$KUBERNETES"} >/dev/null
	hack/image.sh >/dev/null
	# The drivers of the nodes, and drivers that tests install instead.
	local driver
	for driver in 580.95.05 580.105.08 550.163.01; do
		bin/simgpu build --driver "$driver" >/dev/null
	done
}

# settings prints the settings of a group's cluster.
settings() {
	[ "$1" != nodes ] || export NODES=3 GPU_NODES=2 KUBELET_CONFIG=$staticPolicy
}

if [ -n "${RUN:-}" ]; then
	cpuManager=TestCPUManager_StaticPolicy_GPUStaysThroughCgroupUpdates
	if [[ $cpuManager =~ $RUN && ! $cpuManager =~ ${SKIP:-^\$} ]]; then
		export KUBELET_CONFIG=${KUBELET_CONFIG:-$staticPolicy}
	fi
	settings "${GROUP:=run}"
	build
	export RUN GROUP
	hack/e2e-group.sh
	exit
fi

# The names of clusters are global on the machine. One run at a time uses them, and first removes leftovers of a killed run.
exec 9>"${TMPDIR:-/tmp}/prism-$NAME.lock"
flock --nonblock 9 || { echo "e2e: waiting for another run with clusters $NAME-*" && flock 9; }
begin=$SECONDS
build 9>&-
compile helm deployments/helm 9>&-
built=$((SECONDS - begin))
for left in layouts node nodes mps profile; do
	bin/localcluster --name "$NAME-$left" down >/dev/null 9>&-
done

# busy prints all and idle ticks of the CPUs.
busy() { awk '/^cpu / { for (i = 2; i <= 9; i++) all += $i; print all, $5 + $6; exit }' /proc/stat; }
# sample prints the idle share of the CPUs each minute until it is killed.
sample() {
	local all idle before minute never
	before=$(busy)
	# A read that only its limit ends: a child would outlive this.
	exec {never}<> <(:)
	for ((minute = 1; ; minute++)); do
		read -rt 60 -u "$never" _ || true
		read -r all idle <<<"$(busy)"
		echo "e2e: minute=$minute idle=$(((idle - ${before#* }) * 100 / (all - ${before% *})))%"
		before="$all $idle"
	done
}

# plan lists the tests of each group.
selection=(--share "${E2E_SHARE:-}" --tree "$(git rev-parse 'HEAD^{tree}' 2>/dev/null || echo 0)")
[ -z "${FULL:-}" ] || selection+=(--full)
hack/changed.sh >"$logs/changed" 2>/dev/null || selection+=(--unknown)
bin/e2e select "${selection[@]}" <"$logs/changed" >"$logs/plan"
declare -A groups=() plan=() started=()
while IFS=$'\t' read -r group pattern; do
	if [ -n "$pattern" ]; then plan[$group]=$pattern; else echo "e2e: ${group#\# }"; fi
done <"$logs/plan"
[ ${#plan[@]} -gt 0 ] || exit 0

# tested runs a test of another package, and fails if it is skipped.
tested() {
	E2E_RAN='' hack/e2e-run.sh e2e-rules "$1" "$2" -test.run "$3" | tee "$logs/tested"
	grep -q '^--- PASS' "$logs/tested"
}
# rules tests the chart's rules, and the queries of the documentation and of the dashboards, with promtool. Tests that read metrics wait for
# the Prometheus that it builds.
rules() {
	local group
	for group in "$@"; do
		until [ -e "$logs/$group.up" ]; do sleep 1; done
	done
	bin/localcluster build prometheus >/dev/null
	tested deployments/helm bin/helm.test '^TestChartRules_Promtool_ChecksAndTests$'
	tested deployments/helm bin/helm.test '^TestDocs_Queries_EvaluatedAsWritten$'
	tested deployments/helm bin/helm.test '^TestChartQueries_EventsCounted_PromtoolCountsTheSame$'
	tested deployments/helm bin/helm.test '^TestChartQueries_ExampleNodes_Answered$'
}
group() {
	(settings "$1" && export NAME="$NAME-$1" GROUP=$1 RUN=${plan[$1]} && exec hack/e2e-group.sh) >"$logs/$1" 2>&1 9>&- &
	groups[$1]=$! started[$1]=$SECONDS
}
# finish waits until a group exits, prints its output, and stores its name in ended.
status=0
finish() {
	local pid result=passed name
	wait -n -p pid "${groups[@]}" || { status=1 result=failed; }
	for name in "${!groups[@]}"; do
		[ "${groups[$name]}" != "$pid" ] || ended=$name
	done
	unset "groups[$ended]"
	cat "$logs/$ended"
	result="e2e: group=$ended result=$result start=$((started[$ended] - begin)) seconds=$((SECONDS - started[$ended]))"
	for name in PASS FAIL SKIP; do
		result+=" ${name,,}=$(grep -c "^--- $name" "$logs/$ended" || true)"
	done
	results+=("$result $(cat "$logs/$ended.stats" 2>/dev/null || true)")
}

rm -f "$VERDICT_DIR"/e2e-*.json
# The longest ones first.
next=()
for name in node layouts profile mps nodes; do
	[ -z "${plan[$name]:-}" ] || next+=("$name")
done
sample >"$logs/idle" 9>&- &
sampler=$!
# The clusters of started groups are removed with this script.
trap 'kill "$sampler" "${groups[@]}" 2>/dev/null || true; wait; rm -rf "$logs"' EXIT
before=$(busy)
for name in "${next[@]:0:3}"; do
	group "$name"
done
rules "${next[@]:0:3}" >"$logs/rules" 2>&1 9>&- &
groups[rules]=$! started[rules]=$SECONDS
next=("${next[@]:3}")
while [ ${#groups[@]} -gt 0 ]; do
	finish
	if [ "$ended" != rules ] && [ ${#next[@]} -gt 0 ]; then
		group "${next[0]}"
		next=("${next[@]:1}")
	fi
done
read -r all idle <<<"$(busy)"
bin/e2e summary "$VERDICT_DIR"/e2e-*.json
cat "$logs/idle"
printf '%s\n' "${results[@]}"
echo "e2e: seconds=$((SECONDS - begin)) build=$built idle=$(((idle - ${before#* }) * 100 / (all - ${before% *})))% cpu=$(((all - ${before% *} - idle + ${before#* }) / $(getconf CLK_TCK)))"
exit "$status"
