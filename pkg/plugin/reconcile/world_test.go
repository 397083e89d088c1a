package reconcile

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/plugin/prepare/gc"
)

// world is a node, its kubelet and its API server, and the reports.
type world struct {
	records []*checkpoint.Record
	// gone are the claims that the API server does not store; silent is the reason why it does not answer, deaf the reason why the kubelet
	// does not.
	gone         map[string]bool
	silent, deaf error
	uses         []Use
	recovery     error
	swept        error
	leaks        []gc.Leak
	stuck        error
	// begin runs at the begin of a round, late after the query of the kubelet.
	begin func(round int)
	late  func()

	rounds, asked, listed int
	inUse                 []string
	sure                  bool
	undone                []string
	removed               []string
	failed, news          []string
}

func (w *world) Recover(ctx context.Context) error {
	w.rounds++
	if w.begin != nil {
		w.begin(w.rounds)
	}
	return cmp.Or(ctx.Err(), w.recovery)
}

func (w *world) Records() ([]*checkpoint.Record, error) { return slices.Clone(w.records), nil }

func (w *world) Collect(ctx context.Context, inUse []string, sure bool) ([]gc.Leak, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	w.inUse, w.sure = inUse, sure
	leaks := w.leaks
	w.leaks = nil
	return leaks, w.swept
}

func (w *world) Unprepare(ctx context.Context, claim checkpoint.Claim) error {
	if err := cmp.Or(ctx.Err(), w.stuck); err != nil {
		w.of(claim.UID).State = checkpoint.Releasing
		return err
	}
	w.undone = append(w.undone, claim.UID)
	w.drop(claim.UID)
	return nil
}

func (w *world) of(uid string) *checkpoint.Record {
	i := slices.IndexFunc(w.records, func(r *checkpoint.Record) bool { return r.Claim.UID == uid })
	return w.records[i]
}

func (w *world) drop(uid string) {
	w.records = slices.DeleteFunc(w.records, func(r *checkpoint.Record) bool { return r.Claim.UID == uid })
}

func (w *world) Exists(ctx context.Context, claim checkpoint.Claim) (bool, error) {
	w.asked++
	return !w.gone[claim.UID], cmp.Or(ctx.Err(), w.silent)
}

func (w *world) InUse(ctx context.Context, own func(namespace, name string) bool) ([]Use, error) {
	w.listed++
	uses := slices.DeleteFunc(slices.Clone(w.uses), func(u Use) bool { return len(u.Devices) == 0 && !own(u.Namespace, u.Name) })
	if w.late != nil {
		w.late()
	}
	return uses, cmp.Or(ctx.Err(), w.deaf)
}

func (w *world) Removed(_ context.Context, leaks []gc.Leak) {
	for _, o := range leaks {
		w.removed = append(w.removed, o.String())
	}
}

func (w *world) Failed(_ context.Context, err error, news bool) {
	w.failed = append(w.failed, err.Error())
	if news {
		w.news = append(w.news, err.Error())
	}
}

// node is a world whose node contains done records of these claims.
func node(uids ...string) *world {
	w := &world{gone: map[string]bool{}}
	for _, uid := range uids {
		w.records = append(w.records, &checkpoint.Record{
			Claim: checkpoint.Claim{UID: uid, Namespace: "default", Name: "claim-" + uid}, State: checkpoint.Done,
			CDI: checkpoint.CDI{Kind: "k8s.gpu.prism.dev/claim", Devices: []string{uid + "-gpu-1-GPU-1"}},
		})
	}
	return w
}

// use is the kubelet's entry for a prepared claim.
func use(uid string) Use {
	return Use{Namespace: "default", Name: "claim-" + uid, Devices: []string{uid + "-gpu-1-GPU-1"}}
}

// run runs that many rounds.
func (w *world) run(t *testing.T, rounds int) {
	t.Helper()
	w.resume(t, New(Options{Node: w, Claims: w, Pods: w, Report: w}), rounds)
}

// resume runs that many more rounds of the same process, at the shortest interval.
func (w *world) resume(t *testing.T, r *Reconciler, rounds int) {
	t.Helper()
	for range rounds {
		r.round(t.Context())
		time.Sleep(Period)
	}
}

// inBubble runs a test with a separate clock.
func inBubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, test)
}

var errAway = errors.New("connection refused")
