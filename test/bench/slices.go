package bench

import (
	"context"
	"fmt"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// Device is a published device. Admin asks for it with admin access.
type Device struct {
	Pool, Name string
	Admin      bool
}

// slicesLimit is far longer than slices take to be published.
const slicesLimit = 30 * time.Second

// Published returns the whole GPUs that the driver offers on the node; it waits until there are some.
func Published(ctx context.Context, client kubernetes.Interface, driver, node string) ([]Device, error) {
	ctx, cancel := context.WithTimeout(ctx, slicesLimit)
	defer cancel()
	list, err := client.ResourceV1().ResourceSlices().List(ctx, selection(driver))
	if err != nil {
		return nil, fmt.Errorf("listing ResourceSlices: %w", err)
	}
	if devices := wholeGPUs(list.Items, node); len(devices) > 0 {
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
		if slice, ok := event.Object.(*resourceapi.ResourceSlice); ok {
			if devices := wholeGPUs([]resourceapi.ResourceSlice{*slice}, node); len(devices) > 0 {
				return devices, nil
			}
		}
	}
	return nil, fmt.Errorf("waiting for driver %s to offer GPUs on node %s: %w", driver, node, ctx.Err())
}

func selection(driver string) metav1.ListOptions {
	return metav1.ListOptions{FieldSelector: "spec.driver=" + driver}
}

func wholeGPUs(slices []resourceapi.ResourceSlice, node string) []Device {
	var devices []Device
	for _, slice := range slices {
		if slice.Spec.NodeName == nil || *slice.Spec.NodeName != node {
			continue
		}
		for i := range slice.Spec.Devices {
			kind := slice.Spec.Devices[i].Attributes["type"].StringValue
			if kind != nil && *kind == "gpu" {
				devices = append(devices, Device{Pool: slice.Spec.Pool.Name, Name: slice.Spec.Devices[i].Name})
			}
		}
	}
	return devices
}

// Wipe deletes the driver's slices, as the kubelet does when it starts, and returns how long they stay away.
func Wipe(ctx context.Context, client kubernetes.Interface, driver, node string) (time.Duration, error) {
	if err := client.ResourceV1().ResourceSlices().DeleteCollection(ctx, metav1.DeleteOptions{}, selection(driver)); err != nil {
		return 0, fmt.Errorf("wiping the ResourceSlices: %w", err)
	}
	start := time.Now()
	if _, err := Published(ctx, client, driver, node); err != nil {
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
