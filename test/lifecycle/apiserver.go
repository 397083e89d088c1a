package lifecycle

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/plugin/kube"
	"github.com/prism-gpu/prism/pkg/plugin/publish"
)

// cluster is the state of the API server that concerns one node. It is stored in a file, so that it survives processes and power cuts.
type cluster struct {
	// Config is the node's configuration.
	Config string
	// Published are the published devices by place.
	Published map[string]*publication
	// GPUs lists the whole-GPU devices of the node's GPUs at that time.
	GPUs []string
	// Allocated are the places of allocated devices by claim UID.
	Allocated map[string][]string
	// Broken is the invariant that a publication has violated; empty: none.
	Broken string
	// Annotations are the annotations of the Node for maintenance.
	Annotations map[string]string `json:",omitempty"`
	// Boot is the boot of the last publication.
	Boot string `json:",omitempty"`
}

// publication describes the last publication of a device.
type publication struct {
	// Is identifies the device that claims get, without taints. Several claims may share it.
	Is      uint64
	Several bool `json:",omitempty"`
	// Leaving is set from the time at which it is tainted, by the clock of the leading process; Seen: the taint was visible long enough for
	// one process.
	Leaving bool `json:",omitempty"`
	Seen    bool `json:",omitempty"`
	Since   time.Time
	// Taints are the times since which it has taints with a time, by key, value and effect.
	Taints map[string]time.Time `json:",omitempty"`
}

// taintTime is how long a taint must be visible before the device may be removed.
const taintTime = 5 * time.Second

// place identifies a device of a pool.
func place(pool, device string) string { return pool + " " + device }

func (m *Machine) clusterFile() string { return filepath.Join(m.dir(), "cluster") }

// cluster reads the state of the API server.
func (m *Machine) cluster() (*cluster, error) {
	c := &cluster{Published: map[string]*publication{}, Allocated: map[string][]string{}}
	raw, err := os.ReadFile(m.clusterFile())
	if errors.Is(err, fs.ErrNotExist) {
		return c, nil
	}
	if err == nil {
		err = json.Unmarshal(raw, c)
	}
	return c, err
}

// clusterState returns the state of the API server as text; empty if layouts do not change.
func (m *Machine) clusterState() (string, error) {
	if !m.layoutChanges {
		return "", nil
	}
	raw, err := os.ReadFile(m.clusterFile())
	return string(raw), err
}

// setClusterState sets the state of the API server.
func (m *Machine) setClusterState(text string) error {
	if text == "" {
		return nil
	}
	return os.WriteFile(m.clusterFile(), []byte(text), 0o600)
}

// updateCluster changes the state of the API server.
func (m *Machine) updateCluster(how func(*cluster)) error {
	m.clusterMu.Lock()
	defer m.clusterMu.Unlock()
	c, err := m.cluster()
	if err != nil {
		return err
	}
	how(c)
	raw, err := json.Marshal(c)
	if err != nil {
		return err
	}
	next := m.clusterFile() + ".next" // readers always find a whole file
	if err := os.WriteFile(next, raw, 0o600); err != nil {
		return err
	}
	return os.Rename(next, m.clusterFile())
}

// leads records that another process publishes, which does not know how old the taints are.
func (c *cluster) leads(now time.Time) {
	for _, d := range c.Published {
		d.Since = now
	}
}

// unsaved records that the layout could not be saved, so that the next process does not know it and may remove it at once.
func (c *cluster) unsaved() {
	for _, d := range c.Published {
		d.Seen = true
	}
}

// age records which taints were visible long enough.
func (c *cluster) age(now time.Time) {
	for _, d := range c.Published {
		d.Seen = d.Leaving && (d.Seen || now.Sub(d.Since) >= taintTime)
	}
}

// publish stores a node's ResourceSlices. A device that is removed or changed must have been tainted before and must not be allocated.
func (c *cluster) publish(resources resourceslice.DriverResources, node *gpu.Node, now time.Time) {
	c.GPUs = nil
	for _, d := range node.Devices() {
		c.GPUs = append(c.GPUs, string(d.Name()))
	}
	next := map[string]*publication{}
	for pool, p := range resources.Pools {
		for _, slice := range p.Slices {
			for i := range slice.Devices {
				next[place(pool, slice.Devices[i].Name)] = published(slice.Devices[i], now)
			}
		}
	}
	before := c.Published
	c.Published = next
	for at, was := range before {
		is := next[at]
		switch {
		case !c.sees(at):
		case is == nil || is.Is != was.Is:
			c.checkRemoval(at, was)
		case is.Leaving && was.Leaving:
			is.Since, is.Seen = was.Since, was.Seen
		}
	}
}

// sees reports whether the node published the GPU of a device last time: it omits a GPU that does not respond.
func (c *cluster) sees(at string) bool {
	_, device, _ := strings.Cut(at, " ")
	return slices.ContainsFunc(c.GPUs, func(whole string) bool { return device == whole || strings.HasPrefix(device, whole+"-") })
}

// published returns the publication of a device.
func published(d resourceapi.Device, now time.Time) *publication {
	p := &publication{Since: now, Several: d.AllowMultipleAllocations != nil && *d.AllowMultipleAllocations}
	p.Leaving = slices.ContainsFunc(d.Taints, func(t resourceapi.DeviceTaint) bool { return t.Key == DriverName+"/"+publish.DrainingTaint })
	for _, t := range d.Taints {
		if t.TimeAdded != nil && p.Taints == nil {
			p.Taints = map[string]time.Time{}
		}
		if t.TimeAdded != nil {
			p.Taints[fmt.Sprintf("%s=%s:%s", t.Key, t.Value, t.Effect)] = t.TimeAdded.UTC()
		}
	}
	d.Taints = nil
	sum := fnv.New64()
	_ = json.NewEncoder(sum).Encode(d) // the types can be encoded, and a hash accepts all data
	p.Is = sum.Sum64()
	return p
}

// checkRemoval records the invariant that the removal of a device violates.
func (c *cluster) checkRemoval(at string, was *publication) {
	if !was.Seen {
		c.Broken = fmt.Sprintf("%s was removed, and was not tainted for %s before", at, taintTime)
	}
	for uid, places := range c.Allocated {
		if slices.Contains(places, at) {
			c.Broken = fmt.Sprintf("%s was removed while claim %s used it", at, uid)
		}
	}
}

// errPending is the error of a claim that cannot be allocated.
var errPending = errors.New("no node publishes the devices")

// schedule allocates the devices of the act from the pools that publish them, unless they are tainted.
func (c *cluster) schedule(rc *resourceapi.ResourceClaim) error {
	uid := string(rc.UID)
	results := rc.Status.Allocation.Devices.Results
	places := c.Allocated[uid]
	if len(places) != len(results) {
		places = nil
		for i := range results {
			at, ok := c.free(results[i].Device)
			if !ok {
				return fmt.Errorf("claim %s requests %s: %w", uid, results[i].Device, errPending)
			}
			places = append(places, at)
		}
		c.Allocated[uid] = places
	}
	for i, at := range places {
		results[i].Pool, results[i].Device, _ = strings.Cut(at, " ")
	}
	return nil
}

// free returns the place of a device that can be allocated.
func (c *cluster) free(device string) (at string, ok bool) {
	for at, d := range c.Published {
		if strings.HasSuffix(at, " "+device) && !d.Leaving && (d.Several || !c.isAllocated(at)) {
			return at, true
		}
	}
	return "", false
}

// isAllocated reports whether the device at that place is allocated.
func (c *cluster) isAllocated(at string) bool {
	for _, places := range c.Allocated {
		if slices.Contains(places, at) {
			return true
		}
	}
	return false
}

// allocateFor returns the claim of an act with its devices. If layouts change, the claim keeps its first allocation. A stale claim is
// allocated a device that the node does not advertise.
func (m *Machine) allocateFor(act Act) (*resourceapi.ResourceClaim, error) {
	rc := m.claim(act)
	if !m.layoutChanges || act.Stale {
		return rc, nil
	}
	var pending error
	err := m.updateCluster(func(c *cluster) { pending = c.schedule(rc) })
	return rc, errors.Join(err, pending)
}

// unprepareAndDelete deallocates a claim after unpreparing it.
func (m *Machine) unprepareAndDelete(ctx context.Context, p *Process, uid string) error {
	m.parts.mps.containersExit(uid)
	if err := p.Unprepare(ctx, uid); err != nil || !m.layoutChanges {
		return err
	}
	return m.updateCluster(func(c *cluster) { delete(c.Allocated, uid) })
}

// taints lists the published devices and whether each is tainted.
func (m *Machine) taints() (map[gpu.PoolDevice]bool, error) {
	c, err := m.cluster()
	tainted := map[gpu.PoolDevice]bool{}
	for at, d := range c.Published {
		pool, device, _ := strings.Cut(at, " ")
		tainted[gpu.PoolDevice{Pool: pool, Device: gpu.DeviceName(device)}] = d.Leaving
	}
	return tainted, err
}

// allocated returns which of these devices are allocated.
func (m *Machine) allocated(now time.Time, asked map[gpu.PoolDevice]bool) (*kube.AllocatedPage, error) {
	had := map[gpu.PoolDevice]bool{}
	err := m.updateCluster(func(c *cluster) {
		c.age(now)
		for _, places := range c.Allocated {
			for _, at := range places {
				pool, device, _ := strings.Cut(at, " ")
				if place := (gpu.PoolDevice{Pool: pool, Device: gpu.DeviceName(device)}); asked[place] {
					had[place] = true
				}
			}
		}
	})
	return &kube.AllocatedPage{Devices: had}, err
}
