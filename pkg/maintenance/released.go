package maintenance

import (
	"encoding/json"
	"fmt"
	"time"
)

// ReleasedFile is the name of the file in the plugin's directory in which the plugin says until when it has released the GPUs for a reset.
// Other programs of the node close their sessions of the driver then. The file is replaced as a whole.
const ReleasedFile = "released.json"

// releasedVersion is the version of the file.
const releasedVersion = 1

// Released is the content of ReleasedFile.
type Released struct {
	// Version is the version of the content; NewReleased sets it.
	Version int `json:"version"`
	// Until is the time until which no session may be opened.
	Until time.Time `json:"until"`
}

// NewReleased returns the content for a release until that time, without fractions of a second.
func NewReleased(until time.Time) Released {
	return Released{Version: releasedVersion, Until: until.UTC().Truncate(time.Second)}
}

// Encode returns the file.
func (r Released) Encode() []byte {
	data, _ := json.Marshal(r) // fails for years beyond 9999 only
	return append(data, '\n')
}

// DecodeReleased reads the file. Content that is damaged, or of another version, is an error.
func DecodeReleased(data []byte) (Released, error) {
	var r Released
	if err := json.Unmarshal(data, &r); err != nil {
		return Released{}, fmt.Errorf("reading %s: %w", ReleasedFile, err)
	}
	if r.Version != releasedVersion {
		return Released{}, fmt.Errorf("reading %s: unsupported version %d; supported values: %d", ReleasedFile, r.Version, releasedVersion)
	}
	return r, nil
}

// At reports whether the GPUs are released at that time. A release that ends further ahead than ReleaseMax is not valid: the clock was set.
func (r Released) At(now time.Time) bool {
	return now.Before(r.Until) && r.Until.Sub(now) <= ReleaseMax
}
