package reports

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// Options are where the plugins are.
type Options struct {
	// Namespace and Selector are those of the plugins' pods, Port where they answer.
	Namespace string
	Selector  labels.Selector
	Port      int
	// Certificate is a directory with tls.crt, tls.key and ca.crt, the authority of plugins.
	Certificate string
}

// Serve registers the API with the manager's webhook server, whose TLS must request certificates of clients. Every replica serves it, not
// only the leader.
func Serve(ctx context.Context, m manager.Manager, o Options) error {
	client, err := kubernetes.NewForConfig(m.GetConfig())
	if err != nil {
		return fmt.Errorf("serving reports: %w", err)
	}
	if _, err := m.GetCache().GetInformer(ctx, &corev1.Pod{}, cache.BlockUntilSynced(false)); err != nil {
		return fmt.Errorf("watching the pods of the kubelet plugin: %w", err)
	}
	if _, err := m.GetCache().GetInformer(ctx, &corev1.Namespace{}, cache.BlockUntilSynced(false)); err != nil {
		return fmt.Errorf("watching namespaces: %w", err)
	}
	users, err := NewFrontProxy(client)
	if err != nil {
		return err
	}
	if err := m.Add(everywhere(users.Run)); err != nil {
		return fmt.Errorf("serving reports: %w", err)
	}
	plugins := Plugins{Reader: m.GetClient(), Namespace: o.Namespace, Selector: o.Selector, Port: o.Port}
	namespaces := ClusterNamespaces{Cached: m.GetClient(), Direct: m.GetAPIReader()}
	s := &Server{Nodes: NewNodes(o.Certificate, plugins.Endpoints, namespaces), Users: users, Access: NewDecisions(Access{client})}
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
