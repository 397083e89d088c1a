package maintenance_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/disk"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/plugin/maintenance"
)

// time.Now is 2000-01-01T00:00:00Z when a test begins.
const inTwo = "2000-01-01T00:02:00Z"

func TestRelease_InMaintenance_ClosedUntilTime(t *testing.T) {
	t.Parallel()
	leader(t, func(t *testing.T, w *world, p *process) {
		w.clients = []maintenance.Client{{PID: 7, Command: "python", Pod: "team/train"}, {PID: 8, Command: "nv\ntop"}}
		p.annotate(map[string]string{maintain + "gpu-5d3f61a2": "fan", release + "gpu-5d3f61a2": in(2 * time.Minute)})
		assert.Equal(t, []string{
			"plugin closes until 00:02:00",
			"GPUReleased: GPU gpu-5d3f61a2 is released until " + inTwo + ": a reset is refused until these processes have exited: " +
				"pid 7 (python) of pod team/train, pid 8 (nv top)",
		}, w.take())
		w.requireReleased(t, inTwo)
		time.Sleep(2*time.Minute - time.Nanosecond)
		assert.Empty(t, w.take())
		time.Sleep(time.Nanosecond)
		assert.Equal(t, []string{"plugin opens"}, w.take())
		w.requireReleased(t, "")
		p.annotate(map[string]string{maintain + "gpu-5d3f61a2": "x", release + "gpu-5d3f61a2": inTwo})
		assert.Empty(t, w.take(), "a release that is over is no news")
	})
}

func TestRelease_AnnotationGone_Opened(t *testing.T) {
	t.Parallel()
	for name, left := range map[string]map[string]string{
		"release removed": {maintain + "gpu-5d3f61a2": "fan"}, "undrained": {release + "gpu-5d3f61a2": inTwo}, "no annotation": nil,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			leader(t, func(t *testing.T, w *world, p *process) {
				p.annotate(map[string]string{maintain + "gpu-5d3f61a2": "fan", release + "gpu-5d3f61a2": in(2 * time.Minute)})
				require.Len(t, w.take(), 2)
				p.annotate(left)
				assert.Equal(t, []string{"plugin opens"}, w.take())
				w.requireReleased(t, "")
			})
		})
	}
}

func TestRelease_Refused_ReportedOnce(t *testing.T) {
	t.Parallel()
	record := func(pending *checkpoint.PendingCleanup) *checkpoint.Record {
		return &checkpoint.Record{Claim: checkpoint.Claim{UID: "uid"}, Results: []checkpoint.Result{{GPUUUID: first}}, PendingCleanup: pending}
	}
	for name, c := range map[string]struct {
		value string
		other string
		set   func(w *world)
		why   string
	}{
		"passed":         {value: "1999-12-31T23:59:59Z", why: "its time has passed"},
		"too long":       {value: "2000-01-01T00:10:01Z", why: "its time is more than 10 minutes ahead"},
		"no time":        {value: "soon", why: `"soon" is no time in RFC 3339, such as "2026-01-02T15:04:05Z"`},
		"no maintenance": {value: inTwo, other: maintain + "gpu-7e001122", why: "the GPU is not in maintenance; drain it first"},
		"used":           {value: inTwo, why: "claim uid has the GPU", set: func(w *world) { w.records = []*checkpoint.Record{record(nil)} }},
		"pending": {value: inTwo, why: "a cleanup after claim uid is pending on the GPU", set: func(w *world) {
			w.records = []*checkpoint.Record{record(&checkpoint.PendingCleanup{})}
		}},
		"records unread": {value: inTwo, why: "the records of claims cannot be read now", set: func(w *world) { w.unread = errDisk }},
		"lock taken": {value: inTwo, why: "a claim on the GPU is being prepared or unprepared", set: func(w *world) {
			w.locked = func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			leader(t, func(t *testing.T, w *world, p *process) {
				p.annotate(nil)
				if c.set != nil {
					c.set(w)
				}
				other := maintain + "gpu-5d3f61a2"
				if c.other != "" {
					other = c.other
				}
				annotations := map[string]string{other: "fan", release + "gpu-5d3f61a2": c.value}
				p.annotate(annotations)
				time.Sleep(11 * time.Second) // of the lock
				assert.Equal(t, []string{"GPUCommandInvalid: Annotation " + release + "gpu-5d3f61a2 of the node is ignored: " + c.why}, w.take())
				w.requireReleased(t, "")
				w.mu.Lock()
				w.records, w.unread = nil, nil
				w.mu.Unlock()
				p.annotate(annotations)
				assert.Empty(t, w.take(), "the value is refused for good, and reported once")
			})
		})
	}
}

// A claim on another GPU, and one that only monitors, do not matter.
func TestRelease_OtherClaims_Accepted(t *testing.T) {
	t.Parallel()
	leader(t, func(t *testing.T, w *world, p *process) {
		w.records = []*checkpoint.Record{
			{Results: []checkpoint.Result{{GPUUUID: second}}}, {Results: []checkpoint.Result{{GPUUUID: first, Admin: true}}},
			{Results: []checkpoint.Result{{Type: gpu.TypeMonitor}}},
		}
		p.annotate(map[string]string{maintain + "all": "", release + "gpu-5d3f61a2": in(2 * time.Minute)})
		assert.Equal(t, []string{
			"plugin closes until 00:02:00", "GPUReleased: GPU gpu-5d3f61a2 is released until " + inTwo + ": no other process has it open",
		}, w.take())
	})
}

// TestRelease_TwoWithOneTime_CheckedEach: a release is not accepted because another one ends at the same time.
func TestRelease_TwoWithOneTime_CheckedEach(t *testing.T) {
	t.Parallel()
	leader(t, func(t *testing.T, w *world, p *process) {
		w.records = []*checkpoint.Record{{Claim: checkpoint.Claim{UID: "uid"}, Results: []checkpoint.Result{{GPUUUID: second}}}}
		p.annotate(map[string]string{maintain + "all": "", release + "gpu-5d3f61a2": inTwo, release + "gpu-7e001122": inTwo})
		assert.ElementsMatch(t, []string{
			"plugin closes until 00:02:00", "GPUReleased: GPU gpu-5d3f61a2 is released until " + inTwo + ": no other process has it open",
			"GPUCommandInvalid: Annotation " + release + "gpu-7e001122 of the node is ignored: claim uid has the GPU",
		}, w.take())
	})
}

// TestRelease_TwoWithOneTime_LockedEach: no claim is prepared on either GPU while it is decided.
func TestRelease_TwoWithOneTime_LockedEach(t *testing.T) {
	t.Parallel()
	leader(t, func(t *testing.T, w *world, p *process) {
		locks := 0
		w.locked = func(context.Context) error { locks++; return nil }
		p.annotate(map[string]string{maintain + "all": "", release + "gpu-5d3f61a2": inTwo, release + "gpu-7e001122": inTwo})
		assert.Len(t, w.take(), 3)
		assert.Equal(t, 2, locks)
	})
}

// TestRelease_RestartedOtherTime_StaysClosed: nothing is decided before the GPUs are known.
func TestRelease_RestartedOtherTime_StaysClosed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		require.NoError(t, w.file().Put(time.Now().Add(2*time.Minute)))
		w.unknown = errDisk
		p := w.start(t, "plugin", disk.OS{})
		defer p.stop()
		defer p.lead(t)()
		p.annotate(map[string]string{maintain + "all": "", release + "gpu-5d3f61a2": in(3 * time.Minute)})
		assert.Equal(t, []string{"plugin closes until 00:02:00"}, w.take())
		w.requireReleased(t, inTwo)
	})
}

func TestRelease_TwoGPUs_ClosedUntilLast(t *testing.T) {
	t.Parallel()
	leader(t, func(t *testing.T, w *world, p *process) {
		p.annotate(map[string]string{
			maintain + "all": "", release + "gpu-5d3f61a2": in(time.Minute), release + "gpu-7e001122": in(3 * time.Minute),
		})
		assert.Contains(t, w.take(), "plugin closes until 00:03:00")
		time.Sleep(90 * time.Second)
		assert.Empty(t, w.take())
		p.annotate(map[string]string{maintain + "all": "", release + "gpu-7e001122": in(time.Minute)})
		assert.Equal(t, "plugin closes until 00:02:30", w.take()[0], "a release is shortened by another value")
		time.Sleep(time.Minute)
		assert.Equal(t, []string{"plugin opens"}, w.take())
	})
}

// TestRelease_TwoProcesses_FollowFile: one of them does not lead, and the second one takes over.
func TestRelease_TwoProcesses_FollowFile(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		old := w.start(t, "old", disk.OS{})
		defer old.stop()
		unlead := old.lead(t)
		now := w.start(t, "new", disk.OS{})
		defer now.stop()
		annotations := map[string]string{maintain + "all": "", release + "gpu-5d3f61a2": in(2 * time.Minute)}
		now.annotate(annotations)
		assert.Empty(t, w.take(), "only the leader acts")
		old.annotate(annotations)
		assert.Equal(t, "old closes until 00:02:00", w.take()[0])
		now.FileChanged()
		assert.Equal(t, []string{"new closes until 00:02:00"}, w.take())
		unlead()
		old.stop()
		defer now.lead(t)()
		assert.Len(t, w.take(), 1, "the release is adopted")
		w.requireReleased(t, inTwo)
		now.annotate(nil)
		assert.Equal(t, []string{"new opens"}, w.take())
	})
}

// TestRelease_Restarted_StaysClosed: the file counts before the API server answers, and no GPU is known meanwhile.
func TestRelease_Restarted_StaysClosed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		until := time.Now().Add(2 * time.Minute)
		require.NoError(t, w.file().Put(until))
		w.unknown = errDisk
		p := w.start(t, "plugin", disk.OS{})
		defer p.stop()
		defer p.lead(t)()
		assert.Equal(t, []string{"plugin closes until 00:02:00"}, w.take())
		annotations := map[string]string{maintain + "all": "", release + "gpu-5d3f61a2": inTwo}
		p.annotate(annotations)
		assert.Equal(t, []string{
			"GPUReleased: GPU gpu-5d3f61a2 is released until " + inTwo + ": Prism was restarted meanwhile, and has opened no session of the driver",
		}, w.take())
		assert.Nil(t, w.maintained, "nothing is known of the GPUs")
		time.Sleep(time.Minute)
		w.requireReleased(t, inTwo)
		time.Sleep(time.Minute)
		assert.Equal(t, []string{"plugin opens"}, w.take())
		w.requireReleased(t, "")
	})
}

func TestRelease_RestartedAnnotationGone_Opened(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		require.NoError(t, w.file().Put(time.Now().Add(2*time.Minute)))
		p := w.start(t, "plugin", disk.OS{})
		defer p.stop()
		defer p.lead(t)()
		require.Len(t, w.take(), 1)
		p.annotate(nil)
		assert.Equal(t, []string{"plugin opens"}, w.take())
		w.requireReleased(t, "")
	})
}

// TestRelease_UnfinishedFile_RemovedByLeader: a process was killed while it stored a release, which may be the last one.
func TestRelease_UnfinishedFile_RemovedByLeader(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		unfinished := w.file().Path() + disk.TempSuffix
		require.NoError(t, os.WriteFile(unfinished, []byte("{"), 0o600))
		p := w.start(t, "plugin", disk.OS{})
		defer p.stop()
		p.annotate(nil)
		synctest.Wait()
		assert.FileExists(t, unfinished, "the process that leads may be writing it")
		defer p.lead(t)()
		p.annotate(nil)
		synctest.Wait()
		assert.NoFileExists(t, unfinished)
	})
}

// TestRelease_OverAtStart_NotReported: an earlier process has released the GPU.
func TestRelease_OverAtStart_NotReported(t *testing.T) {
	t.Parallel()
	leader(t, func(t *testing.T, w *world, p *process) {
		p.annotate(map[string]string{maintain + "all": "", release + "gpu-5d3f61a2": in(-time.Minute)})
		assert.Empty(t, w.take())
		p.annotate(map[string]string{maintain + "all": "", release + "gpu-5d3f61a2": in(-time.Second)})
		assert.Len(t, w.take(), 1, "a value that was set now is reported")
	})
}

func TestFile_BadContent_NotReleased(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	now := time.Now()
	for _, text := range []string{
		"", "{", `{"version":2,"until":"` + now.Add(time.Minute).Format(time.RFC3339) + `"}`,
		`{"version":1,"until":"` + now.Add(time.Hour).Format(time.RFC3339) + `"}`,
	} {
		require.NoError(t, os.WriteFile(w.file().Path(), []byte(text), 0o600))
		until, err := w.file().Until(now)
		require.NoError(t, err)
		assert.Zero(t, until, text)
	}
	require.NoError(t, w.file().Put(time.Time{}))
	assert.NoFileExists(t, w.file().Path())
	require.NoError(t, w.file().Put(time.Time{}))
}

// full is a disk on which no file can be written.
type full struct{ disk.OS }

func (full) Write(string, []byte, os.FileMode, bool) error { return errDisk }

// TestRelease_FileNotWritten_NoSessionClosed: other processes would keep their sessions.
func TestRelease_FileNotWritten_NoSessionClosed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		p := w.start(t, "plugin", full{})
		defer p.stop()
		defer p.lead(t)()
		p.annotate(map[string]string{maintain + "all": "", release + "gpu-5d3f61a2": in(2 * time.Minute)})
		log := w.take()
		require.Len(t, log, 1)
		assert.Contains(t, log[0], "GPUCommandInvalid: Annotation "+release+"gpu-5d3f61a2 of the node is ignored: storing until when GPUs are released: ")
	})
}

func TestRelease_ManyClients_Bounded(t *testing.T) {
	t.Parallel()
	leader(t, func(t *testing.T, w *world, p *process) {
		for pid := range 10_000 {
			w.clients = append(w.clients, maintenance.Client{PID: pid, Command: strings.Repeat("c", 100), Pod: strings.Repeat("p", 500)})
		}
		p.annotate(map[string]string{maintain + "all": "", release + "gpu-5d3f61a2": in(2 * time.Minute)})
		log := w.take()
		require.Len(t, log, 2)
		assert.Less(t, len(log[1]), 1100)
		assert.Contains(t, log[1], ", 9992 more")
	})
}

func TestRelease_ClientsNotFound_Reported(t *testing.T) {
	t.Parallel()
	leader(t, func(t *testing.T, w *world, p *process) {
		w.noClients = errDisk
		p.annotate(map[string]string{maintain + "all": "", release + "gpu-5d3f61a2": in(2 * time.Minute)})
		assert.Contains(t, fmt.Sprint(w.take()), "processes that have it open could not be found: input/output error")
	})
}
