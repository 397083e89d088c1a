package main

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/prism-gpu/prism/test/simgpu/model"
)

func TestInject_Health_ShownAndReset(t *testing.T) {
	n := needNode(t)
	n.must("create", "--sandbox", "--name", "n1", "--model", "h100-80", "--count", "2")
	health := func() model.Health { return n.state().GPUs[1].Health }
	n.must("inject", "recovery-action", "1", "--gpu", "1")
	n.must("inject", "row-remap", "pending", "--gpu", "1")
	n.must("inject", "row-remap", "failure", "--gpu", "1")
	n.must("inject", "fabric", "2", "--gpu", "1")
	assert.Equal(t, model.Health{Action: 1, RowRemapPending: true, RowRemapFailure: true, Fabric: model.FabricInProgress}, health())
	assert.Equal(t, model.Health{Fabric: model.FabricCompleted}, n.state().GPUs[0].Health)
	n.must("reset", "1")
	assert.Equal(t, model.Health{RowRemapFailure: true, Fabric: model.FabricInProgress}, health())
	n.must("inject", "row-remap", "none", "--gpu", "1")
	n.must("inject", "fabric", "3", "--gpu", "1")
	assert.Equal(t, model.Health{Fabric: model.FabricCompleted}, health())

	for want, args := range map[string][]string{
		"--gpu is missing":                           {"recovery-action", "1"},
		`supported values: pending, failure, none`:   {"row-remap", "soon", "--gpu", "0"},
		"NVIDIA H100 80GB HBM3 remaps rows":          {"retired-pages", "--gpu", "0"},
		`reading recovery-action: strconv.ParseUint`: {"recovery-action", "reset", "--gpu", "0"},
	} {
		assert.Contains(t, n.refused(append([]string{"inject"}, args...)...), want)
	}
}

// A GPU that is gone comes back with the same UUID.
func TestInject_GPUGone_BackAfterReset(t *testing.T) {
	n := needNode(t)
	n.must("create", "--sandbox", "--name", "n1", "--model", "h100-80", "--count", "2")
	before := n.smi("-L")
	n.must("inject", "gpu-gone", "--gpu", "0")
	uuid := n.state().GPUs[0].UUID
	assert.NotContains(t, n.smi("-L"), uuid)
	n.must("reset", uuid)
	assert.Equal(t, before, n.smi("-L"))
	assert.Contains(t, n.refused("inject", "gpu-gone"), "--gpu is missing")
}
