package plugin

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/test/fakes"
)

// preparedCount counts the claims that are reported.
type preparedCount struct{ prepared atomic.Int64 }

func (c *preparedCount) Prepared(*checkpoint.Record) { c.prepared.Add(1) }

func (c *preparedCount) Refused(*resourceapi.ResourceClaim, error) {}

// TestFollowed_ManyChanges_OneStatusInFiveSeconds: a container that begins sessions all the time costs the API server no more than that.
func TestFollowed_ManyChanges_OneStatusInFiveSeconds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, counted := &profiles{}, &preparedCount{}
		reports, run := p.follow(counted)
		defer fakes.Run(t, run)()
		profiled := &checkpoint.Record{Claim: checkpoint.Claim{UID: "a"}, Profile: []byte("{}"), Results: []checkpoint.Result{{Profiled: true}}}
		reports.Prepared(profiled)
		reports.Prepared(&checkpoint.Record{Claim: checkpoint.Claim{UID: "b"}})
		require.EqualValues(t, 2, counted.prepared.Load())
		start := time.Now()
		for time.Since(start) < time.Minute {
			p.followed.change("a")
			p.followed.change("b")
			time.Sleep(100 * time.Millisecond)
		}
		synctest.Wait()
		assert.LessOrEqual(t, counted.prepared.Load(), int64(2+13), "once in five seconds, and never the claim without a profile")
		assert.GreaterOrEqual(t, counted.prepared.Load(), int64(2+12))
	})
}

// TestFollowed_ManyClaims_Bounded: claims of the past are not kept for ever.
func TestFollowed_ManyClaims_Bounded(t *testing.T) {
	t.Parallel()
	f := &followed{Reports: &preparedCount{}, records: map[string]*checkpoint.Record{}, changed: map[string]bool{}}
	for i := range 3 * maxFollowed {
		f.remember(&checkpoint.Record{Claim: checkpoint.Claim{UID: string(rune(i))}})
	}
	assert.Len(t, f.records, maxFollowed)
	assert.Len(t, f.order, maxFollowed)
}

// TestPrepare_Profile_ConditionsInStatus: a claim that is profiled says so, and one that is refused for its profile says why.
func TestPrepare_Profile_ConditionsInStatus(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fields    string
		condition string
		reason    string
	}{
		"prepared": {withEnvironment, "Profiling", "NoProcessMatched"},
		"refused":  {withEnvironment + `,"args":["--cuda-memory-usage=true"]`, "ProfilerReady", "NotAllowed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := profilingNode(t, "policy: {args: Deny}", "2023.4.4")
			p := n.build(t)
			defer fakes.Run(t, p.statuses.Run)()
			rc := n.profiledClaim(t, c.fields)
			_, err := n.client.ResourceV1().ResourceClaims(rc.Namespace).Update(t.Context(), rc, metav1.UpdateOptions{})
			require.NoError(t, err)
			results, err := p.serving.server.Plugin.PrepareResourceClaims(t.Context(), []*resourceapi.ResourceClaim{rc})
			require.NoError(t, err)
			assert.Equal(t, name == "refused", results[rc.UID].Err != nil)
			require.NoError(t, p.statuses.Drain(t.Context()))
			require.EventuallyWithT(t, func(collect *assert.CollectT) {
				got, err := n.client.ResourceV1().ResourceClaims(rc.Namespace).Get(t.Context(), rc.Name, metav1.GetOptions{})
				require.NoError(collect, err)
				require.NotEmpty(collect, got.Status.Devices)
				found := meta.FindStatusCondition(got.Status.Devices[0].Conditions, c.condition)
				require.NotNil(collect, found)
				assert.Equal(collect, metav1.ConditionFalse, found.Status)
				assert.Equal(collect, c.reason, found.Reason)
			}, 30*time.Second, 10*time.Millisecond)
		})
	}
}
