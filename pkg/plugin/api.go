package plugin

import (
	"cmp"
	"context"
	"fmt"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/prism-gpu/prism/pkg/config"
	"github.com/prism-gpu/prism/pkg/events"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/plugin/kube"
	"github.com/prism-gpu/prism/pkg/plugin/layout"
	"github.com/prism-gpu/prism/pkg/plugin/publish"
)

// API is the API server. It has two clients, so that background writes never use up the request rate that claims need.
type API struct {
	Claims, Background kubernetes.Interface
	// Cluster answers the questions of a layout.
	Cluster Cluster
	// Slices keeps the node's ResourceSlices.
	Slices ResourceSlices
	// Events are about the node.
	Events events.Recorder
	// ClaimEvents are about claims; nil: none are written.
	ClaimEvents events.ClaimRecorder
	// Lost receives a value after a connection to the API server was lost; nil: that is not known.
	Lost <-chan struct{}
}

// ResourceSlices keeps the last published devices in the API server; *kube.Slices is the real one.
type ResourceSlices interface {
	layout.ResourceSlices
	// Run writes ResourceSlices until the context ends. One process of a node does at a time. Dropped is called when the API server has stored
	// one without some of its fields; it must not block.
	Run(ctx context.Context, dropped func(kube.DroppedFields)) error
	Stats() kube.SlicesStats
}

// APIOptions are the clients of an API, and its recorder of Events about the node.
type APIOptions struct {
	Config             *config.Plugin
	Claims, Background kubernetes.Interface
	Events             events.Recorder
}

// NewAPI returns the API server behind these clients.
func NewAPI(ctx context.Context, o APIOptions) API {
	cfg := o.Config
	return API{
		Claims: o.Claims, Background: o.Background, Events: o.Events,
		Cluster: cluster{
			Probe: kube.Probe{
				Client: o.Background, DriverName: cfg.DriverName, NodeName: cfg.NodeName, SchedulerVersion: cfg.SchedulerVersion,
			}, client: o.Background,
		},
		Slices: kube.NewSlices(kube.SlicesOptions{
			Client: o.Background, DriverName: cfg.DriverName, NodeName: cfg.NodeName,
			OnError: func(err error) { klog.FromContext(ctx).Error(err, "ResourceSlices are not published yet") },
		}),
	}
}

// connect connects to the API server, and sends Events until the context ends.
func connect(ctx context.Context, cfg *config.Plugin, version string) (API, error) {
	base, err := rest.InClusterConfig()
	if cfg.Kubeconfig != "" {
		base, err = clientcmd.BuildConfigFromFlags("", cfg.Kubeconfig)
	}
	if err != nil {
		return API{}, fmt.Errorf("connecting to the API server: %w", err)
	}
	base.QPS, base.Burst, base.UserAgent = float32(cfg.KubeAPI.QPS), cfg.KubeAPI.Burst, "prism-kubelet-plugin/"+version
	base.ContentType, base.AcceptContentTypes = "application/vnd.kubernetes.protobuf", "application/vnd.kubernetes.protobuf,application/json"
	loss := kube.NewWatchLoss()
	base.Wrap(loss.Wrap)
	claims, err := kubernetes.NewForConfig(base)
	if err != nil {
		return API{}, fmt.Errorf("connecting to the API server: %w", err)
	}
	background, err := kubernetes.NewForConfig(rest.CopyConfig(base))
	if err != nil {
		return API{}, fmt.Errorf("connecting to the API server: %w", err)
	}
	recorder := kube.NewEvents(background, cfg.DriverName, cfg.NodeName)
	api := NewAPI(ctx, APIOptions{Config: cfg, Claims: claims, Background: background, Events: recorder})
	api.Lost, api.ClaimEvents = loss.Lost(), recorder
	return api, recorder.Start(ctx)
}

// cluster asks the API server for one node and one driver.
type cluster struct {
	kube.Probe
	client kubernetes.Interface
}

// Tainted lists this node's devices in the API server, and whether each is tainted as draining.
func (c cluster) Tainted(ctx context.Context) (map[gpu.PoolDevice]bool, error) {
	stored := kube.Stored{Client: c.client, DriverName: c.DriverName, NodeName: c.NodeName}
	return stored.Tainted(ctx, c.DriverName+"/"+publish.DrainingTaint)
}

// Allocated reads a page of the claims that have devices of this driver, unless the query names another one.
func (c cluster) Allocated(ctx context.Context, query kube.AllocatedQuery) (*kube.AllocatedPage, error) {
	query.Driver = cmp.Or(query.Driver, c.DriverName)
	return kube.Claims{Client: c.client}.Allocated(ctx, query)
}
