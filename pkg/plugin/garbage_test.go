package plugin

import (
	"context"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/config"
	"github.com/prism-gpu/prism/pkg/disk"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/hostfs"
	"github.com/prism-gpu/prism/pkg/plugin/cdi"
	"github.com/prism-gpu/prism/pkg/plugin/kube"
	"github.com/prism-gpu/prism/pkg/plugin/prepare"
	"github.com/prism-gpu/prism/pkg/plugin/prepare/gc"
	"github.com/prism-gpu/prism/pkg/plugin/reconcile"
	"github.com/prism-gpu/prism/test/fakes"
)

func TestCollection_Removed_OneEventPerKind(t *testing.T) {
	t.Parallel()
	written := make(fakes.Events, 16)
	m := collectionCounts{}
	report := collection{Events: written, Metrics: m}
	report.Removed(t.Context(), []gc.Leak{
		{Kind: gc.LeakedEffect, GPU: "GPU-1", What: "mig"},
		{Kind: gc.LeakedSpec, Claim: checkpoint.Claim{UID: "a"}},
		{Kind: gc.LeakedSpec, Claim: checkpoint.Claim{UID: "b"}},
		{Kind: gc.LeakedClaim, Claim: checkpoint.Claim{UID: "c", Namespace: "ns", Name: "claim"}},
		{Kind: gc.LeakedFile, Claim: checkpoint.Claim{UID: "d"}, What: "record"},
	})
	report.Failed(t.Context(), errors.New("reported before"), false)
	report.Failed(t.Context(), errors.New("it is stuck"), true)
	close(written)
	var all []string
	for event := range written {
		all = append(all, event)
	}
	assert.Equal(t, []string{
		"Normal GarbageCollected RemoveClaim: Removed leaked resources: claim c",
		"Normal GarbageCollected RemoveSpec: Removed leaked resources: CDI spec of claim a, CDI spec of claim b",
		"Normal GarbageCollected RemoveEffect: Removed leaked resources: mig on GPU GPU-1",
		"Normal GarbageCollected RemoveFile: Removed leaked resources: unfinished record of claim d",
		"Warning GarbageCollectionFailed Reconcile: it is stuck",
	}, all)
	assert.Equal(t, map[gc.Kind]int{
		gc.LeakedClaim: 1, gc.LeakedSpec: 2, gc.LeakedEffect: 1, gc.LeakedFile: 1, "failed": 2,
	}, map[gc.Kind]int(m))
}

// collectionCounts counts removals by kind, and failures.
type collectionCounts map[gc.Kind]int

func (c collectionCounts) Collected(kind gc.Kind) { c[kind]++ }

func (c collectionCounts) CollectionFailed() { c["failed"]++ }

// kept is the reconciler's state, with a record, a spec and metadata files of each of these claims.
func kept(t *testing.T, claims ...checkpoint.Claim) (collected, func() []string) {
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
	metadata := filepath.Join(cfg.PluginDir(), "dra-device-metadata")
	for _, c := range claims {
		require.NoError(t, records.Put(&checkpoint.Record{Claim: c, State: checkpoint.Done, BootID: "boot"}))
		require.NoError(t, os.MkdirAll(filepath.Join(metadata, c.Namespace+"_"+c.Name, "gpu"), 0o750))
		require.NoError(t, os.WriteFile(filepath.Join(cfg.Paths.CDIRoot, "k8s.gpu.prism.dev-claim_"+c.UID+".json"), nil, 0o600))
		require.NoError(t, os.WriteFile(filepath.Join(cfg.Paths.CDIRoot, "gpu.prism.dev_metadata_"+c.UID+"_gpu.json"), nil, 0o600))
	}
	links := &charLinks{make: func([]hostfs.CharDevice) error { return nil }}
	tx, _, err := prepare.New(prepare.Ports{Records: records, Locks: locks, Specs: claimSpecs{nil, specs, metadataSpecs{cfg: cfg}, links}}, prepare.Options{BootID: "a later boot", RetryBudget: time.Second, Now: time.Now})
	require.NoError(t, err)
	return collected{Transaction: tx, Collector: tx.Collector(), Config: cfg}, func() []string {
		var left []string
		for _, pattern := range []string{
			filepath.Join(cfg.PluginDir(), "claims/*"), filepath.Join(metadata, "*"), filepath.Join(cfg.Paths.CDIRoot, "*"),
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

func TestCollected_Unprepare_MetadataRemoved(t *testing.T) {
	t.Parallel()
	gone := checkpoint.Claim{UID: "old", Namespace: "ns", Name: "claim"}
	k, left := kept(t, gone)
	require.NoError(t, k.Unprepare(t.Context(), gone))
	assert.Empty(t, left())
}

// TestCollected_UnprepareBesideClaimOfSameName_ItsMetadataStays: the library names a claim's folder without the UID.
func TestCollected_UnprepareBesideClaimOfSameName_ItsMetadataStays(t *testing.T) {
	t.Parallel()
	gone := checkpoint.Claim{UID: "old", Namespace: "ns", Name: "claim"}
	k, left := kept(t, gone, checkpoint.Claim{UID: "new", Namespace: "ns", Name: "claim"})
	require.NoError(t, k.Unprepare(t.Context(), gone))
	assert.Equal(t, []string{
		"new.json", "ns_claim", "gpu.prism.dev_metadata_new_gpu.json", "k8s.gpu.prism.dev-claim_new.json",
	}, left())
}

// nodePods is a kubelet that lists these claims.
type nodePods []reconcile.Use

func (p nodePods) InUse(ctx context.Context, _ func(namespace, name string) bool) ([]reconcile.Use, error) {
	return p, ctx.Err()
}

// TestCollected_ClaimGone_NothingLeft goes the whole way of a claim of an earlier boot that is gone, beside one that is there and
// one that a container has.
func TestCollected_ClaimGone_NothingLeft(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		claim := func(uid string) checkpoint.Claim {
			return checkpoint.Claim{UID: uid, Namespace: "ns", Name: "claim-" + uid}
		}
		k, left := kept(t, claim("gone"), claim("listed"), claim("there"))
		there := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "claim-there", UID: "there"}}
		server := fake.NewClientset(there)
		written := make(fakes.Events, 16)
		ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
		defer cancel()
		reconcile.New(reconcile.Options{
			Node: k, Claims: claimLookup{kube.Claims{Client: server}}, Report: collection{Events: written, Metrics: collectionCounts{}},
			Pods: nodePods{{Namespace: "ns", Name: "claim-listed", Devices: []string{"listed-gpu-1-GPU-1"}}},
		}).Run(ctx)
		assert.Equal(t, "Normal GarbageCollected RemoveClaim: Removed leaked resources: claim gone", <-written)
		assert.Empty(t, written)
		for _, file := range left() {
			assert.NotContains(t, file, "gone")
		}
		assert.Len(t, left(), 8, "record, metadata and two specs of each of the others")
		for _, read := range server.Actions() {
			get, isGet := read.(clienttesting.GetAction)
			require.True(t, isGet, "%v", read)
			assert.NotEqual(t, "claim-listed", get.GetName(), "the kubelet lists it")
		}
	})
}

// TestNodeEvents_ClaimsOfTenants_NamedByUIDAlone: Events of a Node are in namespace default, and other tenants read them there.
func TestNodeEvents_ClaimsOfTenants_NamedByUIDAlone(t *testing.T) {
	t.Parallel()
	const namespace, name = "tenant-namespace", "tenant-claim"
	of := checkpoint.Claim{UID: "6f0c1d2e", Namespace: namespace, Name: name}
	resource := resourceapi.SchemeGroupVersion.WithResource("resourceclaims").GroupResource()
	request := &url.Error{Op: "Get", URL: "https://server/apis/resource.k8s.io/v1/namespaces/" + namespace + "/resourceclaims/" + name, Err: errors.New("connection refused")}
	exists := func(answer error) error {
		server := fake.NewClientset()
		server.PrependReactor("get", "resourceclaims", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, answer })
		_, err := claimLookup{kube.Claims{Client: server}}.Exists(t.Context(), of)
		require.ErrorContains(t, errors.Unwrap(err), name, "the log has it")
		return err
	}
	dir := filepath.Join(t.TempDir(), "records")
	records, err := checkpoint.Open(disk.OS{}, dir)
	require.NoError(t, err)
	require.NoError(t, os.RemoveAll(dir))
	written := make(fakes.Events, 16)
	report := collection{Events: written, Metrics: collectionCounts{}}
	report.Removed(t.Context(), []gc.Leak{
		{Kind: gc.LeakedClaim, Claim: of}, {Kind: gc.LeakedSpec, Claim: of}, {Kind: gc.LeakedFile, Claim: of, What: "record"},
	})
	for want, failure := range map[string]error{
		"the API server did not answer: connection refused":                  exists(request),
		"the API server did not answer: Forbidden":                           exists(apierrors.NewForbidden(resource, name, errors.New("no"))),
		"the API server did not answer: the log of the plugin has the cause": exists(errors.New("odd")),
		"recovering claim 6f0c1d2e: GPU is lost":                             prepare.OfClaim("recovering", of, gpu.ErrLost),
		"storing the record of claim 6f0c1d2e: ":                             records.Put(&checkpoint.Record{Claim: of, State: checkpoint.Done}),
	} {
		report.Failed(t.Context(), failure, true)
		assert.Contains(t, failure.Error(), want)
	}
	close(written)
	for event := range written {
		assert.NotContains(t, event, namespace)
		assert.NotContains(t, event, name)
	}
}

// TestCollect_MetadataSpecsOfGoneClaims_Removed: a claim whose record was lost, or whose Unprepare was cut short, leaves them.
func TestCollect_MetadataSpecsOfGoneClaims_Removed(t *testing.T) {
	t.Parallel()
	n := newWired(t)
	p := n.build(t)
	rc := n.claim(t, "a", 0)
	require.NoError(t, prepared(t.Context(), p, rc))
	metadata := func(driver, uid string) string {
		path := filepath.Join(n.cfg.Paths.CDIRoot, driver+"_metadata_"+uid+"_gpu.json")
		require.NoError(t, os.WriteFile(path, nil, 0o600))
		return path
	}
	gone := metadata(n.cfg.DriverName, "gone")
	kept := []string{metadata(n.cfg.DriverName, string(rc.UID)), metadata("nic.example.com", "gone"), metadata(n.cfg.DriverName, "running")}
	removed, err := p.Claims.Collector().Collect(t.Context(), []string{"running-gpu"}, true)
	require.NoError(t, err)
	require.Len(t, removed, 1)
	assert.NoFileExists(t, gone)
	for _, path := range kept {
		assert.FileExists(t, path)
	}
}
