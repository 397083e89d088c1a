package layout

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/prism-gpu/prism/test/simgpu/bundle"
	"github.com/prism-gpu/prism/test/simgpu/model"
)

// Install is a node on disk. It is stored in Paths.Manifest.
type Install struct {
	Paths Paths      `json:"paths"`
	Spec  model.Spec `json:"spec"`
	State string     `json:"state,omitempty"` // file with the state that survives a reboot
	Files maker      `json:"files"`

	// loads counts the loads since CountLoads; zero before it.
	loads int
}

// Create creates a node: the driver from a built bundle, and the hardware. A
// failed Create leaves nothing.
func Create(paths Paths, node *model.Node, bundleDir string) (*Install, error) {
	if err := paths.Check(); err != nil {
		return nil, err
	}
	in := &Install{Paths: paths, Spec: node.Spec()}
	if err := in.create(node, bundleDir); err != nil {
		return nil, errors.Join(err, in.Remove())
	}
	return in, nil
}

func (in *Install) create(node *model.Node, bundleDir string) error {
	for _, dir := range []string{in.Paths.runDir(), filepath.Dir(in.Paths.Socket())} {
		if err := in.Files.dir(dir); err != nil {
			return err
		}
	}
	for _, path := range []string{in.Paths.Log(), in.Paths.Manifest(), in.Paths.Control(), in.Paths.Socket()} {
		in.Files.note(path)
	}
	steps := []func() error{
		in.sandboxFile,
		func() error { return in.driver(bundleDir) },
		in.procDevices,
		func() error { return in.deviceNodes(node) },
		func() error { return in.proc(node) },
		func() error { return in.Paths.ShowCapabilities(node) },
		func() error { return in.pci(node) },
		in.Save,
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// sandboxFile marks a node whose device nodes are all below its root: the host may have device nodes in /dev, too.
func (in *Install) sandboxFile() error {
	if !in.Paths.sandboxed() {
		return nil
	}
	return in.Files.file(in.Paths.sandboxFile(), "", 0o444)
}

// Open reads the manifest of a node; fs.ErrNotExist without a node.
func Open(root string) (*Install, error) {
	paths := Paths{Root: root}
	text, err := os.ReadFile(paths.Manifest())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("opening the GPU node at %s: there is none (create one with simgpu create, or set --root): %w", root, fs.ErrNotExist)
	}
	if err != nil {
		return nil, fmt.Errorf("opening the GPU node at %s: %w", root, err)
	}
	in := &Install{}
	if err := json.Unmarshal(text, in); err != nil {
		return nil, fmt.Errorf("opening the GPU node at %s: reading %s: %w", root, paths.Manifest(), err)
	}
	return in, nil
}

// Save writes the manifest.
func (in *Install) Save() error {
	text, err := json.MarshalIndent(in, "", "  ")
	if err != nil {
		return fmt.Errorf("keeping the GPU node at %s: %w", in.Paths.Root, err)
	}
	if err := os.WriteFile(in.Paths.Manifest(), text, 0o644); err != nil {
		return fmt.Errorf("keeping the GPU node at %s: %w", in.Paths.Root, err)
	}
	return nil
}

// Remove removes the node from disk.
func (in *Install) Remove() error {
	return errors.Join(in.Paths.removeCapabilities(), in.Files.removeAll())
}

// Upgrade replaces the current driver version by another one, as an installer does while the driver is unloaded.
func (in *Install) Upgrade(version model.DriverVersion, bundleDir string) error {
	old := string(in.Spec.Driver)
	err := in.Files.removeWhere(func(path string) bool {
		return strings.Contains(filepath.Base(path), ".so") || strings.Contains(path, "/firmware/nvidia/"+old)
	})
	if err != nil {
		return err
	}
	in.Spec.Driver = version
	if err := in.driver(bundleDir); err != nil {
		return err
	}
	return in.Save()
}

// LibDir is the driver's library directory on this architecture, below its root.
func LibDir() string {
	if runtime.GOARCH == "arm64" {
		return "usr/lib/aarch64-linux-gnu"
	}
	return "usr/lib/x86_64-linux-gnu"
}

func (in *Install) driver(bundleDir string) error {
	if err := in.libraries(bundleDir); err != nil {
		return err
	}
	programs, err := os.ReadDir(filepath.Join(bundleDir, bundle.BinDir))
	if err != nil {
		return fmt.Errorf("installing driver programs: %w", err)
	}
	for _, program := range programs {
		from := filepath.Join(bundleDir, bundle.BinDir, program.Name())
		if err := in.Files.copy(from, filepath.Join(in.Paths.Root, "usr/bin", program.Name()), 0o755); err != nil {
			return err
		}
	}
	firmware := filepath.Join(in.Paths.Root, "lib/firmware/nvidia", string(in.Spec.Driver))
	for _, name := range []string{"gsp_ga10x.bin", "gsp_tu10x.bin"} {
		if err := in.Files.file(filepath.Join(firmware, name), "simulated firmware\n", 0o644); err != nil {
			return err
		}
	}
	return in.Files.file(filepath.Join(in.Paths.Root, "etc/OpenCL/vendors/nvidia.icd"), "libnvidia-opencl.so.1\n", 0o644)
}

// libraries installs each library with its two links.
func (in *Install) libraries(bundleDir string) error {
	dir := filepath.Join(in.Paths.Root, LibDir())
	for _, library := range bundle.Libraries(in.Spec.Driver) {
		file := library.File(in.Spec.Driver)
		if err := in.Files.copy(filepath.Join(bundleDir, bundle.LibDir, file), filepath.Join(dir, file), 0o755); err != nil {
			return err
		}
		if library.Soname == file {
			continue
		}
		if err := in.Files.link(filepath.Join(dir, library.Soname), file); err != nil {
			return err
		}
		if err := in.Files.link(filepath.Join(dir, library.Stem+".so"), library.Soname); err != nil {
			return err
		}
	}
	return nil
}
