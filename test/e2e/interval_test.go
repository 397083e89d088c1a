package e2e

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// policyLine matches a line of nvidia-smi: the index of a GPU and its time-slice interval.
var policyLine = regexp.MustCompile(`(?m)^\| +(\d+) +Timeslice +(\w+) +\|$`)

// intervals returns the time-slice intervals of the node's GPUs by index, as nvidia-smi lists them.
func (c *cluster) intervals() (map[string]string, error) {
	out, err := c.run("", c.administrator("compute-policy", "-l")...)
	if err != nil {
		return nil, err
	}
	found := map[string]string{}
	for _, match := range policyLine.FindAllStringSubmatch(out, -1) {
		found[match[1]] = match[2]
	}
	if len(found) != nodeGPUs {
		return nil, fmt.Errorf("nvidia-smi compute-policy -l lists %d GPUs, not %d:\n%s", len(found), nodeGPUs, out)
	}
	return found, nil
}

// settings returns how often any interval was set since the node came up, and by how many processes.
func (c *cluster) settings(t *testing.T) (times, processes int) {
	t.Helper()
	var state struct {
		Calls []struct {
			Process string         `json:"process"`
			Counts  map[string]int `json:"counts"`
		} `json:"calls"`
	}
	require.NoError(t, json.Unmarshal([]byte(c.must(t, c.simgpu("state")...)), &state))
	for _, p := range state.Calls {
		if n := p.Counts["exportTableSetTimeSlice"]; n > 0 {
			assert.Equal(t, "nvidia-smi", p.Process)
			times, processes = times+n, processes+1
		}
	}
	return times, processes
}

// TestWholeInterval: the containers of one claim share its GPU with the time-slice interval that it requests. Afterwards the GPU gets its
// former interval again. Each is set exactly once.
func TestWholeInterval(t *testing.T) {
	ns := inParallel(t, 1)
	times, processes := ns.settings(t)
	ns.apply("time-slicing-interval/pod.yaml")
	grants := ns.grantedTo(ns.ready("long-interval"), "gpu")
	require.Len(t, grants, 1)
	ns.sees("long-interval", "first", grants...)
	ns.sees("long-interval", "second", grants...)
	index := fmt.Sprint(grants[0].Index)
	while, err := ns.intervals()
	require.NoError(t, err)
	for gpu, is := range while {
		want := "Default"
		if gpu == index {
			want = "Long"
		}
		assert.Equal(t, want, is, "GPU %s while GPU %s is allocated", gpu, index)
	}
	more, others := ns.settings(t)
	assert.Equal(t, []int{times + 1, processes + 1}, []int{more, others})
	assert.Contains(t, ns.do("exec", "long-interval", "--container", "first", "--", "nvidia-smi", "compute-policy", "-l"), "Long",
		"as a container of the claim sees it")

	ns.delete("pod", "long-interval")
	ns.checkNothingKept()
	after, err := ns.intervals()
	require.NoError(t, err)
	assert.Equal(t, strings.Repeat("Default ", nodeGPUs), joined(after))
	more, others = ns.settings(t)
	assert.Equal(t, []int{times + 2, processes + 2}, []int{more, others})
}

func joined(intervals map[string]string) string {
	all := ""
	for _, is := range intervals {
		all += is + " "
	}
	return all
}

// TestWholeIntervalOfTheNode: an interval in the node's configuration, for a GPU that is advertised as shares, is set once when the
// configuration takes effect, and restored when it ends.
func TestWholeIntervalOfTheNode(t *testing.T) {
	needs(t, partitionableDevices) // for the MIG devices of other GPUs
	ns := exclusive(t)
	times, _ := ns.settings(t)
	back := ns.configure(t, "select.indices={0}", "modes={timeslice}", "timeSlice.replicas=2", "timeSlice.interval=Long")
	has := func(want string) func() error {
		return func() error {
			found, err := ns.intervals()
			if err == nil && found["0"] != want {
				err = fmt.Errorf("GPU 0 has interval %s, not %s", found["0"], want)
			}
			return err
		}
	}
	eventually(t, startLimit, has("Long"))
	more, _ := ns.settings(t)
	assert.Equal(t, times+1, more)
	back()
	eventually(t, startLimit, has("Default"))
	more, _ = ns.settings(t)
	assert.Equal(t, times+2, more)
	ns.advertises(t, ns.gpus.size, startLimit)
	ns.advertisesMIG(t, startLimit)
	require.NoError(t, ns.silence())
}
