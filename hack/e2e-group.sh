#!/usr/bin/env bash
# Runs tests of test/e2e on one cluster. A running cluster is used as it is, with the plugin and the chart of this folder; otherwise a
# cluster is booted, and removed at the end. hack/e2e.sh has built everything and starts this script, which compiles nothing. Environment,
# besides the variables of hack/e2e.sh:
#   GROUP    name of the results
#   LOGS     folder of GROUP.stats, with the seconds of boot and of CPU, and of GROUP.up, which is created after the cluster has booted,
#            or failed to boot
set -euo pipefail
cd "$(dirname "$0")/.."
export NAME
local=(bin/localcluster --name "$NAME")

# cpu prints the CPU seconds of the tests and their cluster: the control groups of the nodes, the control plane, which is outside of them,
# and the children of this script, whose times are in a file.
cpu() {
	local nodes control children
	nodes=$(cat "/sys/fs/cgroup/cpuacct/prism/$NAME/cpuacct.usage" "/sys/fs/cgroup/cpu,cpuacct/prism/$NAME/cpuacct.usage" 2>/dev/null | head -1 || true)
	[ -n "$nodes" ] || nodes=$(awk '$1 == "usage_usec" { print $2 "000" }' "/sys/fs/cgroup/prism/$NAME/cpu.stat" 2>/dev/null || true)
	control=$(find /proc/[0-9]*/ns/net -lname "net:\[$(stat -Lc %i "/run/netns/prism-$NAME" 2>/dev/null)\]" 2>/dev/null | while IFS=/ read -r _ _ pid _; do
		grep -q ":/prism/$NAME" "/proc/$pid/cgroup" 2>/dev/null || sed 's/.*) //' "/proc/$pid/stat" 2>/dev/null || true
	done | awk '{ ticks += $12 + $13 + $14 + $15 } END { print ticks + 0 }')
	children=$(awk -F '[ms ]' 'NR == 2 { print $1 * 60 + $2 + $4 * 60 + $5 }' "$1")
	awk -v nodes="${nodes:-0}" -v control="$control" -v hertz="$(getconf CLK_TCK)" -v children="$children" \
		'BEGIN { printf "%.0f\n", nodes / 1e9 + control / hertz + children }'
}

boot=0
ended() {
	touch "$LOGS/$GROUP.up"
	times >"$LOGS/$GROUP.times"
	echo "boot=$boot cpu=$(cpu "$LOGS/$GROUP.times")" >"$LOGS/$GROUP.stats"
	[ -z "${remove:-}" ] || "${local[@]}" down
}
trap ended EXIT
running=
if "${local[@]}" status >/dev/null 2>&1; then
	running=yes
else
	# Leftovers of a cluster whose processes were killed, perhaps from another folder.
	"${local[@]}" down >/dev/null
	[ -n "${E2E_KEEP:-}" ] || remove=yes
fi
HELM_ARGS="--values test/e2e/values.yaml ${HELM_ARGS:-}" IMAGE_BUILT=yes hack/cluster-up.sh >/dev/null
eval "$("${local[@]}" env)"
if [ -n "$running" ]; then
	# The image may have changed under the same name.
	kubectl --namespace prism-system rollout restart daemonset/prism-kubelet-plugin
	kubectl --namespace prism-system rollout status daemonset/prism-kubelet-plugin --timeout=10m >/dev/null
	kubectl --namespace prism-system delete pods --selector app.kubernetes.io/component=mps >/dev/null
fi
boot=$SECONDS
touch "$LOGS/$GROUP.up"
hack/e2e-run.sh "e2e-$GROUP" test/e2e bin/e2e.test -test.timeout 80m -test.run "$RUN" -test.skip "${SKIP:-^\$}"
