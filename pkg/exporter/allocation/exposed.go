package allocation

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

const (
	// exposedFile is the file in a claim's directory, exposedTemp the temporary file that is renamed to it.
	exposedFile, exposedTemp = "gpu.prom", ".gpu.prom.tmp"
	// exposedBytes limits a claim's file, which uses the node's memory.
	exposedBytes = 1 << 20
)

// Exposed writes "<root>/<claim UID>/gpu.prom" for each prepared claim that exposes its metrics in its containers and whose directory
// exists. render returns the content for a claim; nil empties the file, so that no old values stay. An error names each failed claim; the
// others were written.
func (t *Tracker) Exposed(root string, render func(uid string) []byte) error {
	exposed := t.known.Load().exposed
	if len(exposed) == 0 {
		return nil
	}
	dir, err := os.OpenRoot(root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("metrics directory of claims: %w", err)
	}
	defer func() { _ = dir.Close() }()
	var failed []error
	for _, uid := range exposed {
		if err := expose(dir, uid, render); err != nil {
			failed = append(failed, fmt.Errorf("metrics file of claim %s: %w", uid, err))
		}
	}
	return errors.Join(failed...)
}

// expose writes the file of one claim, or nothing if its directory does not exist.
func expose(root *os.Root, uid string, render func(uid string) []byte) error {
	listed, err := root.Lstat(uid)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if !listed.IsDir() {
		return errors.New("not a directory")
	}
	dir, err := root.OpenRoot(uid)
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }()
	if opened, err := dir.Stat("."); err != nil || !os.SameFile(listed, opened) {
		return errors.Join(errors.New("its directory was replaced"), err)
	}
	page := render(uid)
	if len(page) > exposedBytes {
		return fmt.Errorf("size of %d bytes exceeds the limit of %d bytes", len(page), exposedBytes)
	}
	err = replace(dir, page)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // the plugin has removed the directory
	}
	return err
}

// replace replaces the content of the file in one step. It removes the temporary file of an exporter that was killed.
func replace(dir *os.Root, content []byte) error {
	if err := dir.Remove(exposedTemp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	file, err := dir.OpenFile(exposedTemp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = file.Write(content)
	// The process's umask must not hide it from the container.
	err = errors.Join(err, file.Chmod(0o644), file.Close())
	if err == nil {
		err = dir.Rename(exposedTemp, exposedFile)
	}
	if err != nil {
		_ = dir.Remove(exposedTemp)
	}
	return err
}
