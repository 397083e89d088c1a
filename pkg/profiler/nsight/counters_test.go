package nsight

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestCounters_RealVersions_Switches: nothing else is recorded, and GPUs are named by their indices.
func TestCounters_RealVersions_Switches(t *testing.T) {
	t.Parallel()
	for _, version := range versions {
		tool := installed(t, version)
		got, err := Counters(CounterSwitches{Devices: []int{1}, FrequencyHz: 10000}, tool, false)
		require.NoError(t, err)
		assert.Equal(t, Commands{Run: strings.Fields("--kill=none --wait=primary --trace=none --sample=none --cpuctxsw=none " +
			"--gpu-metrics-device=1 --gpu-metrics-frequency=10000")}, got)
		got, err = Counters(CounterSwitches{Devices: []int{0, 12}, FrequencyHz: 10, MetricSet: "tu10x"}, tool, true)
		require.NoError(t, err)
		assert.Equal(t, Commands{
			Run: strings.Fields("--wait=primary --trace=none"), Start: strings.Fields(
				"--sample=none --cpuctxsw=none --gpu-metrics-device=0,12 --gpu-metrics-frequency=10 --gpu-metrics-set=tu10x"),
		}, got)
		assert.Equal(t, []string{"profile", "--gpu-metrics-device=help"}, DevicesHelp(tool))
	}
	later := installed(t, "2023.4.4", devicesSwitch)
	got, err := Counters(CounterSwitches{Devices: []int{0}, FrequencyHz: 10}, later, false)
	require.NoError(t, err)
	assert.Contains(t, got.Run, "--gpu-metrics-devices=0")
	assert.NotContains(t, strings.Join(got.Run, " "), "--gpu-metrics-device=")
	assert.Equal(t, []string{"profile", "--gpu-metrics-devices=help"}, DevicesHelp(later))
}

func TestCounters_VersionLacksSwitches_Refused(t *testing.T) {
	t.Parallel()
	o := CounterSwitches{Devices: []int{0}, FrequencyHz: 10}
	tool := installed(t, "2023.4.4")
	for _, list := range []*[]string{&tool.Switches, &tool.Start} {
		var without []string
		for _, s := range *list {
			if s != oldDevicesSwitch {
				without = append(without, s)
			}
		}
		*list = without
	}
	_, err := Counters(o, tool, false)
	require.EqualError(t, err, "Nsight Systems 2023.4.4 does not support switch --gpu-metrics-devices")
	_, err = Counters(o, tool, true)
	require.EqualError(t, err, "Nsight Systems 2023.4.4 does not support switch --gpu-metrics-devices of nsys start")
	tool.Launch = nil
	_, err = Counters(o, tool, true)
	var untested *Untested
	require.ErrorAs(t, err, &untested)
}

func TestMetricsDevices_Lists_GPUsWithReasons(t *testing.T) {
	t.Parallel()
	const possible = "Possible --gpu-metrics-devices values are:\n"
	for name, c := range map[string]struct {
		output string
		want   []MetricsDevice
		rest   string
	}{
		"no GPU": {possible + "\tNVIDIA GPUs not found, feature is not available\n", nil, possible + "\tNVIDIA GPUs not found, feature is not available"},
		"documented": {
			possible + "\t1: Turing TU104 | GeForce RTX 2070 SUPER PCI[0000:65:00.0]\n\tall: Select all supported GPUs\n\tnone: Disable GPU Metrics [Default]\n" +
				"Some GPUs are not supported:\n\t0: Volta GV100 | Quadro GV100 PCI[0000:17:00.0]\nSee the user guide: https://docs.nvidia.com\n",
			[]MetricsDevice{{1, "00000000:65:00.0", true, ""}, {0, "00000000:17:00.0", false, ""}}, "",
		},
		"reason behind": {
			"Some GPUs are not supported:\n\tNVIDIA L40S PCI[0001:AB:00.0] - Already under profiling\r\n",
			[]MetricsDevice{{-1, "00000001:ab:00.0", false, "Already under profiling"}}, "",
		},
		"reason below": {
			"None of the installed GPUs are supported:\n\t0: A PCI[0:01:00.0]\n\t\tInsufficient privilege,\n\t\tsee https://developer.nvidia.com/ERR_NVGPUCTRPERM\n\n\t1: B PCI[0:02:00.0]\n",
			[]MetricsDevice{
				{0, "00000000:01:00.0", false, "Insufficient privilege, see https://developer.nvidia.com/ERR_NVGPUCTRPERM"}, {1, "00000000:02:00.0", false, ""},
			}, "",
		},
		"other text": {"Insufficient privilege, see https://developer.nvidia.com/ERR_NVGPUCTRPERM PCI[x]\n", nil, "Insufficient privilege, see https://developer.nvidia.com/ERR_NVGPUCTRPERM PCI[x]"},
	} {
		devices, rest := MetricsDevices(c.output)
		assert.Equal(t, c.want, devices, name)
		if c.rest != "" {
			assert.Equal(t, c.rest, rest, name)
		}
		assert.NotContains(t, rest, "under profiling")
	}
	devices, _ := MetricsDevices(strings.Repeat("0: A PCI[0:01:00.0]\n", 3*maxDevices))
	assert.Len(t, devices, maxDevices)
}

func TestPCIAddress_Forms_OneForm(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"0000:65:00.0": "00000000:65:00.0", "00000000:65:00.0": "00000000:65:00.0", "10000:E1:00.1": "00010000:e1:00.1", "65:00.0": "", "0:65:00.8": "", "": "",
	} {
		assert.Equal(t, want, PCIAddress(text), text)
	}
}

// TestMetricSet_RealVersions_IndexOrAlias: 2022.4.2 selects by the index, 2023.4.4 refuses it.
func TestMetricSet_RealVersions_IndexOrAlias(t *testing.T) {
	t.Parallel()
	outputs := map[string]string{
		"2022.4.2": "Possible --gpu-metrics-set values are:\n\t[0] [tu10x]        General Metrics for NVIDIA TU10x (any frequency)\n" +
			"\t[8] [ga10x-gfxact] Graphics Async Compute Triage Metrics for NVIDIA GA10x (frequency >= 10kHz)\n",
		"2023.4.4": "Possible --gpu-metrics-set values are:\n\ttu10x        : General Metrics for NVIDIA TU10x (any frequency)\n" +
			"\tga10x-gfxact : Graphics Async Compute Triage Metrics for NVIDIA GA10x (frequency >= 10kHz)\n\tfile:<file name> : use metric set from a given file\n",
	}
	for version, want := range map[string][2]string{"2022.4.2": {"0", "8"}, "2023.4.4": {"tu10x", "ga10x-gfxact"}} {
		for i, alias := range []string{"tu10x", "ga10x-gfxact"} {
			argument, known := MetricSet(outputs[version], alias)
			assert.Equal(t, want[i], argument)
			assert.Nil(t, known)
		}
		argument, known := MetricSet(outputs[version], "gh100")
		assert.Empty(t, argument)
		assert.Equal(t, []string{"tu10x", "ga10x-gfxact"}, known)
		for _, not := range []string{"file", "help", "", "0"} {
			argument, _ = MetricSet(outputs[version], not)
			assert.Empty(t, argument, not)
		}
	}
}

// FuzzMetricsDevices: any output of an image has GPUs with addresses in one form, and a bounded number.
func FuzzMetricsDevices(f *testing.F) {
	f.Add("Possible values are:\n\t1: A PCI[0000:65:00.0]\nSome GPUs are not supported:\n\t0: B PCI[0000:17:00.0]\n\tbelow")
	f.Fuzz(func(t *testing.T, output string) {
		devices, _ := MetricsDevices(output)
		assert.LessOrEqual(t, len(devices), maxDevices)
		for _, d := range devices {
			assert.Equal(t, d.PCIAddress, PCIAddress(d.PCIAddress))
			assert.GreaterOrEqual(t, d.Index, -1)
		}
	})
}
