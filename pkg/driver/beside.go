package driver

import (
	"fmt"
	"sync"

	"k8s.io/klog/v2"
	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/prism-gpu/prism/api/v1alpha1"
	"github.com/prism-gpu/prism/pkg/cdi"
	"github.com/prism-gpu/prism/pkg/events"
	"github.com/prism-gpu/prism/pkg/hostfs"
)

// Beside finds the device nodes that containers get beside those of GPUs, where the node's configuration wants them: of GPUDirect Storage,
// of InfiniBand and of GDRCopy.
type Beside struct {
	// Flags are the settings now, nil for none.
	Flags func() *v1alpha1.NodeFlags
	// CharDevices lists the host's character devices in a directory whose names match a pattern.
	CharDevices func(dir, pattern string) ([]hostfs.CharDevice, error)
	// Locate finds what a path means below a directory of the host, false where there is nothing.
	Locate func(root, path string) (hostPath string, found bool)
	Events NodeEvents

	mu   sync.Mutex
	told map[string]bool
}

// besides are what a flag adds; the first place is the one that has to have something.
var besides = []struct {
	flag   string
	on     func(*v1alpha1.NodeFlags) *bool
	places [][2]string
	module string
}{
	{"gdsEnabled", func(f *v1alpha1.NodeFlags) *bool { return f.GDSEnabled }, [][2]string{{"/dev", "nvidia-fs*"}}, "nvidia-fs"},
	{"mofedEnabled", func(f *v1alpha1.NodeFlags) *bool { return f.MOFEDEnabled }, [][2]string{{"/dev/infiniband", "uverbs*"}, {"/dev/infiniband", "rdma_cm"}}, "ib_uverbs"},
	{"gdrcopyEnabled", func(f *v1alpha1.NodeFlags) *bool { return f.GDRCopyEnabled }, [][2]string{{"/dev", "gdrdrv"}}, "gdrdrv"},
}

// Nodes lists those that are there now. What is wanted and not there is told once, until it was there again; a claim does not fail for it.
func (b *Beside) Nodes() []cdi.Node {
	flags := b.Flags()
	if flags == nil {
		return nil
	}
	var nodes []cdi.Node
	for _, beside := range besides {
		if on := beside.on(flags); on == nil || !*on {
			continue
		}
		for i, place := range beside.places {
			devices, err := b.CharDevices(place[0], place[1])
			if i == 0 {
				b.tell(beside.flag, fmt.Sprintf("%s/%s", place[0], place[1]), beside.module, len(devices) > 0, err)
			}
			for _, d := range devices {
				nodes = append(nodes, cdi.Node{Path: d.Path, HostPath: d.Path, Major: int64(d.Major), Minor: int64(d.Minor)})
			}
		}
	}
	return nodes
}

// gdsFiles are what the library of GPUDirect Storage reads beside the device nodes: which devices are of which PCI address, and how
// an administrator has configured it.
var gdsFiles = []string{"/run/udev", "/etc/cufile.json"}

// Mounts lists the files of GPUDirect Storage where the configuration wants it and the node has its device nodes: those of the driver's
// root, else of the host. A missing file is left out, as the library does without.
func (b *Beside) Mounts(driverRoot string) []*specs.Mount {
	flags := b.Flags()
	if flags == nil || flags.GDSEnabled == nil || !*flags.GDSEnabled {
		return nil
	}
	if nodes, err := b.CharDevices("/dev", "nvidia-fs*"); err != nil || len(nodes) == 0 {
		return nil // Nodes tells of it
	}
	var mounts []*specs.Mount
	for _, path := range gdsFiles {
		for _, root := range []string{driverRoot, "/"} {
			if hostPath, found := b.Locate(root, path); found {
				mounts = append(mounts, &specs.Mount{
					HostPath: hostPath, ContainerPath: path, Options: []string{"ro", "nosuid", "nodev", "noexec", "rbind", "rprivate"},
				})
				break
			}
		}
	}
	return mounts
}

func (b *Beside) tell(flag, path, module string, found bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.told == nil {
		b.told = map[string]bool{}
	}
	if found || b.told[flag] {
		b.told[flag] = !found && b.told[flag]
		return
	}
	b.told[flag] = true
	note := fmt.Sprintf("Containers get no %s, which flags.%s of the node's configuration wants: there is none on the node; load the kernel module %s or "+
		"turn the flag off", path, flag, module)
	if err != nil {
		note = fmt.Sprintf("Containers get no %s, which flags.%s of the node's configuration wants: %v", path, flag, err)
	}
	klog.Background().Info("Device nodes are missing", "reason", note)
	b.Events.Warn(events.DeviceNodesMissing, events.ActionPrepare, note)
}
