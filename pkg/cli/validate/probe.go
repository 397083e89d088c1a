package validate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/prism-gpu/prism/pkg/cli/cluster"
	"github.com/prism-gpu/prism/pkg/validation"
)

// createTime and removeTime limit the creation and the deletion of the objects.
const (
	createTime = 30 * time.Second
	removeTime = 30 * time.Second
)

// probe is a pod and its claim on a node.
type probe struct {
	*cluster.Client
	node  string
	pod   *corev1.Pod
	claim *resourceapi.ResourceClaim
	// pods and claims report changes.
	pods, claims watch.Interface
}

// probe creates a pod and a claim. The claim belongs to the pod, so that deleting the pod suffices.
func (f *flags) probe(ctx context.Context, client *cluster.Client, node string, gpus []cluster.GPU, plugins []corev1.Pod) (*probe, error) {
	var gpu *cluster.GPU
	if f.gpu != "" {
		found, err := cluster.Resolve(gpus, nil, node, f.gpu)
		if err != nil {
			return nil, err
		}
		gpu, gpus = found, []cluster.GPU{*found}
	}
	kinds, err := classes(ctx, client, gpus)
	if err != nil {
		return nil, err
	}
	image := f.image
	if image == "" {
		image = imageOf(plugins)
	}
	p := &probe{Client: client, node: node}
	pods, claims := client.CoreV1().Pods(client.Namespace), client.ResourceV1().ResourceClaims(client.Namespace)
	pod := podFor(client.Namespace, node, image, f.timeout)
	pod.Name = prefix + rand.String(8)
	pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: request, ResourceClaimName: &pod.Name}}
	// An interrupt ends no request that creates an object: the object might exist, and would not be deleted.
	creating, stop := context.WithTimeout(context.WithoutCancel(ctx), createTime)
	defer stop()
	if p.pod, err = pods.Create(creating, pod, metav1.CreateOptions{FieldManager: cluster.Manager}); err != nil {
		return nil, cluster.Explain("creating pod "+pod.Namespace+"/"+pod.Name, "create on pods in namespace "+pod.Namespace, err)
	}
	claim, err := claims.Create(creating, claimFor(p.pod, client.Driver, kinds, gpu), metav1.CreateOptions{FieldManager: cluster.Manager})
	if err == nil {
		p.claim = claim
		err = p.watch(ctx)
	}
	if err != nil {
		return nil, errors.Join(p.remove(ctx), cluster.Explain("creating ResourceClaim "+pod.Namespace+"/"+pod.Name,
			"create and watch on resourceclaims of resource.k8s.io in namespace "+pod.Namespace, err))
	}
	return p, nil
}

// classes returns the types of the GPUs' devices that have a DeviceClass.
func classes(ctx context.Context, client *cluster.Client, gpus []cluster.GPU) (kinds []string, err error) {
	for _, kind := range wanted {
		if !slices.ContainsFunc(gpus, func(g cluster.GPU) bool { return g.Devices[kind] > 0 }) {
			continue
		}
		name := className(client.Driver, kind)
		switch _, err := client.ResourceV1().DeviceClasses().Get(ctx, name, metav1.GetOptions{}); {
		case err == nil:
			kinds = append(kinds, kind)
		case !apierrors.IsNotFound(err):
			return nil, cluster.Explain("reading DeviceClass "+name, "get on deviceclasses of resource.k8s.io", err)
		}
	}
	if len(kinds) == 0 {
		return nil, fmt.Errorf("no DeviceClass selects the devices of the node: set deviceClasses.create of the chart, or create DeviceClass %s", client.Driver)
	}
	return kinds, nil
}

// imageOf returns the image of the plugin that is ready.
func imageOf(plugins []corev1.Pod) string {
	for i := range plugins {
		if ready(&plugins[i]) {
			return plugins[i].Spec.Containers[0].Image
		}
	}
	return ""
}

// watch begins to watch the pod and the claim.
func (p *probe) watch(ctx context.Context) (err error) {
	options := func(of metav1.Object) metav1.ListOptions {
		return metav1.ListOptions{
			FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, of.GetName()).String(), ResourceVersion: of.GetResourceVersion(),
		}
	}
	if p.claims, err = p.ResourceV1().ResourceClaims(p.pod.Namespace).Watch(ctx, options(p.claim)); err != nil {
		return err
	}
	p.pods, err = p.CoreV1().Pods(p.pod.Namespace).Watch(ctx, options(p.pod))
	return err
}

// errClosed: the API server ended a watch.
var errClosed = errors.New("the connection to the API server was closed; run the command again")

// until waits for a state of the pod and the claim.
func (p *probe) until(ctx context.Context, reached func() bool) error {
	for !reached() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case event, open := <-p.claims.ResultChan():
			if !open {
				return errClosed
			}
			p.keep(event)
		case event, open := <-p.pods.ResultChan():
			if !open {
				return errClosed
			}
			pod, ok := event.Object.(*corev1.Pod)
			if !ok || pod.Name != p.pod.Name {
				continue
			}
			p.pod = pod
			if event.Type == watch.Deleted {
				return errors.New("the pod was deleted by another program; run the command again")
			}
		}
	}
	return nil
}

// keep stores a state of the claim. A claim of a pod that has exited is released: the state before that is kept.
func (p *probe) keep(event watch.Event) {
	claim, ok := event.Object.(*resourceapi.ResourceClaim)
	if ok && claim.Name == p.pod.Name && event.Type != watch.Deleted && claim.Status.Allocation != nil {
		p.claim = claim
	}
}

// claimed waits until the claim is allocated, and prepared: its container has started.
func (p *probe) claimed(ctx context.Context) (string, error) {
	started := func() bool {
		s := p.state()
		return len(p.results()) > 0 && (s.Running != nil || s.Terminated != nil) || p.pod.Status.Phase == corev1.PodFailed
	}
	if err := p.until(ctx, started); err != nil {
		return "", p.stuck(ctx, err)
	}
	var all []string
	for _, r := range p.results() {
		all = append(all, r.Device)
	}
	return strings.Join(all, ", "), nil
}

// results are the devices of the claim.
func (p *probe) results() []resourceapi.DeviceRequestAllocationResult {
	if p.claim.Status.Allocation == nil {
		return nil
	}
	return p.claim.Status.Allocation.Devices.Results
}

// state is the state of the container.
func (p *probe) state() corev1.ContainerState {
	if len(p.pod.Status.ContainerStatuses) == 0 {
		return corev1.ContainerState{}
	}
	return p.pod.Status.ContainerStatuses[0].State
}

// stuck explains why the container has not started.
func (p *probe) stuck(ctx context.Context, err error) error {
	if !errors.Is(err, context.DeadlineExceeded) {
		return ended(err)
	}
	for _, condition := range p.pod.Status.Conditions {
		if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse {
			return fmt.Errorf("no device of the node was allocated, free one or remove its taint: %s; kubectl prism gpu list %s shows claims and taints",
				condition.Message, p.node)
		}
	}
	if message := p.warning(ctx); message != "" {
		return errors.New(message)
	}
	if len(p.results()) == 0 {
		return errors.New("the scheduler did not allocate the claim: check kube-scheduler, and raise --timeout if it is busy")
	}
	return fmt.Errorf("the claim is allocated, but the container has not started%s; raise --timeout", waiting(p.pod))
}

// warning returns the last warning about the pod, such as a failed preparation of the claim.
func (p *probe) warning(ctx context.Context) string {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), removeTime)
	defer stop()
	list, err := p.CoreV1().Events(p.pod.Namespace).List(ctx, metav1.ListOptions{
		FieldSelector: fields.Set{"involvedObject.uid": string(p.pod.UID), "type": corev1.EventTypeWarning}.String(),
	})
	if err != nil || len(list.Items) == 0 {
		return ""
	}
	last := slices.MaxFunc(list.Items, func(a, b corev1.Event) int { return seen(&a).Compare(seen(&b)) })
	return last.Message
}

// ended explains an error other than the timeout.
func ended(err error) error {
	if errors.Is(err, context.Canceled) {
		return errors.New("interrupted")
	}
	return err
}

// finished waits until the program has exited, and returns its result.
func (p *probe) finished(ctx context.Context) (string, error) {
	done := func() bool { return p.state().Terminated != nil || p.pod.Status.Phase == corev1.PodFailed }
	switch err := p.until(ctx, done); {
	case errors.Is(err, context.DeadlineExceeded):
		return "", errors.New("prism-validate has not exited: the GPU may hang; raise --timeout, or check the GPU with nvidia-smi on the node")
	case err != nil:
		return "", ended(err)
	}
	terminated := p.state().Terminated
	if terminated == nil {
		return "", fmt.Errorf("the container did not start: %s", p.pod.Status.Message)
	}
	return verdict(terminated, p.uuids())
}

// verdict returns the result of the program in a container that has exited. uuids are the UUIDs in the status of the claim.
func verdict(state *corev1.ContainerStateTerminated, uuids []string) (string, error) {
	result, err := validation.ParseResult(state.Message)
	if err != nil {
		return "", fmt.Errorf("prism-validate exited with code %d, %s: %s: set --image to an image of Prism", state.ExitCode, state.Reason, state.Message)
	}
	if failed := result.Failed(); failed != nil {
		return "", errors.New(failed.Failed)
	}
	if len(uuids) > 0 {
		if different := validation.Different(uuids, result.UUIDs); different != "" {
			return "", fmt.Errorf("%s: check that no other component adds GPUs to containers, such as NVIDIA's device plugin", different)
		}
	}
	var all []string
	for _, check := range result.Checks {
		all = append(all, check.Name)
	}
	return strings.Join(all, ", "), nil
}

// uuids are the UUIDs of the devices in the claim's status.
func (p *probe) uuids() (all []string) {
	for _, device := range p.claim.Status.Devices {
		var identity struct {
			UUID string `json:"uuid"`
		}
		if device.Driver == p.Driver && device.Data != nil && json.Unmarshal(device.Data.Raw, &identity) == nil && identity.UUID != "" {
			all = append(all, identity.UUID)
		}
	}
	return all
}

// remove deletes the pod and the claim, also after an interrupt. If that fails, the deadline of the pod ends it.
func (p *probe) remove(ctx context.Context) error {
	for _, w := range []watch.Interface{p.pods, p.claims} {
		if w != nil {
			w.Stop()
		}
	}
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), removeTime)
	defer stop()
	options := func(uid types.UID) metav1.DeleteOptions {
		return metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}}
	}
	err := p.CoreV1().Pods(p.pod.Namespace).Delete(ctx, p.pod.Name, options(p.pod.UID))
	if p.claim != nil {
		deleted := p.ResourceV1().ResourceClaims(p.pod.Namespace).Delete(ctx, p.claim.Name, options(p.claim.UID))
		if !apierrors.IsNotFound(deleted) { // with its pod
			err = errors.Join(err, deleted)
		}
	}
	if err == nil || apierrors.IsNotFound(err) {
		return nil
	}
	return fmt.Errorf("deleting pod and ResourceClaim %s: %w; kubectl delete pod,resourceclaim -n %s %s deletes them", p.pod.Name, err, p.pod.Namespace, p.pod.Name)
}
