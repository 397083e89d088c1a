#!/usr/bin/env bash
# The invariants of a claim on a simulated GPU node: first within one process and with the race detector, then with processes that are
# killed and machines that lose their power. Prints "N kill points, 0 leaks" last, and fails where there was no kill point.
# Arguments: "soak" runs random scenarios only. Environment:
#   DURATION        how long a soak takes (30m)
#   LIFECYCLE_LONG  set: also the long scenarios that show little more, and kills at fault points that only read
#   LIFECYCLE_SEED  repeats the scenario with the seed that a failed run has printed
set -euo pipefail
cd "$(dirname "$0")/.."
hack/packages.sh cc
# The machines are in memory, in a mount that only these processes see: the result of a power cut is computed from what was written
# and synced, never produced on the disk of this machine, which would cost half of the time.
if [ "$(id -u)" = 0 ] && [ -z "${LIFECYCLE_MEMORY:-}" ] && unshare --mount true 2>/dev/null; then
	exec env LIFECYCLE_MEMORY=1 unshare --mount --propagation private hack/lifecycle.sh "$@"
fi
here=$(mktemp -d)
trap 'if mountpoint --quiet "$here"; then umount --lazy "$here"; fi; rm -rf "$here"' EXIT
[ -z "${LIFECYCLE_MEMORY:-}" ] || mount -t tmpfs -o mode=0700 lifecycle "$here"
export TMPDIR=$here/machines
mkdir "$here/points" "$TMPDIR"
# Programs that bind NVIDIA's library must leave its symbols open until they are used. Without -count go remembers every file that a run
# opens, which are millions here, to decide whether its result may be used again: gigabytes, and a quarter of the time.
scenarios=(go test -ldflags=-extldflags=-Wl,-z,lazy -timeout 0 -count 1)

status=0
if [ "${1:-}" = soak ]; then
	LIFECYCLE_TALLY=$here/points/soak LIFECYCLE_SOAK=${DURATION:-30m} "${scenarios[@]}" -run '^TestScenarios_ProcessKilled_Recovers$/^RandomScenarios$' ./test/lifecycle || status=$?
else
	"${scenarios[@]}" -race -short -skip '_ProcessKilled_Recovers$' ./test/lifecycle
	# A process can load one driver library, so each has one machine: two of them use two cores, and share the scenarios.
	# What they keep is little, so most of their garbage collections would be for nothing.
	mkdir "$here/shared"
	export LIFECYCLE_SHARED=$here/shared GOGC=800
	LIFECYCLE_TALLY=$here/points/first "${scenarios[@]}" -run '^TestScenarios_ProcessKilled_Recovers$' ./test/lifecycle &
	LIFECYCLE_TALLY=$here/points/second "${scenarios[@]}" -run '^TestScenarios_ProcessKilled_Recovers$/^EveryFaultPoint$|_EveryFaultPointFails_Recovers$|^TestMPS_ProcessKilled_Recovers$' ./test/lifecycle || status=$?
	wait $! || status=$?
fi
[ "$status" = 0 ] || echo "lifecycle: an invariant was violated, or a scenario did not complete; so far:"
awk '{ points += $1; leaks += $4 } END { printf "%d kill points, %d leaks\n", points, leaks; exit points == 0 }' "$here"/points/* || {
	echo "lifecycle: no process was killed: that needs root, to make device nodes, and a C compiler" >&2
	status=1
}
exit "$status"
