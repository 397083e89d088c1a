package kube

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
)

func TestUserNamespaces_PodByRunc_FirstOfClaim(t *testing.T) {
	t.Parallel()
	pod := func(name string, hostUsers *bool) runtime.Object {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("uid-" + name)}, Spec: corev1.PodSpec{HostUsers: hostUsers},
		}
	}
	crowd := make([]string, 255)
	for i := range crowd {
		crowd[i] = "host"
	}
	for name, c := range map[string]struct {
		runtime   string
		consumers []string
		want      string
		reads     int
		err       string
	}{
		"none":                    {"containerd://2.4.2", nil, "", 1, ""},
		"of the host":             {"containerd://2.4.2", []string{"host", "unset"}, "", 3, ""},
		"own":                     {"containerd://2.4.2", []string{"host", "own", "unset"}, "own", 3, ""},
		"CRI-O":                   {"cri-o://1.35.1", []string{"own"}, "", 1, ""},
		"another object":          {"containerd://2.4.2", []string{"job/own"}, "", 1, ""},
		"gone":                    {"containerd://2.4.2", []string{"gone"}, "", 3, `reading pod ns/gone: pods "gone" not found`},
		"more than are read":      {"containerd://2.4.2", append(crowd, "own"), "", 17, ""},
		"replaced by another one": {"containerd://2.4.2", []string{"other"}, "", 3, "reading pod ns/other: it was replaced"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n0"}}
			node.Status.NodeInfo.ContainerRuntimeVersion = c.runtime
			other := pod("other", new(false))
			other.(*corev1.Pod).UID = "new"
			client := fake.NewClientset(node, pod("host", new(true)), pod("unset", nil), pod("own", new(false)), other)
			rc := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns"}}
			for _, consumer := range c.consumers {
				reference := resourceapi.ResourceClaimConsumerReference{Resource: "pods", Name: consumer, UID: types.UID("uid-" + consumer)}
				if consumer == "job/own" {
					reference = resourceapi.ResourceClaimConsumerReference{APIGroup: "batch", Resource: "jobs", Name: "own", UID: "uid-own"}
				}
				rc.Status.ReservedFor = append(rc.Status.ReservedFor, reference)
			}
			found, err := UserNamespaces{Client: client, NodeName: "n0"}.PodByRunc(t.Context(), rc)
			assert.Equal(t, c.want, found)
			if c.err == "" {
				require.NoError(t, err)
			} else {
				require.EqualError(t, err, c.err)
			}
			assert.Len(t, client.Actions(), c.reads)
		})
	}
	_, err := UserNamespaces{Client: fake.NewClientset(), NodeName: "n0"}.PodByRunc(t.Context(), &resourceapi.ResourceClaim{})
	require.EqualError(t, err, fmt.Sprintf("reading node n0: nodes %q not found", "n0"))
}
