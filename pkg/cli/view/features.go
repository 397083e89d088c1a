package view

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/dynamic-resource-allocation/structured"

	"github.com/prism-gpu/prism/pkg/cli/cluster"
)

// gate is a feature gate of the scheduler that changes how devices are allocated.
type gate struct {
	// from is the minor version of Kubernetes 1 that enables it by default; 0 for none so far. Since is the one that knows it.
	from, since int
	field       func(*structured.Features) *bool
}

// Names of the gates that only together enable binding conditions.
const (
	gateBinding = "DRADeviceBindingConditions"
	gateStatus  = "DRAResourceClaimDeviceStatus"
)

// gates are the feature gates by their names.
var gates = map[string]gate{
	"DRAAdminAccess":               {34, 32, func(f *structured.Features) *bool { return &f.AdminAccess }},
	"DRAPrioritizedList":           {34, 33, func(f *structured.Features) *bool { return &f.PrioritizedList }},
	"DRADeviceTaints":              {36, 33, func(f *structured.Features) *bool { return &f.DeviceTaints }},
	"DRAPartitionableDevices":      {36, 33, func(f *structured.Features) *bool { return &f.PartitionableDevices }},
	"DRAConsumableCapacity":        {36, 34, func(f *structured.Features) *bool { return &f.ConsumableCapacity }},
	"DRAFractionalCapacityRange":   {37, 37, func(f *structured.Features) *bool { return &f.FractionalCapacityRange }},
	"DRAListTypeAttributes":        {0, 36, func(f *structured.Features) *bool { return &f.ListTypeAttributes }},
	"DRADerivedAttributes":         {0, 37, func(f *structured.Features) *bool { return &f.DerivedAttributes }},
	"DRADeviceCompatibilityGroups": {0, 37, func(f *structured.Features) *bool { return &f.CompatibilityGroups }},
	"DRAOptionalNodeOperations":    {0, 37, func(f *structured.Features) *bool { return &f.OptionalNodeOperations }},
	gateBinding:                    {36, 34, nil},
	gateStatus:                     {33, 32, nil},
}

// Features returns the features that the scheduler of the API server's minor version enables. gatesOfUser changes it, as the scheduler's --feature-gates:
// "DRADeviceTaints=false,DRAConsumableCapacity=true".
func Features(_ context.Context, client *cluster.Client, gatesOfUser string) (structured.Features, error) {
	enabled, err := parseGates(gatesOfUser)
	if err != nil {
		return structured.Features{}, err
	}
	version, err := client.Discovery().ServerVersion()
	if err != nil {
		return structured.Features{}, cluster.Explain("reading the version of the API server", "get on /version", err)
	}
	minor, err := strconv.Atoi(strings.TrimRight(version.Minor, "+"))
	if err != nil {
		return structured.Features{}, fmt.Errorf("the API server has the unknown version %q.%q", version.Major, version.Minor)
	}
	return features(minor, enabled), nil
}

// features returns the features of a minor version. enabled are the gates that an administrator set.
func features(minor int, enabled map[string]bool) (all structured.Features) {
	on := func(name string) bool {
		if set, found := enabled[name]; found {
			return set
		}
		return gates[name].from > 0 && gates[name].from <= minor
	}
	for name, of := range gates {
		if of.field != nil {
			*of.field(&all) = on(name) && of.since <= minor
		}
	}
	all.DeviceBindingAndStatus = on(gateBinding) && on(gateStatus)
	return all
}

// parseGates parses --feature-gates.
func parseGates(text string) (map[string]bool, error) {
	enabled := map[string]bool{}
	for _, part := range strings.Split(text, ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		name, value, _ := strings.Cut(part, "=")
		set, err := strconv.ParseBool(value)
		if err != nil {
			return nil, fmt.Errorf("--feature-gates: %s must be true or false, got %q", name, value)
		}
		if _, known := gates[name]; !known {
			return nil, fmt.Errorf("--feature-gates: unknown gate %q; supported values: %s", name, strings.Join(slices.Sorted(maps.Keys(gates)), ", "))
		}
		enabled[name] = set
	}
	return enabled, nil
}
