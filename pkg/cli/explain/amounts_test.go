package explain

import (
	"testing"

	"github.com/stretchr/testify/assert"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func TestDemand_Policies_RoundedAsTheAllocator(t *testing.T) {
	t.Parallel()
	q := func(text string) *resource.Quantity {
		parsed := resource.MustParse(text)
		return &parsed
	}
	policyRange := &resourceapi.CapacityRequestPolicyRange{Min: q("1Gi"), Max: q("8Gi"), Step: q("1Gi")}
	steps := &resourceapi.CapacityRequestPolicy{Default: q("4Gi"), ValidRange: policyRange}
	values := &resourceapi.CapacityRequestPolicy{Default: q("2Gi"), ValidValues: []resource.Quantity{*q("2Gi"), *q("4Gi")}}
	for _, c := range []struct {
		name, requested string
		policy          *resourceapi.CapacityRequestPolicy
		amount          string
		valid           bool
	}{
		{"no request takes all", "", nil, "10Gi", true},
		{"no request takes the default", "", steps, "4Gi", true},
		{"without a policy", "3Gi", nil, "3Gi", true},
		{"below the minimum", "1Mi", steps, "1Gi", true},
		{"up to the next step", "1500Mi", steps, "2Gi", true},
		{"above the maximum", "9Gi", steps, "9Gi", false},
		{"up to the next value", "3Gi", values, "4Gi", true},
		{"above all values", "5Gi", values, "5Gi", false},
	} {
		m := demand{fractional: true}
		if c.requested != "" {
			m.requests = map[resourceapi.QualifiedName]resource.Quantity{"memory": *q(c.requested)}
		}
		capacity := resourceapi.DeviceCapacity{Value: *q("10Gi"), RequestPolicy: c.policy}
		amount, valid := m.amount("memory", &capacity)
		assert.Equal(t, c.valid, valid, c.name)
		assert.Equal(t, c.amount, amountText(amount, q("1Gi")), c.name)
		assert.LessOrEqual(t, roundedDown(amount, c.policy), amount, c.name)
	}
}

func TestNear_Misspelt_NearestFirst(t *testing.T) {
	t.Parallel()
	names := []string{"mig-3g-40gb.gpu.prism.dev", "gpu.prism.dev", "mig-1g-10gb.gpu.prism.dev", "nic.example.com"}
	assert.Equal(t, []string{"mig-3g-40gb.gpu.prism.dev", "mig-1g-10gb.gpu.prism.dev"}, Near("mig-3g-40g.gpu.prism.dev", names))
	assert.Empty(t, Near("x", names))
}
