package e2e

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
)

// with3gAt4 lists the devices of an H100 on which an administrator created a 3g.40gb at memory slice 4: that one, and placements that do
// not overlap with it.
var with3gAt4 = []string{
	"1g.10gb+me@0", "1g.10gb+me@1", "1g.10gb+me@2", "1g.10gb+me@3", "1g.10gb@0", "1g.10gb@1", "1g.10gb@2", "1g.10gb@3",
	"1g.20gb@0", "1g.20gb@2", "2g.20gb@0", "2g.20gb@2", "3g.40gb@0", "3g.40gb@4", "4g.40gb@0",
}

// destroyInstances destroys the GPU instances of a GPU. The exporter samples an instance until its next round after the claim has ended.
func (ns *namespace) destroyInstances(t *testing.T, index int) {
	t.Helper()
	eventually(t, startLimit, func() error {
		_, err := ns.run("", ns.administrator("mig", "-i", fmt.Sprint(index), "-dgi")...)
		return err
	})
}

// TestMIGStaticDevice: a MIG device of an administrator is advertised instead of overlapping ones, prepared for claims, and never removed.
func TestMIGStaticDevice(t *testing.T) {
	ns := migExclusive(t)
	removed := false
	remove := func() {
		if !removed {
			ns.must(t, ns.administrator("mig", "-i", "7", "-dci")...)
			ns.destroyInstances(t, 7)
			removed = true
		}
	}
	ns.must(t, ns.administrator("-i", "7", "-mig", "1")...)
	t.Cleanup(remove)
	ns.must(t, ns.administrator("mig", "-i", "7", "-cgi", "9:4", "-C")...)
	made := ns.mustPartitions(t, 7).Instances
	require.Len(t, made, 1)

	notices(t, "an administrator has created a MIG device", func() error {
		published, err := ns.placementsOf(7)
		if diff := cmp.Diff(with3gAt4, published); err == nil && diff != "" {
			err = fmt.Errorf("published devices of GPU 7 (-want +got):\n%s", diff)
		}
		return err
	})
	whole, err := ns.advertised("gpu")
	require.NoError(t, err)
	assert.Equal(t, nodeGPUs-1, whole, "a GPU that an administrator has partitioned is not advertised whole")

	ns.createMIG("static", "3g.40gb", 7)
	got := ns.migDevice("static")
	assert.Equal(t, made[0].UUID, got.UUID)
	ns.createMIG("another", "2g.20gb", 7)
	assert.Less(t, ns.migDevice("another").Placement.Start, 4)
	ns.delete("pod", "static", "another")
	eventually(t, startLimit, func() error { return ns.instances(7, 1) })
	require.Equal(t, made, ns.mustPartitions(t, 7).Instances, "the static device is as it was")

	ns.createMIG("all-of-6", "7g.80gb", 6)
	ns.createMIG("low-half-of-7", "4g.40gb", 7)
	ns.migDevice("all-of-6")
	ns.migDevice("low-half-of-7")
	ns.apply("mig-first-available/pod.yaml")
	again := ns.migDevice("mig-first-available")
	assert.Equal(t, made[0].UUID, again.UUID)
	assert.Equal(t, "mig/three", again.request, "the second choice, as no 2g.20gb is left")
	ns.delete("pod", "mig-first-available", "all-of-6", "low-half-of-7")
	require.NoError(t, ns.silence())

	remove()
	start := time.Now()
	ns.advertisesMIG(t, startLimit)
	ns.advertises(t, ns.gpus.size, startLimit)
	t.Logf("everything was advertised again %.1f s after the administrator had removed the instance", time.Since(start).Seconds())
}

// TestMIGStaticDeviceShared: as many claims as its replicas share a MIG device that an administrator created. All see that one, and the
// next claim waits for one of them to end.
func TestMIGStaticDeviceShared(t *testing.T) {
	needs(t, consumableCapacity)
	ns := migExclusive(t)
	back := ns.configure(t, "select.indices={7}", `mig.replicas.3g\.40gb=2`)
	eventually(t, startLimit, func() error { return errors.Join(ns.migDevicesOf(6, 0), ns.migDevicesOf(7, 0)) })
	remove := sync.OnceFunc(func() {
		ns.must(t, ns.administrator("mig", "-i", "7", "-dci")...)
		ns.destroyInstances(t, 7)
	})
	ns.must(t, ns.administrator("-i", "7", "-mig", "1")...)
	t.Cleanup(remove)
	ns.must(t, ns.administrator("mig", "-i", "7", "-cgi", "9:0,19:4", "-C")...)
	made := ns.mustPartitions(t, 7).Instances
	require.Len(t, made, 2)
	notices(t, "an administrator has created two MIG devices", func() error { return ns.migDevicesOf(7, 2) })

	has := func(pod string) {
		t.Helper()
		got := ns.migDevice(pod)
		assert.Equal(t, made[0].UUID, got.UUID)
		assert.Contains(t, ns.do("exec", pod, "--", "nvidia-smi", "-L"), "(UUID: "+made[0].UUID+")")
		assert.Equal(t, 2, got.Replicas)
	}
	ns.createMIG("first", "3g.40gb", 7)
	has("first")
	ns.createMIG("second", "3g.40gb", 7)
	has("second")
	ns.createMIG("third", "3g.40gb", 7)
	ns.waits("third")
	ns.createMIG("small", "1g.10gb", 7)
	assert.Equal(t, made[1].UUID, ns.migDevice("small").UUID)
	ns.createMIG("small-too", "1g.10gb", 7)
	ns.waits("small-too") // this profile has one replica

	ns.delete("pod", "first")
	has("third")
	has("second")
	ns.delete("pod", "second", "third", "small", "small-too")
	require.Equal(t, made, ns.mustPartitions(t, 7).Instances, "the administrator's instance stays")
	require.NoError(t, ns.silence())
	remove()
	back()
	ns.advertisesMIG(t, startLimit)
	ns.advertises(t, ns.gpus.size, startLimit)
}

// placementsOf returns the short names of the published MIG devices of a GPU.
func (c *cluster) placementsOf(index int) ([]string, error) {
	var found []string
	gpus, err := c.partitions()
	if err != nil {
		return nil, err
	}
	published, err := c.resourceSlices()
	for i := range published {
		for _, device := range published[i].Spec.Devices {
			if *device.Attributes["type"].StringValue == "mig" && isOf(&device, gpus[index].UUID) {
				found = append(found, shortName(&device))
			}
		}
	}
	slices.Sort(found)
	return found, err
}

// shortName returns "<profile>@<first memory slice>" for a MIG device, and the type of another device.
func shortName(device *resourceapi.Device) string {
	if kind := *device.Attributes["type"].StringValue; kind != "mig" {
		return kind
	}
	return *device.Attributes["profile"].StringValue + "@" + device.Name[strings.LastIndex(device.Name, "-")+1:]
}

// isOf reports whether a device belongs to the GPU, or is the GPU.
func isOf(device *resourceapi.Device, gpu string) bool {
	parent := device.Attributes["parentUUID"].StringValue
	return parent != nil && *parent == gpu
}
