package profiler

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/claim"
	"github.com/prism-gpu/prism/pkg/disk"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/plugin/driver"
	"github.com/prism-gpu/prism/pkg/plugin/kube"
	"github.com/prism-gpu/prism/pkg/plugin/profiler/store"
	"github.com/prism-gpu/prism/pkg/plugin/programs"
	"github.com/prism-gpu/prism/test/fakes"
)

// preparedCount counts reported claims.
type preparedCount struct{ prepared atomic.Int64 }

func (c *preparedCount) Prepared(*checkpoint.Record) { c.prepared.Add(1) }

func (c *preparedCount) Refused(*resourceapi.ResourceClaim, error) {}

// profiledRecord returns the record of a prepared claim.
func profiledRecord(uid string) *checkpoint.Record {
	return &checkpoint.Record{
		Claim: checkpoint.Claim{Namespace: "ns", Name: uid, UID: uid}, State: checkpoint.Done,
		Extensions: checkpoint.Extensions{claim.KindProfile: []byte("{}")},
		Results: []checkpoint.Result{{
			Pool: "n0", Device: "gpu-a", GPUUUID: "GPU-a", Extensions: checkpoint.Extensions{claim.KindProfile: []byte("{}")},
		}},
		CDI: checkpoint.CDI{Devices: []string{uid + "-gpu-a"}},
	}
}

// TestFollowed_ManyChanges_OneStatusInFiveSeconds: the API server gets no more updates, even from a container that begins sessions all the
// time, or from pods that share a claim.
func TestFollowed_ManyChanges_OneStatusInFiveSeconds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, counted := &Extension{followed: newFollowed()}, &preparedCount{}
		reports := p.Follow(counted)
		defer fakes.Run(t, p.followed.run)()
		reports.Prepared(profiledRecord("a"))
		reports.Prepared(&checkpoint.Record{Claim: checkpoint.Claim{UID: "b"}})
		require.EqualValues(t, 2, counted.prepared.Load())
		start := time.Now()
		for time.Since(start) < time.Minute {
			p.followed.change("a")
			p.followed.change("b")
			reports.Prepared(profiledRecord("a"))
			time.Sleep(100 * time.Millisecond)
		}
		synctest.Wait()
		assert.EqualValues(t, 2+12, counted.prepared.Load(), "once in five seconds, and never the claim without a profile")
		p.followed.change("a")
		time.Sleep(time.Minute)
		assert.EqualValues(t, 2+13, counted.prepared.Load(), "the last change, and nothing more")
	})
}

// TestFollowed_ChangeOfOneClaim_OthersNotDelayed: the pauses of claims are independent.
func TestFollowed_ChangeOfOneClaim_OthersNotDelayed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, counted := &Extension{followed: newFollowed()}, &preparedCount{}
		p.Follow(counted)
		defer fakes.Run(t, p.followed.run)()
		for i, uid := range []string{"a", "b", "c"} {
			p.followed.recall([]*checkpoint.Record{profiledRecord(uid)})
			synctest.Wait()
			assert.EqualValues(t, i+1, counted.prepared.Load())
		}
	})
}

// TestFollowed_OtherDevices_ReportedAtOnce: a claim that was allocated again reports its new devices.
func TestFollowed_OtherDevices_ReportedAtOnce(t *testing.T) {
	t.Parallel()
	p, counted := &Extension{followed: newFollowed()}, &preparedCount{}
	reports := p.Follow(counted)
	reports.Prepared(profiledRecord("a"))
	moved := profiledRecord("a")
	moved.Results[0].Device = "gpu-b"
	reports.Prepared(moved)
	assert.EqualValues(t, 2, counted.prepared.Load())
}

// TestFollowed_RefusedOrGone_NotReportedAgain: changes of an earlier profile of a claim no longer affect its status.
func TestFollowed_RefusedOrGone_NotReportedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, counted := &Extension{followed: newFollowed()}, &preparedCount{}
		reports := p.Follow(counted)
		defer fakes.Run(t, p.followed.run)()
		for i, end := range []func(){
			func() {
				reports.Refused(&resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{UID: "a"}}, errors.New("no"))
			},
			func() { p.Gone("a") },
		} {
			reports.Prepared(profiledRecord("a"))
			p.followed.change("a")
			end()
			p.followed.change("a")
			time.Sleep(time.Minute)
			assert.EqualValues(t, i+1, counted.prepared.Load())
		}
		synctest.Wait()
		assert.Empty(t, p.followed.claims)
		assert.Empty(t, p.followed.unprepared)
	})
}

// TestFollowed_ManyClaims_PreparedStay: past claims are eventually dropped, but prepared claims are always followed.
func TestFollowed_ManyClaims_PreparedStay(t *testing.T) {
	t.Parallel()
	kept, err := store.Open(store.Options{Dir: t.TempDir(), Files: disk.OS{}})
	require.NoError(t, err)
	p := &Extension{store: kept, hook: &containerPrograms{Extra: &programs.Extra{}}, followed: newFollowed()}
	reports := p.Follow(&preparedCount{})
	reports.Prepared(profiledRecord("training"))
	for i := range 3 * maxFollowed {
		reports.Prepared(profiledRecord(fmt.Sprint(i)))
		p.Released(fmt.Sprint(i))
		p.Released("unknown")
	}
	assert.Len(t, p.followed.claims, 1+maxFollowed)
	assert.Len(t, p.followed.unprepared, maxFollowed)
	assert.Contains(t, p.followed.claims, "training")
	assert.Contains(t, p.followed.claims, fmt.Sprint(3*maxFollowed-1), "its last report may be imported yet")
	last := fmt.Sprint(3*maxFollowed - 1)
	reports.Prepared(profiledRecord(last))
	assert.NotContains(t, p.followed.unprepared, last, "it was prepared again")
}

// written is a claim whose status a plugin writes, and the number of writes.
type written struct {
	client *fake.Clientset
	writes atomic.Int64
	// says is the message of condition Profiling.
	says atomic.Pointer[string]
}

func newWritten(t *testing.T, record *checkpoint.Record) *written {
	t.Helper()
	w := &written{client: fake.NewClientset(&resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: record.Claim.Namespace, Name: record.Claim.Name, UID: types.UID(record.Claim.UID)},
		Status: resourceapi.ResourceClaimStatus{Allocation: &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{
			Results: []resourceapi.DeviceRequestAllocationResult{{Request: "r", Driver: "gpu.prism.dev", Pool: "n0", Device: "gpu-a"}},
		}}},
	})}
	w.client.PrependReactor("patch", "resourceclaims", func(clienttesting.Action) (bool, runtime.Object, error) {
		w.writes.Add(1)
		return false, nil, nil
	})
	w.says.Store(new("nothing"))
	return w
}

// start starts a plugin's writers.
func (w *written) start(t *testing.T) (p *Extension, reports driver.Reports, stop func()) {
	t.Helper()
	p = &Extension{followed: newFollowed()}
	statuses := kube.NewStatuses(kube.StatusesOptions{
		Client: w.client, DriverName: "gpu.prism.dev", Delay: 200 * time.Millisecond, OnGone: func(c kube.ClaimRef) { p.Gone(string(c.UID)) },
		Conditions: p.ConditionTypes(),
	})
	reports = p.Follow(driver.ClaimStatus{
		Statuses: statuses, Node: func() *gpu.Node { return &gpu.Node{} }, Extensions: []driver.StatusExtension{saying{&Off{}, w}},
	})
	stopStatuses, stopRun := fakes.Run(t, statuses.Run), fakes.Run(t, p.followed.run)
	return p, reports, func() { stopRun(); stopStatuses() }
}

// saying is an extension that reports condition Profiling.
type saying struct {
	*Off
	written *written
}

func (s saying) StatusConditions(*checkpoint.Record) []kube.Condition {
	return []kube.Condition{{Type: "Profiling", Reason: "Recording", Message: *s.written.says.Load()}}
}

func (w *written) profiling(t *testing.T, name string) *metav1.Condition {
	t.Helper()
	got, err := w.client.ResourceV1().ResourceClaims("ns").Get(t.Context(), name, metav1.GetOptions{})
	require.NoError(t, err)
	require.Len(t, got.Status.Devices, 1)
	require.NotNil(t, meta.FindStatusCondition(got.Status.Devices[0].Conditions, "Ready"))
	return meta.FindStatusCondition(got.Status.Devices[0].Conditions, "Profiling")
}

// TestFollowed_API_WrittenOnlyWhereDifferent: a claim's status is written at most once in five seconds, not for a change without new
// content, not after a restart if it is correct, and not for a deleted claim.
func TestFollowed_API_WrittenOnlyWhereDifferent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		record := profiledRecord("a")
		w := newWritten(t, record)
		p, reports, stop := w.start(t)
		reports.Prepared(record)
		for i := range 40 { // of 100 ms each
			w.says.Store(new(fmt.Sprintf("%d processes", i)))
			p.followed.change("a")
			time.Sleep(100 * time.Millisecond)
		}
		assert.EqualValues(t, 1, w.writes.Load())
		since := w.profiling(t, "a").LastTransitionTime
		time.Sleep(time.Minute)
		assert.EqualValues(t, 2, w.writes.Load(), "all that changed meanwhile, once")
		assert.Equal(t, "39 processes", w.profiling(t, "a").Message)
		assert.Equal(t, since, w.profiling(t, "a").LastTransitionTime, "it is False since then")
		p.followed.change("a")
		time.Sleep(time.Minute)
		assert.EqualValues(t, 2, w.writes.Load(), "nothing new")
		stop()
		p, _, stop = w.start(t)
		p.followed.recall([]*checkpoint.Record{record})
		time.Sleep(time.Minute)
		assert.EqualValues(t, 2, w.writes.Load(), "a restart that finds it right")
		w.says.Store(new("1 process"))
		p.followed.recall([]*checkpoint.Record{record})
		time.Sleep(time.Minute)
		assert.EqualValues(t, 3, w.writes.Load(), "one that does not")
		require.NoError(t, w.client.ResourceV1().ResourceClaims("ns").Delete(t.Context(), "a", metav1.DeleteOptions{}))
		p.followed.change("a")
		time.Sleep(time.Minute)
		assert.EqualValues(t, 3, w.writes.Load())
		stop()
		assert.Empty(t, p.followed.claims, "the claim is gone")
	})
}
