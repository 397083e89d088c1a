package main

import (
	"github.com/prism-gpu/prism/pkg/events"
)

// eventsPage documents pkg/events.
func eventsPage(string) (string, error) {
	out := newText("Events", "pkg/events")
	out.para("The kubelet plugin writes the Events of a Node, the controller the Events of a ConfigMap or Lease. Events of a Node are in namespace default, whose readers need no " +
		"access to the claims of tenants, so they name claims by their UIDs; the plugin's log contains the names: " +
		"`kubectl get events --field-selector reason=<reason> --all-namespaces`.")
	t := table{head: []string{"reason", "type", "about", "meaning", "what to do"}}
	for _, e := range events.All() {
		kind := "Normal"
		if e.Warning {
			kind = "Warning"
		}
		t.row(code(e.Reason), kind, e.About, e.Meaning, e.Fix)
	}
	out.table(t)
	return out.String(), nil
}
