package layout

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/gpu"
)

func TestMIGMode_NeedsReset_Reported(t *testing.T) {
	t.Parallel()
	fix := func(wanted, flag string) []string {
		return []string{"Warning MIGModeMismatch Configure: GPU 0 (NVIDIA H100, " + string(firstUUID) + ") has no device: its configuration requests " + wanted +
			", and the MIG mode of this product changes only with a reset; drain the node, run nvidia-smi -i 0 -mig " + flag + " and nvidia-smi --gpu-reset -i 0"}
	}
	half := []gpu.Instance{{ID: 1, Profile: 9, Placement: gpu.Placement{Size: 4}}}
	for name, c := range map[string]struct {
		entries   string
		on        bool
		instances []gpu.Instance
		want      []string
	}{
		"MIG devices, mode off":            {onlyMIG, false, nil, fix("MIG devices", "1")},
		"whole, mode on":                   {onlyWhole, true, nil, fix("the whole GPU", "0")},
		"shares, mode on":                  {shared, true, nil, fix("the whole GPU", "0")},
		"shares, mode off":                 {shared, false, nil, nil},
		"both, mode off":                   {both, false, nil, nil},
		"both, mode on":                    {both, true, nil, nil},
		"an instance leaves no room":       {onlyBig, true, half, nil},
		"an instance where none is wished": {onlyWhole, true, half, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newFixture(t, c.entries)
			d.machine.Change(t, d.options.Inventory, func() {
				gpus := slices.Clone(d.machine.GPUs)
				m := *gpus[0].MIG
				m.Mode, m.Instances = gpu.MIGMode{NeedsReset: true, Enabled: c.on, Pending: c.on}, c.instances
				gpus[0].MIG = &m
				d.machine.GPUs = gpus
			})
			require.True(t, d.load(t))
			d.probe(t)
			_ = d.advertised(t)
			d.renew()
			_ = d.advertised(t)
			assert.Equal(t, c.want, d.events(), "once")
		})
	}
}

// TestMIGMode_MismatchAgain_ReportedAgain.
func TestMIGMode_MismatchAgain_ReportedAgain(t *testing.T) {
	t.Parallel()
	d := opened(t, onlyMIG)
	for range 2 {
		for _, on := range []bool{false, true} {
			d.machine.Change(t, d.options.Inventory, func() {
				gpus := slices.Clone(d.machine.GPUs)
				m := *gpus[0].MIG
				m.Mode = gpu.MIGMode{NeedsReset: true, Enabled: on, Pending: on}
				gpus[0].MIG = &m
				d.machine.GPUs = gpus
			})
			for range 2 {
				d.renew()
				_ = d.advertised(t)
			}
			notes := d.events()
			if on {
				assert.Empty(t, notes)
				continue
			}
			require.Len(t, notes, 1)
			assert.Contains(t, notes[0], "MIGModeMismatch")
		}
	}
}
