#!/usr/bin/env bash
# Prints the files that differ between this folder and the merge base of HEAD and its upstream branch, one per line. If HEAD is not a
# branch, it is compared with the remote's default branch. Exits with 1 if the upstream branch or its history is missing.
set -euo pipefail
cd "$(dirname "$0")/.."
upstream=$(git rev-parse --verify --quiet '@{upstream}' || git rev-parse --verify --quiet refs/remotes/origin/HEAD) || exit 1
base=$(git merge-base HEAD "$upstream") || exit 1
git diff --no-renames --name-only "$base"
git ls-files --others --exclude-standard
