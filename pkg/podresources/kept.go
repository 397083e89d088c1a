package podresources

import (
	"cmp"
	"maps"
	"slices"
	"strings"
)

// MaxContainers limits the containers with devices of the driver that Containers returns: 32 in each of 256 pods. They take at most 24 MiB.
const MaxContainers = 8192

// kept collects claims and, for some of them, their containers.
type kept struct {
	claims map[claimKey]*claim
	// bound limits the containers that are kept, most the containers of one claim; total is their present number.
	bound, most, total int
	dropped            int
	// set is reused memory for the key of a set.
	set []byte
}

type claimKey struct{ namespace, name string }

// claim holds the sets of a claim's devices that containers use: all devices, or the devices of the requests that they name. A claim that
// was recreated with the same name has other CDI devices, and so another set.
type claim struct {
	claimKey

	sets map[string]*devices
	at   []place
}

type devices struct {
	cdi  []string
	ours []Device
}

// place is a container of the claim's namespace.
type place struct {
	pod, container string
	has            *devices
}

func newKept(bound int) *kept { return &kept{claims: map[claimKey]*claim{}, bound: bound, most: bound} }

// claim returns the claim of an entry.
func (k *kept) claim(e *entry) *claim {
	c := k.claims[claimKey{string(e.namespace), string(e.claim)}]
	if c == nil {
		c = &claim{claimKey: claimKey{string(e.namespace), string(e.claim)}, sets: map[string]*devices{}}
		k.claims[c.claimKey] = c
	}
	return c
}

// find returns the set of devices of an entry, or nil if it is a new set of the claim.
func (k *kept) find(c *claim, e *entry) *devices {
	k.set = k.set[:0]
	for _, name := range e.cdi {
		k.set = append(append(k.set, name...), 0)
	}
	for _, d := range e.devices {
		for _, text := range []string{d.Pool, d.Device, d.ShareID} {
			k.set = append(append(k.set, text...), 0)
		}
	}
	return c.sets[string(k.set)]
}

// container keeps the container of an entry, once for each set of devices.
func (k *kept) container(e *entry) {
	c := k.claim(e)
	has := k.find(c, e)
	if has != nil && c.lists(e, has) {
		return
	}
	if len(c.at) >= k.most {
		k.dropped++
		return
	}
	if has == nil {
		has = &devices{cdi: unique(e.cdi), ours: unique(e.devices)}
		c.sets[string(k.set)] = has
	}
	at := place{pod: string(e.pod), container: string(e.container), has: has}
	if n := len(c.at); n > 0 && c.at[n-1].pod == at.pod {
		at.pod = c.at[n-1].pod // the containers of a pod share one copy
	}
	c.at = append(c.at, at)
	for k.total++; k.total > k.bound && k.most > 1; {
		k.halve()
	}
}

// union adds the CDI devices of an entry to the devices of the claim's other containers, each as a set of its own; "" stands for an entry
// without CDI devices.
func (k *kept) union(e *entry) {
	c := k.claim(e)
	for _, name := range e.cdi {
		c.sets[name] = nil
	}
	if len(e.cdi) == 0 {
		c.sets[""] = nil
	}
}

// lists reports whether the container of an entry is already kept with these devices. The kubelet lists the claims of a container
// consecutively.
func (c *claim) lists(e *entry, has *devices) bool {
	for _, at := range slices.Backward(c.at) {
		if at.pod != string(e.pod) || at.container != string(e.container) {
			return false
		}
		if at.has == has {
			return true
		}
	}
	return false
}

// halve halves the limit of containers for each claim, so that claims of one tenant do not displace all others.
func (k *kept) halve() {
	k.most, k.total = k.most/2, 0
	for _, c := range k.claims {
		if over := len(c.at) - k.most; over > 0 {
			k.dropped += over
			c.at = slices.Clone(c.at[:k.most])
			maps.DeleteFunc(c.sets, func(_ string, has *devices) bool {
				return !slices.ContainsFunc(c.at, func(at place) bool { return at.has == has })
			})
		}
		k.total += len(c.at)
	}
}

// uses lists the containers in the order of their claims.
func (k *kept) uses() []Use {
	all := make([]Use, 0, k.total)
	for _, c := range k.sorted() {
		for _, at := range c.at {
			all = append(all, Use{
				Namespace: c.namespace, Claim: c.name, Pod: at.pod, Container: at.container, CDIDevices: at.has.cdi, Devices: at.has.ours,
			})
		}
	}
	return all
}

func (k *kept) sorted() []*claim {
	return slices.SortedFunc(maps.Values(k.claims), func(a, b *claim) int {
		return cmp.Or(strings.Compare(a.namespace, b.namespace), strings.Compare(a.name, b.name))
	})
}

// unique removes repeated elements; the order stays.
func unique[T comparable](all []T) []T {
	var once []T
	for _, one := range all {
		if !slices.Contains(once, one) {
			once = append(once, one)
		}
	}
	return once
}
