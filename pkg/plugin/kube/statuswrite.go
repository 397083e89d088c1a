package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"

	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// The conditions of devices, and the reasons of ConditionReady, which every device has.
const (
	// ConditionReady is True while the device is prepared for the claim.
	ConditionReady = "Ready"
	// ReasonPrepared is the reason of status True.
	ReasonPrepared = "Prepared"
	// ReasonPrepareFailed is the reason of status False; the message is the error.
	ReasonPrepareFailed = "PrepareFailed"
	// ReasonContainerRefused is the reason of status False if a device is prepared, but a container must not start with it.
	ReasonContainerRefused = "ContainerRefused"
)

// maxMessage is the maximum length of a condition's message in bytes, so that 32 devices, the maximum of a claim, fit into the object.
const maxMessage = 4096

// outcome is the result of an attempt that did not fail.
type outcome int

const (
	written outcome = iota
	unchanged
	gone
)

// write applies a report to the claim's status. It reads the claim first: to skip a status that is already correct, to keep the time of the
// last transition, and because the name may belong to another claim by now.
func (s *Statuses) write(ctx context.Context, r *report) (outcome, error) {
	claims := s.opts.Client.ResourceV1().ResourceClaims(r.claim.Namespace)
	claim, err := claims.Get(ctx, r.claim.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || err == nil && claim.UID != r.claim.UID {
		return gone, nil
	}
	if err != nil {
		return 0, fmt.Errorf("reading it: %w", err)
	}
	devices := s.allocated(claim, r)
	if len(devices) == 0 {
		return gone, nil
	}
	entries, changed, err := s.entries(claim, devices, r)
	if err != nil {
		return 0, err
	}
	if !changed {
		return unchanged, nil
	}
	_, err = claims.ApplyStatus(ctx, applied(claim, entries), metav1.ApplyOptions{FieldManager: s.opts.DriverName, Force: true})
	if apierrors.IsInvalid(err) {
		_, err = claims.UpdateStatus(ctx, s.updated(claim, entries), metav1.UpdateOptions{FieldManager: s.opts.DriverName})
	}
	if apierrors.IsNotFound(err) {
		return gone, nil
	}
	if err != nil {
		return 0, fmt.Errorf("applying it: %w", err)
	}
	return written, nil
}

// allocated returns the devices of the report that are in the claim's allocation, or all devices of this driver if the report lists none:
// the server refuses other entries. Each device is returned once, also if a claim with admin access uses it for two requests.
func (s *Statuses) allocated(claim *resourceapi.ResourceClaim, r *report) []Device {
	if claim.Status.Allocation == nil {
		return nil
	}
	reported := map[deviceKey]Device{}
	for _, d := range r.devices {
		reported[d.key()] = d
	}
	var out []Device
	seen := map[deviceKey]bool{}
	for _, result := range claim.Status.Allocation.Devices.Results {
		d := Device{Pool: result.Pool, Name: result.Device}
		if result.ShareID != nil {
			d.ShareID = *result.ShareID
		}
		if result.Driver != s.opts.DriverName || seen[d.key()] {
			continue
		}
		seen[d.key()] = true
		if known, ok := reported[d.key()]; ok {
			out = append(out, known)
		} else if len(reported) == 0 {
			d.Conditions = r.conditions
			out = append(out, d)
		}
	}
	return out
}

// entries builds one entry for each device, and reports whether any differs from the claim's status.
func (s *Statuses) entries(claim *resourceapi.ResourceClaim, devices []Device, r *report) (
	[]resourceapi.AllocatedDeviceStatus, bool, error,
) {
	changed := false
	entries := make([]resourceapi.AllocatedDeviceStatus, 0, len(devices))
	for _, d := range devices {
		current := s.entry(claim, d)
		data, err := dataOf(d, current)
		if err != nil {
			return nil, false, err
		}
		conditions := s.conditions(current, d, r)
		changed = changed || !s.upToDate(current, conditions, data)
		entries = append(entries, entryOf(s.opts.DriverName, d, conditions, data))
	}
	return entries, changed, nil
}

// entry returns the device's entry in the claim's status, the zero value if it is missing.
func (s *Statuses) entry(claim *resourceapi.ResourceClaim, d Device) resourceapi.AllocatedDeviceStatus {
	for _, e := range claim.Status.Devices {
		var shareID types.UID
		if e.ShareID != nil {
			shareID = types.UID(*e.ShareID)
		}
		if e.Driver == s.opts.DriverName && d.key() == (deviceKey{pool: e.Pool, name: e.Device, shareID: shareID}) {
			return e
		}
	}
	return resourceapi.AllocatedDeviceStatus{}
}

// conditions are the conditions of a device of a report. A transition time is kept while the status is the same.
func (s *Statuses) conditions(current resourceapi.AllocatedDeviceStatus, d Device, r *report) []metav1.Condition {
	ready := metav1.Condition{Type: ConditionReady, Status: metav1.ConditionTrue, Reason: ReasonPrepared, Message: r.message}
	switch {
	case !r.ready:
		ready.Status, ready.Reason = metav1.ConditionFalse, ReasonPrepareFailed
	case d.Refused != "":
		ready.Status, ready.Reason, ready.Message = metav1.ConditionFalse, ReasonContainerRefused, d.Refused
	}
	all := []metav1.Condition{ready}
	for _, p := range d.Conditions {
		about := metav1.Condition{Type: p.Type, Status: metav1.ConditionFalse, Reason: p.Reason, Message: p.Message}
		switch {
		case p.Unknown:
			about.Status = metav1.ConditionUnknown
		case p.True:
			about.Status = metav1.ConditionTrue
		}
		all = append(all, about)
	}
	for i := range all {
		c := &all[i]
		c.Message, c.LastTransitionTime = shorten(c.Message, maxMessage), metav1.NewTime(s.opts.Now())
		if old := meta.FindStatusCondition(current.Conditions, c.Type); old != nil && old.Status == c.Status {
			c.LastTransitionTime = old.LastTransitionTime
		}
	}
	return all
}

// upToDate reports whether an entry has these conditions, no other one of this driver, and this data. The server may have reordered the
// JSON.
func (s *Statuses) upToDate(e resourceapi.AllocatedDeviceStatus, conditions []metav1.Condition, data []byte) bool {
	for _, c := range conditions {
		old := meta.FindStatusCondition(e.Conditions, c.Type)
		if old == nil || old.Status != c.Status || old.Reason != c.Reason || old.Message != c.Message {
			return false
		}
	}
	for _, ours := range s.opts.Conditions {
		if meta.FindStatusCondition(e.Conditions, ours) != nil && meta.FindStatusCondition(conditions, ours) == nil {
			return false
		}
	}
	return sameJSON(raw(e), data)
}

func sameJSON(a, b []byte) bool {
	if len(a) == 0 || len(b) == 0 {
		return len(a) == len(b)
	}
	var x, y any
	if json.Unmarshal(a, &x) != nil || json.Unmarshal(b, &y) != nil {
		return false
	}
	return reflect.DeepEqual(x, y)
}

// dataOf is the device's identity as JSON. If the report contains none, or only a part, the current data is kept: the hardware of a device does
// not change within one allocation.
func dataOf(d Device, current resourceapi.AllocatedDeviceStatus) ([]byte, error) {
	if known := raw(current); d.Identity == nil || d.Incomplete && len(known) > 0 {
		return known, nil
	}
	data, err := d.merged()
	if err != nil {
		return nil, fmt.Errorf("encoding the identity of device %s: %w", d.Name, err)
	}
	return data, nil
}

// merged is the version, the identity and the extra data in one JSON object.
func (d Device) merged() ([]byte, error) {
	data, err := json.Marshal(struct {
		SchemaVersion int `json:"schemaVersion"`
		*Identity
	}{SchemaVersion, d.Identity})
	if err != nil || len(d.Extra) == 0 {
		return data, err
	}
	merged := maps.Clone(d.Extra)
	if err := json.Unmarshal(data, &merged); err != nil {
		return nil, err
	}
	return json.Marshal(merged)
}

func raw(e resourceapi.AllocatedDeviceStatus) []byte {
	if e.Data == nil {
		return nil
	}
	return e.Data.Raw
}
