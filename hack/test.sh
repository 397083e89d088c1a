#!/usr/bin/env bash
# Runs make targets one after another until one fails, and prints a report: test.sh check unit e2e lifecycle. Lifecycle runs beside e2e with
# the CPU time that e2e leaves; it runs after e2e if other processes keep the CPUs busy, or the kernel does not support such a weight.
# Environment:
#   LIFECYCLE_AFTER  set: lifecycle runs after e2e
#   LIFECYCLE_SHARE  share of lifecycle's points, see hack/lifecycle.sh (auto)
#   VERDICT_DIR      store the output of the steps and the events of their tests in this folder
set -euo pipefail
cd "$(dirname "$0")/.."
beside=(--beside)
[ -z "${LIFECYCLE_AFTER:-}" ] || beside=()
export LIFECYCLE_SHARE=${LIFECYCLE_SHARE:-auto}
exec hack/verdict.sh steps "${beside[@]}" "$@"
