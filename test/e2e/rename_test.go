package e2e

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// renamedDriver is the new name of the driver.
const renamedDriver = "gpu.renamed.dev"

// TestWholeDriverRenamed: the pods of the old name keep their GPUs and end as others. nvidia.com/gpu is a GPU of the new name at once. When
// the last pod of the old name is gone, nothing of that name is left. The way back, which the cleanup takes, is the same.
func TestWholeDriverRenamed(t *testing.T) {
	needs(t, extendedResources)
	ns := exclusive(t)
	ns.waitForNames(t, startLimit, "nvidia.com/gpu")
	ns.apply("whole-gpu/pod.yaml")
	grants := ns.grantedTo(ns.ready("whole-gpu"), "gpu")
	uid := string(ns.claimOf(ns.pod("whole-gpu"), "gpu").UID)
	ns.helm(t, "upgrade", "prism", filepath.Join(ns.root, "deployments/helm/prism"), "--reuse-values", "--set", "driverName="+renamedDriver)
	t.Cleanup(func() {
		ns.helm(t, "rollback", "prism")
		ns.plugin(t)
		eventually(t, startLimit, func() error { return ns.nothingOf(renamedDriver) })
		ns.advertises(t, ns.gpus.size, startLimit)
		ns.advertisesMIG(t, startLimit)
	})
	ns.plugin(t)

	ns.sees("whole-gpu", "main", grants...)
	record := filepath.Join(ns.pluginsOf(driverName), "claims", uid+".json")
	require.FileExists(t, record)
	eventually(t, startLimit, func() error { return ns.hasEvent("1 claims were prepared under the driver name " + driverName) })
	eventually(t, startLimit, func() error { return ns.unpublished(driverName) })
	eventually(t, startLimit, func() error { return ns.oneIsTainted() })
	eventually(t, startLimit, func() error {
		classes, err := ns.resourceNames()
		if class := classes["nvidia.com/gpu"]; err == nil && class.Labels["prism.dev/driver"] != renamedDriver {
			err = fmt.Errorf("nvidia.com/gpu is of class %s", class.Name)
		}
		return err
	})
	ns.create(limited("by-resource", "nvidia.com/gpu", 1))
	status := ns.ready("by-resource").Status.ExtendedResourceClaimStatus
	require.NotNil(t, status)
	results := ns.claim(status.ResourceClaimName).Status.Allocation.Devices.Results
	require.Len(t, results, 1)
	assert.Equal(t, renamedDriver, results[0].Driver)
	assert.NotContains(t, grants[0].UUID, strings.TrimPrefix(results[0].Device, "gpu-"), "another GPU")

	ns.delete("pod", "whole-gpu")
	eventually(t, startLimit, func() error { return absent([]string{record, ns.pluginsOf(driverName)}) })
	eventually(t, startLimit, func() error { return ns.nothingOf(driverName) })
	require.NoError(t, ns.hasEvent("No claim of the former driver name "+driverName+" is left"))
	ns.delete("pod", "by-resource")
}

// TestWholeCDIRootChanged: the spec of a prepared claim moves to the new directory, and containers start with the specs that are written
// there.
func TestWholeCDIRootChanged(t *testing.T) {
	ns := exclusive(t)
	ns.apply("whole-gpu/pod.yaml")
	grants := ns.grantedTo(ns.ready("whole-gpu"), "gpu")
	uid := string(ns.claimOf(ns.pod("whole-gpu"), "gpu").UID)
	ns.withValue(t, "cdiRoot=/etc/cdi")
	spec := "k8s." + driverName + "-claim_" + uid + ".json"
	eventually(t, startLimit, func() error {
		_, before := ns.run("", ns.onNode("test", "!", "-e", "/var/run/cdi/"+spec)...)
		_, now := ns.run("", ns.onNode("test", "-e", "/etc/cdi/"+spec)...)
		return errors.Join(before, now)
	})
	ns.sees("whole-gpu", "main", grants...)
	ns.delete("pod", "whole-gpu")
	eventually(t, startLimit, func() error {
		_, err := ns.run("", ns.onNode("test", "!", "-e", "/etc/cdi/"+spec)...)
		return err
	})
	// The files that mount device metadata stay in the old directory, and are removed in the next round.
	eventually(t, startLimit, func() error {
		_, err := ns.run("", ns.onNode("sh", "-c", "! ls /var/run/cdi | grep "+uid)...)
		return err
	})
	ns.apply("whole-gpu/pod.yaml")
	ns.sees("whole-gpu", "main", ns.grantedTo(ns.ready("whole-gpu"), "gpu")...)
	ns.delete("pod", "whole-gpu")
}

// pluginsOf returns the directory of the plugin of that driver name.
func (c *cluster) pluginsOf(driver string) string {
	return filepath.Join(c.variable("PRISM_NODE_0_KUBELET_PLUGINS"), driver)
}

// unpublished returns an error while a driver has ResourceSlices.
func (c *cluster) unpublished(driver string) error {
	var list resourceapi.ResourceSliceList
	err := c.get(&list, "resourceslices", "--field-selector", "spec.driver="+driver)
	if err == nil && len(list.Items) > 0 {
		err = fmt.Errorf("driver %s has %d ResourceSlices", driver, len(list.Items))
	}
	return err
}

// oneIsTainted returns an error unless, under the new name, the GPU of the old name's claim, and no other, is withheld.
func (c *cluster) oneIsTainted() error {
	var list resourceapi.ResourceSliceList
	if err := c.get(&list, "resourceslices", "--field-selector", "spec.driver="+renamedDriver); err != nil {
		return err
	}
	tainted := 0
	for i := range list.Items {
		for _, device := range list.Items[i].Spec.Devices {
			withheld := slices.ContainsFunc(device.Taints, func(t resourceapi.DeviceTaint) bool { return t.Key == renamedDriver+"/not-released" })
			if value := device.Attributes["type"].StringValue; withheld && value != nil && *value == "gpu" {
				tainted++
			}
		}
	}
	if tainted != 1 {
		return fmt.Errorf("%d whole GPUs are tainted, not 1", tainted)
	}
	return nil
}

// hasEvent returns an error unless an Event of the node begins with that text.
func (c *cluster) hasEvent(text string) error {
	var list corev1.EventList
	if err := c.get(&list, "events", "--namespace", metav1.NamespaceDefault, "--field-selector", "reason=DriverNameChanged"); err != nil {
		return err
	}
	if !slices.ContainsFunc(list.Items, func(e corev1.Event) bool {
		return e.InvolvedObject.Kind == "Node" && strings.HasPrefix(e.Message, text)
	}) {
		return fmt.Errorf("no Event of the node begins with %q", text)
	}
	return nil
}

// nothingOf returns an error while an object or a file of a driver name exists in the cluster or on the node.
func (c *cluster) nothingOf(driver string) error {
	var classes resourceapi.DeviceClassList
	failed := []error{c.get(&classes, "deviceclasses"), c.unpublished(driver), absent([]string{c.pluginsOf(driver)})}
	for i := range classes.Items {
		if name := classes.Items[i].Name; strings.HasSuffix(name, "."+driver) || name == driver {
			failed = append(failed, fmt.Errorf("class %s is there", name))
		}
	}
	out, err := c.run("", c.onNode("sh", "-c", "ls /var/run/cdi | grep -F k8s."+driver+"- || true")...)
	if err == nil && out != "" {
		err = fmt.Errorf("CDI specs are there: %s", out)
	}
	return errors.Join(append(failed, err)...)
}
