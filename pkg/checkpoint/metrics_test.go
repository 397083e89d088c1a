package checkpoint

import (
	"bytes"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// metrics is the record of a claim with options for metrics.
func metrics() *Record {
	r := whole("6f0c1d2e-0000-4000-8000-000000000004")
	r.Results[0].Metrics = &Metrics{
		Source: "GPM", Sets: []string{"Basic", "Pipelines"}, Interval: 2 * time.Second, Labels: map[string]string{"team": "a", "stage": "test"},
		PerProcess: true, ExposeInContainer: true,
	}
	return r
}

// TestRecord_MetricsWithUnknownKey_Kept: of options for metrics too, an older plugin loses nothing of a newer one's.
func TestRecord_MetricsWithUnknownKey_Kept(t *testing.T) {
	t.Parallel()
	body := bytes.Replace(bodyOf(t, metrics()), []byte(`"metrics":{`), []byte(`"metrics":{"later":{"a":1},`), 1)
	got, err := Decode(sealed(schema, body))
	require.NoError(t, err)
	assert.Empty(t, cmp.Diff(metrics(), got, ignoreUnknown))
	assert.Contains(t, string(bodyOf(t, got)), `"later":{"a":1}`)
}

// A plugin that knows no options for metrics reads the record, and writes all of it back.
func TestRecord_MetricsReadByEarlierVersion_Kept(t *testing.T) {
	t.Parallel()
	written, err := os.ReadFile("testdata/v1-metrics.json")
	require.NoError(t, err)
	_, body, err := open(written)
	require.NoError(t, err)
	body = bytes.ReplaceAll(body, []byte(`"metrics":`), []byte(`"later-metrics":`))
	r, err := Decode(sealed(schema, body))
	require.NoError(t, err)
	require.Nil(t, r.Results[0].Metrics)
	r.State = Releasing
	got, err := Decode(sealed(schema, bytes.ReplaceAll(bodyOf(t, r), []byte(`"later-metrics":`), []byte(`"metrics":`))))
	require.NoError(t, err)
	want := metrics()
	want.State = Releasing
	assert.Empty(t, cmp.Diff(want, got, ignoreUnknown))
}
