package reconcile

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/plugin/prepare/gc"
)

// TestReconciler_ClaimGone_UndoneAfterFiveMinutes lists the API server's answers about a claim round by round: (g)one, (t)here, (s)ilence
// of the API server, (l)isted by the kubelet, (d)eaf kubelet. Six successive rounds span five minutes.
func TestReconciler_ClaimGone_UndoneAfterFiveMinutes(t *testing.T) {
	for heard, round := range map[string]int{
		"gggggg":              6,
		"ggggg":               0,
		"tgggggg":             7,
		"gggggsgg":            8, // silence does not count
		"gggggsg":             0,
		"ggggggg":             6,
		"gggggst":             0,
		"ggsgggg":             0,
		"ggsggggg":            8,
		"gsgsgsgsgsgsgsgsgs":  0, // two answers with a silence between them prove nothing
		"ssssssssss":          0,
		"gggggs":              0, // the last answer must be recent
		"gggggt":              0,
		"gggggl":              0,
		"gggggd":              0,
		"gggggtggggg":         0, // it existed in between
		"gggggtgggggg":        12,
		"ggggglggggg":         0,
		"ggggglgggggg":        12,
		"ggddggggg":           9,
		"gdgdgdgdgdgdgdgdgdg": 0,
		"llllllllllllllllll":  0,
		"tttttttttttttttttt":  0,
	} {
		t.Run(heard, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				w := node("a", "b")
				w.uses = []Use{use("b")}
				undoneIn := 0
				w.begin = func(round int) {
					if len(w.undone) > 0 && undoneIn == 0 {
						undoneIn = round - 1
					}
					w.gone["a"], w.silent, w.deaf, w.uses = round <= len(heard), nil, nil, []Use{use("b")}
					if round > len(heard) {
						return
					}
					switch heard[round-1] {
					case 't':
						w.gone["a"] = false
					case 's':
						w.silent = errAway
					case 'd':
						w.deaf = errAway
					case 'l':
						w.uses = append(w.uses, use("a"))
					}
				}
				w.run(t, len(heard)+1)
				assert.Equal(t, round, undoneIn)
				if round > 0 {
					assert.Equal(t, []string{"a"}, w.undone)
					assert.Equal(t, []string{"claim a"}, w.removed)
				} else {
					assert.Empty(t, w.undone)
				}
			})
		})
	}
}

func TestReconciler_FiveMinutes_Counted(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := node("a")
		w.gone["a"] = true
		w.run(t, 5)
		assert.Empty(t, w.undone)
		w.run(t, 5)
		assert.Empty(t, w.undone, "a process that is restarted counts from the beginning")
		start := time.Now()
		w.run(t, 6)
		assert.Equal(t, []string{"a"}, w.undone)
		assert.Equal(t, goneFor+Period, time.Since(start), "the sixth round, and the wait for the seventh")
	})
}

// TestRun_Rounds_AtOnceAndPeriodically until the process exits.
func TestRun_Rounds_AtOnceAndPeriodically(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		w := node()
		var at []time.Time
		w.begin = func(round int) {
			at = append(at, time.Now())
			if round == 50 {
				cancel()
			}
		}
		start := time.Now()
		New(Options{Node: w, Claims: w, Pods: w, Report: w}).Run(ctx)
		require.Len(t, at, 50)
		assert.Equal(t, start, at[0])
		gaps := map[time.Duration]bool{}
		for i := range at[1:] {
			gap := at[i+1].Sub(at[i])
			assert.GreaterOrEqual(t, gap, Period)
			assert.LessOrEqual(t, gap, Period+Period/5)
			gaps[gap] = true
		}
		assert.Greater(t, len(gaps), 40, "nodes that start together do not ask together")
	})
}

// TestAbsences_LongGap_NotCounted: the machine slept, or a round took too long.
func TestAbsences_LongGap_NotCounted(t *testing.T) {
	t.Parallel()
	now := time.Now()
	a := absences{}
	assert.False(t, a.add("a", gone, now))
	assert.False(t, a.add("a", gone, now.Add(time.Hour)))
	assert.False(t, a.add("a", gone, now.Add(time.Hour+longestGap)))
	assert.True(t, a.add("a", gone, now.Add(time.Hour+2*longestGap)))
}

// TestReconciler_AllPodsRunning_NoAPIReads, only reads at its kubelet.
func TestReconciler_AllPodsRunning_NoAPIReads(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := node()
		for i := range 100 {
			uid := fmt.Sprintf("c%d", i)
			w.records = append(w.records, node(uid).records...)
			w.uses = append(w.uses, use(uid))
		}
		w.run(t, 10)
		assert.Zero(t, w.asked, "reads at the API server")
		assert.Equal(t, 10, w.listed)
		assert.Len(t, w.inUse, 100, "what is swept knows of them")
		assert.True(t, w.sure, "and that there are no others")

		w.uses = w.uses[3:]
		w.run(t, 10)
		assert.Equal(t, 30, w.asked, "one read in each round for what the kubelet does not list")
		assert.Empty(t, w.undone)
		assert.Empty(t, w.failed)
	})
}

// TestReconciler_SameName_DistinguishedByDevices: another claim of the same name is a different one. A claim without devices may be the
// same.
func TestReconciler_SameName_DistinguishedByDevices(t *testing.T) {
	t.Parallel()
	a := checkpoint.Claim{UID: "a", Namespace: "default", Name: "claim-a"}
	for name, c := range map[string]struct {
		use  Use
		want bool
	}{
		"its devices":          {use("a"), true},
		"another's, same name": {Use{Namespace: "default", Name: "claim-a", Devices: []string{"b-gpu-1-GPU-1"}}, false},
		"begins like it":       {Use{Namespace: "default", Name: "claim-a", Devices: []string{"aa-gpu-1-GPU-1"}}, false},
		"not prepared":         {Use{Namespace: "default", Name: "claim-a"}, true},
		"other namespace":      {Use{Namespace: "other", Name: "claim-a"}, false},
		"other name":           {Use{Namespace: "default", Name: "claim-b"}, false},
	} {
		assert.Equal(t, c.want, c.use.has(a), name)
	}
}

// TestReconciler_ListedWithoutDevices_NotRead: a starting container uses a claim of this node before the kubelet lists its devices.
func TestReconciler_ListedWithoutDevices_NotRead(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := node("a")
		w.gone["a"] = true
		w.begin = func(int) {
			w.uses = []Use{{Namespace: "default", Name: "claim-a"}, {Namespace: "default", Name: "of another driver"}}
		}
		w.run(t, 6)
		assert.Empty(t, w.undone)
		assert.Zero(t, w.asked)
	})
}

// TestReconciler_ListedBeforeUndo_Kept: a container may get the claim while the API server is queried.
func TestReconciler_ListedBeforeUndo_Kept(t *testing.T) {
	for name, turn := range map[string]func(w *world){
		"it lists it":      func(w *world) { w.uses = []Use{use("a")} },
		"its name":         func(w *world) { w.uses = []Use{{Namespace: "default", Name: "claim-a"}} },
		"it says no more":  func(w *world) { w.deaf = errAway },
		"it is still gone": nil,
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				w := node("a")
				w.gone["a"] = true
				w.begin = func(round int) {
					w.uses, w.deaf, w.late = nil, nil, nil
					if round == 6 && turn != nil {
						w.late = func() { w.late = nil; turn(w) }
					}
				}
				w.run(t, 6)
				assert.Equal(t, turn == nil, len(w.undone) == 1)
			})
		})
	}
}

func TestReconciler_OtherStates_LeftToRecover(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := node("intent", "cleanup", "newer")
		w.records[0].State, w.records[1].State, w.records[2].State = checkpoint.Intent, checkpoint.Releasing, "frozen"
		for _, r := range w.records {
			w.gone[r.Claim.UID] = true
		}
		w.run(t, 10)
		assert.Empty(t, w.undone)
		assert.Zero(t, w.asked)
	})
}

// TestReconciler_APIServerAway_FewReads.
func TestReconciler_APIServerAway_FewReads(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := node("a", "b", "c", "d", "e")
		w.silent = errAway
		w.run(t, 10)
		assert.Equal(t, 30, w.asked)
		assert.Len(t, w.failed, 10, "once in each round")
		assert.Equal(t, []string{"checking whether claims are gone: connection refused"}, w.news, "and reported once")
		assert.Empty(t, w.removed)
	})
}

// TestReconciler_ShortOutage_NotReportedAsNew: kubelets are restarted.
func TestReconciler_ShortOutage_NotReportedAsNew(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := node()
		w.begin = func(round int) {
			w.deaf = nil
			if round%2 == 0 {
				w.deaf = errAway
			}
		}
		w.run(t, 6)
		assert.Len(t, w.failed, 3)
		assert.Empty(t, w.news)
		w.begin, w.deaf = nil, errAway
		w.run(t, 5)
		assert.Equal(t, []string{"listing the claims of containers: connection refused"}, w.news)
	})
}

func TestReconciler_SameFailure_ReportedOnce(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := node()
		w.recovery = errors.Join(errors.New("one"), errors.New("two"))
		w.swept = errors.Join(errors.New("three"))
		r := New(Options{Node: w, Claims: w, Pods: w, Report: w})
		w.resume(t, r, 5)
		assert.Equal(t, []string{"one", "two", "three"}, w.news)
		assert.Len(t, w.failed, 15)
		w.recovery = errors.Join(errors.New("two"))
		w.resume(t, r, 2)
		w.recovery = errors.Join(errors.New("one"), errors.New("two"))
		w.resume(t, r, 2)
		assert.Equal(t, []string{"one", "two", "three", "one"}, w.news)
	})
}

// TestReconciler_UndoFails_RecoverContinues: Recover finishes it, and then the removed effects are reported.
func TestReconciler_UndoFails_RecoverContinues(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := node("a")
		w.gone["a"], w.stuck = true, errors.New("it is stuck")
		w.begin = func(round int) {
			if round == 9 {
				w.drop("a")
			}
		}
		w.run(t, 8)
		assert.Equal(t, []string{"undoing deleted claim a: it is stuck"}, w.news)
		assert.Empty(t, w.removed)

		w = node("a")
		w.gone["a"], w.stuck = true, errors.New("it is stuck")
		r := New(Options{Node: w, Claims: w, Pods: w, Report: w})
		w.resume(t, r, 6)
		require.Equal(t, checkpoint.Releasing, w.of("a").State)
		w.drop("a")
		w.resume(t, r, 2)
		assert.Equal(t, []string{"claim a"}, w.removed)
		assert.Empty(t, r.undoing)
		assert.Empty(t, r.absences, "nothing is remembered of what is gone")
	})
}

func TestReconciler_Leaks_Reported(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := node()
		w.leaks = []gc.Leak{{Kind: gc.LeakedSpec, Claim: checkpoint.Claim{UID: "x"}}, {Kind: gc.LeakedEffect, GPU: "GPU-1", What: "mig"}}
		w.swept = errors.New("a third one stays")
		w.run(t, 2)
		assert.Equal(t, []string{"CDI spec of claim x", "mig on GPU GPU-1"}, w.removed)
		assert.Equal(t, []string{"a third one stays"}, w.news)
	})
}

// TestReconciler_KubeletAway_NothingCollected: only the kubelet knows the devices of containers.
func TestReconciler_KubeletAway_NothingCollected(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := node()
		w.deaf = errAway
		w.leaks = []gc.Leak{{Kind: gc.LeakedSpec}}
		w.run(t, 5)
		assert.Len(t, w.leaks, 1)
		assert.Empty(t, w.removed)
	})
}
