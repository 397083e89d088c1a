package driver

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
	// listTime is what the kubelet gets to list; it reads its memory alone.
	listTime = 5 * time.Second
	// listBytes is more than a full node's list has; the library's own limit is not.
	listBytes = 64 << 20
)

// PodResources asks the kubelet which claims containers have.
type PodResources struct {
	// Socket is the path of the kubelet's. Each start of the kubelet makes a new one.
	Socket string
	// CDIKind is the kind of our specs.
	CDIKind string
}

// InUse lists the claims of all containers that run or are about to.
func (p PodResources) InUse(ctx context.Context) ([]reconcile.Use, error) {
	connection, err := grpc.NewClient("unix://"+p.Socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(listBytes)))
	if err != nil {
		return nil, fmt.Errorf("connecting to the kubelet at %s: %w", p.Socket, err)
	}
	defer func() { _ = connection.Close() }()
	ctx, cancel := context.WithTimeout(ctx, listTime)
	defer cancel()
	list, err := podresources.NewPodResourcesListerClient(connection).List(ctx, &podresources.ListPodResourcesRequest{})
	if err != nil {
		return nil, fmt.Errorf("asking the kubelet at %s which claims containers have: %w", p.Socket, err)
	}
	var uses []reconcile.Use
	for _, pod := range list.GetPodResources() {
		for _, container := range pod.GetContainers() {
			for _, claim := range container.GetDynamicResources() {
				uses = append(uses, p.use(claim))
			}
		}
	}
	return uses, nil
}

func (p PodResources) use(claim *podresources.DynamicResource) reconcile.Use {
	use := reconcile.Use{Namespace: claim.GetClaimNamespace(), Name: claim.GetClaimName()}
	for _, resource := range claim.GetClaimResources() {
		for _, device := range resource.GetCdiDevices() {
			if name, ours := strings.CutPrefix(device.GetName(), p.CDIKind+"="); ours {
				use.Devices = append(use.Devices, name)
			}
		}
	}
	return use
}
