package view

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/prism-gpu/prism/pkg/cli/clusterview"
)

var options = Options{Driver: driver, Pods: true}

func read(t *testing.T, s *server, o Options) (*clusterview.Cluster, []string) {
	t.Helper()
	c, missing, err := Read(t.Context(), s.client(t), o)
	require.NoError(t, err)
	var lines []string
	for _, m := range missing {
		lines = append(lines, m.String())
	}
	return c, lines
}

func TestRead_ManyObjects_PagesAndNoWrites(t *testing.T) {
	t.Parallel()
	for _, inJSON := range []bool{false, true} {
		s := newServer(t)
		s.json = inJSON
		for i := range 1203 {
			s.lists[pathSlices] = append(s.lists[pathSlices], published(i, driver), published(i, "nic.example.com"))
			s.lists[pathNodes] = append(s.lists[pathNodes], &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("n", i)}})
			s.lists[pathClaims] = append(s.lists[pathClaims], use("ml", fmt.Sprintf("c%04d", i), i))
		}
		s.lists[pathClasses] = []runtime.Object{&resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}}}
		c, missing := read(t, s, options)
		assert.Empty(t, missing)
		assert.Len(t, c.Nodes, 1203)
		assert.Len(t, c.Claims, 1203)
		assert.NotNil(t, c.Classes["gpu"])
		p := c.FindNode("n77").Pools
		require.Len(t, p, 1)
		require.Len(t, p[0].Uses, 1)
		assert.Equal(t, "c0077", p[0].Uses[0].Claim.Name)
		assert.Equal(t, "GPU-77", *p[0].Slices()[0].Spec.Devices[0].Attributes["uuid"].StringValue)
		assert.Equal(t, clusterview.Scope{Nodes: true, TaintRules: true, Read: c.Scope.Read}, c.Scope)
		assert.WithinRange(t, c.Scope.Read, time.Now().Add(-time.Hour), time.Now().Add(time.Hour))
		for path, pages := range map[string]int{pathSlices: 3, pathNodes: 3, pathClaims: 3, pathClasses: 1, pathRules: 1, pathPods: 1} {
			assert.Len(t, s.asked("GET "+path), pages, path)
		}
		assert.Len(t, s.requests, 12)
		c, _ = read(t, s, Options{Driver: driver, AllDrivers: true})
		assert.Len(t, c.FindNode("n77").Pools, 2)
	}
}

func TestRead_RoleView_OwnNamespaceAndMissingRights(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	for _, path := range []string{pathSlices, pathClaims, pathPods, pathNodes, pathRules, pathClasses} {
		s.deny[path] = true
	}
	s.lists["/apis/resource.k8s.io/v1/namespaces/team/resourceclaims"] = []runtime.Object{use("team", "c", 1)}
	s.lists["/api/v1/namespaces/team/pods"] = nil
	c, missing := read(t, s, Options{Driver: driver, AllPods: true})
	assert.Equal(t, []string{
		"Missing right: list deviceclasses.resource.k8s.io; the chart's ClusterRole *-gpus-view contains it",
		"Missing right: list devicetaintrules.resource.k8s.io; the chart's ClusterRole *-gpus-view contains it",
		"Missing right: list nodes; the chart's ClusterRole *-gpus-view contains it",
		"Missing right: list resourceclaims.resource.k8s.io in all namespaces; the chart's ClusterRole *-gpus-view-all contains it",
		"Missing right: list resourceslices.resource.k8s.io; the chart's ClusterRole *-gpus-view contains it",
	}, missing)
	assert.Equal(t, clusterview.Scope{Namespace: "team", Read: c.Scope.Read}, c.Scope)
	assert.NotNil(t, c.FindClaim("team", "c"))

	delete(s.deny, pathClaims)
	c, missing = read(t, s, Options{Driver: driver, AllPods: true})
	assert.Contains(t, missing, "Missing right: list pods in all namespaces; the chart's ClusterRole *-gpus-view-all contains it")
	assert.Empty(t, c.Scope.Namespace, "claims of all namespaces were read")
	assert.False(t, c.Scope.AllPods)

	s.deny["/apis/resource.k8s.io/v1/namespaces/other/resourceclaims"], s.deny[pathClaims] = true, true
	c, missing = read(t, s, Options{Driver: driver, Namespace: "other"})
	assert.Contains(t, missing, "Missing right: list resourceclaims.resource.k8s.io in namespace other; ClusterRole view contains it")
	assert.Equal(t, "other", c.Scope.Namespace)
}

func TestRead_TaintRules_NewestVersionOfTheServer(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"v1", "v1beta2", "v1alpha3", ""} {
		for _, inJSON := range []bool{false, true} {
			s := newServer(t)
			s.json = inJSON
			delete(s.lists, pathRules)
			s.lists[pathSlices] = []runtime.Object{published(1, driver)}
			s.lists["/apis/resource.k8s.io/"+version+"/devicetaintrules"] = []runtime.Object{&resourceapi.DeviceTaintRule{
				ObjectMeta: metav1.ObjectMeta{Name: "r"}, Spec: resourceapi.DeviceTaintRuleSpec{
					DeviceSelector: &resourceapi.DeviceTaintSelector{Pool: new("n1")}, Taint: resourceapi.DeviceTaint{Key: "k", Effect: "NoSchedule"},
				},
			}}
			c, missing := read(t, s, options)
			assert.Empty(t, missing)
			assert.Equal(t, version != "", c.Scope.TaintRules)
			assert.Equal(t, version != "", len(c.FindNode("n1").Pools[0].Slices()[0].Spec.Devices[0].Taints) == 1, version)
		}
	}
}

func TestRead_NewPoolMeanwhile_ReadOnceMore(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.lists[pathSlices] = []runtime.Object{published(1, driver), published(9, driver)}
	s.lists[pathClaims] = []runtime.Object{use("ml", "new", 2)}
	s.each = func(request string) {
		if request == "GET "+pathClaims {
			s.mu.Lock()
			s.lists[pathSlices] = []runtime.Object{published(1, driver), published(2, driver)}
			s.mu.Unlock()
		}
	}
	c, _ := read(t, s, options)
	assert.Len(t, s.asked("GET "+pathSlices), 2)
	assert.False(t, c.Scope.Changed)
	assert.NotNil(t, c.FindNode("n2"))
	assert.Nil(t, c.FindNode("n9"), "its pool was deleted")

	s.lists[pathClaims] = []runtime.Object{use("ml", "newest", 3)}
	c, _ = read(t, s, options)
	assert.Len(t, s.asked("GET "+pathSlices), 4)
	assert.True(t, c.Scope.Changed)

	old := use("ml", "old", 3) // its node lost its ResourceSlices long after the allocation
	old.Status.Allocation.AllocationTimestamp = new(metav1.NewTime(time.Now().Add(-time.Hour)))
	s.lists[pathClaims] = []runtime.Object{old}
	c, _ = read(t, s, options)
	assert.Len(t, s.asked("GET "+pathSlices), 5)
	assert.False(t, c.Scope.Changed)
}

func TestRead_PagesExpire_ListBeginsAgain(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.expire = 2
	for i := range 501 {
		s.lists[pathSlices] = append(s.lists[pathSlices], published(i, driver))
	}
	c, _ := read(t, s, options)
	assert.Len(t, c.Nodes, 501)
	assert.Len(t, s.asked("GET "+pathSlices), 6)

	pages := 0
	s.expire = 1
	s.each = func(request string) {
		if request == "GET "+pathSlices {
			if pages++; pages == 3 { // the first page again
				s.mu.Lock()
				s.lists[pathSlices] = s.lists[pathSlices][1:]
				s.mu.Unlock()
			}
		}
	}
	c, _ = read(t, s, options)
	assert.Nil(t, c.FindNode("n0"), "it was deleted after its page expired")
	assert.Len(t, c.Nodes, 500)

	s.each, s.expire = nil, 3
	s.lists[pathSlices] = append(s.lists[pathSlices], published(0, driver))
	_, _, err := Read(t.Context(), s.client(t), options)
	assert.ErrorContains(t, err, "listing resourceslices.resource.k8s.io: Expired")
}

func TestRead_Pods_OnlyWithDevices(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	template := "/apis/resource.k8s.io/v1/namespaces/ml/resourceclaimtemplates"
	s.lists[template] = []runtime.Object{&resourceapi.ResourceClaimTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "ml", Name: "exists"}}}
	pod := func(name string, change func(*corev1.Pod)) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ml", Name: name}}
		change(p)
		return p
	}
	claims := func(templates ...string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			for i, name := range templates {
				p.Spec.ResourceClaims = append(p.Spec.ResourceClaims, corev1.PodResourceClaim{Name: fmt.Sprint("c", i), ResourceClaimTemplateName: &name})
			}
		}
	}
	s.lists[pathPods] = []runtime.Object{
		pod("plain", func(*corev1.Pod) {}),
		pod("ended", func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }),
		pod("template", claims("exists", "missing")),
		pod("made", func(p *corev1.Pod) {
			claims("unread")(p)
			p.Status.ResourceClaimStatuses = []corev1.PodResourceClaimStatus{{Name: "c0", ResourceClaimName: new("made-1")}}
		}),
		pod("extended", func(p *corev1.Pod) {
			p.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"nvidia.com/gpu": {}}}}}
		}),
	}
	names := func(c *clusterview.Cluster) string {
		var all []string
		for _, p := range c.Pods {
			all = append(all, p.Name)
		}
		return strings.Join(all, " ")
	}
	c, _ := read(t, s, options)
	assert.Equal(t, "extended made template", names(c))
	assert.Len(t, c.Templates, 2)
	assert.NotNil(t, c.Templates[types.NamespacedName{Namespace: "ml", Name: "exists"}])
	c, missing := read(t, s, Options{Driver: driver, AllPods: true})
	assert.Equal(t, "extended made plain template", names(c))
	assert.True(t, c.Scope.AllPods)
	assert.Empty(t, missing)

	s.deny[template+"/exists"], s.deny[template+"/missing"] = true, true
	c, missing = read(t, s, options)
	assert.Equal(t, []string{"Missing right: get resourceclaimtemplates.resource.k8s.io in namespace ml; the chart's ClusterRole *-gpus-view-all contains it"}, missing)
	assert.Empty(t, c.Templates)
	c, _ = read(t, s, Options{Driver: driver})
	assert.Empty(t, c.Pods)
}

func TestRead_NodeSelector_OtherNodesLeftOut(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.lists[pathSlices] = []runtime.Object{published(1, driver), published(2, driver)}
	s.lists[pathNodes] = []runtime.Object{&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n2"}}}
	c, _ := read(t, s, Options{Driver: driver, NodeSelector: "pool=a"})
	require.Len(t, c.Nodes, 1)
	assert.Equal(t, "n2", c.Nodes[0].Name)
	assert.Contains(t, s.asked("GET " + pathNodes)[0], "labelSelector=pool%3Da")
}

// TestRead_Node_OnlyItsResourceSlices: pools of other nodes are not missing.
func TestRead_Node_OnlyItsResourceSlices(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.lists[pathSlices] = []runtime.Object{published(1, driver), published(2, driver)}
	s.lists[pathNodes] = []runtime.Object{&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n2"}}}
	claim := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ml", Name: "other"}}
	claim.Status.Allocation = &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{Results: []resourceapi.DeviceRequestAllocationResult{
		{Request: "gpu", Driver: driver, Pool: "n1", Device: "d"},
	}}}
	s.lists[pathClaims] = []runtime.Object{claim}
	c, _ := read(t, s, Options{Driver: driver, Node: "n2"})
	assert.Empty(t, c.FindNode("n1").Pools)
	assert.NotEmpty(t, c.FindNode("n2").Pools)
	assert.False(t, c.Scope.Changed)
	assert.Len(t, s.asked("GET "+pathSlices), 1)
}

func TestRead_ServerFails_OneSentence(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	delete(s.lists, pathSlices)
	_, _, err := Read(t.Context(), s.client(t), options)
	assert.EqualError(t, err, "listing resourceslices.resource.k8s.io: NotFound")
}

// TestRead_ManyTemplates_FewRequests: pods may name any number of templates that do not exist.
func TestRead_ManyTemplates_FewRequests(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	for i := range 500 {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ml", Name: fmt.Sprint("pod-", i)}}
		p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimTemplateName: new(fmt.Sprint("missing-", i))}}
		s.lists[pathPods] = append(s.lists[pathPods], p)
	}
	c, _ := read(t, s, options)
	assert.Len(t, c.Pods, 500)
	assert.Len(t, c.Templates, templatesAtOnce)
}

// waitingFor returns a pod whose claim is not created yet from a template.
func waitingFor(namespace, template string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: template}}
	p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimTemplateName: &template}}
	return p
}

func TestReadTemplates_Again_OnlyTheMissing(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	path := "/apis/resource.k8s.io/v1/namespaces/ml/resourceclaimtemplates"
	s.lists[path] = []runtime.Object{&resourceapi.ResourceClaimTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "ml", Name: "exists"}}}
	s.lists[pathPods] = []runtime.Object{waitingFor("ml", "exists"), waitingFor("ml", "missing")}
	r := newReader(s.client(t), options)
	require.NoError(t, r.read(t.Context()))
	require.NoError(t, r.readTemplates(t.Context()))
	assert.Len(t, s.asked("GET "+path+"/exists"), 1)
	assert.Len(t, s.asked("GET "+path+"/missing"), 2)
}

func TestReadTemplates_ManyMissingInAnotherNamespace_OthersReadToo(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	for i := range templatesAtOnce {
		s.lists[pathPods] = append(s.lists[pathPods], waitingFor("aaa", fmt.Sprint("missing-", i)))
	}
	s.lists[pathPods] = append(s.lists[pathPods], waitingFor("team", "own"), waitingFor("zzz", "other"))
	r := newReader(s.client(t), options)
	require.NoError(t, r.read(t.Context()))
	path := "/apis/resource.k8s.io/v1/namespaces/%s/resourceclaimtemplates/%s"
	assert.Len(t, s.asked("GET "+fmt.Sprintf(path, "team", "own")), 1, "first the user's namespace")
	require.NoError(t, r.readTemplates(t.Context()))
	assert.Len(t, s.asked("GET "+fmt.Sprintf(path, "zzz", "other")), 1, "then the others, before the missing again")
}
