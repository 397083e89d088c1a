package usage

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"k8s.io/client-go/kubernetes"
)

const (
	// timeout is the time for an answer.
	timeout = 20 * time.Second
	// largest bounds an answer of Prometheus, in bytes: 100,000 GPUs need less.
	largest = 512 << 20
)

// Prometheus asks the Prometheus at a URL, or at "namespace/service:port" through the API server, for the metrics of GPUs.
func Prometheus(ctx context.Context, client kubernetes.Interface, address string) ([]Sample, error) {
	get, err := prometheusAt(client, address)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	body, err := get(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("no answer within %s", timeout)
	}
	var samples []Sample
	if err == nil {
		samples, err = vector(body)
	}
	if err != nil {
		return nil, fmt.Errorf("querying Prometheus %s: %w", redacted(address), err)
	}
	if len(samples) == 0 {
		return nil, fmt.Errorf("querying Prometheus %s: it has no metrics of prism-exporter; it must scrape the exporter pods", redacted(address))
	}
	return samples, nil
}

// redacted is the address without a password: the page of kubectl prism ui shows errors, and can be saved.
func redacted(address string) string {
	if at, err := url.Parse(address); err == nil && at.User != nil {
		return at.Redacted()
	}
	return address
}

// prometheusAt returns a function that sends the query.
func prometheusAt(client kubernetes.Interface, address string) (func(context.Context) ([]byte, error), error) {
	if at, err := url.Parse(address); err == nil && (at.Scheme == "http" || at.Scheme == "https") && at.Host != "" {
		at = at.JoinPath("api/v1/query")
		at.RawQuery = url.Values{"query": {selector}}.Encode()
		return func(ctx context.Context) ([]byte, error) { return fetch(ctx, at.String()) }, nil
	}
	namespace, service, found := strings.Cut(address, "/")
	name, port, hasPort := strings.Cut(service, ":")
	if !found || !hasPort || namespace == "" || name == "" || port == "" || strings.ContainsAny(port, ":/") {
		return nil, fmt.Errorf("--prometheus: must be a URL or namespace/service:port, got %q", redacted(address))
	}
	proxy := client.CoreV1().Services(namespace).ProxyGet("http", name, port, "api/v1/query", map[string]string{"query": selector})
	return proxy.DoRaw, nil
}

// fetch sends a GET request.
func fetch(ctx context.Context, at string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		var detail *url.Error
		if errors.As(err, &detail) { // it repeats the query
			err = detail.Err
		}
		return nil, err
	}
	defer response.Body.Close()
	body, err := readAtMost(response.Body, largest)
	switch {
	case err != nil:
		return nil, err
	case response.StatusCode/100 != 2 && !bytes.HasPrefix(body, []byte("{")):
		return nil, fmt.Errorf("HTTP status %s", response.Status)
	}
	return body, nil
}

// readAtMost reads an answer of a limited size.
func readAtMost(from io.Reader, limit int64) ([]byte, error) {
	all, err := io.ReadAll(io.LimitReader(from, limit+1))
	if err == nil && int64(len(all)) > limit {
		err = fmt.Errorf("the answer is larger than %d MiB", limit>>20)
	}
	return all, err
}

// vector reads the answer to an instant query.
func vector(body []byte) ([]Sample, error) {
	var answer struct {
		Status, Error string
		Data          struct {
			Result []struct {
				Metric map[string]string
				Value  [2]any
			}
		}
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return nil, errors.New("the answer is not from Prometheus") // which character is wrong says nothing more
	}
	switch {
	case answer.Status == "error" && answer.Error != "":
		return nil, errors.New(answer.Error)
	case answer.Status != "success":
		return nil, errors.New("the answer is not from Prometheus")
	}
	samples := make([]Sample, 0, len(answer.Data.Result))
	for _, r := range answer.Data.Result {
		text, _ := r.Value[1].(string)
		value, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return nil, fmt.Errorf("the answer is not from Prometheus: value %q", text)
		}
		samples = append(samples, Sample{Name: r.Metric[model.MetricNameLabel], Labels: r.Metric, Value: value})
	}
	return samples, nil
}

// Parse reads a page of an exporter in the text format. Metrics other than gauges are left out.
func Parse(page io.Reader, node string) ([]Sample, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(page)
	if err != nil {
		return nil, fmt.Errorf("reading metrics: %w", err)
	}
	var samples []Sample
	for name, of := range families {
		if metrics[name].family == other || of.GetType() != dto.MetricType_GAUGE {
			continue
		}
		for _, m := range of.Metric {
			s := Sample{Name: name, Labels: map[string]string{}, Value: m.GetGauge().GetValue(), Node: node}
			for _, label := range m.Label {
				s.Labels[label.GetName()] = label.GetValue()
			}
			samples = append(samples, s)
		}
	}
	return samples, nil
}
