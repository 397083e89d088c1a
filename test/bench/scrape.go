package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"
)

// The pages of prism-exporter.
const (
	nativePage = "/metrics"
	dcgmPage   = "/metrics/dcgm"
)

// everySet lists all sets of metrics: the maximum that a node can request.
const everySet = "Basic,Utilization,Memory,Power,Clocks,PCIe,NVLink,ECC,Throttle,Processes,Pipelines"

// scraper is a process of prism-exporter and the client that scrapes it.
type scraper struct {
	command *exec.Cmd
	log     string
	at      string
	client  *http.Client
}

// startExporter starts an exporter of the driver name, with that interval. It asks the tenants' socket for containers.
func (b *bencher) startExporter(ctx context.Context, t *tenants, interval time.Duration) (e *scraper, err error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("finding a free port: %w", err)
	}
	at := l.Addr().String()
	if err := l.Close(); err != nil {
		return nil, fmt.Errorf("finding a free port: %w", err)
	}
	e = &scraper{at: at, log: filepath.Join(t.second.Dir, "exporter.log"), client: &http.Client{Transport: &http.Transport{DisableCompression: true}}}
	e.command = exec.CommandContext(ctx, filepath.Join(filepath.Dir(b.Binary), "prism-exporter"),
		"--driver-name="+t.second.Driver, "--node-name="+b.Node, "--host-root=/", "--http-endpoint="+at, "--probe-endpoint=", "--interval="+interval.String(),
		"--kubelet-plugins-dir="+t.second.pluginsDir(), "--kubelet-pod-resources-socket="+t.socket, "--cri-socket="+t.socket,
		"--run-dir="+filepath.Join(t.second.Dir, "run"), "--sets="+everySet)
	log, err := os.OpenFile(e.log, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("starting prism-exporter: %w", err)
	}
	defer log.Close()
	e.command.Stderr = log
	e.command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := e.command.Start(); err != nil {
		return nil, fmt.Errorf("starting prism-exporter: %w", err)
	}
	return e, nil
}

// close stops the exporter as a kubelet does.
func (e *scraper) close() error {
	e.client.CloseIdleConnections()
	err := e.command.Process.Signal(syscall.SIGTERM)
	return errors.Join(err, e.command.Wait())
}

// scrape reads a page; encoding lists the encodings that the client accepts.
func (e *scraper) scrape(ctx context.Context, page, encoding string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+e.at+page, http.NoBody)
	if err != nil {
		return "", fmt.Errorf("scraping %s: %w", page, err)
	}
	request.Header.Set("Accept-Encoding", encoding)
	answer, err := e.client.Do(request)
	if err != nil {
		return "", fmt.Errorf("scraping %s: %w", page, err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = errors.New(answer.Status)
	}
	if err != nil {
		return "", fmt.Errorf("scraping %s: %w", page, err)
	}
	return string(text), nil
}

// pageLimit is far longer than the time until the page of an exporter is complete.
const pageLimit = time.Minute

// await scrapes until a metric has this number of series, and returns that page.
func (e *scraper) await(ctx context.Context, metric string, series int) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, pageLimit)
	defer cancel()
	for {
		page, err := e.scrape(ctx, nativePage, "identity")
		if err == nil && strings.Count(page, "\n"+metric+"{") == series {
			return page, nil
		}
		if ctx.Err() != nil {
			log, _ := os.ReadFile(e.log)
			return "", fmt.Errorf("waiting for %d series of %s, got %d: %w: %s", series, metric, strings.Count(page, "\n"+metric+"{"), ctx.Err(),
				log[max(0, len(log)-2000):])
		}
		pause(ctx, 20*time.Millisecond)
	}
}

// seriesCounts counts the series of a page: all, and the maximum of one GPU, of one MIG device, and of one device of a container.
type seriesCounts struct{ all, gpu, mig, container int }

var seriesLabel = regexp.MustCompile(`(\w+)="((?:[^"\\]|\\.)*)"`)

// countSeries counts the series of a page with Prism's metric names.
func countSeries(page string) (counts seriesCounts) {
	of := map[*int]map[string]int{&counts.gpu: {}, &counts.mig: {}, &counts.container: {}}
	for line := range strings.Lines(page) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		counts.all++
		labels := map[string]string{}
		for _, label := range seriesLabel.FindAllStringSubmatch(line, -1) {
			labels[label[1]] = label[2]
		}
		name, _, _ := strings.Cut(line, "{")
		device := labels["gpu_uuid"] + labels["mig_uuid"]
		most := &counts.gpu
		switch {
		case labels["gpu_uuid"] == "":
			continue
		case name == "prism_gpu_allocation_info" || strings.HasPrefix(name, "prism_container_"):
			most, device = &counts.container, labels["namespace"]+"/"+labels["pod"]+"/"+labels["container"]+"/"+device
		case labels["mig_uuid"] != "":
			most = &counts.mig
		}
		of[most][device]++
		*most = max(*most, of[most][device])
	}
	return counts
}
