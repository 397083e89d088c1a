package parts

import (
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestModuleFile_Preview_NewerGoAndStandIns(t *testing.T) {
	recipe := kubernetesRecipe(PreviewVersion)
	assert.Equal(t, `module localcluster.invalid/kubernetes

go `+previewGo+`

require k8s.io/kubernetes v1.38.0-beta.0
require k8s.io/api v0.38.0-beta.0
replace k8s.io/api v0.0.0 => k8s.io/api v0.38.0-beta.0
replace sigs.k8s.io/structured-merge-diff/v7 v7.0.1 => sigs.k8s.io/structured-merge-diff/v7 v7.0.0
replace k8s.io/apiextensions-api => ./standin/k8s.io/apiextensions-api
replace k8s.io/ktesting => ./standin/k8s.io/ktesting
replace sigs.k8s.io/iptables-wrappers => ./standin/sigs.k8s.io/iptables-wrappers
`, recipe.moduleFile([]string{"k8s.io/api"}))
	for _, version := range kubernetesVersions {
		r := kubernetesRecipe(version)
		assert.Empty(t, r.Go, "only the preview needs another Go")
		assert.Empty(t, r.StandIns, version)
	}
}

func TestStandIn_Copied_ImportsOfItsOwnModule(t *testing.T) {
	s := StandIn{
		Folders: []string{"pkg/v1", "pkg/client"}, LeftOut: []string{"conversion.go"},
		Imports: [][2]string{{"example.com/old/pkg/", "example.com/new/pkg/"}},
	}
	files := map[string]string{}
	require.NoError(t, s.copied(fstest.MapFS{
		"pkg/v1/types.go":         {Data: []byte("package v1\n\n// See example.com/old/pkg/v1.\n")},
		"pkg/v1/types_test.go":    {Data: []byte("package v1\n")},
		"pkg/v1/conversion.go":    {Data: []byte("package v1\n")},
		"pkg/v1/README.md":        {Data: []byte("text")},
		"pkg/client/v1/client.go": {Data: []byte("package v1\n\nimport \"example.com/old/pkg/v1\"\n")},
		"pkg/other/other.go":      {Data: []byte("package other\n")},
	}, files))
	assert.Equal(t, map[string]string{
		"pkg/v1/types.go":         "package v1\n\n// See example.com/old/pkg/v1.\n",
		"pkg/client/v1/client.go": "package v1\n\nimport \"example.com/new/pkg/v1\"\n",
	}, files)
	assert.Error(t, StandIn{Folders: []string{"missing"}}.copied(fstest.MapFS{}, files))
}
