package explaining_test

import (
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/test/scale/explaining"
)

func TestExplain_SmallCluster_CountsWithinBudgets(t *testing.T) {
	t.Parallel()
	for _, full := range []float64{0.5, 1} {
		server, err := explaining.NewServer(t.Context(), 80, full)
		require.NoError(t, err)
		api := httptest.NewServer(server)
		t.Cleanup(api.Close)
		result, err := explaining.Explain(t.Context(), api.URL)
		require.NoError(t, err)
		result.Counts = server.Counts()
		require.NoError(t, result.CheckCounts())
		assert.Greater(t, result.Counts.Pages, 6, "some lists have several pages")
		assert.Less(t, result.Pools, 200, "of 720 pools")
		assert.Len(t, result.Sentences, len(explaining.Pending))
		assert.Equal(t, "Pod ml/no-such-product, Pending for 10m: no node has a device that claim no-such-product selects", result.Sentences["no-such-product"])
	}
}

func TestCheck_BudgetExceeded_Error(t *testing.T) {
	t.Parallel()
	good := func() *explaining.Result {
		return &explaining.Result{
			Counts: explaining.Counts{Lists: 7, Pages: 7}, Pools: 10, Calls: map[string]int{"p": 30}, Explain: map[string]float64{"p": 1}, RSS: 192 << 20,
		}
	}
	decoded, reduced := &explaining.Result{Heap: 1000, Read: 1}, &explaining.Result{Heap: 100}
	require.NoError(t, good().Check(decoded, reduced))
	for name, spoil := range map[string]func(r *explaining.Result){
		"LIST": func(r *explaining.Result) { r.Counts.Lists++ }, "writes": func(r *explaining.Result) { r.Counts.Writes++ },
		"calls": func(r *explaining.Result) { r.Calls["p"]++ }, "CPU": func(r *explaining.Result) { r.Explain["p"] = 1.1 },
		"resident": func(r *explaining.Result) { r.RSS++ },
	} {
		r := good()
		spoil(r)
		assert.ErrorContains(t, r.Check(decoded, reduced), name)
	}
	assert.ErrorContains(t, good().Check(decoded, &explaining.Result{Heap: 101}), "heap")
}
