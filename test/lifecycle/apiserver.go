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
	"github.com/prism-gpu/prism/pkg/kube"
	"github.com/prism-gpu/prism/pkg/publish"
)

// cluster is what the API server has that concerns one node. It is in a file, as it outlives the node's processes and its power.
type cluster struct {
	// Config is the node's configuration.
	Config string
	// Published are the node's devices, by place.
	Published map[string]*publication
	// GPUs are the names of the whole devices of the GPUs that the node had then.
	GPUs []string
	// Allocated are the places of the devices that claims were given, by the claims' UIDs.
	Allocated map[string][]string
	// Broken says which law was broken by something that was published; empty: none.
	Broken string
}

// publication is a device as it was published last.
type publication struct {
	// Is tells what claims find apart, without taints. Several claims may have it.
	Is      uint64
	Several bool `json:",omitempty"`
	// Leaving: it is tainted, since then by the clock of the process that leads; Seen: for long enough in the life of one process.
	Leaving bool `json:",omitempty"`
	Seen    bool `json:",omitempty"`
	Since   time.Time
}

// taintTime is how long a taint must be seen before what carries it may go.
const taintTime = 5 * time.Second

// place is a device of a pool.
func place(pool, device string) string { return pool + " " + device }

func (m *Machine) clusterFile() string { return filepath.Join(m.dir(), "cluster") }

// cluster reads what the API server has.
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

// tell changes what the API server has.
func (m *Machine) tell(how func(*cluster)) error {
	c, err := m.cluster()
	if err != nil {
		return err
	}
	how(c)
	raw, err := json.Marshal(c)
	if err != nil {
		return err
	}
	return os.WriteFile(m.clusterFile(), raw, 0o600)
}

// leads: a process has become the one that publishes; it knows of no taint how old it is.
func (c *cluster) leads(now time.Time) {
	for _, d := range c.Published {
		d.Since = now
	}
}

// unsaved: what is on offer could not be saved, so the next process knows nothing of it and may withdraw it at once.
func (c *cluster) unsaved() {
	for _, d := range c.Published {
		d.Seen = true
	}
}

// age notes which taints were seen for long enough.
func (c *cluster) age(now time.Time) {
	for _, d := range c.Published {
		d.Seen = d.Leaving && (d.Seen || now.Sub(d.Since) >= taintTime)
	}
}

// publish takes what a node publishes. What goes, or is another device from now on, must have been tainted before, and no claim may
// have it.
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
			c.gone(at, was)
		case is.Leaving && was.Leaving:
			is.Since, is.Seen = was.Since, was.Seen
		}
	}
}

// sees tells whether the node had the GPU of a device when it published last: one whose driver does not answer is not there.
func (c *cluster) sees(at string) bool {
	_, device, _ := strings.Cut(at, " ")
	return slices.ContainsFunc(c.GPUs, func(whole string) bool { return device == whole || strings.HasPrefix(device, whole+"-") })
}

// published is what is remembered of a device.
func published(d resourceapi.Device, now time.Time) *publication {
	p := &publication{Since: now, Several: d.AllowMultipleAllocations != nil && *d.AllowMultipleAllocations}
	p.Leaving = slices.ContainsFunc(d.Taints, func(t resourceapi.DeviceTaint) bool { return t.Key == DriverName+"/"+publish.DrainingTaint })
	d.Taints = nil
	sum := fnv.New64()
	_ = json.NewEncoder(sum).Encode(d) // of types that can be encoded, to what takes all
	p.Is = sum.Sum64()
	return p
}

// gone notes which law was broken when a device went.
func (c *cluster) gone(at string, was *publication) {
	if !was.Seen {
		c.Broken = fmt.Sprintf("%s went, and was not tainted for %s before", at, taintTime)
	}
	for uid, places := range c.Allocated {
		if slices.Contains(places, at) {
			c.Broken = fmt.Sprintf("%s went while claim %s had it", at, uid)
		}
	}
}

// errPending is why a claim stays without devices.
var errPending = errors.New("no node has the devices")

// schedule gives the claim the devices of the act, from the pools in which they are published, as long as they get new claims.
func (c *cluster) schedule(rc *resourceapi.ResourceClaim) error {
	uid := string(rc.UID)
	results := rc.Status.Allocation.Devices.Results
	places := c.Allocated[uid]
	if len(places) != len(results) {
		places = nil
		for i := range results {
			at, ok := c.free(results[i].Device)
			if !ok {
				return fmt.Errorf("claim %s wants %s: %w", uid, results[i].Device, errPending)
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

// free finds the place of a device that can be given to a claim.
func (c *cluster) free(device string) (at string, ok bool) {
	for at, d := range c.Published {
		if strings.HasSuffix(at, " "+device) && !d.Leaving && (d.Several || !c.given(at)) {
			return at, true
		}
	}
	return "", false
}

// given tells whether a claim has what is at that place.
func (c *cluster) given(at string) bool {
	for _, places := range c.Allocated {
		if slices.Contains(places, at) {
			return true
		}
	}
	return false
}

// given is the claim of an act with its devices. On a node whose offering changes it has what it was given first, or is given that
// now. A stale one was given what the node does not offer.
func (m *Machine) given(act Act) (*resourceapi.ResourceClaim, error) {
	rc := m.claim(act)
	if !m.offers || act.Stale {
		return rc, nil
	}
	var pending error
	err := m.tell(func(c *cluster) { pending = c.schedule(rc) })
	return rc, errors.Join(err, pending)
}

// let takes the devices of a claim back once it is unprepared.
func (m *Machine) let(ctx context.Context, p *Process, uid string) error {
	if err := p.Unprepare(ctx, uid); err != nil || !m.offers {
		return err
	}
	return m.tell(func(c *cluster) { delete(c.Allocated, uid) })
}

// taints lists what is published, and of each whether it is tainted.
func (m *Machine) taints() (map[gpu.PoolDevice]bool, error) {
	c, err := m.cluster()
	tainted := map[gpu.PoolDevice]bool{}
	for at, d := range c.Published {
		pool, device, _ := strings.Cut(at, " ")
		tainted[gpu.PoolDevice{Pool: pool, Device: gpu.DeviceName(device)}] = d.Leaving
	}
	return tainted, err
}

// allocated answers which of these devices claims have.
func (m *Machine) allocated(now time.Time, asked map[gpu.PoolDevice]bool) (*kube.AllocatedPage, error) {
	had := map[gpu.PoolDevice]bool{}
	err := m.tell(func(c *cluster) {
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
