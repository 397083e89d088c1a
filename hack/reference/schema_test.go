package main

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/kube-openapi/pkg/validation/strfmt"
	"k8s.io/kube-openapi/pkg/validation/validate"
	"sigs.k8s.io/yaml"

	"github.com/prism-gpu/prism/api/v1alpha1"
)

// configs calls found with every object of the API group below a value, also if it is text in a ConfigMap.
func configs(value any, found func(map[string]any)) {
	switch value := value.(type) {
	case map[string]any:
		if value["apiVersion"] == v1alpha1.APIVersion {
			found(value)
			return
		}
		for _, below := range value {
			configs(below, found)
		}
	case []any:
		for _, below := range value {
			configs(below, found)
		}
	case string:
		var parsed map[string]any
		if strings.Contains(value, v1alpha1.APIVersion) && yaml.Unmarshal([]byte(value), &parsed) == nil {
			configs(parsed, found)
		}
	}
}

var (
	documentEnd = regexp.MustCompile(`(?m)^---$`)
	yamlBlock   = regexp.MustCompile("(?s)```yaml\n(.*?)```")
)

// documents are the YAML documents of a file; for Markdown, the documents in its code blocks.
func documents(path, content string) []string {
	blocks := []string{content}
	if strings.HasSuffix(path, ".md") {
		blocks = nil
		for _, block := range yamlBlock.FindAllStringSubmatch(content, -1) {
			blocks = append(blocks, block[1])
		}
	}
	var out []string
	for _, block := range blocks {
		out = append(out, documentEnd.Split(block, -1)...)
	}
	return out
}

func schemas(t *testing.T, root string) map[string]*validate.SchemaValidator {
	t.Helper()
	validators := map[string]*validate.SchemaValidator{}
	for _, k := range kinds() {
		text, err := k.jsonSchema(root)
		require.NoError(t, err)
		schema := &spec.Schema{}
		require.NoError(t, json.Unmarshal([]byte(text), schema))
		schema.Schema = ""
		validators[k.name] = validate.NewSchemaValidator(schema, nil, "", strfmt.Default)
	}
	return validators
}

func TestSchema_ConfigsOfTheRepository_Valid(t *testing.T) {
	root := rootOf(t)
	validators := schemas(t, root)
	decoders := map[string]kind{}
	for _, k := range kinds() {
		decoders[k.name] = k
	}
	valid, invalid := map[string]int{}, 0
	for _, folder := range []string{"demo", "docs", "test/e2e", "deployments/helm/testdata", "api/v1alpha1/testdata"} {
		require.NoError(t, filepath.WalkDir(filepath.Join(root, folder), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || filepath.Ext(path) != ".yaml" && filepath.Ext(path) != ".md" {
				return err
			}
			content, err := os.ReadFile(path)
			require.NoError(t, err)
			for _, document := range documents(path, string(content)) {
				var parsed any
				if yaml.Unmarshal([]byte(document), &parsed) != nil {
					continue
				}
				configs(parsed, func(config map[string]any) {
					name, _ := config["kind"].(string)
					raw, err := json.Marshal(config)
					require.NoError(t, err)
					if k, known := decoders[name]; !known || k.decode(raw) != nil {
						invalid++
						return
					}
					valid[name]++
					result := validators[name].Validate(config)
					assert.Empty(t, result.Errors, "%s: the decoder accepts what the schema refuses", path)
				})
			}
			return nil
		}))
	}
	for _, k := range kinds() {
		assert.Positive(t, valid[k.name], "no %s was found", k.name)
	}
	assert.Positive(t, invalid, "the refused configurations of the demo were not found")
}

func TestSchema_InvalidValue_Refused(t *testing.T) {
	validators := schemas(t, rootOf(t))
	for document, name := range map[string]string{
		"memory: 8Gi":                                      "GPUConfig",
		"sharing: {strategy: Turns}":                       "GPUConfig",
		"sharing: {mps: {activeThreadPercentage: 101}}":    "GPUConfig",
		"trace: [cuda, cuda]":                              "ProfilerConfig",
		"match: {maxSessions: 0}":                          "ProfilerConfig",
		"sets: [Everything]":                               "GPUMetricsConfig",
		"gpus: [{modes: []}]":                              "NodeConfig",
		"gpus: [{select: {indices: [zero]}}]":              "NodeConfig",
		"gpus: [{mig: {replicas: {1g.10gb: two}}}]":        "NodeConfig",
		"flags: {failOnInitError: \"true\"}":               "NodeConfig",
		"gpus: [{timeSlice: {replicas: 2, intervall: x}}]": "NodeConfig",
	} {
		var parsed map[string]any
		require.NoError(t, yaml.Unmarshal([]byte("apiVersion: "+v1alpha1.APIVersion+"\nkind: "+name+"\n"+document), &parsed))
		assert.NotEmpty(t, validators[name].Validate(parsed).Errors, document)
	}
}
