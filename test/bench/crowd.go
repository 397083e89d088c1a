package bench

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
)

// Crowd is how many other claims are prepared while Beside is measured.
const Crowd = 100

// Beside is what one more claim takes beside others: how long the kubelet waits, and what is done to the plugin's files for so many
// claims.
type Beside struct {
	Latency

	Claims          int
	Prepared, Freed Files
}

// add adds another measurement. Its counts replace those that were larger: the plugin may have read its files for itself in one of
// them.
func (b *Beside) add(other Beside) {
	if b.Claims == 0 {
		b.Prepared, b.Freed = other.Prepared, other.Freed
	}
	b.Claims = other.Claims
	b.Prepared, b.Freed = b.Prepared.least(other.Prepared), b.Freed.least(other.Freed)
	b.Latency.add(other.Latency)
}

// MeasureBeside measures one claim at a time, and traces what is done to the files below the directories for as many claims as there
// are GPUs.
func MeasureBeside(ctx context.Context, p *Plugin, c *Claims, claims []Claim, gpus int, dirs ...string) (b Beside, err error) {
	measured, counted := claims[gpus:], claims[:gpus]
	if b.Latency, err = OneByOne(ctx, p, measured, gpus, 0, c.Reported); err != nil {
		return b, err
	}
	periods, err := traced(ctx, p, tracedFiles, counted, 1)
	if err != nil {
		return b, err
	}
	b.Claims = len(counted)
	for _, period := range periods {
		files := filesBelow(period.calls, dirs...)
		if period.prepare {
			b.Prepared = b.Prepared.plus(files)
		} else {
			b.Freed = b.Freed.plus(files)
		}
	}
	if err := c.Reported(ctx, counted...); err != nil {
		return b, err
	}
	if b.Prepared.Synced < b.Claims || b.Freed.Changed < b.Claims {
		return b, fmt.Errorf("tracing what is done to the files below %v: %+v for preparing and %+v for unpreparing %d claims cannot be all",
			dirs, b.Prepared, b.Freed, b.Claims)
	}
	return b, nil
}

// grown are the counts of one more claim beside others, which must be what they are alone.
func grown(alone, crowded Beside) (rows []Row) {
	for _, half := range []struct {
		what           string
		alone, crowded Files
	}{{"prepare", alone.Prepared, crowded.Prepared}, {"unprepare", alone.Freed, crowded.Freed}} {
		expected := half.alone.counts()
		for i, c := range half.crowded.counts() {
			each := float64(expected[i].n) / float64(max(alone.Claims, 1))
			rows = append(rows, Row{
				Name: half.what + ": " + c.what, Count: c.n, Budget: Exactly(expected[i].n),
				Note: "(alone " + strconv.FormatFloat(each, 'f', -1, 64) + " a claim)",
			})
		}
	}
	return rows
}

// crowded measures one more claim, in turn without others and while claims with admin access stay prepared.
func (b *bencher) crowded(ctx context.Context) error {
	dirs := []string{filepath.Join(b.pluginsDir(), b.Driver), b.CDIRoot}
	measure := func(into *Beside) error {
		claims, err := b.claims.Make(ctx, len(b.devices)+crowdedClaims, b.devices)
		if err != nil {
			return err
		}
		one, err := MeasureBeside(ctx, b.plugin, b.claims, claims, len(b.devices), dirs...)
		into.add(one)
		return err
	}
	var alone, crowded Beside
	for range crowdRounds {
		if err := measure(&alone); err != nil {
			return err
		}
		others, err := crowd(ctx, b.plugin, b.claims, b.devices)
		if err != nil {
			return err
		}
		if err := measure(&crowded); err != nil {
			return err
		}
		if err := b.plugin.Unprepare(ctx, others...); err != nil {
			return err
		}
	}
	b.report.Add(waits, floorBase, alone.rows("prepare one claim, in turn without others", "unprepare one claim, in turn without others",
		Latency{Prepare: b.floor.both()})...)
	b.report.Add(waits, floorBase, crowded.rows(fmt.Sprintf("prepare one claim beside %d others", Crowd),
		fmt.Sprintf("unprepare one claim beside %d others", Crowd), Latency{Prepare: b.floor.both()})...)
	b.report.Add(fmt.Sprintf("done to files for %d claims beside %d others, one at a time", crowded.Claims, Crowd), "", grown(alone, crowded)...)
	return nil
}

// crowd prepares claims with admin access to the GPUs.
func crowd(ctx context.Context, p *Plugin, c *Claims, gpus []Device) ([]Claim, error) {
	others, err := c.Make(ctx, Crowd, admins(gpus))
	if err != nil {
		return nil, err
	}
	if err := p.Prepare(ctx, others...); err != nil {
		return nil, err
	}
	return others, c.Reported(ctx, others...)
}
