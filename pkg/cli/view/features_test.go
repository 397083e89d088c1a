package view

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/dynamic-resource-allocation/structured"
)

func TestFeatures_MinorVersions_DefaultsOfTheGates(t *testing.T) {
	t.Parallel()
	old := structured.Features{AdminAccess: true, PrioritizedList: true}
	middle := old
	middle.DeviceTaints, middle.PartitionableDevices, middle.ConsumableCapacity, middle.DeviceBindingAndStatus = true, true, true, true
	last := middle
	last.FractionalCapacityRange = true
	for minor, want := range map[int]structured.Features{34: old, 35: old, 36: middle, 37: last, 38: last} {
		assert.Equal(t, want, features(minor, nil), minor)
	}
	changed, err := parseGates(" DRADeviceTaints=true , DRAAdminAccess=false,DRADerivedAttributes=true,DRADeviceBindingConditions=true")
	require.NoError(t, err)
	old.DeviceTaints, old.AdminAccess, old.DeviceBindingAndStatus = true, false, true
	assert.Equal(t, old, features(35, changed), "1.35 has no derived attributes")
	changed, err = parseGates("DRAResourceClaimDeviceStatus=false")
	require.NoError(t, err)
	assert.False(t, features(37, changed).DeviceBindingAndStatus)
}

func TestFeatures_FlagOfUser_ChangesDefaults(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	got, err := Features(t.Context(), s.client(t), "DRAConsumableCapacity=true")
	require.NoError(t, err)
	assert.Equal(t, structured.Features{AdminAccess: true, PrioritizedList: true, ConsumableCapacity: true}, got)
	for gates, want := range map[string]string{
		"DRADeviceTaints":       `--feature-gates: DRADeviceTaints must be true or false, got ""`,
		"DRADeviceTaints=maybe": `--feature-gates: DRADeviceTaints must be true or false, got "maybe"`,
		"Foo=true": `--feature-gates: unknown gate "Foo"; supported values: DRAAdminAccess, DRAConsumableCapacity, DRADerivedAttributes, ` +
			"DRADeviceBindingConditions, DRADeviceCompatibilityGroups, DRADeviceTaints, DRAFractionalCapacityRange, DRAListTypeAttributes, " +
			"DRAOptionalNodeOperations, DRAPartitionableDevices, DRAPrioritizedList, DRAResourceClaimDeviceStatus",
	} {
		_, err := Features(t.Context(), s.client(t), gates)
		assert.EqualError(t, err, want)
	}
	s.Close()
	_, err = Features(t.Context(), s.client(t), "")
	assert.ErrorContains(t, err, "reading the version of the API server: ")
}
