package collector

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/profiler/counters"
)

// TestOrders_AtOnce_RecordedForSeconds: from when nsys records, and once, also if the collector restarts.
func TestOrders_AtOnce_RecordedForSeconds(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.writes(order(claimA, gpuA))
		r := n.next()
		assert.Contains(t, r.commands.Run, "--gpu-metrics-device=1")
		assert.Contains(t, r.commands.Run, "--gpu-metrics-frequency=10000")
		assert.Nil(t, r.commands.Start)
		assert.Zero(t, n.state(claimA), "nsys starts")
		passes(time.Hour)
		r.reports(event{reason: counters.Recording})
		n.is(claimA, counters.Recording, "")
		passes(99 * time.Second)
		assert.False(t, is(r.finished))
		passes(time.Second)
		assert.True(t, is(r.finished))
		r.ends(outcome{reason: counters.Ended})
		n.is(claimA, counters.Ended, "")
		n.notifies(filepath.Join(n.dir, claimA))
		n.end()
		n.start()
		n.beginsNone()
		n.is(claimA, counters.Ended, "")
		assert.Nil(t, n.busy(), "nothing to say")
	})
}

// TestOrders_CollectorRestarted_RestOfTheTime: a recording does not take longer because the collector was killed.
func TestOrders_CollectorRestarted_RestOfTheTime(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.writes(order(claimA, gpuA))
		r := n.next()
		r.reports(event{reason: counters.Recording})
		passes(60 * time.Second)
		n.end()
		assert.True(t, is(r.terminated))
		n.start()
		r = n.next()
		r.reports(event{reason: counters.Recording})
		passes(39 * time.Second)
		assert.False(t, is(r.finished))
		passes(time.Second)
		assert.True(t, is(r.finished))
		n.end()
		n.start()
		n.beginsNone()
		n.is(claimA, counters.Ended, "")
	})
}

// TestOrders_RemovedOrChanged_TerminatedAndBegunAgain: the order's file is the truth.
func TestOrders_RemovedOrChanged_TerminatedAndBegunAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.writes(order(claimA, gpuA))
		first := n.next()
		first.reports(event{reason: counters.Recording})
		n.writes(order(claimA, gpuA))
		n.beginsNone()
		n.writes(order(claimA, gpuA, gpuB))
		assert.True(t, is(first.terminated))
		second := n.next()
		assert.Contains(t, second.commands.Run, "--gpu-metrics-device=1,0")
		n.removes(claimA)
		assert.True(t, is(second.terminated))
		n.is(claimA, counters.Recording, "")
		require.NoError(t, os.RemoveAll(filepath.Join(n.dir, claimA)))
		n.notifies(filepath.Join(n.dir, claimA))
		n.beginsNone()
		assert.NoDirExists(t, filepath.Join(n.dir, claimA), "nothing is written into it")
		assert.Empty(t, n.orders.workers)
	})
}

// TestOrders_RemovedAndThereAgain_BegunAgain: the claim was unprepared, and prepared for another pod before the collector noticed.
func TestOrders_RemovedAndThereAgain_BegunAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.writes(order(claimA, gpuA))
		first := n.next()
		first.reports(event{reason: counters.Recording})
		n.events <- fsnotify.Event{Name: filepath.Join(n.dir, claimA, counters.OrderFile), Op: fsnotify.Remove}
		assert.True(t, is(first.terminated))
		n.next().reports(event{reason: counters.Recording})
		n.is(claimA, counters.Recording, "")
	})
}

// TestOrders_NextOrderForGPU_AfterTheReport: nsys would report the GPU as busy, while it writes the report of the removed order.
func TestOrders_NextOrderForGPU_AfterTheReport(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.lingers = make(chan struct{})
		n.writes(order(claimA, gpuA))
		first := n.next()
		n.removes(claimA)
		assert.True(t, is(first.terminated))
		n.writes(order(claimB, gpuB, gpuA))
		n.beginsNone()
		n.notifies(filepath.Join(n.dir, claimB))
		n.beginsNone()
		for range 10 {
			first.reports(event{reason: counters.Recording})
			first.reports(event{reason: counters.Waiting})
		}
		assert.Zero(t, n.state(claimA), "nothing is written any more")
		close(n.lingers)
		assert.Equal(t, claimB, n.next().order.Claim)
		assert.Empty(t, n.orders.waiting)
	})
}

// TestOrders_RemovedDuringHelp_NothingWritten: the plugin may be removing the directory.
func TestOrders_RemovedDuringHelp_NothingWritten(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.hang = make(chan struct{})
		n.writes(order(claimA, gpuA))
		n.writes(order(claimB, gpuB))
		assert.Equal(t, claimB, n.next().order.Claim, "orders do not wait for each other")
		n.removes(claimA)
		n.beginsNone()
		assert.Zero(t, n.state(claimA))
		assert.Len(t, n.orders.workers, 1)
	})
}

// TestOrders_Busy_RetriedUntilFree: every 30 s with an order; afterwards, the GPUs are checked every minute until they are free.
func TestOrders_Busy_RetriedUntilFree(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.lists(busyA)
		n.writes(order(claimA, gpuA, gpuB))
		n.is(claimA, counters.PerfmonBusy, uuidA+": Already under profiling")
		since := n.state(claimA).Since
		assert.Equal(t, []string{uuidA}, n.busy())
		passes(29 * time.Second)
		assert.Equal(t, 1, n.listings())
		passes(time.Second)
		assert.Equal(t, 2, n.listings())
		assert.Equal(t, since, n.state(claimA).Since, "written once")
		n.lists(free)
		passes(30 * time.Second)
		r := n.next()
		assert.Equal(t, []string{uuidA}, n.busy(), "until it records")
		r.ends(outcome{reason: counters.PerfmonBusy, message: "already in use"})
		assert.Equal(t, []string{uuidA, uuidB}, n.busy(), "nsys does not say which")
		passes(30 * time.Second)
		r = n.next()
		r.reports(event{reason: counters.Recording})
		n.is(claimA, counters.Recording, "")
		assert.Empty(t, n.busy())
		r.ends(outcome{reason: counters.PerfmonBusy, message: "already in use"})

		n.lists(busyA)
		n.removes(claimA)
		calls := n.listings()
		passes(checkEvery)
		assert.Equal(t, calls+1, n.listings())
		assert.Equal(t, []string{uuidA}, n.busy())
		n.lists(free)
		passes(checkEvery)
		assert.Equal(t, []string{}, n.busy())
		calls = n.listings()
		passes(time.Hour)
		assert.Equal(t, calls, n.listings(), "an idle node does nothing")
		assert.False(t, n.orders.armed)
	})
}

// TestOrders_RestartWhileBusy_StaysBusy: the taint of the GPU stays until it is known to be free; without an order nothing is known.
func TestOrders_RestartWhileBusy_StaysBusy(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.lists(busyA)
		n.writes(order(claimA, gpuA))
		n.end()
		n.hang = make(chan struct{})
		n.start()
		assert.Equal(t, []string{uuidA}, n.busy())
		n.end()
		require.NoError(t, os.Remove(filepath.Join(n.dir, claimA, counters.OrderFile)))
		n.start()
		assert.Equal(t, []string{}, n.busy())
	})
}

// TestOrders_Failed_OneRestart: then the state says why.
func TestOrders_Failed_OneRestart(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.writes(order(claimA, gpuA))
		n.next().ends(outcome{reason: counters.Failed, message: "first"})
		assert.Zero(t, n.state(claimA))
		n.next().ends(outcome{reason: counters.Failed, message: "second"})
		n.is(claimA, counters.Failed, "second")
		passes(time.Hour)
		n.beginsNone()
		n.end()
		n.start()
		n.next().ends(outcome{reason: counters.Failed, message: "again"})
		assert.Equal(t, counters.Failed, n.state(claimA).Reason, "after a restart it is tried again")
	})
}

// TestOrders_FailedAtTheEnd_NotBegunAgain: there is no time left to record.
func TestOrders_FailedAtTheEnd_NotBegunAgain(t *testing.T) {
	inBubble(t, func(_ *testing.T, n *node) {
		n.writes(order(claimA, gpuA))
		r := n.next()
		r.reports(event{reason: counters.Recording})
		passes(100 * time.Second)
		r.ends(outcome{reason: counters.Failed, message: "nsys did not write the report in time"})
		n.is(claimA, counters.Failed, "nsys did not write the report in time")
		n.beginsNone()
	})
}

func TestOrders_BeginFails_Explained(t *testing.T) {
	inBubble(t, func(_ *testing.T, n *node) {
		n.beginErr = errors.New("no such directory")
		n.writes(order(claimA, gpuA))
		n.is(claimA, counters.Failed, "no such directory")
	})
}

// TestOrders_NotPossible_NotTriedAgain: waiting changes neither the driver's setting nor the hardware.
func TestOrders_NotPossible_NotTriedAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.lists("Possible values are:\n\tInsufficient privilege, see https://developer.nvidia.com/ERR_NVGPUCTRPERM\n")
		n.writes(order(claimA, gpuA))
		n.is(claimA, counters.InsufficientPrivilege, uuidA+": Insufficient privilege, see https://developer.nvidia.com/ERR_NVGPUCTRPERM")
		n.lists("Possible values are:\n\tNVIDIA GPUs not found, feature is not available\n")
		n.writes(order(claimB, gpuB))
		n.is(claimB, counters.Unsupported, uuidB+": NVIDIA GPUs not found, feature is not available")
		calls := n.listings()
		passes(time.Hour)
		assert.Equal(t, calls, n.listings())
		assert.Empty(t, n.busy())
	})
}

// TestOrders_Manual_FollowsCommands: failures of commands that are about GPUs are the state of the order until it records again.
func TestOrders_Manual_FollowsCommands(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		o := order(claimA, gpuA)
		o.Manual, o.Seconds = true, 1
		n.writes(o)
		r := n.next()
		assert.Contains(t, r.commands.Start, "--gpu-metrics-device=1")
		r.reports(event{reason: counters.Waiting})
		n.is(claimA, counters.Waiting, "")
		r.reports(event{reason: counters.Recording})
		n.is(claimA, counters.Recording, "")
		passes(time.Hour)
		r.reports(event{reason: counters.Waiting})
		r.reports(event{failed: &outcome{reason: counters.Failed, message: "unknown"}})
		n.is(claimA, counters.Waiting, "")

		r.reports(event{failed: &outcome{reason: counters.InsufficientPrivilege, message: "ERR_NVGPUCTRPERM"}})
		r.reports(event{reason: counters.Waiting})
		n.is(claimA, counters.InsufficientPrivilege, "ERR_NVGPUCTRPERM")
		r.reports(event{reason: counters.Recording})
		r.reports(event{reason: counters.Waiting})
		n.is(claimA, counters.Waiting, "")

		n.lists(busyA)
		r.reports(event{failed: &outcome{reason: counters.PerfmonBusy, message: "already in use"}})
		n.is(claimA, counters.PerfmonBusy, "already in use")
		assert.Equal(t, []string{uuidA}, n.busy())
		passes(2 * retryEvery)
		n.is(claimA, counters.PerfmonBusy, "already in use")
		n.lists(free)
		passes(retryEvery)
		n.is(claimA, counters.Waiting, "")
		assert.Empty(t, n.busy())
		calls := n.listings()
		passes(time.Hour)
		assert.Equal(t, calls, n.listings())
		n.beginsNone()
		r.ends(outcome{reason: counters.Failed, message: "nsys exited"})
		assert.True(t, n.next().order.Manual, "one restart")
	})
}
