package driver

import (
	"maps"

	"github.com/prism-gpu/prism/pkg/checkpoint"
)

// maxProfileData bounds the profile in the data of a device: the API server stores 10 KiB, with what else there is.
const maxProfileData = 8 << 10

// Keys in the data of a device beside those of its identity, of which "profile" is that of a MIG device.
const profilerKey, libraryKey, metricsKey = "profiler", "profilerLibrary", "metrics"

// withProfile adds how processes are profiled to the data of a profiled result: the effective ProfilerConfig, left out where it is too long,
// and the digest of the library that is loaded into them.
func (s ClaimStatus) withProfile(extra map[string]any, r *checkpoint.Record, result *checkpoint.Result) map[string]any {
	if !result.Profiled || len(r.Profile) > maxProfileData {
		return extra
	}
	extra = maps.Clone(extra)
	if extra == nil {
		extra = map[string]any{}
	}
	extra[profilerKey] = r.Profile
	if s.Library != nil {
		if digest := s.Library(r.Claim.UID); digest != "" {
			extra[libraryKey] = digest
		}
	}
	return extra
}
