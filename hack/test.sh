#!/usr/bin/env bash
# Runs make targets one after another until one fails, and prints a report: test.sh check unit e2e lifecycle. Lifecycle runs beside e2e and
# takes what CPU time e2e leaves; after e2e where other processes keep the CPUs busy, or the kernel has no such weight. Environment:
#   LIFECYCLE_AFTER  set: lifecycle runs after e2e
#   LIFECYCLE_SHARE  the share of lifecycle's points, as hack/lifecycle.sh says (auto)
#   VERDICT_DIR      keep the output of the steps and the events of their tests in this folder
set -euo pipefail
cd "$(dirname "$0")/.."
beside=(--beside)
[ -z "${LIFECYCLE_AFTER:-}" ] || beside=()
export LIFECYCLE_SHARE=${LIFECYCLE_SHARE:-auto}
exec hack/verdict.sh steps "${beside[@]}" "$@"
