package ui

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/prism-gpu/prism/pkg/cli/clusterview"
	"github.com/prism-gpu/prism/pkg/cli/explain"
	"github.com/prism-gpu/prism/pkg/maintenance"
)

// About describes the source of a picture.
type About struct {
	// Driver is the name of the DRA driver, Source the name of the cluster as the user knows it.
	Driver, Source string
	// Time is the time of the picture.
	Time time.Time
	// Missing are sentences about rights that the user lacks.
	Missing []string
}

// State is a picture as the page reads it. Sizes are in bytes, times in Unix seconds.
type State struct {
	Meta  Meta   `json:"meta"`
	Nodes []Node `json:"nodes"`
	Pods  []Pod  `json:"pods"`
	Loads *Loads `json:"loads,omitempty"`
}

// Loads are how busy GPUs are, by UUID.
type Loads struct {
	GPUs map[string]Load `json:"gpus,omitempty"`
	// Problem says why they are unknown.
	Problem string `json:"problem,omitempty"`
}

// Load is how busy a GPU is.
type Load struct {
	// Utilization is 1 for a GPU that works all the time; nil if unknown.
	Utilization *float64 `json:"utilization,omitempty"`
	// Memory is the memory in use, in bytes, Power in watts; 0 if unknown.
	Memory float64 `json:"memory,omitempty"`
	Power  float64 `json:"power,omitempty"`
}

// Meta describes the picture.
type Meta struct {
	Driver string `json:"driver"`
	Source string `json:"source,omitempty"`
	Time   int64  `json:"time"`
	// Namespace is the only namespace whose claims and pods were read; "" for all.
	Namespace string   `json:"namespace,omitempty"`
	Missing   []string `json:"missing,omitempty"`
}

// Node is a node with GPUs of the driver, or with pools of it that the scheduler does not use.
type Node struct {
	Name     string `json:"name"`
	Cordoned bool   `json:"cordoned,omitempty"`
	// Problems are sentences about incomplete and invalid pools.
	Problems []string `json:"problems,omitempty"`
	GPUs     []GPU    `json:"gpus"`
}

// GPU is a physical GPU.
type GPU struct {
	Name          string `json:"name"`
	UUID          string `json:"uuid,omitempty"`
	Index         *int64 `json:"index,omitempty"`
	Product       string `json:"product"`
	DriverVersion string `json:"driverVersion,omitempty"`
	Memory        int64  `json:"memory"`
	Free          int64  `json:"free"`
	// Slices is the number of memory slices of a GPU that can be partitioned.
	Slices   int            `json:"slices,omitempty"`
	Devices  map[string]int `json:"devices,omitempty"`
	Profiles map[string]int `json:"profiles,omitempty"`
	Parts    []Part         `json:"parts,omitempty"`
	Taints   []Taint        `json:"taints,omitempty"`
	// Maintenance is the reason of an administrator.
	Maintenance string `json:"maintenance,omitempty"`
}

// Part is a device of a GPU that is allocated.
type Part struct {
	Device string `json:"device"`
	// Type is the attribute "type" of the device: gpu, mig, mps, timeslice, perfmon.
	Type    string `json:"type"`
	Profile string `json:"profile,omitempty"`
	Start   int    `json:"start"`
	Size    int    `json:"size,omitempty"`
	Memory  int64  `json:"memory,omitempty"`
	Uses    []Use  `json:"uses"`
}

// Use is the allocation of a device, or of a share of it, to a claim.
type Use struct {
	Namespace string   `json:"namespace"`
	Claim     string   `json:"claim"`
	Class     string   `json:"class,omitempty"`
	Pods      []string `json:"pods,omitempty"`
	// Memory is the memory of a share that states it.
	Memory  int64 `json:"memory,omitempty"`
	Created int64 `json:"created,omitempty"`
}

// Taint is a taint of devices of a GPU.
type Taint struct {
	Text string `json:"text"`
	// Devices and Of are the number of devices with the taint, and of all devices.
	Devices int `json:"devices"`
	Of      int `json:"of"`
}

// Pod is a pod that waits for a node.
type Pod struct {
	Namespace string   `json:"namespace"`
	Name      string   `json:"name"`
	Created   int64    `json:"created,omitempty"`
	Requests  []string `json:"requests,omitempty"`
	Classes   []string `json:"classes,omitempty"`
	// Explanation is set in a saved page alone.
	Explanation *explain.Explanation `json:"explanation,omitempty"`
}

// stateOf returns the picture of a cluster as the page reads it.
func stateOf(cluster *clusterview.Cluster, about About) *State {
	s := &State{
		Meta: Meta{
			Driver: about.Driver, Source: about.Source, Time: about.Time.Unix(), Namespace: cluster.Scope.Namespace, Missing: about.Missing,
		},
		Nodes: nodesOf(cluster, about.Driver),
		Pods:  []Pod{},
	}
	for _, pod := range Waiting(cluster) {
		s.Pods = append(s.Pods, podOf(cluster, pod))
	}
	return s
}

// Waiting returns the pods that wait for a node and request devices, by namespace and name.
func Waiting(cluster *clusterview.Cluster) (all []*clusterview.Pod) {
	for _, pod := range cluster.Pods {
		if waits(pod.Pod) && (len(pod.Spec.ResourceClaims) > 0 || len(pod.Claims) > 0 || len(extended(cluster, pod.Pod)) > 0) {
			all = append(all, pod)
		}
	}
	return all
}

// nodesOf returns the nodes with GPUs or pools of the driver, by name.
func nodesOf(cluster *clusterview.Cluster, driver string) []Node {
	gpus := map[*clusterview.Node][]GPU{}
	for _, gpu := range cluster.GPUs(driver) {
		gpus[gpu.Node] = append(gpus[gpu.Node], gpuOf(gpu, driver))
	}
	all := []Node{}
	for _, node := range cluster.Nodes {
		n := Node{Name: node.Name, Problems: problems(node, driver), GPUs: gpus[node]}
		if len(n.GPUs) == 0 && len(n.Problems) == 0 {
			continue
		}
		if n.GPUs == nil {
			n.GPUs = []GPU{}
		}
		n.Cordoned = node.Object != nil && node.Object.Spec.Unschedulable
		all = append(all, n)
	}
	return all
}

// problems lists the pools of the driver that the scheduler does not use.
func problems(node *clusterview.Node, driver string) (all []string) {
	for _, pool := range node.Pools {
		if pool.Driver == driver && pool.State != clusterview.PoolComplete {
			all = append(all, "pool "+pool.Name+" is "+strings.ToLower(string(pool.State))+": "+pool.Problem)
		}
	}
	return all
}

func gpuOf(gpu *clusterview.GPU, driver string) GPU {
	g := GPU{
		Name: gpu.Name, UUID: gpu.UUID, Index: gpu.Index, Product: gpu.Product, DriverVersion: gpu.DriverVersion,
		Memory: gpu.Memory, Free: gpu.Free, Slices: gpu.MemorySlices, Devices: gpu.Devices, Profiles: gpu.Profiles,
	}
	total := 0
	for _, n := range gpu.Devices {
		total += n
	}
	for _, t := range gpu.Taints {
		text := strings.TrimPrefix(t.Key, driver+"/")
		if t.Value != "" {
			text += "=" + t.Value
		}
		g.Taints = append(g.Taints, Taint{Text: text + ":" + t.Effect, Devices: t.Devices, Of: total})
	}
	if gpu.Node != nil && gpu.Node.Object != nil {
		annotations := gpu.Node.Object.Annotations
		g.Maintenance = cmp.Or(annotations[maintenance.Key(maintenance.Maintain, driver, gpu.Name)],
			annotations[maintenance.Key(maintenance.Maintain, driver, maintenance.All)])
	}
	for i := range gpu.Parts {
		g.Parts = append(g.Parts, partOf(&gpu.Parts[i]))
	}
	return g
}

func partOf(part *clusterview.Part) Part {
	p := Part{
		Device: part.Device, Type: part.Type, Profile: part.Profile, Start: part.Start, Size: part.Size, Memory: part.Memory, Uses: []Use{},
	}
	for _, use := range part.Uses {
		u := Use{Namespace: use.Claim.Namespace, Claim: use.Claim.Name, Class: classOf(use.Claim, use.Result.Request)}
		if !use.Claim.CreationTimestamp.IsZero() {
			u.Created = use.Claim.CreationTimestamp.Unix()
		}
		for _, pod := range use.Claim.Pods {
			u.Pods = append(u.Pods, pod.Name)
		}
		if memory, found := use.Result.ConsumedCapacity["memory"]; found {
			u.Memory = memory.Value()
		}
		p.Uses = append(p.Uses, u)
	}
	return p
}

// classOf returns the class of a request, or of a subrequest "request/subrequest".
func classOf(claim *clusterview.Claim, request string) string {
	name, subrequest, _ := strings.Cut(request, "/")
	for _, r := range claim.Spec.Devices.Requests {
		switch {
		case r.Name != name:
		case r.Exactly != nil:
			return r.Exactly.DeviceClassName
		default:
			for _, s := range r.FirstAvailable {
				if s.Name == subrequest {
					return s.DeviceClassName
				}
			}
		}
	}
	return ""
}

// waits reports whether the pod waits for a node.
func waits(pod *corev1.Pod) bool {
	ended := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
	return pod.Spec.NodeName == "" && pod.DeletionTimestamp == nil && !ended
}

// extended are the resources of the pod that stand for devices: of classes, or of NVIDIA's device plugin.
func extended(cluster *clusterview.Cluster, pod *corev1.Pod) map[string]int64 {
	all := map[string]int64{}
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		for name, quantity := range c.Resources.Requests {
			if number := quantity.Value(); number > 0 && isDevice(cluster, string(name)) {
				all[string(name)] += number
			}
		}
	}
	return all
}

func isDevice(cluster *clusterview.Cluster, resource string) bool {
	if strings.HasPrefix(resource, "nvidia.com/") || strings.HasPrefix(resource, resourceapi.ResourceDeviceClassPrefix) {
		return true
	}
	for _, class := range cluster.Classes {
		if class.Spec.ExtendedResourceName != nil && *class.Spec.ExtendedResourceName == resource {
			return true
		}
	}
	return false
}

func podOf(cluster *clusterview.Cluster, pod *clusterview.Pod) Pod {
	p := Pod{Namespace: pod.Namespace, Name: pod.Name}
	if !pod.CreationTimestamp.IsZero() {
		p.Created = pod.CreationTimestamp.Unix()
	}
	for _, spec := range specs(cluster, pod) {
		for _, request := range spec.Devices.Requests {
			text, classes := requestOf(request)
			p.Requests = append(p.Requests, text)
			p.Classes = append(p.Classes, classes...)
		}
	}
	resources := extended(cluster, pod.Pod)
	for _, name := range slices.Sorted(maps.Keys(resources)) {
		p.Requests = append(p.Requests, strconv.FormatInt(resources[name], 10)+" × "+name)
	}
	slices.Sort(p.Classes)
	p.Classes = slices.Compact(p.Classes)
	return p
}

// specs are the claims of the pod: those that exist, then the templates of the others.
func specs(cluster *clusterview.Cluster, pod *clusterview.Pod) (all []*resourceapi.ResourceClaimSpec) {
	for _, claim := range pod.Claims {
		all = append(all, &claim.Spec)
	}
	if len(all) > 0 {
		return all
	}
	for _, ref := range pod.Spec.ResourceClaims {
		if ref.ResourceClaimTemplateName == nil {
			continue
		}
		for name, template := range cluster.Templates {
			if template != nil && name.Namespace == pod.Namespace && name.Name == *ref.ResourceClaimTemplateName {
				all = append(all, &template.Spec.Spec)
			}
		}
	}
	return all
}

// requestOf describes a request, as in "1 × mig-1g-10gb.gpu.prism.dev", and lists its classes.
func requestOf(request resourceapi.DeviceRequest) (text string, classes []string) {
	if exact := request.Exactly; exact != nil {
		count := "all"
		if exact.AllocationMode != resourceapi.DeviceAllocationModeAll {
			count = strconv.FormatInt(max(1, exact.Count), 10)
		}
		return count + " × " + exact.DeviceClassName, []string{exact.DeviceClassName}
	}
	var parts []string
	for _, s := range request.FirstAvailable {
		parts = append(parts, strconv.FormatInt(max(1, s.Count), 10)+" × "+s.DeviceClassName)
		classes = append(classes, s.DeviceClassName)
	}
	return strings.Join(parts, " or "), classes
}
