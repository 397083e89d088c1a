package explain_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyapi "k8s.io/api/policy/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/prism-gpu/prism/pkg/cli/explain"
)

// crowded is a cluster of two GPUs, in which pod "waits" requests all memory slices of one. Pod "a" on node n1 could move to node n2, whose
// pod "b" has no controller.
type crowded struct {
	*fragments
	a, b, waits *object
	budgets     explain.Budgets
}

func newCrowded(t *testing.T) *crowded {
	t.Helper()
	f := &crowded{fragments: newFragments(t)}
	f.node("n1", "h100-80", 1, partitioned)
	f.node("n2", "h100-80", 1, partitioned)
	f.a = f.on("a", "1g.10gb", "n1", "-mig-19-5")
	f.b = f.on("b", "1g.10gb", "n2", "-mig-19-5")
	f.b.pod.OwnerReferences = nil
	f.put(f.b)
	f.waits = f.pod("waits", profileClass("7g.80gb"))
	return f
}

// defragment returns the plan or the sentence for the waiting pod.
func (f *crowded) defragment() (*explain.Plan, *explain.NoPlan) {
	f.t.Helper()
	s := f.solver()
	plan, err := explain.Defragment(f.t.Context(), s, s.Cluster.FindPod("ml", "waits"), f.budgets)
	if none, ok := errors.AsType[*explain.NoPlan](err); ok {
		return nil, none
	}
	require.NoError(f.t, err)
	return plan, nil
}

func TestDefragment_OnePodBlocks_MovedToOtherNode(t *testing.T) {
	t.Parallel()
	f := newCrowded(t)
	plan, none := f.defragment()
	require.Nil(t, none)
	require.Len(t, plan.Moves, 1)
	assert.Equal(t, explain.Move{Namespace: "ml", Pod: "a", UID: "uid-a", Owner: "ReplicaSet/a-rs", Devices: "1g.10gb at 5", To: "n2"}, plan.Moves[0])
	assert.Equal(t, "7g.80gb", plan.Target.Profile)
	assert.Equal(t, "n1", plan.Target.Node)
	assert.Equal(t, 8, plan.Target.Size)
	assert.Contains(t, plan.Tainted, plan.Target.GPU, "the whole GPU overlaps")
	assert.NotContains(t, plan.Tainted, plan.Target.Device, "the waiting pod gets the target")
	assert.Empty(t, plan.Notes)
}

func TestDefragment_OtherPodWaits_Noted(t *testing.T) {
	t.Parallel()
	f := newCrowded(t)
	f.pod("other", profileClass("7g.80gb"))
	f.pod("small", profileClass("1g.20gb"))
	plan, none := f.defragment()
	require.Nil(t, none)
	assert.Equal(t, []string{"pod ml/other waits too, and could get the device first"}, plan.Notes)
}

func TestDefragment_PodEnds_PlanWaitsForIt(t *testing.T) {
	t.Parallel()
	f := newCrowded(t)
	ends := f.on("ends", "1g.10gb", "n1", "-mig-19-0")
	ends.pod.DeletionTimestamp = &metav1.Time{}
	f.put(ends)
	plan, none := f.defragment()
	require.Nil(t, none)
	assert.Len(t, plan.Moves, 1)
	assert.Equal(t, []string{"pod ml/ends ends already: the device is free when it has"}, plan.Notes)
	f.remove(f.a)
	_, none = f.defragment()
	require.NotNil(t, none)
	assert.True(t, none.Fits)
	assert.Equal(t, "pod ml/waits needs no plan: its claim fits on node n1 as soon as pods that end have released their devices", none.Sentence)
}

func TestDefragment_NoPlan_Reason(t *testing.T) {
	t.Parallel()
	yes := true
	cannot := func(why string) string {
		return "no plan for pod ml/waits: nearest is 7g.80gb at 0 on node n1, but pod ml/a cannot move: " + why
	}
	for name, test := range map[string]struct {
		change func(f *crowded)
		want   string
	}{
		"no controller": {func(f *crowded) { f.a.pod.OwnerReferences = nil }, cannot("no controller creates it again")},
		"daemon": {func(f *crowded) {
			f.a.pod.OwnerReferences = []metav1.OwnerReference{{Kind: "DaemonSet", Name: "agents", Controller: &yes}}
		}, cannot("DaemonSet agents creates it again on the same node")},
		"autoscaler": {func(f *crowded) {
			f.a.pod.Annotations = map[string]string{"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}
		}, cannot(`its annotation cluster-autoscaler.kubernetes.io/safe-to-evict: "false" forbids it`)},
		"karpenter": {func(f *crowded) {
			f.a.pod.Annotations = map[string]string{"karpenter.sh/do-not-disrupt": "true"}
		}, cannot(`its annotation karpenter.sh/do-not-disrupt: "true" forbids it`)},
		"budget": {func(f *crowded) { f.budgets = explain.Budgets{budgetFor("a", 0)} }, cannot("PodDisruptionBudget a has disruptionsAllowed: 0")},
		"two budgets": {func(f *crowded) { f.budgets = explain.Budgets{budgetFor("a", 1), budgetFor("a", 1)} },
			cannot("several PodDisruptionBudgets select it, and the API server evicts no such pod")},
		"claim of its own name": {func(f *crowded) { f.a.claim.Annotations = nil }, cannot("its claim a-gpu was not made for it from a template")},
		"claim for two": {func(f *crowded) {
			f.a.claim.Status.ReservedFor = append(f.a.claim.Status.ReservedFor, resourceapi.ResourceClaimConsumerReference{Resource: "pods", Name: "b", UID: "uid-b"})
		}, cannot("its claim a-gpu is reserved for 2 pods")},
		"no other device": {func(f *crowded) { f.on("c", "7g.80gb", "n2", "-mig-0-0"); f.remove(f.b) },
			"no plan for pod ml/waits: pod ml/a cannot move: no other device is free for it; the pod that replaces ml/c could get the same device"},
		"other node refuses": {func(f *crowded) {
			f.a.pod.Spec.NodeSelector = map[string]string{corev1.LabelHostname: "n1"}
		}, "no plan for pod ml/waits: pod ml/a cannot move: no other device is free for it"},
		"its node refuses": {func(f *crowded) {
			f.waits.pod.Spec.NodeSelector = map[string]string{corev1.LabelHostname: "n2"}
		}, "no plan for pod ml/waits: nearest is 7g.80gb at 0 on node n2, but pod ml/b cannot move: no controller creates it again"},
		"no such device": {func(f *crowded) {
			f.waits.claim.Spec.Devices.Requests[0].Exactly.DeviceClassName = "mps." + prismDriver
		},
			"no plan for pod ml/waits: its claim fits on no node, even if all other claims were gone; kubectl prism explain pod waits -n ml says why"},
		"several devices": {func(f *crowded) { f.waits.claim.Spec.Devices.Requests[0].Exactly.Count = 2 },
			"pod ml/waits waits for several devices; only a claim for one device can have a plan"},
		"same device": {func(f *crowded) { // the pod that replaces a could get every device that a releases
			f.a.claim.Spec.Devices.Requests[0].Exactly.DeviceClassName = "mig." + prismDriver
		}, "no plan for pod ml/waits: the pod that replaces ml/a could get the same device"},
		"class missing": {func(f *crowded) { f.waits.claim.Spec.Devices.Requests[0].Exactly.DeviceClassName = "none" },
			"the scheduler's allocator cannot place pod ml/waits: claim ml/waits-gpu, request gpu: could not retrieve device class none: " +
				"DeviceClass none does not exist"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newCrowded(t)
			test.change(f)
			f.put(f.a)
			f.put(f.waits)
			plan, none := f.defragment()
			require.Nil(t, plan)
			assert.Equal(t, test.want, none.Sentence)
			assert.False(t, none.Fits)
		})
	}
}

func TestDefragment_NoPlanNeeded_Said(t *testing.T) {
	t.Parallel()
	f := newCrowded(t)
	f.remove(f.a)
	_, none := f.defragment()
	require.NotNil(t, none)
	assert.True(t, none.Fits)
	assert.Equal(t, "pod ml/waits needs no plan: its claim fits on node n1 now", none.Sentence)
	require.True(t, f.run(f.waits, "n1"))
	_, none = f.defragment()
	require.NotNil(t, none)
	assert.True(t, none.Fits)
	assert.Equal(t, "Pod ml/waits runs on node n1", none.Sentence)
}

// budgetFor is a budget of an app.
func budgetFor(app string, allowed int32) *policyapi.PodDisruptionBudget {
	return &policyapi.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ml", Name: app},
		Spec:       policyapi.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}},
		Status:     policyapi.PodDisruptionBudgetStatus{DisruptionsAllowed: allowed},
	}
}

func TestDefragment_BudgetOfTwoPods_AllowsOne(t *testing.T) {
	t.Parallel()
	f := newCrowded(t)
	c := f.on("c", "1g.10gb", "n1", "-mig-19-3")
	for _, o := range []*object{f.a, c} {
		o.pod.Labels = map[string]string{"app": "both"}
		f.put(o)
	}
	f.budgets = explain.Budgets{budgetFor("both", 1)}
	_, none := f.defragment()
	require.NotNil(t, none)
	assert.Equal(t, "no plan for pod ml/waits: pods ml/a, ml/c cannot move together: PodDisruptionBudget both has disruptionsAllowed: 1", none.Sentence)
	f.budgets = explain.Budgets{budgetFor("both", 2)}
	plan, _ := f.defragment()
	require.NotNil(t, plan)
	assert.ElementsMatch(t, []types.UID{"uid-a", "uid-c"}, []types.UID{plan.Moves[0].UID, plan.Moves[1].UID})
}

func TestDefragment_EqualSets_LowestPriorityMoves(t *testing.T) {
	t.Parallel()
	f := newCrowded(t)
	high, low := int32(1000), int32(5)
	f.a.pod.Spec.Priority = &high
	f.put(f.a)
	f.node("n3", "h100-80", 1, partitioned)
	d := f.on("d", "1g.10gb", "n3", "-mig-19-2")
	d.pod.Spec.Priority = &low
	f.put(d)
	plan, none := f.defragment()
	require.Nil(t, none)
	assert.Equal(t, "d", plan.Moves[0].Pod)
	assert.Equal(t, "n3", plan.Target.Node)
}
