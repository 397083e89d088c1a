package plugin

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/config"
	"github.com/prism-gpu/prism/pkg/disk"
	"github.com/prism-gpu/prism/pkg/plugin/kube"
	"github.com/prism-gpu/prism/test/fakes"
)

const (
	nameBefore = "gpu.prism.dev"
	nameNow    = "gpu.nvidia.com"
)

// renamed is a node on which a claim of each of these names was prepared on GPU 0, 1, … before the driver got another name.
func renamed(t *testing.T, names ...string) (n *wired, claims []*resourceapi.ResourceClaim) {
	t.Helper()
	n = newWired(t)
	n.cfg.Release = "prism-system/prism"
	p, err := Build(t.Context(), n.cfg, n.adapters)
	require.NoError(t, err)
	for i, name := range names {
		rc := n.claim(t, name, i)
		require.NoError(t, prepared(t.Context(), p, rc))
		claims = append(claims, rc)
	}
	require.NoError(t, p.Close())
	n.events.Written()
	n.cfg.DriverName = nameNow
	return n, claims
}

// before is a path in the plugin's directory of the earlier name.
func (n *wired) before(path string) string {
	return filepath.Join(n.cfg.Paths.KubeletPlugins, nameBefore, path)
}

// specBefore is the CDI spec of a claim of the earlier name.
func (n *wired) specBefore(rc *resourceapi.ResourceClaim) string {
	return filepath.Join(n.cfg.Paths.CDIRoot, "k8s."+nameBefore+"-claim_"+string(rc.UID)+".json")
}

// as calls the plugin as the kubelet does for drivers of that name.
func (n *wired) as(t *testing.T, name string) drapb.DRAPluginClient {
	t.Helper()
	var sockets []string
	eventually(t, func() bool {
		sockets, _ = filepath.Glob(filepath.Join(n.cfg.Paths.KubeletPlugins, name, "dra*.sock"))
		registrations, _ := filepath.Glob(filepath.Join(n.cfg.Paths.KubeletRegistrar, name+"*.sock"))
		return len(sockets) == 1 && len(registrations) == 1
	}, "the plugin is registered as "+name)
	connection, err := grpc.NewClient("unix://"+sockets[0], grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { _ = connection.Close() })
	return drapb.NewDRAPluginClient(connection)
}

// called is the kubelet's reference to a claim.
func called(rc *resourceapi.ResourceClaim) []*drapb.Claim {
	return []*drapb.Claim{{Namespace: rc.Namespace, Name: rc.Name, Uid: string(rc.UID)}}
}

// TestRun_DriverRenamed_OldNameServedUntilUnprepared: all things that a record of the old name names stay until then, and none afterwards.
func TestRun_DriverRenamed_OldNameServedUntilUnprepared(t *testing.T) {
	t.Parallel()
	n, claims := renamed(t, "old")
	old := claims[0]
	_, err := n.client.ResourceV1().ResourceSlices().Create(t.Context(), &resourceapi.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: "old"}, Spec: resourceapi.ResourceSliceSpec{Driver: nameBefore, NodeName: &n.cfg.NodeName},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	lease := kube.ReportsAnnouncement{Client: n.client, Namespace: "ns", DriverName: nameBefore, NodeName: "n0", Label: "label"}
	_, err = n.client.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n0"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	require.NoError(t, lease.Set(t.Context(), true))
	n.cfg.Profiler = config.Profiler{Enabled: true, Map: "ns/rules"}
	p, _ := n.start(t)
	kubelet := n.as(t, nameBefore)
	n.as(t, nameNow)

	answer, err := kubelet.NodePrepareResources(t.Context(), &drapb.NodePrepareResourcesRequest{Claims: called(old)})
	require.NoError(t, err)
	assert.Empty(t, answer.Claims[string(old.UID)].Error, "the kubelet asks again after its restart")
	assert.Equal(t, "k8s."+nameBefore+"/claim", strings.Split(answer.Claims[string(old.UID)].Devices[0].CdiDeviceIds[0], "=")[0])
	n.cfg.DriverName = nameBefore
	late := n.claim(t, "late", 1)
	n.cfg.DriverName = nameNow
	answer, err = kubelet.NodePrepareResources(t.Context(), &drapb.NodePrepareResourcesRequest{Claims: called(late)})
	require.NoError(t, err)
	assert.Contains(t, answer.Claims[string(late.UID)].Error, "the claim was allocated devices of driver gpu.prism.dev, whose name is gpu.nvidia.com now")

	same, other := n.claim(t, "same", 0), n.claim(t, "other", 1)
	ctx, stop := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer stop()
	require.ErrorContains(t, prepared(ctx, p, same), "is still held by another claim")
	require.NoError(t, prepared(t.Context(), p, other), "another GPU is free")
	eventually(t, func() bool { return len(n.slices.published()[n.device(0)].Taints) > 0 }, "the scheduler learns that the GPU is in use")
	assert.Empty(t, n.slices.published()[n.device(1)].Taints)
	eventually(t, func() bool {
		left, err := n.client.ResourceV1().ResourceSlices().List(t.Context(), metav1.ListOptions{})
		return err == nil && len(left.Items) == 0
	}, "devices of the old name are not advertised")
	assert.FileExists(t, n.before("claims/"+string(old.UID)+".json"))
	assert.FileExists(t, n.specBefore(old))

	left := filepath.Join(n.cfg.Paths.KubeletRegistrar, nameBefore+"-0f7a1d52-6c1e-4f43-9a55-0d6a1f0c7a11-reg.sock") // of a process that was killed
	alike := filepath.Join(n.cfg.Paths.KubeletRegistrar, nameBefore+"-nic-0f7a1d52-6c1e-4f43-9a55-0d6a1f0c7a11-reg.sock")
	for _, path := range []string{left, alike} {
		require.NoError(t, os.WriteFile(path, nil, 0o600))
	}
	_, err = kubelet.NodeUnprepareResources(t.Context(), &drapb.NodeUnprepareResourcesRequest{Claims: called(old)})
	require.NoError(t, err)
	eventually(t, func() bool {
		_, err := os.Stat(n.before(""))
		return os.IsNotExist(err)
	}, "the directory of the old name is removed")
	assert.NoFileExists(t, n.specBefore(old))
	leases, err := n.client.CoordinationV1().Leases("ns").List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	assert.Empty(t, leases.Items)
	registrations, err := filepath.Glob(filepath.Join(n.cfg.Paths.KubeletRegistrar, nameBefore+"*"))
	require.NoError(t, err)
	assert.Equal(t, []string{alike}, registrations)
	require.NoError(t, prepared(t.Context(), p, same))
	eventually(t, func() bool { return len(n.slices.published()[n.device(0)].Taints) == 0 }, "the GPU is free")
	var written []string
	eventually(t, func() bool {
		written = append(written, n.events.Written()...)
		return slices.Contains(written, "Normal DriverNameChanged Reconcile: No claim of the former driver name gpu.prism.dev is left: the plugin is registered as gpu.nvidia.com alone")
	}, "the end is an Event")
	assert.Contains(t, strings.Join(written, "\n"), "Normal DriverNameChanged Reconcile: 1 claims were prepared under the driver name gpu.prism.dev, which is gpu.nvidia.com now")
}

// TestBuild_DriverRenamedTwice_StateTakenOver: also from a name under which nothing was prepared, and back.
func TestBuild_DriverRenamedTwice_StateTakenOver(t *testing.T) {
	t.Parallel()
	n, claims := renamed(t, "a", "b")
	interval := func(name string) []string {
		found, err := filepath.Glob(filepath.Join(n.cfg.Paths.KubeletPlugins, name, "intervals/*"))
		require.NoError(t, err)
		return found
	}
	require.NotEmpty(t, interval(nameBefore))
	for _, name := range []string{nameNow, "gpu.example.com", nameBefore} {
		n.cfg.DriverName = name
		p, err := Build(t.Context(), n.cfg, n.adapters)
		require.NoError(t, err)
		records, err := p.Claims.Records()
		require.NoError(t, err)
		assert.Len(t, records, 2, name)
		assert.NotEmpty(t, interval(name), "what was set on GPUs is set back: %s", name)
		require.NoError(t, p.Close())
	}
	p := n.build(t)
	for _, rc := range claims {
		require.NoError(t, unprepared(t.Context(), p, rc))
		assert.NoFileExists(t, n.specBefore(rc))
	}
	assert.Len(t, n.tool.set, 4, "the interval of each GPU is set back")
}

// TestRun_ProcessOfOldNameRuns_ClaimsWaitForIt: it may be preparing a claim, and its locks are not ours. Its prepared claims are known
// before a GPU is allocated again.
func TestRun_ProcessOfOldNameRuns_ClaimsWaitForIt(t *testing.T) {
	t.Parallel()
	n, _ := renamed(t, "old")
	locks, err := checkpoint.OpenLocks(n.before(""))
	require.NoError(t, err)
	t.Cleanup(func() { _ = locks.Close() })
	release, err := locks.Lead(t.Context())
	require.NoError(t, err)
	p, _ := n.start(t)
	ctx, stop := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer stop()
	rc := n.claim(t, "new", 0)
	require.ErrorContains(t, prepared(ctx, p, rc), "the plugin of driver gpu.prism.dev, which is gpu.nvidia.com now, still runs on the node")
	release()
	n.as(t, nameBefore)
	eventually(t, func() bool { return p.Machine.State.former.withheld() == nil }, "the old process has ended")
	ctx, stop = context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer stop()
	require.ErrorContains(t, prepared(ctx, p, rc), "is still held by another claim")
}

// TestLead_ProcessOfOldNameRuns_LeadsAfterIt: before, the devices of its claims would seem free and their effects leaked.
func TestLead_ProcessOfOldNameRuns_LeadsAfterIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newWired(t)
		p := n.build(t)
		othersEnded := make(chan struct{})
		p.leader.othersEnded = othersEnded
		stop := fakes.Run(t, p.leader.run)
		defer stop()
		synctest.Wait()
		assert.True(t, p.Layout().Standby())
		close(othersEnded)
		synctest.Wait()
		assert.False(t, p.Layout().Standby())
	})
}

// TestFormerDriverNames_DirectoriesOfOthers_NotTaken: these are directories of another release, also of a version that wrote no release, of
// other drivers, and of the driver itself.
func TestFormerDriverNames_DirectoriesOfOthers_NotTaken(t *testing.T) {
	t.Parallel()
	n, _ := renamed(t, "old")
	write := func(path, text string) {
		path = filepath.Join(n.cfg.Paths.KubeletPlugins, path)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o750))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	for _, dir := range []string{"other.example.com", "namespace.example.com", "earlier.example.com", "before.example.com", nameNow} {
		write(dir+"/locks", "")
		write(dir+"/claims/uid.json", "{}")
	}
	write("other.example.com/release", "other")
	write("other.example.com/release-namespace", "prism-system")
	write("namespace.example.com/release", "prism")
	write("namespace.example.com/release-namespace", "other")
	write("before.example.com/release", "prism")
	write("compute-domain.nvidia.com/checkpoint.json", "{}")
	write("file", "")
	names, unmarked := formerDriverNames(n.cfg, disk.OS{})
	assert.Equal(t, []string{"before.example.com", nameBefore}, names, "versions before wrote no namespace")
	assert.Equal(t, []string{"earlier.example.com"}, unmarked)
	n.cfg.Release = ""
	names, unmarked = formerDriverNames(n.cfg, disk.OS{})
	assert.Empty(t, append(names, unmarked...))
}

// TestStart_DirectoryOfUnknownRelease_LeftAlone: another release, of a version that wrote no release, may run on the node, and be restarted.
func TestStart_DirectoryOfUnknownRelease_LeftAlone(t *testing.T) {
	t.Parallel()
	for name, runs := range map[string]bool{"its process runs": true, "its process is restarted": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n, claims := renamed(t, "old")
			require.NoError(t, os.Remove(n.before(releaseFile)))
			if runs {
				locks, err := checkpoint.OpenLocks(n.before(""))
				require.NoError(t, err)
				t.Cleanup(func() { _ = locks.Close() })
				_, err = locks.Lead(t.Context())
				require.NoError(t, err)
			}
			p, _ := n.start(t)
			n.as(t, nameNow)
			require.NoError(t, prepared(t.Context(), p, n.claim(t, "new", 1)), "nothing is withheld")
			records, err := p.Claims.Records()
			require.NoError(t, err)
			assert.Len(t, records, 1)
			assert.FileExists(t, n.before("claims/"+string(claims[0].UID)+".json"))
			assert.FileExists(t, n.specBefore(claims[0]))
			registrations, err := filepath.Glob(filepath.Join(n.cfg.Paths.KubeletRegistrar, nameBefore+"*"))
			require.NoError(t, err)
			assert.Empty(t, registrations)
		})
	}
}

// TestStart_NamespaceChanged_EarlierNamesTakenOver: the release that was installed in another namespace uses the same driver's directory.
func TestStart_NamespaceChanged_EarlierNamesTakenOver(t *testing.T) {
	t.Parallel()
	n, _ := renamed(t, "old")
	for _, release := range []string{"prism-system/prism", "other/prism", "other/prism"} {
		n.cfg.Release = release
		p, err := Build(t.Context(), n.cfg, n.adapters)
		require.NoError(t, err)
		records, err := p.Claims.Records()
		require.NoError(t, err)
		assert.Len(t, records, 1, release)
		require.NoError(t, p.Close())
	}
}

// marked is the release that the directory of a name is of, and its namespace.
func (n *wired) marked(t *testing.T, name string) string {
	t.Helper()
	var marks []string
	for _, file := range []string{releaseFile, "release-namespace"} {
		text, err := os.ReadFile(filepath.Join(n.cfg.Paths.KubeletPlugins, name, file))
		require.NoError(t, err)
		marks = append(marks, string(text))
	}
	return strings.Join(marks, " in ")
}

// TestBuild_RenamedWithUpgrade_ClaimsTakenOver: the version before wrote the name of the release alone, and reads it after a rollback.
func TestBuild_RenamedWithUpgrade_ClaimsTakenOver(t *testing.T) {
	t.Parallel()
	n, _ := renamed(t, "old")
	require.NoError(t, os.WriteFile(n.before(releaseFile), []byte("prism"), 0o600))
	require.NoError(t, os.RemoveAll(n.before("release-namespace")))
	p := n.build(t)
	records, err := p.Claims.Records()
	require.NoError(t, err)
	assert.Len(t, records, 1)
	for _, name := range []string{nameBefore, nameNow} {
		assert.Equal(t, "prism in prism-system", n.marked(t, name))
	}
}

// TestStart_NamespaceChangedWhileOldNameRuns_TakenOverAfterIt: the directory of a leading process is not rewritten, and is found again
// after a restart.
func TestStart_NamespaceChangedWhileOldNameRuns_TakenOverAfterIt(t *testing.T) {
	t.Parallel()
	n, _ := renamed(t, "old")
	p, err := Build(t.Context(), n.cfg, n.adapters)
	require.NoError(t, err)
	require.NoError(t, p.Close())
	locks, err := checkpoint.OpenLocks(n.before(""))
	require.NoError(t, err)
	t.Cleanup(func() { _ = locks.Close() })
	release, err := locks.Lead(t.Context())
	require.NoError(t, err)
	n.cfg.Release = "other/prism"
	p, err = Build(t.Context(), n.cfg, n.adapters)
	require.NoError(t, err)
	require.NoError(t, p.Close())
	assert.Equal(t, "prism in prism-system", n.marked(t, nameBefore))
	p, _ = n.start(t)
	require.ErrorContains(t, p.Machine.State.former.withheld(), "still runs on the node")
	assert.Equal(t, "prism in prism-system", n.marked(t, nameBefore))
	release()
	eventually(t, func() bool { return n.marked(t, nameNow) == "prism in other" }, "the old process has ended")
	assert.Equal(t, "prism in other", n.marked(t, nameBefore))
}

// TestBuild_OtherProcessRemovesOldName_NothingTaken: the pod that ends may remove the directory of a name without claims after this one has found it.
func TestBuild_OtherProcessRemovesOldName_NothingTaken(t *testing.T) {
	t.Parallel()
	for name, opened := range map[string]bool{"before its locks are opened": false, "after": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n, _ := renamed(t)
			open := n.adapters.Locks
			n.adapters.Locks = func(dir string) (Locks, error) {
				if dir == n.before("") && !opened {
					require.NoError(t, os.RemoveAll(dir))
				}
				locks, err := open(dir)
				if dir == n.before("") && opened {
					require.NoError(t, os.RemoveAll(dir))
				}
				return locks, err
			}
			p := n.build(t)
			assert.Empty(t, p.Machine.State.former.names())
			assert.NoError(t, p.Machine.State.former.withheld())
		})
	}
}

// TestRun_ProcessOfOldNameRemovesIt_ClaimsWaitNoLonger: the plugin does not register under the old name.
func TestRun_ProcessOfOldNameRemovesIt_ClaimsWaitNoLonger(t *testing.T) {
	t.Parallel()
	n, _ := renamed(t)
	locks, err := checkpoint.OpenLocks(n.before(""))
	require.NoError(t, err)
	t.Cleanup(func() { _ = locks.Close() })
	release, err := locks.Lead(t.Context())
	require.NoError(t, err)
	p, _ := n.start(t)
	require.ErrorContains(t, p.Machine.State.former.withheld(), "still runs on the node")
	require.NoError(t, os.RemoveAll(n.before("")))
	release()
	eventually(t, func() bool { return p.Machine.State.former.withheld() == nil }, "the old process has ended")
	assert.Empty(t, p.Machine.State.former.names())
}

// TestHasRecords_OldName_Serves: a node without GPU, too, unprepares claims of the old name.
func TestHasRecords_OldName_Serves(t *testing.T) {
	t.Parallel()
	n, _ := renamed(t, "old")
	assert.True(t, hasRecords(n.cfg))
	n.cfg.Release = ""
	assert.False(t, hasRecords(n.cfg))
}
