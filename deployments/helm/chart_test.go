// Package helm tests the chart with the real helm.
package helm

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
)

var update = flag.Bool("update", false, "write the golden files again")

const (
	release    = "prism"
	namespace  = "prism-system"
	kubernetes = "1.37.2"
)

// helmProgram finds helm: $HELM, the search path, then the build of the local cluster.
func helmProgram(t *testing.T) string {
	t.Helper()
	if program := os.Getenv("HELM"); program != "" {
		return program
	}
	if program, err := exec.LookPath("helm"); err == nil {
		return program
	}
	if cache, err := os.UserCacheDir(); err == nil {
		for _, pattern := range []string{"helm-*/helm", "helm-*/bin/helm"} {
			built, _ := filepath.Glob(filepath.Join(cache, "prism", "parts", pattern))
			if len(built) > 0 {
				return built[len(built)-1]
			}
		}
	}
	t.Skip("no helm: set HELM, or run `make cluster-up` once, which builds it")
	return ""
}

// helm runs helm without the user's own settings and returns its two outputs.
func helm(t *testing.T, args ...string) (string, string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var stdout, stderr bytes.Buffer
	command := exec.CommandContext(ctx, helmProgram(t), args...)
	home := t.TempDir()
	command.Env = append(os.Environ(),
		"HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home, "KUBECONFIG="+home+"/none")
	command.Stdout, command.Stderr = &stdout, &stderr
	err := command.Run()
	return stdout.String(), stderr.String(), err
}

// render renders the chart with the values.
func render(t *testing.T, args ...string) string {
	t.Helper()
	rendered, complaint, err := template(t, args...)
	require.NoError(t, err, complaint)
	return rendered
}

// rendering is the output of helm for some arguments.
type rendering struct {
	rendered, complaint string
	err                 error
}

// renderings caches them by their arguments: many tests inspect the same one, and helm takes most of their time.
var renderings sync.Map

// template renders the chart. Arguments with files of a test are not cached, because their content may differ the next time.
func template(t *testing.T, args ...string) (string, string, error) {
	t.Helper()
	all := append([]string{"template", release, "prism", "--namespace", namespace, "--kube-version", kubernetes}, args...)
	key := strings.Join(all, "\x00")
	if known, found := renderings.Load(key); found {
		r, _ := known.(rendering)
		return r.rendered, r.complaint, r.err
	}
	rendered, complaint, err := helm(t, all...)
	if !strings.Contains(key, os.TempDir()) {
		renderings.Store(key, rendering{rendered, complaint, err})
	}
	return rendered, complaint, err
}

// objects are the rendered objects by kind and name.
type objects map[string]*unstructured.Unstructured

func parse(t *testing.T, rendered string) objects {
	t.Helper()
	parsed := objects{}
	decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(rendered), 4096)
	for {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(object)
		if errors.Is(err, io.EOF) {
			return parsed
		}
		require.NoError(t, err)
		if len(object.Object) == 0 {
			continue
		}
		key := object.GetKind() + "/" + object.GetName()
		require.NotContains(t, parsed, key)
		parsed[key] = object
	}
}

// otherComponents are the components of programs other than the plugin.
var otherComponents = []string{"controller", "mps", "exporter", "profiler", "collector", "viewers"}

// only returns the single object of the kind that does not belong to the controller, the MPS service, the exporter, the profiler, the
// collector, the viewers or the classes.
func (o objects) only(t *testing.T, kind string) *unstructured.Unstructured {
	t.Helper()
	var found *unstructured.Unstructured
	for _, object := range o {
		component := object.GetLabels()["app.kubernetes.io/component"]
		if object.GetKind() == kind && !slices.Contains(otherComponents, component) && !strings.HasPrefix(object.GetName(), "by-capacity.") {
			require.Nil(t, found, "more than one %s", kind)
			found = object
		}
	}
	require.NotNil(t, found, "no %s", kind)
	return found
}

// dig follows keys and returns the value at their end.
func dig(t *testing.T, object *unstructured.Unstructured, keys ...string) any {
	t.Helper()
	value, found, err := unstructured.NestedFieldNoCopy(object.Object, keys...)
	require.NoError(t, err)
	require.True(t, found, "%s has no %s", object.GetKind(), strings.Join(keys, "."))
	return value
}

func TestChart_Lint_NoProblems(t *testing.T) {
	for _, values := range valueFiles(t) {
		stdout, stderr, err := helm(t, "lint", "--strict", "--quiet", "--kube-version", kubernetes, "--values", values, "prism")
		require.NoError(t, err, stdout+stderr)
	}
}

func valueFiles(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("testdata/values/*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	return files
}

// newEachTime matches certificates that are created if no cluster stores them.
var newEachTime = regexp.MustCompile(`(?m)((?:ca\.crt|tls\.crt|tls\.key|caBundle)): [A-Za-z0-9+/=]{500,}$`)

// TestChart_Rendered_AsGolden compares rendered objects with testdata/golden.
func TestChart_Rendered_AsGolden(t *testing.T) {
	for _, values := range valueFiles(t) {
		t.Run(strings.TrimSuffix(filepath.Base(values), ".yaml"), func(t *testing.T) {
			got := newEachTime.ReplaceAllString(render(t, "--values", values), "$1: new each time")
			golden := filepath.Join("testdata", "golden", filepath.Base(values))
			if *update {
				require.NoError(t, os.WriteFile(golden, []byte(got), 0o644))
			}
			want, err := os.ReadFile(golden)
			require.NoError(t, err)
			require.Equal(t, string(want), got)
		})
	}
}
