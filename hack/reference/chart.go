package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"
)

const chart = "deployments/helm/prism"

// chartSchema is the part of values.schema.json for the page.
type chartSchema struct {
	Type        any
	Enum        []any
	Pattern     string
	Minimum     *float64
	Maximum     *float64
	Description string
	Properties  map[string]chartSchema
}

// valuesPage lists the values of the chart in the order of values.yaml.
func valuesPage(root string) (string, error) {
	content, err := os.ReadFile(filepath.Join(root, chart, "values.yaml"))
	if err != nil {
		return "", err
	}
	schema, err := readSchema(root)
	if err != nil {
		return "", err
	}
	values := map[string]any{}
	if err := yaml.Unmarshal(content, &values); err != nil {
		return "", err
	}
	out := newText("Chart values", "values.yaml and values.schema.json")
	out.para("Values of `" + chart + "`. `helm` refuses invalid values before it installs anything. Values of NVIDIA's device plugin: " +
		"[migration.md](migration.md).")
	t := table{head: []string{"value", "default", "valid values", "description"}}
	comments := valueComments(string(content))
	for _, path := range comments.paths {
		at, ok := schema.at(path)
		if !ok {
			return "", fmt.Errorf("value %s is not in values.schema.json", path)
		}
		if len(at.Properties) > 0 && comments.hasBelow(path) {
			if text := comments.text[path]; text != "" {
				t.row(code(path), "", "", plain(text))
			}
			continue
		}
		if comments.text[path] == "" {
			return "", fmt.Errorf("value %s has no comment in values.yaml", path)
		}
		t.row(code(path), code(inline(valueAt(values, path))), at.valid(), plain(comments.text[path]))
	}
	out.table(t)
	return out.String(), schema.missing("", comments)
}

func readSchema(root string) (chartSchema, error) {
	var schema chartSchema
	content, err := os.ReadFile(filepath.Join(root, chart, "values.schema.json"))
	if err == nil {
		err = json.Unmarshal(content, &schema)
	}
	return schema, err
}

// at returns the schema of a value.
func (s chartSchema) at(path string) (chartSchema, bool) {
	for key := range strings.SplitSeq(path, ".") {
		below, ok := s.Properties[key]
		if !ok {
			return s, false
		}
		s = below
	}
	return s, true
}

// missing returns an error if values.yaml contains no entry for a value of the schema. Values of other charts, and types of Kubernetes, are
// excluded.
func (s chartSchema) missing(at string, known valueComment) error {
	for key, below := range s.Properties {
		path := strings.TrimPrefix(at+"."+key, ".")
		if below.Description != "" {
			continue
		}
		if !slices.Contains(known.paths, path) {
			return fmt.Errorf("value %s of values.schema.json is not in values.yaml", path)
		}
		if known.hasBelow(path) {
			if err := below.missing(path, known); err != nil {
				return err
			}
		}
	}
	return nil
}

// valid describes the values that the schema allows, in one cell.
func (s chartSchema) valid() string {
	var parts []string
	for _, value := range s.Enum {
		parts = append(parts, code(inline(value)))
	}
	text := strings.Join(parts, ", ")
	switch {
	case s.Minimum != nil && s.Maximum != nil:
		text = code(inline(*s.Minimum)) + " to " + code(inline(*s.Maximum))
	case s.Minimum != nil:
		text = "at least " + code(inline(*s.Minimum))
	case s.Pattern != "":
		text = "pattern " + code(s.Pattern)
	}
	if text == "" && s.Type != nil {
		text = strings.Trim(strings.ReplaceAll(inline(s.Type), ",", " or "), `[]"`)
		text = strings.ReplaceAll(text, `"`, "")
	}
	return text
}

// inline is a value as JSON, a string without quotes unless it is empty.
func inline(value any) string {
	if text, ok := value.(string); ok && text != "" {
		return text
	}
	if number, ok := value.(float64); ok {
		return strconv.FormatFloat(number, 'f', -1, 64)
	}
	raw, err := json.Marshal(value)
	if err != nil {
		return err.Error()
	}
	return string(raw)
}

func valueAt(values map[string]any, path string) any {
	var at any = values
	for key := range strings.SplitSeq(path, ".") {
		below, ok := at.(map[string]any)
		if !ok {
			return nil
		}
		at = below[key]
	}
	return at
}

// valueComment contains the keys of values.yaml in their order, and the comment above each.
type valueComment struct {
	paths []string
	text  map[string]string
}

// hasBelow reports whether a key below the path is commented.
func (c valueComment) hasBelow(path string) bool {
	return slices.ContainsFunc(c.paths, func(p string) bool { return strings.HasPrefix(p, path+".") && c.text[p] != "" })
}

var keyLine = regexp.MustCompile(`^( *)([A-Za-z]+):`)

// valueComments reads them line by line, because YAML libraries do not keep comments. Indented lines of a comment are examples.
func valueComments(content string) valueComment {
	found := valueComment{text: map[string]string{}}
	var parents, comment []string
	for row := range strings.SplitSeq(content, "\n") {
		trimmed := strings.TrimSpace(row)
		if text, ok := strings.CutPrefix(trimmed, "#"); ok {
			if !strings.HasPrefix(text, "  ") {
				comment = append(comment, strings.TrimSpace(text))
			}
			continue
		}
		if m := keyLine.FindStringSubmatch(row); m != nil {
			parents = append(parents[:min(len(m[1])/2, len(parents))], m[2])
			path := strings.Join(parents, ".")
			found.paths, found.text[path] = append(found.paths, path), strings.Join(comment, " ")
		}
		comment = nil
	}
	found.paths = slices.DeleteFunc(found.paths, func(path string) bool {
		return found.text[path] == "" && !found.hasBelow(path) && strings.Contains(path, ".") && found.leaf(path)
	})
	return found
}

// leaf reports whether a key without a comment is part of the value above it, such as cpu in resources.
func (c valueComment) leaf(path string) bool {
	above := path[:strings.LastIndex(path, ".")]
	return !c.hasBelow(above)
}
