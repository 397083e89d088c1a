package bench

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Change is what it takes until all GPUs of a node, which nobody uses, are published as another text of their configuration says.
type Change struct {
	// Took is from the write of the text on. Schedulers are given 5 s of it to hear of what leaves.
	Took Samples
	// GPUs is how many there are, Cost what the plugin asked of the API server for the dearest change.
	GPUs int
	Cost Cost
}

// The two texts take turns. No device of one is in the other.
const (
	wholeText = "apiVersion: gpu.prism.dev/v1alpha1\nkind: NodeConfig\ngpus: [{modes: [whole]}]\n"
	turnsText = "apiVersion: gpu.prism.dev/v1alpha1\nkind: NodeConfig\ngpus: [{modes: [timeslice], timeSlice: {replicas: 4}}]\n"
)

// changeRounds is how often the text is changed to the other one and back.
const changeRounds = 2

// change measures changes of a ConfigMap.
func (b *bencher) change(ctx context.Context) (err error) {
	configs := b.client.CoreV1().ConfigMaps(metav1.NamespaceDefault)
	text := func(text string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "bench-node-config"}, Data: map[string]string{"default": text}}
	}
	config, err := configs.Create(ctx, text(wholeText), metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("creating a node's configuration: %w", err)
	}
	defer func() {
		err = errors.Join(err, configs.Delete(context.WithoutCancel(ctx), config.Name, metav1.DeleteOptions{}))
	}()
	o := SecondOptions{Driver: "change.bench", ConfigMap: config.Namespace + "/" + config.Name}
	return b.another(ctx, o, func(s *Second, _ *Claims, _ time.Duration) error {
		m := &b.report.Change
		m.GPUs = len(b.devices)
		if _, err := Published(ctx, b.client, s.Driver, b.Node, Wanted{Type: "gpu", Least: m.GPUs}); err != nil {
			return err
		}
		for range changeRounds {
			for _, to := range []struct{ kind, text string }{{"timeslice", turnsText}, {"gpu", wholeText}} {
				s.Gate.Take()
				start := time.Now()
				if _, err := configs.Update(ctx, text(to.text), metav1.UpdateOptions{}); err != nil {
					return fmt.Errorf("changing a node's configuration: %w", err)
				}
				if _, err := Published(ctx, b.client, s.Driver, b.Node, Wanted{Type: to.kind, Least: m.GPUs}); err != nil {
					return err
				}
				m.Took = append(m.Took, time.Since(start))
				m.Cost = m.Cost.most(all(s.Gate.Take()))
			}
		}
		return nil
	})
}

// change tells of it.
func (r *Report) change(b *strings.Builder) {
	c := r.Change
	fmt.Fprintf(b, "\n| another configuration, %d unused GPUs | |\n|---|--:|\n", c.GPUs)
	fmt.Fprintf(b, "| from its text to the last GPU published so (p50 of %d), of which 5 s are for schedulers to hear of it | %s |\n",
		len(c.Took), milliseconds(c.Took.P50()))
	fmt.Fprintf(b, "| slowest | %s |\n", milliseconds(c.Took.P99()))
	fmt.Fprintf(b, "| API reads and writes of the plugin meanwhile, most | %d and %d |\n", c.Cost.Reads, c.Cost.Writes)
}
