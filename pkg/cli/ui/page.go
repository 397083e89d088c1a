package ui

import (
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"io"
	"io/fs"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/prism-gpu/prism/pkg/cli/clusterview"
	"github.com/prism-gpu/prism/pkg/cli/explain"
)

//go:embed page
var pageFiles embed.FS

// assets are the parts of the page.
type assets struct {
	template      *template.Template
	script, style string
}

// content fills the page's template.
type content struct {
	// Policy is a Content-Security-Policy for a page without a server.
	Policy string
	Style  template.CSS
	Script template.JS
	// State is nil for a page that reads events.
	State *State
}

// loadAssets reads the embedded files. The scripts become one strict function, in the order of their names.
func loadAssets() (*assets, error) {
	script, err := joined("page/*.js")
	if err != nil {
		return nil, err
	}
	style, err := joined("page/*.css")
	if err != nil {
		return nil, err
	}
	parsed, err := template.ParseFS(pageFiles, "page/page.html")
	if err != nil {
		return nil, fmt.Errorf("parsing the page: %w", err)
	}
	return &assets{template: parsed, script: "(() => {\n'use strict';\n" + script + "})();\n", style: style}, nil
}

// joined concatenates embedded files.
func joined(pattern string) (string, error) {
	names, err := fs.Glob(pageFiles, pattern)
	if err != nil {
		return "", err
	}
	var all strings.Builder
	for _, name := range names {
		text, err := pageFiles.ReadFile(name)
		if err != nil {
			return "", err
		}
		all.Write(text)
	}
	return all.String(), nil
}

// live writes the page that reads events from its server.
func (a *assets) live(w io.Writer) error { return a.template.Execute(w, content{}) }

// saved writes the page with its data, script and style. Its policy allows exactly these.
func (a *assets) saved(w io.Writer, s *State) error {
	return a.template.Execute(w, content{
		Policy: "default-src 'none'; script-src '" + hash(a.script) + "'; style-src '" + hash(a.style) + "'; img-src data:; base-uri 'none'; " +
			"form-action 'none'",
		Style: template.CSS(a.style), Script: template.JS(a.script), //nolint:gosec // embedded files, without data
		State: s,
	})
}

// hash is the source expression of an inline element in a Content-Security-Policy.
func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}

// Extra is optional content of a page in one file.
type Extra struct {
	// Explanations are of pods; pods without one are listed with their requests alone.
	Explanations map[types.NamespacedName]*explain.Explanation
	Loads        *Loads
}

// Page writes the page as one file: data, script and style are inside, and it requests nothing.
func Page(w io.Writer, cluster *clusterview.Cluster, about About, extra Extra) error {
	a, err := loadAssets()
	if err != nil {
		return err
	}
	s := stateOf(cluster, about)
	s.Loads = extra.Loads
	for i := range s.Pods {
		p := &s.Pods[i]
		p.Explanation = extra.Explanations[types.NamespacedName{Namespace: p.Namespace, Name: p.Name}]
	}
	return a.saved(w, s)
}
