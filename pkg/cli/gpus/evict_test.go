package gpus

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyapi "k8s.io/api/policy/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/prism-gpu/prism/pkg/cli/cluster"
)

const driver = cluster.DefaultDriver

// pod returns a pod of a namespace with a controller of a kind; "" for none.
func pod(name, controller string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, UID: types.UID("uid-" + name)}}
	if controller != "" {
		p.OwnerReferences = []metav1.OwnerReference{{Kind: controller, Name: "owner", Controller: new(true)}}
	}
	return p
}

// claim returns a claim with a device, reserved for pods.
func claim(name, pool, device string, pods ...string) *resourceapi.ResourceClaim {
	c := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name}}
	c.Status.Allocation = &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{
		Results: []resourceapi.DeviceRequestAllocationResult{{Driver: driver, Pool: pool, Device: device}},
	}}
	for _, name := range pods {
		c.Status.ReservedFor = append(c.Status.ReservedFor, resourceapi.ResourceClaimConsumerReference{
			Resource: "pods", Name: name, UID: types.UID("uid-" + name),
		})
	}
	return c
}

// fixture is a cluster in which an eviction deletes the pod and releases its claims.
type fixture struct {
	*fake.Clientset
	t     *testing.T
	evict map[string]error // per pod
	times int              // how often an error is returned; 0: always
	tried []string
	// evicted is called after an eviction; may be nil.
	evicted func(name string)
	listed  int
	lines   []string
}

func newFixture(t *testing.T, objects ...runtime.Object) *fixture {
	f := &fixture{Clientset: fake.NewClientset(objects...), t: t, evict: map[string]error{}}
	f.PrependReactor("create", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if action.GetSubresource() != "eviction" {
			return false, nil, nil
		}
		eviction, ok := action.(clienttesting.CreateAction).GetObject().(*policyapi.Eviction)
		require.True(t, ok)
		assert.Equal(t, types.UID("uid-"+eviction.Name), *eviction.DeleteOptions.Preconditions.UID)
		f.tried = append(f.tried, eviction.Name)
		if err := f.evict[eviction.Name]; err != nil && (f.times == 0 || len(f.tried) <= f.times) {
			return true, nil, err
		}
		f.remove(eviction.Name)
		if f.evicted != nil {
			f.evicted(eviction.Name)
		}
		return true, nil, nil
	})
	f.PrependReactor("list", "resourceclaims", func(clienttesting.Action) (bool, runtime.Object, error) { f.listed++; return false, nil, nil })
	return f
}

// remove deletes a pod, and the claims that are reserved for it alone.
func (f *fixture) remove(name string) {
	pods, claims := corev1.SchemeGroupVersion.WithResource("pods"), resourceapi.SchemeGroupVersion.WithResource("resourceclaims")
	require.NoError(f.t, f.Tracker().Delete(pods, "team", name))
	list, err := f.Tracker().List(claims, resourceapi.SchemeGroupVersion.WithKind("ResourceClaim"), "")
	require.NoError(f.t, err)
	all, ok := list.(*resourceapi.ResourceClaimList)
	require.True(f.t, ok)
	for i := range all.Items {
		if of := all.Items[i].Status.ReservedFor; len(of) == 1 && of[0].Name == name {
			require.NoError(f.t, f.Tracker().Delete(claims, "team", all.Items[i].Name))
		}
	}
}

func (f *fixture) eviction(force bool) *eviction {
	return &eviction{
		client: f, driver: driver, gpu: cluster.Place{Node: "n1", Name: "gpu-aaaaaaaa"}, force: force,
		print: func(format string, values ...any) { f.lines = append(f.lines, fmt.Sprintf(format, values...)) },
	}
}

var evictions = schema.GroupResource{Resource: "pods"}

func TestEviction_PodsOfTheGPU_UntilNoClaimHasIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// The claim of an extended resource is a claim of the pod like others.
		f := newFixture(t, pod("a", "ReplicaSet"), pod("b", "Job"), pod("other", "ReplicaSet"),
			claim("mig", "n1/gpu-aaaaaaaa", "gpu-aaaaaaaa-mig-19-0", "a"), claim("a-extended-resources-x", "n1/gpu-aaaaaaaa", "gpu-aaaaaaaa-mig-19-1", "a"),
			claim("whole", "n1", "gpu-aaaaaaaa", "b"), claim("elsewhere", "n1", "gpu-bbbbbbbb", "other"), claim("node", "n2", "gpu-aaaaaaaa", "other"))
		require.NoError(t, f.eviction(false).run(t.Context()))
		assert.ElementsMatch(t, []string{"a", "b"}, f.tried)
		assert.Equal(t, 2, f.listed, "all claims are listed at the beginning and at the end")
		assert.Contains(t, f.lines, "pod team/a evicted")
		assert.Contains(t, f.lines, "waiting for pod team/a: it is terminating")
	})
}

// TestEviction_ClaimAllocatedBeforeTheTaint_EvictedToo: the scheduler may have seen the GPU without the taint.
func TestEviction_ClaimAllocatedBeforeTheTaint_EvictedToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, pod("a", "ReplicaSet"), pod("b", "ReplicaSet"), claim("c", "n1", "gpu-aaaaaaaa", "a"))
		f.evicted = func(name string) {
			if name == "a" {
				require.NoError(t, f.Tracker().Add(claim("late", "n1", "gpu-aaaaaaaa", "b")))
			}
		}
		require.NoError(t, f.eviction(false).run(t.Context()))
		assert.Equal(t, []string{"a", "b"}, f.tried)
	})
}

func TestEviction_Budget_TriedUntilItAllows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, pod("a", "ReplicaSet"), claim("c", "n1", "gpu-aaaaaaaa", "a"))
		f.evict["a"] = apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", 0)
		f.times = 3
		require.NoError(t, f.eviction(false).run(t.Context()))
		assert.Equal(t, []string{"a", "a", "a", "a"}, f.tried)
		assert.Equal(t, []string{
			"waiting for pod team/a: a PodDisruptionBudget allows no eviction now: Cannot evict pod as it would violate the pod's disruption budget.",
			"pod team/a evicted", "waiting for pod team/a: it is terminating",
		}, f.lines, "each reason once")
	})
}

func TestEviction_Timeout_Ends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, pod("a", "DaemonSet"), claim("c", "n1", "gpu-aaaaaaaa", "a"))
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		require.ErrorIs(t, f.eviction(false).run(ctx), context.DeadlineExceeded)
		assert.Empty(t, f.tried)
		assert.Equal(t, []string{"waiting for pod team/a: DaemonSet owner manages it; evict it with --force"}, f.lines)
		require.NoError(t, f.eviction(true).run(t.Context()))
		assert.Equal(t, []string{"a"}, f.tried)
	})
}

func TestEviction_Forbidden_NamesTheRight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, pod("a", "ReplicaSet"), claim("c", "n1", "gpu-aaaaaaaa", "a"))
		f.evict["a"] = apierrors.NewForbidden(evictions, "a", nil)
		require.ErrorContains(t, f.eviction(false).run(t.Context()), "an administrator can allow create on pods/eviction in namespace team")
	})
}

func TestEviction_Preview_ChangesNothing(t *testing.T) {
	f := newFixture(t, pod("a", "ReplicaSet"), pod("b", ""), claim("c", "n1", "gpu-aaaaaaaa", "a", "b"), claim("idle", "n1", "gpu-aaaaaaaa"))
	require.NoError(t, f.eviction(false).preview(t.Context()))
	assert.Equal(t, []string{
		"pod team/a would be evicted (dry run)",
		"pod team/b would be waited for: it has no controller that creates it again; evict it with --force, or delete it (dry run)",
		"ResourceClaim team/idle would be waited for: it is reserved for no pod; it is released soon, or delete it (dry run)",
	}, f.lines)
	for _, action := range f.Actions() {
		assert.Contains(t, []string{"get", "list"}, action.GetVerb())
	}
}

func TestDecide_Pods_EvictedOrWaitedFor(t *testing.T) {
	t.Parallel()
	of := func(p *corev1.Pod) consumer {
		return consumer{"team", resourceapi.ResourceClaimConsumerReference{Resource: "pods", Name: p.Name, UID: p.UID}}
	}
	with := func(p *corev1.Pod, change func(p *corev1.Pod)) *corev1.Pod {
		change(p)
		return p
	}
	for name, c := range map[string]struct {
		pod           *corev1.Pod
		plain, forced string
	}{
		"ReplicaSet": {pod("a", "ReplicaSet"), "", ""},
		"DaemonSet":  {pod("a", "DaemonSet"), "DaemonSet owner manages it; evict it with --force", ""},
		"bare":       {pod("a", ""), "it has no controller that creates it again; evict it with --force, or delete it", ""},
		"terminating": {with(pod("a", "DaemonSet"), func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} }), terminating,
			terminating},
		"finished": {with(pod("a", ""), func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }), finished, finished},
	} {
		assert.Equal(t, c.plain, decide(of(c.pod), c.pod, false), name)
		assert.Equal(t, c.forced, decide(of(c.pod), c.pod, true), name)
	}
	successor := with(pod("a", "StatefulSet"), func(p *corev1.Pod) { p.UID = "later" })
	assert.Equal(t, deleted, decide(of(pod("a", "StatefulSet")), successor, true), "another pod of that name is not evicted")
	assert.Equal(t, deleted, decide(of(successor), nil, true))
}

func TestUsing_AllOfANode_OtherNodesLeft(t *testing.T) {
	t.Parallel()
	claims := []resourceapi.ResourceClaim{*claim("a", "n1", "gpu-aaaaaaaa"), *claim("b", "n1/gpu-bbbbbbbb", "gpu-bbbbbbbb-mps"), *claim("c", "n10", "gpu-cccccccc")}
	assert.Equal(t, "ResourceClaims team/a, team/b", claimNames(using(claims, driver, cluster.Place{Node: "n1", Name: "all"})))
	assert.Equal(t, "ResourceClaim team/b", claimNames(using(claims, driver, cluster.Place{Node: "n1", Name: "gpu-bbbbbbbb"})))
}
