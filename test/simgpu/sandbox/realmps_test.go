package sandbox_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/test/debian"
	"github.com/prism-gpu/prism/test/simgpu/model"
	"github.com/prism-gpu/prism/test/simgpu/sandbox"
)

// mpsScript is a script to which NVIDIA's control daemon, without a GPU, and the simulated one give the same answers.
var mpsScript = []string{
	"get_default_active_thread_percentage",
	"set_default_active_thread_percentage 50",
	"set_default_active_thread_percentage 33.5",
	"set_default_active_thread_percentage 12.345",
	"set_default_active_thread_percentage 0",
	"set_default_active_thread_percentage 101",
	"set_default_active_thread_percentage abc",
	"set_default_active_thread_percentage",
	"get_default_device_pinned_mem_limit 0",
	"set_default_device_pinned_mem_limit 0 2G", "get_default_device_pinned_mem_limit 0",
	"set_default_device_pinned_mem_limit 0 1536M", "get_default_device_pinned_mem_limit 0",
	"set_default_device_pinned_mem_limit 0 1025M", "get_default_device_pinned_mem_limit 0",
	"set_default_device_pinned_mem_limit 0 1024M", "get_default_device_pinned_mem_limit 0",
	"set_default_device_pinned_mem_limit 0 1023M", "get_default_device_pinned_mem_limit 0",
	"set_default_device_pinned_mem_limit 0 512", "get_default_device_pinned_mem_limit 0",
	"set_default_device_pinned_mem_limit 0 5K", "get_default_device_pinned_mem_limit 0",
	"set_default_device_pinned_mem_limit 0 3g", "get_default_device_pinned_mem_limit 0",
	"set_default_device_pinned_mem_limit 0 700m", "get_default_device_pinned_mem_limit 0",
	"set_default_device_pinned_mem_limit 0 abc", "get_default_device_pinned_mem_limit 0",
	"set_default_device_pinned_mem_limit 3 4G", "get_default_device_pinned_mem_limit 3",
	"set_default_device_pinned_mem_limit 70 4G", "get_default_device_pinned_mem_limit 70",
	"set_default_device_pinned_mem_limit GPU-a5172723-130e-41be-bd26-90e2ae87597d 4G",
	"get_default_device_pinned_mem_limit GPU-a5172723-130e-41be-bd26-90e2ae87597d",
	"set_default_device_pinned_mem_limit", "get_default_device_pinned_mem_limit",
	"get_server_list", "get_server_status", "get_server_status 12345", "get_client_list 12345", "get_device_client_list",
	"get_active_thread_percentage 12345", "set_active_thread_percentage 12345 50",
	"get_device_pinned_mem_limit 12345 0", "set_device_pinned_mem_limit 12345 0 1G",
	"terminate_client 1 2", "ps", "shutdown_server 12345", "shutdown_server 12345 -f",
	"get_default_client_priority", "set_default_client_priority 1", "get_default_client_priority", "set_default_client_priority 5",
	"start_server", "start_server -uid abc", "foo", "help", "", "g", "get_",
}

// tenantScript is run by root and by another user through control alone.
var tenantScript = []string{
	"get_default_active_thread_percentage", "set_default_active_thread_percentage 40",
	"set_default_device_pinned_mem_limit 0 3G", "get_default_device_pinned_mem_limit 0",
	"set_default_client_priority 1", "get_default_client_priority",
	"start_server -uid 0", "get_server_list", "shutdown_server 5", "terminate_client 1 2", "quit",
}

// Debian's releases with NVIDIA's control daemon of each driver branch.
var realMPS = map[model.DriverVersion]string{"535.261.03": "bookworm", "550.163.01": "trixie"}

func realControl(t *testing.T, release string) string {
	t.Helper()
	pkg := debian.Package{Name: "debian-nvidia-mps-" + release, Package: "nvidia-cuda-mps", Release: release}
	dir, err := pkg.Unpacked(t.Context(), !testing.Short())
	if err != nil {
		t.Skipf("NVIDIA's nvidia-cuda-mps-control of Debian %s is not available: %v", release, err)
	}
	return filepath.Join(dir, "usr/bin/nvidia-cuda-mps-control")
}

func TestRealMPS_Commands_SameAnswers(t *testing.T) {
	for driver, release := range realMPS {
		t.Run(release, func(t *testing.T) {
			program := realControl(t, release)
			ours := newMPS(t, sandbox.Start(t, model.Spec{Name: "node-a", Driver: driver, Boards: []string{"h100-80"}}))
			theirs := newMPS(t, ours.node)
			theirs.control = filepath.Join(theirs.pipe, "nvidia-cuda-mps-control")
			text, err := os.ReadFile(program)
			require.NoError(t, errors.Join(err, os.WriteFile(theirs.control, text, 0o755)))
			// Neither can start a server.
			ours.env[0], theirs.env[0] = "PATH=/nonexistent", "PATH=/nonexistent"
			ours.start()
			theirs.start()
			for _, line := range mpsScript {
				sameAnswer(t, line, theirs, ours)
			}
			whole := strings.Join(mpsScript, "\n")
			sameAnswer(t, whole, theirs, ours)
			sameAnswersOfTenant(t, ours, theirs)
			assert.Equal(t, pipeFiles(t, theirs.pipe), pipeFiles(t, ours.pipe))
			again, code := theirs.run("-d")
			text2, code2 := ours.run("-d")
			assert.Equal(t, again, text2)
			assert.Equal(t, code, code2)
		})
	}
}

// sameAnswer runs commands in one user interface of each control daemon.
func sameAnswer(t *testing.T, commands string, theirs, ours *mps) {
	t.Helper()
	want, got := untilEqual(t, func() (want, got answer) {
		want.text, _ = theirs.askAt(theirs.pipe, 0, commands)
		got.text, _ = ours.askAt(ours.pipe, 0, commands)
		return want, got
	})
	assert.Equal(t, want, got, commands)
}

type answer struct {
	text string
	code int
}

// untilEqual asks both control daemons until their answers are the same, for up to a minute: on a busy machine NVIDIA's user interface
// sometimes exits before it has printed the answer. Either daemon also lists a server that could not start until it has noticed its end.
func untilEqual(t *testing.T, ask func() (want, got answer)) (want, got answer) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; {
		if want, got = ask(); want == got || time.Now().After(deadline) {
			return want, got
		}
	}
}

func sameAnswersOfTenant(t *testing.T, ours, theirs *mps) {
	t.Helper()
	links := map[*mps]string{}
	for _, m := range []*mps{ours, theirs} {
		dir := filepath.Join(m.pipe, "tenant")
		require.NoError(t, errors.Join(os.Mkdir(dir, 0o755), os.Link(filepath.Join(m.pipe, "control"), filepath.Join(dir, "control"))))
		links[m] = dir
	}
	for _, uid := range []uint32{0, 1000} {
		for _, line := range tenantScript {
			want, got := untilEqual(t, func() (want, got answer) {
				want.text, want.code = theirs.askAt(links[theirs], uid, line)
				got.text, got.code = ours.askAt(links[ours], uid, line)
				return want, got
			})
			assert.Equal(t, want, got, "%s by user %d", line, uid)
		}
	}
}

// pipeFiles returns the files of the control daemon with their modes.
func pipeFiles(t *testing.T, dir string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	files := map[string]string{}
	for _, entry := range entries {
		info, err := entry.Info()
		require.NoError(t, err)
		if name := entry.Name(); strings.HasPrefix(name, "control") && name != "control.out" || name == "log" || strings.HasSuffix(name, ".pid") {
			files[name] = info.Mode().String()
		}
	}
	return files
}
