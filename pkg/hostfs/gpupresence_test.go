package hostfs

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestMayHaveGPU_PCIDevicesAndModule_Detected(t *testing.T) {
	t.Parallel()
	const devices = "sys/bus/pci/devices/"
	for name, c := range map[string]struct {
		files map[string]string
		want  bool
	}{
		"no devices":             {map[string]string{devices + "0000:00:00.0/device": ""}, false},
		"network card":           {map[string]string{devices + "0000:01:00.0/vendor": "0x15b3\n", devices + "0000:01:00.0/class": "0x020000\n"}, false},
		"another vendor's GPU":   {map[string]string{devices + "0000:01:00.0/vendor": "0x1002\n", devices + "0000:01:00.0/class": "0x030000\n"}, false},
		"NVSwitch":               {map[string]string{devices + "0000:01:00.0/vendor": "0x10de\n", devices + "0000:01:00.0/class": "0x068000\n"}, false},
		"audio function":         {map[string]string{devices + "0000:01:00.1/vendor": "0x10de\n", devices + "0000:01:00.1/class": "0x040300\n"}, false},
		"3D controller":          {map[string]string{devices + "0000:01:00.0/vendor": "0x10de\n", devices + "0000:01:00.0/class": "0x030200\n"}, true},
		"VGA controller":         {map[string]string{devices + "0000:01:00.0/vendor": "0x10de\n", devices + "0000:01:00.0/class": "0x030000\n"}, true},
		"removed while listed":   {map[string]string{devices + "0000:01:00.0": "->../../../devices/pci0000:00/gone"}, false},
		"module without PCI bus": {map[string]string{devices + "0000:00:00.0/device": "", "proc/driver/nvidia/version": nvrmVersion}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			has, err := New(tree(t, c.files)).MayHaveGPU()
			require.NoError(t, err)
			assert.Equal(t, c.want, has)
		})
	}
}

func TestMayHaveGPU_PCIDevicesUnreadable_True(t *testing.T) {
	t.Parallel()
	has, err := New(t.TempDir()).MayHaveGPU()
	require.EqualError(t, err, "listing PCI devices: /sys/bus/pci/devices: not found")
	assert.True(t, has)
}

const nvrmVersion = "NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  580.95.05  Release Build\n"
