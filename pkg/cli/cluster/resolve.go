package cluster

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/prism-gpu/prism/pkg/cli/clusterview"
)

// shortestID is the smallest number of hex digits in the name of a GPU; shorter numbers are indexes.
const shortestID = 8

var id = regexp.MustCompile(`^[0-9a-f]{8,32}$`)

// Resolve returns the GPU of one node that a text means: its id ("5d3f61a2" or "gpu-5d3f61a2"), index, UUID, or the name or UUID of one of
// its devices. Of a UUID the beginning suffices. known are names of GPUs that may be missing in the ResourceSlices.
func Resolve(gpus []GPU, known []string, node, text string) (*GPU, error) {
	var found []*GPU
	for i := range gpus {
		if gpus[i].means(text) {
			found = append(found, &gpus[i])
		}
	}
	if len(found) == 1 {
		return found[0], nil
	}
	if name := named(text); len(found) == 0 && slices.Contains(known, name) {
		return &GPU{Place: Place{node, name}}, nil
	}
	problem := "unknown"
	if len(found) > 1 {
		problem = "ambiguous"
	}
	if len(gpus) == 0 {
		return nil, fmt.Errorf("GPU %q of node %s: %s; the node advertises no GPU", text, node, problem)
	}
	return nil, fmt.Errorf("GPU %q of node %s: %s; GPUs of the node: %s", text, node, problem, choices(gpus))
}

// named returns the GPU name that a text begins with, with or without "gpu-"; "" for other texts.
func named(text string) string {
	if id.MatchString(text) {
		return "gpu-" + text
	}
	return clusterview.NameOf(text)
}

func (g *GPU) means(text string) bool {
	if index, err := strconv.ParseInt(text, 10, 64); err == nil && len(text) < shortestID {
		return g.Index != nil && *g.Index == index
	}
	if named(text) == g.Name {
		return true
	}
	if len(text) <= len("GPU-") {
		return false
	}
	is := func(uuid string) bool {
		return uuid != "" && len(text) <= len(uuid) && strings.EqualFold(uuid[:len(text)], text)
	}
	switch {
	case strings.HasPrefix(text, "GPU-"):
		return is(g.UUID)
	case strings.HasPrefix(text, "MIG-"):
		for uuid := range g.ids {
			if is(uuid) {
				return true
			}
		}
	}
	return false
}

// choices lists GPUs for a sentence.
func choices(gpus []GPU) string {
	var all []string
	for i := range gpus {
		g := &gpus[i]
		index := "unknown index"
		if g.Index != nil {
			index = "index " + strconv.FormatInt(*g.Index, 10)
		}
		all = append(all, fmt.Sprintf("%s (%s, %s)", g.Name, index, g.UUID))
	}
	return strings.Join(all, ", ")
}
