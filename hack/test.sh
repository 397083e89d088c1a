#!/usr/bin/env bash
# Runs e2e, then lifecycle, and fails when either does. Side by side they took about as long on two processors, which bound both, and profiled
# processes of e2e starved.
set -euo pipefail
cd "$(dirname "$0")/.."
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
e2e=passed scenarios=passed
make --no-print-directory e2e 2>&1 | tee "$logs/e2e" || e2e=failed
make --no-print-directory lifecycle 2>&1 | tee "$logs/lifecycle" || scenarios=failed
# What failed, where only the last lines are kept.
grep --no-filename --extended-regexp '^ *--- FAIL:|^panic:|^WARNING: DATA RACE|^fatal error:' "$logs/e2e" "$logs/lifecycle" || true
echo "test: lifecycle $scenarios, e2e $e2e"
[ "$scenarios$e2e" = passedpassed ]
