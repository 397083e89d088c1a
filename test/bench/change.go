package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The two texts alternate. They share no device.
const (
	wholeText     = "apiVersion: gpu.prism.dev/v1alpha1\nkind: NodeConfig\ngpus: [{modes: [whole]}]\n"
	timesliceText = "apiVersion: gpu.prism.dev/v1alpha1\nkind: NodeConfig\ngpus: [{modes: [timeslice], timeSlice: {replicas: 4}}]\n"
)

// changeRounds is the number of changes to the other text and back.
const changeRounds = 1

// change measures the time until all GPUs of a node, which are unused, are published according to another text of a ConfigMap. It reports
// the API requests of the plugin for the most expensive change.
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
	return b.another(ctx, "change.bench", func(s *Second, _ time.Duration) error {
		var took Samples
		var cost Cost
		gpus := len(b.devices)
		if _, err := Published(ctx, b.client, s.Driver, b.Node, Wanted{Type: "gpu", Least: gpus}); err != nil {
			return err
		}
		for range changeRounds {
			for _, to := range []struct{ kind, text string }{{"timeslice", timesliceText}, {"gpu", wholeText}} {
				s.Gate.Take()
				start := time.Now()
				if _, err := configs.Update(ctx, text(to.text), metav1.UpdateOptions{}); err != nil {
					return fmt.Errorf("changing a node's configuration: %w", err)
				}
				if _, err := Published(ctx, b.client, s.Driver, b.Node, Wanted{Type: to.kind, Least: gpus}); err != nil {
					return err
				}
				took = append(took, time.Since(start))
				cost = cost.most(all(s.Gate.Take()))
			}
		}
		b.report.Add(fmt.Sprintf("change of the configuration, %d unused GPUs", gpus), "",
			Row{Name: "from the change of the ConfigMap to the last changed GPU, of which Prism waits 5 s for schedulers", Samples: took},
			Row{Name: "API reads of the plugin meanwhile, maximum", Count: cost.Reads},
			Row{Name: "API writes of the plugin meanwhile, maximum", Count: cost.Writes})
		return nil
	}, "--node-config-map="+config.Namespace+"/"+config.Name)
}
