package report

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestCompare_AnyIDs_OrderOfKeys: the order matches the tokens of lists, even if one id is a prefix of another.
func TestCompare_AnyIDs_OrderOfKeys(t *testing.T) {
	t.Parallel()
	reports := []Report{{}}
	for _, id := range []string{"a", "ab", "b", "a-"} {
		for _, uid := range []string{"a", "b", "-", "bc"} {
			reports = append(reports, Report{ID: id, ClaimUID: uid})
		}
	}
	for _, a := range reports {
		for _, b := range reports {
			assert.Equal(t, strings.Compare(a.Key(), b.Key()), a.Compare(b), "%q and %q", a.Key(), b.Key())
		}
	}
}
