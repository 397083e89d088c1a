package claim

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// The steps that make a MIG device of GPU A and let a daemon serve it.
var (
	makesHigh = Step{
		Kind: StepMIG, Target: uuidA, Device: migA + "9-4",
		Args: []byte(`{"pciBusID":"0000:3b:00.0","profile":9,"name":"3g.40gb","placement":{"start":4,"size":4}}`),
	}
	servesHigh = serves(uuidA, migA+"9-4", "", `{"daemon":"aaaaaaaa-mig-9-4","default":{"shmBytes":2147483648},`+
		`"mig":{"pciBusID":"0000:3b:00.0","profile":9,"name":"3g.40gb","placement":{"start":4,"size":4}}}`)
)

func TestResolve_StrategyMPS_ControlDaemonOfItsOwn(t *testing.T) {
	t.Parallel()
	plainMPS, full := sharing(`{"strategy":"MPS"}`), sharing(`{"mps":{"activeThreadPercentage":50,"memoryLimit":"10Gi"}}`)
	lockedMPS := `{"apiVersion":"gpu.prism.dev/v1alpha1","kind":"GPUConfig","claimOverride":"Forbidden","sharing":{"mps":{"memoryLimit":"4Gi"}}}`
	servesB := serves(uuidB, "gpu-bbbbbbbb", "",
		`{"daemon":"bbbbbbbb","memoryMiB":10240,"activeThreadPercentage":50,"default":{"memoryMiB":10240,"activeThreadPercentage":50,"shmBytes":1073741824}}`)
	for name, c := range map[string]struct {
		change func(*gpu.Node, gpu.Layout)
		rc     *resourceapi.ResourceClaim
		want   []Step
	}{
		"a GPU, with every setting": {
			rc: allocated(results(result("r", "gpu-bbbbbbbb")), config(fromClaim, driverName, full)), want: []Step{servesB},
		},
		"a GPU that is advertised for MPS too, in a namespace that has no shares": {
			change: func(_ *gpu.Node, l gpu.Layout) {
				a := l[uuidA]
				a.MPS.Namespaces = []string{"team-b"}
			},
			rc:   allocated(results(inA("r", "gpu-aaaaaaaa")), config(fromClass, driverName, plainMPS)),
			want: []Step{serves(uuidA, "gpu-aaaaaaaa", "", `{"daemon":"aaaaaaaa","default":{"shmBytes":2147483648}}`)},
		},
		"the class's settings and the claim's": {
			rc: allocated(results(result("r", "gpu-bbbbbbbb")), config(fromClaim, driverName, sharing(`{"mps":{"memoryLimit":"10Gi"}}`)),
				config(fromClass, driverName, mpsConfig)),
			want: []Step{servesB},
		},
		"the claim's strategy drops the class's interval": {
			rc:   allocated(results(result("r", "gpu-bbbbbbbb")), config(fromClaim, driverName, full), config(fromClass, driverName, shortConfig)),
			want: []Step{servesB},
		},
		"the class's, which forbids others": {
			rc: allocated(results(result("r", "gpu-bbbbbbbb")), config(fromClaim, driverName, plainConfig), config(fromClass, driverName, lockedMPS)),
			want: []Step{serves(uuidB, "gpu-bbbbbbbb", "",
				`{"daemon":"bbbbbbbb","memoryMiB":4096,"default":{"memoryMiB":4096,"shmBytes":1073741824}}`)},
		},
		"the claim's interval drops the class's strategy": {
			rc:   allocated(results(result("r", "gpu-bbbbbbbb")), config(fromClaim, driverName, longConfig), config(fromClass, driverName, plainMPS)),
			want: []Step{sets(uuidB, "Long")},
		},
		"a MIG device is made before": {
			rc: allocated(results(inA("r", migA+"9-4")), config(fromClaim, driverName, plainMPS)), want: []Step{makesHigh, servesHigh},
		},
		"one of two MIG devices": {
			rc: allocated(results(inA("r", migA+"9-4"), inA("s", migA+"19-0")), config(fromClaim, driverName, plainMPS, "r")),
			want: []Step{makesHigh, servesHigh, {
				Kind: StepMIG, Target: uuidA, Device: migA + "19-0",
				Args: []byte(`{"pciBusID":"0000:3b:00.0","profile":19,"name":"1g.10gb","placement":{"start":0,"size":1}}`),
			}},
		},
		"a pre-created MIG device": {
			change: func(n *gpu.Node, _ gpu.Layout) { static(&n.GPUs[0]) },
			rc:     allocated(results(inA("r", migA+"19-6")), config(fromClaim, driverName, full)),
			want: []Step{serves(uuidA, migA+"19-6", "", `{"daemon":"aaaaaaaa-mig-19-6","memoryMiB":10240,"activeThreadPercentage":50,`+
				`"default":{"memoryMiB":10240,"activeThreadPercentage":50,"shmBytes":2147483648},`+
				`"mig":{"pciBusID":"0000:3b:00.0","profile":19,"name":"1g.10gb","placement":{"start":6,"size":1}}}`)},
		},
		"two GPUs of two requests": {
			rc: allocated(results(result("r", "gpu-bbbbbbbb"), inA("s", "gpu-aaaaaaaa")), config(fromClaim, driverName, plainMPS)),
			want: []Step{
				serves(uuidB, "gpu-bbbbbbbb", "", `{"daemon":"bbbbbbbb","default":{"shmBytes":1073741824}}`),
				serves(uuidA, "gpu-aaaaaaaa", "", `{"daemon":"aaaaaaaa","default":{"shmBytes":2147483648}}`),
			},
		},
		"no strategy": {rc: allocated(results(inA("r", "gpu-aaaaaaaa")), config(fromClaim, driverName, sharing(`{}`)))},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n, layout := mpsShared()
			delete(layout, uuidB)
			if c.change != nil {
				c.change(n, layout)
			}
			plan, err := advertising(n, layout).Resolve(c.rc)
			require.NoError(t, err)
			assert.Empty(t, cmp.Diff(c.want, plan.Steps))
		})
	}
}

func TestResolve_StrategyMPSNotPossible_Refused(t *testing.T) {
	t.Parallel()
	mps := func(rc []resourceapi.DeviceRequestAllocationResult) *resourceapi.ResourceClaim {
		return allocated(rc, config(fromClaim, driverName, mpsConfig))
	}
	const takeOut = "; take strategy MPS out of the claim's configuration (not retryable)"
	for name, c := range map[string]struct {
		change func(*gpu.Node, gpu.Layout)
		rc     *resourceapi.ResourceClaim
		want   string
	}{
		"admin access": {
			rc: mps(results(inA("r", "gpu-aaaaaaaa", withAdmin))),
			want: `request "r", device gpu-aaaaaaaa: strategy MPS cannot be set with adminAccess: nothing about a GPU is changed for such a claim` +
				takeOut,
		},
		"admin access to a MIG device": {
			change: func(n *gpu.Node, _ gpu.Layout) { static(&n.GPUs[0]) }, rc: mps(results(inA("r", migA+"19-6", withAdmin))),
			want: `request "r", device ` + migA + `19-6: strategy MPS cannot be set with adminAccess: nothing about a GPU is changed for such a claim` +
				takeOut,
		},
		"admin access to several GPUs": {
			rc: mps(results(result("r", "gpu-bbbbbbbb", withPool(poolB), withAdmin), inA("r", "gpu-aaaaaaaa", withAdmin))),
			change: func(_ *gpu.Node, l gpu.Layout) {
				b := l[uuidB]
				b.Whole = true
				l[uuidB] = b
			},
			want: `request "r", device gpu-bbbbbbbb: strategy MPS cannot be set with adminAccess: nothing about a GPU is changed for such a claim` +
				takeOut,
		},
		"several devices": {
			rc:   mps(results(inA("r", migA+"19-0"), inA("r", migA+"9-4"))),
			want: `request "r", device ` + migA + `19-0: the request was allocated 2 devices, and ` + several,
		},
		"a MIG device that other claims share": {
			change: func(n *gpu.Node, l gpu.Layout) {
				static(&n.GPUs[0])
				a := l[uuidA]
				a.MIGReplicas = map[string]int{"1g.10gb": 2}
				l[uuidA] = a
			},
			rc: mps(results(aShare("r", poolA, migA+"19-6", "1"))),
			want: `request "r", device ` + migA + `19-6: the device is shared with other claims by time-slicing, and strategy MPS requires a device ` +
				`for one claim` + takeOut,
		},
		"before Volta": {
			change: func(n *gpu.Node, _ gpu.Layout) {
				n.GPUs[0].Product = gpu.Product{Name: "Tesla P4", ComputeCapability: "6.1"}
			},
			rc: mps(results(inA("r", "gpu-aaaaaaaa"))),
			want: `request "r", device gpu-aaaaaaaa: a GPU of compute capability 6.1 (Tesla P4) cannot be shared with MPS: that requires 7.0 (Volta) ` +
				`or later` + takeOut,
		},
		"a limit over the GPU": {
			rc: allocated(results(inA("r", "gpu-aaaaaaaa")), config(fromClaim, driverName, sharing(`{"mps":{"memoryLimit":"81921Mi"}}`))),
			want: `request "r", device gpu-aaaaaaaa: the memory limit 81921Mi is more than the 80Gi of the device; ` +
				`lower the limit (not retryable)`,
		},
		"a limit over the MIG device": {
			rc: allocated(results(inA("r", migA+"9-4")), config(fromClaim, driverName, sharing(`{"mps":{"memoryLimit":"20Gi"}}`))),
			want: `request "r", device ` + migA + `9-4: the memory limit 20Gi is more than the 10Gi of the device; ` +
				`lower the limit (not retryable)`,
		},
		"enforced memory": {
			rc: allocated(results(inA("r", "gpu-aaaaaaaa")), config(fromClaim, driverName, mpsConfig), config(fromClass, driverName, enforceConfig)),
			want: `request "r", device gpu-aaaaaaaa: enforceMemory is not supported with strategy MPS: the memory limits of MPS are cooperative, as ` +
				`programs can lift them; take one of them out (not retryable)`,
		},
		"what the class forbids": {
			rc: allocated(results(inA("r", "gpu-aaaaaaaa")), config(fromClaim, driverName, mpsConfig), config(fromClass, driverName,
				`{"apiVersion":"gpu.prism.dev/v1alpha1","kind":"GPUConfig","claimOverride":"Forbidden","sharing":{"strategy":"MPS"}}`)),
			want: `request "r", device gpu-aaaaaaaa: GPUConfig: sharing` + forbidden,
		},
		"a time-sliced share": {
			change: func(_ *gpu.Node, l gpu.Layout) { l[uuidA] = gpu.Modes{TimeSlice: &gpu.Replicas{Count: 2}} },
			rc:     mps(results(aShare("r", poolA, timeSliceA, "1"))),
			want: `request "r", device ` + timeSliceA + `: GPUConfig.sharing is not supported for a device of type "timeslice", whose GPU other claims use ` +
				`too: the node's configuration says how they share it; take it out of the ResourceClaim (not retryable)`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n, layout := mpsShared()
			if c.change != nil {
				c.change(n, layout)
			}
			requireRefused(t, advertising(n, layout), c.rc, c.want)
		})
	}
}

// The hardware enforces the memory of a device for one claim.
func TestResolve_EnforceMemory_HeldByHardware(t *testing.T) {
	t.Parallel()
	n, layout := mpsShared()
	for _, device := range []string{"gpu-aaaaaaaa", migA + "9-4"} {
		_, err := advertising(n, layout).Resolve(allocated(results(inA("r", device)), config(fromClaim, driverName, enforceConfig)))
		assert.NoError(t, err, device)
	}
}
