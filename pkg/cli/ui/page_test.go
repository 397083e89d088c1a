package ui_test

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/prism-gpu/prism/pkg/cli/clusterview"
	"github.com/prism-gpu/prism/pkg/cli/explain"
	"github.com/prism-gpu/prism/pkg/cli/ui"
	"github.com/prism-gpu/prism/test/fakes/gpucluster"
)

// saved returns the page of a cluster as one file.
func saved(t *testing.T, of map[types.NamespacedName]*explain.Explanation, namespaces ...string) string {
	t.Helper()
	store := clusterview.NewStore()
	require.NoError(t, gpucluster.Fill(t.Context(), store, 4, 8, namespaces...))
	var page bytes.Buffer
	about := ui.About{Driver: gpucluster.Driver, Source: "prod</title><script>alert(1)</script>", Time: gpucluster.Now, Missing: []string{"list pods"}}
	require.NoError(t, ui.Page(&page, store.Cluster(), about, ui.Extra{Explanations: of}))
	return page.String()
}

var data = regexp.MustCompile(`(?s)<script type="application/json" id="state-data">(.*?)</script>`)

// stateIn decodes the state of a saved page.
func stateIn(t *testing.T, page string) (s ui.State) {
	t.Helper()
	match := data.FindStringSubmatch(page)
	require.NotNil(t, match)
	require.NoError(t, json.Unmarshal([]byte(match[1]), &s))
	return s
}

func TestPage_MarkupInNames_StaysText(t *testing.T) {
	t.Parallel()
	evil := "x</script><script>alert(document.cookie)</script><!--"
	page := saved(t, map[types.NamespacedName]*explain.Explanation{
		{Namespace: evil, Name: "chat-wait-3"}: {Sentence: "</script>\u2028<img src=x onerror=alert(1)>"},
	}, evil)
	assert.Equal(t, 2, strings.Count(page, "<script"), "the data and the program")
	assert.Equal(t, 2, strings.Count(page, "</script>"))
	assert.NotContains(t, page, "<img")
	assert.NotContains(t, page, "alert(document.cookie)<")
	s := stateIn(t, page)
	assert.Equal(t, evil, s.Pods[0].Namespace, "the name itself is unchanged")
	assert.Contains(t, s.Pods[0].Explanation.Sentence, "<img src=x")
	assert.Contains(t, s.Meta.Source, "</title>")
}

func TestPage_OneFile_RequestsNothing(t *testing.T) {
	t.Parallel()
	page := saved(t, nil)
	policy := regexp.MustCompile(`http-equiv="Content-Security-Policy" content="([^"]*)"`).FindStringSubmatch(page)
	require.NotNil(t, policy)
	assert.Contains(t, policy[1], "default-src &#39;none&#39;")
	assert.NotContains(t, policy[1], "unsafe-")
	assert.NotContains(t, policy[1], "self")
	assert.NotRegexp(t, `(src|href)="(https?:|/)`, page)
	assert.NotContains(t, page, "ZgotmplZ")
}

func TestPage_Cluster_AllGPUsAndPods(t *testing.T) {
	t.Parallel()
	s := stateIn(t, saved(t, nil))
	require.Len(t, s.Nodes, 4)
	gpus, kinds, classes := 0, map[string]int{}, map[string]int{}
	for _, node := range s.Nodes {
		gpus += len(node.GPUs)
		for _, gpu := range node.GPUs {
			assert.NotEmpty(t, gpu.Product)
			assert.NotZero(t, gpu.Memory)
			for _, part := range gpu.Parts {
				kinds[part.Type]++
				for _, use := range part.Uses {
					classes[use.Class]++
					assert.Len(t, use.Pods, 1)
					assert.Equal(t, use.Claim, use.Pods[0]+"-gpu")
					assert.NotZero(t, use.Created)
				}
			}
		}
	}
	assert.Equal(t, 28, gpus)
	for _, kind := range []string{"gpu", "mig", "mps", "timeslice"} {
		assert.NotZero(t, kinds[kind], kind)
	}
	assert.NotZero(t, classes["gpu.prism.dev"])
	assert.NotZero(t, classes["mps.gpu.prism.dev"])
	require.Len(t, s.Pods, 8)
	assert.Equal(t, []string{"8 × gpu.prism.dev"}, s.Pods[0].Requests)
	assert.Equal(t, []string{"list pods"}, s.Meta.Missing)
	assert.Nil(t, s.Pods[0].Explanation)
}
