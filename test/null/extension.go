package null

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/prism-gpu/prism/api/v1alpha1"
	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/claim"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/plugin/cdi"
	"github.com/prism-gpu/prism/pkg/plugin/kube"
)

// ExtensionKind is the kind of the data in records.
const ExtensionKind = "null"

// ConfigKind is the kind of the opaque configuration.
const ConfigKind = "NullConfig"

// Config is the opaque configuration of the extension.
type Config struct {
	metav1.TypeMeta `json:",inline"`
	// Text is the text for containers.
	Text string `json:"text,omitempty"`
}

// Kind returns ConfigKind.
func (*Config) Kind() string { return ConfigKind }

// Default sets nothing.
func (*Config) Default() {}

// Validate accepts everything but an empty text.
func (c *Config) Validate() error {
	if c.Text == "" {
		return errors.New(ConfigKind + ": text: required")
	}
	return nil
}

// Extension is an extension for tests: containers get a text, in a variable and in a file, from a service that may be unavailable. It shows
// the parts of a new extension, and proves that no other package knows extensions by name.
type Extension struct {
	// Dir contains the files of claims.
	Dir string
	// Serves is true while the service answers.
	Serves atomic.Bool
}

// Kind returns ExtensionKind.
func (*Extension) Kind() string { return ExtensionKind }

// Run runs the service.
func (e *Extension) Run(ctx context.Context) error {
	e.Serves.Store(true)
	<-ctx.Done()
	e.Serves.Store(false)
	return nil
}

// Claim plans claims.
func (e *Extension) Claim(context.Context) claim.PlanExtension { return planned{Serves: e.Serves.Load} }

// planned is the extension's part in planning.
type planned struct{ Serves func() bool }

// Planned returns the extension for admission.
func Planned() claim.PlanExtension { return planned{Serves: func() bool { return true }} }

func (planned) Kind() string { return ExtensionKind }

func (planned) Kinds() map[string]func() v1alpha1.Config {
	return map[string]func() v1alpha1.Config{ConfigKind: func() v1alpha1.Config { return &Config{} }}
}

func (planned) Reads(config v1alpha1.Config) bool {
	_, ok := config.(*Config)
	return ok
}

func (planned) Supports(v1alpha1.Config, gpu.DeviceType) error { return nil }

func (planned) Merge(_ any, config v1alpha1.Config, _ v1alpha1.Source) (any, error) {
	c, ok := config.(*Config)
	if !ok {
		return nil, fmt.Errorf("got %T, want %s", config, ConfigKind)
	}
	return c.Text, nil
}

func (planned) Forbidden(any) error {
	return errors.New(ConfigKind + " is not supported with adminAccess")
}

// PlanResult keeps the text of a result while the service answers.
func (p planned) PlanResult(_ *claim.Plan, r *claim.Result, options claim.Options) error {
	text := claim.OptionsOf[string](options, ExtensionKind)
	switch {
	case text == "":
		return nil
	case !p.Serves():
		return &claim.Refusal{
			Request: r.Request, Device: string(r.Device.Name()), Cause: "the null service does not answer", Transient: true,
			Extension: ExtensionKind, Condition: "ServiceAway",
		}
	}
	r.Extend(ExtensionKind, text)
	return nil
}

func textOf(r *checkpoint.Result) string {
	text, err := checkpoint.ExtensionOf[string](r.Extensions, ExtensionKind)
	if err != nil || text == nil {
		return ""
	}
	return *text
}

func (e *Extension) file(claimUID string) string { return filepath.Join(e.Dir, claimUID) }

// EditsOf returns a variable and a file with the text.
func (e *Extension) EditsOf(r *checkpoint.Record) (all []cdi.DeviceEdits, _ error) {
	for i := range r.Results {
		text := textOf(&r.Results[i])
		if text == "" {
			continue
		}
		all = append(all, cdi.DeviceEdits{Device: r.CDI.Devices[i], Source: ConfigKind, Edits: cdi.Edits{
			Env:    map[string]string{"NULL_TEXT": text},
			Mounts: []*specs.Mount{{HostPath: e.file(r.Claim.UID), ContainerPath: "/run/null", Options: []string{"ro", "bind"}}},
		}})
	}
	return all, nil
}

// Makes reports whether a path is a file of a claim.
func (e *Extension) Makes(hostPath string) bool { return filepath.Dir(hostPath) == e.Dir }

// Ensure writes the file.
func (e *Extension) Ensure(r *checkpoint.Record) error {
	for i := range r.Results {
		if text := textOf(&r.Results[i]); text != "" {
			return os.WriteFile(e.file(r.Claim.UID), []byte(text), 0o600)
		}
	}
	return nil
}

// RemoveFiles removes the file.
func (e *Extension) RemoveFiles(claimUID string) error { return os.RemoveAll(e.file(claimUID)) }

// Claims lists the claims with a file.
func (e *Extension) Claims() ([]string, error) {
	entries, err := os.ReadDir(e.Dir)
	uids := make([]string, 0, len(entries))
	for _, entry := range entries {
		uids = append(uids, entry.Name())
	}
	return uids, err
}

// ConditionTypes returns NullReady.
func (*Extension) ConditionTypes() []string { return []string{"NullReady"} }

// RefusedCondition returns NullReady.
func (*Extension) RefusedCondition() string { return "NullReady" }

// StatusConditions report that the text is written.
func (*Extension) StatusConditions(*checkpoint.Record) []kube.Condition {
	return []kube.Condition{{Type: "NullReady", True: true, Reason: "Written", Message: "The text is written."}}
}

// StatusData returns the text.
func (*Extension) StatusData(_ *gpu.Node, _ *checkpoint.Record, r *checkpoint.Result) map[string]any {
	return map[string]any{"nullText": textOf(r)}
}
