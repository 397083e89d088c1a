package explain

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the golden files again")

// TestExplain_Situations_Golden: one file for each situation that users meet.
func TestExplain_Situations_Golden(t *testing.T) {
	t.Parallel()
	all := map[string]func(*world) (*Explanation, error){}
	for _, group := range []map[string]func(*world) (*Explanation, error){deviceSituations, requestSituations, podSituations, nodeSituations} {
		for name, situation := range group {
			require.NotContains(t, all, name)
			all[name] = situation
		}
	}
	assert.GreaterOrEqual(t, len(all), 40)
	for name, situation := range all {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := render(situation(newWorld(t)))
			file := filepath.Join("testdata", name+".txt")
			if *update {
				require.NoError(t, os.MkdirAll("testdata", 0o755))
				require.NoError(t, os.WriteFile(file, []byte(got), 0o644))
			}
			want, err := os.ReadFile(file)
			require.NoError(t, err)
			assert.Equal(t, string(want), got)
		})
	}
	files, err := filepath.Glob("testdata/*.txt")
	require.NoError(t, err)
	assert.True(t, *update || len(files) == len(all), "files without a situation")
}

// render writes an explanation in full.
func render(e *Explanation, err error) string {
	if err != nil {
		return "error: " + err.Error() + "\n"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s\nfits: %t\n", e.Sentence, e.Fits)
	for _, r := range e.Requests {
		fmt.Fprintf(&b, "request %s\n", r)
	}
	for _, g := range e.Groups {
		fmt.Fprintf(&b, "%s (%s): %s\n", g.Cause, strings.Join(g.Nodes, " "), g.Detail)
	}
	if n := e.Nearest; n != nil {
		fmt.Fprintf(&b, "nearest: any 1 of %d: node %s, GPU %s, device %s, memory slices %d+%d\n",
			n.Alike, n.Node, n.GPU, n.Device, n.Start, n.Size)
		for _, h := range n.Holders {
			fmt.Fprintf(&b, "  holder %s/%s: %s, pods %v, owner %q, priority %d, created %d",
				h.Namespace, h.Claim, h.Devices, h.Pods, h.Owner, h.Priority, h.Created)
			if h.Terminating {
				b.WriteString(", terminating")
			}
			if h.Hidden {
				b.WriteString(", hidden")
			}
			b.WriteString("\n")
		}
	}
	for i, c := range e.Changes {
		fmt.Fprintf(&b, "change %d: %s\n", i+1, c.Text)
	}
	for _, n := range e.Notes {
		fmt.Fprintf(&b, "note: %s\n", n)
	}
	return b.String()
}
