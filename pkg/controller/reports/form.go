package reports

import (
	"mime"
	"net/http"
	"strings"
)

// form returns the client's preferred form of objects among the supported ones: JSON only.
func form(r *http.Request) string {
	for accepted := range strings.SplitSeq(r.Header.Get("Accept"), ",") {
		kind, options, err := mime.ParseMediaType(accepted)
		if err != nil || (kind != "application/json" && kind != "*/*" && kind != "application/*") {
			continue
		}
		// Older forms use version v1beta1.
		if options["g"] == "meta.k8s.io" && options["v"] != "v1" {
			continue
		}
		return options["as"]
	}
	return ""
}
