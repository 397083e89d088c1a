package plugin

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/plugin/cdi"
	"github.com/prism-gpu/prism/pkg/plugin/prepare"
)

// rootsFile is in the plugin's directory and lists the present and former directories of its CDI specs.
const rootsFile = "cdi-roots.json"

// cdiRoots are the CDI directories of the release on this node.
type cdiRoots struct{ *places }

// sweep removes, in former directories, the specs of claims without a record, and of claims with a spec in the present directory. In all
// directories it removes the specs of metadata files of claims without record and spec: the kubelet-plugin library removes them only from
// the directory that is configured when a claim is unprepared, and the claim may have been prepared with another one. If the present
// directory keeps a metadata spec of a claim without a record, the record is damaged, and nothing else removes the spec.
func (r cdiRoots) sweep(ctx context.Context, tx *prepare.Transaction, present *cdi.Dir) error {
	return r.places.sweep(func(root place, dir string) (kept bool, err error) {
		names, err := r.disk.List(dir)
		if err != nil {
			return true, fmt.Errorf("listing the CDI directory %s: %w", root.Path, err)
		}
		if names = slices.DeleteFunc(names, func(name string) bool { return readSpecName(root.Driver, name) == specFile{} }); len(names) == 0 {
			return false, nil
		}
		// The record of a claim is written before its spec: so the records are read after the names of files.
		claims := specClaims{present: present, former: root.Path != r.now.Path}
		if claims.records, err = tx.Records(); err != nil {
			return true, nil //nolint:nilerr // Recover returns it
		}
		if claims.withSpec, err = present.Claims(); err != nil {
			return true, err
		}
		for _, name := range names {
			spec := readSpecName(root.Driver, name)
			if claims.need(spec) {
				kept = kept || root != r.now || spec.metadata && !claims.recorded(spec)
				continue
			}
			gone, err := tx.Collector().UnderLock(ctx, spec.claimUID(), func(_ context.Context, record *checkpoint.Record) (bool, error) {
				if claims.now(record).need(spec) {
					return false, nil
				}
				return true, r.disk.Remove(filepath.Join(dir, name))
			})
			if err != nil {
				return true, fmt.Errorf("removing CDI spec %s from the directory %s: %w", name, root.Path, err)
			}
			kept = kept || !gone && root != r.now
		}
		return kept, nil
	})
}

// specFile is a CDI spec of the driver, by the rest of its file name after the driver's name: the claim's UID comes first.
type specFile struct {
	rest string
	// metadata: it mounts a file with device metadata.
	metadata bool
}

// claimUID is the UID at the beginning of rest: neither a dot nor an underscore is in one.
func (s specFile) claimUID() string { return s.rest[:strings.IndexAny(s.rest+".", "._")] }

// readSpecName reads the name of a file; the zero value is of a file that is not of that driver.
func readSpecName(driver, name string) specFile {
	if rest, is := strings.CutPrefix(name, driver+"_metadata_"); is {
		return specFile{rest, true}
	}
	if rest, is := strings.CutPrefix(name, strings.TrimSuffix(cdi.FileName(cdi.Kind(driver), ""), ".json")); is {
		return specFile{rest, false}
	}
	return specFile{}
}

// specClaims are the claims that specs in a directory may be of.
type specClaims struct {
	records  []*checkpoint.Record
	withSpec []string
	present  *cdi.Dir
	// former: the directory is not the present one.
	former bool
}

// now replaces the records by the present record of one claim, which may have been prepared again; nil without a record.
func (c specClaims) now(record *checkpoint.Record) specClaims {
	c.records = nil
	if record != nil {
		c.records = []*checkpoint.Record{record}
	}
	return c
}

// need reports whether a spec is needed, or is not removed here: garbage collection removes specs from the present directory.
func (c specClaims) need(spec specFile) bool {
	if !spec.metadata && !c.former {
		return true
	}
	return c.recorded(spec) || spec.metadata && slices.ContainsFunc(c.withSpec, func(uid string) bool { return strings.HasPrefix(spec.rest, uid) })
}

// recorded reports whether a claim's record needs the spec.
func (c specClaims) recorded(spec specFile) bool {
	return slices.ContainsFunc(c.records, func(record *checkpoint.Record) bool {
		return strings.HasPrefix(spec.rest, record.Claim.UID) && (spec.metadata || !c.present.Holds(record.Claim.UID, record.CDI.Devices))
	})
}
