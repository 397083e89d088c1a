package plugin

import (
	"errors"

	"k8s.io/apimachinery/pkg/types"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/config"
	"github.com/prism-gpu/prism/pkg/plugin/driver"
	"github.com/prism-gpu/prism/pkg/plugin/prepare"
)

// metadataSpecs are the CDI specs that the kubelet-plugin library writes for files of device metadata. It removes them itself when the kubelet
// unprepares a claim; this extension removes the specs of claims that are gone without that.
type metadataSpecs struct {
	cfg    *config.Plugin
	former *formerNames
}

var _ prepare.Filer = metadataSpecs{}

// Kind is "deviceMetadata". Records contain no data of it.
func (metadataSpecs) Kind() string { return "deviceMetadata" }

// Concerns is false: the specs of claims with a record belong to the library.
func (metadataSpecs) Concerns(*checkpoint.Record) bool { return false }

// Makes is false.
func (metadataSpecs) Makes(string) bool { return false }

// Ensure does nothing.
func (metadataSpecs) Ensure(*checkpoint.Record) error { return nil }

// RemoveFiles removes the specs of a claim without a record.
func (m metadataSpecs) RemoveFiles(claimUID string) error {
	var failed []error
	for _, cfg := range append([]*config.Plugin{m.cfg}, m.former.configs()...) {
		failed = append(failed, driver.MetadataOf(cfg).RemoveSpecs(types.UID(claimUID)))
	}
	return errors.Join(failed...)
}

// claim is the UID of the claim that such a spec is of.
func (m metadataSpecs) claim(file string) (claimUID string, is bool) {
	for _, name := range append([]string{m.cfg.DriverName}, m.former.names()...) {
		if spec := readSpecName(name, file); spec.metadata {
			return spec.claimUID(), true
		}
	}
	return "", false
}
