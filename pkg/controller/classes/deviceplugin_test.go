package classes

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

// nodeLister lists nodes in pages, some of them with nvidia.com/gpu, and counts requests.
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

// clusterWithNodes is a cluster with nodes and a clock, and without node configurations.
func clusterWithNodes(t *testing.T, nodes *nodeLister) (*cluster, *time.Time) {
	t.Helper()
	w := newCluster(t)
	now := time.Unix(1000, 0)
	nodes.Reader = w.Direct
	w.ConfigMap, w.Direct, w.Now = types.NamespacedName{}, nodes, func() time.Time { return now }
	w.Lease = types.NamespacedName{Namespace: "prism-system", Name: "prism-controller"}
	return w, &now
}

// after reconciles and advances the clock by the requested delay.
func (w *cluster) after(now *time.Time) {
	w.t.Helper()
	result, err := w.Reconcile(w.t.Context(), reconcile.Request{})
	require.NoError(w.t, err)
	*now = now.Add(result.RequeueAfter)
}

// event is the next Event that was sent; empty without one.
func (w *cluster) event() string {
	select {
	case event := <-w.events.Events:
		return event
	default:
		return ""
	}
}

// Pods can request nvidia.com/gpu right after the installation, and a cluster of 5,000 nodes is listed in pages every five minutes.
func TestReconcile_NoConfigMap_NamesWholeGPUs(t *testing.T) {
	nodes := &nodeLister{nodes: 5000, with: map[int]string{17: "0"}}
	w, now := clusterWithNodes(t, nodes)
	w.reconcile()
	assert.Equal(t, `device.driver == "gpu.prism.dev" && device.attributes["gpu.prism.dev"].type == "gpu"`,
		w.classes()[wholeGPU].Spec.Selectors[0].CEL.Expression)
	assert.Equal(t, 5000/nodePage, nodes.requests)
	w.reconcile()
	w.after(now)
	assert.Equal(t, 5000/nodePage, nodes.requests, "nodes are listed at most once in five minutes")
	assert.Equal(t, time.Unix(1000, 0).Add(capacityInterval), *now)
	w.after(now)
	assert.Equal(t, 2*5000/nodePage, nodes.requests)
	assert.Empty(t, w.events.Events)
}

// The name is set after two checks without a device plugin, because it may be restarting during one.
func TestReconcile_DevicePlugin_NameNotSet(t *testing.T) {
	nodes := &nodeLister{nodes: 3, with: map[int]string{1: "8"}}
	w, now := clusterWithNodes(t, nodes)
	w.after(now)
	assert.NotContains(t, w.classes(), wholeGPU)
	assert.Contains(t, w.event(), "Warning DevicePluginCapacity Nodes such as n1 provide nvidia.com/gpu through a device plugin, so it is not the extended resource name")
	assert.InDelta(t, 1, value(t, w.Metrics.problems.WithLabelValues(ReasonDevicePluginCapacity)), 0)

	nodes.with[1] = "0"
	w.after(now)
	assert.NotContains(t, w.classes(), wholeGPU)
	nodes.with[1] = "8"
	w.after(now)
	assert.Contains(t, w.event(), "so it is not the extended resource name")
	nodes.with[1] = "0"
	w.after(now)
	assert.NotContains(t, w.classes(), wholeGPU)
	w.after(now)
	assert.Contains(t, w.classes(), wholeGPU)
	assert.Empty(t, w.events.Events)
}

// A name that is set stays, also with a new leader, and the conflict is reported.
func TestReconcile_DevicePluginLater_NameStays(t *testing.T) {
	nodes := &nodeLister{nodes: 3, with: map[int]string{}}
	w, now := clusterWithNodes(t, nodes)
	w.after(now)
	before := w.classes()[wholeGPU]
	nodes.with[2] = "4"
	w.after(now)
	assert.Equal(t, before, w.classes()[wholeGPU])
	assert.Contains(t, w.event(), "Warning DevicePluginCapacity Nodes such as n2 provide nvidia.com/gpu through a device plugin, and it is also the extended resource name")
	w.Reconciler = &Reconciler{Options: w.Options, Client: w.Client, Direct: w.Direct, Events: w.events, Now: w.Now}
	w.reconcile()
	assert.Equal(t, before.UID, w.classes()[wholeGPU].UID)
	assert.Len(t, w.events.Events, 1)
}

func TestReconcile_GPUResourceAlwaysOrNever_NodesNotListed(t *testing.T) {
	for _, c := range []struct {
		value GPUResource
		named bool
	}{{GPUResourceAlways, true}, {GPUResourceNever, false}} {
		nodes := &nodeLister{nodes: 3, with: map[int]string{1: "8"}}
		w, _ := clusterWithNodes(t, nodes)
		w.GPUResource = c.value
		w.reconcile()
		_, named := w.classes()[wholeGPU]
		assert.Equal(t, c.named, named, c.value)
		assert.Zero(t, nodes.requests)
		assert.Empty(t, w.events.Events)
	}
}

// The name is still available to shares in a node configuration.
func TestReconcile_GPUResourceNever_NameRemoved(t *testing.T) {
	w := newCluster(t, configs(map[string]string{"a": "version: v1"}))
	w.reconcile()
	require.Contains(t, w.classes(), wholeGPU)
	w.GPUResource = GPUResourceNever
	w.reconcile()
	assert.NotContains(t, w.classes(), wholeGPU)
	w.configure(map[string]string{"a": sharedConfig(false, false)})
	assert.Equal(t, `device.driver == "gpu.prism.dev" && device.attributes["gpu.prism.dev"].type == "timeslice" && `+
		`device.attributes["gpu.prism.dev"].shareName == "none"`, w.classes()[wholeGPU].Spec.Selectors[0].CEL.Expression)
}

func TestReconcile_ListingNodesFails_NameNotSet(t *testing.T) {
	w, _ := clusterWithNodes(t, &nodeLister{nodes: 3})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := w.Reconcile(ctx, reconcile.Request{})
	require.ErrorIs(t, err, context.Canceled)
	assert.NotContains(t, w.classes(), wholeGPU)
}
