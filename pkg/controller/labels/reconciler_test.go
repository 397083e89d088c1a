package labels

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	clienttesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// cluster is a fake API server with a controller.
type cluster struct {
	t *testing.T
	client.Client
	*Reconciler
	clock *clienttesting.FakeClock
	// writes are the times of writes to Nodes; fail is the error of the next one, and meanwhile is done before it.
	writes    []time.Time
	fail      error
	meanwhile func()
}

func newCluster(t *testing.T, nodes ...string) *cluster {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, rbacv1.AddToScheme, resourceapi.AddToScheme} {
		require.NoError(t, add(scheme))
	}
	c := &cluster{t: t, clock: clienttesting.NewFakeClock(time.Unix(1_000_000, 0))}
	c.Client = fake.NewClientBuilder().WithScheme(scheme).WithReturnManagedFields().WithIndex(&resourceapi.ResourceSlice{}, indexNode, nodeOf).
		WithInterceptorFuncs(interceptor.Funcs{Apply: c.apply, Get: cachedNode}).Build()
	c.Reconciler = &Reconciler{Options: Options{DriverName: driver}, Client: c.Client, Metrics: NewMetrics(prometheus.NewRegistry()), Clock: c.clock}
	for _, node := range nodes {
		require.NoError(t, c.Create(t.Context(), &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: node, UID: types.UID(node), Labels: map[string]string{"kubernetes.io/os": "linux"}, Annotations: map[string]string{"a": "b"}},
			Spec:       corev1.NodeSpec{ProviderID: "p"},
		}, client.FieldOwner("kubelet")))
	}
	return c
}

// apply records writes, and fails once if the test wants that.
func (c *cluster) apply(ctx context.Context, inner client.WithWatch, o runtime.ApplyConfiguration, options ...client.ApplyOption) error {
	if err := c.fail; err != nil {
		c.fail = nil
		return err
	}
	if c.meanwhile != nil {
		c.meanwhile()
		c.meanwhile = nil
	}
	node, ok := o.(*corev1ac.NodeApplyConfiguration)
	require.True(c.t, ok)
	require.Equal(c.t, types.UID(*node.Name), *node.UID, "the API server refuses labels for another Node of the same name, and creates none")
	c.writes = append(c.writes, c.clock.Now())
	return inner.Apply(ctx, o, options...)
}

// cachedNode reduces the metadata of Nodes as the cache does.
func cachedNode(ctx context.Context, inner client.WithWatch, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
	if err := inner.Get(ctx, key, o, options...); err != nil {
		return err
	}
	if node, ok := o.(*metav1.PartialObjectMetadata); ok {
		small, err := reduceNode(node)
		if err != nil {
			return err
		}
		*node = *small.(*metav1.PartialObjectMetadata) //nolint:forcetypeassert // of a Node
	}
	return nil
}

// publish stores the ResourceSlices of a node as the cache does.
func (c *cluster) publish(node, golden string) {
	c.t.Helper()
	keep := func(object any) (any, error) {
		slice, _ := object.(*resourceapi.ResourceSlice)
		return &resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: slice.Name + "-" + node}}, nil
	}
	for _, slice := range published(c.t, golden) {
		slice.Spec.NodeName = &node
		small, err := Transform(driver, keep)(slice)
		require.NoError(c.t, err)
		object, _ := small.(*resourceapi.ResourceSlice)
		require.NoError(c.t, c.Create(c.t.Context(), object))
	}
}

// withdraw deletes all ResourceSlices.
func (c *cluster) withdraw() {
	c.t.Helper()
	require.NoError(c.t, c.DeleteAllOf(c.t.Context(), &resourceapi.ResourceSlice{}))
}

// reconcile reconciles a node, lets the fake clock pass while it waits, and returns when it is to be called again.
func (c *cluster) reconcile(node string) time.Duration {
	c.t.Helper()
	c.clock.Step(time.Second)
	result, err := c.Reconcile(c.t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: node}})
	require.NoError(c.t, err)
	return result.RequeueAfter
}

func (c *cluster) node(name string) *corev1.Node {
	c.t.Helper()
	node := &corev1.Node{}
	require.NoError(c.t, c.Get(c.t.Context(), types.NamespacedName{Name: name}, node))
	return node
}

// labels are the labels of a node with a key of the controller.
func (c *cluster) labels(node string) map[string]string {
	c.t.Helper()
	all := c.node(node).Labels
	maps.DeleteFunc(all, func(key, _ string) bool { return !slices.Contains(keys, key) })
	return all
}

// label sets a label as another program does, or removes it without a value.
func (c *cluster) label(node, key, value, manager string) {
	c.t.Helper()
	object := c.node(node)
	if value == "" {
		delete(object.Labels, key)
	} else {
		object.Labels[key] = value
	}
	require.NoError(c.t, c.Update(c.t.Context(), object, client.FieldOwner(manager)))
}

func (c *cluster) conflictsMetric() float64 {
	c.t.Helper()
	var m dto.Metric
	require.NoError(c.t, c.Metrics.conflicts.Write(&m))
	return m.GetGauge().GetValue()
}

// TestReconcile_ResourceSlices_LabelsFollow: labels are written once, changed with the ResourceSlices, and nothing else of the Node changes.
func TestReconcile_ResourceSlices_LabelsFollow(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "n1", "n2")
	before := c.node("n1")
	c.reconcile("n1")
	assert.Empty(t, c.writes, "no ResourceSlice, no label")
	c.publish("n1", "t4")
	c.reconcile("n1")
	c.reconcile("n2")
	want := labelsOf(t, factsOf(published(t, "t4")), Options{})
	assert.Equal(t, want, c.labels("n1"))
	assert.Empty(t, c.labels("n2"))
	c.reconcile("n1")
	assert.Len(t, c.writes, 1, "nothing is written without a change")

	after := c.node("n1")
	assert.Equal(t, "linux", after.Labels["kubernetes.io/os"])
	assert.Equal(t, []any{before.Annotations, before.Spec, before.UID}, []any{after.Annotations, after.Spec, after.UID})

	c.withdraw()
	c.publish("n1", "h100-80")
	c.reconcile("n1")
	assert.Equal(t, "hopper", c.labels("n1")[keyFamily])
	c.label("n1", keyFamily, "", "kubectl")
	c.reconcile("n1")
	assert.Equal(t, labelsOf(t, factsOf(published(t, "h100-80")), Options{}), c.labels("n1"), "a removed label is set again")
	assert.Len(t, c.writes, 3)
}

// TestReconcile_ForeignLabels_Kept: a label of another manager stays, and counts while its value differs.
func TestReconcile_ForeignLabels_Kept(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "n1")
	c.label("n1", keyProduct, "mine", "admin")
	c.label("n1", keyFamily, "turing", "gfd")
	c.publish("n1", "t4")
	c.reconcile("n1")
	want := labelsOf(t, factsOf(published(t, "t4")), Options{})
	want[keyProduct] = "mine"
	assert.Equal(t, want, c.labels("n1"))
	assert.InDelta(t, 1, c.conflictsMetric(), 0)

	// A label that the controller has set is taken over by an update.
	c.label("n1", keyMemory, "1", "admin")
	c.reconcile("n1")
	want[keyMemory] = "1"
	assert.Equal(t, want, c.labels("n1"))
	assert.InDelta(t, 2, c.conflictsMetric(), 0)

	// The other manager gives a label up.
	writes := len(c.writes)
	c.label("n1", keyMemory, "", "admin")
	c.reconcile("n1")
	want[keyMemory] = "15360"
	assert.Equal(t, want, c.labels("n1"))
	assert.InDelta(t, 1, c.conflictsMetric(), 0)
	assert.Len(t, c.writes, writes+1)

	// The labels of others outlive the ResourceSlices.
	c.withdraw()
	c.clock.Step(c.reconcile("n1"))
	c.reconcile("n1")
	assert.Equal(t, map[string]string{keyProduct: "mine", keyFamily: "turing"}, c.labels("n1"))
	assert.InDelta(t, 0, c.conflictsMetric(), 0)
}

// TestReconcile_SharedLabelChanges_OtherManagersValueStays: a label that two managers own with one value.
func TestReconcile_SharedLabelChanges_OtherManagersValueStays(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "n1")
	c.label("n1", keyFamily, "turing", "gfd")
	c.publish("n1", "t4")
	c.reconcile("n1")
	c.withdraw()
	c.publish("n1", "h100-80")
	c.reconcile("n1")
	assert.Equal(t, "turing", c.labels("n1")[keyFamily])
	assert.Equal(t, "9", c.labels("n1")[keyComputeMajor])
	assert.InDelta(t, 1, c.conflictsMetric(), 0)
	writes := len(c.writes)
	c.reconcile("n1")
	assert.Len(t, c.writes, writes)
}

// TestReconcile_OtherManagerFirst_ItsLabelStays: another manager sets a label after the controller has read the Node.
func TestReconcile_OtherManagerFirst_ItsLabelStays(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "n1")
	c.publish("n1", "t4")
	c.meanwhile = func() { c.label("n1", keyProduct, "mine", "admin") }
	assert.Equal(t, changeDelay, c.reconcile("n1"), "a conflict is retried")
	assert.Equal(t, map[string]string{keyProduct: "mine"}, c.labels("n1"))
	c.reconcile("n1")
	want := labelsOf(t, factsOf(published(t, "t4")), Options{})
	want[keyProduct] = "mine"
	assert.Equal(t, want, c.labels("n1"))
}

// TestReconcile_ResourceSlicesGone_RemovedAfterTenMinutes, and not if they come back before.
func TestReconcile_ResourceSlicesGone_RemovedAfterTenMinutes(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "n1")
	c.publish("n1", "t4")
	c.reconcile("n1")
	want := c.labels("n1")
	c.withdraw()
	require.Equal(t, 10*time.Minute, c.reconcile("n1"))
	c.clock.Step(absence - 2*time.Second)
	require.Equal(t, time.Second, c.reconcile("n1"))
	assert.Equal(t, want, c.labels("n1"))
	c.publish("n1", "t4")
	require.Zero(t, c.reconcile("n1"))
	assert.Len(t, c.writes, 1)

	c.withdraw()
	require.Equal(t, absence, c.reconcile("n1"), "the time begins again")
	c.clock.Step(absence)
	require.Zero(t, c.reconcile("n1"))
	assert.Empty(t, c.labels("n1"))
	assert.Equal(t, "linux", c.node("n1").Labels["kubernetes.io/os"])
	require.Zero(t, c.reconcile("n1"))
	assert.Len(t, c.writes, 2)
}

// TestReconcile_PoolIncomplete_LabelsKept while a plugin publishes a pool again.
func TestReconcile_PoolIncomplete_LabelsKept(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "n1")
	c.publish("n1", "mig-h100-80")
	c.reconcile("n1")
	want := c.labels("n1")
	require.NotEmpty(t, want)
	require.NoError(t, c.Delete(t.Context(), &resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: published(t, "mig-h100-80")[1].Name + "-n1"}}))
	require.Zero(t, c.reconcile("n1"))
	c.clock.Step(2 * absence)
	require.Zero(t, c.reconcile("n1"))
	assert.Equal(t, want, c.labels("n1"))
	assert.Len(t, c.writes, 1)
}

// TestReconcile_NodeDeleted_NotCreated: applying labels must not create a Node, or label another one of the same name.
func TestReconcile_NodeDeleted_NotCreated(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "n1")
	c.label("n1", keyProduct, "mine", "admin")
	c.publish("n1", "t4")
	c.reconcile("n1")
	require.InDelta(t, 1, c.conflictsMetric(), 0)
	require.NoError(t, c.Delete(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}))
	require.Zero(t, c.reconcile("n1"))
	assert.InDelta(t, 0, c.conflictsMetric(), 0)
	var list corev1.NodeList
	require.NoError(t, c.List(t.Context(), &list))
	assert.Empty(t, list.Items)
}

// TestReconcile_ServerFails_Retried: a conflict is retried after a while, other errors by the queue.
func TestReconcile_ServerFails_Retried(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "n1")
	c.publish("n1", "t4")
	c.fail = conflict("n1")
	assert.Equal(t, changeDelay, c.reconcile("n1"))
	c.fail = errors.New("down")
	c.clock.Step(time.Second)
	_, err := c.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: "n1"}})
	require.ErrorContains(t, err, "down")
	assert.Empty(t, c.labels("n1"))
	c.reconcile("n1")
	assert.NotEmpty(t, c.labels("n1"))
}

// TestReconcile_ManyNodes_TenWritesASecond for all nodes together.
func TestReconcile_ManyNodes_TenWritesASecond(t *testing.T) {
	t.Parallel()
	var nodes []string
	for i := range 35 {
		nodes = append(nodes, "n"+strconv.Itoa(i))
	}
	c := newCluster(t, nodes...)
	for _, node := range nodes {
		c.publish(node, "t4")
	}
	start := c.clock.Now()
	for _, node := range nodes {
		c.whileWaiting(func() {
			_, err := c.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: node}})
			assert.NoError(t, err)
		})
	}
	require.Len(t, c.writes, len(nodes))
	assert.Equal(t, 34*writeInterval, c.writes[34].Sub(start), "no slower than needed")
	for i := range c.writes[10:] {
		assert.GreaterOrEqual(t, c.writes[i+10].Sub(c.writes[i]), time.Second)
	}
}

// whileWaiting calls a function, and lets the fake clock pass in small steps whenever the function waits.
func (c *cluster) whileWaiting(do func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		do()
	}()
	for {
		select {
		case <-done:
			return
		default:
			if c.clock.HasWaiters() {
				c.clock.Step(writeInterval / 10)
			}
		}
	}
}

// TestReconcile_ContextEnds_NoWrite while it waits for the next write.
func TestReconcile_ContextEnds_NoWrite(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "n1", "n2")
	c.publish("n1", "t4")
	c.publish("n2", "t4")
	c.reconcile("n1")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := c.Reconcile(ctx, reconcile.Request{NamespacedName: types.NamespacedName{Name: "n2"}})
	require.ErrorIs(t, err, context.Canceled)
	assert.Len(t, c.writes, 1)
}
