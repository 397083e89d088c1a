package driver

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/gpu"
)

func TestAWrongModeIsTheAdministrators(t *testing.T) {
	t.Parallel()
	fix := func(wanted, flag string) []string {
		return []string{"Warning MIGModeMismatch Configure: GPU 0 (NVIDIA H100, " + string(firstUUID) + ") offers nothing: its configuration wants " + wanted +
			", and the MIG mode of this product changes only with a reset; drain the node, run nvidia-smi -i 0 -mig " + flag + " and nvidia-smi --gpu-reset -i 0"}
	}
	half := []gpu.Instance{{ID: 1, Profile: 9, Placement: gpu.Placement{Size: 4}}}
	for name, c := range map[string]struct {
		entries   string
		on        bool
		instances []gpu.Instance
		want      []string
	}{
		"slices, mode off":                 {onlySlices, false, nil, fix("MIG slices", "1")},
		"whole, mode on":                   {onlyWhole, true, nil, fix("the whole GPU", "0")},
		"in turns, mode on":                {turns, true, nil, fix("the whole GPU", "0")},
		"in turns, mode off":               {turns, false, nil, nil},
		"both, mode off":                   {both, false, nil, nil},
		"both, mode on":                    {both, true, nil, nil},
		"an instance leaves no room":       {onlyBig, true, half, nil},
		"an instance where none is wished": {onlyWhole, true, half, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDesk(t, c.entries)
			d.machine.change(t, d.ports.Inventory, func() {
				gpus := slices.Clone(d.machine.gpus)
				m := *gpus[0].MIG
				m.Mode, m.Instances = gpu.MIGMode{NeedsReset: true, Enabled: c.on, Pending: c.on}, c.instances
				gpus[0].MIG = &m
				d.machine.gpus = gpus
			})
			require.True(t, d.Load(t.Context()))
			d.Probe(t.Context())
			_ = d.offered(t)
			d.seen = nil
			_ = d.offered(t)
			assert.Equal(t, c.want, d.events(), "once")
		})
	}
}

// TestAModeThatIsWrongAgainIsToldAgain, as it was right meanwhile.
func TestAModeThatIsWrongAgainIsToldAgain(t *testing.T) {
	t.Parallel()
	d := opened(t, onlySlices)
	for range 2 {
		for _, on := range []bool{false, true} {
			d.machine.change(t, d.ports.Inventory, func() {
				gpus := slices.Clone(d.machine.gpus)
				m := *gpus[0].MIG
				m.Mode = gpu.MIGMode{NeedsReset: true, Enabled: on, Pending: on}
				gpus[0].MIG = &m
				d.machine.gpus = gpus
			})
			for range 2 {
				d.seen = nil
				_ = d.offered(t)
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
