package bench

import (
	"context"
	"errors"
	"time"
)

// Numbers of samples for two drivers in turn.
const (
	gapRounds    = 24
	gap          = 600 * time.Millisecond
	rowRounds    = 6
	rowClaims    = 96 // a round: longer than the delay of a status update
	atOnceRounds = 16
	// afterwards is longer than the work after an answer, so that it does not disturb the other driver.
	afterwards = 300 * time.Millisecond
)

// contender is one of two drivers that are measured in turn. Both processes use the same API server, rights and disk.
type contender struct {
	*Second

	devices            []Device
	gap, inRow, atOnce Latency
	// idle and used are the memory before and after the measurements.
	idle, used Memory
}

// pair measures the plugin and dra-example-driver: two unmodified programs on one API server, one sample of each in turn.
func (b *bencher) pair(ctx context.Context) error {
	if b.Example == "" {
		return errors.New("the program of dra-example-driver is required: --example")
	}
	example := func(s *Second) []string { return exampleCommand(s.Program, b.Example, b.Node, len(b.devices)) }
	return b.contend(ctx, [2]string{"prism.bench", "example.bench"}, [2]command{b.prism(), example}, func(both [2]*contender) error {
		pause(ctx, quiet)
		err := inTurn(both, 0, func(c *contender) (err error) { c.idle, err = MemoryOf(c.Plugin.PID); return err })
		for _, part := range []func(context.Context, [2]*contender) error{withGap, inRows, allAtOnce} {
			if err == nil {
				err = part(ctx, both)
			}
		}
		if err != nil {
			return err
		}
		pause(ctx, quiet)
		err = inTurn(both, 0, func(c *contender) (err error) { c.used, err = MemoryOf(c.Plugin.PID); return err })
		b.gap = both[0].gap
		b.report.Add("beside dra-example-driver, a sample of each in turn", "dra-example-driver", both[0].rows(both[1])...)
		return err
	})
}

// metadata measures the cost of the files with the attributes of a claim's devices: two plugins in turn, of which one writes them.
func (b *bencher) metadata(ctx context.Context) error {
	commands := [2]command{b.prism("--device-metadata=true"), b.prism("--device-metadata=false")}
	return b.contend(ctx, [2]string{"with.bench", "without.bench"}, commands, func(both [2]*contender) error {
		err := inRows(ctx, both)
		b.report.Add("with files of device metadata, a sample of each in turn", "without",
			both[0].inRow.rows("prepare, one claim right after the other", "unprepare, one claim right after the other", both[1].inRow)...)
		return err
	})
}

// contend runs two drivers while they are measured. A first round warms them up.
func (b *bencher) contend(ctx context.Context, drivers [2]string, commands [2]command, measure func([2]*contender) error) error {
	return b.with(ctx, drivers[0], false, commands[0], func(first *Second, _ time.Duration) error {
		return b.with(ctx, drivers[1], false, commands[1], func(second *Second, _ time.Duration) error {
			both := [2]*contender{{Second: first}, {Second: second}}
			err := inTurn(both, 0, func(c *contender) (err error) {
				if c.devices, err = Published(ctx, b.client, c.Driver, b.Node, Wanted{Least: len(b.devices)}); err == nil {
					_, err = c.round(ctx, rowClaims, 1)
				}
				return err
			})
			if err != nil {
				return err
			}
			return measure(both)
		})
	})
}

// inTurn calls do for both drivers. Each is first in every other round.
func inTurn(both [2]*contender, round int, do func(*contender) error) error {
	for at := range both {
		if err := do(both[(at+round)%2]); err != nil {
			return err
		}
	}
	return nil
}

// withGap measures one claim at a time with a gap before each call; the other driver's call is in the middle of the gap.
func withGap(ctx context.Context, both [2]*contender) error {
	claims := map[*contender][]Claim{}
	err := inTurn(both, 0, func(c *contender) (err error) { claims[c], err = c.Claims.Make(ctx, gapRounds, c.devices); return err })
	for i := 0; i < 2*gapRounds && err == nil; i++ {
		round, unprepare := i/2, i%2 == 1
		err = inTurn(both, round, func(c *contender) error {
			call, into := Between(c.Plugin.Prepare), &c.gap.Prepare
			if unprepare {
				call, into = c.Plugin.Unprepare, &c.gap.Unprepare
			}
			pause(ctx, gap/2)
			took, err := timed(func() error { return call(ctx, claims[c][round]) })
			*into = append(*into, took)
			return err
		})
	}
	return err
}

// inRows measures one claim right after the other; the work after the answers to earlier claims competes.
func inRows(ctx context.Context, both [2]*contender) (err error) {
	for round := 0; round < rowRounds && err == nil; round++ {
		err = inTurn(both, round, func(c *contender) error {
			took, err := c.round(ctx, rowClaims, 1)
			c.inRow.add(took)
			return err
		})
	}
	return err
}

// allAtOnce measures one call for each device at once.
func allAtOnce(ctx context.Context, both [2]*contender) (err error) {
	for round := 0; round < atOnceRounds && err == nil; round++ {
		err = inTurn(both, round, func(c *contender) error {
			took, err := c.round(ctx, len(c.devices), len(c.devices))
			c.atOnce.add(took)
			return err
		})
	}
	return err
}

// round prepares as many claims as there are devices, one after the other or all at once, unprepares them likewise, and so on.
func (c *contender) round(ctx context.Context, n, atOnce int) (l Latency, err error) {
	claims, err := c.Claims.Make(ctx, n, c.devices)
	if err != nil {
		return l, err
	}
	pause(ctx, afterwards)
	defer pause(ctx, afterwards)
	if atOnce == 1 {
		return OneByOne(ctx, c.Plugin, claims, len(c.devices), 0, nil)
	}
	r, err := AllAtOnce(ctx, c.Plugin, claims, atOnce, 0, nil)
	return r.Last, err
}

// rows compares a driver with another one.
func (c *contender) rows(other *contender) []Row {
	rows := c.gap.rows("prepare, 600 ms after the last call", "unprepare, 600 ms after the last call", other.gap)
	rows = append(rows, c.inRow.rows("prepare, one claim right after the other", "unprepare, one claim right after the other", other.inRow)...)
	rows = append(rows, c.atOnce.rows("prepare 8 at once, until the last answer", "unprepare 8 at once, until the last answer", other.atOnce)...)
	rows = append(rows,
		Row{Name: "resident memory, idle", Count: int(c.idle.Resident), BaseCount: int(other.idle.Resident), Bytes: true},
		Row{Name: "resident memory, after the measurements", Count: int(c.used.Resident), BaseCount: int(other.used.Resident), Bytes: true})
	for i := range rows {
		rows[i].Budget = Ratio(1)
	}
	return rows
}
