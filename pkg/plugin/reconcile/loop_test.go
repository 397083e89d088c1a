package reconcile

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

// TestRun_PortFails_OneRound: a failed operation waits for the next round, and is reported.
func TestRun_PortFails_OneRound(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(w *world){
		"recovery":   func(w *world) { w.recovery = errAway },
		"collection": func(w *world) { w.swept = errAway },
		"kubelet":    func(w *world) { w.deaf = errAway },
		"API server": func(w *world) { w.silent = errAway },
		"undoing":    func(w *world) { w.stuck, w.gone["a"] = errAway, true },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				w := node("a")
				w.begin = func(int) {
					if w.rounds > 100 { // the clock stops for a loop that does not wait
						panic("it does not wait")
					}
				}
				fail(w)
				ctx, stop := context.WithCancel(t.Context())
				ended := make(chan struct{})
				go func() { defer close(ended); New(Options{Node: w, Claims: w, Pods: w, Report: w}).Run(ctx) }()
				const failTime = 10 * time.Second
				time.Sleep(failTime)
				synctest.Wait()
				assert.Equal(t, 1, w.rounds)
				assert.Equal(t, w.stuck == nil, len(w.failed) > 0, "an undoing is due after five minutes")
				stop()
				<-ended
			})
		})
	}
}
