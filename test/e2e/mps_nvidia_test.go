package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/mpsd/client"
	"github.com/prism-gpu/prism/test/debian"
)

// debianDriver is the version of NVIDIA's driver in the Debian release debianRelease.
const debianDriver, debianRelease = "550.163.01", "trixie"

// Files of NVIDIA, by their path below the root of the driver.
const (
	mpsControl = "usr/bin/nvidia-cuda-mps-control"
	mpsServer  = "usr/bin/nvidia-cuda-mps-server"
	cudaFile   = "usr/lib/x86_64-linux-gnu/libcuda.so." + debianDriver
)

// fromNVIDIA returns NVIDIA's files of debianDriver, or skips the test.
func fromNVIDIA(t *testing.T) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	const libraries = "usr/lib/x86_64-linux-gnu/nvidia/current/"
	for _, of := range []struct {
		name, pkg string
		files     map[string]string
	}{
		{"nvidia-mps", "nvidia-cuda-mps", map[string]string{mpsControl: mpsControl, mpsServer: "usr/sbin/nvidia-cuda-mps-server"}},
		{"libcuda1", "libcuda1", map[string]string{cudaFile: libraries + filepath.Base(cudaFile)}},
	} {
		pkg := debian.Package{Name: "debian-" + of.name + "-" + debianRelease, Package: of.pkg, Release: debianRelease}
		dir, err := pkg.Unpacked(t.Context(), true)
		if err != nil {
			t.Skipf("NVIDIA's package %s of Debian %s is not available: %v", of.pkg, debianRelease, err)
		}
		for to, from := range of.files {
			text, err := os.ReadFile(filepath.Join(dir, from))
			if errors.Is(err, os.ErrNotExist) {
				t.Skipf("Debian %s has another version of package %s: %v", debianRelease, of.pkg, err)
			}
			require.NoError(t, err)
			files[to] = text
		}
	}
	return files
}

// installsFromNVIDIA replaces files of the simulated driver until another version is installed.
func (ns *namespace) installsFromNVIDIA(files map[string][]byte) {
	ns.t.Helper()
	root := filepath.Join(ns.variable("PRISM_NODE_0_ROOT"), "run/nvidia/driver")
	for name, text := range files {
		path := filepath.Join(root, name)
		require.FileExists(ns.t, path)
		// A process may still use the open file.
		require.NoError(ns.t, errors.Join(os.WriteFile(path+".new", text, 0o755), os.Rename(path+".new", path)))
	}
}

// nvidiaClient creates a pod whose program is an MPS client with NVIDIA's libcuda, and returns its pid on the node and its output.
func (ns *namespace) nvidiaClient(pod string) (pid, printed string) {
	ns.t.Helper()
	w := mpsPod(pod, sharedGPUs[0], "2Gi")
	w.command = []string{"sh", "-c", "until [ -x /tmp/gpu-mem ]; do sleep 0.1; done; exec /tmp/gpu-mem 1"}
	ns.create(w)
	pid = ns.pid(ns.t, ns.ready(pod))
	brought := ns.tryProgram(pod, "main")
	_, err := ns.try("wait", "--for=jsonpath={.status.phase}=Failed", "--timeout="+startLimit.String(), "pod/"+pod)
	require.NoError(ns.t, err, "the program does not exit; bringing it: %v", brought)
	return pid, ns.do("logs", pod)
}

// oldDriverNVIDIA checks NVIDIA's own control daemon with the simulated driver of its version: it runs with the settings of the GPU, and
// NVIDIA's libcuda in pods of two namespaces finds it. Its server finds no GPU, so it refuses the clients.
func oldDriverNVIDIA(t *testing.T) {
	files := fromNVIDIA(t)
	ns := mpsExclusive(t)
	ns.installsFromNVIDIA(files)
	other := newNamespace(t, ns.cluster)

	ns.create(mpsPod("keeps", sharedGPUs[0], "1Gi"))
	uuid := ns.grantedTo(ns.ready("keeps"), "share")[0].UUID
	daemon := ns.controlDaemon(uuid)
	program, err := os.ReadFile(filepath.Join(ns.variable("PRISM_NODE_0_ROOT"), "proc", fmt.Sprint(daemon.PID), "exe"))
	require.NoError(t, err)
	require.True(t, bytes.Equal(program, files[mpsControl]), "process %d is NVIDIA's control daemon", daemon.PID)
	assert.False(t, daemon.MultiUser, "this driver supports no server for all users")
	assert.EqualValues(t, 81559-512, daemon.Spec.MemoryMiB, "the most that a share may have")
	ctx, cancel := context.WithTimeout(t.Context(), readLimit)
	defer cancel()
	limits, err := client.New(filepath.Join(ns.mpsDirectory(driverName), "mpsd.sock")).Limits(ctx, daemon.ID)
	require.NoError(t, err)
	assert.Equal(t, gpu.MPSLimits{MemoryMiB: 79 << 10}, limits.Default, "the answer of NVIDIA's control daemon, in whole GiB")

	for _, at := range []*namespace{ns, other} {
		pid, printed := at.nvidiaClient("client")
		assert.Contains(t, printed, "cuInit: 805", "MPS_CONNECTION_FAILED")
		log, err := os.ReadFile(filepath.Join(ns.mpsDirectory(driverName), "mps", string(daemon.ID), "log/daemon.log"))
		require.NoError(t, err)
		assert.Contains(t, string(log), "NEW CLIENT "+pid+" from user 0", "the log of NVIDIA's control daemon contains the pid on the host")
	}
	ns.stays(daemon)
	other.delete("pod", "client")
	ns.delete("pod", "client", "keeps")
	ns.released(uuid)
	require.NoError(t, errors.Join(ns.silence(), other.silence()))
}
