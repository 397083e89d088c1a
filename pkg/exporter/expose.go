package exporter

import (
	"context"
	"time"

	"k8s.io/klog/v2"
)

// exposeInterval is the time between two checks for a new round, as short as the shortest round.
const exposeInterval = time.Second

// expose writes the metrics of claims for their containers in each round, until the context ends. It also runs without a driver, so that
// the last values of a claim do not stay.
func (e *Exporter) expose(ctx context.Context) error {
	var written *round
	said := ""
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-e.adapters.After(exposeInterval):
		}
		now := e.now()
		if now == written {
			continue
		}
		written = now
		err := e.adapters.Allocations.Exposed(e.cfg.ClaimsDir(), func(uid string) []byte { return now.join().Claim(uid) })
		if err != nil && err.Error() != said {
			klog.FromContext(ctx).Error(err, "Failed to write the metrics of claims for their containers")
		}
		said = ""
		if err != nil {
			said = err.Error()
		}
	}
}
