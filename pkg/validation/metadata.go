package validation

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// metadataFiles are the files with attributes of devices in a container: folder of the kind, claim, request and driver.
const metadataFiles = "var/run/kubernetes.io/dra-device-attributes/*/*/*/*-metadata.json"

// metadata returns the UUIDs in the device metadata of a container; none if the plugin writes no metadata.
func metadata(root string) (uuids []string, err error) {
	files, err := filepath.Glob(filepath.Join(root, metadataFiles))
	if err != nil {
		return nil, err
	}
	for _, name := range files {
		file, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		// The file contains an object for each version of the API; the first one suffices.
		var written struct {
			Requests []struct {
				Devices []struct {
					Attributes map[string]struct {
						String string `json:"string"`
					} `json:"attributes"`
				} `json:"devices"`
			} `json:"requests"`
		}
		err = json.NewDecoder(file).Decode(&written)
		_ = file.Close()
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", name, err)
		}
		for _, request := range written.Requests {
			for _, device := range request.Devices {
				for key, value := range device.Attributes {
					if (key == "uuid" || strings.HasSuffix(key, "/uuid")) && !slices.Contains(uuids, value.String) {
						uuids = append(uuids, value.String)
					}
				}
			}
		}
	}
	return uuids, nil
}
