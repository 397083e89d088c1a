//go:build linux

package cluster

import (
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/prism-gpu/prism/hack/localcluster/supervise"
)

// running reports whether all parts of the cluster run.
func (c *Cluster) running(s Settings) bool {
	if find(c.controlPlaneSpec()) == 0 || !allRun(c.controlPlane().Control) {
		return false
	}
	for i := range s.Nodes {
		m := c.machine(i, s)
		if find(c.nodeSpec(m)) == 0 || !allRun(m.Control()) {
			return false
		}
	}
	return true
}

func allRun(control string) bool {
	services, err := supervise.Send(control, supervise.List, "")
	for _, service := range services {
		if service.PID == 0 {
			return false
		}
	}
	return err == nil && len(services) > 0
}

// Status prints the components and whether they run. It returns an error if the cluster does not exist.
func (c *Cluster) Status(ctx context.Context, out io.Writer) error {
	s, err := c.Load()
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "cluster %s: Kubernetes %s, %d node(s), https://127.0.0.1:%d\n", c.Name, s.Kubernetes, s.Nodes, s.Port)
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	describeInit(table, "control plane", find(c.controlPlaneSpec()), c.controlPlane().Control, c.apiHealth(ctx, s))
	for i := range s.Nodes {
		m := c.machine(i, s)
		health := "Ready"
		if err := c.nodeHealth(ctx, s, i); err != nil {
			health = err.Error()
		}
		describeInit(table, "node "+m.Name, find(c.nodeSpec(m)), m.Control(), health)
	}
	return table.Flush()
}

func (c *Cluster) apiHealth(ctx context.Context, s Settings) string {
	api, err := c.api(s)
	if err == nil {
		err = api.get(ctx, "/readyz", nil)
	}
	if err != nil {
		return err.Error()
	}
	return "ready"
}

func (c *Cluster) nodeHealth(ctx context.Context, s Settings, i int) error {
	api, err := c.api(s)
	if err != nil {
		return err
	}
	m := c.machine(i, s)
	bootID, err := m.BootID()
	if err != nil {
		return err
	}
	return api.nodeReady(ctx, m.Name, bootID)
}

func describeInit(out io.Writer, what string, pid int, control, health string) {
	if pid == 0 {
		fmt.Fprintf(out, "%s\tdoes not run\n", what)
		return
	}
	services, err := supervise.Send(control, supervise.List, "")
	if err != nil {
		fmt.Fprintf(out, "%s\tpid %d\t%v\n", what, pid, err)
		return
	}
	var words []string
	for _, service := range services {
		words = append(words, describeService(service))
	}
	fmt.Fprintf(out, "%s\tpid %d\t%s\t%s\n", what, pid, health, strings.Join(words, ", "))
}

func describeService(s supervise.Status) string {
	switch {
	case s.PID != 0:
		return fmt.Sprintf("%s up %s", s.Name, time.Since(s.Since).Round(time.Second))
	case s.Note != "":
		return fmt.Sprintf("%s %s", s.Name, s.Note)
	}
	return s.Name + " not started"
}
