package kube

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// ConfigWatch watches the sources of a node's configuration: one label of its Node, and one ConfigMap. Its caches keep only metadata
// and a digest of both.
type ConfigWatch struct {
	// Client is a client of the API server.
	Client kubernetes.Interface
	// NodeName is the Node, and Label the key of its label that selects the configuration; empty: the Node is not watched.
	NodeName, Label string
	// Namespace and Map name the ConfigMap.
	Namespace, Map string
}

// Run calls changed when each of them is first read and at every change of the label or the data, until the context is done. Broken
// connections are re-established. changed must not block; it is called from several goroutines.
func (w ConfigWatch) Run(ctx context.Context, changed func()) error {
	var watching sync.WaitGroup
	maps := w.Client.CoreV1().ConfigMaps(w.Namespace)
	follow(ctx, &watching, w.Map, source[*corev1.ConfigMap]{
		client: w.Client,
		list:   func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return maps.List(ctx, o) },
		watch:  maps.Watch,
		digest: func(m *corev1.ConfigMap) (string, error) { return digest(m.Data) },
	}, changed)
	if w.Label != "" {
		nodes := w.Client.CoreV1().Nodes()
		follow(ctx, &watching, w.NodeName, source[*corev1.Node]{
			client: w.Client,
			list:   func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return nodes.List(ctx, o) },
			watch:  nodes.Watch,
			digest: func(n *corev1.Node) (string, error) { return n.Labels[w.Label], nil },
		}, changed)
	}
	watching.Wait()
	return nil
}

// source lists and watches objects of one kind; digest covers the part with the configuration.
type source[T metav1.Object] struct {
	client kubernetes.Interface
	list   func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error)
	watch  func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error)
	digest func(T) (string, error)
}

// follow watches the object of that name.
func follow[T metav1.Object](ctx context.Context, watching *sync.WaitGroup, name string, from source[T], changed func()) {
	only := func(o metav1.ListOptions) metav1.ListOptions {
		o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
		return o
	}
	_, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				return from.list(ctx, only(o))
			},
			WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				return from.watch(ctx, only(o))
			},
		}, from.client),
		Transform: func(object any) (any, error) { return shrink(object, from.digest) },
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    func(any) { changed() },
			DeleteFunc: func(any) { changed() },
			UpdateFunc: func(before, now any) {
				if digestOf(before) != digestOf(now) {
					changed()
				}
			},
		},
	})
	watching.Go(func() { informer.RunWithContext(ctx) })
}

// shrink reduces an object to its identity and a digest of the configuration in it.
func shrink[T metav1.Object](object any, digest func(T) (string, error)) (any, error) {
	full, ok := object.(T)
	if !ok {
		return object, nil // shrunk already, or a cache.DeletedFinalStateUnknown
	}
	text, err := digest(full)
	if err != nil {
		return nil, err
	}
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Namespace: full.GetNamespace(), Name: full.GetName(), UID: full.GetUID(), ResourceVersion: full.GetResourceVersion(),
		Labels: map[string]string{digestLabel: text},
	}}, nil
}

// digestLabel is the label of a shrunk object with the digest.
const digestLabel = "digest"

func digestOf(object any) string {
	if small, ok := object.(*metav1.PartialObjectMetadata); ok {
		return small.Labels[digestLabel]
	}
	return ""
}

// digest is a hash of a ConfigMap's data.
func digest(data map[string]string) (string, error) {
	text, err := json.Marshal(data)
	if err != nil {
		return "", fmt.Errorf("hashing a ConfigMap: %w", err)
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:]), nil
}
