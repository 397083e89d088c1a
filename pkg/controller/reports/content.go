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
	"github.com/prism-gpu/prism/pkg/profiler/seats"
)

// maxRange is the maximum number of bytes in one response.
const maxRange = 16 << 20

// rangeTimeout is the timeout of a response with a range.
const rangeTimeout = 10 * time.Minute

// stallTime is the timeout of a download without progress, because of its client or of the node.
const stallTime = 30 * time.Second

// These limits apply to one controller; each node limits the downloads of all its controllers.
const maxDownloads, namespaceDownloads, userDownloads, systemDownloads = 22, 8, 4, 2

// downloadSeats are the limits of downloads.
var downloadSeats = seats.Bounds{All: maxDownloads, Namespace: namespaceDownloads, User: userDownloads, Kept: systemDownloads}

// steady ends a download without progress.
type steady struct {
	http.ResponseWriter
	// stalled cancels the request to the node.
	stalled *time.Timer
}

// Write gives the client stallTime for the data of one read from the node.
func (s steady) Write(b []byte) (int, error) {
	s.stalled.Reset(stallTime)
	_ = http.NewResponseController(s.ResponseWriter).SetWriteDeadline(time.Now().Add(stallTime))
	n, err := s.ResponseWriter.Write(b)
	s.stalled.Reset(stallTime)
	return n, err
}

// content answers with a report's file, or with the requested range of it, limited to maxRange. Larger files are sent in ranges only: a
// client that requests the whole file would take a part for the report.
func (s *Server) content(w http.ResponseWriter, c call) error {
	name := c.PathValue("name")
	if err := s.allow(c, attributes("get", resource+"/"+content, c.PathValue("namespace"), name)); err != nil {
		return err
	}
	one, err := findItem[reportItem](s, c)
	if err != nil {
		return err
	}
	found := one.Report
	if err := available(found); err != nil {
		return err
	}
	if match := c.Header.Get("If-Match"); match != "" && match != "*" && match != strconv.Quote(found.SHA256) {
		return failed(http.StatusPreconditionFailed, "the SHA-256 of the report does not match If-Match")
	}
	wanted, whole, err := byteRange(c.Request, found)
	if err != nil {
		return err
	}
	by := partyOf(c.by, c.PathValue("namespace"))
	if !s.downloads.Enter(downloadSeats, by) {
		return apierrors.NewTooManyRequests(fmt.Sprintf("too many concurrent downloads of reports: at most %d, %d per namespace and %d per user; try again later",
			downloadSeats.All, downloadSeats.Namespace, downloadSeats.User), 1)
	}
	defer s.downloads.Leave(by)
	c.leave() // a download may take long, and does not delay other requests
	return s.download(w, c, found, by, wanted, whole)
}

// download sends a range of a report from its node, or all of it.
func (s *Server) download(w http.ResponseWriter, c call, found report.Report, by seats.Party, wanted string, whole bool) error {
	header := http.Header{"Range": {wanted}}
	ctx, stop := context.WithTimeout(c.Context(), rangeTimeout)
	defer stop()
	response, err := s.Nodes.ask(ctx, http.MethodGet, found, by.Query(), header, content)
	if err != nil {
		return apierrors.NewServiceUnavailable(err.Error())
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusPartialContent {
		err := readError(response)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return apierrors.NewNotFound(groupResource, found.ID)
		case response.StatusCode == http.StatusTooManyRequests:
			return apierrors.NewTooManyRequests(err.Error(), 1)
		}
		return apierrors.NewInternalError(err)
	}
	for _, key := range []string{"Content-Length", "Content-Range", "Content-Type"} {
		w.Header()[key] = response.Header.Values(key)
	}
	code := http.StatusPartialContent
	if whole {
		code = http.StatusOK
		w.Header().Del("Content-Range")
	}
	w.Header().Set("ETag", strconv.Quote(found.SHA256))
	w.Header().Set("Accept-Ranges", "bytes")
	w.WriteHeader(code)
	stalled := time.AfterFunc(stallTime, stop)
	defer stalled.Stop()
	_, _ = io.Copy(steady{w, stalled}, response.Body) // a disconnected client or node is detected by the length
	return nil
}

// available refuses reports without a file on the node.
func available(r report.Report) error {
	switch {
	case r.Path != "":
		return failed(http.StatusConflict, fmt.Sprintf("the report is in the container, at %s; copy it with kubectl prism profile download while the pod runs", r.Path))
	case !r.State.Final():
		return apierrors.NewConflict(groupResource, r.ID, fmt.Errorf("the report is not complete, its state is %s", r.State))
	case r.Size == 0 || r.SHA256 == "":
		return apierrors.NewNotFound(groupResource, r.ID+"/"+content)
	}
	return nil
}

// byteRange returns the range to request from the node: the range of the request, limited to maxRange, or the whole report if the request
// contains none.
func byteRange(r *http.Request, of report.Report) (wanted string, whole bool, err error) {
	text := r.Header.Get("Range")
	if text == "" || !ifRange(r, of) {
		if of.Size > maxRange {
			return "", false, apierrors.NewBadRequest(fmt.Sprintf(
				"Range: required, because report %s has %d bytes and a response at most %d; request ranges, or use kubectl prism profile download", of.ID, of.Size, maxRange))
		}
		return fmt.Sprintf("bytes=0-%d", of.Size-1), true, nil
	}
	wanted, err = partOf(text, of)
	return wanted, false, err
}

// partOf parses the header Range.
func partOf(text string, of report.Report) (string, error) {
	unsatisfiable := failed(http.StatusRequestedRangeNotSatisfiable, fmt.Sprintf("the report has %d bytes", of.Size))
	first, last := int64(0), of.Size-1
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
	last = min(last, of.Size-1, first+maxRange-1)
	return fmt.Sprintf("bytes=%d-%d", first, last), nil
}

// ifRange reports whether the condition of the range matches the current report.
func ifRange(r *http.Request, of report.Report) bool {
	condition := r.Header.Get("If-Range")
	return condition == "" || condition == strconv.Quote(of.SHA256)
}

// failed returns a Status with that code.
func failed(code int, message string) error {
	status := apierrors.NewGenericServerResponse(code, "get", groupResource, "", message, 0, false)
	status.ErrStatus.Message = message
	return status
}
