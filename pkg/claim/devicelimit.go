package claim

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/dynamic-resource-allocation/resourceclaim"

	"github.com/prism-gpu/prism/api/v1alpha1"
	"github.com/prism-gpu/prism/pkg/gpu"
)

// forDevice is a configuration as it is for one of the results that it is for: with the memory limit that is for this device only.
func (p *Plan) forDevice(config *resourceapi.DeviceAllocationConfiguration, o option, r *Result) (option, error) {
	if len(o.limits) == 0 || r.Admin {
		return o, nil
	}
	devices := p.devicesOf(config, o)
	var limit *resource.Quantity
	keys := map[*Result]string{}
	for _, key := range slices.Sorted(maps.Keys(o.limits)) {
		device, err := named(key, devices)
		switch other := keys[device]; {
		case err != nil:
			return o, fmt.Errorf("%s[%s]: %w", o.limitsPath(), key, err)
		case other != "":
			return o, fmt.Errorf("%s: %s and %s are the same device; remove one of them", o.limitsPath(), other, key)
		case device == r:
			limit = new(o.limits[key])
		}
		keys[device] = key
	}
	general, ok := o.config.(*v1alpha1.GPUConfig)
	if limit == nil || !ok {
		return o, nil
	}
	own, err := limitMemory(general, limit)
	o.config = own
	return o, err
}

// limitsPath is the path of the memory limits for single devices in a configuration.
func (o option) limitsPath() string {
	return o.kind + ".sharing.mpsConfig.defaultPerDevicePinnedMemoryLimit"
}

// named is the device that a key of such limits is for.
func named(key string, devices []*Result) (*Result, error) {
	if i, err := strconv.Atoi(key); err == nil {
		if i < len(devices) {
			return devices[i], nil
		}
		return nil, fmt.Errorf("no device has this index: the claim was allocated %d for the configuration, counted from 0", len(devices))
	}
	var uuids []string
	for _, device := range devices {
		uuid := uuidOf(device.Device)
		if uuid == key {
			return device, nil
		}
		uuids = append(uuids, cmp.Or(uuid, "one that is made for the claim"))
	}
	return nil, fmt.Errorf("no device has this UUID; the claim was allocated for the configuration: %s", strings.Join(uuids, ", "))
}

// uuidOf is the UUID of a device that is there, else empty.
func uuidOf(d gpu.Device) string {
	m, partition := d.(gpu.MIGDevice)
	switch {
	case !partition:
		return string(d.Parent().UUID)
	case m.Static != nil:
		return string(m.Static.UUID)
	}
	return ""
}

// devicesOf lists the results of its type that a configuration is for, in the claim's order.
func (p *Plan) devicesOf(config *resourceapi.DeviceAllocationConfiguration, o option) []*Result {
	var devices []*Result
	for i := range p.Results {
		r := &p.Results[i]
		if !r.Admin && o.fits(r.Device.Type()) && r.matches(config) {
			devices = append(devices, r)
		}
	}
	return devices
}

// matches reports whether an opaque configuration is for the result's request.
func (r *Result) matches(config *resourceapi.DeviceAllocationConfiguration) bool {
	one := []resourceapi.DeviceAllocationConfiguration{*config}
	return len(resourceclaim.ConfigForResult(one, resourceapi.DeviceRequestAllocationResult{Request: r.Request})) > 0
}
