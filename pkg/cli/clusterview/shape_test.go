package clusterview_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/prism-gpu/prism/pkg/cli/clusterview"
)

// pools returns all pools of a cluster.
func pools(c *clusterview.Cluster) []*clusterview.Pool {
	all := append([]*clusterview.Pool{}, c.Shared...)
	for _, n := range c.Nodes {
		all = append(all, n.Pools...)
	}
	return all
}

// requireAsRead compares the ResourceSlices of a cluster with the ResourceSlices that were read.
func requireAsRead(t testing.TB, c *clusterview.Cluster, read []*resourceapi.ResourceSlice) {
	t.Helper()
	found := map[string]*resourceapi.ResourceSlice{}
	for _, p := range pools(c) {
		for _, slice := range p.Slices() {
			found[slice.Name] = slice
		}
	}
	require.Len(t, found, len(read))
	for _, want := range read {
		got := found[want.Name]
		require.NotNil(t, got, want.Name)
		require.True(t, apiequality.Semantic.DeepEqual(want.Spec, got.Spec), "want %+v\ngot  %+v", want.Spec, got.Spec)
	}
}

func TestSlices_PublishedSlices_AsRead(t *testing.T) {
	t.Parallel()
	for _, machine := range machines(t) {
		store, read := clusterview.NewStore(), published(t, machine)
		for i, slice := range read {
			if i%2 == 0 {
				store.PutSlice(slice)
				continue
			}
			data, err := slice.Marshal()
			require.NoError(t, err)
			name, err := store.PutSliceData(data)
			require.NoError(t, err)
			require.Equal(t, slice.Name, name)
		}
		requireAsRead(t, store.Cluster(), read)
	}
}

// random makes random objects.
type random struct{ *rand.Rand }

func newRandom(seed uint64) random { return random{rand.New(rand.NewPCG(seed, 38))} }

func (r random) chance() bool { return r.IntN(2) == 0 }

func (r random) pick(of ...string) string { return of[r.IntN(len(of))] }

// name returns one of few names, so that some repeat.
func (r random) name() string {
	return r.pick("gpu-0", "gpu-1", "gpu-5d3f61a2", "gpu-5d3f61a2-mig-19-6", "gpu-", "gpu--x", "gpu", "nic-7", "monitor", "", "gpu-0-", "gpu-1-gpu-0")
}

func (r random) attribute() resourceapi.DeviceAttribute {
	switch r.IntN(6) {
	case 0:
		return resourceapi.DeviceAttribute{IntValue: new(int64(r.IntN(3)) - 1)}
	case 1:
		return resourceapi.DeviceAttribute{StringValue: new(r.name())}
	case 2:
		return resourceapi.DeviceAttribute{BoolValue: new(r.chance())}
	case 3:
		return resourceapi.DeviceAttribute{VersionValue: new("1.2." + r.pick("0", "1"))}
	case 4:
		return resourceapi.DeviceAttribute{StringValues: []string{r.name(), r.name()}}
	}
	return resourceapi.DeviceAttribute{IntValues: []int64{r.Int64N(3), 1 << 40}}
}

func (r random) device() resourceapi.Device {
	d := resourceapi.Device{Name: r.name()}
	for range r.IntN(6) {
		if d.Attributes == nil {
			d.Attributes = map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{}
		}
		name := r.pick("uuid", "parentUUID", "index", "minor", "profile", "numaNode", "parentIndex") // and domains
		d.Attributes[resourceapi.QualifiedName(r.pick("", "", "resource.kubernetes.io/", "nic.example.com/")+name)] = r.attribute()
	}
	if r.chance() {
		d.Capacity = map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{"memory": {Value: resource.MustParse(r.pick("1Gi", "80Gi"))}}
	}
	for range r.IntN(3) {
		d.ConsumesCounters = append(d.ConsumesCounters, resourceapi.DeviceCounterConsumption{
			CounterSet: r.name(), Counters: map[string]resourceapi.Counter{r.pick("memory", "a"): {Value: resource.MustParse("1")}},
		})
	}
	for range r.IntN(3) {
		taint := resourceapi.DeviceTaint{Key: r.name(), Value: r.name(), Effect: resourceapi.DeviceTaintEffectNoSchedule}
		if r.chance() {
			taint.TimeAdded = new(metav1.Unix(int64(r.IntN(3)), 0))
		}
		d.Taints = append(d.Taints, taint)
	}
	switch r.IntN(4) {
	case 0:
		d.NodeName = new("n" + r.pick("1", "2"))
	case 1:
		d.NodeSelector = &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{}}}
		d.BindingConditions = []string{r.name()}
	case 2:
		d.AllNodes, d.AllowMultipleAllocations, d.BindsToNode = new(r.chance()), new(r.chance()), new(true)
	}
	return d
}

// foreign returns a ResourceSlice of a driver that Prism does not know.
func (r random) foreign(name string) *resourceapi.ResourceSlice {
	s := &resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: resourceapi.ResourceSliceSpec{
		Driver: r.pick("nic.example.com", "gpu.example.com"), Pool: resourceapi.ResourcePool{Name: name, Generation: r.Int64N(3), ResourceSliceCount: 1},
	}}
	switch r.IntN(4) {
	case 0:
		s.Spec.NodeName = new("n" + r.pick("1", "2"))
	case 1:
		s.Spec.AllNodes = new(true)
	case 2:
		s.Spec.PerDeviceNodeSelection = new(true)
	}
	for range r.IntN(5) {
		s.Spec.Devices = append(s.Spec.Devices, r.device())
	}
	for range r.IntN(3) {
		s.Spec.SharedCounters = append(s.Spec.SharedCounters, resourceapi.CounterSet{
			Name: r.name(), Counters: map[string]resourceapi.Counter{"memory": {Value: resource.MustParse(r.pick("1", "2Gi"))}},
		})
	}
	return s
}

func TestSlices_ForeignDrivers_AsRead(t *testing.T) {
	t.Parallel()
	r := newRandom(1)
	for range 100 {
		store := clusterview.NewStore()
		var read []*resourceapi.ResourceSlice
		for i := range 20 {
			slice := r.foreign(fmt.Sprint("s", i))
			if i%3 == 1 { // a former one of the same name is replaced
				store.PutSlice(r.foreign(slice.Name))
			}
			store.PutSlice(slice)
			read = append(read, slice)
		}
		store.PutSlice(r.foreign("gone"))
		store.DeleteSlice("gone")
		requireAsRead(t, store.Cluster(), read)
	}
}

func TestSlices_EveryField_AsRead(t *testing.T) {
	t.Parallel()
	// All fields that a ResourceSlice of this version of the API can have, each twice.
	full := &resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "s"}}
	n := 0
	fill(t, &full.Spec, &n)
	store := clusterview.NewStore()
	store.PutSlice(full)
	requireAsRead(t, store.Cluster(), []*resourceapi.ResourceSlice{full})
}

// TestSlices_SameFieldInOtherMessage_AsRead: without the end of a device, the field 7 of the device and of the specification are the same.
func TestSlices_SameFieldInOtherMessage_AsRead(t *testing.T) {
	t.Parallel()
	device := plain("a", "p", 1, 3, "gpu-1")
	device.Spec.Devices[0].AllNodes = new(true)
	spec := plain("b", "p", 1, 3, "gpu-1")
	spec.Spec.PerDeviceNodeSelection = new(true)
	neither := plain("c", "p", 1, 3, "gpu-1")
	for _, read := range [][]*resourceapi.ResourceSlice{{device, spec, neither}, {neither, spec, device}} {
		store := clusterview.NewStore()
		for _, slice := range read {
			store.PutSlice(slice)
		}
		requireAsRead(t, store.Cluster(), read)
	}
}

func FuzzPutSliceData(f *testing.F) {
	r := newRandom(2)
	for range 20 {
		data, err := r.foreign("s").Marshal()
		require.NoError(f, err)
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		store := clusterview.NewStore()
		if _, err := store.PutSliceData(data); err != nil {
			return
		}
		c := store.Cluster()
		var read resourceapi.ResourceSlice
		if read.Unmarshal(data) != nil {
			return // its metadata are no metadata
		}
		if again, err := read.Marshal(); err == nil && bytes.Equal(again, data) {
			requireAsRead(t, c, []*resourceapi.ResourceSlice{&read})
		}
	})
}

func TestPutSliceData_Damaged_Error(t *testing.T) {
	t.Parallel()
	data, err := published(t, "mig-h100-80")[2].Marshal()
	require.NoError(t, err)
	store := clusterview.NewStore()
	_, err = store.PutSliceData(data)
	require.NoError(t, err)
	before := len(pools(store.Cluster()))
	for n := 1; n < len(data); n += 7 {
		_, err := store.PutSliceData(data[:n])
		assert.Error(t, err, "%d bytes", n)
	}
	assert.Len(t, pools(store.Cluster()), before)
}

// renamed returns the ResourceSlices of another node with other GPUs of the same kind.
func renamed(t testing.TB, list []*resourceapi.ResourceSlice, node int) (other []*resourceapi.ResourceSlice) {
	t.Helper()
	names := map[string]string{}
	gpu := func(name string) string {
		own := clusterview.NameOf(name)
		if own == "" {
			return name
		}
		if names[own] == "" {
			names[own] = fmt.Sprintf("gpu-%04x%04x", node, len(names))
		}
		return names[own] + name[len(own):]
	}
	for _, slice := range list {
		slice := slice.DeepCopy()
		slice.Name += fmt.Sprint("-", node)
		slice.Spec.NodeName = new(fmt.Sprint("node-", node))
		slice.Spec.Pool.Generation += int64(node)
		for i := range slice.Spec.SharedCounters {
			slice.Spec.SharedCounters[i].Name = gpu(slice.Spec.SharedCounters[i].Name)
		}
		for i := range slice.Spec.Devices {
			d := &slice.Spec.Devices[i]
			d.Name = gpu(d.Name)
			for j := range d.ConsumesCounters {
				d.ConsumesCounters[j].CounterSet = gpu(d.ConsumesCounters[j].CounterSet)
			}
			for name, value := range d.Attributes {
				switch {
				case !clusterview.Identity(name):
				case value.StringValue != nil:
					value.StringValue = new(fmt.Sprint(*value.StringValue, "-", node))
				case value.IntValue != nil:
					value.IntValue = new(*value.IntValue + int64(node))
				}
				d.Attributes[name] = value
			}
		}
		pool := fmt.Sprint("node-", node)
		if parts := slice.Spec.Pool.Name[len("node-1"):]; parts != "" {
			pool += "/" + gpu(parts[1:])
		}
		slice.Spec.Pool.Name = pool
		other = append(other, slice)
	}
	return other
}

func TestKey_OtherNamesAndTimes_Equal(t *testing.T) {
	t.Parallel()
	for _, machine := range machines(t) {
		store, base := clusterview.NewStore(), published(t, machine)
		var read []*resourceapi.ResourceSlice
		for node := range 3 {
			list := renamed(t, base, node)
			read = append(read, list...)
			for i := range list {
				for j := range list[i].Spec.Devices {
					list[i].Spec.Devices[j].Taints = []resourceapi.DeviceTaint{{Key: "k", Effect: "None", TimeAdded: new(metav1.NewTime(time.Unix(int64(node), 0)))}}
				}
				store.PutSlice(list[i])
			}
		}
		c := store.Cluster()
		require.Len(t, c.Nodes, 3)
		requireAsRead(t, c, read)
		assert.Equal(t, c.Nodes[0].Key(clusterview.Reads{}), c.Nodes[1].Key(clusterview.Reads{}), machine)
		assert.Equal(t, c.Nodes[0].Key(clusterview.Reads{}), c.Nodes[2].Key(clusterview.Reads{}), machine)
	}
}
