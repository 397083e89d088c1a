package gpu_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/profiler/nsight"
)

// TestNsys_Devices_ListedByPCIAddress: Nsight Systems, if it is installed, lists each GPU of the driver by the PCI address by which the
// collector finds its index. The log shows whether its counters are supported, busy or reserved for administrators. It records nothing.
func TestNsys_Devices_ListedByPCIAddress(t *testing.T) {
	_, smi := driverFiles(t)
	nsys, err := exec.LookPath("nsys")
	if err != nil {
		t.Skip("Nsight Systems is not installed")
	}
	help, err := exec.CommandContext(t.Context(), nsys, "profile", "--help").CombinedOutput()
	require.NoError(t, err, string(help))
	tool := nsight.Tool{Switches: nsight.Switches(string(help))}
	output, err := exec.CommandContext(t.Context(), nsys, nsight.DevicesHelp(tool)...).CombinedOutput()
	require.NoError(t, err, string(output))
	t.Logf("%s", output)
	listed, _ := nsight.MetricsDevices(string(output))
	addresses, err := exec.CommandContext(t.Context(), smi, "--query-gpu=pci.bus_id", "--format=csv,noheader").Output()
	require.NoError(t, err)
	for address := range strings.FieldsSeq(string(addresses)) {
		count := 0
		for _, d := range listed {
			if d.PCIAddress == nsight.PCIAddress(address) {
				count++
				t.Logf("%s: index %d, supported %t, %q", address, d.Index, d.Supported, d.Note)
			}
		}
		assert.Equal(t, 1, count, "GPU %s", address)
	}
}
