package explain

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/prism-gpu/prism/pkg/cli/clusterview"
)

// containersOf parses "init 2a; sidecar 1a 1b; main 1a": containers with the amounts of the resources example.com/a,
// example.com/b and, for u, cpu.
func containersOf(text string) *corev1.Pod {
	always := corev1.ContainerRestartPolicyAlways
	p := podOf("ml", "train-0")
	p.Spec.Containers = nil
	for i, words := range strings.Split(text, ";") {
		fields := strings.Fields(words)
		c := corev1.Container{Name: fmt.Sprint("c", i), Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{}}}
		for _, amount := range fields[1:] {
			name, value := amount[len(amount)-1:], amount[:len(amount)-1]
			if name == "u" {
				name = "cpu"
			} else {
				name = "example.com/" + name
			}
			c.Resources.Requests[corev1.ResourceName(name)] = resource.MustParse(value)
		}
		switch fields[0] {
		case "sidecar":
			c.RestartPolicy = &always
			p.Spec.InitContainers = append(p.Spec.InitContainers, c)
		case "init":
			p.Spec.InitContainers = append(p.Spec.InitContainers, c)
		default:
			p.Spec.Containers = append(p.Spec.Containers, c)
		}
	}
	return p
}

// TestExtended_Containers_RequestsOfTheScheduler: the requests that the plugin DynamicResources of kube-scheduler makes: one for each sidecar
// and each container, and one for the init container that lacks the most devices beside later sidecars and containers.
func TestExtended_Containers_RequestsOfTheScheduler(t *testing.T) {
	t.Parallel()
	for containers, want := range map[string]string{
		"main 1a":                               "container-0-request-0: 1 a",
		"main 1a; main 2a":                      "container-0-request-0: 1 a, container-1-request-0: 2 a",
		"main 1a 2b":                            "container-0-request-0: 1 a, container-0-request-1: 2 b",
		"main 1u 1b":                            "container-0-request-1: 1 b",
		"main 0a; main 1a":                      "container-1-request-0: 1 a",
		"init 1a; main 1a":                      "container-1-request-0: 1 a",
		"init 3a; main 1a":                      "container-0-request-0: 2 a, container-1-request-0: 1 a",
		"init 3a; main 1a; main 1a":             "container-0-request-0: 1 a, container-1-request-0: 1 a, container-2-request-0: 1 a",
		"init 2a; init 4a; main 1a":             "container-1-request-0: 3 a, container-2-request-0: 1 a",
		"init 2a; init 2a; main 0a":             "container-0-request-0: 2 a",
		"sidecar 1a; main 1a":                   "container-0-request-0: 1 a, container-1-request-0: 1 a",
		"sidecar 1a; init 2a; main 1a":          "container-0-request-0: 1 a, container-1-request-0: 1 a, container-2-request-0: 1 a",
		"init 2a; sidecar 1a; main 1a":          "container-1-request-0: 1 a, container-2-request-0: 1 a",
		"init 2b; sidecar 1a; init 2a; main 1b": "container-0-request-0: 1 b, container-1-request-0: 1 a, container-2-request-0: 2 a, container-3-request-0: 1 b",
	} {
		w := newWorld(t)
		for _, name := range []string{"a", "b"} {
			class := w.class(name)
			resourceName := "example.com/" + name
			class.Spec.ExtendedResourceName = &resourceName
			w.store.PutClass(class)
		}
		x := newExtended(w.store.Cluster(), &clusterview.Pod{Pod: containersOf(containers)})
		claim := x.claim(x.names(&clusterview.Node{}))
		require.NotNil(t, claim, containers)
		var got []string
		for _, r := range claim.Spec.Devices.Requests {
			got = append(got, fmt.Sprintf("%s: %d %s", r.Name, r.Exactly.Count, r.Exactly.DeviceClassName))
		}
		assert.Equal(t, want, strings.Join(got, ", "), containers)
	}
}

func TestIsExtended_Names_AsTheScheduler(t *testing.T) {
	t.Parallel()
	for name, want := range map[corev1.ResourceName]bool{
		"nvidia.com/gpu": true, "deviceclass.resource.kubernetes.io/gpus": true, "cpu": false, "example.kubernetes.io/x": false,
		"notkubernetes.io/x": false, "requests.nvidia.com/gpu": false,
	} {
		assert.Equal(t, want, isExtended(name), name)
	}
}
