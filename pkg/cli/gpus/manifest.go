package gpus

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/prism-gpu/prism/pkg/cli/reports"
)

// manifestKinds are the kinds of objects that explain -f reads, for a sentence.
const manifestKinds = "Pod, Deployment, Job, StatefulSet, DaemonSet, ResourceClaim, ResourceClaimTemplate"

// workload is a pod of a file, or of the template of its controller there.
type workload struct {
	// kind and replicas are the controller's; Pod and 1 for a pod of its own.
	kind     string
	replicas int32
	pod      *corev1.Pod
}

// manifest is the content of a file.
type manifest struct {
	workloads []workload
	claims    []*resourceapi.ResourceClaim
	templates map[types.NamespacedName]*resourceapi.ResourceClaimTemplate
	// ignored are the kinds and names of objects that request no devices.
	ignored []string
	// namespace is the namespace of objects without one.
	namespace string
}

// parseManifest reads a file with objects in YAML or JSON.
func parseManifest(data []byte, namespace string) (*manifest, error) {
	m := &manifest{templates: map[types.NamespacedName]*resourceapi.ResourceClaimTemplate{}, namespace: namespace}
	serializer := json.NewSerializerWithOptions(json.DefaultMetaFactory, scheme.Scheme, scheme.Scheme, json.SerializerOptions{Yaml: true, Strict: true})
	documents := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4096)
	for {
		var raw apiruntime.RawExtension
		err := documents.Decode(&raw)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("reading YAML: %w", err)
		}
		if len(raw.Raw) == 0 || string(raw.Raw) == "null" {
			continue
		}
		if err := m.decode(serializer, raw.Raw); err != nil {
			return nil, err
		}
	}
	if len(m.workloads)+len(m.claims)+len(m.templates) == 0 {
		found := "no object"
		if len(m.ignored) > 0 {
			found = strings.Join(m.ignored, ", ")
		}
		return nil, fmt.Errorf("found %s; supported kinds: %s", found, manifestKinds)
	}
	return m, nil
}

// decode adds an object.
func (m *manifest) decode(serializer apiruntime.Decoder, raw []byte) error {
	object, kind, err := serializer.Decode(raw, nil, nil)
	switch {
	case apiruntime.IsNotRegisteredError(err) && kind != nil:
		if kind.Group == resourceapi.GroupName {
			return fmt.Errorf("%s %s is not supported; write it as %s", kind.GroupVersion(), kind.Kind, resourceapi.SchemeGroupVersion)
		}
		m.ignored = append(m.ignored, kind.Kind)
		return nil
	case err != nil && kind != nil:
		return fmt.Errorf("reading %s: %s", kind.Kind, reports.Escape(err.Error()))
	case err != nil:
		return fmt.Errorf("reading an object: %s", reports.Escape(err.Error()))
	}
	if list, ok := object.(*corev1.List); ok {
		for _, item := range list.Items {
			if err := m.decode(serializer, item.Raw); err != nil {
				return err
			}
		}
		return nil
	}
	return m.add(object, kind)
}

// add adds a decoded object.
func (m *manifest) add(object apiruntime.Object, kind *schema.GroupVersionKind) error {
	switch o := object.(type) {
	case *corev1.Pod:
		return m.addPod(kind.Kind, new(int32(1)), o.Name, o.Namespace, &corev1.PodTemplateSpec{ObjectMeta: o.ObjectMeta, Spec: o.Spec})
	case *appsv1.Deployment:
		return m.addPod(kind.Kind, o.Spec.Replicas, o.Name, o.Namespace, &o.Spec.Template)
	case *appsv1.StatefulSet:
		return m.addPod(kind.Kind, o.Spec.Replicas, o.Name, o.Namespace, &o.Spec.Template)
	case *appsv1.DaemonSet:
		return m.addPod(kind.Kind, nil, o.Name, o.Namespace, &o.Spec.Template)
	case *batchv1.Job:
		return m.addPod(kind.Kind, o.Spec.Parallelism, o.Name, o.Namespace, &o.Spec.Template)
	case *resourceapi.ResourceClaim:
		o.Namespace = m.orDefault(o.Namespace)
		o.Status = resourceapi.ResourceClaimStatus{}
		m.claims = append(m.claims, o)
	case *resourceapi.ResourceClaimTemplate:
		o.Namespace = m.orDefault(o.Namespace)
		m.templates[types.NamespacedName{Namespace: o.Namespace, Name: o.Name}] = o
	default:
		if kind.Group == resourceapi.GroupName && kind.Version != resourceapi.SchemeGroupVersion.Version {
			return fmt.Errorf("%s %s is not supported; write it as %s", kind.GroupVersion(), kind.Kind, resourceapi.SchemeGroupVersion)
		}
		m.ignored = append(m.ignored, kind.Kind)
	}
	return nil
}

// addPod adds a pod as its controller creates it.
func (m *manifest) addPod(kind string, replicas *int32, name, namespace string, template *corev1.PodTemplateSpec) error {
	if name == "" {
		name = template.GenerateName
	}
	if name == "" {
		return fmt.Errorf("reading %s: metadata.name: required", kind)
	}
	pod := &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
	pod.Name, pod.Namespace = name, m.orDefault(namespace)
	pod.UID = "" // it is in no cluster
	pod.Status.Phase = corev1.PodPending
	pod.Spec.NodeName = ""
	if kind == "DaemonSet" {
		for _, key := range []string{corev1.TaintNodeUnschedulable, corev1.TaintNodeMemoryPressure, corev1.TaintNodeDiskPressure, corev1.TaintNodePIDPressure} {
			pod.Spec.Tolerations = append(pod.Spec.Tolerations, corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule})
		}
	}
	w := workload{kind: kind, replicas: 1, pod: pod}
	if replicas != nil {
		w.replicas = *replicas
	}
	m.workloads = append(m.workloads, w)
	return nil
}

func (m *manifest) orDefault(namespace string) string {
	if namespace == "" {
		return m.namespace
	}
	return namespace
}
