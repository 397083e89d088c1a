//go:build linux

package cluster

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/prism-gpu/prism/hack/localcluster/cgroup"
	"github.com/prism-gpu/prism/hack/localcluster/report"
)

// Down removes the cluster: its processes, namespaces, control groups and files. An incomplete or missing cluster is not an error.
func (c *Cluster) Down(progress *report.Progress) error {
	_, err := os.Stat(c.Dir)
	if errors.Is(err, os.ErrNotExist) && len(c.inits()) == 0 && len(c.namespaces()) == 0 {
		progress.Line("cluster %s does not exist", c.Name)
		return nil
	}
	unlock, err := lock(c.Dir, progress)
	if err != nil {
		return err
	}
	defer unlock()
	if err := c.stopEverything(); err != nil {
		return err
	}
	hierarchies, err := cgroup.Hierarchies()
	if err != nil {
		return err
	}
	if err := cgroup.Remove(hierarchies, c.group(), groupLimit); err != nil {
		return err
	}
	cgroup.RemoveEmpty(hierarchies, groupRoot)
	if err := removeFolder(c.Dir); err != nil {
		return err
	}
	if err := leave(c.Root, progress); err != nil {
		return err
	}
	progress.Line("cluster %s is down", c.Name)
	return nil
}

// stopEverything kills the first processes and deletes the network namespaces.
func (c *Cluster) stopEverything() error {
	if err := kill(c.inits()...); err != nil {
		return err
	}
	for _, name := range c.namespaces() {
		if err := deleteNamespace(name); err != nil {
			return err
		}
	}
	return nil
}

// removeFolder retries for a while, because the kernel removes mounts after the last process of a namespace has gone.
func removeFolder(dir string) error {
	deadline := time.Now().Add(groupLimit)
	for {
		err := os.RemoveAll(dir)
		if err == nil || time.Now().After(deadline) {
			if err != nil {
				return fmt.Errorf("removing the cluster's files: %w", err)
			}
			return nil
		}
		time.Sleep(50 * time.Millisecond)
	}
}
