package validate

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/prism-gpu/prism/pkg/cli/cluster"
	"github.com/prism-gpu/prism/pkg/maintenance"
)

const (
	// prefix begins the names of the objects.
	prefix = "prism-validate-"
	// container is the name of the container, of the claim in the pod, and of the program.
	container = "prism-validate"
	request   = "gpu"
	// user is a user without rights.
	user = 65532
	// resultFile is read by the kubelet.
	resultFile = corev1.TerminationMessagePathDefault
)

// labels are the labels of the objects.
var labels = map[string]string{"app.kubernetes.io/name": container, "app.kubernetes.io/managed-by": cluster.Manager}

// wanted are the types of devices for the claim, in the order of preference.
var wanted = []string{"gpu", "mig", "timeslice", "mps"}

// className is the DeviceClass of a type of devices.
func className(driver, kind string) string {
	if kind == "gpu" {
		return driver
	}
	return kind + "." + driver
}

// claimFor returns a claim for a device of one of the types, or of one GPU, that is deleted with its pod.
func claimFor(pod *corev1.Pod, driver string, kinds []string, gpu *cluster.GPU) *resourceapi.ResourceClaim {
	claim := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: pod.Namespace, Name: pod.Name, Labels: labels,
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID}},
	}}
	var choices []resourceapi.DeviceSubRequest
	for _, kind := range kinds {
		choice := resourceapi.DeviceSubRequest{
			Name: kind, DeviceClassName: className(driver, kind), AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: 1,
		}
		if gpu != nil {
			choice.Selectors = []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{
				Expression: fmt.Sprintf("device.attributes[%q].parentUUID == %q", driver, gpu.UUID),
			}}}
			choice.Tolerations = []resourceapi.DeviceToleration{{
				Key: driver + "/" + string(maintenance.Maintain), Operator: resourceapi.DeviceTolerationOpExists,
			}}
		}
		choices = append(choices, choice)
	}
	claim.Spec.Devices.Requests = []resourceapi.DeviceRequest{{Name: request, FirstAvailable: choices}}
	return claim
}

// podFor returns a pod that validates the device of its claim on a node. The scheduler allocates the claim, so the node is chosen by affinity.
func podFor(namespace, node, image string, timeout time.Duration) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Labels: labels}}
	pod.Spec = corev1.PodSpec{
		RestartPolicy:                 corev1.RestartPolicyNever,
		ActiveDeadlineSeconds:         new(int64(timeout/time.Second) + 60), // if this program cannot delete the pod
		TerminationGracePeriodSeconds: new(int64(1)),
		AutomountServiceAccountToken:  new(false),
		EnableServiceLinks:            new(false),
		Tolerations:                   []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{{
				Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{node},
			}}}},
		}}},
		SecurityContext: &corev1.PodSecurityContext{
			RunAsNonRoot: new(true), RunAsUser: new(int64(user)), RunAsGroup: new(int64(user)),
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
		Containers: []corev1.Container{{
			Name: container, Image: image, ImagePullPolicy: corev1.PullIfNotPresent,
			Command: []string{"/usr/bin/" + container, "--result=" + resultFile},
			// Where NVIDIA's container runtime is the default one, it would add other GPUs.
			Env: []corev1.EnvVar{{Name: "NVIDIA_VISIBLE_DEVICES", Value: "void"}},
			SecurityContext: &corev1.SecurityContext{
				AllowPrivilegeEscalation: new(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			},
			Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("64Mi")},
				Claims:   []corev1.ResourceClaim{{Name: request}},
			},
		}},
	}
	return pod
}
