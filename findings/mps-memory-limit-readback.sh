#!/usr/bin/env bash
# The memory limit that an MPS control daemon reports is not the limit that was set.
#
# Seen with nvidia-cuda-mps 535.261.03 (Debian 12), without a GPU: after "set_default_device_pinned_mem_limit 0 LIMIT", the answer of
# "get_default_device_pinned_mem_limit 0" is rounded down to whole GiB from 1 GiB on: 1536M is 1G, 2500M is 2G; 900M is 900M.
# A program that compares both to find out whether a limit is in force sees a difference for ever.
# Needs Debian 12; downloads the daemon from the component non-free.
set -euo pipefail
work=$(mktemp -d)
control=
ended() {
	[ -z "$control" ] || echo quit | "$control" >/dev/null 2>&1 || true
	rm -rf "$work"
}
trap ended EXIT
cd "$work"
mirror=$(apt-get indextargets --format '$(LABEL) $(COMPONENT) $(SITE)' 'Created-By: Packages' | awk '$1 == "Debian" && $2 == "main" { print $3; exit }')
echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror bookworm non-free" >sources.list
mkdir -p lists/partial cache/archives/partial root pipes logs
own=(-q -o "Dir::Etc::sourcelist=$work/sources.list" -o Dir::Etc::sourceparts=/dev/null -o "Dir::State::Lists=$work/lists" -o "Dir::Cache=$work/cache" -o APT::Sandbox::User=root)
apt-get "${own[@]}" update >/dev/null
apt-get "${own[@]}" download nvidia-cuda-mps=535.261.03-1 >/dev/null
for package in ./*.deb; do dpkg -x "$package" root; done
export CUDA_MPS_PIPE_DIRECTORY=$work/pipes CUDA_MPS_LOG_DIRECTORY=$work/logs
"$work/root/usr/bin/nvidia-cuda-mps-control" -d
control=$work/root/usr/bin/nvidia-cuda-mps-control

# ask sends a command to the daemon.
ask() { echo "$*" | timeout 60 "$control"; }
while read -r limit expected; do
	said=$(ask "set_default_device_pinned_mem_limit 0 $limit")
	is=$(ask "get_default_device_pinned_mem_limit 0")
	echo "set $limit: ${said:-no answer}; reads back as $is"
	[ -z "$said" ] && [ "$is" = "$expected" ] || { echo "changed: $limit" && exit 1; }
done <<'LIMITS'
900M 900M
1024M 1G
1536M 1G
2500M 2G
3G 3G
LIMITS
echo "as stated"
