// Package podresources asks the kubelet, through its pod resources API, which containers use which claims.
package podresources

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/prism-gpu/prism/pkg/grpcread"
)

const (
	// quiet is the longest time without data from the kubelet, which only reads its memory. longest limits the time for a whole list of any
	// length.
	quiet, longest = 5 * time.Second, time.Minute
	list           = "/v1.PodResourcesLister/List"
)

// Client calls the pod resources API of a kubelet. Tenants decide the length of its list, so only a bounded part is kept, and the rest is
// read and dropped.
type Client struct {
	// Socket is the path of the kubelet's socket, which each start of the kubelet creates again.
	Socket string
	// CDIKind is the kind of this driver's CDI specs.
	CDIKind string
	// DriverName is the name of this driver; empty if only the CDI names of devices are needed.
	DriverName string
}

// Use is a claim of a container. The kubelet identifies claims by name; their UIDs are in the names of the driver's CDI devices.
type Use struct {
	// Namespace is the namespace of the pod and of the claim.
	Namespace, Pod, Container string
	Claim                     string
	// CDIDevices are the names, in the driver's CDI specs, of the prepared devices.
	CDIDevices []string
	// Devices are the claim's devices of this driver. The kubelet lists all devices of the claim, whichever request of it the container
	// uses.
	Devices []Device
}

// Device is an allocated device. ShareID is empty without a share, or if the kubelet does not support shares yet.
type Device struct{ Pool, Device, ShareID string }

// Containers is the list of containers with prepared devices of the driver.
type Containers struct {
	Uses []Use
	// AnyClaim: a container uses a claim of any driver.
	AnyClaim bool
	// Dropped is the number of uses above the limit, from the claims with the most containers.
	Dropped int
}

// Containers lists the containers with devices of the driver that run or are about to run, each claim of a container once. It returns at
// most MaxContainers; if there are more, it returns the same number for each claim.
func (c Client) Containers(ctx context.Context) (Containers, error) {
	found := newKept(MaxContainers)
	anyClaim := false
	err := c.read(ctx, func(e *entry) {
		if anyClaim = true; len(e.cdi) > 0 {
			found.container(e)
		}
	})
	if err != nil {
		return Containers{}, err
	}
	return Containers{Uses: found.uses(), AnyClaim: anyClaim, Dropped: found.dropped}, nil
}

// Claim is a claim that containers use.
type Claim struct {
	Namespace, Name string
	// CDIDevices are the names, in the driver's CDI specs, of its prepared devices; none before the claim is prepared.
	CDIDevices []string
}

// Claims lists the claims of containers with devices of the driver, and other claims if own returns true. It lists a claim twice if some
// containers have its devices and others have none yet, as after a claim was recreated with the same name.
func (c Client) Claims(ctx context.Context, own func(namespace, name string) bool) ([]Claim, error) {
	found := newKept(0)
	err := c.read(ctx, func(e *entry) {
		if len(e.cdi) > 0 || own(string(e.namespace), string(e.claim)) {
			found.union(e)
		}
	})
	if err != nil {
		return nil, err
	}
	var claims []Claim
	for _, one := range found.sorted() {
		c := Claim{Namespace: one.namespace, Name: one.name}
		if _, without := one.sets[""]; without {
			claims = append(claims, c)
			delete(one.sets, "")
		}
		if c.CDIDevices = slices.Sorted(maps.Keys(one.sets)); len(c.CDIDevices) > 0 {
			claims = append(claims, c)
		}
	}
	return claims, nil
}

// read passes every claim of every container to visit.
func (c Client) read(ctx context.Context, visit func(*entry)) error {
	kubelet := grpcread.Client{Socket: c.Socket, Quiet: quiet, Longest: longest}
	if err := kubelet.Call(ctx, list, newReader(c, visit).answer); err != nil {
		return fmt.Errorf("listing the claims of containers at the kubelet socket %s: %w", c.Socket, err)
	}
	return nil
}
