package kube_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/plugin/kube"
	"github.com/prism-gpu/prism/pkg/plugin/publish"
)

const (
	driverName = "gpu.prism.dev"
	nodeName   = "node-1"
	deadline   = time.Minute
)

// sliceServer is a fake API server that names and versions ResourceSlices, and can refuse writes and drop taints or counters.
type sliceServer struct {
	*fake.Clientset

	writes, refusals         atomic.Int64
	dropTaints, dropCounters atomic.Bool
	mu                       sync.Mutex
	version                  int
}

func newSliceServer(t *testing.T, objects ...runtime.Object) *sliceServer {
	t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName, UID: "node-uid"}}
	s := &sliceServer{Clientset: fake.NewClientset(append(objects, node)...), version: 1000}
	for _, verb := range []string{"create", "update", "delete", "patch"} {
		s.PrependReactor(verb, "resourceslices", s.write)
	}
	return s
}

// write handles a write before it is stored.
func (s *sliceServer) write(action clienttesting.Action) (bool, runtime.Object, error) {
	if s.refusals.Add(-1) >= 0 {
		return true, nil, apierrors.NewServiceUnavailable("the server is being upgraded")
	}
	// After a NotFound the client also tries older versions of the API.
	if resource := action.GetResource(); resource.Version != resourceapi.SchemeGroupVersion.Version {
		return true, nil, apierrors.NewNotFound(resource.GroupResource(), "")
	}
	s.writes.Add(1)
	var slice *resourceapi.ResourceSlice
	switch a := action.(type) {
	case clienttesting.CreateActionImpl:
		slice = a.Object.(*resourceapi.ResourceSlice)
	case clienttesting.UpdateActionImpl:
		slice = a.Object.(*resourceapi.ResourceSlice)
	default:
		return false, nil, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	slice.ResourceVersion = strconv.Itoa(s.version)
	if slice.Name == "" {
		slice.Name = fmt.Sprintf("%s%05d", slice.GenerateName, s.version)
	}
	if s.dropTaints.Load() {
		for i := range slice.Spec.Devices {
			slice.Spec.Devices[i].Taints = nil
		}
	}
	if s.dropCounters.Load() {
		dropCounterSets(slice)
		dropConsumption(slice)
	}
	return false, nil, nil
}

// stored lists the stored ResourceSlices.
func (s *sliceServer) stored(t *testing.T) []resourceapi.ResourceSlice {
	t.Helper()
	list, err := s.ResourceV1().ResourceSlices().List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	return list.Items
}

// eventually polls with a deadline.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	require.Eventually(t, ok, deadline, 5*time.Millisecond, what)
}

// start runs a controller and returns a function that stops it.
func start(t *testing.T, slices *kube.Slices) (stop func()) {
	t.Helper()
	return startWith(t, slices, func(kube.DroppedFields) {})
}

// startWith is start with a callback for dropped fields.
func startWith(t *testing.T, slices *kube.Slices, dropped func(kube.DroppedFields)) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- slices.Run(ctx, dropped) }()
	stop = sync.OnceFunc(func() {
		cancel()
		assert.NoError(t, <-done)
	})
	t.Cleanup(stop)
	return stop
}

func options(s *sliceServer) kube.SlicesOptions {
	return kube.SlicesOptions{Client: s, DriverName: driverName, NodeName: nodeName}
}

// resources describes a node with n GPUs.
func resources(n int) resourceslice.DriverResources {
	node := &gpu.Node{Driver: gpu.Driver{Version: "580.95.05", CUDAVersion: "13.0"}}
	for i := range n {
		node.GPUs = append(node.GPUs, gpu.GPU{UUID: gpu.UUID(fmt.Sprintf("GPU-%08x-0000-0000-0000-000000000000", i+1)), Index: i})
	}
	gpu.AssignIDs(node.GPUs)
	return publish.Resources(publish.Options{NodeName: nodeName}, node)
}

func TestSlices_Publish_CreatedAndUpdated(t *testing.T) {
	t.Parallel()
	server := newSliceServer(t)
	slices := kube.NewSlices(options(server))
	slices.Publish(resources(2))
	start(t, slices)
	eventually(t, "the ResourceSlice is written", func() bool { return len(server.stored(t)) == 1 })

	slice := server.stored(t)[0]
	assert.Equal(t, driverName, slice.Spec.Driver)
	assert.Equal(t, nodeName, slice.Spec.Pool.Name)
	assert.Equal(t, nodeName, *slice.Spec.NodeName)
	assert.Len(t, slice.Spec.Devices, 2)
	require.Len(t, slice.OwnerReferences, 1)
	assert.Equal(t, "Node", slice.OwnerReferences[0].Kind)
	assert.EqualValues(t, "node-uid", slice.OwnerReferences[0].UID, "looked up")

	slices.Publish(resources(3))
	eventually(t, "the ResourceSlice is updated", func() bool { return len(server.stored(t)[0].Spec.Devices) == 3 })
	eventually(t, "writes are counted", func() bool {
		return slices.Stats() == kube.SlicesStats{Created: 1, Updated: 1}
	})
}

// TestSlices_CapacityOfOwnDomain_Published: by default the library of 0.38 refuses such names, and with them all pools of the node.
func TestSlices_CapacityOfOwnDomain_Published(t *testing.T) {
	t.Parallel()
	server := newSliceServer(t)
	opts := options(server)
	opts.OnError = func(err error) { assert.NoError(t, err) }
	published := resources(1)
	device := resourceapi.Device{Name: "mig", Capacity: map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{
		driverName + "/" + publish.CapMIGMemory: {Value: resource.MustParse("9Gi")},
	}}
	published.Pools[nodeName+"/gpu-1"] = resourceslice.Pool{Slices: []resourceslice.Slice{{Devices: []resourceapi.Device{device}}}}
	slices := kube.NewSlices(opts)
	slices.Publish(published)
	start(t, slices)
	eventually(t, "both pools are written", func() bool { return len(server.stored(t)) == 2 })
}

func TestSlices_RestartWithoutPublish_NothingReadOrWritten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := newSliceServer(t)
		before := kube.NewSlices(options(server))
		before.Publish(resources(2))
		stop := start(t, before)
		eventually(t, "the ResourceSlice is written", func() bool { return len(server.stored(t)) == 1 })
		stop()
		server.ClearActions()

		stop = start(t, kube.NewSlices(options(server)))
		time.Sleep(time.Hour)
		assert.Empty(t, server.Actions(), "nothing is read or written before the first Publish")
		stop()
		assert.Len(t, server.stored(t), 1)
	})
}

func TestSlices_RestartWithSameContent_NoWrites(t *testing.T) {
	t.Parallel()
	server := newSliceServer(t)
	before := kube.NewSlices(options(server))
	before.Publish(resources(80))
	stop := start(t, before)
	eventually(t, "both ResourceSlices are written", func() bool { return len(server.stored(t)) == 2 })
	stop()
	writes := server.writes.Load()

	opts := options(server)
	opts.SyncDelay = 10 * time.Millisecond
	restarted := kube.NewSlices(opts)
	restarted.Publish(resources(80))
	stop = start(t, restarted)
	eventually(t, "the controller has read the ResourceSlices", func() bool { return synced(server) })
	restarted.Publish(resources(80))
	// The reaction to a deletion proves that earlier syncs are complete: then only the missing ResourceSlice is created.
	missing := server.stored(t)[1].Name
	require.NoError(t, server.Tracker().Delete(resourceapi.SchemeGroupVersion.WithResource("resourceslices"), "", missing))
	eventually(t, "the missing ResourceSlice is back", func() bool { return len(server.stored(t)) == 2 })
	stop()
	assert.Equal(t, writes+2, server.writes.Load(), "0 API writes when nothing changed; then the other ResourceSlice got the new generation")
	assert.Equal(t, int64(1), restarted.Stats().Created)
}

// TestSlices_PublishedWhileStarting_OnlyTheLatestWritten: content that was published before the API server answered is not written at all.
func TestSlices_PublishedWhileStarting_OnlyTheLatestWritten(t *testing.T) {
	t.Parallel()
	server, latest, published := newSliceServer(t), resources(64*20), make(chan struct{})
	slices := kube.NewSlices(options(server))
	slices.Publish(resources(1))
	once := sync.OnceFunc(func() {
		slices.Publish(latest)
		close(published)
	})
	server.PrependReactor("list", "resourceslices", func(clienttesting.Action) (bool, runtime.Object, error) {
		once()
		return false, nil, nil
	})
	var written atomic.Int64
	server.PrependReactor("create", "resourceslices", func(action clienttesting.Action) (bool, runtime.Object, error) {
		create, _ := action.(clienttesting.CreateActionImpl)
		written.CompareAndSwap(0, create.Object.(*resourceapi.ResourceSlice).Spec.Pool.ResourceSliceCount)
		return false, nil, nil
	})
	start(t, slices)
	<-published
	// Each call copies it under the lock for attaching the controller, so the controller has time to write its initial content.
	for written.Load() == 0 {
		slices.Publish(latest)
	}
	assert.EqualValues(t, 20, written.Load(), "ResourceSlices of the pool in the first write")
	eventually(t, "all are written", func() bool { return len(server.stored(t)) == 20 })
	assert.EqualValues(t, 20, server.writes.Load(), "each once")
}

// synced reports whether the second controller has read the Node, which it does in its first sync of a pool.
func synced(s *sliceServer) bool {
	n := 0
	for _, a := range s.Actions() {
		if a.Matches("get", "nodes") {
			n++
		}
	}
	return n == 2
}

func TestSlices_Deleted_CreatedAgain(t *testing.T) {
	t.Parallel()
	server := newSliceServer(t)
	slices := kube.NewSlices(options(server))
	slices.Publish(resources(80))
	start(t, slices)
	eventually(t, "both ResourceSlices are written", func() bool { return len(server.stored(t)) == 2 })

	for round := range 3 {
		for _, slice := range server.stored(t) {
			require.NoError(t, server.Tracker().Delete(resourceapi.SchemeGroupVersion.WithResource("resourceslices"), "", slice.Name))
		}
		deleted := time.Now()
		eventually(t, "the deleted ResourceSlices are created again", func() bool { return len(server.stored(t)) == 2 })
		t.Logf("round %d: 2 deleted ResourceSlices created again after %v", round, time.Since(deleted).Round(time.Millisecond))
	}
}

func TestSlices_WritesFail_Retried(t *testing.T) {
	t.Parallel()
	server := newSliceServer(t)
	server.refusals.Store(4)
	var first error
	var once sync.Once
	opts := options(server)
	opts.OnError = func(err error) { once.Do(func() { first = err }) }
	slices := kube.NewSlices(opts)
	slices.Publish(resources(1))
	stop := start(t, slices)
	eventually(t, "the ResourceSlice is written in spite of errors", func() bool { return len(server.stored(t)) == 1 })
	stop()
	assert.Equal(t, int64(4), slices.Stats().Errors)
	require.ErrorContains(t, first, "publishing ResourceSlices of node node-1: ")
	require.ErrorContains(t, first, "the server is being upgraded")
	assert.True(t, apierrors.IsServiceUnavailable(errors.Unwrap(errors.Unwrap(first))), "the cause stays reachable")
}

func TestSlices_FieldsDropped_Reported(t *testing.T) {
	t.Parallel()
	server := newSliceServer(t)
	server.dropTaints.Store(true)
	reports := make(chan kube.DroppedFields, 16)
	slices := kube.NewSlices(options(server))
	tainted := resources(1)
	tainted.Pools[nodeName].Slices[0].Devices[0].Taints = []resourceapi.DeviceTaint{{Key: driverName + "/xid", Effect: resourceapi.DeviceTaintEffectNoSchedule}}
	slices.Publish(tainted)
	stop := startWith(t, slices, func(d kube.DroppedFields) {
		reports <- d
		slices.Publish(resources(1)) // without taints
	})
	select {
	case got := <-reports:
		assert.Equal(t, kube.DroppedFields{Pool: nodeName, Slice: 0, Features: []string{"DRADeviceTaints"}}, got)
	case <-time.After(deadline):
		t.Fatal("dropped fields were not reported")
	}
	eventually(t, "the ResourceSlice is stored", func() bool { return len(server.stored(t)) == 1 })
	stop()
	assert.Equal(t, kube.SlicesStats{Created: 1, Dropped: 1}, slices.Stats(), "the content without taints is stored already")
}

func TestSlices_NoPools_Deleted(t *testing.T) {
	t.Parallel()
	server := newSliceServer(t)
	slices := kube.NewSlices(options(server))
	slices.Publish(resources(1))
	start(t, slices)
	eventually(t, "the ResourceSlice is written", func() bool { return len(server.stored(t)) == 1 })
	slices.Publish(resourceslice.DriverResources{})
	eventually(t, "the ResourceSlice is deleted with its pool", func() bool { return len(server.stored(t)) == 0 })
	slices.Publish(resources(0))
	eventually(t, "a pool without devices has an empty ResourceSlice", func() bool {
		stored := server.stored(t)
		return len(stored) == 1 && len(stored[0].Spec.Devices) == 0
	})
}

func TestSlices_NoClient_RunFails(t *testing.T) {
	t.Parallel()
	slices := kube.NewSlices(kube.SlicesOptions{DriverName: driverName, NodeName: nodeName})
	slices.Publish(resources(1))
	assert.EqualError(t, slices.Run(t.Context(), nil),
		"starting the ResourceSlice controller of node node-1: create controller: KubeClient is nil")
}
