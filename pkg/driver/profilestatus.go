package driver

import (
	"maps"

	"github.com/prism-gpu/prism/pkg/checkpoint"
)

// maxProfileData bounds the profile in the data of a device: the API server stores 10 KiB, with what else there is.
const maxProfileData = 8 << 10

// withProfile adds how processes are profiled to the data of a profiled result: the effective ProfilerConfig, left out where it is too long.
func withProfile(extra map[string]any, r *checkpoint.Record, result *checkpoint.Result) map[string]any {
	if !result.Profiled || len(r.Profile) > maxProfileData {
		return extra
	}
	extra = maps.Clone(extra)
	if extra == nil {
		extra = map[string]any{}
	}
	extra["profile"] = r.Profile
	return extra
}
