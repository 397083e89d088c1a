package explain

import (
	"fmt"

	"github.com/prism-gpu/prism/pkg/cli/clusterview"
)

// poolKeys keeps the keys of pools. Most claims read the same identities of GPUs: none.
type poolKeys map[string]map[*clusterview.Pool]string

// of returns the key of a pool.
func (k poolKeys) of(p *clusterview.Pool, reads clusterview.Reads) string {
	set := fmt.Sprint(reads) // the keys of maps are sorted
	if k[set] == nil {
		k[set] = map[*clusterview.Pool]string{}
	}
	key, found := k[set][p]
	if !found {
		key = p.Key(reads)
		k[set][p] = key
	}
	return key
}
