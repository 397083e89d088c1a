// Package podresources asks the kubelet, through its pod resources API, which containers use which claims.
package podresources

import (
	"context"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
)

const (
	// listTime is how long the kubelet may take to list; it reads its memory alone.
	listTime = 5 * time.Second
	// listBytes is more than a full node's list has; the library's own limit is not.
	listBytes = 64 << 20
)

// Client calls the pod resources API of a kubelet.
type Client struct {
	// Socket is the path of the kubelet's socket, which each start of the kubelet creates again.
	Socket string
	// CDIKind is the kind of this driver's CDI specs.
	CDIKind string
	// DriverName is this driver; empty where devices other than by their CDI names are of no interest.
	DriverName string
}

// Use is a claim that a container has. The kubelet knows claims by name; their UIDs are in the names of the driver's CDI devices.
type Use struct {
	// Namespace is that of the pod and of the claim.
	Namespace, Pod, Container string
	Claim                     string
	// CDIDevices are the names, in the driver's CDI specs, of the prepared devices; none before the claim is prepared, and for a claim that
	// has only devices of other drivers.
	CDIDevices []string
	// Devices are the claim's devices of this driver. The kubelet lists all of the claim, whichever request of it the container has.
	Devices []Device
}

// Device is an allocated device; ShareID is empty where it has none, or the kubelet is older than shares.
type Device struct{ Pool, Device, ShareID string }

// List lists the claims of all containers that run or are about to run.
func (c Client) List(ctx context.Context) ([]Use, error) {
	connection, err := grpc.NewClient("unix://"+c.Socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(listBytes)))
	if err != nil {
		return nil, fmt.Errorf("connecting to the kubelet at %s: %w", c.Socket, err)
	}
	defer func() { _ = connection.Close() }()
	ctx, cancel := context.WithTimeout(ctx, listTime)
	defer cancel()
	list, err := podresources.NewPodResourcesListerClient(connection).List(ctx, &podresources.ListPodResourcesRequest{})
	if err != nil {
		return nil, fmt.Errorf("asking the kubelet at %s which claims containers have: %w", c.Socket, err)
	}
	var uses []Use
	for _, pod := range list.GetPodResources() {
		for _, container := range pod.GetContainers() {
			for _, claim := range container.GetDynamicResources() {
				use := c.use(claim)
				use.Pod, use.Container = pod.GetName(), container.GetName()
				uses = append(uses, use)
			}
		}
	}
	return uses, nil
}

func (c Client) use(claim *podresources.DynamicResource) Use {
	use := Use{Namespace: claim.GetClaimNamespace(), Claim: claim.GetClaimName()}
	for _, resource := range claim.GetClaimResources() {
		for _, device := range resource.GetCdiDevices() {
			if name, ours := strings.CutPrefix(device.GetName(), c.CDIKind+"="); ours {
				use.CDIDevices = append(use.CDIDevices, name)
			}
		}
		if c.DriverName != "" && resource.GetDriverName() == c.DriverName {
			use.Devices = append(use.Devices, Device{Pool: resource.GetPoolName(), Device: resource.GetDeviceName(), ShareID: resource.GetShareId()})
		}
	}
	return use
}
