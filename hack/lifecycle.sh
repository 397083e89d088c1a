#!/usr/bin/env bash
# The laws of a claim on a simulated GPU node: first within one process and with the race detector, then with processes that are
# killed and machines that lose their power. Ends with the line "N kill points, 0 leaks". Arguments: "soak" lives random lives
# only. Environment:
#   DURATION        how long a soak takes (30m)
#   LIFECYCLE_SEED  lives the one life that a failed run has named
set -euo pipefail
cd "$(dirname "$0")/.."
hack/packages.sh cc
export LIFECYCLE_TALLY
LIFECYCLE_TALLY=$(mktemp)
trap 'rm -f "$LIFECYCLE_TALLY"' EXIT
# Programs that bind NVIDIA's library must leave its symbols open until they are used.
lives=(go test -ldflags=-extldflags=-Wl,-z,lazy -timeout 0)

status=0
if [ "${1:-}" = soak ]; then
	LIFECYCLE_SOAK=${DURATION:-30m} "${lives[@]}" -run '^TestKilledProcesses$/^anywhere$' ./test/lifecycle || status=$?
else
	"${lives[@]}" -race -skip '^TestKilledProcesses$' ./test/lifecycle
	"${lives[@]}" -run '^TestKilledProcesses$' ./test/lifecycle || status=$?
fi
cat "$LIFECYCLE_TALLY"
exit "$status"
