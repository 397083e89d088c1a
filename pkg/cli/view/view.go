package view

import (
	"cmp"
	"context"
	"slices"

	"github.com/prism-gpu/prism/pkg/cli/cluster"
	"github.com/prism-gpu/prism/pkg/cli/clusterview"
)

// Options select the objects that are read.
type Options struct {
	// Driver is the driver whose ResourceSlices are read; AllDrivers reads all ResourceSlices.
	Driver     string
	AllDrivers bool
	// Node restricts the ResourceSlices to one node; "" allows all.
	Node string
	// Namespace is the namespace whose claims and pods are read if the user may not list them in all namespaces; "" is the namespace of the
	// kubeconfig.
	Namespace string
	// NodeSelector restricts the nodes by their labels; "" allows all.
	NodeSelector string
	// Pods reads the pods with claims or extended resources, AllPods all that run or wait.
	Pods, AllPods bool
}

// Missing is a right that the user lacks.
type Missing struct {
	// Verb is such as "list", Resource such as "resourceclaims.resource.k8s.io in all namespaces".
	Verb, Resource string
	// Role ends the name of the ClusterRole of the chart that contains the right: "gpus-view" or "gpus-view-all". "view" is the ClusterRole of
	// Kubernetes with this name.
	Role string
}

// String is a line for the user.
func (m Missing) String() string {
	role := "ClusterRole " + m.Role
	if m.Role != roleNamespace {
		role = "the chart's ClusterRole *-" + m.Role
	}
	return "Missing right: " + m.Verb + " " + m.Resource + "; " + role + " contains it"
}

// The roles that contain rights: see Missing.
const (
	roleDevices   = "gpus-view"
	roleAll       = "gpus-view-all"
	roleNamespace = "view"
)

// Read reads a picture. Rights that the user lacks are no error: the picture lacks the objects, and its Scope says so.
func Read(ctx context.Context, client *cluster.Client, o Options) (*clusterview.Cluster, []Missing, error) {
	r := newReader(client, o)
	if err := r.read(ctx); err != nil {
		return nil, nil, err
	}
	c, missing := r.picture()
	return c, missing, nil
}

// read reads all objects, and ResourceSlices again if claims were allocated from newer ones meanwhile.
func (r *reader) read(ctx context.Context) error {
	for _, k := range r.kinds {
		if err := r.list(ctx, k); err != nil {
			return err
		}
	}
	if r.newer() {
		if err := r.list(ctx, r.slices); err != nil {
			return err
		}
		r.scope.Changed = r.newer()
	}
	return r.readTemplates(ctx)
}

// newer reports whether a claim was allocated devices of a pool that appeared after ResourceSlices were read.
func (r *reader) newer() bool {
	if r.slices.version == "" || r.Node != "" {
		return false // the user may not list them, or pools of other nodes are not read
	}
	r.store.SetScope(r.scope)
	c := r.store.Cluster()
	known := map[[2]string]bool{}
	add := func(pools []*clusterview.Pool) {
		for _, p := range pools {
			known[[2]string{p.Driver, p.Name}] = true
		}
	}
	add(c.Shared)
	for _, n := range c.Nodes {
		add(n.Pools)
	}
	for _, claim := range c.Claims {
		allocation := claim.Status.Allocation
		if allocation == nil || allocation.AllocationTimestamp != nil && allocation.AllocationTimestamp.Time.Before(r.slices.began) {
			continue
		}
		for _, result := range allocation.Devices.Results {
			if (r.AllDrivers || result.Driver == r.Driver) && !known[[2]string{result.Driver, result.Pool}] {
				return true
			}
		}
	}
	return false
}

// picture returns the picture of the objects that were read so far.
func (r *reader) picture() (*clusterview.Cluster, []Missing) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.store.SetScope(r.scope)
	c := r.store.Cluster()
	if r.NodeSelector != "" {
		c.Nodes = slices.DeleteFunc(c.Nodes, func(n *clusterview.Node) bool { return n.Object == nil })
	}
	missing := slices.Clone(r.missing)
	slices.SortStableFunc(missing, func(a, b Missing) int { return cmp.Compare(a.Resource, b.Resource) })
	return c, missing
}
