package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// errNoPrometheus says how to build one.
var errNoPrometheus = errors.New("no Prometheus in the cache: " +
	"build it with `bin/localcluster build prometheus`, or name one with PROMETHEUS=URL")

// prometheus is the URL of one.
type prometheus string

// series is one of an answer, with its values in order of time.
type series struct {
	Labels map[string]string
	Values []float64
}

// ask evaluates a query over so much of the past, at its end alone for 0.
func (p prometheus) ask(ctx context.Context, query string, past time.Duration) ([]series, error) {
	now := time.Now()
	values, path := url.Values{"query": {query}}, "/api/v1/query"
	if past > 0 {
		stamp := func(t time.Time) string { return strconv.FormatInt(t.Unix(), 10) }
		path = "/api/v1/query_range"
		values.Set("start", stamp(now.Add(-past)))
		values.Set("end", stamp(now))
		values.Set("step", strconv.Itoa(max(1, int(past.Seconds()/120))))
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, string(p)+path+"?"+values.Encode(), http.NoBody)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	var answer struct {
		Status, Error string
		Data          struct {
			Result []struct {
				Metric map[string]string
				Value  []any
				Values [][]any
			}
		}
	}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return nil, fmt.Errorf("reading the answer of %s: %w", p, err)
	}
	if answer.Status != "success" {
		return nil, fmt.Errorf("%s: %s", query, answer.Error)
	}
	var found []series
	for _, r := range answer.Data.Result {
		s := series{Labels: r.Metric}
		if r.Value != nil {
			r.Values = append(r.Values, r.Value)
		}
		for _, pair := range r.Values {
			text, _ := pair[1].(string)
			value, err := strconv.ParseFloat(text, 64)
			if err != nil {
				return nil, err
			}
			s.Values = append(s.Values, value)
		}
		found = append(found, s)
	}
	return found, nil
}

// start starts a Prometheus of the cache that scrapes the example each second and records what the chart's rules record. It ends with stop.
func start(ctx context.Context, root, dir string) (p prometheus, stop func(), err error) {
	rules, err := filepath.Abs(filepath.Join(root, "deployments/helm/prism/files/rules.yaml")) // else it is below the configuration
	if err != nil {
		return "", nil, err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", nil, err
	}
	programs, err := filepath.Glob(filepath.Join(cache, "prism/parts/prometheus-*/prometheus"))
	if err != nil || len(programs) == 0 {
		return "", nil, errNoPrometheus
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	address := listener.Addr().String()
	if err := listener.Close(); err != nil {
		return "", nil, err
	}
	pages := httptest.NewServer(example{})
	config := filepath.Join(dir, "prometheus.yml")
	if err := os.WriteFile(config, []byte(configuration(rules, strings.TrimPrefix(pages.URL, "http://"))), 0o644); err != nil {
		return "", nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	command := exec.CommandContext(ctx, programs[len(programs)-1], "--config.file="+config, "--storage.tsdb.path="+filepath.Join(dir, "data"),
		"--web.listen-address="+address, "--log.level=error")
	command.Stderr = os.Stderr
	stop = func() {
		cancel()
		_ = command.Wait()
		pages.Close()
	}
	if err := command.Start(); err != nil {
		cancel()
		pages.Close()
		return "", nil, err
	}
	return prometheus("http://" + address), stop, nil
}

// configuration has the labels that the chart's monitors set.
func configuration(rules, target string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "global: {scrape_interval: 1s, evaluation_interval: 1s}\nrule_files: [%q]\nscrape_configs:\n", rules)
	for i := range boards {
		for _, path := range []string{"/metrics", "/metrics/dcgm"} {
			fmt.Fprintf(&b, "- {job_name: %[1]q, metrics_path: %[1]q, honor_labels: true, "+
				"static_configs: [{targets: [%[2]q], labels: {node: %[3]s, instance: %[3]s}}]}\n", "/"+boards[i].node+path, target, boards[i].node)
		}
	}
	return b.String()
}
