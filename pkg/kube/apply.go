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
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	metaapply "k8s.io/client-go/applyconfigurations/meta/v1"
	resourceapply "k8s.io/client-go/applyconfigurations/resource/v1"
)

// The condition that is written for every device, and its reasons.
const (
	// ConditionReady is True while the device is prepared for the claim.
	ConditionReady = "Ready"
	// ReasonPrepared goes with True.
	ReasonPrepared = "Prepared"
	// ReasonPrepareFailed goes with False; the message says why.
	ReasonPrepareFailed = "PrepareFailed"
)

// maxMessage is how many bytes of a sentence are kept in a condition: 32 devices, the most a claim can have, still fit.
const maxMessage = 4096

// outcome is how an attempt that did not fail ended.
type outcome int

const (
	written outcome = iota
	unchanged
	gone
)

// write makes the claim's status say what the report says. It reads the claim first: to leave alone what is right already,
// to keep the time of the last transition, and because the claim may be another one by now.
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
	config := resourceapply.ResourceClaim(claim.Name, claim.Namespace).WithUID(claim.UID).
		WithStatus(resourceapply.ResourceClaimStatus().WithDevices(entries...))
	_, err = claims.ApplyStatus(ctx, config, metav1.ApplyOptions{FieldManager: s.opts.DriverName, Force: true})
	if apierrors.IsNotFound(err) {
		return gone, nil
	}
	if err != nil {
		return 0, fmt.Errorf("applying it: %w", err)
	}
	return written, nil
}

// allocated returns the report's devices, or all if it names none, as far as the claim has them: the server refuses entries
// for anything else. Each comes once, even where an admin's claim holds it for two requests.
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
			out = append(out, d)
		}
	}
	return out
}

// entries builds one entry for each device, and tells whether any of them differs from what the claim says now.
func (s *Statuses) entries(claim *resourceapi.ResourceClaim, devices []Device, r *report) (
	[]*resourceapply.AllocatedDeviceStatusApplyConfiguration, bool, error,
) {
	changed := false
	entries := make([]*resourceapply.AllocatedDeviceStatusApplyConfiguration, 0, len(devices))
	for _, d := range devices {
		was := s.entry(claim, d)
		data, err := dataOf(d, was)
		if err != nil {
			return nil, false, err
		}
		condition := s.condition(was, r)
		changed = changed || !says(was, condition, data)
		entries = append(entries, apply(s.opts.DriverName, d, condition, data))
	}
	return entries, changed, nil
}

// entry returns what the claim says of a device now, a zero value if nothing.
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

// condition is the report as a condition. The time of its transition is the old one while the status is.
func (s *Statuses) condition(was resourceapi.AllocatedDeviceStatus, r *report) metav1.Condition {
	c := metav1.Condition{
		Type:               ConditionReady,
		Status:             metav1.ConditionTrue,
		Reason:             ReasonPrepared,
		Message:            shorten(r.message, maxMessage),
		LastTransitionTime: metav1.NewTime(s.opts.Now()),
	}
	if !r.ready {
		c.Status, c.Reason = metav1.ConditionFalse, ReasonPrepareFailed
	}
	if old := meta.FindStatusCondition(was.Conditions, ConditionReady); old != nil && old.Status == c.Status {
		c.LastTransitionTime = old.LastTransitionTime
	}
	return c
}

// says tells whether an entry holds this condition and this data already. The server may write JSON in another order.
func says(e resourceapi.AllocatedDeviceStatus, c metav1.Condition, data []byte) bool {
	old := meta.FindStatusCondition(e.Conditions, ConditionReady)
	if old == nil || old.Status != c.Status || old.Reason != c.Reason || old.Message != c.Message {
		return false
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

// dataOf is the device's identity as JSON. Where the report does not know it, what the claim says stays: within one allocation
// a device does not become another one.
func dataOf(d Device, was resourceapi.AllocatedDeviceStatus) ([]byte, error) {
	if d.Identity == nil {
		return raw(was), nil
	}
	data, err := d.merged()
	if err != nil {
		return nil, fmt.Errorf("encoding the identity of device %s: %w", d.Name, err)
	}
	return data, nil
}

// merged is the identity and what is extra in one JSON object.
func (d Device) merged() ([]byte, error) {
	data, err := json.Marshal(d.Identity)
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

func apply(driverName string, d Device, c metav1.Condition, data []byte) *resourceapply.AllocatedDeviceStatusApplyConfiguration {
	entry := resourceapply.AllocatedDeviceStatus().WithDriver(driverName).WithPool(d.Pool).WithDevice(d.Name).
		WithConditions(metaapply.Condition().WithType(c.Type).WithStatus(c.Status).WithReason(c.Reason).
			WithMessage(c.Message).WithLastTransitionTime(c.LastTransitionTime))
	if d.ShareID != "" {
		entry.WithShareID(string(d.ShareID))
	}
	if data != nil {
		entry.WithData(runtime.RawExtension{Raw: data})
	}
	return entry
}
