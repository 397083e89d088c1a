package explain

import (
	"maps"
	"math"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/dynamic-resource-allocation/structured"
)

// milli is a quantity in thousandths. Quantities of devices are far below its limit of 8 PiB.
func milli(q *resource.Quantity) int64 { return q.MilliValue() }

// demand is the part of a request that capacities of a device must satisfy.
type demand struct {
	requests   map[resourceapi.QualifiedName]resource.Quantity
	fractional bool
	// ignored is set if the scheduler ignores capacities.
	ignored bool
}

func demandOf(request *resourceapi.ExactDeviceRequest, features structured.Features) demand {
	d := demand{fractional: features.FractionalCapacityRange, ignored: !features.ConsumableCapacity}
	if request.Capacity != nil {
		d.requests = request.Capacity.Requests
	}
	return d
}

// lacking returns a requested capacity that the device does not have at all, or of which it never has as much as requested.
func (m demand) lacking(d *resourceapi.Device) (name resourceapi.QualifiedName, exists, lacks bool) {
	if m.ignored {
		return "", false, false
	}
	for _, name := range slices.Sorted(maps.Keys(m.requests)) {
		if _, found := d.Capacity[name]; !found {
			return name, false, true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(d.Capacity)) {
		c := d.Capacity[name]
		if amount, valid := m.amount(name, &c); !valid || amount > milli(&c.Value) {
			return name, true, true
		}
	}
	return "", false, false
}

// amount is the part of a capacity that the request takes. Valid is false if the device's policy does not allow it.
func (m demand) amount(name resourceapi.QualifiedName, c *resourceapi.DeviceCapacity) (amount int64, valid bool) {
	requested, found := m.requests[name]
	policy := c.RequestPolicy
	switch {
	case !found && policy != nil && policy.Default != nil:
		return milli(policy.Default), true
	case !found:
		amount = milli(&c.Value)
	case policy == nil:
		return milli(&requested), requested.Sign() >= 0
	default:
		amount = m.rounded(&requested, policy)
	}
	return amount, amount >= 0 && m.allowed(amount, policy)
}

// rounded rounds a request up, as the policy says.
func (m demand) rounded(requested *resource.Quantity, policy *resourceapi.CapacityRequestPolicy) int64 {
	amount := milli(requested)
	if amount == math.MaxInt64 {
		return -1
	}
	if r := policy.ValidRange; r != nil && r.Min != nil {
		least := milli(r.Min)
		switch {
		case amount < least:
			return least
		case r.Step == nil:
			return amount
		}
		if !m.fractional {
			amount = requested.Value() * thousand
		}
		step := milli(r.Step)
		return least + (amount-least+step-1)/max(step, 1)*step
	}
	for i := range policy.ValidValues {
		if v := milli(&policy.ValidValues[i]); amount <= v {
			return v
		}
	}
	return amount
}

const thousand = 1000

// allowed reports whether the policy has the amount.
func (m demand) allowed(amount int64, policy *resourceapi.CapacityRequestPolicy) bool {
	switch {
	case policy == nil || policy.Default != nil && milli(policy.Default) == amount:
		return true
	case policy.ValidRange != nil:
		r := policy.ValidRange
		return (r.Max == nil || amount <= milli(r.Max)) && (r.Step == nil || r.Min == nil || (amount-milli(r.Min))%max(milli(r.Step), 1) == 0)
	case len(policy.ValidValues) > 0:
		return slices.ContainsFunc(policy.ValidValues, func(v resource.Quantity) bool { return milli(&v) == amount })
	default:
		return true
	}
}

// amountText is an amount in thousandths as a quantity of the format of another.
func amountText(amount int64, like *resource.Quantity) string {
	if amount%thousand != 0 {
		return resource.NewMilliQuantity(amount, like.Format).String()
	}
	return resource.NewQuantity(amount/thousand, like.Format).String()
}
