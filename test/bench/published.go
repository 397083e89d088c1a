package bench

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
)

// Device is a published device. Claims request it with admin access if Admin is set. If Several claims share it, each requests a share with
// this Memory.
type Device struct {
	Pool, Name     string
	Admin, Several bool
	Memory         string
	// Config is the configuration in its claims, as JSON of an API object; empty for none.
	Config string
}

// publishLimit is far longer than publishing ResourceSlices takes.
const publishLimit = 30 * time.Second

// Wanted describes the expected devices.
type Wanted struct {
	// Type is the attribute type, Profile the attribute of a MIG device.
	Type, Profile string
	// Least is the minimum number of devices.
	Least int
}

// aGPU matches the devices of any working driver.
var aGPU = Wanted{Type: "gpu", Least: 1}

// Published returns the devices that the driver publishes on the node; it waits until there are enough.
func Published(ctx context.Context, client kubernetes.Interface, driver, node string, w Wanted) ([]Device, error) {
	ctx, cancel := context.WithTimeout(ctx, publishLimit)
	defer cancel()
	list, err := client.ResourceV1().ResourceSlices().List(ctx, selection(driver))
	if err != nil {
		return nil, fmt.Errorf("listing ResourceSlices: %w", err)
	}
	known := map[string]resourceapi.ResourceSlice{}
	for _, slice := range list.Items {
		known[slice.Name] = slice
	}
	if devices := w.in(known, node); len(devices) >= w.Least {
		return devices, nil
	}
	options := selection(driver)
	options.ResourceVersion = list.ResourceVersion
	events, err := client.ResourceV1().ResourceSlices().Watch(ctx, options)
	if err != nil {
		return nil, fmt.Errorf("watching ResourceSlices: %w", err)
	}
	defer events.Stop()
	for event := range events.ResultChan() {
		slice, ok := event.Object.(*resourceapi.ResourceSlice)
		if !ok {
			continue
		}
		known[slice.Name] = *slice
		if event.Type == watch.Deleted {
			delete(known, slice.Name)
		}
		if devices := w.in(known, node); len(devices) >= w.Least {
			return devices, nil
		}
	}
	return nil, fmt.Errorf("waiting for driver %s to publish %d devices of type %s on node %s: %w", driver, w.Least, w.Type, node, ctx.Err())
}

func selection(driver string) metav1.ListOptions {
	return metav1.ListOptions{FieldSelector: "spec.driver=" + driver}
}

// in lists the devices in the order of their pools, and within a pool in the published order.
func (w Wanted) in(known map[string]resourceapi.ResourceSlice, node string) []Device {
	var devices []Device
	for _, slice := range known {
		if slice.Spec.NodeName == nil || *slice.Spec.NodeName != node {
			continue
		}
		for i := range slice.Spec.Devices {
			d := &slice.Spec.Devices[i]
			if (w.Type == "" || is(d, "type", w.Type)) && (w.Profile == "" || is(d, "profile", w.Profile)) {
				several := d.AllowMultipleAllocations != nil && *d.AllowMultipleAllocations
				memory := "0"
				if is(d, "type", "mps") {
					memory = "1Gi"
				}
				devices = append(devices, Device{Pool: slice.Spec.Pool.Name, Name: d.Name, Several: several, Memory: memory})
			}
		}
	}
	slices.SortStableFunc(devices, func(a, b Device) int { return strings.Compare(a.Pool, b.Pool) })
	return devices
}

func is(d *resourceapi.Device, attribute resourceapi.QualifiedName, value string) bool {
	text := d.Attributes[attribute].StringValue
	return text != nil && *text == value
}

// Wipe deletes the driver's ResourceSlices, like the kubelet at its start, and returns the time until they are published again.
func Wipe(ctx context.Context, client kubernetes.Interface, driver, node string) (time.Duration, error) {
	if err := client.ResourceV1().ResourceSlices().DeleteCollection(ctx, metav1.DeleteOptions{}, selection(driver)); err != nil {
		return 0, fmt.Errorf("wiping the ResourceSlices: %w", err)
	}
	start := time.Now()
	if _, err := Published(ctx, client, driver, node, aGPU); err != nil {
		return 0, err
	}
	return time.Since(start), nil
}

func removeSlices(ctx context.Context, client kubernetes.Interface, driver string) error {
	if err := client.ResourceV1().ResourceSlices().DeleteCollection(ctx, metav1.DeleteOptions{}, selection(driver)); err != nil {
		return fmt.Errorf("removing the ResourceSlices of %s: %w", driver, err)
	}
	return nil
}
