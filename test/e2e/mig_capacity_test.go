package e2e

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const byCapacityClass = "by-capacity." + driverName

// TestMIGByCapacity: a capacity of the profile or an amount of memory selects the smallest MIG device that fits.
func TestMIGByCapacity(t *testing.T) {
	needs(t, consumableCapacity)
	ns := migInParallel(t)
	ns.apply("mig-by-capacity/pod.yaml")
	ns.apply("mig-by-memory/pod.yaml")
	for pod, profile := range map[string]string{"mig-by-capacity": "1g.10gb", "mig-by-memory": "1g.20gb"} {
		grants := ns.grantedTo(ns.ready(pod), "mig")
		require.Len(t, grants, 1, pod)
		assert.Equal(t, profile, grants[0].Profile, pod)
		ns.sees(pod, "main", grants...)
	}
	require.NoError(t, ns.silence())
}

// TestMIGByCapacity_NoCapacity_Refused: without a capacity that only MIG devices have, the class would match any device.
func TestMIGByCapacity_NoCapacity_Refused(t *testing.T) {
	needs(t, consumableCapacity)
	ns := inParallel(t, 0)
	const (
		sentence = "request 'mig': class " + byCapacityClass + " selects MIG devices by capacity only; add capacity: {requests: {" + driverName +
			"/p1g10gb: 1}} for a profile or capacity: {requests: {" + driverName + "/migMemory: 19Gi}} for an amount of memory"
		claim    = "{apiVersion: resource.k8s.io/v1, kind: ResourceClaim, metadata: {name: r}, spec: %s}"
		template = "{apiVersion: resource.k8s.io/v1, kind: ResourceClaimTemplate, metadata: {name: r}, spec: {spec: %s}}"
		exactly  = "{devices: {requests: [{name: mig, exactly: {deviceClassName: " + byCapacityClass + "%s}}]}}"
		either   = "{devices: {requests: [{name: mig, firstAvailable: [{name: a, deviceClassName: " + byCapacityClass + "%s}]}]}}"
	)
	for _, object := range []string{claim, template} {
		for _, request := range []string{exactly, either} {
			for _, capacity := range []string{"", ", capacity: {requests: {" + driverName + "/memory: 19Gi}}"} {
				err := ns.createText(fmt.Sprintf(object, fmt.Sprintf(request, capacity)))
				assert.ErrorContains(t, err, sentence)
				assert.ErrorContains(t, err, "ValidatingAdmissionPolicy")
			}
		}
	}
}

// TestMIGByCapacity_ExtendedResource_Refused: the resource name that the scheduler implicitly gives every class selects no device of this
// one.
func TestMIGByCapacity_ExtendedResource_Refused(t *testing.T) {
	needs(t, consumableCapacity)
	needs(t, extendedResources)
	ns := inParallel(t, 0)
	ns.create(limited("by-resource", "deviceclass.resource.kubernetes.io/"+byCapacityClass, 1))
	assert.Contains(t, ns.event("by-resource", "FailedScheduling", startLimit), "selects MIG devices by capacity only")
	assert.Empty(t, ns.pod("by-resource").Spec.NodeName)
}

// TestMIGByCapacity_OlderKubernetes_NoClass: if the API server drops capacity requests, no class exists that depends on them.
func TestMIGByCapacity_OlderKubernetes_NoClass(t *testing.T) {
	lacks(t, consumableCapacity)
	c := open(t)
	found := c.must(t, c.kubectl("get", "--ignore-not-found", "--output=name", "deviceclass/"+byCapacityClass,
		"validatingadmissionpolicy/"+byCapacityClass, "validatingadmissionpolicybinding/"+byCapacityClass)...)
	assert.Empty(t, found)
}
