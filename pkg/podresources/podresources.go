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

	"github.com/prism-gpu/prism/pkg/reconcile"
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
}

// InUse lists the claims of all containers that run or are about to run.
func (c Client) InUse(ctx context.Context) ([]reconcile.Use, error) {
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
	var uses []reconcile.Use
	for _, pod := range list.GetPodResources() {
		for _, container := range pod.GetContainers() {
			for _, claim := range container.GetDynamicResources() {
				uses = append(uses, c.use(claim))
			}
		}
	}
	return uses, nil
}

func (c Client) use(claim *podresources.DynamicResource) reconcile.Use {
	use := reconcile.Use{Namespace: claim.GetClaimNamespace(), Name: claim.GetClaimName()}
	for _, resource := range claim.GetClaimResources() {
		for _, device := range resource.GetCdiDevices() {
			if name, ours := strings.CutPrefix(device.GetName(), c.CDIKind+"="); ours {
				use.Devices = append(use.Devices, name)
			}
		}
	}
	return use
}
