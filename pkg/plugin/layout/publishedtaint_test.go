package layout

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/plugin/kube"
	"github.com/prism-gpu/prism/pkg/plugin/publish"
	"github.com/prism-gpu/prism/test/fakes"
)

const (
	ours          = "gpu.prism.dev"
	drainingTaint = ours + "/" + publish.DrainingTaint
)

// sliceStore is an API server that stores the ResourceSlices which a publisher publishes, unless it is away, and of which others may
// remove taints.
type sliceStore struct {
	client *fake.Clientset

	mu       sync.Mutex
	last     resourceslice.DriverResources
	away     bool
	stripped bool
}

// Publish stores the ResourceSlices in place of the ones before.
func (s *sliceStore) Publish(resources resourceslice.DriverResources) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = resources
	s.store()
}

// set changes the effect of writing ResourceSlices from now on.
func (s *sliceStore) set(how func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	how()
	s.store()
}

func (s *sliceStore) store() {
	if s.away {
		return
	}
	api, ctx := s.client.ResourceV1().ResourceSlices(), context.Background()
	before, _ := api.List(ctx, metav1.ListOptions{})
	for i := range before.Items {
		_ = api.Delete(ctx, before.Items[i].Name, metav1.DeleteOptions{})
	}
	node, n := "n0", 0
	for pool, content := range s.last.Pools {
		for _, slice := range content.Slices {
			n++
			stored := &resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("slice-", n)}, Spec: resourceapi.ResourceSliceSpec{
				Driver: ours, NodeName: &node, Pool: resourceapi.ResourcePool{Name: pool}, Devices: slices.Clone(slice.Devices),
			}}
			for i := range stored.Spec.Devices {
				if s.stripped {
					stored.Spec.Devices[i].Taints = nil
				}
			}
			_, _ = api.Create(ctx, stored, metav1.CreateOptions{})
		}
	}
}

// taints are the taints of each device that is stored, by "<pool> <device>".
func (s *sliceStore) taints(t *testing.T) map[string][]string {
	t.Helper()
	stored, err := s.client.ResourceV1().ResourceSlices().List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	found := map[string][]string{}
	for i := range stored.Items {
		for _, d := range stored.Items[i].Spec.Devices {
			keys := []string{}
			for _, taint := range d.Taints {
				keys = append(keys, taint.Key+":"+string(taint.Effect))
			}
			found[stored.Items[i].Spec.Pool.Name+" "+d.Name] = keys
		}
	}
	return found
}

// stored is a fixture whose GPUs are published to an API server and whose taints are read from there.
func published(t *testing.T, entries string) (d *fixture, store *sliceStore, stop func()) {
	t.Helper()
	store = &sliceStore{client: fake.NewClientset()}
	d = newFixture(t, entries)
	d.options.API.Tainted = func(ctx context.Context) (map[gpu.PoolDevice]bool, error) {
		return kube.Stored{Client: store.client, DriverName: ours, NodeName: "n0"}.Tainted(ctx, drainingTaint)
	}
	require.True(t, d.load(t))
	d.probe(t)
	publisher := NewPublisher(d.Controller, publish.Options{DriverName: ours, NodeName: "n0"}, store)
	d.Lead(true)
	stop = fakes.Run(t, func(ctx context.Context) error { return d.Run(ctx, publisher.Publish) })
	after(2 * retryFirst)
	return d, store, stop
}

// The devices of a GPU in its own pool before and after an edit removes the MIG devices of one profile.
var (
	taintedInItsPool = map[string][]string{
		"n0 " + second: {}, ownPool + " " + first: {drainingTaint + ":NoSchedule"}, ownPool + " " + small6: {drainingTaint + ":NoSchedule"},
		ownPool + " " + big: {},
	}
	changedInItsPool = map[string][]string{"n0 " + second: {}, ownPool + " " + big: {}}
)

func TestPublishedTaint_EditForAGPUInItsOwnPool_TaintsWhatLeaves(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, store, stop := published(t, both)
		defer stop()
		assert.Equal(t, map[string][]string{"n0 " + second: {}, ownPool + " " + first: {}, ownPool + " " + small6: {}, ownPool + " " + big: {}}, store.taints(t))
		d.entries = onlyBig
		d.Reload()
		after(changeWait + time.Second)
		assert.Equal(t, taintedInItsPool, store.taints(t))
		after(taintTime - 2*time.Second)
		assert.Equal(t, taintedInItsPool, store.taints(t))
		assert.Zero(t, d.listed)
		after(3*time.Second + pageInterval)
		assert.Equal(t, changedInItsPool, store.taints(t))
		assert.Equal(t, 1, d.listed)
	})
}

// TestPublishedTaint_NotStoredYet_IsWaitedFor also if the GPU is in its own pool.
func TestPublishedTaint_NotStoredYet_IsWaitedFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, store, stop := published(t, both)
		defer stop()
		store.set(func() { store.away = true })
		d.entries = onlyBig
		d.Reload()
		after(5 * time.Minute)
		assert.Equal(t, []string{ownPool, first, small6, big}, d.advertised(t))
		assert.Zero(t, d.listed)
		store.set(func() { store.away = false })
		after(taintTime - time.Second)
		assert.Equal(t, taintedInItsPool, store.taints(t))
		after(3*time.Second + pageInterval)
		assert.Equal(t, changedInItsPool, store.taints(t))
	})
}

// TestPublishedTaint_Vanishes_RestartsTheTaintTime: a scheduler that saw the ResourceSlices without taints may have allocated the leaving
// devices.
func TestPublishedTaint_Vanishes_RestartsTheTaintTime(t *testing.T) {
	t.Parallel()
	for name, vanish := range map[string]time.Duration{
		"before the taint time is over":     changeWait + 2*time.Second,
		"when the GPU has long been in use": time.Minute,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d, store, stop := published(t, both)
				defer stop()
				if vanish > changeWait+taintTime {
					d.records = append(d.records, holds(ownPool, first))
				}
				d.entries = onlyBig
				d.Reload()
				after(vanish)
				assert.Equal(t, taintedInItsPool, store.taints(t))
				store.set(func() { store.stripped = true })
				d.records = nil
				after(time.Minute)
				assert.Equal(t, []string{ownPool, first, small6, big}, d.advertised(t))
				assert.Zero(t, d.listed)
				store.set(func() { store.stripped = false })
				after(taintTime - time.Second)
				assert.Equal(t, taintedInItsPool, store.taints(t))
				assert.Zero(t, d.listed, "the time begins again")
				after(3*time.Second + pageInterval)
				assert.Equal(t, changedInItsPool, store.taints(t))
			})
		})
	}
}

// TestPublishedTaint_VanishesWhileClaimsAreRead_RestartsTheTaintTime: a list of several pages takes longer.
func TestPublishedTaint_VanishesWhileClaimsAreRead_RestartsTheTaintTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, store, stop := published(t, both)
		defer stop()
		d.paged(t, 3, 0)
		d.entries = onlyBig
		d.Reload()
		d.untilListed(t, 1)
		store.set(func() { store.stripped = true })
		after(time.Minute)
		assert.Equal(t, []string{ownPool, first, small6, big}, d.advertised(t))
		assert.Equal(t, 3, d.listed)
		store.set(func() { store.stripped = false })
		after(taintTime + 3*time.Second + 3*pageInterval)
		assert.Equal(t, changedInItsPool, store.taints(t))
		assert.Equal(t, 6, d.listed)
	})
}
