package kube

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// ConfigWatch watches the ConfigMap with a node's configuration. Its cache keeps only metadata and a digest.
type ConfigWatch struct {
	// Client is a client of the API server.
	Client kubernetes.Interface
	// Namespace and Map name the ConfigMap.
	Namespace, Map string
}

// Run calls changed when the ConfigMap is first read and at every change of its data, until the context is done. Broken connections are
// re-established. changed must not block.
func (w ConfigWatch) Run(ctx context.Context, changed func()) error {
	maps := w.Client.CoreV1().ConfigMaps(w.Namespace)
	follow(ctx, w.Map, source[*corev1.ConfigMap]{
		client: w.Client,
		list:   func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return maps.List(ctx, o) },
		watch:  maps.Watch,
		shrink: shrinkMap,
	}, cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { changed() },
		DeleteFunc: func(any) { changed() },
		UpdateFunc: func(before, now any) {
			if digestOf(before) != digestOf(now) {
				changed()
			}
		},
	})
	return nil
}

// source lists and watches objects of one kind; shrink returns the part of an object that the cache keeps.
type source[T metav1.Object] struct {
	client kubernetes.Interface
	list   func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error)
	watch  func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error)
	shrink func(T) (metav1.Object, error)
}

// follow watches the object of that name until the context ends.
func follow[T metav1.Object](ctx context.Context, name string, from source[T], handler cache.ResourceEventHandler) {
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
		Transform: func(object any) (any, error) {
			full, ok := object.(T)
			if !ok {
				return object, nil // shrunk already, or a cache.DeletedFinalStateUnknown
			}
			return from.shrink(full)
		},
		Handler: handler,
	})
	informer.RunWithContext(ctx)
}

// identity are the metadata of an object that a cache requires.
func identity(of metav1.Object) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: of.GetNamespace(), Name: of.GetName(), UID: of.GetUID(), ResourceVersion: of.GetResourceVersion()}
}

// shrinkMap reduces a ConfigMap to its identity and a digest of its data.
func shrinkMap(full *corev1.ConfigMap) (metav1.Object, error) {
	text, err := digest(full.Data)
	if err != nil {
		return nil, err
	}
	small := &metav1.PartialObjectMetadata{ObjectMeta: identity(full)}
	small.Labels = map[string]string{digestLabel: text}
	return small, nil
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
