package view

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/prism-gpu/prism/pkg/cli/cluster"
	"github.com/prism-gpu/prism/pkg/cli/clusterview"
)

// reader reads the objects of a picture.
type reader struct {
	Options

	client *cluster.Client
	kinds  []*kind
	slices *kind

	// mu guards the following, and the objects that the kinds read.
	mu      sync.Mutex
	store   *clusterview.Store
	scope   clusterview.Scope
	missing []Missing
	// templates are the templates that were requested, true if they were read.
	templates map[types.NamespacedName]bool
	// unmade are the templates that pods without their claims name, by pod.
	unmade map[types.NamespacedName][]types.NamespacedName
}

// kind is a kind of objects.
type kind struct {
	// group is the API group, clients are its versions, the newest first. Of a kind that some servers lack, optional is set.
	group    string
	resource string
	clients  []rest.Interface
	optional bool
	// role contains the right to read it; in one namespace it is roleNamespace.
	role       string
	namespaced bool
	options    metav1.ListOptions
	// put adds an object of a list, and returns its name; set adds an object of a watch, and remove removes one.
	put    func(object) (types.NamespacedName, error)
	set    func(runtime.Object) error
	remove func(types.NamespacedName)
	// done is called after a list; nil for nothing.
	done func(namespace string)

	// known are the objects in the Store: of the last list, of the changes since, and of pages that expired.
	known map[types.NamespacedName]bool
	// from is the list that was read, began is when, and version its resource version; "" if it was not read.
	from    listing
	began   time.Time
	version string
}

func newReader(client *cluster.Client, o Options) *reader {
	o.Namespace = cmp.Or(o.Namespace, client.Namespace)
	r := &reader{
		Options: o, client: client, store: clusterview.NewStore(),
		templates: map[types.NamespacedName]bool{}, unmade: map[types.NamespacedName][]types.NamespacedName{},
	}
	r.kinds = []*kind{r.ofClasses(), r.ofSlices(), r.ofRules(), r.ofNodes(), r.ofClaims()}
	r.slices = r.kinds[1]
	if o.Pods || o.AllPods {
		r.kinds = append(r.kinds, r.ofPods())
	}
	return r
}

// list reads all objects of a kind. A right that the user lacks is recorded.
func (r *reader) list(ctx context.Context, k *kind) error {
	namespace := ""
	if k.namespaced {
		r.mu.Lock()
		namespace = r.scope.Namespace
		r.mu.Unlock()
	}
	err := r.listIn(ctx, k, namespace)
	if apierrors.IsForbidden(err) && k.namespaced && namespace == "" {
		r.lacks(k.right("list", ""))
		namespace = r.Namespace
		err = r.listIn(ctx, k, namespace)
	}
	switch {
	case apierrors.IsForbidden(err):
		r.lacks(k.right("list", namespace))
		if !k.namespaced {
			return nil
		}
	case apierrors.IsNotFound(err) && k.optional:
		return nil
	case err != nil:
		return cluster.Explain("listing "+k.name(), "list on "+k.name(), err)
	}
	if k.done != nil { // the scope is one namespace even if its objects may not be listed
		r.mu.Lock()
		k.done(namespace)
		r.mu.Unlock()
	}
	return nil
}

// listIn reads the objects in a namespace, or in all. It tries the versions of the API.
func (r *reader) listIn(ctx context.Context, k *kind, namespace string) (err error) {
	for _, client := range k.clients {
		k.from = listing{client, k.resource, namespace, k.options}
		if err = r.listFrom(ctx, k); !apierrors.IsNotFound(err) {
			return err
		}
	}
	return err
}

// listFrom reads the objects, and removes all others of the kind.
func (r *reader) listFrom(ctx context.Context, k *kind) error {
	k.began = r.client.Clock.Now().Truncate(time.Second) // times of objects have no fractions
	r.mu.Lock()
	if r.scope.Read.IsZero() {
		r.scope.Read = k.began
	}
	r.mu.Unlock()
	var found map[types.NamespacedName]bool
	version, err := k.from.each(ctx, func() { found = map[types.NamespacedName]bool{} }, func(o object) error {
		r.mu.Lock()
		defer r.mu.Unlock()
		name, err := k.put(o)
		found[name], k.known[name] = true, true
		return err
	})
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for name := range k.known {
		if !found[name] {
			k.remove(name)
		}
	}
	k.known, k.version = found, version
	return nil
}

// name is the resource with its group.
func (k *kind) name() string {
	if k.group == "" {
		return k.resource
	}
	return k.resource + "." + k.group
}

// right is the right to read the kind in a namespace, or in all.
func (k *kind) right(verb, namespace string) Missing {
	switch {
	case !k.namespaced:
		return Missing{verb, k.name(), k.role}
	case namespace == "":
		return Missing{verb, k.name() + " in all namespaces", k.role}
	default:
		return Missing{verb, k.name() + " in namespace " + namespace, roleNamespace}
	}
}

// lacks records a right that the user lacks.
func (r *reader) lacks(m Missing) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, known := range r.missing {
		if known == m {
			return
		}
	}
	r.missing = append(r.missing, m)
}

// api is an object of the API, by its pointer.
type api[T any] interface {
	*T
	message
	metav1.Object
	runtime.Object
	Marshal() ([]byte, error)
}

// handle sets the functions of a kind whose objects are of type T.
func handle[T any, P api[T]](k *kind, put func(P), remove func(types.NamespacedName)) *kind {
	k.put = func(o object) (types.NamespacedName, error) {
		decoded := P(new(T))
		if err := o.decode(decoded); err != nil {
			return types.NamespacedName{}, fmt.Errorf("reading %s: %w", k.name(), err)
		}
		put(decoded)
		return nameOf(decoded), nil
	}
	k.set = func(changed runtime.Object) error {
		if same, ok := changed.(P); ok {
			put(same)
			return nil
		}
		// An older version of the API has the same encoding.
		older, ok := changed.(interface{ Marshal() ([]byte, error) })
		if !ok {
			return fmt.Errorf("reading %s: unexpected %T", k.name(), changed)
		}
		data, err := older.Marshal()
		if err != nil {
			return fmt.Errorf("reading %s: %w", k.name(), err)
		}
		_, err = k.put(object{data, true})
		return err
	}
	k.remove, k.known = remove, map[types.NamespacedName]bool{}
	return k
}

func nameOf(o metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}
}

func (r *reader) ofClasses() *kind {
	k := &kind{group: resourceapi.GroupName, resource: "deviceclasses", clients: []rest.Interface{r.client.ResourceV1().RESTClient()}, role: roleDevices}
	return handle(k, r.store.PutClass, func(name types.NamespacedName) { r.store.DeleteClass(name.Name) })
}

func (r *reader) ofSlices() *kind {
	k := &kind{group: resourceapi.GroupName, resource: "resourceslices", clients: []rest.Interface{r.client.ResourceV1().RESTClient()}, role: roleDevices}
	only := fields.Set{}
	if !r.AllDrivers {
		only[resourceapi.ResourceSliceSelectorDriver] = r.Driver
	}
	if r.Node != "" {
		only[resourceapi.ResourceSliceSelectorNodeName] = r.Node
	}
	k.options.FieldSelector = only.String()
	handle(k, r.store.PutSlice, func(name types.NamespacedName) { r.store.DeleteSlice(name.Name) })
	put := k.put
	k.put = func(o object) (types.NamespacedName, error) {
		if !o.protobuf {
			return put(o)
		}
		name, err := r.store.PutSliceData(o.data)
		return types.NamespacedName{Name: name}, err
	}
	return k
}

// ofRules: 1.37 has DeviceTaintRules in version v1, 1.36 in v1beta2, 1.35 in v1alpha3, the older ones only if an administrator enabled them.
func (r *reader) ofRules() *kind {
	k := &kind{group: resourceapi.GroupName, resource: "devicetaintrules", role: roleDevices, optional: true, clients: []rest.Interface{
		r.client.ResourceV1().RESTClient(), r.client.ResourceV1beta2().RESTClient(), r.client.ResourceV1alpha3().RESTClient(),
	}}
	k.done = func(string) { r.scope.TaintRules = true }
	return handle(k, r.store.PutRule, func(name types.NamespacedName) { r.store.DeleteRule(name.Name) })
}

func (r *reader) ofNodes() *kind {
	k := &kind{resource: "nodes", clients: []rest.Interface{r.client.CoreV1().RESTClient()}, role: roleDevices}
	k.options.LabelSelector = r.NodeSelector
	k.done = func(string) { r.scope.Nodes = true }
	return handle(k, r.store.PutNode, func(name types.NamespacedName) { r.store.DeleteNode(name.Name) })
}

func (r *reader) ofClaims() *kind {
	k := &kind{
		group: resourceapi.GroupName, resource: "resourceclaims", clients: []rest.Interface{r.client.ResourceV1().RESTClient()},
		role: roleAll, namespaced: true,
	}
	k.done = func(namespace string) { r.scope.Namespace = namespace }
	return handle(k, r.store.PutClaim, func(name types.NamespacedName) { r.store.DeleteClaim(name.Namespace, name.Name) })
}

func (r *reader) ofPods() *kind {
	k := &kind{resource: "pods", clients: []rest.Interface{r.client.CoreV1().RESTClient()}, role: roleAll, namespaced: true}
	k.done = func(namespace string) { r.scope.AllPods = r.AllPods && namespace == "" }
	remove := func(name types.NamespacedName) {
		r.store.DeletePod(name.Namespace, name.Name)
		delete(r.unmade, name)
	}
	return handle(k, func(pod *corev1.Pod) {
		name := types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
		remove(name)
		ended := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
		if r.AllPods && !ended || usesDevices(pod) {
			r.store.PutPod(pod)
			r.needTemplates(name, pod)
		}
	}, remove)
}

// usesDevices reports whether a pod has claims or requests extended resources.
func usesDevices(pod *corev1.Pod) bool {
	if len(pod.Spec.ResourceClaims) > 0 || pod.Status.ExtendedResourceClaimStatus != nil {
		return true
	}
	for _, containers := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range containers {
			for name := range containers[i].Resources.Requests {
				if strings.Contains(string(name), "/") {
					return true
				}
			}
		}
	}
	return false
}
