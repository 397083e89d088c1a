package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/mpsd/client"
)

// Names of the MPS service in the chart.
const (
	mpsName     = "prism-mps"
	mpsSelector = "app.kubernetes.io/component=mps"
)

// Compute modes, as the simulated hardware numbers them.
const (
	modeDefault          = 0
	modeProhibited       = 2
	modeExclusiveProcess = 3
)

// mpsService waits until exactly one pod of the MPS service exists and is ready, and the service answers.
func (c *cluster) mpsService(t *testing.T) *corev1.Pod {
	t.Helper()
	var pod *corev1.Pod
	eventually(t, startLimit, func() error {
		var pods corev1.PodList
		if err := c.get(&pods, "pods", "--namespace", system, "--selector", mpsSelector); err != nil {
			return err
		}
		if len(pods.Items) != 1 {
			return fmt.Errorf("found %d pods of the MPS service, want 1", len(pods.Items))
		}
		pod = &pods.Items[0]
		if statuses := pod.Status.ContainerStatuses; pod.DeletionTimestamp != nil || len(statuses) != 1 || !statuses[0].Ready {
			return fmt.Errorf("pod %s is not ready: %+v", pod.Name, statuses)
		}
		_, err := c.controlDaemons(driverName)
		return err
	})
	return pod
}

// renewMPSService deletes the pod of the MPS service, which no update of the chart replaces, and waits for the next one.
func (c *cluster) renewMPSService(t *testing.T) {
	t.Helper()
	c.must(t, c.kubectl("delete", "pods", "--namespace", system, "--selector", mpsSelector, "--timeout="+startLimit.String())...)
}

// mpsDirectory returns the node's directory of a driver's MPS service, as the tests see it.
func (c *cluster) mpsDirectory(driver string) string {
	return filepath.Join(c.variable("PRISM_NODE_0_ROOT"), "run", driver)
}

// controlDaemons asks the MPS service for its control daemons, by id.
func (c *cluster) controlDaemons(driver string) (map[gpu.MPSDaemonID]gpu.MPSDaemon, error) {
	ctx, cancel := context.WithTimeout(context.Background(), readLimit)
	defer cancel()
	list, _, err := client.New(filepath.Join(c.mpsDirectory(driver), "mpsd.sock")).Daemons(ctx, 0)
	daemons := map[gpu.MPSDaemonID]gpu.MPSDaemon{}
	for _, d := range list {
		daemons[d.ID] = d
	}
	return daemons, err
}

// controlDaemon waits until the daemon of a GPU runs.
func (ns *namespace) controlDaemon(uuid string) gpu.MPSDaemon {
	ns.t.Helper()
	var daemon gpu.MPSDaemon
	eventually(ns.t, startLimit, func() error {
		daemons, err := ns.controlDaemons(driverName)
		if err != nil {
			return err
		}
		for _, d := range daemons {
			if string(d.Spec.GPU) == uuid && d.State == gpu.MPSRunning {
				daemon = d
				return nil
			}
		}
		return fmt.Errorf("no control daemon of GPU %s runs: %+v", uuid, daemons)
	})
	return daemon
}

// controlLogged returns an error until a control daemon has logged this text.
func (c *cluster) controlLogged(d gpu.MPSDaemon, text string) error {
	logs, err := filepath.Glob(filepath.Join(c.mpsDirectory(driverName), "mps", string(d.ID), "log/*.log"))
	for _, path := range logs {
		log, err2 := os.ReadFile(path)
		if strings.Contains(string(log), text) {
			return nil
		}
		err = errors.Join(err, err2)
	}
	return errors.Join(err, fmt.Errorf("control daemon %s has not logged %q in %v", d.ID, text, logs))
}

// noDaemon returns an error while the GPU has a control daemon.
func (c *cluster) noDaemon(uuid string) error {
	daemons, err := c.controlDaemons(driverName)
	for _, d := range daemons {
		if string(d.Spec.GPU) == uuid {
			err = fmt.Errorf("control daemon %s is still there: %+v", d.ID, d)
		}
	}
	return err
}

// computeMode returns an error unless a GPU is in this mode.
func (c *cluster) computeMode(uuid string, want int) error {
	out, err := c.run("", c.simgpu("state")...)
	if err != nil {
		return err
	}
	var state struct {
		GPUs []boardMode `json:"gpus"`
	}
	if err := json.Unmarshal([]byte(out), &state); err != nil {
		return fmt.Errorf("reading the compute modes of the simulated GPUs: %w", err)
	}
	for _, b := range state.GPUs {
		if b.UUID == uuid && b.ComputeMode != want {
			return fmt.Errorf("GPU %d has compute mode %d, not %d", b.Ordinal, b.ComputeMode, want)
		}
	}
	return nil
}

// released waits until a GPU is free of MPS: no daemon, no process, no directory, and the compute mode as before.
func (ns *namespace) released(uuid string) {
	ns.t.Helper()
	eventually(ns.t, startLimit, func() error {
		left, err := filepath.Glob(filepath.Join(ns.mpsDirectory(driverName), "mps", strings.TrimPrefix(uuid, "GPU-")[:8]+"*"))
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("there is still %s", left)
		}
		return errors.Join(ns.noDaemon(uuid), ns.computeMode(uuid, modeDefault), err)
	})
}

// signal sends a signal to a process of the node.
func (ns *namespace) signal(name string, pid int) {
	ns.t.Helper()
	ns.must(ns.t, ns.onNode("kill", "-"+name, strconv.Itoa(pid))...)
}

// worker finds the process of the MPS service that serves its socket.
func (ns *namespace) worker() int {
	ns.t.Helper()
	var pid int
	eventually(ns.t, startLimit, func() error {
		out, err := ns.run("", ns.onNode("sh", "-c", `for p in /proc/[0-9]*; do
			[ "$(readlink $p/exe)" = /usr/bin/prism-mpsd ] && tr '\0' ' ' <$p/cmdline | grep -q ' serve ' && echo ${p#/proc/}; done; true`)...)
		if err != nil {
			return err
		}
		pid, err = strconv.Atoi(strings.TrimSpace(out))
		return err
	})
	return pid
}

// mpsTainted returns an error unless the MPS devices of the shared GPUs have the taint of a service that does not answer or, without want,
// lack it.
func (c *cluster) mpsTainted(want bool) error {
	published, err := c.resourceSlices()
	if err != nil {
		return err
	}
	found := 0
	for i := range published {
		for _, device := range published[i].Spec.Devices {
			if kind := device.Attributes["type"].StringValue; kind == nil || *kind != "mps" {
				continue
			}
			found++
			tainted := false
			for _, taint := range device.Taints {
				tainted = tainted || taint.Key == driverName+"/mps-unavailable"
			}
			if tainted != want {
				return fmt.Errorf("taint of device %s: %t", device.Name, tainted)
			}
		}
	}
	if found == 0 {
		return errors.New("no MPS device is published")
	}
	return nil
}

// withoutMPSService calls do while the node has no pod of the MPS service.
func (ns *namespace) withoutMPSService(do func()) {
	ns.t.Helper()
	patch := func(nodeSelector string) {
		ns.must(ns.t, ns.kubectl("patch", "daemonset", mpsName, "--namespace", system, "--patch",
			`{"spec": {"template": {"spec": {"nodeSelector": {"e2e.prism.dev/mps": `+nodeSelector+`}}}}}`)...)
	}
	ns.t.Cleanup(func() {
		patch("null")
		ns.mpsService(ns.t)
	})
	patch(`"none"`)
	eventually(ns.t, startLimit, func() error {
		var pods corev1.PodList
		err := ns.get(&pods, "pods", "--namespace", system, "--selector", mpsSelector)
		if err == nil && len(pods.Items) > 0 {
			err = errors.New("the pod of the MPS service is still there")
		}
		return err
	})
	do()
	patch("null")
	ns.mpsService(ns.t)
}

// stays returns an error if the daemon is another process than before.
func (ns *namespace) stays(before gpu.MPSDaemon) {
	ns.t.Helper()
	now := ns.controlDaemon(string(before.Spec.GPU))
	require.Equal(ns.t, before.PID, now.PID)
	require.Equal(ns.t, before.Servers, now.Servers)
}
