package layout

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/api/v1alpha1"
	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/plugin/kube"
)

// hanging is a call that does not return until it is released.
type hanging struct {
	reached chan struct{}
	release chan struct{}
}

func (h hanging) wait(ctx context.Context) {
	select {
	case h.reached <- struct{}{}:
	default:
	}
	select {
	case <-h.release:
	case <-ctx.Done():
	}
}

// hangingStore is a Store whose Save hangs.
type hangingStore struct {
	*memory
	hanging
}

func (s hangingStore) Save(saved Saved) error {
	s.wait(context.Background())
	return s.memory.Save(saved)
}

// hang has something that a fixture works with hang.
func (d *fixture) hang(what string, h hanging) {
	options := d.options
	switch what {
	case "records":
		read := options.Records
		options.Records = func() ([]*checkpoint.Record, error) { h.wait(context.Background()); return read() }
	case "store":
		options.Store = hangingStore{d.saved, h}
	case "configuration":
		read := options.Config.Read
		options.Config.Read = func(ctx context.Context) (*v1alpha1.NodeConfig, error) { h.wait(ctx); return read(ctx) }
	case "taints":
		read := options.API.Tainted
		options.API.Tainted = func(ctx context.Context) (map[gpu.PoolDevice]bool, error) { h.wait(ctx); return read(ctx) }
	case "claims":
		read := options.API.Allocated
		options.API.Allocated = func(ctx context.Context, q kube.AllocatedQuery) (*kube.AllocatedPage, error) {
			h.wait(ctx)
			return read(ctx, q)
		}
	}
}

// TestSnapshot_SomethingHangs_NeverWaits, for any call that the writing goroutine waits for. A call of the API server that hangs delays
// nothing else: changes of the inventory are applied.
func TestSnapshot_SomethingHangs_NeverWaits(t *testing.T) {
	t.Parallel()
	for what, served := range map[string]bool{"records": false, "store": false, "configuration": true, "taints": true, "claims": true} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := opened(t, onlyWhole)
				h := hanging{reached: make(chan struct{}, 1), release: make(chan struct{})}
				stop := d.runs(t)
				defer stop()
				after(2 * retryFirst)
				guard.Lock()
				d.hang(what, h)
				guard.Unlock()
				d.entries = onlyMIG
				d.Reload()
				<-h.reached
				synctest.Wait()
				before := d.Snapshot()
				require.NoError(t, before.Err)
				d.machine.Change(t, d.options.Inventory, func() { d.machine.GPUs = d.machine.GPUs[:1] })
				s := d.Snapshot() // in a bubble, a wait for a hanging call would never end
				require.NoError(t, s.Err)
				assert.True(t, s.Node.GPUs[1].Lost, "the inventory's latest view")
				assert.Equal(t, before.Layout[firstUUID], s.Layout[firstUUID])
				synctest.Wait()
				assert.Equal(t, served, d.output.view() == d.options.Inventory.Current())
				close(h.release)
				after(time.Minute)
				assert.Equal(t, []string{ownPool, small6, big}, d.advertised(t))
			})
		})
	}
}

// TestSnapshot_Read_NoCalls: a claim's plan uses data read from memory alone, also after a Refresh of the inventory.
func TestSnapshot_Read_NoCalls(t *testing.T) {
	t.Parallel()
	d := opened(t, both)
	calls := 0
	for _, what := range []string{"records", "store", "configuration", "taints", "claims"} {
		d.hang(what, hanging{reached: make(chan struct{}), release: nil})
	}
	d.options.Records = func() ([]*checkpoint.Record, error) { calls++; return nil, nil }
	for on := range 3 {
		d.machine.Change(t, d.options.Inventory, func() {
			m := *d.machine.GPUs[0].MIG
			m.Mode.Enabled = on%2 == 0
			d.machine.GPUs = append([]gpu.GPU{}, d.machine.GPUs...)
			d.machine.GPUs[0].MIG = &m
		})
		assert.Nil(t, d.refused(t, ownPool, big))
		assert.Equal(t, on%2 == 0, d.Snapshot().Node.GPUs[0].MIG.Mode.Enabled, "as new as the Refresh")
	}
	assert.Zero(t, calls)
}

// TestSnapshot_NewGPU_UnknownUntilTakenUp: a claim for it is tried again.
func TestSnapshot_NewGPU_UnknownUntilTakenUp(t *testing.T) {
	t.Parallel()
	d := newFixture(t, both)
	all := d.machine.GPUs
	d.machine.GPUs = all[:1]
	d.restart(t) // as after a boot: an inventory that has seen both would keep the other as lost
	require.True(t, d.load(t))
	d.probe(t)
	require.NoError(t, d.now().Err)
	d.machine.Change(t, d.options.Inventory, func() { d.machine.GPUs = all })
	s := d.Snapshot()
	require.ErrorIs(t, s.Err, errNewGPU)
	assert.Len(t, s.Node.GPUs, 2)
	assert.Empty(t, s.Devices())
	require.True(t, d.refused(t, ownPool, big).Transient)
	require.NoError(t, d.now().Err)
	assert.Nil(t, d.refused(t, ownPool, big))
}

// TestLead_SaveRuns_Waited for: the process that leads next must not find a file that is replaced after it was read.
func TestLead_SaveRuns_Waited(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := opened(t, onlyWhole)
		h := hanging{reached: make(chan struct{}, 1), release: make(chan struct{})}
		d.hang("store", h)
		stop := d.runs(t)
		defer stop()
		<-h.reached
		done := make(chan struct{})
		go func() { defer close(done); d.Lead(false) }()
		synctest.Wait()
		select {
		case <-done:
			t.Error("it did not wait")
		default:
		}
		close(h.release)
		<-done
		assert.True(t, d.Snapshot().Standby)
	})
}
