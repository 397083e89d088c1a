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

// Reader reads the records of another process, which holds their locks. It changes nothing: a damaged record stays in place, and a record
// may be gone when the call returns.
type Reader struct {
	// Dir contains the records; see RecordsDir.
	Dir string
}

// UIDs lists the claims with a record, in order. It returns an error if the directory does not exist or cannot be listed.
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

// Load returns the claim's record; gpu.ErrNotFound if it does not exist, ErrDamaged if it is incomplete, a *NewerError if only a newer
// version can read it.
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
