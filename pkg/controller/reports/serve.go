package reports

import (
	"context"
	"fmt"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// Options configure the connections to plugins.
type Options struct {
	// Namespace and Selector select the plugins' pods, Port is their port, DriverName the name of their driver.
	Namespace, DriverName string
	Selector              labels.Selector
	Port                  int
	// Certificate is a directory with tls.crt, tls.key and ca.crt, the authority of plugins.
	Certificate string
}

// Serve registers the API with the manager's webhook server, whose TLS must request certificates of clients. Every replica serves it, not
// only the leader.
func Serve(ctx context.Context, m manager.Manager, o Options) error {
	api, err := kubernetes.NewForConfig(m.GetConfig())
	if err != nil {
		return fmt.Errorf("serving reports: %w", err)
	}
	for what, object := range map[string]client.Object{
		"the pods of the kubelet plugin": &corev1.Pod{}, "namespaces": &corev1.Namespace{}, "the nodes that keep reports": &coordinationv1.Lease{},
	} {
		if _, err := m.GetCache().GetInformer(ctx, object, cache.BlockUntilSynced(false)); err != nil {
			return fmt.Errorf("watching %s: %w", what, err)
		}
	}
	users, err := NewFrontProxy(api)
	if err != nil {
		return err
	}
	if err := m.Add(everywhere(users.Run)); err != nil {
		return fmt.Errorf("serving reports: %w", err)
	}
	plugins := Plugins{Reader: m.GetClient(), Namespace: o.Namespace, DriverName: o.DriverName, Selector: o.Selector, Port: o.Port}
	namespaces := ClusterNamespaces{Cached: m.GetClient(), Direct: m.GetAPIReader()}
	s := &Server{Nodes: NewNodes(o.Certificate, plugins.Endpoints, namespaces), Users: users, Access: NewDecisions(Access{api}, namespaces)}
	s.Left = left{plugins, m.GetEventRecorder("prism-controller")}.report
	server, handler := m.GetWebhookServer(), s.Handler()
	server.Register(Path, handler)
	server.Register(Path+"/", handler)
	return nil
}

// everywhere runs on every replica.
type everywhere func(ctx context.Context)

// Start implements manager.Runnable.
func (e everywhere) Start(ctx context.Context) error {
	e(ctx)
	return nil
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (everywhere) NeedLeaderElection() bool { return false }
