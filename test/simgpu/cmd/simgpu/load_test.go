package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestLoad_GPUAndMIGDevice_InState(t *testing.T) {
	n := needNode(t)
	n.must("create", "--sandbox", "--name", "n", "--model", "h100-80", "--count", "2", "--sample-hold", "shutdown")
	n.must("load", "0", "sm=60", "power=450", "ecc-corrected=3")
	gpu := n.state().GPUs[0]
	assert.Equal(t, []float64{60, 60, 450, 30}, []float64{gpu.Load.Now["sm"], gpu.Load.Now["graphics"], gpu.Load.Now["power"], gpu.Load.Now["dram"]})
	require.Eventually(t, func() bool { return n.state().GPUs[0].Load.Totals["ecc-corrected"] == 3 }, time.Minute, time.Millisecond)
	assert.Zero(t, n.state().GPUs[1].Load.Now["sm"])
	n.must("load", "0")
	assert.Zero(t, n.state().GPUs[0].Load.Now["sm"])

	n.smi("-i", "1", "-mig", "1")
	n.smi("mig", "-i", "1", "-cgi", "19", "-C")
	mig := n.state().GPUs[1].MIGDevices[0]
	steps := filepath.Join(t.TempDir(), "steps.json")
	require.NoError(t, os.WriteFile(steps, []byte(`[{"for":"1h","values":{"tensor":40,"memory":1024}},{"for":"1h","values":{}}]`), 0o644))
	n.must("load", mig.UUID, "--steps", steps, "--repeat")
	mig = n.state().GPUs[1].MIGDevices[0]
	assert.Equal(t, []float64{40, 1024}, []float64{mig.Load.Now["tensor"], mig.Load.Now["memory"]})
	assert.True(t, mig.Load.Script.Repeat)
	assert.Equal(t, uint64(1024)<<20, n.state().GPUs[1].MemoryUsed)

	n.must("inject", "xid", "45", "--gpu", "1", "--gi", "7")
	n.must("inject", "sample-hold", "free")
	for want, args := range map[string][]string{
		`reading quantity "smm": supported names: [graphics sm`:     {"load", "0", "smm=3"},
		"reading sm=x: want a form such as sm=60":                   {"load", "0", "sm=x"},
		"--steps and values exclude each other":                     {"load", "0", "sm=1", "--steps", steps},
		"power belongs to the GPU, not to a MIG device":             {"load", mig.UUID, "power=3"},
		"setting the load of GPU 9: the node has 2 GPUs":            {"load", "9", "sm=1"},
		"no GPU or MIG device of the node has this UUID: Not Found": {"load", "GPU-none", "sm=1"},
		"Invalid Argument": {"inject", "sample-hold", "always"},
		"Not Found":        {"inject", "xid", "45", "--gpu", "1", "--gi", "2"},
	} {
		assert.Contains(t, n.refused(args...), want)
	}
	assert.Contains(t, n.refused("create", "--sandbox", "--sample-hold", "always"), `supported values: "free", "shutdown"`)
}
