package nodeconfig

import (
	"fmt"
	"slices"
	"strings"

	"github.com/prism-gpu/prism/api/v1alpha1"
)

type pluginFlags struct {
	MIGStrategy      *string `json:"migStrategy"`
	FailOnInitError  *bool   `json:"failOnInitError"`
	NVIDIADriverRoot *string `json:"nvidiaDriverRoot"`
	NVIDIADevRoot    *string `json:"nvidiaDevRoot"`
	GDSEnabled       *bool   `json:"gdsEnabled"`
	MOFEDEnabled     *bool   `json:"mofedEnabled"`
	GDRCopyEnabled   *bool   `json:"gdrcopyEnabled"`
	sharingFlags
	UseNodeFeatureAPI        *bool             `json:"useNodeFeatureAPI"`
	DeviceDiscoveryStrategy  *string           `json:"deviceDiscoveryStrategy"`
	RestartOnDeviceUnhealthy *bool             `json:"restartOnDeviceUnhealthy"`
	Plugin                   *pluginOwnFlags   `json:"plugin"`
	GFD                      *featureDiscovery `json:"gfd"`
}

type pluginOwnFlags struct {
	PassDeviceSpecs     *bool   `json:"passDeviceSpecs"`
	DeviceListStrategy  any     `json:"deviceListStrategy"`
	DeviceIDStrategy    *string `json:"deviceIDStrategy"`
	CDIAnnotationPrefix *string `json:"cdiAnnotationPrefix"`
	NVIDIACTKPath       *string `json:"nvidiaCTKPath"`
	ContainerDriverRoot *string `json:"containerDriverRoot"`
	KubeletSocket       *string `json:"kubeletSocket"`
	CDIFeatureFlags     any     `json:"cdiFeatureFlags"`
}

type featureDiscovery struct {
	Oneshot         *bool   `json:"oneshot"`
	NoTimestamp     *bool   `json:"noTimestamp"`
	SleepInterval   any     `json:"sleepInterval"`
	OutputFile      *string `json:"outputFile"`
	MachineTypeFile *string `json:"machineTypeFile"`
}

var (
	migStrategies  = []v1alpha1.MIGStrategy{v1alpha1.MIGStrategyNone, v1alpha1.MIGStrategySingle, v1alpha1.MIGStrategyMixed}
	listStrategies = []string{"envvar", "volume-mounts", "cdi-annotations", "cdi-cri"}
	idStrategies   = []string{"uuid", "index"}
	discoveries    = []string{"auto", "nvml"}
)

// flags translates the settings that a NodeConfig also has. The MIG strategy is always set, because the device plugin's default differs.
func (t *translation) flags(f *pluginFlags) *v1alpha1.NodeFlags {
	if f == nil {
		f = &pluginFlags{}
	}
	t.migStrategy(f.MIGStrategy)
	t.obsolete(f)
	if f.Plugin != nil {
		t.pluginFlags(f.Plugin)
	}
	if f.GFD != nil {
		t.warn("flags.gfd", "is ignored; what GPU feature discovery writes into labels are attributes of the devices")
	}
	return &v1alpha1.NodeFlags{
		FailOnInitError: f.FailOnInitError, NVIDIADriverRoot: f.NVIDIADriverRoot, MIGStrategy: &t.strategy,
		GDSEnabled: f.GDSEnabled, MOFEDEnabled: f.MOFEDEnabled, GDRCopyEnabled: f.GDRCopyEnabled,
	}
}

func (t *translation) migStrategy(strategy *string) {
	if strategy == nil {
		return
	}
	if !slices.Contains(migStrategies, v1alpha1.MIGStrategy(*strategy)) {
		t.refuse("flags.migStrategy", "unknown strategy: %s; allowed: none, single, mixed", *strategy)
		return
	}
	t.strategy = v1alpha1.MIGStrategy(*strategy)
}

// obsolete warns of general flags that are meaningless here.
func (t *translation) obsolete(f *pluginFlags) {
	const ignored = "is ignored; "
	if f.NVIDIADevRoot != nil {
		t.warn("flags.nvidiaDevRoot", ignored+"device nodes are searched under nvidiaDriverRoot, else under /")
	}
	f.obsolete(t)
	if f.UseNodeFeatureAPI != nil {
		t.warn("flags.useNodeFeatureAPI", ignored+"features of GPUs are attributes of the devices")
	}
	if f.RestartOnDeviceUnhealthy != nil {
		t.warn("flags.restartOnDeviceUnhealthy", ignored+"nothing is restarted for a device that is not healthy")
	}
	if s := f.DeviceDiscoveryStrategy; s != nil {
		if !slices.Contains(discoveries, *s) {
			t.refuse("flags.deviceDiscoveryStrategy", "invalid --device-discovery-strategy option: %s; GPUs are found through NVML only: remove it", *s)
			return
		}
		t.warn("flags.deviceDiscoveryStrategy", ignored+"GPUs are found through NVML")
	}
}

// pluginFlags warns of all flags of the plugin proper: CDI and DRA replace the choices that they made.
func (t *translation) pluginFlags(f *pluginOwnFlags) {
	const at = "flags.plugin."
	if f.PassDeviceSpecs != nil {
		t.warn(at+"passDeviceSpecs", "is ignored; CDI always passes device nodes")
	}
	t.deviceListStrategy(at+"deviceListStrategy", f.DeviceListStrategy)
	if s := f.DeviceIDStrategy; s != nil {
		if !slices.Contains(idStrategies, *s) {
			t.refuse(at+"deviceIDStrategy", "invalid --device-id-strategy option: %s; allowed: %s", *s, strings.Join(idStrategies, ", "))
		} else {
			t.warn(at+"deviceIDStrategy", "is ignored; the name of a device is made of its UUID, and the index is an attribute")
		}
	}
	for _, flag := range []struct {
		key, instead string
		set          bool
	}{
		{"cdiAnnotationPrefix", "the kubelet passes CDI devices to the runtime, not annotations", f.CDIAnnotationPrefix != nil},
		{"nvidiaCTKPath", "CDI hooks are run with nvidia-cdi-hook: start the plugin with --cdi-hook to name another one", f.NVIDIACTKPath != nil},
		{"containerDriverRoot", "the chart sets the path of the host's mount", f.ContainerDriverRoot != nil},
		{"kubeletSocket", "the chart sets the kubelet's directories", f.KubeletSocket != nil},
		{"cdiFeatureFlags", "CDI specs are written for one claim each", f.CDIFeatureFlags != nil},
	} {
		if flag.set {
			t.warn(at+flag.key, "is ignored; %s", flag.instead)
		}
	}
}

// deviceListStrategy is one name or a list of them.
func (t *translation) deviceListStrategy(at string, value any) {
	if value == nil {
		return
	}
	names, ok := value.([]any)
	if !ok {
		names = []any{value}
	}
	for _, name := range names {
		if text, ok := name.(string); !ok || !slices.Contains(listStrategies, text) {
			t.refuse(at, "invalid --device-list-strategy option: invalid strategy: %s; allowed: %s", fmt.Sprint(name), strings.Join(listStrategies, ", "))
			return
		}
	}
	if len(names) != 1 || names[0] != "cdi-cri" {
		t.warn(at, "is ignored; devices are always passed as CDI devices through the kubelet, as cdi-cri does")
	}
}
