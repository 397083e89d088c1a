package plugin

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/prism-gpu/prism/pkg/claim"
	"github.com/prism-gpu/prism/pkg/plugin/extension"
	"github.com/prism-gpu/prism/test/fakes"
	"github.com/prism-gpu/prism/test/null"
)

// nullConfig is the configuration of a claim for the null extension.
func (n *wired) nullConfig(text string) []resourceapi.DeviceAllocationConfiguration {
	return []resourceapi.DeviceAllocationConfiguration{{
		Source: resourceapi.AllocationConfigSourceClaim, DeviceConfiguration: resourceapi.DeviceConfiguration{
			Opaque: &resourceapi.OpaqueDeviceConfiguration{Driver: n.cfg.DriverName, Parameters: runtime.RawExtension{
				Raw: []byte(`{"apiVersion":"gpu.prism.dev/v1alpha1","kind":"NullConfig","text":"` + text + `"}`),
			}},
		},
	}}
}

// TestExtension_AddedByOneLine_AllStages: a stranger's extension is read, planned, recorded, written into the spec, reported and removed, and
// nothing in pkg knows it.
func TestExtension_AddedByOneLine_AllStages(t *testing.T) {
	t.Parallel()
	n := profilingNode(t, "", "2023.4.4") // beside the others
	added := &null.Extension{Dir: t.TempDir()}
	n.adapters.Extensions = []extension.Extension{added}
	p := n.build(t)
	defer fakes.Run(t, p.statuses.Run)()
	services := extension.All[extension.Service](p.Machine.Extensions)
	defer fakes.Run(t, services[len(services)-1].Run)()
	eventually(t, added.Serves.Load, "the service runs")
	rc := n.profiledClaim(t, withEnvironment)
	rc.Status.Allocation.Devices.Config = append(rc.Status.Allocation.Devices.Config, n.nullConfig("hello")...)
	_, err := n.client.ResourceV1().ResourceClaims(rc.Namespace).Update(t.Context(), rc, metav1.UpdateOptions{})
	require.NoError(t, err)
	require.NoError(t, prepared(t.Context(), p, rc))

	record, err := p.Machine.State.Records.Load(claimUID)
	require.NoError(t, err)
	assert.JSONEq(t, `"hello"`, string(record.Results[0].Extensions[null.ExtensionKind]))
	assert.True(t, record.Extended(claim.KindProfile))
	edits := specOf(t, n.cfg).Devices[0].ContainerEdits
	assert.Contains(t, edits.Env, "NULL_TEXT=hello")
	file := filepath.Join(added.Dir, claimUID)
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Equal(t, "hello", string(text))
	require.NoError(t, p.statuses.Drain(t.Context()))
	device := n.status(t, rc)[0]
	assert.True(t, meta.IsStatusConditionTrue(device.Conditions, "NullReady"))
	assert.Contains(t, string(device.Data.Raw), `"nullText":"hello"`)

	require.NoError(t, unprepared(t.Context(), p, rc))
	assert.NoFileExists(t, file)
}

// TestExtension_ServiceAway_ItsClaimsAlone: a claim that asks for nothing of it does not notice, and one that does says why it waits.
func TestExtension_ServiceAway_ItsClaimsAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newWired(t)
		added := &null.Extension{Dir: t.TempDir()}
		n.adapters.Extensions = []extension.Extension{added}
		p := n.build(t)
		defer fakes.Run(t, p.statuses.Run)()
		require.NoError(t, prepared(t.Context(), p, n.claim(t, "plain", 1)))
		rc := n.claim(t, "a", 0)
		rc.Status.Allocation.Devices.Config = n.nullConfig("hello")
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		require.ErrorContains(t, prepared(ctx, p, rc), "the null service does not answer (will be retried)")
		require.NoError(t, p.statuses.Drain(t.Context()))
		condition := meta.FindStatusCondition(n.status(t, rc)[0].Conditions, "NullReady")
		require.NotNil(t, condition)
		assert.Equal(t, []string{"False", "ServiceAway"}, []string{string(condition.Status), condition.Reason})
		added.Serves.Store(true)
		require.NoError(t, prepared(t.Context(), p, rc))
	})
}
