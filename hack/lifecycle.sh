#!/usr/bin/env bash
# Tests the invariants of a claim on a simulated GPU node: first within one process and with the race detector, then with killed processes
# and machines that lose their power. Prints "N of M points, share i/n, 0 leaks" last, and fails if there was no point. Arguments: "soak"
# only runs random scenarios. Environment:
#   LIFECYCLE_SHARE  i/n: only that share of the points; "auto": one share of five, determined by HEAD's tree, so that the verdict on a commit is
#                    fixed, and half of the points in areas that commits since the upstream branch have changed. Empty: FULL
#   FULL             if set, every point, including points of long scenarios that show little more, and kills at fault points that only read
#   DURATION         duration of a soak (30m)
#   LIFECYCLE_SEED   repeats the scenario with the seed that a failed run has printed
set -euo pipefail
cd "$(dirname "$0")/.."
hack/packages.sh cc
# The machines are in memory, in a mount that only these processes see: the result of a power cut is computed from writes and syncs, never
# produced on the disk of this machine, which would cost half of the time.
if [ "$(id -u)" = 0 ] && [ -z "${LIFECYCLE_MEMORY:-}" ] && unshare --mount true 2>/dev/null; then
	exec env LIFECYCLE_MEMORY=1 unshare --mount --propagation private hack/lifecycle.sh "$@"
fi
here=$(mktemp -d)
trap 'if mountpoint --quiet "$here"; then umount --lazy "$here"; fi; rm -rf "$here"' EXIT
[ -z "${LIFECYCLE_MEMORY:-}" ] || mount -t tmpfs -o mode=0700 lifecycle "$here"
mkdir "$here/points" "$here/machines" "$here/taken"

[ -n "${LIFECYCLE_SHARE:-}" ] || export FULL=1
# A requested share is the same for all points.
export LIFECYCLE_CHANGED=/dev/null
if [ -n "${FULL:-}" ]; then
	export LIFECYCLE_SHARE=0/1
elif [ "$LIFECYCLE_SHARE" = auto ]; then
	LIFECYCLE_SHARE=$((0x$(git rev-parse 'HEAD^{tree}' | cut -c1-8) % 5))/5
	export LIFECYCLE_SHARE
	if hack/changed.sh >"$here/changed" 2>/dev/null; then
		LIFECYCLE_CHANGED=$here/changed
	else
		unset LIFECYCLE_CHANGED
	fi
fi
echo "lifecycle: share $LIFECYCLE_SHARE"

# Programs that bind NVIDIA's library must leave its symbols unresolved until they are used. Each program is linked once; go vet is another
# step.
compile=(go test -c -vet=off -ldflags="-w -extldflags=-Wl,-z,lazy")
# run runs one program and prints its output, which contains the plugins' logs, only if it fails.
run() {
	local printed failed=0
	printed=$(mktemp -p "$here")
	(cd test/lifecycle && TMPDIR=$here/machines "$@") >"$printed" 2>&1 || failed=$?
	if [ "$failed" = 0 ]; then tail -n 1 "$printed"; else cat "$printed"; fi
	return "$failed"
}

status=0
"${compile[@]}" -o "$here/lifecycle.test" ./test/lifecycle
if [ "${1:-}" = soak ]; then
	LIFECYCLE_TALLY=$here/points/soak LIFECYCLE_SOAK=${DURATION:-30m} run "$here/lifecycle.test" -test.run '^TestScenarios_ProcessKilled_Recovers$/^RandomScenarios$' || status=$?
else
	"${compile[@]}" -race -o "$here/race.test" ./test/lifecycle
	run "$here/race.test" -test.short -test.skip '_ProcessKilled_Recovers$|_RunTwice_'
	rm "$here/race.test"
	# A process can load one driver library, so each runs one machine: two of them use two cores, and divide the scenarios. They keep little
	# memory, so most of their garbage collections would be useless.
	export LIFECYCLE_TAKEN=$here/taken GOGC=800
	LIFECYCLE_TALLY=$here/points/first run "$here/lifecycle.test" -test.run '^TestScenarios_ProcessKilled_Recovers$' &
	LIFECYCLE_TALLY=$here/points/second run "$here/lifecycle.test" -test.run '^TestScenarios_ProcessKilled_Recovers$/^EveryFaultPoint$|_EveryFaultPointFails_Recovers$|^Test(MPS|Health)_ProcessKilled_Recovers$|^Test(MPS|Health)_RunTwice_' || status=$?
	wait $! || status=$?
fi
[ "$status" = 0 ] || echo "lifecycle: an invariant was violated, or a scenario did not complete; so far:"
awk -v share="$LIFECYCLE_SHARE" '{ tried += $1; all += $2; leaks += $3 } END { printf "%d of %d points, share %s, %d leaks\n", tried, all, share, leaks; exit tried == 0 }' "$here"/points/* || {
	echo "lifecycle: no process was killed: that needs root, to make device nodes, and a C compiler" >&2
	status=1
}
exit "$status"
