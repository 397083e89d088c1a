package collector

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/profiler/counters"
	"github.com/prism-gpu/prism/pkg/profiler/nsight"
)

func TestChoose_MetricSet_ArgumentOrKnownSets(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		o := order(claimA, gpuA)
		o.MetricSet = "ga10x"
		commands, is := choose(t.Context(), n, &o)
		assert.Zero(t, is)
		assert.Contains(t, commands.Run, "--gpu-metrics-set=ga10x")
		o.MetricSet = "gh100"
		_, is = choose(t.Context(), n, &o)
		assert.Equal(t, outcome{reason: counters.Unsupported, message: "metricSet gh100 is not supported by Nsight Systems 1; supported values: tu10x, ga10x"}, is)
	})
}

// TestFind_Listings_Reasons: a text about another GPU is no reason.
func TestFind_Listings_Reasons(t *testing.T) {
	t.Parallel()
	const notListed = "the profiler does not list the GPU"
	for name, c := range map[string]struct {
		output  string
		err     error
		reason  counters.Reason
		message string
	}{
		"free":              {free, nil, "", ""},
		"other GPU is busy": {"X:\nSome GPUs are not supported:\n" + lineB + "\t\tAlready under profiling\n", nil, counters.Unsupported, notListed},
		"not listed":        {"X:\n" + lineB, nil, counters.Unsupported, notListed},
		"no reason":         {"Some GPUs are not supported:\n" + lineA, nil, counters.Unsupported, "the profiler does not support the GPU"},
		"without index":     {"X:\n\tA PCI[0000:65:00.0]\n", nil, counters.Unsupported, "the profiler does not support the GPU"},
		"unknown reason":    {"Some GPUs are not supported:\n" + strings.TrimSpace(lineA) + ": on strike\n", nil, counters.Unsupported, "on strike"},
		"in both":           {free + "Some GPUs are not supported:\n" + lineA + "\tAlready under profiling\n", nil, counters.PerfmonBusy, "Already under profiling"},
		"busy in the list":  {"X:\n" + strings.TrimSpace(lineA) + " already in use\n", nil, counters.PerfmonBusy, "already in use"},
		"fails":             {"oops\n", errors.New("exit status 1"), counters.Failed, "oops exit status 1"},
		"fails with text":   {"\tInsufficient privilege\n", errors.New("exit status 1"), counters.InsufficientPrivilege, "Insufficient privilege"},
		"fails behind list": {free, errors.New("exit status 1"), "", ""},
	} {
		l := listing{failed: c.err}
		l.devices, l.rest = nsight.MetricsDevices(c.output)
		index, o := l.find(gpuA)
		assert.Equal(t, c.reason, o.reason, name)
		if c.reason == "" {
			assert.Equal(t, 1, index, name)
			continue
		}
		assert.Equal(t, c.message, o.message, name)
	}
	l := listing{}
	l.devices, l.rest = nsight.MetricsDevices("Some GPUs are not supported:\n" + lineA + "\tAlready under profiling\n" + lineB + "\tUnsupported architecture\n")
	_, o := l.findAll([]counters.GPU{gpuA, gpuB})
	assert.Equal(t, outcome{reason: counters.Unsupported, message: uuidB + ": Unsupported architecture"}, o, "waiting does not help")
}

func TestExplain_Texts_Reasons(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]counters.Reason{
		"see https://developer.nvidia.com/ERR_NVGPUCTRPERM": counters.InsufficientPrivilege,
		"Insufficient privilege":                            counters.InsufficientPrivilege,
		"The user running nsys does not have permission to access NVIDIA GPU Performance Counters on the target device.": counters.InsufficientPrivilege,
		"GPU metrics sampling hardware unit is already in use by another instance of nsys or other tool.":                counters.PerfmonBusy,
		"Illegal --gpu-metrics-devices usage: Already under profiling":                                                   counters.PerfmonBusy,
		"Session name 'a' is already in use. Run `nsys sessions list`.":                                                  counters.Failed,
		"Session name 'a' is already in use. The unit is already in use":                                                 counters.PerfmonBusy,
		"NVIDIA GPUs not found, feature is not available":                                                                counters.Unsupported,
		"Unsupported architecture": counters.Unsupported, "Insufficient driver version": counters.Unsupported,
		"GPU metrics collection disabled due to Confidential Compute mode.": counters.Unsupported,
		"Metric set is not supported by GPU 0":                              counters.Unsupported,
		"Socket type not supported":                                         counters.Failed,
		"":                                                                  counters.Failed,
	} {
		reason, message := explain("before\n\t"+text+"\r\nafter", counters.Failed)
		assert.Equal(t, want, reason, text)
		if want != counters.Failed {
			assert.Equal(t, text, message)
		} else {
			assert.Equal(t, strings.Join(strings.Fields("before "+text+" after"), " "), message)
		}
	}
	_, message := explain(strings.Repeat("é", maxMessage)+"\x00\xff\x1b\n", counters.Failed)
	assert.True(t, strings.HasSuffix(message, "éé???"), message)
	assert.LessOrEqual(t, len(message), maxMessage)
}

func TestOutput_Longer_Bounded(t *testing.T) {
	t.Parallel()
	var o output
	for range 3 {
		n, err := o.Write(make([]byte, maxOutput-1))
		require.NoError(t, err)
		assert.Equal(t, maxOutput-1, n)
	}
	assert.Len(t, o.bytes, maxOutput)
}
