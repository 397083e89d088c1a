package selection

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const events = `{"Action":"start","Package":"p"}
{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestA","Output":"=== RUN   TestA\n"}
{"Action":"run","Package":"p","Test":"TestA/sub"}
{"Action":"fail","Package":"p","Test":"TestA/sub","Elapsed":9}
{"Action":"fail","Package":"p","Test":"TestA","Elapsed":2.5}
{"Action":"run","Package":"p","Test":"TestB"}
{"Action":"skip","Package":"p","Test":"TestB","Elapsed":0}
{"Action":"run","Package":"p","Test":"TestC"}
signal: killed
{"Action":"run","Package":"p","Test":"TestD"}
{"Action":"pass","Package":"p","Test":"TestD","Elapsed":3}
{"Action":"fail","Package":"p","Elapsed":4}
{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"pass","Package":"p","Test":"TestA","Elapsed":1.5}`

func TestShow_Events_TextAndResultsOfTopLevelTests(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	results, err := Show(strings.NewReader(events), &text)
	require.NoError(t, err)
	assert.Equal(t, "=== RUN   TestA\nsignal: killed\n", text.String())
	assert.Equal(t, []Result{
		{Test: "TestA", Outcome: "pass", Seconds: 2.5}, {Test: "TestB", Outcome: "skip"}, {Test: "TestC", Outcome: "unfinished"},
		{Test: "TestD", Outcome: "pass", Seconds: 3},
	}, results)
}

func TestSlowest_MoreThanAsked_SlowestFirst(t *testing.T) {
	t.Parallel()
	results := []Result{{Test: "TestA", Seconds: 1}, {Test: "TestB", Seconds: 3}, {Test: "TestC", Seconds: 2}}
	assert.Equal(t, []Result{{Test: "TestB", Seconds: 3}, {Test: "TestC", Seconds: 2}}, Slowest(results, 2))
	assert.Len(t, Slowest(results, 5), 3)
}
