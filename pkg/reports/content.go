package reports

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/prism-gpu/prism/pkg/profiler/report"
)

// maxRange is how much of a report one answer has, in bytes.
const maxRange = 16 << 20

// rangeTimeout is how long an answer with a range may take.
const rangeTimeout = 10 * time.Minute

// content answers with a range of a report's file: of the whole file where none is asked for and it is no larger than maxRange.
func (s *Server) content(w http.ResponseWriter, c call) error {
	name := c.PathValue("name")
	if err := s.allow(c, attributes("get", content, c.PathValue("namespace"), name)); err != nil {
		return err
	}
	found, err := s.find(c)
	if err != nil {
		return err
	}
	if err := available(found); err != nil {
		return err
	}
	wanted, err := byteRange(c.Request, found)
	if err != nil {
		return err
	}
	if match := c.Header.Get("If-Match"); match != "" && match != "*" && match != strconv.Quote(found.SHA256) {
		return failed(http.StatusPreconditionFailed, "the report has another SHA-256 than If-Match says")
	}
	header := http.Header{"Range": {wanted}}
	ctx, stop := context.WithTimeout(c.Context(), rangeTimeout)
	defer stop()
	response, err := s.Nodes.ask(ctx, http.MethodGet, found, nil, header, content)
	if err != nil {
		return apierrors.NewServiceUnavailable(err.Error())
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusPartialContent {
		err := said(response)
		if errors.Is(err, fs.ErrNotExist) {
			return apierrors.NewNotFound(groupResource, name)
		}
		return apierrors.NewInternalError(err)
	}
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(rangeTimeout))
	for _, key := range []string{"Content-Length", "Content-Range", "Content-Type"} {
		w.Header()[key] = response.Header.Values(key)
	}
	w.Header().Set("ETag", strconv.Quote(found.SHA256))
	w.Header().Set("Accept-Ranges", "bytes")
	w.WriteHeader(http.StatusPartialContent)
	_, _ = io.Copy(w, response.Body) // a client that went, or a node, is seen by the length
	return nil
}

// available refuses reports without a file on the node.
func available(r report.Report) error {
	switch {
	case r.Path != "":
		return failed(http.StatusConflict, fmt.Sprintf("the report is in the container, at %s: kubectl prism profile download copies it while the pod runs", r.Path))
	case !r.State.Final():
		return apierrors.NewConflict(groupResource, r.ID, fmt.Errorf("the report is not complete, its state is %s", r.State))
	case r.Size == 0 || r.SHA256 == "":
		return apierrors.NewNotFound(groupResource, r.ID+"/"+content)
	}
	return nil
}

// byteRange is the range that the node is asked for: the first of the request, cut to maxRange.
func byteRange(r *http.Request, of report.Report) (string, error) {
	unsatisfiable := failed(http.StatusRequestedRangeNotSatisfiable, fmt.Sprintf("the report has %d bytes", of.Size))
	first, last := int64(0), of.Size-1
	if text := r.Header.Get("Range"); text != "" && ifRange(r, of) {
		from, to, ok := strings.Cut(strings.TrimPrefix(text, "bytes="), "-")
		if !strings.HasPrefix(text, "bytes=") || !ok || strings.Contains(to, ",") {
			return "", unsatisfiable
		}
		var err error
		switch {
		case from == "":
			var suffix int64
			if suffix, err = strconv.ParseInt(to, 10, 64); err == nil && suffix > 0 {
				first = max(0, of.Size-suffix)
			} else {
				return "", unsatisfiable
			}
		case to == "":
			first, err = strconv.ParseInt(from, 10, 64)
		default:
			if first, err = strconv.ParseInt(from, 10, 64); err == nil {
				last, err = strconv.ParseInt(to, 10, 64)
			}
		}
		if err != nil || first < 0 || first >= of.Size || last < first {
			return "", unsatisfiable
		}
	}
	last = min(last, of.Size-1, first+maxRange-1)
	return fmt.Sprintf("bytes=%d-%d", first, last), nil
}

// ifRange reports whether a range is wanted of what the report is now.
func ifRange(r *http.Request, of report.Report) bool {
	condition := r.Header.Get("If-Range")
	return condition == "" || condition == strconv.Quote(of.SHA256)
}

// failed is a Status with that code.
func failed(code int, message string) error {
	status := apierrors.NewGenericServerResponse(code, "get", groupResource, "", message, 0, false)
	status.ErrStatus.Message = message
	return status
}
