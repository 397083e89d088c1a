#!/usr/bin/env bash
# The laws of a claim on a simulated GPU node: first within one process and with the race detector, then with processes that are
# killed and machines that lose their power. Ends with the line "N kill points, 0 leaks", and fails where none could be made.
# Arguments: "soak" lives random lives only. Environment:
#   DURATION        how long a soak takes (30m)
#   LIFECYCLE_LONG  set: also the lives that take long and show little more, and deaths at touches that only look
#   LIFECYCLE_SEED  lives the one life that a failed run has named
set -euo pipefail
cd "$(dirname "$0")/.."
hack/packages.sh cc
# The machines lie in memory, in a mount that only these processes see: what a power cut leaves is worked out from what was written
# and synced, never tried on the disk of this machine, and that would cost half of the time.
if [ "$(id -u)" = 0 ] && [ -z "${LIFECYCLE_MEMORY:-}" ] && unshare --mount true 2>/dev/null; then
	exec env LIFECYCLE_MEMORY=1 unshare --mount --propagation private hack/lifecycle.sh "$@"
fi
here=$(mktemp -d)
trap 'if mountpoint --quiet "$here"; then umount --lazy "$here"; fi; rm -rf "$here"' EXIT
[ -z "${LIFECYCLE_MEMORY:-}" ] || mount -t tmpfs -o mode=0700 lifecycle "$here"
export TMPDIR=$here/machines
mkdir "$here/points" "$TMPDIR"
# Programs that bind NVIDIA's library must leave its symbols open until they are used.
lives=(go test -ldflags=-extldflags=-Wl,-z,lazy -timeout 0)

status=0
if [ "${1:-}" = soak ]; then
	LIFECYCLE_TALLY=$here/points/soak LIFECYCLE_SOAK=${DURATION:-30m} "${lives[@]}" -run '^TestKilledProcesses$/^anywhere$' ./test/lifecycle || status=$?
else
	"${lives[@]}" -race -short -skip '^TestKilledProcesses$' ./test/lifecycle
	# A process can load one driver library, so there is one machine in each: two of them keep two cores busy, and share the lives out.
	mkdir "$here/shared"
	export LIFECYCLE_SHARED=$here/shared
	LIFECYCLE_TALLY=$here/points/first "${lives[@]}" -run '^TestKilledProcesses$' ./test/lifecycle &
	LIFECYCLE_TALLY=$here/points/second "${lives[@]}" -run '^TestKilledProcesses$/^everywhere$|^TestEveryTouchCanBeRefused$' ./test/lifecycle || status=$?
	wait $! || status=$?
fi
[ "$status" = 0 ] || echo "lifecycle: a law did not hold, or a life was not lived to its end; of what was lived:"
awk '{ points += $1; leaks += $4 } END { printf "%d kill points, %d leaks\n", points, leaks; exit points == 0 }' "$here"/points/* || {
	echo "lifecycle: no process was killed: that needs root, to make device nodes, and a C compiler" >&2
	status=1
}
exit "$status"
