package controller

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// nodeLister serves pages of nodes, of which some have nvidia.com/gpu, and counts requests.
type nodeLister struct {
	client.Reader

	nodes    int
	with     map[int]string
	requests int
}

func (l *nodeLister) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	nodes, ok := list.(*corev1.NodeList)
	if !ok {
		return l.Reader.List(ctx, list, options...)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	l.requests++
	var o client.ListOptions
	o.ApplyOptions(options)
	first, _ := strconv.Atoi(o.Continue)
	last := min(first+int(o.Limit), l.nodes)
	if o.Limit == 0 || o.Limit > 500 {
		return fmt.Errorf("%d nodes at once", o.Limit)
	}
	for i := first; i < last; i++ {
		node := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n" + strconv.Itoa(i)}}
		if n, found := l.with[i]; found {
			node.Status.Capacity = corev1.ResourceList{"nvidia.com/gpu": resource.MustParse(n)}
		}
		nodes.Items = append(nodes.Items, node)
	}
	if last < l.nodes {
		nodes.Continue = strconv.Itoa(last)
	}
	return nil
}

// bareWorld is a cluster without node configurations, with nodes and a clock.
func bareWorld(t *testing.T, nodes *nodeLister) (*world, *time.Time) {
	t.Helper()
	w := newWorld(t)
	now := time.Unix(1000, 0)
	nodes.Reader = w.Direct
	w.ConfigMap, w.Direct, w.Now = types.NamespacedName{}, nodes, func() time.Time { return now }
	w.Lease = types.NamespacedName{Namespace: "prism-system", Name: "prism-controller"}
	return w, &now
}

// after reconciles when the controller asked for it.
func (w *world) after(now *time.Time) {
	w.t.Helper()
	result, err := w.Reconcile(w.t.Context(), reconcile.Request{})
	require.NoError(w.t, err)
	*now = now.Add(result.RequeueAfter)
}

// event is the next one that was sent; empty without one.
func (w *world) event() string {
	select {
	case event := <-w.events.Events:
		return event
	default:
		return ""
	}
}

// TestReconcile_NoConfigMap_NamesWholeGPUs: pods can request nvidia.com/gpu right after the installation, and a cluster of 5,000 nodes
// is read in pages, once in five minutes.
func TestReconcile_NoConfigMap_NamesWholeGPUs(t *testing.T) {
	nodes := &nodeLister{nodes: 5000, with: map[int]string{17: "0"}}
	w, now := bareWorld(t, nodes)
	w.reconcile()
	assert.Equal(t, `device.driver == "gpu.prism.dev" && device.attributes["gpu.prism.dev"].type == "gpu"`,
		w.classes()[wholeGPU].Spec.Selectors[0].CEL.Expression)
	assert.Equal(t, 5000/nodePage, nodes.requests)
	w.reconcile()
	w.after(now)
	assert.Equal(t, 5000/nodePage, nodes.requests, "what is known for less than five minutes is not asked again")
	assert.Equal(t, time.Unix(1000, 0).Add(capacityInterval), *now)
	w.after(now)
	assert.Equal(t, 2*5000/nodePage, nodes.requests)
	assert.Empty(t, w.events.Events)
}

// TestReconcile_DevicePlugin_KeepsItsName until it was gone for two checks: one that is restarted is no reason to take its name.
func TestReconcile_DevicePlugin_KeepsItsName(t *testing.T) {
	nodes := &nodeLister{nodes: 3, with: map[int]string{1: "8"}}
	w, now := bareWorld(t, nodes)
	w.after(now)
	assert.NotContains(t, w.classes(), wholeGPU)
	assert.Contains(t, w.event(), "Warning DevicePluginCapacity nvidia.com/gpu is left to the device plugin of nodes such as n1: ")
	assert.InDelta(t, 1, value(t, w.Metrics.problems.WithLabelValues(ReasonDevicePluginCapacity)), 0)

	nodes.with[1] = "0"
	w.after(now)
	assert.NotContains(t, w.classes(), wholeGPU)
	nodes.with[1] = "8"
	w.after(now)
	assert.Contains(t, w.event(), "is left to the device plugin")
	nodes.with[1] = "0"
	w.after(now)
	assert.NotContains(t, w.classes(), wholeGPU)
	w.after(now)
	assert.Contains(t, w.classes(), wholeGPU)
	assert.Empty(t, w.events.Events)
}

// TestReconcile_DevicePluginLater_NameStays: what was decided is not taken back, also not by another leader, and is reported.
func TestReconcile_DevicePluginLater_NameStays(t *testing.T) {
	nodes := &nodeLister{nodes: 3, with: map[int]string{}}
	w, now := bareWorld(t, nodes)
	w.after(now)
	before := w.classes()[wholeGPU]
	nodes.with[2] = "4"
	w.after(now)
	assert.Equal(t, before, w.classes()[wholeGPU])
	assert.Contains(t, w.event(), "Warning DevicePluginCapacity nodes such as n2 have nvidia.com/gpu from a device plugin, and it is the name of whole GPUs")
	w.Reconciler = &Reconciler{Options: w.Options, Client: w.Client, Direct: w.Direct, Events: w.events, Now: w.Now}
	w.reconcile()
	assert.Equal(t, before.UID, w.classes()[wholeGPU].UID)
	assert.Len(t, w.events.Events, 1)
}

func TestReconcile_GPUResource_AsToldWithoutAsking(t *testing.T) {
	for _, c := range []struct {
		told  GPUResource
		named bool
	}{{GPUResourceAlways, true}, {GPUResourceNever, false}} {
		nodes := &nodeLister{nodes: 3, with: map[int]string{1: "8"}}
		w, _ := bareWorld(t, nodes)
		w.GPUResource = c.told
		w.reconcile()
		_, named := w.classes()[wholeGPU]
		assert.Equal(t, c.named, named, c.told)
		assert.Zero(t, nodes.requests)
		assert.Empty(t, w.events.Events)
	}
}

// TestReconcile_Never_TakesTheNameBack, and leaves it to shares that a node configuration calls so.
func TestReconcile_Never_TakesTheNameBack(t *testing.T) {
	w := newWorld(t, configs(map[string]string{"a": "version: v1"}))
	w.reconcile()
	require.Contains(t, w.classes(), wholeGPU)
	w.GPUResource = GPUResourceNever
	w.reconcile()
	assert.NotContains(t, w.classes(), wholeGPU)
	w.configure(map[string]string{"a": sharedConfig(false, false)})
	assert.Equal(t, `device.driver == "gpu.prism.dev" && device.attributes["gpu.prism.dev"].type == "timeslice" && `+
		`device.attributes["gpu.prism.dev"].shareName == "none"`, w.classes()[wholeGPU].Spec.Selectors[0].CEL.Expression)
}

// TestReconcile_NodesCannotBeListed_NothingIsDecided.
func TestReconcile_NodesCannotBeListed_NothingIsDecided(t *testing.T) {
	w, _ := bareWorld(t, &nodeLister{nodes: 3})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := w.Reconcile(ctx, reconcile.Request{})
	require.ErrorIs(t, err, context.Canceled)
	assert.NotContains(t, w.classes(), wholeGPU)
}
