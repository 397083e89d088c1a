package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// Floor is the time of this machine for the three operations that every driver needs.
type Floor struct {
	// Durable is a durable write of 4 KiB: file written and synced, renamed, directory synced.
	Durable Samples
	// Get reads a ResourceClaim from the API server.
	Get Samples
	// Call is a gRPC call over a unix socket that names no claim.
	Call Samples
}

// Prepare is the minimum time to prepare a claim: a call, in which the driver reads the claim and writes one record.
func (f Floor) Prepare() time.Duration { return f.Durable.P50() + f.Get.P50() + f.Call.P50() }

const (
	floorSamples = 200
	warmUp       = 20
	// recordSize is the size of a durable write: no record of a claim is larger than a page.
	recordSize = 4096
)

// MeasureFloor measures in a new directory below dir, with a claim that exists and a plugin that answers.
func MeasureFloor(ctx context.Context, dir string, client kubernetes.Interface, p *Plugin, claim Claim) (f Floor, err error) {
	work, err := os.MkdirTemp(dir, "bench-")
	if err != nil {
		return f, fmt.Errorf("measuring the machine: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	page := make([]byte, recordSize)
	record := 0
	if f.Durable, err = repeat(floorSamples, warmUp, func() error {
		record++
		return durable(work, fmt.Sprintf("record-%d", record), page)
	}); err != nil {
		return f, fmt.Errorf("measuring a durable write: %w", err)
	}
	claims := client.ResourceV1().ResourceClaims(claim.Namespace)
	if f.Get, err = repeat(floorSamples, warmUp, func() error {
		_, err := claims.Get(ctx, claim.Name, metav1.GetOptions{})
		return err
	}); err != nil {
		return f, fmt.Errorf("measuring a GET: %w", err)
	}
	if f.Call, err = repeat(floorSamples, warmUp, func() error { return p.Prepare(ctx) }); err != nil {
		return f, fmt.Errorf("measuring a gRPC call: %w", err)
	}
	return f, nil
}

// both returns Prepare as the base of a comparison.
func (f Floor) both() Samples { return Samples{f.Prepare()} }

// rows returns the three times and their sum.
func (f Floor) rows() []Row {
	return []Row{
		{Name: "durable write: 4 KiB written, fsync, rename, fsync of the directory", Samples: f.Durable},
		{Name: "GET of a ResourceClaim", Samples: f.Get},
		{Name: "gRPC call over a unix socket that names no claim", Samples: f.Call},
		{Name: "**floor of prepare**: one of each", Samples: f.both()},
	}
}

const pacedSamples = 20

// MeasurePacedFloor measures like MeasureFloor, without the call: in dir, and with a claim that exists. Before each sample it pauses for as
// long as the creation of a MIG device takes.
func MeasurePacedFloor(ctx context.Context, dir string, client kubernetes.Interface, claim Claim) (f Floor, err error) {
	page := make([]byte, recordSize)
	claims := client.ResourceV1().ResourceClaims(claim.Namespace)
	for i := range pacedSamples {
		pause(ctx, creationTime)
		get, err := timed(func() error {
			_, err := claims.Get(ctx, claim.Name, metav1.GetOptions{})
			return err
		})
		if err != nil {
			return f, fmt.Errorf("measuring a GET: %w", err)
		}
		pause(ctx, creationTime)
		written, err := timed(func() error { return durable(dir, fmt.Sprintf("record-%d", i), page) })
		if err != nil {
			return f, fmt.Errorf("measuring a durable write: %w", err)
		}
		f.Get, f.Durable = append(f.Get, get), append(f.Durable, written)
	}
	return f, nil
}

// repeat times n runs, after warm-up runs that do not count.
func repeat(n, warmUp int, run func() error) (Samples, error) {
	samples := make(Samples, 0, n)
	for i := range warmUp + n {
		start := time.Now()
		if err := run(); err != nil {
			return nil, err
		}
		if i >= warmUp {
			samples = append(samples, time.Since(start))
		}
	}
	return samples, nil
}

// durable writes a new file, like the record of a claim. To replace a file would add the cost of freeing its blocks.
func durable(dir, name string, data []byte) error {
	path := filepath.Join(dir, name)
	f, err := os.OpenFile(path+".tmp", os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(path+".tmp", path); err != nil {
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
