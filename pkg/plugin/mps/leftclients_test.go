package mps

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/claim"
	"github.com/prism-gpu/prism/pkg/disk"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/mpsd/client"
	"github.com/prism-gpu/prism/test/fakes"
)

// leftService is an MPS service whose daemons cannot be stopped while they have clients.
type leftService struct {
	NoDaemons

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

// TestUndo_ClientsLeft_ReportedOnceTheyStay: clients take a moment to exit, and each attempt to stop the daemon finds them again.
func TestUndo_ClientsLeft_ReportedOnceTheyStay(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		service, recorder := &leftService{pids: []int{7}}, make(fakes.Events, 9)
		e := New(Options{Daemons: service, Store: StoreOptions{Files: disk.OS{}, Dir: dir, BootID: "boot"}})
		undo := e.Steps(nil, recorder)[claim.StepMPS].Undo
		of := checkpoint.Step{Kind: claim.StepMPS, Target: "GPU-a", Args: []byte(`{"daemon":"a"}`), Last: true}
		require.Error(t, undo(t.Context(), of))
		other := of
		other.Last = false
		require.NoError(t, undo(t.Context(), other), "another share changes nothing")
		assert.Empty(t, recorder.Written())
		time.Sleep(clientsExit)
		const left = "Warning MPSClientsLeft Reconcile: The last MPS share of GPU GPU-a is released, and processes are still connected to its MPS control daemon a, " +
			"with the pids [7] on the host: new claims do not get the GPU until they have exited"
		var said []string
		for range 2 {
			require.Error(t, undo(t.Context(), of))
			said = append(said, recorder.Written()...)
			assert.Equal(t, []string{left}, said)
			service.down = true
			require.ErrorIs(t, undo(t.Context(), of), gpu.ErrTimeout)
			service.down = false
		}
		service.pids = nil
		require.NoError(t, undo(t.Context(), of))
		service.pids = []int{7}
		require.Error(t, undo(t.Context(), of))
		assert.Empty(t, recorder.Written(), "clients of a later share may exit too")
		time.Sleep(clientsExit)
		require.Error(t, undo(t.Context(), of))
		assert.Equal(t, []string{left}, recorder.Written())
	})
}

// TestNeeded_LayoutUnknownForAMoment_StillNeeded: shares that are advertised would else be withheld until the service is asked again.
func TestNeeded_LayoutUnknownForAMoment_StillNeeded(t *testing.T) {
	t.Parallel()
	e := New(Options{Daemons: &leftService{}, Store: StoreOptions{Files: disk.OS{}, Dir: t.TempDir(), BootID: "boot"}})
	needed := e.Needed(func() (*gpu.Node, gpu.Layout, error) { return nil, nil, errors.New("not known") })
	require.True(t, e.Store.Empty(), "no claim has a share")
	assert.False(t, needed(), "nothing has needed it")
	e.Watcher.Begin(t.Context(), Watched{Needed: func() bool { return true }, Changed: func(Answer, Answer) {}})
	assert.True(t, needed())
}

// TestWatcher_SocketOfServiceThatExited_StartNotDelayed: it refuses connections, which the service's client repeats for all that is not asked at the
// start.
func TestWatcher_SocketOfServiceThatExited_StartNotDelayed(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "prism") // the path of a socket is short
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket := filepath.Join(dir, "mpsd.sock")
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket})
	require.NoError(t, err)
	listener.SetUnlinkOnClose(false)
	require.NoError(t, listener.Close())
	synctest.Test(t, func(t *testing.T) {
		watcher, began := NewWatcher(client.New(socket)), time.Now()
		watcher.Begin(t.Context(), Watched{Needed: func() bool { return true }, Changed: func(Answer, Answer) {}})
		assert.Zero(t, time.Since(began))
		require.ErrorIs(t, watcher.Unavailable(), syscall.ECONNREFUSED)
	})
}
