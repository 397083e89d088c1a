package helm

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	dracel "k8s.io/dynamic-resource-allocation/cel"
)

// selects reports the devices that a class selects, with the scheduler's own evaluator.
func selects(t *testing.T, rendered objects, class string, devices map[string]dracel.Device) []string {
	t.Helper()
	require.Contains(t, rendered, "DeviceClass/"+class)
	selectors := dig(t, rendered["DeviceClass/"+class], "spec", "selectors").([]any)
	require.Len(t, selectors, 1)
	expression := selectors[0].(map[string]any)["cel"].(map[string]any)["expression"].(string)
	compiled := dracel.GetCompiler(dracel.Features{}).CompileCELExpression(expression, dracel.Options{})
	require.Nil(t, compiled.Error, fmt.Sprint(compiled.Error))
	var taken []string
	for name, device := range devices {
		matches, _, err := compiled.DeviceMatches(t.Context(), device)
		require.NoError(t, err, name)
		if matches {
			taken = append(taken, name)
		}
	}
	return taken
}

func device(of, kind, profile string) dracel.Device {
	return dracel.Device{Driver: of, Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
		"type": {StringValue: &kind}, "profile": {StringValue: &profile},
	}}
}

func TestChartClasses_Selectors_MatchTheirDevices(t *testing.T) {
	const driver = "gpu.nvidia.com"
	rendered := parse(t, render(t, "--set", "driverName="+driver,
		"--set", "deviceClasses.mig.extendedResources={1g.10gb,1g.10gb+me,2g.20gb}", "--set", "monitorDevices=PerNode,deviceClasses.perfmonDevices=PerGPU"))
	devices := map[string]dracel.Device{
		"gpu": device(driver, "gpu", "none"), "monitor": device(driver, "monitor", "none"), "perfmon": device(driver, "perfmon", "none"),
		"time-sliced": device(driver, "timeslice", "none"), "MPS": device(driver, "mps", "none"),
		"1g": device(driver, "mig", "1g.10gb"), "1g+me": device(driver, "mig", "1g.10gb+me"), "2g": device(driver, "mig", "2g.20gb"),
		"foreign": device("gpu.example.com", "gpu", "none"), "foreign MIG device": device("gpu.example.com", "mig", "1g.10gb"),
		"bare": {Driver: "net.example.com"},
	}
	for class, want := range map[string][]string{
		"mig.nvidia.com": {"1g", "1g+me", "2g"},
		driver:           {"gpu"}, "monitor." + driver: {"monitor"}, "perfmon." + driver: {"perfmon"}, "timeslice." + driver: {"time-sliced"}, "mps." + driver: {"MPS"}, "mig." + driver: {"1g", "1g+me", "2g"},
		"mig-1g.10gb." + driver: {"1g"}, "mig-1g.10gb.me." + driver: {"1g+me"}, "mig-2g.20gb." + driver: {"2g"},
	} {
		assert.ElementsMatch(t, want, selects(t, rendered, class, devices), class)
	}
}

// TestChartClasses_Names_Valid: the API server accepts the names of classes and resources, and NVIDIA's device plugin uses the same
// resource names.
func TestChartClasses_Names_Valid(t *testing.T) {
	resources := map[string]string{}
	for key, object := range parse(t, render(t, "--values", "testdata/values/node-config.yaml")) {
		class, isClass := strings.CutPrefix(key, "DeviceClass/")
		if !isClass {
			continue
		}
		assert.Empty(t, validation.IsDNS1123Subdomain(class), class)
		if resource, ok := dig(t, object, "spec").(map[string]any)["extendedResourceName"].(string); ok {
			assert.Empty(t, validation.IsQualifiedName(resource), resource)
			resources[class] = resource
		}
	}
	assert.Equal(t, map[string]string{
		"mig-1g.10gb.gpu.prism.dev":        "nvidia.com/mig-1g.10gb",
		"mig-1g.10gb.me.gpu.prism.dev":     "nvidia.com/mig-1g.10gb.me",
		"mig-1g.24gb.me.all.gpu.prism.dev": "nvidia.com/mig-1g.24gb.me.all",
		"mig-1g.24gb-me.gpu.prism.dev":     "nvidia.com/mig-1g.24gb-me",
	}, resources)
}
