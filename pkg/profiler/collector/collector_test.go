package collector

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/prism-gpu/prism/api/profiles/v1alpha1"
	"github.com/prism-gpu/prism/pkg/profiler/counters"
	"github.com/prism-gpu/prism/pkg/profiler/session"
)

// TestCollector_AtOnce_ReportInInbox: an order for two GPUs has one report, in the name of the order.
func TestCollector_AtOnce_ReportInInbox(t *testing.T) {
	t.Parallel()
	c := newContainer(t)
	o := order(claimA, gpuA, gpuB)
	o.Seconds, o.MetricSet, o.File = 1, "ga10x", "{PROCESS_NAME}_{NAMESPACE}_{CLAIM}_{NODE}_{GPU_UUID}; $(x)"
	c.orders(o)
	c.becomes(claimA, counters.Ended)
	assert.Len(t, c.inbox(claimA, "*"), 1)
	assert.Len(t, c.inbox(claimA, "s*/report.qdstrm"), 1)
	note := parseNote(c.reads(c.inbox(claimA, "s*/note")[0]))
	assert.Equal(t, noteFinished, note["state"])
	assert.Equal(t, counters.ProcessName, note["process"])
	assert.Equal(t, "gpu-counters_ns_claim_node-a_"+uuidA+"; $(x)", note["file"])
	assert.Regexp(t, `^profile --kill=none --wait=primary --trace=none --sample=none --cpuctxsw=none --gpu-metrics-device=1,0 `+
		`--gpu-metrics-frequency=10000 --gpu-metrics-set=1 -o /run/prism/results/s\S+/report /run/prism/programs/prism-run --stand-in \S+\n$`, c.reads(c.nsys("commands")))
	assert.Empty(t, c.reads(c.nsys("importer")), "nsys must not find its importer")
	c.until("no process is left", func() bool { return len(c.processes(claimA)) == 0 })
	c.ends(syscall.SIGTERM)
	c.run("1.0")
	c.orders(order(claimB, gpuB))
	c.becomes(claimB, counters.Recording)
	assert.Len(t, c.inbox(claimA, "*"), 1, "not begun again")
}

// TestCollector_Manual_CommandsRecord: the session is an ordinary one.
func TestCollector_Manual_CommandsRecord(t *testing.T) {
	t.Parallel()
	c := newContainer(t)
	o := order(claimA, gpuA)
	o.Manual = true
	c.orders(o)
	c.becomes(claimA, counters.Waiting)
	sent := 0
	command := func(verb v1alpha1.SessionVerb) { require.NoError(t, send(filepath.Join(c.dir, claimA), &sent, verb)) }
	command(v1alpha1.SessionStart)
	c.becomes(claimA, counters.Recording)
	command(v1alpha1.SessionStop)
	c.becomes(claimA, counters.Waiting)
	assert.Len(t, c.inbox(claimA, "s*/report.qdstrm"), 1)
	c.says("startFails", "GPU Metrics: The user running nsys does not have permission to access NVIDIA GPU Performance Counters\n")
	command(v1alpha1.SessionStart)
	assert.Contains(t, c.becomes(claimA, counters.InsufficientPrivilege).Message, "The user running nsys")
	require.NoError(t, os.Remove(c.nsys("startFails")))
	command(v1alpha1.SessionStart)
	c.becomes(claimA, counters.Recording)
	assert.Contains(t, c.reads(c.nsys("commands")), "--gpu-metrics-device=1 --gpu-metrics-frequency=10000 -o ")
	c.removes(claimA)
	c.until("no process is left", func() bool { return len(c.processes(claimA)) == 0 })
	assert.Len(t, c.inbox(claimA, "s*/report.qdstrm"), 2, "the report of the recording is written")
	assert.Equal(t, counters.Recording, c.state(claimA).Reason)
}

// TestCollector_SessionRemoved_BegunAgain: the plugin removes the session of an nsys that exited, and the process goes on.
func TestCollector_SessionRemoved_BegunAgain(t *testing.T) {
	t.Parallel()
	c := newContainer(t)
	o := order(claimA, gpuA)
	o.Manual = true
	c.orders(o)
	c.becomes(claimA, counters.Waiting)
	first := c.inbox(claimA, "w*")
	require.NoError(t, os.RemoveAll(first[0]))
	c.until("another session waits", func() bool {
		now := c.inbox(claimA, "w*/note")
		return len(now) == 1 && filepath.Dir(now[0]) != first[0] && strings.Contains(c.reads(now[0]), string(session.Waiting))
	})
}

// TestCollector_Texts_Reasons: of the list of GPUs, and of recordings that fail.
func TestCollector_Texts_Reasons(t *testing.T) {
	t.Parallel()
	const possible = "Possible --gpu-metrics-device values are:\n"
	unsupported := func(reason string) string {
		return possible + "Some GPUs are not supported:\n" + lineA + "\t\t" + reason + "\n"
	}
	c := newContainer(t)
	for _, one := range []struct {
		devices, fails string
		want           counters.Reason
		message        string
	}{
		{possible + "\tNVIDIA GPUs not found, feature is not available\n", "", counters.Unsupported, "NVIDIA GPUs not found"},
		{possible + "\tInsufficient privilege, see https://developer.nvidia.com/ERR_NVGPUCTRPERM\n", "", counters.InsufficientPrivilege, "ERR_NVGPUCTRPERM"},
		{unsupported("Insufficient privilege"), "", counters.InsufficientPrivilege, "Insufficient privilege"},
		{unsupported("Already under profiling"), "", counters.PerfmonBusy, "Already under profiling"},
		{unsupported("Unsupported architecture"), "", counters.Unsupported, "Unsupported architecture"},
		{unsupported("Insufficient driver version"), "", counters.Unsupported, "Insufficient driver version"},
		{unsupported(""), "", counters.Unsupported, "does not support the GPU"},
		{possible + lineB, "", counters.Unsupported, "does not list the GPU"},
		{free, "GPU metrics sampling hardware unit is already in use by another instance of nsys or other tool.\n", counters.PerfmonBusy, "already in use"},
		{free, "The user running nsys does not have permission to access NVIDIA GPU Performance Counters on the target device.\n", counters.InsufficientPrivilege, "permission"},
		{free, "GPU metrics collection disabled due to Confidential Compute mode.\n", counters.Unsupported, "Confidential"},
		{free, "Metric set is not supported by GPU 0\n", counters.Unsupported, "Metric set"},
		{free, "Agent launcher failed.\n", counters.Failed, "Agent launcher failed."},
	} {
		c.says("devices", one.devices)
		c.says("fails", one.fails)
		if one.fails == "" {
			require.NoError(t, os.Remove(c.nsys("fails")))
		}
		c.orders(order(claimA, gpuA))
		assert.Contains(t, c.becomes(claimA, one.want).Message, one.message)
		require.NoError(t, os.RemoveAll(filepath.Join(c.dir, claimA)))
		c.until("no process is left", func() bool { return len(c.processes(claimA)) == 0 })
		if one.want == counters.PerfmonBusy {
			assert.Contains(t, c.reads(filepath.Join(c.dir, counters.BusyFile)), uuidA)
		}
	}
}

// TestCollector_Killed_ProcessesExit: nothing goes on recording, and the next collector begins again.
func TestCollector_Killed_ProcessesExit(t *testing.T) {
	t.Parallel()
	c := newContainer(t)
	c.orders(order(claimA, gpuA))
	c.becomes(claimA, counters.Recording)
	require.NotEmpty(t, c.processes(claimA))
	c.ends(syscall.SIGKILL)
	c.until("no process is left", func() bool { return len(c.processes(claimA)) == 0 })
	c.run("1.0")
	c.until("it records again", func() bool { return len(c.inbox(claimA, "s*")) == 2 })
}

// TestCollector_KilledDuringHelp_NsysExits: it hangs, and has no input that is closed.
func TestCollector_KilledDuringHelp_NsysExits(t *testing.T) {
	t.Parallel()
	c := newContainer(t)
	c.says("hangs", "")
	c.says("lock", "")
	lock, err := os.Open(c.nsys("lock"))
	require.NoError(t, err)
	defer lock.Close()
	c.orders(order(claimA, gpuA))
	c.until("nsys hangs", func() bool {
		err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			require.NoError(t, unix.Flock(int(lock.Fd()), unix.LOCK_UN))
		}
		return err != nil
	})
	c.ends(syscall.SIGKILL)
	c.until("nsys has exited", func() bool { return unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil })
}

// TestCollector_NoSession_Failed: prism-run creates none in an inbox with too many.
func TestCollector_NoSession_Failed(t *testing.T) {
	t.Parallel()
	c := newContainer(t)
	for i := range 1100 {
		require.NoError(t, os.MkdirAll(filepath.Join(c.dir, claimA, counters.InboxDir, strconv.Itoa(i)), 0o700))
	}
	c.orders(order(claimA, gpuA))
	assert.Contains(t, c.becomes(claimA, counters.Failed).Message, "creating a session in /run/prism/results: Disk quota exceeded")
	c.until("no process is left", func() bool { return len(c.processes(claimA)) == 0 })
}

// TestCollector_Terminated_ReportWritten: as when the DaemonSet is updated.
func TestCollector_Terminated_ReportWritten(t *testing.T) {
	t.Parallel()
	c := newContainer(t)
	c.orders(order(claimA, gpuA))
	c.becomes(claimA, counters.Recording)
	c.ends(syscall.SIGTERM)
	assert.Empty(t, c.processes(claimA))
	assert.Len(t, c.inbox(claimA, "s*/report.qdstrm"), 1)
	assert.Equal(t, counters.Recording, c.state(claimA).Reason)
}

// TestCollector_Stopped_Ended: the reports of the claim reached their limit.
func TestCollector_Stopped_Ended(t *testing.T) {
	t.Parallel()
	c := newContainer(t)
	c.orders(order(claimA, gpuA))
	c.becomes(claimA, counters.Recording)
	require.NoError(t, os.WriteFile(filepath.Join(c.dir, claimA, counters.PlanDir, "stop"), nil, 0o600))
	c.becomes(claimA, counters.Ended)
	assert.Len(t, c.inbox(claimA, "s*/report.qdstrm"), 1)
	require.NoError(t, os.RemoveAll(filepath.Join(c.dir, claimA)))
	require.NoError(t, os.MkdirAll(filepath.Join(c.dir, claimB, counters.PlanDir), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(c.dir, claimB, counters.PlanDir, "stop"), nil, 0o600))
	c.orders(order(claimB, gpuA))
	c.becomes(claimB, counters.Ended)
	assert.Equal(t, stoppedReason, parseNote(c.reads(c.inbox(claimB, "s*/note")[0]))["reason"])
}

func TestCollector_OtherVersion_Refused(t *testing.T) {
	t.Parallel()
	c := unstarted(t)
	c.run("2025.1")
	<-c.exited
	assert.Contains(t, c.reads(c.log.Name()), `version mismatch: the image contains Nsight Systems "1.0.0"`)
}
