// Package manifest lists the versions of the profiler that are installed on a node: each is a directory with a file that describes it.
package manifest

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// File is the name of the manifest in the directory of a version.
const File = "manifest.json"

// Unfinished is the prefix of the name of a directory that is being installed.
const Unfinished = "."

// schema is the schema version of the files.
const schema = 1

// maxBytes limits the size of a file: it contains a hash for each file of a version.
const maxBytes = 4 << 20

// Manifest describes an installed version.
type Manifest struct {
	Schema int `json:"schema"`
	// Version is the version in the chart, Digest the SHA-256 over all files, in hex.
	Version string `json:"version"`
	Digest  string `json:"digest"`
	// Nsys is the path of nsys in the directory.
	Nsys string `json:"nsys"`
	// Importer is the path of the importer's directory in the directory; empty: there is none.
	Importer string `json:"importer,omitempty"`
	// Switches, Launch and Start are the switches of `nsys profile`, `nsys launch` and `nsys start`, as nsight.Switches returns them. Earlier
	// versions of Prism wrote neither Launch nor Start.
	Switches []string `json:"switches"`
	Launch   []string `json:"launch,omitempty"`
	Start    []string `json:"start,omitempty"`
	// Files maps the path of each file to its SHA-256, in hex.
	Files map[string]string `json:"files"`
	// Proven is the time at which the version recorded and imported a test process on this node; the zero time: not yet.
	Proven time.Time `json:"proven,omitzero"`
	// Manual is why the version cannot record processes that wait for a command; empty: with Launch, it was proven that it can.
	Manual string `json:"manual,omitempty"`
}

// Installed is a version in its directory.
type Installed struct {
	Manifest
	Dir string
}

// New returns a manifest without contents.
func New(version string) Manifest {
	return Manifest{Schema: schema, Version: version, Files: map[string]string{}}
}

// List returns the versions below a directory. It ignores versions with an unreadable manifest: the installation was interrupted, or a
// later version wrote it.
func List(dir string) (all []Installed, err error) {
	dirs, err := versions(dir)
	for _, path := range dirs {
		if m, err := Read(path); err == nil {
			all = append(all, Installed{Manifest: m, Dir: path})
		}
	}
	return all, err
}

// Read reads the manifest in a directory.
func Read(dir string) (m Manifest, err error) {
	path := filepath.Join(dir, File)
	file, err := os.Open(path)
	if err != nil {
		return m, err
	}
	defer file.Close()
	raw, err := io.ReadAll(io.LimitReader(file, maxBytes+1))
	if err != nil {
		return m, err
	}
	if len(raw) > maxBytes {
		return m, fmt.Errorf("%s is larger than %d bytes", path, maxBytes)
	}
	if err := json.Unmarshal(raw, &m); err != nil {
		return m, fmt.Errorf("%s: %w", path, err)
	}
	if m.Schema != schema || m.Version == "" || !filepath.IsLocal(m.Nsys) || m.Importer != "" && !filepath.IsLocal(m.Importer) {
		return m, fmt.Errorf("%s has schema %d, version %q and nsys %q: another version of Prism wrote it", path, m.Schema, m.Version, m.Nsys)
	}
	return m, nil
}

// Verify returns an error if a file of the version differs from the installed file.
func (i Installed) Verify() error {
	for _, name := range slices.Sorted(maps.Keys(i.Files)) {
		path := filepath.Join(i.Dir, name)
		is, err := sumOf(path)
		if err != nil {
			return fmt.Errorf("verifying %s: %w", path, err)
		}
		if is != i.Files[name] {
			return fmt.Errorf("verifying %s: the file changed after the installation", path)
		}
	}
	return nil
}

// sumOf returns the value of Files for a file or a link.
func sumOf(path string) (string, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return "", err
	}
	if info.Mode()&fs.ModeSymlink != 0 {
		to, err := os.Readlink(path)
		return "-> " + to, err
	}
	if !info.Mode().IsRegular() {
		return "", errors.New("not a regular file")
	}
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	hash := sha256.New()
	_, err = io.Copy(hash, file)
	return hex.EncodeToString(hash.Sum(nil)), errors.Join(err, file.Close())
}

// Write writes the manifest into a directory, by rename.
func (m Manifest) Write(dir string) error {
	raw, err := json.MarshalIndent(m, "", " ")
	if err != nil {
		return err
	}
	path := filepath.Join(dir, File)
	tmp := path + ".new"
	if err := os.WriteFile(tmp, raw, 0o644); err != nil {
		return err
	}
	if err := synced(tmp); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}

// synced writes a file to stable storage: after a power cut its new name refers to the whole content.
func synced(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
