#!/usr/bin/env bash
# Runs lifecycle and e2e side by side: the one computes, the other mostly waits. Fails when either does. Their output is printed in turn,
# lifecycle's last.
set -euo pipefail
cd "$(dirname "$0")/.."
logs=$(mktemp -d)
# What waits for a deadline goes first.
nice -n 10 make --no-print-directory lifecycle >"$logs/lifecycle" 2>&1 &
lifecycle=$!
trap 'kill "$lifecycle" 2>/dev/null || true; wait; rm -rf "$logs"' EXIT
e2e=passed scenarios=passed
make --no-print-directory e2e 2>&1 | tee "$logs/e2e" || e2e=failed
wait "$lifecycle" || scenarios=failed
trap 'rm -rf "$logs"' EXIT
cat "$logs/lifecycle"
# What failed, where only the last lines are kept.
grep --no-filename --extended-regexp '^ *--- FAIL:|^panic:|^WARNING: DATA RACE|^fatal error:' "$logs/e2e" "$logs/lifecycle" || true
echo "test: lifecycle $scenarios, e2e $e2e"
[ "$scenarios$e2e" = passedpassed ]
