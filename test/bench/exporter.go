package bench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"time"
)

// Numbers of samples and times for the exporter.
const (
	exporterInterval = time.Second
	// An exporter samples for warmingUp before the measurement, which takes sampled.
	warmingUp = 5 * time.Second
	sampled   = 20 * time.Second
	scrapes   = 200
	// between is the time between two scrapes. Some GPUs get new values meanwhile, so the exporter renders some of the pages for the
	// scrape.
	between = 50 * time.Millisecond
	// onlyOnce is an interval in which only one round fits.
	onlyOnce        = 10 * time.Minute
	unprepareRounds = 2
)

// The budgets of the exporter.
const (
	scrapeBudget          = 10 * time.Millisecond
	exporterBudget        = 30 << 20
	callsOfGPU            = 20
	callsOfInstance       = 8
	seriesOfGPU           = 71
	seriesOfInstance      = 30
	seriesOfContainer     = 6
	wholeBudget           = 20 * time.Millisecond // a second: 2 % of a core, half of it in the simulated driver's calls
	partitionedBudget     = 55 * time.Millisecond
	besideExporterBudget  = 5 * time.Millisecond
	exporterTitle         = "prism-exporter, 8 GPUs, each interval 1 s"
	exporterUnprepare     = "a MIG device is unprepared beside prism-exporter"
	containerMemoryMetric = "prism_container_gpu_memory_used_bytes"
)

// exporterBench measures an exporter beside a plugin that advertises GPUs whole and as MIG devices.
type exporterBench struct {
	*migBench

	tenants *tenants
	// gpuCalls counts the calls of a round on a GPU in MIG mode without MIG devices.
	gpuCalls float64
}

// exporter measures prism-exporter, and leaves the GPUs without MIG devices.
func (b *bencher) exporter(ctx context.Context) (err error) {
	driver, err := OpenNVML(b.SimgpuRoot)
	if err != nil {
		return err
	}
	config := filepath.Join(b.KubeletDir, "bench-exporter.yaml")
	if err := os.WriteFile(config, []byte(migConfig), 0o600); err != nil {
		return fmt.Errorf("writing the configuration of a plugin: %w", err)
	}
	defer func() { err = errors.Join(err, os.Remove(config)) }()
	return b.another(ctx, "exporter.bench", func(s *Second, _ time.Duration) error {
		e := &exporterBench{migBench: &migBench{bencher: b, driver: driver, second: s}}
		if err := e.find(ctx); err != nil {
			return err
		}
		if e.tenants, err = b.serveTenants(ctx, s); err != nil {
			return err
		}
		for _, part := range []func(context.Context) error{e.whole, e.enable, e.empty, e.partitioned, e.besideUnprepare, e.disable} {
			if err = part(ctx); err != nil {
				break
			}
		}
		return errors.Join(err, e.tenants.close())
	}, "--node-config="+config)
}

// sampling runs an exporter, and measures it when a metric has the given number of series.
func (e *exporterBench) sampling(ctx context.Context, interval time.Duration, metric string, series int,
	measure func(run *scraper, page string) error) error {
	run, err := e.startExporter(ctx, e.tenants, interval)
	if err != nil {
		return err
	}
	page, err := run.await(ctx, metric, series)
	if err == nil {
		err = measure(run, page)
	}
	return errors.Join(err, run.close())
}

// roundCost holds the calls of a round on one GPU, and the CPU time per second for all GPUs.
type roundCost struct {
	calls float64
	cpu   time.Duration
}

// rounds counts the calls and the CPU time of an exporter for a while. The exporter reads the MIG mode of a GPU once in each round.
func (e *exporterBench) rounds(ctx context.Context, run *scraper) (cost roundCost, err error) {
	pause(ctx, warmingUp)
	pid, start := run.command.Process.Pid, time.Now()
	before, err := e.driver.counts(pid)
	if err != nil {
		return cost, err
	}
	cpuBefore, err := cpuTime(pid)
	if err != nil {
		return cost, err
	}
	pause(ctx, sampled)
	cpuAfter, err := cpuTime(pid)
	if err != nil {
		return cost, err
	}
	seconds := time.Since(start).Seconds()
	after, err := e.driver.counts(pid)
	if err != nil {
		return cost, err
	}
	calls := after.total() - before.total()
	rounds := after["nvmlDeviceGetMigMode"] - before["nvmlDeviceGetMigMode"]
	if rounds == 0 {
		return cost, errors.New("prism-exporter did not sample")
	}
	cost.calls = float64(calls) / float64(rounds)
	cost.cpu = time.Duration(float64(cpuAfter-cpuBefore) / seconds)
	return cost, ctx.Err()
}

// whole measures whole GPUs.
func (e *exporterBench) whole(ctx context.Context) error {
	claims, err := e.tenants.enter(ctx, e.migBench.whole)
	if err != nil {
		return err
	}
	err = e.sampling(ctx, exporterInterval, containerMemoryMetric, len(claims)*tenantsOfDevice, func(run *scraper, _ string) error {
		cost, err := e.rounds(ctx, run)
		if err != nil {
			return err
		}
		page, err := run.scrape(ctx, nativePage, "identity")
		counts := countSeries(page)
		e.report.Add(exporterTitle, "",
			Row{Name: "whole GPUs: NVML calls of a round on a GPU", Count: nearest(cost.calls), Budget: AtMost(callsOfGPU)},
			Row{Name: "whole GPUs: series of a GPU", Count: counts.gpu, Budget: AtMost(seriesOfGPU)},
			Row{Name: "whole GPUs: series of a container's GPU", Count: counts.container, Budget: AtMost(seriesOfContainer)},
			Row{Name: "whole GPUs: CPU time in a second", Samples: Samples{cost.cpu}, Budget: Within(wholeBudget)})
		return err
	})
	return errors.Join(err, e.tenants.leave(), e.second.Plugin.Unprepare(ctx, claims...))
}

// empty counts the calls for GPUs in MIG mode without MIG devices.
func (e *exporterBench) empty(ctx context.Context) error {
	return e.sampling(ctx, exporterInterval, "prism_gpu_up", len(e.parts), func(run *scraper, _ string) error {
		cost, err := e.rounds(ctx, run)
		e.gpuCalls = cost.calls
		e.report.Add(exporterTitle, "", Row{
			Name: "MIG devices: NVML calls of a round on a GPU without its instances", Count: nearest(cost.calls), Budget: AtMost(callsOfGPU),
		})
		return err
	})
}

// partitioned measures GPUs with all the MIG devices that fit.
func (e *exporterBench) partitioned(ctx context.Context) error {
	var all []Device
	for _, of := range e.parts {
		all = append(all, of...)
	}
	claims, err := e.tenants.enter(ctx, all)
	if err != nil {
		return err
	}
	series := len(claims) * tenantsOfDevice
	err = e.sampling(ctx, exporterInterval, containerMemoryMetric, series, func(run *scraper, _ string) error {
		cost, err := e.rounds(ctx, run)
		if err != nil {
			return err
		}
		return e.partitionedRows(ctx, run, cost)
	})
	if err == nil {
		err = e.sampling(ctx, onlyOnce, containerMemoryMetric, series, func(run *scraper, _ string) error { return e.scrapeCalls(ctx, run) })
	}
	return errors.Join(err, e.tenants.leave(), e.second.Plugin.Unprepare(ctx, claims...))
}

// partitionedRows reports the cost of an exporter of partitioned GPUs. Memory comes last, after the scrapes.
func (e *exporterBench) partitionedRows(ctx context.Context, run *scraper, cost roundCost) error {
	instances := float64(len(e.parts[0]))
	e.report.Add(exporterTitle, "", Row{
		Name: "MIG devices: NVML calls of a round for an instance", Count: nearest((cost.calls - e.gpuCalls) / instances), Budget: AtMost(callsOfInstance),
	})
	page, err := run.scrape(ctx, nativePage, "identity")
	if err != nil {
		return err
	}
	counts := countSeries(page)
	e.report.Add(exporterTitle, "",
		Row{Name: "MIG devices: series of a GPU", Count: counts.gpu, Budget: AtMost(seriesOfGPU)},
		Row{Name: "MIG devices: series of an instance", Count: counts.mig, Budget: AtMost(seriesOfInstance)},
		Row{Name: "MIG devices: series of a container's device", Count: counts.container, Budget: AtMost(seriesOfContainer)},
		Row{Name: "MIG devices: series of the page", Count: counts.all})
	for _, page := range []string{"/healthz", nativePage, dcgmPage} {
		var took Samples
		for range scrapes {
			pause(ctx, between)
			one, err := timed(func() error { _, err := run.scrape(ctx, page, "gzip"); return err })
			if err != nil {
				return err
			}
			took = append(took, one)
		}
		row := Row{Name: "MIG devices: scrape of " + page, Samples: took}
		if page != "/healthz" { // which only answers ok: the cost of HTTP on this machine
			row.Budget = Budget{Limit: int(scrapeBudget), Tail: true, kind: printed}
		}
		e.report.Add(exporterTitle, "", row)
	}
	m, err := MemoryOf(run.command.Process.Pid)
	e.report.Add(exporterTitle, "",
		Row{Name: "MIG devices: resident memory", Count: int(m.Resident), Bytes: true, Budget: InMemory(exporterBudget)},
		Row{Name: "MIG devices: of which anonymous", Count: int(m.Anonymous), Bytes: true},
		Row{Name: "MIG devices: resident memory, peak", Count: int(m.Peak), Bytes: true},
		Row{Name: "MIG devices: CPU time in a second", Samples: Samples{cost.cpu}, Budget: Within(partitionedBudget)})
	return err
}

// scrapeCalls counts the NVML calls of scrapes while the exporter does not sample.
func (e *exporterBench) scrapeCalls(ctx context.Context, run *scraper) error {
	pause(ctx, warmingUp)
	pid := run.command.Process.Pid
	before, err := e.driver.counts(pid)
	if err != nil {
		return err
	}
	for range scrapes {
		for _, page := range []string{nativePage, dcgmPage} {
			for _, encoding := range []string{"gzip", "identity"} {
				if _, err := run.scrape(ctx, page, encoding); err != nil {
					return err
				}
			}
		}
	}
	after, err := e.driver.counts(pid)
	e.report.Add(exporterTitle, "", Row{
		Name: fmt.Sprintf("MIG devices: NVML calls of %d scrapes", 4*scrapes), Count: after.total() - before.total(), Budget: Exactly(0),
	})
	return err
}

// besideUnprepare compares Unprepare of a MIG device without and with an exporter that samples it, alternating.
func (e *exporterBench) besideUnprepare(ctx context.Context) error {
	var without, with Latency
	devices := e.first()
	for range unprepareRounds {
		one, err := e.oneByOne(ctx, devices, func(ctx context.Context, claims ...Claim) error {
			pause(ctx, 2*exporterInterval) // about as long as the start of the exporter: after a pause calls take longer
			return e.second.Claims.Reported(ctx, claims...)
		})
		if err != nil {
			return err
		}
		without.add(one)
		err = e.sampling(ctx, exporterInterval, "prism_gpu_up", len(e.parts), func(run *scraper, _ string) error {
			one, err := e.oneByOne(ctx, devices, func(ctx context.Context, claims ...Claim) error {
				// The utilization needs two samples, so the claim is still prepared then.
				_, err := run.await(ctx, "prism_mig_utilization_ratio", len(claims))
				return errors.Join(err, e.second.Claims.Reported(ctx, claims...))
			})
			with.add(one)
			return err
		})
		if err != nil {
			return err
		}
	}
	e.report.Add(exporterUnprepare, "", Row{Name: "without exporter", Samples: without.Unprepare},
		Row{Name: "with an exporter that samples it", Samples: with.Unprepare, Budget: Within(without.Unprepare.P50() + besideExporterBudget)})
	return nil
}

func (e *exporterBench) oneByOne(ctx context.Context, devices []Device, between Between) (Latency, error) {
	claims, err := e.second.Claims.Make(ctx, 2*len(devices), devices)
	if err != nil {
		return Latency{}, err
	}
	return OneByOne(ctx, e.second.Plugin, claims, len(devices), migWarmUp, between)
}

func nearest(n float64) int { return int(math.Round(n)) }
