package config

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestDuration_Text_ReadAndWritten(t *testing.T) {
	var d Duration
	require.NoError(t, json.Unmarshal([]byte(`"1m30s"`), &d))
	assert.Equal(t, 90*time.Second, d.Duration)
	text, err := json.Marshal(d)
	require.NoError(t, err)
	assert.JSONEq(t, `"1m30s"`, string(text))
	require.EqualError(t, json.Unmarshal([]byte(`10`), &d), `must be a duration such as "10s", got 10`)
	require.EqualError(t, json.Unmarshal([]byte(`"soon"`), &d), `must be a duration such as "10s", got "soon"`)
	assert.Equal(t, 90*time.Second, d.Duration, "an error leaves it")
}
