#!/usr/bin/env bash
# hostPath of a CDI device node, in a container with a user namespace.
#
# A CDI spec may give a device node of the host another path in the container: hostPath and path. Seen with CDI v1.1.0 and runc v1.5.2, for a node
# whose hostPath is outside of /dev and whose path does not exist on the host:
#   - without a user namespace the container has the device: runc creates it from the type and numbers that the CDI library found at hostPath;
#   - with one, runc mounts device nodes from the host. The OCI spec has no hostPath, so runc opens the container's path on the host, and the
#     container does not start ("no such file or directory").
# The CDI library reports nothing, and the OCI specs of both containers have the same device.
# Needs root on Linux, Go, a C compiler and a module proxy. It uses the numbers of /dev/zero in a folder of its own.
set -euo pipefail
[ "$(id -u)" = 0 ] || { echo "run it as root" >&2; exit 2; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"
cd "$work"
export GOFLAGS=-mod=mod GOWORK=off
go version
GOBIN=$work/bin go install github.com/opencontainers/runc@v1.5.2
bin/runc --version | head -1
mkdir -p cdi device rootfs/dev rootfs/proc rootfs/sys bundle
mknod device/host-zero c 1 5
path=/dev/cdi-finding-zero
[ ! -e "$path" ] || { echo "$path exists on this host" >&2; exit 2; }
cat >cdi/vendor.json <<SPEC
{"cdiVersion": "0.6.0", "kind": "example.test/device", "devices": [{"name": "zero", "containerEdits": {"deviceNodes": [
	{"path": "$path", "hostPath": "$work/device/host-zero"}]}}]}
SPEC
cat >go.mod <<'MODULE'
module example.test/hostpath

go 1.26.0

require (
	github.com/opencontainers/runtime-spec v1.3.0
	tags.cncf.io/container-device-interface v1.1.0
)
MODULE
mkdir inject probe
cat >inject/main.go <<'PROGRAM'
// Injects the device into the OCI spec of the bundle, as container runtimes do.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	oci "github.com/opencontainers/runtime-spec/specs-go"
	"tags.cncf.io/container-device-interface/pkg/cdi"
)

func main() {
	var spec oci.Spec
	raw, err := os.ReadFile(os.Args[1])
	if err == nil {
		err = json.Unmarshal(raw, &spec)
	}
	if err == nil {
		var cache *cdi.Cache
		if cache, err = cdi.NewCache(cdi.WithSpecDirs(os.Args[2])); err == nil {
			_, err = cache.InjectDevices(&spec, "example.test/device=zero")
		}
	}
	if err == nil {
		raw, err = json.Marshal(spec)
	}
	if err == nil {
		err = os.WriteFile(os.Args[1], raw, 0o644)
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	devices, _ := json.Marshal(spec.Linux.Devices)
	fmt.Printf("devices: %s\n", devices)
}
PROGRAM
cat >probe/main.go <<'PROGRAM'
// Reads a byte of the device.
package main

import (
	"fmt"
	"os"
)

func main() {
	file, err := os.Open(os.Args[1])
	if err == nil {
		_, err = file.Read(make([]byte, 1))
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("read the device")
}
PROGRAM
go build -o inject/inject ./inject
CGO_ENABLED=0 go build -o rootfs/probe ./probe
chmod -R go+rX rootfs

# container starts a container; its argument is the part of the OCI spec about namespaces.
container() {
	local namespaces='{"type": "mount"}, {"type": "pid"}' user=
	if [ "$1" = user ]; then
		namespaces+=', {"type": "user"}'
		user='"uidMappings": [{"containerID": 0, "hostID": 100000, "size": 65536}], "gidMappings": [{"containerID": 0, "hostID": 100000, "size": 65536}],'
	fi
	cat >bundle/config.json <<SPEC
{"ociVersion": "1.2.0", "process": {"user": {"uid": 0, "gid": 0}, "cwd": "/", "args": ["/probe", "$path"], "env": ["PATH=/"]},
"root": {"path": "$work/rootfs"}, "mounts": [{"destination": "/proc", "type": "proc", "source": "proc"},
{"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["mode=755"]}],
"linux": {$user "namespaces": [$namespaces]}}
SPEC
	inject/inject bundle/config.json cdi
	bin/runc --root "$work/state" run --bundle bundle "finding-$1-$$" 2>&1 | tail -1 || true
}
host=$(container host)
user=$(container user)
printf 'without a user namespace:\n%s\nwith one:\n%s\n' "$host" "$user"
[ "$(head -1 <<<"$host")" = "$(head -1 <<<"$user")" ] || { echo "changed: the devices in the OCI specs" && exit 1; }
grep -qxF 'read the device' <<<"$host" || { echo "changed: the container without a user namespace" && exit 1; }
grep -qF "mount src=$path" <<<"$user" && grep -qF 'no such file or directory' <<<"$user" || { echo "changed: the container with a user namespace" && exit 1; }
echo "as stated"
