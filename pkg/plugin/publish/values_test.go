package publish

import (
	"strings"
	"testing"

	blang "github.com/blang/semver/v4"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestSemver_VendorVersions_ThreeNumbers(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"580.95.05":             "580.95.5",
		"535.183.01":            "535.183.1",
		"9.0":                   "9.0.0",
		"13.0":                  "13.0.0",
		"470":                   "470.0.0",
		" 580.95.05\n":          "580.95.5",
		"550.54.15-grid":        "550.54.15",
		"550.54.15+3":           "550.54.15",
		"580.95.05 (beta)":      "580.95.5",
		"23.22.0.7":             "23.22.0",
		"":                      "0.0.0",
		"N/A":                   "0.0.0",
		"v9.0":                  "0.0.0",
		"9.":                    "0.0.0",
		".9":                    "0.0.0",
		"-1.0":                  "0.0.0",
		"1.-2":                  "0.0.0",
		"1._0":                  "0.0.0",
		"٣.0":                   "0.0.0",
		"\xff\xfe":              "0.0.0",
		"99999999999999999999":  "0.0.0",
		"9223372036854775807.0": "9223372036854775807.0.0",
	} {
		got := semver(in)
		assert.Equal(t, want, got, "of %q", in)
		assert.LessOrEqual(t, len(got), 64)
		_, err := blang.Parse(got)
		require.NoError(t, err, "the API server takes %q", got)
	}
}

func FuzzSemver(f *testing.F) {
	f.Add("580.95.05")
	f.Fuzz(func(t *testing.T, in string) {
		_, err := blang.Parse(semver(in))
		require.NoError(t, err)
	})
}

func TestText_AnyString_ValidAttribute(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"NVIDIA H100 80GB HBM3":        "NVIDIA H100 80GB HBM3",
		"":                             "unknown",
		"a\xffb":                       "a?b",
		strings.Repeat("x", 64):        strings.Repeat("x", 64),
		strings.Repeat("x", 65):        strings.Repeat("x", 64),
		strings.Repeat("x", 63) + "ü":  strings.Repeat("x", 63),
		strings.Repeat("x", 62) + "üy": strings.Repeat("x", 62) + "ü",
		strings.Repeat("\xff", 3):      "?",
	} {
		assert.Equal(t, want, *text(in).StringValue, "of %q", in)
	}
}
