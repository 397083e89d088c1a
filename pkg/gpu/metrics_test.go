package gpu

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestMetricsOptions_JSON_FormOfRecords: plugins and exporters of other versions read and write it.
func TestMetricsOptions_JSON_FormOfRecords(t *testing.T) {
	t.Parallel()
	options := MetricsOptions{
		Source: "GPM", Sets: []string{MetricsBasic}, Interval: time.Second, Labels: map[string]string{"team": "a"}, PerProcess: true, ExposeInContainer: true,
	}
	raw, err := json.Marshal(options)
	require.NoError(t, err)
	assert.JSONEq(t, `{"source":"GPM","sets":["Basic"],"interval":1000000000,"labels":{"team":"a"},"perProcess":true,"exposeInContainer":true}`, string(raw))
	var read MetricsOptions
	require.NoError(t, json.Unmarshal(raw, &read))
	assert.Equal(t, options, read)
	raw, err = json.Marshal(MetricsOptions{})
	require.NoError(t, err)
	assert.JSONEq(t, `{}`, string(raw))
}
