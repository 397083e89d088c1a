package plugin

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/claim"
	"github.com/prism-gpu/prism/pkg/disk"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/mps"
	"github.com/prism-gpu/prism/pkg/prepare"
)

// leftService is an MPS service whose daemons cannot be stopped while they have clients.
type leftService struct {
	noDaemons

	pids []int
	down bool
}

func (s *leftService) Stop(context.Context, gpu.MPSDaemonID) error {
	switch {
	case s.down:
		return gpu.ErrTimeout
	case len(s.pids) > 0:
		return &gpu.MPSClientsError{PIDs: s.pids}
	}
	return nil
}

func TestPorts_StepOfMPS_ReportsClients(t *testing.T) {
	t.Parallel()
	m, _ := simulated(t, disk.OS{})
	step, is := m.Ports(undecided{}, &noted{}).Steps[claim.StepMPS].(mpsStep)
	require.True(t, is)
	assert.NotNil(t, step.left)
}

// TestUndo_ClientsLeft_ReportedOnceTheyStay: clients take a moment to exit, and each attempt to stop the daemon finds them again.
func TestUndo_ClientsLeft_ReportedOnceTheyStay(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		service, recorder := &leftService{pids: []int{7}}, &noted{}
		step := mpsStep{Step: mps.Step{Service: &mps.Service{Daemons: service, Store: mps.NewStore(disk.OS{}, dir, "boot")}}}
		undo := reportingClients(map[string]prepare.Step{claim.StepMPS: step}, recorder)[claim.StepMPS].Undo
		of := checkpoint.Step{Kind: claim.StepMPS, Target: "GPU-a", Args: []byte(`{"daemon":"a"}`), Last: true}
		require.Error(t, undo(t.Context(), of))
		other := of
		other.Last = false
		require.NoError(t, undo(t.Context(), other), "another share changes nothing")
		assert.Empty(t, recorder.all())
		time.Sleep(clientsExit)
		const left = "Warning MPSClientsLeft: The last MPS share of GPU GPU-a is released, and processes are still connected to its MPS control daemon a, " +
			"with the pids [7] on the host: new claims do not get the GPU until they have exited"
		for range 2 {
			require.Error(t, undo(t.Context(), of))
			assert.Equal(t, []string{left}, recorder.all())
			service.down = true
			require.ErrorIs(t, undo(t.Context(), of), gpu.ErrTimeout)
			service.down = false
		}
		service.pids = nil
		require.NoError(t, undo(t.Context(), of))
		service.pids = []int{7}
		require.Error(t, undo(t.Context(), of))
		assert.Len(t, recorder.all(), 1, "clients of a later share may exit too")
		time.Sleep(clientsExit)
		require.Error(t, undo(t.Context(), of))
		assert.Equal(t, []string{left, left}, recorder.all())
	})
}
