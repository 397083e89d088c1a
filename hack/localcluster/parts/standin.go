package parts

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// StandIn replaces a module that the module proxy lacks.
type StandIn struct {
	// Module is its path.
	Module string
	// From is the module ("path@version") that contained the packages before they moved, Folders are the copied folders, without tests.
	From    string
	Folders []string
	// LeftOut are the names of files that did not move with the packages.
	LeftOut []string
	// Imports are replaced in the copied files: the old and the new beginning of an import path.
	Imports [][2]string
	// Files are additional files, by their paths.
	Files map[string]string
}

// folder is its folder in the folder of a build module.
func (s StandIn) folder() string { return "standin/" + s.Module }

// previewStandIns are modules that a cluster of PreviewVersion needs and the module proxy lacks.
var previewStandIns = []StandIn{
	{
		Module: "k8s.io/apiextensions-api",
		From:   "k8s.io/apiextensions-apiserver@v0." + strings.TrimPrefix(KubernetesVersion, "1."),
		Folders: []string{
			"pkg/apis/apiextensions/v1", "pkg/apis/apiextensions/v1beta1", "pkg/client/applyconfiguration", "pkg/client/clientset",
			"pkg/client/informers", "pkg/client/listers",
		},
		LeftOut: []string{"conversion.go", "zz_generated.conversion.go"},
		// Declarations of the omitted files that other files use.
		Files: map[string]string{
			"pkg/apis/apiextensions/v1/null.go":      "package v1\n" + nullLiteral,
			"pkg/apis/apiextensions/v1beta1/null.go": "package v1beta1\n" + nullLiteral,
		},
		Imports: [][2]string{
			{"k8s.io/apiextensions-apiserver/pkg/", "k8s.io/apiextensions-api/pkg/"},
			{"sigs.k8s.io/structured-merge-diff/v6/", "sigs.k8s.io/structured-merge-diff/v7/"},
		},
	},
	// Only tests of Kubernetes import it.
	{Module: "k8s.io/ktesting"},
	{Module: "sigs.k8s.io/iptables-wrappers", Files: map[string]string{"pkg/iptables/iptables.go": noIPTables}},
}

const nullLiteral = "\nvar nullLiteral = []byte(`null`)\n"

// noIPTables declares the names that the kubelet uses, and finds no iptables on the system: the kubelet then creates no rules, which are
// for other components. The nodes of these clusters run none.
const noIPTables = `package iptables

import (
	"context"
	"time"
)

type (
	Chain        string
	Table        string
	Protocol     string
	RulePosition string
	mode         string
)

const (
	UseInstalledMode mode = "installed"

	TableMangle Table = "mangle"
	TableNAT    Table = "nat"
	TableFilter Table = "filter"

	ChainOutput Chain = "OUTPUT"
	ChainInput  Chain = "INPUT"

	Prepend RulePosition = "-I"
	Append  RulePosition = "-A"
)

type Interface interface {
	EnsureChain(context.Context, Table, Chain) (bool, error)
	EnsureRule(context.Context, RulePosition, Table, Chain, ...string) (bool, error)
	IsIPv6() bool
	Protocol() Protocol
	Monitor(context.Context, Chain, []Table, func(), time.Duration)
}

func NewBestEffort(context.Context, mode) map[string]Interface { return nil }
`

// standIn creates a stand-in in the build module's folder.
func (m buildModule) standIn(ctx context.Context, s StandIn) error {
	to := filepath.Join(m.dir, s.folder())
	files := map[string]string{"go.mod": "module " + s.Module + "\n\ngo 1.26.0\n"}
	for name, text := range s.Files {
		files[name] = text
	}
	if s.From != "" {
		from, err := m.download(ctx, s.From)
		if err != nil {
			return err
		}
		if err := s.copied(os.DirFS(from.Dir), files); err != nil {
			return fmt.Errorf("copying packages of %s: %w", s.From, err)
		}
	}
	for name, text := range files {
		path := filepath.Join(to, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// copied adds the files of the folders.
func (s StandIn) copied(from fs.FS, files map[string]string) error {
	var imports []string
	for _, pair := range s.Imports {
		imports = append(imports, `"`+pair[0], `"`+pair[1])
	}
	replacer := strings.NewReplacer(imports...)
	for _, folder := range s.Folders {
		err := fs.WalkDir(from, folder, func(name string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") ||
				slices.Contains(s.LeftOut, entry.Name()) {
				return err
			}
			text, err := fs.ReadFile(from, name)
			files[name] = replacer.Replace(string(text))
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}
