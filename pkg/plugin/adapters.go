package plugin

import (
	"context"
	"path/filepath"
	"time"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/config"
	"github.com/prism-gpu/prism/pkg/disk"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/hostfs"
	"github.com/prism-gpu/prism/pkg/hostfs/pcie"
	"github.com/prism-gpu/prism/pkg/nvml"
	"github.com/prism-gpu/prism/pkg/plugin/cdi"
	"github.com/prism-gpu/prism/pkg/plugin/cdihook"
	"github.com/prism-gpu/prism/pkg/plugin/cri"
	"github.com/prism-gpu/prism/pkg/plugin/extension"
	"github.com/prism-gpu/prism/pkg/plugin/inventory"
	"github.com/prism-gpu/prism/pkg/plugin/maintenance"
	"github.com/prism-gpu/prism/pkg/plugin/nvsmi"
	"github.com/prism-gpu/prism/pkg/plugin/prepare"
	"github.com/prism-gpu/prism/pkg/plugin/programs"
	"github.com/prism-gpu/prism/pkg/plugin/timeslice"
)

// DeviceNodes finds the device nodes of GPUs and of MIG devices on the host, and other files.
type DeviceNodes interface {
	CharDevice(path string) (hostfs.CharDevice, error)
	MIGNodes(gpuMinor, gi, ci int) ([]hostfs.CharDevice, error)
	MIGMonitorNode() (hostfs.CharDevice, error)
	GraphicsNodes(busID string) ([]string, error)
	Locate(root, path string) (hostPath string, found bool)
}

// Host finds things on the plugin's host: the driver, GPUs, device nodes, programs and sockets. *hostfs.FS is the real one.
type Host interface {
	inventory.Host
	DeviceNodes
	programs.Host
	// BootID identifies the present boot, DriverLoad the present load of the driver.
	BootID() (string, error)
	DriverLoad() string
	MayHaveGPU() (bool, error)
	// CharDevices finds the character devices that containers get besides GPUs.
	CharDevices(dir, pattern string) ([]hostfs.CharDevice, error)
	// LinkCharDevices makes links to device nodes in the host's /dev/char.
	LinkCharDevices(nodes []hostfs.CharDevice) error
	// Process finds a process by its pid.
	Process(pid int) (hostfs.Process, bool)
	// Writable returns a path for writing a directory of the host; gpu.ErrNotFound if the directory does not exist.
	Writable(path string) (dir string, release func(), err error)
	// UnifiedCgroups and Cgroup are about the cgroups of containers.
	UnifiedCgroups() bool
	Cgroup(path string) (string, error)
	// Sockets lists the sockets of other components that may allocate the GPUs.
	Sockets(dir, pattern string) ([]string, error)
}

// ContainerRuntime is the container runtime of the node; cri.Client is the real one.
type ContainerRuntime interface {
	programs.Runtime
	// Crun asks whether crun starts the containers of a handler; empty is the default handler.
	Crun(ctx context.Context, handler string) (bool, error)
}

// Locks orders the work of all plugin processes of a node; *checkpoint.Locks is the real one.
type Locks interface {
	prepare.Locks
	// Lead waits until no other process of the node leads.
	Lead(ctx context.Context) (release func(), err error)
	// TryLead does not wait; release is nil if another process leads.
	TryLead() (release func(), err error)
	Close() error
}

// Adapters connect a plugin to its node. All are required, except families, and except the API if only a Machine is built.
type Adapters struct {
	// Version is this program's.
	Version string
	Disk    disk.Files
	Host    Host
	// Locks opens the locks in the plugin's directory.
	Locks func(dir string) (Locks, error)
	// Driver returns the function that opens the driver. The driver's hooks name the program at that path; empty: no hooks.
	Driver func(hook string) inventory.Opener
	// Tool returns the tool that sets the time-slice intervals of the GPUs of that inventory.
	Tool func(inv *inventory.Inventory) timeslice.Tool
	// Services are the services of the node that built-in extensions call.
	Services Services
	// Runtime is the node's container runtime; nil: whether it applies CDI specs is not found out.
	Runtime ContainerRuntime
	// Families are wired after the built-in ones; nil for none.
	Families []Family
	// Extensions are wired after the built-in ones; nil for none.
	Extensions []extension.Extension
	// Transaction makes the transaction that prepares claims; prepare.New is the real one.
	Transaction func(prepare.Ports, prepare.Options) (*prepare.Transaction, []error, error)
	// HookImage is the hook program that is installed on hosts that have none, or one without some hooks; a missing file is no error.
	HookImage string
	// HookAbilities returns the hooks of the host's program at a path. It is called once for each file, and not while it runs.
	HookAbilities func(ctx context.Context, path string) ([]string, error)
	// OwnHookImage is prism-hook, which is installed on every host; a missing file is no error, but claims that need it are refused.
	OwnHookImage string
	// ImageDir is the directory with the programs of our image that extensions install; missing ones are no error, but claims that need them
	// are refused.
	ImageDir string
	// GPUClients lists the processes that have a GPU open, other than Prism's; nil: that is not found out.
	GPUClients func(ctx context.Context, g *gpu.GPU) ([]maintenance.Client, error)
	// API connects to the API server; its Events are sent until the context ends.
	API func(ctx context.Context) (API, error)
	// Now is the clock by which pending cleanups are dated.
	Now func() time.Time
}

// The programs of our image.
const (
	imageDir     = "/usr/bin"
	imageHook    = imageDir + "/" + cdi.HookName
	imageOwnHook = imageDir + "/" + cdi.OwnHookName
)

// System returns the adapters of a process on a real node.
func System(cfg *config.Plugin, version string) Adapters {
	host := pcie.New(cfg.Paths.HostRoot, cfg.Driver.SearchDirs...)
	runtime := cri.Client{HostRoot: cfg.Paths.HostRoot, Socket: cfg.Paths.CRISocket}
	return Adapters{
		Version: version, Disk: disk.OS{}, Host: host, HookImage: imageHook, OwnHookImage: imageOwnHook,
		ImageDir: imageDir, Now: time.Now, HookAbilities: cdihook.Asker{Root: cfg.Paths.HostRoot}.Hooks,
		Locks: func(dir string) (Locks, error) { return checkpoint.OpenLocks(dir) }, Driver: openNVML(host, cfg.Driver), Tool: nvidiaSMI, Services: services(),
		Transaction: prepare.New, Runtime: runtime, GPUClients: gpuClients{host.Holders, runtime.PodOf, releaseNamespace(cfg)}.of,
		API: func(ctx context.Context) (API, error) { return connect(ctx, cfg, version) },
	}
}

// programs returns the options for installing programs.
func (a Adapters) programs(cfg *config.Plugin, specs *cdi.Dir) programs.Options {
	return programs.Options{
		Config: cfg, Version: a.Version, Disk: a.Disk, Host: a.Host, Specs: specs, Runtime: a.Runtime, Abilities: a.HookAbilities,
		Images: programs.Images{NVIDIA: a.HookImage, Own: a.OwnHookImage, Dir: a.ImageDir, Extra: extensionPrograms},
	}
}

// openNVML opens the library of the driver.
func openNVML(host Host, cfg config.Driver) func(hook string) inventory.Opener {
	return func(hook string) inventory.Opener {
		return func(ctx context.Context, root hostfs.DriverRoot) (inventory.Session, error) {
			options := nvml.Options{Root: root.Path, HostRoot: root.HostPath, LibraryDir: filepath.Dir(root.Library), CUDACompat: cfg.CUDACompat}
			options.HookPath, options.Ldconfig = programs.WithLdconfig(ctx, host, cfg.SearchDirs, hook)
			return nvml.Open(ctx, root.Library, options)
		}
	}
}

// nvidiaSMI is the tool of the driver that is in use at the time.
func nvidiaSMI(inv *inventory.Inventory) timeslice.Tool {
	return &nvsmi.Tool{Find: func() (nvsmi.Install, error) {
		// Without a session the GPUs may be released, and the tool would attach all of them.
		if _, err := inv.ComputeModes(); err != nil {
			return nvsmi.Install{}, err
		}
		view := inv.Current()
		if view.Root.Library == "" {
			return nvsmi.Install{}, view.Err
		}
		program, _ := view.Root.Tool("nvidia-smi")
		return nvsmi.Install{Program: program, Library: view.Root.Library, Root: view.Root.HostPath, Dirs: view.Root.ToolDirs()}, nil
	}}
}
