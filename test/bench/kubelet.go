package bench

import (
	"context"
	"fmt"
	"net"
	"path/filepath"

	"google.golang.org/grpc"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// Kubelet lists the claims of containers for a plugin, like the kubelet of a node with running pods. A plugin asks the API server for
// claims that the kubelet does not know.
type Kubelet struct {
	podresources.UnimplementedPodResourcesListerServer

	// Claims returns the claims of the containers.
	Claims func() []Claim
	// Socket is the path of the server's socket.
	Socket string

	server *grpc.Server
	ended  chan error
}

// ServeKubelet serves in dir until Close.
func ServeKubelet(ctx context.Context, dir string, claims func() []Claim) (*Kubelet, error) {
	k := &Kubelet{Claims: claims, Socket: filepath.Join(dir, "kubelet.sock"), server: grpc.NewServer(), ended: make(chan error, 1)}
	l, err := (&net.ListenConfig{}).Listen(ctx, "unix", k.Socket)
	if err != nil {
		return nil, fmt.Errorf("listing which claims containers have: %w", err)
	}
	podresources.RegisterPodResourcesListerServer(k.server, k)
	go func() { k.ended <- k.server.Serve(l) }()
	return k, nil
}

// List returns one pod with all the claims.
func (k *Kubelet) List(context.Context, *podresources.ListPodResourcesRequest) (*podresources.ListPodResourcesResponse, error) {
	var resources []*podresources.DynamicResource
	for _, c := range k.Claims() {
		resources = append(resources, &podresources.DynamicResource{ClaimNamespace: c.Namespace, ClaimName: c.Name})
	}
	return &podresources.ListPodResourcesResponse{PodResources: []*podresources.PodResources{{
		Name: "bench", Namespace: "bench",
		Containers: []*podresources.ContainerResources{{Name: "bench", DynamicResources: resources}},
	}}}, nil
}

// Close stops the server.
func (k *Kubelet) Close() error {
	k.server.Stop()
	if err := <-k.ended; err != nil {
		return fmt.Errorf("listing which claims containers have: %w", err)
	}
	return nil
}
