package e2e

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// onSickGPU is a pod with the GPU that the test breaks.
func (ns *namespace) onSickGPU(name string) workload {
	return workload{name: name, ref: "gpu", request: request{
		class: gpuClass, selectors: []string{fmt.Sprintf("device.attributes[%q].index == %d", driverName, sickGPU)},
	}}
}

// breaks injects a fault into the sick GPU, until the end of the test at the latest.
func (ns *namespace) breaks(fault ...string) {
	ns.t.Helper()
	ns.breaksAt(sickGPU, fault...)
}

func (ns *namespace) breaksAt(index int, fault ...string) {
	ns.t.Helper()
	ns.must(ns.t, ns.simgpu(append(append([]string{"inject"}, fault...), "--gpu", strconv.Itoa(index))...)...)
	ns.t.Cleanup(func() { _, _ = ns.run("", ns.simgpu("inject", "clear")...) }) // the test may have ended it
}

// recovers ends all faults, and waits until the GPU has no taint. It heals the GPU, as a problem that returns in later tests must not stay.
func (ns *namespace) recovers(uuid string) {
	ns.t.Helper()
	ns.must(ns.t, ns.simgpu("inject", "clear")...)
	start := time.Now()
	ns.isHealthy(uuid)
	ns.t.Logf("the GPU was without taints after %.1f s", time.Since(start).Seconds())
	ns.must(ns.t, ns.prism("gpu", "heal", nodeName, uuid)...)
}

// uuidAt is the UUID of the GPU with that index.
func (ns *namespace) uuidAt(index int) string {
	ns.t.Helper()
	boards, err := ns.boards()
	require.NoError(ns.t, err)
	for uuid := range boards {
		if boards[uuid].Ordinal == index {
			return uuid
		}
	}
	require.Failf(ns.t, "no such GPU", "index %d", index)
	return ""
}

// taintsOf lists the taints of the devices of a GPU, by device, on all nodes.
func (c *cluster) taintsOf(uuid string) (map[string][]resourceapi.DeviceTaint, error) {
	published, err := c.resourceSlices()
	taints := map[string][]resourceapi.DeviceTaint{}
	for i := range published {
		for _, d := range published[i].Spec.Devices {
			if parent := d.Attributes["parentUUID"].StringValue; parent != nil && *parent == uuid {
				taints[published[i].Spec.Pool.Name+"/"+d.Name] = d.Taints
			}
		}
	}
	return taints, err
}

// isTainted waits until all devices of a GPU have a taint with this key and value, and returns it. If the API server drops taints, it waits
// until none of them is published, and returns nil.
func (ns *namespace) isTainted(uuid, key, value string) (found *resourceapi.DeviceTaint) {
	ns.t.Helper()
	minor, err := minorVersion()
	require.NoError(ns.t, err)
	eventually(ns.t, startLimit, func() error {
		devices, err := ns.taintsOf(uuid)
		if minor < features[deviceTaints].since {
			if err == nil && len(devices) > 0 {
				err = fmt.Errorf("GPU %s is published: %v", uuid, devices)
			}
			return err
		}
		if err == nil && len(devices) == 0 {
			err = fmt.Errorf("no device of GPU %s is published", uuid)
		}
		for name, taints := range devices {
			at := slices.IndexFunc(taints, func(taint resourceapi.DeviceTaint) bool {
				return taint.Key == driverName+"/"+key && taint.Value == value
			})
			if at < 0 {
				return errors.Join(err, fmt.Errorf("device %s has taints %+v, not %s=%s", name, taints, key, value))
			}
			found = &taints[at]
		}
		return err
	})
	return found
}

// isHealthy waits until no device of a GPU has a taint.
func (ns *namespace) isHealthy(uuid string) {
	ns.t.Helper()
	eventually(ns.t, startLimit, func() error {
		devices, err := ns.taintsOf(uuid)
		if err == nil && len(devices) == 0 {
			err = fmt.Errorf("no device of GPU %s is published", uuid)
		}
		for name, taints := range devices {
			if len(taints) > 0 {
				err = errors.Join(err, fmt.Errorf("device %s has taints %+v", name, taints))
			}
		}
		return err
	})
}

// onlyTainted returns an error if a device of another GPU has a taint.
func (ns *namespace) onlyTainted(uuid string) error {
	boards, err := ns.boards()
	for other := range boards {
		devices, err2 := ns.taintsOf(other)
		err = errors.Join(err, err2)
		for name, taints := range devices {
			if other != uuid && len(taints) > 0 {
				err = errors.Join(err, fmt.Errorf("device %s has taints %+v", name, taints))
			}
		}
	}
	return err
}

// isUnhealthy waits until the statuses of pod and claim say that the pod's GPU is unhealthy, with a message that contains why.
func (ns *namespace) isUnhealthy(pod, ref, reason, why string) {
	ns.t.Helper()
	notices(ns.t, "the claim's status shows it", func() error { return ns.hasCondition(pod, ref, reason) })
	notices(ns.t, "and the pod's status", func() error { return ns.hasHealth(pod, corev1.ResourceHealthStatusUnhealthy, why) })
}

// hasCondition returns an error unless the condition Healthy of the pod's claim is False with that reason, or without a reason, is absent.
func (ns *namespace) hasCondition(pod, ref, reason string) error {
	claim := ns.claimOf(ns.pod(pod), ref)
	for i := range claim.Status.Devices {
		condition := meta.FindStatusCondition(claim.Status.Devices[i].Conditions, "Healthy")
		switch {
		case reason == "" && condition == nil:
		case condition == nil || condition.Status != metav1.ConditionFalse || condition.Reason != reason:
			return fmt.Errorf("condition Healthy of claim %s: %+v", claim.Name, condition)
		default:
			ns.t.Log(condition.Message)
		}
	}
	return nil
}

// hasHealth returns an error unless the pod's status has this health of its devices, and a message that contains why. Kubernetes 1.35 does
// not show it.
func (ns *namespace) hasHealth(pod string, health corev1.ResourceHealthStatus, why string) error {
	if minor, err := minorVersion(); err != nil || minor < 36 {
		return err
	}
	var seen []string
	for _, container := range ns.pod(pod).Status.ContainerStatuses {
		for _, status := range container.AllocatedResourcesStatus {
			for _, resource := range status.Resources {
				message := ""
				if resource.Message != nil {
					message = *resource.Message
				}
				if resource.Health == health && strings.Contains(message, why) {
					return nil
				}
				seen = append(seen, fmt.Sprintf("%s %s: %s %s", status.Name, resource.ResourceID, resource.Health, message))
			}
		}
	}
	return fmt.Errorf("pod %s shows %q, not %s", pod, seen, health)
}

// versions are the generations of the driver's ResourceSlices by name.
func (ns *namespace) versions() map[string]int64 {
	ns.t.Helper()
	published, err := ns.resourceSlices()
	require.NoError(ns.t, err)
	generations := map[string]int64{}
	for i := range published {
		generations[published[i].Name] = published[i].Generation
	}
	return generations
}
