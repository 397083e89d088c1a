package nvml

import (
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"tags.cncf.io/container-device-interface/pkg/cdi"
	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/nvml/library"
)

// installDriver lays out a driver as an installer does, below a directory that stands for /host/run/nvidia/driver.
func installDriver(t *testing.T, version string) string {
	t.Helper()
	root, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	for file, mode := range map[string]os.FileMode{
		"usr/lib/x86_64-linux-gnu/libcuda.so." + version:                  0o644,
		"usr/lib/x86_64-linux-gnu/libnvidia-ml.so." + version:             0o644,
		"usr/lib/x86_64-linux-gnu/libnvidia-ptxjitcompiler.so." + version: 0o644,
		"usr/lib/x86_64-linux-gnu/libcudart.so.13.0.88":                   0o644,
		"usr/bin/nvidia-smi":                                0o755,
		"usr/bin/nvidia-persistenced":                       0o755,
		"usr/bin/nvidia-cuda-mps-control":                   0o755,
		"usr/bin/nvidia-cuda-mps-server":                    0o755,
		"usr/bin/nvidia-imex":                               0o755,
		"usr/bin/nvidia-imex-ctl":                           0o755,
		"run/nvidia-persistenced/socket":                    0o644,
		"tmp/nvidia-mps":                                    0o644,
		"lib/firmware/nvidia/" + version + "/gsp_ga10x.bin": 0o644,
		"dev/nvidiactl":                                     0o644,
	} {
		full := filepath.Join(root, file)
		require.NoError(t, os.MkdirAll(filepath.Dir(full), 0o755))
		require.NoError(t, os.WriteFile(full, []byte(file), mode))
	}
	return root
}

const hostRoot = "/run/nvidia/driver"

// openInstalled opens a session on an installed driver that the host sees at hostRoot.
func openInstalled(t *testing.T, root, hook string, disabled ...string) *Session {
	t.Helper()
	s, err := open(t.Context(), newFakeDriver(1), library.NewGate(), Options{
		Root: root, HostRoot: hostRoot, HookPath: hook, DisabledHooks: disabled,
	})
	require.NoError(t, err)
	return s
}

func mounted(edits *specs.ContainerEdits) map[string]string {
	mounts := map[string]string{}
	for _, m := range edits.Mounts {
		mounts[m.ContainerPath] = m.HostPath
	}
	return mounts
}

func TestCommonEdits_InstalledDriver_LibrariesAndHooks(t *testing.T) {
	t.Parallel()
	const libs = "/usr/lib/x86_64-linux-gnu/"
	s := openInstalled(t, installDriver(t, "580.95.05"), "/opt/prism/nvidia-cdi-hook")
	edits, err := s.CommonEdits(t.Context())
	require.NoError(t, err)

	want := map[string]string{}
	for _, file := range []string{
		libs + "libcuda.so.580.95.05", libs + "libnvidia-ml.so.580.95.05", libs + "libnvidia-ptxjitcompiler.so.580.95.05",
		"/usr/bin/nvidia-smi", "/usr/bin/nvidia-persistenced", "/run/nvidia-persistenced/socket",
		"/lib/firmware/nvidia/580.95.05/gsp_ga10x.bin",
	} {
		want[file] = hostRoot + file
	}
	// If NVIDIA's container runtime reads devices from volume mounts, this mount keeps it from adding devices.
	want["/var/run/nvidia-container-devices/void"] = "/dev/null"
	assert.Equal(t, want, mounted(edits), "the driver's files, none of the CUDA toolkit's and none that steers other tenants")
	assert.True(t, slices.IsSortedFunc(edits.Mounts, func(a, b *specs.Mount) int {
		return strings.Compare(a.ContainerPath, b.ContainerPath)
	}))
	for _, m := range edits.Mounts {
		assert.Subset(t, m.Options, []string{"ro", "nosuid", "nodev"}, m.ContainerPath)
		assert.Equal(t, strings.HasSuffix(m.ContainerPath, "socket"), slices.Contains(m.Options, "noexec"), m.ContainerPath)
	}
	assert.Contains(t, edits.Env, "NVIDIA_VISIBLE_DEVICES=void")
	assert.Empty(t, edits.DeviceNodes)
	assert.Empty(t, edits.AdditionalGIDs)

	var hooks []string
	for _, h := range edits.Hooks {
		hooks = append(hooks, h.Args[1])
		assert.Equal(t, "/opt/prism/nvidia-cdi-hook", h.Path)
		assert.Equal(t, "createContainer", h.HookName)
		for _, arg := range h.Args {
			assert.NotContains(t, arg, s.opts.Root, "hooks run where the host's paths hold")
		}
	}
	assert.Contains(t, hooks, "create-symlinks")
	assert.Contains(t, hooks, "update-ldcache")
	assert.NotContains(t, hooks, "enable-cuda-compat", "it would act on what the container brings along")
	requireOldCDI(t, edits)
}

func TestCommonEdits_CUDACompat_HookOfThatAlone(t *testing.T) {
	t.Parallel()
	root := installDriver(t, "580.95.05")
	names := func(compat bool) (hooks []string) {
		s, err := open(t.Context(), newFakeDriver(1), library.NewGate(), Options{
			Root: root, HostRoot: hostRoot, HookPath: "/opt/prism/nvidia-cdi-hook", CUDACompat: compat,
		})
		require.NoError(t, err)
		edits, err := s.CommonEdits(t.Context())
		require.NoError(t, err)
		for _, h := range edits.Hooks {
			hooks = append(hooks, h.Args[1])
		}
		return hooks
	}
	assert.ElementsMatch(t, append(names(false), "enable-cuda-compat"), names(true))
	compat := names(true)
	assert.Less(t, slices.Index(compat, "enable-cuda-compat"), slices.Index(compat, "update-ldcache"), "the linker's cache gets what it found")
}

// requireOldCDI checks that container runtimes with a CDI library of 2023 read the edits.
func requireOldCDI(t *testing.T, edits *specs.ContainerEdits) {
	t.Helper()
	require.NoError(t, (&cdi.ContainerEdits{ContainerEdits: edits}).Validate())
	version, err := specs.MinimumRequiredVersion(&specs.Spec{
		Kind: "k8s.gpu.prism.dev/claim", Devices: []specs.Device{{Name: "d", ContainerEdits: *edits}},
	})
	require.NoError(t, err)
	assert.LessOrEqual(t, version, "0.6.0")
}

func TestCommonEdits_DisabledHook_LeftOut(t *testing.T) {
	t.Parallel()
	s := openInstalled(t, installDriver(t, "580.95.05"), "/opt/prism/nvidia-cdi-hook", "update-ldcache")
	edits, err := s.CommonEdits(t.Context())
	require.NoError(t, err)
	require.NotEmpty(t, edits.Hooks)
	for _, h := range edits.Hooks {
		assert.NotEqual(t, "update-ldcache", h.Args[1])
	}
}

func TestCommonEdits_NoHookProgram_NoHooks(t *testing.T) {
	t.Parallel()
	s := openInstalled(t, installDriver(t, "580.95.05"), "")
	edits, err := s.CommonEdits(t.Context())
	require.NoError(t, err)
	assert.Empty(t, edits.Hooks)
	library := hostRoot + "/usr/lib/x86_64-linux-gnu/libcuda.so.580.95.05"
	assert.Equal(t, library, mounted(edits)["/usr/lib/x86_64-linux-gnu/libcuda.so"], "what the hook would have linked")
	requireOldCDI(t, edits)
}

func TestCommonEdits_CallerChangesThem_SessionUnchanged(t *testing.T) {
	t.Parallel()
	s := openInstalled(t, installDriver(t, "580.95.05"), "/opt/prism/nvidia-cdi-hook")
	first, err := s.CommonEdits(t.Context())
	require.NoError(t, err)
	first.Mounts[0].HostPath, first.Hooks[0].Args[1], first.Env[0] = "spoiled", "spoiled", "spoiled"
	second, err := s.CommonEdits(t.Context())
	require.NoError(t, err)
	assert.NotEqual(t, "spoiled", second.Mounts[0].HostPath)
	assert.NotEqual(t, "spoiled", second.Hooks[0].Args[1])
	assert.NotEqual(t, "spoiled", second.Env[0])
}

func TestCommonEdits_IncompleteDriver_Error(t *testing.T) {
	t.Parallel()
	root := installDriver(t, "580.95.05")
	require.NoError(t, os.Remove(filepath.Join(root, "usr/lib/x86_64-linux-gnu/libcuda.so.580.95.05")))
	_, err := openInstalled(t, root, "").CommonEdits(t.Context())
	require.ErrorIs(t, err, gpu.ErrNotFound)
	require.EqualError(t, err, "finding the files on the driver: libcuda.so.580.95.05 is not in the library directories of "+
		"/run/nvidia/driver: not found; reinstall the driver's user-space libraries")

	_, err = openInstalled(t, installDriver(t, "535.216.01"), "").CommonEdits(t.Context())
	require.Error(t, err, "files of another version than the loaded one")
	require.ErrorContains(t, err, "below "+hostRoot)
}

func TestCommonEdits_DriverOnHost_HostPaths(t *testing.T) {
	t.Parallel()
	root := installDriver(t, "580.95.05")
	s, err := open(t.Context(), newFakeDriver(1), library.NewGate(), Options{Root: root, HostRoot: root})
	require.NoError(t, err)
	edits, err := s.CommonEdits(t.Context())
	require.NoError(t, err)
	for containerPath, hostPath := range mounted(edits) {
		if path.Base(containerPath) == path.Base(hostPath) {
			assert.Equal(t, filepath.Join(root, containerPath), hostPath)
		}
	}
}

// TestCommonEdits_LibrariesElsewhere_FoundBesideTheLibrary: nvcdi does not know the library directories of Talos, NixOS and Bottlerocket.
func TestCommonEdits_LibrariesElsewhere_FoundBesideTheLibrary(t *testing.T) {
	t.Parallel()
	for _, dir := range []string{"usr/local/glibc/usr/lib", "nix/store/b-nvidia-x11/lib", "usr/lib/nvidia/tesla", "opt/site/lib"} {
		root := installDriver(t, "580.95.05")
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(root, dir)), 0o755))
		require.NoError(t, os.Rename(filepath.Join(root, "usr/lib/x86_64-linux-gnu"), filepath.Join(root, dir)))
		options := Options{Root: root, HostRoot: hostRoot, HookPath: "/opt/prism/nvidia-cdi-hook", Ldconfig: "/usr/local/glibc/sbin/ldconfig"}
		s, err := open(t.Context(), newFakeDriver(1), library.NewGate(), options)
		require.NoError(t, err)
		_, err = s.CommonEdits(t.Context())
		require.Error(t, err, dir)

		options.LibraryDir = filepath.Join(root, dir)
		s, err = open(t.Context(), newFakeDriver(1), library.NewGate(), options)
		require.NoError(t, err)
		edits, err := s.CommonEdits(t.Context())
		require.NoError(t, err, dir)
		for _, name := range []string{"libcuda.so.", "libnvidia-ml.so.", "libnvidia-ptxjitcompiler.so."} {
			at := path.Join("/", dir, name+"580.95.05")
			assert.Equal(t, hostRoot+at, mounted(edits)[at])
		}
		assert.Contains(t, mounted(edits), "/usr/bin/nvidia-smi")
		var cached []string
		for _, h := range edits.Hooks {
			if h.Args[1] == "update-ldcache" {
				cached = h.Args[2:]
			}
		}
		assert.Equal(t, []string{"--ldconfig-path", "/usr/local/glibc/sbin/ldconfig", "--folder", "/" + dir}, cached)
	}
	root := installDriver(t, "535.216.01")
	s, err := open(t.Context(), newFakeDriver(1), library.NewGate(), Options{Root: root, HostRoot: hostRoot, LibraryDir: filepath.Join(root, "opt/site/lib")})
	require.NoError(t, err)
	_, err = s.CommonEdits(t.Context())
	require.ErrorContains(t, err, "; also searched /run/nvidia/driver/opt/site/lib")
}
