package driver

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/kube"
)

// TestWithProfile_Key_NotOfIdentity: both are in one JSON object.
func TestWithProfile_Key_NotOfIdentity(t *testing.T) {
	t.Parallel()
	identity := reflect.TypeFor[kube.Identity]()
	for i := range identity.NumField() {
		key, _, _ := strings.Cut(identity.Field(i).Tag.Get("json"), ",")
		assert.NotContains(t, []string{profilerKey, libraryKey, metricsKey}, key)
	}
}

func TestWithProfile_Data_EffectiveConfigOfProfiledResults(t *testing.T) {
	t.Parallel()
	profile := json.RawMessage(`{"kind":"ProfilerConfig","toolVersion":"2025.5.1"}`)
	record := &checkpoint.Record{Profile: profile}
	other := map[string]any{"metrics": 1}
	got, err := json.Marshal(ClaimStatus{}.withProfile(other, record, &checkpoint.Result{Profiled: true}))
	require.NoError(t, err)
	assert.JSONEq(t, `{"metrics":1,"profiler":`+string(profile)+`}`, string(got))
	assert.Len(t, other, 1, "not changed")
	known := ClaimStatus{Library: func(uid string) string { return "sha256:" + uid }}
	record.Claim.UID = "a"
	assert.Equal(t, "sha256:a", known.withProfile(nil, record, &checkpoint.Result{Profiled: true})[libraryKey])
	assert.Nil(t, known.withProfile(nil, record, &checkpoint.Result{}), "nothing is loaded")
	assert.Nil(t, ClaimStatus{}.withProfile(nil, record, &checkpoint.Result{}), "a result that is not profiled")
	record.Profile = json.RawMessage(`"` + strings.Repeat("a", maxProfileData) + `"`)
	assert.Nil(t, ClaimStatus{}.withProfile(nil, record, &checkpoint.Result{Profiled: true}), "the API server would refuse the status")
}
