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

// with3gAt4 is what an H100 is advertised as when an administrator has made a 3g.40gb at memory slice 4: that one, and what does not reach
// there.
var with3gAt4 = []string{
	"1g.10gb+me@0", "1g.10gb+me@1", "1g.10gb+me@2", "1g.10gb+me@3", "1g.10gb@0", "1g.10gb@1", "1g.10gb@2", "1g.10gb@3",
	"1g.20gb@0", "1g.20gb@2", "2g.20gb@0", "2g.20gb@2", "3g.40gb@0", "3g.40gb@4", "4g.40gb@0",
}

// destroyInstances destroys the GPU instances of a GPU. The exporter samples one of a claim until its next round after the claim has ended.
func (ns *namespace) destroyInstances(t *testing.T, index int) {
	t.Helper()
	eventually(t, startLimit, func() error {
		_, err := ns.run("", ns.administrator("mig", "-i", fmt.Sprint(index), "-dgi")...)
		return err
	})
}

// TestMIGStaticDevice: what an administrator created is advertised instead of what overlaps with it, prepared for claims, and
// never removed.
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
			err = fmt.Errorf("what is published of GPU 7 (-want +got):\n%s", diff)
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
	assert.Equal(t, "mig/three", again.request, "the second choice, where there is no 2g.20gb left")
	ns.delete("pod", "mig-first-available", "all-of-6", "low-half-of-7")
	require.NoError(t, ns.silence())

	remove()
	start := time.Now()
	ns.advertisesMIG(t, startLimit)
	ns.advertises(t, ns.gpus.size, startLimit)
	t.Logf("everything was advertised again %.1f s after the administrator had removed the instance", time.Since(start).Seconds())
}

// TestMIGStaticDeviceShared: a MIG device that an administrator created is for as many claims as its replicas say, all of which see
// that one, and the next one waits for one of them to end.
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
	ns.waits("small-too") // no replicas are for this profile

	ns.delete("pod", "first")
	has("third")
	has("second")
	ns.delete("pod", "second", "third", "small", "small-too")
	require.Equal(t, made, ns.mustPartitions(t, 7).Instances, "what the administrator created stays")
	require.NoError(t, ns.silence())
	remove()
	back()
	ns.advertisesMIG(t, startLimit)
	ns.advertises(t, ns.gpus.size, startLimit)
}

// placementsOf lists the MIG devices that are published of a GPU by their short names.
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

// shortName is "<profile>@<first memory slice>" for a MIG device, and its type for another one.
func shortName(device *resourceapi.Device) string {
	if kind := *device.Attributes["type"].StringValue; kind != "mig" {
		return kind
	}
	return *device.Attributes["profile"].StringValue + "@" + device.Name[strings.LastIndex(device.Name, "-")+1:]
}

// isOf says whether a device is of the GPU, or is the GPU.
func isOf(device *resourceapi.Device, gpu string) bool {
	parent := device.Attributes["parentUUID"].StringValue
	return parent != nil && *parent == gpu
}
