package profile_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/prism-gpu/prism/api/profiles/v1alpha1"
	"github.com/prism-gpu/prism/test/fakes/kubectlprism"
)

const apis = "/apis/profiles.gpu.prism.dev/v1alpha1"

// maxRange is the largest range that the API returns.
const maxRange = 16 << 20

// server answers like the aggregated API; for other paths it returns objects.
type server struct {
	*httptest.Server

	mu                sync.Mutex
	reports           []v1alpha1.Report
	content           map[string][]byte
	silent, truncated []string
	// objects are other objects of the cluster, by path.
	objects map[string]any
	// intercept replaces the API's answer if it returns true.
	intercept func(w http.ResponseWriter, r *http.Request) bool
	requests  []string
}

func newServer(t *testing.T) *server {
	t.Helper()
	s := &server{content: map[string][]byte{}, objects: map[string]any{}}
	s.Server = httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(s.Close)
	return s
}

// add adds a report of pod train with that content, and returns it for changes.
func (s *server) add(name string, content []byte) *v1alpha1.Report {
	sum := sha256.Sum256(content)
	s.content[name] = content
	s.reports = append(s.reports, v1alpha1.Report{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: "team", CreationTimestamp: metav1.NewTime(time.Now().Add(-time.Hour).Truncate(time.Second)),
			Labels: map[string]string{"gpu.prism.dev/pod": "train"},
		},
		Spec: v1alpha1.ReportSpec{Claim: "gpu", ClaimUID: "u", Pod: "train", Container: "main", Node: "node-1", Process: "python3", PID: 7, Tool: "2022.4.2"},
		Status: v1alpha1.ReportStatus{
			State: "Ready", File: name + ".nsys-rep", Size: int64(len(content)), SHA256: hex.EncodeToString(sum[:]),
		},
	})
	return &s.reports[len(s.reports)-1]
}

// asked returns the requests so far.
func (s *server) asked(prefix string) (asked []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, request := range s.requests {
		if strings.HasPrefix(request, prefix) {
			asked = append(asked, request)
		}
	}
	return asked
}

func (s *server) serve(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, strings.TrimSpace(r.Method+" "+r.URL.Path+" "+r.Header.Get("Range")))
	if s.intercept != nil && s.intercept(w, r) {
		return
	}
	path, ours := strings.CutPrefix(r.URL.Path, apis)
	if !ours {
		if object, ok := s.objects[r.URL.Path]; ok {
			answer(w, http.StatusOK, object)
			return
		}
		status(w, http.StatusNotFound, metav1.StatusReasonNotFound, "not found")
		return
	}
	if path == "/reports" {
		s.list(w, r, "")
		return
	}
	parts := strings.Split(strings.TrimPrefix(path, "/namespaces/"), "/")
	if len(parts) == 2 {
		s.list(w, r, parts[0])
		return
	}
	for i := range s.reports {
		if s.reports[i].Namespace == parts[0] && s.reports[i].Name == parts[2] {
			s.one(w, r, i, len(parts) == 4)
			return
		}
	}
	if len(s.silent) > 0 {
		status(w, http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, "nodes that did not answer: "+strings.Join(s.silent, ", "))
		return
	}
	status(w, http.StatusNotFound, metav1.StatusReasonNotFound, fmt.Sprintf("reports %q not found", parts[2]))
}

func (s *server) list(w http.ResponseWriter, r *http.Request, namespace string) {
	selector, err := labels.Parse(r.URL.Query().Get("labelSelector"))
	if err == nil {
		var of fields.Selector
		if of, err = fields.ParseSelector(r.URL.Query().Get("fieldSelector")); err == nil {
			list := v1alpha1.ReportList{SilentNodes: s.silent, TruncatedNodes: s.truncated}
			for _, report := range s.reports {
				set := fields.Set{
					"spec.claim": report.Spec.Claim, "spec.pod": report.Spec.Pod, "spec.container": report.Spec.Container,
					"spec.node": report.Spec.Node, "spec.process": report.Spec.Process, "status.state": report.Status.State,
				}
				if (namespace == "" || namespace == report.Namespace) && selector.Matches(labels.Set(report.Labels)) && of.Matches(set) {
					list.Items = append(list.Items, report)
				}
			}
			for _, node := range s.silent {
				w.Header().Add("Warning", fmt.Sprintf("299 - %q", "node "+node+" did not answer"))
			}
			answer(w, http.StatusOK, list)
			return
		}
	}
	status(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error())
}

func (s *server) one(w http.ResponseWriter, r *http.Request, i int, content bool) {
	report := s.reports[i]
	complete := report.Status.State != "Recording" && report.Status.State != "Importing"
	switch {
	case !complete && (content || r.Method == http.MethodDelete):
		status(w, http.StatusConflict, metav1.StatusReasonConflict, "report "+report.Name+" is "+report.Status.State)
	case r.Method == http.MethodDelete:
		s.reports = append(s.reports[:i], s.reports[i+1:]...)
		answer(w, http.StatusOK, metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Success"})
	case content:
		s.serveContent(w, r, report)
	default:
		answer(w, http.StatusOK, report)
	}
}

// serveContent serves ranges like the API.
func (s *server) serveContent(w http.ResponseWriter, r *http.Request, report v1alpha1.Report) {
	tag := `"` + report.Status.SHA256 + `"`
	if match := r.Header.Get("If-Match"); match != "" && match != tag {
		status(w, http.StatusPreconditionFailed, "PreconditionFailed", "the content changed")
		return
	}
	var first, last int
	if _, err := fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-%d", &first, &last); err == nil && last-first >= maxRange {
		r.Header.Set("Range", fmt.Sprintf("bytes=%d-%d", first, first+maxRange-1))
	}
	w.Header().Set("ETag", tag)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(s.content[report.Name]))
}

func answer(w http.ResponseWriter, code int, object any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(object)
}

func status(w http.ResponseWriter, code int, reason metav1.StatusReason, message string) {
	answer(w, code, metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Code: int32(code), Reason: reason, Message: message,
	})
}

// run runs kubectl prism profile with a kubeconfig for the server, in namespace team.
func (s *server) run(ctx context.Context, t *testing.T, args ...string) (out, errOut string, err error) {
	t.Helper()
	return kubectlprism.Run(ctx, t, s.URL, append([]string{"profile"}, args...)...)
}
