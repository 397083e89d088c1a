package reports

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/prism-gpu/prism/api/profiles/v1alpha1"
)

const (
	// stall is the timeout for the next byte of a download.
	stall = time.Minute
	// maxError limits the bytes that are read from an error response.
	maxError = 64 << 10
)

// Content opens at most length bytes of a report, starting at an offset; the server may send fewer. It returns ErrChanged if the sha256 of
// the content differs from the report, and ErrRetry if another try may succeed; reads may return ErrRetry too.
func (c *Client) Content(ctx context.Context, r *v1alpha1.Report, offset, length int64) (io.ReadCloser, error) {
	a := act{verb: "download", namespace: r.Namespace, name: r.Name}
	ctx, stop := context.WithCancelCause(ctx)
	timer := time.AfterFunc(stall, func() { stop(fmt.Errorf("no data received for %s", stall)) })
	fail := func(err error) (io.ReadCloser, error) {
		timer.Stop()
		stop(nil)
		return nil, err
	}
	where := c.rest.Get().Namespace(r.Namespace).Resource(Resource).Name(r.Name).SubResource(content).URL()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, where.String(), nil)
	if err != nil {
		return fail(err)
	}
	request.Header.Set("Range", fmt.Sprintf("bytes=%d-%d", offset, offset+length-1))
	if r.Status.SHA256 != "" {
		request.Header.Set("If-Match", `"`+r.Status.SHA256+`"`)
	}
	response, err := c.http.Do(request)
	if err != nil {
		return fail(c.explain(cause(ctx, err), a))
	}
	body := &stream{body: response.Body, timer: timer, stop: stop, fail: func(err error) error { return c.explain(cause(ctx, err), a) }}
	switch response.StatusCode {
	case http.StatusPartialContent:
		if want := fmt.Sprintf("bytes %d-", offset); !strings.HasPrefix(response.Header.Get("Content-Range"), want) {
			_ = body.Close()
			return nil, fmt.Errorf("%s: the server answered %q to a request for %s", a.doing(), Escape(response.Header.Get("Content-Range")), want)
		}
		return body, nil
	case http.StatusOK:
		if offset == 0 {
			return body, nil
		}
		_ = body.Close()
		return nil, fmt.Errorf("%s: the server does not send ranges; a proxy before the API server must let header Range through", a.doing())
	}
	err = refused(response, body, r)
	_ = body.Close()
	if response.StatusCode == http.StatusPreconditionFailed || response.StatusCode == http.StatusRequestedRangeNotSatisfiable {
		return nil, &explained{a.doing() + ": the report changed since it was listed; download it again", []error{ErrChanged, err}}
	}
	return nil, c.explain(err, a)
}

// cause returns the reason of a canceled request.
func cause(ctx context.Context, err error) error {
	if why := context.Cause(ctx); why != nil && !errors.Is(why, context.Canceled) {
		return &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusGatewayTimeout, Reason: metav1.StatusReasonTimeout, Message: why.Error(),
		}}
	}
	return err
}

// refused returns the error in a response.
func refused(response *http.Response, body io.Reader, r *v1alpha1.Report) error {
	raw, err := io.ReadAll(io.LimitReader(body, maxError))
	if err != nil {
		return err
	}
	var status metav1.Status
	if json.Unmarshal(raw, &status) == nil && status.Kind == "Status" && status.Status == metav1.StatusFailure {
		if status.Details == nil {
			status.Details = &metav1.StatusDetails{Name: r.Name}
		}
		return &apierrors.StatusError{ErrStatus: status}
	}
	of := schema.GroupResource{Group: GroupVersion.Group, Resource: Resource}
	return apierrors.NewGenericServerResponse(response.StatusCode, http.MethodGet, of, r.Name, strings.TrimSpace(string(raw)), 0, true)
}

// stream is the body of a response with a deadline for each read.
type stream struct {
	body  io.ReadCloser
	timer *time.Timer
	stop  context.CancelCauseFunc
	fail  func(error) error
}

func (s *stream) Read(p []byte) (int, error) {
	s.timer.Reset(stall)
	n, err := s.body.Read(p)
	if err != nil && err != io.EOF { //nolint:errorlint // readers return io.EOF itself
		err = s.broken(err)
	}
	return n, err
}

// broken returns the error of a connection that was closed within a response.
func (s *stream) broken(err error) error {
	said := s.fail(err)
	if errors.Is(said, ErrRetry) || errors.Is(err, context.Canceled) {
		return said
	}
	return &explained{said.Error(), []error{ErrRetry, err}}
}

func (s *stream) Close() error {
	s.timer.Stop()
	s.stop(nil)
	return s.body.Close()
}
