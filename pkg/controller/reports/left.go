package reports

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"

	reasons "github.com/prism-gpu/prism/pkg/events"
)

// left reports the nodes on which a namespace that is being deleted may leave reports. Its deletion does not wait for them: otherwise a
// failed node would block the deletion of every namespace of the cluster.
type left struct {
	plugins Plugins
	events  events.EventRecorder
}

// report writes an Event about the announcement of each node that stores reports; a node without an announcement stores none.
func (l left) report(ctx context.Context, namespace string, silent []string) {
	announced, err := l.plugins.Announced(ctx)
	if err != nil {
		klog.FromContext(ctx).Error(err, "Reports of a deleted namespace may remain on nodes that did not answer", "namespace", namespace, "nodes", names(silent))
		return
	}
	of := &corev1.Namespace{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}, ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	for _, node := range silent {
		if lease := announced[node]; lease != nil {
			l.events.Eventf(lease, of, corev1.EventTypeWarning, reasons.ReportsLeft, reasons.ActionDelete,
				"Reports of namespace %s may remain on node %s, which did not answer while the namespace was deleted; later namespaces of that name cannot read them, "+
					"and the plugin of the node deletes them when it runs again", namespace, node)
		}
	}
}
