package classes

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionapi "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const renamedDriver = "gpu.nvidia.com"

// aboutRecorder records which objects Events are about.
type aboutRecorder struct {
	*events.FakeRecorder
	about []string
}

func (r *aboutRecorder) Eventf(regarding, related runtime.Object, eventType, reason, action, note string, args ...any) {
	switch object := regarding.(type) {
	case *corev1.ObjectReference:
		r.about = append(r.about, object.Kind+" "+object.Name)
	case client.Object:
		r.about = append(r.about, kindOf(object)+" "+object.GetName())
	}
	r.FakeRecorder.Eventf(regarding, related, eventType, reason, action, note, args...)
}

// rename restarts the controller with another driver name.
func (w *cluster) rename(driver string) {
	w.t.Helper()
	options := w.Options
	options.DriverName = driver
	w.Reconciler = &Reconciler{Options: options, Client: w.Client, Direct: w.Direct, Events: w.events}
	w.reconcile()
}

// TestReconcile_DriverRenamed_ResourceNamesMove: pods that request nvidia.com/gpu get devices of the new name, nothing of the old name
// remains, and users' configuration stays. Renaming back works the same.
func TestReconcile_DriverRenamed_ResourceNamesMove(t *testing.T) {
	w := newCluster(t, configs(map[string]string{"a": mpsConfig}))
	w.reconcile()
	class := w.classes()[wholeGPU]
	class.Spec.Config = []resourceapi.DeviceClassConfiguration{
		{DeviceConfiguration: resourceapi.DeviceConfiguration{Opaque: &resourceapi.OpaqueDeviceConfiguration{Driver: driver}}},
		{DeviceConfiguration: resourceapi.DeviceConfiguration{Opaque: &resourceapi.OpaqueDeviceConfiguration{Driver: "nic.example.com"}}},
	}
	require.NoError(t, w.Client.Update(t.Context(), &class))
	before := w.classes()
	for _, name := range []string{renamedDriver, driver} {
		w.rename(name)
		after := w.classes()
		require.Len(t, after, len(before))
		for resource := range before {
			require.Contains(t, after, resource)
			assert.True(t, strings.HasSuffix(after[resource].Name, "."+name), after[resource].Name)
			assert.Contains(t, after[resource].Spec.Selectors[0].CEL.Expression, name)
		}
		config := after[wholeGPU].Spec.Config
		require.Len(t, config, 2)
		assert.Equal(t, name, config[0].Opaque.Driver)
		assert.Equal(t, "nic.example.com", config[1].Opaque.Driver)
		policy := &admissionapi.ValidatingAdmissionPolicy{}
		require.NoError(t, w.Client.Get(t.Context(), types.NamespacedName{Name: PolicyName("prism-controller", name)}, policy))
		assert.Equal(t, labels(name), policy.Labels)
		assert.True(t, w.hasPolicy(), "and its binding")
	}
	require.Len(t, w.events.Events, 2*len(before))
	first := <-w.events.Events
	assert.Contains(t, first, "Normal DriverNameChanged Replaced DeviceClass ")
	assert.Contains(t, first, ": the name of the driver is gpu.nvidia.com instead of gpu.prism.dev")
}

// TestReconcile_DriverRenamed_ProfilesAndInvalidEntriesKept: information that only DeviceClasses record moves, too.
func TestReconcile_DriverRenamed_ProfilesAndInvalidEntriesKept(t *testing.T) {
	w := newCluster(t, configs(map[string]string{"a": "apiVersion: gpu.prism.dev/v1alpha1\nkind: NodeConfig\ngpus: [{modes: [mig], mig: {profiles: [1g.10gb]}}]", "b": mpsConfig}))
	w.reconcile()
	require.Equal(t, "mig-1g-10gb."+driver, w.classes()["nvidia.com/mig-1g.10gb"].Name)
	w.configure(map[string]string{"a": "{", "b": "{"})
	w.rename(renamedDriver)
	require.Len(t, w.classes(), 3)
	assert.Equal(t, "mig-1g-10gb."+renamedDriver, w.classes()["nvidia.com/mig-1g.10gb"].Name)
	assert.Equal(t, "gpu-2gb.nvidia.com."+renamedDriver, w.classes()["nvidia.com/gpu-2gb"].Name)
}

// TestReconcile_DriverOfAnotherRelease_Kept: its controller uses another ClusterRole. The Event is about the class with the name.
func TestReconcile_DriverOfAnotherRelease_Kept(t *testing.T) {
	other := unmanagedClass("gpu.nvidia.com.gpu.example.com", wholeGPU, "true")
	other.Labels = labels("gpu.example.com")
	other.OwnerReferences = []metav1.OwnerReference{{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "ClusterRole", Name: "other-controller", UID: "other"}}
	w := newCluster(t, configs(map[string]string{"a": mpsConfig}), &other)
	recorder := &aboutRecorder{FakeRecorder: w.events}
	w.Events = recorder
	w.reconcile()
	require.NoError(t, w.Client.Get(t.Context(), client.ObjectKeyFromObject(&other), &other))
	assert.Equal(t, []string{"DeviceClass gpu.nvidia.com.gpu.example.com", "ConfigMap prism-config"}, recorder.about)
}

// TestReconcile_NoConfigMap_EventsOfTheClass: Events are recorded on the class and on the node with a device plugin, instead of the Lease.
func TestReconcile_NoConfigMap_EventsOfTheClass(t *testing.T) {
	taken := unmanagedClass("other", wholeGPU, "true")
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n0"}, Status: corev1.NodeStatus{Capacity: corev1.ResourceList{wholeGPU: resource.MustParse("1")}}}
	for name, c := range map[string]struct {
		object client.Object
		want   string
	}{"class": {&taken, "DeviceClass other"}, "node": {node, "Node n0"}} {
		t.Run(name, func(t *testing.T) {
			w := newCluster(t, c.object)
			recorder := &aboutRecorder{FakeRecorder: events.NewFakeRecorder(10)}
			w.ConfigMap, w.Events, w.GPUResource = types.NamespacedName{}, recorder, GPUResourceAuto
			w.reconcile()
			assert.Equal(t, []string{c.want}, recorder.about)
		})
	}
}
