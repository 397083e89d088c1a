package kube

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
)

// maxNote is the API's limit for the text of an Event, in bytes.
const maxNote = 1024

// Events reports what an operator of the node must know as Events of the Node object, where `kubectl describe node` shows
// them. The library joins repetitions; what has another text is none. All methods can be called from any goroutine.
type Events struct {
	broadcaster events.EventBroadcaster
	recorder    events.EventRecorder
	node        *corev1.ObjectReference
}

// NewEvents prepares reporting by that driver about that node. Events are sent from Start on.
func NewEvents(client kubernetes.Interface, driverName, nodeName string) *Events {
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: client.EventsV1()})
	return &Events{
		broadcaster: broadcaster,
		recorder:    broadcaster.NewRecorder(scheme.Scheme, driverName),
		// The kubelet refers to its Node by the name as UID, and tools look for that.
		node: &corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: nodeName, UID: types.UID(nodeName)},
	}
}

// Start sends in the background, until ctx ends, what is reported from now on. Call it once.
func (e *Events) Start(ctx context.Context) error {
	if err := e.broadcaster.StartRecordingToSinkWithContext(ctx); err != nil {
		return fmt.Errorf("starting to send Events: %w", err)
	}
	context.AfterFunc(ctx, e.broadcaster.Shutdown)
	return nil
}

// Warn reports that something is wrong: reason and action are machine-readable words in UpperCamelCase ("NVIDIADriverUnavailable",
// "Discover"), note is the sentence for a human. It neither blocks nor fails.
func (e *Events) Warn(reason, action, note string) {
	e.tell(corev1.EventTypeWarning, reason, action, note)
}

// Normal reports that something is as it should be, such as the end of what a Warn told.
func (e *Events) Normal(reason, action, note string) {
	e.tell(corev1.EventTypeNormal, reason, action, note)
}

// tell sends one Event. The library takes those that differ in the note alone for repetitions and drops the later notes, so the note has a
// part in what the Event is related to, which nothing shows.
func (e *Events) tell(eventType, reason, action, note string) {
	sum := sha256.Sum256([]byte(note))
	related := *e.node
	related.FieldPath = hex.EncodeToString(sum[:8])
	e.recorder.Eventf(e.node, &related, eventType, reason, action, "%s", shorten(note, maxNote))
}

// shorten cuts a text to n bytes at a whole character.
func shorten(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "")
}
