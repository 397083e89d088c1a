package lifecycle

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/disk"
	"github.com/prism-gpu/prism/pkg/plugin"
	"github.com/prism-gpu/prism/pkg/plugin/cdi"
	"github.com/prism-gpu/prism/pkg/plugin/profiler"
	"github.com/prism-gpu/prism/pkg/plugin/profiler/plan"
	"github.com/prism-gpu/prism/pkg/plugin/profiler/store"
	"github.com/prism-gpu/prism/pkg/profiler/nsight"
	"github.com/prism-gpu/prism/pkg/profiler/report"
	"github.com/prism-gpu/prism/pkg/profiler/session"
	"github.com/prism-gpu/prism/pkg/profiler/tool/manifest"
)

const (
	toolVersion = "2023.4.4"
	// recordingFolder is the name of the folder that the supervisor gives the only process of a claim.
	recordingFolder = "s42-0123456789abcdef"
	// recorded is the raw file of a process, imported the report that the importer creates from it.
	recorded, imported = "the raw file", "the imported report"
	// retention is how long reports are kept.
	retention = time.Hour
	// maxBytes is the limit of a claim's stored data.
	maxBytes = 1 << 20
	// limitTime is how long processes may take to end their recording when the claim exceeds the limit.
	limitTime = 10 * time.Second
)

// profiling requests a profile of the claim's processes. Its UID must be in the API server's format.
func (a Act) profiling() Act {
	a.Profiling = true
	return a
}

// withProfile adds a ProfilerConfig for all devices to the claim.
func withProfile(rc *resourceapi.ResourceClaim, act Act) *resourceapi.ResourceClaim {
	if !act.Profiling {
		return rc
	}
	config := resourceapi.DeviceAllocationConfiguration{Source: resourceapi.AllocationConfigSourceClaim}
	raw := `{"apiVersion":"gpu.prism.dev/v1alpha1","kind":"ProfilerConfig","captureEnvironment":true,"output":{"retention":"1h","maxBytes":"1Mi"}}`
	if act.ByHand {
		raw = strings.Replace(raw, `"captureEnvironment"`, `"start":"Manual","captureEnvironment"`, 1)
	}
	config.Opaque = &resourceapi.OpaqueDeviceConfiguration{Driver: DriverName, Parameters: runtime.RawExtension{Raw: []byte(raw)}}
	rc.Status.Allocation.Devices.Config = append(rc.Status.Allocation.Devices.Config, config)
	return rc
}

// setProfiled empties the directory of profiles, and sets whether the node profiles processes.
func (m *Machine) setProfiled(profiled bool) error {
	m.profiled = profiled
	if err := errors.Join(os.RemoveAll(m.settings().ProfilesDir()), os.RemoveAll(m.settings().CollectorDir())); err != nil || !profiled {
		return err
	}
	if err := errors.Join(os.MkdirAll(m.settings().ProfilesDir(), 0o755), os.MkdirAll(m.settings().CollectorDir(), 0o700)); err != nil {
		return err
	}
	return m.installProfiler()
}

// installProfiler creates the files that the image and the tool's DaemonSet install.
func (m *Machine) installProfiler() error {
	dir := filepath.Join(m.settings().ToolsDir(), toolVersion+"-0123")
	if err := errors.Join(os.MkdirAll(m.profilerImage(), 0o755), os.MkdirAll(dir, 0o755)); err != nil {
		return err
	}
	for _, name := range []string{profiler.Library, profiler.Run} {
		if err := os.WriteFile(filepath.Join(m.profilerImage(), name), []byte(hookProgram), 0o600); err != nil {
			return err
		}
	}
	tool := manifest.New(toolVersion)
	tool.Nsys, tool.Switches, tool.Proven = "target-linux-x64/nsys", []string{"--kill", "--wait", "--trace", "--sample", "--cpuctxsw"}, time.Unix(1, 0)
	tool.Launch, tool.Start = []string{"--wait", "--trace"}, []string{"--sample", "--cpuctxsw"}
	return tool.Write(dir)
}

func (m *Machine) profilerImage() string { return filepath.Join(m.dir(), "image") }

// profilerFiles returns prefixes of the host paths that are mounted into containers of profiled claims.
func (m *Machine) profilerFiles() []string {
	if !m.profiled {
		return nil
	}
	return []string{m.settings().ToolsDir(), m.settings().ProgramsDir(), m.settings().ProfilesDir()}
}

// durable returns the directories whose synced content outlives a power cut.
func (m *Machine) durable() []string {
	if !m.profiled {
		return []string{m.StateDir}
	}
	return []string{m.StateDir, m.settings().ProfilesDir(), m.settings().CollectorDir()}
}

// profileSite returns the kind of a file of a profile.
func profileSite(path string) string {
	_, below, _ := strings.Cut(path, "/profiles/")
	_, file, inside := strings.Cut(below, "/")
	if !inside {
		return "profile"
	}
	kind, _, _ := strings.Cut(file, "/")
	return "profile's " + strings.TrimSuffix(kind, disk.TempSuffix)
}

// profileEdits returns the edits for devices of profiled claims.
func (m *Machine) profileEdits(r *checkpoint.Record) ([]cdi.DeviceEdits, error) {
	if !plan.Profiled(r) {
		return nil, nil
	}
	config, err := plan.Config(r)
	if err != nil {
		return nil, err
	}
	installed, err := manifest.List(m.settings().ToolsDir())
	if err != nil || len(installed) != 1 {
		return nil, fmt.Errorf("%d versions of the tool: %w", len(installed), err)
	}
	programs, profile := filepath.Join(m.settings().ProgramsDir(), writer), filepath.Join(m.settings().ProfilesDir(), r.Claim.UID)
	tool := plan.Tool{Tool: nsight.Tool{Version: installed[0].Version, Switches: installed[0].Switches, Launch: installed[0].Launch, Start: installed[0].Start}, Dir: installed[0].Dir, Nsys: installed[0].Nsys}
	return plan.Edits(r, config, tool, plan.Host{
		Node: NodeName, Programs: programs, Plan: filepath.Join(profile, "plan"), Inbox: filepath.Join(profile, "inbox"),
		Hook: func(args ...string) *specs.Hook {
			return cdi.CreateContainerHook(filepath.Join(programs, cdi.OwnHookName), args...)
		},
	}), nil
}

// hasPlan checks that the files exist that the containers of a prepared claim read, and the folders into which they write.
func (m *Machine) hasPlan(r *checkpoint.Record) error {
	if !plan.Profiled(r) {
		return nil
	}
	profile := filepath.Join(m.settings().ProfilesDir(), r.Claim.UID)
	for _, name := range []string{"plan/run", "plan/match"} {
		if info, err := os.Lstat(filepath.Join(profile, name)); err != nil || info.Size() == 0 {
			return fmt.Errorf("it was prepared, and its containers lack %s: %w", name, err)
		}
	}
	if info, err := os.Lstat(filepath.Join(profile, "inbox")); err != nil || info.Mode() != fs.ModeDir|fs.ModeSticky|0o777 {
		return fmt.Errorf("it was prepared, and its inbox is %v: %w", info, err)
	}
	return nil
}

// actProfile runs an act of the profiler, beside the plugin.
func (m *Machine) actProfile(ctx context.Context, p *Process, act Act) error {
	switch act.Call {
	case "begin":
		_, err := m.begin(act.Claim, "state=Recording\n")
		return err
	case "record":
		return m.record(act.Claim, act.Ranges)
	case "fill":
		return m.fill(act.Claim)
	case "import":
		return m.imports()
	case "waits":
		return m.awaitsCommands(act.Claim, session.Waiting)
	case "command":
		return m.commands(ctx, p, act.Claim, act.Verb)
	case "answer":
		return m.answersAct(act.Claim, act.Verb)
	default:
		return m.storeReports(ctx, p)
	}
}

// begin starts a process of the claim's container under Nsight Systems. Without a spec no container is started.
func (m *Machine) begin(uid, state string) (dir string, err error) {
	specs, err := m.specs()
	if err != nil || specs[uid] == "" {
		return "", errors.Join(fmt.Errorf("missing CDI spec of claim %s", uid), err)
	}
	dir = filepath.Join(m.recordings(uid), recordingFolder)
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	note := fmt.Sprintf("version=1\npod=train\ncontainer=main\nprocess=python3\npid=42\nstarted=%d\nfile=python3\n%s", m.Now().UnixNano(), state)
	return dir, os.WriteFile(filepath.Join(dir, "note"), []byte(note), 0o600)
}

// record simulates such a process that exited and left its raw file, or one of each range.
func (m *Machine) record(uid string, ranges int) error {
	names := []string{"report.qdstrm"}
	if ranges > 0 {
		names = nil
	}
	for number := range ranges {
		names = append(names, fmt.Sprintf("report.%d.qdstrm", number+1))
	}
	dir, err := m.begin(uid, "state=Recording\n")
	for _, name := range names {
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), []byte(recorded), 0o600)
		}
	}
	if err == nil {
		_, err = m.begin(uid, fmt.Sprintf("state=Finished\nexited=%d\n", m.Now().UnixNano()))
	}
	return err
}

// inbox returns the folder into which the containers of a claim write.
func (m *Machine) inbox(uid string) string {
	return filepath.Join(m.settings().ProfilesDir(), uid, "inbox")
}

// fill simulates a container that writes more than its claim may store.
func (m *Machine) fill(uid string) error {
	return os.WriteFile(filepath.Join(m.inbox(uid), "core"), make([]byte, 2*maxBytes), 0o600)
}

// isOver reports whether a claim's inbox exceeds the limit of the claim.
func (m *Machine) isOver(uid string) bool {
	info, err := os.Lstat(filepath.Join(m.inbox(uid), "core"))
	return err == nil && info.Size() > maxBytes
}

// inboxesAreLimited checks that, while a claim is prepared, its inbox is emptied when it is full, and its processes are recorded again
// after that.
func (m *Machine) inboxesAreLimited(ctx context.Context, p *Process) error {
	records, err := m.Records()
	if err != nil || !m.profiled {
		return err
	}
	for uid := range records {
		stop := filepath.Join(m.settings().ProfilesDir(), uid, "plan", "stop")
		if _, err := os.Lstat(stop); err != nil && !m.isOver(uid) {
			continue
		}
		for range 4 {
			if err := m.storeReports(ctx, p); err != nil {
				return err
			}
			m.Advance(limitTime)
			defer m.Advance(-limitTime)
		}
		if _, err := os.Lstat(stop); err == nil || m.isOver(uid) {
			return fmt.Errorf("claim %s: its inbox is full (%t), or recording is stopped for good: %w", uid, m.isOver(uid), err)
		}
	}
	return nil
}

// imports runs the importer, which creates reports from the waiting raw files.
func (m *Machine) imports() error {
	waiting, err := filepath.Glob(filepath.Join(m.settings().ProfilesDir(), "*", "spool", "*.qdstrm"))
	for _, raw := range waiting {
		made := strings.TrimSuffix(raw, ".qdstrm") + ".nsys-rep"
		err = errors.Join(err, os.WriteFile(made+".new", []byte(imported), 0o600), os.Rename(made+".new", made))
	}
	return err
}

// reportsOf returns the reports of the plugin's profiler; nil without one.
func reportsOf(p *plugin.Plugin) *store.Store {
	for _, e := range p.Machine.Extensions {
		if profiles, ok := e.(*profiler.Extension); ok {
			return profiles.Reports()
		}
	}
	return nil
}

// storeReports runs the background work of a leading plugin.
func (m *Machine) storeReports(ctx context.Context, p *Process) error {
	reports := reportsOf(p.Plugin)
	if err := reports.Lead(); err != nil {
		return err
	}
	reports.Scan(ctx)
	sessionsOf(p.Plugin).Sweep()
	once, stop := context.WithCancel(ctx)
	stop()
	reports.FollowCluster(once, oneNamespace{})
	return reports.Sweep(func() (map[string]bool, error) {
		records, err := p.Machine.Kept()
		prepared := map[string]bool{}
		for _, r := range records {
			prepared[r.Claim.UID] = true
		}
		return prepared, err
	})
}

// oneNamespace is a cluster in which the namespace of all claims stays the same.
type oneNamespace struct{}

func (oneNamespace) Namespace(context.Context, string) (store.Namespace, error) {
	return store.Namespace{UID: "namespace"}, nil
}

func (oneNamespace) Announce(context.Context, bool) error { return nil }

// reportsAreWhole checks that the content of each report that can be downloaded matches its index.
func (m *Machine) reportsAreWhole() error {
	if !m.profiled {
		return nil
	}
	var damaged error
	s, err := store.Open(store.Options{Dir: m.settings().ProfilesDir(), Files: disk.OS{}, Follow: true, Failed: func(_ string, err error) {
		damaged = errors.Join(damaged, err)
	}})
	if err != nil {
		return errors.Join(err, damaged)
	}
	for _, r := range s.List("", "") {
		if r.State == report.Ready || r.State == report.Raw {
			damaged = errors.Join(damaged, isWhole(s, &r))
		}
	}
	return damaged
}

func isWhole(s *store.Store, r *report.Report) error {
	f, _, err := s.Content(r.ClaimUID, r.ID)
	if err != nil {
		return fmt.Errorf("report %s is %s and cannot be read: %w", r.ID, r.State, err)
	}
	defer f.Close()
	hash := sha256.New()
	size, err := io.Copy(hash, f)
	if sum := hex.EncodeToString(hash.Sum(nil)); err != nil || size != r.Size || sum != r.SHA256 {
		return fmt.Errorf("report %s is %s and has %d bytes with hash %s, its index has %d and %s: %w", r.ID, r.State, size, sum, r.Size, r.SHA256, err)
	}
	return nil
}
