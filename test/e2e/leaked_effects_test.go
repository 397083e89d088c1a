package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/plugin/cdi"
	"github.com/prism-gpu/prism/pkg/podresources"
)

// TestLeakedEffects_Removed: effects without a claim are removed within a round, but a record only after five minutes. Files of other
// drivers stay.
func TestLeakedEffects_Removed(t *testing.T) {
	ns := inParallel(t, 1)
	ns.apply("whole-gpu/pod.yaml")
	has := ns.grantedTo(ns.ready("whole-gpu"), "gpu")
	claim := ns.claimOf(ns.pod("whole-gpu"), "gpu")
	owned, err := ns.keptFor(string(claim.UID), ns.name)
	require.NoError(t, err)
	require.Len(t, owned, claimFiles)

	socket := filepath.Join(filepath.Dir(ns.variable("PRISM_NODE_0_KUBELET_PLUGINS")), "pod-resources/kubelet.sock")
	uses, err := podresources.Client{Socket: socket, CDIKind: cdi.Kind(driverName)}.Containers(t.Context())
	require.NoError(t, err)
	assert.True(t, slices.ContainsFunc(uses.Uses, func(use podresources.Use) bool {
		return use.Namespace == ns.name && use.Pod == "whole-gpu" && use.Claim == claim.Name &&
			slices.Equal(use.CDIDevices, []string{fmt.Sprintf("%s-%s-%s", claim.UID, claim.Status.Allocation.Devices.Results[0].Device, has[0].UUID)})
	}), "claims in the kubelet's list need no read from the API server")

	leaked, lost, start := string(uuid.NewUUID()), string(uuid.NewUUID()), time.Now()
	claims := filepath.Join(ns.variable("PRISM_NODE_0_KUBELET_PLUGINS"), driverName, "claims")
	ours := []string{
		ns.put(filepath.Join(ns.variable("PRISM_NODE_0_CDI"), "k8s."+driverName+"-claim_"+leaked+".json"), spec("k8s."+driverName+"/claim")),
		ns.put(filepath.Join(claims, leaked+".json.tmp"), []byte("{")),
	}
	record, err := checkpoint.Encode(&checkpoint.Record{
		Claim:  checkpoint.Claim{UID: lost, Namespace: ns.name, Name: "was-never-there"},
		BootID: "an earlier one", Writer: "e2e", State: checkpoint.Done,
	})
	require.NoError(t, err)
	others := append(owned,
		ns.put(filepath.Join(ns.variable("PRISM_NODE_0_CDI"), "k8s.gpu.example.com-claim_"+leaked+".json"), spec("k8s.gpu.example.com/claim")),
		ns.put(filepath.Join(claims, lost+".json"), record),
	)

	eventually(t, startLimit, func() error { return absent(ours) })
	t.Logf("effects without a claim were removed after %.1f s", time.Since(start).Seconds())
	eventually(t, startLimit, func() error {
		return errors.Join(ns.reported("RemoveSpec", leaked, start), ns.reported("RemoveFile", leaked, start))
	})
	metrics := ns.must(t, ns.kubectl("get", "--raw", "/api/v1/namespaces/"+system+"/pods/"+ns.plugin(t).Name+":8080/proxy/metrics")...)
	for _, kind := range []string{"spec", "file"} {
		assert.Regexp(t, `(?m)^prism_garbage_collected_total\{kind="`+kind+`"\} [1-9]`, metrics)
	}
	assert.Regexp(t, `(?m)^prism_garbage_collected_total\{kind="claim"\} 0`, metrics, "a claim is not gone for five minutes yet")
	for _, file := range others {
		_, err := os.Stat(file)
		assert.NoError(t, err)
	}
	ns.sees("whole-gpu", "main", has...)
}

// put writes a file on the node that the end of the test removes.
func (ns *namespace) put(path string, data []byte) string {
	ns.t.Helper()
	require.NoError(ns.t, os.WriteFile(path, data, 0o600))
	ns.t.Cleanup(func() { _ = os.Remove(path) })
	return path
}

// spec returns a CDI spec of that kind.
func spec(kind string) []byte {
	return fmt.Appendf(nil, `{"cdiVersion":"0.5.0","kind":%q,"devices":[{"name":"leaked","containerEdits":{"env":["LEAKED=1"]}}]}`, kind)
}

func absent(files []string) error {
	for _, file := range files {
		if _, err := os.Lstat(file); !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("%s is still there: %w", file, err)
		}
	}
	return nil
}

// reported returns an error until an Event of the node reports that this was removed. A repetition keeps the text of the first.
func (c *cluster) reported(action, what string, since time.Time) error {
	var events corev1.EventList
	if err := c.get(&events, "events", "--namespace", metav1.NamespaceDefault, "--field-selector", "reason=GarbageCollected"); err != nil {
		return err
	}
	for i := range events.Items {
		e := &events.Items[i]
		again := e.Series != nil && e.Series.LastObservedTime.After(since)
		if e.Action == action && e.InvolvedObject.Name == nodeName && (again || strings.Contains(e.Message, what)) {
			return nil
		}
	}
	return fmt.Errorf("no Event reports %s %s", action, what)
}
