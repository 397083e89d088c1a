package profiler

import (
	"context"
	"errors"
	"strings"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/prism-gpu/prism/api/profiles/v1alpha1"
	"github.com/prism-gpu/prism/pkg/config"
	"github.com/prism-gpu/prism/pkg/plugin/kube"
	"github.com/prism-gpu/prism/pkg/plugin/profiler/store"
)

// clusterTimeout is the timeout of a request about reports to the API server.
const clusterTimeout = 10 * time.Second

// reportsCluster implements store.Cluster. Equal consecutive errors are logged once.
type reportsCluster struct {
	namespaces   kube.Namespaces
	announcement kube.ReportsAnnouncement
	logger       klog.Logger
	logged       string
}

// newReportsCluster returns the cluster of this client. The Lease of the node is in the namespace of the ConfigMap with the policy.
func newReportsCluster(cfg *config.Plugin, client kubernetes.Interface, logger klog.Logger) *reportsCluster {
	namespace, _, _ := strings.Cut(cfg.Profiler.Map, "/")
	return &reportsCluster{
		namespaces: kube.Namespaces{Client: client}, logger: logger,
		announcement: kube.ReportsAnnouncement{
			Client: client, Namespace: namespace, DriverName: cfg.DriverName, NodeName: cfg.NodeName, Label: v1alpha1.AnnouncementLabel,
		},
	}
}

// Namespace implements store.Cluster.
func (c *reportsCluster) Namespace(ctx context.Context, name string) (store.Namespace, error) {
	ctx, stop := context.WithTimeout(ctx, clusterTimeout)
	defer stop()
	uid, created, err := c.namespaces.Get(ctx, name)
	c.log(err, "Reading a namespace failed, reports of deleted namespaces remain for now")
	return store.Namespace{UID: string(uid), Created: created}, err
}

// Announce implements store.Cluster. A plugin without a policy, for example one that was started by hand, uses no namespace for its Lease.
func (c *reportsCluster) Announce(ctx context.Context, keeps bool) error {
	if c.announcement.Namespace == "" {
		return nil
	}
	ctx, stop := context.WithTimeout(ctx, clusterTimeout)
	defer stop()
	err := c.announcement.Set(ctx, keeps)
	c.log(err, "Announcing to controllers whether the node stores reports failed")
	return err
}

func (c *reportsCluster) log(err error, what string) {
	if err == nil || errors.Is(err, context.Canceled) || err.Error() == c.logged {
		return
	}
	c.logged = err.Error()
	c.logger.Error(err, what, "retryAfter", time.Minute)
}
