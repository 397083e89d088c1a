package record_test

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/api/profiles/v1alpha1"
	"github.com/prism-gpu/prism/pkg/cli/profile/record"
	"github.com/prism-gpu/prism/pkg/cli/reports"
)

// TestWait_SessionVanishes_ExitedOrSilent: a process that exited is not a silent node; a silent node is waited for, for a minute.
func TestWait_SessionVanishes_ExitedOrSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		f.add("a-w1").gone = 30 * time.Second
		f.add("a-w2").Spec.Node = "node-2"
		f.add("a-w3").hides = true
		f.add("a-w4").other = "Stop"
		p := f.add("a-w5")
		p.Spec.Node = "node-3"
		lists := 0
		f.intercept = func(_ http.ResponseWriter, r *http.Request) bool {
			if r.Method == http.MethodGet {
				if lists++; lists == 3 {
					f.silent = []string{"node-2"}
					f.truncated = []string{"node-3"}
				}
			}
			if time.Since(midnight(0).Time) > 40*time.Second {
				f.truncated = nil // it answers again in time
			}
			return false
		}
		got, err := f.run(t.Context(), t, start(2*time.Minute))
		require.EqualError(t, err, "4 of 5 did not record the whole window")
		assert.Equal(t, []string{
			"a-w4 (train/main python3): another command followed: Stop, Recorded",
			"a-w1 (train/main python3): its process has exited",
			"a-w3 (train/main python3): the session does not show the command",
			"a-w2 (train/main python3): node node-2 did not answer for 1m0s",
			"a-w5 (train/main python3): Recorded, began 2000-01-01T00:00:04.000Z, report a-s5",
		}, got.out[:5])
		assert.Equal(t, "1 of 5 recorded the whole window of 2m0s from 2000-01-01T00:00:05.000Z", got.out[5])
	})
}

// TestWait_Interval_BacksOff: from a second to 5 seconds.
func TestWait_Interval_BacksOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		f.add("a-w1")
		var at []time.Duration
		f.intercept = func(_ http.ResponseWriter, r *http.Request) bool {
			if r.Method == http.MethodGet {
				at = append(at, time.Since(midnight(0).Time))
			}
			return false
		}
		_, err := f.run(t.Context(), t, start(20*time.Second))
		require.NoError(t, err)
		require.Greater(t, len(at), 6)
		assert.Equal(t, []time.Duration{0, 1000, 2500, 4750, 8125, 13125, 18125}, milliseconds(at[:7]))
	})
}

func milliseconds(all []time.Duration) (of []time.Duration) {
	for _, d := range all {
		of = append(of, d/time.Millisecond)
	}
	return of
}

// TestWait_NoAnswer_GivesUp: lists that fail are retried for a minute, other failures end waiting at once.
func TestWait_NoAnswer_GivesUp(t *testing.T) {
	for name, c := range map[string]struct {
		code   int
		reason string
		fails  int
		after  time.Duration
		want   string
	}{
		"for a moment": {503, "ServiceUnavailable", 3, 0, ""},
		"for long":     {503, "ServiceUnavailable", 1000, time.Minute, "waiting for 1 sessions: listing sessions in namespace team: text; the command continues"},
		"denied":       {403, "Forbidden", 1000, 0, "waiting for 1 sessions: listing sessions in namespace team: the API server denied access: text;"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &fake{}
				f.add("a-w1")
				f.intercept = func(w http.ResponseWriter, r *http.Request) bool {
					if r.Method == http.MethodPost || c.fails == 0 {
						return false
					}
					c.fails--
					failure(w, c.code, "ServiceUnavailable", "text")
					return true
				}
				if c.code == http.StatusForbidden {
					f.intercept = func(w http.ResponseWriter, r *http.Request) bool {
						if r.Method == http.MethodGet {
							failure(w, c.code, "Forbidden", "text")
						}
						return r.Method == http.MethodGet
					}
				}
				got, err := f.run(t.Context(), t, named("Start", "a-w1"))
				if c.want == "" {
					require.NoError(t, err)
					return
				}
				require.ErrorContains(t, err, c.want)
				assert.GreaterOrEqual(t, time.Since(midnight(0).Time), c.after)
				assert.Less(t, time.Since(midnight(0).Time), c.after+10*time.Second)
				assert.Equal(t, "  kubectl prism --context=prod profile stop -n team a-w1", got.said[1])
			})
		})
	}
}

// TestInterrupt_RecordingsContinue_StopPrinted: what began is named, and what is over is not.
func TestInterrupt_RecordingsContinue_StopPrinted(t *testing.T) {
	for name, c := range map[string]struct {
		sessions int
		command  func(*record.Command)
		want     []string
	}{
		"names": {2, func(*record.Command) {}, []string{
			"Recordings begin and continue nevertheless; to stop them, run:", "  kubectl prism --context=prod profile stop -n other x-w1",
			"  kubectl prism --context=prod profile stop -n team node-1-0000 node-1-0001",
		}},
		"selection": {30, func(c *record.Command) {
			c.Selection = reports.Selection{Labels: "a in (b, c)", Fields: "status.state=Waiting"}
		}, []string{
			"Recordings begin and continue nevertheless; to stop them, run:",
			"  kubectl prism --context=prod profile stop -A --selector='a in (b, c)' --yes",
		}},
		"all": {30, func(*record.Command) {}, []string{
			"Recordings begin and continue nevertheless; to stop them, run:", "  kubectl prism --context=prod profile stop -A --all --yes",
		}},
		"stop": {1, func(c *record.Command) {
			c.Spec.Verb, c.Spec.Duration, c.Namespace, c.Names = v1alpha1.SessionStop, nil, "team", []string{"node-1-0000"}
		}, []string{"The command is carried out nevertheless; kubectl prism profile sessions shows the sessions"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &fake{}
				f.addMany(c.sessions, "team", "node-1")
				f.add("x-w1").Namespace = "other"
				p := f.add("x-w2")
				p.outcome, p.Namespace = "Failed", "third"
				for _, p := range f.processes {
					p.Labels = map[string]string{"a": "b"}
				}
				command := start(time.Hour)
				command.Namespace, command.Yes = "", true
				c.command(&command)
				ctx, interrupt := context.WithTimeout(t.Context(), 50*time.Second)
				if name == "stop" {
					ctx, interrupt = context.WithTimeout(t.Context(), 1500*time.Millisecond)
				}
				defer interrupt()
				got, err := f.run(ctx, t, command)
				require.EqualError(t, err, "interrupted")
				assert.Equal(t, c.want, got.said)
			})
		})
	}
}

// TestInterrupt_WhileSending_NamesAllSent: a command without an answer may be carried out.
func TestInterrupt_WhileSending_NamesAllSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{broken: 100}
		f.add("a-w1")
		ctx, interrupt := context.WithTimeout(t.Context(), 2*time.Second)
		defer interrupt()
		got, err := f.run(ctx, t, named("Start", "a-w1"))
		require.EqualError(t, err, "interrupted")
		assert.Equal(t, "  kubectl prism --context=prod profile stop -n team a-w1", got.said[len(got.said)-1])
	})
}

func TestQuote_Arguments_SafeForShell(t *testing.T) {
	for argument, want := range map[string]string{"": "''", "a.b/c=d": "a.b/c=d", "a in (b)": "'a in (b)'", "it's": `'it'\''s'`, "$(x)": "'$(x)'"} {
		assert.Equal(t, want, record.Quote(argument))
	}
}
