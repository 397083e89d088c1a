package nodeconfig

import (
	"fmt"

	"sigs.k8s.io/yaml"

	"github.com/prism-gpu/prism/api/v1alpha1"
)

const (
	// kindDevicePlugin is the name that errors give a file of the device plugin, which contains no kind.
	kindDevicePlugin    = "device plugin configuration"
	devicePluginVersion = "v1"
)

// devicePluginFile is the format of NVIDIA's device plugin and its forks. Unset keys are nil, because the default of many is not zero.
type devicePluginFile struct {
	Version   *string          `json:"version"`
	Flags     *pluginFlags     `json:"flags"`
	Resources *pluginResources `json:"resources"`
	Sharing   *pluginSharing   `json:"sharing"`
	IMEX      *pluginIMEX      `json:"imex"`
}

type pluginResources struct {
	GPUs []pluginResource `json:"gpus"`
	MIG  []pluginResource `json:"mig"`
}

type pluginResource struct {
	Pattern *string `json:"pattern"`
	Name    *string `json:"name"`
}

type pluginIMEX struct {
	ChannelIDs             []int32 `json:"channelIDs"`
	Required               *bool   `json:"required"`
	DefaultChannelStrategy any     `json:"defaultChannelStrategy"`
}

// forDevicePlugin reports whether a text is a file of the device plugin: it contains a version instead of a NodeConfig's apiVersion and
// kind, or, as the version may be left out, only keys of such files. A text that cannot be read is not.
func forDevicePlugin(raw []byte) bool {
	if len(raw) > v1alpha1.MaxNodeConfigBytes {
		return false
	}
	var keys map[string]any
	if err := yaml.Unmarshal(raw, &keys); err != nil {
		return false
	}
	found := false
	for key := range keys {
		switch key {
		case "apiVersion", "kind", "gpus":
			return false
		case "version", "flags", "resources", "sharing", "imex":
			found = true
		}
	}
	return found
}

// decodeDevicePlugin reads a file of the device plugin and translates it.
func decodeDevicePlugin(raw []byte) (*v1alpha1.NodeConfig, []Warning, error) {
	file := &devicePluginFile{}
	if err := v1alpha1.DecodeForeign(raw, kindDevicePlugin, file); err != nil {
		return nil, nil, err
	}
	t := &translation{strategy: v1alpha1.MIGStrategyNone, names: map[string]string{}}
	t.version(file.Version)
	flags := t.flags(file.Flags)
	t.resources(file.Resources)
	t.sharingSection(file.Sharing)
	t.imex(file.IMEX)
	t.clashes()
	if len(t.problems) > 0 {
		return nil, nil, &v1alpha1.Problems{Kind: kindDevicePlugin, List: t.problems}
	}
	return &v1alpha1.NodeConfig{Flags: flags, GPUs: t.entries()}, t.warnings, nil
}

// translation is a file of the device plugin on its way to a NodeConfig.
type translation struct {
	problems []*v1alpha1.Problem
	warnings []Warning
	strategy v1alpha1.MIGStrategy
	sharing  []sharing
	// names are the resource names by the share name that they come to.
	names map[string]string
}

// refuse records an error at a key. Texts begin like the device plugin's texts, so that a search for them also finds the pages about those.
func (t *translation) refuse(at, format string, args ...any) {
	t.problems = append(t.problems, &v1alpha1.Problem{Path: at, Text: fmt.Sprintf(format, args...)})
}

func (t *translation) warn(at, format string, args ...any) {
	t.warnings = append(t.warnings, Warning{Path: at, Text: fmt.Sprintf(format, args...)})
}

// version accepts a missing version as the only existing one, like the device plugin.
func (t *translation) version(version *string) {
	switch {
	case version == nil || *version == "":
		t.warn("version", "is missing; the file is read as one of the device plugin, version %s: write that, or apiVersion and kind of a %s",
			devicePluginVersion, v1alpha1.KindNodeConfig)
	case *version != devicePluginVersion:
		t.refuse("version", "unknown version: %s; allowed: %s; or apiVersion %s and kind %s without version", *version, devicePluginVersion,
			v1alpha1.APIVersion, v1alpha1.KindNodeConfig)
	}
}

// resources checks that the patterns are complete; they are without effect, as in the device plugin.
func (t *translation) resources(r *pluginResources) {
	if r == nil {
		return
	}
	for _, list := range []struct {
		at    string
		items []pluginResource
	}{{"resources.gpus", r.GPUs}, {"resources.mig", r.MIG}} {
		for i, item := range list.items {
			at := fmt.Sprintf("%s[%d]", list.at, i)
			if item.Pattern == nil {
				t.refuse(at, "resources must have a 'pattern' field set")
			}
			if item.Name == nil {
				t.refuse(at, "resources must have a 'name' field set")
				continue
			}
			t.resourceName(at+".name", *item.Name)
		}
		if len(list.items) > 0 {
			t.warn(list.at, "customizing resources is ignored, as by the device plugin; write a DeviceClass whose selector is on the "+
				"attribute productName or profile, with the name as its extendedResourceName")
		}
	}
}

// imex refuses settings that containers would miss.
func (t *translation) imex(imex *pluginIMEX) {
	if imex == nil {
		return
	}
	const instead = "IMEX channels are allocated by claims of NVIDIA's ComputeDomain driver, which runs beside this one"
	switch {
	case imex.Required != nil && *imex.Required:
		t.refuse("imex.required", "containers get no IMEX channels here; remove it: %s", instead)
	case len(imex.ChannelIDs) > 0 || imex.DefaultChannelStrategy != nil:
		t.warn("imex", "is ignored; %s", instead)
	}
}
