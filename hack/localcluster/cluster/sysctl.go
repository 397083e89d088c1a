//go:build linux

package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/prism-gpu/prism/hack/localcluster/report"
)

// sysctls are the settings that the kubelet changes for the whole machine.
var sysctls = []string{
	"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops", "kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes",
}

const (
	sysctlFile = "sysctls.json"
	sysctlRoot = "/proc/sys"
)

// saveSysctls saves the machine's values unless an earlier cluster did. root is the folder of all clusters.
func saveSysctls(root string, progress *report.Progress) error {
	unlock, err := lock(root, progress)
	if err != nil {
		return err
	}
	defer unlock()
	path := filepath.Join(root, sysctlFile)
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	values := map[string]string{}
	for _, name := range sysctls {
		text, err := os.ReadFile(filepath.Join(sysctlRoot, name))
		if err != nil {
			continue // nothing to restore in a kernel without it
		}
		values[name] = string(text)
	}
	if err := writeJSON(path, values); err != nil {
		return fmt.Errorf("saving the machine's sysctls: %w", err)
	}
	return nil
}

// leave restores the machine after the last cluster was removed: the saved values, the folder of all clusters, and the folder of network
// namespaces if it is empty.
func leave(root string, progress *report.Progress) error {
	unlock, err := lock(root, progress)
	if err != nil {
		return err
	}
	defer unlock()
	others, err := filepath.Glob(filepath.Join(root, "*", "cluster.json"))
	if err != nil || len(others) > 0 {
		return err
	}
	path := filepath.Join(root, sysctlFile)
	text, err := os.ReadFile(path)
	if err == nil {
		err = writeSysctls(text)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("restoring the machine's sysctls: %w", err)
	}
	_ = os.Remove(path)
	_ = os.Remove(root)
	removeNamespaceFolder()
	return nil
}

func writeSysctls(text []byte) error {
	var values map[string]string
	if err := json.Unmarshal(text, &values); err != nil {
		return err
	}
	var failed error
	for name, value := range values {
		failed = errors.Join(failed, os.WriteFile(filepath.Join(sysctlRoot, name), []byte(value), 0o644))
	}
	return failed
}
