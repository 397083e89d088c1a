package cdi

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/hook/protocol"
)

func TestMark_Result_TypeAndUse(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		result     checkpoint.Result
		more, want string
	}{
		"whole GPU":             {checkpoint.Result{Type: gpu.TypeGPU}, "", "gpu"},
		"time-sliced share":     {checkpoint.Result{Type: gpu.TypeTimeSlice}, "", "timeslice"},
		"MIG device":            {checkpoint.Result{Type: gpu.TypeMIG}, "", "mig"},
		"MPS share":             {checkpoint.Result{Type: gpu.TypeMPS}, "", "mps"},
		"whole GPU used by MPS": {checkpoint.Result{Type: gpu.TypeGPU}, "+mps", "gpu+mps"},
		"monitor":               {checkpoint.Result{Type: gpu.TypeMonitor}, "", ""},
		"admin access":          {checkpoint.Result{Type: gpu.TypeGPU, Admin: true}, "", ""},
		"performance counters":  {checkpoint.Result{Type: "perfmon"}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var want []string
			if c.want != "" {
				want = []string{protocol.Mark("d") + "=" + c.want}
			}
			assert.Equal(t, want, mark("d", &c.result, c.more))
		})
	}
}

// TestBuild_TwoDevices_MarksOfBoth: a container gets the variables of all its devices, so each device sets another variable.
func TestBuild_TwoDevices_MarksOfBoth(t *testing.T) {
	t.Parallel()
	spec, err := builder(newHost()).Build(twoDevices())
	require.NoError(t, err)
	require.Len(t, spec.Devices, 2)
	assert.Equal(t, []string{protocol.Mark("d") + "=gpu"}, spec.Devices[0].ContainerEdits.Env)
	assert.Equal(t, []string{protocol.Mark("e") + "=gpu"}, spec.Devices[1].ContainerEdits.Env)
	assert.NotEqual(t, protocol.Mark("d"), protocol.Mark("e"))
	assert.True(t, protocol.IsMark(protocol.Mark("d")))
}

func TestCreateRuntimeHook_Program_NamedFirst(t *testing.T) {
	t.Parallel()
	hook := CreateRuntimeHook("/var/lib/p/programs/v1/prism-hook", "exclusive", "--device", "d")
	assert.Equal(t, "createRuntime", hook.HookName)
	assert.Equal(t, "/var/lib/p/programs/v1/prism-hook", hook.Path)
	assert.Equal(t, []string{"prism-hook", "exclusive", "--device", "d"}, hook.Args)
}
