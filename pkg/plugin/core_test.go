package plugin

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/disk"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/layout"
	"github.com/prism-gpu/prism/pkg/prepare"
)

// recorded is an Advertiser that records what it is called for.
type recorded struct {
	undecided
	calls []string
}

func (r *recorded) Bind(*prepare.Settings) { r.calls = append(r.calls, "Bind") }

func (r *recorded) Begin(_ context.Context, read layout.AtStart) {
	r.calls = append(r.calls, "Begin")
	for _, record := range read.Records {
		r.calls = append(r.calls, record.Claim.UID)
	}
}

func (*recorded) Intervals() (map[gpu.UUID]gpu.Interval, error) {
	return map[gpu.UUID]gpu.Interval{}, nil
}

// TestCore_Start_AdvertiserBoundBeforeBegin: what is advertised depends on the records, and claims ask it.
func TestCore_Start_AdvertiserBoundBeforeBegin(t *testing.T) {
	t.Parallel()
	m, _ := simulated(t, disk.OS{})
	require.NoError(t, m.State.Records.Put(&checkpoint.Record{Claim: checkpoint.Claim{UID: "uid"}, State: checkpoint.Done, BootID: "boot"}))
	advertiser := &recorded{}
	core, err := NewCore(t.Context(), m, advertiser, Reports{})
	require.NoError(t, err)
	require.NoError(t, core.Begin(t.Context(), layout.AtStart{}))
	assert.Equal(t, []string{"Bind", "Begin", "uid"}, advertiser.calls)
}
