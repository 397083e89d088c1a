package v1alpha1

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"unicode/utf8"

	"sigs.k8s.io/yaml"
)

// object is a JSON object that keeps order and duplicate keys. The values are
// object, []any, string, json.Number, bool or nil.
type object []member

type member struct {
	key   string
	value any
}

// text returns the string under key, or an empty string.
func (o object) text(key string) string {
	for _, m := range o {
		if text, ok := m.value.(string); ok && m.key == key {
			return text
		}
	}
	return ""
}

// plain returns the object as encoding/json writes it.
func (o object) plain() map[string]any {
	plain := make(map[string]any, len(o))
	for _, m := range o {
		plain[m.key] = plainValue(m.value)
	}
	return plain
}

func plainValue(value any) any {
	switch value := value.(type) {
	case object:
		return value.plain()
	case []any:
		items := make([]any, len(value))
		for i, item := range value {
			items[i] = plainValue(item)
		}
		return items
	default:
		return value
	}
}

// parse reads one JSON or YAML document that is an object.
func parse(raw []byte, limit int) (object, error) {
	p := &problems{}
	if len(raw) > limit {
		p.add("", "the configuration must be at most %d bytes, got %d", limit, len(raw))
		return nil, p.err("")
	}
	if !utf8.Valid(raw) {
		p.add("", "the configuration must be UTF-8 text")
		return nil, p.err("")
	}
	value, err := parseValue(raw)
	if err != nil {
		p.add("", "reading the configuration: %v", err)
		return nil, p.err("")
	}
	tree, ok := value.(object)
	if !ok {
		p.add("", "the configuration must be an object with apiVersion and kind, got %s", describe(value))
		return nil, p.err("")
	}
	return tree, nil
}

func parseValue(raw []byte) (any, error) {
	if !bytes.HasPrefix(bytes.TrimSpace(raw), []byte("{")) {
		converted, err := fromYAML(raw)
		if err != nil {
			return nil, err
		}
		raw = converted
	}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	value, err := readValue(decoder)
	if err != nil {
		return nil, err
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("text after the end of the object at byte %d", decoder.InputOffset())
	}
	return value, nil
}

var (
	documentMark = regexp.MustCompile(`(?m)^(---|\.\.\.)(\s|$)`)
	content      = regexp.MustCompile(`(?m)^[^#%\s]|^\s+[^#\s]`)
)

// fromYAML refuses further documents, which the library would drop silently.
func fromYAML(raw []byte) ([]byte, error) {
	documents := 0
	for _, part := range documentMark.Split(string(raw), -1) {
		if content.MatchString(part) {
			documents++
		}
	}
	if documents > 1 {
		return nil, fmt.Errorf("must be one YAML document, got %d", documents)
	}
	converted, err := yaml.YAMLToJSONStrict(raw)
	if err != nil {
		return nil, errors.New(yamlText(err))
	}
	return converted, nil
}

var repeatedKey = regexp.MustCompile(`line (\d+): key (".*") already set in map`)

// yamlText returns the library's error on one line.
func yamlText(err error) string {
	if found := repeatedKey.FindStringSubmatch(err.Error()); found != nil {
		return fmt.Sprintf("line %s: duplicate key %s", found[1], found[2])
	}
	text := strings.TrimPrefix(err.Error(), "error converting YAML to JSON: ")
	return strings.Join(strings.Fields(text), " ")
}

func readValue(decoder *json.Decoder) (any, error) {
	token, err := decoder.Token()
	if errors.Is(err, io.EOF) {
		return nil, io.ErrUnexpectedEOF
	}
	if err != nil {
		return nil, err
	}
	switch token {
	case json.Delim('{'):
		return readObject(decoder)
	case json.Delim('['):
		return readArray(decoder)
	default:
		return token, nil
	}
}

func readObject(decoder *json.Decoder) (any, error) {
	read := object{}
	for decoder.More() {
		key, err := decoder.Token()
		if err != nil {
			return nil, err
		}
		value, err := readValue(decoder)
		if err != nil {
			return nil, err
		}
		read = append(read, member{key: fmt.Sprint(key), value: value})
	}
	_, err := decoder.Token()
	return read, err
}

func readArray(decoder *json.Decoder) (any, error) {
	read := []any{}
	for decoder.More() {
		value, err := readValue(decoder)
		if err != nil {
			return nil, err
		}
		read = append(read, value)
	}
	_, err := decoder.Token()
	return read, err
}
