package record_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The clock of a test begins at midnight of 2000-01-01.
func midnight(after time.Duration) *metav1.MicroTime {
	return new(metav1.NewMicroTime(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).Add(after)))
}

// TestStart_Window_BeginsAfterLeadOfFullestNode: 3 s, and 0.5 s for each session of the node, on the clock of the server.
func TestStart_Window_BeginsAfterLeadOfFullestNode(t *testing.T) {
	for name, c := range map[string]struct {
		first, second int
		ahead, want   time.Duration
	}{
		"one session":        {1, 0, 0, 4 * time.Second},
		"fullest node":       {4, 10, 0, 8 * time.Second},
		"at most a minute":   {200, 0, 0, time.Minute},
		"clock of a server":  {1, 0, time.Hour, time.Hour + 4*time.Second},
		"server is behind":   {1, 0, -time.Hour, -time.Hour + 4*time.Second},
		"next whole second":  {2, 0, 0, 4 * time.Second},
		"two nodes, one few": {1, 2, 0, 4 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &fake{ahead: c.ahead}
				f.addMany(c.first, "team", "node-1")
				f.addMany(c.second, "team", "node-2")
				command := start(10 * time.Second)
				command.Yes, command.DryRun = true, true
				_, err := f.run(t.Context(), t, command)
				require.NoError(t, err)
				require.Len(t, f.commands, 1)
				assert.Equal(t, midnight(c.want).UTC(), f.commands[0].At.UTC())
			})
		})
	}
}

// TestStart_QuestionAnsweredLate_WindowIsAhead: the lead begins with the answer.
func TestStart_QuestionAnsweredLate_WindowIsAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{thinks: time.Minute}
		f.addMany(1, "team", "node-1")
		f.addMany(30, "other", "node-2")
		command := start(10 * time.Second)
		command.Namespace = ""
		got, err := f.run(t.Context(), t, command, true)
		require.NoError(t, err)
		assert.Equal(t, "Start recordings of 31 sessions of 2 namespaces on 2 nodes?", got.asked)
		require.Len(t, f.commands, 2)
		assert.Equal(t, f.commands[0].At, f.commands[1].At)
		assert.Equal(t, midnight(78*time.Second).UTC(), f.commands[0].At.UTC())
		assert.NotEqual(t, f.commands[0].ID, f.commands[1].ID)
	})
}

func TestStart_Window_MissesAreNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		f.add("a-w1")
		f.add("a-w2").late = 300 * time.Millisecond
		f.add("a-w3").early = 400 * time.Millisecond
		p := f.add("a-w4")
		p.outcome, p.message = "Failed", "nsys start: exit status 1"
		f.add("a-w5").refusal = "it is recording already"
		p = f.add("a-w6")
		p.late, p.early = 10*time.Millisecond, 10*time.Millisecond
		got, err := f.run(t.Context(), t, start(10*time.Second))
		require.EqualError(t, err, "5 of 6 did not record the whole window")
		assert.Equal(t, []string{
			"a-w5: refused: it is recording already",
			"a-w4 (train/main python3): Failed: nsys start: exit status 1",
			"a-w1 (train/main python3): Recorded, began 2000-01-01T00:00:05.000Z, report a-s1",
			"a-w2 (train/main python3): Recorded, began 2000-01-01T00:00:06.300Z, report a-s2",
			"a-w3 (train/main python3): Recorded, began 2000-01-01T00:00:05.000Z, report a-s3",
			"a-w6 (train/main python3): Recorded, began 2000-01-01T00:00:06.010Z, report a-s6",
			"1 of 6 recorded the whole window of 10s from 2000-01-01T00:00:06.000Z",
			"  a-w2 (train/main python3): began 0.3 s after the window began",
			"  a-w3 (train/main python3): ended 0.4 s before the window ended",
			"  a-w4 (train/main python3): the profiler failed: nsys start: exit status 1",
			"  a-w5 (train/main python3): refused: it is recording already",
			"  a-w6 (train/main python3): began 0.1 s after the window began, ended 0.1 s before the window ended",
		}, got.out)
		assert.Empty(t, got.said)
	})
}

// TestStart_EdgesOfWindow_Covered: a recording that begins and ends with the window covers it.
func TestStart_EdgesOfWindow_Covered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		f.add("a-w1").late = 0
		command := named("Start", "a-w1")
		command.Spec.At, command.Spec.Duration = midnight(time.Minute), &metav1.Duration{Duration: time.Second}
		got, err := f.run(t.Context(), t, command)
		require.NoError(t, err)
		assert.Equal(t, []string{
			"a-w1 (train/main python3): Recorded, began 2000-01-01T00:01:00.000Z, report a-s1",
			"1 of 1 recorded the whole window of 1s from 2000-01-01T00:01:00.000Z",
		}, got.out)
		assert.Equal(t, "team?metadata.name=a-w1&", f.lists[0])
	})
}

// TestStart_ClocksDiffer_Warned: each node once.
func TestStart_ClocksDiffer_Warned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{clocks: nil}
		f.add("a-w1")
		f.add("a-w2").Namespace = "other"
		f.clocks = append(f.clocks, clockOf("n1", 350), clockOf("n2", -1200))
		command := start(0)
		command.Namespace = ""
		got, err := f.run(t.Context(), t, command)
		require.NoError(t, err)
		assert.Equal(t, []string{
			"Warning: the clock of node n1 is 350 ms ahead; windows and times of its sessions follow it",
			"Warning: the clock of node n2 is 1200 ms behind; windows and times of its sessions follow it",
		}, got.said)
	})
}
