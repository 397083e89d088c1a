// Package extradevices finds further device nodes and files for containers with a GPU, if the node's configuration requests them: for
// GPUDirect Storage, InfiniBand and GDRCopy.
package extradevices

import (
	"fmt"
	"sync"

	"k8s.io/klog/v2"
	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/prism-gpu/prism/api/v1alpha1"
	"github.com/prism-gpu/prism/pkg/events"
	"github.com/prism-gpu/prism/pkg/hostfs"
	"github.com/prism-gpu/prism/pkg/plugin/cdi"
)

// Finder finds extra devices on the host. It is safe for concurrent use.
type Finder struct {
	// Flags returns the present settings of the node's configuration, nil for none.
	Flags func() *v1alpha1.NodeFlags
	// CharDevices lists the host's character devices in a directory whose names match a pattern.
	CharDevices func(dir, pattern string) ([]hostfs.CharDevice, error)
	// Locate returns the host's path of a path below a root directory; false if nothing exists there.
	Locate func(root, path string) (hostPath string, found bool)
	Events events.Recorder

	mu sync.Mutex
	// reported contains the flags whose missing device nodes were reported.
	reported map[string]bool
}

// sources lists the device nodes of each flag. The first pattern of a flag must match at least one.
var sources = []struct {
	flag   string
	on     func(*v1alpha1.NodeFlags) *bool
	places [][2]string
	module string
}{
	{"gdsEnabled", func(f *v1alpha1.NodeFlags) *bool { return f.GDSEnabled }, [][2]string{{"/dev", "nvidia-fs*"}}, "nvidia-fs"},
	{"mofedEnabled", func(f *v1alpha1.NodeFlags) *bool { return f.MOFEDEnabled }, [][2]string{{"/dev/infiniband", "uverbs*"}, {"/dev/infiniband", "rdma_cm"}}, "ib_uverbs"},
	{"gdrcopyEnabled", func(f *v1alpha1.NodeFlags) *bool { return f.GDRCopyEnabled }, [][2]string{{"/dev", "gdrdrv"}}, "gdrdrv"},
}

// Nodes lists the requested device nodes that exist. It reports missing ones once until they exist again; no claim fails because of them.
func (f *Finder) Nodes() []cdi.DeviceNode {
	flags := f.Flags()
	if flags == nil {
		return nil
	}
	var nodes []cdi.DeviceNode
	for _, source := range sources {
		if on := source.on(flags); on == nil || !*on {
			continue
		}
		for i, place := range source.places {
			devices, err := f.CharDevices(place[0], place[1])
			if i == 0 {
				f.report(source.flag, fmt.Sprintf("%s/%s", place[0], place[1]), source.module, len(devices) > 0, err)
			}
			for _, d := range devices {
				nodes = append(nodes, cdi.DeviceNode{Path: d.Path, HostPath: d.Path, Major: int64(d.Major), Minor: int64(d.Minor)})
			}
		}
	}
	return nodes
}

// gdsFiles are the files that the library of GPUDirect Storage reads in addition to the device nodes: the PCI addresses of devices, and the
// administrator's configuration.
var gdsFiles = []string{"/run/udev", "/etc/cufile.json"}

// Mounts lists the files of GPUDirect Storage if the configuration requests it and its device nodes exist. Files of the driver's root take
// precedence over files of the host. Missing files are left out: the library works without them.
func (f *Finder) Mounts(driverRoot string) []*specs.Mount {
	flags := f.Flags()
	if flags == nil || flags.GDSEnabled == nil || !*flags.GDSEnabled {
		return nil
	}
	if nodes, err := f.CharDevices("/dev", "nvidia-fs*"); err != nil || len(nodes) == 0 {
		return nil // Nodes reports it
	}
	var mounts []*specs.Mount
	for _, path := range gdsFiles {
		for _, root := range []string{driverRoot, "/"} {
			if hostPath, found := f.Locate(root, path); found {
				mounts = append(mounts, &specs.Mount{
					HostPath: hostPath, ContainerPath: path, Options: []string{"ro", "nosuid", "nodev", "noexec", "rbind", "rprivate"},
				})
				break
			}
		}
	}
	return mounts
}

func (f *Finder) report(flag, path, module string, found bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.reported == nil {
		f.reported = map[string]bool{}
	}
	if found || f.reported[flag] {
		f.reported[flag] = !found && f.reported[flag]
		return
	}
	f.reported[flag] = true
	note := fmt.Sprintf("Containers get no %s, which flags.%s of the node's configuration requests: the node does not have it; load the kernel module %s or "+
		"turn the flag off", path, flag, module)
	if err != nil {
		note = fmt.Sprintf("Containers get no %s, which flags.%s of the node's configuration requests: %v", path, flag, err)
	}
	klog.Background().Info("Device nodes are missing", "reason", note)
	f.Events.Warn(events.DeviceNodesMissing, events.ActionPrepare, note)
}
