package record_test

import (
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/api/profiles/v1alpha1"
	"github.com/prism-gpu/prism/pkg/cli/reports"
)

func clockOf(node string, offset int64) v1alpha1.NodeClock {
	return v1alpha1.NodeClock{Node: node, OffsetMilliseconds: offset}
}

// TestStart_NoDuration_DoneWhenRecording: named sessions are not listed before the command.
func TestStart_NoDuration_DoneWhenRecording(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		f.add("a-w1")
		f.add("a-w2")
		f.intercept = func(_ http.ResponseWriter, r *http.Request) bool {
			assert.True(t, len(f.commands) > 0 || r.Method == http.MethodPost, "%s %s before the command", r.Method, r.URL)
			return false
		}
		got, err := f.run(t.Context(), t, named("Start", "a-w1", "a-w2"))
		require.NoError(t, err)
		assert.Equal(t, []string{
			"a-w1 (train/main python3): Recording, began 2000-01-01T00:00:01.000Z",
			"a-w2 (train/main python3): Recording, began 2000-01-01T00:00:01.000Z",
			"2 of 2 began to record",
		}, got.out)
		require.Len(t, f.commands, 1)
		assert.Nil(t, f.commands[0].At)
		assert.Equal(t, []string{"a-w1", "a-w2"}, f.commands[0].Sessions)
		assert.Equal(t, []string{"team?&"}, f.lists)
	})
}

// TestStop_EachOutcome_DecidesExitStatus: flags select only sessions that record; outcomes decide the exit status.
func TestStop_EachOutcome_DecidesExitStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		for i, outcome := range []string{"Recorded", "NotRecording", "ProcessEnded", "NewWord"} {
			p := f.add(fmt.Sprintf("a-w%d", i))
			p.outcome, p.Status.State = outcome, "Recording"
		}
		f.add("a-w8")
		p := f.add("a-w9")
		p.Status.LastCommand, p.outcome = &v1alpha1.LastCommand{ID: "x", Verb: "Start", Outcome: "Open"}, "NotRecording"
		command := start(0)
		command.Spec.Verb = v1alpha1.SessionStop
		got, err := f.run(t.Context(), t, command)
		require.EqualError(t, err, "2 of 5 were not stopped")
		assert.Equal(t, []string{
			"a-w0 (train/main python3): Recorded, report a-s0", "a-w1 (train/main python3): NotRecording, report a-s1",
			"a-w2 (train/main python3): ProcessEnded, report a-s2", "a-w3 (train/main python3): NewWord, report a-s3",
			"a-w9 (train/main python3): NotRecording, report a-s9", "3 of 5 stopped",
		}, got.out)
		assert.Equal(t, []string{"a-w0", "a-w1", "a-w2", "a-w3", "a-w9"}, f.commands[0].Sessions)

		command.Spec.Verb = v1alpha1.SessionCancel
		f.processes = nil
		f.add("a-w1").Status.State = "Recording"
		f.processes[0].outcome = "Cancelled"
		got, err = f.run(t.Context(), t, command)
		require.NoError(t, err)
		assert.Equal(t, "1 of 1 cancelled", got.out[1])
		f.processes[0].outcome, f.processes[0].commanded = "Recorded", time.Time{}
		_, err = f.run(t.Context(), t, command)
		require.EqualError(t, err, "1 of 1 were not cancelled")
	})
}

// TestStart_StateSelected_StillWaitedFor: a session that records does not match status.state=Waiting any more.
func TestStart_StateSelected_StillWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		f.add("a-w1")
		command := start(0)
		command.Selection = reports.Selection{Fields: "status.state=Waiting,spec.node!=node-9", Pod: "train"}
		_, err := f.run(t.Context(), t, command)
		require.NoError(t, err)
		assert.Equal(t, []string{"team?spec.node!=node-9,status.state=Waiting,spec.pod=train&", "team?spec.node!=node-9,spec.pod=train&"}, f.lists)
	})
}

// TestStart_Namespaces_OthersGoOn: a namespace without the right is named.
func TestStart_Namespaces_OthersGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		f.add("a-w1")
		f.add("b-w1").Namespace = "closed"
		f.add("c-w1").Namespace = "zoo"
		f.intercept = func(w http.ResponseWriter, r *http.Request) bool {
			if r.Method != http.MethodPost || namespaceOf(r) != "closed" {
				return false
			}
			failure(w, http.StatusForbidden, "Forbidden", `user "ada" cannot create resource "sessioncommands"`)
			return true
		}
		command := start(0)
		command.Namespace = ""
		got, err := f.run(t.Context(), t, command)
		require.EqualError(t, err, "1 of 3 were not started")
		assert.Equal(t, []string{"error: starting sessions in namespace closed: the API server denied access: user \"ada\" cannot create resource " +
			"\"sessioncommands\"; an administrator can bind ClusterRole view, which lists sessions, or edit, which starts and ends recordings, in the namespace"}, got.said)
		assert.Equal(t, []string{
			"team/a-w1 (train/main python3): Recording, began 2000-01-01T00:00:01.000Z",
			"zoo/c-w1 (train/main python3): Recording, began 2000-01-01T00:00:01.000Z", "2 of 3 began to record",
		}, got.out)
	})
}

// TestStart_SilentNodes_OthersRecorded: 200 sessions on 200 nodes, 3 of them silent.
func TestStart_SilentNodes_OthersRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{silent: []string{"n-1", "n-2", "n-3"}}
		for i := range 200 {
			f.addMany(1, "team", fmt.Sprintf("n-%d", i))
		}
		command := start(time.Second)
		command.Yes = true
		got, err := f.run(t.Context(), t, command)
		require.EqualError(t, err, "nodes n-1, n-2, n-3 did not answer")
		assert.Equal(t, []string{"missing [n-1 n-2 n-3] []"}, got.said)
		require.Len(t, got.out, 198)
		assert.Equal(t, "197 of 197 recorded the whole window of 1s from 2000-01-01T00:00:04.000Z", got.out[197])
	})
}

// TestStart_NameUnanswered_SilentNodeNamed: named sessions fail for a silent node only if no other node answers for them.
func TestStart_NameUnanswered_SilentNodeNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{silent: []string{"node-9"}}
		f.add("a-w1")
		_, err := f.run(t.Context(), t, named("Start", "a-w1"))
		require.NoError(t, err)
		got, err := f.run(t.Context(), t, named("Start", "a-w1", "b-w1"))
		require.EqualError(t, err, "1 of 2 were not started; node node-9 did not answer")
		assert.Equal(t, "b-w1: node node-9 did not answer: the command may be missing there", got.out[0])
		f.silent = nil
		got, err = f.run(t.Context(), t, named("Start", "b-w1"))
		require.EqualError(t, err, "1 of 1 were not started")
		assert.Equal(t, []string{"b-w1: it does not exist", "0 of 1 began to record"}, got.out)
	})
}

// TestSend_ConnectionLost_SameID: the command is not carried out twice.
func TestSend_ConnectionLost_SameID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{broken: 2}
		f.add("a-w1")
		got, err := f.run(t.Context(), t, named("Start", "a-w1"))
		require.NoError(t, err)
		require.Len(t, f.commands, 3)
		assert.Equal(t, f.commands[0].ID, f.commands[2].ID)
		assert.Regexp(t, `^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`, f.commands[0].ID)
		assert.Equal(t, "a-w1 (train/main python3): Recording, began 2000-01-01T00:00:01.000Z", got.out[0])

		f.broken, f.commands = 100, nil
		got, err = f.run(t.Context(), t, named("Start", "a-w1"))
		require.EqualError(t, err, "1 of 1 were not started")
		assert.Len(t, f.commands, 4)
		require.Len(t, got.said, 2)
		assert.Contains(t, got.said[0], "error: starting sessions in namespace team: the API server http://cluster.example does not answer: ")
		assert.Equal(t, "The command may be carried out nevertheless; kubectl prism profile sessions -n team shows it", got.said[1])
	})
}

// TestSend_ManySessions_Selected: above 1,000 sessions of a namespace the command contains the selection.
func TestSend_ManySessions_Selected(t *testing.T) {
	for _, count := range []int{1000, 1001, 2500} {
		synctest.Test(t, func(t *testing.T) {
			f := &fake{}
			f.addMany(count, "team", "node-1")
			f.addMany(1, "other", "node-2")
			command := start(0)
			command.Yes, command.Namespace, command.Selection = true, "", reports.Selection{Pod: "train", Labels: "a!=b", Fields: "status.state=Waiting"}
			got, err := f.run(t.Context(), t, command)
			require.NoError(t, err)
			assert.Equal(t, fmt.Sprintf("%d of %d began to record", count+1, count+1), got.out[len(got.out)-1])
			for _, c := range f.commands {
				switch {
				case c.namespace == "other":
					assert.Equal(t, []string{"node-2-0000"}, c.Sessions)
				case count <= 1000:
					assert.Len(t, c.Sessions, count)
					assert.Nil(t, c.Selection)
				default:
					assert.Empty(t, c.Sessions)
					assert.Equal(t, &v1alpha1.SessionSelection{LabelSelector: "a!=b", FieldSelector: "status.state=Waiting,spec.pod=train"}, c.Selection)
				}
			}
		})
	}
}

// TestConfirm_ManySessions_Asked: above 20 sessions.
func TestConfirm_ManySessions_Asked(t *testing.T) {
	for name, c := range map[string]struct {
		count    int
		yes, dry bool
		answer   []bool
		asked    bool
		want     string
	}{
		"20":          {count: 20},
		"21":          {count: 21, want: "start is for 21 sessions: confirm it with --yes; stdin is not a terminal"},
		"--yes":       {count: 21, yes: true},
		"dry run":     {count: 21, dry: true},
		"answer yes":  {count: 21, answer: []bool{true}, asked: true},
		"answer no":   {count: 21, answer: []bool{false}, asked: true, want: "not confirmed: start was not sent"},
		"no question": {count: 20, answer: []bool{false}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &fake{}
				f.addMany(c.count, "team", "node-1")
				command := start(0)
				command.Yes, command.DryRun = c.yes, c.dry
				got, err := f.run(t.Context(), t, command, c.answer...)
				assert.Equal(t, c.asked, got.asked != "")
				if c.want != "" {
					require.EqualError(t, err, c.want)
					assert.Empty(t, f.commands)
					return
				}
				require.NoError(t, err)
			})
		})
	}
}

func TestStart_DryRun_NothingWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		f.add("a-w1")
		f.add("a-w2").refusal = "it is recording already"
		command := start(time.Second)
		command.DryRun = true
		got, err := f.run(t.Context(), t, command)
		require.EqualError(t, err, "1 of 2 would be refused")
		assert.Equal(t, []string{"a-w2: refused: it is recording already", "a-w1: would be started (dry run)"}, got.out)
		assert.True(t, f.commands[0].dryRun)
		assert.Len(t, f.lists, 1)
	})
}

func TestArm_Claims_Answered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		got, err := f.run(t.Context(), t, named("Arm", "gpu", "gpu-2"))
		require.NoError(t, err)
		assert.Equal(t, []string{"claim gpu: armed", "claim gpu-2: armed"}, got.out)
		assert.Equal(t, []string{"gpu", "gpu-2"}, f.commands[0].Claims)
		assert.Empty(t, f.commands[0].Sessions)
		f.intercept = func(w http.ResponseWriter, _ *http.Request) bool {
			_, _ = w.Write([]byte(`{"status":{"accepted":1,"names":["gpu"],"refused":[{"session":"gpu-2","reason":"its ProfilerConfig has arm: Always"}]}}`))
			return true
		}
		got, err = f.run(t.Context(), t, named("Disarm", "gpu", "gpu-2", "gpu-3"))
		require.EqualError(t, err, "2 of 3 were not disarmed")
		assert.Equal(t, []string{"claim gpu-2: refused: its ProfilerConfig has arm: Always", "claim gpu-3: it does not exist", "claim gpu: disarmed"}, got.out)
	})
}

func TestRun_NothingSelected_Reported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		f.add("a-w1").Namespace = "strangers"
		_, err := f.run(t.Context(), t, start(0))
		require.EqualError(t, err, "no sessions match in namespace team; kubectl prism profile sessions prints the existing ones")
		command := start(0)
		command.Spec.Verb, command.Namespace = v1alpha1.SessionStop, ""
		got, err := f.run(t.Context(), t, command)
		require.NoError(t, err)
		assert.Equal(t, []string{"No matching sessions record in all namespaces"}, got.said)
		f.silent = []string{"node-2"}
		_, err = f.run(t.Context(), t, command)
		require.EqualError(t, err, "no matching sessions record in all namespaces, and node node-2 did not answer")
		assert.Empty(t, f.commands)
	})
}
