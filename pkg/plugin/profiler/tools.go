package profiler

import (
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
			Tool: nsight.Tool{Version: one.Version, Switches: one.Switches}, Dir: one.Dir, Nsys: one.Nsys, Importer: one.Importer, Proven: one.Proven,
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
