#!/usr/bin/env bash
# NVML without a kernel module creates /dev/nvidiactl.
#
# Seen with libnvidia-ml 550.163.01 (Debian 13) on a machine without NVIDIA's kernel module: nvmlInit_v2 as root returns 9
# (DRIVER_NOT_LOADED), and leaves the device node /dev/nvidiactl (195:255, 0666) behind. So /dev/nvidiactl on a node does not prove that the
# driver is there. Opening the node fails with ENXIO. Without root it creates nothing.
# Needs root, for a mount namespace with its own /dev, and gcc; downloads libnvidia-ml1 from the component non-free.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
mirror=$(apt-get indextargets --format '$(LABEL) $(COMPONENT) $(SITE)' 'Created-By: Packages' | awk '$1 == "Debian" && $2 == "main" { print $3; exit }')
echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror trixie non-free" >sources.list
mkdir -p lists/partial cache/archives/partial root
own=(-q -o "Dir::Etc::sourcelist=$work/sources.list" -o Dir::Etc::sourceparts=/dev/null -o "Dir::State::Lists=$work/lists" -o "Dir::Cache=$work/cache" -o APT::Sandbox::User=root)
apt-get "${own[@]}" update >/dev/null
apt-get "${own[@]}" download libnvidia-ml1=550.163.01-2 >/dev/null
dpkg -x ./*.deb root
cat >init.c <<'PROGRAM'
#include <dlfcn.h>
#include <stdio.h>
int main(int argc, char **argv)
{
	int (*init)(void) = (int (*)(void))dlsym(dlopen(argv[argc - 1], RTLD_NOW), "nvmlInit_v2");
	printf("nvmlInit_v2: %d\n", init());
}
PROGRAM
gcc -o init init.c -ldl
library=$(readlink -f root/usr/lib/*/nvidia/current/libnvidia-ml.so.1)
said=$(unshare --mount sh -c 'mount -t tmpfs none /dev && ./init "$1" && stat -c "%n %t:%T %a" /dev/nvidia*' sh "$library")
echo "$said"
[ "$said" = $'nvmlInit_v2: 9\n/dev/nvidiactl c3:ff 666' ] || { echo "changed" && exit 1; }
echo "as stated"
