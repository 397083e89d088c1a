package plugin

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/prism-gpu/prism/test/fakes"
)

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
			results, err := p.serving.server.Handler.PrepareResourceClaims(t.Context(), []*resourceapi.ResourceClaim{rc})
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
			}, time.Minute, 10*time.Millisecond)
		})
	}
}
