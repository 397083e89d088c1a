package bench

import (
	"context"
	"fmt"
)

// Crowd is how many other claims are prepared while Beside is measured.
const Crowd = 100

// Beside is what one more claim takes beside others: Latency is the wait of the kubelet, and Prepare and Unprepare are what is
// done to the plugin's files for so many claims.
type Beside struct {
	Latency

	Claims             int
	Prepare, Unprepare Files
}

// again adds another measurement. Its counts replace those that were larger: the plugin may have looked through its files for
// itself in one of them.
func (b *Beside) again(other Beside) {
	if b.Claims == 0 {
		b.Prepare, b.Unprepare = other.Prepare, other.Unprepare
	}
	b.Claims = other.Claims
	b.Prepare, b.Unprepare = b.Prepare.least(other.Prepare), b.Unprepare.least(other.Unprepare)
	b.add(other.Latency.Prepare, other.Latency.Unprepare)
}

// MeasureBeside measures one claim at a time, and traces what is done to the files below the directories for as many claims
// as there are GPUs.
func MeasureBeside(ctx context.Context, p *Plugin, c *Claims, claims []Claim, gpus int, dirs ...string) (b Beside, err error) {
	measured, counted := claims[gpus:], claims[:gpus]
	if b.Latency, err = OneByOne(ctx, p, c, measured, gpus, 0); err != nil {
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
			b.Prepare = b.Prepare.plus(files)
		} else {
			b.Unprepare = b.Unprepare.plus(files)
		}
	}
	if err := c.Reported(ctx, counted...); err != nil {
		return b, err
	}
	if b.Prepare.Synced < b.Claims || b.Unprepare.Changed < b.Claims {
		return b, fmt.Errorf("tracing what is done to the files below %v: %+v for preparing and %+v for unpreparing %d claims cannot be all",
			dirs, b.Prepare, b.Unprepare, b.Claims)
	}
	return b, nil
}

// grown says what one more claim takes beside others that it does not take alone.
func grown(alone, crowded Beside) []error {
	var problems []error
	for _, half := range []struct {
		what           string
		alone, crowded Files
	}{
		{"preparing", alone.Prepare, crowded.Prepare}, {"unpreparing", alone.Unprepare, crowded.Unprepare},
	} {
		if half.alone != half.crowded {
			problems = append(problems, fmt.Errorf("%s %d claims beside %d others does %v to files, but alone %v",
				half.what, alone.Claims, Crowd, half.crowded, half.alone))
		}
	}
	return problems
}
