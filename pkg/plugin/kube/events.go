package kube

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
)

// maxNote is the API's limit for the note of an Event, in bytes.
const maxNote = 1024

// Events sends Events of the Node object, which `kubectl describe node` shows. Events with the same reason and note are aggregated.
// All methods are safe for concurrent use.
type Events struct {
	broadcaster events.EventBroadcaster
	recorder    events.EventRecorder
	node        *corev1.ObjectReference
}

// NewEvents returns the Events of a driver on a node. They are sent after Start.
func NewEvents(client kubernetes.Interface, driverName, nodeName string) *Events {
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: client.EventsV1()})
	return &Events{
		broadcaster: broadcaster,
		recorder:    broadcaster.NewRecorder(scheme.Scheme, driverName),
		// The kubelet refers to its Node by the name as UID, and tools select Events by that UID.
		node: &corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: nodeName, UID: types.UID(nodeName)},
	}
}

// Start sends Events in the background until ctx is done. Call it once.
func (e *Events) Start(ctx context.Context) error {
	if err := e.broadcaster.StartRecordingToSinkWithContext(ctx); err != nil {
		return fmt.Errorf("starting to send Events: %w", err)
	}
	context.AfterFunc(ctx, e.broadcaster.Shutdown)
	return nil
}

// Warn sends a Warning. Reason and action are of package events ("NVIDIADriverUnavailable", "Discover"), note is a sentence.
// It neither blocks nor fails.
func (e *Events) Warn(reason, action, note string) {
	e.send(corev1.EventTypeWarning, reason, action, note)
}

// Normal sends an Event of type Normal, such as the recovery from a Warning.
func (e *Events) Normal(reason, action, note string) {
	e.send(corev1.EventTypeNormal, reason, action, note)
}

// WarnOfClaim sends a Warning about a ResourceClaim to the namespace of the claim. It neither blocks nor fails, even if the claim is gone.
func (e *Events) WarnOfClaim(namespace, name, uid, reason, action, note string) {
	claim := &corev1.ObjectReference{
		APIVersion: resourceapi.SchemeGroupVersion.String(), Kind: "ResourceClaim", Namespace: namespace, Name: name, UID: types.UID(uid),
	}
	e.recorder.Eventf(claim, e.node, corev1.EventTypeWarning, reason, action, "%s", shorten(note, maxNote))
}

// send sends one Event. The library aggregates Events that differ only in their note, and drops the later notes. So the related object,
// which clients do not show, contains a hash of the note.
func (e *Events) send(eventType, reason, action, note string) {
	sum := sha256.Sum256([]byte(note))
	related := *e.node
	related.FieldPath = hex.EncodeToString(sum[:8])
	e.recorder.Eventf(e.node, &related, eventType, reason, action, "%s", shorten(note, maxNote))
}

// shorten truncates a string to at most n bytes of whole characters.
func shorten(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "")
}
