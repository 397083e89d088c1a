package layout

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/test/null"
)

// TestModes_Restart_NothingChanges: modes that are not saved also belong to the saved layout, and to one that is not known any more.
func TestModes_Restart_NothingChanges(t *testing.T) {
	t.Parallel()
	for name, unread := range map[string]error{"read again": nil, "not available": errLater} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newFixture(t, both)
				d.modes = []gpu.Mode{null.Mode{}}
				d.restart(t)
				require.True(t, d.load(t))
				d.probe(t)
				before := d.advertised(t)
				require.Contains(t, before, first+"-null")
				stop := d.runs(t)
				after(time.Second)
				stop()
				require.NotEmpty(t, d.saved.layout)
				for id, as := range d.saved.layout {
					as.Extra = nil // as the file has it
					d.saved.layout[id] = as
				}
				d.read = unread
				d.restart(t)
				for range retryBudget {
					d.load(t)
				}
				d.probe(t)
				assert.Equal(t, before, d.advertised(t))
				assert.Empty(t, d.now().Leaving)
			})
		})
	}
}
