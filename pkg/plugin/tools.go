package plugin

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/prism-gpu/prism/pkg/profiler/nsight"
)

// maxManifest bounds a manifest: it has a hash for each file of a tool.
const maxManifest = 4 << 20

// installedTools lists the versions of Nsight Systems that are installed on the node and were proven there. A version whose manifest cannot
// be read is none.
func installedTools(dir string) (tools []nsight.Tool, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("reading the installed versions of Nsight Systems: %w", err)
	}
	for _, entry := range entries {
		if strings.HasPrefix(entry.Name(), ".") {
			continue // an installation in progress
		}
		var manifest struct {
			Schema   int      `json:"schema"`
			Version  string   `json:"version"`
			Switches []string `json:"switches"`
			Proven   string   `json:"proven"`
		}
		raw, err := readAtMost(filepath.Join(dir, entry.Name(), "manifest.json"), maxManifest)
		if err != nil || json.Unmarshal(raw, &manifest) != nil || manifest.Schema != 1 || manifest.Version == "" || manifest.Proven == "" {
			continue
		}
		tools = append(tools, nsight.Tool{Version: manifest.Version, Switches: manifest.Switches})
	}
	return tools, nil
}

// readAtMost reads a file that is not larger.
func readAtMost(path string, limit int64) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	raw, err := io.ReadAll(io.LimitReader(file, limit+1))
	if err == nil && int64(len(raw)) > limit {
		return nil, fmt.Errorf("%s is larger than %d bytes", path, limit)
	}
	return raw, err
}
