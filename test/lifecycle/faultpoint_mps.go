package lifecycle

import (
	"context"
	"path/filepath"
	"slices"
	"strings"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/hostfs"
	"github.com/prism-gpu/prism/pkg/plugin/cdi"
	"github.com/prism-gpu/prism/pkg/plugin/mps"
	"github.com/prism-gpu/prism/test/simgpu/port"
)

// instrumentedMPS is the MPS service with fault points: a process may be killed before each call, and after it before the answer.
type instrumentedMPS struct {
	service    mps.Daemons
	faultPoint FaultPoint
}

// mpsAdapter returns the MPS service for a process; nil on a machine without one.
func (m *Machine) mpsAdapter(faultPoint FaultPoint) func(string) mps.Daemons {
	if m.parts.mps == nil {
		return nil
	}
	return func(string) mps.Daemons { return instrumentedMPS{m.parts.mps, faultPoint} }
}

func (i instrumentedMPS) Probe(ctx context.Context) (problem string, err error) {
	err = i.faultPoint("mps.Probe", func() error { problem, err = i.service.Probe(ctx); return err })
	return problem, err
}

func (i instrumentedMPS) Daemons(ctx context.Context, after int64) (daemons []gpu.MPSDaemon, revision int64, err error) {
	err = i.faultPoint("mps.Daemons", func() error { daemons, revision, err = i.service.Daemons(ctx, after); return err })
	return daemons, revision, err
}

func (i instrumentedMPS) Start(ctx context.Context, id gpu.MPSDaemonID, spec gpu.MPSDaemonSpec) (d gpu.MPSDaemon, err error) {
	err = i.faultPoint("mps.Start", func() error { d, err = i.service.Start(ctx, id, spec); return err })
	return d, err
}

func (i instrumentedMPS) StartNew(ctx context.Context, id gpu.MPSDaemonID, spec gpu.MPSDaemonSpec) (d gpu.MPSDaemon, err error) {
	err = i.faultPoint("mps.StartNew", func() error { d, err = i.service.StartNew(ctx, id, spec); return err })
	return d, err
}

func (i instrumentedMPS) Ensure(ctx context.Context, id gpu.MPSDaemonID, spec gpu.MPSDaemonSpec) (d gpu.MPSDaemon, err error) {
	err = i.faultPoint("mps.Ensure", func() error { d, err = i.service.Ensure(ctx, id, spec); return err })
	return d, err
}

func (i instrumentedMPS) RestoreLimits(ctx context.Context, id gpu.MPSDaemonID, spec gpu.MPSDaemonSpec) error {
	return i.faultPoint("mps.RestoreLimits", func() error { return i.service.RestoreLimits(ctx, id, spec) })
}

func (i instrumentedMPS) Limits(ctx context.Context, id gpu.MPSDaemonID) (l gpu.MPSLimitsInForce, err error) {
	err = i.faultPoint("mps.Limits", func() error { l, err = i.service.Limits(ctx, id); return err })
	return l, err
}

func (i instrumentedMPS) Stop(ctx context.Context, id gpu.MPSDaemonID) error {
	return i.faultPoint("mps.Stop", func() error { return i.service.Stop(ctx, id) })
}

func (s instrumentedPartitioning) ComputeMode(ctx context.Context, device string) (mode gpu.ComputeMode, err error) {
	err = s.faultPoint("nvml.ComputeMode", func() error { mode, err = s.Session.ComputeMode(ctx, device); return err })
	return mode, err
}

func (s instrumentedPartitioning) SetComputeMode(ctx context.Context, device string, mode gpu.ComputeMode) error {
	return s.faultPoint("nvml.SetComputeMode", func() error { return s.Session.SetComputeMode(ctx, device, mode) })
}

// pluginHost is the host for processes of the plugin.
type pluginHost struct {
	host
	port.MinimalHost
	mps *mpsService
	// files lists prefixes of existing paths.
	files []string
}

// Locate finds the directories of control daemons, and the installed prism-hook.
func (h pluginHost) Locate(root, path string) (string, bool) {
	if h.mps != nil && (strings.Contains(path, cdi.OwnHookName) || h.mps.hasDir(filepath.Base(filepath.Dir(path)))) {
		return path, true
	}
	if slices.ContainsFunc(h.files, func(there string) bool { return strings.HasPrefix(path, there) }) {
		return path, true
	}
	return h.MinimalHost.Locate(root, path)
}

// ownHookImage is prism-hook in the image of the plugin; none on a machine without MPS and profiles.
func (m *Machine) ownHookImage() string {
	if m.parts.mps == nil && !m.profiled {
		return ""
	}
	return m.hookImage()
}

// Process finds the processes of control daemons.
func (h pluginHost) Process(pid int) (hostfs.Process, bool) {
	if h.mps == nil {
		return hostfs.Process{}, false
	}
	started, runs := h.mps.process(pid)
	return hostfs.Process{Start: started}, runs
}
