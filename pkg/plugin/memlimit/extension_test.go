package memlimit

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/plugin/cdi"
)

func edits(supported bool) Extension {
	return Extension{
		Supported: func(id gpu.UUID) bool { return supported && id != "GPU-b" },
		Hook:      func(args ...string) *specs.Hook { return cdi.CreateRuntimeHook("/opt/prism-hook", args...) },
		Socket:    "/run/gpu.prism.dev/hook.sock",
	}
}

func TestEditsOf_Record_SharesThatRequestedMemory(t *testing.T) {
	t.Parallel()
	got, err := edits(true).EditsOf(prepared())
	require.NoError(t, err)
	assert.True(t, edits(true).Concerns(prepared()))
	assert.False(t, edits(true).Concerns(&checkpoint.Record{Results: []checkpoint.Result{{Type: gpu.TypeMPS}}}))
	require.Len(t, got, 2)
	assert.Equal(t, cdi.DeviceEdits{Device: share, Source: "the memory limit", Edits: cdi.Edits{Hooks: []*specs.Hook{{
		HookName: "createRuntime", Path: "/opt/prism-hook", Args: []string{
			"prism-hook", "memory-limit", "--socket", "/run/gpu.prism.dev/hook.sock", "--claim", "uid", "--device", share,
		},
	}}}}, got[0])
	assert.Equal(t, "uid-unreadable", got[1].Device, "its containers fail")
}

func TestEditsOf_NodeWithoutLimits_None(t *testing.T) {
	t.Parallel()
	got, err := edits(false).EditsOf(prepared())
	require.NoError(t, err)
	assert.Empty(t, got)
}
