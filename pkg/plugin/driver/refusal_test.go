package driver

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/klog/v2"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/claim"
	"github.com/prism-gpu/prism/pkg/plugin/prepare"
)

// refusing refuses every claim with this reason.
type refusing struct{ err error }

func (tx refusing) Prepare(context.Context, *resourceapi.ResourceClaim) (*checkpoint.Record, error) {
	return nil, tx.err
}

func (tx refusing) Unprepare(context.Context, string) error { return tx.err }

// TestRefusal_NamesOtherClaims_OnlyTheLogDoes: the kubelet's Event and the claim's status are visible to people who may not know about
// other namespaces.
func TestRefusal_NamesOtherClaims_OnlyTheLogDoes(t *testing.T) {
	t.Parallel()
	unreadable := prepare.Redact("which GPUs are in use cannot be read now",
		fmt.Errorf("reading the record of claim their-uid of their-namespace/their-claim: %w", checkpoint.ErrUnreadable))
	refusal := &claim.Refusal{Cause: "the layout of node n0 is not known yet: " + unreadable.Error(), Transient: true, Err: unreadable}
	require.ErrorIs(t, refusal, checkpoint.ErrUnreadable)
	for _, err := range []error{refusal, prepare.Redact("it cannot be read", errors.New("claim their-namespace/their-claim (UID their-uid)"))} {
		var log strings.Builder
		logger := funcr.New(func(_, args string) { log.WriteString(args) }, funcr.Options{})
		status := &reports{}
		p := New(Options{Transaction: refusing{err}, Reports: status, Metrics: &measured{}, Fatal: func(err error) { t.Error(err) }})
		results, _ := p.PrepareResourceClaims(klog.NewContext(t.Context(), logger), []*resourceapi.ResourceClaim{claimOf("ours")})
		require.Error(t, results["ours"].Err)
		for _, secret := range []string{"their-namespace", "their-claim", "their-uid"} {
			assert.NotContains(t, results["ours"].Err.Error(), secret)
			assert.NotContains(t, status.reported["ours"], secret)
			assert.Contains(t, log.String(), secret)
		}
	}
}
