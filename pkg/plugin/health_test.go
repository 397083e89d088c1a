package plugin

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/config"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/plugin/health"
	"github.com/prism-gpu/prism/pkg/plugin/health/finding"
	"github.com/prism-gpu/prism/test/fakes"
)

// began is when the stored finding began.
var began = time.Date(2026, 11, 29, 6, 0, 0, 0, time.UTC)

// storeXID writes the file of a process that has found an XID error of a GPU.
func (n *wired) storeXID(t *testing.T, device int) {
	t.Helper()
	n.storeXIDIn(t, n.cfg.PluginDir(), device)
}

func (n *wired) storeXIDIn(t *testing.T, dir string, device int) {
	t.Helper()
	text := fmt.Sprintf(`{"version":1,"bootID":"boot","state":{"findings":[{"gpu":%q,"key":"xid","value":"79","begin":%q,"blocks":true}]}}`,
		n.model.Identities()[device].UUID, began.Format(time.RFC3339))
	require.NoError(t, os.MkdirAll(dir, 0o750))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "health.json"), []byte(text), 0o600))
}

// assertXID checks that the devices of the first GPU alone have the taint of the stored finding.
func (n *wired) assertXID(t *testing.T) {
	t.Helper()
	n.slices.mu.Lock()
	defer n.slices.mu.Unlock()
	at := metav1.NewTime(began)
	for name, want := range map[string][]resourceapi.DeviceTaint{
		n.device(0): {{Key: n.cfg.DriverName + "/xid", Value: "79", Effect: resourceapi.DeviceTaintEffectNoSchedule, TimeAdded: &at}}, n.device(1): nil,
	} {
		for _, device := range []string{name, name + "-timeslice"} {
			require.Contains(t, n.slices.devices, device)
			assert.Equal(t, want, n.slices.devices[device].Taints, device)
		}
	}
}

// TestHealth_KilledBeforePublication_TaintedByTheFirst: the finding is in the file, and no poll finds it again.
func TestHealth_KilledBeforePublication_TaintedByTheFirst(t *testing.T) {
	t.Parallel()
	n := newWired(t)
	n.storeXID(t, 0)
	p := n.build(t)
	n.assertXID(t)
	assert.Equal(t, health.Unhealthy, p.Machine.Health.Health(gpu.UUID(n.model.Identities()[0].UUID)).State)
	assert.InDelta(t, 1, n.metric(t, p, "prism_gpu_unhealthy"), 0)
}

// TestHealth_AnotherProcessLedBefore_ItsFindingsArePublished: they are read when this process begins to lead.
func TestHealth_AnotherProcessLedBefore_ItsFindingsArePublished(t *testing.T) {
	t.Parallel()
	n := newWired(t)
	p := n.build(t)
	n.storeXID(t, 0)
	close(p.serving.registered)
	stop := fakes.Run(t, func(ctx context.Context) error { return p.leader.run(ctx) })
	eventually(t, func() bool { return n.slices.published() != nil }, "the process leads")
	n.assertXID(t)
	stop()
}

// TestHealth_DriverRenamed_FindingsStay with their begin, also back: polls find no XID error again.
func TestHealth_DriverRenamed_FindingsStay(t *testing.T) {
	t.Parallel()
	n, _ := renamed(t)
	n.storeXIDIn(t, n.before(""), 0)
	for _, name := range []string{nameNow, nameBefore} {
		n.cfg.DriverName = name
		n.slices = &recordedSlices{}
		p, err := Build(t.Context(), n.cfg, n.adapters)
		require.NoError(t, err)
		n.assertXID(t)
		require.NoError(t, p.Close())
	}
}

// TestHealth_ProcessOfOldNameLeads_ItsFindingsFollow: it stores findings until it ends.
func TestHealth_ProcessOfOldNameLeads_ItsFindingsFollow(t *testing.T) {
	t.Parallel()
	n, _ := renamed(t)
	locks, err := checkpoint.OpenLocks(n.before(""))
	require.NoError(t, err)
	t.Cleanup(func() { _ = locks.Close() })
	release, err := locks.Lead(t.Context())
	require.NoError(t, err)
	p, _ := n.start(t)
	n.storeXIDIn(t, n.before(""), 0)
	release()
	eventually(t, func() bool {
		return p.Machine.Health.Health(gpu.UUID(n.model.Identities()[0].UUID)).State == health.Unhealthy
	}, "the finding follows")
	assert.FileExists(t, filepath.Join(n.cfg.PluginDir(), "health.json"))
}

// TestFindingRules_KeysOfTheConfiguration_AreFindings: a key that no finding has would evict nothing.
func TestFindingRules_KeysOfTheConfiguration_AreFindings(t *testing.T) {
	t.Parallel()
	var keys []string
	for _, key := range finding.BlockingKeys {
		keys = append(keys, string(key))
	}
	assert.Equal(t, keys, config.HealthKeys)
	rules := findingRules(&config.Health{XIDs: config.XIDActions{"45": "Taint"}, NoExecute: config.Names{"xid"}, DisableChecks: "all"})
	assert.Equal(t, map[uint64]bool{45: true}, rules.XIDs.Taint)
	assert.False(t, *rules.XIDs.All)
	assert.Equal(t, map[finding.Key]bool{finding.XID: true}, rules.NoExecute)
}
