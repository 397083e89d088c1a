#!/usr/bin/env bash
# Prints the files in which this folder differs from the merge base of HEAD and its upstream branch, one a line. Where HEAD is no branch, it is
# compared with the remote's default branch. Exits with 1 where there is nothing to compare with: no upstream branch, or not its history.
set -euo pipefail
cd "$(dirname "$0")/.."
upstream=$(git rev-parse --verify --quiet '@{upstream}' || git rev-parse --verify --quiet refs/remotes/origin/HEAD) || exit 1
base=$(git merge-base HEAD "$upstream") || exit 1
git diff --no-renames --name-only "$base"
git ls-files --others --exclude-standard
