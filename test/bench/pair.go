package bench

import (
	"context"
	"errors"
	"time"
)

// How much is measured of two drivers in turn.
const (
	gapRounds    = 24
	gap          = 600 * time.Millisecond
	rowRounds    = 6
	rowClaims    = 96 // a round: longer than a status waits to be written
	atOnceRounds = 16
	// afterwards is longer than what is done after an answer, so that it does not disturb the other driver.
	afterwards = 300 * time.Millisecond
)

// contender is one of two drivers that are measured in turn: a process with the same API server, rights and disk as the other one.
type contender struct {
	*Second

	devices            []Device
	gap, inRow, atOnce Latency
}

// pair measures the plugin and dra-example-driver: two unmodified programs, one API server, a sample of the one, a sample of the other.
func (b *bencher) pair(ctx context.Context) (err error) {
	if b.Example == "" {
		return errors.New("the program of dra-example-driver is required: --example")
	}
	both, closeAll, err := b.contenders(ctx, [2]string{"prism.bench", "example.bench"}, [2]command{
		func(s *Second) []string { return prismCommand(s.Program, b.Binary, b.Node, s.Kubelet.Socket) },
		func(s *Second) []string { return exampleCommand(s.Program, b.Example, b.Node, len(b.devices)) },
	})
	defer func() { err = errors.Join(err, closeAll(context.WithoutCancel(ctx))) }()
	if err != nil {
		return err
	}
	idle, err := b.memories(ctx, both)
	if err != nil {
		return err
	}
	for _, part := range []func(context.Context, [2]*contender) error{withGap, inRows, allAtOnce} {
		if err := part(ctx, both); err != nil {
			return err
		}
	}
	used, err := b.memories(ctx, both)
	b.gap = both[0].gap
	b.compare(both, idle, used)
	return err
}

// command is the command line of a program with these directories.
type command func(s *Second) []string

// contenders starts two programs. Close them also where there is an error.
func (b *bencher) contenders(ctx context.Context, drivers [2]string, commands [2]command) (both [2]*contender, closeAll func(context.Context) error, err error) {
	closeAll = func(ctx context.Context) error {
		var failed []error
		for _, c := range both {
			if c != nil {
				failed = append(failed, c.Close(ctx))
			}
		}
		return errors.Join(failed...)
	}
	for i, driver := range drivers {
		second, err := b.newSecond(ctx, driver, false)
		both[i] = &contender{Second: second}
		if err != nil {
			return both, closeAll, err
		}
	}
	for i, c := range both {
		c.Command = commands[i](c.Second)
		if _, err := c.Start(ctx); err != nil {
			return both, closeAll, err
		}
		if c.devices, err = Published(ctx, b.client, c.Driver, b.Node, Wanted{Least: len(b.devices)}); err != nil {
			return both, closeAll, err
		}
		// The first round warms up.
		if err := c.row(ctx); err != nil {
			return both, closeAll, err
		}
		c.inRow = Latency{}
	}
	return both, closeAll, nil
}

// metadata measures what the files with the attributes of a claim's devices cost: two plugins in turn, of which one writes them.
func (b *bencher) metadata(ctx context.Context) (err error) {
	with := func(flag string) command {
		return func(s *Second) []string {
			return prismCommand(s.Program, b.Binary, b.Node, s.Kubelet.Socket, "--device-metadata="+flag)
		}
	}
	both, closeAll, err := b.contenders(ctx, [2]string{"with.bench", "without.bench"}, [2]command{with("true"), with("false")})
	defer func() { err = errors.Join(err, closeAll(context.WithoutCancel(ctx))) }()
	if err != nil {
		return err
	}
	err = inRows(ctx, both)
	b.report.Add("with files of device metadata, a sample of each in turn", "without",
		both[0].inRow.rows("prepare, one claim right after the other", "unprepare, one claim right after the other", both[1].inRow)...)
	return err
}

// memories are what the two processes have in memory when they are idle.
func (b *bencher) memories(ctx context.Context, both [2]*contender) (m [2]Memory, err error) {
	pause(ctx, quiet)
	for i, c := range both {
		if m[i], err = MemoryOf(c.Plugin.PID); err != nil {
			return m, err
		}
	}
	return m, nil
}

// withGap measures one claim at a time with a gap before each call; the other driver's call is in the middle of the gap. Each is the
// first as often as the other.
func withGap(ctx context.Context, both [2]*contender) error {
	var claims [2][]Claim
	for i, c := range both {
		made, err := c.Claims.Make(ctx, gapRounds, c.devices)
		if err != nil {
			return err
		}
		claims[i] = made
	}
	for round := range gapRounds {
		for half := range 2 {
			for at := range both {
				i := (at + round) % 2 // the API server has just answered the other driver for one of them
				c := both[i]
				call, into := Between(c.Plugin.Prepare), &c.gap.Prepare
				if half == 1 {
					call, into = c.Plugin.Unprepare, &c.gap.Unprepare
				}
				pause(ctx, gap/2)
				took, err := timed(func() error { return call(ctx, claims[i][round]) })
				if err != nil {
					return err
				}
				*into = append(*into, took)
			}
		}
	}
	return nil
}

// inRows measures one claim right after the other; what is done after the answers of earlier claims competes.
func inRows(ctx context.Context, both [2]*contender) error {
	for round := range rowRounds {
		for at := range both {
			if err := both[(at+round)%2].row(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// row prepares as many claims as there are devices, one after the other, unprepares them likewise, and so on.
func (c *contender) row(ctx context.Context) error {
	claims, err := c.Claims.Make(ctx, rowClaims, c.devices)
	if err != nil {
		return err
	}
	pause(ctx, afterwards)
	one, err := OneByOne(ctx, c.Plugin, claims, len(c.devices), 0, nil)
	c.inRow.add(one)
	pause(ctx, afterwards)
	return err
}

// allAtOnce measures a call for each device at once.
func allAtOnce(ctx context.Context, both [2]*contender) error {
	for round := range atOnceRounds {
		for at := range both {
			c := both[(at+round)%2]
			claims, err := c.Claims.Make(ctx, len(c.devices), c.devices)
			if err != nil {
				return err
			}
			pause(ctx, afterwards)
			r, err := AllAtOnce(ctx, c.Plugin, claims, len(c.devices), 0, nil)
			if err != nil {
				return err
			}
			c.atOnce.add(r.Last)
		}
	}
	return nil
}

// compare reports ours beside theirs.
func (b *bencher) compare(both [2]*contender, idle, used [2]Memory) {
	ours, theirs := both[0], both[1]
	rows := ours.gap.rows("prepare, 600 ms after the last call", "unprepare, 600 ms after the last call", theirs.gap)
	rows = append(rows, ours.inRow.rows("prepare, one claim right after the other", "unprepare, one claim right after the other", theirs.inRow)...)
	rows = append(rows, ours.atOnce.rows("prepare 8 at once, until the last answer", "unprepare 8 at once, until the last answer", theirs.atOnce)...)
	rows = append(rows,
		Row{Name: "resident memory, idle", Count: int(idle[0].Resident), BaseCount: int(idle[1].Resident), Bytes: true},
		Row{Name: "resident memory, after all this", Count: int(used[0].Resident), BaseCount: int(used[1].Resident), Bytes: true})
	for i := range rows {
		rows[i].Budget = Ratio(1)
	}
	b.report.Add("beside dra-example-driver, a sample of each in turn", "dra-example-driver", rows...)
}
