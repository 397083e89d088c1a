package metrics_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/prism-gpu/prism/pkg/exporter/metrics"
)

// tenants are an H100 and a MIG device that a claim has exclusively, whose round began a time after the claim was prepared.
func tenants(after time.Duration) map[string]*metrics.Joined {
	all := map[string]*metrics.Joined{}
	for _, mig := range []bool{false, true} {
		g := board(0, "NVIDIA H100 80GB HBM3", metrics.Hopper)
		g.Began = at
		name, a := "GPU", allocation("one", g.Identity.UUID, "", "", container("one", "main"))
		p := process(1, "former/main", gib, 0.5)
		if mig {
			g.Identity.MIGMode = true
			g.MIGDevices = []*metrics.MIGDevice{instance(1, 7, metrics.Hopper, 2*gib)}
			name, a.MIG, p.MIG = "MIG device", migID(1), migID(1)
		}
		if after < 0 {
			g.Processes = []metrics.Process{p}
		}
		a.Since = at.Add(-after)
		all[name] = join(g, exposed(a))
	}
	return all
}

// TestJoin_RoundBeforeClaim_NoValuesOfTheFormerTenant: values of a round before a claim was prepared belong to the previous tenant.
func TestJoin_RoundBeforeClaim_NoValuesOfTheFormerTenant(t *testing.T) {
	for _, after := range []time.Duration{-5 * time.Second, 0, 500 * time.Millisecond} {
		for name, j := range tenants(after) {
			families := native(t, j)
			for _, family := range []string{usedByContainer, utilizationByContainer, "prism_container_gpu_memory_total_bytes"} {
				assert.Empty(t, samples(families, family), "%s: %s", name, family)
			}
			assert.Zero(t, value(t, families, foreign), "a container that no claim has any more is none of this claim's")
			assert.InDelta(t, 8*gib, value(t, families, unattributed), 0)
			assert.NotEmpty(t, samples(families, "prism_gpu_power_usage_watts"), "the GPU's values name no container")
			assert.NotEmpty(t, samples(families, "prism_gpu_allocation_info", "pod", "one"))

			for _, family := range parsed(t, j.AppendDCGM(nil, nil)) {
				for _, m := range family.GetMetric() {
					assert.Empty(t, labelOf(m, "pod"), "%s: %s", name, family.GetName())
				}
			}
			own := parsed(t, j.Claim("one-uid"))
			for f := range metrics.FieldCount {
				assert.NotContains(t, own, metrics.Table[f].GPU, name)
				assert.NotContains(t, own, metrics.Table[f].MIG, name)
			}
			assert.NotContains(t, own, usedByContainer)
			for _, r := range j.OTel(time.Time{}) {
				assert.Empty(t, text(r.Resource.Set(), "k8s.pod.name"), name)
			}
		}
	}
}

// TestClaim_RoundBeforeIt_ErrorsCountFromZero: otherwise a counter that begins with the first error would show no increase.
func TestClaim_RoundBeforeIt_ErrorsCountFromZero(t *testing.T) {
	assert.Zero(t, value(t, parsed(t, tenants(0)["GPU"].Claim("one-uid")), "prism_gpu_xid_errors_total"))
}

func TestJoin_RoundAfterClaim_ValuesOfItsContainer(t *testing.T) {
	for name, j := range tenants(time.Second) {
		families := native(t, j)
		assert.NotEmpty(t, samples(families, usedByContainer, "pod", "one"), name)
		assert.NotEmpty(t, samples(families, utilizationByContainer, "pod", "one"), name)
		named := 0
		for _, family := range parsed(t, j.AppendDCGM(nil, nil)) {
			for _, m := range family.GetMetric() {
				if labelOf(m, "pod") == "one" {
					named++
				}
			}
		}
		assert.NotZero(t, named, name)
		assert.Contains(t, parsed(t, j.Claim("one-uid")), usedByContainer, name)
		pods := 0
		for _, r := range j.OTel(time.Time{}) {
			if text(r.Resource.Set(), "k8s.pod.name") == "one" {
				pods++
			}
		}
		assert.Equal(t, 1, pods, name)
	}
}
