package hostfs

import (
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/prism-gpu/prism/pkg/gpu"
)

const (
	proprietary = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.95.05  Tue Sep 23 10:11:16 UTC 2025\nGCC version:  gcc 12.2.0\n"
	open        = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.172.08  Release Build  (dvs-builder)\n"
)

// install returns the files of a library with its links in a directory of the host.
func install(dir, version string) map[string]string {
	return map[string]string{
		dir + "/libnvidia-ml.so." + version: "ELF " + version,
		dir + "/libnvidia-ml.so.1":          "->libnvidia-ml.so." + version,
	}
}

func join(parts ...map[string]string) map[string]string {
	all := map[string]string{}
	for _, part := range parts {
		maps.Copy(all, part)
	}
	return all
}

func TestFindDriver_Candidates_InstallationInUse(t *testing.T) {
	t.Parallel()
	host := install("usr/lib/x86_64-linux-gnu", "535.216.01")
	contained := install("run/nvidia/driver/usr/lib64", "580.95.05")
	cases := map[string]struct {
		files        map[string]string
		explicit     string
		root, lib    string
		version, dev string
	}{
		"bare host": {
			files: host, root: "/", lib: "usr/lib/x86_64-linux-gnu/libnvidia-ml.so.535.216.01", version: "535.216.01",
		},
		"GKE": {
			files:   install("home/kubernetes/bin/nvidia/lib64", "550.54.15"),
			root:    "/home/kubernetes/bin/nvidia",
			lib:     "home/kubernetes/bin/nvidia/lib64/libnvidia-ml.so.550.54.15",
			version: "550.54.15",
		},
		"stale host files beside the driver container in use": {
			files: join(host, contained, map[string]string{"proc/driver/nvidia/version": proprietary}),
			root:  "/run/nvidia/driver", lib: "run/nvidia/driver/usr/lib64/libnvidia-ml.so.580.95.05", version: "580.95.05",
		},
		"no kernel module: first candidate": {
			files: join(host, contained), root: "/",
			lib: "usr/lib/x86_64-linux-gnu/libnvidia-ml.so.535.216.01", version: "535.216.01",
		},
		"kernel module of another version: first candidate": {
			files: join(host, contained, map[string]string{"proc/driver/nvidia/version": open}),
			root:  "/", lib: "usr/lib/x86_64-linux-gnu/libnvidia-ml.so.535.216.01", version: "535.216.01",
		},
		"explicit root overrides the kernel module": {
			files:    join(host, contained, map[string]string{"proc/driver/nvidia/version": proprietary}),
			explicit: "/", root: "/", lib: "usr/lib/x86_64-linux-gnu/libnvidia-ml.so.535.216.01", version: "535.216.01",
		},
		"explicit root elsewhere": {
			files:    install("opt/nvidia/usr/lib/aarch64-linux-gnu", "580.95.05"),
			explicit: "/opt/nvidia/", root: "/opt/nvidia",
			lib: "opt/nvidia/usr/lib/aarch64-linux-gnu/libnvidia-ml.so.580.95.05", version: "580.95.05",
		},
		"absolute links refer to files of the driver root": {
			files: map[string]string{
				"run/nvidia/driver/usr/lib64/libnvidia-ml.so.1":                "->/etc/alternatives/nvidia--libnvidia-ml.so.1",
				"run/nvidia/driver/etc/alternatives/nvidia--libnvidia-ml.so.1": "->/usr/lib64/nvidia/libnvidia-ml.so.580.95.05",
				"run/nvidia/driver/usr/lib64/nvidia/libnvidia-ml.so.580.95.05": "ELF",
			},
			root: "/run/nvidia/driver", lib: "run/nvidia/driver/usr/lib64/nvidia/libnvidia-ml.so.580.95.05", version: "580.95.05",
		},
		"Talos": {
			files: install("usr/local/glibc/usr/lib", "580.95.05"), root: "/", lib: "usr/local/glibc/usr/lib/libnvidia-ml.so.580.95.05", version: "580.95.05",
		},
		"NixOS": {
			files: map[string]string{
				"run/opengl-driver": "->/nix/store/a-graphics-drivers",
				"nix/store/a-graphics-drivers/lib/libnvidia-ml.so.1":   "->/nix/store/b-nvidia-x11/lib/libnvidia-ml.so.580.95.05",
				"nix/store/b-nvidia-x11/lib/libnvidia-ml.so.580.95.05": "ELF",
			},
			root: "/", lib: "nix/store/b-nvidia-x11/lib/libnvidia-ml.so.580.95.05", version: "580.95.05",
		},
		"Bottlerocket": {
			files: install("usr/lib/nvidia/tesla", "580.95.05"), root: "/", lib: "usr/lib/nvidia/tesla/libnvidia-ml.so.580.95.05", version: "580.95.05",
		},
		"WSL":  {files: map[string]string{"usr/lib/wsl/lib/libnvidia-ml.so.1": "ELF"}, root: "/", lib: "usr/lib/wsl/lib/libnvidia-ml.so.1"},
		"Arch": {files: install("usr/lib", "580.95.05"), root: "/", lib: "usr/lib/libnvidia-ml.so.580.95.05", version: "580.95.05"},
		"Debian without alternatives": {
			files: install("usr/lib/x86_64-linux-gnu/nvidia/current", "535.261.03"), root: "/",
			lib: "usr/lib/x86_64-linux-gnu/nvidia/current/libnvidia-ml.so.535.261.03", version: "535.261.03",
		},
		"library without a version in its name": {
			files: map[string]string{"usr/lib64/libnvidia-ml.so.1": "ELF"}, root: "/", lib: "usr/lib64/libnvidia-ml.so.1",
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := tree(t, c.files)
			found, err := New(root).FindDriver(c.explicit)
			require.NoError(t, err)
			assert.Equal(t, c.root, found.HostPath)
			assert.Equal(t, filepath.Join(root, c.root), found.Path)
			assert.Equal(t, filepath.Join(root, c.lib), found.Library)
			assert.Equal(t, c.version, found.Version)
			assert.Equal(t, "/", found.DevHostPath)
			again, err := New(root).FindDriver(c.explicit)
			require.NoError(t, err)
			assert.Equal(t, found, again, "the same files are the same installation")
		})
	}
}

func TestFindDriver_NoLibrary_DriverNotLoaded(t *testing.T) {
	t.Parallel()
	// An installer is still writing an empty library.
	root := tree(t, map[string]string{"usr/lib64/libnvidia-ml.so.1": "", "usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1": "->gone"})
	_, err := New(root).FindDriver("")
	require.ErrorIs(t, err, gpu.ErrDriverNotLoaded)
	require.EqualError(t, err, "finding libnvidia-ml.so.1 below /, /run/nvidia/driver, /home/kubernetes/bin/nvidia (in usr/lib64, "+
		"usr/lib/x86_64-linux-gnu, usr/lib/aarch64-linux-gnu, lib64, lib/x86_64-linux-gnu, lib/aarch64-linux-gnu, "+
		"usr/lib/x86_64-linux-gnu/nvidia/current, usr/lib/aarch64-linux-gnu/nvidia/current, usr/lib, usr/local/glibc/usr/lib, run/opengl-driver/lib, "+
		"usr/lib/nvidia/tesla, usr/lib/wsl/lib, the root itself): "+
		"NVIDIA driver is not loaded; install the NVIDIA driver on this node, or name its directory with --driver-root "+
		"(chart value nvidiaDriverRoot); if its libraries are in another directory of its root, add this directory with --driver-search-dirs "+
		"(chart value nvidiaSearchDirs)")

	root = tree(t, install("usr/lib64", "580.95.05"))
	_, err = New(root).FindDriver("/opt/nvidia")
	require.ErrorIs(t, err, gpu.ErrDriverNotLoaded, "an explicit root is the only candidate")
	require.ErrorContains(t, err, "below /opt/nvidia ")
	require.ErrorContains(t, err, "or correct --driver-root")

	_, err = New(root).FindDriver("run/nvidia")
	require.ErrorContains(t, err, `driver root "run/nvidia" is not an absolute path of the host`)
}

// TestFindDriver_SearchDirs_First, in each root, for the library and for programs; the error lists them if nothing is found.
func TestFindDriver_SearchDirs_First(t *testing.T) {
	t.Parallel()
	root := tree(t, join(install("usr/lib64", "535.216.01"), install("opt/site/lib", "580.95.05"), install("run/nvidia/driver/opt/site/lib", "550.54.15"),
		map[string]string{"opt/site/bin/nvidia-smi": "ELF", "usr/bin/nvidia-smi": "ELF"}))
	for _, program := range []string{"opt/site/bin/nvidia-smi", "usr/bin/nvidia-smi"} {
		require.NoError(t, os.Chmod(filepath.Join(root, program), 0o755))
	}
	host := New(root, "/opt/site/lib", "/opt/site/bin")
	found, err := host.FindDriver("")
	require.NoError(t, err)
	assert.Equal(t, "580.95.05", found.Version)
	program, ok := found.Tool("nvidia-smi")
	require.True(t, ok)
	assert.Equal(t, filepath.Join(root, "opt/site/bin/nvidia-smi"), program)
	assert.Contains(t, found.ToolDirs(), "opt/site/lib, opt/site/bin, usr/bin, ")
	found, err = host.FindDriver("/run/nvidia/driver")
	require.NoError(t, err)
	assert.Equal(t, "550.54.15", found.Version)
	_, err = host.FindDriver("/nothing")
	require.ErrorContains(t, err, "below /nothing (in opt/site/lib, opt/site/bin, usr/lib64, ")
}

func TestFindDriver_LibraryReplaced_OtherLibraryID(t *testing.T) {
	t.Parallel()
	root := tree(t, install("usr/lib64", "580.95.05"))
	before, err := New(root).FindDriver("")
	require.NoError(t, err)

	library := filepath.Join(root, "usr/lib64/libnvidia-ml.so.580.95.05")
	require.NoError(t, os.WriteFile(library+".new", []byte("ELF 580.95.05"), 0o644))
	require.NoError(t, os.Rename(library+".new", library))
	after, err := New(root).FindDriver("")
	require.NoError(t, err)
	assert.NotEqual(t, before.LibraryID, after.LibraryID, "same name and size, another file")
	assert.Equal(t, before.Library, after.Library)
}

func TestFindDriver_DriverRootWithDeviceNodes_DevHostPath(t *testing.T) {
	t.Parallel()
	root := tree(t, install("run/nvidia/driver/usr/lib64", "580.95.05"))
	require.NoError(t, os.MkdirAll(filepath.Join(root, "run/nvidia/driver/dev"), 0o755))
	node := filepath.Join(root, "run/nvidia/driver/dev/nvidiactl")
	if err := unix.Mknod(node, unix.S_IFCHR|0o666, int(unix.Mkdev(195, 255))); err != nil {
		t.Skipf("device nodes cannot be created: %v", err)
	}
	found, err := New(root).FindDriver("")
	require.NoError(t, err)
	assert.Equal(t, "/run/nvidia/driver", found.DevHostPath)
}

// The kernel creates the module's directory again, with another inode number.
func TestDriverLoad_LoadedAgain_Differs(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	host := New(root)
	assert.Empty(t, host.DriverLoad(), "no module is loaded")
	module := filepath.Join(root, "sys/module/nvidia")
	require.NoError(t, os.MkdirAll(module, 0o755))
	first := host.DriverLoad()
	assert.NotEmpty(t, first)
	require.NoError(t, os.WriteFile(filepath.Join(module, "refcnt"), []byte("1"), 0o444))
	assert.Equal(t, first, host.DriverLoad(), "files in the directory and timestamps do not count")
	require.NoError(t, os.Rename(module, module+"-earlier")) // so that its inode number is not reused
	assert.Empty(t, host.DriverLoad())
	require.NoError(t, os.MkdirAll(module, 0o755))
	assert.NotEqual(t, first, host.DriverLoad())
}
