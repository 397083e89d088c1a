package kube

import (
	"context"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
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
		"class is gone":           {nil, []string{"lost"}, "", 2, nil, `finding what starts pod ns/lost: reading RuntimeClass gone: runtimeclasses.node.k8s.io "gone" not found`},
		"runtime does not answer": {nil, []string{"fails"}, "", 2, []string{"fails"}, "finding what starts pod ns/fails: " + assert.AnError.Error()},
		"another object":          {nil, []string{"job/own"}, "", 0, nil, ""},
		"gone":                    {nil, []string{"gone"}, "", 2, nil, `reading pod ns/gone: pods "gone" not found`},
		"more than are read":      {nil, append(crowd, "own"), "", 16, nil, ""},
		"replaced by another one": {nil, []string{"other"}, "", 2, nil, "reading pod ns/other: it was replaced"},
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
			found, err := UserNamespaces{Client: client, Crun: func(_ context.Context, handler string) (bool, error) {
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
