package gpus

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/cli/explain"
	"github.com/prism-gpu/prism/pkg/cli/screen"
)

var update = flag.Bool("update", false, "write the golden files again")

// golden compares text with a file of testdata.
func golden(t *testing.T, name, text string) {
	t.Helper()
	file := filepath.Join("testdata", name+".txt")
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Equal(t, string(want), text, name)
}

var (
	now    = time.Date(2031, 2, 3, 4, 5, 6, 0, time.UTC)
	wide80 = screen.Screen{Width: 80}
	wide40 = screen.Screen{Width: 40}
)

// waiting is a pod that waits for a MIG device.
func waiting() *explained {
	return &explained{Explanation: &explain.Explanation{
		Kind: "Pod", Namespace: "ml", Name: "train-0",
		Sentence: "Pod ml/train-0, Pending for 14m: no node has a free device for claim train-0-gpu",
		Requests: []string{"gpu: 1 × mig-3g-40gb.gpu.prism.dev"},
		Groups: []explain.Group{
			{Cause: explain.InUse, Detail: "every placement of 3g.40gb is blocked", Nodes: make([]string, 41)},
			{Cause: explain.Taint, Detail: "gpu.prism.dev/conflict=device-plugin: remove the device plugin", Nodes: make([]string, 6)},
			{Cause: explain.Selector, Detail: `profile == "3g.40gb": the GPUs (NVIDIA L40S) have none`, Nodes: []string{"l40s-0", "l40s-1"}},
		},
		Nearest: &explain.Nearest{Node: "gpu-a07", GPU: "gpu-46b93708", Device: "gpu-46b93708-mig-9-0", Size: 4, Alike: 1, Holders: []explain.Holder{{
			Namespace: "web", Claim: "rank-x2-gpu", Pods: []string{"rank-x2"}, Devices: "1g.10gb at 2", Created: now.Add(-72 * time.Hour).Unix(),
		}}},
		Changes: []explain.Change{{Text: "move web/rank-x2: kubectl prism defragment train-0 -n ml"}, {Text: "request 2g.20gb: 17 free now"}},
	}}
}

func TestExplainText_MIGDeviceInUse_NearestAndChanges(t *testing.T) {
	t.Parallel()
	golden(t, "explain-mig-in-use", waiting().text(wide80, false, now))
	golden(t, "explain-mig-in-use-40", waiting().text(wide40, false, now))
}

func TestExplainText_WideAndColors_NamesOfNodes(t *testing.T) {
	t.Parallel()
	e := waiting()
	e.Groups = e.Groups[2:]
	golden(t, "explain-wide", e.text(wide80, true, now))
	colored := e.text(screen.Screen{Width: 80, Colors: true}, true, now)
	assert.Contains(t, colored, "\x1b[31mSelector\x1b[0m")
	assert.Equal(t, e.text(wide80, true, now), regexp.MustCompile("\x1b\\[[0-9]+m").ReplaceAllString(colored, ""), "colors add nothing else")
}

func TestExplainText_ManyHolders_EachFactOnce(t *testing.T) {
	t.Parallel()
	e := waiting()
	e.Equal = []string{"train-1", "train-2", "train-3", "train-4", "train-5"}
	e.Nearest.Alike = 8
	e.Nearest.Holders = []explain.Holder{
		{Namespace: "web", Claim: "shared", Pods: []string{"a", "b", "c", "d", "e"}, Owner: "Deployment/web", Devices: "1g.10gb at 2", Priority: 1000, Terminating: true,
			Created: now.Add(-time.Minute).Unix()},
		{Namespace: "web", Claim: "idle", Devices: "1g.10gb at 1", Created: now.Add(-time.Hour).Unix()},
		{Hidden: true}, {Hidden: true},
	}
	e.Notes = []string{"Pod ml/train-0 belongs to a gang of 4 pods; it is explained alone."}
	golden(t, "explain-holders", e.text(wide80, false, now))
	golden(t, "explain-holders-40", e.text(wide40, false, now))
}

func TestExplainText_TextOfTenants_Escaped(t *testing.T) {
	t.Parallel()
	e := waiting()
	evil := "a\x1b[2Jb\u202ec"
	e.Sentence, e.Requests, e.Notes = evil, []string{evil}, []string{evil}
	e.Groups[0].Detail, e.Groups[2].Nodes = evil, []string{evil}
	e.Nearest.Node, e.Nearest.Holders[0].Owner, e.Changes[1].Text = evil, evil, evil
	e.Equal = []string{evil}
	text := e.text(wide80, true, now)
	assert.NotContains(t, text, "\x1b")
	assert.NotContains(t, text, "\u202e")
	assert.Equal(t, 9, strings.Count(text, `a\x1b[2Jb\u202ec`))
}

func TestExplainText_Widths_NoLineIsLonger(t *testing.T) {
	t.Parallel()
	e := waiting()
	e.Nearest.Holders[0].Pods = []string{"a-pod-with-a-very-long-name-that-its-controller-made-7f9c5d7b6f-x2abc"}
	for width := 40; width <= 120; width++ {
		for line := range strings.Lines(e.text(screen.Screen{Width: width}, false, now)) {
			if !strings.Contains(line, "prism") && !strings.Contains(line, "-name-") { // a command is copied, so it is not cut
				assert.LessOrEqual(t, utf8.RuneCountInString(line)-1, width, "%d: %s", width, line)
			}
		}
	}
}
