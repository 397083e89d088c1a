package lifecycle

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"

	"github.com/prism-gpu/prism/pkg/disk"
)

// formerRecords rewrites all records in the form before extensions: schema 1, with separate members for profile, MPS and metrics.
func (m *Machine) formerRecords(d instrumentedDisk) error {
	paths, err := filepath.Glob(filepath.Join(m.StateDir, "claims", "*.json"))
	if err != nil {
		return err
	}
	for _, path := range paths {
		file, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		_, body, _ := bytes.Cut(bytes.TrimSpace(file), []byte("\n"))
		if body, err = formerBody(body); err != nil {
			return err
		}
		sum := crc32.Checksum(body, crc32.MakeTable(crc32.Castagnoli))
		former := fmt.Appendf(nil, "{\"schema\":1,\"crc32c\":\"%08x\",\"len\":%d}\n%s\n", sum, len(body), body)
		if err := disk.Replace(d, path, former, 0o600, true); err != nil {
			return err
		}
	}
	return nil
}

// formerBody moves the data of extensions to its former members.
func formerBody(body []byte) ([]byte, error) {
	var record map[string]any
	if err := json.Unmarshal(body, &record); err != nil {
		return nil, err
	}
	if extensions, ok := record["extensions"].(map[string]any); ok {
		record["profile"] = extensions["profile"]
		delete(record, "extensions")
	}
	results, _ := record["results"].([]any)
	for _, each := range results {
		result, _ := each.(map[string]any)
		extensions, ok := result["extensions"].(map[string]any)
		if !ok {
			continue
		}
		delete(result, "extensions")
		for kind, data := range extensions {
			if kind == "profile" {
				result["profiled"] = true
				continue
			}
			result[kind] = data
		}
	}
	return json.Marshal(record)
}
