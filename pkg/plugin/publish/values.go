package publish

import (
	"strconv"
	"strings"
	"unicode/utf8"

	resourceapi "k8s.io/api/resource/v1"
)

// text is a string attribute the API server accepts: valid UTF-8, at most 64 bytes and never empty.
func text(s string) resourceapi.DeviceAttribute {
	s = truncate(strings.ToValidUTF8(s, "?"), resourceapi.DeviceAttributeMaxValueLength)
	if s == "" {
		s = unknown
	}
	return resourceapi.DeviceAttribute{StringValue: &s}
}

// truncate returns the longest prefix of s that has at most n bytes and ends with a whole character.
func truncate(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// number is an integer attribute.
func number(n int) resourceapi.DeviceAttribute {
	v := int64(n)
	return resourceapi.DeviceAttribute{IntValue: &v}
}

// version is a semantic version attribute, "0.0.0" if s is none.
func version(s string) resourceapi.DeviceAttribute {
	v := semver(s)
	return resourceapi.DeviceAttribute{VersionValue: &v}
}

// unknownVersion sorts before every real one.
const unknownVersion = "0.0.0"

// semver writes a vendor version ("580.95.05", "9.0", "470") as a semantic one ("580.95.5", "9.0.0", "470.0.0"): three numbers without
// leading zeros. Text after the numbers, and numbers after the third, are left out: a suffix would make it a pre-release, which sorts
// before the version itself. Anything else gives "0.0.0".
func semver(s string) string {
	s = strings.TrimSpace(s)
	if end := strings.IndexAny(s, "-+ "); end >= 0 {
		s = s[:end]
	}
	parts := strings.Split(s, ".")
	var numbers [3]string
	for i := range numbers {
		numbers[i] = "0"
		if i >= len(parts) {
			continue
		}
		n, err := strconv.ParseUint(parts[i], 10, 63)
		if err != nil {
			return unknownVersion
		}
		numbers[i] = strconv.FormatUint(n, 10)
	}
	return strings.Join(numbers[:], ".")
}
