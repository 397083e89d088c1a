#!/usr/bin/env bash
# Runs lifecycle and e2e side by side: the one computes, the other mostly waits. Fails when either does. Their output is printed in turn,
# lifecycle's last.
set -euo pipefail
cd "$(dirname "$0")/.."
log=$(mktemp)
# What waits for a deadline goes first.
nice -n 10 make --no-print-directory lifecycle >"$log" 2>&1 &
lifecycle=$!
trap 'kill "$lifecycle" 2>/dev/null || true; wait; rm -f "$log"' EXIT
e2e=passed scenarios=passed
make --no-print-directory e2e || e2e=failed
wait "$lifecycle" || scenarios=failed
trap 'rm -f "$log"' EXIT
cat "$log"
echo "test: lifecycle $scenarios, e2e $e2e"
[ "$scenarios$e2e" = passedpassed ]
