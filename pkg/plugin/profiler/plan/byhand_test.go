package plan

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/prism-gpu/prism/api/v1alpha1"
	"github.com/prism-gpu/prism/pkg/plugin/profiler/store"
)

func TestClaim_ByHand_FromConfig(t *testing.T) {
	t.Parallel()
	minute := &metav1.Duration{Duration: time.Minute}
	for name, of := range map[string]struct {
		config v1alpha1.ProfilerConfig
		want   store.ByHand
	}{
		"default":   {v1alpha1.ProfilerConfig{Duration: minute, CPUSampling: new(v1alpha1.CPUSamplingProcessTree)}, store.ByHand{}},
		"manual":    {v1alpha1.ProfilerConfig{Start: new(v1alpha1.StartManual)}, store.ByHand{Waits: true}},
		"launch":    {v1alpha1.ProfilerConfig{Mode: new(v1alpha1.ModeLaunch), Duration: minute}, store.ByHand{Waits: true, Duration: time.Minute}},
		"on demand": {v1alpha1.ProfilerConfig{Arm: new(v1alpha1.ArmOnDemand)}, store.ByHand{OnDemand: true}},
		"samples": {
			v1alpha1.ProfilerConfig{Start: new(v1alpha1.StartManual), CPUSampling: new(v1alpha1.CPUSamplingProcessTree)},
			store.ByHand{Waits: true, SamplesCPU: true},
		},
	} {
		r, c := configOf(t, func(c *v1alpha1.ProfilerConfig) { *c = of.config })
		assert.Equal(t, of.want, Claim(r, c, tool, "n0").ByHand, name)
	}
}
