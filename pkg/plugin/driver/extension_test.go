package driver

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/claim"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/plugin/kube"
)

// said is a StatusExtension with that kind.
type said string

func (s said) Kind() string { return string(s) }

func (s said) StatusData(*gpu.Node, *checkpoint.Record, *checkpoint.Result) map[string]any {
	return map[string]any{"of": string(s), string(s): 1}
}

func (s said) StatusConditions(*checkpoint.Record) []kube.Condition {
	return []kube.Condition{{Type: "Is" + string(s), True: true, Reason: "Known"}}
}

func (s said) ConditionTypes() []string { return []string{"Is" + string(s)} }

func (s said) RefusedCondition() string { return "Is" + string(s) }

// TestClaimStatus_Extensions_ConditionAndDataOfTheirResults: if extensions or a step set the same key, the first one applies.
func TestClaimStatus_Extensions_ConditionAndDataOfTheirResults(t *testing.T) {
	t.Parallel()
	record := done("a")
	record.Results[1].ShareID = ""
	record.Results[0].Extensions = checkpoint.Extensions{"A": json.RawMessage("{}"), "B": json.RawMessage("{}")}
	devices := reported(t, &gpu.Node{}, func(s ClaimStatus, _ *resourceapi.ResourceClaim) {
		s.Extensions = []StatusExtension{said("A"), said("B"), said("C")}
		s.StepData = func(*checkpoint.Record) []map[string]any {
			return []map[string]any{{"B": "the step's"}, {"of": "the step"}}
		}
		s.Prepared(record)
	})
	require.Len(t, devices, 2)
	for _, d := range devices {
		var data map[string]any
		require.NoError(t, json.Unmarshal(d.Data.Raw, &data))
		extended := d.Device == record.Results[0].Device
		for _, kind := range []string{"A", "B", "C"} {
			assert.Equal(t, extended && kind != "C", meta.IsStatusConditionTrue(d.Conditions, "Is"+kind), kind)
		}
		if extended {
			assert.Equal(t, []any{"A", float64(1), "the step's"}, []any{data["of"], data["A"], data["B"]})
			continue
		}
		assert.Equal(t, "the step", data["of"])
		assert.NotContains(t, data, "A")
	}
}

// TestClaimStatus_RefusedForExtension_ItsCondition contains the reason of the refusal.
func TestClaimStatus_RefusedForExtension_ItsCondition(t *testing.T) {
	t.Parallel()
	cause := &claim.Refusal{Cause: "none is installed", Extension: "B", Condition: "NotInstalled"}
	for _, d := range reported(t, &gpu.Node{}, func(s ClaimStatus, rc *resourceapi.ResourceClaim) {
		s.Extensions = []StatusExtension{said("A"), said("B")}
		s.Refused(rc, cause)
	}) {
		assert.Nil(t, meta.FindStatusCondition(d.Conditions, "IsA"))
		condition := meta.FindStatusCondition(d.Conditions, "IsB")
		require.NotNil(t, condition)
		assert.Equal(t, []string{"False", "NotInstalled", cause.Error()}, []string{string(condition.Status), condition.Reason, condition.Message})
	}
}
