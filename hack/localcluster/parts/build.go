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

	"github.com/prism-gpu/prism/hack/localcluster/report"
)

// buildSpace is what a cold build of everything takes on disk, Go's own caches included.
const buildSpace = 6 << 30

// Ensure builds what is missing of the recipes and returns each part's folder by name.
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
	for i, r := range missing {
		end := progress.Step("building %s %s (%d of %d)", r.Name, r.Version, i+1, len(missing))
		err := cache.Fill(cache.Part(r), func(dir string) error { return compile(ctx, cache, r, dir) })
		if err != nil {
			return nil, fmt.Errorf("building %s %s: %w", r.Name, r.Version, err)
		}
		end()
	}
	return dirs, nil
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

// compile builds the part into dir. The module that builds it is beside the cache entry and is removed.
func compile(ctx context.Context, cache Cache, r Recipe, dir string) error {
	module := filepath.Join(cache.Dir, "build", r.Key())
	if err := emptyFolder(module); err != nil {
		return fmt.Errorf("making the build module: %w", err)
	}
	defer os.RemoveAll(module)
	log, err := buildLog(cache, r)
	if err != nil {
		return err
	}
	defer log.Close()
	var staging []string
	if r.Staging != "" {
		if staging, err = readStaging(ctx, module, r, log); err != nil {
			return err
		}
	}
	if err := writeModule(module, r, staging); err != nil {
		return err
	}
	_, err = runGo(ctx, module, log, r.buildArguments(dir)...)
	return err
}

func buildLog(cache Cache, r Recipe) (*os.File, error) {
	dir := filepath.Join(cache.Dir, "log")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("making the build log: %w", err)
	}
	log, err := os.Create(filepath.Join(dir, r.Key()+".log"))
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

// readStaging asks the module cache for the go.mod of the recipe's Kubernetes.
func readStaging(ctx context.Context, dir string, r Recipe, log *os.File) ([]string, error) {
	out, err := runGo(ctx, dir, log, "mod", "download", "-json", kubernetesModule+"@v"+r.Staging)
	if err != nil {
		return nil, err
	}
	var found struct{ GoMod, Error string }
	if err := json.Unmarshal(out, &found); err != nil {
		return nil, fmt.Errorf("reading what go mod download answered: %w", err)
	}
	text, err := os.ReadFile(found.GoMod)
	if err != nil {
		return nil, fmt.Errorf("reading the go.mod of %s: %w", r.Module, err)
	}
	return stagingModules(string(text)), nil
}

// compilerGC lets each compiler use memory instead of collecting garbage, which takes a fifth off a cold build.
var compilerGC = [2]string{"GOGC=off", "GOMEMLIMIT=2GiB"}

// runGo runs the go command outside any workspace and without the caller's build flags, and returns its standard output.
func runGo(ctx context.Context, dir string, log *os.File, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=off", "CGO_ENABLED=1", "PWD="+dir, compilerGC[0], compilerGC[1])
	var out, text bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &text
	err := cmd.Run()
	if _, logErr := log.Write(append(text.Bytes(), out.Bytes()...)); logErr != nil && err == nil {
		err = logErr
	}
	if err != nil {
		return nil, explain(err, text.String()+out.String(), log.Name())
	}
	return out.Bytes(), nil
}

// explain turns the failure of a go command into one line that says what to change.
func explain(err error, output, logPath string) error {
	switch {
	case strings.Contains(output, "no space left on device") || errors.Is(err, syscall.ENOSPC):
		return errors.New("the disk is full: free some space, or set XDG_CACHE_HOME, GOCACHE, GOMODCACHE and TMPDIR to another disk")
	case contains(output, "unknown revision", "404 Not Found", "410 Gone", "version is not available"):
		return fmt.Errorf("this version is not published: choose another one (see %s)", logPath)
	case contains(output, "dial tcp", "no such host", "i/o timeout", "connection refused", "connection reset", "network is unreachable",
		"TLS handshake", "proxyconnect", "module lookup disabled"):
		return fmt.Errorf("the module proxy cannot be reached: check the network, or point GOPROXY at one that can be (see %s)", logPath)
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
