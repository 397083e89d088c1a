//go:build linux

package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// retryLimit is the number of tests that may run again in one run, over all steps.
const retryLimit = 2

// The files in a run's folder that commands share: a line for each retry, and one for each test that passed on retry.
const (
	retriesFile = "retries"
	flakyFile   = "flaky"
)

// reserve takes one retry of the run for each test. If too few retries are left it takes none, because the run fails in any case.
func reserve(dir string, tests []string) (bool, error) {
	file, err := os.OpenFile(filepath.Join(dir, retriesFile), os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return false, fmt.Errorf("counting retries: %w", err)
	}
	defer func() { _ = file.Close() }()
	// Groups of e2e run concurrently.
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX); err != nil {
		return false, fmt.Errorf("counting retries: locking: %w", err)
	}
	text, err := io.ReadAll(file)
	if err != nil {
		return false, fmt.Errorf("counting retries: %w", err)
	}
	if strings.Count(string(text), "\n")+len(tests) > retryLimit {
		return false, nil
	}
	for _, test := range tests {
		if _, err := fmt.Fprintln(file, test); err != nil {
			return false, fmt.Errorf("counting retries: %w", err)
		}
	}
	return true, nil
}

// appendLine adds a line in one write, so that lines of several processes do not mix.
func appendLine(path, line string) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	if _, err := file.WriteString(line + "\n"); err != nil {
		_ = file.Close()
		return err
	}
	return file.Close()
}

// readLines reads the lines of a file. A missing file has no lines.
func readLines(path string) ([]string, error) {
	text, err := os.ReadFile(path)
	if os.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return strings.FieldsFunc(string(text), func(r rune) bool { return r == '\n' }), nil
}
