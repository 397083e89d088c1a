package driver

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/prism-gpu/prism/pkg/cdi"
	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/config"
	"github.com/prism-gpu/prism/pkg/disk"
	"github.com/prism-gpu/prism/pkg/kube"
	"github.com/prism-gpu/prism/pkg/prepare"
	"github.com/prism-gpu/prism/pkg/reconcile"
)

func TestOrphansAreToldOncePerKind(t *testing.T) {
	t.Parallel()
	told := make(nodeEvents, 16)
	m := NewMetrics("v1", quiet())
	report := OrphanReport{Events: told, Metrics: m}
	report.Removed(t.Context(), []prepare.Orphan{
		{Kind: prepare.OrphanEffect, GPU: "GPU-1", What: "mig"},
		{Kind: prepare.OrphanSpec, Claim: checkpoint.Claim{UID: "a"}},
		{Kind: prepare.OrphanSpec, Claim: checkpoint.Claim{UID: "b"}},
		{Kind: prepare.OrphanClaim, Claim: checkpoint.Claim{UID: "c", Namespace: "ns", Name: "claim"}},
		{Kind: prepare.OrphanFile, Claim: checkpoint.Claim{UID: "d"}, What: "record"},
	})
	report.Failed(t.Context(), errors.New("told before"), false)
	report.Failed(t.Context(), errors.New("it is stuck"), true)
	close(told)
	var all []string
	for event := range told {
		all = append(all, event)
	}
	assert.Equal(t, []string{
		"Normal GarbageCollected RemoveClaim: Removed what nobody owned: claim ns/claim (UID c)",
		"Normal GarbageCollected RemoveSpec: Removed what nobody owned: CDI spec of claim a, CDI spec of claim b",
		"Normal GarbageCollected RemoveEffect: Removed what nobody owned: mig on GPU GPU-1",
		"Normal GarbageCollected RemoveFile: Removed what nobody owned: unfinished record of claim d",
		"Warning GarbageCollectionFailed Reconcile: it is stuck",
	}, all)
	measured := series(t, m)
	for _, line := range []string{
		`prism_garbage_collected_total{kind="claim"} 1`, `prism_garbage_collected_total{kind="spec"} 2`,
		`prism_garbage_collected_total{kind="effect"} 1`, `prism_garbage_collected_total{kind="file"} 1`, `prism_garbage_collection_errors_total{} 2`,
	} {
		assert.Contains(t, measured, line)
	}
}

// kept is what the reconciler works on, with a record, a spec and metadata files of each of these claims.
func kept(t *testing.T, claims ...checkpoint.Claim) (Keeping, func() []string) {
	t.Helper()
	root := t.TempDir()
	cfg := &config.Plugin{DriverName: "gpu.prism.dev", Paths: config.Paths{CDIRoot: filepath.Join(root, "cdi"), KubeletPlugins: root}}
	records, err := checkpoint.Open(disk.OS{}, cfg.PluginDir())
	require.NoError(t, err)
	locks, err := checkpoint.OpenLocks(cfg.PluginDir())
	require.NoError(t, err)
	t.Cleanup(func() { _ = locks.Close() })
	specs, err := cdi.OpenDir(disk.OS{}, cfg.Paths.CDIRoot, cdi.Kind(cfg.DriverName))
	require.NoError(t, err)
	metadata := metadataOf(cfg)
	for _, c := range claims {
		require.NoError(t, records.Put(&checkpoint.Record{Claim: c, State: checkpoint.Done, BootID: "boot"}))
		require.NoError(t, os.MkdirAll(filepath.Join(metadata.dir, c.Namespace+"_"+c.Name, "gpu"), 0o750))
		require.NoError(t, os.WriteFile(filepath.Join(cfg.Paths.CDIRoot, "k8s.gpu.prism.dev-claim_"+c.UID+".json"), nil, 0o600))
		require.NoError(t, os.WriteFile(filepath.Join(cfg.Paths.CDIRoot, "gpu.prism.dev_metadata_"+c.UID+"_gpu.json"), nil, 0o600))
	}
	tx, _, err := prepare.New(prepare.Ports{Records: records, Locks: locks, Specs: struct {
		*cdi.Author
		*cdi.Dir
	}{nil, specs}}, prepare.Settings{BootID: "a later boot", Patience: time.Second, Now: time.Now})
	require.NoError(t, err)
	return Keeping{Transaction: tx, Config: cfg}, func() []string {
		var left []string
		for _, pattern := range []string{
			filepath.Join(cfg.PluginDir(), "claims/*"), filepath.Join(metadata.dir, "*"), filepath.Join(cfg.Paths.CDIRoot, "*"),
		} {
			found, err := filepath.Glob(pattern)
			require.NoError(t, err)
			for _, path := range found {
				left = append(left, filepath.Base(path))
			}
		}
		return left
	}
}

func TestUndoingAnOrphanTakesItsMetadataWithIt(t *testing.T) {
	t.Parallel()
	orphan := checkpoint.Claim{UID: "old", Namespace: "ns", Name: "claim"}
	k, left := kept(t, orphan)
	require.NoError(t, k.Unprepare(t.Context(), orphan))
	assert.Empty(t, left())
}

// TestUndoingAnOrphanLeavesItsHeirAlone: the library names a claim's folder without the UID.
func TestUndoingAnOrphanLeavesItsHeirAlone(t *testing.T) {
	t.Parallel()
	orphan := checkpoint.Claim{UID: "old", Namespace: "ns", Name: "claim"}
	k, left := kept(t, orphan, checkpoint.Claim{UID: "new", Namespace: "ns", Name: "claim"})
	require.NoError(t, k.Unprepare(t.Context(), orphan))
	assert.Equal(t, []string{
		"new.json", "ns_claim", "gpu.prism.dev_metadata_new_gpu.json", "k8s.gpu.prism.dev-claim_new.json",
	}, left())
}

// nodePods is a kubelet that lists these claims.
type nodePods []reconcile.Use

func (p nodePods) InUse(ctx context.Context) ([]reconcile.Use, error) { return p, ctx.Err() }

// TestAClaimThatIsGoneLeavesNothing goes the whole way of a claim of an earlier boot that is gone, beside one that is there and
// one that a container has.
func TestAClaimThatIsGoneLeavesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		claim := func(uid string) checkpoint.Claim {
			return checkpoint.Claim{UID: uid, Namespace: "ns", Name: "claim-" + uid}
		}
		k, left := kept(t, claim("gone"), claim("listed"), claim("there"))
		there := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "claim-there", UID: "there"}}
		server := fake.NewClientset(there)
		told := make(nodeEvents, 16)
		ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
		defer cancel()
		reconcile.New(reconcile.Ports{
			Node: k, Claims: ClaimLookup{kube.Claims{Client: server}}, Report: OrphanReport{Events: told, Metrics: NewMetrics("v1", quiet())},
			Pods: nodePods{{Namespace: "ns", Name: "claim-listed", Devices: []string{"listed-gpu-1-GPU-1"}}},
		}).Run(ctx)
		assert.Equal(t, "Normal GarbageCollected RemoveClaim: Removed what nobody owned: claim ns/claim-gone (UID gone)", <-told)
		assert.Empty(t, told)
		for _, file := range left() {
			assert.NotContains(t, file, "gone")
		}
		assert.Len(t, left(), 8, "record, metadata and two specs of each of the others")
		for _, read := range server.Actions() {
			get, isGet := read.(clienttesting.GetAction)
			require.True(t, isGet, "%v", read)
			assert.NotEqual(t, "claim-listed", get.GetName(), "the kubelet has told of it")
		}
	})
}
