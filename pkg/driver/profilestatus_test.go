package driver

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/checkpoint"
)

func TestWithProfile_Data_EffectiveConfigOfProfiledResults(t *testing.T) {
	t.Parallel()
	profile := json.RawMessage(`{"kind":"ProfilerConfig","toolVersion":"2025.5.1"}`)
	record := &checkpoint.Record{Profile: profile}
	other := map[string]any{"metrics": 1}
	got, err := json.Marshal(withProfile(other, record, &checkpoint.Result{Profiled: true}))
	require.NoError(t, err)
	assert.JSONEq(t, `{"metrics":1,"profile":`+string(profile)+`}`, string(got))
	assert.Len(t, other, 1, "not changed")
	assert.Nil(t, withProfile(nil, record, &checkpoint.Result{}), "a result that is not profiled")
	record.Profile = json.RawMessage(`"` + strings.Repeat("a", maxProfileData) + `"`)
	assert.Nil(t, withProfile(nil, record, &checkpoint.Result{Profiled: true}), "the API server would refuse the status")
}
