# A node as a local cluster creates it, but without Kubernetes: its own namespaces contain its own /run, /dev, /proc/driver and PCI devices.
# It runs as pid 1 of them, with the simgpu command as $1 and the machine's mount namespace as $2.
set -eu
[ "$$" = 1 ]
mount --make-rprivate /
mount -t proc proc /proc
[ "$(readlink /proc/self/ns/mnt)" != "$2" ]
mount -t tmpfs tmpfs /run
mkdir /run/node /run/dev
export NODE_STATE=/run/node
sed 's/^Character devices:/&\n195 nvidia\n237 nvidia-uvm/' /proc/devices > /run/node/devices

echo "== refused: $("$1" create 2>&1)"
mount -t tmpfs tmpfs /proc/driver
echo "== refused: $("$1" create 2>&1)"

mount --bind /run/node/devices /proc/devices
mount -t tmpfs tmpfs /sys/bus/pci/devices
mount -t tmpfs tmpfs /run/dev
mknod -m 666 /run/dev/null c 1 3
mount --move /run/dev /dev
mount --make-rshared /
"$1" create --name n1 --count 2
echo "== numa $(cat /sys/bus/pci/devices/0000:43:00.0/numa_node)"
echo "== kernel $(test -d /sys/devices/system/cpu/cpu0 && echo shown)"
echo "== uvm $(stat -c '%t %T' /dev/nvidia-uvm-tools)"
root=/run/nvidia/driver
libraries=$(dirname $root/usr/lib/*/libnvidia-ml.so.1)
LD_LIBRARY_PATH=$libraries $root/usr/bin/nvidia-smi -L

# A pod with the host's / at /host and without its own device nodes.
mkdir /run/host
mount --rbind / /run/host
mount --make-rslave /run/host
unshare -m sh -eu -c "mount -t tmpfs tmpfs /dev; LD_LIBRARY_PATH=/run/host$libraries $root/usr/bin/nvidia-smi -L"
umount -l /run/host
rmdir /run/host

"$1" destroy
echo "== left: $(find /dev /proc/driver /sys/bus/pci/devices /run/nvidia -mindepth 1 2>/dev/null | grep -v -x /dev/null || true)"
echo "== mounts $(grep -c ' /sys/devices' /proc/self/mountinfo || true)"
echo "== kept $(cat /run/node/simgpu.json | tr -d ' \n')"
