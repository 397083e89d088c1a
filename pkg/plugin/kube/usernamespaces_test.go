package kube

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"
)

func TestUserNamespaces_PodByRunc_FirstOfClaim(t *testing.T) {
	t.Parallel()
	pod := func(name string, hostUsers *bool, class *string) runtime.Object {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("uid-" + name)},
			Spec:       corev1.PodSpec{HostUsers: hostUsers, RuntimeClassName: class},
		}
	}
	crowd := make([]string, 255)
	for i := range crowd {
		crowd[i] = "host"
	}
	for name, c := range map[string]struct {
		crun      []string // handlers
		consumers []string
		want      string
		reads     int
		asked     []string
		err       string
	}{
		"none":                    {nil, nil, "", 0, nil, ""},
		"of the host":             {nil, []string{"host", "unset"}, "", 2, nil, ""},
		"own":                     {nil, []string{"host", "own", "unset"}, "own", 2, []string{""}, ""},
		"crun by default":         {[]string{""}, []string{"own"}, "", 1, []string{""}, ""},
		"crun by its class":       {[]string{"other-handler"}, []string{"classed", "classed-2"}, "", 3, []string{"other-handler"}, ""},
		"one of them by runc":     {[]string{"other-handler"}, []string{"classed", "own"}, "own", 3, []string{"other-handler", ""}, ""},
		"runc by its class":       {[]string{""}, []string{"own", "classed"}, "classed", 3, []string{"", "other-handler"}, ""},
		"class is gone":           {nil, []string{"lost"}, "", 3, nil, `determining the OCI runtime of pod ns/lost: reading RuntimeClass gone: runtimeclasses.node.k8s.io "gone" not found`},
		"runtime does not answer": {nil, []string{"fails"}, "", 3, []string{"fails"}, "determining the OCI runtime of pod ns/fails: " + assert.AnError.Error() + "\nreading node n0: nodes \"n0\" not found"},
		"another object":          {nil, []string{"job/own"}, "", 0, nil, ""},
		"gone":                    {nil, []string{"gone"}, "", 2, nil, `reading pod ns/gone: pods "gone" not found`},
		"more than are read":      {nil, append(crowd, "own"), "", 16, nil, ""},
		"replaced by another one": {nil, []string{"other"}, "", 2, nil, "reading pod ns/other: the pod was replaced"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			other := pod("other", new(false), nil)
			other.(*corev1.Pod).UID = "new"
			client := fake.NewClientset(pod("host", new(true), nil), pod("unset", nil, new("class")), pod("own", new(false), nil), other,
				pod("classed", new(false), new("class")), pod("classed-2", new(false), new("class")), pod("lost", new(false), new("gone")),
				pod("fails", new(false), new("fails")),
				&nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "class"}, Handler: "other-handler"},
				&nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "fails"}, Handler: "fails"})
			rc := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns"}}
			for _, consumer := range c.consumers {
				reference := resourceapi.ResourceClaimConsumerReference{Resource: "pods", Name: consumer, UID: types.UID("uid-" + consumer)}
				if consumer == "job/own" {
					reference = resourceapi.ResourceClaimConsumerReference{APIGroup: "batch", Resource: "jobs", Name: "own", UID: "uid-own"}
				}
				rc.Status.ReservedFor = append(rc.Status.ReservedFor, reference)
			}
			var asked []string
			found, err := UserNamespaces{Client: client, NodeName: "n0", Crun: func(_ context.Context, handler string) (bool, error) {
				asked = append(asked, handler)
				if handler == "fails" {
					return false, assert.AnError
				}
				return slices.Contains(c.crun, handler), nil
			}}.PodByRunc(t.Context(), rc)
			assert.Equal(t, c.want, found)
			if c.err == "" {
				require.NoError(t, err)
			} else {
				require.EqualError(t, err, c.err)
			}
			assert.Len(t, client.Actions(), c.reads)
			assert.Equal(t, c.asked, asked)
		})
	}
}

// TestUserNamespaces_RuntimeSilent_ByNode: if a runtime does not answer in time, the Node names its kind, and the default of that kind
// applies.
func TestUserNamespaces_RuntimeSilent_ByNode(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ version, handler, want string }{
		"containerd":               {"containerd://2.4.0", "", "own"},
		"containerd, by its class": {"containerd://2.4.0", "crun", "own"},
		"CRI-O":                    {"cri-o://1.33.0", "", ""},
		"CRI-O, by its class":      {"cri-o://1.33.0", "crun", ""},
		"CRI-O, runc":              {"cri-o://1.33.0", "runc", "own"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n0"}}
				node.Status.NodeInfo.ContainerRuntimeVersion = c.version
				pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "own", UID: "uid-own"}, Spec: corev1.PodSpec{HostUsers: new(false)}}
				if c.handler != "" {
					pod.Spec.RuntimeClassName = new("class")
				}
				client := fake.NewClientset(node, pod, &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "class"}, Handler: c.handler})
				behind := true
				client.PrependReactor("get", "runtimeclasses", func(k8stesting.Action) (bool, runtime.Object, error) {
					defer func() { behind = false }()
					return behind, nil, apierrors.NewNotFound(nodev1.Resource("runtimeclasses"), "class") // missing in its cache
				})
				rc := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns"}}
				rc.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: "own", UID: "uid-own"}}
				ctx, stop := context.WithTimeout(t.Context(), 2*crunTimeout)
				defer stop()
				found, err := UserNamespaces{Client: client, NodeName: "n0", Crun: func(ctx context.Context, _ string) (bool, error) {
					<-ctx.Done()
					return false, ctx.Err()
				}}.PodByRunc(ctx, rc)
				require.NoError(t, err)
				require.NoError(t, ctx.Err(), "there was time to read the node")
				assert.Equal(t, c.want, found)
			})
		})
	}
}
