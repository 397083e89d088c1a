package reports

import (
	"mime"
	"net/http"
	"strings"
)

// form is the form of objects that a client prefers among those that are written: JSON only.
func form(r *http.Request) string {
	for accepted := range strings.SplitSeq(r.Header.Get("Accept"), ",") {
		kind, options, err := mime.ParseMediaType(accepted)
		if err != nil || (kind != "application/json" && kind != "*/*" && kind != "application/*") {
			continue
		}
		// Older forms have the version v1beta1.
		if options["g"] == "meta.k8s.io" && options["v"] != "v1" {
			continue
		}
		return options["as"]
	}
	return ""
}
