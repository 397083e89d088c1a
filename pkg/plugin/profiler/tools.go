package profiler

import (
	"fmt"
	"slices"
	"strings"

	"github.com/prism-gpu/prism/api/v1alpha1"
	"github.com/prism-gpu/prism/pkg/claim"
	"github.com/prism-gpu/prism/pkg/plugin/profiler/plan"
	"github.com/prism-gpu/prism/pkg/profiler/nsight"
	"github.com/prism-gpu/prism/pkg/profiler/tool/manifest"
)

// installedTools lists the versions of Nsight Systems that are installed and tested on the node. Versions with an unreadable manifest are
// ignored.
func installedTools(manifests *manifest.Cache) (tools []plan.Tool, err error) {
	installed, err := manifests.List()
	if err != nil {
		return nil, err
	}
	for _, one := range installed {
		if one.Proven.IsZero() {
			continue
		}
		tools = append(tools, plan.Tool{
			Tool: nsight.Tool{Version: one.Version, Switches: one.Switches, Launch: one.Launch, Start: one.Start},
			Dir:  one.Dir, Nsys: one.Nsys, Importer: one.Importer, Proven: one.Proven, Manual: one.Manual,
		})
	}
	return tools, nil
}

// chooseTool returns the wanted version, or the highest; of several builds of a version it returns the build that was tested last.
func chooseTool(installed []plan.Tool, wanted string) (plan.Tool, error) {
	versions := make([]nsight.Tool, len(installed))
	for i, t := range installed {
		versions[i] = t.Tool
	}
	chosen, err := nsight.Choose(versions, wanted)
	if err != nil {
		return plan.Tool{}, err
	}
	var found plan.Tool
	for _, t := range installed {
		if t.Version == chosen.Version && (found.Dir == "" || t.Proven.After(found.Proven)) {
			found = t
		}
	}
	return found, nil
}

// manual returns why processes that wait for a command cannot be recorded with a tool, and how to fix it.
func manual(installed []plan.Tool, chosen plan.Tool) error {
	if chosen.Manual == "" {
		return nil
	}
	var others []string
	for _, t := range installed {
		if t.Manual == "" && len(t.Launch) > 0 && t.Version != chosen.Version && !slices.Contains(others, t.Version) {
			others = append(others, t.Version)
		}
	}
	slices.Sort(others)
	fix := "add another version to the chart's value profiler.tools, and set toolVersion to it"
	if len(others) > 0 {
		fix = "set toolVersion to another version that the node tested: " + strings.Join(others, ", ")
	}
	return &claim.Refusal{
		Cause: fmt.Sprintf("Nsight Systems %s does not support start %s on the node: %s", chosen.Version, v1alpha1.StartManual, chosen.Manual), Fix: fix,
		Mendable: true,
	}
}
