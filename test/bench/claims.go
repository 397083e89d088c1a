package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
)

// Claim refers to a ResourceClaim.
type Claim struct{ Namespace, Name, UID string }

// String returns "<namespace>/<name>".
func (c Claim) String() string { return c.Namespace + "/" + c.Name }

// Claims creates ResourceClaims that are allocated already, as the scheduler would do, and watches their status.
type Claims struct {
	client                  kubernetes.Interface
	namespace, driver, node string

	mu       sync.Mutex
	made     []Claim
	reported map[string]chan struct{}
}

// Made returns all claims that were created so far.
func (c *Claims) Made() []Claim {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.made)
}

// NewClaims creates the namespace and watches its claims until ctx ends.
func NewClaims(ctx context.Context, client kubernetes.Interface, driver, node string) (*Claims, error) {
	namespace, err := client.CoreV1().Namespaces().Create(ctx,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			GenerateName: "bench-", Labels: map[string]string{resourceapi.DRAAdminNamespaceLabelKey: "true"},
		}}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("creating a namespace for claims: %w", err)
	}
	c := &Claims{client: client, namespace: namespace.Name, driver: driver, node: node, reported: map[string]chan struct{}{}}
	events, err := client.ResourceV1().ResourceClaims(c.namespace).Watch(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("watching claims: %w", err)
	}
	go c.follow(events)
	return c, nil
}

// follow records the claims whose status reports all devices as ready.
func (c *Claims) follow(events watch.Interface) {
	for event := range events.ResultChan() {
		rc, ok := event.Object.(*resourceapi.ResourceClaim)
		if !ok || !ready(rc) {
			continue
		}
		reported := c.report(string(rc.UID))
		select {
		case <-reported:
		default:
			close(reported)
		}
	}
}

func ready(rc *resourceapi.ResourceClaim) bool {
	for _, device := range rc.Status.Devices {
		for _, condition := range device.Conditions {
			if condition.Type == "Ready" && condition.Status != metav1.ConditionTrue {
				return false
			}
		}
	}
	return len(rc.Status.Devices) > 0
}

func (c *Claims) report(uid string) chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.reported[uid] == nil {
		c.reported[uid] = make(chan struct{})
	}
	return c.reported[uid]
}

// reportLimit is far longer than the update of a status takes.
const reportLimit = 20 * time.Second

// Reported waits until the status of each claim says that it is ready. Then the plugin has nothing left to do for the claim.
func (c *Claims) Reported(ctx context.Context, claims ...Claim) error {
	ctx, cancel := context.WithTimeout(ctx, reportLimit)
	defer cancel()
	for _, one := range claims {
		select {
		case <-c.report(one.UID):
		case <-ctx.Done():
			return fmt.Errorf("waiting for the status of claim %s: %w", one, ctx.Err())
		}
	}
	return nil
}

// makers is the number of claims that are created at once.
const makers = 4

// Make creates n claims for one device each, and cycles through the devices.
func (c *Claims) Make(ctx context.Context, n int, devices []Device) ([]Claim, error) {
	claims, failed := make([]Claim, n), make([]error, n)
	var next sync.WaitGroup
	free := make(chan struct{}, makers)
	for i := range n {
		free <- struct{}{}
		next.Go(func() {
			defer func() { <-free }()
			claims[i], failed[i] = c.make(ctx, devices[i%len(devices)])
		})
	}
	next.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.made = append(c.made, claims...)
	return claims, errors.Join(failed...)
}

// configs returns the configurations of a claim for the device.
func (c *Claims) configs(device Device) []resourceapi.DeviceAllocationConfiguration {
	if device.Config == "" {
		return nil
	}
	opaque := &resourceapi.OpaqueDeviceConfiguration{Driver: c.driver, Parameters: runtime.RawExtension{Raw: []byte(device.Config)}}
	return []resourceapi.DeviceAllocationConfiguration{{
		Source: resourceapi.AllocationConfigSourceClaim, DeviceConfiguration: resourceapi.DeviceConfiguration{Opaque: opaque},
	}}
}

func (c *Claims) make(ctx context.Context, device Device) (Claim, error) {
	api := c.client.ResourceV1().ResourceClaims(c.namespace)
	exactly := &resourceapi.ExactDeviceRequest{DeviceClassName: c.driver}
	result := resourceapi.DeviceRequestAllocationResult{Request: "gpu", Driver: c.driver, Pool: device.Pool, Device: device.Name}
	if device.Admin {
		exactly.AdminAccess, result.AdminAccess = &device.Admin, &device.Admin
	}
	if device.Several {
		result.ShareID = new(uuid.NewUUID())
		result.ConsumedCapacity = map[resourceapi.QualifiedName]resource.Quantity{"shares": resource.MustParse("1"), "memory": resource.MustParse(device.Memory)}
	}
	rc, err := api.Create(ctx, &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "claim-"},
		Spec: resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{
			Requests: []resourceapi.DeviceRequest{{Name: result.Request, Exactly: exactly}},
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		return Claim{}, fmt.Errorf("creating a claim: %w", err)
	}
	rc.Status.Allocation = &resourceapi.AllocationResult{
		Devices: resourceapi.DeviceAllocationResult{
			Results: []resourceapi.DeviceRequestAllocationResult{result}, Config: c.configs(device),
		},
		NodeSelector: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchFields: []corev1.NodeSelectorRequirement{
				{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{c.node}},
			},
		}}},
	}
	if _, err := api.UpdateStatus(ctx, rc, metav1.UpdateOptions{}); err != nil {
		return Claim{}, fmt.Errorf("allocating claim %s/%s: %w", rc.Namespace, rc.Name, err)
	}
	return Claim{Namespace: rc.Namespace, Name: rc.Name, UID: string(rc.UID)}, nil
}

// Remove deletes the namespace with all claims in it.
func (c *Claims) Remove(ctx context.Context) error {
	if err := c.client.CoreV1().Namespaces().Delete(ctx, c.namespace, metav1.DeleteOptions{}); err != nil {
		return fmt.Errorf("removing the namespace of the claims: %w", err)
	}
	return nil
}
