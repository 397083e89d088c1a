package maintenance

import "time"

// ReleasedFile is the name of the file in the plugin's directory while sessions of the driver are closed for a release.
const ReleasedFile = "released.json"

// ReleasedVersion is the version of its content.
const ReleasedVersion = 1

// Released is the content of ReleasedFile.
type Released struct {
	Version int `json:"version"`
	// Until is the time until which sessions stay closed.
	Until time.Time `json:"until"`
}
