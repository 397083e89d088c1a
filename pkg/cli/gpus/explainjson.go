package gpus

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/prism-gpu/prism/pkg/cli/explain"
)

// explanationJSON is an explanation for programs. Its fields are those of explain.Explanation.
type explanationJSON struct {
	Kind      string       `json:"kind"`
	Namespace string       `json:"namespace"`
	Name      string       `json:"name"`
	Equal     []string     `json:"equal,omitempty"`
	Fits      bool         `json:"fits"`
	Sentence  string       `json:"sentence"`
	Requests  []string     `json:"requests,omitempty"`
	Groups    []groupJSON  `json:"groups"`
	Nearest   *nearestJSON `json:"nearest,omitempty"`
	Changes   []changeJSON `json:"changes,omitempty"`
	Notes     []string     `json:"notes,omitempty"`
}

type groupJSON struct {
	Cause  explain.Cause `json:"cause"`
	Detail string        `json:"detail,omitempty"`
	Nodes  []string      `json:"nodes"`
}

type nearestJSON struct {
	Node    string       `json:"node"`
	GPU     string       `json:"gpu,omitempty"`
	Device  string       `json:"device,omitempty"`
	Start   int          `json:"start"`
	Size    int          `json:"size"`
	Alike   int          `json:"alike"`
	Holders []holderJSON `json:"holders,omitempty"`
}

type holderJSON struct {
	Namespace   string   `json:"namespace,omitempty"`
	Claim       string   `json:"claim,omitempty"`
	Pods        []string `json:"pods,omitempty"`
	Owner       string   `json:"owner,omitempty"`
	Devices     string   `json:"devices,omitempty"`
	Priority    int32    `json:"priority,omitempty"`
	Terminating bool     `json:"terminating,omitempty"`
	Hidden      bool     `json:"hidden,omitempty"`
	Created     int64    `json:"created,omitempty"`
}

type changeJSON struct {
	Text string `json:"text"`
}

// json converts an explanation. Conversions fail to compile if a field is added there and not here.
func (e *explained) json() explanationJSON {
	out := explanationJSON{
		Kind: e.Kind, Namespace: e.Namespace, Name: e.Name, Equal: e.Equal, Fits: e.Fits, Sentence: e.Sentence, Requests: e.Requests,
		Groups: []groupJSON{}, Notes: e.Notes,
	}
	for _, g := range e.Groups {
		out.Groups = append(out.Groups, groupJSON(g))
	}
	for _, c := range e.Changes {
		out.Changes = append(out.Changes, changeJSON(c))
	}
	if n := e.Nearest; n != nil {
		out.Nearest = &nearestJSON{Node: n.Node, GPU: n.GPU, Device: n.Device, Start: n.Start, Size: n.Size, Alike: n.Alike}
		for _, h := range n.Holders {
			out.Nearest.Holders = append(out.Nearest.Holders, holderJSON(h))
		}
	}
	return out
}

// checkFormat validates the flag --output.
func checkFormat(format string, more ...string) error {
	supported := append([]string{"wide", "json", "yaml"}, more...)
	if format != "" && !slices.Contains(supported, format) {
		return fmt.Errorf("--output: unsupported value %q; supported values: %s", format, strings.Join(supported, ", "))
	}
	return nil
}

// encode writes a value for programs, if the format is one for programs.
func encode(out io.Writer, format string, value any) (done bool, err error) {
	switch format {
	case "json":
		encoder := json.NewEncoder(out)
		encoder.SetEscapeHTML(false)
		encoder.SetIndent("", "    ")
		return true, encoder.Encode(value)
	case "yaml":
		written, err := yaml.Marshal(value)
		if err == nil {
			_, err = out.Write(written)
		}
		return true, err
	}
	return false, nil
}
