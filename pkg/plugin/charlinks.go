package plugin

import (
	"cmp"
	"sync"

	"k8s.io/klog/v2"
	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/prism-gpu/prism/pkg/hostfs"
)

// charLinks makes the links in the host's /dev/char to the device nodes that containers get. No claim fails for them: most hosts need none.
type charLinks struct {
	make   func(nodes []hostfs.CharDevice) error
	logger klog.Logger

	mu sync.Mutex
	// failed is the reason of the last failure; "" if the last call succeeded.
	failed string
}

// of makes the links to the device nodes of a spec. It logs a failure once.
func (l *charLinks) of(spec *specs.Spec) {
	all := spec.ContainerEdits.DeviceNodes
	for i := range spec.Devices {
		all = append(all[:len(all):len(all)], spec.Devices[i].ContainerEdits.DeviceNodes...)
	}
	nodes := make([]hostfs.CharDevice, 0, len(all))
	for _, n := range all {
		nodes = append(nodes, hostfs.CharDevice{Path: cmp.Or(n.HostPath, n.Path), Major: uint32(n.Major), Minor: uint32(n.Minor)}) //nolint:gosec // the numbers of a device
	}
	reason, err := "", l.make(nodes)
	if err != nil {
		reason = err.Error()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if reason != l.failed && reason != "" {
		l.logger.Error(err, "Links in /dev/char are missing: with systemd before version 240, or with runc 1.1.3 to 1.1.6, containers lose their GPUs when "+
			"systemd is reloaded; make the links with nvidia-ctk system create-dev-char-symlinks --create-all")
	}
	l.failed = reason
}
