package kube_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/prism-gpu/prism/pkg/plugin/kube"
)

func TestEvents_WarnAndNormal_Stored(t *testing.T) {
	t.Parallel()
	server := fake.NewClientset()
	events := kube.NewEvents(server, driverName, nodeName)
	require.NoError(t, events.Start(t.Context()))
	stored := func() []eventsv1.Event {
		list, err := server.EventsV1().Events(metav1.NamespaceDefault).List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		return list.Items
	}
	events.Warn("NVIDIADriverUnavailable", "Discover", "100% "+strings.Repeat("ü", 1000))
	eventually(t, "the warning is stored", func() bool { return len(stored()) > 0 })
	e := stored()[0]
	assert.Equal(t, "Warning", e.Type)
	assert.Equal(t, "NVIDIADriverUnavailable", e.Reason)
	assert.Equal(t, "Discover", e.Action)
	assert.Equal(t, "100% "+strings.Repeat("ü", 509), e.Note, "at most 1024 bytes, whole characters, no formatting")
	assert.Equal(t, driverName, e.ReportingController)
	assert.Equal(t, "Node", e.Regarding.Kind)
	assert.Equal(t, nodeName, e.Regarding.Name)

	events.Normal("NVIDIADriverAvailable", "Discover", "The driver is loaded.")
	eventually(t, "the recovery is stored", func() bool {
		for _, e := range stored() {
			if e.Reason == "NVIDIADriverAvailable" && e.Type == "Normal" {
				return true
			}
		}
		return false
	})
}

// An operator who fixes one problem must see the next one of the same kind.
func TestEvents_SameReasonOtherNote_NotAggregated(t *testing.T) {
	t.Parallel()
	server := fake.NewClientset()
	events := kube.NewEvents(server, driverName, nodeName)
	require.NoError(t, events.Start(t.Context()))
	notes := func() map[string]int {
		list, err := server.EventsV1().Events(metav1.NamespaceDefault).List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		seen := map[string]int{}
		for i := range list.Items {
			seen[list.Items[i].Note]++
		}
		return seen
	}
	for _, note := range []string{"one key", "one key", "another key"} {
		events.Warn("NodeConfigInvalid", "Configure", note)
	}
	eventually(t, "both notes are stored", func() bool { return notes()["another key"] == 1 && notes()["one key"] == 1 })
}

// TestEvents_OfClaim_InItsNamespace: users read Events there, even if the claim is gone.
func TestEvents_OfClaim_InItsNamespace(t *testing.T) {
	t.Parallel()
	client := fake.NewClientset()
	recorder := kube.NewEvents(client, "gpu.prism.dev", "n0")
	require.NoError(t, recorder.Start(t.Context()))
	recorder.WarnOfClaim("team", "train-gpu", "uid", "ProfileIncomplete", "Reconcile", strings.Repeat("x", 2000))
	var found []eventsv1.Event
	eventually(t, "the Event is stored", func() bool {
		list, err := client.EventsV1().Events("team").List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		found = list.Items
		return len(found) == 1
	})
	assert.Equal(t, "ResourceClaim team/train-gpu uid", fmt.Sprintf("%s %s/%s %s", found[0].Regarding.Kind, found[0].Regarding.Namespace, found[0].Regarding.Name,
		found[0].Regarding.UID))
	assert.Len(t, found[0].Note, 1024)
}
