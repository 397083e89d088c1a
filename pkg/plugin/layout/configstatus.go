package layout

import (
	"slices"
	"strconv"
	"strings"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// partly describes how the GPUs of a partly invalid configuration are advertised. The text must change only when that changes, so it does
// not name the refused GPUs that are new.
func partly(gpus []gpu.GPU, layout gpu.Layout, refused []gpu.UUID) string {
	isRefused := func(g *gpu.GPU) bool { return slices.Contains(refused, g.UUID) }
	isNothing := func(g *gpu.GPU) bool {
		return !isRefused(g) && !layout.Of(g).Partitioned() && len(layout.Of(g).Devices(g)) == 0
	}
	said := sentence(gpus, isRefused, "stays as it was advertised, whole if it is new", "stay as they were advertised, whole if they are new") +
		sentence(gpus, isNothing, "is without any device", "are without any device")
	if said == "" {
		return "All else is applied"
	}
	return said + "all else is applied"
}

// sentence is a sentence about some GPUs, with the separator after it: "GPU 1 is …; ", "GPUs 1, 2 are …; ". It is empty without any.
func sentence(gpus []gpu.GPU, so func(*gpu.GPU) bool, one, several string) string {
	var indices []string
	for i := range gpus {
		if so(&gpus[i]) {
			indices = append(indices, strconv.Itoa(gpus[i].Index))
		}
	}
	switch len(indices) {
	case 0:
		return ""
	case 1:
		return "GPU " + indices[0] + " " + one + "; "
	default:
		return "GPUs " + strings.Join(indices, ", ") + " " + several + "; "
	}
}
