package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/config"
	"github.com/prism-gpu/prism/pkg/disk"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/plugin"
	"github.com/prism-gpu/prism/pkg/plugin/cdi"
	"github.com/prism-gpu/prism/pkg/plugin/inventory"
	"github.com/prism-gpu/prism/pkg/plugin/kube"
	"github.com/prism-gpu/prism/pkg/plugin/prepare"
	"github.com/prism-gpu/prism/pkg/plugin/profiler"
	"github.com/prism-gpu/prism/pkg/plugin/timeslice"
	"github.com/prism-gpu/prism/test/simgpu/model"
	"github.com/prism-gpu/prism/test/simgpu/port"
)

// limit stops a test that hangs. It does not limit the time of a call.
const limit = 10 * time.Minute

const (
	testDriver = "gpu.prism.dev"
	testNode   = "node-a"
)

// node is a plugin in this process, from the kubelet's socket to the files. Its ports count.
type node struct {
	t        *testing.T
	model    *model.Node
	disk     *countingDisk
	gate     *Gate
	reached  plugin.API
	hardware *gpu.Node
	layout   gpu.Layout
	statuses *kube.Statuses
	plugin   *Plugin
	tool     *countedTool
	mps      *countedMPSService
	cfg      *config.Plugin
	// inspect reads all GPUs, as the plugin does after a change of a MIG mode.
	inspect func(ctx context.Context) error
}

// countingDisk counts the operations on the real disk. Files counts records and CDI specs alike.
type countingDisk struct {
	disk.OS

	mu          sync.Mutex
	files, dirs int
	done        Files
	byDir       map[string]Files
}

// count adds operations on the files of a directory.
func (d *countingDisk) count(path string, f Files) {
	d.mu.Lock()
	defer d.mu.Unlock()
	dir := filepath.Base(filepath.Dir(path))
	d.done, d.byDir[dir] = d.done.plus(f), d.byDir[dir].plus(f)
}

// since returns the operations since the last call, in total and by directory.
func (d *countingDisk) since() (Files, map[string]Files) {
	d.mu.Lock()
	defer d.mu.Unlock()
	done, byDir := d.done, d.byDir
	d.done, d.byDir = Files{}, map[string]Files{}
	return done, byDir
}

// syncs returns the number of files and directories that were synced so far.
func (d *countingDisk) syncs() (files, dirs int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.files, d.dirs
}

// Read counts files and bytes.
func (d *countingDisk) Read(path string) ([]byte, error) {
	data, err := d.OS.Read(path)
	d.count(path, Files{Opened: 1, Bytes: len(data)})
	return data, err
}

// List counts directories.
func (d *countingDisk) List(dir string) ([]string, error) {
	d.count(filepath.Join(dir, "x"), Files{Listed: 1})
	return d.OS.List(dir)
}

// Write counts files and their syncs.
func (d *countingDisk) Write(path string, data []byte, perm fs.FileMode, durable bool) error {
	f := Files{Changed: 1}
	if durable {
		f.Synced = 1
		d.mu.Lock()
		d.files++
		d.mu.Unlock()
	}
	d.count(path, f)
	return d.OS.Write(path, data, perm, durable)
}

// Rename counts files.
func (d *countingDisk) Rename(from, to string) error {
	d.count(to, Files{Changed: 1})
	return d.OS.Rename(from, to)
}

// Remove counts files, including missing ones.
func (d *countingDisk) Remove(path string) error {
	d.count(path, Files{Changed: 1})
	return d.OS.Remove(path)
}

// SyncDir counts syncs of directories.
func (d *countingDisk) SyncDir(dir string) error {
	d.mu.Lock()
	d.dirs++
	d.mu.Unlock()
	d.count(filepath.Join(dir, "x"), Files{Synced: 1})
	return d.OS.SyncDir(dir)
}

// newNode serves 8 GPUs until the test ends. The node's configuration contains the modes.
func newNode(t *testing.T, modes string) *node {
	t.Helper()
	return newNodeWith(t, modes, nil)
}

// newNodeWith changes the plugin's settings.
func newNodeWith(t *testing.T, modes string, change func(*config.Plugin)) *node {
	t.Helper()
	simulated, err := model.New(model.Uniform(testNode, "h100-80", 8))
	require.NoError(t, err)
	// The path of a socket must be short, so t.TempDir does not work here.
	root, err := os.MkdirTemp("", "bench-")
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, os.RemoveAll(root)) })
	n := &node{
		t: t, model: simulated, disk: &countingDisk{byDir: map[string]Files{}}, tool: &countedTool{},
		mps: &countedMPSService{daemons: map[gpu.MPSDaemonID]gpu.MPSDaemon{}, calls: map[string]int{}}, cfg: settings(root),
	}
	if change != nil {
		change(n.cfg)
	}
	n.configure(modes)
	require.NoError(t, os.MkdirAll(n.cfg.Paths.KubeletRegistrar, 0o750))
	client := n.api()
	n.reached = plugin.API{Claims: client, Background: client, Cluster: cluster{}, Slices: unpublished{}, Events: noEvents{}}
	process := n.open()
	n.statuses, n.inspect = process.Statuses(), process.Machine.Inventory.Refresh
	n.hardware, n.layout, err = process.Layout().Now()
	require.NoError(t, err)
	n.serve(process)
	return n
}

// settings returns the settings of a plugin whose files are below a directory.
func settings(root string) *config.Plugin {
	return &config.Plugin{
		DriverName: testDriver, NodeName: testNode, Driver: config.Driver{CDIHook: config.NoCDIHook},
		NodeConfig: config.NodeConfig{File: filepath.Join(root, "node-config")}, Paths: config.Paths{
			CDIRoot: filepath.Join(root, "cdi"), KubeletPlugins: filepath.Join(root, "plugins"), KubeletRegistrar: filepath.Join(root, "registry"),
			StateDir: filepath.Join(root, "state"), RunDir: filepath.Join(root, "run"),
		},
	}
}

// configure writes the node's configuration, which advertises all GPUs in these modes.
func (n *node) configure(modes string) {
	n.t.Helper()
	text := "apiVersion: gpu.prism.dev/v1alpha1\nkind: NodeConfig\ngpus: [{" + modes + "}]\n"
	require.NoError(n.t, os.WriteFile(n.cfg.NodeConfig.File, []byte(text), 0o600))
}

// serve runs the server for the kubelet and the writer of the claims' statuses. The background work of a leader would be counted, too, and
// does not run.
func (n *node) serve(process *plugin.Plugin) {
	t := n.t
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 2)
	go func() { ended <- n.statuses.Run(ctx) }()
	go func() { ended <- process.Serve(ctx) }()
	t.Cleanup(func() {
		n.gate.Open()
		assert.NoError(t, n.plugin.Close())
		stop()
		assert.NoError(t, <-ended)
		assert.NoError(t, <-ended)
	})
	require.Eventually(t, func() bool {
		var err error
		n.plugin, err = Register(ctx, n.cfg.Paths.KubeletRegistrar, testDriver)
		return err == nil
	}, limit, time.Millisecond)
}

// nodeHost contains only the node's files.
type nodeHost struct {
	*port.Host
	port.MinimalHost
	root string
}

func (h nodeHost) Locate(root, path string) (string, bool) {
	_, err := os.Stat(filepath.Join(root, path))
	return path, err == nil && strings.HasPrefix(path, h.root)
}

// image returns the directory of the plugin's image with the programs of containers.
func (n *node) image() string {
	n.t.Helper()
	image := filepath.Dir(n.cfg.Paths.StateDir)
	for _, program := range []string{cdi.OwnHookName, profiler.Library, profiler.Run} {
		require.NoError(n.t, os.WriteFile(filepath.Join(image, program), []byte("#!/bin/true\n"), 0o600))
	}
	return image
}

// open builds a process of the plugin on the node's files.
func (n *node) open() *plugin.Plugin {
	t := n.t
	host, image := port.NewHost(n.model), n.image()
	process, err := plugin.Build(t.Context(), n.cfg, plugin.Adapters{
		Version: "test", OwnHookImage: filepath.Join(image, cdi.OwnHookName), ImageDir: image, Disk: n.disk,
		Host:   nodeHost{host, port.MinimalHost{Boot: "boot"}, image},
		Locks:  func(dir string) (plugin.Locks, error) { return checkpoint.OpenLocks(dir) },
		Driver: func(string) inventory.Opener { return host.Open }, Services: plugin.Services{MPS: n.mps.below}, Now: time.Now,
		Tool: func(*inventory.Inventory) timeslice.Tool { return n.tool }, Transaction: prepare.New,
		API: func(context.Context) (plugin.API, error) { return n.reached, nil },
	})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, process.Close()) })
	require.Empty(t, process.Damaged)
	require.NoError(t, process.Machine.Inventory.Status().Err)
	return process
}

// cluster supports all features, and contains no claims.
type cluster struct{}

func (cluster) PartitionableDevices(context.Context) (bool, error) { return true, nil }

func (cluster) DeviceTaints(context.Context) (bool, error) { return true, nil }

func (cluster) CountsShares(context.Context) (bool, error) { return true, nil }

func (cluster) Tainted(context.Context) (map[gpu.PoolDevice]bool, error) { return nil, nil }

func (cluster) Allocated(context.Context, kube.AllocatedQuery) (*kube.AllocatedPage, error) {
	return &kube.AllocatedPage{}, nil
}

// unpublished discards ResourceSlices.
type unpublished struct{}

func (unpublished) Publish(resourceslice.DriverResources) {}

func (unpublished) Run(context.Context, func(kube.DroppedFields)) error { return nil }

func (unpublished) Stats() kube.SlicesStats { return kube.SlicesStats{} }

// noEvents discards Events.
type noEvents struct{}

func (noEvents) Warn(_, _, _ string) {}

func (noEvents) Normal(_, _, _ string) {}

// api returns a client of an API server on which every claim exists. Each is allocated the GPU whose number ends the claim's name.
func (n *node) api() kubernetes.Interface {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		parts := strings.Split(strings.TrimSuffix(r.URL.Path, "/status"), "/")
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(n.claim(parts[len(parts)-1]))
	}))
	n.t.Cleanup(server.Close)
	n.gate = NewGate(http.DefaultTransport)
	client, err := kubernetes.NewForConfig(&rest.Config{
		Host: server.URL, QPS: -1, WrapTransport: func(http.RoundTripper) http.RoundTripper { return n.gate },
	})
	require.NoError(n.t, err)
	return client
}

// reference returns the claim for one GPU.
func reference(i int) Claim {
	return Claim{Namespace: "team", Name: fmt.Sprintf("claim-%d", i), UID: fmt.Sprintf("uid-claim-%d", i)}
}

// adminClaim returns the claim with admin access to one GPU.
func adminClaim(i int) Claim {
	return Claim{Namespace: "team", Name: fmt.Sprintf("admin-%d", i), UID: fmt.Sprintf("uid-admin-%d", i)}
}

// migClaim returns the claim for one of the smallest MIG devices, of which perGPU fit on each GPU.
func migClaim(i int) Claim {
	return Claim{Namespace: "team", Name: fmt.Sprintf("mig-%d", i), UID: fmt.Sprintf("uid-mig-%d", i)}
}

// shareClaim returns the claim for a share of one GPU.
func shareClaim(i int) Claim {
	return Claim{Namespace: "team", Name: fmt.Sprintf("share-%d", i), UID: fmt.Sprintf("uid-share-%d", i)}
}

// smallest is the profile with the least memory; perGPU of its instances fill a GPU.
const (
	smallest = "1g.10gb"
	perGPU   = 7
)

func (n *node) claim(name string) *resourceapi.ResourceClaim {
	kind, text, _ := strings.Cut(name, "-")
	number, _ := strconv.Atoi(text)
	of := &n.hardware.GPUs[number%len(n.hardware.GPUs)]
	if kind == "mig" {
		of = &n.hardware.GPUs[number/perGPU%len(n.hardware.GPUs)]
	}
	result := resourceapi.DeviceRequestAllocationResult{
		Request: "gpu", Driver: testDriver, Pool: n.layout.Of(of).Pool(testNode, of), Device: string(gpu.Whole{GPU: of}.Name()),
	}
	switch kind {
	case "admin":
		result.AdminAccess = new(true)
	case "share":
		result.Device, result.ShareID = string(gpu.TimeSliced{GPU: of}.Name()), new(types.UID("share-of-"+name))
	case "mps":
		result.Device, result.ShareID = string(gpu.MPSShare{GPU: of}.Name()), new(types.UID("share-of-"+name))
	case "mig":
		i := slices.Index(of.MIG.ProfileNames(), smallest)
		profile := &of.MIG.Profiles[i]
		result.Device = string(gpu.MIGDevice{GPU: of, Profile: profile, Placement: profile.Placements[number%perGPU]}.Name())
	}
	uid := "uid-" + name
	var configs []resourceapi.DeviceAllocationConfiguration
	switch kind {
	case "interval":
		configs = append(configs, longInterval)
	case "profile":
		configs, uid = append(configs, aProfile), profileClaim(number).UID
	}
	return &resourceapi.ResourceClaim{
		TypeMeta:   metav1.TypeMeta{APIVersion: "resource.k8s.io/v1", Kind: "ResourceClaim"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, UID: types.UID(uid)},
		Status: resourceapi.ResourceClaimStatus{Allocation: &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{
			Results: []resourceapi.DeviceRequestAllocationResult{result}, Config: configs,
		}}},
	}
}

// cost runs one call of the kubelet while the gate admits only these requests, and counts.
func (n *node) cost(call func() error, admitted ...string) Cost {
	n.t.Helper()
	// An earlier call's status must not use up an admitted request: it reads the same claim.
	require.NoError(n.t, n.statuses.Drain(n.t.Context()))
	n.gate.Take()
	calls, runs := n.model.Calls.Of(os.Getpid()).Total, n.tool.runs.Load()
	files, dirs := n.disk.syncs()
	n.gate.Shut(admitted...)
	if err := call(); err != nil {
		require.NoError(n.t, n.gate.blame(err))
	}
	c := neededFirst(n.gate.Take())
	n.gate.Open()
	require.NoError(n.t, n.statuses.Drain(n.t.Context()))
	filesNow, dirsNow := n.disk.syncs()
	c.FileSyncs, c.DirSyncs = filesNow-files, dirsNow-dirs
	c.NVML, c.Programs = int(n.model.Calls.Of(os.Getpid()).Total-calls), int(n.tool.runs.Load()-runs)
	return c
}
