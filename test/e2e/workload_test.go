package e2e

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// testImage is on every node. It contains a shell, and no GPU software.
const testImage = "localhost/prism-test:1"

// workload is a pod with one container, and the pod's claim with the name ref. Empty fields are left out.
type workload struct {
	name string
	// generateName replaces the name, for pods that are created in any number.
	generateName string
	// image (testImage) runs command (sleep 3600), which gets grace (1) seconds to exit.
	image   string
	command []string
	grace   int64
	// node is the only node on which the pod may run.
	node string
	// restart is the pod's restart policy, instead of Never: the kubelet unprepares the claim of a pod that has failed.
	restart corev1.RestartPolicy
	// user is the user of the container, 0 for the image's user, and env its environment.
	user int64
	env  map[string]string
	// limits and requests belong to the container, and include extended resources.
	limits, requests map[corev1.ResourceName]string

	// ref names the claim in the pod. A template of the claim is created with the pod, unless one with this name exists.
	ref, template string
	// named creates a ResourceClaim with the pod's name instead of a template.
	named bool
	request
}

// request is the only request of a claim, with its opaque configuration.
type request struct {
	// class is the DeviceClass, and selectors are CEL expressions.
	class     string
	selectors []string
	// count is the number of devices; 0 means one.
	count       int64
	adminAccess bool
	capacity    map[resourceapi.QualifiedName]string
	// config is the JSON of opaque parameters for driver.
	config, driver string
}

// create creates the objects of these workloads.
func (ns *namespace) create(workloads ...workload) {
	ns.t.Helper()
	require.NoError(ns.t, ns.tryCreate(workloads...))
}

// tryCreate is create for objects that the API server may refuse.
func (ns *namespace) tryCreate(workloads ...workload) error {
	list := &corev1.List{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "List"}}
	for i := range workloads {
		for _, object := range workloads[i].objects() {
			list.Items = append(list.Items, runtime.RawExtension{Object: object})
		}
	}
	text, err := json.Marshal(list)
	if err != nil {
		return err
	}
	return ns.createText(string(text))
}

// createText creates the objects of a manifest.
func (ns *namespace) createText(manifest string) error {
	_, err := ns.run(manifest, ns.kubectl("--namespace", ns.name, "create", "--filename", "-")...)
	return err
}

// objects returns the pod and the object from which its claim is created.
func (w *workload) objects() []runtime.Object {
	pod := w.pod()
	if w.class == "" {
		return []runtime.Object{pod}
	}
	meta := metav1.ObjectMeta{Name: w.name}
	if w.named {
		return []runtime.Object{&resourceapi.ResourceClaim{TypeMeta: typeOf("ResourceClaim"), ObjectMeta: meta, Spec: w.claim()}, pod}
	}
	return []runtime.Object{&resourceapi.ResourceClaimTemplate{
		TypeMeta: typeOf("ResourceClaimTemplate"), ObjectMeta: meta, Spec: resourceapi.ResourceClaimTemplateSpec{Spec: w.claim()},
	}, pod}
}

func typeOf(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: resourceapi.SchemeGroupVersion.String(), Kind: kind}
}

func (w *workload) pod() *corev1.Pod {
	container := corev1.Container{Name: "main", Image: testImage, ImagePullPolicy: corev1.PullNever, Command: []string{"sleep", "3600"}}
	if w.image != "" {
		container.Image = w.image
	}
	if w.command != nil {
		container.Command = w.command
	}
	container.Resources.Limits, container.Resources.Requests = quantities(w.limits), quantities(w.requests)
	grace := max(w.grace, 1)
	pod := &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Name: w.name, GenerateName: w.generateName},
		Spec:       corev1.PodSpec{RestartPolicy: cmp.Or(w.restart, corev1.RestartPolicyNever), TerminationGracePeriodSeconds: &grace},
	}
	for _, name := range slices.Sorted(maps.Keys(w.env)) {
		container.Env = append(container.Env, corev1.EnvVar{Name: name, Value: w.env[name]})
	}
	if w.user != 0 {
		pod.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsUser: &w.user}
	}
	if w.node != "" {
		pod.Spec.NodeSelector = map[string]string{corev1.LabelHostname: w.node}
	}
	if w.ref != "" {
		container.Resources.Claims = []corev1.ResourceClaim{{Name: w.ref}}
		pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: w.ref}}
		source := &pod.Spec.ResourceClaims[0]
		switch {
		case w.named:
			source.ResourceClaimName = &w.name
		case w.template != "":
			source.ResourceClaimTemplateName = &w.template
		default:
			source.ResourceClaimTemplateName = &w.name
		}
	}
	pod.Spec.Containers = []corev1.Container{container}
	return pod
}

// claim returns the spec of a claim with this request and the name ref.
func (w *workload) claim() resourceapi.ResourceClaimSpec {
	exactly := &resourceapi.ExactDeviceRequest{DeviceClassName: w.class}
	for _, expression := range w.selectors {
		exactly.Selectors = append(exactly.Selectors, resourceapi.DeviceSelector{CEL: &resourceapi.CELDeviceSelector{Expression: expression}})
	}
	if w.count > 0 {
		exactly.AllocationMode, exactly.Count = resourceapi.DeviceAllocationModeExactCount, w.count
	}
	if w.adminAccess {
		exactly.AdminAccess = &w.adminAccess
	}
	if len(w.capacity) > 0 {
		exactly.Capacity = &resourceapi.CapacityRequirements{Requests: quantities(w.capacity)}
	}
	spec := resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{{Name: w.ref, Exactly: exactly}}}}
	if w.config != "" {
		spec.Devices.Config = []resourceapi.DeviceClaimConfiguration{{
			Requests: []string{w.ref},
			DeviceConfiguration: resourceapi.DeviceConfiguration{Opaque: &resourceapi.OpaqueDeviceConfiguration{
				Driver: w.driver, Parameters: runtime.RawExtension{Raw: []byte(w.config)},
			}},
		}}
	}
	return spec
}

func quantities[N ~string](amounts map[N]string) map[N]resource.Quantity {
	var all map[N]resource.Quantity
	for name, amount := range amounts {
		if all == nil {
			all = map[N]resource.Quantity{}
		}
		all[name] = resource.MustParse(amount)
	}
	return all
}
