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
	"time"

	"github.com/prism-gpu/prism/pkg/profiler/nsight"
	"github.com/prism-gpu/prism/pkg/profiler/plan"
)

// maxManifest bounds a manifest: it has a hash for each file of a tool.
const maxManifest = 4 << 20

// installedTools lists the versions of Nsight Systems that are installed on the node and were proven there. A version whose manifest cannot
// be read is none.
func installedTools(dir string) (tools []plan.Tool, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("reading the installed versions of Nsight Systems: %w", err)
	}
	for _, entry := range entries {
		if strings.HasPrefix(entry.Name(), ".") {
			continue // an installation in progress
		}
		var manifest struct {
			Schema   int       `json:"schema"`
			Version  string    `json:"version"`
			Switches []string  `json:"switches"`
			Nsys     string    `json:"nsys"`
			Proven   time.Time `json:"proven"`
		}
		raw, err := readAtMost(filepath.Join(dir, entry.Name(), "manifest.json"), maxManifest)
		if err != nil || json.Unmarshal(raw, &manifest) != nil || manifest.Schema != 1 || manifest.Version == "" || manifest.Proven.IsZero() || !filepath.IsLocal(manifest.Nsys) {
			continue
		}
		tools = append(tools, plan.Tool{
			Tool: nsight.Tool{Version: manifest.Version, Switches: manifest.Switches}, Dir: filepath.Join(dir, entry.Name()), Nsys: manifest.Nsys,
			Proven: manifest.Proven,
		})
	}
	return tools, nil
}

// chooseTool returns the version that is wanted, or the highest; of several builds of it the one that was proven last.
func chooseTool(installed []plan.Tool, wanted string) (plan.Tool, error) {
	versions := make([]nsight.Tool, len(installed))
	for i, t := range installed {
		versions[i] = t.Tool
	}
	chosen, err := nsight.Choose(versions, wanted)
	if err != nil {
		return plan.Tool{}, err
	}
	var found plan.Tool
	for _, t := range installed {
		if t.Version == chosen.Version && (found.Dir == "" || t.Proven.After(found.Proven)) {
			found = t
		}
	}
	return found, nil
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
