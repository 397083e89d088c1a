package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// Reader reads the records of another process, which has their locks. It changes nothing: a damaged record stays where it is, and what it
// reads may be gone when it returns.
type Reader struct {
	// Dir has the records; see RecordsDir.
	Dir string
}

// UIDs lists the claims that have a record, in order. An error: there is no such directory, or it cannot be listed.
func (r Reader) UIDs() ([]string, error) {
	entries, err := os.ReadDir(r.Dir)
	if err != nil {
		return nil, fmt.Errorf("listing the records: %w", err)
	}
	var uids []string
	for _, entry := range entries {
		if uid, isRecord := RecordOf(entry.Name()); isRecord && !entry.IsDir() {
			uids = append(uids, uid)
		}
	}
	return uids, nil
}

// Load returns the claim's record; gpu.ErrNotFound when there is none, ErrDamaged when it is not whole, a *NewerError when only a newer
// version knows what it says.
func (r Reader) Load(uid string) (*Record, error) {
	if err := checkUID(uid); err != nil {
		return nil, err
	}
	data, err := os.ReadFile(filepath.Join(r.Dir, uid+recordSuffix))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.EISDIR) {
		return nil, fmt.Errorf("record of claim %s: %w", uid, gpu.ErrNotFound)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the record of claim %s: %w", uid, err)
	}
	record, err := decodeFor(uid, data)
	if err != nil {
		return nil, fmt.Errorf("record of claim %s: %w", uid, err)
	}
	return record, nil
}
