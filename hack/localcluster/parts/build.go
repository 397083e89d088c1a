package parts

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/prism-gpu/prism/hack/localcluster/report"
)

// buildSpace is the disk space of a cold build of everything, including Go's own caches.
const buildSpace = 6 << 30

// Ensure builds the missing recipes and returns each part's folder by name.
func Ensure(ctx context.Context, cache Cache, recipes []Recipe, progress *report.Progress) (map[string]string, error) {
	dirs := map[string]string{}
	var missing []Recipe
	for _, r := range recipes {
		dirs[r.Name] = cache.Part(r)
		if !cache.Has(cache.Part(r)) {
			missing = append(missing, r)
		}
	}
	if len(missing) == 0 {
		return dirs, nil
	}
	if err := prepare(ctx, cache, missing, progress); err != nil {
		return nil, err
	}
	return dirs, build(ctx, cache, missing, progress)
}

// build builds the recipes, which are in the table's order.
func build(ctx context.Context, cache Cache, missing []Recipe, progress *report.Progress) error {
	progress.Line("building %d parts from their sources, once: %s", len(missing), cache.expect(missing...))
	// The table begins with the longest build. The short ones are compiled while its modules are downloaded.
	defer fetchAhead(ctx, cache, missing)()
	for i, r := range slices.Backward(missing) {
		end := progress.Step("building %s %s (%d of %d, %s)", r.Name, r.Version, len(missing)-i, len(missing), cache.expect(r))
		err := cache.Fill(cache.Part(r), func(dir string) error {
			begin := time.Now()
			err := compile(ctx, cache, r, dir)
			if err == nil {
				cache.recordBuild(r, time.Since(begin))
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("building %s %s: %w", r.Name, r.Version, err)
		}
		end()
	}
	return nil
}

func prepare(ctx context.Context, cache Cache, missing []Recipe, progress *report.Progress) error {
	if _, err := exec.LookPath("go"); err != nil {
		return errors.New("the go command is not in PATH: install Go 1.26.6 or later, the parts are built from Go modules")
	}
	if err := CheckSpace(cache.Dir, buildSpace, "XDG_CACHE_HOME"); err != nil {
		return err
	}
	needs := slices.Clone(compilerPackages)
	for _, r := range missing {
		for _, name := range r.Debian {
			needs = append(needs, buildPackages[name])
		}
	}
	return InstallDebian(ctx, needs, progress)
}

// compile builds the part into dir.
func compile(ctx context.Context, cache Cache, r Recipe, dir string) error {
	return inModule(ctx, cache, r.Key(), r, func(m buildModule) error {
		_, err := m.run(ctx, r.buildArguments(dir)...)
		return err
	})
}

// buildModule is a throw-away Go module and the log of its commands.
type buildModule struct {
	dir string
	log *os.File
	// toolchain is the version of Go that the modules require; empty: the version of the go command in PATH.
	toolchain string
}

// inModule calls use with the module that builds the recipe. The module is beside the cache's entries, and is removed; only one process
// uses name while the caller holds the lock of that name, so leftovers of a killed build are removed too.
func inModule(ctx context.Context, cache Cache, name string, r Recipe, use func(buildModule) error) error {
	base := filepath.Join(cache.Dir, "build")
	if left, err := filepath.Glob(filepath.Join(base, name+"-*")); err == nil {
		for _, dir := range left {
			_ = os.RemoveAll(dir)
		}
	}
	if err := os.MkdirAll(base, 0o755); err != nil {
		return fmt.Errorf("making the build module: %w", err)
	}
	dir, err := os.MkdirTemp(base, name+"-")
	if err != nil {
		return fmt.Errorf("making the build module: %w", err)
	}
	defer os.RemoveAll(dir)
	log, err := buildLog(cache, name)
	if err != nil {
		return err
	}
	defer log.Close()
	m := buildModule{dir: dir, log: log, toolchain: r.Go}
	var staging []string
	if r.Staging != "" {
		if staging, err = m.readStaging(ctx, r); err != nil {
			return err
		}
	}
	for _, s := range r.StandIns {
		if err := m.standIn(ctx, s); err != nil {
			return fmt.Errorf("making the stand-in for module %s: %w", s.Module, err)
		}
	}
	if err := writeModule(dir, r, staging); err != nil {
		return err
	}
	return use(m)
}

func buildLog(cache Cache, name string) (*os.File, error) {
	dir := filepath.Join(cache.Dir, "log")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("making the build log: %w", err)
	}
	log, err := os.Create(filepath.Join(dir, name+".log"))
	if err != nil {
		return nil, fmt.Errorf("making the build log: %w", err)
	}
	return log, nil
}

func writeModule(dir string, r Recipe, staging []string) error {
	if err := os.WriteFile(filepath.Join(dir, "go.mod"), []byte(r.moduleFile(staging)), 0o644); err != nil {
		return fmt.Errorf("writing the build module: %w", err)
	}
	if r.Main == "" {
		return nil
	}
	if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte(r.Main), 0o644); err != nil {
		return fmt.Errorf("writing the build module: %w", err)
	}
	return nil
}

// downloaded is the location of a module in the module cache.
type downloaded struct{ Dir, GoMod, Error string }

func (m buildModule) download(ctx context.Context, module string) (found downloaded, err error) {
	out, err := m.run(ctx, "mod", "download", "-json", module)
	if err != nil {
		return found, err
	}
	if err := json.Unmarshal(out, &found); err != nil {
		return found, fmt.Errorf("reading what go mod download answered: %w", err)
	}
	return found, nil
}

// readStaging reads the go.mod of the recipe's Kubernetes from the module cache.
func (m buildModule) readStaging(ctx context.Context, r Recipe) ([]string, error) {
	found, err := m.download(ctx, kubernetesModule+"@v"+r.Staging)
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(found.GoMod)
	if err != nil {
		return nil, fmt.Errorf("reading the go.mod of %s: %w", r.Module, err)
	}
	return stagingModules(string(text)), nil
}

// compilerGC makes each compiler use memory instead of collecting garbage, which saves a fifth of a cold build.
var compilerGC = [2]string{"GOGC=off", "GOMEMLIMIT=2GiB"}

// run runs the go command outside of any workspace and without the caller's build flags, and returns its standard output. The command's own
// temporary files are in the module's folder, where the next build removes leftovers of a killed one.
func (m buildModule) run(ctx context.Context, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = m.dir
	cmd.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=off", "CGO_ENABLED=1", "GOTMPDIR="+m.dir, "PWD="+m.dir, compilerGC[0], compilerGC[1])
	if m.toolchain != "" {
		cmd.Env = append(cmd.Env, "GOTOOLCHAIN=go"+m.toolchain)
	}
	var out, text bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &text
	err := runTied(cmd)
	if _, logErr := m.log.Write(append(text.Bytes(), out.Bytes()...)); logErr != nil && err == nil {
		err = logErr
	}
	if err != nil {
		return nil, explain(err, text.String()+out.String(), m.log.Name())
	}
	return out.Bytes(), nil
}

// explain turns the failure of a go command into one line with the fix.
func explain(err error, output, logPath string) error {
	switch {
	case strings.Contains(output, "no space left on device") || errors.Is(err, syscall.ENOSPC):
		return errors.New("the disk is full: free some space, or set XDG_CACHE_HOME, GOCACHE, GOMODCACHE and TMPDIR to another disk")
	case contains(output, "unknown revision", "404 Not Found", "410 Gone", "version is not available"):
		return fmt.Errorf("this version is not published: choose another one (see %s)", logPath)
	case contains(output, "dial tcp", "no such host", "i/o timeout", "connection refused", "connection reset", "network is unreachable",
		"TLS handshake", "proxyconnect", "module lookup disabled"):
		return fmt.Errorf("the module proxy cannot be reached: check the network, or set GOPROXY to another one (see %s)", logPath)
	}
	return fmt.Errorf("%w: %s (see %s)", err, lastLine(output), logPath)
}

func contains(text string, signs ...string) bool {
	return slices.ContainsFunc(signs, func(sign string) bool { return strings.Contains(text, sign) })
}

func lastLine(text string) string {
	text = strings.TrimSpace(text)
	return text[strings.LastIndex(text, "\n")+1:]
}
