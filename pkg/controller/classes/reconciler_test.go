package classes

import (
	"context"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionapi "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// value is the value of a gauge.
func value(t *testing.T, gauge prometheus.Gauge) float64 {
	t.Helper()
	var m dto.Metric
	require.NoError(t, gauge.Write(&m))
	return m.GetGauge().GetValue()
}

// cluster is a fake API server with a controller.
type cluster struct {
	t *testing.T
	*Reconciler
	events *events.FakeRecorder
}

var configMap = types.NamespacedName{Namespace: "prism-system", Name: "prism-config"}

// An object that exists but is not in the cache yet leads to a retry without an error.
func TestReconcile_CacheLags_Retried(t *testing.T) {
	w := newCluster(t, configs(map[string]string{"a": mpsConfig}))
	w.reconcile()
	behind := interceptor.NewClient(w.Client.(client.WithWatch), interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			if _, classes := list.(*resourceapi.DeviceClassList); classes {
				return nil
			}
			return c.List(ctx, list, options...)
		},
	})
	current := w.Client
	w.Client = behind
	result, err := w.Reconcile(t.Context(), reconcile.Request{})
	require.NoError(t, err)
	assert.Equal(t, cacheLagRetry, result.RequeueAfter)
	w.Client = current
	w.reconcile()
	assert.Len(t, w.classes(), 2)
}

// honoursContexts makes a fake API server fail like a real one when the context is done.
var honoursContexts = interceptor.Funcs{
	Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
		return unlessDone(ctx, func() error { return c.Get(ctx, key, o, options...) })
	},
	List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
		return unlessDone(ctx, func() error { return c.List(ctx, list, options...) })
	},
	Create: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.CreateOption) error {
		return unlessDone(ctx, func() error { return c.Create(ctx, o, options...) })
	},
	Update: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.UpdateOption) error {
		return unlessDone(ctx, func() error { return c.Update(ctx, o, options...) })
	},
	Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, options ...client.PatchOption) error {
		return unlessDone(ctx, func() error { return c.Patch(ctx, o, patch, options...) })
	},
	Delete: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.DeleteOption) error {
		return unlessDone(ctx, func() error { return c.Delete(ctx, o, options...) })
	},
}

func unlessDone(ctx context.Context, do func() error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return do()
}

// Objects that could not be read are not treated as missing.
func TestReconcile_ContextDone_NothingChanged(t *testing.T) {
	w := newCluster(t, configs(map[string]string{"a": mpsConfig}))
	w.reconcile()
	before := w.classes()
	require.NotEmpty(t, before)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := w.Reconcile(ctx, reconcile.Request{NamespacedName: configMap})
	require.ErrorIs(t, err, context.Canceled)
	assert.Equal(t, before, w.classes())
	assert.Empty(t, w.events.Events)
}

func newCluster(t *testing.T, objects ...client.Object) *cluster {
	t.Helper()
	scheme, err := Scheme()
	require.NoError(t, err)
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "prism-controller", UID: "role"}}
	api := fake.NewClientBuilder().WithScheme(scheme).WithObjects(append(objects, role)...).
		WithInterceptorFuncs(honoursContexts).Build()
	w := &cluster{t: t, events: events.NewFakeRecorder(100)}
	w.Reconciler = &Reconciler{
		Options: Options{DriverName: driver, ConfigMap: configMap, OwnerRole: "prism-controller"}, Client: api, Direct: api, Events: w.events,
		Metrics: NewMetrics(prometheus.NewRegistry(), "test"),
	}
	return w
}

func configs(data map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: configMap.Namespace, Name: configMap.Name}, Data: data}
}

func (w *cluster) reconcile() {
	w.t.Helper()
	_, err := w.Reconcile(w.t.Context(), reconcile.Request{NamespacedName: configMap})
	require.NoError(w.t, err)
}

// configure changes the ConfigMap and reconciles.
func (w *cluster) configure(data map[string]string) {
	w.t.Helper()
	current := &corev1.ConfigMap{}
	require.NoError(w.t, w.Client.Get(w.t.Context(), configMap, current))
	current.Data = data
	require.NoError(w.t, w.Client.Update(w.t.Context(), current))
	w.reconcile()
}

// classes are all DeviceClasses, by resource name or, without one, by name.
func (w *cluster) classes() map[string]resourceapi.DeviceClass {
	w.t.Helper()
	var list resourceapi.DeviceClassList
	require.NoError(w.t, w.Client.List(w.t.Context(), &list))
	found := map[string]resourceapi.DeviceClass{}
	for _, class := range list.Items {
		key := resourceOf(&class)
		if key == "" {
			key = class.Name
		}
		found[key] = class
	}
	return found
}

// hasPolicy reports whether the policy and its binding exist.
func (w *cluster) hasPolicy() bool {
	w.t.Helper()
	name := types.NamespacedName{Name: PolicyName("prism-controller", driver)}
	policy := w.Client.Get(w.t.Context(), name, &admissionapi.ValidatingAdmissionPolicy{})
	binding := w.Client.Get(w.t.Context(), name, &admissionapi.ValidatingAdmissionPolicyBinding{})
	assert.Equal(w.t, policy == nil, binding == nil)
	if policy != nil {
		require.True(w.t, apierrors.IsNotFound(policy), "%v", policy)
	}
	return policy == nil
}

func TestReconcile_ConfigMapChanges_ClassesAndPolicyUpdated(t *testing.T) {
	w := newCluster(t, configs(map[string]string{"a": mpsConfig}))
	w.reconcile()
	require.Len(t, w.classes(), 2)
	require.Contains(t, w.classes(), "nvidia.com/gpu-2gb")
	assert.True(t, w.hasPolicy())
	assert.Equal(t, []metav1.OwnerReference{{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "ClusterRole", Name: "prism-controller", UID: "role"}},
		w.classes()[wholeGPU].OwnerReferences)

	before := w.classes()[wholeGPU]
	w.reconcile()
	assert.Equal(t, before, w.classes()[wholeGPU], "nothing is written without a change")

	w.configure(map[string]string{"a": sharedConfig(false, false)})
	require.Len(t, w.classes(), 1)
	assert.Contains(t, w.classes()[wholeGPU].Spec.Selectors[0].CEL.Expression, "timeslice")
	assert.False(t, w.hasPolicy())
	assert.Empty(t, w.events.Events)
	assert.InDelta(t, 1, value(t, w.Metrics.classes), 0)
}

// Changes of managed fields are reverted; additions by users are kept.
func TestReconcile_ObjectsChangedByOthers_Corrected(t *testing.T) {
	w := newCluster(t, configs(map[string]string{"a": mpsConfig}))
	w.reconcile()
	class := w.classes()[wholeGPU]
	selector := class.Spec.Selectors[0].CEL.Expression
	class.Spec.Selectors[0].CEL.Expression = "true"
	class.Labels["example.com/team"] = "gpu"
	added := []resourceapi.DeviceClassConfiguration{{DeviceConfiguration: resourceapi.DeviceConfiguration{
		Opaque: &resourceapi.OpaqueDeviceConfiguration{Driver: driver}}}}
	class.Spec.Config = added
	require.NoError(t, w.Client.Update(t.Context(), &class))
	policy := &admissionapi.ValidatingAdmissionPolicy{}
	require.NoError(t, w.Client.Get(t.Context(), types.NamespacedName{Name: PolicyName("prism-controller", driver)}, policy))
	policy.Spec.Validations[0].Expression = "true"
	policy.Spec.MatchConstraints.NamespaceSelector = &metav1.LabelSelector{} // like the API server's default
	require.NoError(t, w.Client.Update(t.Context(), policy))
	w.reconcile()
	class = w.classes()[wholeGPU]
	assert.Equal(t, selector, class.Spec.Selectors[0].CEL.Expression)
	assert.Equal(t, "gpu", class.Labels["example.com/team"])
	assert.Equal(t, added, class.Spec.Config)
	require.NoError(t, w.Client.Get(t.Context(), types.NamespacedName{Name: PolicyName("prism-controller", driver)}, policy))
	assert.NotEqual(t, "true", policy.Spec.Validations[0].Expression)
	assert.NotNil(t, policy.Spec.MatchConstraints.NamespaceSelector)
}

func TestReconcile_Problem_OneEventPerOccurrence(t *testing.T) {
	taken := unmanagedClass("other", "nvidia.com/gpu-2gb", "true")
	w := newCluster(t, configs(map[string]string{"a": mpsConfig}), &taken)
	w.reconcile()
	w.reconcile()
	require.Len(t, w.events.Events, 2, "of the class and of the ConfigMap")
	for range 2 {
		assert.Contains(t, <-w.events.Events, "Warning DeviceClassNameTaken nvidia.com/gpu-2gb is the extended resource name of DeviceClass other")
	}
	assert.InDelta(t, 1, value(t, w.Metrics.problems.WithLabelValues(ReasonDeviceClassNameTaken)), 0)
	assert.Contains(t, w.classes(), wholeGPU)
	assert.Equal(t, "true", w.classes()["nvidia.com/gpu-2gb"].Spec.Selectors[0].CEL.Expression)

	w.configure(map[string]string{"a": "version: v1"})
	assert.InDelta(t, 0, value(t, w.Metrics.problems.WithLabelValues(ReasonDeviceClassNameTaken)), 0)
	assert.Contains(t, w.classes(), "nvidia.com/gpu-2gb", "the unmanaged class stays")
	w.configure(map[string]string{"a": mpsConfig})
	assert.Len(t, w.events.Events, 2)
}

// A scheduler drops a name when one of two classes with it loses it. So a managed class is kept beside an unmanaged one and written again
// when the unmanaged one is deleted, and once by each new leader, which does not know about earlier changes.
func TestReconcile_OtherClassLosesName_ClassWrittenAgain(t *testing.T) {
	w := newCluster(t, configs(map[string]string{"a": "version: v1"}))
	w.reconcile()
	first := w.classes()[wholeGPU]
	taken := unmanagedClass("other", wholeGPU, first.Spec.Selectors[0].CEL.Expression)
	require.NoError(t, w.Client.Create(t.Context(), &taken))
	w.reconcile()
	managed := func() *resourceapi.DeviceClass {
		class := &resourceapi.DeviceClass{}
		require.NoError(t, w.Client.Get(t.Context(), types.NamespacedName{Name: className(wholeGPU, driver)}, class))
		return class
	}
	assert.Equal(t, first.ResourceVersion, managed().ResourceVersion)

	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer queue.ShutDown()
	nameless := taken.DeepCopy()
	nameless.Spec.ExtendedResourceName = nil
	w.Reconciler.classes().Update(t.Context(), event.UpdateEvent{ObjectOld: &taken, ObjectNew: nameless}, queue)
	assert.Equal(t, 1, queue.Len())
	w.reconcile()
	renewed := managed().ResourceVersion
	assert.NotEqual(t, first.ResourceVersion, renewed)
	w.Reconciler.classes().Delete(t.Context(), event.DeleteEvent{Object: &taken}, queue)
	w.reconcile()
	assert.NotEqual(t, renewed, managed().ResourceVersion)
	renewed = managed().ResourceVersion
	w.reconcile()
	assert.Equal(t, renewed, managed().ResourceVersion)

	w.Reconciler = &Reconciler{Options: w.Options, Client: w.Client, Direct: w.Direct, Events: w.events}
	w.reconcile()
	assert.NotEqual(t, renewed, managed().ResourceVersion)
}

func TestReconcile_UnmanagedPolicy_KeptAndReported(t *testing.T) {
	unmanaged := &admissionapi.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: PolicyName("prism-controller", driver)}}
	w := newCluster(t, configs(map[string]string{"a": mpsConfig}), unmanaged)
	w.reconcile()
	require.Len(t, w.events.Events, 1)
	assert.Contains(t, <-w.events.Events, "ValidatingAdmissionPolicy shared-requests.prism-controller is not managed by the controller")
	require.NoError(t, w.Client.Get(t.Context(), client.ObjectKeyFromObject(unmanaged), unmanaged))
	assert.Empty(t, unmanaged.Spec.Validations)
	w.configure(map[string]string{"a": "version: v1"})
	require.NoError(t, w.Client.Get(t.Context(), client.ObjectKeyFromObject(unmanaged), unmanaged))
}

// Nodes keep their last configuration too.
func TestReconcile_ConfigMapDeleted_NothingChanged(t *testing.T) {
	w := newCluster(t, configs(map[string]string{"a": mpsConfig}))
	w.reconcile()
	require.NoError(t, w.Client.Delete(t.Context(), configs(nil)))
	w.reconcile()
	assert.Contains(t, w.classes(), "nvidia.com/gpu-2gb")
	assert.True(t, w.hasPolicy())
}

// Dropped resource names are reported only if an entry of the ConfigMap uses any.
func TestReconcile_ServerDropsNames_Reported(t *testing.T) {
	for text, want := range map[string]int{sharedConfig(false, false): 1, "version: v1": 0} {
		dropped := unmanagedClass(className(wholeGPU, driver), "", "true")
		dropped.Labels = labels(driver)
		w := newCluster(t, configs(map[string]string{"a": text}), &dropped)
		w.reconcile()
		assert.InDelta(t, want, value(t, w.Metrics.problems.WithLabelValues(ReasonExtendedResourcesUnsupported)), 0)
		assert.Len(t, w.events.Events, 2*want, "of the class and of the ConfigMap")
	}
}

// Profiles are read from the driver's ResourceSlices, which are reduced in the cache.
func TestReconcile_PublishedProfiles_Named(t *testing.T) {
	text := func(s string) resourceapi.DeviceAttribute { return resourceapi.DeviceAttribute{StringValue: &s} }
	slice := func(name, driver, kind, profile string) *resourceapi.ResourceSlice {
		return &resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{"a": "b"}}, Spec: resourceapi.ResourceSliceSpec{
			Driver: driver, Devices: []resourceapi.Device{
				{Name: "a", Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{"type": text(kind), "profile": text(profile)}},
				{Name: "b", Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{"type": text(kind), "profile": text(profile)}},
			}}}
	}
	var objects []client.Object
	for _, s := range []*resourceapi.ResourceSlice{
		slice("mig", driver, "mig", "1g.10gb+me"), slice("whole", driver, "gpu", "none"), slice("other driver", "gpu.example.com", "mig", "2g.20gb"),
	} {
		reduced, err := shrink(driver)(s)
		require.NoError(t, err)
		small, ok := reduced.(*resourceapi.ResourceSlice)
		require.True(t, ok)
		assert.Empty(t, small.Annotations)
		assert.LessOrEqual(t, len(small.Spec.Devices), 1)
		small.ResourceVersion = ""
		objects = append(objects, small)
	}
	w := newCluster(t, append(objects, configs(map[string]string{"a": "version: v1\nflags: {migStrategy: mixed}"}))...)
	w.reconcile()
	assert.Len(t, w.classes(), 2)
	assert.Contains(t, w.classes(), "nvidia.com/mig-1g.10gb.me")
}
