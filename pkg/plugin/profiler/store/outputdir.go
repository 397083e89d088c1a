package store

import (
	"path"
	"regexp"
	"slices"
	"strings"
)

// placeholder matches placeholders in a folder's template.
var placeholder = regexp.MustCompile(`%?\{[^{}]*\}`)

// placeholderValue matches the profiler's values of placeholders: they contain no slash.
const placeholderValue = `[A-Za-z0-9._-]*`

// stays reports whether a path in the container belongs to a file in the claim's folder for reports.
func (c *Claim) stays(file string) bool {
	if !path.IsAbs(file) || slices.Contains(strings.Split(file, "/"), "..") {
		return false
	}
	if c.Dir == "" {
		return true
	}
	parts := placeholder.Split(c.Dir, -1)
	for i := range parts {
		parts[i] = regexp.QuoteMeta(parts[i])
	}
	pattern, err := regexp.Compile("^" + strings.Join(parts, placeholderValue) + "/[^/]+$")
	return err == nil && pattern.MatchString(file)
}
