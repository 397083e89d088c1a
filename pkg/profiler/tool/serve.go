package tool

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"k8s.io/klog/v2"

	"github.com/prism-gpu/prism/pkg/profiler/tool/manifest"
)

// Service installs and tests a version.
type Service struct {
	Prover
	// Tools is the host's directory of installed versions, Versions are the versions in the chart.
	Tools    string
	Versions []string
	// Specs are the directories of CDI specs.
	Specs []string
}

const (
	// provenFile is created in Container once the version of this image is tested.
	provenFile = "proven"
	// The pause after a failed try doubles up to the longest pause.
	firstPause, longestPause = 2 * time.Second, 2 * time.Minute
	// sweepEvery is the interval at which earlier builds are removed that no container uses any more.
	sweepEvery = 10 * time.Minute
)

// Run installs and tests the version, with retries until that succeeds, and then removes unused versions, until the context ends.
func (s Service) Run(ctx context.Context) error {
	logger := klog.FromContext(ctx).WithValues("version", s.Version)
	if err := os.Remove(filepath.Join(s.Container, provenFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := s.Clean(); err != nil {
		return err
	}
	var installed manifest.Installed
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		var err error
		if installed, err = s.once(ctx); err == nil {
			break
		}
		logger.Error(err, "Processes cannot be recorded with this version yet", "nextTry", pause.String())
		if !sleep(ctx, pause) {
			return nil
		}
	}
	logger.Info("Installed and tested Nsight Systems", "directory", installed.Dir, "switches", len(installed.Switches))
	if installed.Manual != "" {
		logger.Info("Processes cannot be recorded by hand with this version: claims with start Manual are refused", "reason", installed.Manual)
	}
	if left := foreign(filepath.Join(installed.Dir, installed.Nsys)); len(left) > 0 {
		logger.Info("Processes run unprofiled in containers without these libraries; copy them into the directory of nsys in the image",
			"libraries", left)
	}
	for {
		if err := Sweep(s.Tools, installed, s.Versions, s.Specs); err != nil {
			logger.Error(err, "Removing earlier versions failed and will be retried")
		}
		if !sleep(ctx, sweepEvery) {
			return nil
		}
	}
}

// once installs and tests the version.
func (s Service) once(ctx context.Context) (manifest.Installed, error) {
	installed, err := s.Install(ctx, s.Tools)
	if err != nil {
		return installed, err
	}
	err = s.Prove(ctx, installed)
	if err != nil && ctx.Err() == nil {
		installed, err = s.repair(ctx, installed, err)
	}
	if err != nil {
		return installed, err
	}
	if installed.Manual == "" {
		installed.Manual = s.proveManual(ctx, installed)
	}
	if err := ctx.Err(); err != nil {
		return installed, err
	}
	installed.Proven = time.Now().UTC()
	if err := installed.Write(installed.Dir); err != nil {
		return installed, err
	}
	return installed, os.WriteFile(filepath.Join(s.Container, provenFile), nil, 0o600)
}

// repair handles a failed test of a version. If the installed files differ from the copied ones, it copies and tests them once again.
// Otherwise no claim is planned with the version until a test succeeds, regardless of earlier tests.
func (s Service) repair(ctx context.Context, installed manifest.Installed, failed error) (manifest.Installed, error) {
	damaged := installed.Verify()
	if damaged == nil {
		return installed, errors.Join(failed, unproven(installed))
	}
	klog.FromContext(ctx).Error(damaged, "An installed version is damaged and will be copied again", "directory", installed.Dir)
	if err := os.RemoveAll(installed.Dir); err != nil {
		return installed, errors.Join(failed, err)
	}
	installed, err := s.Install(ctx, s.Tools)
	if err != nil {
		return installed, errors.Join(failed, err)
	}
	return installed, s.Prove(ctx, installed)
}

// unproven revokes an earlier test.
func unproven(installed manifest.Installed) error {
	if installed.Proven.IsZero() {
		return nil
	}
	installed.Proven = time.Time{}
	return installed.Write(installed.Dir)
}

// Proven returns why the version of this image is not tested yet.
func (s Service) Proven() error {
	_, err := os.Stat(filepath.Join(s.Container, provenFile))
	return err
}

// AwaitProof waits until a build of the version is tested on the node; false if the context ends first.
func (s Service) AwaitProof(ctx context.Context) bool {
	for {
		installed, err := manifest.List(s.Tools)
		if err != nil {
			klog.FromContext(ctx).Error(err, "Waiting for an installed version")
		}
		for _, one := range installed {
			if one.Version == s.Version && !one.Proven.IsZero() {
				return true
			}
		}
		if !sleep(ctx, scanEvery) {
			return false
		}
	}
}

// sleep returns false if the context ends first.
func sleep(ctx context.Context, pause time.Duration) bool {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
