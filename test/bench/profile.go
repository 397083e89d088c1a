package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/prism-gpu/prism/pkg/pattern"
	"github.com/prism-gpu/prism/pkg/profiler/tool/manifest"
)

// Numbers of samples for profiled claims.
const (
	profileRounds  = 6
	profiledClaims = 24 // a round, and as many that are not profiled
	countedProfile = 16
	compilations   = 20
	folderRounds   = 144
)

// The budgets of a profiled claim: as many durable writes as without a profile, and one millisecond more.
const (
	profileBudget = time.Millisecond
	patternBudget = 50 * time.Millisecond
)

// ProfileLimits are the counts of a claim whose processes are profiled. In Unprepare, the plugin may report missing parts of the profile in
// an Event, and read the namespace of the reports. The answer waits for neither, as the API server answers nothing until then.
var ProfileLimits = Limits{PrepareLimit, Limit{Durable: UnprepareLimit.Durable, Reads: 1, Writes: 1}}

const profileTitle = "claims whose processes are profiled"

// profilerConfig is the configuration of such a claim, with a pattern as users write them. Its fields are in the order in which kubectl
// sends them; in another order the API server accepts the status only in a second request.
const profilerConfig = `{"apiVersion":"gpu.prism.dev/v1alpha1","captureEnvironment":true,"kind":"ProfilerConfig",` +
	`"match":{"regex":"^(?!/bin/)(?!/sbin/)(?!/usr/bin/)(?!/usr/sbin/)(?!.*nsys( |$))(?!.*cat( |$)).*$"}}`

// profile measures claims with a plugin for which a version of the profiler is installed. The manifest lists 600 files.
func (b *bencher) profile(ctx context.Context) (err error) {
	s, err := b.newSecond(ctx, "profile.bench", true)
	if err == nil {
		if err = installed(filepath.Join(s.Dir, "state", "tools", "2022.4.2-bench")); err == nil {
			s.Command = inImage(filepath.Dir(b.Binary), prismCommand(s.Program, b.Binary, b.Node, s.Kubelet.Socket, "--profiler"))
			if _, err = s.Start(ctx); err == nil {
				if err = b.profiled(ctx, s); err != nil {
					err = fmt.Errorf("%w; its log ends with: %s", err, s.tail())
				}
				err = errors.Join(err, b.patterns())
			}
		}
	}
	return errors.Join(err, s.Close(context.WithoutCancel(ctx)))
}

// installed creates the directory of a version.
func installed(dir string) error {
	m := manifest.New("2022.4.2")
	m.Nsys, m.Proven = "target-linux-x64/nsys", time.Now()
	for _, name := range []string{
		"kill", "wait", "trace", "trace=cuda", "trace=nvtx", "trace=osrt", "sample", "cpuctxsw", "capture-range", "nvtx-capture", "env-var",
	} {
		m.Switches = append(m.Switches, "--"+name)
	}
	for i := range 600 {
		m.Files["target-linux-x64/libraries/libOfTheProfiler-"+strconv.Itoa(i)+".so"] = fmt.Sprintf("%064x", i)
	}
	if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(m.Nsys)), 0o755); err != nil {
		return fmt.Errorf("creating the directory of a profiler: %w", err)
	}
	return errors.Join(os.WriteFile(filepath.Join(dir, m.Nsys), nil, 0o755), m.Write(dir))
}

// profiled measures claims with and without a profile in turn, and counts the operations of the profiled ones.
func (b *bencher) profiled(ctx context.Context, s *Second) error {
	plain, err := Published(ctx, b.client, s.Driver, b.Node, Wanted{Type: aGPU.Type, Least: len(b.devices)})
	if err != nil {
		return err
	}
	devices := slices.Clone(plain)
	for i := range devices {
		devices[i].Config = profilerConfig
	}
	var without, with Latency
	for range profileRounds {
		for _, half := range []struct {
			devices []Device
			into    *Latency
		}{{plain, &without}, {devices, &with}} {
			claims, err := s.Claims.Make(ctx, profiledClaims, half.devices)
			if err != nil {
				return err
			}
			took, err := OneByOne(ctx, s.Plugin, claims, len(half.devices), 0, s.Claims.Reported)
			if err != nil {
				return err
			}
			half.into.add(took)
		}
	}
	costs, err := b.profileCosts(ctx, s, devices)
	made, failed := folders(filepath.Join(s.Dir, "state", "profiles"))
	rows := with.rows("prepare a claim with a profile", "unprepare a claim with a profile", without)
	rows[0].Budget = Within(without.Prepare.P50() + profileBudget)
	rows = append(rows, Row{Name: "creation of three directories and three files, without a driver", Samples: made})
	b.report.Add(profileTitle, "without", rows...)
	b.report.Add("operations for one claim: with a profile", "", ProfileLimits.rows(1, costs)...)
	return errors.Join(err, failed)
}

// folders measures the minimum for any driver that creates a directory for each claim: the time depends on the file system.
func folders(dir string) (Samples, error) {
	number := 0
	return repeat(folderRounds, 1, func() error {
		number++
		folder := filepath.Join(dir, ".bench-"+strconv.Itoa(number))
		var err error
		for _, sub := range []string{"", "a", "b"} {
			err = errors.Join(err, os.Mkdir(filepath.Join(folder, sub), 0o700))
		}
		for _, file := range []string{"a/one", "a/two", "three"} {
			err = errors.Join(err, os.WriteFile(filepath.Join(folder, file), []byte(file), 0o600))
		}
		return err
	})
}

// profileCosts counts the operations of claims with a profile, one at a time.
func (b *bencher) profileCosts(ctx context.Context, s *Second, devices []Device) (Costs, error) {
	claims, err := s.Claims.Make(ctx, countedProfile+gatedClaims, devices)
	if err != nil {
		return Costs{}, err
	}
	synced, err := CountSyscalls(ctx, s.Plugin, claims[:countedProfile], 1)
	if err != nil {
		return Costs{}, err
	}
	if err := s.Claims.Reported(ctx, claims[:countedProfile]...); err != nil {
		return Costs{}, err
	}
	asked, err := s.CountRequests(ctx, claims[countedProfile:], 1)
	return synced.most(asked), err
}

// patterns measures the first use of patterns: patterns of users, and the most expensive accepted ones. A plugin caches them.
func (b *bencher) patterns() error {
	for _, p := range []struct{ what, text string }{
		{"the profiler injector's", `^(?!/bin/)(?!/sbin/)(?!/usr/bin/)(?!/usr/sbin/)(?!.*nsys( | $))(?!.*cat( | $)).*$`},
		{"of Python programs", `(?i)\bpython[\w.]*\s+(?:-\w+\s+)*\S*train`},
		{"with counted words", `(?:[a-z]{1,8} ){3,30}go`},
	} {
		took, err := repeat(compilations, 1, func() error { _, err := pattern.Compile(p.text, pattern.Perl); return err })
		if err != nil {
			return fmt.Errorf("compiling a pattern %s: %w", p.what, err)
		}
		b.report.Add(profileTitle, "without", Row{Name: "first use of a pattern: " + p.what, Samples: took, Budget: Within(patternBudget)})
	}
	return nil
}
